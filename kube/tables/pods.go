package tables

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/peers"
	"github.com/muster-sched/muster/kube/storage"
	"github.com/muster-sched/muster/kube/translate"
)

// This file turns the pods of the API into the engine's.

// Pod is a pod that has not ended.
type Pod struct {
	Object *objects.Pod // as it was observed last, or as it counts (After)
	Group  *Group       // nil for pods of other schedulers
	State  State
	// Slot is its number in the engine's job, -1 while the engine does not know
	// it; Task is its role there.
	Slot int
	Task *Task
	// Edited is what an event reported as changed on it without effect; Recording says that
	// its record is being written into its status.
	Edited    string
	Recording bool
	Target    string // its node, or the one it is being bound to
	Devices   uint64 // its GPUs there
	Given     uint64 // its GPUs in the binding that was sent
	// InFlight says that a binding was sent and not answered; what it is to be
	// evicted for waits meanwhile.
	InFlight bool
	Cause    Eviction // why it is to leave, if it is
	// Dismissed says that this engine evicted it. An engine that was built after the eviction
	// counts it as running.
	Dismissed bool
	// Late says that the API has just shown a binding of it that was not ours; Yields
	// that it is to leave a GPU that another was given before.
	Late, Yields bool
	// Moves says that it is on its way off its node; Stayed is the request of a drain for
	// which it could not leave.
	Moves  bool
	Stayed *string
	// Transfer is the engine's move of it, nil for none; DoubleOf the pod whose double it is.
	// A double has no number in the engine's job: it gets that of the pod when the pod is gone.
	Transfer *Transfer
	DoubleOf *Pod
	// Lending is set while the engine has it on standby; StandbySaid is what was last written on it
	// about that.
	Lending     *Lending
	StandbySaid string
	// Pause is set while its processes are paused, are about to be, or are about to go on. Measured has how long that took last.
	Pause    *Pause
	Measured core.Suspension
	// Returns says that it was evicted to start again elsewhere: see [Returning].
	Returns bool
	// Lost says that it ended, or is gone, without having succeeded.
	Lost bool
	// Asked is the request of a user to move it that was handled last; empty for none.
	Asked string
	// Said is the reason in its conditions.
	Said string
	// Volumes is what it needs of a node for its volumes; Withheld is its binding while
	// that waits for some to be made.
	Volumes  *storage.Needs
	Withheld *Binding
	// Needs is what it needs of a node with its devices; nil if its request says that, or if
	// it has to be determined.
	Needs *devices.Needs
	// Around is the pod as the index of peers knows it.
	Around peers.Pod
	// Counted says that what the pod takes is subtracted from the node's capacity.
	Counted bool
	// Stranded says that it is being deleted on a node that was lost, and known by
	// what it takes alone.
	Stranded bool
}

// Transfer is a move that the engine decided: make before break.
type Transfer struct {
	// To is the place that the engine holds, for the pod's number.
	To core.Placement
	// Double is the pod in whose favour this one leaves, nil until there is one. It is at To, or
	// is to be bound there.
	Double *Pod
}

// State is the state of a pod.
type State uint8

const (
	// PodWaiting: it has no node.
	PodWaiting State = iota
	// PodBinding: the engine has placed it, the API has not said so yet.
	PodBinding
	// PodBound: the API says that it is on its node.
	PodBound
	// PodLeaving: it was evicted and is still on its node, or its binding is still in
	// flight.
	PodLeaving
)

// Binding asks to bind a pod.
type Binding struct {
	Of *Pod // the pod as the tables have it
	act.Bind
}

// Ref names the pod for an act.
func (p *Pod) Ref() act.Pod {
	return act.Pod{Namespace: p.Object.Namespace, Name: p.Object.Name, UID: p.Object.UID}
}

// After returns a pod as it counts, given its last known state: values that cannot be read, or
// whose changes do not count, stay as they were.
func (p *Pod) After(o *objects.Pod) *objects.Pod {
	if o.Unread {
		o = o.AsBefore(p.Object)
	}
	if p.Stranded {
		o = o.Stranded()
		// It keeps its devices, whatever it says by now (mirror.strand).
		o.GPUs, o.Request.GPU = p.Object.GPUs, p.Object.Request.GPU
	}
	o.Terms, o.Ports = p.Object.Terms, p.Object.Ports // they cannot change
	if p.Transfer != nil {
		// Detached from its owner, it remains the pod of the engine's job that it was.
		o.Membership, o.Labels = p.Object.Membership, p.Object.Labels
	}
	p.settled(o)
	p.keepPlace(o)
	return o
}

// settled gives a pod on its node the values that it had when it was first seen there,
// except what changes as it runs: its place among its owner's pods, its CPU and memory, when
// it saved its progress, how long it takes. A record takes precedence over what this
// instance has seen, because the pod may have been edited before the instance started: all
// instances must find the same pool.
func (p *Pod) settled(o *objects.Pod) {
	old := p.Object
	if !o.Ours || !old.Ours || old.Node == "" || o.Node != old.Node || o.Said == old.Said || o.Record != "" {
		return
	}
	o.Said = old.Said
	// Which group it is of counts as it was, except where the scheduler itself took it out of
	// its owner's hands to move it, or gave it back.
	if o.Move.Active() == old.Move.Active() {
		o.Membership = old.Membership
	}
	now := o.Attributes
	o.Attributes = old.Attributes
	o.Attributes.LastCheckpoint, o.Attributes.Estimate = now.LastCheckpoint, now.Estimate
	o.Attributes.Mobility, o.Attributes.MobilityGiven = now.Mobility, now.MobilityGiven
	o.Request.GPU, o.Request.Models, o.Request.Speeds, o.Wrong = old.Request.GPU, old.Request.Models, old.Request.Speeds, old.Wrong
	o.GPUs, o.Share, o.Held, o.Backfilled = old.GPUs, old.Share, old.Held, old.Backfilled
	o.Resource, o.Pool = old.Resource, old.Pool
}

// HasOtherOwner reports whether a pod that runs is of another group now.
func (p *Pod) HasOtherOwner(o *objects.Pod) bool {
	return p.State == PodBound && !p.InFlight && p.Group != nil && !p.Group.Gang() &&
		o.Ours && o.Node == p.Target && o.Membership.Group != p.Group.ID
}

// Runs reports whether a pod that the engine knows is bound or being bound, and
// stays.
func (p *Pod) Runs() bool { return p.Slot >= 0 && (p.State == PodBinding || p.State == PodBound) }

// Stands reports whether a pod runs or could.
func (p *Pod) Stands() bool { return p.State != PodLeaving && (p.State != PodWaiting || p.Ready()) }

// Ready reports whether a pod could be placed as far as the pod goes.
func (p *Pod) Ready() bool {
	return p.Object.Wrong == "" && !p.Object.OtherGates && !p.Around.Refused && p.Volumes.Wait == "" && (p.Needs == nil || p.Needs.Reason == "")
}

// Inherited reports whether a pod that has a place still has the conditions of a waiting pod,
// which an earlier instance may have left.
func (p *Pod) Inherited() bool { return p.Object.Waits && p.State == PodBound }

// BudgetHolds reports whether a disruption budget keeps a pod on its node. A pod that has not
// started may always leave.
func (p *Pod) BudgetHolds() bool {
	return p.Runs() && p.Around.Kept() && p.Object.Phase != v1.PodPending
}

// Request is what a pod of ours needs of a node.
func (p *Pod) Request() core.Request {
	r := p.Object.Request
	if p.Needs != nil {
		r = p.Needs.Request
	}
	if len(p.Object.Claims) > 0 {
		translate.Require(&r, &p.Volumes.Nodes)
		r.Others = translate.AddOthers(r.Others, p.Volumes.Attached, 1)
	}
	return r
}

// Takes is what a pod takes of its node, volumes included.
func (p *Pod) Takes() *translate.Amounts {
	a := p.Object.Amounts
	a.Others = translate.AddOthers(a.Others, p.Volumes.Attached, 1)
	return &a
}

// amountsOf is the request of a pod of another scheduler.
func amountsOf(a *translate.Amounts) core.Request {
	return core.Request{GPU: core.Milli(min(a.GPUs, cluster.MaxGPUs)) * core.WholeGPU, Picker: core.NodePicks, CPUMilli: a.CPUMilli, MemMiB: a.MemMiB, Others: a.Others}
}

// Share is how much of each of its GPUs a pod has.
func (p *Pod) Share() core.Milli {
	switch {
	case p.Task != nil && p.Task.Spec.GPU < core.WholeGPU:
		return p.Task.Spec.GPU
	case p.Task == nil && p.Object.Request.GPU < core.WholeGPU && (p.Object.Ours || p.Stranded):
		return p.Object.Request.GPU
	}
	return core.WholeGPU
}

// Holds returns the GPUs of a pod. If the engine does not know the pod, they are those that
// the pod names.
func (p *Pod) Holds() uint64 {
	set := p.Devices | p.Given
	if p.Devices != 0 || p.Paused() {
		return set
	}
	for _, d := range p.Object.GPUs {
		set |= 1 << d
	}
	return set
}

// AsBound returns the GPUs with which a pod was bound, by the API or by the binding that was
// sent; none if their number is not that of the pod, which then was not bound like this.
func (p *Pod) AsBound() uint64 {
	set := p.Given
	for _, d := range p.Object.GPUs {
		set |= 1 << d
	}
	if bits.OnesCount64(set) != p.devicesWanted() {
		return 0
	}
	return set
}

// devicesWanted is how many GPUs a pod on a node has, by its spec and its annotations;
// more than 64 if the spec says so.
func (p *Pod) devicesWanted() int {
	o := p.Object
	gpu := max(core.Milli(o.Amounts.GPUs)*core.WholeGPU, o.Request.GPU, o.Held)
	return int((gpu + core.WholeGPU - 1) / core.WholeGPU)
}

// HasDevices reports whether the pod has GPUs of its node, or would if the node had them.
func (p *Pod) HasDevices() bool { return p.Devices != 0 || p.devicesWanted() > 0 }

// Unbooked returns how many GPUs of its node a pod has that the engine refused; 0 for a pod
// that the engine knows, or will know.
func (p *Pod) Unbooked() int {
	if p.Group != nil {
		return 0
	}
	return min(p.devicesWanted(), 64)
}

// SetOf returns the set of some devices.
func SetOf(devices []int) (set uint64) {
	for _, d := range devices {
		set |= 1 << d
	}
	return set
}

// OtherDevices reports whether the pod was bound with other GPUs than the engine
// has for it.
func (p *Pod) OtherDevices() bool {
	set := SetOf(p.Object.GPUs)
	return set != p.Devices && bits.OnesCount64(set) == bits.OnesCount64(p.Devices)
}

// DevicesOf returns the GPUs of a pod that is on a node: those of its claims, those that
// its annotation names or, where these cannot be, the first that have room. Annotations
// may say anything: what counts is that as many devices are booked as the pod has. otherwise
// says why they are others than the annotation names, and is empty when they are not.
func (t *Tables) DevicesOf(p *Pod, n *Node) (gpus []int, otherwise string) {
	gpu := p.Task.Spec.GPU
	want := int((gpu + core.WholeGPU - 1) / core.WholeGPU)
	if want == 0 || n == nil {
		return nil, ""
	}
	// 1. Claims name the devices that were allocated. They take precedence over annotations.
	if gpus, ok := t.Devices.Has(p.Needs, p.Object.Namespace, p.Object.Extended, p.Target); ok && len(gpus) == want {
		return gpus, ""
	}
	// 2. The devices that the annotation names, or that the binding named which the API has not
	// shown yet, if there is room beside what others were given. What other annotations say does
	// not count: their authors may name any device.
	part := min(gpu, core.WholeGPU)
	has := roomBeside(p, n, func(o *Pod) uint64 { return o.Devices | o.Given })
	fits := func(list []int) bool {
		return len(list) == want && !slices.ContainsFunc(list, func(d int) bool { return d >= n.Told.GPUs || has[d] < part })
	}
	if fits(p.Object.GPUs) {
		return p.Object.GPUs, ""
	}
	if list := DevicesIn(p.Given); fits(list) { // the API has not shown it yet
		return list, ""
	}
	if len(p.Object.GPUs) > 0 {
		otherwise = fmt.Sprintf("%s: the annotation names GPUs %s of node %s, which do not belong to the pod: %d other GPUs are booked for it",
			v1alpha1.GPUsAnnotation, listed(p.Object.GPUs), p.Target, want)
	}
	// 3. Any devices with room, preferably those that no pod names: the engine may not know such a
	// pod yet.
	unclaimed := roomBeside(p, n, (*Pod).Holds)
	for _, room := range [][64]core.Milli{unclaimed, has} {
		for d := 0; d < n.Told.GPUs && len(gpus) < want; d++ {
			if min(room[d], has[d]) >= part && !slices.Contains(gpus, d) {
				gpus = append(gpus, d)
			}
		}
	}
	return gpus, otherwise
}

// roomBeside returns how much of each device of a node the others on it leave, each
// with the devices that has says.
func roomBeside(p *Pod, n *Node, has func(*Pod) uint64) [64]core.Milli {
	var free [64]core.Milli
	for i := range free {
		free[i] = core.WholeGPU
	}
	for _, o := range n.Pods {
		if o == p || p.mayBeOn(o) || o.mayBeOn(p) {
			continue
		}
		for s := has(o); s != 0; s &= s - 1 {
			free[bits.TrailingZeros64(s)] -= o.Share()
		}
	}
	return free
}

// DevicesIn lists the devices of a set.
func DevicesIn(set uint64) []int {
	var out []int
	for ; set != 0; set &= set - 1 {
		out = append(out, bits.TrailingZeros64(set))
	}
	return out
}

// listed is a list of devices as a text.
func listed(gpus []int) string {
	set := uint64(0)
	for _, d := range gpus {
		set |= 1 << d
	}
	return translate.Devices(set)
}

// UsesVolumes returns a pod in the form that the index of volumes uses.
func (p *Pod) UsesVolumes() storage.Pod {
	o := p.Object
	return storage.Pod{
		UID: o.UID, Namespace: o.Namespace, Name: o.Name, Created: o.Created, Claims: o.Claims,
		Placed: p.State != PodWaiting, Blocked: o.Wrong != "" || o.OtherGates,
	}
}

// AsHolder returns the pod's state in the form that the index of devices uses.
func (p *Pod) AsHolder() devices.State {
	s := devices.State{
		UID: p.Object.UID, Name: p.Object.Name, Placed: p.State != PodWaiting,
		Stuck: p.State == PodWaiting && p.Slot < 0 && !p.Ready(),
	}
	if p.Group != nil {
		s.Job = p.Group.ID
	}
	return s
}

// DeviceState returns the state of a pod that the index of devices needs to resolve another.
func (t *Tables) DeviceState(uid types.UID) (devices.State, bool) {
	p := t.Pods[uid]
	if p == nil {
		return devices.State{}, false
	}
	return p.AsHolder(), true
}

// InOrder returns the pods that ok picks, by name: worker-2 comes
// before worker-10, so that neighbours in a job become neighbours in the
// cluster.
func InOrder(pods map[types.UID]*Pod, ok func(*Pod) bool) []*Pod {
	var list []*Pod
	for _, p := range pods {
		if ok(p) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *Pod) int {
		return cmp.Or(cmp.Compare(len(a.Object.Name), len(b.Object.Name)), cmp.Compare(a.Object.Name, b.Object.Name),
			cmp.Compare(a.Object.UID, b.Object.UID))
	})
	return list
}

// AmongPeers returns a pod in the form that the index of peers uses.
func AmongPeers(o *objects.Pod) peers.Pod {
	return peers.Pod{UID: o.UID, Namespace: o.Namespace, Labels: o.Labels, Terms: o.Terms, Ports: o.Ports, Ours: o.Ours, Placed: o.Node != ""}
}
