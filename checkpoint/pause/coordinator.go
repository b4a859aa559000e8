package pause

// Op is what the coordinator was asked for.
type Op string

// The operations.
const (
	Pausing  Op = "Pausing"
	Resuming Op = "Resuming"
)

// State is all that a coordinator must not forget. It is stored before anything
// that follows from it is sent. The zero value is a job that was never paused.
type State struct {
	Epoch uint64 `json:"epoch"` // of the newest decision; goes up with each
	Op    Op     `json:"op"`
	Goal  Goal   `json:"goal"`
	Done  bool   `json:"done"`  // all members have reached Goal
	Try   int    `json:"try"`   // of the pause, from 1
	Final bool   `json:"final"` // of a pause: it is not tried again
	Cause string `json:"cause"` // of the last failure, for people
}

// Ended says whether nothing is left to do. The job is then paused or runs, as a whole.
func (s *State) Ended() bool {
	switch s.Goal {
	case None:
		return true
	case Keep:
		return s.Done
	case Release:
		return s.Done && (s.Op == Resuming || s.Final)
	}
	return false
}

// Paused says whether the job is paused as a whole.
func (s *State) Paused() bool { return s.Goal == Keep && s.Done }

// Waiting says whether a pause waits for its next try.
func (s *State) Waiting() bool { return s.Goal == Release && s.Done && !s.Ended() }

// Limited says whether the goal is given up if it is not reached in time. The way
// back is not: until the last member has gone it, the job hangs.
func (s *State) Limited() bool {
	return !s.Done && (s.Goal == Gate || s.Goal == Save || s.Goal == Restore || s.Goal == Keep && s.Op == Pausing)
}

// Coordinator decides for all members of a job. Each method reports whether State
// has changed; the caller stores it, and then sends Request to the members that
// have not reached the goal, again and again until they reply.
//
// A coordinator that was started again from its stored state asks all members
// again. Votes are not stored: a member repeats its own.
type Coordinator struct {
	State
	Retries int
	reached []bool
}

// NewCoordinator continues from s, for a number of members.
func NewCoordinator(s State, members, retries int) *Coordinator {
	return &Coordinator{s, retries, make([]bool, members)}
}

// HasReached says whether a member has replied that it reached the goal.
func (c *Coordinator) HasReached(member int) bool { return c.reached[member] }

// Begin starts an operation, if none is under way; one that the job's state
// answers already ends at once. Under way, the other operation is given up.
func (c *Coordinator) Begin(op Op) bool {
	switch {
	case !c.Ended():
		return c.Op != op && c.Interrupt()
	case op == Pausing && c.Paused():
		return false
	}
	c.Op, c.Try, c.Final, c.Cause = op, 1, false, ""
	if op == Pausing {
		return c.decide(Gate)
	}
	return c.decide(Restore)
}

// Retry starts the next try of a pause that waits for it.
func (c *Coordinator) Retry() bool {
	if !c.Waiting() {
		return false
	}
	c.Try++
	return c.decide(Gate)
}

// Interrupt gives up what is under way. The way back is not interrupted.
func (c *Coordinator) Interrupt() bool {
	switch {
	case c.Waiting():
		c.Final = true
		return true
	case c.Limited():
		c.Final = true
		return c.fail(Late, "interrupted")
	}
	return false
}

// Timeout says that the goal of an epoch was not reached in time, and for people why.
func (c *Coordinator) Timeout(epoch uint64, cause string) bool {
	return epoch == c.Epoch && c.Limited() && c.fail(Late, cause)
}

// Receive takes a member's reply. One to another epoch is forgotten: the member
// may have left since then what it reports.
func (c *Coordinator) Receive(member int, r Reply) bool {
	if r.Epoch != c.Epoch || c.Done || r.Outcome == Stale { // stale: a request that was delayed
		return false
	}
	goingBack := !c.Limited()
	if r.Outcome != Reached && (r.Outcome != Gone || !goingBack) {
		return c.fail(r.Outcome, r.Detail)
	}
	c.reached[member] = true
	for _, reached := range c.reached {
		if !reached {
			return false
		}
	}
	switch c.Goal {
	case Gate:
		return c.decide(Save)
	case Save:
		return c.decide(Keep)
	case Restore:
		return c.decide(Release)
	}
	c.Done = true
	return true
}

// fail turns back. A pause that was not yet reported as done is undone even while
// some are kept. A resume is undone as long as no gate is open; then there is no way but forward.
func (c *Coordinator) fail(o Outcome, cause string) bool {
	switch {
	case c.Goal == Release, c.Goal == Keep && c.Op == Resuming && o != Open:
		return false // asked again
	case c.Op == Resuming:
		if o == Open {
			return c.decide(Release)
		}
		c.Cause = cause
		return c.decide(Keep)
	}
	mayHelp := o == Late || o == Open
	c.Final = c.Final || !mayHelp || c.Try > c.Retries
	c.Cause = cause
	return c.decide(Release)
}

func (c *Coordinator) decide(g Goal) bool {
	c.Epoch, c.Goal, c.Done = c.Epoch+1, g, false
	clear(c.reached)
	return true
}
