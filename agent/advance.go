package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/pause"
)

// part is the processes of one pod of a job whose pause spans nodes.
type part struct {
	job, pod string

	pids    []int32
	local   *pause.Local
	close   func()
	callers int // that are in Advance
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
	p, leave, err := a.enter(r)
	if err != nil {
		return nil, err
	}
	defer leave()
	began := time.Now()
	reply, err := p.local.Advance(ctx, request)
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

// enter gives the part of a job that a request is for. A newer request ends the steps of
// an older one, so both use the same part; the last to leave closes its control pages.
func (a *Agent) enter(r *agentpb.AdvanceRequest) (*part, func(), error) {
	key := r.Job + "@" + r.Pod
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.atWork(r.Pod, r.Pids); err != nil {
		return nil, nil, err
	}
	p := a.parts[key]
	if p == nil {
		b := a.o.Open(a.dir(r.Pod))
		p = &part{job: r.Job, pod: r.Pod, pids: r.Pids, close: b.Close, local: &pause.Local{
			Backend: b, SetLease: func(time.Duration) {},
			File: filepath.Join(a.o.StateDir, "jobs", key+".json"),
		}}
		if own, ok := b.(*checkpoint.Folder); ok {
			p.local.SetLease = func(d time.Duration) { own.SetLease(d) }
		}
		for _, pid := range r.Pids {
			p.local.Processes = append(p.local.Processes, int(pid))
		}
		a.parts[key] = p
	}
	if !slices.Equal(p.pids, r.Pids) {
		return nil, nil, status.Errorf(codes.FailedPrecondition, "pids: a request for the processes %v of job %q is being obeyed", p.pids, r.Job)
	}
	p.callers++
	return p, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if p.callers--; p.callers == 0 {
			delete(a.parts, key)
			p.close()
		}
	}, nil
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
