package coretest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
)

// pieces is a tiny cluster with free GPUs in pieces: what is free on each node, and pods of which some
// can move.
type pieces struct {
	free []some
	pods []piece
	gang []some // the pods of the job that waits
}

type piece struct {
	some
	node  int
	stays bool
}

// some is an amount of whole GPUs and cores.
type some struct{ gpus, cores int }

func (a some) plus(b some) some  { return some{a.gpus + b.gpus, a.cores + b.cores} }
func (a some) minus(b some) some { return some{a.gpus - b.gpus, a.cores - b.cores} }
func (a some) holds(b some) bool { return a.gpus >= b.gpus && a.cores >= b.cores }

// randomPieces draws a cluster in which the job has enough free GPUs by count, and does not fit. If
// several is set, no moves that are all made at the same time change that, and others do.
func randomPieces(rng *rand.Rand, several bool) *pieces {
	for {
		x := &pieces{}
		cores := rng.IntN(2) * 3 // of a pod, at most
		free := some{}
		for n := range 2 + rng.IntN(3) {
			x.free = append(x.free, some{2 + rng.IntN(3), 3 + rng.IntN(6)})
			for rng.IntN(4) > 0 && x.free[n].gpus > 0 && len(x.pods) < 7 {
				p := piece{some{1 + rng.IntN(min(3, x.free[n].gpus)), rng.IntN(cores + 1)}, n, rng.IntN(4) == 0}
				if x.free[n].holds(p.some) {
					x.free[n] = x.free[n].minus(p.some)
					x.pods = append(x.pods, p)
				}
			}
			free = free.plus(x.free[n])
		}
		need := some{}
		for range 1 + rng.IntN(2) {
			x.gang = append(x.gang, some{1 + rng.IntN(4), rng.IntN(cores + 1)})
			need = need.plus(x.gang[len(x.gang)-1])
		}
		if free.gpus >= need.gpus && !holds(x.free, x.gang) && (!several || !x.atOnce(0, x.free, x.free) && x.possible()) {
			return x
		}
	}
}

// holds reports whether pods fit on nodes.
func holds(free, gang []some) bool {
	if len(gang) == 0 {
		return true
	}
	for n := range free {
		if free[n].holds(gang[0]) {
			left := slices.Clone(free)
			left[n] = left[n].minus(gang[0])
			if holds(left, gang[1:]) {
				return true
			}
		}
	}
	return false
}

// possible reports whether there is a sequence of moves, each of which fits when it is made, after
// which the job fits: it tries all.
func (x *pieces) possible() bool {
	at := make([]int, len(x.pods))
	for i := range x.pods {
		at[i] = x.pods[i].node
	}
	seen := map[string]bool{fmt.Sprint(at): true}
	for todo := [][]int{at}; len(todo) > 0; {
		at, todo = todo[0], todo[1:]
		free := slices.Clone(x.free)
		for i, p := range x.pods {
			free[p.node] = free[p.node].plus(p.some)
			free[at[i]] = free[at[i]].minus(p.some)
		}
		if holds(free, x.gang) {
			return true
		}
		for i, p := range x.pods {
			for n := range free {
				if p.stays || n == at[i] || !free[n].holds(p.some) {
					continue
				}
				next := slices.Clone(at)
				next[i] = n
				if key := fmt.Sprint(next); !seen[key] {
					seen[key] = true
					todo = append(todo, next)
				}
			}
		}
	}
	return false
}

// atOnce reports whether the pods from the given one on can go somewhere, all at the same time while
// they hold their old places, so that the job fits. room is what is free before that, after what is free
// then.
func (x *pieces) atOnce(i int, room, after []some) bool {
	if i == len(x.pods) {
		return holds(after, x.gang)
	}
	p := x.pods[i]
	if x.atOnce(i+1, room, after) {
		return true
	}
	for n := range room {
		if p.stays || n == p.node || !room[n].holds(p.some) {
			continue
		}
		room, after := slices.Clone(room), slices.Clone(after)
		room[n], after[n], after[p.node] = room[n].minus(p.some), after[n].minus(p.some), after[p.node].plus(p.some)
		if x.atOnce(i+1, room, after) {
			return true
		}
	}
	return false
}

// world returns an engine with the pieces, to which the job was submitted.
func (x *pieces) world(t T, p core.Policy) *World {
	w := NewWorld(t, core.Config{Policy: p, Levels: testLevels})
	w.Must(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	has := slices.Clone(x.free)
	for _, p := range x.pods {
		has[p.node] = has[p.node].plus(p.some)
	}
	for n := range has {
		w.Must(core.NodeAdded{Node: core.Node{
			Name: fmt.Sprint("n", n), Model: "A", GPUs: has[n].gpus, CPUMilli: int64(has[n].cores) * 1000, MemMiB: 1000, Domains: []string{"z", "s", "l"},
		}})
	}
	task := func(name string, a some) core.Task {
		return core.Task{Name: name, Pods: 1, Request: core.Request{GPU: core.Milli(a.gpus) * core.WholeGPU, CPUMilli: int64(a.cores) * 1000}}
	}
	next := make([]int, len(has))
	for i, p := range x.pods {
		name := fmt.Sprint("p", i)
		w.Must(core.JobSubmitted{Job: core.Job{Name: name, Queue: "q", Locked: p.stays, Mobility: core.Replaceable, Tasks: []core.Task{task("", p.some)}}})
		ev := core.PodRunning{Job: name, Node: fmt.Sprint("n", p.node)}
		for range p.gpus {
			ev.GPUs = append(ev.GPUs, next[p.node])
			next[p.node]++
		}
		w.Must(ev)
	}
	j := core.Job{Name: "job", Queue: "q", Gang: true}
	for k, a := range x.gang {
		j.Tasks = append(j.Tasks, task(fmt.Sprint("t", k), a))
	}
	w.Must(core.JobSubmitted{Job: j})
	return w
}

// moving returns the names of the jobs of which a pod is being moved.
func (w *World) moving() (names []string) {
	for _, name := range w.Twin.Live() {
		if w.Twin.Moving(name) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// TestWaves compares the plans of moves for one job, in tiny clusters, with all sequences of moves
// that there are. A plan that is made must come to its end; and of the jobs for which there is a
// sequence, most must get a plan; nearly all, where only few need several waves.
func TestWaves(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, several := range []bool{false, true} {
		possible, atOnce, made := 0, 0, map[int]int{} // plans by their waves
		for range 1000 {
			x := randomPieces(rng, several)
			w := x.world(t, core.Policy{Room: core.Room{MaxMoves: 16}})
			w.Decide()
			waves := 0
			for names := w.moving(); len(names) > 0; names = w.moving() {
				waves++
				for _, i := range rng.Perm(len(names)) {
					w.Now += core.Second
					w.Must(core.PodMoved{Job: names[i]})
					w.Decide()
				}
			}
			_, runs, _ := w.Twin.Counts("job")
			is := x.possible()
			if (runs > 0) != (waves > 0) || waves > 0 && !is {
				w.fail(fmt.Errorf("after %d waves %d pods run; possible: %v", waves, runs, is))
			}
			if is {
				possible++
				made[waves]++
			}
			if x.atOnce(0, x.free, x.free) {
				atOnce++
			}
		}
		t.Logf("possible for %d, for %d of them in one wave; plans by waves: %v", possible, atOnce, made)
		least := 94
		if several {
			least = 65
		}
		if (possible-made[0])*100 < possible*least {
			t.Errorf("%d of %d plans that are possible were made, expected at least %d %%", possible-made[0], possible, least)
		}
	}
}

// TestWavesUpset plays random events to tiny clusters while plans of moves are carried out. The twin
// checks every decision.
func TestWavesUpset(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		x := randomPieces(rng, rng.IntN(4) > 0)
		p := core.Policy{
			Room:    core.Room{MaxMoves: 16, Restarts: rapid.Bool().Draw(rt, "restarts")},
			Preempt: core.Preempt{Priority: core.InCluster, Reclaim: true},
			Defrag:  core.Defrag{Every: 20 * core.Second},
		}
		s := &story{World: x.world(rt, p), rt: rt, nodes: len(x.free)}
		for _, q := range queueNames {
			s.setQueue(q)
		}
		s.Decide()
		for range 12 {
			if j, i, ok := s.somePod(moves); ok && !s.chance(3) {
				s.Now += core.Second
				s.Must(core.PodMoved{Job: j, Pod: i})
			} else {
				s.event()
			}
			s.Decide()
			s.CheckIdle()
		}
		s.CheckReplay()
	})
}
