//go:build linux

package offload_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/criu"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/offload"
	"github.com/muster-sched/muster/gpu"
	"github.com/muster-sched/muster/gpu/gputest"
)

// whole returns what moves whole processes of a node; the test is skipped where criu cannot.
func wholeOf(t *testing.T, n *gputest.Node, images *image.Images) *offload.Whole {
	t.Helper()
	w := &offload.Whole{Dir: n.Dir, Lease: time.Minute, Scratch: t.TempDir(), Images: images, Step: quiet}
	if err := w.CRIU.Check(t.Context()); err != nil {
		t.Skip(err)
	}
	program, driver, environment := n.Caller()
	w.Calls = &gpu.Calls{Program: program, Driver: driver, Dir: n.Dir, Environment: environment}
	t.Cleanup(w.Calls.Close)
	return w
}

var once = checkpoint.Options{Timeout: time.Minute}

// A program is moved to an image in the middle of its work: it ends, and all files that it had here are gone. Brought back, it goes on, and ends with
// the bits of one that was never touched. The image is then gone.
func TestWholeProcessMoves(t *testing.T) {
	n := gputest.NewNode(t, 64)
	images, _ := store(t)
	w := wholeOf(t, n, images)
	work := fmt.Sprintf("train 0 %d 600", mib)
	undisturbed := n.Start(t)
	undisturbed.Do("alloc %d", mib)
	undisturbed.Send("%s", work)
	want := undisturbed.Until("sum ")
	undisturbed.Kill()

	p := n.StartWithFiles(t)
	p.Do("alloc %d", mib)
	p.Send("%s", work)
	for _, step := range []string{"100", "300"} {
		p.Until("step " + step)
		if _, err := w.Checkpoint(ctx, p.PID, "whole", once); err != nil {
			t.Fatal(err)
		}
		p.Wait()
		if gpu.Alive(p.PID) {
			t.Fatal("the process runs")
		}
		if left, _ := filepath.Glob(filepath.Join(n.Dir, fmt.Sprint(p.PID, ".[pd]*"))); len(left) > 0 {
			t.Fatal(left)
		}
		e, err := images.Find(ctx, "whole")
		if err != nil {
			t.Fatal(err)
		}
		pids, err := w.Restore(ctx, e, time.Minute)
		if err != nil || len(pids) != 1 || pids[0] != p.PID {
			t.Fatal(pids, err)
		}
		if all, _ := images.List(ctx); len(all) > 0 {
			t.Fatal(all)
		}
	}
	if got := p.Until("sum "); got != want {
		t.Errorf("it ended with %s after two moves, and with %s without", got, want)
	}
	if left, _ := os.ReadDir(w.Scratch); len(left) > 0 {
		t.Error(left)
	}
}

// Whatever goes wrong on the way to an image, the process goes on with its memory, and no image is left; on the way back, nothing is left but the image,
// which restores it afterwards.
func TestWholeProcessStays(t *testing.T) {
	n := gputest.NewNode(t, 64)
	images, dir := store(t)
	w := wholeOf(t, n, images)
	p := n.StartWithFiles(t)
	p.Do("alloc %d", mib)
	p.Send("train 0 %d 10", mib)
	sum := p.Until("sum ")
	same := func(when string) {
		t.Helper()
		if got := strings.TrimPrefix(p.Do("sum 0 %d", mib), "sum "); got != sum {
			t.Fatalf("%s: %s; before %s", when, got, sum)
		}
	}

	stopped, stop := context.WithCancel(ctx)
	for name, broken := range map[string]struct {
		ctx    context.Context
		images *image.Images
		step   func(string, int64)
	}{
		"the store is full": {ctx, &image.Images{Store: full{dir}}, quiet},
		"a bit of it flips": {ctx, &image.Images{Store: flips{dir}}, quiet},
		"interrupted at the end": {stopped, images, func(step string, _ int64) {
			if step == "verifying" {
				stop()
			}
		}},
	} {
		w.Images, w.Step = broken.images, broken.step
		if _, err := w.Checkpoint(broken.ctx, p.PID, "", once); err == nil || !strings.HasSuffix(err.Error(), "all processes are as before") {
			t.Fatalf("%s: %v", name, err)
		}
		same(name)
		if all, _ := images.List(ctx); len(all) > 0 {
			t.Fatal(name, all)
		}
	}

	w.Images, w.Step = images, quiet
	saved, err := w.Checkpoint(ctx, p.PID, "", once)
	if err != nil {
		t.Fatal(err)
	}
	p.Wait()
	gone := func(when string) {
		t.Helper()
		if files, _ := filepath.Glob(filepath.Join(n.Dir, fmt.Sprint(p.PID, ".[pd]*"))); len(files) > 0 || gpu.Alive(p.PID) {
			t.Fatal(when, files, gpu.Alive(p.PID))
		}
	}
	w.Images = &image.Images{Store: flips{dir}}
	if _, err := w.Restore(ctx, saved.Entry, time.Minute); !errors.Is(err, image.ErrDamaged) {
		t.Fatal(err)
	}
	gone("after a restore from a damaged store")
	w.Images = images
	other := criu.Program{Path: "/bin/false"}
	w.CRIU, other = other, w.CRIU
	if _, err := w.Restore(ctx, saved.Entry, time.Minute); !errors.Is(err, criu.ErrUnavailable) {
		t.Fatal(err)
	}
	gone("after a restore without criu")
	w.CRIU = other

	hog := n.Start(t)
	hog.Do("alloc %d", 63*mib)
	if _, err := w.Restore(ctx, saved.Entry, time.Minute); !errors.Is(err, gpu.ErrNoMemory) || !strings.Contains(err.Error(), "muster resume continues them") {
		t.Fatal(err)
	}
	if _, err := w.Restore(ctx, saved.Entry, time.Minute); err == nil {
		t.Fatal("a process is brought back twice")
	}
	hog.Kill()
	b := w.Hybrid()
	defer b.Close()
	if err := checkpoint.Resume(ctx, b, []int{p.PID}, time.Minute); err != nil {
		t.Fatal(err)
	}
	same("at last")
}

// full is a store without room for what is saved; flips gives back another bit than it got.
type full struct{ image.Dir }

func (full) Put(context.Context, string, []byte) error { return errors.New("no space left on device") }

type flips struct{ image.Dir }

func (f flips) Get(ctx context.Context, object string) ([]byte, error) {
	data, err := f.Dir.Get(ctx, object)
	if err == nil && strings.HasPrefix(object, "regions/") {
		data[len(data)-1] ^= 1
	}
	return data, err
}
