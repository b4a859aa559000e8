package quota

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestUsage(t *testing.T) {
	l := NewLedger()
	for _, q := range []QueueSpec{
		{Name: "top", Quota: []Quota{{Model: "A", Nominal: 8000}}},
		{Name: "owner", Parent: "top", Quota: []Quota{{Model: "A", Nominal: 4000}}},
		{Name: "guest", Parent: "top"},
		{Name: "idle", Parent: "top"},
		{Name: "any", Quota: []Quota{{Model: AnyModel, Nominal: 2000}}},
		{Name: "below", Parent: "any"},
	} {
		q.Weight = 1
		if err := l.Set(q); err != nil {
			t.Fatal(err)
		}
	}
	for _, u := range []struct {
		queue, model string
		gpu          Milli
	}{{"owner", "A", 6000}, {"guest", "A", 1000}, {"idle", "A", 500}, {"idle", "A", -500}, {"below", "A", 1500}, {"below", "B", 1000}} {
		q, _ := l.Lookup(u.queue)
		q.Add(u.model, u.gpu)
	}
	got := l.Usage()
	for name, want := range map[string][]Usage{
		"top":   {{"A", 12000, 7000, 0}},                                             // it has quota left for what the queues below use
		"owner": {{"A", 4000, 6000, 2000}},                                           // beyond its own quota
		"guest": {{"A", 0, 1000, 1000}},                                              // only the queue above has quota
		"idle":  nil,                                                                 // what it used, it gave back
		"any":   {{AnyModel, 2000, 2500, 500}, {"A", 0, 1500, 0}, {"B", 0, 1000, 0}}, // borrowed of all models together
		"below": {{"A", 0, 1500, 1500}, {"B", 0, 1000, 1000}},
	} {
		if !slices.Equal(got[name], want) {
			t.Errorf("queue %s: %v, want %v", name, got[name], want)
		}
	}
}

// The usage of each queue is what a walk over all queues adds up; where all that is owned
// is lent, it owns what its account says.
func TestUsageIsTheSumOfAllBelow(t *testing.T) {
	models := []string{"A", "B", AnyModel}
	rapid.Check(t, func(t *rapid.T) {
		l := NewLedger()
		for i := range rapid.IntRange(1, 8).Draw(t, "queues") {
			q := QueueSpec{Name: fmt.Sprint("q", i), Weight: 1}
			if p := rapid.IntRange(-1, i-1).Draw(t, "parent"); p >= 0 {
				q.Parent = fmt.Sprint("q", p)
			}
			for _, m := range rapid.SliceOfNDistinct(rapid.SampledFrom(models), 0, 3, rapid.ID[string]).Draw(t, "models") {
				q.Quota = append(q.Quota, Quota{m, Milli(rapid.IntRange(0, 4000).Draw(t, "nominal")), Unlimited, Unlimited})
			}
			if err := l.Set(q); err != nil {
				t.Fatal(err)
			}
			n, _ := l.Lookup(q.Name)
			for _, m := range models[:2] {
				n.Add(m, Milli(rapid.IntRange(0, 3).Draw(t, "use"))*500)
			}
		}
		usage := l.Usage()
		for _, q := range l.order {
			nominal, used := map[string]Milli{}, map[string]Milli{}
			for _, below := range l.order {
				if !slices.Contains(upwards(below), q) {
					continue
				}
				for _, e := range below.Quota {
					nominal[e.Model] += e.Nominal
				}
				for _, a := range below.own {
					model, gpu := a.account, a.Milli
					used[model] += gpu
					used[AnyModel] += gpu
				}
			}
			for _, u := range usage[q.Name] {
				if u.Nominal != nominal[u.Model] || u.Used != used[u.Model] {
					t.Errorf("queue %s: %+v, want %d nominal, %d used", q.Name, u, nominal[u.Model], used[u.Model])
				}
				if u.Borrowed != 0 && u.Borrowed != u.Used-u.Nominal {
					t.Errorf("queue %s: %+v", q.Name, u)
				}
				if a := q.accounts[u.Model]; a != nil && a.subtree != u.Nominal {
					t.Errorf("queue %s: %+v, its account has %d", q.Name, u, a.subtree)
				}
			}
		}
	})
}

// upwards returns a queue and all above it.
func upwards(q *Queue) []*Queue {
	var out []*Queue
	for ; q != nil; q = q.parent {
		out = append(out, q)
	}
	return out
}
