package pipeline

import (
	"slices"

	"github.com/muster-sched/muster/disagg/monitor"
)

// What the monitor observes, and how its decisions are carried out: each request goes on under the plan
// that it has until the workers have agreed on the other, and changes after the iteration in which they have. How many
// requests may run, and the plan that one begins with, change at once: there is nothing to agree on. No request stops: iterations
// of different requests depend on nothing of each other, so some may run under one plan while others run under the other, as
// they always do under a policy that gives plans by order. With a barrier, as in the paper (§III-D), all requests end their
// iterations, the workers stall to agree, and the requests go on under the other plan. Caches are on every GPU, as the paper keeps
// them; what that costs is not simulated.

// presence brings the time that requests spent in the system up to date. It is called before
// their number changes.
func (s *simulation) presence() {
	s.present += (s.now - s.presentAt) * Time(s.arrived-s.ended)
	s.presentAt = s.now
}

// underway counts what kernels and transfers that have not ended did in this window.
func (s *simulation) underway() {
	for g := range s.gpus {
		s.gpus[g].advance(s.now)
		for _, l := range s.gpus[g].resident {
			done := s.prog.work[l.kernel][g] - Time((max(0, l.left)+parts-1)/parts)
			s.executed += done - l.counted
			l.counted = done
		}
		if t := s.ports[g].carrying; t != nil && !s.spec.Problem.Edges[t.edge].Next {
			s.executed += s.now - t.start - t.counts
			t.counts = s.now - t.start
		}
	}
}

// window ends a window of the monitor, and begins a switch if it says so. Windows that end during a switch do not
// count: requests wait for the switch then, which says nothing about the load, and would lead to the next one.
func (s *simulation) window() {
	measured := s.measured()
	s.schedule(s.now+s.spec.Monitor.Window, windowEnds, 0)
	if s.target >= 0 {
		return
	}
	if chosen := s.watch.Close(measured); int(chosen) != s.policy {
		s.target = int(chosen)
		s.result.Switches = append(s.result.Switches, Switch{Decided: s.now, Policy: s.target})
		if s.spec.Monitor.Barrier {
			s.drained()
		} else {
			s.stall()
			s.review(s.now + s.spec.Monitor.Stall)
		}
	}
}

// measured returns what the window came to so far, and begins a new one.
func (s *simulation) measured() monitor.Window {
	s.presence()
	s.underway()
	w := monitor.Window{Present: s.present, Executed: s.executed}
	s.present, s.executed = 0, 0
	return w
}

// atBarrier reports whether no iteration may start, as policies are being switched.
func (s *simulation) atBarrier() bool { return s.target >= 0 && s.spec.Monitor.Barrier }

// drained begins the stall of a switch with a barrier once no iteration is under way.
func (s *simulation) drained() {
	if last := len(s.result.Switches) - 1; s.atBarrier() && s.launched == 0 && s.result.Switches[last].Resumed == 0 {
		s.stall()
	}
}

// stall lets the workers agree on the switch that was decided last.
func (s *simulation) stall() {
	resumed := s.now + s.spec.Monitor.Stall
	s.result.Switches[len(s.result.Switches)-1].Resumed = resumed
	s.schedule(resumed, resumes, 0)
}

// resume puts the new policy in force.
func (s *simulation) resume() {
	last := &s.result.Switches[len(s.result.Switches)-1]
	if s.atBarrier() && (len(s.active) > 0 || s.waiting < s.arrived) {
		s.result.Stalled += s.now - last.Decided
	}
	s.policy, s.target = s.target, -1
	s.review(s.now)
	s.measured() // not counted: it is of the switch
	held := s.held
	s.held = nil
	for _, r := range held {
		s.iterate(r)
	}
}

// chosen is the policy that was decided for last; with a barrier it is that in force.
func (s *simulation) chosen() int {
	if s.target >= 0 && !s.spec.Monitor.Barrier {
		return s.target
	}
	return s.policy
}

// wanted is what a request in progress is to run under.
func (s *simulation) wanted(r *request) place {
	policy := s.chosen()
	if p := &s.spec.Policies[policy]; p.ByOrder {
		return place{policy, min(slices.Index(s.active, r), len(p.Plans)-1)}
	}
	return place{policy, -1}
}

// review brings up to date what each request in progress wants; the workers will have agreed on what changes by then.
func (s *simulation) review(agreed Time) {
	for _, r := range s.active {
		if wanted := s.wanted(r); wanted != r.wants {
			r.wants, r.agreed = wanted, agreed
		}
	}
}

// remaining is the work that is left of a request on its plan.
func (s *simulation) remaining(r *request) (sum Time) {
	for phase := r.phase; phase < len(r.runs); phase++ {
		sum += Time(r.runs[phase]) * r.route.seconds[phase]
	}
	return sum - Time(r.iteration)*r.route.seconds[r.phase]
}
