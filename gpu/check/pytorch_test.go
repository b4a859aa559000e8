//go:build linux

package check

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu/gputest"
)

// pytorch is A3, A5 and A9 with a training in PyTorch: of single launches, and of CUDA graphs.
func pytorch(r *report, n *gputest.Node, python string, steps int, share float64, kinds ...string) {
	ctx, stop := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer stop()
	_, driver, environment := n.Caller()
	probe := exec.CommandContext(ctx, python, "-c", "import torch; torch.zeros(1, device='cuda')")
	probe.Env = append(os.Environ(), append(environment, "LD_LIBRARY_PATH="+filepath.Dir(driver))...)
	if out, err := probe.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		r.t.Logf("A3, A5 and A9 with PyTorch are not run: %v: %s", err, lines[len(lines)-1])
		return
	}
	for _, by := range kinds {
		what, want, n := "PyTorch by "+by, "", n.With(python, "testdata/mlp.py", "cuda", by)
		r.run(what, func(r *report) {
			var without time.Duration
			want, without = trained(n.StartPlain(r.t), steps, nil)
			got, with := trained(n.Start(r.t), steps, nil)
			r.judge("A3", what+" with the library: the same losses", truth(got == want), "", "1", got == want)
			ratio := with.Seconds() / without.Seconds()
			r.judge("A9", what+", its time with the library", ratio, "x", "at most 1.01", ratio <= 1.01)
		})
		paused := func(by string, open func(*gputest.Node) closer, start func(*testing.T) *gputest.Program) {
			r.run(what+" paused by "+by, func(r *report) {
				longest := 0.0
				got, _ := trained(start(r.t), steps, func(p *gputest.Program) {
					longest = max(longest, timed(r, n, open, p, toPause))
					timed(r, n, open, p, toResume)
				})
				r.record("A3", what+", the longest pause by "+by, longest*1e3, "ms")
				same := want != "" && got == want
				r.judge("A3", what+", paused twice by "+by+": the same losses", truth(same), "", "1", same)
			})
		}
		library := func(t *testing.T) *gputest.Program { return n.Start(t) }
		paused("the library", func(n *gputest.Node) closer { return &checkpoint.Shim{Dir: n.Dir, Lease: 2 * long} }, library)
		if r.value("A0", "its functions for checkpoints, of 6") == 6 {
			paused("the driver", byDriver, func(t *testing.T) *gputest.Program { return n.StartPlain(t) })
			paused("both", byBoth, library)
			r.run(what+" moved", func(r *report) { movedProgram(r, n, what, steps, share) })
		}
	}
}
