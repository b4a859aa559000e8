package coretest

import (
	"fmt"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
)

// TestFailuresStarveNobody fills a node with gangs that fail a second after
// every start, for three hours. They keep their places before the healthy job
// that came last, and still all get their turns, it too: failing costs a pause.
func TestFailuresStarveNobody(t *testing.T) {
	for _, name := range []string{"StrictFIFO", "BestEffortFIFO", "Backfill"} {
		t.Run(name, func(t *testing.T) {
			doc, _ := policy.ByName(name)
			w := NewWorld(t, core.Config{Policy: doc.Policy, Levels: testLevels})
			w.Must(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
			w.Must(core.NodeAdded{Node: core.Node{Name: "n", Model: "A", GPUs: 8}})
			jobs := []string{"fails0", "fails1", "fails2", "fails3", "fails4", "healthy"}
			for i, job := range jobs {
				task := core.Task{Pods: 2}
				task.GPU = 4 * core.WholeGPU
				w.Must(core.JobSubmitted{Job: core.Job{Name: job, Queue: "q", Gang: true, Submitted: core.Time(i), Tasks: []core.Task{task}}})
			}
			starts, ended := map[string]int{}, core.Time(0)
			for w.Now < 3*3600*core.Second {
				for _, d := range w.Decide() {
					if d.Op == core.Bind {
						starts[d.Job]++
					}
				}
				w.Now += core.Second
				w.Must(core.Tick{})
				for _, job := range w.Twin.Live() {
					_, run, leave := w.Twin.Counts(job)
					switch {
					case run == 2 && job == "healthy":
						w.Must(core.JobEnded{Job: job})
						ended = w.Now
					case run == 2:
						w.Must(core.PodEnded{Job: job, Pod: 0, Failed: true})
					case leave > 0:
						w.Must(core.PodsGone{Job: job})
					}
				}
			}
			if starts["healthy"] != 1 {
				t.Errorf("the healthy job started %d times", starts["healthy"])
			}
			for i := range 5 {
				if n := starts[fmt.Sprintf("fails%d", i)]; n < 10 {
					t.Errorf("fails%d started %d times in three hours", i, n)
				}
			}
			t.Logf("starts: %v; the healthy job ended at %s", starts, seconds(ended))
		})
	}
}
