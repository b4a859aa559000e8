package kube

import (
	"cmp"
	"context"
	"math/bits"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/quota"
)

// Stats is how a cluster stands, as the scheduler sees it.
type Stats struct {
	// Models are the GPU models there are, by name; Queues the queues, by name.
	Models []ModelStats
	Queues []QueueStats
	// Nodes counts nodes, Open those that take new pods.
	Nodes, Open int
	// Jobs counts jobs of Muster's that are not over.
	Jobs int
	// Seen counts jobs of Muster's that have come since it began. One of which all
	// pods went and others came counts again.
	Seen int
	// Waiting, Bound and Running count pods: those without a place, those with
	// one, and those of them that have started there.
	Waiting, Bound, Running int
	// Reasons counts the jobs that wait, by why.
	Reasons map[string]int
}

// ModelStats is how the GPUs of a model stand.
type ModelStats struct {
	Model string
	Nodes int
	// GPUs counts devices, Unhealthy those that may not be used.
	GPUs, Unhealthy int
	// Used is how much of them pods hold. Of the rest, Free can be given, and
	// Unavailable cannot: it is unhealthy, or its node takes no pods.
	Used, Free, Unavailable core.Milli
	// Fragmented counts nodes of which some GPUs are free and some are not.
	Fragmented int
}

// QueueStats is how a queue stands.
type QueueStats struct {
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

// Subtree is how a queue stands with all below it.
type Subtree struct {
	// Usage has what is owned, used and borrowed of each model of which there is
	// quota or use, by name.
	Usage            []Usage
	Waiting, Running int
}

// Usage is what a queue has to do with a GPU model, or with all together: "*".
type Usage struct {
	Model string
	// Borrowed is what of Used is others' quota.
	Nominal, Used, Borrowed core.Milli
}

// Stats asks how the cluster stands. It waits for the scheduler's pass under
// way.
func (s *Scheduler) Stats(ctx context.Context) (Stats, error) {
	answer := make(chan Stats, 1)
	s.box.put(func(m *mirror) { answer <- m.stats() })
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		return Stats{}, ctx.Err()
	}
}

// census counts what there is. To look at every pod takes long in a large
// cluster, so nodes and groups that change are noted, and only these are counted
// anew when somebody asks.
type census struct {
	nodes  map[*node]struct{}
	groups map[*group]struct{}
	sum    Stats // but for Models and Queues
	models map[string]*ModelStats
	queues map[string]*QueueStats
}

func newCensus() census {
	return census{
		nodes: map[*node]struct{}{}, groups: map[*group]struct{}{}, sum: Stats{Reasons: map[string]int{}},
		models: map[string]*ModelStats{}, queues: map[string]*QueueStats{},
	}
}

// nodeCount is what a node adds to the census.
type nodeCount struct {
	nodes, open int
	ModelStats
}

// groupCount is what a group adds to the census.
type groupCount struct {
	queue, reason           string
	jobs                    int
	waiting, bound, running int // pods
	jobWaits, jobRuns       int
	used                    []modelAmount
}

type modelAmount struct {
	model string
	gpu   core.Milli
}

// noteNode, noteGroup and notePod have what changed counted anew.
func (m *mirror) noteNode(n *node)   { m.census.nodes[n] = struct{}{} }
func (m *mirror) noteGroup(g *group) { m.census.groups[g] = struct{}{} }

func (m *mirror) notePod(p *pod) {
	if p.group != nil {
		m.noteGroup(p.group)
	}
	if n := m.nodes[p.target]; n != nil {
		m.noteNode(n)
	}
}

// stats brings the census up to date and returns it. It costs a look at the pods
// of what changed since it was asked last.
func (m *mirror) stats() Stats {
	c := &m.census
	for n := range c.nodes {
		c.addNode(&n.counted, -1)
		n.counted = m.countNode(n)
		c.addNode(&n.counted, 1)
	}
	clear(c.nodes)
	for g := range c.groups {
		c.addGroup(&g.counted, -1)
		m.countGroup(g)
		c.addGroup(&g.counted, 1)
	}
	clear(c.groups)

	st := c.sum
	st.Seen = m.seen
	st.Reasons = map[string]int{}
	for reason, n := range c.sum.Reasons {
		if n > 0 {
			st.Reasons[reason] = n
		}
	}
	for _, name := range sortedKeys(c.models) {
		if of := c.models[name]; of.Nodes > 0 {
			st.Models = append(st.Models, *of)
		}
	}
	for _, name := range sortedKeys(m.queues.told) {
		q := QueueStats{Name: name, Used: map[string]core.Milli{}}
		if of := c.queues[name]; of != nil {
			q.Waiting, q.Running = of.Waiting, of.Running
			for model, gpu := range of.Used {
				if gpu != 0 {
					q.Used[model] = gpu
				}
			}
		}
		st.Queues = append(st.Queues, q)
	}
	m.queues.sumUp(st.Queues)
	return st
}

func (c *census) addNode(n *nodeCount, by int) {
	if n.nodes == 0 {
		return
	}
	c.sum.Nodes += by
	c.sum.Open += by * n.open
	if n.GPUs == 0 {
		return
	}
	of := c.models[n.Model]
	if of == nil {
		of = &ModelStats{Model: n.Model}
		c.models[n.Model] = of
	}
	of.Nodes += by
	of.GPUs += by * n.GPUs
	of.Unhealthy += by * n.Unhealthy
	of.Used += core.Milli(by) * n.Used
	of.Free += core.Milli(by) * n.Free
	of.Unavailable += core.Milli(by) * n.Unavailable
	of.Fragmented += by * n.Fragmented
}

// countNode counts a node.
func (t *tables) countNode(n *node) nodeCount {
	if n.gone || !n.known || t.nodes[n.object.Name] != n {
		return nodeCount{}
	}
	out := nodeCount{nodes: 1, ModelStats: ModelStats{Model: n.told.Model, GPUs: n.told.GPUs, Unhealthy: bits.OnesCount64(n.sick)}}
	if !n.closed {
		out.open = 1
	}
	var used [64]core.Milli
	for _, p := range n.pods {
		for d := p.devices; d != 0; d &= d - 1 {
			used[bits.TrailingZeros64(d)] += p.share()
		}
	}
	free, full := true, true
	for d := range n.told.GPUs {
		out.Used += used[d]
		if rest := max(0, core.WholeGPU-used[d]); n.closed || n.sick>>d&1 == 1 {
			out.Unavailable += rest
		} else {
			out.Free += rest
		}
		free = free && used[d] == 0
		full = full && used[d] >= core.WholeGPU
	}
	if !free && !full {
		out.Fragmented = 1
	}
	return out
}

func (c *census) addGroup(g *groupCount, by int) {
	c.sum.Waiting += by * g.waiting
	c.sum.Bound += by * g.bound
	c.sum.Running += by * g.running
	c.sum.Jobs += by * g.jobs
	if g.reason != "" {
		c.sum.Reasons[g.reason] += by
	}
	if g.queue == "" {
		return
	}
	q := c.queues[g.queue]
	if q == nil {
		q = &QueueStats{Used: map[string]core.Milli{}}
		c.queues[g.queue] = q
	}
	q.Waiting += by * g.jobWaits
	q.Running += by * g.jobRuns
	for _, u := range g.used {
		q.Used[u.model] += core.Milli(by) * u.gpu
	}
}

// countGroup counts a group, in g.counted.
func (m *mirror) countGroup(g *group) {
	out := groupCount{used: g.counted.used[:0]}
	defer func() { g.counted = out }()
	if m.groups[g.id] != g {
		return
	}
	var first *pod
	for _, p := range g.pods {
		first = p
		if p.state == podWaiting {
			out.waiting++
			continue
		}
		out.bound++
		if p.object.phase == v1.PodRunning {
			out.running++
		}
		if n := m.nodes[p.target]; n != nil && p.devices != 0 {
			out.use(n.told.Model, core.Milli(bits.OnesCount64(p.devices))*p.share())
		}
	}
	if first == nil {
		return
	}
	if out.waiting > 0 {
		out.jobWaits = 1
		if m.ours(g) {
			out.reason = cmp.Or(g.waiting.reason, "New")
		}
	}
	if g.id.Kind == others {
		out.queue = OthersQueue
		return
	}
	if out.bound > 0 {
		out.jobRuns = 1
	}
	out.jobs = 1
	if out.queue = g.queue; !g.submitted {
		out.queue = m.queueOf(g, m.attributesOf(g, first))
	}
}

// use adds to what a group uses of a model; most use one.
func (g *groupCount) use(model string, gpu core.Milli) {
	i := slices.IndexFunc(g.used, func(u modelAmount) bool { return u.model == model })
	if i < 0 {
		g.used = append(g.used, modelAmount{model, gpu})
		return
	}
	g.used[i].gpu += gpu
}

// account is what a queue and those below it have to do with a model.
type account struct {
	Usage
	listed bool // one of them has a quota for it
}

// sumUp fills in what is about queues with those below them, as the engine was
// told of them.
func (q *queues) sumUp(list []QueueStats) {
	index := make(map[string]int, len(list))
	accounts := make([]map[string]account, len(list))
	weights := map[string]int64{}
	for i := range list {
		name := list[i].Name
		index[name], accounts[i] = i, map[string]account{}
		if name != OthersQueue {
			weights[q.told[name].Parent] += q.told[name].Weight
		}
	}
	for i := range list {
		of := &list[i]
		for k, ok := i, true; ok; k, ok = index[q.told[list[k].Name].Parent] {
			sum := &list[k].Subtree
			sum.Waiting += of.Waiting
			sum.Running += of.Running
			for _, e := range q.told[of.Name].Quota {
				a := accounts[k][e.Model]
				a.Nominal, a.listed = a.Nominal+e.Nominal, true
				accounts[k][e.Model] = a
			}
			for model, gpu := range of.Used {
				a := accounts[k][model]
				a.Used += gpu
				accounts[k][model] = a
			}
		}
	}
	for i := range list {
		name := list[i].Name
		list[i].Subtree.Usage = q.usage(name, accounts[i])
		if w := weights[q.told[name].Parent]; name != OthersQueue {
			list[i].WeightPermille = int(1000 * q.told[name].Weight / w)
		}
	}
}

// usage lists the accounts of a queue. What a queue uses beyond its quota is
// borrowed, and all it uses where only a queue above it has any.
func (q *queues) usage(name string, accounts map[string]account) []Usage {
	any, hasAny := accounts[quota.AnyModel]
	for model, a := range accounts {
		if model != quota.AnyModel {
			any.Used += a.Used
		}
	}
	if hasAny {
		accounts[quota.AnyModel] = any
	}
	var out []Usage
	for _, model := range sortedKeys(accounts) {
		a := accounts[model]
		a.Model = model
		if a.listed || !hasAny && q.limited(name, model) {
			a.Borrowed = max(0, a.Used-a.Nominal)
		}
		out = append(out, a.Usage)
	}
	return out
}

// limited reports whether a queue, or one above it, has a quota for a model.
func (q *queues) limited(name, model string) bool {
	for name != "" {
		of := q.told[name]
		if slices.ContainsFunc(of.Quota, func(e core.Quota) bool { return e.Model == model || e.Model == quota.AnyModel }) {
			return true
		}
		name = of.Parent
	}
	return false
}
