package pause

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/kube/tables"
)

// A pod that lends its GPUs (kube/standby), and says that it can be paused, has its processes paused by the agent of its node before that, and
// let go on when its GPUs are its own again. Nothing is stored: what a pod says about its standby says what its processes are to be, and
// both operations of the agent can be repeated. A handler that starts asks for what is to be.

// slumber is whether the processes of a pod are to be paused, and are.
type slumber struct {
	want, is bool
	known    bool   // is says what they are
	busy     bool   // the agent is being asked
	failed   string // why they cannot be paused; empty while that is not known
}

// Sleep is that of [standby.Sleeper]. Pods that do not say that they can be paused stop by themselves.
func (h *Handler) Sleep(p *tables.Pod) (asleep bool, why string) {
	if p.Object.Pausable.HostMemMiB == 0 {
		return true, ""
	}
	s := h.sleepOf(p)
	if p.Pause != nil { // it is suspended, and will have gone on by then
		s.known = false
		return false, ""
	}
	s.want = true
	h.lead(p, s)
	return s.known && s.is && !s.busy, s.failed
}

// Wake is that of [standby.Sleeper].
func (h *Handler) Wake(p *tables.Pod) {
	if p.Object.Pausable.HostMemMiB == 0 {
		return
	}
	s := h.sleepOf(p)
	s.want, s.failed = false, ""
	h.lead(p, s)
}

func (h *Handler) sleepOf(p *tables.Pod) *slumber {
	s := h.sleeps[p.Object.UID]
	if s == nil {
		s = &slumber{}
		h.sleeps[p.Object.UID] = s
	}
	return s
}

// lead asks the agent for what the processes of a pod are to be, if they are not.
func (h *Handler) lead(p *tables.Pod, s *slumber) {
	if h.ctx.Err() != nil || s.busy || s.known && s.is == s.want || s.want && s.failed != "" {
		return
	}
	s.busy = true
	m, want := &member{Pod: p.Ref(), node: p.Target}, s.want
	action, within := agentpb.Action_ACTION_RESUME, patient(p.Object.Pausable.Resume)
	if want {
		action, within = agentpb.Action_ACTION_PAUSE, patient(p.Object.Pausable.Pause)
	}
	h.working.Go(func() {
		began := h.Now()
		err := h.insist(h.ctx, m, action, within)
		took := h.Now().Sub(began)
		if want {
			h.Metrics.paused(took, err)
			if err != nil { // the answer may be lost
				_ = h.insist(h.ctx, m, agentpb.Action_ACTION_RESUME, wayBack)
			}
		} else {
			h.Metrics.resumed(took, err)
		}
		h.Log.Info("asked the agent about the processes of a pod on standby", "pod", m.String(), "action", action.String(), "seconds", took.Seconds(), "error", err)
		h.Put(func() { h.slept(m, s, want, err) })
	})
}

// slept handles what an agent answered.
func (h *Handler) slept(m *member, s *slumber, want bool, err error) {
	s.busy = false
	p := h.Tables.PodBy(m.UID)
	switch {
	case p == nil:
		delete(h.sleeps, m.UID)
		return
	case err == nil:
		s.known, s.is = true, want
	case want:
		s.failed = "its processes cannot be paused: " + err.Error()
	}
	h.lead(p, s) // if that has changed meanwhile, or failed: it is to go on in any case
}

// insist asks the agent of a pod's node for an operation until it is done, cannot be, or the time is over.
func (h *Handler) insist(ctx context.Context, m *member, what agentpb.Action, within time.Duration) error {
	until := time.Now().Add(within)
	limited, cancel := context.WithDeadline(ctx, until.Add(slack/2))
	defer cancel()
	for {
		op, err := h.Agents.Run(limited, &agentpb.RunRequest{Id: string(m.UID) + "." + agent.NewID(), Action: what, Pod: string(m.UID), Node: m.node, Deadline: timestamppb.New(until)})
		switch {
		case err == nil && op.State == agentpb.State_STATE_SUCCEEDED, what == agentpb.Action_ACTION_RESUME && status.Code(err) == codes.NotFound:
			return nil
		case err == nil:
			err = fmt.Errorf("the agent of node %s: %s", m.node, op.Message)
			if what == agentpb.Action_ACTION_PAUSE {
				return err // all are as before
			}
		default:
			err = saysAgent(m.node, err)
		}
		if time.Until(until) < again || sleep(limited, again) != nil {
			return err
		}
	}
}
