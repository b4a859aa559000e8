package eventlog_test

import (
	"fmt"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/eventlog"
)

// A pod that is being moved is at its old place until it has moved, and there again when the
// move comes to nothing. Tables that are made from a snapshot say the same.
func TestTablesOfMoves(t *testing.T) {
	tables := eventlog.NewTables()
	take := func(tables *eventlog.Tables, es ...eventlog.Entry) {
		t.Helper()
		for i := range es {
			if err := tables.Take(&es[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	event := func(ev core.Event) { t.Helper(); take(tables, eventlog.Entry{Event: ev}) }
	decided := func(op core.Op, node string) {
		t.Helper()
		take(tables, eventlog.Entry{Pass: true, Decided: []core.Decision{{Op: op, Job: "j", Pods: []core.Placement{{Node: node, GPUs: 1}}}}})
	}
	check := func(want string) {
		t.Helper()
		again := eventlog.NewTables()
		take(again, tables.Snapshot(0)...)
		for _, x := range []*eventlog.Tables{tables, again} {
			p := x.Jobs["j"].Pods[0]
			got := fmt.Sprint(p.State, " ", p.Node)
			if p.To != nil {
				got += " to " + p.To.Node
			}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
	for _, n := range []string{"a", "b"} {
		event(core.NodeAdded{Node: core.Node{Name: n, GPUs: 1, Model: "H800"}})
	}
	event(core.JobSubmitted{Job: core.Job{Name: "j", Mobility: core.Replaceable, Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: 1000}}}}})
	decided(core.Bind, "a")
	move := func(to string) {
		t.Helper()
		event(core.MoveRequested{Job: "j"})
		decided(core.Migrate, to)
	}
	move("b")
	check("1 a to b")
	event(core.PodMoved{Job: "j"})
	check("1 b")
	move("a")
	event(core.MoveFailed{Job: "j"})
	check("1 b")
	move("a")
	event(core.NodeLost{Node: "a"})
	check("1 b")
	event(core.NodeAdded{Node: core.Node{Name: "a", GPUs: 1, Model: "H800"}})
	move("a")
	event(core.NodeLost{Node: "b"})
	check("0 ")
	decided(core.Bind, "a")
	event(core.NodeAdded{Node: core.Node{Name: "b", GPUs: 1, Model: "H800"}})
	move("b")
	event(core.PodEnded{Job: "j"})
	if p := tables.Jobs["j"].Pods[0]; p.State != eventlog.Ended || p.To != nil {
		t.Errorf("got %+v", p)
	}
	for _, ev := range []core.Event{core.PodMoved{Job: "j"}, core.MoveFailed{Job: "j"}, core.MoveRequested{Job: "j", Pod: 1}, core.PodMoved{Job: "k"}} {
		if tables.Take(&eventlog.Entry{Event: ev}) == nil {
			t.Errorf("%T%+v is taken", ev, ev)
		}
	}
}

// A suspended job waits for the tables; pods that stop then are no error, and it runs again where it was.
func TestTablesFollowSuspensions(t *testing.T) {
	tables := eventlog.NewTables()
	take := func(want eventlog.State, e eventlog.Entry) {
		t.Helper()
		if err := tables.Take(&e); err != nil {
			t.Fatal(err)
		}
		if j := tables.Jobs["j"]; j != nil && j.Pods[0].State != want {
			t.Errorf("the pod is in state %v, want %v", j.Pods[0].State, want)
		}
	}
	decided := func(want eventlog.State, op core.Op, why core.Reason) {
		t.Helper()
		d := core.Decision{Op: op, Job: "j", Pods: []core.Placement{{Node: "a", GPUs: 1}}, Reason: why}
		take(want, eventlog.Entry{Pass: true, Decided: []core.Decision{d}})
	}
	take(0, eventlog.Entry{Event: core.NodeAdded{Node: core.Node{Name: "a", GPUs: 1, Model: "H800"}}})
	take(eventlog.Waiting, eventlog.Entry{Event: core.JobSubmitted{Job: core.Job{
		Name: "j", Suspend: core.Suspension{HostMemMiB: 1}, Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: 1000}}},
	}}})
	for range 2 {
		decided(eventlog.Running, core.Bind, core.Placed)
		decided(eventlog.Leaving, core.Suspend, core.PriorityPreemption)
		take(eventlog.Waiting, eventlog.Entry{Event: core.PodsGone{Job: "j", Pods: []int{0}}})
		decided(eventlog.Running, core.Resume, core.Placed)
		decided(eventlog.Leaving, core.Suspend, core.PriorityPreemption)
		take(eventlog.Waiting, eventlog.Entry{Event: core.PodsGone{Job: "j"}})
		decided(eventlog.Waiting, core.Requeue, core.Suspended)
		take(eventlog.Waiting, eventlog.Entry{Event: core.PodsGone{Job: "j", Pods: []int{0}}})
	}
}
