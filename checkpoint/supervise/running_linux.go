package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/offload"
	"github.com/muster-sched/muster/gpu"
)

// running is a job that runs, or that is in an image because it was asked to save itself: a process of the protocol of gpu.Self.
type running struct {
	*Job
	claim *image.Claim
	self  *gpu.Announced
	pipes string     // the folder of out
	out   [2]*output // while the processes are there

	root  *os.Process  // from which the others descend; nil while they are in the image
	ended chan int     // the exit code of root
	image *image.Entry // in which the processes are, or from which they came back and which is still to be deleted

	phase    checkpoint.Phase
	told     bool      // to end, as it could not move
	answered uint64    // the number of the request that was answered last, or is being obeyed
	until    time.Time // when it goes on by itself; zero: never
	stop     func()    // gives up what is being done; nil: nothing is
	done     chan outcome
}

// outcome is how what was done ended.
type outcome struct {
	phase checkpoint.Phase
	err   error
	asked bool // by a request, and not by the end of a lease
}

const (
	// lookPeriod is the time between two looks at what the job is asked for.
	lookPeriod = 20 * time.Millisecond
	// tryAgain is after what time a job whose lease has ended tries again to go on.
	tryAgain = 30 * time.Second
)

// watch waits for the end of the job, passes signals on, and does what the job is asked for.
func (r *running) watch(ctx context.Context, signals <-chan os.Signal) (int, error) {
	orphans, look := time.NewTicker(time.Second), time.NewTicker(lookPeriod)
	defer orphans.Stop()
	defer look.Stop()
	for {
		// While something is done the processes are its: signals, and the end of the job, which may be its work, are for later.
		ended, signalled := (<-chan int)(r.ended), signals
		if r.stop != nil {
			ended, signalled = nil, nil
		}
		select {
		case code := <-ended:
			return code, nil
		case <-orphans.C:
			r.tend()
		case <-look.C:
			r.look(ctx)
		case o := <-r.done:
			if err := r.did(o); err != nil {
				return 1, err
			}
		case s := <-signalled:
			if code, ends := r.signal(ctx, s.(syscall.Signal)); ends {
				return code, nil
			}
		}
	}
}

// tend does what is due each second.
func (r *running) tend() {
	if r.stop != nil || r.root == nil {
		return
	}
	bury(r.root.Pid)
	if r.phase == checkpoint.Gated {
		if err := r.Whole.Renew(r.root.Pid); err != nil {
			r.Say(fmt.Sprintf("job %s: %v", r.Name, err))
		}
	}
}

// signal passes a signal on, or moves the job; ends says that this was its end here.
func (r *running) signal(ctx context.Context, s syscall.Signal) (code int, ends bool) {
	if r.root == nil {
		if s == syscall.SIGUSR1 || s == syscall.SIGUSR2 {
			r.Say(fmt.Sprintf("signal %v of job %s is not passed on: it is image %s", s, r.Name, r.image.ID))
			return 0, false
		}
		r.Say(fmt.Sprintf("job %s stays image %s: the same command, here or elsewhere, goes on from it", r.Name, r.image.ID))
		return 128 + int(s), true
	}
	if s == syscall.SIGTERM && !r.told {
		limited, cancel := context.WithTimeout(ctx, r.Within)
		err := r.save(limited)
		cancel()
		if err == nil {
			r.Say(fmt.Sprintf("job %s is image %s: the same command, here or elsewhere, goes on from it", r.Name, r.image.ID))
			return Moved, true
		}
		r.Say(fmt.Sprintf("job %s cannot move to an image, and is asked to end: %v", r.Name, err))
		r.told, r.until = true, time.Time{}
		r.says(checkpoint.Running, nil)
	}
	if err := r.root.Signal(s); err != nil {
		r.Say(fmt.Sprintf("signal %v of job %s is not passed on: %v", s, r.Name, err))
	}
	return 0, false
}

// look begins what the job is newly asked for, and gives up what it was asked for before. When the lease has ended, the job goes on.
func (r *running) look(ctx context.Context) {
	q, err := r.self.Asked()
	if err != nil {
		return // it is replaced whole: the next one can be read
	}
	asked, late := q.Number > r.answered, !r.until.IsZero() && !time.Now().Before(r.until)
	switch {
	case r.stop != nil:
		if asked || late {
			r.stop()
		}
	case asked:
		r.answered, r.until = q.Number, q.Until
		r.act(ctx, true, func(ctx context.Context) (checkpoint.Phase, error) { return r.step(ctx, checkpoint.Phase(q.Phase)) })
	case late:
		r.until = time.Now().Add(tryAgain)
		r.act(ctx, false, r.goOn)
	}
}

// act lets something be done, until stop.
func (r *running) act(ctx context.Context, asked bool, do func(context.Context) (checkpoint.Phase, error)) {
	ctx, r.stop = context.WithTimeout(ctx, max(r.Within, r.Restore))
	go func() {
		phase, err := do(ctx)
		r.done <- outcome{phase, err, asked}
	}()
}

// did says how far the job is. It is an error if the job must not come back here any more.
func (r *running) did(o outcome) error {
	r.stop()
	r.stop = nil
	switch {
	case o.phase == checkpoint.Saved && errors.Is(o.err, image.ErrLost):
		return fmt.Errorf("job %s was image %s, and another one of the name may have gone on from it: %w", r.Name, r.image.ID, o.err)
	case o.err != nil:
		r.Say(fmt.Sprintf("job %s stays %s: %v", r.Name, o.phase, o.err))
	case o.phase == checkpoint.Saved && r.phase != checkpoint.Saved:
		r.Say(fmt.Sprintf("job %s is image %s, as it was asked to save itself", r.Name, r.image.ID))
	case o.phase == checkpoint.Running && !o.asked:
		r.Say(fmt.Sprintf("job %s goes on by itself: who asked it to save itself is gone", r.Name))
	case o.phase == checkpoint.Running && r.phase != checkpoint.Running:
		r.Say(fmt.Sprintf("job %s goes on", r.Name))
	}
	switch {
	case o.phase == checkpoint.Running, o.asked && o.err != nil && o.phase == checkpoint.Saved: // what could not be taken back stays saved for any time
		r.until = time.Time{}
	case o.asked && o.err != nil: // it stands still, and was to go on
		r.until = time.Now().Add(tryAgain)
	}
	r.says(o.phase, o.err)
	return nil
}

// says tells who asks.
func (r *running) says(phase checkpoint.Phase, problem error) {
	r.phase = phase
	said := gpu.Said{Number: r.answered, Phase: string(phase)}
	if problem != nil {
		said.Problem = problem.Error()
	}
	if err := r.self.Say(said); err != nil {
		r.Say(fmt.Sprintf("job %s cannot answer who asks it to save itself: %v", r.Name, err))
	}
}

// step goes to a phase that is a neighbour of the present one, and returns the one in which the job is then.
func (r *running) step(ctx context.Context, to checkpoint.Phase) (checkpoint.Phase, error) {
	if r.told && to != checkpoint.Running {
		return r.phase, errors.New("it was told to end")
	}
	switch from := r.phase; {
	case from == checkpoint.Running && to == checkpoint.Gated:
		if err := r.Whole.Gate(ctx, r.root.Pid, r.Pause); err != nil {
			return checkpoint.Running, err
		}
	case from == checkpoint.Gated && to == checkpoint.Saved:
		if err := r.save(ctx); err != nil {
			return checkpoint.Running, err
		}
	case from == checkpoint.Saved && to == checkpoint.Gated:
		if err := r.comeBack(ctx); err != nil {
			return r.left(), err
		}
	case from == checkpoint.Gated && to == checkpoint.Running:
		if err := r.release(ctx); err != nil {
			return checkpoint.Gated, err
		}
	default:
		return from, nil
	}
	return to, nil
}

// left is the phase after a way back that failed.
func (r *running) left() checkpoint.Phase {
	if r.root == nil {
		return checkpoint.Saved
	}
	return checkpoint.Gated
}

// goOn goes to Running.
func (r *running) goOn(ctx context.Context) (checkpoint.Phase, error) {
	if r.root == nil {
		if err := r.comeBack(ctx); err != nil {
			return r.left(), err
		}
	}
	if err := r.release(ctx); err != nil {
		return checkpoint.Gated, err
	}
	return checkpoint.Running, nil
}

// save moves the processes to an image. After an error all go on.
func (r *running) save(ctx context.Context) error {
	err := r.store(ctx)
	if err != nil && r.phase == checkpoint.Gated {
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.Restore)
		defer cancel()
		if undo := r.release(back); undo != nil {
			err = fmt.Errorf("%w; and not all go on: %w", err, undo)
		}
	}
	return err
}

func (r *running) store(ctx context.Context) error {
	if err := r.claim.Held(ctx); err != nil {
		return err
	}
	if r.image != nil {
		if err := r.Whole.Images.Delete(ctx, *r.image); err != nil {
			return err
		}
		r.image = nil
	}
	var release []func(gone bool)
	w, step := *r.Whole, r.Whole.Step
	w.Step = func(name string, bytes int64) {
		if name == offload.ReadingProcesses {
			release = append(release, r.out[0].hold(), r.out[1].hold())
		}
		step(name, bytes)
	}
	saved, err := w.Checkpoint(ctx, r.root.Pid, r.Name, r.Pause)
	for _, let := range release {
		let(err == nil)
	}
	if err != nil {
		return err
	}
	r.image = &saved.Entry
	r.gone()
	return nil
}

// gone takes note of the end of all processes.
func (r *running) gone() {
	<-r.ended
	bury(r.root.Pid)
	r.root = nil
	r.closePipes()
}

// comeBack brings the processes back from the image, behind closed gates. After an error they are not there, and the image is.
func (r *running) comeBack(ctx context.Context) error {
	if err := r.claim.Held(ctx); err != nil {
		return err
	}
	if err := r.openPipes(); err != nil {
		return err
	}
	pid, _, err := r.Whole.BringBack(ctx, *r.image, r.Restore)
	if pid == 0 {
		r.closePipes()
		return err
	}
	root, found := os.FindProcess(pid)
	if found != nil {
		return errors.Join(err, found)
	}
	r.supervise(root)
	if err != nil {
		return errors.Join(errors.Unwrap(err), r.endAgain())
	}
	return nil
}

// endAgain ends processes that came back and do not go on. The image has them.
func (r *running) endAgain() error {
	if err := r.Whole.End(r.root.Pid); err != nil {
		return err
	}
	r.gone()
	return nil
}

// release deletes the image from which the processes came back, and lets them go on: who dies in between leaves no image whose steps were made
// already (ADR 0067). After an error they wait, and the image is there unless r.image is nil.
func (r *running) release(ctx context.Context) error {
	if r.image != nil {
		if err := r.Whole.Images.Delete(ctx, *r.image); err != nil {
			return err
		}
		r.image = nil
	}
	return r.Whole.Release(ctx, r.root.Pid, r.Restore)
}

// supervise waits for the end of the first process.
func (r *running) supervise(root *os.Process) {
	r.root = root
	go func() {
		state, err := root.Wait()
		code := 1
		if err == nil {
			code = state.ExitCode()
			if s := state.Sys().(syscall.WaitStatus); s.Signaled() {
				code = 128 + int(s.Signal())
			}
		}
		r.ended <- code
	}()
}

func (r *running) openPipes() (err error) {
	for i, of := range []struct {
		suffix string
		to     io.Writer
	}{{".stdout", r.Out}, {".stderr", r.Err}} {
		if r.out[i], err = open(filepath.Join(r.pipes, r.Name+of.suffix), of.to); err != nil {
			return err
		}
	}
	return nil
}

// closePipes prints what the processes have printed.
func (r *running) closePipes() {
	for i, o := range r.out {
		if o != nil {
			o.close()
		}
		r.out[i] = nil
	}
}
