package kube

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// watchdog ends a scheduler whose loop is stuck: one pass lasts for too long, or never
// ends. Otherwise such an instance would renew its leases for ever, and no other would
// schedule.
type watchdog struct {
	limit  time.Duration // of one round of the loop, of which there are several a second
	rounds atomic.Int64
	stuck  atomic.Bool
}

// begin is called at the beginning of each round.
func (w *watchdog) begin() { w.rounds.Add(1) }

// watch returns true if a round lasts longer than the limit, and false when over is closed.
// It counts its own ticks rather than read a clock: the time for which the process, or the
// machine, was stopped is not the fault of the loop.
func (w *watchdog) watch(over <-chan struct{}) bool {
	tick := time.NewTicker(w.limit / watchdogTicks)
	defer tick.Stop()
	for seen, ticks := int64(-1), 0; ; {
		select {
		case <-over:
			return false
		case <-tick.C:
		}
		if now := w.rounds.Load(); now != seen {
			seen, ticks = now, 0
			continue
		}
		if ticks++; ticks >= watchdogTicks {
			w.stuck.Store(true)
			return true
		}
	}
}

// watchdogTicks is how often the watchdog looks within the limit.
const watchdogTicks = 100

// stuckError reports that a pass has lasted too long.
type stuckError struct{ limit time.Duration }

func (e stuckError) Error() string {
	return fmt.Sprintf("a scheduling pass has lasted longer than %v: the process ends, so that another instance can schedule", e.limit)
}

// stacks are the stacks of all goroutines, at most a megabyte.
func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}
