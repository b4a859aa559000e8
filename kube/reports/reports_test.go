package reports

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// asked is an engine that is asked about jobs, which all wait.
type asked struct {
	Engine
	jobs map[string]int
}

func (a asked) Explain(job string) (core.Explanation, bool) {
	a.jobs[job]++
	return core.Explanation{Job: job, Waiting: 1, Reason: core.Resources, Detail: "none is free", Settled: core.Never, Delayed: core.Never, Stops: core.Never, EvictsAt: core.Never}, true
}
func (asked) Forecast() core.Forecast            { return core.Forecast{} }
func (asked) Nearest(string, int) []frag.Finding { return nil }

// Of two namespaces, of which one has many jobs, both are explained at once, and each job no more often than once in a call.
func TestNamespacesAreExplainedInTurn(t *testing.T) {
	all := tables.New(core.Policy{}, nil)
	all.Now = 10 * core.Second
	census := tables.NewCensus(&all)
	r := Reporter{Tables: &all, Census: &census, Guarded: func(_ *tables.Group, call func()) bool { call(); return true }}
	waiting := func(namespace, name string) *tables.Group {
		g := &tables.Group{ID: translate.Group{Namespace: namespace, Kind: translate.ByItself, Name: name}, Submitted: true, Pods: map[types.UID]*tables.Pod{}}
		g.Job = g.ID.Job()
		p := &tables.Pod{Group: g, Object: &objects.Pod{}}
		p.Object.UID, p.Object.Name, p.Object.Namespace = types.UID(g.Job), name, namespace
		g.Pods[p.Object.UID] = p
		all.AddGroup(g)
		r.Waits(g)
		r.Waits(g)
		return g
	}
	for i := range 1000 {
		waiting("many", fmt.Sprint("p", i))
	}
	few := []*tables.Group{waiting("few", "a"), waiting("few", "b")}
	e := asked{jobs: map[string]int{}}
	r.Explain(e, 20)
	if len(e.jobs) != 20 || e.jobs[few[0].Job] != 1 || e.jobs[few[1].Job] != 1 {
		t.Errorf("%d jobs were asked about: %v", len(e.jobs), e.jobs)
	}
	for range 3 {
		r.Explain(e, 20)
	}
	if e.jobs[few[0].Job] != 4 {
		t.Errorf("of the few, one was asked about %d times in 4 calls", e.jobs[few[0].Job])
	}
	for job, n := range e.jobs {
		if n > 1 && job != few[0].Job && job != few[1].Job {
			t.Errorf("%s was asked about %d times, and others not at all", job, n)
		}
	}

	// Each has its condition, and so many of a namespace an event.
	conditions, events := 0, 0
	all.Now += 10 * core.Second
	for range 120 {
		all.Now += core.Second / 4
		for _, x := range r.Explain(e, 20) {
			if conditions++; x.Event != "" {
				events++
			}
		}
	}
	if conditions < 1000 || events != MaxEvents+len(few) {
		t.Errorf("%d conditions and %d events", conditions, events)
	}

	// Those that are gone are forgotten, a bounded number at a time.
	for id, g := range all.Groups {
		if g != few[0] {
			delete(all.Groups, id)
		}
	}
	r.Explain(e, 2)
	if left := r.Waiters(); left < 1002-2*gonePerLook || left >= 1002 {
		t.Errorf("%d are left", left)
	}
	for range 20 {
		r.Explain(e, 2)
	}
	if r.Waiters() != 1 || r.waiters.Len() != 1 {
		t.Errorf("%d are left", r.Waiters())
	}
}

// Events about a tenant's many jobs are bounded, and those of others are published.
func TestEventsOfANamespaceAreBounded(t *testing.T) {
	var c eventCount
	now := 5 * core.Second
	for i := range 1000 {
		if c.more("many", now) != (i < MaxEvents) {
			t.Fatalf("event %d", i)
		}
	}
	if !c.more("few", now+59*core.Second) {
		t.Error("another namespace has none")
	}
	if !c.more("many", now+60*core.Second) {
		t.Error("the namespace has none after a minute")
	}
}
