package pause

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	together "github.com/muster-sched/muster/checkpoint/pause"
	"github.com/muster-sched/muster/kube/act"
)

// Saver has the processes of pods save themselves before the pods restart elsewhere: those whose progress outlives them, as their agents
// say. All stand still and then save, or all go on. Whatever happens after that, to the scheduler, the agents or the eviction, a process
// that has not been ended goes on by itself: it has a lease, which nothing ends. So nothing is stored (docs/adr/0060).
type Saver struct {
	Agents  Agents
	Metrics *Metrics
	Log     *slog.Logger
	Now     func() time.Time
	slots   chan struct{}
}

// NewSaver returns a saver.
func NewSaver(agents Agents, metrics *Metrics, log *slog.Logger, now func() time.Time) *Saver {
	return &Saver{agents, metrics, log, now, make(chan struct{}, most)}
}

const (
	// evictTime is how long processes that have saved themselves stand still for their eviction.
	evictTime = 2 * time.Minute
	// askAgain is the time between two requests to an agent that does not answer.
	askAgain = time.Second
)

// Save is that of [act.Saver].
func (s *Saver) Save(ctx context.Context, pods []act.Saving, inAll time.Duration) error {
	began := s.Now()
	err := s.save(ctx, pods, inAll)
	s.Metrics.saved(s.Now().Sub(began), err)
	return err
}

func (s *Saver) save(ctx context.Context, pods []act.Saving, inAll time.Duration) error {
	limited := ctx
	if inAll > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, inAll, fmt.Errorf("that is not done after %v", inAll))
		defer cancel()
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-limited.Done():
		return context.Cause(limited)
	}
	members, done, err := s.members(limited, pods)
	defer done()
	if err != nil {
		return err
	}
	x := saving{members: members, job: string(pods[0].UID) + ".save", epoch: uint64(s.Now().UnixNano())}
	for i := range pods {
		x.within = max(x.within, pods[i].Within)
	}
	for try := 0; ; try++ {
		err := x.once(limited)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if back := x.release(ctx); back != nil {
			s.Log.Warn("the agents do not say that pods go on whose progress could not be saved", "pod", pods[0].String(), "error", back)
		}
		if limited.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(limited), err)
		}
		if _, late := errors.AsType[*lateError](err); !late || try == retries || sleep(limited, askAgain) != nil {
			return err
		}
	}
}

// members finds the processes of all pods at their agents.
func (s *Saver) members(ctx context.Context, pods []act.Saving) (list []*participant, done func(), err error) {
	list = make([]*participant, len(pods))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range pods {
		g.Go(func() error {
			p := &pods[i]
			there, err := s.Agents.Member(ctx, p.Node, p.UID)
			switch {
			case err != nil:
				return saysAgent(p.Node, err)
			case there == nil:
				return fmt.Errorf("the agent of node %s: pod %s has no process that can save itself", p.Node, p.Name)
			}
			list[i] = &participant{there, p.Node}
			if !there.Durable {
				return fmt.Errorf("the agent of node %s: a process of pod %s does not say that what it saves outlives it (durable)", p.Node, p.Name)
			}
			return nil
		})
	}
	err = g.Wait()
	return list, func() {
		for _, m := range list {
			if m != nil {
				m.Client.Close()
			}
		}
	}, err
}

// saving is processes that are led to save themselves.
type saving struct {
	members []*participant
	job     string        // for the agents
	epoch   uint64        // of the newest decision; it begins with the time, so that it is higher than any that an agent obeys
	within  time.Duration // how long they may take to each goal
}

// lateError says that another try may end otherwise.
type lateError struct{ error }

// asked is what processes were asked to do, for people.
var asked = map[together.Goal]string{together.Gate: "to stand still", together.Save: "to save their progress", together.Release: "to go on"}

// once has all stand still, and then save.
func (x *saving) once(ctx context.Context) error {
	for _, goal := range []together.Goal{together.Gate, together.Save} {
		if err := x.lead(ctx, goal, x.within, 2*x.within+evictTime); err != nil {
			return err
		}
	}
	return nil
}

// release lets all go on: those that it does not reach in time go on by themselves.
func (x *saving) release(ctx context.Context) error {
	return x.lead(ctx, together.Release, wayBack, wayBack)
}

// lead leads all to a goal within a time. An error says why one of them is not there.
func (x *saving) lead(ctx context.Context, goal together.Goal, within, lease time.Duration) error {
	x.epoch++
	r := together.Request{Job: x.job, Epoch: x.epoch, Goal: goal, Lease: lease}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	g, all := errgroup.WithContext(ctx)
	for _, m := range x.members {
		g.Go(func() error {
			for {
				reply, err := m.Advance(all, r)
				switch {
				case err == nil && (reply.Outcome == together.Reached || goal == together.Release && reply.Outcome == together.Gone):
					return nil
				case err == nil && (reply.Outcome == together.Late || reply.Outcome == together.Open):
					return &lateError{fmt.Errorf("asked %s: %s", asked[goal], cmp.Or(reply.Detail, string(reply.Outcome)))}
				case err == nil:
					return fmt.Errorf("asked %s: %s", asked[goal], cmp.Or(reply.Detail, string(reply.Outcome)))
				case sleep(all, askAgain) != nil:
					return &lateError{fmt.Errorf("asked %s, not within %v: %w", asked[goal], within, err)}
				}
			}
		})
	}
	return g.Wait()
}
