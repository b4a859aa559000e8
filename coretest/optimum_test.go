package coretest

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
)

// TestVictimsNearOptimum compares the work that SpotGPU's evictions lose with the least that any
// evictions lose which make room for the same job: the decision of ASI's Appendix A at one moment,
// for one HP job. The instances are so small that all sets of victims can be tried.
func TestVictimsNearOptimum(t *testing.T) {
	const nodes, gpus, instances = 5, 8, 300
	for _, c := range []struct {
		name       string
		pods, each int  // of the HP job
		gangs      bool // of LP jobs
		most       float64
	}{
		{"a pod", 1, 8, false, 1.01},
		{"a pod, LP gangs", 1, 8, true, 1.03},
		{"a gang of small pods", 6, 2, false, 1.2},
		{"a gang", 3, 8, false, 1.01},
		{"a gang, LP gangs", 3, 8, true, 1.05},
	} {
		t.Run(c.name, func(t *testing.T) {
			ours, best, missed := 0, 0, 0
			for seed := range uint64(instances) {
				x := newInstance(t, seed, nodes, gpus, c.gangs)
				got := x.evictFor(c.pods, c.each)
				least := x.least(c.pods, c.each)
				if got < least {
					t.Fatalf("seed %d: evictions lose %d GPU-seconds, the optimum %d: one of them is wrong", seed, got, least)
				}
				if got > least {
					missed++
				}
				ours, best = ours+got, best+least
			}
			t.Logf("%.3f times the optimum; more in %d of %d instances", float64(ours)/float64(best), missed, instances)
			if float64(ours) > c.most*float64(best) {
				t.Errorf("evictions lose %d GPU-seconds, at best %d", ours, best)
			}
		})
	}
}

// instance is a cluster full of LP jobs with costs.
type instance struct {
	*World
	victims []lpJob
	gpus    int
	free    []int // by node
}

// lpJob is what a job holds on each node, and the work that its eviction loses, in GPU-seconds.
type lpJob struct {
	name string
	held []int
	cost int
}

func newInstance(t *testing.T, seed uint64, nodes, gpus int, gangs bool) *instance {
	doc, _ := policy.ByName("SpotGPU")
	x := &instance{World: NewWorld(t, core.Config{Policy: doc.Policy, Levels: testLevels}), gpus: gpus}
	x.Must(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	at := map[string]int{}
	for i := range nodes {
		name := fmt.Sprint("n", i)
		at[name] = i
		x.Must(core.NodeAdded{Node: core.Node{Name: name, Model: "A", GPUs: gpus, Domains: []string{"z", "s", "l"}}})
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	left := make([]int, nodes)
	for i := range left {
		left[i] = gpus
	}
	for len(x.victims) < 14 {
		task := core.Task{Pods: 1}
		each := 1 + rng.IntN(4)
		if gangs && rng.IntN(2) == 0 {
			task.Pods = 2 + rng.IntN(2)
		}
		task.GPU = core.Milli(each) * core.WholeGPU
		v := lpJob{name: fmt.Sprint("lp", len(x.victims)), held: make([]int, nodes)}
		x.Must(core.JobSubmitted{Job: core.Job{Name: v.name, Queue: "q", Class: core.LP, Gang: true, Submitted: x.Now, Tasks: []core.Task{task}}})
		bound := 0
		for _, d := range x.Decide() {
			for _, p := range d.Pods {
				v.held[at[p.Node]] += bits.OnesCount64(p.GPUs)
				left[at[p.Node]] -= bits.OnesCount64(p.GPUs)
				bound++
			}
		}
		if bound == 0 {
			x.Must(core.JobEnded{Job: v.name})
			break
		}
		x.victims = append(x.victims, v)
	}
	x.free = left
	x.Now = 1000 * core.Second
	for i := range x.victims {
		saved := rng.IntN(900)
		x.Must(core.Checkpointed{Job: x.victims[i].name, At: core.Time(saved) * core.Second})
		for _, g := range x.victims[i].held {
			x.victims[i].cost += g * (1000 - saved)
		}
	}
	return x
}

// evictFor submits an HP gang and returns what the evictions for it lose.
func (x *instance) evictFor(pods, each int) int {
	task := core.Task{Pods: pods}
	task.GPU = core.Milli(each) * core.WholeGPU
	x.Must(core.JobSubmitted{Job: core.Job{Name: "hp", Queue: "q", Gang: true, Submitted: x.Now, Tasks: []core.Task{task}}})
	lost := 0
	for _, d := range x.Decide() {
		for i := range x.victims {
			if d.Op == core.Evict && x.victims[i].name == d.Job {
				lost += x.victims[i].cost
			}
		}
	}
	return lost
}

// least returns the least that any evictions lose which make room.
func (x *instance) least(pods, each int) int {
	best := -1
	for set := range 1 << len(x.victims) {
		cost, room := 0, 0
		for i := range x.victims {
			if set>>i&1 == 1 {
				cost += x.victims[i].cost
			}
		}
		if best >= 0 && cost >= best {
			continue
		}
		for n := range x.free {
			free := x.free[n]
			for i := range x.victims {
				if set>>i&1 == 1 {
					free += x.victims[i].held[n]
				}
			}
			room += free / each
		}
		if room >= pods {
			best = cost
		}
	}
	return best
}
