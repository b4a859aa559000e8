package coretest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
)

// TestModels plays jobs that accept one or several GPU models, with speeds, while pods end, join and
// are withdrawn and nodes come and go. Nothing else decides where they start, so that the
// twin checks of each job that it is on the best of its models with room.
func TestModels(t *testing.T) {
	slower := 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 0))
		p := core.Policy{Queueing: core.Queueing{Mode: core.BestEffortFIFO}, Models: core.ModelOrder(rng.IntN(2))}
		for k := range p.Placement {
			p.Placement[k] = place.Strategy(rng.IntN(len(place.Strategies)))
		}
		w := NewWorld(t, core.Config{Policy: p, Levels: testLevels})
		w.Must(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
		models := []string{"A", "B", "C"}
		node := func(i int) core.Node {
			return core.Node{
				Name: fmt.Sprint("n", i), Model: models[i%3], GPUs: 4 << rng.IntN(2), CPUMilli: 64_000,
				Domains: []string{"z", "s", fmt.Sprint("l", i%3)},
			}
		}
		const nodes = 6
		for i := range nodes {
			w.Must(core.NodeAdded{Node: node(i)})
		}
		for step := range 120 {
			live := w.Twin.Live()
			switch k := rng.IntN(20); {
			case k < 11 || len(live) == 0:
				w.Must(core.JobSubmitted{Job: flexible(rng, step, w.Now)})
			case k < 14:
				w.Must(core.JobEnded{Job: live[rng.IntN(len(live))]})
			case k < 18:
				w.changePods(rng, live[rng.IntN(len(live))])
			default:
				i := rng.IntN(nodes)
				if n := w.Twin.node(fmt.Sprint("n", i)); n.up {
					w.Must(core.NodeLost{Node: n.Name})
				} else {
					w.Must(core.NodeAdded{Node: node(i)})
				}
			}
			w.Now += core.Second
			for _, d := range w.Decide() {
				if j := w.Twin.jobs[d.Job]; d.Op == core.Bind && len(j.Tasks[0].Speeds) > 0 {
					for _, m := range j.Tasks[0].Models {
						if j.Tasks[0].SpeedOn(m) > j.Tasks[0].SpeedOn(w.Twin.node(d.Pods[0].Node).Model) {
							slower++
						}
					}
				}
			}
		}
	}
	if slower < 300 {
		t.Errorf("%d starts on a slower model: too few to test much", slower)
	}
}

// flexible draws a job that accepts some GPU models.
func flexible(rng *rand.Rand, number int, now core.Time) core.Job {
	task := core.Task{Name: "t", Pods: 1 + rng.IntN(3)}
	task.GPU = [...]core.Milli{250, 500, 1000, 1000, 2000, 4000}[rng.IntN(6)]
	switch models := []string{"A", "B", "C"}; rng.IntN(5) {
	case 0, 1:
		task.Models = models[rng.IntN(3):][:1]
	case 2:
		task.Models = []string{"C", "A"}
	case 3:
		task.Models = models
		for range models {
			task.Speeds = append(task.Speeds, 300+100*rng.Int64N(10))
		}
	}
	return core.Job{
		Name: fmt.Sprint("j", number), Queue: "q", Class: core.Class(rng.IntN(2)), Gang: rng.IntN(2) == 0, Submitted: now, Tasks: []core.Task{task},
	}
}

// changePods lets a pod of a job end, or be withdrawn, or join it.
func (w *World) changePods(rng *rand.Rand, name string) {
	j := w.Twin.jobs[name]
	i := rng.IntN(len(j.pods))
	switch p := &j.pods[i]; {
	case rng.IntN(3) == 0:
		w.Must(core.PodsAdded{Job: name, Pods: []int{len(j.pods)}, Task: j.Tasks[0]})
	case p.state == running || p.state == waiting:
		w.Must(core.PodEnded{Job: name, Pod: i})
	}
}
