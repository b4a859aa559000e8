package fleet

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/pause"
)

// AgentAddress is the annotation of a node with the HOST:PORT of its agent.
const AgentAddress = "muster.sh/agent"

// Pausable is the annotation of pods that an agent may pause.
const Pausable = "muster.sh/pausable"

// Annotations of pods that say what the simulated agents do with them. They are read at each operation.
const (
	// PauseTakes and ResumeTakes are how long that takes, such as "2s"; 0 without them.
	PauseTakes  = "devcluster.muster.sh/pause"
	ResumeTakes = "devcluster.muster.sh/resume"
	// PauseFails and ResumeFails make it fail, and say why.
	PauseFails  = "devcluster.muster.sh/pause-fails"
	ResumeFails = "devcluster.muster.sh/resume-fails"
	// GoalFails is what happens where the pods of a job are paused together: GOAL=HOW, such as "Keep=lost", with *TIMES after it for the
	// first times only. HOW is lost, if the agent cannot be reached; unanswered, if it does what it is asked for and its answer is lost; or
	// the outcome of a member, such as Late.
	GoalFails = "devcluster.muster.sh/goal-fails"
	// SavesTo names where the process of a pod saves its progress. The process of a pod of the namespace that starts later, with the same
	// name and completion index, goes on from there, on whatever node: its condition [Restored] says so.
	SavesTo = "devcluster.muster.sh/saves-to"
)

// Restored is the type of the condition of pods whose process goes on where another one had saved its progress ([SavesTo]).
const Restored corev1.PodConditionType = "devcluster.muster.sh/Restored"

// Agents is where the simulated agents of all nodes listen: one server answers for the node that a request names. Nodes that are created
// have the address in the annotation [AgentAddress].
type Agents struct {
	Listener net.Listener
	TLS      agent.TLS
	Clients  []string // names of the clients that are obeyed
}

// agents simulates the agents. A paused pod does not go on to its end.
type agents struct {
	agentpb.UnimplementedAgentServer
	pods *pods
	dir  string // of what the members of jobs must not forget
	mu   sync.Mutex
	ops  map[string]*operation // all that there were, by ID
	// parts are the members of jobs, by job and pod, and processes those of pods that were asked to pause with others.
	parts     map[string]*pause.Local
	processes map[types.UID]*process
	failures  map[string]int // of GoalFails, by pod and goal
}

func newAgents(pods *pods, dir string) *agents {
	return &agents{
		pods: pods, dir: dir, ops: map[string]*operation{}, parts: map[string]*pause.Local{}, processes: map[types.UID]*process{}, failures: map[string]int{},
	}
}

type operation struct {
	request *agentpb.RunRequest
	cancel  context.CancelFunc
	done    chan struct{} // closed when it has ended; result does not change then
	result  *agentpb.Operation
}

// Run is that of the interface: one operation of an ID, on a node that is ready.
func (a *agents) Run(ctx context.Context, r *agentpb.RunRequest) (*agentpb.Operation, error) {
	if a.pods.nodes.get(r.Node) == nil {
		return nil, status.Errorf(codes.Unavailable, "node %q is not ready, or not there", r.Node)
	}
	a.mu.Lock()
	op := a.ops[r.Id]
	if op == nil {
		p := a.pods.byUID(types.UID(r.Pod))
		if p == nil || p.node != r.Node || p.phase != corev1.PodRunning || p.ended() {
			a.mu.Unlock()
			return nil, status.Errorf(codes.NotFound, "pod %q has no process with a GPU that can be paused", r.Pod)
		}
		for _, other := range a.ops {
			if other.request.Pod == r.Pod && other.result == nil {
				a.mu.Unlock()
				return nil, status.Errorf(codes.FailedPrecondition, "operation %q is at work on these processes", other.request.Id)
			}
		}
		acting, cancel := context.WithDeadline(context.WithoutCancel(ctx), r.Deadline.AsTime())
		op = &operation{request: proto.CloneOf(r), cancel: cancel, done: make(chan struct{})}
		a.ops[r.Id] = op
		go a.act(acting, op, p)
	} else if !proto.Equal(op.request, r) {
		a.mu.Unlock()
		return nil, status.Errorf(codes.AlreadyExists, "id: %q is that of another operation", r.Id)
	}
	a.mu.Unlock()
	return op.wait(ctx)
}

// act does what an operation asks for, after the time that it takes.
func (a *agents) act(ctx context.Context, op *operation, p *pod) {
	defer op.cancel()
	result := &agentpb.Operation{
		Id: op.request.Id, Action: op.request.Action, Pod: op.request.Pod, Deadline: op.request.Deadline,
		State: agentpb.State_STATE_SUCCEEDED, Began: timestamppb.Now(), Attempts: 1,
	}
	takes, fails := PauseTakes, PauseFails
	frees := op.request.Action == agentpb.Action_ACTION_PAUSE || op.request.Action == agentpb.Action_ACTION_CHECKPOINT
	if !frees {
		takes, fails = ResumeTakes, ResumeFails
	}
	notes := a.notes(ctx, p)
	select {
	case <-ctx.Done():
		result.State, result.Message = agentpb.State_STATE_FAILED, "given up: "+ctx.Err().Error()+"; all processes are as before"
	case <-time.After(duration(notes[takes], 0)):
		switch {
		case a.pods.byUID(p.UID) == nil:
			result.State, result.Message = agentpb.State_STATE_FAILED, "its processes have ended"
		case notes[fails] != "":
			result.State, result.Message = agentpb.State_STATE_FAILED, notes[fails]
		case frees:
			a.process(p).move(checkpoint.Saved, 0)
		default:
			a.process(p).move(checkpoint.Running, 0)
		}
	}
	result.Ended = timestamppb.Now()
	a.mu.Lock()
	op.result = result
	a.mu.Unlock()
	close(op.done)
}

// notes are the annotations of a pod as they are now.
func (a *agents) notes(ctx context.Context, p *pod) map[string]string {
	if now, err := a.pods.client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{}); err == nil && now.UID == p.UID {
		return now.Annotations
	}
	return nil
}

func (op *operation) wait(ctx context.Context) (*agentpb.Operation, error) {
	select {
	case <-op.done:
		return op.result, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// Get is that of the interface, for operations that have ended.
func (a *agents) Get(ctx context.Context, r *agentpb.GetRequest) (*agentpb.Operation, error) {
	a.mu.Lock()
	op := a.ops[r.Id]
	a.mu.Unlock()
	if op == nil {
		return nil, status.Errorf(codes.NotFound, "operation %q is not known here", r.Id)
	}
	return op.wait(ctx)
}

// Cancel is that of the interface.
func (a *agents) Cancel(ctx context.Context, r *agentpb.CancelRequest) (*agentpb.Operation, error) {
	a.mu.Lock()
	if op := a.ops[r.Id]; op != nil {
		op.cancel()
	}
	a.mu.Unlock()
	return a.Get(ctx, &agentpb.GetRequest{Id: r.Id})
}

// byUID finds a pod that is on a node; nil for none.
func (f *pods) byUID(uid types.UID) *pod {
	for _, object := range f.store.List() {
		if p := object.(*pod); p.UID == uid && !p.left {
			return p
		}
	}
	return nil
}

// pause stops the containers of a pod, or lets them go on. The time of a pause does not count as run time.
func (f *pods) pause(p *pod, stop bool, now time.Time) {
	f.mu.Lock()
	since, stopped := f.paused[p.UID]
	switch {
	case stop && !stopped:
		f.paused[p.UID] = now
	case !stop && stopped:
		delete(f.paused, p.UID)
		if p.duration >= 0 {
			e, ok := f.ends[p.UID]
			if !ok || !e.began.Equal(p.began) {
				e = end{p.began, p.began.Add(p.duration)}
			}
			e.at = e.at.Add(now.Sub(since))
			f.ends[p.UID] = e
		}
	}
	f.mu.Unlock()
	f.add(p)
}

// progress is what a process has saved.
type progress struct {
	pod string        // its name
	ran time.Duration // until it was saved
}

// savesTo is where the process of a pod saves its progress; empty for nowhere.
func savesTo(p *corev1.Pod) string {
	name := p.Annotations[SavesTo]
	if name == "" {
		return ""
	}
	return p.Namespace + "/" + name + "/" + p.Labels[batchv1.JobCompletionIndexAnnotation]
}

// save keeps how far a pod is, where it saves that.
func (f *pods) save(p *pod, now time.Time) {
	if p.savesTo == "" {
		return
	}
	end := f.endOf(p)
	f.mu.Lock()
	defer f.mu.Unlock()
	if since, stopped := f.paused[p.UID]; stopped {
		now = since
	}
	x := progress{p.Name, now.Sub(p.began)}
	if p.duration >= 0 {
		x.ran = p.duration - end.Sub(now)
	}
	f.saved[p.savesTo] = x
}

// restored is what a pod that starts goes on from; false for nothing.
func (f *pods) restored(p *pod) (progress, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, ok := f.saved[p.savesTo]
	return x, ok && p.savesTo != ""
}

// isPaused reports whether the containers of a pod are stopped.
func (f *pods) isPaused(p *pod) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.paused[p.UID]
	return ok
}
