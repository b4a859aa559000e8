package core

import (
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core/quota"
)

// On an empty cluster, jobs of one GPU start until each queue has what it is owed, whichever came
// first.
func TestQueuesGetWhatTheyAreOwed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Policy
		p.Queueing.Mode, p.Queueing.FairShare = Mode(rapid.IntRange(1, 2).Draw(t, "mode")), true
		e, err := New(Config{Policy: p})
		if err != nil {
			t.Fatal(err)
		}
		apply := func(ev Event) {
			if err := e.Apply(1, ev); err != nil {
				t.Fatal(err)
			}
		}
		owned := 0
		names := []string{"a", "b", "b1", "b2", "c"}
		for _, name := range names {
			n := rapid.IntRange(0, 6).Draw(t, "nominal")
			owned += n
			q := Queue{Name: name, Weight: rapid.Int64Range(1, 5).Draw(t, "weight"), Priority: rapid.Int32Range(0, 1).Draw(t, "priority"), Quota: []Quota{{Model: "A", Nominal: Milli(n) * WholeGPU, BorrowingLimit: Unlimited, LendingLimit: Unlimited}}}
			if len(name) == 2 {
				q.Parent = name[:1]
			}
			apply(QueueSet{q})
		}
		for i := range rapid.IntRange(1, 30).Draw(t, "jobs") {
			apply(JobSubmitted{Job{
				Name: fmt.Sprint("j", i), Queue: rapid.SampledFrom(names).Draw(t, "queue"), Priority: int32(rapid.IntRange(0, 2).Draw(t, "priority")),
				Tasks: []Task{{Request: Request{GPU: WholeGPU}, Pods: rapid.IntRange(1, 8).Draw(t, "pods")}},
			}})
		}
		// What no queue owns cannot be used. Of fewer GPUs than the queues own, those that come first take
		// what they own.
		for i := range owned + rapid.IntRange(0, 3).Draw(t, "more") {
			apply(NodeAdded{Node: Node{Name: fmt.Sprint("n", i), Model: "A", GPUs: 1}})
		}
		e.Decide(1)
		for name, shares := range e.Shares() {
			if s := shares[0]; s.Used != s.Fair {
				t.Errorf("queue %s %s", name, s)
			}
		}
	})
}

// What queues are owed is what a ledger says to which the pods that run or are to run are told at
// once, however they came and went.
func TestRequestsAreCounted(t *testing.T) {
	for seed := range uint64(20) {
		f := newFight(t, seed)
		f.e.policy.Queueing.FairShare = true
		for range 200 {
			f.step()
			l := quota.NewLedger()
			for q := range f.e.ledger.All() {
				if err := l.Set(q.QueueSpec); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range f.live {
				j := f.e.jobs.byName[name]
				for i := range j.pods {
					q, _ := l.Lookup(j.Queue)
					if p := &j.pods[i]; p.state < podDone {
						q.Request(j.Tasks[p.task].Models, j.gpu(p))
						if p.placed() {
							q.Add(f.e.state.Pool(p.alloc.Node).Model, j.gpu(p))
						}
						for _, r := range l.Counted() {
							q.RequestOf(r, j.Tasks[p.task].Takes(r))
							if p.placed() {
								q.Add(r, j.Tasks[p.task].Takes(r))
							}
						}
					}
				}
			}
			l.Divide(schedulable(f.e.state, f.e.ledger.Counted()))
			want := map[string][]Share{}
			for q := range l.All() {
				if len(q.Shares()) > 0 {
					want[q.Name] = q.Shares()
				}
			}
			if got := f.e.Shares(); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, at %v: queues are owed\n%+v, expected\n%+v", seed, f.now, got, want)
			}
		}
	}
}

// What is divided are the healthy GPUs of nodes that take pods, less what other schedulers use, at any
// time. What a pod on standby lends is not there twice.
func TestWhatIsDivided(t *testing.T) {
	var p Policy
	p.Queueing.Mode, p.Queueing.FairShare = BestEffortFIFO, true
	e, err := New(Config{Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	now := Time(0)
	apply := func(events ...Event) {
		t.Helper()
		now += Second
		for _, ev := range events {
			if err := e.Apply(now, ev); err != nil {
				t.Fatal(err)
			}
		}
	}
	owed := func(what string, gpus Milli) {
		t.Helper()
		if got := e.Shares()["q"][0].Fair; got != gpus*WholeGPU {
			t.Errorf("%s: the queue is owed %s GPUs, expected %d", what, got.GPUs(), gpus)
		}
	}
	task := []Task{{Request: Request{GPU: WholeGPU}, Pods: 1}}
	apply(QueueSet{Queue{Name: "q", Weight: 1, Quota: []Quota{{Model: quota.AnyModel, Nominal: 20 * WholeGPU, BorrowingLimit: Unlimited, LendingLimit: Unlimited}}}}, QueueSet{Queue{Name: "others", Weight: 1}},
		NodeAdded{Node: Node{Name: "a", Model: "A", GPUs: 4, CPUMilli: 1000}}, NodeAdded{Node: Node{Name: "b", Model: "A", GPUs: 4}},
		JobSubmitted{Job{Name: "many", Queue: "q", Tasks: []Task{{Request: Request{GPU: WholeGPU}, Pods: 20}}}})
	owed("two nodes", 8)
	apply(NodeCordoned{Node: "b", Cordoned: true})
	owed("one of them is cordoned", 4)
	apply(NodeCordoned{Node: "b"}, DeviceHealth{Node: "b", GPU: 0})
	owed("a device is broken", 7)
	apply(JobSubmitted{Job{Name: "foreign", Queue: "others", Foreign: true, Tasks: task}}, PodRunning{Job: "foreign", Node: "b", GPUs: []int{1}, Started: now})
	owed("another scheduler uses one", 6)
	apply(JobSubmitted{Job{Name: "owner", Queue: "q", Tasks: task}}, PodRunning{Job: "owner", Node: "a", GPUs: []int{0}, Started: now}, StandbyBegan{Job: "owner", Until: now + 1000*Second})
	owed("a pod lends its GPU", 6)
	apply(JobEnded{Job: "foreign"})
	owed("the other scheduler's job has ended", 7)
	apply(NodeLost{Node: "b"})
	owed("a node is lost", 4)
}
