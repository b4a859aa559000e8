package coretest

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
)

// forecasting is a world without evictions, of a mode, with a node of 8 GPUs.
func forecasting(t T, mode core.Mode) *World {
	w := NewWorld(t, core.Config{Policy: core.Policy{Queueing: core.Queueing{Mode: mode}}, Levels: testLevels})
	w.Must(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	w.Must(core.NodeAdded{Node: core.Node{Name: "n", Model: "A", GPUs: 8}})
	return w
}

// gang submits a gang of pods of one GPU that runs for the given seconds, 0 if that is not
// known.
func (w *World) gang(name, queue string, pods, seconds int) {
	task := core.Task{Name: "t", Pods: pods}
	task.GPU = core.WholeGPU
	w.Must(core.JobSubmitted{Job: core.Job{
		Name: name, Queue: queue, Gang: true, Submitted: core.Time(len(w.log)), Estimate: core.Time(seconds) * core.Second, Tasks: []core.Task{task},
	}})
}

// Jobs start as those before them end; of several that fit, in their order.
func TestForecast(t *testing.T) {
	w := forecasting(t, core.Backfill)
	w.gang("a", "q", 5, 100)
	w.gang("b", "q", 3, 200)
	w.Decide()
	w.Now = 10 * core.Second
	w.gang("c", "q", 4, 50) // when a ends
	w.gang("d", "q", 8, 10) // when b does: c has ended
	w.gang("e", "q", 1, 0)  // when a ends, beside c
	w.gang("f", "q", 9, 0)  // never
	w.gang("g", "q", 8, 10) // e does not end
	w.Decide()
	sec := func(n int) core.Time { return core.Time(n) * core.Second }
	check := func(endless int, want map[string]core.Time) {
		t.Helper()
		if f := w.Engine.Forecast(); !maps.Equal(f.Starts, want) || f.Endless != endless || f.Cut {
			t.Errorf("got %+v, want %v and %d", f, want, endless)
		}
	}
	check(0, map[string]core.Time{"c": sec(100), "e": sec(100)})
	w.Must(core.JobEstimated{Job: "e", Estimate: sec(30)})
	check(0, map[string]core.Time{"c": sec(100), "e": sec(100), "d": sec(200), "g": sec(210)})
	w.Must(core.JobEstimated{Job: "b", Estimate: sec(5)}) // it has outrun that
	check(1, map[string]core.Time{"c": sec(100), "e": sec(100)})
	w.Must(core.JobEstimated{Job: "a"})
	check(2, map[string]core.Time{})
}

// Under StrictFIFO no job passes another.
func TestForecastStrict(t *testing.T) {
	w := forecasting(t, core.StrictFIFO)
	w.gang("a", "q", 5, 100)
	w.gang("b", "q", 3, 200)
	w.gang("c", "q", 8, 50)
	w.gang("d", "q", 1, 50)
	w.Decide()
	if f, want := w.Engine.Forecast(), map[string]core.Time{"c": 200 * core.Second, "d": 250 * core.Second}; !maps.Equal(f.Starts, want) {
		t.Errorf("got %v, want %v", f.Starts, want)
	}
}

// A queue gets its quota back as its jobs end; other queues' jobs are no help.
func TestForecastQuota(t *testing.T) {
	w := forecasting(t, core.Backfill)
	w.Must(core.QueueSet{Queue: core.Queue{Name: "small", Weight: 1, Mode: 1, Quota: []core.Quota{{Model: "A", Nominal: 2 * core.WholeGPU}}}})
	w.gang("a", "small", 2, 100)
	w.gang("b", "q", 2, 50)
	w.gang("c", "small", 1, 0)
	w.Decide()
	if f, want := w.Engine.Forecast(), map[string]core.Time{"c": 100 * core.Second}; !maps.Equal(f.Starts, want) {
		t.Errorf("got %v, want %v", f.Starts, want)
	}
}

// Of very many jobs the first are looked at, and the forecast says so.
func TestForecastOfMany(t *testing.T) {
	w := forecasting(t, core.Backfill)
	w.gang("a", "q", 8, 100)
	for i := range 1100 {
		w.gang(fmt.Sprintf("w%d", i), "q", 8, 100)
	}
	w.Decide()
	f := w.Engine.Forecast()
	if !f.Cut || len(f.Starts) != 1000 || f.Starts["w999"] < 99000*core.Second || f.Starts["w1000"] != 0 {
		t.Errorf("%d starts, cut: %v; w999 at %.9gs", len(f.Starts), f.Cut, f.Starts["w999"].Seconds())
	}
}

// A forecast comes true if jobs run for as long as they say, no pod is evicted and no job
// comes.
func TestForecastComesTrue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &story{rt: rt}
		w := forecasting(rt, core.Mode(s.up(3)))
		w.Must(core.NodeAdded{Node: core.Node{Name: "m", Model: "A", GPUs: 4}})
		lasts := map[string]core.Time{}
		for i := range 2 + s.up(12) {
			name, seconds := fmt.Sprint("j", i), 20*(1+s.up(9)) // so far apart that it is exact
			w.gang(name, "q", 1+s.up(8), seconds)
			lasts[name] = core.Time(seconds) * core.Second
		}
		started := map[string]core.Time{}
		note := func(ds []core.Decision) {
			for _, d := range ds {
				if d.Op == core.Bind {
					started[d.Job] = w.Now
				}
			}
		}
		note(w.Decide())
		forecast := w.Engine.Forecast()
		for len(started) < len(lasts) {
			w.Now += core.Second
			if w.Now > 10000*core.Second {
				w.fail(fmt.Errorf("started: %v; forecast: %v", started, forecast.Starts))
			}
			ended := false
			for name, at := range started {
				if at+lasts[name] == w.Now {
					w.Must(core.JobEnded{Job: name})
					ended = true
				}
			}
			if ended {
				note(w.Decide())
			}
		}
		for name, at := range forecast.Starts {
			if at != started[name] {
				w.fail(fmt.Errorf("job %s was forecast to start at %.9gs, and did at %.9gs", name, at.Seconds(), started[name].Seconds()))
			}
		}
	})
}

// A forecast simulates the start of a pod of a job that has places kept for another pod. What
// was simulated must not count when these places are checked before the job is bound.
func TestForecastForgetsItsPlaces(t *testing.T) {
	w := NewWorld(t, core.Config{Policy: core.Policy{Preempt: core.Preempt{Priority: core.InCluster}}, Levels: testLevels})
	tell := func(lines ...string) {
		for _, text := range lines {
			l := parseLine(text)
			for _, ev := range events(l, nil, w.Now) {
				w.Must(ev)
			}
			if err := l.finish(); err != nil {
				t.Fatal(err)
			}
		}
	}
	tell("queue q", "node a gpus=2 leaf=l0", "node b gpus=2 leaf=l1", "node c gpus=1 leaf=l2",
		"submit db0 locked labels=(db)", "submit low priority=-1", "submit db1 locked labels=(db)", "submit ends locked estimate=2h", "submit db2 locked labels=(db) estimate=1h",
		"found db0 node=a gpus=(0)", "found low node=a gpus=(1)", "found db1 node=b gpus=(0)", "found ends node=b gpus=(1)", "found db2 node=c gpus=(0)",
		"submit svc pods=3 priority=1 labels=(db) even=(leaf:db:1)")
	w.Decide()
	tell("gone low")
	w.Engine.Forecast()
	if got, want := Format(0, w.Decide()), "0s bind svc: 0 on a[1] (MadeRoom)\n"; got != want {
		t.Errorf("decided\n%s, want\n%s", got, want)
	}
}
