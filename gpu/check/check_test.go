//go:build linux

package check

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu/gputest"
)

func TestMain(m *testing.M) { gputest.Main(m) }

const mib = 1 << 20

// row is one experiment's result.
type row struct {
	Name      string  `json:"name"`
	What      string  `json:"what"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Criterion string  `json:"criterion,omitempty"`
	Verdict   string  `json:"verdict"` // met, missed, or recorded where there is no criterion
}

type report struct {
	t    *testing.T
	dir  string // of results; "" for none
	Date string `json:"date"`
	GPU  string `json:"driver,omitempty"`
	// Device is the GPU's name, of the experiments with kernels.
	Device string `json:"device,omitempty"`
	Rows   []row  `json:"rows"`
}

func newReport(t *testing.T, dir string) *report {
	return &report{t: t, dir: dir, Date: time.Now().UTC().Format(time.DateOnly)}
}

// run does experiments as a subtest: what fails ends no others, and what was measured is written before the next ones begin, as a
// driver that hangs may be all that comes of them.
func (r *report) run(names string, do func(r *report)) {
	r.t.Run(names, func(t *testing.T) {
		part := &report{t: t, Device: r.Device}
		defer func() {
			r.Rows = append(r.Rows, part.Rows...)
			r.write()
		}()
		do(part)
	})
}

func (r *report) add(w row) {
	r.t.Logf("%-3s %-52s %12.3f %-8s %-42s %s", w.Name, w.What, w.Value, w.Unit, w.Criterion, w.Verdict)
	r.Rows = append(r.Rows, w)
}

func (r *report) record(name, what string, value float64, unit string) {
	r.add(row{name, what, value, unit, "", "recorded"})
}

func (r *report) judge(name, what string, value float64, unit, criterion string, met bool) {
	verdict := "missed"
	if met {
		verdict = "met"
	}
	r.add(row{name, what, value, unit, criterion, verdict})
}

func (r *report) value(name, what string) float64 {
	for _, w := range r.Rows {
		if w.Name == name && w.What == what {
			return w.Value
		}
	}
	return math.NaN()
}

// write writes the report. Of an earlier run on that day with this driver or GPU, what was not measured again stays.
func (r *report) write() {
	if r.dir == "" {
		return
	}
	name := "driver-" + r.GPU
	if r.Device != "" {
		name = "kernels-" + strings.ReplaceAll(r.Device, " ", "-")
	}
	path := filepath.Join(r.dir, r.Date+"-"+name+".json")
	all := *r
	if text, err := os.ReadFile(path); err == nil {
		var before report
		if err := json.Unmarshal(text, &before); err != nil {
			r.t.Fatalf("%s: %v", path, err)
		}
		for i := range before.Rows {
			if w := &before.Rows[i]; math.IsNaN(r.value(w.Name, w.What)) {
				all.Rows = append(slices.Clip(all.Rows), *w)
			}
		}
	}
	text, err := json.MarshalIndent(&all, "", "  ")
	if err == nil {
		err = os.MkdirAll(r.dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestCheck runs the experiments. Their names are those of the study on which docs/adr/0022 rests.
func TestCheck(t *testing.T) {
	dir := os.Getenv("MUSTER_GPU_CHECK")
	var n *gputest.Node
	steps, launches, share, limit := 200, 100_000, 0.25, 300*time.Millisecond
	if dir != "" {
		n = gputest.NewGPU(t)
		steps, launches, share, limit = 5000, 1_000_000, 0.5, 2*time.Second
	} else {
		n = gputest.NewNode(t, 256)
	}
	r := newReport(t, dir)
	ofDriver(r, n)
	r.write()
	r.run("A3", func(r *report) { samePrograms(r, n, steps) })
	r.run("A2", func(r *report) { pauses(r, n, share) })
	r.run("A9", func(r *report) { overhead(r, n, launches) })
	old := n
	if dir == "" {
		old = gputest.NewNode(t, 256)
		old.Set("MUSTER_FAKE_GPU_DRIVER", "550") // without checkpoints
		old.Set("MUSTER_FAKE_GPU_CONTEXT_MIB", "16")
	}
	r.run("A6", func(r *report) { replays(r, old, steps) })
	if has := r.value("A0", "its functions for checkpoints, of 6"); has == 6 {
		r.run("A1", func(r *report) {
			of, none := driverPauses(r, n, share)
			hybridPauses(r, n, share, of, none)
		})
		r.run("A4", func(r *report) { handOver(r, n, share) })
		r.run("A7", func(r *report) { waitingKernel(r, n, limit) })
		r.run("A5", func(r *report) { movedProgram(r, n, "a program", steps, share) })
	} else {
		t.Logf("A1, A3 by both, A4, A5 and A7 are not run: the driver has %.0f of its 6 functions for checkpoints", has)
	}
	if dir != "" {
		pytorch(r, n, "python3", 2000, share, "launches", "graphs")
	} else {
		trainer, _ := n.Trainer() // it takes the same commands
		pytorch(r, n, trainer, 40, share, "launches")
	}
	for _, w := range r.Rows {
		if (w.Criterion == "1" || w.Criterion == "0") && w.Verdict != "met" { // those that no time is in
			t.Errorf("%s: %s: missed", w.Name, w.What)
		}
	}
}

func number(t *testing.T, line string, field int) float64 {
	t.Helper()
	fields := strings.Fields(line)
	if field >= len(fields) {
		t.Fatalf("the program said %q", line)
	}
	x, err := strconv.ParseFloat(fields[field], 64)
	if err != nil {
		t.Fatalf("the program said %q", line)
	}
	return x
}

// ofDriver is A0: what the driver has.
func ofDriver(r *report, n *gputest.Node) {
	p := n.StartPlain(r.t)
	defer p.Kill()
	line := p.Do("driver")
	version := int(number(r.t, line, 1))
	r.GPU = fmt.Sprintf("%d.%d", version/1000, version%1000/10)
	r.record("A0", "CUDA version of the driver", float64(version), "")
	r.record("A0", "its functions for checkpoints, of 6", number(r.t, line, 2), "")
	r.record("A0", "memory of the GPU that is free", number(r.t, p.Do("left"), 1)/1e9, "GB")
}

// samePrograms is the part of A3 without the driver's own checkpoint: a paused program computes the same.
func samePrograms(r *report, n *gputest.Node, steps int) {
	want, _ := trained(n.StartPlain(r.t), steps, nil)
	got, _ := trained(n.Start(r.t), steps, func(p *gputest.Program) {
		pause(r.t, n, p)
		resume(r.t, n, p)
	})
	r.judge("A3", "a program paused twice ends with the same bits", truth(got == want), "", "1", got == want)
}

// trained is what a training ends with, and how long its last half took. In the first half it is moved twice.
func trained(p *gputest.Program, steps int, move func(*gputest.Program)) (sum string, last time.Duration) {
	defer p.Kill()
	p.Do("alloc %d", 16*mib)
	p.Send("train 0 %d %d", 16*mib, steps)
	for _, at := range []int{steps / 40 * 10, steps / 20 * 10} {
		p.Until(fmt.Sprintf("step %d", at))
		if move != nil {
			move(p)
		}
	}
	began := time.Now()
	return p.Until("sum "), time.Since(began)
}

// pauses is A2: the time of a pause by what is active, beside copies to pinned memory.
func pauses(r *report, n *gputest.Node, share float64) {
	p := n.Start(r.t)
	defer p.Kill()
	bytes := portion(r, n, p, share)
	if line := p.Do("alloc %d", bytes); !strings.HasPrefix(line, "alloc") {
		r.t.Fatal(line)
	}
	copied := number(r.t, p.Do("copies 0 %d", bytes), 1)
	r.record("A2", fmt.Sprintf("copy of %d MiB to pinned memory", bytes/mib), copied, "GB/s")
	var x, y []float64
	for _, percent := range []int{5, 25, 50, 100} {
		active := bytes / 100 * percent / 512 * 512
		p.Do("use 0 0 %d", active)
		var times []float64
		for range 3 {
			times = append(times, pause(r.t, n, p))
			resume(r.t, n, p)
		}
		slices.Sort(times)
		x, y = append(x, float64(active)/1e9), append(y, times[1])
		r.record("A2", fmt.Sprintf("pause, %d %% active", percent), times[1]*1e3, "ms")
	}
	intercept, slope, fit := line(x, y)
	r.record("A2", "pause, of which not by bytes", intercept*1e3, "ms")
	r.judge("A2", "linear in active bytes", fit, "R²", "> 0.98", fit > 0.98)
	r.judge("A2", "time a byte, to that of the copy", slope*copied, "", "at most 1.15", slope*copied <= 1.15)
}

// portion is a share of what is left of the GPU, or of the room for what is saved of it; bytes.
func portion(r *report, n *gputest.Node, p *gputest.Program, share float64) int {
	left := number(r.t, p.Do("left"), 1)
	return int(min(left*share, 0.9*float64(n.Room()))) / (64 * mib) * (64 * mib)
}

// line fits y = a + b*x, and says how well.
func line(x, y []float64) (a, b, r2 float64) {
	n, sx, sy, sxx, sxy, syy := float64(len(x)), 0.0, 0.0, 0.0, 0.0, 0.0
	for i := range x {
		sx, sy, sxx, sxy, syy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i], syy+y[i]*y[i]
	}
	b = (n*sxy - sx*sy) / (n*sxx - sx*sx)
	c := (n*sxy - sx*sy) / math.Sqrt((n*sxx-sx*sx)*(n*syy-sy*sy))
	return (sy - b*sx) / n, b, c * c
}

// overhead is A9: what the gate adds to a launch.
func overhead(r *report, n *gputest.Node, launches int) {
	plain, shim := n.StartPlain(r.t), n.Start(r.t)
	defer plain.Kill()
	defer shim.Kill()
	best := func(p *gputest.Program, command string) float64 {
		least := math.Inf(1)
		for range 5 {
			least = min(least, number(r.t, p.Do(command, launches), 1))
		}
		return least
	}
	without, with := best(plain, "launches %d"), best(shim, "launches %d")
	r.record("A9", "a launch without the library", without, "ns")
	r.judge("A9", "what the library adds to a launch", with-without, "ns", "< 100", with-without < 100)
	call := best(shim, "calls %d") - best(plain, "calls %d")
	r.judge("A9", "what the library adds to a call that is refused", call, "ns", "< 100", call < 100)
}

func pause(t *testing.T, n *gputest.Node, p *gputest.Program) float64 {
	t.Helper()
	b := &checkpoint.Shim{Dir: n.Dir, Lease: 10 * time.Minute}
	defer b.Close()
	began := time.Now()
	if err := checkpoint.Pause(context.Background(), b, []int{p.PID}, checkpoint.Options{Timeout: 5 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	return time.Since(began).Seconds()
}

func resume(t *testing.T, n *gputest.Node, p *gputest.Program) {
	t.Helper()
	b := &checkpoint.Shim{Dir: n.Dir, Lease: 10 * time.Minute}
	defer b.Close()
	if err := checkpoint.Resume(context.Background(), b, []int{p.PID}, 5*time.Minute); err != nil {
		t.Fatal(err)
	}
}
