package tables

import (
	"time"
)

// Journey is a job's way from its creation until enough of it runs, once. Times
// are those of the scheduler's clock, but Created, which is the API server's.
type Journey struct {
	Job, Queue string
	// Pods is how many started together.
	Pods int
	// Submitted is when all was there that the job needs to be decided on, Decided
	// when it had its places, Bound when the API server had taken the last of the
	// bindings, Running when that many pods ran.
	Created, Submitted, Decided, Bound, Running time.Time
}

// Tracked is a Journey under way.
type Tracked struct {
	Journey
	Runs int // pods that run
}

// Clock is the time now, as others write it.
func (t *Tables) Clock() time.Time { return time.Unix(0, int64(t.Now)) }
