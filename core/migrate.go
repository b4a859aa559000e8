package core

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// A running pod moves to another node by make before break: a second instance of it, its
// double, starts at the new place; when that is ready, the instance at the old place ends. No
// pod is down at any time. The engine decides such a move as [Migrate], and the driver says
// how it ended: [PodMoved] or [MoveFailed].
//
// As long as a move is under way
//
//   - both places are held: the old one by the pod, the new one by its double;
//   - quota counts the pod once. Pods that take GPUs keep their GPU model, so that what quota
//     covers does not change when the pod is at its new place;
//   - the labels of the pod count at both places where others must be apart from it, and at
//     neither where others must be near it: one of the two will be gone, and it is not known
//     which;
//   - the pod is not chosen as a victim, nor is its gang as a whole. What had to wait for that
//     is tried again when the move is over;
//   - whatever else stops the pod ends the move too, and frees the new place; if its gang broke,
//     when the next pass says so, as the move may be over before the driver knows. The double is a
//     pod like any bound one: it stays where it is when its node is cordoned or changes, or
//     its GPU fails, until the driver says otherwise. If its node is lost, so is the double;
//     the pod goes on at its old place.

// moves are the moves under way.
type moves struct {
	*Engine
	// all is in the order in which they were begun. The last ones may not be told yet.
	all []*move
}

// move is a pod on its way to another node.
type move struct {
	job *job
	pod int
	to  cluster.Alloc
	// why is the reason of the decision, room the job for which it makes room, if any.
	why  Reason
	room string
	// lead is the plan for which it makes room, if that waits for it; wave is the wave of that plan
	// in which it begins. See waves.go.
	lead *nomination
	wave int
	// later says that it waits for the waves before its own. It holds no place yet: the node of
	// its place is closed.
	later bool
	// told says that the move has been decided. Until then it holds its place, and is
	// forgotten if an event makes it wrong.
	told bool
}

func (m *move) owner() cluster.Owner { return cluster.Owner{Job: m.job.slot, Pod: int32(m.pod)} }

// requestMove handles the request that a pod moves, to a named node or wherever it fits best.
func (e *Engine) requestMove(ev MoveRequested) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	if err := e.moves.movable(j, ev.Pod); err != nil {
		return err
	}
	from := e.state.Node(j.pods[ev.Pod].alloc.Node).Spec.Name
	drawn := e.placer.Drawn()
	var to cluster.Alloc
	if ev.Node == "" {
		var found bool
		if to, found = e.moves.best(j, ev.Pod); !found {
			err = fmt.Errorf("pod %d of job %s: no other node than %s has room for it", ev.Pod, ev.Job, from)
		}
	} else if ev.Node == from {
		err = fmt.Errorf("pod %d of job %s is on node %s already", ev.Pod, ev.Job, from)
	} else if id, unknown := e.node(ev.Node); unknown != nil {
		err = unknown
	} else {
		var found bool
		if to, found = e.moves.on(j, ev.Pod, id); !found {
			err = fmt.Errorf("pod %d of job %s does not fit on node %s", ev.Pod, ev.Job, ev.Node)
		}
	}
	if err == nil {
		err = e.migrate(j, ev.Pod, to, Requested, "")
	}
	if err != nil {
		e.placer.Redraw(drawn)
	}
	return err
}

// migrate begins the move of a running pod to a place on another node, for a reason and, if
// room is not empty, to make room for that job. The next pass decides it. An error says why
// the pod cannot move there; then nothing has changed. It searches nothing: its cost is that
// of a look at one node.
func (e *Engine) migrate(j *job, pod int, to cluster.Alloc, why Reason, room string) error {
	if err := e.moves.movable(j, pod); err != nil {
		return err
	}
	m := &move{job: j, pod: pod, to: to, why: why, room: room}
	if err := e.moves.begin(m); err != nil {
		return err
	}
	e.changes.moveBegun(j)
	return nil
}

// After a move that failed, the engine moves no pod of the job for a while: what it failed for is
// probably still so, and the plan that needs it would be made again at once. The pause is
// doubled with each failure in a row.
const (
	firstMovePause = 60 * Second
	maxMovePause   = 3600 * Second
)

// mayMove reports whether the engine may move a pod of a job by itself.
func (ms *moves) mayMove(j *job, pod int) bool {
	p := &j.pods[pod]
	return ms.now >= j.stays && ms.couldMove(j, p)
}

// couldMove is mayMove whatever has failed before.
func (ms *moves) couldMove(j *job, p *pod) bool {
	return j.Mobility == Replaceable && !j.disruptionProtected && p.state == podRunning && p.move() == nil && p.standby() == nil
}

// movable is mayMove for people: it says why a pod must not be moved, nil if it may be.
func (ms *moves) movable(j *job, pod int) error {
	switch {
	case pod < 0 || pod >= len(j.pods):
		return fmt.Errorf("job %s has no pod %d", j.Name, pod)
	case j.Mobility != Replaceable:
		return fmt.Errorf("job %s: its pods must not be moved", j.Name)
	case j.disruptionProtected:
		return fmt.Errorf("job %s: its pods must not be moved now, it is protected from disruption", j.Name)
	case j.pods[pod].state != podRunning:
		return fmt.Errorf("pod %d of job %s is not running", pod, j.Name)
	case j.pods[pod].move() != nil:
		return fmt.Errorf("pod %d of job %s is being moved already", pod, j.Name)
	case j.packed():
		return fmt.Errorf("pod %d of job %s shares its GPUs with another job", pod, j.Name)
	case j.pods[pod].standby() != nil:
		return fmt.Errorf("pod %d of job %s is on standby", pod, j.Name)
	}
	return nil
}

// unit describes a running pod to the placer, as one that is to be placed on another node:
// of the same GPU model, if it takes GPUs, and within the domain that its job requires. It is
// asked about while the pod is lifted off its node.
func (ms *moves) unit(j *job, i int) *place.Unit {
	p := &j.pods[i]
	u := &place.Unit{
		Job: j.slot, Strategy: ms.policy.strategy(j), Inference: j.Kind == Inference, Exclusive: ms.policy.Zone.Exclusive,
		Required: levelOf(ms.state, j.Topology.Required), Preferred: -1, Spread: len(j.pods) > 1,
		Left: append(ms.nominations.leftBy(j), ms.state.Home(p.alloc.Node)),
	}
	if u.Required >= 0 {
		u.Joins, u.Home = true, ms.state.Domain(p.alloc.Node, u.Required)
	}
	for t := range j.Tasks {
		u.Tasks = append(u.Tasks, place.Task{Shape: ms.units.shape(j, &j.Tasks[t].Request)})
	}
	if ms.affinities.constrain(j) {
		u.Absent = ms.nominations.absent(j)
		ms.affinities.addTerms(j, u)
	}
	u.Tasks = u.Tasks[p.task : p.task+1]
	u.Tasks[0].Pods = []int32{int32(i)}
	if r := j.Tasks[p.task].Request; r.GPU > 0 {
		r.Speeds = nil
		r.Models = []string{ms.state.Pool(p.alloc.Node).Model}
		u.Tasks[0].Shape = ms.placer.Shape(&r)
	}
	return u
}

// lifted calls ask while a running pod is off its node, as a trial. The pod does not repel
// its own double.
func (ms *moves) lifted(j *job, i int, ask func(*place.Unit)) {
	u, mark := ms.unit(j, i), ms.state.Mark()
	ms.state.Remove(cluster.Owner{Job: j.slot, Pod: int32(i)}, j.pods[i].alloc.Node)
	ask(u)
	ms.state.Rollback(mark)
}

// best returns the place on another node that the job's strategy prefers for a running pod.
func (ms *moves) best(j *job, i int) (to cluster.Alloc, found bool) {
	ms.lifted(j, i, func(u *place.Unit) {
		if placed := ms.placer.Pods(u); len(placed) > 0 {
			to, found = placed[0].Alloc, true
		}
	})
	return to, found
}

// on returns a place for a running pod on a node, which is another than its own.
func (ms *moves) on(j *job, i int, node cluster.NodeID) (to cluster.Alloc, found bool) {
	ms.lifted(j, i, func(u *place.Unit) {
		if placed := ms.placer.PodOn(u, node); len(placed) > 0 {
			to, found = placed[0].Alloc, true
		}
	})
	return to, found
}

// begin holds the new place of a move, unless the pod does not fit there or a job for which
// others leave needs the pod where it is.
func (ms *moves) begin(m *move) error {
	fits := false
	ms.lifted(m.job, m.pod, func(u *place.Unit) { fits = ms.placer.Takes(u, m.to.Node) && ms.state.Holds(&m.to) })
	if !fits {
		return fmt.Errorf("pod %d of job %s does not fit on node %s", m.pod, m.job.Name, ms.state.Node(m.to.Node).Spec.Name)
	}
	ms.hold(m)
	if m.job.labelled() && !ms.nominations.upheld() {
		ms.letGo(m)
		return fmt.Errorf("pod %d of job %s is needed where it is, by a job that starts soon", m.pod, m.job.Name)
	}
	return nil
}

// hold keeps the new place for the double.
func (ms *moves) hold(m *move) {
	ms.state.Place(m.owner(), m.to)
	ms.state.Commit()
	ms.follow(m)
}

// follow puts a move on the list.
func (ms *moves) follow(m *move) {
	m.job.pods[m.pod].tied().move = m
	m.job.moving++
	if m.lead != nil {
		m.lead.outstanding++
	}
	ms.all = append(ms.all, m)
	ms.nominations.holdsChanged()
}

// letGo gives the new place up.
func (ms *moves) letGo(m *move) {
	if m.later {
		ms.state.Open(m.to.Node)
		m.later = false
		m.lead.later--
	} else {
		ms.state.Remove(m.owner(), m.to.Node)
		ms.state.Commit()
	}
	ms.forget(m)
}

// forget takes a move off the list. One of its places is free.
func (ms *moves) forget(m *move) {
	m.job.pods[m.pod].tied().move = nil
	m.job.moving--
	if m.lead != nil {
		m.lead.outstanding--
	}
	ms.all = slices.DeleteFunc(ms.all, func(o *move) bool { return o == m })
	ms.nominations.holdsChanged()
}

// abandon ends a move that leads nowhere. If the pod runs, it goes on where it is.
func (ms *moves) abandon(m *move) {
	ms.letGo(m)
	ms.over(m)
	if n := m.lead; n != nil && n.later == 0 {
		ms.nominations.settlePlaces(n) // it was the last one that kept the job from them
	}
}

// over says that the new place of a move, which was let go, is free.
func (ms *moves) over(m *move) {
	ms.nominations.settleNode(m.to.Node)
	ms.state.Commit()
	ms.changes.moveOver(m.job, m.to.Node)
}

// abandonOn ends the moves to a node, all or those that have not been decided yet.
func (ms *moves) abandonOn(node cluster.NodeID, undecided bool) {
	for _, m := range slices.Clone(ms.all) {
		if m.to.Node == node && !(undecided && m.told) && m.job.pods[m.pod].move() == m {
			ms.abandon(m)
			ms.giveUp(m.lead)
		}
	}
}

// tell decides the moves that were begun since the last pass. What has happened since may have
// made some wrong: they are checked again, and those are given up. Then the next waves begin.
func (ms *moves) tell() {
	for _, m := range slices.Clone(ms.all) {
		if m.told || m.later {
			continue
		}
		ms.working = m.job.Name
		ms.letGo(m)
		if ms.movable(m.job, m.pod) != nil || ms.begin(m) != nil {
			ms.over(m)
			continue
		}
		ms.decide(m)
	}
	for _, n := range ms.nominations.all {
		if n.later > 0 {
			ms.nextWave(n)
		}
	}
}

func (ms *moves) decide(m *move) {
	m.told = true
	from := len(ms.places)
	ms.places = append(ms.places, ms.placementAt(m.pod, &m.to))
	ms.out = append(ms.out, Decision{
		Op: Migrate, Job: m.job.Name, Pods: ms.places[from:len(ms.places):len(ms.places)], Reason: m.why, For: m.room,
	})
}

// underWay finds a move that has been decided and is not over.
func (e *Engine) underWay(name string, pod int) (*move, error) {
	j, err := e.job(name)
	if err != nil {
		return nil, err
	}
	if pod < 0 || pod >= len(j.pods) || j.pods[pod].move() == nil || !j.pods[pod].move().told {
		return nil, fmt.Errorf("pod %d of job %s is not being moved", pod, name)
	}
	return j.pods[pod].move(), nil
}

// podMoved records that a pod is at its new place, and there alone.
func (e *Engine) podMoved(now Time, ev PodMoved) error {
	m, err := e.underWay(ev.Job, ev.Pod)
	if err != nil {
		return err
	}
	j, p := m.job, &m.job.pods[m.pod]
	j.failedMoves = 0
	from := p.alloc.Node
	e.state.Remove(m.owner(), from)
	leaves := p.state == podLeaving // its gang broke since the last pass
	if !leaves {
		e.changes.podStopped(j, p)
	}
	p.alloc = m.to // on the same GPU model: quota stays as it is
	if !leaves {
		e.changes.podStarted(j, p)
	}
	e.moves.forget(m)
	e.nominations.settleNode(from)
	e.state.Commit()
	e.changes.moveOver(j, from)
	if j.Topology.Required != "" && !leaves {
		e.waiting.dequeue(j) // nodes may have changed their places meanwhile
		e.waiting.enqueue(j, now)
	}
	return nil
}

// moveFailed records that a pod stays where it is, for now.
func (e *Engine) moveFailed(now Time, ev MoveFailed) error {
	m, err := e.underWay(ev.Job, ev.Pod)
	if err != nil {
		return err
	}
	j := m.job
	j.stays = cluster.Plus(now, min(firstMovePause<<min(j.failedMoves, 20), maxMovePause))
	j.failedMoves++
	e.moves.abandon(m)
	e.moves.giveUp(m.lead)
	return nil
}
