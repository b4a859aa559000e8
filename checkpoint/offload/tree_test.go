//go:build linux

package offload_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
func wholeOf(t testing.TB, n *gputest.Node, images *image.Images) *offload.Whole {
	t.Helper()
	w := &offload.Whole{Dir: n.Dir, Lease: time.Minute, Scratch: t.TempDir(), Images: images, Step: quiet}
	if err := w.CRIU.Check(ctx); err != nil {
		t.Skip(err)
	}
	w.Calls = callsOf(t, n)
	return w
}

func callsOf(t testing.TB, n *gputest.Node) *gpu.Calls {
	program, driver, environment := n.Caller()
	c := &gpu.Calls{Program: program, Driver: driver, Dir: n.Dir, Environment: environment}
	t.Cleanup(c.Close)
	return c
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
	for i, step := range []string{"100", "200", "400"} {
		p.Until("step " + step)
		w.Ghost = i != 1
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
		if i == 1 { // on another GPU
			n.Set("MUSTER_FAKE_GPU_ID", "other")
			n.Set("MUSTER_FAKE_GPU_DRIVER", "580")
			w.Calls = callsOf(t, n)
		}
		root, pids, err := w.Restore(ctx, e, time.Minute)
		if err != nil || len(pids) != 1 || pids[0] != p.PID || root != p.PID {
			t.Fatal(root, pids, err)
		}
		if all, _ := images.List(ctx); len(all) > 0 {
			t.Fatal(all)
		}
	}
	if got := p.Until("sum "); got != want {
		t.Errorf("it ended with %s after three moves, and with %s without", got, want)
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

	var stop context.CancelFunc
	interrupt := func(step string, _ int64) {
		if step == "verifying" {
			stop()
		}
	}
	for name, broken := range map[string]struct {
		ghost  bool
		images *image.Images
		step   func(string, int64)
	}{
		"the store is full":                    {false, &image.Images{Store: full{dir}}, quiet},
		"the store is full, with a ghost":      {true, &image.Images{Store: full{dir}}, quiet},
		"a bit of it flips":                    {false, &image.Images{Store: flips{dir}}, quiet},
		"a bit of what a ghost copied flips":   {true, &image.Images{Store: flips{dir}}, quiet},
		"the ghost cannot write the file":      {true, images, refusesFile(n, p)},
		"interrupted at the end":               {false, images, interrupt},
		"interrupted at the end, with a ghost": {true, images, interrupt},
	} {
		var stopped context.Context
		stopped, stop = context.WithCancel(ctx)
		defer stop()
		w.Images, w.Step, w.Ghost = broken.images, broken.step, broken.ghost
		if _, err := w.Checkpoint(stopped, p.PID, "", once); err == nil || !strings.HasSuffix(err.Error(), "all processes are as before") {
			t.Fatalf("%s: %v", name, err)
		}
		os.Remove(filepath.Join(n.Dir, fmt.Sprint(p.PID, ".data.tmp"))) // the folder that stood there
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
	if _, _, err := w.Restore(ctx, saved.Entry, time.Minute); !errors.Is(err, image.ErrDamaged) {
		t.Fatal(err)
	}
	gone("after a restore from a damaged store")
	w.Images = images
	other := criu.Program{Path: "/bin/false"}
	w.CRIU, other = other, w.CRIU
	if _, _, err := w.Restore(ctx, saved.Entry, time.Minute); !errors.Is(err, criu.ErrUnavailable) {
		t.Fatal(err)
	}
	gone("after a restore without criu")
	w.CRIU = other

	n.Set("MUSTER_FAKE_GPU_COUNT", "2")
	mine := w.Calls
	w.Calls = callsOf(t, n)
	if _, _, err := w.Restore(ctx, saved.Entry, time.Minute); !errors.Is(err, gpu.ErrOtherGPUs) || !strings.Contains(err.Error(), "it had 1 and there are 2 here") {
		t.Fatal(err)
	}
	n.Set("MUSTER_FAKE_GPU_COUNT", "1")
	n.Set("MUSTER_FAKE_GPU_ID", "other")
	w.Calls = callsOf(t, n)
	if _, _, err := w.Restore(ctx, saved.Entry, time.Minute); !errors.Is(err, gpu.ErrOtherGPUs) || !strings.Contains(err.Error(), "the driver (CUDA 12.8) brings a process back to the same GPU alone") {
		t.Fatal(err)
	}
	gone("on other GPUs")
	n.Set("MUSTER_FAKE_GPU_ID", "")
	w.Calls = mine

	hog := n.Start(t)
	hog.Do("alloc %d", 63*mib)
	if _, _, err := w.Restore(ctx, saved.Entry, time.Minute); !errors.Is(err, gpu.ErrNoMemory) || !strings.Contains(err.Error(), "muster resume continues them") {
		t.Fatal(err)
	}
	if _, _, err := w.Restore(ctx, saved.Entry, time.Minute); err == nil {
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

// A command that moves a process to an image, and one that brings it back, are killed at any instants. Once criu has ended, either the process
// is there with its memory, and goes on when it is resumed, or the image is whole and brings it back.
func TestWholeProcessSurvivesKills(t *testing.T) {
	n := gputest.NewNode(t, 64)
	images, dir := store(t)
	w := wholeOf(t, n, images)
	path, err := exec.LookPath("criu")
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprint("criu-", os.Getpid()) // by which it is found
	w.CRIU.Path = filepath.Join(t.TempDir(), name)
	if err := os.Symlink(path, w.CRIU.Path); err != nil {
		t.Fatal(err)
	}
	p := n.StartWithFiles(t)
	p.Do("alloc %d", mib)
	p.Send("train 0 %d 10", mib)
	sum := p.Until("sum ")
	program, driver, environment := n.Caller()
	rounds, moved, stayed := 16, 0, 0
	if testing.Short() {
		rounds = 5
	}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range rounds {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "MUSTER_TEST_MOVE="+string(dir), "MUSTER_TEST_PID="+strconv.Itoa(p.PID), "MUSTER_TEST_PAGES="+n.Dir,
			"MUSTER_TEST_CRIU="+w.CRIU.Path, "MUSTER_TEST_CALL="+program, "MUSTER_TEST_DRIVER="+driver, "MUSTER_TEST_SCRATCH="+w.Scratch, "MUSTER_TEST_GHOST="+strconv.FormatBool(round%2 == 0))
		c.Env = append(c.Env, environment...)
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(100+random.IntN(900)) * time.Millisecond) // any instant will do
		c.Process.Kill()
		c.Wait()
		for running(name) {
			time.Sleep(time.Millisecond)
		}
		if gpu.Alive(p.PID) {
			stayed++
			b := w.Hybrid()
			err = checkpoint.Resume(ctx, b, []int{p.PID}, time.Minute)
			b.Close()
		} else {
			moved++
			p.Wait()
			var e image.Entry
			if e, err = images.Find(ctx, "image"); err == nil {
				_, _, err = w.Restore(ctx, e, time.Minute)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimPrefix(p.Do("sum 0 %d", mib), "sum "); got != sum {
			t.Fatalf("%s; before %s", got, sum)
		}
		if e, err := images.Find(ctx, "image"); err == nil { // of a process that went on
			images.Delete(ctx, e)
		}
	}
	t.Logf("%d times the process was there, %d times in the image", stayed, moved)
}

// running says whether a program of the name runs.
func running(name string) bool {
	all, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range all {
		if comm, _ := os.ReadFile(path); strings.TrimSpace(string(comm)) == name {
			return true
		}
	}
	return false
}

// mover moves a process to an image and back until it is killed.
func mover() int {
	pid, _ := strconv.Atoi(os.Getenv("MUSTER_TEST_PID"))
	images, err := image.Open(ctx, image.Dir(os.Getenv("MUSTER_TEST_MOVE")), nil, true)
	if err != nil {
		panic(err)
	}
	w := &offload.Whole{Dir: os.Getenv("MUSTER_TEST_PAGES"), Lease: time.Minute, Scratch: os.Getenv("MUSTER_TEST_SCRATCH"), Images: images, Step: quiet, CRIU: criu.Program{Path: os.Getenv("MUSTER_TEST_CRIU")}, Ghost: os.Getenv("MUSTER_TEST_GHOST") == "true"}
	w.Calls = &gpu.Calls{Program: os.Getenv("MUSTER_TEST_CALL"), Driver: os.Getenv("MUSTER_TEST_DRIVER"), Dir: w.Dir}
	for {
		saved, err := w.Checkpoint(ctx, pid, "image", once)
		if err == nil {
			_, _, err = w.Restore(ctx, saved.Entry, time.Minute)
		}
		if err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			return 1
		}
	}
}

// refusesFile lets no file be written for the memory of a process, while the ghost copies it.
func refusesFile(n *gputest.Node, p *gputest.Program) func(string, int64) {
	return func(step string, _ int64) {
		if step == offload.ReadingProcesses {
			os.Mkdir(filepath.Join(n.Dir, fmt.Sprint(p.PID, ".data.tmp")), 0o700)
		}
	}
}

// How long a process stands still until all of it is read, of which a part is on the GPU and as much on the host: with a ghost
// both parts are read at the same time. The rest, the way to the store, is the same.
func BenchmarkWholeProcess(b *testing.B) {
	for _, ghost := range []bool{false, true} {
		b.Run(fmt.Sprintf("ghost=%t", ghost), func(b *testing.B) {
			n := gputest.NewNode(b, 512)
			w := wholeOf(b, n, nil)
			w.Ghost = ghost
			p := n.StartWithFiles(b)
			p.Do("alloc %d", 256*mib)
			p.Do("copies 0 %d", 256*mib) // it copies to as much host memory, and keeps that
			var began time.Time
			read := 0.0
			for b.Loop() {
				b.StopTimer()
				images, err := image.Open(ctx, image.Dir(b.TempDir()), nil, true) // nothing is there yet
				if err != nil {
					b.Fatal(err)
				}
				w.Images, w.Step = images, func(step string, _ int64) {
					if step == "saving" {
						read += time.Since(began).Seconds()
					}
				}
				b.StartTimer()
				began = time.Now()
				saved, err := w.Checkpoint(ctx, p.PID, "", once)
				if err != nil {
					b.Fatal(err)
				}
				p.Wait()
				b.StopTimer()
				if _, _, err := w.Restore(ctx, saved.Entry, time.Minute); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(read/float64(b.N)*1e3, "ms-to-read/op")
		})
	}
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

// A process comes back to the GPU that is named for it, where others have the one in its place.
func TestWholeProcessOnNamedGPU(t *testing.T) {
	n := gputest.NewNode(t, 64)
	n.Set("MUSTER_FAKE_GPU_COUNT", "2")
	n.Set("MUSTER_FAKE_GPU_DRIVER", "580")
	images, _ := store(t)
	w := wholeOf(t, n, images)
	p, hog := n.StartWithFiles(t), n.Start(t)
	go p.Wait()
	p.Do("alloc %d", 8*mib)
	sum := p.Do("sum 0 %d", 8*mib)
	saved, err := w.Checkpoint(ctx, p.PID, "whole", once)
	if err != nil {
		t.Fatal(err)
	}
	hog.Do("alloc %d", 63*mib)
	gpus, err := w.Calls.GPUs(ctx)
	if err != nil || len(gpus) != 2 {
		t.Fatal(gpus, err)
	}
	for want, on := range map[string]map[string]string{
		"it had none with the ID x":        {"x": gpus[1]},
		"there is none with the ID x here": {gpus[0]: "x"},
		"two of them cannot be on the one": {gpus[0]: gpus[1], gpus[1]: gpus[1]},
	} {
		w.GPUs = on
		if _, _, err := w.Restore(ctx, saved.Entry, time.Minute); !errors.Is(err, gpu.ErrOtherGPUs) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; expected %q", on, err, want)
		}
	}
	w.GPUs = map[string]string{gpus[0]: gpus[1]}
	if _, _, err := w.Restore(ctx, saved.Entry, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := p.Do("sum 0 %d", 8*mib); got != sum {
		t.Errorf("%s; before %s", got, sum)
	}
	p.Do("alloc %d", 40*mib) // which the other GPU has not
	p.Do("sum 0 %d", 48*mib)
}
