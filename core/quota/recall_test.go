package quota

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// What a queue recalls is what it would find now, whatever was booked, pinned, left, lent, divided or set since.
func TestRoomsAreRecalledUntilTheyChange(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	for range 300 {
		l := NewLedger()
		models := []string{"A", "B"}
		set := func(i int) {
			q := QueueSpec{Name: fmt.Sprint("q", i), Weight: 1, Mode: Mode(rng.IntN(2))}
			if i > 1 {
				q.Parent = fmt.Sprint("q", i%2)
			}
			for _, m := range models {
				q.Quota = append(q.Quota, Quota{Model: m, Nominal: Milli(rng.IntN(9)) * 1000, BorrowingLimit: Milli(rng.IntN(9)) * 1000, LendingLimit: Unlimited})
			}
			if err := l.Set(q); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 5 {
			set(i)
		}
		for step := range 40 {
			q, _ := l.Lookup(fmt.Sprint("q", rng.IntN(5)))
			m, gpu := models[rng.IntN(2)], Milli(rng.IntN(5)-1)*1000
			did := rng.IntN(6)
			switch did {
			case 0:
				q.Add(m, gpu)
			case 1:
				q.Leave(m, gpu)
			case 2:
				q.Pin(m, gpu, Pin(rng.IntN(2)))
			case 3:
				q.Request([]string{m}, 2000)
				l.Divide(map[string]Milli{"A": 20_000, "B": Milli(rng.IntN(30)) * 1000})
			case 4:
				set(rng.IntN(5))
			case 5:
				l.LendUnowned(map[string]Milli{"A": Milli(rng.IntN(90)) * 1000, "B": 50_000})
			}
			rooms := func() (all []string) {
				for q := range l.All() {
					for _, m := range models {
						all = append(all, fmt.Sprint(q.Name, m, q.RoomNow(m), q.NominalRoom(m), q.RoomWithin(m, 0), q.RoomWithin(m, 1), q.RoomWithin(m, 2), q.ClaimRoom(m, q), q.OwedRoom(m)))
					}
				}
				return all
			}
			before := rooms()
			for q := range l.All() {
				q.recalled = recalled{}
			}
			if now := rooms(); !slices.Equal(before, now) {
				t.Fatalf("step %d, %d: the queues recall\n%v, and have\n%v", step, did, before, now)
			}
		}
	}
}
