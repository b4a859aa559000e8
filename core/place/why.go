package place

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"

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
	// Sharing: on blind nodes with pods whose devices another picks.
	Sharing
	// Devices: too few of those that are free are of the device sets that the pods name.
	Devices
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
	if u.pickers() > 1 {
		return Shortfall{Sharing, "each task has room by itself, but not beside the others on the same nodes: some pods need GPUs that nodes pick, and others need parts, or GPUs that nodes do not count"}
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
	if g := p.groups(u, false); g != nil {
		if detail := p.whyGroups(u, g); detail != "" {
			return Shortfall{Topology, detail}
		}
	}
	if u.Whole && u.hasMates() {
		return Shortfall{Constraint, "it fits by count, but not with the required affinity between its roles"}
	}
	if u.Required >= 0 && len(u.Tasks) > 0 {
		return p.whyTopology(u)
	}
	free := *u
	free.Room = nil
	if len(u.Combinations) > 0 && !slices.ContainsFunc(p.spaces(u), func(sp space) bool { return p.enough(&free, sp) }) {
		return Shortfall{GPUs, "each task has room by itself, but no combination of GPU models that it lists has room for all: " + u.listCombinations()}
	}
	if u.Whole && !slices.ContainsFunc(p.spaces(u), func(sp space) bool { return p.enough(&free, sp) }) {
		return Shortfall{GPUs, "it fits on several GPU models together but on no single model; it can mix models that it names"}
	}
	if u.Whole && u.namesSets() {
		return Shortfall{Devices, "each task has room by itself, but the devices that they accept do not hold all of them"}
	}
	return Shortfall{}
}

// Barred reports whether only quota keeps some task from fitting: the quota of the models
// whose nodes have room for it. A job may have quota for one model that it names, while its
// selector leaves it the nodes of another. O(tasks x nodes): for people who ask.
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
			if n.Open() && p.eligible(u, sh, id) && p.satisfies(u, &u.Tasks[t], id, u.startsBy()) {
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

// counts is how many pods of a task the nodes of its pools hold, as one condition after
// another is added. The first count that is below the number of pods is the reason.
type counts struct {
	free           cluster.Milli // idle GPU in all
	gpu            int           // slots by GPU alone
	cpu, mem, pods int           // and by CPU; and by memory; and by pods
	others         []otherCount  // and by each resource that the request names
	picked         int           // and by who picks devices
	keepers        int           // nodes with room that keep the pods off, by who picks devices
	barred         int           // slots on those of them that suit the pods
	sets           int           // slots by the device sets too
	accepted       [2]int        // devices of these sets, free and in all
	acceptedOn     int           // on so many nodes
	fit            int           // and by all that is counted
	home           int           // and in the domain where other pods of the job are
	suits          int           // and by all
	largest        int           // most whole GPUs free on one node
	kept           int64         // milli-cores free that are kept for idle GPUs
}

// otherCount is how many pods the nodes hold by one other resource too; and how much of it is
// free, and there in all, on nodes that have room for a pod by all else.
type otherCount struct {
	fit       int
	free, all int64
}

// whyTask says what a task lacks by itself.
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
	case c.cpu < need && c.kept > 0:
		return Shortfall{CPU, fmt.Sprintf("needs %s: the CPU of the nodes%s holds %d, as %g free cores are kept for idle GPUs", wants, sh.on(), c.cpu, float64(c.kept)/1000)}
	case c.cpu < need:
		return Shortfall{CPU, fmt.Sprintf("needs %s: the free GPUs%s hold %s, the CPU of their nodes %d", wants, sh.on(), podsText(c.gpu), c.cpu)}
	case c.mem < need:
		return Shortfall{Memory, fmt.Sprintf("needs %s: the free GPUs%s hold %s, the memory of their nodes %d", wants, sh.on(), podsText(c.gpu), c.mem)}
	case c.pods < need:
		return Shortfall{Pods, fmt.Sprintf("needs %s: the nodes%s with room for them take %d more pods", wants, sh.on(), c.pods)}
	case c.picked < need:
		return Shortfall{Sharing, fmt.Sprintf("needs %s: the nodes%s with room for them take %d: %d have pods whose GPUs %s",
			wants, sh.on(), c.picked, c.keepers, keepers[sh.request.Picker])}
	case c.sets < need && c.acceptedOn == 0:
		return Shortfall{Devices, fmt.Sprintf("needs %s%s: no healthy GPU is one that it accepts", wants, sh.on())}
	case c.sets < need:
		return Shortfall{Devices, fmt.Sprintf("needs %s%s: of the GPUs that it accepts, %d on %d nodes, %d are free, which hold %d of the pods",
			wants, sh.on(), c.accepted[1], c.acceptedOn, c.accepted[0], c.sets)}
	case c.suits < need && c.suits+c.barred >= need:
		return Shortfall{Sharing, fmt.Sprintf("needs %s: the nodes%s with room for them, where selectors, taints and affinity allow, take %d: others have pods whose GPUs %s",
			wants, sh.on(), c.suits, keepers[sh.request.Picker])}
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

// keepers says of the pods that keep those of a picker off their node how they got their GPUs.
var keepers = [...]string{
	cluster.EnginePicks: "their nodes picked, and nothing says which these are",
	cluster.NodePicks:   "are parts, or are not counted by their nodes, which could give them out again",
}

// podsText writes a number of pods; nodes hold any number of pods that ask for nothing.
func podsText(n int) string {
	if n >= unlimited {
		return "any number"
	}
	return strconv.Itoa(n)
}

// startsBy returns when the terms of a pod of the unit must hold: those of a gang once all of
// it is placed.
func (u *Unit) startsBy() moment {
	if u.Whole {
		return later
	}
	return now
}

// countNode adds a node to the counts of a task.
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
	cpu := sh.freeCPU(n)
	c.kept += min(n.CPU-cpu, max(n.CPU, 0))
	c.cpu += free(plenty, cpu, plenty)
	c.mem += free(plenty, cpu, n.Mem)
	fit := free(n.PodsLeft(), cpu, n.Mem)
	c.pods += fit
	if fit > 0 && n.Keeps(sh.request.Picks()) {
		c.keepers++
		if sh.selected(p.state, id) && p.satisfies(u, t, id, u.startsBy()) {
			c.barred += fit
		}
		fit = 0
	}
	c.picked += fit
	if len(sh.request.From) > 0 {
		accepted := p.state.Accepted(id, sh.Others) & n.Healthy()
		c.accepted[0] += bits.OnesCount64(accepted & n.Whole)
		if accepted != 0 && !p.state.Lent(id) { // what is lent is counted at its home
			c.accepted[1] += bits.OnesCount64(accepted)
			c.acceptedOn++
		}
		fit = sh.request.TimesFrom(n.Spec, n.Whole, fit)
	}
	c.sets += fit
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
	if sh.selected(p.state, id) && p.satisfies(u, t, id, u.startsBy()) {
		c.suits += fit
	}
}

// whyOthers says which other resource the tasks of a gang lack together, when each task by
// itself has enough of it.
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

// pickers returns how many pick devices for pods of the unit that must not be together on blind nodes.
func (u *Unit) pickers() int {
	var known [len(cluster.Pickers)]int
	for t := range u.Tasks {
		if task := &u.Tasks[t]; len(task.Pods) > 0 {
			known[task.request.Picks()] = 1
		}
	}
	return known[cluster.EnginePicks] + known[cluster.NodePicks]
}

func (p *Placer) whyTopology(u *Unit) Shortfall {
	best := 0
	for _, sp := range p.spaces(u) {
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
