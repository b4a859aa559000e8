package quota

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Others leave for what rounding gives a queue if the amounts decide that it is this one, and not if its name does.
func TestClaimRounded(t *testing.T) {
	type row struct {
		weight       int64
		owed, claims Milli
	}
	for _, c := range []struct {
		name string
		gpus Milli
		rows []row // each requests 9 GPUs
	}{
		{"3.33 and 1.67 of 5", 5000, []row{{2, 3000, 3000}, {1, 2000, 2000}}},
		{"2.5 and 2.5 of 5", 5000, []row{{1, 3000, 2000}, {1, 2000, 2000}}},
		{"2.67 each of 8", 8000, []row{{1, 3000, 2000}, {1, 3000, 2000}, {1, 2000, 2000}}},
		{"1.75, 1.75 and 3.5 of 7: the third loses less than the two that get more", 7000, []row{{1, 2000, 2000}, {1, 2000, 2000}, {2, 3000, 3000}}},
		{"1.6, 1.6 and 4.8 of 8: one is left for two that lose as much", 8000, []row{{1, 2000, 1000}, {1, 1000, 1000}, {3, 5000, 5000}}},
	} {
		l := NewLedger()
		set := []QueueSpec{{Name: "idle", Weight: 1, Quota: []Quota{{"G", c.gpus, Unlimited, Unlimited}}}}
		for i, r := range c.rows {
			set = append(set, QueueSpec{Name: fmt.Sprint(i), Weight: r.weight})
		}
		for _, q := range set {
			if err := l.Set(q); err != nil {
				t.Fatal(err)
			}
		}
		queue := func(i int) *Queue { q, _ := l.Lookup(fmt.Sprint(i)); return q }
		for i := range c.rows {
			queue(i).Request([]string{"G"}, 9000)
		}
		l.Divide(map[string]Milli{"G": c.gpus})
		for i, r := range c.rows {
			if s := shareOf(queue(i).Shares(), "G"); s.Fair != r.owed || s.Claim() != r.claims {
				t.Errorf("%s: queue %d is owed %d and claims %d, want %d and %d", c.name, i, s.Fair, s.Claim(), r.owed, r.claims)
			}
		}
	}
}

// What queues are owed of a cluster. Each row says what a queue owns, its weight, what its jobs
// request, and what it is owed, in devices.
func TestShares(t *testing.T) {
	type row struct {
		queue, parent              string
		nominal                    float64
		weight                     int64
		priority                   int32
		requested, owed, foreign   float64
		borrowing, lending         float64 // 0: no limit; negative: none
		isolated, noQuota, overAll bool
	}
	for _, c := range []struct {
		name string
		gpus float64
		rows []row
	}{
		{"what no queue requests is divided by weight", 12, []row{
			{queue: "a", nominal: 2, weight: 1, requested: 12, owed: 4},
			{queue: "b", nominal: 2, weight: 3, requested: 12, owed: 8},
			{queue: "idle", nominal: 8, weight: 5},
		}},
		{"a queue that requests little leaves the rest of its part to the others", 12, []row{
			{queue: "a", nominal: 0, weight: 1, requested: 1, owed: 1},
			{queue: "b", nominal: 0, weight: 1, requested: 12, owed: 6},
			{queue: "c", nominal: 0, weight: 1, requested: 5, owed: 5},
			{queue: "idle", nominal: 12, weight: 1},
		}},
		{"quota first, whatever the weights", 10, []row{
			{queue: "owner", nominal: 8, weight: 1, requested: 8, owed: 8},
			{queue: "guest", nominal: 0, weight: 100, requested: 10, owed: 2},
			{queue: "idle", nominal: 2, weight: 1},
		}},
		{"whole devices; the queue that loses most by that gets the next one", 5, []row{
			{queue: "a", nominal: 0, weight: 1, requested: 5, owed: 2},
			{queue: "b", nominal: 0, weight: 2, requested: 5, owed: 3},
			{queue: "idle", nominal: 5, weight: 1},
		}},
		{"without a larger loss, the first of them", 5, []row{
			{queue: "a", nominal: 0, weight: 1, requested: 5, owed: 3},
			{queue: "b", nominal: 0, weight: 1, requested: 5, owed: 2},
			{queue: "idle", nominal: 5, weight: 1},
		}},
		{"a part of a device that is requested is given", 2, []row{
			{queue: "a", nominal: 0, weight: 1, requested: 0.5, owed: 0.5},
			{queue: "b", nominal: 0, weight: 1, requested: 2, owed: 1.5},
			{queue: "idle", nominal: 2, weight: 1},
		}},
		{"what a queue does not lend stays unused", 12, []row{
			{queue: "a", nominal: 0, weight: 1, requested: 12, owed: 2},
			{queue: "b", nominal: 0, weight: 1, requested: 12, owed: 2},
			{queue: "idle", nominal: 12, weight: 1, lending: 4},
		}},
		{"an isolated queue neither lends nor borrows", 12, []row{
			{queue: "a", nominal: 2, weight: 1, requested: 12, owed: 8},
			{queue: "alone", nominal: 4, weight: 1, requested: 12, owed: 4, isolated: true},
			{queue: "idle", nominal: 6, weight: 1},
		}},
		{"a borrowing limit", 12, []row{
			{queue: "a", nominal: 2, weight: 1, requested: 12, owed: 3, borrowing: 1},
			{queue: "b", nominal: 0, weight: 1, requested: 12, owed: 9},
			{queue: "idle", nominal: 10, weight: 1},
		}},
		{"queues below share what their parent is owed", 12, []row{
			{queue: "left", nominal: 0, weight: 1, requested: 20, owed: 6},
			{queue: "l1", parent: "left", weight: 1, requested: 10, owed: 2},
			{queue: "l2", parent: "left", weight: 2, requested: 10, owed: 4},
			{queue: "right", nominal: 0, weight: 1, requested: 20, owed: 6},
			{queue: "idle", nominal: 12, weight: 1},
		}},
		{"what one queue below does not request goes to its siblings first", 12, []row{
			{queue: "left", weight: 1, requested: 20, owed: 9},
			{queue: "l1", parent: "left", nominal: 2, weight: 1, requested: 20, owed: 9},
			{queue: "l2", parent: "left", nominal: 4, weight: 1},
			{queue: "right", nominal: 0, weight: 1, requested: 20, owed: 3},
			{queue: "idle", nominal: 6, weight: 1},
		}},
		{"the cluster has less than its queues own", 6, []row{
			{queue: "a", nominal: 4, weight: 1, requested: 4, owed: 2},
			{queue: "b", nominal: 8, weight: 1, requested: 8, owed: 4},
		}},
		{"quotas over all models", 12, []row{
			{queue: "a", nominal: 2, weight: 1, requested: 12, owed: 4, overAll: true},
			{queue: "b", nominal: 2, weight: 3, requested: 12, owed: 8, overAll: true},
			{queue: "idle", nominal: 8, weight: 5, overAll: true},
		}},
		{"what other schedulers use is not divided", 12, []row{
			{queue: "a", nominal: 0, weight: 1, requested: 12, owed: 4},
			{queue: "b", nominal: 0, weight: 1, requested: 12, owed: 4},
			{queue: "idle", nominal: 12, weight: 1, foreign: 4},
		}},
		{"what a queue does not lend of a quota over all models", 12, []row{
			{queue: "a", nominal: 0, weight: 1, requested: 12, owed: 2, overAll: true},
			{queue: "b", nominal: 0, weight: 1, requested: 12, owed: 2, overAll: true},
			{queue: "idle", nominal: 12, weight: 1, lending: 4, overAll: true},
		}},
		{"the borrowing limit of a parent", 12, []row{
			{queue: "left", nominal: 2, weight: 1, requested: 4, owed: 4, borrowing: 2},
			{queue: "l1", parent: "left", weight: 1, requested: 10, owed: 2},
			{queue: "l2", parent: "left", weight: 1, requested: 10, owed: 2},
			{queue: "right", nominal: 0, weight: 1, requested: 12, owed: 8},
			{queue: "idle", nominal: 10, weight: 1},
		}},
		{"the borrowing limit of a parent over all models", 12, []row{
			{queue: "left", nominal: 2, weight: 1, requested: 4, owed: 4, borrowing: 2, overAll: true},
			{queue: "l1", parent: "left", weight: 1, requested: 10, owed: 2},
			{queue: "l2", parent: "left", weight: 1, requested: 10, owed: 2},
			{queue: "right", nominal: 0, weight: 1, requested: 12, owed: 8, overAll: true},
			{queue: "idle", nominal: 10, weight: 1, overAll: true},
		}},
		{"siblings of higher priority get all they request first, whatever the weights", 12, []row{
			{queue: "a", weight: 100, requested: 12, owed: 5},
			{queue: "b", weight: 1, priority: 1, requested: 3, owed: 3},
			{queue: "c", weight: 1, priority: 10, requested: 4, owed: 4},
			{queue: "idle", nominal: 12, weight: 1},
		}},
		{"those of equal priority by weight, those of lower priority nothing", 12, []row{
			{queue: "a", weight: 1, requested: 12},
			{queue: "b", weight: 1, priority: 5, requested: 12, owed: 4},
			{queue: "c", weight: 2, priority: 5, requested: 12, owed: 8},
			{queue: "idle", nominal: 12, weight: 1},
		}},
		{"priority does not take what others own", 12, []row{
			{queue: "owner", nominal: 4, weight: 1, priority: -1, requested: 12, owed: 4},
			{queue: "guest", weight: 1, requested: 12, owed: 8},
			{queue: "idle", nominal: 8, weight: 1},
		}},
		{"those of weight 0 divide evenly what the others leave", 12, []row{
			{queue: "a", weight: 5, requested: 7, owed: 7},
			{queue: "b", requested: 12, owed: 2},
			{queue: "c", requested: 12, owed: 2},
			{queue: "d", requested: 1, owed: 1},
			{queue: "idle", nominal: 12, weight: 1},
		}},
		{"weight 0 comes after all of its priority, and before lower ones", 12, []row{
			{queue: "a", weight: 5, requested: 20},
			{queue: "b", priority: 1, requested: 20, owed: 4},
			{queue: "c", priority: 1, weight: 1, requested: 8, owed: 8},
			{queue: "idle", nominal: 12, weight: 1},
		}},
		{"what a queue of weight 0 owns is its own", 12, []row{
			{queue: "a", weight: 1, requested: 20, owed: 9},
			{queue: "z", nominal: 3, requested: 20, owed: 3},
			{queue: "idle", nominal: 9, weight: 1},
		}},
		{"priority counts against siblings only", 12, []row{
			{queue: "left", weight: 1, requested: 20, owed: 6},
			{queue: "l1", parent: "left", weight: 1, priority: 9, requested: 10, owed: 6},
			{queue: "l2", parent: "left", weight: 2, requested: 10},
			{queue: "right", weight: 1, requested: 20, owed: 6},
			{queue: "idle", nominal: 12, weight: 1},
		}},
		{"without quotas, all is divided by weight", 12, []row{
			{queue: "a", weight: 1, requested: 12, owed: 4, noQuota: true},
			{queue: "b", weight: 2, requested: 12, owed: 8, noQuota: true},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := NewLedger()
			for _, r := range c.rows {
				q := QueueSpec{Name: r.queue, Parent: r.parent, Weight: r.weight, Priority: r.priority}
				limit := func(v float64) Milli {
					switch {
					case v == 0:
						return Unlimited
					case v < 0:
						return 0
					}
					return Milli(v * 1000)
				}
				if model := map[bool]string{true: AnyModel, false: "G"}[r.overAll]; !r.noQuota && (r.parent == "" || r.nominal > 0) {
					q.Quota = []Quota{{model, Milli(r.nominal * 1000), limit(r.borrowing), limit(r.lending)}}
				}
				if r.isolated {
					q.Mode = Isolated
				}
				if err := l.Set(q); err != nil {
					t.Fatal(err)
				}
			}
			parents := map[string]bool{}
			for _, r := range c.rows {
				parents[r.parent] = true
			}
			for _, r := range c.rows {
				if q, _ := l.Lookup(r.queue); !parents[r.queue] {
					q.Request([]string{"G"}, Milli(r.requested*1000))
					q.Pin("G", Milli(r.foreign*1000), Foreign)
				}
			}
			l.Divide(map[string]Milli{"G": Milli(c.gpus * 1000)})
			for _, r := range c.rows {
				q, _ := l.Lookup(r.queue)
				got := shareOf(q.Shares(), "G").Fair
				if want := Milli(r.owed * 1000); got != want {
					t.Errorf("%s is owed %d, expected %d", r.queue, got, want)
				}
			}
		})
	}
}

// At one level, each queue is owed what a level of water gives it that rises in all of them at
// the rate of their weights, first in those of the highest priority until they are full: the same,
// but for less than a device.
func TestSharesAreMaxMin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLedger()
		n := rapid.IntRange(1, 6).Draw(t, "queues")
		var request, nominal, weight []float64
		var priority []int32
		owned := Milli(0)
		for i := range n {
			own, w := Milli(rapid.IntRange(0, 8).Draw(t, "nominal"))*1000, int64(rapid.IntRange(1, 5).Draw(t, "weight"))
			asks := Milli(rapid.IntRange(0, 20).Draw(t, "request")) * 1000
			if rapid.IntRange(0, 4).Draw(t, "fraction") == 0 {
				asks += 300
			}
			priority = append(priority, rapid.Int32Range(-1, 1).Draw(t, "priority"))
			q := QueueSpec{Name: fmt.Sprint("q", i), Weight: w, Priority: priority[i], Quota: []Quota{{"G", own, Unlimited, Unlimited}}}
			if err := l.Set(q); err != nil {
				t.Fatal(err)
			}
			queue, _ := l.Lookup(q.Name)
			queue.Request([]string{"G"}, asks)
			owned += own
			request, weight = append(request, float64(asks)), append(weight, float64(w))
			nominal = append(nominal, math.Min(float64(own), float64(asks)))
		}
		l.Divide(map[string]Milli{"G": owned})

		// The level of each priority, by halving: in at most 100 steps it is exact to a double's precision.
		want := slices.Clone(nominal)
		for of := int32(1); of >= -1; of-- {
			at := func(level float64) (sum float64, each []float64) {
				for i := range n {
					v := want[i]
					if priority[i] == of {
						v = math.Min(request[i], nominal[i]+level*weight[i])
					}
					sum, each = sum+v, append(each, v)
				}
				return sum, each
			}
			low, high := 0.0, 1e9
			for range 100 {
				if sum, _ := at((low + high) / 2); sum <= float64(owned) {
					low = (low + high) / 2
				} else {
					high = (low + high) / 2
				}
			}
			_, want = at(low)
		}
		total := Milli(0)
		for i := range n {
			q, _ := l.Lookup(fmt.Sprint("q", i))
			got := shareOf(q.Shares(), "G").Fair
			total += got
			if math.Abs(float64(got)-want[i]) >= 1000 {
				t.Errorf("q%d is owed %d, by the level of water %.1f", i, got, want[i])
			}
			if float64(got) < nominal[i] || float64(got) > request[i] {
				t.Errorf("q%d is owed %d: its quota covers %.0f of the %.0f that it requests", i, got, nominal[i], request[i])
			}
		}
		asked := 0.0
		for _, r := range request {
			asked += r
		}
		if want := math.Min(asked, float64(owned)); float64(total) != want {
			t.Errorf("all are owed %d, expected %.0f: no device is left while one is requested", total, want)
		}
	})
}

// In any tree, with any limits, shares add up: no level divides more than it is owed, and no queue
// is owed more than it requests.
func TestSharesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLedger()
		limit := rapid.SampledFrom([]Milli{0, 1000, 2500, Unlimited})
		for i := range rapid.IntRange(1, 8).Draw(t, "queues") {
			q := QueueSpec{Name: fmt.Sprint("q", i), Weight: rapid.Int64Range(1, 1_000_000).Draw(t, "weight"), Priority: rapid.Int32Range(-2, 2).Draw(t, "priority"), Mode: Mode(rapid.IntRange(0, 1).Draw(t, "mode"))}
			if i > 0 && rapid.Bool().Draw(t, "below") {
				q.Parent = fmt.Sprint("q", rapid.IntRange(0, i-1).Draw(t, "parent"))
			}
			for _, m := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"A", "B", AnyModel}), 0, 3, rapid.ID[string]).Draw(t, "models") {
				q.Quota = append(q.Quota, Quota{m, Milli(rapid.IntRange(0, 4000).Draw(t, "nominal")), limit.Draw(t, "borrow"), limit.Draw(t, "lend")})
			}
			if err := l.Set(q); err != nil {
				t.Fatal(err)
			}
			queue, _ := l.Lookup(q.Name)
			queue.Request([]string{"A"}, Milli(rapid.IntRange(0, 9000).Draw(t, "A")))
			queue.Request([]string{"B"}, Milli(rapid.IntRange(0, 9000).Draw(t, "B")))
		}
		capacity := map[string]Milli{"A": 12000, "B": Milli(rapid.IntRange(0, 9000).Draw(t, "capacity"))}
		l.Divide(capacity)
		for model, has := range capacity {
			of := func(q *Queue) Share {
				for _, s := range q.Shares() {
					if s.Model == model {
						return s
					}
				}
				return Share{}
			}
			var check func(q *Queue, most Milli)
			check = func(q *Queue, most Milli) {
				sum := Milli(0)
				for _, c := range q.children {
					s := of(c)
					if s.Fair < 0 || s.Fair > s.Requested || s.Nominal > s.Requested {
						t.Errorf("%s of %s: %+v", model, c.Name, s)
					}
					sum += s.Fair
					check(c, s.Fair)
				}
				if sum > most {
					t.Errorf("%s: queues below %q are owed %d of %d", model, q.Name, sum, most)
				}
			}
			check(l.root, has)
		}
	})
}

// What is divided again where requests have changed is what is divided if all is summed up again, and so are the counts of changes.
func TestDividedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		once, again := NewLedger(), NewLedger()
		both := func(do func(*Ledger)) { do(once); do(again) }
		limit := rapid.SampledFrom([]Milli{Unlimited, Unlimited, 0, 1000, 3000})
		n := rapid.IntRange(2, 9).Draw(t, "queues")
		set := func(i int) {
			q := QueueSpec{Name: fmt.Sprint("q", i), Weight: int64(rapid.IntRange(0, 3).Draw(t, "weight")), Priority: int32(rapid.IntRange(0, 1).Draw(t, "priority"))}
			if i > 0 {
				q.Parent = rapid.SampledFrom([]string{"", "q0", fmt.Sprint("q", i/2)}).Draw(t, "parent")
			}
			for _, m := range []string{"A", "B", AnyModel}[:rapid.IntRange(0, 3).Draw(t, "quotas")] {
				q.Quota = append(q.Quota, Quota{m, Milli(rapid.IntRange(0, 4000).Draw(t, "nominal")), limit.Draw(t, "borrow"), limit.Draw(t, "lend")})
			}
			if once.Set(q) == nil {
				if err := again.Set(q); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range n {
			set(i)
		}
		capacity, requested := map[string]Milli{"A": 12000, "B": 5000}, map[string]Milli{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			i := rapid.IntRange(0, n-1).Draw(t, "queue")
			name, amount := fmt.Sprint("q", i), Milli(rapid.IntRange(-1000, 3000).Draw(t, "amount"))
			models := rapid.SampledFrom([][]string{{"A"}, {"B"}, {"A", "B"}, nil}).Draw(t, "models")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				set(i)
			case 1:
				capacity["B"] = max(0, capacity["B"]+amount)
			case 2:
				lent := map[string]Milli{"A": 12000, "B": capacity["B"], AnyModel: 12000 + capacity["B"]}
				both(func(l *Ledger) { l.LendUnowned(lent) })
			case 3:
				both(func(l *Ledger) { l.byName[name].Add("A", amount) })
			default:
				of := fmt.Sprint(name, models)
				amount = max(amount, -requested[of])
				requested[of] += amount
				both(func(l *Ledger) { l.byName[name].Request(models, amount) })
			}
			again.lastDivision = nil
			both(func(l *Ledger) { l.Divide(capacity) })
			if once.Excesses() != again.Excesses() {
				t.Fatalf("%d excesses are counted, expected %d", once.Excesses(), again.Excesses())
			}
			for name, q := range once.byName {
				of := again.byName[name]
				if !slices.Equal(q.shares, of.shares) || !slices.Equal(q.ownShares, of.ownShares) || q.gains != of.gains {
					t.Fatalf("%s is owed %v, own jobs %v after %d gains; expected %v, %v, %d", name, q.shares, q.ownShares, q.gains, of.shares, of.ownShares, of.gains)
				}
			}
		}
	})
}

// BenchmarkShares divides four models among queues that all request two of them.
func BenchmarkShares(b *testing.B) {
	for _, queues := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint("queues=", queues), func(b *testing.B) {
			l := NewLedger()
			for i := range queues {
				q := QueueSpec{Name: fmt.Sprint("q", i), Weight: int64(1 + i%7), Quota: []Quota{{AnyModel, 8000, Unlimited, Unlimited}}}
				if i >= 10 {
					q.Parent = fmt.Sprint("q", i%10)
				}
				if err := l.Set(q); err != nil {
					b.Fatal(err)
				}
				queue, _ := l.Lookup(q.Name)
				queue.Request([]string{fmt.Sprint("m", i%4)}, 16000)
				queue.Request([]string{fmt.Sprint("m", (i+1)%4)}, Milli(1000*(i%50)))
			}
			capacity := map[string]Milli{"m0": Milli(queues) * 2000, "m1": Milli(queues) * 2000, "m2": Milli(queues) * 2000, "m3": Milli(queues) * 2000}
			b.ReportAllocs()
			for b.Loop() {
				l.divided = nil
				l.Divide(capacity)
			}
		})
	}
}

// A model that jobs named once costs nothing later.
func TestRequestsAreForgotten(t *testing.T) {
	q := NewLedger().newQueue()
	for i := range 10_000 {
		q.Request([]string{fmt.Sprint("model", i), "B"}, 1000)
	}
	for i := range 10_000 {
		q.Request([]string{fmt.Sprint("model", i), "B"}, -1000)
	}
	if len(q.requested) > 0 || q.mostRequested >= 10_000 {
		t.Errorf("%d requests are left, in room for %d", len(q.requested), q.mostRequested)
	}
}
