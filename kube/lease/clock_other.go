//go:build !linux

package lease

import (
	"sync"
	"time"
)

// SinceBoot is a clock that also runs while this process is stopped and while the machine
// is suspended, and never goes back: it advances by the larger of two advances, that of
// Go's own clock, which may stop in a suspend, and that of the time of day, which may be
// set. So a lease may look older than it is, not fresher.
func SinceBoot() time.Duration { return passed.add(time.Now()) }

var passed elapsed

type elapsed struct {
	mu   sync.Mutex
	last time.Time
	sum  time.Duration
}

func (e *elapsed) add(now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.last.IsZero() {
		e.sum += max(0, now.Sub(e.last), now.Round(0).Sub(e.last.Round(0)))
	}
	e.last = now
	return e.sum
}
