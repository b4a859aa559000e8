package kube

import (
	"fmt"
	"math/bits"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/peers"
	"github.com/muster-sched/muster/kube/storage"
	"github.com/muster-sched/muster/kube/translate"
)

// From the pods of the API to the engine's.

// podState is where a pod stands.
type podState uint8

const (
	podWaiting podState = iota
	// podBinding: the engine has placed it, the API has not said so yet.
	podBinding
	// podBound: the API says that it is on its node.
	podBound
	// podLeaving: it was told to leave and is still on its node, or its binding
	// is still under way.
	podLeaving
)

// pod is a pod that is not over.
type pod struct {
	object *podObject
	group  *group // nil for pods of other schedulers
	state  podState
	// slot is its number in the engine's job, -1 while the engine does not know
	// it.
	slot int
	task *task
	// edited says what people were told of that was changed on it, and does not
	// count; recording that this is being written into its status.
	edited    string
	recording bool
	target    string // its node, or the one it is being bound to
	devices   uint64 // its GPUs there
	given     uint64 // its GPUs as the binding says that was sent
	// inFlight says that a binding was sent and not answered; what it is to be
	// evicted for waits meanwhile.
	inFlight bool
	cause    evictAct
	// dismissed says that the engine told it to leave, and not one before the
	// engine was built again: to that one it runs.
	dismissed bool
	// late says that the API has just shown a binding of it that was not ours; yields
	// that it is to leave a GPU that another was given before.
	late, yields bool
	// moves says that it is on its way off a node that is drained; stayed is the
	// request for which it could not leave.
	moves  bool
	stayed *string
	// said is the reason that its conditions give for its waiting.
	said string
	// volumes is what it needs of a node for its volumes; withheld is its binding while
	// that waits for some to be made.
	volumes  *storage.Needs
	withheld *bindAct
	// needs is what it needs of a node with its devices; nil for its request, or
	// when that has to be found out.
	needs *devices.Needs
	// around is the pod as the index of peers knows it.
	around peers.Pod
	// counted says that the node's capacity is less by what the pod takes.
	counted bool
	// stranded says that it is being deleted on a node that was lost, and known by
	// what it takes alone.
	stranded bool
}

// ref names the pod for an act.
func (p *pod) ref() act.Pod {
	return act.Pod{Namespace: p.object.Namespace, Name: p.object.Name, UID: p.object.UID}
}

// podSeen takes in a pod as it is now. This is all that an update does:
//
//  1. A pod that is new is placed, if it has a node, and joins its group ([mirror.newPod]).
//  2. One that ended, or was deleted before it had a node, is over ([mirror.podEnded]).
//  3. One that is being deleted on a lost node leaves its job ([mirror.strand]).
//  4. One that was taken out of its owner's hands, or given back, is of another group
//     ([mirror.changeOwner]).
//  5. Of a pod of no job, what it takes of its node is counted again.
//  6. Of a pod of a job, each difference is observed by the table or index that it is
//     about ([mirror.podChanged]).
//
// Groups that a change concerns are touched: they are brought up to date with the engine
// before the next decision.
func (m *mirror) podSeen(o *podObject) {
	m.noteUncounted(o)
	p := m.pods[o.UID]
	if p == nil {
		if !o.ended() {
			m.newPod(o)
		}
		return
	}
	o = p.after(o)
	strands := !p.stranded && o.deleting && !o.over() && !p.inFlight && m.lost.Lost(o.node)
	switch {
	case strands:
		m.strand(p)
	case o.ended():
		m.podEnded(p, o.phase)
	case p.hasOtherOwner(o):
		m.changeOwner(p, o)
	case p.group == nil:
		m.uncount(p)
		p.object = o
		m.countOn(p)
		m.aroundChanged(m.peers.ObserveLabels(&p.around, o.labels))
		m.keepRecord(p)
		m.notePod(p)
	default:
		m.podChanged(p, o)
	}
}

// after is a pod as it counts, given how it was known before: what cannot be read, or
// counts no more, is as it was.
func (p *pod) after(o *podObject) *podObject {
	if o.unread {
		o = o.asBefore(p.object)
	}
	if p.stranded {
		o = o.stranded()
		o.gpus, o.request.GPU = p.object.gpus, p.object.request.GPU
	}
	o.terms, o.ports = p.object.terms, p.object.ports // they cannot change
	p.settled(o)
	return o
}

// hasOtherOwner reports whether a pod that runs is of another group now.
func (p *pod) hasOtherOwner(o *podObject) bool {
	return p.state == podBound && !p.inFlight && p.group != nil && !p.group.gang() &&
		o.ours && o.node == p.target && o.membership.Group != p.group.id
}

// podEnded takes in that a pod ended, or was deleted before it had a node.
func (m *mirror) podEnded(p *pod, phase v1.PodPhase) {
	g, ran := p.group, p.state == podBound || p.state == podBinding
	m.podOver(p)
	switch {
	case g == nil:
	case phase == v1.PodSucceeded:
		g.worked = true
	case ran:
		m.memberLost(g, p)
	}
}

// podChanged takes in how a pod of a job differs from what was known of it.
func (m *mirror) podChanged(p *pod, o *podObject) {
	old, g := p.object, p.group
	p.object = o

	// How others see it.
	m.aroundChanged(m.peers.ObserveLabels(&p.around, o.labels))
	leaves := o.phase != old.phase || o.node != old.node
	if g.quarantine != nil || o.pool != old.pool || o.groupRecord != old.groupRecord || leaves && p.around.Kept() {
		m.touch(g)
	}
	m.noteMove(p)
	m.movesOn(g, old.phase, o.phase)

	// What it asks for.
	if !slices.Equal(o.deviceClaims, old.deviceClaims) {
		m.claimRefsChanged(p, old.deviceClaims)
	}
	if !reflect.DeepEqual(o.amounts, old.amounts) {
		if g.resized = p.slot >= 0 || g.resized; p.slot < 0 {
			m.reconsider(p) // the engine does not know it yet
		}
		m.touch(g)
	}

	// Where it is.
	switch {
	case o.node == "":
		m.observeAgain(p, &old.membership)
		if old.otherGates != o.otherGates || old.wrong != o.wrong {
			m.volumesChanged(m.storage.ObservePod(p.usesVolumes()))
			m.refit(p)
		}
	case p.state == podWaiting || o.node != p.target || !slices.Equal(o.gpus, old.gpus) && p.otherDevices():
		// Another scheduler has bound it: perhaps the one before this, of which the last
		// requests took effect late.
		m.leaveSlot(p)
		m.unplace(p, p.target)
		p.late = old.node == ""
		p.state, p.target = podBound, o.node
		m.volumesChanged(m.storage.ObservePod(p.usesVolumes()))
		m.place(p, o.node)
		m.touch(g)
	case p.state == podBinding:
		p.state = podBound
	}

	// How far its job is.
	if p.slot >= 0 && !o.attributes.LastCheckpoint.Equal(old.attributes.LastCheckpoint) {
		m.mustTell(core.Checkpointed{Job: g.job, At: min(m.now, timeOf(o.attributes.LastCheckpoint))})
	}
	if p.slot >= 0 && o.attributes.Estimate != old.attributes.Estimate {
		m.mustTell(core.JobEstimated{Job: g.job, Estimate: o.attributes.Estimate})
	}
	m.keepRecord(p)
	m.notePod(p)
}

// changeOwner takes in that a pod on a node was taken out of its owner's hands, or
// given back: it is one of another group.
func (m *mirror) changeOwner(p *pod, o *podObject) {
	moves, stayed, admitted := p.moves, p.stayed, p.group.admitted
	m.podOver(p)
	m.newPod(o)
	p = m.pods[o.UID]
	p.moves, p.stayed = moves, stayed
	if g := p.group; g != nil && len(g.pods) == 1 {
		g.admitted = admitted // it is the same job still
	}
	m.devicesChanged(m.devices.Review(o.Namespace, o.deviceClaims)) // to those that share them, it was gone
}

func (m *driver) newPod(o *podObject) {
	if !o.ours && o.node == "" {
		return
	}
	p := &pod{object: o, slot: -1, volumes: m.storage.Needs(o.UID), around: amongPeers(o)}
	m.pods[o.UID] = p
	if o.node != "" {
		p.state, p.target = podBound, o.node
		m.place(p, o.node)
	}
	m.aroundChanged(m.peers.ObservePod(&p.around))
	m.volumesChanged(m.storage.ObservePod(p.usesVolumes()))
	if !o.ours && !o.hasGPUs() && !m.peers.Matters(&p.around) {
		m.countOn(p)
		return
	}
	m.join(p)
	m.noteMove(p)
}

// join makes a pod one of its group.
func (m *changes) join(p *pod) {
	g := m.groupOf(p)
	p.group = g
	g.pods[p.object.UID], g.loose[p.object.UID] = p, p
	m.devices.Refer(p.object.UID, p.object.Namespace, p.object.deviceClaims)
	m.notePod(p)
	m.relabel(g)
}

// podGone takes in that a pod was deleted.
func (m *mirror) podGone(uid types.UID) {
	delete(m.uncounted, uid)
	if p := m.pods[uid]; p != nil {
		m.podEnded(p, "")
	}
}

// podsListed takes in all pods there are.
func (m *mirror) podsListed(list []*podObject) {
	compare(m, m.pods, list, (*podObject).GetUID, m.podSeen, m.podGone)
}

// podOver takes a pod that ended or was deleted off its node.
func (m *driver) podOver(p *pod) {
	delete(m.pods, p.object.UID)
	delete(m.moving, p.object.UID)
	m.devices.ForgetPod(p.object.UID)
	if p.inFlight {
		m.devices.Lift(p.object.UID, p.target, p.devices)
	}
	m.notePod(p)
	m.uncount(p)
	m.unplace(p, p.target)
	m.answered(p)
	m.peers.ForgetPod(&p.around)
	m.volumesChanged(m.storage.ForgetPod(p.object.UID))
	m.devicesChanged(m.devices.Unrefer(p.object.UID, p.object.Namespace, p.object.deviceClaims))
	if p.group != nil {
		delete(p.group.pods, p.object.UID)
		delete(p.group.loose, p.object.UID)
		m.leaveSlot(p)
		m.relabel(p.group)
	}
}

// leaveSlot tells the engine that the pod is over; its number is free for
// another.
func (m *driver) leaveSlot(p *pod) {
	if p.slot < 0 {
		return
	}
	m.notePod(p)
	g := p.group
	m.mustTell(core.PodEnded{Job: g.job, Pod: p.slot})
	g.slots[p.slot] = nil
	p.task.free = append(p.task.free, p.slot)
	p.slot, p.task, p.devices = -1, nil, 0
	if g.pods[p.object.UID] == p {
		g.loose[p.object.UID] = p
	}
}

// countOn makes the pod's node smaller by what the pod takes.
func (m *changes) countOn(p *pod) {
	n := m.nodes[p.target]
	if n == nil || p.counted {
		return
	}
	p.counted = true
	n.others.Add(p.takes(), 1)
	n.count++
	m.dirtyNodes[p.target] = n
}

func (m *changes) uncount(p *pod) {
	n := m.nodes[p.target]
	if n == nil || !p.counted {
		return
	}
	p.counted = false
	n.others.Add(p.takes(), -1)
	n.count--
	m.dirtyNodes[p.target] = n
}

// bound takes in the outcome of a binding. gone says that the pod is no more.
func (m *driver) bound(uid types.UID, ok, gone bool) {
	p := m.pods[uid]
	if p == nil || !p.inFlight {
		m.devicesChanged(m.devices.Land(uid))
		return
	}
	defer m.answered(p)
	m.notePod(p)
	switch {
	case ok && p.state == podBinding:
		p.state = podBound
	case ok && p.state == podLeaving:
		m.acts.evict = append(m.acts.evict, p.cause)
	case gone:
		m.podOver(p)
	case ok || p.state == podBound:
		// The API has said meanwhile where it is.
	default:
		if p.group == nil { // it was counted as another scheduler's
			m.podOver(p)
			m.newPod(p.object)
			return
		}
		leaving, dismissed := p.state == podLeaving, p.dismissed
		m.unplace(p, p.target)
		p.state, p.target, p.devices, p.given, p.dismissed = podWaiting, "", 0, 0, false
		switch {
		case p.slot < 0: // the engine was built again, and has not been told of it yet
		case !m.ours(p.group):
			m.leaveSlot(p)
		case leaving && dismissed:
			m.mustTell(core.PodsGone{Job: p.group.job, Pods: []int{p.slot}})
		default:
			m.mustTell(core.BindFailed{Job: p.group.job, Pod: p.slot})
		}
		m.notGranted(p)
		m.waiters[p.group] = true
		m.volumesChanged(m.storage.ObservePod(p.usesVolumes()))
		m.refit(p)
	}
}

// answered notes that no binding of the pod is under way. When that is so for
// the last pod of its group, what is said of the group's waiting is taken back.
func (m *changes) answered(p *pod) {
	if !p.inFlight {
		return
	}
	p.inFlight = false
	g := p.group
	if g == nil {
		return
	}
	if g.inFlight == 1 {
		m.boundAll(g)
	}
	if g.inFlight--; g.inFlight == 0 && m.ours(g) && (g.native || g.said.reason != "" || p.object.waits) {
		m.acts.report = append(m.acts.report, m.clearReports(g)...)
	}
}

// adopt tells the engine of a pod that is on a node already. Where the engine
// cannot count it as the job's, it counts it as another scheduler's.
func (m *driver) adopt(p *pod) {
	n := m.nodes[p.target]
	gpus := m.devicesOf(p, n)
	err := m.tell(core.PodRunning{
		Job: p.group.job, Pod: p.slot, Node: p.target, GPUs: gpus,
		Started: min(m.now, timeOf(p.object.started)), Backfilled: p.object.backfilled,
	})
	if err == nil {
		p.group.ran = true
		m.keepRecord(p)
		for _, d := range gpus {
			p.devices |= 1 << d
		}
		m.notePod(p)
		if p.late {
			p.late = false
			m.contest(p, p.group, true)
		}
		return
	}
	if m.panics.broken {
		return // the next engine is told of it again
	}
	m.outside(p, err)
}

// outside counts a pod on a node, which the engine refuses, as something that its node
// lacks.
func (m *driver) outside(p *pod, why error) {
	g := p.group
	m.log.Warn("counting a pod as another scheduler's", "pod", p.object.Namespace+"/"+p.object.Name, "why", why)
	m.notePod(p)
	delete(p.group.pods, p.object.UID)
	delete(p.group.loose, p.object.UID)
	m.leaveSlot(p)
	if p.inFlight {
		p.group.inFlight--
	}
	m.touch(p.group) // which may have no pods now
	p.group = nil
	m.countOn(p)
	if n := p.unbooked(); n > 0 {
		m.tellPod(p, GPUsOvercommitted, fmt.Sprintf("the pod has %d GPUs of node %s, which has fewer left: the remaining ones take no other pods (%v)", n, p.target, why))
		m.contest(p, g, false)
	}
}

// devicesOf returns the GPUs of a pod that is on a node: those of its claims, those that
// its annotation names or, where these cannot be, the first that have room. Annotations
// may say anything: what counts is that as many devices are booked as the pod has.
func (m *changes) devicesOf(p *pod, n *node) []int {
	gpu := p.task.spec.GPU
	want := int((gpu + core.WholeGPU - 1) / core.WholeGPU)
	if want == 0 || n == nil {
		return nil
	}
	if gpus, ok := m.devices.Has(p.needs, p.object.Namespace, p.object.extended, p.target); ok && len(gpus) == want {
		return gpus
	}
	part := min(gpu, core.WholeGPU)
	has := roomBeside(p, n, func(o *pod) uint64 { return o.devices | o.given })
	fits := func(list []int) bool {
		return len(list) == want && !slices.ContainsFunc(list, func(d int) bool { return d >= n.told.GPUs || has[d] < part })
	}
	if fits(p.object.gpus) {
		return p.object.gpus
	}
	if list := devicesIn(p.given); fits(list) { // the API has not shown it yet
		return list
	}
	if len(p.object.gpus) > 0 {
		m.tellPod(p, DevicesNotAsAnnotated, fmt.Sprintf("%s: the annotation names GPUs %s of node %s, which do not belong to the pod: %d other GPUs are booked for it",
			v1alpha1.GPUsAnnotation, listed(p.object.gpus), p.target, want))
	}
	// Best those that no pod says it has, which the engine may not know yet.
	unclaimed := roomBeside(p, n, (*pod).holds)
	var out []int
	for _, room := range [][64]core.Milli{unclaimed, has} {
		for d := 0; d < n.told.GPUs && len(out) < want; d++ {
			if min(room[d], has[d]) >= part && !slices.Contains(out, d) {
				out = append(out, d)
			}
		}
	}
	return out
}

// roomBeside returns how much of each device of a node the others on it leave, each
// with the devices that has says.
func roomBeside(p *pod, n *node, has func(*pod) uint64) [64]core.Milli {
	var free [64]core.Milli
	for i := range free {
		free[i] = core.WholeGPU
	}
	for _, o := range n.pods {
		if o == p {
			continue
		}
		for s := has(o); s != 0; s &= s - 1 {
			free[bits.TrailingZeros64(s)] -= o.share()
		}
	}
	return free
}

// devicesIn lists the devices of a set.
func devicesIn(set uint64) []int {
	var out []int
	for ; set != 0; set &= set - 1 {
		out = append(out, bits.TrailingZeros64(set))
	}
	return out
}

func listed(gpus []int) string {
	set := uint64(0)
	for _, d := range gpus {
		set |= 1 << d
	}
	return translate.Devices(set)
}

// holds returns the GPUs of a pod, as far as it says them where the engine has not
// been told of it.
func (p *pod) holds() uint64 {
	set := p.devices | p.given
	if p.devices != 0 {
		return set
	}
	for _, d := range p.object.gpus {
		set |= 1 << d
	}
	return set
}

// unbooked is how many GPUs of its node a pod has that the engine could not be told
// of; 0 for a pod that it knows, or is to know.
func (p *pod) unbooked() int {
	if p.group != nil {
		return 0
	}
	return min(p.devicesWanted(), 64)
}

// otherDevices reports whether the pod was bound with other GPUs than the engine
// has for it.
func (p *pod) otherDevices() bool {
	var set uint64
	for _, d := range p.object.gpus {
		set |= 1 << d
	}
	return set != p.devices && bits.OnesCount64(set) == bits.OnesCount64(p.devices)
}

// share is how much of each of its GPUs a pod has.
func (p *pod) share() core.Milli {
	switch {
	case p.task != nil && p.task.spec.GPU < core.WholeGPU:
		return p.task.spec.GPU
	case p.task == nil && p.object.request.GPU < core.WholeGPU && (p.object.ours || p.stranded):
		return p.object.request.GPU
	}
	return core.WholeGPU
}

// ready reports whether a pod could be placed as far as the pod goes.
func (p *pod) ready() bool {
	return p.object.wrong == "" && !p.object.otherGates && p.volumes.Wait == "" && (p.needs == nil || p.needs.Reason == "")
}

// takes is what a pod takes of its node, volumes included.
func (p *pod) takes() *translate.Amounts {
	a := p.object.amounts
	a.Others = translate.AddOthers(a.Others, p.volumes.Attached, 1)
	return &a
}

// amountsOf is the request of a pod of another scheduler.
func amountsOf(a *translate.Amounts) core.Request {
	return core.Request{GPU: core.Milli(min(a.GPUs, cluster.MaxGPUs)) * core.WholeGPU, CPUMilli: a.CPUMilli, MemMiB: a.MemMiB, Others: a.Others}
}

// runs reports whether a pod that the engine knows is bound or being bound, and
// stays.
func (p *pod) runs() bool { return p.slot >= 0 && (p.state == podBinding || p.state == podBound) }

// stands reports whether a pod runs or could.
func (p *pod) stands() bool { return p.state != podLeaving && (p.state != podWaiting || p.ready()) }

// inherited reports whether a pod that has a place is said to wait, as an
// instance that decided before may have left it.
func (p *pod) inherited() bool { return p.object.waits && p.state == podBound }

// settled has a pod on its node be as it was when it was first seen there, but for
// what changes as it runs: its place among its owner's pods, its CPU and memory, when
// it saved its progress, how long it takes. A record goes before what this instance has
// seen, which may have begun to look when the pod was edited already: all instances must
// find the same pool.
func (p *pod) settled(o *podObject) {
	old := p.object
	if !o.ours || !old.ours || old.node == "" || o.node != old.node || o.said == old.said || o.record != "" {
		return
	}
	o.said = old.said
	if o.move.Active() == old.move.Active() {
		o.membership = old.membership
	}
	saved, estimate := o.attributes.LastCheckpoint, o.attributes.Estimate
	o.attributes = old.attributes
	o.attributes.LastCheckpoint, o.attributes.Estimate = saved, estimate
	o.request.GPU, o.request.Models, o.wrong = old.request.GPU, old.request.Models, old.wrong
	o.gpus, o.share, o.held, o.backfilled = old.gpus, old.share, old.held, old.backfilled
	o.resource, o.pool = old.resource, old.pool
}

// asBound is the GPUs that the API says a pod was bound with, or that were sent; none
// when these are not as many as it has, for then it was not bound so.
func (p *pod) asBound() uint64 {
	set := p.given
	for _, d := range p.object.gpus {
		set |= 1 << d
	}
	if bits.OnesCount64(set) != p.devicesWanted() {
		return 0
	}
	return set
}

// devicesWanted is how many GPUs a pod on a node has, by its spec and its annotations;
// more than 64 if the spec says so.
func (p *pod) devicesWanted() int {
	o := p.object
	gpu := max(core.Milli(o.amounts.GPUs)*core.WholeGPU, o.request.GPU, o.held)
	return int((gpu + core.WholeGPU - 1) / core.WholeGPU)
}

// request is what a pod of ours needs of a node.
func (p *pod) request() core.Request {
	r := p.object.request
	if p.needs != nil {
		r = p.needs.Request
	}
	if len(p.object.claims) > 0 {
		translate.Require(&r, &p.volumes.Nodes)
		r.Others = translate.AddOthers(r.Others, p.volumes.Attached, 1)
	}
	return r
}
