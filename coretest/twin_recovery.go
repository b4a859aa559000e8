package coretest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
)

// What follows from failures that were diagnosed. The twin counts restarts and strikes by itself, and checks that
//
//  1. a job is held if it must not restart, and only then; no pod of it starts until it is released;
//  2. a job restarts no more often within a day than its remedies and the policy allow, nor than the most generous of these remedies if
//     the policy says nothing, and not on the nodes that it avoids, unless the other nodes would not hold it if they were empty;
//  3. a node is cordoned only if a failure since the last pass, or a test, points to it, and no more nodes are than may be;
//  4. a node is uncordoned only if it passed a test, and tests are asked for where the remedy is one.

// failed is what the twin knows of the failures of a job, by its name.
type failed struct {
	at, started core.Time // at is core.Never before the first
	decided     bool
	classes     []string    // of the restarts that counted
	allowed     []int       // after failures of each class, as its remedy said
	when        []core.Time // they did
	held        bool
	avoids      map[string]core.Time
	since       []string // the nodes that it avoids, as they were found
}

// recovery is what the twin knows of failures.
type recovery struct {
	jobs     map[string]*failed
	strikes  map[string][]core.Strike
	cordoned map[string]bool
	found    []core.JobDiagnosed // since the last pass
	tested   []core.NodeTested
	back     map[string]bool // jobs that were submitted since the last pass
	expected []core.Decision // of the pass, without details
}

func newRecovery() recovery {
	return recovery{jobs: map[string]*failed{}, strikes: map[string][]core.Strike{}, cordoned: map[string]bool{}, back: map[string]bool{}}
}

const day = 24 * 3600 * core.Second

// recoverOn notes an event.
func (w *Twin) recoverOn(now core.Time, ev core.Event) {
	r := &w.recovery
	switch ev := ev.(type) {
	case core.JobDiagnosed:
		if ev.At == 0 {
			ev.At = now
		}
		r.found = append(r.found, ev)
	case core.NodeTested:
		r.tested = append(r.tested, ev)
	case core.JobReleased:
		delete(r.jobs, ev.Job)
		r.found = slices.DeleteFunc(r.found, func(d core.JobDiagnosed) bool { return d.Job == ev.Job })
	case core.FailuresFound:
		w.foundBefore(now, &ev)
	case core.NodeCordoned:
		if !ev.Cordoned && r.cordoned[ev.Node] {
			delete(r.cordoned, ev.Node)
			w.trusted(ev.Node)
		}
	case core.NodeLost:
		delete(r.cordoned, ev.Node)
	case core.JobSubmitted:
		r.back[ev.Job.Name] = true
	case core.PodRunning:
		w.startedAgain(ev.Job, ev.Started)
	}
}

// foundBefore takes in what was decided before.
func (w *Twin) foundBefore(now core.Time, ev *core.FailuresFound) {
	r, mode := &w.recovery, w.policy.Recovery.Mode
	for _, x := range ev.Nodes {
		if n := w.node(x.Node); mode != core.NoRecovery && n != nil && n.up {
			r.strikes[x.Node] = slices.Clone(x.Strikes)
			if x.Cordoned {
				r.cordoned[x.Node] = true
				n.cordoned = n.cordoned || mode == core.Recover
			}
		}
	}
	for _, x := range ev.Jobs {
		f := &failed{at: x.At, decided: true, avoids: map[string]core.Time{}}
		for _, again := range x.Restarts {
			f.classes, f.allowed, f.when = append(f.classes, again.Class), append(f.allowed, again.Allowed), append(f.when, again.At)
		}
		if mode == core.Recover {
			f.held = x.Held != ""
			for _, a := range x.Avoids {
				f.avoid(a.Node, a.Until)
			}
		}
		if mode != core.NoRecovery {
			r.jobs[x.Job] = f
		}
	}
}

// trusted forgets what is held against a node.
func (w *Twin) trusted(node string) {
	delete(w.recovery.strikes, node)
	for _, f := range w.recovery.jobs {
		f.ends(node)
	}
}

// startedAgain notes that what fails next of a job is another failure.
func (w *Twin) startedAgain(job string, at core.Time) {
	if f := w.recovery.jobs[job]; f != nil {
		f.started = at
	}
}

// recovers computes what a pass must decide about failures, before anything else. It takes effect at once, as the twin's later checks are of
// decisions that follow.
func (w *Twin) recovers(now core.Time) {
	r := &w.recovery
	r.expected = nil
	on := w.policy.Recovery.Mode == core.Recover
	for _, ev := range r.tested {
		n := w.node(ev.Node)
		switch {
		case w.policy.Recovery.Mode == core.NoRecovery || !n.up:
		case !ev.Passed:
			w.mustCordon(n)
		default:
			w.trusted(ev.Node)
			if r.cordoned[ev.Node] {
				delete(r.cordoned, ev.Node)
				n.cordoned = n.cordoned && !on
				r.expected = append(r.expected, core.Decision{Op: core.Uncordon, Node: ev.Node})
			}
		}
	}
	for i := range r.found {
		if w.policy.Recovery.Mode != core.NoRecovery && r.found[i].Confidence >= w.policy.Recovery.MinConfidence {
			w.follows(now, &r.found[i])
		}
	}
	for _, name := range w.Live() {
		if f := r.jobs[name]; r.back[name] && f != nil && f.held {
			r.expected = append(r.expected, core.Decision{Op: core.Hold, Job: name})
		}
	}
	r.found, r.tested = nil, nil
	clear(r.back)
	for _, f := range r.jobs {
		for node, until := range f.avoids {
			if until <= now {
				f.ends(node)
			}
		}
	}
	if r.expected != nil && on {
		w.upsets++
	}
}

// follows computes what follows from a diagnosis.
func (w *Twin) follows(now core.Time, ev *core.JobDiagnosed) {
	p, r := &w.policy.Recovery, &w.recovery
	on := p.Mode == core.Recover
	f := r.jobs[ev.Job]
	if f == nil {
		f = &failed{at: core.Never, avoids: map[string]core.Time{}}
		r.jobs[ev.Job] = f
		if j := w.jobs[ev.Job]; j != nil {
			for i := range j.pods {
				if j.pods[i].on() {
					f.started = max(f.started, j.pods[i].started)
				}
			}
		}
	}
	if f.at == core.Never || f.at <= f.started && f.started < ev.At {
		f.at, f.decided = ev.At, false
	}
	var suspects []*node
	for _, name := range ev.Suspects {
		if n := w.node(name); n != nil && !slices.Contains(suspects, n) {
			suspects = append(suspects, n)
		}
	}

	// 1. The job.
	if ev.Remedy.Restarts != core.AsBefore && !f.held && (!f.decided || suspects != nil) {
		ofClass, all, most := 0, 0, ev.Remedy.Restarts
		for k, class := range f.classes {
			if now-f.when[k] < day {
				all++
				most = max(most, f.allowed[k])
				if class == ev.Class {
					ofClass++
				}
			}
		}
		if p.MaxRestarts > 0 {
			most = p.MaxRestarts
		}
		op := core.Restart
		switch {
		case f.decided:
		case ofClass >= ev.Remedy.Restarts || all >= most:
			op = core.Hold
			f.held = on
		default:
			f.classes, f.allowed, f.when = append(f.classes, ev.Class), append(f.allowed, ev.Remedy.Restarts), append(f.when, now)
		}
		f.decided = true
		for _, n := range suspects {
			if op == core.Restart && on && p.Window > 0 {
				f.avoid(n.Name, now+p.Window)
			}
		}
		if w.jobs[ev.Job] != nil {
			r.expected = append(r.expected, core.Decision{Op: op, Job: ev.Job})
		}
		if op == core.Hold && w.jobs[ev.Job] == nil {
			delete(r.back, ev.Job)
		} else if op == core.Hold {
			r.back[ev.Job] = false
		}
	}

	// 2. The nodes.
	for _, n := range suspects {
		switch remedy := ev.Remedy.Node; {
		case remedy == core.CordonNode:
			w.mustCordon(n)
		case remedy == core.TestNode && p.Tests:
			if w.mustCordon(n) {
				r.expected = append(r.expected, core.Decision{Op: core.Test, Node: n.Name})
			}
		case remedy != core.NoStrike:
			s := slices.DeleteFunc(r.strikes[n.Name], func(s core.Strike) bool { return now-s.At >= p.Window })
			if !slices.ContainsFunc(s, func(s core.Strike) bool { return s.Job == ev.Job && s.At == f.at }) {
				s = append(s, core.Strike{At: f.at, Class: ev.Class, Job: ev.Job})
			}
			r.strikes[n.Name] = s
			if p.Strikes > 0 && len(s) >= p.Strikes {
				w.mustCordon(n)
			}
		}
	}
}

// mustCordon says that a node has to be cordoned, unless it is, or too many are. It reports whether it has.
func (w *Twin) mustCordon(n *node) bool {
	up := 0
	for _, o := range w.nodes {
		if o.up {
			up++
		}
	}
	r := &w.recovery
	if !n.up || n.cordoned || r.cordoned[n.Name] || len(r.cordoned) >= max(1, up*int(w.policy.Recovery.MaxCordoned)/1000) {
		return false
	}
	r.cordoned[n.Name] = true
	n.cordoned = w.policy.Recovery.Mode == core.Recover
	r.expected = append(r.expected, core.Decision{Op: core.Cordon, Node: n.Name})
	return true
}

// recovered checks a decision about a failure: it is the next of those that the pass must make.
func (w *Twin) recovered(d *core.Decision) error {
	r := &w.recovery
	if len(r.expected) == 0 {
		return fmt.Errorf("nothing that failed, and no test, gives a reason")
	}
	if x := r.expected[0]; x.Op != d.Op || x.Job != d.Job || x.Node != d.Node {
		return fmt.Errorf("expected was %v of %s%s", x.Op, x.Job, x.Node)
	}
	r.expected = r.expected[1:]
	if dry := w.policy.Recovery.Mode == core.RecoveryDryRun; dry != strings.HasPrefix(d.Detail, core.DryRun) {
		return fmt.Errorf("it does not say whether it has an effect: %s", d.Detail)
	}
	return nil
}

// unheld checks that a pod of the job may start on a node.
func (w *Twin) unheld(j *job, node string) error {
	f := w.recovery.jobs[j.Name]
	switch {
	case f == nil:
		return nil
	case f.held:
		return fmt.Errorf("the job is held")
	case f.avoids[node] != 0 && !w.notAvoided(j, f, node):
		return fmt.Errorf("the job avoids the node")
	}
	return nil
}
