package snapshot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// Bounds of a job, as those of a workload file.
const (
	maxPods  = 1_000_000
	maxTasks = 1_000
)

func (r *reader) jobs(f *file) error {
	r.job, r.pod = map[string]bool{}, map[string]bool{}
	for i := range f.Jobs {
		r.s.Now = max(r.s.Now, f.Jobs[i].age(), f.Jobs[i].runningFor())
	}
	for i := range f.Jobs {
		if err := r.addJob(&f.Jobs[i], fmt.Sprintf("jobs[%d]", i)); err != nil {
			return err
		}
	}
	r.markBackfilled()
	return nil
}

// longRunning is the default time that jobs have been running: so long that no policy
// spares them for having just started.
const longRunning = 24 * 3600 * core.Second

// runningFor is how long the running pods of the job run.
func (j *job) runningFor() core.Time {
	switch {
	case j.RunningFor != nil:
		return core.Time(*j.RunningFor)
	case !slices.ContainsFunc(j.Tasks, func(t task) bool { return len(t.Running) > 0 }):
		return 0
	case j.SubmittedAgo != nil:
		return max(core.Time(*j.SubmittedAgo), longRunning)
	}
	return longRunning
}

// age is how long ago the job was submitted.
func (j *job) age() core.Time {
	if j.SubmittedAgo == nil {
		return j.runningFor()
	}
	return core.Time(*j.SubmittedAgo)
}

// markBackfilled marks the pods that overtook a waiting job: one that had already been
// submitted and is before theirs in the order.
func (r *reader) markBackfilled() {
	var waiting []*core.Job
	for i := range r.s.Jobs {
		if j := &r.s.Jobs[i]; len(j.Running) == 0 {
			waiting = append(waiting, &j.Job)
		}
	}
	for i := range r.s.Jobs {
		j := &r.s.Jobs[i]
		if len(j.Running) == 0 {
			continue
		}
		started := j.Running[0].Started
		passed := slices.ContainsFunc(waiting, func(w *core.Job) bool { return w.Submitted < started && before(w, &j.Job) })
		for k := range j.Running {
			j.Running[k].Backfilled = passed
		}
	}
}

// before reports whether a comes before b in the order.
func before(a, b *core.Job) bool {
	return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Submitted, b.Submitted)) < 0
}

// unknownWork is the work that a running job is taken to lose if it stops, where the file says neither how
// long it has run nor how often it saves its progress. It is short: a plan that is worth its cost
// is not refused for work that the file does not mention.
const unknownWork = 60 * core.Second

func (r *reader) addJob(j *job, at string) error {
	if err := r.checkJob(j, at); err != nil {
		return err
	}
	if _, err := r.preferences(j.Prefers, at); err != nil {
		return err
	}
	c := Job{Job: j.job(r.s.Now), names: map[int]string{}, StaleSince: r.s.Now - core.Time(j.StaleFor)}
	if j.RunningFor == nil && j.Checkpoint == 0 {
		c.Saved = r.s.Now - unknownWork
	}
	for i := range j.Tasks {
		if err := r.addTask(&c, j, i, fmt.Sprintf("%s.tasks[%d]", at, i)); err != nil {
			return err
		}
	}
	if c.Job.Pods() == 0 {
		return nil // all that there was of it is leaving
	}
	if err := r.addCombinations(&c, j, at+".combinations"); err != nil {
		return err
	}
	r.s.Jobs = append(r.s.Jobs, c)
	times := j.GPUTime.Served()
	return served(r, at+".gpuTime", &r.s.Counted.Jobs, core.JobTime{Job: j.Name, Served: times}, times)
}

// addCombinations adds the combinations of GPU models that the job lists. Tasks that name no model are on those.
func (r *reader) addCombinations(c *Job, j *job, at string) error {
	if len(j.Combinations) == 0 {
		return nil
	}
	if len(c.Tasks) != len(j.Tasks) {
		return r.src.Errorf(at, "none in a job with a task of which all pods are leaving; found %d", len(j.Combinations))
	}
	var err error
	if c.Combinations, err = core.ParseCombinations(j.Combinations, c.Tasks); err != nil {
		return r.src.Errorf(at, "%s", err)
	}
	for t := range c.Tasks {
		if len(c.Tasks[t].Models) == 0 {
			c.Tasks[t].Models = core.CombinedModels(c.Combinations, t)
		}
	}
	if err := core.CheckJob(&c.Job); err != nil {
		return r.src.Errorf(at, "%s", err)
	}
	return nil
}

func (r *reader) checkJob(j *job, at string) error {
	if err := r.unique(r.job, at+".name", j.Name); err != nil {
		return err
	}
	if !r.queue[j.Queue] {
		return r.src.Errorf(at+".queue", "one of the queues %s; found %q", list(sorted(r.queue)), j.Queue)
	}
	if len(j.Tasks) == 0 || len(j.Tasks) > maxTasks {
		return r.src.Errorf(at+".tasks", "1 to %d tasks; found %d", maxTasks, len(j.Tasks))
	}
	if j.RunningFor != nil && j.age() < j.runningFor() {
		return r.src.Errorf(at+".runningFor", "at most the time since the job was submitted, %s; found %s", j.SubmittedAgo, j.RunningFor)
	}
	return r.checkNearness(j, at)
}

// checkNearness checks the levels that a job names.
func (r *reader) checkNearness(j *job, at string) error {
	if t := j.Topology.Required; t != "" {
		if err := r.level(at+".topology.required", t); err != nil {
			return err
		}
	}
	if t := j.Topology.Preferred; t != "" {
		if err := r.level(at+".topology.preferred", t); err != nil {
			return err
		}
	}
	if c := j.Topology.Closeness; !(c >= 0 && c <= core.MaxCloseness/1000) {
		return r.src.Errorf(at+".topology.closeness", "0 to %d; found %g", core.MaxCloseness/1000, c)
	}
	if err := r.checkAffinity(&j.placing, at); err != nil {
		return err
	}
	for i := range j.Tasks {
		if err := r.checkAffinity(&j.Tasks[i].placing, fmt.Sprintf("%s.tasks[%d]", at, i)); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) checkAffinity(p *placing, at string) error {
	for i, a := range p.Affinity {
		if err := r.level(fmt.Sprintf("%s.affinity[%d].level", at, i), a.Level); err != nil {
			return err
		}
	}
	return nil
}

// job returns the job without its tasks. now is the snapshot's moment.
func (j *job) job(now core.Time) core.Job {
	return core.Job{
		Name:           j.Name,
		Queue:          j.Queue,
		User:           j.User,
		Kind:           core.Kind(max(0, slices.Index(j.Kind.Values(), string(j.Kind)))),
		Class:          core.Class(max(0, slices.Index(j.Class.Values(), string(j.Class)))),
		Priority:       j.Priority,
		Gang:           j.Gang,
		Locked:         j.Locked,
		Mobility:       core.Mobility(max(0, slices.Index(j.Mobility.Values(), string(j.Mobility)))),
		NotPreemptible: j.Preempt != nil && !*j.Preempt,
		Topology:       core.TopologyRequest{Required: j.Topology.Required, Preferred: j.Topology.Preferred, Closeness: int64(math.Round(j.Topology.Closeness * 1000))},
		Submitted:      now - j.age(),
		Estimate:       core.Time(j.Estimate),
		Checkpoint:     core.Time(j.Checkpoint),
		SaveWithin:     core.Time(j.SaveWithin),
		StaleGrace:     core.Time(j.StaleGrace),
		Suspend:        core.Suspension{Pause: core.Time(j.Suspend.Pause), Resume: core.Time(j.Suspend.Resume), HostMemMiB: j.Suspend.HostMemMiB},
	}
}

// addTask adds the i-th task of j to c, with the pods of it that run.
func (r *reader) addTask(c *Job, j *job, i int, at string) error {
	t := &j.Tasks[i]
	first := c.Job.Pods()
	pods, least := 1, 0
	if t.Pods != nil {
		pods = *t.Pods
	}
	if t.MinPods != nil {
		least = *t.MinPods
	}
	if err := r.checkTask(t, first, pods, at); err != nil {
		return err
	}
	var accepts core.Request
	var err error
	if err = accepts.Accept(t.Models); err != nil {
		return r.src.Errorf(at+".models", "%s; found %q", err, t.Models)
	}
	made := core.Task{Name: t.Name, Pods: pods, MinPods: least, Request: core.Request{
		GPU:         core.Milli(t.GPUMilli),
		Picker:      t.Picks.picker(),
		From:        t.From.amounts(),
		CPUMilli:    t.CPUMilli,
		MemMiB:      t.MemMiB,
		Others:      t.Others.amounts(),
		Models:      accepts.Models,
		Speeds:      accepts.Speeds,
		Selector:    append(j.requirements(), t.requirements()...),
		Tolerations: append(j.tolerations(), t.tolerations()...),
	}, Labels: slices.Concat(j.Labels, t.Labels), Affinity: append(j.terms(), t.terms()...)}
	if made.Prefers, err = r.preferences(slices.Concat(j.Prefers, t.Prefers), at); err != nil {
		return err
	}
	if pods > 0 {
		c.Tasks = append(c.Tasks, made)
	}
	if err := r.addRunning(c, t, j.runningFor(), first, pods, at); err != nil {
		return err
	}
	return r.addLeaving(c, t, made, at)
}

func (p picks) picker() core.Picker {
	return core.Picker(max(0, slices.Index(cluster.Pickers[:], string(p))))
}

// preferences reads what the pods of a task prefer.
func (r *reader) preferences(list []string, at string) ([]core.Preference, error) {
	if len(list) > core.MaxPreferences {
		return nil, r.src.Errorf(at+".prefers", "at most %d preferences, those of the job included; found %d", core.MaxPreferences, len(list))
	}
	var out []core.Preference
	for _, text := range list {
		p, err := cluster.ParsePreference(text)
		if err != nil {
			return nil, r.src.Errorf(at+".prefers", "%s; found %q", err, text)
		}
		if p.Label != "" {
			if err := r.level(at+".prefers", p.Level); err != nil {
				return nil, err
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// addLeaving adds the pods of a task that are being deleted. The engine counts them as it does pods of other schedulers: they
// hold what they have, and nothing is decided about them.
func (r *reader) addLeaving(c *Job, t *task, made core.Task, at string) error {
	for i := range t.Leaving {
		p, path := &t.Leaving[i], fmt.Sprintf("%s.leaving[%d]", at, i)
		if err := r.unique(r.pod, path+".pod", p.Pod); err != nil {
			return err
		}
		if err := r.checkPlace(t, p, path); err != nil {
			return err
		}
		name := c.Name + "/" + p.Pod // a job's own name has no slash on Kubernetes; here it is unique as the pod's is
		if err := r.unique(r.job, path+".pod", name); err != nil {
			return err
		}
		one := made
		one.Pods, one.MinPods, one.Affinity = 1, 0, nil
		r.s.Leaving = append(r.s.Leaving, Job{
			Job:     core.Job{Name: name, Queue: c.Queue, Class: c.Class, Foreign: true, Submitted: c.Submitted, Tasks: []core.Task{one}},
			Running: []core.PodRunning{{Job: name, Node: p.Node, GPUs: p.GPUs, Started: c.Submitted}},
		})
	}
	return nil
}

func (r *reader) checkTask(t *task, before, pods int, at string) error {
	switch {
	case pods == 0 && len(t.Leaving) == 0:
		return r.src.Errorf(at+".pods", "1 to %d, or 0 and pods that are leaving; found 0", maxPods)
	case before+pods > maxPods:
		return r.src.Errorf(at+".pods", "at most %d pods in the job; found %d", maxPods, before+pods)
	case t.MinPods != nil && *t.MinPods > pods:
		return r.src.Errorf(at+".minPods", "at most the %d pods; found %d", pods, *t.MinPods)
	case t.GPUMilli > int64(core.WholeGPU) && t.GPUMilli%int64(core.WholeGPU) != 0:
		return r.src.Errorf(at+".gpuMilli", "a part of one GPU (up to 1000) or whole ones (2000, 3000 …); found %d", t.GPUMilli)
	case len(t.Running) > pods:
		return r.src.Errorf(at+".running", "at most the %d pods; found %d", pods, len(t.Running))
	}
	if err := r.checkOthers(t.Others, at); err != nil {
		return err
	}
	if err := (&core.Request{GPU: core.Milli(t.GPUMilli), Picker: t.Picks.picker(), From: t.From.amounts()}).Check(); err != nil {
		return r.src.Errorf(at+".from", "device sets with how many of the GPUs are of them; found %v", err)
	}
	for k, m := range t.Models {
		if m, _, _ := strings.Cut(m, "="); !r.model[m] {
			return r.src.Errorf(fmt.Sprintf("%s.models[%d]", at, k), "one of the GPU models %s; found %q", list(sorted(r.model)), m)
		}
	}
	return nil
}

// addRunning gives the running pods of a task, whose numbers are first and on,
// their numbers: name-7 is number 7 where it can be, the others fill the gaps.
func (r *reader) addRunning(c *Job, t *task, runningFor core.Time, first, pods int, at string) error {
	numbers := make([]int, len(t.Running))
	for i, p := range t.Running {
		if err := r.checkRunning(c, t, &p, first, pods, fmt.Sprintf("%s.running[%d]", at, i)); err != nil {
			return err
		}
		numbers[i] = -1
		if n, ok := c.number(p.Pod); ok && n >= first && n < first+pods {
			numbers[i] = n
			c.names[n] = p.Pod
		}
	}
	next := first
	for i, p := range t.Running {
		if numbers[i] < 0 {
			for c.names[next] != "" {
				next++
			}
			numbers[i] = next
			c.names[next] = p.Pod
		}
		c.Running = append(c.Running, core.PodRunning{Job: c.Name, Pod: numbers[i], Node: p.Node, GPUs: p.GPUs, Started: r.s.Now - runningFor})
	}
	return nil
}

// number returns 7 for a pod that is called job-7.
func (j *Job) number(pod string) (int, bool) {
	digits, ok := strings.CutPrefix(pod, j.Name+"-")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && digits == strconv.Itoa(n)
}

func (r *reader) checkRunning(c *Job, t *task, p *running, first, pods int, at string) error {
	if err := r.unique(r.pod, at+".pod", p.Pod); err != nil {
		return err
	}
	if n, ok := c.number(p.Pod); ok && n >= 0 && (n < first || n >= first+pods) {
		return r.src.Errorf(at+".pod", "a pod of this task, which has the numbers %d to %d; found %q", first, first+pods-1, p.Pod)
	}
	return r.checkPlace(t, p, at)
}

// checkPlace checks where a pod is, and takes what it has there.
func (r *reader) checkPlace(t *task, p *running, at string) error {
	node, ok := r.node[p.Node]
	if !ok {
		return r.src.Errorf(at+".node", "one of the nodes %s; found %q", list(sorted(r.node)), p.Node)
	}
	want := max(1, int(t.GPUMilli/int64(core.WholeGPU)))
	if t.GPUMilli == 0 {
		want = 0
	}
	if len(p.GPUs) != want {
		return r.src.Errorf(at+".gpus", "as many GPUs as %d gpuMilli are, %d; found %d", t.GPUMilli, want, len(p.GPUs))
	}
	return r.take(node, t, p, at)
}

// take takes what a running pod has from its node.
func (r *reader) take(n *place, t *task, p *running, at string) error {
	each := min(core.Milli(t.GPUMilli), core.WholeGPU)
	for i, gpu := range p.GPUs {
		path := fmt.Sprintf("%s.gpus[%d]", at, i)
		if err := r.checkGPU(n.GPUs, p.GPUs[:i], gpu, path); err != nil {
			return err
		}
		if n.gpus[gpu] < each {
			return r.src.Errorf(path, "a GPU of %s with %d gpuMilli free; found %d, which has %d", n.Name, each, gpu, n.gpus[gpu])
		}
		n.gpus[gpu] -= each
	}
	if n.cpuMilli < t.CPUMilli || n.memMiB < t.MemMiB {
		return r.src.Errorf(at+".node", "a node with %d cpuMilli and %d memMiB free; found %q, which has %d and %d",
			t.CPUMilli, t.MemMiB, n.Name, n.cpuMilli, n.memMiB)
	}
	n.cpuMilli -= t.CPUMilli
	n.memMiB -= t.MemMiB
	for _, name := range sorted(t.Others) {
		n.taken[name] += t.Others[name]
		if has := cluster.AmountOf(n.Others, name); n.taken[name] > has {
			return r.src.Errorf(at+".node", "a node with %d %s free; found %q, which has %d", t.Others[name], name, n.Name, has-n.taken[name]+t.Others[name])
		}
	}
	return nil
}

// requirements returns the requirements on a node's labels.
func (p *placing) requirements() []core.Requirement {
	var all []core.Requirement
	for _, key := range sorted(p.Selector) {
		all = append(all, core.Requirement{Key: key, Op: cluster.In, Values: []string{p.Selector[key]}})
	}
	for _, e := range p.MatchExpressions {
		op := cluster.Op(slices.Index(e.Operator.Values(), string(e.Operator)))
		all = append(all, core.Requirement{Key: e.Key, Op: op, Values: e.Values})
	}
	return all
}

func (p *placing) terms() []core.Term {
	var all []core.Term
	for _, a := range p.Affinity {
		all = append(all, core.Term{Level: a.Level, Label: a.Label, Anti: a.Anti})
	}
	return all
}

func (p *placing) tolerations() []core.Toleration {
	var all []core.Toleration
	for _, t := range p.Tolerations {
		all = append(all, core.Toleration{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	return all
}
