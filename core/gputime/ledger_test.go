package gputime

import (
	"fmt"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func (a Amount) big() *big.Int {
	x := new(big.Int).SetUint64(a.hi)
	return x.Lsh(x, 64).Add(x, new(big.Int).SetUint64(a.lo))
}

func drawAmount(t *rapid.T, name string) Amount {
	bits := rapid.IntRange(0, 100).Draw(t, name+" bits")
	a := Amount{rapid.Uint64().Draw(t, name+" high"), rapid.Uint64().Draw(t, name+" low")}
	if bits < 64 {
		return Amount{0, a.lo >> (64 - bits - bits/63)}
	}
	return Amount{a.hi >> (128 - bits), a.lo}
}

// The arithmetic is that of whole numbers, as the documentation says it.
func TestAmounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawAmount(t, "a"), drawAmount(t, "b")
		if got, want := a.add(b).big(), new(big.Int).Add(a.big(), b.big()); got.Cmp(want) != 0 {
			t.Fatalf("%v + %v: got %v", a, b, got)
		}
		decayed := new(big.Int).Mul(a.big(), big.NewInt(decay))
		if got := a.decayed().big(); got.Cmp(decayed.Rsh(decayed, 32)) != 0 {
			t.Fatalf("%v decayed: got %v, want %v", a, got, decayed)
		}
		x, y := a.big(), b.big()
		if n := y.BitLen(); n > 63 {
			x.Rsh(x, uint(n-63))
			y.Rsh(y, uint(n-63))
		}
		if text := a.String(); text != a.big().String() {
			t.Fatalf("%v is written as %s", a.big(), text)
		} else if read, ok := ParseAmount(text); ok != (a.hi>>56 == 0) || ok && read != a {
			t.Fatalf("%s is read as %v, %v", text, read, ok)
		}
		want := int64(MostIndex)
		if x.Sign() == 0 {
			want = 0
		} else if y.Sign() > 0 && x.BitLen() <= 97 {
			if q := x.Mul(x, big.NewInt(billion)).Div(x, y); q.IsInt64() {
				want = q.Int64()
			}
		}
		if got := index(a, b); got != want {
			t.Fatalf("index of %v, %v: got %d, want %d", a, b, got, want)
		}
	})
}

// Whatever queues request: all that is requested is deserved if there is enough, else all that there is but for what rounding
// takes; and neither a queue nor a job deserves more than it requests. So who requests more than the others takes nothing of
// their equal parts.
func TestNobodyDeservesMoreThanItRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := New(0, 0)
		l.SetUnits(rapid.Int64Range(0, 1000).Draw(t, "GPUs") * PerGPU)
		names := []string{""}
		var jobs []*Job
		wanted := map[*Job]int64{}
		for i := range rapid.IntRange(1, 8).Draw(t, "queues") {
			name := fmt.Sprint("q", i)
			l.Set(name, rapid.SampledFrom(names).Draw(t, "parent"), rapid.Int64Range(0, 5).Draw(t, "weight"))
			names = append(names, name)
			for range rapid.IntRange(0, 4).Draw(t, "jobs") {
				j := l.Add(name)
				wanted[j] = rapid.Int64Range(0, 300).Draw(t, "wants") * PerGPU
				l.Request(j, wanted[j])
				jobs = append(jobs, j)
			}
		}
		l.Advance(5)
		l.Advance(15)
		sum, all := int64(0), int64(0)
		for _, j := range jobs {
			got := j.Deserved().big().Int64()
			if got > 10*wanted[j] {
				t.Fatalf("a job that wants %d deserved %d in 10 ns", wanted[j], got)
			}
			sum, all = sum+got, all+10*wanted[j]
		}
		lost := int64(10 * (len(names) + len(jobs)) * (len(jobs) + 1))
		if have := min(all, 10*l.units); sum > have || sum < have-lost {
			t.Fatalf("%d deserved together, expected %d", sum, have)
		}
		for i, j := range jobs {
			for _, o := range jobs[:i] {
				if a, b := j.Deserved().big(), o.Deserved().big(); j.account == o.account && wanted[j] >= wanted[o] && a.Int64()-b.Int64() > lost && b.Int64() != 10*wanted[o] {
					t.Fatalf("one that wants %d deserved %v, one of its queue that wants %d deserved %v, less than it wants", wanted[j], a, wanted[o], b)
				}
			}
		}
	})
}

// A job that comes gets its own part from then on, and one that requests more goes on from what it had.
func TestJobsCountFromWhenTheyCome(t *testing.T) {
	l := New(0, 0)
	l.SetUnits(8 * PerGPU)
	l.Set("q", "", 1)
	a := l.Add("q")
	l.Advance(0)
	l.Request(a, 8*PerGPU)
	l.Hold(a, 8*PerGPU)
	l.Advance(10)
	b := l.Add("q")
	l.Request(b, 8*PerGPU)
	l.Advance(20)
	l.Request(a, 2*PerGPU-8*PerGPU)
	l.Advance(30)
	for _, c := range []struct {
		job                *Job
		received, deserved int64
	}{{a, 240, 80 + 40 + 20}, {b, 0, 40 + 60}} {
		if r, d := c.job.Received(l).big().Int64(), c.job.Deserved().big().Int64(); r != c.received*PerGPU || d != c.deserved*PerGPU {
			t.Errorf("received %d, deserved %d; expected %d, %d GPUs x ns", r/PerGPU, d/PerGPU, c.received, c.deserved)
		}
	}
}

// After a half-life about half is left, whether time goes on in one step or in many.
func TestHalfLife(t *testing.T) {
	var results []Amount
	for _, step := range []Time{1, 7, 1600} {
		l := New(0, 1600)
		l.SetUnits(PerGPU)
		l.Set("q", "", 1)
		j := l.Add("q")
		l.Advance(0)
		l.Request(j, PerGPU)
		for now := step; now <= 1600; now += step {
			l.Advance(now)
		}
		l.Advance(1600)
		l.Request(j, -PerGPU)
		before := l.byName["q"].deserved
		l.Advance(3200)
		if left := new(big.Int).Div(new(big.Int).Mul(l.byName["q"].deserved.big(), big.NewInt(1_000_000)), before.big()).Int64(); left < 499_999 || left > 500_001 {
			t.Errorf("%d millionths are left after a half-life", left)
		}
		results = append(results, before)
	}
	if results[0] != results[1] || results[0] != results[2] {
		t.Errorf("in steps of different lengths: %v", results)
	}
}
