package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/offload"
	"github.com/muster-sched/muster/gpu"
)

// start lets an operation that is on disk act. The caller has the lock, or is the only one.
func (a *Agent) start(op *operation) {
	ctx, cancel := context.WithCancelCause(a.ctx)
	op.cancel = cancel
	a.acting.Go(func() {
		defer cancel(nil)
		err := a.act(ctx, op.record)
		if errors.Is(context.Cause(ctx), errStopped) || errors.Is(err, offload.ErrUnfinished) {
			return // it stays at work on disk
		}
		if err != nil && op.record.Request.Image != "" && !a.giveUp(op, err) {
			return // so does this
		}
		a.end(op, err)
	})
}

// giveUp records that the processes of an image are not brought back, before anyone learns that: whoever does lets them go on elsewhere, and the next
// agent must not begin again. It says whether that is on disk; only an agent that stops does not wait for it.
func (a *Agent) giveUp(op *operation, why error) bool {
	failed := proto.CloneOf(op.record)
	failed.Operation.State, failed.Operation.Message, failed.Operation.Ended = agentpb.State_STATE_FAILED, why.Error(), timestamppb.Now()
	for {
		a.mu.Lock()
		err := a.records.put(failed)
		a.mu.Unlock()
		if err == nil {
			return true
		}
		a.o.Log.Error("that processes were not brought back cannot be recorded; it is tried again", "operation", op.record.Operation.Id, "reason", why, "error", err)
		select {
		case <-a.ctx.Done():
			return false
		case <-time.After(time.Second):
		}
	}
}

// end records how an operation ended. While that cannot be written it is tried again, and nothing else begins on its processes: the next agent would begin
// the operation once more, and finds its work done.
func (a *Agent) end(op *operation, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := op.record.Operation
	o.State, o.Ended = agentpb.State_STATE_SUCCEEDED, timestamppb.Now()
	if err != nil {
		o.State, o.Message = agentpb.State_STATE_FAILED, err.Error()
	}
	took := o.Ended.AsTime().Sub(o.Began.AsTime())
	a.o.Metrics.operations.WithLabelValues(name(o.Action), strings.ToLower(strings.TrimPrefix(o.State.String(), "STATE_"))).Observe(took.Seconds())
	a.o.Log.Info("operation ended", "operation", o.Id, "action", name(o.Action), "pod", o.Pod, "pids", o.Pids, "state", o.State.String(), "error", o.Message, "seconds", took.Seconds())
	a.write(op)
	close(op.done)
	for op.unwritten && a.ctx.Err() == nil {
		a.unlocked(func() {
			select {
			case <-a.ctx.Done():
			case <-time.After(time.Second):
			}
		})
		a.write(op)
	}
}

// write writes that an operation has ended. The caller has the lock.
func (a *Agent) write(op *operation) {
	err := a.records.put(op.record)
	if op.unwritten = err != nil; op.unwritten {
		a.o.Log.Error("the end of an operation cannot be recorded; it is tried again", "operation", op.record.Operation.Id, "error", err)
	}
}

// act does the operation's work. An agent that died at it may have left the processes
// in any phase, and some may have ended since.
func (a *Agent) act(ctx context.Context, r *agentpb.Record) error {
	o, dir := r.Operation, a.dir(r.Operation.Pod)
	if r.Request.Image != "" {
		return a.bringBack(ctx, r)
	}
	var pids, ours []int // ours: those that were not paused before
	var gone []int
	b, done := a.look(dir)
	for i, pid := range o.Pids {
		if _, err := b.Phase(int(pid)); errors.Is(err, gpu.ErrGone) || errors.Is(err, gpu.ErrNoPage) || isAnother(r, i) {
			gone = append(gone, int(pid))
			continue
		}
		pids = append(pids, int(pid))
		if !slices.Contains(r.Paused, pid) {
			ours = append(ours, int(pid))
		}
	}
	done()
	deadline := o.Deadline.AsTime()
	if o.Action == agentpb.Action_ACTION_RESUME || o.Action == agentpb.Action_ACTION_RESTORE {
		// It is ended even after its deadline, and without ranks that ended: others may run already.
		left := time.Until(deadline)
		if o.Attempts > 1 {
			left = max(left, wayBack)
		}
		if o.Action == agentpb.Action_ACTION_RESTORE {
			return a.restore(ctx, dir, pids, left)
		}
		return a.with(dir, func(b checkpoint.Local) error { return checkpoint.Resume(ctx, b, pids, left) })
	}
	why := errors.New("the deadline passed while no agent ran")
	if len(gone) > 0 {
		why = fmt.Errorf("processes %v have ended", gone)
	} else if time.Until(deadline) > 0 {
		limited, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		why = a.with(dir, func(b checkpoint.Local) error {
			return checkpoint.Pause(limited, b, pids, checkpoint.Options{Timeout: checkpoint.Longest(b, pids, tryTimeout), Retries: math.MaxInt, Backoff: time.Second})
		})
		if o.Action == agentpb.Action_ACTION_PAUSE {
			return why // all are as before
		}
		if why == nil {
			why = a.store(limited, dir, o.Id, pids)
		}
		if why == nil {
			return nil
		}
	}
	return a.takeBack(ctx, r, pids, ours, why)
}

// isAnother says whether the process of an operation has ended, and another one has its ID.
func isAnother(r *agentpb.Record, i int) bool {
	if i >= len(r.Started) {
		return false
	}
	started, err := gpu.StartTime(int(r.Operation.Pids[i]))
	return err != nil || started != r.Started[i]
}

// store stores the memory of paused processes, but of those whose own save outlives them: it is stored.
func (a *Agent) store(ctx context.Context, dir, name string, pids []int) error {
	b, done := a.look(dir)
	pids = slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
		st, err := b.Status(pid)
		return err == nil && st.Durable
	})
	done()
	if len(pids) == 0 {
		return nil
	}
	return a.o.Images.Save(ctx, dir, name, pids)
}

// with opens the processes of a folder for something. No other command changes them meanwhile.
func (a *Agent) with(dir string, do func(checkpoint.Local) error) error {
	b := a.o.Open(dir)
	defer b.Close()
	return do(b)
}

// restore writes back the memory of processes that is in images, and lets all go on.
func (a *Agent) restore(ctx context.Context, dir string, pids []int, left time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	images, err := a.o.Images.Restore(ctx, dir, pids)
	if err != nil {
		return fmt.Errorf("%w; all stay paused", err)
	}
	if err := a.with(dir, func(b checkpoint.Local) error { return checkpoint.Resume(ctx, b, pids, left) }); err != nil {
		return err
	}
	if err := a.o.Images.Drop(ctx, dir, images); err != nil {
		a.o.Log.Warn("images that no process needs any longer cannot be deleted", "images", images, "error", err)
	}
	return nil
}

// bringBack brings whole processes back from an image. What it has made is ended or goes on, even after its deadline and a cancel: before that is
// known, the image is not to be used elsewhere.
func (a *Agent) bringBack(ctx context.Context, r *agentpb.Record) error {
	left := time.Until(r.Operation.Deadline.AsTime())
	if r.Operation.Attempts > 1 {
		left = max(left, wayBack)
	}
	s := &offload.Steps{Making: ints(r.Operation.Pids), Back: ints(r.Paused), Keep: func(s *offload.Steps) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		r.Operation.Pids, r.Paused = int32s(s.Making), int32s(s.Back)
		return a.records.put(r)
	}}
	gpus := map[string]string{}
	for from, to := range r.Request.Gpus {
		gpus[gpu.ID(from)] = gpu.ID(to)
	}
	for {
		limited, cancel := context.WithTimeout(ctx, left)
		err := a.o.Images.Return(limited, a.o.GPUDir, r.Request.Image, gpus, s, left)
		cancel()
		if !errors.Is(err, offload.ErrUnfinished) {
			return err
		}
		a.o.Log.Error("processes that were brought back wait", "operation", r.Operation.Id, "error", err)
		ctx, left = a.ctx, wayBack
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

func ints(pids []int32) (all []int) {
	for _, pid := range pids {
		all = append(all, int(pid))
	}
	return all
}

func int32s(pids []int) (all []int32) {
	for _, pid := range pids {
		all = append(all, int32(pid))
	}
	return all
}

// takeBack lets all processes go on that ran before an operation that failed, with their memory.
func (a *Agent) takeBack(ctx context.Context, r *agentpb.Record, pids, ours []int, why error) error {
	if errors.Is(context.Cause(ctx), errStopped) {
		return why // the next agent does, or ends it
	}
	dir := a.dir(r.Operation.Pod)
	back, cancel := context.WithTimeout(a.ctx, wayBack)
	defer cancel()
	if r.Operation.Action == agentpb.Action_ACTION_CHECKPOINT {
		if err := a.o.Images.TakeBack(back, dir, r.Operation.Id, pids); err != nil {
			return fmt.Errorf("%w; and their memory is not on the host again, so all stay paused: %w", why, err)
		}
	}
	if err := a.with(dir, func(b checkpoint.Local) error { return checkpoint.Resume(back, b, ours, wayBack) }); err != nil {
		return fmt.Errorf("%w, and not all others go on: %w", why, err)
	}
	return fmt.Errorf("%w; all others go on", why)
}
