package defrag

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// world is a cluster with pods, each a job of its own.
type world struct {
	state  *cluster.State
	placer *place.Placer
	pods   []worldPod
	unit   place.Unit
	task   [1]place.Task
	number [1]int32
}

type worldPod struct {
	request cluster.Request
	locked  bool
}

func newWorld() *world {
	s := cluster.New([]string{"leaf"})
	return &world{state: s, placer: place.NewPlacer(s)}
}

// node adds a node of a model with so many GPUs and cores.
func (w *world) node(gpus int, cores int64) cluster.NodeID { return w.nodeIn("a", gpus, cores) }

func (w *world) nodeIn(leaf string, gpus int, cores int64) cluster.NodeID {
	id, err := w.state.AddNode(cluster.NodeSpec{Name: fmt.Sprintf("n%d", w.state.Nodes()), Model: "H20", GPUs: gpus, CPUMilli: cores * 1000, MemMiB: 1 << 20, Domains: []string{leaf}})
	if err != nil {
		panic(err)
	}
	return id
}

// pod places a pod on a node, and reports whether it fits.
func (w *world) pod(on cluster.NodeID, gpu cluster.Milli, cores int64, locked bool) bool {
	w.pods = append(w.pods, worldPod{cluster.Request{GPU: gpu, CPUMilli: cores * 1000}, locked})
	u := w.Unit(cluster.Owner{Job: int32(len(w.pods) - 1)})
	if len(w.placer.PodOn(u, on)) == 0 {
		w.pods = w.pods[:len(w.pods)-1]
		return false
	}
	w.state.Commit()
	return true
}

func (w *world) Movable(o cluster.Owner) bool { return !w.pods[o.Job].locked }

func (w *world) Unit(o cluster.Owner) *place.Unit {
	w.task[0] = place.Task{Shape: w.placer.Shape(&w.pods[o.Job].request), Pods: w.number[:]}
	w.unit = place.Unit{Job: o.Job, Tasks: w.task[:], Required: -1, Preferred: -1}
	return &w.unit
}

// gang describes a waiting job, which must start whole.
func (w *world) gang(pods int, gpu cluster.Milli) *place.Unit {
	w.pods = append(w.pods, worldPod{request: cluster.Request{GPU: gpu, CPUMilli: 1000}})
	r := &w.pods[len(w.pods)-1].request
	numbers := make([]int32, pods)
	for i := range numbers {
		numbers[i] = int32(i)
	}
	return &place.Unit{Job: int32(len(w.pods) - 1), Whole: true, Required: -1, Preferred: -1, Tasks: []place.Task{{Shape: w.placer.Shape(r), Pods: numbers}}}
}

// where returns the node of each pod.
func (w *world) where() map[cluster.Owner]cluster.NodeID {
	at := map[cluster.Owner]cluster.NodeID{}
	for id := range cluster.NodeID(w.state.Nodes()) {
		for h := range w.state.Node(id).Pods {
			at[h.Owner] = id
		}
	}
	return at
}

// check carries a plan out, by its own count of what is free and not the state's, and
// reports what is wrong with it: a wave that does not fit while both places of each of its
// pods are held, a pod that is locked or not where the plan says, a node that is not empty.
func (w *world) check(t testing.TB, plan *Plan) {
	t.Helper()
	at := w.where()
	gpu, cpu := map[cluster.NodeID]cluster.Milli{}, map[cluster.NodeID]int64{}
	for o, id := range at {
		gpu[id] += w.pods[o.Job].request.GPU
		cpu[id] += w.pods[o.Job].request.CPUMilli
	}
	moved := map[cluster.Owner]bool{}
	for i := 0; i < len(plan.Moves); {
		end := i
		for ; end < len(plan.Moves) && plan.Moves[end].Wave == plan.Moves[i].Wave; end++ {
			m := plan.Moves[end]
			r := &w.pods[m.Pod.Job].request
			if w.pods[m.Pod.Job].locked || moved[m.Pod] || at[m.Pod] != m.From || m.From == m.To {
				t.Fatalf("move %+v: the pod is locked, moved before, or on %d", m, at[m.Pod])
			}
			moved[m.Pod] = true
			gpu[m.To] += r.GPU
			cpu[m.To] += r.CPUMilli
			if n := w.state.Node(m.To); gpu[m.To] > cluster.Milli(n.Spec.GPUs)*cluster.WholeGPU || cpu[m.To] > n.Spec.CPUMilli {
				t.Fatalf("wave %d: node %d holds %v GPUs and %d milli-cores", m.Wave, m.To, gpu[m.To].GPUs(), cpu[m.To])
			}
		}
		for ; i < end; i++ {
			m := plan.Moves[i]
			gpu[m.From] -= w.pods[m.Pod.Job].request.GPU
			cpu[m.From] -= w.pods[m.Pod.Job].request.CPUMilli
		}
	}
	for _, id := range plan.Vacated {
		if gpu[id] != 0 {
			t.Fatalf("node %d is vacated, and has %v GPUs in use", id, gpu[id].GPUs())
		}
	}
}

// random returns a cluster that has been in use for a while: pods of 1 to 8 GPUs on random
// nodes, with 4 to 16 cores a GPU, some of them locked.
func random(seed uint64, nodes int, load, locked float64) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	w := newWorld()
	for range nodes {
		w.node(8, 128)
	}
	target := cluster.Milli(load * float64(nodes) * 8000)
	for used, misses := cluster.Milli(0), 0; used < target && misses < 50*nodes; {
		g := []int64{1, 1, 1, 1, 2, 2, 4, 4, 8}[r.IntN(9)]
		cores := g * []int64{4, 8, 12, 16, 24}[r.IntN(5)]
		if !w.pod(cluster.NodeID(r.IntN(nodes)), cluster.Milli(g)*cluster.WholeGPU, cores, r.Float64() < locked) {
			misses++
			continue
		}
		used += cluster.Milli(g) * cluster.WholeGPU
	}
	return w
}

// TestFigure15 is the example of the paper: node 0 can be vacated by a chain of three moves
// alone.
func TestFigure15(t *testing.T) {
	w := newWorld()
	for range 4 {
		w.node(4, 64)
	}
	w.pod(0, 3000, 1, false) // Job-1, on a node by itself
	w.pod(1, 1000, 1, true)
	w.pod(1, 2000, 1, false) // Job-3
	w.pod(2, 2000, 1, true)
	w.pod(2, 1000, 1, false) // Job-7
	w.pod(3, 3000, 1, true)
	for depth, vacated := range map[int]int{1: 0, 2: 0, 3: 1} {
		plan := Consolidate(w.state, w.placer, w, Options{Depth: depth})
		if len(plan.Vacated) != vacated {
			t.Errorf("depth %d: vacates %v, expected %d nodes", depth, plan.Vacated, vacated)
		}
		w.check(t, &plan)
		if depth == 3 && (len(plan.Moves) != 3 || plan.Waves() != 3 || plan.SlackBefore != 4 || plan.SlackAfter != 0) {
			t.Errorf("expected three moves, one after another: %+v", plan)
		}
	}
}

// TestPlansFit carries out plans for random clusters.
func TestPlansFit(t *testing.T) {
	for seed := range uint64(200) {
		w := random(seed, 10+int(seed%30), 0.3+float64(seed%7)/10, 0.4)
		before := w.where()
		plan := Consolidate(w.state, w.placer, w, Options{Partition: 20})
		w.check(t, &plan)
		for o, id := range w.where() {
			if before[o] != id {
				t.Fatalf("seed %d: the state is another than before: pod %v is on node %d", seed, o, id)
			}
		}
	}
}

// TestRoomFits carries out plans that make room for gangs of random clusters.
func TestRoomFits(t *testing.T) {
	found := 0
	for seed := range uint64(200) {
		w := random(seed, 10+int(seed%30), 0.5+float64(seed%5)/10, 0.3)
		u := w.gang(1+int(seed%4), []cluster.Milli{4000, 8000}[seed%2])
		before := w.where()
		plan, ok := MakeRoom(w.state, w.placer, w, u, Options{})
		if w.check(t, &plan); ok && len(plan.Moves) > 0 {
			found++
		}
		for o, id := range w.where() {
			if before[o] != id {
				t.Fatalf("seed %d: the state is another than before: pod %v is on node %d", seed, o, id)
			}
		}
	}
	if found < 50 {
		t.Errorf("room was made in %d of 200 clusters: too few for the test to tell", found)
	}
}

// TestRoomForOneTask: of a job that starts pod by pod, only the small pods wait; and a plan keeps
// to the most moves that it may have.
func TestRoomForOneTask(t *testing.T) {
	w := newWorld()
	for range 2 {
		w.pod(w.node(4, 64), 2000, 1, false)
	}
	u := w.gang(1, 4000)
	small := u.Tasks[0]
	u.Tasks[0].Shape, u.Tasks[0].Pods = w.placer.Shape(&cluster.Request{GPU: 8000}), nil
	u.Tasks, u.Whole = append(u.Tasks, small), false
	if plan, ok := MakeRoom(w.state, w.placer, w, u, Options{}); !ok || len(plan.Moves) != 1 {
		t.Errorf("found a way: %v, %+v; expected one move", ok, plan.Moves)
	}
	both := w.gang(2, 3000)
	w.pod(w.node(4, 64), 2000, 1, false)
	w.pod(w.node(4, 64), 2000, 1, false)
	if plan, ok := MakeRoom(w.state, w.placer, w, both, Options{}); !ok || len(plan.Moves) != 2 {
		t.Errorf("found a way: %v, %+v; expected two moves", ok, plan.Moves)
	}
	if plan, ok := MakeRoom(w.state, w.placer, w, both, Options{MaxMoves: 1}); ok {
		t.Errorf("found %+v, more moves than one", plan.Moves)
	}
}

// TestMakeRoom: the room is there, in pieces.
func TestMakeRoom(t *testing.T) {
	for _, c := range []struct {
		name   string
		cells  string // GPUs used on each node of 4, a pod each digit; capital letters are locked: A is 1, B 2...
		pods   int
		gpus   cluster.Milli
		moves  int // -1: there is no way
		leaves bool
		gpu    cluster.Milli // that moves; 0 if it does not matter
	}{
		{"one node of two", "2 2", 1, 4000, 1, false, 0},
		{"the smaller pod moves", "3 1 A", 1, 4000, 1, false, 0},
		{"a locked pod stays", "C A", 1, 4000, -1, false, 0},
		{"a chain of two", "B1 2A 2", 1, 4000, 2, false, 0},
		{"a gang", "1 1 1 1 1", 4, 4000, -1, false, 0},
		{"a gang of what four nodes leave", "1 1 1 1", 3, 4000, 3, false, 0},
		{"in a leaf, a pod goes to the other", "4 1 . 4", 1, 4000, 0, false, 0},
		{"both nodes of a leaf", "1 1 3 3", 2, 4000, 2, true, 0},
		{"the leaf in which less moves", "2 2 1 1 . .", 2, 4000, 0, true, 0},
		{"only those that are in the way leave", "112 B C", 1, 3000, 2, false, 3000},
		{"the leaf in which the smaller pod moves", "2 2 1 C", 1, 4000, 1, true, 1000},
		{"no leaf", "C C 3 3", 2, 4000, -1, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			leaf := 0
			for i, cell := range strings.Fields(c.cells) {
				if i%2 == 0 {
					leaf++
				}
				id := w.nodeIn(fmt.Sprintf("leaf%d", leaf), 4, 64)
				for _, x := range strings.Trim(cell, ".") {
					gpus, locked := cluster.Milli(x-'0'), false
					if x >= 'A' {
						gpus, locked = cluster.Milli(x-'A'+1), true
					}
					if !w.pod(id, gpus*cluster.WholeGPU, 1, locked) {
						t.Fatalf("pod %c does not fit", x)
					}
				}
			}
			u := w.gang(c.pods, c.gpus)
			if c.leaves {
				u.Required = 0
			}
			plan, ok := MakeRoom(w.state, w.placer, w, u, Options{})
			switch w.check(t, &plan); {
			case ok != (c.moves >= 0):
				t.Errorf("found a way: %v; expected %v", ok, c.moves >= 0)
			case ok && len(plan.Moves) != c.moves:
				t.Errorf("%d moves, expected %d: %+v", len(plan.Moves), c.moves, plan.Moves)
			case c.gpu > 0 && plan.GPU() != c.gpu:
				t.Errorf("%s GPUs move, expected %s: %+v", plan.GPU().GPUs(), c.gpu.GPUs(), plan.Moves)
			}
		})
	}
}

// TestWavesEnd: moves to one node keep their order. The pod of b fits on x at once. If it went
// first, the pod of a would no longer fit when p has left, nor that of x on a.
func TestWavesEnd(t *testing.T) {
	w := newWorld()
	x, a, b, y := w.node(4, 64), w.node(2, 64), w.node(1, 64), w.node(1, 64)
	w.pod(x, 1000, 1, false)
	w.pod(x, 2000, 1, false)
	w.pod(a, 2000, 1, false)
	w.pod(b, 1000, 1, false)
	p := newPlanner(w.state, w.placer, w, Options{})
	moves := p.inWaves([]Move{
		{Pod: cluster.Owner{Job: 0}, From: x, To: y},
		{Pod: cluster.Owner{Job: 2}, From: a, To: x},
		{Pod: cluster.Owner{Job: 1}, From: x, To: a},
		{Pod: cluster.Owner{Job: 3}, From: b, To: x},
	})
	w.state.Rollback(0)
	if len(moves) != 4 {
		t.Errorf("%d of 4 moves are made: %+v", len(moves), moves)
	}
}
