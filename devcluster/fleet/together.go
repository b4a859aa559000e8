package fleet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/pause"
	driver "github.com/muster-sched/muster/gpu"
)

// The agents as members of a pause of several pods: the protocol is the real one, the processes are simulated. Each pod has one.

// process is the process of a pod, as the backend of its member.
type process struct {
	agents *agents
	pod    *pod

	mu    sync.Mutex
	phase checkpoint.Phase
	lease time.Duration // of the next steps
	ends  *time.Timer   // the lease of this phase, nil for none
}

// pid is that of the process of a pod.
const pid = 1

// process returns that of a pod.
func (a *agents) process(p *pod) *process {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.processes[p.UID]
	if x == nil {
		x = &process{agents: a, pod: p, phase: checkpoint.Running}
		a.processes[p.UID] = x
	}
	return x
}

// Path is that of [checkpoint.Backend].
func (x *process) Path() []checkpoint.Phase {
	return []checkpoint.Phase{checkpoint.Running, checkpoint.Gated, checkpoint.Saved}
}

// Phase is that of [checkpoint.Backend].
func (x *process) Phase(int) (checkpoint.Phase, error) {
	if x.agents.pods.byUID(x.pod.UID) == nil {
		return "", driver.ErrGone
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.phase, nil
}

// Step is that of [checkpoint.Backend]. Memory takes the time that the pod says, and fails as it says.
func (x *process) Step(ctx context.Context, _ int, to checkpoint.Phase) error {
	x.mu.Lock()
	from, lease := x.phase, x.lease
	x.mu.Unlock()
	takes, fails := "", ""
	switch {
	case from != checkpoint.Saved && to == checkpoint.Saved:
		takes, fails = PauseTakes, PauseFails
	case from == checkpoint.Saved && to != checkpoint.Saved:
		takes, fails = ResumeTakes, ResumeFails
	}
	if takes != "" {
		notes := x.agents.notes(ctx, x.pod)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(duration(notes[takes], 0)):
		}
		if ctx.Err() != nil { // also where both are so, or the notes could not be read
			return ctx.Err()
		}
		if why := notes[fails]; why != "" {
			return errors.New(why)
		}
	}
	x.move(to, lease)
	if from != checkpoint.Saved && to == checkpoint.Saved {
		x.agents.pods.save(x.pod, time.Now())
	}
	return nil
}

// Keep is that of [checkpoint.Backend].
func (x *process) Keep(int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ends != nil {
		x.ends.Stop()
		x.ends = nil
	}
	return nil
}

// move has the process in a phase. It goes on by itself after the time of a lease, unless that is 0.
func (x *process) move(to checkpoint.Phase, lease time.Duration) {
	x.Keep(pid)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.phase = to
	if to != checkpoint.Running && lease > 0 {
		var ends *time.Timer
		ends = time.AfterFunc(lease, func() {
			x.mu.Lock()
			current := x.ends == ends
			x.mu.Unlock()
			if current {
				x.move(checkpoint.Running, 0)
			}
		})
		x.ends = ends
	}
	x.agents.pods.pause(x.pod, to != checkpoint.Running, time.Now())
}

// Advance is that of the interface.
func (a *agents) Advance(ctx context.Context, r *agentpb.AdvanceRequest) (*agentpb.AdvanceReply, error) {
	p := a.pods.byUID(types.UID(r.Pod))
	if p == nil || a.pods.nodes.get(p.node) == nil || r.Node != "" && r.Node != p.node {
		return nil, status.Errorf(codes.Unavailable, "node %q is not ready, or pod %q is not there", r.Node, r.Pod)
	}
	request := pause.Request{Job: r.Job, Epoch: r.Epoch, Lease: r.Lease.AsDuration()}
	if err := request.Goal.UnmarshalText([]byte(r.Goal)); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "goal: %v", err)
	}
	how := a.fails(ctx, p, r.Goal)
	switch how {
	case "", "unanswered":
	case "lost":
		return nil, status.Error(codes.Unavailable, "it cannot be reached")
	default:
		return &agentpb.AdvanceReply{Epoch: r.Epoch, Outcome: how, Detail: "as its pod says"}, nil
	}
	reply, err := a.part(r.Job, p).Advance(ctx, request)
	switch {
	case err != nil:
		return nil, status.Errorf(codes.Internal, "%v", err)
	case how != "":
		return nil, status.Error(codes.Unavailable, "its answer is lost")
	}
	return &agentpb.AdvanceReply{Epoch: reply.Epoch, Outcome: string(reply.Outcome), Detail: reply.Detail}, nil
}

// part is the member of a job that a pod is.
func (a *agents) part(job string, p *pod) *pause.Local {
	x := a.process(p)
	a.mu.Lock()
	defer a.mu.Unlock()
	key := job + "@" + string(p.UID)
	l := a.parts[key]
	if l == nil {
		l = &pause.Local{
			Backend: x, Processes: []int{pid}, File: filepath.Join(a.dir, key+".json"),
			SetLease: func(d time.Duration) {
				x.mu.Lock()
				x.lease = d
				x.mu.Unlock()
			},
		}
		a.parts[key] = l
	}
	return l
}

// fails says what happens instead of leading a pod to a goal, as the pod says; empty for nothing.
func (a *agents) fails(ctx context.Context, p *pod, goal string) string {
	of, how, _ := strings.Cut(a.notes(ctx, p)[GoalFails], "=")
	if of != goal {
		return ""
	}
	how, times, limited := strings.Cut(how, "*")
	a.mu.Lock()
	defer a.mu.Unlock()
	key := fmt.Sprintf("%s %s", p.UID, goal)
	if n, err := strconv.Atoi(times); limited && (err != nil || a.failures[key] >= n) {
		return ""
	}
	a.failures[key]++
	return how
}

// Status is that of the interface: the processes of the pods of a node, of all nodes if none is named.
func (a *agents) Status(_ context.Context, r *agentpb.StatusRequest) (*agentpb.NodeStatus, error) {
	if r.Node != "" && a.pods.nodes.get(r.Node) == nil {
		return nil, status.Errorf(codes.Unavailable, "node %q is not ready, or not there", r.Node)
	}
	s := &agentpb.NodeStatus{Node: r.Node}
	for _, object := range a.pods.store.List() {
		p := object.(*pod)
		if p.left || p.phase != corev1.PodRunning || p.ended() || r.Node != "" && p.node != r.Node {
			continue
		}
		a.mu.Lock()
		x, phase := a.processes[p.UID], checkpoint.Running
		a.mu.Unlock()
		if x != nil {
			x.mu.Lock()
			phase = x.phase
			x.mu.Unlock()
		}
		s.Processes = append(s.Processes, &agentpb.Process{Pod: string(p.UID), Pid: pid, Phase: simulatedPhases[phase], Durable: p.savesTo != ""})
	}
	return s, nil
}

var simulatedPhases = map[checkpoint.Phase]agentpb.Phase{
	checkpoint.Running: agentpb.Phase_PHASE_RUNNING, checkpoint.Gated: agentpb.Phase_PHASE_GATED, checkpoint.Saved: agentpb.Phase_PHASE_SAVED,
}
