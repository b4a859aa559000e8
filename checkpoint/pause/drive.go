package pause

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/muster-sched/muster/checkpoint"
)

// Participant is a member of a job, here or on another node.
type Participant interface {
	// Advance leads the member's processes to the request's goal, and replies when
	// they are there or cannot get there. It ends soon after the context. It may be
	// called again with the same request, and with older ones, which it refuses as Stale.
	// After an error the caller knows nothing: the request may have been obeyed.
	Advance(ctx context.Context, r Request) (Reply, error)
}

// Options say how long, and how often, an operation tries. Resume and Recover use
// Timeout and, if they have to finish a pause, the others.
type Options struct {
	Job                string // its name, for the members
	checkpoint.Options        // Timeout is of each goal, and of the way back
	// Lease is after what time a process that is not kept goes on by itself. It is
	// longer than two Timeouts, so that it does not run out while other members are late.
	Lease time.Duration
}

// A request that was not answered is sent again, first after resend and then
// each time after twice as long, at most a second.
const resend = 2 * time.Millisecond

// UnfinishedError is an operation that was decided, and of which some members do
// not know yet. Recover finishes it. Their processes that are not kept go on by themselves.
type UnfinishedError struct {
	Goal    Goal
	Members []int // by their index, which have not replied that they reached Goal
	Cause   string
}

func (e *UnfinishedError) Error() string {
	text := fmt.Sprintf("%s was decided, and of members %s it is not known in time that they are there", e.Goal, strings.Trim(fmt.Sprint(e.Members), "[]"))
	if e.Cause != "" {
		text += " (" + e.Cause + ")"
	}
	return text
}

// StaleError is a state in the store that is older than what a member obeys:
// the store was lost, or another coordinator leads the job.
type StaleError struct {
	Member        int
	Obeys, Stored uint64 // epochs
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("member %d obeys epoch %d; the coordinator's store has %d: is there another coordinator?", e.Member, e.Obeys, e.Stored)
}

// Pause pauses the job as a whole, or lets it go on as a whole.
//
//  1. Gate: the gates of all close, and the calls in flight return.
//  2. Save: the memory of all is saved. Until here leases let all go on by themselves.
//  3. Keep: stored as decided, then the leases end.
//
// What fails before the last member has kept leads back by Release, and is tried
// again. An UnpausableError says that it was given up; then all go on. One coordinator
// may lead a job at a time: the caller sees to that.
func Pause(ctx context.Context, members []Participant, store Store, o Options) error {
	c, err := run(ctx, members, store, o, Pausing)
	switch {
	case err != nil:
		return err
	case c.Paused():
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted; all processes go on: %w", ctx.Err())
	}
	return &checkpoint.UnpausableError{Tries: c.Try, Cause: errors.New(c.Cause)}
}

// Resume lets the job go on as a whole: all are restored behind closed gates, then
// all gates open. If one cannot be restored, all stay paused, and no call has gone on.
func Resume(ctx context.Context, members []Participant, store Store, o Options) error {
	c, err := run(ctx, members, store, o, Resuming)
	switch {
	case err != nil:
		return err
	case !c.Paused():
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted; all stay paused: %w", ctx.Err())
	}
	return fmt.Errorf("cannot be resumed; all stay paused: %s", c.Cause)
}

// Recover finishes what a coordinator that died had begun, and says what the job is then.
func Recover(ctx context.Context, members []Participant, store Store, o Options) (State, error) {
	c, err := run(ctx, members, store, o, "")
	if err != nil {
		return State{}, err
	}
	return c.State, nil
}

// driver sends what a coordinator decides.
type driver struct {
	*Coordinator
	members []Participant
	store   Store
	o       Options
	asking  sync.WaitGroup
}

func run(ctx context.Context, members []Participant, store Store, o Options, op Op) (*Coordinator, error) {
	if op == Pausing && o.Lease <= 2*o.Timeout {
		return nil, fmt.Errorf("lease %v: expected more than twice the timeout, %v: all others wait while one is late", o.Lease, o.Timeout)
	}
	s, err := store.Load()
	if err != nil {
		return nil, err
	}
	d := &driver{Coordinator: NewCoordinator(s, len(members), o.Retries), members: members, store: store, o: o}
	defer d.asking.Wait()
	if !d.Ended() {
		if op != "" && d.Begin(op) {
			err = d.save()
		}
		if err == nil {
			err = d.finish(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	if op != "" && ctx.Err() == nil && d.Begin(op) {
		if err := d.save(); err != nil {
			return nil, err
		}
		if err := d.finish(ctx); err != nil {
			return nil, err
		}
	}
	return d.Coordinator, nil
}

func (d *driver) save() error {
	if err := d.store.Save(d.State); err != nil {
		return fmt.Errorf("epoch %d, %s: %w", d.Epoch, d.Goal, err)
	}
	return nil
}

// finish leads the operation to its end.
func (d *driver) finish(ctx context.Context) error {
	wait := d.o.Backoff
	for !d.Ended() {
		if !d.Waiting() {
			if err := d.reach(ctx); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			d.Interrupt()
		case <-time.After(wait):
			wait = min(2*wait, 10*time.Second)
			d.Retry()
		}
		if err := d.save(); err != nil {
			return err
		}
	}
	return nil
}

// answer is a member's reply, or why there is none.
type answer struct {
	member int
	reply  Reply
	err    error
}

// reach asks all members for the goal, until something else is decided.
func (d *driver) reach(ctx context.Context) error {
	// The way back has time of its own, also if the caller is interrupted.
	asking, stop := context.WithTimeout(context.WithoutCancel(ctx), d.o.Timeout)
	defer stop()
	answers := make(chan answer)
	for i, p := range d.members {
		if !d.HasReached(i) {
			r := Request{d.o.Job, d.Epoch, d.Goal, d.o.Lease}
			d.asking.Go(func() { ask(asking, i, p, r, answers) })
		}
	}
	interrupted, detail := ctx.Done(), ""
	for {
		var changed bool
		select {
		case a := <-answers:
			switch {
			case a.err != nil:
				detail = fmt.Sprintf("member %d: %v", a.member, a.err)
				continue
			case a.reply.Outcome == Stale && a.reply.Epoch > d.Epoch:
				return &StaleError{a.member, a.reply.Epoch, d.Epoch}
			case a.reply.Detail != "":
				detail = fmt.Sprintf("member %d: %s", a.member, a.reply.Detail)
				a.reply.Detail = detail
			}
			changed = d.Receive(a.member, a.reply)
		case <-interrupted:
			interrupted = nil
			changed = d.Interrupt()
		case <-asking.Done():
			e := d.unfinished(detail)
			if changed = d.Timeout(d.Epoch, e.Error()); !changed {
				return e
			}
		}
		if changed {
			return d.save()
		}
	}
}

func (d *driver) unfinished(cause string) *UnfinishedError {
	e := &UnfinishedError{Goal: d.Goal, Cause: cause}
	for i := range d.members {
		if !d.HasReached(i) {
			e.Members = append(e.Members, i)
		}
	}
	return e
}

// ask sends a request until the goal is reached or the context ends: it, or the reply, may be lost.
func ask(ctx context.Context, i int, p Participant, r Request, answers chan<- answer) {
	for wait := resend; ctx.Err() == nil; wait = min(2*wait, time.Second) {
		reply, err := p.Advance(ctx, r)
		select {
		case answers <- answer{i, reply, err}:
		case <-ctx.Done():
			return
		}
		if err == nil && reply.Outcome == Reached {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}
