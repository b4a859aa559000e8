package coretest

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// Twin is a second opinion on an engine: it receives the same events, and checks each decision
// by adding up all pods again. It requires that
//
//  1. no GPU, CPU or memory is allocated twice, and no GPU both whole and in part; no
//     node has more pods than it takes;
//  2. pods get what they requested, on open nodes with healthy GPUs that their
//     models, selectors, taints and affinities allow;
//  3. a gang runs with its minimum pods or not at all, within the domain that it
//     requires, and those of its pods that name no model and need GPUs on one model;
//  4. no start makes a queue exceed its quota, and Isolated queues never exceed their own; jobs
//     that must not be evicted, or not for too long, start within nominal quota;
//  5. evictions respect Foreign, Locked and NotPreemptible (unless the job was found running
//     with more than nominal quota leaves for such jobs), disruption protection, class, rank,
//     minimum run time and budget; reclaim evicts only from queues beyond their quota, for
//     queues within it;
//  6. an evicted pod is not back in its place before the job for which it left has started,
//     unless an event happened for which that plan may be given up;
//  7. a pod moves only if its job says that it can be replaced, and neither if it is locked,
//     foreign or disruption-protected; to another node of its GPU model where it could be if it were not at
//     its old place. It runs on there, and both places are taken, until the move is over;
//  8. jobs without GPUs leave the cores that the policy keeps for idle GPUs;
//  9. pods on lent GPUs are LP, may be evicted at any time and take together at most what the
//     owner lends; after the window they are told to leave at once, and the owner goes on when they
//     have left, neither sooner nor later;
//  10. of a job for which others go elsewhere, and of those, all run when they have left their
//     places, unless an event upsets the plan; none of them ranks above it;
//  11. decisions are about live jobs and about pods in the right state.
type Twin struct {
	policy core.Policy
	levels []string
	nodes  []*node
	queues []core.Queue
	jobs   map[string]*job
	ended  map[string][]*left // what jobs left that have ended, by name
	spent  map[core.Time]int  // evicted pods by interval
	// quotaSet counts changes of quotas, and of usage from outside: places that were chosen
	// before such a change may exceed what is left.
	quotaSet int
	now      core.Time // of the last pass
	// upsets counts events for which a plan may be given up.
	upsets int
	rooms  []*roomPlan // plans by which pods go elsewhere for a job
	// Evictions counts the pods evicted so far.
	Evictions int
}

// node is a node and its state.
type node struct {
	core.Node
	up, cordoned bool
	bad          uint64 // unhealthy GPUs
}

// podState is what a pod is doing.
type podState uint8

const (
	waiting podState = iota
	running
	leaving
	done
	withdrawn // ended before it ran
)

// pod is a pod of a job; at is where it is while it runs or leaves.
type pod struct {
	task    int
	state   podState
	at      core.Placement
	to      *core.Placement // where it is moving to
	standby *standby        // set while it lends its GPUs
	room    bool            // it moves, or moved last, so that a job gets room
	started core.Time
	left    *left // where it was evicted from last
}

// left is a place that a pod left for a job; upsets and starts are what [Twin.upsets] and the
// job's starts were then.
type left struct {
	at             core.Placement
	job            *job
	upsets, starts int
}

// job is a live job.
type job struct {
	core.Job
	pods       []pod
	started    core.Time // when it last had no pod running before
	backfilled bool
	// adopted jobs may be incomplete: the driver found them so.
	adopted bool
	// lacks is how many pods of each task the gang lacks of its minimum, since pods were added
	// to it while it ran.
	lacks []int
	// left is what an earlier job of the name left.
	left                []*left
	rejected            bool
	disruptionProtected bool
	// exposed jobs were found running with more than nominal quota leaves for those that must
	// not borrow, and are not protected; of doubtful ones, the twin does not know.
	exposed, doubtful bool
	nominated         bool // others were evicted for it since it was bound last
	starts            int  // how often it started where others had made room
	quotaSet          int  // Twin.quotaSet when others were evicted for it last
}

// NewTwin returns a twin of an engine with this configuration.
func NewTwin(c core.Config) *Twin {
	return &Twin{policy: c.Policy, levels: c.Levels, jobs: map[string]*job{}, ended: map[string][]*left{}, spent: map[core.Time]int{}}
}

func (w *Twin) node(name string) *node {
	for _, n := range w.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Apply applies an event that the engine accepted.
func (w *Twin) Apply(now core.Time, ev core.Event) {
	w.upsetRooms(ev)
	switch ev := ev.(type) {
	case core.JobEnded:
		if w.jobs[ev.Job].running() > 0 {
			w.upsets++
		}
	case core.NodeAdded: // pods may have to be spread over it too
		if w.spreads() {
			w.upsets++
		}
	case core.Tick, core.PodsGone, core.JobSubmitted, core.QueueSet, core.QueueRemoved, core.Checkpointed,
		core.MoveRequested, core.PodMoved, core.MoveFailed:
	default:
		w.upsets++
	}
	switch ev := ev.(type) {
	case core.NodeAdded:
		n := w.node(ev.Node.Name)
		if n == nil {
			n = &node{}
			w.nodes = append(w.nodes, n)
		}
		*n = node{Node: ev.Node, up: true, cordoned: ev.Node.Cordoned}
		for _, g := range ev.Node.Unhealthy {
			n.bad |= 1 << g
		}
		for _, j := range w.jobs {
			j.rejected = false
		}
	case core.NodeChanged:
		n := w.node(ev.Node.Name)
		devices := n.Devices
		n.Node = ev.Node
		n.Devices = devices
	case core.NodeLost:
		w.node(ev.Node).up = false
		for _, j := range w.jobs {
			for i := range j.pods {
				p := &j.pods[i]
				if p.on() && p.at.Node == ev.Node {
					p.state, p.to = waiting, nil
				}
				if p.to != nil && p.to.Node == ev.Node {
					p.to = nil
				}
			}
		}
	case core.NodeCordoned:
		w.node(ev.Node).cordoned = ev.Cordoned
	case core.DeviceHealth:
		n := w.node(ev.Node)
		n.bad &^= 1 << ev.GPU
		if !ev.Healthy {
			n.bad |= 1 << ev.GPU
		}
	case core.QueueSet:
		w.quotaSet++
		i := slices.IndexFunc(w.queues, func(q core.Queue) bool { return q.Name == ev.Queue.Name })
		if i < 0 {
			w.queues = append(w.queues, ev.Queue)
		} else {
			w.queues[i] = ev.Queue
		}
	case core.QueueRemoved:
		w.quotaSet++
		w.queues = slices.DeleteFunc(w.queues, func(q core.Queue) bool { return q.Name == ev.Queue })
	case core.JobSubmitted:
		j := &job{Job: ev.Job, left: w.ended[ev.Job.Name]}
		delete(w.ended, ev.Job.Name)
		j.lacks = make([]int, len(j.Tasks))
		for t := range ev.Job.Tasks {
			for range ev.Job.Tasks[t].Pods {
				j.pods = append(j.pods, pod{task: t})
			}
		}
		w.jobs[j.Name] = j
	case core.PodsAdded:
		w.jobs[ev.Job].add(&ev)
	case core.PodRunning:
		w.adopt(ev)
	case core.PodMoved:
		p := &w.jobs[ev.Job].pods[ev.Pod]
		p.at, p.to = *p.to, nil
	case core.MoveFailed:
		w.jobs[ev.Job].pods[ev.Pod].to = nil
	case core.PodEnded:
		p := &w.jobs[ev.Job].pods[ev.Pod]
		p.to = nil
		switch {
		case ev.Failed:
			p.state = waiting
		case p.state == waiting:
			p.state = withdrawn
		default:
			p.state = done
		}
	case core.BindFailed:
		p := &w.jobs[ev.Job].pods[ev.Pod]
		p.state, p.to = waiting, nil
	case core.PodsGone:
		j := w.jobs[ev.Job]
		for i := range j.pods {
			if j.pods[i].state == leaving && (ev.Pods == nil || slices.Contains(ev.Pods, i)) {
				j.pods[i].state = waiting
			}
		}
	case core.JobShielded:
		w.jobs[ev.Job].disruptionProtected = ev.Shielded
	case core.JobRelabelled:
		j := w.jobs[ev.Job]
		j.Tasks = slices.Clone(j.Tasks)
		for t := range j.Tasks {
			if ev.Task == "" || j.Tasks[t].Name == ev.Task {
				j.Tasks[t].Labels, j.Tasks[t].Affinity = ev.Labels, ev.Affinity
			}
		}
	case core.StandbyBegan:
		w.beginStandby(ev)
	case core.StandbyEnded:
		w.endStandby(now, ev)
	case core.JobEnded:
		j := w.jobs[ev.Job]
		for i := range j.pods {
			if l := j.pods[i].left; l != nil {
				j.left = append(j.left, l)
			}
		}
		if j.left != nil {
			w.ended[ev.Job] = j.left
		}
		delete(w.jobs, ev.Job)
	}
	w.settleStandby()
}

// settleStandby forgets the standby of pods that are off their nodes.
func (w *Twin) settleStandby() {
	for _, j := range w.jobs {
		for i := range j.pods {
			if p := &j.pods[i]; !p.on() {
				p.standby = nil
			}
		}
	}
}

// spreads reports whether pods of some job must be spread evenly.
func (w *Twin) spreads() bool {
	for _, j := range w.jobs {
		for t := range j.Tasks {
			if slices.ContainsFunc(j.Tasks[t].Affinity, func(t core.Term) bool { return t.MaxSkew > 0 }) {
				return true
			}
		}
	}
	return false
}

func (w *Twin) adopt(ev core.PodRunning) {
	j := w.jobs[ev.Job]
	j.adopted = true
	w.quotaSet++ // what is found running may exceed quotas
	p := &j.pods[ev.Pod]
	t := &j.Tasks[p.task]
	w.expose(j, w.node(ev.Node).Model, t.GPU)
	p.at = core.Placement{Pod: ev.Pod, Node: ev.Node, GPU: min(t.GPU, core.WholeGPU), CPUMilli: t.CPUMilli, MemMiB: t.MemMiB}
	for _, g := range ev.GPUs {
		p.at.GPUs |= 1 << g
	}
	p.at.NICs = w.node(ev.Node).nics(p.at.GPUs)
	if j.running() == 0 {
		j.started = ev.Started
	}
	p.state, p.started = running, ev.Started
}

// add lets pods join the job.
func (j *job) add(ev *core.PodsAdded) {
	begun := j.running() > 0 && j.whole() // what was found in part has not begun
	j.Tasks = slices.Clone(j.Tasks)
	t := slices.IndexFunc(j.Tasks, func(o core.Task) bool { return o.Name == ev.Task.Name })
	if t < 0 {
		t = len(j.Tasks)
		j.Tasks, j.lacks = append(j.Tasks, ev.Task), append(j.lacks, 0)
		j.Tasks[t].Pods = len(ev.Pods)
	}
	j.Tasks[t].MinPods = minimum(&j.Tasks[t])
	if j.Tasks[t].MinPods == 0 {
		j.Tasks[t].MinPods = core.Elastic
	}
	for _, i := range ev.Pods {
		if i == len(j.pods) {
			j.pods = append(j.pods, pod{})
		}
		j.pods[i] = pod{task: t}
	}
	if begun {
		for t, have := range j.members() {
			j.lacks[t] = max(0, minimum(&j.Tasks[t])-have)
		}
	}
}

// on reports whether the pod is on its node.
func (p *pod) on() bool { return p.state == running || p.state == leaving }

// places yields where the pod takes something: while it moves, at both places.
func (p *pod) places() iter.Seq[*core.Placement] {
	return func(yield func(*core.Placement) bool) {
		if p.on() && yield(&p.at) && p.to != nil {
			yield(p.to)
		}
	}
}

// running counts the pods that run.
func (j *job) running() int {
	n := 0
	for i := range j.pods {
		if j.pods[i].state == running {
			n++
		}
	}
	return n
}

// minimum returns how many pods of a task a gang runs with at least.
func minimum(t *core.Task) int {
	if t.MinPods == 0 {
		return t.Pods
	}
	return max(t.MinPods, 0)
}

// members counts the pods of each task that run or are done.
func (j *job) members() []int {
	have := make([]int, len(j.Tasks))
	for i := range j.pods {
		if s := j.pods[i].state; s == running || s == done {
			have[j.pods[i].task]++
		}
	}
	return have
}

// whole reports whether the gang has its minimum pods, done ones included, or as
// many as it had when some were added last.
func (j *job) whole() bool {
	for t, have := range j.members() {
		if have+j.lacks[t] < minimum(&j.Tasks[t]) {
			return false
		}
	}
	return true
}

// Decide checks the decisions of one pass and takes them in as carried out.
func (w *Twin) Decide(now core.Time, ds []core.Decision) error {
	w.now = now
	planned := map[string]int{} // evictions of this pass, by the job they are for
	for k := range ds {
		d := &ds[k]
		if d.Op == core.Evict {
			planned[d.For] += len(d.Pods)
		}
	}
	plans := map[string]map[string]bool{} // queues within quota before a plan
	paid := map[string]bool{}             // jobs whose evictions were counted
	for k := range ds {
		d := &ds[k]
		if d.Op == core.Wake {
			if d.At <= now {
				return fmt.Errorf("wake at %v is not later than %v", d.At, now)
			}
			continue
		}
		j := w.jobs[d.Job]
		if j == nil {
			return fmt.Errorf("%v of %q, which is no live job", d.Op, d.Job)
		}
		var err error
		switch d.Op {
		case core.Bind:
			err = w.bind(j, d, now)
			clear(plans) // what follows is another plan, after a start that may have taken quota
		case core.Resume:
			err = w.resume(j, d, now)
		case core.Evict:
			if d.Reason == core.StandbyReturns {
				err = w.evictGuests(j, d, now)
				break
			}
			if plans[d.For] == nil {
				plans[d.For] = map[string]bool{}
				for i := range w.queues {
					plans[d.For][w.queues[i].Name] = w.withinNominal(w.queues[i].Name)
				}
			}
			if !paid[d.For] {
				paid[d.For] = true
				err = w.pay(planned[d.For], now)
			}
			if err == nil && (k == 0 || ds[k-1].Op != core.Evict || ds[k-1].For != d.For) {
				err = w.reclaimsWithin(d.For, ds[k:])
			}
			if err == nil {
				err = w.evict(j, d, plans[d.For], now)
			}
		case core.Migrate:
			if err = w.migrate(j, d); err == nil {
				err = w.moves(j, d)
			}
		case core.Requeue:
			err = w.stop(j, d)
			if err == nil && !j.Gang {
				err = fmt.Errorf("it is no gang")
			}
		case core.Reject:
			switch {
			case j.rejected:
				err = fmt.Errorf("it was rejected before")
			case slices.ContainsFunc(j.pods, func(p pod) bool { return p.on() || p.state == done }):
				err = fmt.Errorf("pods of it run, or have")
			}
			j.rejected = true
		}
		if err != nil {
			return fmt.Errorf("%v of job %s: %w", d.Op, d.Job, err)
		}
	}
	if err := w.checkStandby(now); err != nil {
		return err
	}
	for _, j := range w.jobs {
		if n := j.running(); j.Gang && !j.adopted && n > 0 && !j.whole() {
			return fmt.Errorf("gang %s runs with %d pods, fewer than its minimum", j.Name, n)
		}
	}
	return w.roomsMade()
}

// pay counts the evictions of one plan against the budget of the interval.
func (w *Twin) pay(pods int, now core.Time) error {
	w.Evictions += pods
	p := &w.policy.Preempt
	if p.Budget == 0 || p.Interval == 0 {
		return nil
	}
	at := now / p.Interval
	if w.spent[at] > 0 && w.spent[at]+pods > p.Budget {
		return fmt.Errorf("%d pods beyond the budget of %d, %d of it spent", pods, p.Budget, w.spent[at])
	}
	w.spent[at] += pods
	return nil
}

// bind checks where pods start and notes it.
func (w *Twin) bind(j *job, d *core.Decision, now core.Time) error {
	if len(d.Pods) == 0 {
		return fmt.Errorf("no pods")
	}
	before := w.usages()
	scattered := w.together(j) != nil // nodes have changed their places
	asGang := j.Gang && !j.whole()
	if j.running() == 0 {
		j.started = now
		clear(j.lacks)
		j.protect()
	}
	for k := range d.Pods {
		at := d.Pods[k]
		if at.Pod < 0 || at.Pod >= len(j.pods) || j.pods[at.Pod].state != waiting {
			return fmt.Errorf("pod %d does not wait", at.Pod)
		}
		p := &j.pods[at.Pod]
		if err := w.mayRunOn(j, &j.Tasks[p.task], &at); err != nil {
			return fmt.Errorf("pod %d on %s: %w", at.Pod, at.Node, err)
		}
		if l := p.left; l != nil && l.at == at && w.holds(l) {
			return fmt.Errorf("pod %d is back on %s, which it left for %s, which has not started", at.Pod, at.Node, l.job.Name)
		}
		for _, l := range j.left {
			if l.at.Node == at.Node && w.holds(l) {
				return fmt.Errorf("pod %d is on %s, which its job left for %s, which has not started", at.Pod, at.Node, l.job.Name)
			}
		}
		p.state, p.at, p.started, p.left = running, at, now, nil
		if owner := w.guest(&at, p); owner != nil {
			if err := w.guestFits(j, p, owner, now); err != nil {
				return fmt.Errorf("pod %d on %s: %w", at.Pod, at.Node, err)
			}
			continue
		}
		if err := w.notOverfull(w.node(at.Node), &j.Tasks[p.task]); err != nil {
			return fmt.Errorf("pod %d on %s: %w", at.Pod, at.Node, err)
		}
		if err := w.leavesReserve(j, d, &at); err != nil {
			return fmt.Errorf("pod %d on %s: %w", at.Pod, at.Node, err)
		}
	}
	if err := w.prefersLent(j, d, now); err != nil {
		return err
	}
	for k := range d.Pods {
		if err := w.near(j, &d.Pods[k], d.Pods, asGang); err != nil {
			return fmt.Errorf("pod %d on %s: %w", d.Pods[k].Pod, d.Pods[k].Node, err)
		}
	}
	j.backfilled = d.Reason == core.Backfilled
	kept := d.Reason == core.MadeRoom || d.Reason == core.Consolidation // since it was planned
	if kept {
		j.nominated = false
		j.starts++
	}
	if !kept || j.quotaSet == w.quotaSet {
		if err := w.withinQuota(before); err != nil {
			return err
		}
		if err := w.pinnedWithin(j, d.Pods, false); err != nil {
			return err
		}
		for _, at := range d.Pods {
			model := w.node(at.Node).Model
			if at.GPUs == 0 {
				continue
			}
			if !w.lists(j.Queue, model) {
				return fmt.Errorf("queue %q may not use %s", j.Queue, model)
			}
			if err := w.isolatedWithin(extra{j.Queue, model, 0}); err != nil {
				return err
			}
		}
	}
	if j.Gang && !j.adopted {
		if !j.whole() {
			return fmt.Errorf("the gang is not whole")
		}
		for t, have := range j.members() {
			j.lacks[t] = min(j.lacks[t], max(0, minimum(&j.Tasks[t])-have))
		}
		if err := w.oneModel(j); err != nil {
			return err
		}
	}
	switch {
	case j.adopted:
		return nil
	case scattered:
		return w.joins(j, d.Pods)
	}
	return w.together(j)
}

// migrate checks that a pod may move where the decision says, and notes it.
func (w *Twin) migrate(j *job, d *core.Decision) error {
	if len(d.Pods) != 1 {
		return fmt.Errorf("%d pods", len(d.Pods))
	}
	to := d.Pods[0]
	switch {
	case j.Mobility != core.Replaceable || j.Locked || j.Foreign || j.disruptionProtected:
		return fmt.Errorf("it must not be moved")
	case to.Pod < 0 || to.Pod >= len(j.pods) || j.pods[to.Pod].state != running:
		return fmt.Errorf("pod %d does not run", to.Pod)
	}
	p := &j.pods[to.Pod]
	from, n := p.at, w.node(to.Node)
	switch {
	case p.to != nil:
		return fmt.Errorf("pod %d is being moved", to.Pod)
	case p.standby != nil:
		return fmt.Errorf("pod %d is on standby", to.Pod)
	case w.guest(&to, p) != nil:
		return fmt.Errorf("pod %d moves to lent GPUs", to.Pod)
	case to.Node == from.Node:
		return fmt.Errorf("pod %d is on %s already", to.Pod, to.Node)
	case to.GPUs != 0 && n.Model != w.node(from.Node).Model:
		return fmt.Errorf("pod %d comes from %s to %s", to.Pod, w.node(from.Node).Model, n.Model)
	}
	if err := w.mayRunOn(j, &j.Tasks[p.task], &to); err != nil {
		return fmt.Errorf("pod %d on %s: %w", to.Pod, to.Node, err)
	}
	if l := j.Topology.Required; l != "" {
		was, _ := w.domain(w.node(from.Node), l)
		if is, ok := w.domain(n, l); !ok || is != was {
			return fmt.Errorf("pod %d leaves %s %q for %q", to.Pod, l, was, is)
		}
	}
	for _, l := range j.left {
		if l.at.Node == to.Node && w.holds(l) {
			return fmt.Errorf("pod %d moves to %s, which its job left for %s, which has not started", to.Pod, to.Node, l.job.Name)
		}
	}
	// What it must be near to and apart from, as if it had moved; room, as it has both.
	p.at = to
	err := w.near(j, &to, []core.Placement{to}, false)
	p.at, p.to = from, &to
	if err == nil {
		err = w.notOverfull(n, &j.Tasks[p.task])
	}
	if err != nil {
		return fmt.Errorf("pod %d on %s: %w", to.Pod, to.Node, err)
	}
	return nil
}

// leavesReserve checks that a pod that starts leaves the cores that are kept for idle GPUs. While
// pods leave, places may be kept for others, of which the twin does not know; and what others made
// room for was chosen earlier.
func (w *Twin) leavesReserve(j *job, d *core.Decision, at *core.Placement) error {
	if d.Reason == core.MadeRoom || !w.Settled() {
		return nil
	}
	n := w.node(at.Node)
	u := w.use(n)
	if kept := w.reserved(j, &j.Tasks[j.pods[at.Pod].task], n, &u); kept > 0 && u.cpu+kept > n.CPUMilli {
		return fmt.Errorf("%d milli-cores are left, %d are kept for idle GPUs", n.CPUMilli-u.cpu, kept)
	}
	return nil
}

// holds reports whether the job for which a place was left still waits by the same plan.
func (w *Twin) holds(l *left) bool {
	return l.upsets == w.upsets && w.jobs[l.job.Name] == l.job && l.job.starts == l.starts
}

// oneModel checks that pods of a gang that need GPUs and name no model are on one.
func (w *Twin) oneModel(j *job) error {
	base := w.base(j)
	for i := range j.pods {
		if p := &j.pods[i]; p.state == running && anyModel(&j.Tasks[p.task]) && w.node(p.at.Node).Model != base {
			return fmt.Errorf("pod %d is on %s, another that names no model on %s", i, w.node(p.at.Node).Model, base)
		}
	}
	return nil
}

// base returns the model of the first running pod of a gang that needs GPUs and names no
// model; "" if there is none.
func (w *Twin) base(j *job) string {
	for i := range j.pods {
		if p := &j.pods[i]; j.Gang && p.state == running && anyModel(&j.Tasks[p.task]) {
			return w.node(p.at.Node).Model
		}
	}
	return ""
}

// anyModel reports whether pods of the task need GPUs of a model that they do not name.
func anyModel(t *core.Task) bool { return t.GPU > 0 && len(t.Models) == 0 }

// mayRunOn checks a placement against the task's request and the node.
func (w *Twin) mayRunOn(j *job, t *core.Task, at *core.Placement) error {
	n := w.node(at.Node)
	switch {
	case n == nil || !n.up:
		return fmt.Errorf("the node is not there")
	case n.cordoned:
		return fmt.Errorf("the node is cordoned")
	case at.GPUs>>n.GPUs != 0 && n.GPUs < 64:
		return fmt.Errorf("it has no GPUs %b", at.GPUs)
	case at.GPUs&n.bad != 0:
		return fmt.Errorf("GPUs %b are unhealthy", at.GPUs&n.bad)
	case at.CPUMilli != t.CPUMilli || at.MemMiB != t.MemMiB:
		return fmt.Errorf("CPU or memory is not what it asked for")
	}
	if at.NICs != n.nics(at.GPUs) {
		return fmt.Errorf("NICs %b for GPUs %b", at.NICs, at.GPUs)
	}
	count := bits.OnesCount64(at.GPUs)
	switch {
	case t.GPU == 0 && count != 0,
		t.GPU > 0 && t.GPU < core.WholeGPU && (count != 1 || at.GPU != t.GPU),
		t.GPU >= core.WholeGPU && (at.GPU != core.WholeGPU || core.Milli(count)*core.WholeGPU != t.GPU):
		return fmt.Errorf("%d GPUs of %d milli for a request of %d", count, at.GPU, t.GPU)
	}
	return w.suits(j, t, n)
}

// suits checks what a task requires of a node, whatever runs there.
func (w *Twin) suits(j *job, t *core.Task, n *node) error {
	switch {
	case len(t.Models) > 0 && !slices.Contains(t.Models, n.Model):
		return fmt.Errorf("model %s, accepted are %v", n.Model, t.Models)
	case !selects(t.Selector, n.Labels):
		return fmt.Errorf("labels %v, selected are %v", n.Labels, t.Selector)
	case len(t.AnyOf) > 0 && !slices.ContainsFunc(t.AnyOf, func(rs []core.Requirement) bool { return selects(rs, n.Labels) }):
		return fmt.Errorf("labels %v, selected is one of %v", n.Labels, t.AnyOf)
	}
	if z := &w.policy.Zone; z.Exclusive && z.Key != "" && n.Labels[z.Key] == z.Value && j.Kind != core.Inference {
		return fmt.Errorf("the zone is for inference")
	}
	for _, taint := range n.Taints {
		if !slices.ContainsFunc(t.Tolerations, func(o core.Toleration) bool {
			return (o.Key == "" || o.Key == taint.Key) && (o.Value == "" || o.Value == taint.Value)
		}) {
			return fmt.Errorf("taint %v", taint)
		}
	}
	return nil
}

// selects reports whether labels satisfy every requirement.
func selects(selector []core.Requirement, labels map[string]string) bool {
	for _, r := range selector {
		v, has := labels[r.Key]
		in := has && slices.Contains(r.Values, v)
		n, err := strconv.Atoi(v)
		than, _ := strconv.Atoi(strings.Join(r.Values, " "))
		number := has && err == nil
		if ok := [...]bool{
			cluster.In: in, cluster.NotIn: !in, cluster.Exists: has, cluster.DoesNotExist: !has,
			cluster.Gt: number && n > than, cluster.Lt: number && n < than,
		}[r.Op]; !ok {
			return false
		}
	}
	return true
}

// nics returns the NICs nearest to GPUs of the node; if the layout is not known, each GPU has
// its own.
func (n *node) nics(gpus uint64) uint64 {
	if n.Devices == nil {
		return gpus
	}
	var out uint64
	for g, d := range n.Devices {
		if gpus>>g&1 == 1 && d.NIC >= 0 {
			out |= 1 << d.NIC
		}
	}
	return out
}

// other is how much the node has of another resource.
func (n *node) other(name string) int64 {
	for _, a := range n.Others {
		if a.Name == name {
			return a.Value
		}
	}
	return 0
}

// use is what the pods on a node take.
type use struct {
	gpu      [64]core.Milli
	wholly   uint64 // GPUs taken as a whole
	partly   uint64
	cpu, mem int64
	pods     int
	others   map[string]int64
}

func (w *Twin) use(n *node) use {
	u := use{others: map[string]int64{}}
	for _, j := range w.jobs {
		for i := range j.pods {
			p := &j.pods[i]
			for at := range p.places() {
				switch {
				case at.Node != n.Name:
				case w.guest(at, p) != nil:
					u.pods++ // what it takes beside is a part of what the owner has
				default:
					u.add(n, &j.Tasks[p.task], at)
				}
			}
		}
	}
	return u
}

// add adds what a pod of a task takes at its place on a node.
func (u *use) add(n *node, t *core.Task, at *core.Placement) {
	u.cpu += at.CPUMilli
	u.mem += at.MemMiB
	u.pods++
	for _, a := range t.Others {
		u.others[a.Name] += a.Value
	}
	for g := range n.GPUs {
		if at.GPUs>>g&1 == 0 {
			continue
		}
		u.gpu[g] += at.GPU
		if at.GPU == core.WholeGPU {
			u.wholly |= 1 << g
		} else {
			u.partly |= 1 << g
		}
	}
}

// notOverfull checks that a node on which a pod of a task starts has what its pods
// take, of other resources as far as the task names them.
func (w *Twin) notOverfull(n *node, t *core.Task) error {
	u := w.use(n)
	for g := range n.GPUs {
		if u.gpu[g] > core.WholeGPU {
			return fmt.Errorf("GPU %d is given out at %d milli", g, u.gpu[g])
		}
	}
	switch {
	case u.wholly&u.partly != 0:
		return fmt.Errorf("GPUs %b are given whole and in part", u.wholly&u.partly)
	case u.cpu > n.CPUMilli:
		return fmt.Errorf("%d of %d milli-cores are given out", u.cpu, n.CPUMilli)
	case u.mem > n.MemMiB:
		return fmt.Errorf("%d of %d MiB are given out", u.mem, n.MemMiB)
	case n.MaxPods > 0 && u.pods > n.MaxPods:
		return fmt.Errorf("it has %d pods, and takes %d", u.pods, n.MaxPods)
	}
	for _, a := range t.Others {
		if has := n.other(a.Name); a.Value > 0 && u.others[a.Name] > has {
			return fmt.Errorf("%d of %d %s are given out", u.others[a.Name], has, a.Name)
		}
	}
	return nil
}

// domain names the domain of a node at a level; false when it is not known.
func (w *Twin) domain(n *node, level string) (string, bool) {
	switch level {
	case "node":
		return n.Name, true
	case "hbd":
		return n.HBD, n.HBD != ""
	}
	path := ""
	for i, l := range w.levels {
		if i >= len(n.Domains) || n.Domains[i] == "" {
			return "", false
		}
		path += "/" + n.Domains[i]
		if l == level {
			return path, true
		}
	}
	return "", false
}

// together checks that a job lies within the domain that it requires.
func (w *Twin) together(j *job) error {
	if j.Topology.Required == "" {
		return nil
	}
	in := ""
	for i := range j.pods {
		if p := &j.pods[i]; p.on() {
			d, ok := w.domain(w.node(p.at.Node), j.Topology.Required)
			if !ok || in != "" && d != in {
				return fmt.Errorf("pods in %s %q and %q", j.Topology.Required, in, d)
			}
			in = d
		}
	}
	return nil
}

// joins checks that pods which start are in the domain of one that runs.
func (w *Twin) joins(j *job, start []core.Placement) error {
	for _, at := range start {
		in, _ := w.domain(w.node(at.Node), j.Topology.Required)
		if !slices.ContainsFunc(j.pods, func(p pod) bool {
			if !p.on() || slices.ContainsFunc(start, func(x core.Placement) bool { return x.Pod == p.at.Pod }) {
				return false
			}
			d, ok := w.domain(w.node(p.at.Node), j.Topology.Required)
			return ok && d == in
		}) {
			return fmt.Errorf("pod %d joins no pod in %s %q", at.Pod, j.Topology.Required, in)
		}
	}
	return nil
}

// near checks the affinities of a pod that starts together with others, as a gang or
// one by one: then those of other tasks may have come later.
func (w *Twin) near(j *job, at *core.Placement, with []core.Placement, asGang bool) error {
	task := &j.Tasks[j.pods[at.Pod].task]
	if other := w.keptOff(w.node(at.Node), task.Labels, &j.pods[at.Pod], func(o *job, i int) bool {
		return asGang || o != j || !slices.ContainsFunc(with, func(x core.Placement) bool { return x.Pod == i })
	}); other != "" {
		return fmt.Errorf("%s must be apart from it", other)
	}
	for _, t := range task.Affinity {
		own := slices.Contains(task.Labels, t.Label)
		here, ok := w.domain(w.node(at.Node), t.Level)
		if !ok {
			return fmt.Errorf("its %s is not known", t.Level)
		}
		if t.MaxSkew > 0 {
			if err := w.spread(j, at.Pod, &t, here, with); err != nil {
				return err
			}
			continue
		}
		inDomain, elsewhere := 0, 0
		for _, o := range w.jobs {
			for i := range o.pods {
				p := &o.pods[i]
				together := o == j && slices.ContainsFunc(with, func(x core.Placement) bool { return x.Pod == i })
				if !o.labelled(p, t.Label) || o == j && i == at.Pod || t.Anti && together && !asGang && p.task != j.pods[at.Pod].task {
					continue
				}
				for is := range p.places() {
					// A pod on its way is at neither place to be near to.
					if d, ok := w.domain(w.node(is.Node), t.Level); ok && d == here && (t.Anti || p.to == nil) {
						inDomain++
					} else if !together {
						elsewhere++
					}
				}
			}
		}
		if t.Anti && inDomain > 0 {
			return fmt.Errorf("%d pods labelled %s in its %s", inDomain, t.Label, t.Level)
		}
		// Pods for which places are kept count, too; the twin cannot know which ones while
		// their victims are leaving.
		if !t.Anti && inDomain == 0 && !(own && elsewhere == 0) && w.Settled() {
			return fmt.Errorf("no pod labelled %s in its %s", t.Label, t.Level)
		}
	}
	return nil
}

// keptOff names a pod, of those that count, which keeps others with some of the labels off a
// node; "" if none does. A pod does not keep itself off.
func (w *Twin) keptOff(n *node, labels []string, but *pod, counts func(*job, int) bool) string {
	for _, o := range w.jobs {
		for i := range o.pods {
			p := &o.pods[i]
			if p == but || !counts(o, i) {
				continue
			}
			for _, t := range o.Tasks[p.task].Affinity {
				for at := range p.places() {
					there, _ := w.domain(w.node(at.Node), t.Level)
					if here, ok := w.domain(n, t.Level); ok && here == there && t.Anti && slices.Contains(labels, t.Label) {
						return fmt.Sprintf("pod %d of %s", i, o.Name)
					}
				}
			}
		}
	}
	return ""
}

// labelled reports whether a pod of the job has a label.
func (j *job) labelled(p *pod, label string) bool {
	return slices.Contains(j.Tasks[p.task].Labels, label)
}

// spread checks the skew of a pod that starts in a domain, together with others:
// those of other tasks, which other domains may be open to, may have come later.
func (w *Twin) spread(j *job, pod int, t *core.Term, here string, with []core.Placement) error {
	if !w.Settled() {
		return nil // settled places count too, and the twin does not know them
	}
	hosts := map[string]int{}
	task := &j.Tasks[j.pods[pod].task]
	for _, n := range w.nodes {
		if d, ok := w.domain(n, t.Level); ok && n.up && !(task.GPU > 0 && n.GPUs == 0) && w.suits(j, task, n) == nil {
			hosts[d] = 0
		}
	}
	moving := map[string]int{}
	for _, o := range w.jobs {
		for i := range o.pods {
			p := &o.pods[i]
			for at := range p.places() {
				d, ok := w.domain(w.node(at.Node), t.Level)
				if _, eligible := hosts[d]; ok && eligible && o.labelled(p, t.Label) {
					hosts[d]++
					if p.to != nil {
						moving[d]++
					}
				}
			}
		}
	}
	fewest := hosts[here]
	for d, k := range hosts {
		if d != here { // the domain itself cannot have more than it has
			fewest = min(fewest, k-moving[d]) // one of their two places will be free
		}
	}
	if len(hosts) < t.MinDomains {
		fewest = 0
	}
	for _, x := range with {
		if d, _ := w.domain(w.node(x.Node), t.Level); d == here && j.pods[x.Pod].task != j.pods[pod].task && j.labelled(&j.pods[x.Pod], t.Label) {
			hosts[here]--
		}
	}
	if hosts[here]-fewest > t.MaxSkew {
		return fmt.Errorf("%s %s has %d pods labelled %s, another %d", t.Level, here, hosts[here], t.Label, fewest)
	}
	return nil
}

// stop checks that the pods run, and notes that they must leave.
func (w *Twin) stop(j *job, d *core.Decision) error {
	if len(d.Pods) == 0 {
		return fmt.Errorf("no pods")
	}
	for _, at := range d.Pods {
		p := &j.pods[at.Pod]
		if p.state != running || p.at != at {
			return fmt.Errorf("pod %d does not run where the decision says", at.Pod)
		}
		p.state, p.to = leaving, nil
	}
	return nil
}

// evict checks that the pods may be evicted, and notes it. within names the
// queues that are within their quota.
func (w *Twin) evict(j *job, d *core.Decision, within map[string]bool, now core.Time) error {
	f := w.jobs[d.For]
	if f == nil {
		return fmt.Errorf("for %q, which is no live job", d.For)
	}
	f.quotaSet, f.nominated = w.quotaSet, true
	p := &w.policy.Preempt
	switch {
	case f == j:
		return fmt.Errorf("for itself")
	case f.NeverPreempts:
		return fmt.Errorf("for %s, which never preempts", f.Name)
	case p.HPOnly && f.Class == core.LP:
		return fmt.Errorf("for %s, which is LP", f.Name)
	case j.Foreign, (j.Locked || j.NotPreemptible) && !p.Unprotected && !j.exposed && !j.doubtful, j.disruptionProtected && d.Reason != core.QuotaReclaim:
		return fmt.Errorf("it may not be evicted")
	case d.Reason == core.Consolidation && j.NeverRestarts:
		return fmt.Errorf("it does not restart elsewhere")
	case f.Class == core.LP && j.Class == core.HP:
		return fmt.Errorf("HP, for LP job %s", f.Name)
	}
	since := j.started
	if !j.Gang {
		since = 0
		for _, at := range d.Pods {
			since = max(since, j.pods[at.Pod].started)
		}
	}
	if now-since < max(p.MinRuntime, w.minRuntime(j)) {
		return fmt.Errorf("it has run since %v only", since)
	}
	outranks := f.Class < j.Class || f.Class == j.Class && f.Priority > j.Priority
	switch {
	case d.Reason == core.PriorityPreemption && p.Priority && outranks:
	case d.Reason == core.QuotaReclaim && p.Reclaim && f.Queue != j.Queue && !within[j.Queue]:
	case d.Reason == core.BackfillPreemption && p.Backfill && j.backfilled && f.Class <= j.Class:
	case d.Reason == core.Consolidation:
		if err := w.restart(j, f, d); err != nil {
			return err
		}
		j.quotaSet = w.quotaSet
	default:
		return fmt.Errorf("for %s by %v, which does not hold", f.Name, d.Reason)
	}
	for _, at := range d.Pods {
		if j.pods[at.Pod].to != nil {
			return fmt.Errorf("pod %d is being moved", at.Pod)
		}
		if j.pods[at.Pod].standby != nil {
			return fmt.Errorf("pod %d is on standby", at.Pod)
		}
		if d.Reason != core.Consolidation {
			j.pods[at.Pod].left = &left{at, f, w.upsets, f.starts}
		}
	}
	if d.Reason != core.Consolidation {
		w.evicts(j, f, d)
	}
	return w.stop(j, d)
}

// Counts returns how many pods of a live job wait, run and leave.
func (w *Twin) Counts(name string) (wait, run, leave int) {
	j := w.jobs[name]
	for i := range j.pods {
		switch j.pods[i].state {
		case waiting:
			wait++
		case running:
			run++
		case leaving:
			leave++
		}
	}
	return wait, run, leave
}

// Moving returns how many pods of a live job are being moved.
func (w *Twin) Moving(name string) int {
	n := 0
	for i := range w.jobs[name].pods {
		if w.jobs[name].pods[i].to != nil {
			n++
		}
	}
	return n
}

// Live returns the names of the live jobs, sorted.
func (w *Twin) Live() []string {
	var out []string
	for name := range w.jobs {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
