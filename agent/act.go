package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu"
)

// start lets an operation that is on disk act. The caller has the lock, or is the only one.
func (a *Agent) start(op *operation) {
	ctx, cancel := context.WithCancelCause(a.ctx)
	op.cancel = cancel
	a.acting.Go(func() {
		defer cancel(nil)
		err := a.act(ctx, op.record)
		if errors.Is(context.Cause(ctx), errStopped) {
			return // it stays at work on disk
		}
		a.end(op, err)
	})
}

// end records how an operation ended. If that cannot be written it is begun again by
// the next agent, which finds its work done.
func (a *Agent) end(op *operation, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := op.record.Operation
	o.State, o.Ended = agentpb.State_STATE_SUCCEEDED, timestamppb.Now()
	if err != nil {
		o.State, o.Message = agentpb.State_STATE_FAILED, err.Error()
	}
	a.o.Log.Info("operation ended", "operation", o.Id, "action", name(o.Action), "pod", o.Pod, "pids", o.Pids, "state", o.State.String(), "error", o.Message, "seconds", o.Ended.AsTime().Sub(o.Began.AsTime()).Seconds())
	if err := a.records.put(op.record); err != nil {
		a.o.Log.Error("the end of an operation cannot be recorded", "operation", o.Id, "error", err)
	}
	close(op.done)
}

// act does the operation's work. An agent that died at it may have left the processes
// in any phase, and some may have ended since.
func (a *Agent) act(ctx context.Context, r *agentpb.Record) error {
	b := a.o.Open(a.dir(r.Operation.Pod))
	defer b.Close()
	var pids, ours []int // ours: those that were not paused before
	var gone []int
	for _, pid := range r.Operation.Pids {
		if _, err := b.Phase(int(pid)); errors.Is(err, gpu.ErrGone) || errors.Is(err, gpu.ErrNoPage) {
			gone = append(gone, int(pid))
			continue
		}
		pids = append(pids, int(pid))
		if !slices.Contains(r.Paused, pid) {
			ours = append(ours, int(pid))
		}
	}
	deadline := r.Operation.Deadline.AsTime()
	if r.Operation.Action == agentpb.Action_ACTION_RESUME {
		// It is ended even after its deadline, and without ranks that ended: others may run already.
		left := time.Until(deadline)
		if r.Operation.Attempts > 1 {
			left = max(left, wayBack)
		}
		return checkpoint.Resume(ctx, b, pids, left)
	}
	why := "the deadline passed while no agent ran"
	if len(gone) > 0 {
		why = fmt.Sprintf("processes %v have ended", gone)
	} else if time.Until(deadline) > 0 {
		ctx, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		return checkpoint.Pause(ctx, b, pids, checkpoint.Options{Timeout: tryTimeout, Retries: math.MaxInt, Backoff: time.Second})
	}
	if err := checkpoint.Resume(ctx, b, ours, wayBack); err != nil {
		return fmt.Errorf("%s, and not all others go on: %w", why, err)
	}
	return fmt.Errorf("%s; all others go on", why)
}
