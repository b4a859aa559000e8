// Package core decides which job runs on which GPUs, and nothing else. It has
// no clock, I/O, goroutine, lock, logger, random source or Kubernetes type:
// events go in, decisions come out, and the same events give the same
// decisions.
package core

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/quota"
)

// Config is what an engine is told once, at its creation.
type Config struct {
	Policy Policy
	// Levels names the topology levels, widest first; the last is the leaf
	// group. "node" and "hbd" are not among them: they always exist.
	Levels []string
}

// Engine is the scheduler's state and its rules. It starts empty and learns
// from events alone. One goroutine owns an engine.
type Engine struct {
	policy Policy
	state  *cluster.State
	placer *place.Placer
	ledger *quota.Ledger

	jobs  map[string]*job
	slots []*job // by job.slot
	spare []int32
	seq   uint64
	now   Time

	classes map[classID]*class
	active  heap[*class] // to be tried, the class with the first head on top
	ready   heap[*class] // all but those without quota, the same way
	idle    []*class     // not to be tried for now
	paused  heap[*job]   // by the end of their pause

	running []*job // jobs with running pods
	version uint64 // changes with the running jobs
	ranks   rankTable
	// bypassed is how much evictable GPU runs that was backfilled.
	bypassed Milli
	ending   []Decision // requeues to tell of at the next Decide
	filling  []*nomination
	plans    map[cluster.NodeID][]planned

	freed     uint64 // pools in which something was freed, a bit each (modulo 64)
	quotaOpen bool   // some quota was given back
	nodesNew  bool   // nodes were added since the last pass
	wakeAt    Time   // the pending Wake, Never when there is none
	wakeNext  Time   // the Wake that the current pass asks for
	budget    budget
	retryAt   Time   // when more may be evicted than at the last pass
	coverAt   uint64 // version for which Engine.cover holds

	out    []Decision
	places []Placement
	unit   place.Unit
	tasks  []place.Task
	iota   []int32
	// Scratch memory of preemption.
	victimList []victim
	lifted     []liftedPod
	units      []covered
	dealt      map[account]Milli
	claimed    []claim
}

// New returns an engine that knows no nodes, queues or jobs.
func New(c Config) (*Engine, error) {
	seen := map[string]bool{cluster.NodeLevel: true, cluster.HBDLevel: true, "": true}
	for _, l := range c.Levels {
		if seen[l] {
			return nil, fmt.Errorf("topology level %q: names must differ and be neither empty, %q nor %q", l, cluster.NodeLevel, cluster.HBDLevel)
		}
		seen[l] = true
	}
	state := cluster.New(c.Levels)
	e := &Engine{
		policy: c.Policy, state: state, placer: place.NewPlacer(state), ledger: quota.NewLedger(),
		jobs: map[string]*job{}, classes: map[classID]*class{}, plans: map[cluster.NodeID][]planned{},
		dealt: map[account]Milli{}, wakeAt: Never, retryAt: Never, version: 1,
	}
	for i := range c.Policy.Mix {
		e.placer.Mix.Observe(&c.Policy.Mix[i].Request, c.Policy.Mix[i].Pods)
	}
	headFirst := func(a, b *class) bool { return a.head().key.before(&b.head().key) }
	e.active = heap[*class]{less: headFirst, moved: func(c *class, at int) { c.at[0] = at }}
	e.ready = heap[*class]{less: headFirst, moved: func(c *class, at int) { c.at[1] = at }}
	e.paused = heap[*job]{moved: jobMoved, less: func(a, b *job) bool {
		return a.notBefore < b.notBefore || a.notBefore == b.notBefore && a.key.seq < b.key.seq
	}}
	return e, nil
}

// Apply takes in ev, which happened at now. now never goes back. On an error,
// which says what in the event is wrong, the engine is unchanged.
func (e *Engine) Apply(now Time, ev Event) error {
	if now < e.now {
		return fmt.Errorf("time goes back from %.9gs to %.9gs", e.now.Seconds(), now.Seconds())
	}
	if err := e.apply(now, ev); err != nil {
		return err
	}
	e.now = now
	return nil
}

func (e *Engine) apply(now Time, ev Event) error {
	switch ev := ev.(type) {
	case JobSubmitted:
		return e.submit(now, ev.Job)
	case *JobSubmitted:
		return e.submit(now, ev.Job)
	case JobEnded:
		return e.end(ev.Job)
	case PodEnded:
		return e.podEnded(now, ev)
	case PodsGone:
		return e.podsGone(now, ev)
	case BindFailed:
		return e.podEnded(now, PodEnded{Job: ev.Job, Pod: ev.Pod, Failed: true})
	case PodRunning:
		return e.adopt(now, ev)
	case NodeAdded:
		return e.addNode(ev.Node)
	case NodeLost:
		return e.loseNode(now, ev.Node)
	case NodeCordoned:
		return e.cordon(now, ev)
	case DeviceHealth:
		return e.setHealth(now, ev)
	case QueueSet:
		e.quotaOpen, e.freed = true, ^uint64(0)
		e.version++
		return e.ledger.Set(ev.Queue)
	case QueueRemoved:
		return e.ledger.Remove(ev.Queue)
	case JobEstimated:
		return e.estimate(now, ev)
	case Checkpointed:
		j, err := e.job(ev.Job)
		if err != nil {
			return err
		}
		j.saved = now
		return nil
	case Tick:
		if now >= e.wakeAt {
			e.wakeAt = Never
		}
		return nil
	}
	return fmt.Errorf("event %T is unknown", ev)
}

// job finds a live job.
func (e *Engine) job(name string) (*job, error) {
	j := e.jobs[name]
	if j == nil {
		return nil, fmt.Errorf("job %s is unknown", name)
	}
	return j, nil
}

// node finds a node that is up.
func (e *Engine) node(name string) (cluster.NodeID, error) {
	id, ok := e.state.Lookup(name)
	if !ok || !e.state.Node(id).Up {
		return 0, fmt.Errorf("node %s is unknown or lost", name)
	}
	return id, nil
}

// CheckJob reports what is wrong with a job's description by itself.
func CheckJob(j *Job) error {
	if j.Name == "" {
		return fmt.Errorf("job without a name")
	}
	if len(j.Tasks) == 0 {
		return fmt.Errorf("job %s: no tasks", j.Name)
	}
	if j.Kind >= numKinds || j.Class > LP {
		return fmt.Errorf("job %s: unknown kind or class", j.Name)
	}
	for i := range j.Tasks {
		t := &j.Tasks[i]
		switch {
		case t.Pods < 1:
			return fmt.Errorf("job %s: task %d has %d pods, expected at least 1", j.Name, i, t.Pods)
		case t.MinPods < 0 || t.MinPods > t.Pods:
			return fmt.Errorf("job %s: task %d starts with %d pods, expected 0..%d", j.Name, i, t.MinPods, t.Pods)
		case t.GPU < 0 || t.GPU >= WholeGPU && t.GPU%WholeGPU != 0:
			return fmt.Errorf("job %s: %d milli-GPU a pod, expected less than 1000 or a multiple of it", j.Name, t.GPU)
		case t.GPU > cluster.MaxGPUs*WholeGPU:
			return fmt.Errorf("job %s: %d milli-GPU a pod, expected at most %d", j.Name, t.GPU, cluster.MaxGPUs*WholeGPU)
		case t.CPUMilli < 0 || t.MemMiB < 0:
			return fmt.Errorf("job %s: negative CPU or memory", j.Name)
		}
	}
	return nil
}

func (e *Engine) submit(now Time, spec Job) error {
	if err := CheckJob(&spec); err != nil {
		return err
	}
	if e.jobs[spec.Name] != nil {
		return fmt.Errorf("job %s is there already", spec.Name)
	}
	q, ok := e.ledger.Lookup(spec.Queue)
	if !ok {
		return fmt.Errorf("job %s: queue %q is unknown", spec.Name, spec.Queue)
	}
	levels := []string{spec.Topology.Required, spec.Topology.Preferred}
	for i := range spec.Affinity {
		levels = append(levels, spec.Affinity[i].Level)
	}
	for _, l := range levels {
		if _, ok := e.state.Level(l); l != "" && !ok {
			return fmt.Errorf("job %s: topology level %q is unknown", spec.Name, l)
		}
	}
	e.seq++
	j := &job{Job: spec, queue: q, since: now, run: -1, slot: e.slot()}
	j.key = key{class: spec.Class, priority: spec.Priority, submit: spec.Submitted, seq: e.seq}
	switch e.policy.Queueing.Order {
	case ByPriority:
		j.key.size = spec.GPUs()
	case ByEstimate:
		j.key.estimate = spec.Estimate
	}
	if spec.Submitted < now {
		j.since = spec.Submitted
	}
	j.pods = make([]pod, 0, spec.Pods())
	for t := range spec.Tasks {
		for range spec.Tasks[t].Pods {
			j.pods = append(j.pods, pod{task: int32(t)})
		}
	}
	j.count[podWaiting] = len(j.pods)
	if len(e.policy.Mix) == 0 {
		for t := range spec.Tasks {
			e.placer.Mix.Observe(&spec.Tasks[t].Request, spec.Tasks[t].Pods)
		}
	}
	e.slots[j.slot] = j
	e.jobs[spec.Name] = j
	e.state.SetLabels(j.slot, spec.Labels)
	q.Jobs++
	e.enqueue(j, now)
	return nil
}

// slot returns a free place in e.slots.
func (e *Engine) slot() int32 {
	if k := len(e.spare); k > 0 {
		s := e.spare[k-1]
		e.spare = e.spare[:k-1]
		return s
	}
	e.slots = append(e.slots, nil)
	return int32(len(e.slots) - 1)
}

// end forgets a job.
func (e *Engine) end(name string) error {
	j, err := e.job(name)
	if err != nil {
		return err
	}
	e.dequeue(j)
	e.denominate(j)
	for i := range j.pods {
		if p := &j.pods[i]; p.state == podRunning || p.state == podLeaving {
			e.release(j, i, podDone)
		}
	}
	e.state.Commit()
	e.state.SetLabels(j.slot, nil)
	j.queue.Jobs--
	e.ending = slices.DeleteFunc(e.ending, func(d Decision) bool { return d.Job == name })
	delete(e.jobs, name)
	e.slots[j.slot] = nil
	e.spare = append(e.spare, j.slot)
	return nil
}

// release takes a running or leaving pod off its node. The journal grows.
func (e *Engine) release(j *job, i int, to podState) {
	p := &j.pods[i]
	e.state.Remove(cluster.Owner{Job: j.slot, Pod: int32(i)}, p.alloc.Node)
	e.unbook(j, p, to)
	e.settleNode(p.alloc.Node)
}

// unbook counts a pod as off its node, which the state knows already.
func (e *Engine) unbook(j *job, p *pod, to podState) {
	node := p.alloc.Node
	if p.state == podRunning {
		e.charge(j, p, -1)
		e.quotaOpen = true
	}
	was := p.state
	j.set(p, to)
	if was == podRunning {
		e.stopped(j, p)
	}
	if p.leavingFor != nil {
		p.leavingFor.outstanding--
		p.leavingFor = nil
	}
	e.free(node)
	e.vanished(j)
}

// vanished notes that pods of the job left: others may have kept their
// distance from them, in whatever pool.
func (e *Engine) vanished(j *job) {
	if len(j.Labels) > 0 {
		e.freed = ^uint64(0)
	}
}

// free notes that something was freed on a node.
func (e *Engine) free(id cluster.NodeID) { e.freed |= e.poolBit(id) }

func (e *Engine) poolBit(id cluster.NodeID) uint64 {
	return 1 << (uint(e.state.PoolNumber(id)) % 64)
}

// charge books a pod's GPU to its queue, or gives it back.
func (e *Engine) charge(j *job, p *pod, by Milli) {
	if gpu := j.gpu(p); gpu > 0 {
		j.queue.Add(e.state.Pool(p.alloc.Node).Model, by*gpu)
	}
}

func (e *Engine) podEnded(now Time, ev PodEnded) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	if ev.Pod < 0 || ev.Pod >= len(j.pods) {
		return fmt.Errorf("job %s has no pod %d", ev.Job, ev.Pod)
	}
	p := &j.pods[ev.Pod]
	if p.state != podRunning && p.state != podLeaving {
		return fmt.Errorf("pod %d of job %s is not running", ev.Pod, ev.Job)
	}
	if !ev.Failed {
		e.release(j, ev.Pod, podDone)
		e.state.Commit()
		e.requeueIfGone(j, now)
		return nil
	}
	e.release(j, ev.Pod, podWaiting)
	e.state.Commit()
	e.dequeue(j)
	if now-j.started > e.policy.Requeue.MaxBackoff {
		j.failures = 0 // it ran well for long: the failure is a new one
	}
	j.failures++
	j.notBefore = now + e.policy.Requeue.pause(j.failures)
	if j.Gang {
		e.breakGang(j)
	}
	e.requeueIfGone(j, now)
	return nil
}

// pause returns how long a job waits after so many failures.
func (r RequeuePolicy) pause(failures int) Time {
	p := r.Backoff
	for i := 1; i < failures && p < r.MaxBackoff; i++ {
		p *= 2
	}
	if r.MaxBackoff > 0 {
		p = min(p, r.MaxBackoff)
	}
	return p
}

// breakGang stops the pods of a gang that has too few left to go on.
func (e *Engine) breakGang(j *job) {
	if j.standing() {
		return
	}
	e.denominate(j)
	j.begun = false
	first := len(e.places)
	for i := range j.pods {
		if p := &j.pods[i]; p.state == podRunning {
			e.places = append(e.places, e.placement(j, i))
			e.charge(j, p, -1)
			e.quotaOpen = true
			j.set(p, podLeaving)
			e.stopped(j, p)
		}
	}
	if len(e.places) > first {
		pods := append([]Placement(nil), e.places[first:]...)
		e.ending = append(e.ending, Decision{Op: Requeue, Job: j.Name, Pods: pods, Reason: MemberLost})
	}
	e.places = e.places[:first]
}

// requeueIfGone puts a job's waiting pods back in the queue, once none of a
// broken gang is left on a node.
func (e *Engine) requeueIfGone(j *job, now Time) {
	if j.Gang && !j.begun && j.count[podLeaving] > 0 {
		return
	}
	if j.class == nil && j.count[podWaiting] > 0 {
		j.since = now
	}
	if j.Gang && !j.begun && j.count[podDone] > 0 {
		j.begun = j.standing() // members may have ended well while they left
	}
	e.enqueue(j, now)
}

func (e *Engine) podsGone(now Time, ev PodsGone) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	for _, i := range ev.Pods {
		if i < 0 || i >= len(j.pods) || j.pods[i].state != podLeaving {
			return fmt.Errorf("pod %d of job %s was not told to leave", i, ev.Job)
		}
	}
	gone := ev.Pods
	if gone == nil {
		for i := range j.pods {
			if j.pods[i].state == podLeaving {
				gone = append(gone, i)
			}
		}
	}
	for _, i := range gone {
		e.release(j, i, podWaiting)
	}
	e.state.Commit()
	if !j.whole() {
		e.dequeue(j) // its class may be another now
	}
	e.requeueIfGone(j, now)
	return nil
}

func (e *Engine) adopt(now Time, ev PodRunning) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	id, err := e.node(ev.Node)
	if err != nil {
		return err
	}
	if ev.Pod < 0 || ev.Pod >= len(j.pods) || j.pods[ev.Pod].state != podWaiting {
		return fmt.Errorf("job %s has no waiting pod %d", ev.Job, ev.Pod)
	}
	p := &j.pods[ev.Pod]
	t := &j.Tasks[p.task]
	a := cluster.Alloc{Node: id, Share: WholeGPU, CPUMilli: t.CPUMilli, MemMiB: t.MemMiB}
	for _, g := range ev.GPUs {
		if g < 0 || g >= e.state.Node(id).Spec.GPUs || a.GPUs>>g&1 == 1 {
			return fmt.Errorf("pod %d of job %s: node %s has no GPU %d, or it is named twice", ev.Pod, ev.Job, ev.Node, g)
		}
		a.GPUs |= 1 << g
	}
	want := int((t.GPU + WholeGPU - 1) / WholeGPU)
	if bits.OnesCount64(a.GPUs) != want {
		return fmt.Errorf("pod %d of job %s: %d GPUs are named, %d expected", ev.Pod, ev.Job, len(ev.GPUs), want)
	}
	if t.GPU < WholeGPU {
		a.Share = t.GPU
	}
	if why := e.state.Blocks(&a); why != "" {
		return fmt.Errorf("pod %d of job %s on node %s: %s", ev.Pod, ev.Job, ev.Node, why)
	}
	e.dequeue(j)
	e.state.Place(cluster.Owner{Job: j.slot, Pod: int32(ev.Pod)}, a)
	e.state.Commit()
	p.alloc = a
	e.setBackfilled(j, ev.Backfilled)
	e.bound(j, p, ev.Started)
	j.begun = !j.Gang || j.standing()
	e.enqueue(j, now)
	return nil
}

func (e *Engine) estimate(now Time, ev JobEstimated) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	j.Estimate = ev.Estimate
	if e.policy.Queueing.Order == ByEstimate && j.key.estimate != ev.Estimate {
		waits := j.class != nil || e.pausing(j)
		e.dequeue(j)
		j.key.estimate = ev.Estimate
		e.version++
		if waits {
			e.enqueue(j, now)
		}
	}
	return nil
}

func (e *Engine) addNode(n Node) error {
	id, err := e.state.AddNode(n)
	if err != nil {
		return err
	}
	if z := &e.policy.Zone; z.Key != "" {
		e.state.SetZone(id, n.Labels[z.Key] == z.Value && hasKey(n.Labels, z.Key))
	}
	e.nodesNew = true
	e.version++
	e.free(id)
	return nil
}

func hasKey(m map[string]string, k string) bool { _, ok := m[k]; return ok }

func (e *Engine) loseNode(now Time, name string) error {
	id, err := e.node(name)
	if err != nil {
		return err
	}
	e.dropPlans(id, now)
	pods := e.state.RemoveNode(id)
	var hit []*job
	for _, h := range pods {
		j := e.slots[h.Owner.Job]
		p := &j.pods[h.Owner.Pod]
		e.unbook(j, p, podWaiting)
		if len(hit) == 0 || hit[len(hit)-1] != j {
			hit = append(hit, j)
		}
	}
	for _, j := range hit {
		e.dequeue(j)
		if j.Gang {
			e.breakGang(j)
		}
		e.requeueIfGone(j, now)
	}
	e.version++
	return nil
}

func (e *Engine) cordon(now Time, ev NodeCordoned) error {
	id, err := e.node(ev.Node)
	if err != nil {
		return err
	}
	if ev.Cordoned {
		e.dropPlans(id, now)
	}
	e.state.SetCordoned(id, ev.Cordoned)
	e.version++
	e.free(id)
	return nil
}

func (e *Engine) setHealth(now Time, ev DeviceHealth) error {
	id, err := e.node(ev.Node)
	if err != nil {
		return err
	}
	if ev.GPU < 0 || ev.GPU >= e.state.Node(id).Spec.GPUs {
		return fmt.Errorf("node %s has no GPU %d", ev.Node, ev.GPU)
	}
	if !ev.Healthy {
		e.dropPlans(id, now)
	}
	e.state.SetHealth(id, ev.GPU, ev.Healthy)
	e.version++
	e.free(id)
	return nil
}

// placement describes a pod where it is.
func (e *Engine) placement(j *job, i int) Placement {
	p := &j.pods[i]
	a := &p.alloc
	return Placement{
		Pod: i, Node: e.state.Node(a.Node).Spec.Name, GPUs: a.GPUs, GPU: a.Share, NICs: e.state.NICs(a.Node, a.GPUs),
		CPUMilli: a.CPUMilli, MemMiB: a.MemMiB,
	}
}
