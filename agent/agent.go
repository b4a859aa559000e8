// Package agent acts on the GPU processes of one node for a scheduler elsewhere:
// it pauses and resumes the processes of a pod, as operations that outlast its
// own death (docs/adr/0025).
package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/agent/hardware"
	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/gpu"
)

const (
	// MaxDeadline is how far an operation's deadline may be away.
	MaxDeadline = 24 * time.Hour
	// lease is after what time a process goes on by itself if the agent dies while it
	// pauses it, and does not come back.
	lease = 10 * time.Minute
	// tryTimeout bounds one try of a pause, unless a process says that it takes longer. Tries are repeated until the deadline.
	tryTimeout = 10 * time.Second
	// wayBack bounds what is done for an operation after its deadline.
	wayBack = 5 * time.Minute
	// remembered is how long an operation that has ended is kept. Until its deadline it is
	// kept in any case: a repeated call after that is refused as late.
	remembered = time.Hour
)

// Options say for what the agent is.
type Options struct {
	Node     string // its name
	StateDir string // of the records of operations, kept between starts
	GPUDir   string // of the control pages; those of a pod are in a folder in it, named by the pod's UID
	Log      *slog.Logger
	// Backend is what pauses processes, one of checkpoint.Names; auto, or empty: they run with gpu/shim, or save themselves.
	Backend string
	// Calls makes the driver's calls for processes of a folder; those of the backends driver and hybrid, and of whole processes that are brought back.
	Calls func(dir string) *gpu.Calls
	// Open gives the processes of a folder; nil: by Backend.
	Open func(dir string) checkpoint.Local
	// Hardware observes the GPUs; nil: the agent does not look at them.
	Hardware *hardware.Watch
	// Metrics counts what the agent does; nil for metrics of its own.
	Metrics *Metrics
	// Images keeps the memory of checkpointed processes; nil: the agent makes no checkpoints.
	Images Images
}

// Agent runs operations. Its methods may be called at the same time.
type Agent struct {
	o       Options
	records records
	ctx     context.Context
	stop    context.CancelCauseFunc
	acting  sync.WaitGroup
	// look gives the processes of a folder to observe them, until done is called.
	look func(dir string) (b checkpoint.Local, done func())
	seen *gpu.Calls // by which look asks the driver; nil for none

	mu         sync.Mutex
	operations map[string]*operation
	claims     []*claim         // of requests whose operation may begin
	parts      map[string]*part // of jobs that are paused over several nodes, while a request is obeyed
}

type operation struct {
	record *agentpb.Record // guarded by Agent.mu
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it has ended
	// unwritten says that the disk did not take that it has ended: the next agent would begin it again. Guarded by Agent.mu.
	unwritten bool
}

// Why an operation is given up.
var (
	errStopped   = errors.New("the agent stops")
	errCancelled = errors.New("cancelled")
)

// Open returns an agent that goes on with what the last one of the folder began.
// Only one agent at a time has a folder.
func Open(o Options) (*Agent, error) {
	files, err := openFiles(filepath.Join(o.StateDir, "operations"), o.Log)
	if err != nil {
		return nil, err
	}
	if err := forgetParts(filepath.Join(o.StateDir, "jobs")); err != nil {
		files.close()
		return nil, err
	}
	a, err := open(o, files)
	if err != nil {
		files.close()
	}
	return a, err
}

func open(o Options, records records) (*Agent, error) {
	o.Backend = cmp.Or(o.Backend, "auto")
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	a := &Agent{o: o, records: records, operations: map[string]*operation{}, parts: map[string]*part{}}
	a.open()
	a.ctx, a.stop = context.WithCancelCause(context.Background())
	known, err := records.all()
	if err != nil {
		return nil, err
	}
	for _, r := range known {
		op := &operation{record: r, done: make(chan struct{})}
		a.operations[r.Operation.Id] = op
		if r.Operation.State != agentpb.State_STATE_ACTING {
			close(op.done)
			continue
		}
		r.Operation.Attempts++
		if err := records.put(r); err != nil {
			return nil, err
		}
		o.Log.Info("going on with an operation", "operation", r.Operation.Id, "attempts", r.Operation.Attempts)
		a.start(op)
	}
	return a, nil
}

// open decides how the processes of a folder are opened, and observed. To open the driver takes seconds: who only looks shares one program.
func (a *Agent) open() {
	calls := a.o.Calls
	if calls == nil {
		calls = func(string) *gpu.Calls { return nil }
	}
	if open := a.o.Open; open != nil {
		a.look = func(dir string) (checkpoint.Local, func()) {
			b := open(dir)
			return b, b.Close
		}
		return
	}
	patient := func(dir string) *gpu.Calls {
		c := calls(dir)
		if c != nil {
			c.Patience = wayBack // for what an agent that was killed has begun
		}
		return c
	}
	a.seen = calls(a.o.GPUDir)
	a.look = func(dir string) (checkpoint.Local, func()) {
		b := checkpoint.Named(a.o.Backend, dir, lease, a.seen)
		if d, ok := b.(*checkpoint.Driver); ok {
			d.Announced = dir != a.o.GPUDir // a pod's folder is the pod's to write
		}
		return b, func() {}
	}
	a.o.Open = func(dir string) checkpoint.Local { return checkpoint.Named(a.o.Backend, dir, lease, patient(dir)) }
}

// Close gives up what is at work, which the next agent of the folder begins again.
func (a *Agent) Close() error {
	a.mu.Lock() // nothing is about to begin
	a.stop(errStopped)
	a.mu.Unlock()
	a.acting.Wait()
	a.closeParts()
	if a.seen != nil {
		a.seen.Close()
	}
	return a.records.close()
}

// Run is that of the interface in agentpb.
func (a *Agent) Run(ctx context.Context, r *agentpb.RunRequest) (*agentpb.Operation, error) {
	op, err := a.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	return a.wait(ctx, op)
}

// Get is that of the interface in agentpb.
func (a *Agent) Get(_ context.Context, r *agentpb.GetRequest) (*agentpb.Operation, error) {
	op, err := a.find(r.Id)
	if err != nil {
		return nil, err
	}
	return a.copy(op), nil
}

// Cancel is that of the interface in agentpb.
func (a *Agent) Cancel(ctx context.Context, r *agentpb.CancelRequest) (*agentpb.Operation, error) {
	op, err := a.find(r.Id)
	if err != nil {
		return nil, err
	}
	if op.cancel != nil {
		op.cancel(errCancelled)
	}
	return a.wait(ctx, op)
}

func (a *Agent) find(id string) (*operation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if op := a.operations[id]; op != nil {
		return op, nil
	}
	return nil, status.Errorf(codes.NotFound, "operation %q is not known here", id)
}

func (a *Agent) wait(ctx context.Context, op *operation) (*agentpb.Operation, error) {
	select {
	case <-op.done:
		return a.copy(op), nil
	case <-a.ctx.Done():
		return nil, status.Error(codes.Unavailable, "the agent stops; the next one goes on with the operation")
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func (a *Agent) copy(op *operation) *agentpb.Operation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return proto.CloneOf(op.record.Operation)
}

var (
	validID  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	validPod = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,252}$`)
)

// valid says what is wrong with a request, whatever the node has.
func valid(r *agentpb.RunRequest) error {
	switch {
	case !validID.MatchString(r.Id):
		return status.Errorf(codes.InvalidArgument, "id: expected 1 to 128 letters, digits and \". _ -\", a letter or digit first; found %q", r.Id)
	case r.Action < agentpb.Action_ACTION_PAUSE || r.Action > agentpb.Action_ACTION_RESTORE:
		return status.Errorf(codes.InvalidArgument, "action: expected pause, resume, checkpoint or restore; found %v", r.Action)
	case r.Action == agentpb.Action_ACTION_CHECKPOINT && image.CheckName(r.Id) != nil:
		return status.Errorf(codes.InvalidArgument, "id: it is the name of the image: %v", image.CheckName(r.Id))
	case r.Image != "" && (r.Action != agentpb.Action_ACTION_RESTORE || r.Pod != "" || len(r.Pids) > 0):
		return status.Error(codes.InvalidArgument, "image: expected a restore without a pod and processes: the image has them")
	case len(r.Gpus) > 0 && r.Image == "":
		return status.Error(codes.InvalidArgument, "gpus: expected an image with them: the processes of a pod have their GPUs")
	case !validGPUs(r.Gpus):
		return status.Errorf(codes.InvalidArgument, "gpus: expected UUIDs, such as GPU-5d1f0c4e-…, of GPUs there and here, each once; found %v", r.Gpus)
	case r.Pod != "" && !validPod.MatchString(r.Pod):
		return status.Errorf(codes.InvalidArgument, "pod: expected the UID of a pod; found %q", r.Pod)
	case !r.Deadline.IsValid():
		return status.Error(codes.InvalidArgument, "deadline: expected a time; found none")
	}
	return validPIDs(r.Pids)
}

func validGPUs(gpus map[string]string) bool {
	there, here := map[string]bool{"": true}, map[string]bool{"": true} // by IDs: a UUID may be written in two ways
	for from, to := range gpus {
		if there[gpu.ID(from)] || here[gpu.ID(to)] {
			return false
		}
		there[gpu.ID(from)], here[gpu.ID(to)] = true, true
	}
	return true
}

func validPIDs(pids []int32) error {
	for i, pid := range pids {
		if pid <= 0 || slices.Contains(pids[:i], pid) {
			return status.Errorf(codes.InvalidArgument, "pids: expected IDs of processes, each once; found %v", pids)
		}
	}
	return nil
}

// meant says that a request is for another node.
func (a *Agent) meant(node string) error {
	if node != "" && node != a.o.Node {
		return status.Errorf(codes.FailedPrecondition, "node: this is the agent of node %q; the request is for node %q", a.o.Node, node)
	}
	return nil
}

// ids are those of all operations, in the order of their beginning.
func (a *Agent) ids() []string {
	var ids []string
	for id := range a.operations {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(x, y string) int {
		before, after := a.operations[x].record.Operation.Began.AsTime(), a.operations[y].record.Operation.Began.AsTime()
		if c := before.Compare(after); c != 0 {
			return c
		}
		return strings.Compare(x, y)
	})
	return ids
}

// forget removes operations that ended long ago.
func (a *Agent) forget(now time.Time) {
	for id, op := range a.operations {
		o := op.record.Operation
		if op.unwritten || o.State == agentpb.State_STATE_ACTING || o.Deadline.AsTime().After(now) || o.Ended.AsTime().Add(remembered).After(now) {
			continue
		}
		if err := a.records.remove(id); err != nil {
			a.o.Log.Error("an old operation cannot be removed", "operation", id, "error", err)
			continue
		}
		delete(a.operations, id)
	}
}

// Status is that of the interface in agentpb.
func (a *Agent) Status(_ context.Context, r *agentpb.StatusRequest) (*agentpb.NodeStatus, error) {
	if err := a.meant(r.GetNode()); err != nil {
		return nil, err
	}
	s := &agentpb.NodeStatus{Node: a.o.Node, Backend: a.o.Backend}
	pods, err := a.pods()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "%v", err)
	}
	s.Processes = slices.Concat(each(pods, a.processes)...)
	if a.o.Hardware != nil {
		s.Hardware = a.o.Hardware.Last()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range a.ids() {
		if op := a.operations[id].record.Operation; op.State == agentpb.State_STATE_ACTING {
			s.Operations = append(s.Operations, proto.CloneOf(op))
		}
	}
	return s, nil
}

// Clear is that of the interface in agentpb.
func (a *Agent) Clear(ctx context.Context, r *agentpb.ClearRequest) (*agentpb.Hardware, error) {
	if err := a.meant(r.GetNode()); err != nil {
		return nil, err
	}
	if a.o.Hardware == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "the agent of node %q does not look at GPUs: muster agent --gpu-interval", a.o.Node)
	}
	h, err := a.o.Hardware.Clear(ctx, r.Gpu)
	switch {
	case errors.Is(err, hardware.ErrNoGPU):
		return nil, status.Errorf(codes.NotFound, "%v", err)
	case err != nil:
		return nil, status.Errorf(codes.Internal, "%v", err)
	}
	a.o.Log.Info("errors of GPUs were cleared", "gpu", r.Gpu)
	return h, nil
}

func (a *Agent) processes(p pod) []*agentpb.Process {
	b, done := a.look(a.dir(p.name))
	defer done()
	found, err := p.pids, error(nil)
	if a.o.Backend != "driver" {
		found, err = b.List()
	}
	if err != nil {
		a.o.Log.Error("a folder of control pages cannot be read", "pod", p.name, "error", err)
	}
	processes := each(found, func(pid int) *agentpb.Process {
		st, err := b.Status(pid)
		if err != nil && isNone(err) {
			return nil // it ended, or is another backend's
		} else if err != nil { // who pauses the pod must not leave it out
			return &agentpb.Process{Pod: p.name, Pid: int32(pid)}
		}
		return &agentpb.Process{
			Pod: p.name, Pid: int32(pid), Phase: phases[st.Phase],
			ReservedBytes: st.Reserved, ActiveBytes: st.Active, Untracked: int32(st.Untracked), Durable: st.Durable,
		}
	})
	return slices.DeleteFunc(processes, func(p *agentpb.Process) bool { return p == nil })
}

// each calls f for all at the same time, as what it asks may take long, and returns what it returned in their order. Of many, which a pod could make up,
// some wait.
func each[T, R any](all []T, f func(T) R) []R {
	results, turns := make([]R, len(all)), make(chan struct{}, 64)
	var wait sync.WaitGroup
	for i, x := range all {
		turns <- struct{}{}
		wait.Go(func() {
			defer func() { <-turns }()
			results[i] = f(x)
		})
	}
	wait.Wait()
	return results
}

var phases = map[checkpoint.Phase]agentpb.Phase{
	checkpoint.Running:      agentpb.Phase_PHASE_RUNNING,
	checkpoint.Gated:        agentpb.Phase_PHASE_GATED,
	checkpoint.Saved:        agentpb.Phase_PHASE_SAVED,
	checkpoint.Released:     agentpb.Phase_PHASE_RELEASED,
	checkpoint.Locked:       agentpb.Phase_PHASE_LOCKED,
	checkpoint.Checkpointed: agentpb.Phase_PHASE_CHECKPOINTED,
}

// Phase is a phase of the interface as that of package checkpoint; "" if it is none.
func Phase(p agentpb.Phase) checkpoint.Phase {
	for own, theirs := range phases {
		if theirs == p {
			return own
		}
	}
	return ""
}

// name is an action as a word.
func name(a agentpb.Action) string {
	return strings.ToLower(strings.TrimPrefix(a.String(), "ACTION_"))
}
