//go:build linux

package check

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu"
	"github.com/muster-sched/muster/gpu/gputest"
)

// ofReplay is what was measured of a program that was replayed several times.
type ofReplay struct {
	sum       string
	out, back float64 // the longest release and return, in s
	free      float64 // what was free of the GPU while it was released, at least; bytes
	objects   int     // that were live, at most
}

// replayedProgram is a program's work, in which it is released and replayed at the steps.
func replayedProgram(r *report, n *gputest.Node, work string, steps []int) (got ofReplay, err error) {
	got.free = math.Inf(1)
	p, other := n.Start(r.t), n.StartPlain(r.t)
	defer p.Kill()
	defer other.Kill()
	p.Do("alloc %d", 2*mib)
	p.Send("%s", work)
	for _, step := range steps {
		if line := p.Line(); !strings.HasPrefix(line, "step") {
			return got, errors.New(line) // it could not begin
		} else if line != fmt.Sprintf("step %d", step) {
			p.Until(fmt.Sprintf("step %d", step))
		}
		b := &checkpoint.Replay{Shim: &checkpoint.Shim{Dir: n.Dir, Lease: 2 * long}}
		began := time.Now()
		if err = checkpoint.Pause(context.Background(), b, []int{p.PID}, checkpoint.Options{Timeout: long}); err == nil {
			got.out = max(got.out, time.Since(began).Seconds())
			st, _ := b.Status(p.PID)
			got.objects = max(got.objects, st.Objects)
			got.free = min(got.free, number(r.t, other.Do("left"), 1))
			began = time.Now()
			err = checkpoint.Resume(context.Background(), b, []int{p.PID}, long)
			got.back = max(got.back, time.Since(began).Seconds())
		}
		b.Close()
		if errors.Is(err, gpu.ErrRefused) {
			got.sum = p.Until("sum ") // it goes on
		}
		if err != nil {
			return got, err
		}
	}
	got.sum = p.Until("sum ")
	return got, nil
}

// replays is A6: record and replay of live objects, without the driver's own checkpoints.
func replays(r *report, n *gputest.Node, steps int) {
	plain := func(work string) string {
		p := n.StartPlain(r.t)
		defer p.Kill()
		p.Do("alloc %d", 2*mib)
		p.Send("%s", work)
		return p.Until("sum ")
	}
	other := n.StartPlain(r.t)
	defer other.Kill()
	third := n.StartPlain(r.t) // as replayedProgram has two
	empty := number(r.t, other.Do("left"), 1)
	third.Kill()
	at := []int{steps / 40 * 10, steps / 20 * 10, steps / 4 * 3 / 10 * 10}

	work := fmt.Sprintf("objects 0 65536 %d", steps)
	want := plain(work)
	got, err := replayedProgram(r, n, work, at)
	if err != nil {
		r.t.Logf("A6: %v", err)
	}
	same := err == nil && got.sum == want
	r.judge("A6", "streams, events, modules and variables: the same bits", truth(same), "", "1", same)
	r.record("A6", "release, the longest", got.out*1e3, "ms")
	r.record("A6", "return, the longest", got.back*1e3, "ms")
	kept := empty - got.free
	r.judge("A6", "what a released process keeps of the GPU", kept/mib, "MiB", "0", err == nil && kept <= 0)
	r.record("A6", "objects that the program made by the end", float64(12+2*steps+4*(steps/64)), "")
	r.judge("A6", "objects that were live, at most", float64(got.objects), "", "at most 18", err == nil && got.objects <= 18)

	work = fmt.Sprintf("blas 0 %s %d", n.Library(), steps)
	want = plain(work)
	got, err = replayedProgram(r, n, work, at)
	switch {
	case len(want) != 16: // it says why
		r.t.Logf("A6 with cuBLAS is not run: %s", want)
	case errors.Is(err, gpu.ErrRefused):
		r.t.Logf("A6 with cuBLAS: %v", err)
		r.judge("A6", "with cuBLAS: refused, and the same bits", truth(got.sum == want), "", "1", got.sum == want)
	default:
		if err != nil {
			r.t.Logf("A6 with cuBLAS: %v", err)
		}
		same = err == nil && got.sum == want
		r.judge("A6", "with cuBLAS: the same bits", truth(same), "", "1", same)
	}

	p := n.StartPlain(r.t)
	defer p.Kill()
	line := p.Do("again 16")
	if !strings.HasPrefix(line, "again") {
		r.t.Fatal(line)
	}
	r.record("A6", "variables where they were after another load, of 16", number(r.t, line, 1), "")
}
