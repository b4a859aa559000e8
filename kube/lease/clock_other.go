//go:build !linux

package lease

import (
	"sync"
	"time"
)

// SinceBoot is a clock that goes on while this process is stopped and while the
// machine is suspended, and never goes back: it gains whichever is more of what Go's
// own clock gained, which may stand still in a suspend, and what the time of day
// did, which may be set. So a lease may look older than it is, not fresher.
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
