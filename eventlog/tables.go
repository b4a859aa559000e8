package eventlog

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// Tables are the state after a number of entries. They contain the events and decisions
// of the engine, not what the engine derives from them.
type Tables struct {
	Nodes  map[string]*Node
	Queues map[string]core.Queue
	Jobs   map[string]*Job
	// Moved, if set, is called for each pod before its state or place changes.
	Moved func(now core.Time, j *Job, pod int, to State)

	serial int
}

// Node is a node of the cluster.
type Node struct {
	// Node is the present description of the node.
	core.Node
	// Evictions is the count that the node was added with.
	Evictions int

	serial int
	pods   map[podOf]struct{} // on it, or being moved to it
}

type podOf struct {
	job *Job
	pod int
}

// Job is a live job.
type Job struct {
	// Job is the job as it was submitted, with its present labels and estimate; Told is
	// when the engine received it.
	core.Job
	Told core.Time
	// Roles are its tasks, including those that were added later.
	Roles []core.Task
	Pods  []Pod
	// Saved is when it last reported a checkpoint, 0 if it never did.
	Saved core.Time
	// Diagnosed are its failures since it was released last, at most the last [maxDiagnosed].
	Diagnosed []core.JobDiagnosed
	// Shielded is set if it must not be evicted for others now.
	Shielded bool

	serial int
}

// Pod is a pod of a live job.
type Pod struct {
	Role  int // its place in Job.Roles
	State State
	// Node and GPUs (one bit per GPU) are where it has been running, or leaving, since
	// Started.
	Node       string
	GPUs       uint64
	Started    core.Time
	Backfilled bool
	// To is the place that it is being moved to, nil if it is not.
	To *core.Placement
	// Standby is how it was put on standby, with itself as the only one of Pods; nil if it is not
	// on standby.
	Standby *core.StandbyBegan
}

// State is the state of a pod.
type State uint8

// The states of a pod.
const (
	Waiting   State = iota
	Running         // bound, or found running
	Leaving         // told to leave, still on its node
	Ended           // it ended by itself
	Withdrawn       // it ended before it ran
)

// NewTables returns empty tables.
func NewTables() *Tables {
	return &Tables{Nodes: map[string]*Node{}, Queues: map[string]core.Queue{}, Jobs: map[string]*Job{}}
}

// Take applies an entry. The error says what in it contradicts the earlier entries.
func (t *Tables) Take(e *Entry) error {
	switch {
	case e.Begin != nil:
		clear(t.Nodes)
		clear(t.Queues)
		clear(t.Jobs)
	case e.Pass:
		for i := range e.Decided {
			if err := t.decided(e.Now, &e.Decided[i]); err != nil {
				return err
			}
		}
	default:
		return t.told(e.Now, e.Event)
	}
	return nil
}

func (t *Tables) told(now core.Time, ev core.Event) error {
	switch ev := ev.(type) {
	case core.NodeAdded:
		if t.Nodes[ev.Node.Name] != nil {
			return fmt.Errorf("node %s is there already", ev.Node.Name)
		}
		if err := cluster.Check(&ev.Node); err != nil {
			return err
		}
		t.serial++
		t.Nodes[ev.Node.Name] = &Node{Node: ev.Node, Evictions: ev.Evictions, serial: t.serial, pods: map[podOf]struct{}{}}
	case core.QueueSet:
		t.Queues[ev.Queue.Name] = ev.Queue
	case core.QueueRemoved:
		delete(t.Queues, ev.Queue)
	case core.NodeChanged, core.NodeLost, core.NodeCordoned, core.DeviceHealth:
		return t.nodeChanged(now, ev)
	case core.JobSubmitted:
		return t.submitted(now, ev.Job)
	case *core.JobSubmitted:
		return t.submitted(now, ev.Job)
	case core.JobDiagnosed: // the job may be over
		if j := t.Jobs[ev.Job]; j != nil {
			if ev.At == 0 {
				ev.At = now
			}
			j.Diagnosed = append(j.Diagnosed[max(0, len(j.Diagnosed)-maxDiagnosed+1):], ev)
		}
	case core.JobReleased: // so may this one
		if j := t.Jobs[ev.Job]; j != nil {
			j.Diagnosed = nil
		}
	case core.NodeTested: // the next pass decides
		if t.Nodes[ev.Node] == nil {
			return fmt.Errorf("node %s is unknown or lost", ev.Node)
		}
	case core.GPUTimeCounted:
		for i := range ev.Queues {
			if _, ok := t.Queues[ev.Queues[i].Queue]; !ok {
				return fmt.Errorf("queue %s is unknown", ev.Queues[i].Queue)
			}
		}
		for i := range ev.Jobs {
			if t.Jobs[ev.Jobs[i].Job] == nil {
				return fmt.Errorf("job %s is unknown", ev.Jobs[i].Job)
			}
		}
	case core.FailuresFound: // what is no more does not count
	case core.Tick:
	default:
		return t.jobChanged(now, ev)
	}
	return nil
}

func (t *Tables) nodeChanged(now core.Time, ev core.Event) error {
	name := ""
	switch ev := ev.(type) {
	case core.NodeChanged:
		name = ev.Node.Name
	case core.NodeLost:
		name = ev.Node
	case core.NodeCordoned:
		name = ev.Node
	case core.DeviceHealth:
		name = ev.Node
	}
	n := t.Nodes[name]
	if n == nil {
		return fmt.Errorf("node %s is unknown or lost", name)
	}
	switch ev := ev.(type) {
	case core.NodeChanged:
		n.Node = changed(&n.Node, ev)
	case core.NodeLost:
		gone := make([]podOf, 0, len(n.pods))
		for p := range n.pods {
			gone = append(gone, p)
		}
		slices.SortFunc(gone, func(a, b podOf) int { return cmp.Or(a.job.serial-b.job.serial, a.pod-b.pod) })
		for _, p := range gone {
			if to := p.job.Pods[p.pod].To; to != nil && to.Node == name {
				t.stay(p.job, p.pod)
				continue
			}
			t.move(now, p.job, p.pod, Waiting)
		}
		delete(t.Nodes, name)
	case core.NodeCordoned:
		n.Cordoned = ev.Cordoned
	case core.DeviceHealth:
		if ev.GPU < 0 || ev.GPU >= n.GPUs {
			return fmt.Errorf("node %s has no GPU %d", ev.Node, ev.GPU)
		}
		sick := make([]int, 0, len(n.Unhealthy)+1)
		for _, g := range n.Unhealthy {
			if g != ev.GPU {
				sick = append(sick, g)
			}
		}
		if !ev.Healthy {
			sick = append(sick, ev.GPU)
			slices.Sort(sick)
		}
		n.Unhealthy = sick
	}
	return nil
}

// changed returns a node as it is after the event.
func changed(n *core.Node, ev core.NodeChanged) core.Node {
	is := ev.Node
	is.Model, is.GPUs, is.Devices, is.Unhealthy, is.Cordoned = n.Model, n.GPUs, n.Devices, n.Unhealthy, n.Cordoned
	return is
}

func (t *Tables) submitted(now core.Time, spec core.Job) error {
	if err := core.CheckJob(&spec); err != nil {
		return err
	}
	if t.Jobs[spec.Name] != nil {
		return fmt.Errorf("job %s is there already", spec.Name)
	}
	t.serial++
	j := &Job{Job: spec, Told: now, Roles: slices.Clone(spec.Tasks), serial: t.serial}
	if n := spec.Pods(); n > maxPods {
		return fmt.Errorf("job %s: at most %d pods, found %d", spec.Name, maxPods, n)
	}
	for role := range spec.Tasks {
		for range spec.Tasks[role].Pods {
			j.Pods = append(j.Pods, Pod{Role: role})
		}
	}
	t.Jobs[spec.Name] = j
	return nil
}

// maxDiagnosed is how many failures of a job are kept: more than it restarts within a day.
const maxDiagnosed = 16

// maxPods bounds the memory that a line can cause the tables to use.
const maxPods = 1_000_000

// jobChanged applies an event about a live job.
func (t *Tables) jobChanged(now core.Time, ev core.Event) error {
	switch ev := ev.(type) {
	case core.PodRunning:
		return t.at(ev.Job, []int{ev.Pod}, func(j *Job, i int) error {
			p := &j.Pods[i]
			if p.State != Waiting || t.Nodes[ev.Node] == nil {
				return fmt.Errorf("job %s has no waiting pod %d, or there is no node %s", ev.Job, i, ev.Node)
			}
			place := Pod{Role: p.Role, Node: ev.Node, Started: ev.Started, Backfilled: ev.Backfilled}
			for _, g := range ev.GPUs {
				if g < 0 || g >= 64 {
					return fmt.Errorf("job %s: pod %d has GPU %d, expected 0..63", ev.Job, i, g)
				}
				place.GPUs |= 1 << g
			}
			t.run(now, j, i, place)
			return nil
		})
	case core.JobSuspended: // its pods wait
		return t.at(ev.Job, nil, nil)
	case core.PodsAdded:
		return t.added(ev)
	case core.PodEnded:
		return t.at(ev.Job, []int{ev.Pod}, func(j *Job, i int) error { return t.ended(now, j, i, ev.Failed) })
	case core.BindFailed:
		return t.at(ev.Job, []int{ev.Pod}, func(j *Job, i int) error { return t.ended(now, j, i, true) })
	case core.PodsGone:
		j := t.Jobs[ev.Job]
		gone := ev.Pods
		if gone == nil && j != nil {
			for i := range j.Pods {
				if j.Pods[i].State == Leaving {
					gone = append(gone, i)
				}
			}
		}
		return t.at(ev.Job, gone, func(j *Job, i int) error {
			if j.Pods[i].State == Waiting && j.Suspend.HostMemMiB > 0 {
				return nil // it was suspended
			}
			if j.Pods[i].State != Leaving {
				return fmt.Errorf("pod %d of job %s was not told to leave", i, ev.Job)
			}
			t.move(now, j, i, Waiting)
			return nil
		})
	case core.MoveRequested: // the next pass decides
		return t.at(ev.Job, []int{ev.Pod}, func(*Job, int) error { return nil })
	case core.RestartRequested: // so it does
		return t.at(ev.Job, ev.Pods, func(*Job, int) error { return nil })
	case core.PodMoved:
		return t.at(ev.Job, []int{ev.Pod}, t.arrived)
	case core.MoveFailed:
		return t.at(ev.Job, []int{ev.Pod}, func(j *Job, i int) error {
			if j.Pods[i].To == nil {
				return fmt.Errorf("pod %d of job %s is not being moved", i, ev.Job)
			}
			t.stay(j, i)
			return nil
		})
	case core.StandbyBegan:
		return t.stand(ev)
	case core.StandbyEnded: // the engine decides when they go on
		return t.at(ev.Job, ev.Pods, func(j *Job, i int) error {
			if j.Pods[i].Standby == nil {
				return fmt.Errorf("pod %d of job %s is not on standby", i, ev.Job)
			}
			return nil
		}, func(j *Job) {
			for i := range j.Pods {
				if s := j.Pods[i].Standby; s != nil && (ev.Pods == nil || slices.Contains(ev.Pods, i)) {
					s.Until = min(s.Until, now)
				}
			}
		})
	case core.JobEnded:
		return t.at(ev.Job, nil, nil, func(j *Job) {
			for i := range j.Pods {
				if s := j.Pods[i].State; s == Running || s == Leaving {
					t.move(now, j, i, Ended)
				}
			}
			delete(t.Jobs, ev.Job)
		})
	case core.GangStale: // the next pass decides
		return t.at(ev.Job, nil, nil)
	case core.JobEstimated:
		return t.at(ev.Job, nil, nil, func(j *Job) { j.Estimate = ev.Estimate })
	case core.JobShielded:
		return t.at(ev.Job, nil, nil, func(j *Job) { j.Shielded = ev.Shielded })
	case core.JobRelabelled:
		return t.at(ev.Job, nil, nil, func(j *Job) {
			j.Tasks = slices.Clone(j.Tasks) // they were the event's
			for _, tasks := range [][]core.Task{j.Tasks, j.Roles} {
				for i := range tasks {
					if ev.Task == "" || tasks[i].Name == ev.Task {
						tasks[i].Labels, tasks[i].Affinity = ev.Labels, ev.Affinity
					}
				}
			}
		})
	case core.JobMeasured:
		return t.at(ev.Job, nil, nil)
	case core.JobSlowed:
		return t.at(ev.Job, nil, nil, func(*Job) {}) // the eviction that follows from it is a decision
	case core.Checkpointed:
		at := ev.At
		if at == 0 {
			at = now
		}
		return t.at(ev.Job, nil, nil, func(j *Job) { j.Saved = max(j.Saved, at) })
	}
	return fmt.Errorf("event %T is unknown", ev)
}

// at finds a job and calls a function for some of its pods, then one for the job.
func (t *Tables) at(job string, pods []int, do func(j *Job, pod int) error, then ...func(*Job)) error {
	j := t.Jobs[job]
	if j == nil {
		return fmt.Errorf("job %s is unknown", job)
	}
	for _, i := range pods {
		if i < 0 || i >= len(j.Pods) {
			return fmt.Errorf("job %s has no pod %d", job, i)
		}
		if err := do(j, i); err != nil {
			return err
		}
	}
	for _, f := range then {
		f(j)
	}
	return nil
}

// stand puts pods on standby, nil for all that run and have GPUs.
func (t *Tables) stand(ev core.StandbyBegan) error {
	pods := ev.Pods
	if j := t.Jobs[ev.Job]; pods == nil && j != nil {
		for i := range j.Pods {
			if j.Pods[i].State == Running && j.Pods[i].GPUs != 0 {
				pods = append(pods, i)
			}
		}
	}
	return t.at(ev.Job, pods, func(j *Job, i int) error {
		p := &j.Pods[i]
		if p.State != Running {
			return fmt.Errorf("pod %d of job %s is not running", i, ev.Job)
		}
		if p.Standby == nil {
			p.Standby = &core.StandbyBegan{Job: ev.Job, Pods: []int{i}, CPUMilli: ev.CPUMilli, MemMiB: ev.MemMiB}
		}
		p.Standby.Until = ev.Until
		return nil
	})
}

func (t *Tables) ended(now core.Time, j *Job, i int, failed bool) error {
	s := j.Pods[i].State
	switch {
	case s == Ended || s == Withdrawn || failed && s == Waiting:
		return fmt.Errorf("pod %d of job %s is not running", i, j.Name)
	case failed:
		t.move(now, j, i, Waiting)
	case s == Waiting:
		t.move(now, j, i, Withdrawn)
	default:
		t.move(now, j, i, Ended)
	}
	return nil
}

func (t *Tables) added(ev core.PodsAdded) error {
	j := t.Jobs[ev.Job]
	if j == nil {
		return fmt.Errorf("job %s is unknown", ev.Job)
	}
	role := slices.IndexFunc(j.Roles, func(o core.Task) bool { return o.Name == ev.Task.Name })
	isNew := role < 0
	if isNew {
		role = len(j.Roles)
	}
	next := len(j.Pods)
	for k, i := range ev.Pods {
		switch {
		case i == next:
			next++
		case i < 0 || i > next || slices.Contains(ev.Pods[:k], i) || j.Pods[i].State < Ended || j.Pods[i].Role != role:
			return fmt.Errorf("job %s: pod %d is added, which is neither the next nor one that is over", ev.Job, i)
		}
	}
	if len(j.Pods)+len(ev.Pods) > maxPods {
		return fmt.Errorf("job %s: at most %d pods", ev.Job, maxPods)
	}
	if isNew {
		task := ev.Task
		task.Pods = len(ev.Pods)
		if task.MinPods == 0 {
			task.MinPods = task.Pods
		}
		j.Roles = append(j.Roles, task)
	}
	for _, i := range ev.Pods {
		if i == len(j.Pods) {
			j.Pods = append(j.Pods, Pod{})
		}
		j.Pods[i] = Pod{Role: role}
	}
	return nil
}

func (t *Tables) decided(now core.Time, d *core.Decision) error {
	switch d.Op {
	case core.Bind, core.Resume:
		if d.Op == core.Resume && d.Reason == core.StandbyReturns {
			return t.goOn(d)
		}
		for k := range d.Pods {
			at := &d.Pods[k]
			err := t.at(d.Job, []int{at.Pod}, func(j *Job, i int) error {
				if j.Pods[i].State != Waiting || t.Nodes[at.Node] == nil {
					return fmt.Errorf("job %s has no waiting pod %d, or there is no node %s", d.Job, i, at.Node)
				}
				t.run(now, j, i, Pod{Role: j.Pods[i].Role, Node: at.Node, GPUs: at.GPUs, Started: now, Backfilled: d.Reason == core.Backfilled})
				return nil
			})
			if err != nil {
				return err
			}
		}
	case core.Migrate:
		for k := range d.Pods {
			to := d.Pods[k]
			err := t.at(d.Job, []int{to.Pod}, func(j *Job, i int) error {
				p := &j.Pods[i]
				if p.State != Running || p.To != nil || to.Node == p.Node || t.Nodes[to.Node] == nil {
					return fmt.Errorf("pod %d of job %s cannot be moved to node %s", i, d.Job, to.Node)
				}
				p.To = &to
				t.Nodes[to.Node].pods[podOf{j, i}] = struct{}{}
				return nil
			})
			if err != nil {
				return err
			}
		}
	case core.Cordon, core.Uncordon:
		n := t.Nodes[d.Node]
		if n == nil {
			return fmt.Errorf("node %s is unknown or lost", d.Node)
		}
		if !strings.HasPrefix(d.Detail, core.DryRun) {
			n.Cordoned = d.Op == core.Cordon
		}
	case core.Test: // its outcome is an event
	case core.Hold, core.Restart:
		return t.at(d.Job, nil, nil)
	case core.Evict, core.Requeue, core.Suspend:
		for k := range d.Pods {
			err := t.at(d.Job, []int{d.Pods[k].Pod}, func(j *Job, i int) error {
				if d.Reason == core.Suspended && j.Pods[i].State != Running {
					return nil // it has given up its GPUs, or is about to
				}
				if j.Pods[i].State != Running {
					return fmt.Errorf("pod %d of job %s is not running", i, d.Job)
				}
				t.move(now, j, i, Leaving)
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// goOn lets pods go on that are on standby.
func (t *Tables) goOn(d *core.Decision) error {
	for k := range d.Pods {
		err := t.at(d.Job, []int{d.Pods[k].Pod}, func(j *Job, i int) error {
			if j.Pods[i].Standby == nil {
				return fmt.Errorf("pod %d of job %s is not on standby", i, d.Job)
			}
			j.Pods[i].Standby = nil
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// run makes a waiting pod run at a place.
func (t *Tables) run(now core.Time, j *Job, i int, place Pod) {
	t.tell(now, j, i, Running)
	place.State = Running
	j.Pods[i] = place
	t.Nodes[place.Node].pods[podOf{j, i}] = struct{}{}
}

// arrived lets a pod that is being moved be at its new place, and there alone.
func (t *Tables) arrived(j *Job, i int) error {
	p := &j.Pods[i]
	if p.To == nil {
		return fmt.Errorf("pod %d of job %s is not being moved", i, j.Name)
	}
	delete(t.Nodes[p.Node].pods, podOf{j, i})
	p.Node, p.GPUs, p.To = p.To.Node, p.To.GPUs, nil
	return nil
}

// stay ends the move of a pod, if there is one: it is where it was.
func (t *Tables) stay(j *Job, i int) {
	p := &j.Pods[i]
	if p.To != nil {
		delete(t.Nodes[p.To.Node].pods, podOf{j, i})
		p.To = nil
	}
}

// move changes the state of a pod to one without a node, or makes it begin to leave its
// node. With that a move to another node is over.
func (t *Tables) move(now core.Time, j *Job, i int, to State) {
	t.tell(now, j, i, to)
	t.stay(j, i)
	p := &j.Pods[i]
	if p.State = to; to == Leaving {
		return
	}
	if n := t.Nodes[p.Node]; n != nil {
		delete(n.pods, podOf{j, i})
	}
	p.Node, p.GPUs, p.Started, p.Backfilled, p.Standby = "", 0, 0, false, nil
}

func (t *Tables) tell(now core.Time, j *Job, i int, to State) {
	if t.Moved != nil {
		t.Moved(now, j, i, to)
	}
}

// Snapshot returns entries that produce these tables when they are applied to empty ones.
func (t *Tables) Snapshot(now core.Time) []Entry {
	var all []Entry
	add := func(ev core.Event) { all = append(all, Entry{Now: now, Event: ev, Restored: true}) }
	for _, q := range t.queuesInOrder() {
		add(core.QueueSet{Queue: q})
	}
	nodes := make([]*Node, 0, len(t.Nodes))
	for _, n := range t.Nodes {
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b *Node) int { return a.serial - b.serial })
	for _, n := range nodes {
		add(core.NodeAdded{Node: n.Node, Evictions: n.Evictions})
	}
	jobs := make([]*Job, 0, len(t.Jobs))
	for _, j := range t.Jobs {
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b *Job) int {
		// First those of which pods are on standby: others may be found on what those lend.
		return cmp.Or(cluster.LastIf(b.lends(), a.lends()), a.serial-b.serial)
	})
	var underWay []core.Decision
	for _, j := range jobs {
		underWay = j.snapshot(add, underWay)
	}
	if underWay != nil {
		all = append(all, Entry{Now: now, Pass: true, Decided: underWay, Restored: true})
	}
	return all
}

// lends reports whether a pod of the job is on standby.
func (j *Job) lends() bool {
	return slices.ContainsFunc(j.Pods, func(p Pod) bool { return p.Standby != nil })
}

// snapshot adds the events of a job. To the decisions under way it adds those by which pods
// leave and are moved.
func (j *Job) snapshot(add func(core.Event), underWay []core.Decision) []core.Decision {
	add(core.JobSubmitted{Job: j.Job})
	for i := j.Job.Pods(); i < len(j.Pods); {
		role := j.Pods[i].Role
		ev := core.PodsAdded{Job: j.Name, Task: j.Roles[role]}
		for ; i < len(j.Pods) && j.Pods[i].Role == role; i++ {
			ev.Pods = append(ev.Pods, i)
		}
		add(ev)
	}
	gone := core.Decision{Op: core.Requeue, Job: j.Name, Reason: core.MemberLost}
	for i := range j.Pods {
		p := &j.Pods[i]
		switch p.State {
		case Running, Leaving:
			ev := core.PodRunning{Job: j.Name, Pod: i, Node: p.Node, Started: p.Started, Backfilled: p.Backfilled}
			for s := p.GPUs; s != 0; s &= s - 1 {
				ev.GPUs = append(ev.GPUs, bits.TrailingZeros64(s))
			}
			add(ev)
			if p.Standby != nil && p.State == Running {
				add(*p.Standby)
			}
			if p.State == Leaving {
				gone.Pods = append(gone.Pods, core.Placement{Pod: i, Node: p.Node, GPUs: p.GPUs})
			}
			if p.To != nil {
				underWay = append(underWay, core.Decision{Op: core.Migrate, Job: j.Name, Pods: []core.Placement{*p.To}, Reason: core.Requested})
			}
		case Ended, Withdrawn:
			add(core.PodEnded{Job: j.Name, Pod: i})
		}
	}
	if j.Shielded {
		add(core.JobShielded{Job: j.Name, Shielded: true})
	}
	for _, ev := range j.Diagnosed {
		add(ev)
	}
	if j.Saved != 0 {
		add(core.Checkpointed{Job: j.Name, At: j.Saved})
	}
	if gone.Pods == nil {
		return underWay
	}
	return append(underWay, gone)
}

// queuesInOrder returns the queues, parents before children.
func (t *Tables) queuesInOrder() []core.Queue {
	depth := func(q core.Queue) int {
		d := 0
		for parent, ok := t.Queues[q.Parent]; ok && d < len(t.Queues); parent, ok = t.Queues[parent.Parent] {
			d++
		}
		return d
	}
	all := make([]core.Queue, 0, len(t.Queues))
	for _, q := range t.Queues {
		all = append(all, q)
	}
	slices.SortFunc(all, func(a, b core.Queue) int { return cmp.Or(depth(a)-depth(b), cmp.Compare(a.Name, b.Name)) })
	return all
}
