package audit

import "slices"

// day is the time in which restarts after failures count.
const day = 24 * 3600 * 1_000_000_000

// recover takes in what becomes of a job that failed.
func (a *auditor) recover(j *job, d *decision) {
	switch string(d.op) {
	case "unhold":
		j.onHold, j.restarts = false, nil // its failures are forgotten
		return
	case "hold":
		if j.onHold {
			a.breach(Recovery, "job %s is held at %s, and is held already", j.name, seconds(d.t))
		}
		j.onHold = true
		return
	}
	if j.onHold {
		a.breach(Recovery, "job %s is to restart at %s, and is held", j.name, seconds(d.t))
	}
	j.restarts = append(slices.DeleteFunc(j.restarts, func(at int64) bool { return d.t-at >= day }), d.t)
	if r := a.summary.Rules; r != nil && r.MaxRestarts > 0 && len(j.restarts) > r.MaxRestarts {
		a.breach(Recovery, "job %s restarts at %s for the %dth time within a day: at most %d times", j.name, seconds(d.t), len(j.restarts), r.MaxRestarts)
	}
}

// unheld checks that a job that starts is not held.
func (a *auditor) unheld(j *job, d *decision) {
	if j.onHold {
		a.breach(Recovery, "%s is bound at %s, and its job is held", d.pod, seconds(d.t))
	}
}
