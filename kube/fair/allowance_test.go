package fair

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
)

const minute = 60 * core.Second

// A namespace has room again when what it used has lingered, at once for what was free; who waits longest tries first.
func TestAllowance(t *testing.T) {
	var ended []string
	a := NewAllowance(2, 10*minute, func(k string) { ended = append(ended, k) })
	admits := func(now core.Time, want ...types.UID) {
		t.Helper()
		if got, _ := a.Admit(now); !slices.Equal(got, want) {
			t.Errorf("at %v: %q may try again, expected %q", now, got, want)
		}
	}
	if !a.Use("ns", "x") || a.Use("ns", "x") || !a.Use("ns", "y") || a.Room("ns") != 0 || a.Room("other") != 2 {
		t.Error("x and y do not count once each, for their namespace")
	}
	for _, pod := range []types.UID{"first", "second", "third"} {
		a.Wait("ns", pod)
	}
	a.Wait("ns", "first")
	admits(0)
	a.Release("ns", "x", false, minute)
	admits(minute)
	a.Release("ns", "x", false, minute)
	if admits(10 * minute); !a.Has("ns", "x") {
		t.Error("x counts no longer")
	}
	admits(12*minute, "first")
	admits(13 * minute)
	if a.Has("ns", "x") || !slices.Equal(ended, []string{"x"}) {
		t.Errorf("%q have ended, expected x", ended)
	}
	a.Release("ns", "y", true, 13*minute) // free
	admits(13*minute, "second", "third")
	for _, pod := range []types.UID{"first", "second", "third"} {
		a.Leave("ns", pod)
	}
	if !a.Empty() {
		t.Error("something is left")
	}
}

// Whatever is used and released: what counts is what is used, and what was in the last minutes; in the end nothing is left.
func TestAllowanceRandom(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		ended := map[int]int{}
		a := NewAllowance(5, 10*minute, func(k int) { ended[k]++ })
		uses := map[string]map[int]int{"a": {}, "b": {}}
		last := map[string]map[int]core.Time{"a": {}, "b": {}}
		began, now := 0, core.Time(0)
		for range 2000 {
			now += core.Time(r.IntN(int(minute / 2)))
			ns, k := []string{"a", "b"}[r.IntN(2)], r.IntN(10)
			switch {
			case r.IntN(2) == 0:
				if a.Use(ns, k) {
					began++
				}
				uses[ns][k]++
			case uses[ns][k] > 0:
				a.Release(ns, k, false, now)
				uses[ns][k]--
				last[ns][k] = now
			}
			a.Admit(now)
			for ns, of := range uses {
				for k := range 10 {
					age := now - last[ns][k]
					switch has := a.Has(ns, k); {
					case of[k] > 0 && !has, last[ns][k] > 0 && age < 10*minute && !has, of[k] == 0 && age > 11*minute && has:
						t.Fatalf("seed %d: %s uses %d %d times, and has for the last time %v ago; it counts: %t", seed, ns, k, of[k], age, has)
					}
				}
			}
		}
		for ns, of := range uses {
			for k, n := range of {
				for range n {
					a.Release(ns, k, false, now)
				}
			}
		}
		a.Admit(now + 12*minute)
		a.Admit(now + 24*minute)
		sum := 0
		for _, n := range ended {
			sum += n
		}
		if !a.Empty() || sum != began {
			t.Errorf("seed %d: %d things have begun to count, %d have ended; %s", seed, began, sum, fmt.Sprint(a.accounts))
		}
	}
}
