package quota

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Whenever a queue has the same standing, it has the same room below the top, and where as much is used at the top, all the same, whatever was booked,
// pinned, taken back, left or set meanwhile.
func TestStandingSaysTheRoom(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	again := 0
	for range 300 {
		l := NewLedger()
		models := []string{"A", "B"}
		set := func(i int) {
			q := QueueSpec{Name: fmt.Sprint("q", i), Weight: 1, Mode: Mode(rng.IntN(2))}
			if i > 0 {
				q.Parent = fmt.Sprint("q", (i-1)/2)
			}
			for _, m := range []string{"A", "B", AnyModel} {
				if rng.IntN(3) > 0 {
					q.Quota = append(q.Quota, Quota{Model: m, Nominal: Milli(rng.IntN(9)) * 1000, BorrowingLimit: Milli(rng.IntN(9)) * 1000, LendingLimit: Milli(rng.IntN(5)) * 1000})
				}
			}
			if err := l.Set(q); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 8 {
			set(i)
		}
		type at struct {
			queue, model string
			Standing
			top [2]Milli
		}
		seen := map[at]string{}
		for range 60 {
			q, _ := l.Lookup(fmt.Sprint("q", rng.IntN(8)))
			m, gpu := models[rng.IntN(2)], Milli(rng.IntN(3)+1)*1000
			switch rng.IntN(7) {
			case 6:
				q.Leave(m, gpu)
				if rng.IntN(2) > 0 {
					q.Leave(m, -gpu)
				}
			case 0, 1:
				q.Add(m, gpu)
			case 2, 3: // a trial
				q.Add(m, -gpu)
				if rng.IntN(4) > 0 {
					q.Add(m, gpu)
				}
			case 4:
				q.Pin(m, gpu, Pin(rng.IntN(2)))
			case 5:
				if rng.IntN(8) == 0 {
					set(rng.IntN(8))
				} else if rng.IntN(4) == 0 {
					q.Request([]string{m}, 2000)
					l.Divide(map[string]Milli{"A": 20_000, "B": Milli(rng.IntN(30)) * 1000})
				}
			}
			for q := range l.All() {
				for _, m := range models {
					rooms := fmt.Sprint(q.NominalRoom(m), q.OwedRoom(m), q.ClaimRoom(m, q))
					for d := 1; d <= l.Deepest(); d++ {
						rooms += fmt.Sprint(" ", q.RoomWithin(m, d))
					}
					whole := fmt.Sprint(rooms, " ", q.RoomNow(m), q.PinnedRoom(m), q.RoomWithin(m, 0))
					for is, rooms := range map[at]string{{q.Name, m, q.Standing(), [2]Milli{-1}}: rooms, {q.Name, m, q.Standing(), l.AtTop(m)}: whole} {
						if was, ok := seen[is]; ok {
							if again++; was != rooms {
								t.Fatalf("queue %s has %s of %s, and had %s in the same standing", q.Name, rooms, m, was)
							}
						}
						seen[is] = rooms
					}
				}
			}
		}
	}
	if again < 10_000 {
		t.Errorf("standings were the same %d times: too few to tell", again)
	}
	t.Log(again)
}
