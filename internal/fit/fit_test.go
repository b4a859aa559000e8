package fit

import (
	"runtime"
	"testing"
)

// A map that was large takes no more memory than what is left needs, and has what it had.
func TestMap(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var is runtime.MemStats
		runtime.ReadMemStats(&is)
		return is.HeapAlloc
	}
	before := heap()
	m, most, copies := map[int]int{}, 0, 0
	const n, left = 200_000, 20
	for i := range n {
		m[i] = i
		m = Map(m, &most)
	}
	if most != n {
		t.Errorf("the peak is %d", most)
	}
	full := heap()
	for i := range n - left {
		delete(m, i)
		was := most
		if m = Map(m, &most); most != was {
			copies++
		}
	}
	if now := heap(); now-before > (full-before)/20 {
		t.Errorf("%d bytes of %d are kept for %d of %d entries", now-before, full-before, left, n)
	}
	if copies < 2 || copies > 10 {
		t.Errorf("the map was copied %d times", copies)
	}
	for i := n - left; i < n; i++ {
		if m[i] != i {
			t.Errorf("%d is lost", i)
		}
	}
	if len(m) != left {
		t.Errorf("%d entries", len(m))
	}
	runtime.KeepAlive(m)
}

// A map that was never large stays as it is.
func TestSmallMap(t *testing.T) {
	m, most := map[int]int{}, 0
	for i := range least - 1 {
		m[i] = i
		m = Map(m, &most)
	}
	clear(m)
	if Map(m, &most); most != least-1 {
		t.Errorf("the peak is %d, expected that of a map that stays", most)
	}
}
