package pause

import "github.com/muster-sched/muster/checkpoint"

// MemberState is what a member must not forget: the newest decision that it
// obeys. It is stored before the first step under that decision.
//
// A member that forgets it may obey a delayed Keep of an earlier try, and the
// process that it keeps then waits without a lease for a pause that was given up.
type MemberState struct {
	Epoch uint64 `json:"epoch"`
	Goal  Goal   `json:"goal"`
}

// gone is the observed phase of a process that has ended.
const gone checkpoint.Phase = ""

// Member leads the processes of one node to the newest goal. What phases they are
// in it does not know: they go on by themselves, and are observed before each step.
type Member struct {
	MemberState
	request Request
	procs   []progress
	fault   Outcome // of a step of this attempt
}

type progress struct{ inStep, done bool }

// NewMember continues from s, for a number of processes.
func NewMember(s MemberState, processes int) *Member {
	return &Member{MemberState: s, procs: make([]progress, processes)}
}

// Receive takes a request, and reports whether the member obeys it. The caller
// stores MemberState, if it has changed, before it calls Next.
func (m *Member) Receive(r Request) bool {
	if r.Epoch < m.Epoch || r.Epoch == m.Epoch && r.Goal != m.Goal {
		return false
	}
	if r.Epoch > m.Epoch {
		for i := range m.procs {
			m.procs[i].done = false
		}
	}
	m.MemberState, m.request, m.fault = MemberState{r.Epoch, r.Goal}, r, Busy
	return true
}

// Next gives the steps to begin now, for the observed phases of all processes, or
// how the attempt ended. With neither, steps are under way: Ended comes first.
//
// A process is where it should be only when a step has confirmed it: what is
// observed may be about to change, by what a member before began.
func (m *Member) Next(phases []checkpoint.Phase) ([]Step, Outcome) {
	var steps []Step
	inStep, end := false, Reached
	for i, p := range m.procs {
		switch {
		case p.inStep:
			inStep = true
		case phases[i] == gone:
			end = Gone
		case !p.done:
			if phases[i] == checkpoint.Running && m.Goal != Gate && m.Goal != Release {
				m.fault = Open
				continue
			}
			steps = append(steps, m.step(i, phases[i]))
		}
	}
	switch {
	case m.fault != Busy && inStep:
		return nil, Busy
	case m.fault != Busy:
		return nil, m.fault
	case inStep || len(steps) > 0:
		for _, s := range steps {
			m.procs[s.Process].inStep = true
		}
		return steps, Busy
	}
	return nil, end
}

// step is the next one of process i, which is in a phase.
//
// The lease follows the goal. Where it leads to Running, a process may go there by
// itself if the member dies on the way; on the way of a resume that may still fail, it
// must not.
func (m *Member) step(i int, from checkpoint.Phase) Step {
	s := Step{Epoch: m.Epoch, Process: i, To: from, Lease: m.request.Lease}
	switch {
	case m.Goal == Gate && from == checkpoint.Running:
		s.To = checkpoint.Gated
	case m.Goal == Save:
		s.To = checkpoint.Saved
	case m.Goal == Keep:
		s.To, s.Lease, s.Keep = checkpoint.Saved, 0, from == checkpoint.Saved
	case m.Goal == Restore:
		s.To, s.Lease = checkpoint.Gated, 0
	case m.Goal == Release && from == checkpoint.Saved:
		s.To = checkpoint.Gated
	case m.Goal == Release:
		s.To = checkpoint.Running
	}
	return s
}

// Ended says how a step ended: Reached, or what went wrong.
func (m *Member) Ended(s Step, o Outcome) {
	p := &m.procs[s.Process]
	p.inStep = false
	if s.Epoch != m.Epoch {
		return // begun for an earlier goal
	}
	if o != Reached {
		m.fault = o
		return
	}
	switch m.Goal {
	case Keep:
		p.done = s.Keep
	case Release:
		p.done = s.To == checkpoint.Running
	default:
		p.done = true
	}
}
