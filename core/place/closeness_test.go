package place

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-sched/muster/core/cluster"
)

// TestCloseness compares the cost at which a gang of whole-node pods is placed with that of every
// way to place it on a small cluster.
func TestCloseness(t *testing.T) {
	weighed := 0 // cases in which the fastest is not the cheapest
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		up := rng.IntN
		s := cluster.New([]string{"spine", "leaf"})
		// Mostly one model in a leaf group, so that the fast models of two tasks are apart.
		model := [4]int{up(3), up(3), up(3), up(3)}
		for range 2 + up(6) {
			leaf := up(4)
			if up(8) == 0 {
				model[leaf] = up(3)
			}
			_, err := s.AddNode(cluster.NodeSpec{
				Name: fmt.Sprint("n", s.Nodes()), Model: string(rune('A' + model[leaf])), GPUs: 8,
				Domains: []string{fmt.Sprint("s", leaf/2), fmt.Sprint("l", leaf)},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		p := NewPlacer(s)
		u := &Unit{Strategy: []Strategy{EBinpack, Spread, Value}[up(3)], Whole: true, Required: -1, Preferred: -1, Closeness: int64(1 + up(400))}
		var of []int // the task of each pod
		for k := range 1 + up(3) {
			r := &cluster.Request{GPU: 8 * cluster.WholeGPU}
			for m := range 3 {
				if up(4) > 0 {
					r.Models = append(r.Models, string(rune('A'+m)))
					r.Speeds = append(r.Speeds, int64(700+50*up(8)))
				}
			}
			if len(r.Models) == 0 {
				r.Models, r.Speeds = []string{"A"}, nil
			}
			task := Task{Shape: p.Shape(r)}
			for range 1 + up(2) {
				task.Pods = append(task.Pods, int32(len(of)))
				of = append(of, k)
			}
			u.Tasks = append(u.Tasks, task)
		}
		if len(of) == 1 {
			continue // goes where a single pod goes
		}

		costAt := func(at []cluster.NodeID) cost {
			slowest, apart := int64(1<<40), 0
			for i, id := range at {
				slowest = min(slowest, u.Tasks[of[i]].request.SpeedOn(s.Node(id).Spec.Model))
				for _, other := range at[:i] {
					switch {
					case s.Domain(id, 0) != s.Domain(other, 0):
						apart = max(apart, 2)
					case s.Domain(id, 1) != s.Domain(other, 1):
						apart = max(apart, 1)
					}
				}
			}
			return cost{1000 + u.Closeness*int64(apart), slowest}
		}
		// 1. Every way to put the pods on nodes, the pods of a task on one model or, if that is
		// impossible, on several.
		var best [2]*cost
		fastest := int64(0)
		at := make([]cluster.NodeID, 0, len(of))
		var from func(mixed int)
		from = func(mixed int) {
			if len(at) == len(of) {
				c := costAt(at)
				if mixed == 0 {
					fastest = max(fastest, c.speed)
				}
				if best[mixed] == nil || c.compare(*best[mixed]) < 0 {
					best[mixed] = &c
				}
				return
			}
			i := len(at)
			for id := range cluster.NodeID(s.Nodes()) {
				model := s.Node(id).Spec.Model
				if slices.Contains(at, id) || !slices.Contains(u.Tasks[of[i]].Models(), model) {
					continue
				}
				mix := mixed
				if i > 0 && of[i-1] == of[i] && s.Node(at[i-1]).Spec.Model != model {
					mix = 1
				}
				at = append(at, id)
				from(mix)
				at = at[:i]
			}
		}
		from(0)

		// 2. The placer's.
		placed, ok := p.Gang(u)
		if ok != (best[0] != nil || best[1] != nil) {
			t.Fatalf("seed %d: placed: %v, possible on one model a task: %v, mixed: %v", seed, ok, best[0] != nil, best[1] != nil)
		}
		if best[0] == nil {
			continue
		}
		if best[0].speed < fastest {
			weighed++
		}
		got := make([]cluster.NodeID, len(of))
		for i := range placed {
			got[placed[i].Pod] = placed[i].Alloc.Node
		}
		if c := costAt(got); c.compare(*best[0]) != 0 {
			t.Fatalf("seed %d: %v at cost %v, best is %v", seed, got, c, *best[0])
		}
	}
	if weighed < 100 {
		t.Errorf("distance decided only %d cases", weighed)
	}
}

// TestAssignmentsBounded: tasks with too many models do without the slowest.
func TestAssignmentsBounded(t *testing.T) {
	s := cluster.New(nil)
	var models []string
	var speeds []int64
	for m := range 4 {
		models, speeds = append(models, fmt.Sprint("m", m)), append(speeds, int64(1000-100*m))
		if _, err := s.AddNode(cluster.NodeSpec{Name: fmt.Sprint("n", m), Model: models[m], GPUs: 8}); err != nil {
			t.Fatal(err)
		}
	}
	p := NewPlacer(s)
	u := &Unit{}
	for k := range 4 {
		u.Tasks = append(u.Tasks, Task{Shape: p.Shape(&cluster.Request{GPU: 1000, Models: models, Speeds: speeds}), Pods: []int32{int32(k)}})
	}
	all := u.assignments()
	if len(all) > maxAssignments || !slices.Equal(all[0], []string{"m0", "m0", "m0", "m0"}) || slices.ContainsFunc(all, func(a []string) bool { return slices.Contains(a, "m3") }) {
		t.Errorf("%d assignments, the first is %v", len(all), all[0])
	}
	// Of equally slow models, the last task does without its own first.
	for k := range 4 {
		if has := slices.ContainsFunc(all, func(a []string) bool { return a[k] == "m2" }); has != (k < 3) {
			t.Errorf("task %d is tried on m2: %v", k, has)
		}
	}
}
