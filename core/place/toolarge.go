package place

import (
	"fmt"
	"maps"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// TooLarge says whether the unit could not be placed even if every node that
// was ever known were there, empty and healthy. O(nodes) for each shape, once; for a gang of
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
	if lack.Lack != NoLack || !u.Whole {
		return lack
	}
	if g := p.groups(u, false); g != nil {
		if lack = p.groupTooLarge(u, g); lack.Lack != NoLack {
			return lack
		}
	}
	// Each task fits on all nodes together. A gang of one task that may use them all fits then.
	inOnePlace := u.Required >= 0 || u.Tasks[0].onOneModel()
	if inOnePlace || len(u.Tasks) > 1 {
		return p.tooLargeTogether(u)
	}
	return lack
}

// anyAtHome reports whether a node that holds a pod of the shape when it is empty is in some
// domain of the required level: not in that of the job's running pods, which may end.
func (p *Placer) anyAtHome(u *Unit, sh *Shape) bool {
	if u.Required < 0 {
		return true
	}
	for id := range cluster.NodeID(p.state.Nodes()) {
		if !p.state.Lent(id) && p.domainOf(id, u.Required) >= 0 && p.eligible(u, sh, id) && sh.holdsEmpty(p.state.Node(id).Spec) > 0 {
			return true
		}
	}
	return false
}

// onOneModel reports whether the pods of the task, which are of a gang, must be on one of
// several models because they name none.
func (t *Task) onOneModel() bool {
	return len(t.Pods) > 0 && !t.Named && t.GPU() > 0 && len(t.models) > 1
}

// tooLargeTogether is TooLarge for a gang that must be in one place, a domain of the required
// level or the nodes of one model, or whose tasks share the nodes: each of its tasks may fit
// somewhere, and all of them nowhere. Without this check a gang of 8 GPUs that must be in one
// leaf group, of 4 each, waited for ever, and under StrictFIFO all jobs behind it.
//
// A place is too small if it cannot hold the pods of some task, or the GPUs of all tasks. More
// is not counted: what is found too large is certain, what is not may still be.
func (p *Placer) tooLargeTogether(u *Unit) Shortfall {
	gpu := cluster.Milli(0) // of all pods of the gang
	for t := range u.Tasks {
		gpu += cluster.Milli(len(u.Tasks[t].Pods)) * u.Tasks[t].GPU()
	}
	nearest := tooLarge{} // the place that lacks the least, for the reason
	for _, sp := range p.spaces(u) {
		places := p.emptyPlaces(u, sp)
		for _, d := range slices.Sorted(maps.Keys(places)) {
			short := places[d].shortOf(u, gpu)
			if short.pods == 0 && short.gpu <= 0 {
				return Shortfall{}
			}
			short.space = sp
			if nearest.space == nil || short.before(&nearest) {
				nearest = short
			}
		}
	}
	switch {
	case nearest.space == nil && len(u.Combinations) > 0:
		return Shortfall{TooLarge, "no combination of GPU models that it lists has nodes for all of its tasks: " + u.listCombinations()}
	case nearest.space == nil:
		return Shortfall{}
	}
	return Shortfall{TooLarge, p.whyTooLarge(u, &nearest, gpu)}
}

// emptyPlace is what the nodes of a place hold when they are empty: by task how many of its
// pods, each task by itself, and how many GPUs those have that take pods with GPUs.
type emptyPlace struct {
	pods []int
	gpus int
}

// emptyPlaces returns the domains of the required level, or the whole space where none is
// required, by their number. O(tasks x nodes).
func (p *Placer) emptyPlaces(u *Unit, sp space) map[int32]*emptyPlace {
	places := map[int32]*emptyPlace{}
	for id := range cluster.NodeID(p.state.Nodes()) {
		d := p.domainOf(id, u.Required)
		if d < 0 || p.state.Lent(id) {
			continue
		}
		at, node, useful := places[d], p.state.Node(id), false
		if at == nil {
			at = &emptyPlace{pods: make([]int, len(u.Tasks))}
			places[d] = at
		}
		for t := range u.Tasks {
			if sh := u.Tasks[t].Shape; slices.Contains(sp[t], p.state.Pool(id)) && sh.selected(p.state, id) {
				n := sh.holdsEmpty(node.Spec)
				at.pods[t] = min(at.pods[t]+n, unlimited)
				useful = useful || n > 0 && sh.GPU() > 0
			}
		}
		if useful {
			at.gpus += node.Spec.GPUs
		}
	}
	return places
}

// shortOf returns what the place lacks for a gang that takes that much GPU in all.
func (at *emptyPlace) shortOf(u *Unit, gpu cluster.Milli) tooLarge {
	short := tooLarge{gpu: gpu - cluster.Milli(at.gpus)*cluster.WholeGPU, holds: at.gpus}
	for t := range u.Tasks {
		if lack := len(u.Tasks[t].Pods) - at.pods[t]; lack > short.pods {
			short.pods, short.task, short.holds = lack, t, at.pods[t]
		}
	}
	return short
}

// tooLarge says by how much a place is too small for a gang when it is empty: by pods of one
// task or, if those fit, by GPU of all tasks. holds is the pods of the task, or the GPUs, that
// it holds.
type tooLarge struct {
	space             space
	pods, task, holds int
	gpu               cluster.Milli
}

// before reports whether a lacks less than b.
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

// mostOf returns how many pods of the shape all nodes together hold when they are empty.
// O(nodes) the first time, then O(1).
func (p *Placer) mostOf(sh *Shape, u *Unit) int {
	most := &sh.most[0]
	if u.usesZone() {
		most = &sh.most[1]
	}
	if *most < 0 {
		*most = 0
		for id := range cluster.NodeID(p.state.Nodes()) {
			if !p.state.Lent(id) && p.eligible(u, sh, id) {
				*most += sh.holdsEmpty(p.state.Node(id).Spec)
			}
		}
	}
	return *most
}

// whyNoNode says why no node holds a pod of the shape.
func (p *Placer) whyNoNode(sh *Shape) string {
	large := 0
	for id := range cluster.NodeID(p.state.Nodes()) {
		if n := p.state.Node(id); !p.state.Lent(id) && accepts(sh.request.Models, n.Spec.Model) && sh.holdsEmpty(n.Spec) > 0 {
			large++
		}
	}
	if large > 0 {
		return fmt.Sprintf("%d nodes%s are large enough for a pod of %s, none where selectors and taints allow", large, sh.on(), sh)
	}
	if len(sh.request.From) > 0 {
		return fmt.Sprintf("no node%s is large enough for a pod of %s, or none has as many GPUs that it accepts", sh.on(), sh)
	}
	return fmt.Sprintf("no node%s is large enough for a pod of %s", sh.on(), sh)
}
