// Package stats has the figures of a cluster: how many GPUs are used, how many jobs wait,
// and why. The scheduler adds and removes what each node and group counts as; a [Census]
// keeps the sums. [Gauges] are the same for Prometheus.
package stats

import (
	"maps"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/core/quota"
	"github.com/muster-sched/muster/internal/fit"
)

// Stats are figures of a cluster at one moment.
type Stats struct {
	// Models are the GPU models, by name; Queues the queues, by name.
	Models []Model
	Queues []Queue
	// Nodes counts nodes, Open those that take new pods.
	Nodes, Open int
	// Jobs counts Muster's jobs that have not ended.
	Jobs int
	// Seen counts Muster's jobs that were created since it began. A job counts again if
	// all its pods were deleted and others were created.
	Seen int
	// Waiting, Bound and Running count pods: those without a place, those with
	// one, and those of them that have started there.
	Waiting, Bound, Running int
	// Reasons counts the waiting jobs by reason.
	Reasons map[string]int
	// Expected is what HP jobs are expected to have of each GPU model; nil if that is not forecast.
	Expected []core.Expected
}

// Model has the figures of a GPU model.
type Model struct {
	Model string
	Nodes int
	// GPUs counts devices, Unhealthy those that may not be used.
	GPUs, Unhealthy int
	// Used is how much of them pods hold. Of the rest, Free can be given, and
	// Unavailable cannot: it is unhealthy, or its node takes no pods.
	Used, Free, Unavailable core.Milli
	// Fragmented counts nodes of which some GPUs are free and some are not.
	Fragmented int
	// Idle is what keeps pods of each of the [Shapes] from using idle GPUs, and then gangs of each of
	// the [Jobs], in their order; nil without idle GPUs. Of a node it is what keeps their pods from it.
	Idle []frag.Split
	// rooms has how many pods of a job there is room for, by job and domain.
	rooms map[room]int
}

type room struct {
	job    int
	domain string
}

// Shapes and Jobs are the requests for which idle GPUs are split by cause: those of ASI, Fig. 13 and
// 14. A job must be within one domain of the narrowest level of the topology.
var (
	Shapes = frag.PaperShapes()
	Jobs   = frag.PaperJobs()
)

// add adds the idle GPUs of a node, by times.
func (m *Model) add(n *Node, by int) {
	if len(n.Idle) > 0 && m.Idle == nil {
		m.Idle, m.rooms = make([]frag.Split, len(Shapes)+len(Jobs)), map[room]int{}
	}
	for k := range n.Idle {
		m.Idle[k].Add(&n.Idle[k], by)
		if job := k - len(Shapes); job >= 0 {
			m.left(job, &m.Idle[k], n, by*int(n.Idle[k][frag.Allocatable]/Jobs[job].Shape.GPU))
		}
	}
}

// left adds room for pods of a job, and takes what no gang can use from what is allocatable.
func (m *Model) left(job int, of *frag.Split, n *Node, pods int) {
	at, cause := room{job, n.Domain}, frag.Topology
	if !n.Levels {
		cause = frag.Gang
	}
	left := pods
	if n.Domain != "" || !n.Levels {
		before := m.rooms[at]
		m.rooms[at] += pods
		left = (before+pods)%Jobs[job].Pods - before%Jobs[job].Pods
		if m.rooms[at] == 0 {
			delete(m.rooms, at)
		}
	}
	gpu := core.Milli(left) * Jobs[job].Shape.GPU
	of[frag.Allocatable] -= gpu
	of[cause] += gpu
}

// Queue has the figures of a queue.
type Queue struct {
	Name string
	// Used is what its jobs hold of each GPU model, without those of the queues
	// below it.
	Used map[string]core.Milli
	// Waiting counts its jobs of which pods wait, Running those of which pods
	// run.
	Waiting, Running int
	// Subtree is about the queue and all below it.
	Subtree Subtree
	// WeightPermille is its weight against that of it and its siblings, in
	// thousandths.
	WeightPermille int
}

// Subtree has the figures of a queue and all below it.
type Subtree struct {
	// Usage has what is owned, used and borrowed of each model of which there is
	// quota or use, by name; Shares what is owed, nil if the policy has no fair shares.
	Usage  []Usage
	Shares []core.Share
	// Resources has the same of CPU, memory and other resources, by account, as the engine counts it.
	Resources        []Usage
	Waiting, Running int
}

// Usage is what a queue and all below it own, use and borrow of a GPU model, or of all
// together: "*".
type Usage = quota.Usage

// Node is what a node counts as.
type Node struct {
	There, Open int // 1 if there is a node, and if it takes new pods
	Model
	// Domain is that of the narrowest level of the topology, with those above it; empty if it is
	// not known. Levels is false if there are none.
	Domain string
	Levels bool
}

// Group is what a group of pods counts as: a job of Muster's, or pods of others.
type Group struct {
	Queue, Reason           string // no reason: it is not counted among those that wait
	Jobs                    int
	Waiting, Bound, Running int // pods
	JobWaits, JobRuns       int // 1 if any pod waits, and if any runs
	Used                    []Amount
}

// Amount is how much is used of a GPU model.
type Amount struct {
	Model string
	GPU   core.Milli
}

// Use adds to what a group uses of a model. Most use one.
func (g *Group) Use(model string, gpu core.Milli) {
	i := slices.IndexFunc(g.Used, func(u Amount) bool { return u.Model == model })
	if i < 0 {
		g.Used = append(g.Used, Amount{model, gpu})
		return
	}
	g.Used[i].GPU += gpu
}

// Census sums up what nodes and groups count as.
type Census struct {
	others string
	sum    Stats // but for Models and Queues
	models map[string]*Model
	queues map[string]*Queue // those that count something
	most   int               // see fit.Map
}

// New returns an empty census. others is the queue to which pods of other schedulers are
// charged; it has no weight relative to other queues.
func New(others string) *Census {
	return &Census{others: others, sum: Stats{Reasons: map[string]int{}}, models: map[string]*Model{}, queues: map[string]*Queue{}}
}

// Stats returns the sums. queues are those that the engine knows; each is listed, with what
// those below it count as.
func (c *Census) Stats(queues map[string]core.Queue) Stats {
	st := c.sum
	st.Reasons = map[string]int{}
	for reason, n := range c.sum.Reasons {
		if n > 0 {
			st.Reasons[reason] = n
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.models)) {
		if of := c.models[name]; of.Nodes > 0 {
			m := *of
			m.rooms = nil
			if m.Idle = nil; of.Free+of.Unavailable > 0 {
				m.Idle = slices.Clone(of.Idle) // others read it meanwhile
			}
			st.Models = append(st.Models, m)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		q := Queue{Name: name, Used: map[string]core.Milli{}}
		if of := c.queues[name]; of != nil {
			q.Waiting, q.Running, q.Used = of.Waiting, of.Running, maps.Clone(of.Used) // others read it meanwhile
		}
		st.Queues = append(st.Queues, q)
	}
	sumUp(st.Queues, queues, c.others)
	return st
}

// AddNode adds what a node counts as, by times: 1 to count it, -1 to take that back.
func (c *Census) AddNode(n *Node, by int) {
	if n.There == 0 {
		return
	}
	c.sum.Nodes += by
	c.sum.Open += by * n.Open
	if n.GPUs == 0 {
		return
	}
	of := c.models[n.Model.Model]
	if of == nil {
		of = &Model{Model: n.Model.Model}
		c.models[n.Model.Model] = of
	}
	of.Nodes += by
	of.GPUs += by * n.GPUs
	of.Unhealthy += by * n.Unhealthy
	of.Used += core.Milli(by) * n.Used
	of.Free += core.Milli(by) * n.Free
	of.Unavailable += core.Milli(by) * n.Unavailable
	of.Fragmented += by * n.Fragmented
	of.add(n, by)
}

// AddGroup adds what a group counts as, by times.
func (c *Census) AddGroup(g *Group, by int) {
	c.sum.Waiting += by * g.Waiting
	c.sum.Bound += by * g.Bound
	c.sum.Running += by * g.Running
	c.sum.Jobs += by * g.Jobs
	if g.Reason != "" {
		c.sum.Reasons[g.Reason] += by
	}
	if g.Queue == "" {
		return
	}
	q := c.queues[g.Queue]
	if q == nil {
		q = &Queue{Used: map[string]core.Milli{}}
		c.queues[g.Queue] = q
	}
	q.Waiting += by * g.JobWaits
	q.Running += by * g.JobRuns
	for _, u := range g.Used {
		if q.Used[u.Model] += core.Milli(by) * u.GPU; q.Used[u.Model] == 0 {
			delete(q.Used, u.Model)
		}
	}
	if q.Waiting == 0 && q.Running == 0 && len(q.Used) == 0 { // pods may name queues that do not exist
		delete(c.queues, g.Queue)
		c.queues = fit.Map(c.queues, &c.most)
	}
}

// sumUp fills in the figures of queues with all below them: each queue is added to itself
// and to every queue above it.
func sumUp(list []Queue, of map[string]core.Queue, others string) {
	index := make(map[string]int, len(list))
	weights := map[string]int64{}
	for i := range list {
		name := list[i].Name
		index[name] = i
		if name != others {
			weights[of[name].Parent] += of[name].Weight
		}
	}
	for i := range list {
		for k, ok := i, true; ok; k, ok = index[of[list[k].Name].Parent] {
			sum := &list[k].Subtree
			sum.Waiting += list[i].Waiting
			sum.Running += list[i].Running
		}
	}
	usage := ledger(list, of).Usage()
	for i := range list {
		name := list[i].Name
		list[i].Subtree.Usage = usage[name]
		if w := weights[of[name].Parent]; name != others && w > 0 {
			list[i].WeightPermille = int(1000 * of[name].Weight / w)
		}
	}
}

// ledger returns a ledger of the queues, as the engine keeps one, in which each uses what
// its pods hold. The engine's own counts other things: places that are kept for pods, and
// not what evicted pods hold until they have left.
func ledger(list []Queue, of map[string]core.Queue) *quota.Ledger {
	l := quota.NewLedger()
	var set func(name string) *quota.Queue
	set = func(name string) *quota.Queue {
		if q, ok := l.Lookup(name); ok {
			return q
		}
		spec := of[name]
		if _, ok := of[spec.Parent]; ok {
			set(spec.Parent) // a parent comes before its children
		} else {
			spec.Parent = ""
		}
		if err := l.Set(spec); err != nil {
			panic(err) // the engine has taken the same queues
		}
		q, _ := l.Lookup(name)
		return q
	}
	for i := range list {
		q := set(list[i].Name)
		for model, gpu := range list[i].Used {
			q.Add(model, gpu)
		}
	}
	return l
}
