package quota

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A ledger that takes queues in one by one, with jobs in others, has the accounts that
// it would derive from all queues and all use.
func TestAccountsAreAsRebuilt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLedger()
		limit := rapid.SampledFrom([]Milli{0, 1000, 2500, Unlimited})
		name := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("q", rapid.IntRange(0, 4).Draw(t, "queue")) })
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			n, known := l.Lookup(name.Draw(t, "which"))
			switch step := rapid.IntRange(0, 5).Draw(t, "step"); {
			case step == 0 && known:
				l.Remove(n.Name)
			case step <= 2 && known:
				model, gpu := rapid.SampledFrom([]string{"A", "B"}).Draw(t, "model"), Milli(rapid.IntRange(1, 3000).Draw(t, "gpu"))
				if n.own.of(model) > 0 && rapid.Bool().Draw(t, "back") {
					gpu = -n.own.of(model)
				}
				n.Add(model, gpu)
			default:
				q := QueueSpec{Name: name.Draw(t, "name"), Weight: 1, Mode: Mode(rapid.IntRange(0, 1).Draw(t, "mode"))}
				if rapid.Bool().Draw(t, "below") {
					q.Parent = name.Draw(t, "parent")
				}
				for _, m := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"A", "B", AnyModel}), 0, 3, rapid.ID[string]).Draw(t, "models") {
					q.Quota = append(q.Quota, Quota{m, Milli(rapid.IntRange(0, 4000).Draw(t, "nominal")), limit.Draw(t, "borrow"), limit.Draw(t, "lend")})
				}
				l.Set(q) // in vain without the parent
			}
			got := accounts(l)
			l.rebuild()
			if want := accounts(l); !maps.EqualFunc(got, want, maps.Equal[map[string]account]) {
				t.Fatalf("the accounts are\n%+v\nrebuilt:\n%+v", got, want)
			}
		}
	})
}

// accounts returns all accounts by queue and model.
func accounts(l *Ledger) map[string]map[string]account {
	out := map[string]map[string]account{}
	for _, n := range append(slices.Clone(l.order), l.root) {
		out[n.Name] = map[string]account{}
		for model, a := range n.accounts {
			x := *a
			x.above = nil
			out[n.Name][model] = x
		}
	}
	return out
}

// BenchmarkSet adds queues, each with a quota for one of four models: all beside each
// other, in a tree of ten to a parent, and in a chain, whose cost is its depth squared.
func BenchmarkSet(b *testing.B) {
	for _, shape := range []struct {
		name   string
		parent func(i int) int // negative: none
		most   int
	}{
		{"flat", func(int) int { return -1 }, 100_000},
		{"tree", func(i int) int { return (i+9)/10 - 1 }, 100_000},
		{"chain", func(i int) int { return i - 1 }, 10_000},
	} {
		for queues := 1000; queues <= shape.most; queues *= 10 {
			b.Run(fmt.Sprintf("%s/queues=%d", shape.name, queues), func(b *testing.B) {
				all := make([]QueueSpec, queues)
				for i := range all {
					all[i] = QueueSpec{Name: fmt.Sprint("q", i), Weight: 1, Quota: []Quota{{Model: fmt.Sprint("m", i%4), Nominal: 1000, BorrowingLimit: Unlimited, LendingLimit: Unlimited}}}
					if p := shape.parent(i); p >= 0 {
						all[i].Parent = all[p].Name
					}
				}
				b.ReportAllocs()
				for b.Loop() {
					l := NewLedger()
					for _, q := range all {
						if err := l.Set(q); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}
