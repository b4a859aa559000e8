package coretest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
)

// TestSpotMakesRoom fills a cluster that is too large for every search to look at
// all of it with LP pods of one GPU each. HP jobs of many shapes come: each gets
// its room, by the eviction of just as many pods as it has GPUs.
func TestSpotMakesRoom(t *testing.T) {
	const nodes, gpus, leaf = 48, 8, 8
	for seed := range uint64(4) {
		doc, _ := policy.ByName("default")
		doc.Policy.Preempt.MinRuntime = 0
		w := NewWorld(t, core.Config{Policy: doc.Policy, Levels: testLevels})
		w.Must(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
		for i := range nodes {
			w.Must(core.NodeAdded{Node: core.Node{
				Name: fmt.Sprintf("n%02d", i), Model: "A", GPUs: gpus, Domains: []string{"z", "s", fmt.Sprint("l", i/leaf)},
			}})
		}
		submit := func(j core.Job, pods, gpus int) {
			task := core.Task{Pods: pods}
			task.GPU = core.Milli(gpus) * core.WholeGPU
			j.Queue, j.Submitted, j.Tasks = "q", w.Now, []core.Task{task}
			w.Must(core.JobSubmitted{Job: j})
			w.Decide()
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		for i := range nodes * gpus {
			submit(core.Job{Name: fmt.Sprint("spot", i), Class: core.LP, Checkpoint: core.Time(rng.IntN(600)) * core.Second}, 1, 1)
			w.Now += core.Second
		}
		asked, evicted, hp := 0, 0, 0
		for asked < nodes*gpus/2 {
			j := core.Job{Name: fmt.Sprint("job", hp)}
			pods, each := 1, 1<<rng.IntN(4)
			switch rng.IntN(4) {
			case 0:
				j.Gang, pods = true, 1+rng.IntN(4)
			case 1:
				j.Gang, pods, each = true, 1+rng.IntN(3), 8
				j.Topology.Required = "leaf"
			case 2:
				j.Kind, pods = core.Inference, 1+rng.IntN(4)
			}
			hp++
			asked += pods * each
			submit(j, pods, each)
			evicted += w.settleEvictions()
			if _, run, _ := w.Twin.Counts(j.Name); run != pods {
				t.Fatalf("seed %d: %d of %d pods of %s run, each of %d GPUs", seed, run, pods, j.Name, each)
			}
		}
		if evicted != asked {
			t.Errorf("seed %d: %d pods were evicted for %d GPUs", seed, evicted, asked)
		}
	}
}

// settleEvictions lets evicted pods leave until no more are evicted, and returns
// how many there were.
func (w *World) settleEvictions() int {
	evicted := 0
	for {
		gone := 0
		for _, name := range w.Twin.Live() {
			if _, _, leave := w.Twin.Counts(name); leave > 0 {
				gone += leave
				w.Must(core.PodsGone{Job: name})
			}
		}
		if gone == 0 {
			return evicted
		}
		evicted += gone
		w.Decide()
	}
}
