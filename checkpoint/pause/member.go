package pause

import (
	"slices"

	"github.com/muster-sched/muster/checkpoint"
)

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
	path    []checkpoint.Phase // of the backend, from Running to paused
	request Request
	procs   []progress
	fault   Outcome // of a step of this attempt
}

type progress struct{ inStep, done bool }

// NewMember continues from s, for a number of processes that a backend moves on a path.
func NewMember(s MemberState, path []checkpoint.Phase, processes int) *Member {
	return &Member{MemberState: s, path: path, procs: make([]progress, processes)}
}

// end is the place on the path to which a goal leads. Gate ends there or further on:
// a process that is paused already stays so.
func (m *Member) end() int {
	switch m.Goal {
	case Gate, Restore:
		return 1
	case Save, Keep:
		return len(m.path) - 1
	}
	return 0
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
			switch at := slices.Index(m.path, phases[i]); {
			case at < 0:
				m.fault = Failed
			case at == 0 && m.Goal != Gate && m.Goal != Release:
				m.fault = Open
			default:
				steps = append(steps, m.step(i, at))
			}
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

// step is the next one of process i, which is at a place on the path.
//
// The lease follows the goal. Where it leads to Running, a process may go there by
// itself if the member dies on the way; on the way of a resume that may still fail, it
// must not.
func (m *Member) step(i, at int) Step {
	s := Step{Epoch: m.Epoch, Process: i, Lease: m.request.Lease}
	end := m.end()
	switch {
	case at < end:
		s.To = m.path[at+1]
	case at > end && m.Goal != Gate:
		s.To = m.path[at-1]
	default:
		s.To, s.Keep = m.path[at], m.Goal == Keep
	}
	if m.Goal == Keep || m.Goal == Restore {
		s.Lease = 0
	}
	return s
}

// Ended says how a step ended: Reached; Busy if the process is elsewhere, where a step
// begun before led it meanwhile, and is to be observed again; or what went wrong.
func (m *Member) Ended(s Step, o Outcome) {
	p := &m.procs[s.Process]
	p.inStep = false
	if s.Epoch != m.Epoch || o == Busy {
		return // begun for an earlier goal, or to be taken again
	}
	if o != Reached {
		m.fault = o
		return
	}
	at := slices.Index(m.path, s.To)
	p.done = (at == m.end() || m.Goal == Gate) && (m.Goal != Keep || s.Keep)
}
