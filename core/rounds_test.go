package core

import (
	"fmt"
	"testing"

	"github.com/muster-sched/muster/core/cluster"
)

// crowdOf is a cluster of one full node, and a user with so many kinds of jobs that wait: each asks for nodes that have its number.
func crowdOf(t *testing.T, mode Mode, kinds int) *Engine {
	e, err := New(Config{Policy: Policy{Queueing: Queueing{Mode: mode}}, Crowd: 8})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(ev Event) {
		if err := e.Apply(0, ev); err != nil {
			t.Fatal(err)
		}
	}
	apply(QueueSet{Queue: Queue{Name: "q"}})
	apply(NodeAdded{Node: Node{Name: "full", Model: "H800", GPUs: 1}})
	job := func(name string, kind int) Job {
		j := Job{Name: name, Queue: "q", User: "crowd", Tasks: []Task{{Pods: 1}}}
		if j.Tasks[0].GPU = WholeGPU; kind >= 0 {
			j.Tasks[0].Selector = []Requirement{{Key: "kinds", Op: cluster.In, Values: []string{fmt.Sprint(kind), "any"}}}
		}
		return j
	}
	apply(JobSubmitted{Job: job("runs", -1)})
	e.Decide(0)
	for i := range kinds {
		apply(JobSubmitted{Job: job(fmt.Sprint("j", i), i)})
	}
	return e
}

// starts follows the engine's own requests for passes, and returns which jobs start and how many passes that took.
func starts(t *testing.T, e *Engine, ev Event) (started []string, passes int) {
	now := e.now + Second
	for wake := now; wake != Never; passes++ {
		now, wake = wake, Never
		if err := e.Apply(now, ev); err != nil {
			t.Fatal(err)
		}
		ev = Tick{}
		for _, d := range e.Decide(now) {
			switch d.Op {
			case Bind:
				started = append(started, d.Job)
			case Wake:
				wake = d.At
			}
		}
	}
	return started, passes
}

// Each kind of jobs of a crowd has its turn: also the last one, which alone can start.
func TestCrowdTakesTurns(t *testing.T) {
	for _, mode := range []Mode{BestEffortFIFO, Backfill} {
		e := crowdOf(t, mode, 100)
		if got, passes := starts(t, e, Tick{}); got != nil || passes < 40 {
			t.Errorf("%v: %v start in %d passes on a full node", mode, got, passes)
		}
		node := Node{Name: "new", Model: "H800", GPUs: 1, Labels: map[string]string{"kinds": "99"}}
		if got, passes := starts(t, e, NodeAdded{Node: node}); fmt.Sprint(got) != "[j99]" || passes < 40 || passes > 60 {
			t.Errorf("%v: %v start in %d passes, want j99 in some 50", mode, got, passes)
		}
		if e.Due() != 0 {
			t.Errorf("%v: %d kinds are still due", mode, e.Due())
		}
		// What all of them can use, the first one gets.
		node = Node{Name: "newer", Model: "H800", GPUs: 2, Labels: map[string]string{"kinds": "any"}}
		if got, _ := starts(t, e, NodeAdded{Node: node}); fmt.Sprint(got) != "[j0 j1]" {
			t.Errorf("%v: %v start, want j0 and j1", mode, got)
		}
	}
}

// Of a crowd a pass tries a part, and the jobs of others in that same pass.
func TestCrowdHoldsUpNobody(t *testing.T) {
	e := crowdOf(t, BestEffortFIFO, 100)
	starts(t, e, Tick{})
	node := Node{Name: "new", Model: "H800", GPUs: 1, Labels: map[string]string{"kinds": "none"}}
	if err := e.Apply(e.now, JobSubmitted{Job: Job{Name: "other", Queue: "q", User: "other", Tasks: []Task{{Pods: 1, Request: Request{GPU: WholeGPU}}}}}); err != nil {
		t.Fatal(err)
	}
	if err := e.Apply(e.now, NodeAdded{Node: node}); err != nil {
		t.Fatal(err)
	}
	bound := false
	for _, d := range e.Decide(e.now) {
		bound = bound || d.Op == Bind && d.Job == "other"
	}
	if !bound || e.Due() < 90 {
		t.Errorf("the other job starts: %v; %d kinds of the crowd are due, want most of them", bound, e.Due())
	}
}
