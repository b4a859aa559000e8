package kube

import "time"

// steady is a clock that begins at what another says now, and goes on by what has
// passed since, even if that clock is set meanwhile: no period ends sooner or later
// because a user, or a time server, set the clock. Times that others wrote are
// compared with it only where this instance cannot have seen for itself for how long
// something has been so, and count for no later than now.
func steady(wall func() time.Time) func() time.Time {
	began := wall()
	return func() time.Time { return began.Add(wall().Sub(began)) } // Sub goes by the monotonic readings
}
