package pause

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/muster-sched/muster/checkpoint"
)

// The model: a coordinator, some members, their processes, and a network that
// delivers each message never, once or often, at any later time. A world is a value
// of some bytes, and moves gives all that can happen in it. The machines are the real ones.

const (
	maxEpochs  = 9
	maxMembers = 3
	maxProcs   = 2
)

var (
	phases   = []checkpoint.Phase{checkpoint.Running, checkpoint.Gated, checkpoint.Saved, checkpoint.Checkpointed, gone}
	ops      = []Op{"", Pausing, Resuming}
	outcomes = []Outcome{Busy, Reached, Late, Open, Failed, Gone}
)

const (
	running = 0
	gated   = 1
	ended   = 4
)

// shape is how large a model is, and which faults it has.
type shape struct {
	members, procs int
	path           int // phases that the backend has: 3 or 4
	retries        int
	epochs         int  // no operation begins that may need more
	deaths         bool // processes may end
	calm           bool // no agent is killed, and no step fails for good
}

// disk is a State of some bytes, without the cause.
type disk struct {
	epoch, op   uint8
	goal        Goal
	try         uint8
	done, final bool
}

type world struct {
	now, stored disk
	sent        [maxEpochs]uint8 // by epoch: a bit for each goal
	nodes       [maxMembers]node
}

type node struct {
	reached bool // as the coordinator knows
	epoch   uint8
	goal    Goal
	fault   uint8
	procs   [maxProcs]process
	replies [maxEpochs]uint8 // by epoch: a bit for each outcome
}

type process struct {
	phase        uint8
	leased       bool
	done, inStep bool // as the member knows
	step         step
}

type step struct {
	epoch, from, to uint8
	keep, lease     bool
}

func (d disk) state() State {
	return State{Epoch: uint64(d.epoch), Op: ops[d.op], Goal: d.goal, Try: int(d.try), Done: d.done, Final: d.final}
}

func stored(s State) disk {
	return disk{uint8(s.Epoch), uint8(slices.Index(ops, s.Op)), s.Goal, uint8(s.Try), s.Done, s.Final}
}

// model is a shape with a variant of the machines.
type model struct {
	shape
	variant
}

// decide lets the coordinator do something, stores what it decided, and sends it.
func (m *model) decide(w *world, do func(*Coordinator) bool) bool {
	c := NewCoordinator(w.now.state(), m.members, m.retries)
	for i := range c.reached {
		c.reached[i] = w.nodes[i].reached
	}
	before := c.State
	changed := do(c)
	if changed && m.decided != nil {
		m.decided(c, before)
	}
	for i, r := range c.reached {
		w.nodes[i].reached = r
	}
	w.now = stored(c.State)
	if changed && (m.persists == nil || m.persists(c.State)) {
		w.stored = w.now
	}
	if changed {
		m.send(w)
	}
	return changed
}

func (m *model) send(w *world) {
	if w.now.goal != None && !w.now.done {
		w.sent[w.now.epoch] |= 1 << w.now.goal
	}
}

// member lets a member do something, and begins the steps that follow or sends its reply.
func (m *model) member(w *world, i int, do func(*Member) bool) {
	n := &w.nodes[i]
	mem := NewMember(MemberState{uint64(n.epoch), n.goal}, phases[:m.path], m.procs)
	mem.request.Lease, mem.fault = time.Second, outcomes[n.fault]
	observed := make([]checkpoint.Phase, m.procs)
	for p := range m.procs {
		mem.procs[p] = progress{n.procs[p].inStep, n.procs[p].done}
		observed[p] = phases[n.procs[p].phase]
	}
	if do(mem) {
		var steps []Step
		var end Outcome
		if m.next != nil {
			steps, end = m.next(mem, observed)
		} else {
			steps, end = mem.Next(observed)
		}
		for _, s := range steps {
			n.procs[s.Process].begin(s)
		}
		if end != Busy {
			n.replies[mem.Epoch] |= 1 << slices.Index(outcomes, end)
		}
	}
	n.epoch, n.goal, n.fault = uint8(mem.Epoch), mem.Goal, uint8(slices.Index(outcomes, mem.fault))
	for p := range m.procs {
		n.procs[p].inStep, n.procs[p].done = mem.procs[p].inStep, mem.procs[p].done
	}
}

// begin is what a step does at once: the gate closes, and the lease starts.
func (p *process) begin(s Step) {
	to := uint8(slices.Index(phases, s.To))
	if to == gated && p.phase == running {
		p.phase, p.leased = gated, s.Lease > 0
	} else if !s.Keep && to != running && to != p.phase {
		p.leased = s.Lease > 0
	}
	p.step = step{uint8(s.Epoch), p.phase, to, s.Keep, s.Lease > 0}
}

// finish is what a step did, and its outcome.
func (p *process) finish() Outcome {
	s := p.step
	switch {
	case p.phase == ended:
		return Gone
	case p.phase != s.from && p.phase != s.to: // its lease ran out
		return Late
	case s.keep:
		p.leased = false
	default:
		p.phase = s.to
		p.leased = p.leased && s.to != running
	}
	return Reached
}

// stop is the end of a step, as the member is told.
func (m *model) stop(w *world, i, p int, o Outcome) {
	proc := &w.nodes[i].procs[p]
	s := Step{Epoch: uint64(proc.step.epoch), Process: p, To: phases[proc.step.to], Keep: proc.step.keep}
	proc.step = step{}
	m.member(w, i, func(mem *Member) bool { mem.Ended(s, o); return s.Epoch == mem.Epoch || mem.fault == Busy })
}

// move is something that can happen.
type move struct {
	fault bool
	label func() string
	to    world
}

// moves gives all that can happen in a world, in a fixed order.
func (m *model) moves(w world) []move {
	var all []move
	add := func(fault bool, do func(*world), format string, a ...any) {
		next := w
		do(&next)
		m.forget(&next)
		if next != w {
			all = append(all, move{fault, func() string { return fmt.Sprintf(format, a...) }, next})
		}
	}
	for i := range m.members {
		m.movesOfMember(w, i, add)
		for e, bits := range w.nodes[i].replies {
			for o := range outcomes {
				if bits&(1<<o) != 0 {
					r := Reply{Epoch: uint64(e), Outcome: outcomes[o]}
					add(o != 1, func(n *world) { m.receive(n, i, r) }, "the coordinator receives of member %d: %s in epoch %d", i, r.Outcome, e)
				}
			}
		}
	}
	add(true, func(n *world) {
		n.now = n.stored
		for i := range n.nodes {
			n.nodes[i].reached = false
		}
		m.send(n)
	}, "the coordinator dies and is started again")
	step := func(fault bool, label string, do func(*Coordinator) bool) {
		add(fault, func(n *world) { m.decide(n, do) }, "%s", label)
	}
	step(true, "the coordinator runs out of time", func(c *Coordinator) bool { return c.Timeout(c.Epoch, "") })
	step(true, "the caller interrupts", (*Coordinator).Interrupt)
	step(false, "the coordinator tries again", (*Coordinator).Retry)
	op, needs := Pausing, 4*(m.retries+1)
	if w.now.state().Goal == Keep {
		op, needs = Resuming, 3
	}
	if s := w.now.state(); s.Ended() && int(w.now.epoch)+needs <= m.epochs {
		step(true, "the coordinator is asked for "+string(op), func(c *Coordinator) bool { return c.Begin(op) })
	}
	return all
}

func (m *model) receive(w *world, i int, r Reply) {
	if m.ignoresEpochOfReplies {
		r.Epoch = uint64(w.now.epoch)
	}
	m.decide(w, func(c *Coordinator) bool { return c.Receive(i, r) })
}

func (m *model) movesOfMember(w world, i int, add func(bool, func(*world), string, ...any)) {
	n := w.nodes[i]
	for e, bits := range w.sent {
		for g := None; g <= Release; g++ {
			if bits&(1<<g) != 0 {
				add(false, func(n *world) { m.request(n, i, e, g) }, "member %d receives: %s in epoch %d", i, g, e)
			}
		}
	}
	for p := range m.procs {
		proc := n.procs[p]
		if proc.inStep {
			what := fmt.Sprintf("process %d of member %d, on the way to %s,", p, i, phases[proc.step.to])
			add(false, func(n *world) { m.stop(n, i, p, n.nodes[i].procs[p].finish()) }, "%s ends the step", what)
			if !proc.step.keep {
				add(true, func(n *world) { m.stop(n, i, p, Late) }, "%s is late", what)
				if !m.calm {
					add(true, func(n *world) { m.stop(n, i, p, Failed) }, "%s fails", what)
				}
			}
		}
		if proc.leased {
			add(true, func(n *world) { n.nodes[i].procs[p].goOn() }, "the lease of process %d of member %d runs out", p, i)
		}
		if m.deaths && proc.phase != ended {
			add(true, func(n *world) { n.nodes[i].procs[p].phase, n.nodes[i].procs[p].leased = ended, false }, "process %d of member %d ends", p, i)
		}
	}
	if m.calm {
		return
	}
	for _, ends := range []bool{false, true} {
		add(true, func(n *world) { m.kill(&n.nodes[i], ends) }, "the agent of member %d is killed (what it began ends: %v)", i, ends)
	}
}

func (m *model) request(w *world, i, epoch int, g Goal) {
	m.member(w, i, func(mem *Member) bool {
		if m.ignoresEpochOfRequests {
			mem.MemberState = MemberState{}
		}
		return mem.Receive(Request{Epoch: uint64(epoch), Goal: g, Lease: time.Second})
	})
	if m.repliesAtOnce && w.nodes[i].epoch == uint8(epoch) {
		w.nodes[i].replies[epoch] |= 1 << 1
	}
}

func (p *process) goOn() { p.phase, p.leased = running, false }

// kill ends the agent. Its processes stay in their phases; what it began in them ends, or does not.
func (m *model) kill(n *node, ends bool) {
	for p := range m.procs {
		proc := &n.procs[p]
		if proc.inStep && ends {
			proc.finish()
		}
		proc.inStep, proc.done, proc.step = false, false, step{}
	}
	n.fault = 0
	if m.membersForget {
		n.epoch, n.goal = 0, None
	}
}

// forget drops what can no longer change anything, so that fewer worlds differ:
// replies to epochs that are over, and requests that all members refuse.
func (m *model) forget(w *world) {
	lowest := uint8(maxEpochs)
	for i := range m.members {
		n := &w.nodes[i]
		lowest = min(lowest, n.epoch)
		for e := range n.replies {
			if !m.ignoresEpochOfReplies && (e != int(w.now.epoch) || w.now.done) {
				n.replies[e] = 0
			}
		}
	}
	if !m.ignoresEpochOfRequests && !m.membersForget {
		clear(w.sent[:lowest])
	}
}

// canonical gives the one world of those that differ by the members' order only.
func (m *model) canonical(w world) world {
	slices.SortFunc(w.nodes[:m.members], func(a, b node) int { return bytes.Compare(a.bytes(), b.bytes()) })
	return w
}

func (n *node) bytes() []byte {
	bit := func(b bool) byte {
		if b {
			return 1
		}
		return 0
	}
	all := make([]byte, 0, 64)
	all = append(all, bit(n.reached), n.epoch, byte(n.goal), n.fault)
	for _, p := range n.procs {
		all = append(all, p.phase, bit(p.leased), bit(p.done), bit(p.inStep), p.step.epoch, p.step.from, p.step.to, bit(p.step.keep), bit(p.step.lease))
	}
	return append(all, n.replies[:]...)
}
