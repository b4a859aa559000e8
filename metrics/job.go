package metrics

import (
	"math"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/sim"
)

// Job is what a Collector knows about a live job.
type Job struct {
	// Number counts the jobs in the order of their submission, from 0.
	Number int64
	// Started is when the job was first whole: a gang when the last pod that
	// must start with it was bound, another job when all its pods had been
	// bound. Negative as long as it never was.
	Started core.Time
	// Waited is how long the job was not whole.
	Waited core.Time
	// Nodes and Groups count the nodes and leaf groups it used when it was
	// first whole; FewestNodes and FewestGroups the fewest possible.
	Nodes, Groups             int
	FewestNodes, FewestGroups int
	// Bound counts the pods bound now.
	Bound int
	// Evictions counts the instants at which pods of the job were evicted by preemption or
	// reclaim, however many pods and for however many jobs.
	Evictions int

	job          *sim.Live
	queue        int32  // in Collector.queues
	older, newer *Job   // the neighbours in Collector.unserved
	said         []said // why it waits
	waitingSince core.Time
	lastEvicted  core.Time
	lost         float64
	tasks        []progress
	missing      int   // pods it lacks to be whole
	on           []int // the node of each pod, -1 unbound; nil once started
	done         podSet
	whole        bool // the gang's start counts for SOR
	held         core.Milli
	entropy      float64    // of the leaf groups it used when it was first whole
	account      *account   // in Collector.fair, nil without GPUs
	user         *account   // of its user there
	holds        core.Milli // and received until heldSince; deserved is what its size did before it
	heldSince    core.Time
	received     float64
	deserved     float64
	gpus, cross  core.Milli // what it held then, and what of it outside the group with the most
}

// progress is the progress of a task: the number of pods that it must have, that are
// bound now, and that are done.
type progress struct{ need, bound, done int }

func (p *progress) missing() int { return max(0, p.need-p.bound-p.done) }

func newJob(number int64, l *sim.Live) *Job {
	j := &Job{
		Number: number, Started: -1, job: l,
		waitingSince: l.Submitted, lastEvicted: -1,
		tasks: make([]progress, len(l.Tasks)),
		on:    make([]int, l.Pods),
	}
	for i := range l.Tasks {
		need := l.Tasks[i].Pods
		if l.Gang && l.Tasks[i].MinPods > 0 {
			need = l.Tasks[i].MinPods
		}
		j.tasks[i].need = need
	}
	j.count()
	for i := range j.on {
		j.on[i] = -1
	}
	return j
}

// count counts the pods that the job lacks: of all tasks or, of a job with alternatives, of the task that lacks fewest.
func (j *Job) count() {
	j.missing = 0
	for i := range j.tasks {
		if n := j.tasks[i].missing(); !j.job.Alternatives {
			j.missing += n
		} else if i == 0 || n < j.missing {
			j.missing = n
		}
	}
}

// podSet is a set of pod numbers, one bit each; nil is empty.
type podSet []uint64

// set adds a pod, one of this many.
func (s *podSet) set(pod, pods int) {
	if *s == nil {
		*s = make(podSet, (pods+63)/64)
	}
	(*s)[pod/64] |= 1 << (pod % 64)
}

// clear takes a pod out and reports whether it was in.
func (s podSet) clear(pod int) bool {
	if s == nil {
		return false
	}
	bit := uint64(1) << (pod % 64)
	was := s[pod/64]&bit != 0
	s[pod/64] &^= bit
	return was
}

// task returns the index of the task that the pod belongs to.
func (j *Job) task(pod int) int {
	for i := range j.job.Tasks {
		pod -= j.job.Tasks[i].Pods
		if pod < 0 {
			return i
		}
	}
	return len(j.job.Tasks) - 1
}

// bind records that a pod was bound to a node, given by its index.
func (j *Job) bind(pod int, node int32) {
	p := &j.tasks[j.task(pod)]
	j.missing -= p.missing()
	p.bound++
	if j.done.clear(pod) {
		p.done--
	}
	j.missing += p.missing()
	if j.job.Alternatives {
		j.count()
	}
	j.Bound++
	if j.on != nil {
		j.on[pod] = int(node)
	}
}

// moved records that a pod is on another node, given by its index.
func (j *Job) moved(pod int, node int32) {
	if j.on != nil {
		j.on[pod] = int(node)
	}
}

// release records that a pod left its node. A pod that ended by itself is done and needs
// no replacement, unless it is bound again. A failed member of a gang ends the gang and
// is not done.
func (j *Job) release(pod int, why sim.Release) {
	done := why == sim.Finished || !j.job.Gang && (why == sim.Failed || why == sim.Cancelled)
	p := &j.tasks[j.task(pod)]
	j.missing -= p.missing()
	p.bound--
	if done {
		p.done++
		j.done.set(pod, j.job.Pods)
	}
	j.missing += p.missing()
	if j.job.Alternatives {
		j.count()
	}
	j.Bound--
	if j.on != nil && !done {
		j.on[pod] = -1
	}
}

// wait accounts for the time up to t, at which the job has become whole or not.
func (j *Job) wait(t core.Time) {
	switch waiting := j.missing > 0; {
	case waiting && j.waitingSince < 0:
		j.waitingSince = t
	case !waiting && j.waitingSince >= 0:
		j.Waited += t - j.waitingSince
		j.waitingSince = -1
	}
}

// waited returns how long the job was not whole up to t.
func (j *Job) waited(t core.Time) core.Time {
	if j.waitingSince < 0 {
		return j.Waited
	}
	return j.Waited + t - j.waitingSince
}

// measure fills in the nodes and groups that the job uses now and the fewest possible: in
// each pool that it uses, the sum of its pods' shares of the pool's largest node, rounded
// up, and the fewest leaf groups with this number of nodes. With several tasks that is a
// lower bound.
func (j *Job) measure(v *inventory) {
	if len(j.on) == 1 {
		j.Nodes, j.Groups, j.FewestNodes, j.FewestGroups = 1, 1, 1, 1
		j.on = nil
		return
	}
	nodes, leaves := map[int]bool{}, map[int32]core.Milli{}
	type part struct {
		pool *pool
		task int
	}
	pods := map[part]int64{}
	for pod, i := range j.on {
		if i < 0 {
			continue
		}
		n := &v.nodes[i]
		nodes[i] = true
		task := j.task(pod)
		leaves[n.leaf] += j.job.Tasks[task].GPU
		pods[part{n.pool, task}]++
	}
	shares := map[*pool]float64{}
	for k, n := range pods {
		shares[k.pool] += float64(n) / float64(k.pool.perNode(&j.job.Tasks[k.task].Request))
	}
	for p, x := range shares {
		// Thirds that add up to one node must not round up to two.
		n := int(math.Ceil(x - 1e-9))
		j.FewestNodes += n
		j.FewestGroups += (n + p.leafSize - 1) / p.leafSize
	}
	j.Nodes, j.Groups = len(nodes), len(leaves)
	// Pools may share a leaf group.
	j.FewestNodes = min(j.FewestNodes, j.Nodes)
	j.FewestGroups = min(j.FewestGroups, j.Groups)
	j.on = nil
	var held []int64
	most := core.Milli(0)
	for _, m := range leaves {
		held = append(held, int64(m))
		most = max(most, m)
		j.gpus += m
	}
	j.entropy, j.cross = place.Entropy(held), j.gpus-most
}

// rigid reports whether the job starts with all its pods.
func (j *Job) rigid() bool {
	return j.job.Gang && !slices.ContainsFunc(j.job.Tasks, func(t core.Task) bool { return t.MinPods > 0 && t.MinPods < t.Pods })
}
