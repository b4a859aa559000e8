package tables

import (
	"errors"
	"maps"
	"slices"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// A pod that restarts elsewhere comes back as another pod, which its owner makes. Until that is
// there, its number in the engine's job stays: with it, the engine keeps the place to which it
// returns.

// Returning is set while pods of a group restart elsewhere.
type Returning struct {
	// Vacant are the numbers of pods that are gone and have not come back.
	Vacant map[int]*Vacancy
	// Until is when the group gives them up, [core.Never] while pods of it leave.
	Until core.Time
}

// Vacancy is what a pod has to be that returns.
type Vacancy struct {
	task *Task
	stem string
	// To is where the engine has bound it, nil if it has not yet.
	To *core.Placement
}

// Vacate keeps the number of a pod that is gone for the one that comes back.
func (g *Group) Vacate(p *Pod) {
	g.Slots[p.Slot] = nil
	g.Returning.Vacant[p.Slot] = &Vacancy{task: p.Task, stem: p.stem()}
	p.Slot, p.Task, p.Devices = -1, nil, 0
}

// Return gives a pod that came back its number, and returns where it is bound to already, nil for
// nowhere.
func (g *Group) Return(p *Pod, slot int) *core.Placement {
	v := g.Returning.Vacant[slot]
	delete(g.Returning.Vacant, slot)
	g.Has(p, slot, v.task)
	return v.To
}

// Forgo gives up the numbers that no pod came back for, and returns them. Others may have them.
func (g *Group) Forgo() []int {
	slots := slices.Sorted(maps.Keys(g.Returning.Vacant))
	for _, slot := range slots {
		t := g.Returning.Vacant[slot].task
		t.Free = append(t.Free, slot)
	}
	g.Returning = nil
	return slots
}

// Lose forgets the places on a node that is gone.
func (r *Returning) Lose(node string) {
	if r == nil {
		return
	}
	for _, v := range r.Vacant {
		if v.To != nil && v.To.Node == node {
			v.To = nil
		}
	}
}

// stem is what the names of a pod and of the one that its owner makes in its place have in common:
// the name before the suffix that the API server chose, with the index of pods that have one.
func (p *Pod) stem() string {
	if p.Object.GenerateName != "" {
		return p.Object.GenerateName
	}
	return p.Object.Name
}

// Back is a pod that comes back as the one with a number.
type Back struct {
	Slot int
	Pod  *Pod
}

// Back returns the new pods of a group that take the places of those that restart elsewhere. Some
// are there before the pod that they replace is gone: early has those.
func (t *Tables) Back(g *Group) (back []Back, early map[*Pod]bool) {
	if g.Returning == nil {
		return nil, nil
	}
	// 1. Who may have come back as whom.
	loose := InOrder(g.Loose, func(p *Pod) bool { return p.State == PodWaiting && p.Ready() })
	if len(loose) == 0 {
		return nil, nil
	}
	want := maps.Clone(g.Returning.Vacant)
	for _, p := range g.Pods {
		if p.Returns && p.Slot >= 0 {
			want[p.Slot] = &Vacancy{task: p.Task, stem: p.stem()}
		}
	}

	// 2. The pod with the same index, else any that is alike.
	view := t.LookAround()
	early = map[*Pod]bool{}
	for _, alike := range []func(*Vacancy, *Pod) bool{
		func(v *Vacancy, p *Pod) bool { return v.stem == p.stem() },
		func(*Vacancy, *Pod) bool { return true },
	} {
		for _, slot := range slices.Sorted(maps.Keys(want)) {
			v := want[slot]
			i := slices.IndexFunc(loose, func(p *Pod) bool { return alike(v, p) && v.task.Takes(p, view) })
			if i < 0 {
				continue
			}
			if g.Slots[slot] == nil {
				back = append(back, Back{slot, loose[i]})
			} else {
				early[loose[i]] = true
			}
			loose = slices.Delete(loose, i, i+1)
			delete(want, slot)
		}
	}
	return back, early
}

// Restartable reports whether pods of a job may stop, and start again elsewhere, so that another
// job has room, or because a user asks for that: the job says that it checkpoints, the owners of its
// pods make others in their place, and neither the job nor its namespace says how it may be moved. One
// that says so is moved like that or not at all.
func (t *Tables) Restartable(g *Group, p *Pod) bool {
	a := t.AttributesOf(g, p)
	return a.Checkpoint > 0 && !a.MobilityGiven && !translate.NamespaceSaysMobility(t.Namespaces[g.ID.Namespace]) && t.ComesAgain(g)
}

// ComesAgain reports whether the owners of a group's pods make others in their place.
func (t *Tables) ComesAgain(g *Group) bool {
	for _, p := range g.Pods {
		if !translate.Recreates(p.Object.Owner) {
			return false
		}
	}
	return true
}

// ErrNotMoved says why a pod is not moved as a user asks.
var ErrNotMoved = errors.New("the pod must not be moved: expected " + v1alpha1.MobilityAnnotation + ": replaceable, and a Deployment that can run another pod beside it; or a job with " +
	v1alpha1.CheckpointIntervalAnnotation + " whose owner makes another pod")

// AskedWith returns the pods, of those that users ask to move, that restart elsewhere together with one
// of them: those of its job that have the same request.
func AskedWith(p *Pod, list []*Pod) []*Pod {
	return slices.DeleteFunc(slices.Clone(list), func(o *Pod) bool {
		return o.Group != p.Group || o.Object.MoveRequest.Request != p.Object.MoveRequest.Request
	})
}
