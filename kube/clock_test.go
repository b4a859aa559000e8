package kube

import (
	"testing"
	"time"
	"unsafe"
)

// jumped is a time as it is read when the wall clock was set by so many seconds: its
// monotonic reading is the same.
func jumped(t time.Time, seconds int64) time.Time {
	out := t
	wall := (*uint64)(unsafe.Pointer(&out)) // the first field of time.Time: 1 bit, 33 bits of seconds, 30 of nanoseconds
	*wall += uint64(seconds << 30)
	return out
}

// The clock by which a scheduler measures is not set with that of its machine.
func TestSteadyClock(t *testing.T) {
	jump := int64(0)
	wall := func() time.Time { return jumped(time.Now(), jump) }
	before := time.Now()
	now := steady(wall)
	after := time.Now()
	for _, jump = range []int64{0, 3600, -3600, 0} {
		if wall().Round(0).Sub(before.Round(0)).Round(time.Hour) != time.Duration(jump)*time.Second {
			t.Fatalf("the test does not set the clock by %d s", jump)
		}
		least := time.Since(after)
		got := time.Duration(now().UnixNano() - before.UnixNano())
		if most := time.Since(before); got < least || got > most {
			t.Errorf("set by %d s, %v to %v after it began it says %v", jump, least, most, got)
		}
	}
}
