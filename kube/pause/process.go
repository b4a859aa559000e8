package pause

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint"
	together "github.com/muster-sched/muster/checkpoint/pause"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/objects"
)

// The processes of one pod are paused by an operation of its node's agent. Those of several pods are paused as one, by the protocol of
// package checkpoint/pause: this is its coordinator, each pod with GPUs is a member, and the pod that leads stores what is decided.

const (
	// tryTime is how long the processes of several pods may take to reach a goal, beside twice the pause that a pod says. While one of
	// them is late, all others wait.
	tryTime = 10 * time.Second
	// retries is how often a pause of several pods is tried again.
	retries = 2
)

// pauseProcesses pauses the processes of all pods, or of none. After an error that is no [checkpoint.UnpausableError] it may be that
// some are paused.
func (h *Handler) pauseProcesses(ctx context.Context, w *work) error {
	if w.lead == "" {
		return h.ask(ctx, w.pods[0], agentpb.Action_ACTION_PAUSE, w.pauseID(), patient(w.suspension.Pause))
	}
	members, done, err := h.members(ctx, w, func(m *member) error {
		return fmt.Errorf("the agent of node %s: it has no process with a GPU that can be paused", m.node)
	})
	defer done()
	if err != nil || len(members) == 0 {
		return err
	}
	try := 2*time.Duration(w.suspension.Pause) + tryTime
	return together.Pause(ctx, members, h.store(ctx, w), together.Options{
		Job: string(w.lead), Options: checkpoint.Options{Timeout: try, Retries: retries, Backoff: time.Second}, Lease: 3 * try,
	})
}

// resumeProcesses lets the processes of all pods go on, or of none, within a time.
func (h *Handler) resumeProcesses(ctx context.Context, w *work, within time.Duration) error {
	if w.lead == "" {
		return h.ask(ctx, w.pods[0], agentpb.Action_ACTION_RESUME, w.newID(), within)
	}
	members, done, err := h.members(ctx, w, func(*member) error { return nil }) // no process of it is paused
	defer done()
	if err != nil || len(members) == 0 {
		return err
	}
	return together.Resume(ctx, members, h.store(ctx, w), together.Options{
		Job: string(w.lead), Options: checkpoint.Options{Timeout: within}, Lease: 3 * within,
	})
}

// giveUp lets the processes of all pods go on after a pause that failed, as far as they do not already.
func (h *Handler) giveUp(ctx context.Context, w *work, why error) error {
	if _, all := errors.AsType[*checkpoint.UnpausableError](why); all && w.lead != "" {
		return nil
	}
	if w.lead == "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wayBack)
		defer cancel()
		if err := h.Agents.Cancel(ctx, w.pods[0].node, w.pauseID()); err != nil { // it may be at work yet, if the answer was lost
			return err
		}
	}
	return h.resumeProcesses(ctx, w, max(wayBack, 2*time.Duration(w.suspension.Resume)))
}

// pauseID is the ID of the pause of one pod at the agent, by which the next instance can give it up.
func (w *work) pauseID() string { return fmt.Sprintf("%s.%d", w.pods[0].UID, int64(w.since)) }

func (w *work) newID() string { return string(w.pods[0].UID) + "." + agent.NewID() }

// ask has the agent of a pod's node do something with its processes, within a time.
func (h *Handler) ask(ctx context.Context, m *member, what agentpb.Action, id string, within time.Duration) error {
	deadline := time.Now().Add(within)
	r := &agentpb.RunRequest{Id: id, Action: what, Pod: string(m.UID), Node: m.node, Deadline: timestamppb.New(deadline)}
	calling, cancel := context.WithDeadline(ctx, deadline.Add(slack/2)) // the agent says itself that its time is over
	defer cancel()
	op, err := h.Agents.Run(calling, r)
	switch {
	case err != nil && what == agentpb.Action_ACTION_RESUME && status.Code(err) == codes.NotFound:
		return nil // no process of it is paused
	case err != nil:
		return saysAgent(m.node, err)
	case op.State != agentpb.State_STATE_SUCCEEDED:
		return fmt.Errorf("the agent of node %s: %s", m.node, op.Message)
	}
	return nil
}

func saysAgent(node string, err error) error {
	return fmt.Errorf("the agent of node %s: %s", node, status.Convert(err).Message())
}

// members finds the processes of all pods with GPUs at their agents. none says what is the matter with a pod that has none, nil for nothing.
func (h *Handler) members(ctx context.Context, w *work, none func(*member) error) (list []together.Participant, done func(), err error) {
	err = w.each(func(m *member) error {
		if m.gpus == 0 {
			return nil
		}
		there, err := h.Agents.Member(ctx, m.node, m.UID)
		if err != nil {
			return saysAgent(m.node, err)
		}
		if there == nil {
			return none(m)
		}
		m.processes = &participant{there, m.node}
		return nil
	})
	for _, m := range w.pods {
		if m.processes != nil {
			list = append(list, m.processes)
		}
	}
	return list, func() {
		for _, m := range w.pods {
			if m.processes != nil {
				m.processes.Client.Close()
				m.processes = nil
			}
		}
	}, err
}

// participant is the processes of a pod, which says of which node it speaks.
type participant struct {
	*agent.Member
	node string
}

// Advance is that of [together.Participant].
func (x *participant) Advance(ctx context.Context, r together.Request) (together.Reply, error) {
	reply, err := x.Member.Advance(ctx, r)
	if err != nil {
		return reply, saysAgent(x.node, err)
	}
	if reply.Detail != "" {
		reply.Detail = fmt.Sprintf("the agent of node %s: %s", x.node, reply.Detail)
	}
	return reply, nil
}

// store keeps what is decided on the processes of several pods, in the condition of the pod that leads or, if that is gone, of the
// next one that is there. When its context ends it stores nothing more: the coordinator ends as if it were killed.
type store struct {
	h    *Handler
	ctx  context.Context
	pods []*member // the first one has it
}

func (h *Handler) store(ctx context.Context, w *work) *store { return &store{h, ctx, w.pods} }

// Load is that of [together.Store]. Nothing was decided yet, or it is lost with the pod that led: epochs then begin with the time, so that
// they are higher than any that an agent obeys.
func (s *store) Load() (state together.State, err error) {
	if text := s.pods[0].had.Decided; text != nil {
		return state, json.Unmarshal(text, &state)
	}
	return together.State{Epoch: uint64(s.h.Now().UnixNano())}, nil
}

// Save is that of [together.Store]. It fails if another coordinator has saved something meanwhile.
func (s *store) Save(state together.State) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	var other error
	err = act.Retry(s.ctx, func() error {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		for len(s.pods) > 0 {
			m := s.pods[0]
			p, err := s.h.Client.CoreV1().Pods(m.Namespace).Get(s.ctx, m.Name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err), err == nil && p.UID != m.UID:
				s.pods = s.pods[1:]
				continue
			case err != nil:
				return err
			}
			before, now := m.had.Decided, decidedOn(p)
			switch {
			case bytes.Equal(now, text): // an answer was lost
				m.had.Decided = text
				return nil
			case !bytes.Equal(now, before):
				other = fmt.Errorf("pod %s: another instance has decided on its pause meanwhile: %s", m.Name, now)
				return nil
			}
			m.had.Decided = text
			if err = s.h.write(s.ctx, m, p.ResourceVersion); err == nil {
				return nil
			}
			if m.had.Decided = before; !apierrors.IsConflict(err) {
				return err
			}
		}
		return nil // no pod is there on which anything could be decided
	})
	return errors.Join(err, other)
}

func decidedOn(p *v1.Pod) json.RawMessage {
	if x := objects.PauseOf(p); x != nil && x.Had != nil {
		return x.Had.Decided
	}
	return nil
}
