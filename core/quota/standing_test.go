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
	again, moved := 0, 0
	for range 300 {
		l := NewLedger()
		models, listed := []string{"A", "B"}, 2+rng.IntN(2)
		set := func(i int) {
			q := QueueSpec{Name: fmt.Sprint("q", i), Weight: 1, Mode: Mode(rng.IntN(8) / 7)}
			if i > 2 {
				q.Parent = fmt.Sprint("q", (i-3)/2)
			}
			for k, m := range []string{"A", "B", AnyModel}[:listed] {
				if k == i%2 || rng.IntN(3) > 0 {
					of := Quota{Model: m, Nominal: Milli(rng.IntN(9)) * 1000, BorrowingLimit: Unlimited, LendingLimit: Milli(rng.IntN(5)) * 1000}
					if rng.IntN(4) == 0 {
						of.BorrowingLimit = Milli(rng.IntN(9)) * 1000
					}
					q.Quota = append(q.Quota, of)
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
		seen, plain, tops := map[at]string{}, map[at]Milli{}, map[at][2]Milli{}
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
					if i, is := q.Plain(m); is {
						at := at{q.Name, m, q.Standing(), [2]Milli{}}
						is := q.RoomNow(m) + l.AtTop(m)[i]
						if was, ok := plain[at]; ok {
							if was != is {
								t.Fatalf("queue %s has room of %d of %s where it is plain, expected %d", q.Name, is, m, was)
							}
						}
						plain[at] = is
						if tops[at] != l.AtTop(m) {
							moved++
						}
						tops[at] = l.AtTop(m)
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
	if again < 10_000 || moved < 2000 {
		t.Errorf("standings were the same %d times, and %d times plain with other use at the top: too few to tell", again, moved)
	}
	t.Log(again, moved)
}
