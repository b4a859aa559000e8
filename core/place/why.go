package place

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core/cluster"
)

// Lack says what keeps a unit from being placed.
type Lack uint8

// What may be lacking, in the order in which it is looked for.
const (
	// NoLack: nothing that counting shows.
	NoLack Lack = iota
	// TooLarge: no node, even empty, holds a pod of the unit, or all of them
	// together do not hold the gang.
	TooLarge
	// GPUs: too few are free.
	GPUs
	// Together: enough are free, too few of them together on one node.
	Together
	// CPU, Memory, Pods: enough GPUs are free together, on nodes that lack these,
	// or take no more pods.
	CPU
	Memory
	Pods
	// Other: on nodes that lack another resource.
	Other
	// Constraint: selectors, taints or affinity exclude the nodes with room.
	Constraint
	// Topology: the gang fits, but in no single domain of the required level.
	Topology
)

// Shortfall is a lack with its numbers in words.
type Shortfall struct {
	Lack   Lack
	Detail string
}

// Why says what keeps the unit, which is not [Placer.TooLarge], from being placed, by
// counting every node for its first task that lacks something. O(tasks x nodes): for
// people who ask, not for the scheduling pass.
func (p *Placer) Why(u *Unit) Shortfall {
	for t := range u.Tasks {
		if s := p.whyTask(u, t); s.Lack != NoLack {
			return s
		}
	}
	if s := p.whyOthers(u); s.Lack != NoLack {
		return s
	}
	if u.Exhausted {
		lack := GPUs
		if slices.ContainsFunc(u.Tasks, func(t Task) bool { return len(t.Terms) > 0 }) {
			lack = Constraint
		}
		return Shortfall{lack, fmt.Sprintf("it fits by count; a search of %d steps found no way to place all of it, but did not try all ways", maxSteps)}
	}
	if u.Whole && u.spreads() {
		return Shortfall{Constraint, "it fits by count, but not with the required spread of its pods"}
	}
	if u.Whole && u.keepsToMates() {
		return Shortfall{Constraint, "it fits by count, but not with the required affinity between its roles"}
	}
	if u.Required >= 0 && len(u.Tasks) > 0 {
		return p.whyTopology(u)
	}
	free := *u
	free.Room = nil
	if u.Whole && !slices.ContainsFunc(u.spaces(), func(sp space) bool { return p.enough(&free, sp) }) {
		return Shortfall{GPUs, "it fits on several GPU models together but on no single model; it can mix models that it names"}
	}
	return Shortfall{}
}

// Barred reports whether the unit would fit, but for the quota of the models whose
// nodes have room for it: a selector may leave fewer models than the request names.
// O(tasks x nodes): for people who ask.
func (p *Placer) Barred(u *Unit) bool {
	if u.Room == nil {
		return false
	}
	for t := range u.Tasks {
		sh, need := u.Tasks[t].Shape, len(u.Tasks[t].Pods)
		if need == 0 || sh.GPU() == 0 {
			continue
		}
		fits := map[string]int{}
		for id := range cluster.NodeID(p.state.Nodes()) {
			n := p.state.Node(id)
			if n.Open() && sh.uses(p.state.Pool(id), u) && sh.selected(p.state, id) && p.near(u, &u.Tasks[t], id, u.startsBy()) {
				fits[n.Spec.Model] += sh.holds(n)
			}
		}
		room, allowed := 0, 0 // on one model or, where pods may be mixed, on all
		for model, fit := range fits {
			may := int(min(cluster.Milli(fit), max(u.Room(model), 0)/sh.GPU()))
			if sh.Mixed {
				room, allowed = room+fit, allowed+may
			} else {
				room, allowed = max(room, fit), max(allowed, may)
			}
		}
		if room >= need && allowed < need {
			return true
		}
	}
	return false
}

// counts is how many pods of a task the nodes of its pools hold, as one
// condition after another is added.
type counts struct {
	free           cluster.Milli // idle GPU in all
	gpu            int           // slots by GPU alone
	cpu, mem, pods int           // and by CPU; and by memory; and by pods
	others         []otherCount  // and by each resource that the request names
	fit            int           // and by all that is counted
	home           int           // and in the domain where other pods of the job are
	suits          int           // and by all
	largest        int           // most whole GPUs free on one node
}

// otherCount is how many pods the nodes hold by another resource too, and how much
// of it is free, of how much, on those with room for pods but for such resources.
type otherCount struct {
	fit       int
	free, all int64
}

func (p *Placer) whyTask(u *Unit, t int) Shortfall {
	sh, need := u.Tasks[t].Shape, len(u.Tasks[t].Pods)
	if need == 0 {
		return Shortfall{}
	}
	c := counts{others: make([]otherCount, len(sh.request.Others))}
	for id := range p.state.Nodes() {
		p.countNode(u, &u.Tasks[t], cluster.NodeID(id), &c)
	}
	wants := fmt.Sprintf("%d x %s", need, sh)
	switch {
	case c.gpu < need && c.free < cluster.Milli(need)*sh.GPU():
		return Shortfall{GPUs, fmt.Sprintf("needs %s: %s GPUs, %s are free%s",
			wants, (cluster.Milli(need) * sh.GPU()).GPUs(), c.free.GPUs(), sh.on())}
	case c.gpu < need:
		return Shortfall{Together, fmt.Sprintf("needs %s: %s GPUs are free%s, in pieces that hold %d of the pods; the largest is %d on one node",
			wants, c.free.GPUs(), sh.on(), c.gpu, c.largest)}
	case c.cpu < need:
		return Shortfall{CPU, fmt.Sprintf("needs %s: the free GPUs%s hold %s, the CPU of their nodes %d", wants, sh.on(), podsText(c.gpu), c.cpu)}
	case c.mem < need:
		return Shortfall{Memory, fmt.Sprintf("needs %s: the free GPUs%s hold %s, the memory of their nodes %d", wants, sh.on(), podsText(c.gpu), c.mem)}
	case c.pods < need:
		return Shortfall{Pods, fmt.Sprintf("needs %s: the nodes%s with room for them take %d more pods", wants, sh.on(), c.pods)}
	case c.fit < need:
		i := slices.IndexFunc(c.others, func(o otherCount) bool { return o.fit < need })
		return Shortfall{Other, fmt.Sprintf("needs %s: the nodes%s with room for them have %d of %d %s free, which hold %d",
			wants, sh.on(), c.others[i].free, c.others[i].all, sh.request.Others[i].Name, c.others[i].fit)}
	case c.home < need && u.Required >= 0 && !u.Whole && !u.Joins:
		return Shortfall{Topology, fmt.Sprintf("needs %s within one %s: the nodes that are in one hold %d", wants, p.levelName(u.Required), c.home)}
	case c.home < need && u.Joins:
		return Shortfall{Topology, fmt.Sprintf("needs %s within one %s, next to its running pods: %d of them fit there",
			wants, p.levelName(u.Required), c.home)}
	case c.suits < need:
		return Shortfall{Constraint, fmt.Sprintf("needs %s: %s fit, %d of them where selectors, taints and affinity allow",
			wants, podsText(c.fit), c.suits)}
	}
	return Shortfall{}
}

// podsText is how many pods fit, of which nodes without limits hold very many.
func podsText(n int) string {
	if n >= 1<<30 {
		return "any number"
	}
	return strconv.Itoa(n)
}

// startsBy returns when the terms of a pod of the unit are to hold: of a gang, when all
// of it is placed.
func (u *Unit) startsBy() moment {
	if u.Whole {
		return later
	}
	return now
}

func (p *Placer) countNode(u *Unit, t *Task, id cluster.NodeID, c *counts) {
	sh, n := t.Shape, p.state.Node(id)
	if !n.Open() || !sh.uses(p.state.Pool(id), u) {
		return
	}
	c.largest = max(c.largest, n.Free())
	free := func(pods int, cpu, mem int64) int {
		return sh.holdsBut(n, cluster.Need{Pods: pods, CPU: cpu, Mem: mem})
	}
	const plenty = 1 << 60
	c.free += n.FreeMilli()
	c.gpu += free(plenty, plenty, plenty)
	c.cpu += free(plenty, n.CPU, plenty)
	c.mem += free(plenty, n.CPU, n.Mem)
	fit := free(n.PodsLeft(), n.CPU, n.Mem)
	c.pods += fit
	room := fit
	for i := range c.others {
		o, a := &c.others[i], &sh.request.Others[i]
		free := max(0, p.state.FreeAmount(id, a.Name))
		if a.Value > 0 {
			fit = min(fit, int(free/a.Value))
		}
		o.fit += fit
		if room > 0 {
			o.free = cluster.Plus(o.free, free)
			o.all = cluster.Plus(o.all, cluster.AmountOf(n.Spec.Others, a.Name))
		}
	}
	c.fit += fit
	if p.atHome(u, id) && sh.selected(p.state, id) {
		c.home += fit
	}
	if sh.selected(p.state, id) && p.near(u, t, id, u.startsBy()) {
		c.suits += fit
	}
}

// whyOthers says of which other resource a gang lacks some when each task by itself
// does not.
func (p *Placer) whyOthers(u *Unit) Shortfall {
	if !u.Whole || len(u.Tasks) < 2 {
		return Shortfall{}
	}
	for t := range u.Tasks {
		for _, a := range u.Tasks[t].request.Others {
			need, free, all := int64(0), int64(0), int64(0)
			for k := range u.Tasks {
				need = cluster.Plus(need, cluster.Times(len(u.Tasks[k].Pods), cluster.AmountOf(u.Tasks[k].request.Others, a.Name)))
			}
			for id := range cluster.NodeID(p.state.Nodes()) {
				n := p.state.Node(id)
				if n.Open() && slices.ContainsFunc(u.Tasks, func(task Task) bool { return task.uses(p.state.Pool(id), u) }) {
					free = cluster.Plus(free, max(0, p.state.FreeAmount(id, a.Name)))
					all = cluster.Plus(all, cluster.AmountOf(n.Spec.Others, a.Name))
				}
			}
			if need > free {
				return Shortfall{Other, fmt.Sprintf("its tasks together need %d %s: %d of %d are free", need, a.Name, free, all)}
			}
		}
	}
	return Shortfall{}
}

// uses reports whether pods of the shape may run in the pool.
func (sh *Shape) uses(pool *cluster.Pool, u *Unit) bool {
	for _, m := range sh.models {
		for _, o := range m.general {
			if o == pool {
				return true
			}
		}
		for _, o := range m.zone {
			if o == pool {
				return u.Inference || !u.Exclusive
			}
		}
	}
	return false
}

func (p *Placer) whyTopology(u *Unit) Shortfall {
	best := 0
	for _, sp := range u.spaces() {
		p.countExact(u, sp, u.Required)
		for _, d := range p.tally.seen {
			best = max(best, p.tally.first[d])
		}
	}
	if len(u.Tasks) > 1 {
		return Shortfall{Topology, fmt.Sprintf("must be within one %s; none has room for all of its tasks", p.levelName(u.Required))}
	}
	return Shortfall{Topology, fmt.Sprintf("must be within one %s; the best one holds %d of %d pods", p.levelName(u.Required), best, len(u.Tasks[0].Pods))}
}

// levelName returns the name of a level.
func (p *Placer) levelName(level int) string {
	switch {
	case level == len(p.state.Levels()):
		return cluster.HBDLevel
	case level < len(p.state.Levels()):
		return p.state.Levels()[level]
	}
	return cluster.NodeLevel
}

// TooLarge says whether the unit could not be placed even if every node that
// was ever known were empty and healthy. O(nodes) for each shape, once; for a gang of
// several tasks, or in one domain or on one model, O(tasks x nodes) each time.
func (p *Placer) TooLarge(u *Unit) Shortfall {
	var lack Shortfall
	for t := range u.Tasks {
		sh, need := u.Tasks[t].Shape, len(u.Tasks[t].Pods)
		most := p.mostOf(sh, u)
		switch {
		case need > 0 && most > 0 && !u.Whole && p.anyAtHome(u, sh):
			return Shortfall{} // some of its pods may start
		case need > 0 && most > 0 && !u.Whole:
			lack = Shortfall{TooLarge, fmt.Sprintf("must be within one %s; no node that is in one holds %s", p.levelName(u.Required), sh)}
		case need > 0 && most == 0:
			lack = Shortfall{TooLarge, p.whyNoNode(sh)}
		case u.Whole && most < need:
			lack = Shortfall{TooLarge, fmt.Sprintf("needs %d x %s; all nodes%s together hold %d", need, sh, sh.on(), most)}
		}
		if u.Whole && lack.Lack != NoLack {
			return lack
		}
	}
	if lack.Lack == NoLack && u.Whole && (u.Required >= 0 || len(u.Tasks) > 1 || u.Tasks[0].unnamed()) {
		return p.tooLargeTogether(u)
	}
	return lack
}

// anyAtHome reports whether a node that holds a pod of the shape when it is empty is in a
// domain of the required level. The domain in which other pods run may be another later.
func (p *Placer) anyAtHome(u *Unit, sh *Shape) bool {
	if u.Required < 0 {
		return true
	}
	for id := range cluster.NodeID(p.state.Nodes()) {
		if p.domainOf(id, u.Required) >= 0 && sh.uses(p.state.Pool(id), u) && sh.selected(p.state, id) && sh.empty(p.state.Node(id).Spec) > 0 {
			return true
		}
	}
	return false
}

// unnamed reports whether the pods of the task must be on one of several models, as they
// name none and are of a gang.
func (t *Task) unnamed() bool {
	return len(t.Pods) > 0 && !t.Named && t.GPU() > 0 && len(t.models) > 1
}

// tooLargeTogether is TooLarge for a gang of which the pods must be in one place, a domain
// or one model where they name none, or of which the tasks share the nodes: each task may
// find room somewhere, and all of them nowhere. It counts, for each such place, the pods of
// each task by itself, and the GPUs of all: what no place has by count is impossible.
func (p *Placer) tooLargeTogether(u *Unit) Shortfall {
	nearest := tooLarge{}
	gpu := cluster.Milli(0)
	for t := range u.Tasks {
		gpu += cluster.Milli(len(u.Tasks[t].Pods)) * u.Tasks[t].GPU()
	}
	for _, sp := range u.spaces() {
		type place struct {
			pods []int
			gpus int // of the nodes that take pods with GPUs
		}
		places := map[int32]*place{}
		for id := range cluster.NodeID(p.state.Nodes()) {
			d := p.domainOf(id, u.Required)
			if d < 0 {
				continue
			}
			at, node, useful := places[d], p.state.Node(id), false
			if at == nil {
				at = &place{pods: make([]int, len(u.Tasks))}
				places[d] = at
			}
			for t := range u.Tasks {
				if sh := u.Tasks[t].Shape; slices.Contains(sp[t], p.state.Pool(id)) && sh.selected(p.state, id) {
					n := sh.empty(node.Spec)
					at.pods[t] = min(at.pods[t]+n, 1<<30)
					useful = useful || n > 0 && sh.GPU() > 0
				}
			}
			if useful {
				at.gpus += node.Spec.GPUs
			}
		}
		for _, d := range slices.Sorted(maps.Keys(places)) {
			at := places[d]
			short := tooLarge{space: sp, gpu: gpu - cluster.Milli(at.gpus)*cluster.WholeGPU}
			for t := range u.Tasks {
				if need := len(u.Tasks[t].Pods); need-at.pods[t] > short.pods {
					short.pods, short.task, short.holds = need-at.pods[t], t, at.pods[t]
				}
			}
			if short.pods == 0 && short.gpu <= 0 {
				return Shortfall{}
			}
			if short.holds = at.gpus; short.pods > 0 {
				short.holds = at.pods[short.task]
			}
			if nearest.space == nil || short.before(&nearest) {
				nearest = short
			}
		}
	}
	if nearest.space == nil {
		return Shortfall{}
	}
	return Shortfall{TooLarge, p.whyTooLarge(u, &nearest, gpu)}
}

// tooLarge says by how many pods of a task, or by how much GPU of all tasks, a place is too
// small for a gang when it is empty, and how many pods or GPUs it holds.
type tooLarge struct {
	space             space
	pods, task, holds int
	gpu               cluster.Milli
}

// before reports whether less is missing.
func (a *tooLarge) before(b *tooLarge) bool {
	return a.pods < b.pods || a.pods == b.pods && a.gpu < b.gpu
}

func (p *Placer) whyTooLarge(u *Unit, short *tooLarge, gpu cluster.Milli) string {
	within := ""
	if u.Required >= 0 {
		within = " within one " + p.levelName(u.Required)
	}
	if short.pods == 0 {
		if within == "" {
			return fmt.Sprintf("its tasks need %s GPUs together; all nodes that they may use have %d", gpu.GPUs(), short.holds)
		}
		return fmt.Sprintf("its tasks need %s GPUs%s; the one that comes nearest has %d", gpu.GPUs(), within, short.holds)
	}
	task := &u.Tasks[short.task]
	if within != "" {
		return fmt.Sprintf("needs %d x %s%s; the one that comes nearest holds %d when it is empty", len(task.Pods), task.Shape, within, short.holds)
	}
	model := short.space[short.task][0].Model
	nodes := "of " + model
	if model == "" {
		nodes = "without GPUs"
	}
	text := fmt.Sprintf("needs %d x %s on nodes of one model; all those %s, which come nearest, hold %d", len(task.Pods), task.Shape, nodes, short.holds)
	if task.GPU() > 0 {
		text += "; it may mix models that it names"
	}
	return text
}

// mostOf returns how many pods of the shape all nodes hold when they are empty.
func (p *Placer) mostOf(sh *Shape, u *Unit) int {
	most := &sh.most[0]
	if u.Inference || !u.Exclusive {
		most = &sh.most[1]
	}
	if *most < 0 {
		*most = 0
		for id := range cluster.NodeID(p.state.Nodes()) {
			if sh.uses(p.state.Pool(id), u) && sh.selected(p.state, id) {
				*most += sh.empty(p.state.Node(id).Spec)
			}
		}
	}
	return *most
}

// whyNoNode says why no node holds a pod of the shape.
func (p *Placer) whyNoNode(sh *Shape) string {
	large := 0
	for id := range cluster.NodeID(p.state.Nodes()) {
		if n := p.state.Node(id); accepts(sh.request.Models, n.Spec.Model) && sh.empty(n.Spec) > 0 {
			large++
		}
	}
	if large > 0 {
		return fmt.Sprintf("%d nodes%s are large enough for a pod of %s, none where selectors and taints allow", large, sh.on(), sh)
	}
	return fmt.Sprintf("no node%s is large enough for a pod of %s", sh.on(), sh)
}

// empty returns how many pods of the shape a node holds when it is empty.
func (sh *Shape) empty(n *cluster.NodeSpec) int {
	left := cluster.Need{Pods: n.MaxPods, CPU: n.CPUMilli, Mem: n.MemMiB}
	if n.MaxPods == 0 {
		left.Pods = 1 << 30
	}
	k := capacity(sh, n.GPUs, left)
	if sh.Part > 0 {
		k = min(k, n.GPUs*int(cluster.WholeGPU/sh.Part))
	}
	for _, a := range sh.request.Others {
		if a.Value > 0 {
			k = min(k, int(cluster.AmountOf(n.Others, a.Name)/a.Value))
		}
	}
	return k
}

// String describes one pod: "8 GPUs", "0.25 GPU, 4 cores, 1024 MiB".
func (sh *Shape) String() string {
	var parts []string
	switch {
	case sh.GPUs == 1 || sh.Part > 0:
		parts = append(parts, sh.GPU().GPUs()+" GPU")
	case sh.GPUs > 1:
		parts = append(parts, sh.GPU().GPUs()+" GPUs")
	}
	if sh.CPU > 0 {
		parts = append(parts, fmt.Sprintf("%g cores", float64(sh.CPU)/1000))
	}
	if sh.Mem > 0 {
		parts = append(parts, fmt.Sprintf("%d MiB", sh.Mem))
	}
	for _, a := range sh.request.Others {
		if a.Value > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", a.Value, a.Name))
		}
	}
	if len(parts) == 0 {
		return "an empty pod"
	}
	return strings.Join(parts, ", ")
}

// on names the models asked for: " of H800 or A100"; empty for any.
func (sh *Shape) on() string {
	if len(sh.request.Models) == 0 {
		return ""
	}
	return " of " + strings.Join(sh.request.Models, " or ")
}
