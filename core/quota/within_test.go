package quota

import "testing"

// TestRoomWithin: what a queue may use grows with the part of the tree that lends to it, and what
// queues beyond that part have borrowed does not count.
func TestRoomWithin(t *testing.T) {
	l := NewLedger()
	set := func(name, parent string, quota ...Quota) *Queue {
		t.Helper()
		if err := l.Set(QueueSpec{Name: name, Parent: parent, Weight: 1, Quota: quota}); err != nil {
			t.Fatal(err)
		}
		q, _ := l.Lookup(name)
		return q
	}
	of := func(nominal, borrow, lend Milli) Quota { return Quota{"A", nominal, borrow, lend} }
	set("dept", "", of(2000, Unlimited, Unlimited))
	team := set("team", "dept", of(1000, Unlimited, Unlimited))
	beside := set("beside", "dept", of(4000, Unlimited, 3000))
	limited := set("limited", "dept", of(1000, 500, Unlimited))
	none := set("none", "team")
	guest := set("guest", "", of(8000, Unlimited, Unlimited))
	if l.Deepest() != 2 {
		t.Errorf("deepest %d, want 2", l.Deepest())
	}
	check := func(when string, q *Queue, want map[int]Milli) {
		t.Helper()
		for depth, room := range want {
			if got := q.RoomWithin("A", depth); got != room {
				t.Errorf("%s: %s at depth %d: %d, want %d", when, q.Name, depth, got, room)
			}
		}
	}
	// dept has its own 2, the 1 of team, 3 of beside and the 1 of limited.
	check("idle", team, map[int]Milli{Own: 1000, 2: 1000, 1: 7000, 0: 15000})
	check("idle", none, map[int]Milli{Own: 1000, 2: 1000, 1: 7000, 0: 15000})
	check("idle", beside, map[int]Milli{Own: 4000, 2: 4000, 1: 8000, 0: 16000})
	check("idle", limited, map[int]Milli{Own: 1000, 1: 1500, 0: 1500})
	guest.Add("A", 14000)
	check("all borrowed", team, map[int]Milli{Own: 1000, 1: 7000, 0: 7000})
	check("all borrowed", guest, map[int]Milli{Own: -6000, 1: -6000, 0: 1000})
	none.Add("A", 3000)
	check("in use below", team, map[int]Milli{Own: -2000, 2: -2000, 1: 4000})
	beside.Add("A", 5000)
	check("in use beside", team, map[int]Milli{Own: -2000, 1: 0})
	check("in use beside", limited, map[int]Milli{Own: 1000, 1: 1000})
	if err := l.Remove("none"); err != nil {
		t.Fatal(err)
	}
	if l.Deepest() != 1 {
		t.Errorf("deepest %d, want 1", l.Deepest())
	}
}
