package pause

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// invariant is something that holds in all worlds.
type invariant struct {
	name   string
	broken string                                         // what a user would see
	holds  func(w *world, all []process, last uint8) bool // last: in which a process is paused
}

var invariants = []invariant{
	{
		"LeaseUntilDecided",
		"the scheduler dies during a pause, and the processes of some nodes wait at their gates until a user resumes them by hand",
		func(w *world, all []process, last uint8) bool {
			undecided := w.stored.state().Op == Pausing && (w.stored.goal == Gate || w.stored.goal == Save)
			return !undecided || none(all, func(p process) bool { return p.phase != running && p.phase != ended && !p.leased })
		},
	},
	{
		"KeepAfterAllSaved",
		"some ranks are paused without a lease, while one that waits for them in a collective can never be saved",
		func(w *world, all []process, last uint8) bool {
			return w.stored.state().Op != Pausing || w.stored.goal != Keep || none(all, func(p process) bool { return p.phase != running && p.phase < last })
		},
	},
	{
		"ReportIsTrue",
		"the job is reported as paused and its GPUs are given away, but a process still computes on them; or it is reported as running and one rank is paused",
		func(w *world, all []process, last uint8) bool {
			switch {
			case !w.now.done:
				return true
			case w.now.goal == Keep:
				return none(all, func(p process) bool { return p.phase != ended && (p.phase != last || p.leased) })
			}
			return none(all, func(p process) bool { return p.phase != ended && p.phase != running })
		},
	},
	{
		"ResumeTogether",
		"a rank goes on and communicates, while another one has no room on its GPU and stays paused",
		func(w *world, all []process, last uint8) bool {
			return w.stored.state().Op != Resuming || w.stored.goal == None ||
				none(all, func(p process) bool { return p.phase == running }) || none(all, func(p process) bool { return p.phase > gated && p.phase != ended })
		},
	},
}

func none(all []process, is func(process) bool) bool {
	for _, p := range all {
		if is(p) {
			return false
		}
	}
	return true
}

func (m *model) processes(w *world) []process {
	all := make([]process, 0, maxMembers*maxProcs)
	for i := range m.members {
		all = append(all, w.nodes[i].procs[:m.procs]...)
	}
	return all
}

// counterexample is how a world was reached in which something does not hold.
type counterexample struct {
	name, broken string
	trace        []string
}

func (c *counterexample) String() string {
	return fmt.Sprintf("%s: %s\n  %s", c.name, c.broken, strings.Join(c.trace, "\n  "))
}

// explore goes through all worlds that can be reached, nearest first, at most
// limit of them. It returns their number, and the first counterexample.
func (m *model) explore(limit int) (int, *counterexample) {
	start := m.canonical(world{})
	from := map[world]world{start: start}
	settled := map[world]bool{}
	level := []world{start}
	for len(level) > 0 && len(from) < limit {
		var next []world
		for _, w := range level {
			for _, mv := range m.moves(w) {
				to := m.canonical(mv.to)
				if _, known := from[to]; known {
					continue
				}
				from[to] = w
				next = append(next, to)
				name, broken := m.check(&to)
				if name == "" {
					if why := m.settles(to, settled); why != "" {
						name, broken = "Settles", "a job whose nodes and network are all well again hangs: "+why
					}
				}
				if name != "" {
					return len(from), &counterexample{name, broken, m.trace(from, start, to)}
				}
			}
		}
		level = next
	}
	return len(from), nil
}

func (m *model) check(w *world) (name, broken string) {
	all := m.processes(w)
	for _, i := range invariants {
		if !i.holds(w, all, uint8(m.path-1)) {
			return i.name, i.broken
		}
	}
	return "", ""
}

// settles lets things go well from here on: messages arrive, steps succeed. It says
// what is wrong unless the coordinator soon reports that the job runs or is paused.
func (m *model) settles(w world, known map[world]bool) string {
	var path []world
	for range 300 {
		if known[w] {
			break
		}
		path = append(path, w)
		if s := w.now.state(); s.Ended() {
			break // whether it says the truth is an invariant
		}
		next := m.forward(w)
		if next == w {
			return "nothing happens any more"
		}
		w = next
		if len(path) == 300 {
			return "it goes round in circles"
		}
	}
	for _, w := range path {
		known[w] = true
	}
	return ""
}

// forward is the next thing of a run in which nothing fails.
func (m *model) forward(w world) world {
	m.send(&w)
	w = m.canonical(w)
	for i := range m.members {
		for p := range m.procs {
			if w.nodes[i].procs[p].inStep {
				m.stop(&w, i, p, w.nodes[i].procs[p].finish())
				m.forget(&w)
				return m.canonical(w)
			}
		}
	}
	before := w
	try := func(do func()) bool {
		do()
		m.forget(&w)
		w = m.canonical(w)
		return w != before
	}
	if try(func() { m.decide(&w, (*Coordinator).Retry) }) {
		return w
	}
	for _, o := range []Outcome{Reached, Gone, "", Open, Failed, Late} { // "": the request arrives (again)
		for i := range m.members {
			n := &w.nodes[i]
			if n.reached {
				continue
			}
			if o == "" && try(func() { m.request(&w, i, int(w.now.epoch), w.now.goal) }) {
				return w
			}
			for b := range outcomes {
				if o != "" && outcomes[b] == o && n.replies[w.now.epoch]&(1<<b) != 0 && try(func() { m.receive(&w, i, Reply{Epoch: uint64(w.now.epoch), Outcome: o}) }) {
					return w
				}
			}
		}
	}
	return w
}

// trace names what happened between two worlds. The members keep their numbers on the way.
func (m *model) trace(from map[world]world, start, end world) []string {
	path := []world{end}
	for w := end; w != start; w = from[w] {
		path = append(path, from[w])
	}
	w, lines := start, []string(nil)
	for i := len(path) - 2; i >= 0; i-- {
		for _, mv := range m.moves(w) {
			if m.canonical(mv.to) == path[i] {
				lines, w = append(lines, mv.label()), mv.to
				break
			}
		}
	}
	return append(lines, "then: "+m.describe(&w))
}

func (m *model) describe(w *world) string {
	text := fmt.Sprintf("the coordinator has %s in epoch %d (done: %v)", w.now.goal, w.now.epoch, w.now.done)
	for i := range m.members {
		for p := range m.procs {
			proc := w.nodes[i].procs[p]
			phase := phases[proc.phase]
			if proc.phase == ended {
				phase = "ended"
			}
			lease := ""
			if proc.leased {
				lease = " under a lease"
			}
			text += fmt.Sprintf("; process %d of member %d is %s%s", p, i, phase, lease)
		}
	}
	return text
}

// No reachable world breaks an invariant, and from each one the job comes to rest as a whole.
func TestExplore(t *testing.T) {
	shapes := []shape{
		{members: 2, procs: 1, path: 3, retries: 1, epochs: 8},
		{members: 2, procs: 1, path: 3, retries: 0, epochs: 6, deaths: true},
		{members: 3, procs: 1, path: 3, retries: 0, epochs: 4, calm: true},
		{members: 2, procs: 1, path: 4, retries: 0, epochs: 6, calm: true},
	}
	if os.Getenv("MUSTER_FULL") != "" {
		shapes = append(shapes,
			shape{members: 2, procs: 1, path: 3, retries: 1, epochs: 8, deaths: true},
			shape{members: 2, procs: 1, path: 4, retries: 1, epochs: 8},
			shape{members: 2, procs: 2, path: 3, retries: 0, epochs: 6, calm: true},
			shape{members: 3, procs: 1, path: 3, retries: 1, epochs: 8, calm: true},
			shape{members: 3, procs: 1, path: 3, retries: 0, epochs: 6},
		)
	}
	for _, s := range shapes {
		m := &model{shape: s}
		start := time.Now()
		n, found := m.explore(20_000_000)
		t.Logf("%+v: %d worlds in %v", s, n, time.Since(start).Round(time.Millisecond))
		if found != nil {
			t.Errorf("%v", found)
		}
	}
}
