package agent

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint/pause"
)

// part is the processes of one pod of a job whose pause spans nodes.
type part struct {
	job, pod string

	pids    []int32
	local   *pause.Local
	close   func()
	callers int // that are in Advance

	lease   atomic.Int64  // of the last steps, where it ends with close; 0: they need none
	expires *time.Timer   // when no caller has come for that long
	closing chan struct{} // closed when close has returned; nil before that begins
}

// partsKept is how long the agent remembers the newest decision on a job. No request
// is under way for a week, and a coordinator's next decision is newer in any case.
const partsKept = 7 * 24 * time.Hour

// forgetParts removes what is remembered of jobs without a decision for partsKept.
func forgetParts(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > partsKept {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.MkdirAll(dir, 0o700)
}

// Advance is that of the interface in agentpb.
func (a *Agent) Advance(ctx context.Context, r *agentpb.AdvanceRequest) (*agentpb.AdvanceReply, error) {
	request, err := validAdvance(r)
	if err != nil {
		return nil, err
	}
	if err := a.meant(r.Node); err != nil {
		return nil, err
	}
	if err := a.of(r.Pod, r.Pids); err != nil {
		return nil, err
	}
	p, err := a.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	running := false
	defer func() { a.leave(p, running) }()
	began := time.Now()
	reply, err := p.local.Advance(ctx, request)
	running = err == nil && reply.Outcome == pause.Reached && request.Goal == pause.Release
	if err != nil {
		return nil, status.Errorf(codes.Internal, "%v", err)
	}
	a.o.Metrics.advanced(request.Goal, reply.Outcome, time.Since(began))
	a.o.Log.Info("advanced", "job", r.Job, "pod", r.Pod, "pids", r.Pids, "epoch", r.Epoch, "goal", r.Goal, "outcome", string(reply.Outcome), "detail", reply.Detail)
	return &agentpb.AdvanceReply{Epoch: reply.Epoch, Outcome: string(reply.Outcome), Detail: reply.Detail}, nil
}

func validAdvance(r *agentpb.AdvanceRequest) (pause.Request, error) {
	request := pause.Request{Job: r.Job, Epoch: r.Epoch, Lease: r.Lease.AsDuration()}
	switch {
	case !validID.MatchString(r.Job):
		return request, status.Errorf(codes.InvalidArgument, "job: expected 1 to 128 letters, digits and \". _ -\", a letter or digit first; found %q", r.Job)
	case r.Pod != "" && !validPod.MatchString(r.Pod):
		return request, status.Errorf(codes.InvalidArgument, "pod: expected the UID of a pod; found %q", r.Pod)
	case len(r.Pids) == 0:
		return request, status.Error(codes.InvalidArgument, "pids: expected at least one process; found none")
	case request.Epoch == 0:
		return request, status.Error(codes.InvalidArgument, "epoch: expected 1 or more; found 0")
	case request.Lease <= 0:
		return request, status.Errorf(codes.InvalidArgument, "lease: expected more than 0; found %v", request.Lease)
	}
	if err := request.Goal.UnmarshalText([]byte(r.Goal)); err != nil || request.Goal == pause.None {
		return request, status.Errorf(codes.InvalidArgument, "goal: expected Gate, Save, Keep, Restore or Release; found %q", r.Goal)
	}
	return request, validPIDs(r.Pids)
}

func (p *part) key() string { return p.job + "@" + p.pod }

// enter gives the part of a job that a request is for. A newer request ends the steps of
// an older one, so both use the same part.
func (a *Agent) enter(ctx context.Context, r *agentpb.AdvanceRequest) (*part, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &part{job: r.Job, pod: r.Pod, pids: r.Pids}
	for {
		if a.ctx.Err() != nil {
			return nil, errStopping
		}
		if c := a.claimed(&claim{pod: r.Pod, pids: r.Pids}); c != nil {
			if err := a.await(ctx, c); err != nil {
				return nil, err
			}
			continue
		}
		if err := a.free(r.Job, r.Pod, r.Pids); err != nil {
			return nil, err
		}
		old := a.parts[p.key()]
		switch {
		case old == nil:
			a.openPart(p)
			return p, nil
		case old.closing != nil:
			a.unlocked(func() { <-old.closing })
		case slices.Equal(old.pids, r.Pids):
			if old.expires != nil {
				old.expires.Stop()
			}
			old.callers++
			return old, nil
		case old.callers > 0:
			return nil, status.Errorf(codes.FailedPrecondition, "pids: a request for the processes %v of job %q is being obeyed", old.pids, r.Job)
		default:
			a.closePart(old)
		}
	}
}

// openPart lets a part be used, by one caller. The caller has the lock.
func (a *Agent) openPart(p *part) {
	b := a.o.Open(a.dir(p.pod))
	p.close, p.callers = b.Close, 1
	p.local = &pause.Local{Backend: b, File: filepath.Join(a.o.StateDir, "jobs", p.key()+".json"), SetLease: func(d time.Duration) {
		if b.SetLease(d) {
			d = 0
		}
		p.lease.Store(int64(d))
	}}
	for _, pid := range p.pids {
		p.local.Processes = append(p.local.Processes, int(pid))
	}
	a.parts[p.key()] = p
}

// leave ends what a caller has to do with a part. The last one closes it, now or, where the lease of processes that do not run ends with that, when that
// is over: the next request of the coordinator comes before.
func (a *Agent) leave(p *part, running bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.callers--; p.callers > 0 {
		return
	}
	lease := time.Duration(p.lease.Load())
	if running || lease == 0 || a.ctx.Err() != nil {
		a.closePart(p)
		return
	}
	var expires *time.Timer
	expires = time.AfterFunc(lease, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if p.expires == expires && p.callers == 0 && p.closing == nil {
			a.o.Log.Warn("the lease of a job's processes has ended: they go on", "job", p.job, "pod", p.pod, "pids", p.pids)
			a.closePart(p)
		}
	})
	p.expires = expires
}

// closePart closes a part that has no caller, and gives the lock, which the caller has, away meanwhile.
func (a *Agent) closePart(p *part) {
	p.closing = make(chan struct{})
	a.unlocked(p.close)
	delete(a.parts, p.key())
	close(p.closing)
}

// closeParts closes those that have no caller, and waits for those that are being closed.
func (a *Agent) closeParts() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range slices.Collect(maps.Values(a.parts)) {
		if p.closing != nil {
			a.unlocked(func() { <-p.closing })
		} else if p.callers == 0 {
			if p.expires != nil {
				p.expires.Stop()
			}
			a.closePart(p)
		}
	}
}

// Member is processes of a job at an agent, as a participant of a pause over several nodes.
type Member struct {
	Client *Client
	Node   string // that is meant; empty: whichever agent the client calls
	Pod    string
	PIDs   []int32
	// Durable says that what each of them saves outlives it.
	Durable bool
}

// Advance asks the agent.
func (m *Member) Advance(ctx context.Context, r pause.Request) (pause.Reply, error) {
	reply, err := m.Client.Advance(ctx, &agentpb.AdvanceRequest{
		Job: r.Job, Pod: m.Pod, Pids: m.PIDs, Epoch: r.Epoch, Goal: r.Goal.String(), Lease: durationpb.New(r.Lease), Node: m.Node,
	})
	if err != nil {
		return pause.Reply{}, err
	}
	return pause.Reply{Epoch: reply.Epoch, Outcome: pause.Outcome(reply.Outcome), Detail: reply.Detail}, nil
}
