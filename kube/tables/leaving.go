package tables

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
)

// Eviction asks to make a pod leave.
type Eviction struct {
	Of      *Pod
	Reason  string
	Message string
	Shard   int // of the pod's group; for a pod that no longer has one, of its last
}

// Notice is how much time pods get that are evicted for others.
type Notice struct {
	// Grace is the maximum time to terminate, in seconds: that of the policy or, if it has none,
	// [act.MaxGrace]. Times below a second count as one.
	Grace int64
	// Budgets is how long reclaim waits for disruption budgets that refuse an eviction.
	Budgets time.Duration
}

// Notice returns what the policy says.
func (t *Tables) Notice() Notice {
	p := &t.Policies.Policy().Preempt
	n := Notice{Grace: int64(act.MaxGrace / time.Second), Budgets: time.Duration(p.BudgetTimeout)}
	if p.EvictGrace > 0 {
		n.Grace = int64((p.EvictGrace + core.Second - 1) / core.Second)
	}
	return n
}

// reclaims reports whether the pod leaves as its queue has more than it owns, or is owed.
func (e *Eviction) reclaims() bool {
	return e.Reason == core.QuotaReclaim.String() || e.Reason == core.FairShareReclaim.String()
}

// Value returns the act without the tables. A budget does not protect a pod that runs on borrowed
// quota from the quota's owner, or from a queue that is owed it, for longer than the policy says, nor one on lent GPUs from theirs. The pod
// saves itself first, if it can: one of a gang does not, as it leaves alone.
func (e *Eviction) Value(n Notice) act.Evict {
	if g := e.Of.Group; g == nil || g.Gang() {
		return e.value(n)
	}
	return e.Together(n)
}

func (e *Eviction) value(n Notice) act.Evict {
	o := e.Of.Object
	x := act.Evict{
		Pod: e.Of.Ref(), Reason: e.Reason, Message: e.Message, Counted: o.Counts || o.Uncounted, Shard: e.Shard,
		DespiteBudgets: e.reclaims() || e.Reason == core.StandbyReturns.String(),
	}
	if e.reclaims() {
		x.BudgetTimeout = n.Budgets
	}
	if g := e.Of.Group; g != nil {
		x.Shard = g.Shard
	}
	if o.Grace > n.Grace && e.Reason != act.Drained && e.Reason != act.Moving {
		x.Grace = &n.Grace
	}
	return x
}

// forOthers are the reasons for which a job leaves that could go on, so that others get what it has.
var forOthers = []core.Reason{
	core.PriorityPreemption, core.QuotaReclaim, core.FairShareReclaim, core.BackfillPreemption, core.LeaseOver, core.PackingCancelled, core.Resized, core.StandbyReturns,
}

// Saves reports whether the processes of the pod are to save themselves before it leaves, and whether another job waits for that.
func (e *Eviction) Saves() (ok, waited bool) {
	if e.Of.Pause != nil || e.Of.Object.CheckpointWithin == 0 {
		return false, false
	}
	if e.Of.Returns || e.Reason == act.Drained {
		return true, false
	}
	waited = slices.ContainsFunc(forOthers, func(r core.Reason) bool { return r.String() == e.Reason })
	return waited, waited
}

// Together is [Eviction.Value] of a pod that leaves with all others of its group.
func (e *Eviction) Together(n Notice) act.Evict {
	x := e.value(n)
	if ok, waited := e.Saves(); ok {
		x.Node, x.SaveWithin, x.Asks = e.Of.Target, e.Of.Object.CheckpointWithin, e.Of.Object.Grace
		if waited {
			x.Notice = time.Duration(n.Grace) * time.Second
		}
	}
	return x
}

// SaveWithin is how long the job of a group takes at most to save its progress before it is evicted for others, as its pods say; 0 if one
// of them does not, if that is longer than the policy gives it, and for a gang that can lose some of its pods, which are not asked then.
func (t *Tables) SaveWithin(g *Group) core.Time {
	if !t.Agents || g.ID.Kind == Foreign || g.Gang() && g.Min < len(g.Pods) {
		return 0
	}
	most := time.Duration(0)
	for _, p := range g.Pods {
		if p.Object.CheckpointWithin == 0 {
			return 0
		}
		most = max(most, p.Object.CheckpointWithin)
	}
	if most > time.Duration(t.Notice().Grace)*time.Second {
		return 0
	}
	return core.Time(most)
}

// Suspension asks to make all pods of a group leave.
type Suspension struct {
	Group   *Group
	Members map[types.UID]bool // all its pods, also those without a place
	Evict   []Eviction
}

// Value returns the act without the tables.
func (a *Suspension) Value(n Notice) act.Suspend {
	x := act.Suspend{Group: a.Group.ID, Since: a.Group.Created, Members: a.Members}
	known := map[types.UID]bool{}
	for _, p := range a.Group.Pods {
		if owner := p.Object.Owner; !known[owner.UID] {
			known[owner.UID] = true
			x.Owners = append(x.Owners, *owner)
		}
	}
	for i := range a.Evict {
		x.Pods = append(x.Pods, a.Evict[i].Together(n))
	}
	return x
}

// MayLeave reports whether a pod of a drained node could be evicted now. Pods of DaemonSets
// belong to the node.
func (t *Tables) MayLeave(p *Pod) bool {
	o := p.Object
	if p.Group == nil || p.Group.ID.Kind == Foreign || p.State != PodBound || p.InFlight || p.Moves || p.DoubleOf != nil || p.Lending != nil || o.Deleting || !t.Ours(p.Group) {
		return false
	}
	return !translate.OfDaemonSet(o.Owner)
}

// Locked reports whether a pod is never moved: not for others, and not off a node
// that is drained or lost.
func (t *Tables) Locked(p *Pod) bool { return t.AttributesOf(p.Group, p).Locked }

// MustLeave reports whether a pod of a drained node is to leave now. One that could not
// leave is asked again when the drain is requested again.
func (t *Tables) MustLeave(p *Pod) bool {
	if !t.MayLeave(p) || t.Locked(p) {
		return false
	}
	o := p.Object
	request := t.Nodes[p.Target].Object.Drain.Request
	// This instance knows for which request the pod could not leave. An instance before it
	// wrote that on the pod, in its annotations and its status: an annotation alone keeps none.
	if p.Stayed != nil {
		return *p.Stayed != request
	}
	return !o.StaysAsTold || !o.Move.NotReplaced(request)
}

// LeavesWhole reports whether all pods of a group leave when those on the node of one pod
// do.
func (t *Tables) LeavesWhole(p *Pod) bool {
	g, node := p.Group, p.Target
	stays := func(p *Pod) bool { return p.State == PodBinding || p.State == PodBound && p.Target != node }
	// With onFailure replace, a gang goes on with fewer pods until their replacements run.
	if g.Gang() && g.Broken(stays) {
		return t.AttributesOf(g, p).OnFailure != "replace"
	}
	return g.Count("", stays) == 0 && t.suspendable(g)
}

// RestartsOff returns which pods of a group leave drained nodes together with one of them, and start
// again elsewhere at once if there are places; none if their owners make no others. Pods that leave one
// by one do so only if their job checkpoints, and if no other is to be ready first.
func (t *Tables) RestartsOff(p *Pod) []*Pod {
	g := p.Group
	single := !g.Gang() && !t.Replaced(p, t.Nodes[p.Target].Object.Drain) && t.Restartable(g, p)
	if !g.Submitted || !t.ComesAgain(g) || !t.LeavesWhole(p) && !single {
		return nil
	}
	return InOrder(g.Pods, func(o *Pod) bool {
		n := t.Nodes[o.Target]
		return o.Slot >= 0 && n != nil && n.Object.Drain != nil && t.MustLeave(o)
	})
}

// Replaced reports whether another pod is to be ready before one leaves. That is impossible
// where both would need a volume, or devices, of one node.
func (t *Tables) Replaced(p *Pod, d *translate.Drain) bool { return d.Wait > 0 && t.replaceable(p) }

func (t *Tables) replaceable(p *Pod) bool {
	if !p.Object.Replaceable || p.Group.Gang() {
		return false
	}
	for _, r := range p.Object.DeviceClaims {
		if !r.Template {
			return false
		}
	}
	for _, c := range p.Object.Claims {
		if !c.Ephemeral && !t.Storage.Shared(p.Object.Namespace, c.Name) {
			return false
		}
	}
	return true
}

// Mobility returns how the pods of a job may be moved, as one of them says: as its owner
// allows it, and only if another pod can run beside it meanwhile. Pods of which some are
// moved already stay.
func (t *Tables) Mobility(g *Group, p *Pod) core.Mobility {
	a := t.AttributesOf(g, p)
	if !a.MobilityGiven {
		a.Mobility = translate.NamespaceMobility(t.Namespaces[g.ID.Namespace])
	}
	if a.Mobility == core.Replaceable && (!t.replaceable(p) || p.Object.Move.Active()) {
		return core.Stays
	}
	return a.Mobility
}

// Movable reports whether nothing is in progress for a pod that a move would disturb.
func (t *Tables) Movable(p *Pod) bool {
	o := p.Object
	return p.Slot >= 0 && p.State == PodBound && !p.InFlight && !p.Moves && p.Pause == nil && p.DoubleOf == nil && !o.Deleting && !o.Move.Active()
}

// Doubles finds new pods of a group for those that were detached from its owner: pairs of an
// old and a new pod. Pods of an owner are alike, so any new pod will do.
func (t *Tables) Doubles(g *Group) (pairs [][2]*Pod) {
	moving := InOrder(g.Pods, func(p *Pod) bool { return p.Transfer != nil && p.Transfer.Double == nil && p.Object.Move.Active() })
	if len(moving) == 0 {
		return nil
	}
	view := t.LookAround()
	loose := InOrder(g.Loose, func(p *Pod) bool { return p.State == PodWaiting && p.Ready() })
	for _, p := range moving {
		if i := slices.IndexFunc(loose, func(o *Pod) bool { return p.Task.Takes(o, view) }); i >= 0 {
			pairs, loose = append(pairs, [2]*Pod{p, loose[i]}), slices.Delete(loose, i, i+1)
		}
	}
	return pairs
}

// MoveOf asks for the move of a pod for a request.
func (t *Tables) MoveOf(p *Pod, request string) act.Move {
	x := act.Move{Pod: p.Ref(), Node: p.Target, Request: request, Shard: t.Whose(p)}
	if rec := p.Object.Move; rec.Active() {
		x.Why, x.To = rec.Why, rec.To
	}
	return x
}

// LeavesLost reports whether a pod must be evicted from its node when the node is lost.
// Locked pods are not evicted, and, as in Kubernetes, neither are pods that tolerate the
// node's trouble for ever.
func (t *Tables) LeavesLost(p *Pod) bool {
	g := p.Group
	if g == nil || g.ID.Kind == Foreign || p.InFlight || p.Object.Deleting || p.State != PodBound || !t.Ours(g) {
		return false
	}
	return !p.Object.Bears[t.Nodes[p.Target].Object.Befell] && !t.Locked(p)
}

// Requeues reports whether the gang must be stopped for the loss of a pod.
func (t *Tables) Requeues(g *Group, p *Pod) bool {
	switch t.AttributesOf(g, p).OnFailure {
	case "requeue":
		return true
	case "replace":
		return false
	}
	pg := t.PodGroupOf(g)
	return pg != nil && pg.Whole
}

// MaySuspend reports whether the group can be stopped as a whole: none of its pods must stay.
func (t *Tables) MaySuspend(g *Group) bool {
	return !g.Runs() && t.suspendable(g)
}

// suspendable reports whether the owners of all pods of a group are of kinds that
// can be suspended.
func (t *Tables) suspendable(g *Group) bool {
	if g.ID.Kind == Foreign || len(g.Pods) == 0 || g.Stage != "" { // the owner has pods of other stages
		return false
	}
	for _, p := range g.Pods {
		if p.Object.Owner == nil {
			return false
		}
		if _, ok := translate.SuspensionOf(schema.FromAPIVersionAndKind(p.Object.Owner.APIVersion, p.Object.Owner.Kind).GroupKind()); !ok {
			return false
		}
	}
	return true
}
