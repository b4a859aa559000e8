package core

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/internal/fit"
)

// What pods require of the pods around them, as the state and the placer know it.
//
// Anti-affinity holds both ways, as on Kubernetes: a pod that must be apart from label x keeps
// pods with x out of its domain, too. Such a pod carries a mark as a further label, and pods
// with x must be apart from the mark while a live job has such a term. This also holds for
// places that are kept for pods: else a victim with x would start again in the domain that it
// left for a pod which must be apart from x.

// repulsion is an anti-affinity from a label that tasks of live jobs have.
type repulsion struct {
	level int
	term  Term // against pods with the mark
	// tasks counts those that have it, strange those of them whose own pods do not carry the
	// label.
	tasks, strange int
}

// affinities are what live jobs require of the pods around theirs.
type affinities struct {
	state  *cluster.State
	placer *place.Placer
	// repelled has, by label, the anti-affinities of live jobs from it, by level.
	repelled map[string][]repulsion
	most     int // see fit.Map
}

// mark returns the label of pods that have an anti-affinity.
func mark(t *Term) string { return "\x00apart in " + t.Level + " from " + t.Label }

// repel counts the anti-affinities of tasks that come (by 1) or go (by -1).
func (a *affinities) repel(tasks []Task, by int) {
	for i := range tasks {
		for k := range tasks[i].Affinity {
			t := &tasks[i].Affinity[k]
			if !t.Anti {
				continue
			}
			// The terms from one label are in the order of their levels, as decisions depend on it.
			level, all := a.level(t), a.repelled[t.Label]
			at, ok := slices.BinarySearchFunc(all, level, func(r repulsion, level int) int { return cmp.Compare(r.level, level) })
			if !ok {
				all = slices.Insert(all, at, repulsion{level: level, term: Term{Level: t.Level, Label: mark(t), Anti: true}})
			}
			r := &all[at]
			if r.tasks += by; !slices.Contains(tasks[i].Labels, t.Label) {
				r.strange += by
			}
			if r.tasks == 0 {
				all = slices.Delete(all, at, at+1)
			}
			if a.repelled[t.Label] = all; len(all) == 0 {
				delete(a.repelled, t.Label)
				a.repelled = fit.Map(a.repelled, &a.most)
			}
		}
	}
}

// label gives the state the labels of a job's pods: those of their task, and the marks of its
// anti-affinities. on lists the pods on nodes that had other labels before.
func (a *affinities) label(j *job, on []cluster.Held) {
	j.marks = nil
	if !j.anyTask(func(t *Task) bool { return !plain(t) }) {
		a.state.SetLabels(j.slot, nil, on)
		return
	}
	marks := make([][]string, len(j.Tasks))
	for i := range j.Tasks {
		marks[i] = slices.Clone(j.Tasks[i].Labels)
		for k := range j.Tasks[i].Affinity {
			if t := &j.Tasks[i].Affinity[k]; t.Anti {
				marks[i] = append(marks[i], mark(t))
			}
		}
		slices.Sort(marks[i])
		marks[i] = slices.Compact(marks[i])
	}
	j.marks = marks
	a.state.SetLabels(j.slot, func(pod int32) []string { return marks[j.pods[pod].task] }, on)
}

// labelled reports whether pods of the job have labels that may matter to others: those
// of their tasks, or marks.
func (j *job) labelled() bool { return j.marks != nil }

// plain reports whether the pods of a task neither require anything of the pods around them
// nor matter to those.
func plain(t *Task) bool { return len(t.Labels)+len(t.Affinity) == 0 }

// requires reports whether pods of the job have an affinity of which ok holds.
func (j *job) requires(ok func(Term) bool) bool {
	return j.anyTask(func(t *Task) bool { return slices.ContainsFunc(t.Affinity, ok) })
}

// constrain reports whether the places of the job's pods depend on the pods around them: by its
// affinities, or as others must be apart from it.
func (a *affinities) constrain(j *job) bool {
	return j.anyTask(func(t *Task) bool {
		return len(t.Affinity) > 0 || len(a.repelled) > 0 && slices.ContainsFunc(t.Labels, func(l string) bool { return a.repelled[l] != nil })
	})
}

// meets reports whether an affinity of the job is about pods of another job's task, or an
// anti-affinity of those is about pods of the job.
func (j *job) meets(other *Task) bool {
	return len(other.Labels) > 0 && j.requires(func(t Term) bool { return slices.Contains(other.Labels, t.Label) }) ||
		slices.ContainsFunc(other.Affinity, func(o Term) bool {
			return o.Anti && slices.ContainsFunc(j.Tasks, func(t Task) bool { return slices.Contains(t.Labels, o.Label) })
		})
}

// addTerms gives a unit what the job's tasks require of the pods around them.
func (a *affinities) addTerms(j *job, u *place.Unit) {
	for t := range u.Tasks {
		u.Tasks[t].Terms = a.terms(j, t)
		u.Tasks[t].Asked = a.asked(j, t)
	}
	if !u.Whole || len(u.Tasks) == 1 {
		return
	}
	// Tasks of a gang start together: a term may be satisfied by a mate that comes with it. The
	// mates are the tasks with the term's label of which pods are placed now.
	carriers := map[string][]int{}
	for t := range u.Tasks {
		if len(u.Tasks[t].Pods) > 0 {
			for _, label := range j.Tasks[t].Labels {
				carriers[label] = append(carriers[label], t)
			}
		}
	}
	for t := range u.Tasks {
		for i := range u.Tasks[t].Terms {
			term := &u.Tasks[t].Terms[i]
			term.Mates = slices.DeleteFunc(slices.Clone(carriers[term.Label]), func(o int) bool { return o == t })
		}
	}
}

// asked compiles what pods of a task request, whatever others of the job have that run.
func (a *affinities) asked(j *job, t int) *place.Shape {
	r, c := &j.Tasks[t].Request, j.class
	switch {
	case j.borrowsDevices():
		return a.placer.ShapeOnLent(r)
	case c == nil || c.epoch != a.state.Epoch() || len(c.shapes) != len(j.Tasks):
		return a.placer.Shape(r)
	case len(c.asked) != len(c.shapes):
		c.asked = make([]*place.Shape, len(c.shapes))
	}
	if c.asked[t] == nil {
		c.asked[t] = a.placer.Shape(r)
	}
	return c.asked[t]
}

// terms compiles the affinities of a task, and the anti-affinities of others from it. Replicas
// that keep apart from each other all carry the label and have the term: then the term says as
// much as the mark does, and the mark is left out.
func (a *affinities) terms(j *job, t int) []place.Term {
	task := &j.Tasks[t]
	if len(task.Affinity) == 0 && len(a.repelled) == 0 {
		return nil
	}
	out := make([]place.Term, 0, len(task.Affinity))
	for _, o := range task.Affinity {
		out = append(out, place.Term{Term: o, Level: a.level(&o), Own: slices.Contains(task.Labels, o.Label)})
	}
	for _, label := range task.Labels {
		for _, r := range a.repelled[label] {
			if r.strange > 0 || !slices.Contains(j.marks[t], r.term.Label) {
				out = append(out, place.Term{Term: r.term, Level: r.level, Own: slices.Contains(j.marks[t], r.term.Label), Theirs: true})
			}
		}
	}
	return out
}

// check reports what is wrong with a task's affinities. A label becomes a level with the first of them that names it.
func (a *affinities) check(job string, terms []Term) error {
	for i := range terms {
		t := &terms[i]
		a.state.AddTermLevel(t.Level)
		if _, ok := a.state.TermLevel(t.Level); !ok {
			return fmt.Errorf("job %s: topology level %q is unknown", job, t.Level)
		}
		if t.MaxSkew < 0 || t.MaxSkew > 0 && t.Anti {
			return fmt.Errorf("job %s: skew %d, expected 0 or more, and 0 for an anti-affinity", job, t.MaxSkew)
		}
		if t.MinDomains < 0 {
			return fmt.Errorf("job %s: at least %d domains, expected 0 or more", job, t.MinDomains)
		}
	}
	return nil
}

// level returns the number of the level of a term that was checked.
func (a *affinities) level(t *Term) int {
	l, _ := a.state.TermLevel(t.Level)
	return l
}

// checkPreferences reports what is wrong with the levels of a task's preferences.
func (a *affinities) checkPreferences(job string, list []Preference) error {
	for i := range list {
		a.state.AddTermLevel(list[i].Level)
		if _, ok := a.state.TermLevel(list[i].Level); list[i].Label != "" && !ok {
			return fmt.Errorf("job %s: topology level %q is unknown", job, list[i].Level)
		}
	}
	return nil
}

// levelOf returns the number of a topology level, -1 for none.
func levelOf(s *cluster.State, name string) int {
	if name == "" {
		return -1
	}
	l, ok := s.Level(name)
	if !ok {
		return -1
	}
	return l
}
