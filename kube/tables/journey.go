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
	// Submitted is when the job had all that it needs for a decision, Decided when it had its
	// places, Bound when the API server had accepted the last binding, Running when that many
	// pods ran.
	Created, Submitted, Decided, Bound, Running time.Time
}

// Tracked is a Journey in progress.
type Tracked struct {
	Journey
	Runs int // pods that run
}

// Clock is the current time, as wall clock.
func (t *Tables) Clock() time.Time { return time.Unix(0, int64(t.Now)) }
