//go:build linux

package check

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/offload"
	"github.com/muster-sched/muster/gpu"
	"github.com/muster-sched/muster/gpu/gputest"
)

const long = 5 * time.Minute

func calls(n *gputest.Node) *gpu.Calls {
	program, driver, environment := n.Caller()
	return &gpu.Calls{Program: program, Driver: driver, Dir: n.Dir, Environment: environment}
}

// closer is a backend of one command.
type closer interface {
	checkpoint.Backend
	Close()
}

func byDriver(n *gputest.Node) closer { return &checkpoint.Driver{Calls: calls(n)} }

func byBoth(n *gputest.Node) closer {
	return &checkpoint.Hybrid{Shim: &checkpoint.Shim{Dir: n.Dir, Lease: 2 * long}, Driver: &checkpoint.Driver{Calls: calls(n)}}
}

// timed pauses or resumes a program, and returns how long that took. The driver is open already: starting it takes seconds, once.
func timed(r *report, n *gputest.Node, open func(*gputest.Node) closer, p *gputest.Program, do func(checkpoint.Backend, []int) error) float64 {
	r.t.Helper()
	b := open(n)
	defer b.Close()
	if _, err := b.Phase(p.PID); err != nil {
		r.t.Fatal(err)
	}
	began := time.Now()
	if err := do(b, []int{p.PID}); err != nil {
		r.t.Fatal(err)
	}
	return time.Since(began).Seconds()
}

func toPause(b checkpoint.Backend, pids []int) error {
	return checkpoint.Pause(context.Background(), b, pids, checkpoint.Options{Timeout: long})
}

func toResume(b checkpoint.Backend, pids []int) error {
	return checkpoint.Resume(context.Background(), b, pids, long)
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// driverPauses is A1: the time of the driver's own checkpoint by what a process holds. It returns the time for some bytes, and that for none.
func driverPauses(r *report, n *gputest.Node, share float64) (of func(bytes float64) float64, none float64) {
	other := n.StartPlain(r.t)
	defer other.Kill()
	free := number(r.t, other.Do("left"), 1)
	var x, y []float64
	same, left := true, 0.0
	for _, part := range []float64{0.05, 0.1, 0.2, 0.5, 1} {
		bytes := int(free*share*part) / (2 * mib) * (2 * mib)
		p := n.StartPlain(r.t)
		p.Do("alloc %d", bytes)
		want := p.Do("sum 0 %d", min(bytes, 64*mib))
		var times []float64
		for range 3 {
			times = append(times, timed(r, n, byDriver, p, toPause))
			left = max(left, free-number(r.t, other.Do("left"), 1))
			timed(r, n, byDriver, p, toResume)
			same = same && p.Do("sum 0 %d", min(bytes, 64*mib)) == want
		}
		p.Kill()
		slices.Sort(times)
		x, y = append(x, float64(bytes)/1e9), append(y, times[1])
		r.record("A1", fmt.Sprintf("the driver's checkpoint of %d MiB", bytes/mib), times[1]*1e3, "ms")
	}
	intercept, slope, fit := line(x, y)
	r.judge("A1", "linear in bytes", fit, "R²", "> 0.98", fit > 0.98)
	r.judge("A1", "what a checkpointed process keeps of the GPU", left/mib, "MiB", "0", left <= 0)
	r.judge("A1", "memory after the restore is as before", truth(same), "", "1", same)
	return func(bytes float64) float64 { return intercept + slope*bytes/1e9 }, intercept
}

// hybridPauses is A3, and what A2 has to be ahead of: a process of which a quarter is active, by the library, by the driver, and by both.
func hybridPauses(r *report, n *gputest.Node, share float64, driver func(bytes float64) float64, none float64) {
	p := n.Start(r.t)
	defer p.Kill()
	bytes := portion(r, n, p, share)
	p.Do("alloc %d", bytes)
	p.Do("use 0 0 %d", bytes/4)
	want := p.Do("sum 0 %d", min(bytes/4, 64*mib))
	median := func(open func(*gputest.Node) closer) float64 {
		var times []float64
		for range 3 {
			times = append(times, timed(r, n, open, p, toPause))
			timed(r, n, open, p, toResume)
		}
		slices.Sort(times)
		return times[1]
	}
	shim := median(func(n *gputest.Node) closer { return &checkpoint.Shim{Dir: n.Dir, Lease: 2 * long} })
	both := median(byBoth)
	gain := driver(float64(bytes)) / shim
	r.judge("A2", "a quarter active, to the driver's checkpoint of all", gain, "times", ">= 3", gain >= 3)
	r.record("A3", "pause by both, a quarter active", both*1e3, "ms")
	most := 1.2 * (shim + none)
	r.judge("A3", "that, to A2 and what the driver takes for none", both/most*1.2, "", "at most 1.2", both <= most)
	same := p.Do("sum 0 %d", min(bytes/4, 64*mib)) == want
	r.judge("A3", "memory after three pauses by both is as before", truth(same), "", "1", same)
}

// movedProgram is A5: a program that moved to an image in the middle of its work, and ended, comes back and computes the same.
func movedProgram(r *report, n *gputest.Node, what string, steps int, share float64) {
	images, err := image.Open(r.t.Context(), image.Dir(r.t.TempDir()), nil, true)
	if err != nil {
		r.t.Fatal(err)
	}
	w := &offload.Whole{Dir: n.Dir, Lease: 2 * long, Calls: calls(n), Scratch: r.t.TempDir(), Images: images, Step: func(string, int64) {}}
	defer w.Calls.Close()
	if err := w.CRIU.Check(r.t.Context()); err != nil {
		r.t.Logf("A5 is not run: %v", err)
		return
	}
	want, _ := trained(n.StartPlain(r.t), steps, nil)
	p := n.StartWithFiles(r.t)
	p.Do("alloc %d", 16*mib)
	more := int(min(number(r.t, p.Do("left"), 1)*share, 2048*mib)) / mib * mib
	p.Do("alloc %d", more)
	p.Do("copies 1 %d", more) // which takes as much memory on the host, up to 256 MiB
	p.Send("train 0 %d %d", 16*mib, steps)
	for i, by := range []string{"", ", a ghost beside criu"} {
		w.Ghost = i == 1
		p.Until(fmt.Sprintf("step %d", steps/4*(i+1)))
		began := time.Now()
		saved, err := w.Checkpoint(r.t.Context(), p.PID, "", checkpoint.Options{Timeout: long})
		if err != nil && w.Ghost {
			r.t.Logf("A5: %v", err)
			r.record("A4", "the driver checkpoints a process that handed over", 0, "")
			break
		} else if err != nil {
			r.t.Fatal(err)
		}
		p.Wait()
		r.record("A5", fmt.Sprintf("%s, %d MiB, to an image%s", what, saved.Bytes/mib, by), time.Since(began).Seconds()*1e3, "ms")
		if w.Ghost {
			r.record("A4", "the driver checkpoints a process that handed over", 1, "")
		}
		began = time.Now()
		if _, _, err := w.Restore(r.t.Context(), saved.Entry, long); err != nil {
			r.t.Fatal(err)
		}
		r.record("A5", what+", back"+by, time.Since(began).Seconds()*1e3, "ms")
	}
	same := p.Until("sum ") == want
	r.judge("A5", what+" that was moved ends with the same bits", truth(same), "", "1", same)
}
