// Package journey follows a job from its creation until enough of it runs, once.
package journey

import "time"

// Journey is a job's way. Times are those of the scheduler's clock, but Created, which is the API
// server's.
type Journey struct {
	Job, Queue string
	// Pods is how many started together.
	Pods int
	// Submitted is when the job had all that it needs for a decision, Decided when it had its
	// places, Bound when the API server had accepted the last binding, Running when that many
	// pods ran.
	Created, Submitted, Decided, Bound, Running time.Time
}

// Tracked is a Journey in progress; nil is one that nobody follows.
type Tracked struct {
	Journey
	Runs int // pods that run
}

// Decide records that the first places of the job were chosen.
func (t *Tracked) Decide(now time.Time, pods int) {
	if t != nil && t.Decided.IsZero() {
		t.Decided, t.Pods = now, pods
	}
}

// Bind records that no binding of the job is in flight, and reports whether the journey is over.
func (t *Tracked) Bind(now time.Time) (over bool) {
	if t == nil || !t.Bound.IsZero() || t.Decided.IsZero() {
		return false
	}
	t.Bound = now
	return t.arrive(now)
}

// Run records that another pod has begun to run, and reports whether the journey is over.
func (t *Tracked) Run(now time.Time) (over bool) {
	if t == nil {
		return false
	}
	t.Runs++
	return t.arrive(now)
}

func (t *Tracked) arrive(now time.Time) bool {
	if t.Bound.IsZero() || t.Runs < t.Pods {
		return false
	}
	t.Running = now
	return true
}
