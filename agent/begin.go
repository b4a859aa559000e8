package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu"
)

// claim is a request whose processes are looked at before its operation begins. The driver may take long to say what they are, and the lock is free
// meanwhile: no other operation on them, and no step of a job, begins before that is known.
type claim struct {
	id, pod, image string
	pids           []int32       // none: all of the pod, or of the image
	done           chan struct{} // closed when the operation has begun, or was refused
}

func (c *claim) meets(other *claim) bool {
	same := c.pod == other.pod && c.image == other.image
	return c.id == other.id || same && (len(c.pids) == 0 || len(other.pids) == 0 || overlap(c.pids, other.pids))
}

// claimed gives a claim that is in the way of another one; nil if none is.
func (a *Agent) claimed(by *claim) *claim {
	for _, c := range a.claims {
		if c.meets(by) {
			return c
		}
	}
	return nil
}

// await waits until a claim is given up. The caller has the lock, which it gives away meanwhile.
func (a *Agent) await(ctx context.Context, c *claim) (err error) {
	a.unlocked(func() {
		select {
		case <-c.done:
		case <-a.ctx.Done():
			err = errStopping
		case <-ctx.Done():
			err = status.FromContextError(ctx.Err()).Err()
		}
	})
	return err
}

// unlocked calls f without the lock, which the caller has.
func (a *Agent) unlocked(f func()) {
	a.mu.Unlock()
	defer a.mu.Lock()
	f()
}

var errStopping = status.Error(codes.Unavailable, "the agent stops")

// begin finds the operation, or begins it: it is on disk before anything is done.
func (a *Agent) begin(ctx context.Context, r *agentpb.RunRequest) (*operation, error) {
	if err := valid(r); err != nil {
		return nil, err
	}
	if err := a.meant(r.Node); err != nil {
		return nil, err
	}
	if a.o.Images == nil && (r.Action == agentpb.Action_ACTION_CHECKPOINT || r.Action == agentpb.Action_ACTION_RESTORE) {
		return nil, status.Errorf(codes.FailedPrecondition, "the agent of node %q has no store of images: muster agent --image-store gives it one", a.o.Node)
	}
	c := &claim{id: r.Id, pod: r.Pod, image: r.Image, pids: r.Pids, done: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		if op := a.operations[r.Id]; op != nil {
			if !proto.Equal(op.record.Request, r) {
				return nil, status.Errorf(codes.AlreadyExists, "id: %q is that of another operation: %s of pod %q", r.Id, name(op.record.Operation.Action), op.record.Operation.Pod)
			}
			return op, nil
		}
		if err := a.inTime(r); err != nil {
			return nil, err
		}
		other := a.claimed(c)
		if other == nil {
			break
		}
		if err := a.await(ctx, other); err != nil {
			return nil, err
		}
	}
	a.claims = append(a.claims, c)
	a.acting.Add(1) // Close waits for it
	defer func() {
		a.claims = slices.DeleteFunc(a.claims, func(other *claim) bool { return other == c })
		close(c.done)
		a.acting.Done()
	}()
	pids, paused, err := a.resolve(r)
	if err == nil {
		err = a.inTime(r) // that took time
	}
	if err != nil {
		return nil, err
	}
	return a.record(r, pids, paused)
}

// inTime says that it is too late, or too early, to begin the operation of a request.
func (a *Agent) inTime(r *agentpb.RunRequest) error {
	if a.ctx.Err() != nil {
		return errStopping
	}
	now, deadline := time.Now(), r.Deadline.AsTime()
	if !now.Before(deadline) {
		return status.Errorf(codes.DeadlineExceeded, "deadline: %v has passed", deadline.Format(time.RFC3339))
	}
	if deadline.Sub(now) > MaxDeadline {
		return status.Errorf(codes.InvalidArgument, "deadline: expected at most %v from now; found %v", MaxDeadline, deadline.Format(time.RFC3339))
	}
	return nil
}

// record writes down an operation, and starts it.
func (a *Agent) record(r *agentpb.RunRequest, pids, paused []int32) (*operation, error) {
	now := time.Now()
	a.forget(now)
	record := &agentpb.Record{Request: proto.CloneOf(r), Paused: paused, Operation: &agentpb.Operation{
		Id: r.Id, Action: r.Action, Pod: r.Pod, Pids: pids, Deadline: r.Deadline,
		State: agentpb.State_STATE_ACTING, Began: timestamppb.New(now), Attempts: 1,
	}}
	if a.o.Backend == "driver" {
		for _, pid := range pids {
			started, _ := gpu.StartTime(int(pid)) // of one that has ended no process has 0
			record.Started = append(record.Started, started)
		}
	}
	if err := a.records.put(record); err != nil {
		return nil, status.Errorf(codes.Internal, "the operation cannot be recorded, and was not begun: %v", err)
	}
	op := &operation{record: record, done: make(chan struct{})}
	a.operations[r.Id] = op
	a.start(op)
	return op, nil
}

// resolve gives the processes of a request, and those of them that are paused. No
// other operation is at work on them. It gives the lock, which the caller has, away while it looks.
func (a *Agent) resolve(r *agentpb.RunRequest) (pids, paused []int32, err error) {
	if r.Image != "" {
		return nil, nil, a.atImage(r.Image)
	}
	processes, done := a.look(a.dir(r.Pod))
	defer done()
	if r.Action > agentpb.Action_ACTION_RESUME && !slices.Contains(processes.Path(), checkpoint.Saved) {
		return nil, nil, status.Errorf(codes.FailedPrecondition, "with --backend %s the agent of node %q leaves the memory in the processes: it makes no images of it", a.o.Backend, a.o.Node)
	}
	a.unlocked(func() { pids, err = a.list(processes, r) })
	if err == nil {
		err = a.free("", r.Pod, pids) // and they stay so, by the claim
	}
	if err == nil {
		a.unlocked(func() { pids, paused, err = a.observe(processes, r, pids) })
	}
	return pids, paused, err
}

// list gives the processes that a request names, or else those that are found, some of which may have ended.
func (a *Agent) list(processes checkpoint.Local, r *agentpb.RunRequest) ([]int32, error) {
	if len(r.Pids) > 0 {
		return slices.Clone(r.Pids), nil
	}
	found, err := a.found(processes, r.Pod)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "%v", err)
	}
	return int32s(found), nil
}

// observe gives those of the listed processes that can be paused, all if the request names them, and those that are.
func (a *Agent) observe(processes checkpoint.Local, r *agentpb.RunRequest, listed []int32) (pids, paused []int32, err error) {
	type seen struct {
		phase checkpoint.Phase
		err   error
	}
	for i, s := range each(listed, func(pid int32) seen {
		phase, err := processes.Phase(int(pid))
		return seen{phase, err}
	}) {
		pid := listed[i]
		switch {
		case s.err != nil && len(r.Pids) > 0:
			return nil, nil, status.Errorf(codes.NotFound, "process %d of pod %q: %v", pid, r.Pod, s.err)
		case s.err != nil && !isNone(s.err): // it may well run, and would be left out
			return nil, nil, status.Errorf(codes.FailedPrecondition, "process %d of pod %q: %v", pid, r.Pod, s.err)
		case s.err != nil:
			continue
		}
		pids = append(pids, pid)
		if s.phase == checkpoint.End(processes) {
			paused = append(paused, pid)
		}
	}
	if len(pids) == 0 {
		return nil, nil, status.Errorf(codes.NotFound, "pod %q has no process with a GPU that can be paused (--backend %s)", r.Pod, a.o.Backend)
	}
	return pids, paused, a.of(r.Pod, pids)
}

// isNone says that a process that was found has nothing on a GPU that could be paused: it has ended, or is none of the driver's, or has lost it.
func isNone(err error) bool {
	var refused *gpu.DriverError
	return errors.Is(err, gpu.ErrGone) || errors.Is(err, gpu.ErrNoPage) || errors.Is(err, gpu.ErrFailed) || errors.As(err, &refused)
}

// free says what is at work on processes of a pod, other than the steps of a job.
func (a *Agent) free(job, pod string, pids []int32) error {
	if err := a.atWork(pod, pids); err != nil {
		return err
	}
	return a.atParts(job, pod, pids)
}

// atImage says which operation is at work on an image.
func (a *Agent) atImage(image string) error {
	for _, id := range a.ids() {
		if r := a.operations[id].record; r.Operation.State == agentpb.State_STATE_ACTING && r.Request.Image == image {
			return status.Errorf(codes.Aborted, "operation %q brings the processes of image %s back: wait for it", id, image)
		}
	}
	return nil
}

// atWork says which operation is at work on processes of a pod.
func (a *Agent) atWork(pod string, pids []int32) error {
	for _, id := range a.ids() {
		op := a.operations[id]
		other := op.record.Operation
		if op.unwritten && other.Pod == pod && overlap(other.Pids, pids) {
			return status.Errorf(codes.FailedPrecondition, "operation %q (%s) on these processes has ended, and the disk of node %q does not take that: wait until it does", id, name(other.Action), a.o.Node)
		}
		if other.State == agentpb.State_STATE_ACTING && other.Pod == pod && overlap(other.Pids, pids) {
			return status.Errorf(codes.FailedPrecondition, "operation %q (%s) is at work on these processes: wait for it, or cancel it", id, name(other.Action))
		}
	}
	return nil
}

// atParts says which job other than one is pausing or resuming processes of a pod over several nodes.
func (a *Agent) atParts(job, pod string, pids []int32) error {
	for _, key := range slices.Sorted(maps.Keys(a.parts)) {
		if p := a.parts[key]; p.job != job && p.pod == pod && overlap(p.pids, pids) {
			return status.Errorf(codes.FailedPrecondition, "job %q is pausing or resuming these processes with those of other nodes: wait for it", p.job)
		}
	}
	return nil
}

func overlap(a, b []int32) bool {
	return slices.ContainsFunc(a, func(pid int32) bool { return slices.Contains(b, pid) })
}
