package sim_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// counter is a sink that counts calls, and fails at one of them.
type counter struct {
	calls, submitted int
	failAt           int
}

var errFull = errors.New("disk full")

func (c *counter) call() error {
	if c.calls++; c.calls == c.failAt {
		return errFull
	}
	return nil
}

func (c *counter) Node(core.Time, *core.Node, bool) error { return c.call() }

func (c *counter) Submitted(core.Time, *sim.Live) error {
	c.submitted++
	return c.call()
}

func (c *counter) Bound(core.Time, *sim.Live, []core.Placement, core.Reason) error { return c.call() }

func (c *counter) Released(core.Time, *sim.Live, []core.Placement, sim.Release, sim.Eviction) error {
	return c.call()
}

func (c *counter) Ended(core.Time, *sim.Live, *sim.Rejection) error { return c.call() }

// onOneNode is a run of jobs on a node of eight GPUs.
func onOneNode(jobs workload.Jobs) sim.Config {
	doc, _ := policy.ByName("default")
	c := sim.Config{Jobs: jobs, Policy: doc.Policy}
	c.Cluster.Nodes = []core.Node{{Name: "n", Model: "A10", GPUs: 8}}
	return c
}

// stream yields so many jobs of one GPU, one a second that takes a second, then
// err unless it is nil. It closes ended when it is at its end.
func stream(n int, err error, ended chan bool) workload.Jobs {
	return func(yield func(workload.Job, error) bool) {
		defer close(ended)
		for i := range n {
			j := workload.Job{Duration: core.Second, Job: core.Job{
				Name: fmt.Sprint("j", i), Queue: "q", Submitted: core.Time(i) * core.Second,
				Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: core.WholeGPU}}},
			}}
			if !yield(j, nil) {
				return
			}
		}
		if err != nil {
			yield(workload.Job{}, err)
		}
	}
}

// The error of a sink ends the run, whenever it comes; from then on no sink is
// called.
func TestSinkFails(t *testing.T) {
	const jobs = 3000 // more than are told of at once
	all := &counter{}
	if _, err := sim.Run(t.Context(), onOneNode(stream(jobs, nil, make(chan bool))), all); err != nil || all.submitted != jobs {
		t.Fatalf("%v after %d of %d jobs", err, all.submitted, jobs)
	}
	for _, at := range []int{1, 2, 700, 9000, all.calls} {
		ended := make(chan bool)
		first, fails, last := &counter{}, &counter{failAt: at}, &counter{}
		_, err := sim.Run(t.Context(), onOneNode(stream(jobs, nil, ended)), first, fails, last)
		if !errors.Is(err, errFull) {
			t.Errorf("a sink failed at call %d: %v", at, err)
		}
		if first.calls != at || fails.calls != at || last.calls != at-1 {
			t.Errorf("a sink failed at call %d: the three were called %d, %d and %d times", at, first.calls, fails.calls, last.calls)
		}
		<-ended
	}
}

// Jobs are read ahead, but what is wrong with one is found when it is its turn.
func TestJobsFail(t *testing.T) {
	bad, ended, sink := errors.New("line 1002"), make(chan bool), &counter{}
	stats, err := sim.Run(t.Context(), onOneNode(stream(1001, bad, ended)), sink)
	if !errors.Is(err, bad) || stats.Submitted != 1001 || sink.submitted != 1001 {
		t.Errorf("%v after %d jobs, told %d", err, stats.Submitted, sink.submitted)
	}
	<-ended
}

// A run that ends early reads no further.
func TestUntilEndsReading(t *testing.T) {
	ended := make(chan bool)
	c := onOneNode(stream(1_000_000, nil, ended))
	c.Until = 10 * core.Second
	stats, err := sim.Run(t.Context(), c, &counter{})
	if err != nil || stats.Submitted != 11 || stats.End != c.Until {
		t.Errorf("%v, %+v", err, stats)
	}
	<-ended
}
