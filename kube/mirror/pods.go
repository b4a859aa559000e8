package mirror

import (
	"fmt"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/feed"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
)

// podSeen handles the current state of a pod. This is all that an update does:
//
//  1. A pod that is new is placed, if it has a node, and joins its group ([Mirror.newPod]).
//  2. One that ended, or was deleted before it had a node, is over ([Mirror.podEnded]).
//  3. One that is being deleted on a lost node leaves its job ([Mirror.strand]).
//  4. One that was taken from its owner, or given back, belongs to another group
//     ([Mirror.changeOwner]).
//  5. If the pod belongs to no job, what it takes of its node is counted again.
//  6. If it belongs to a job, each difference is observed by the table or index that it
//     concerns ([Mirror.podChanged]).
//
// Groups that a change concerns are touched: they are brought up to date with the engine
// before the next decision.
func (m *Mirror) podSeen(o *objects.Pod) {
	m.noteUncounted(o)
	m.Stage(o)
	m.NoteDone(o)
	p := m.Pods[o.UID]
	if p == nil {
		if !o.Ended() {
			m.newPod(o)
		}
		return
	}
	o = p.After(o)
	// No kubelet will end a pod that is being deleted on a lost node, and its job must not wait
	// for that. A binding in flight may still fail, so the pod waits for its outcome.
	strands := !p.Stranded && o.Deleting && !o.Over() && !p.InFlight && m.Lost.Lost(o.Node)
	switch {
	case strands:
		m.strand(p)
	case o.Ended():
		m.podEnded(p, o.Phase)
	case p.HasOtherOwner(o):
		m.changeOwner(p, o)
	case p.Group == nil:
		m.uncount(p)
		p.Object = o
		m.countOn(p)
		m.aroundChanged(m.Peers.ObserveLabels(&p.Around, o.Labels))
		m.keepRecord(p)
		m.NotePod(p)
	default:
		m.podChanged(p, o)
	}
}

// podEnded handles a pod that ended, or was deleted before it had a node.
func (m *Mirror) podEnded(p *tables.Pod, phase v1.PodPhase) {
	g, ran := p.Group, p.State == tables.PodBound || p.State == tables.PodBinding
	if p.Lost = phase != v1.PodSucceeded; !p.Lost {
		p.Returns = false // its owner makes no other
	}
	m.podOver(p)
	switch {
	case g == nil:
	// A gang is not stopped for pods that succeeded: they are not made again, and the gang would
	// wait for them.
	case phase == v1.PodSucceeded:
		g.Worked = true
	case ran:
		m.memberLost(g, p)
	}
}

// podChanged handles the differences between a pod of a job and its last known state.
func (m *Mirror) podChanged(p *tables.Pod, o *objects.Pod) {
	old, g := p.Object, p.Group
	p.Object = o

	// How other pods see it.
	m.aroundChanged(m.Peers.ObserveLabels(&p.Around, o.Labels))
	// A change may end the quarantine of the group. A pool, or a record of one, may move the
	// group to another shard. A pod that begins or stops running changes what budgets protect.
	leaves := o.Phase != old.Phase || o.Node != old.Node
	if g.Quarantine != nil || o.Pool != old.Pool || o.GroupRecord != old.GroupRecord || leaves && p.Around.Kept() {
		m.touch(g)
	}
	m.noteMove(p)
	if o.Phase == v1.PodRunning && old.Phase != v1.PodRunning && g.Journey.Run(m.Clock()) {
		m.complete(g)
	}

	// What it requests.
	if !slices.Equal(o.DeviceClaims, old.DeviceClaims) {
		m.claimRefsChanged(p, old.DeviceClaims)
	}
	if !reflect.DeepEqual(o.Amounts, old.Amounts) {
		// The pod was resized in place. The engine has no event for that: the group is submitted
		// again, as it is now.
		if g.Resized = p.Slot >= 0 || g.Resized; p.Slot < 0 {
			m.reconsider(p) // the engine does not know it yet
		}
		m.touch(g)
	}

	// Where it is.
	switch {
	case o.Node == "":
		// While a pod waits, the size of its gang can be corrected. Its last scheduling gate may be
		// gone, or a mistake corrected or made: an invalid pod must not start with its earlier values.
		m.observeAgain(p, old)
		if old.OtherGates != o.OtherGates || old.Wrong != o.Wrong {
			m.volumesChanged(m.Storage.ObservePod(p.UsesVolumes()))
			m.refit(p)
		}
	case p.State == tables.PodWaiting || o.Node != p.Target || !slices.Equal(o.GPUs, old.GPUs) && p.OtherDevices():
		// Another scheduler has bound it: perhaps the instance before this one, whose
		// last requests took effect late.
		if p.DoubleOf != nil {
			m.failMove(p.DoubleOf)
		}
		m.leaveSlot(p)
		m.unplace(p, p.Target)
		p.Late = old.Node == ""
		p.State, p.Target = tables.PodBound, o.Node
		m.aroundChanged(m.Peers.Place(&p.Around))
		m.volumesChanged(m.Storage.ObservePod(p.UsesVolumes()))
		m.place(p, o.Node)
		m.touch(g)
	case p.State == tables.PodBinding:
		p.State = tables.PodBound
	}

	// The progress of its job.
	if p.Slot >= 0 && !o.Attributes.LastCheckpoint.Equal(old.Attributes.LastCheckpoint) {
		m.mustTell(core.Checkpointed{Job: g.Job, At: min(m.Now, objects.TimeOf(o.Attributes.LastCheckpoint))})
	}
	if p.Slot >= 0 && (o.Attributes.Mobility != old.Attributes.Mobility || o.Attributes.MobilityGiven != old.Attributes.MobilityGiven) {
		g.Resized = true
		m.touch(g)
	}
	if p.Slot >= 0 && o.Attributes.Estimate != old.Attributes.Estimate {
		m.mustTell(core.JobEstimated{Job: g.Job, Estimate: o.Attributes.Estimate})
	}
	// A queue may bound how long its jobs say that they run.
	if o.Node == "" && o.Attributes.Estimate != old.Attributes.Estimate && !g.Placed() && (!g.Submitted || !m.MayStay(g)) {
		m.weighAgain(g)
	}
	m.keepRecord(p)
	m.NotePod(p)
}

// changeOwner handles a pod on a node that was taken from its owner, or given back: it
// belongs to another group now.
func (m *Mirror) changeOwner(p *tables.Pod, o *objects.Pod) {
	old, admitted := *p, p.Group.Admitted
	m.podOver(p)
	m.newPod(o)
	p = m.Pods[o.UID]
	p.Moves, p.Stayed, p.Lending, p.StandbySaid = old.Moves, old.Stayed, old.Lending, old.StandbySaid
	p.Given = old.Given | old.Devices // else a pod that the engine refused for them could have them first
	if p.Lends() {
		m.outdated = true // the engine has given its GPUs to the pods there
	}
	if g := p.Group; g != nil && len(g.Pods) == 1 {
		g.Admitted = admitted // it is the same job still
	}
	m.devicesChanged(m.Devices.Review(o.Namespace, o.DeviceClaims)) // whose sharers saw it gone
}

func (m *driver) newPod(o *objects.Pod) {
	if !o.Ours && o.Node == "" {
		return
	}
	p := &tables.Pod{Object: o, Slot: -1, Volumes: m.Storage.Needs(o.UID), Around: tables.AmongPeers(o)}
	m.Pods[o.UID] = p
	if o.Node != "" {
		p.State, p.Target = tables.PodBound, o.Node
		m.place(p, o.Node)
	}
	m.aroundChanged(m.Peers.ObservePod(&p.Around))
	m.volumesChanged(m.Storage.ObservePod(p.UsesVolumes()))
	if !o.Ours && !o.HasGPUs() && !m.Peers.Matters(&p.Around) {
		m.countOn(p)
		return
	}
	m.join(p)
	m.noteMove(p)
}

// join adds a pod to its group.
func (m *changes) join(p *tables.Pod) {
	g := m.groupOf(p)
	p.Group = g
	g.Pods[p.Object.UID], g.Loose[p.Object.UID] = p, p
	m.Devices.Refer(p.Object.UID, p.Object.Namespace, p.Object.DeviceClaims)
	m.NotePod(p)
	m.relabel(g)
}

// podGone handles the deletion of a pod.
func (m *Mirror) podGone(uid types.UID) {
	delete(m.uncounted, uid)
	m.Done.Forget(uid)
	if p := m.Pods[uid]; p != nil {
		if m.outlasted(p) {
			return
		}
		m.podEnded(p, "")
	}
}

// podsListed handles the list of all pods.
func (m *Mirror) podsListed(list []*objects.Pod) {
	m.Done.Reset()
	feed.Compare(m, m.Pods, list, (*objects.Pod).GetUID, m.podSeen, m.podGone)
}

// podOver takes a pod that ended or was deleted off its node.
func (m *driver) podOver(p *tables.Pod) {
	delete(m.Pods, p.Object.UID)
	delete(m.moving, p.Object.UID)
	delete(m.asked, p.Object.UID)
	delete(m.holding, p.Object.UID)
	m.lenders.Forget(p.Object.UID)
	defer delete(m.transfers, p.Object.UID)
	if p.DoubleOf != nil {
		m.failMove(p.DoubleOf)
	}
	m.Devices.ForgetPod(p.Object.UID, p.Object.Namespace)
	if p.InFlight {
		// The binding may still write claims. Their devices are free when it is answered (bound),
		// not when the pod goes.
		m.Devices.Lift(p.Object.UID, p.Target, p.Devices)
	}
	m.NotePod(p)
	m.uncount(p)
	m.unplace(p, p.Target)
	m.answered(p)
	m.Peers.ForgetPod(&p.Around)
	m.volumesChanged(m.Storage.ForgetPod(p.Object.UID))
	m.devicesChanged(m.Devices.Unrefer(p.Object.UID, p.Object.Namespace, p.Object.DeviceClaims))
	if p.Group != nil {
		delete(p.Group.Pods, p.Object.UID)
		delete(p.Group.Loose, p.Object.UID)
		if !m.arrive(p) && !m.vacate(p) {
			m.leaveSlot(p)
		}
		m.relabel(p.Group)
	}
}

// leaveSlot tells the engine that the pod has ended; its number is free for another.
func (m *driver) leaveSlot(p *tables.Pod) {
	if p.Slot < 0 {
		return
	}
	m.NotePod(p)
	g := p.Group
	if p.Transfer != nil {
		m.unpair(p) // the engine ends the move with the pod
	}
	m.mustTell(core.PodEnded{Job: g.Job, Pod: p.Slot, Lost: p.Lost})
	g.Slots[p.Slot] = nil
	p.Task.Free = append(p.Task.Free, p.Slot)
	p.Slot, p.Task, p.Devices = -1, nil, 0
	// A pod that has ended left the group before: it must not be added again.
	if g.Pods[p.Object.UID] == p {
		g.Loose[p.Object.UID] = p
	}
}

// countOn subtracts what the pod takes from its node.
func (m *changes) countOn(p *tables.Pod) {
	n := m.Nodes[p.Target]
	if n == nil || p.Counted {
		return
	}
	p.Counted = true
	n.Others.Add(p.Takes(), 1)
	n.Count++
	m.dirtyNodes[p.Target] = n
}

func (m *changes) uncount(p *tables.Pod) {
	n := m.Nodes[p.Target]
	if n == nil || !p.Counted {
		return
	}
	p.Counted = false
	n.Others.Add(p.Takes(), -1)
	n.Count--
	m.dirtyNodes[p.Target] = n
}

// bound handles the outcome of a binding. gone says that the pod no longer exists.
func (m *driver) bound(uid types.UID, ok, gone bool) {
	p := m.Pods[uid]
	if p == nil || !p.InFlight {
		m.devicesChanged(m.Devices.Land(uid))
		return
	}
	defer m.answered(p)
	m.NotePod(p)
	switch {
	case ok && p.State == tables.PodBinding:
		p.State = tables.PodBound
	case ok && p.State == tables.PodLeaving:
		// The pod was evicted while its binding was in flight. Only now is there something to
		// evict.
		m.acts.Evict = append(m.acts.Evict, p.Cause)
	case gone:
		m.podOver(p)
	case ok || p.State == tables.PodBound:
		// Meanwhile the API has reported its node.
	default:
		if p.Group == nil { // it was counted as another scheduler's
			m.podOver(p)
			m.newPod(p.Object)
			return
		}
		// The binding failed: the pod waits again. The engine counts the pod as running, or
		// as leaving if it evicted the pod itself. If something else evicted it (a drain, a lost
		// node), the engine counts a failed binding.
		leaving, dismissed := p.State == tables.PodLeaving, p.Dismissed
		m.unplace(p, p.Target)
		p.State, p.Target, p.Devices, p.Given, p.Dismissed, p.Returns = tables.PodWaiting, "", 0, 0, false, false
		switch {
		case p.DoubleOf != nil:
			m.failMove(p.DoubleOf)
		case p.Slot < 0: // the engine was built again, and does not know the pod yet
		case !m.Ours(p.Group):
			// The shard was given up meanwhile. The engine must not try the pod elsewhere.
			m.leaveSlot(p)
		case leaving && dismissed:
			m.mustTell(core.PodsGone{Job: p.Group.Job, Pods: []int{p.Slot}})
		default:
			m.mustTell(core.BindFailed{Job: p.Group.Job, Pod: p.Slot})
		}
		m.notGranted(p)
		m.reports.Waits(p.Group)
		m.volumesChanged(m.Storage.ObservePod(p.UsesVolumes()))
		m.refit(p)
	}
}

// answered records that no binding of the pod is in flight. After the last one of its
// group, the group's conditions are cleared.
func (m *changes) answered(p *tables.Pod) {
	if !p.InFlight {
		return
	}
	p.InFlight = false
	g := p.Group
	if g == nil {
		return
	}
	// While other bindings of the gang are in flight, the gang may still fail, and wait again. So
	// only the last answer ends the journey and clears the conditions.
	if g.InFlight == 1 {
		if g.Journey.Bind(m.Clock()) {
			m.complete(g)
		}
	}
	if g.InFlight--; g.InFlight == 0 && m.Ours(g) && (g.Native || g.Reported.Reason != "" || p.Object.Waits) {
		m.acts.Report = append(m.acts.Report, g.ClearReports(m.PodGroupOf(g))...)
	}
}

// adopt tells the engine about a pod that is on a node already. If the engine cannot count
// it as the job's, it counts as another scheduler's.
func (m *driver) adopt(p *tables.Pod) {
	n := m.Nodes[p.Target]
	gpus, otherwise := m.DevicesOf(p, n)
	if otherwise != "" {
		m.tellPod(p, tables.DevicesNotAsAnnotated, otherwise)
	}
	err := m.tell(core.PodRunning{
		Job: p.Group.Job, Pod: p.Slot, Node: p.Target, GPUs: gpus,
		Started: min(m.Now, objects.TimeOf(p.Object.Started)), Backfilled: p.Object.Backfilled,
	})
	if err == nil {
		p.Group.Ran = true
		m.keepRecord(p)
		defer m.lenders.LendAgain(p)
		if p.Devices = tables.SetOf(gpus); n.Sick&p.Devices != 0 {
			m.nodeDirty(p.Target)
		}
		m.NotePod(p)
		// The API has shown a binding that this instance did not send. Its GPU may be another pod's
		// by now, also where the node has others that are free: the engine has just received it,
		// and both are compared.
		if p.Late {
			p.Late = false
			m.contest(p, p.Group, true)
		}
		return
	}
	if m.panics.Broken {
		return // the next engine receives it again
	}
	m.outside(p, err)
}

// outside subtracts from its node what a pod takes that the engine refuses.
func (m *driver) outside(p *tables.Pod, why error) {
	g := p.Group
	m.log.Warn("counting a pod as another scheduler's", "pod", p.Object.Namespace+"/"+p.Object.Name, "why", why)
	m.NotePod(p)
	delete(p.Group.Pods, p.Object.UID)
	delete(p.Group.Loose, p.Object.UID)
	m.leaveSlot(p)
	if p.InFlight {
		p.Group.InFlight--
	}
	// From here on the pod is in no group, like those of other schedulers: what it takes is
	// subtracted from its node, and its GPUs are made unhealthy (tellHealth).
	m.touch(p.Group) // which may have no pods now
	p.Group, p.Cause.Shard = nil, g.Shard
	m.countOn(p)
	if n := p.Unbooked(); n > 0 {
		m.tellPod(p, tables.GPUsOvercommitted, fmt.Sprintf("the pod has %d GPUs of node %s, which has fewer left: the remaining ones take no other pods (%v)", n, p.Target, why))
		m.contest(p, g, false)
	}
}
