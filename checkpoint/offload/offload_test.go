//go:build linux

package offload_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/offload"
	"github.com/muster-sched/muster/gpu"
	"github.com/muster-sched/muster/gpu/gputest"
)

func TestMain(m *testing.M) {
	if os.Getenv("MUSTER_TEST_KILL_AT") != "" {
		os.Exit(victim())
	}
	if os.Getenv("MUSTER_TEST_MOVE") != "" {
		os.Exit(mover())
	}
	gputest.Main(m)
}

const mib = 1 << 20

var ctx = context.Background()

func quiet(string, int64) {}

// paused starts programs with equal memory, each with some of its own, and pauses them.
func paused(t *testing.T, n *gputest.Node, count int) (programs []*gputest.Program, pids []int, sums []string) {
	t.Helper()
	for i := range count {
		p := n.Start(t)
		p.Do("alloc %d", 4*mib)
		p.Send("train 0 %d 10", 4*mib) // bytes that do not compress, the same in all
		p.Until("sum ")
		p.Do("alloc %d", 4096*(i+1))
		programs, pids, sums = append(programs, p), append(pids, p.PID), append(sums, p.Do("sum 0 %d", 4*mib))
	}
	b := shim(n)
	defer b.Close()
	if err := checkpoint.Pause(ctx, b, pids, checkpoint.Options{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	return programs, pids, sums
}

func shim(n *gputest.Node) *checkpoint.Shim { return &checkpoint.Shim{Dir: n.Dir, Lease: time.Minute} }

func dataOf(n *gputest.Node, pid int) string {
	return filepath.Join(n.Dir, strconv.Itoa(pid)+".data")
}

func store(t *testing.T) (*image.Images, image.Dir) {
	t.Helper()
	dir := image.Dir(t.TempDir())
	images, err := image.Open(ctx, dir, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	return images, dir
}

func save(n *gputest.Node, images *image.Images, move bool, pids ...int) (image.Saved, error) {
	b := shim(n)
	defer b.Close()
	return offload.Save(ctx, b, images, offload.Job{PIDs: pids, Move: move, Step: quiet})
}

func restore(n *gputest.Node, images *image.Images, e image.Entry, pids ...int) ([]offload.Restored, error) {
	b := shim(n)
	defer b.Close()
	return offload.Restore(ctx, b, images, e, pids, quiet)
}

func resume(n *gputest.Node, pids ...int) error {
	b := shim(n)
	defer b.Close()
	return checkpoint.Resume(ctx, b, pids, time.Minute)
}

// A move that ended early, before the memory was removed or in the middle of that, is ended by the same command. The name
// is not given to another pause.
func TestMoveAgain(t *testing.T) {
	n := gputest.NewNode(t, 64)
	programs, pids, sums := paused(t, n, 2)
	images, _ := store(t)
	again := func(move bool, pids ...int) (image.Saved, error) {
		b := shim(n)
		defer b.Close()
		return offload.Save(ctx, b, images, offload.Job{Name: "a", PIDs: pids, Move: move, Step: quiet})
	}
	first, err := again(false, pids...)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dataOf(n, pids[0])); err != nil {
		t.Fatal(err)
	}
	second, err := again(true, pids...)
	if err != nil || second.Entry != first.Entry || second.Bytes != first.Bytes || second.Written != 0 {
		t.Errorf("%+v, %v; want %+v with nothing new", second, err, first)
	}
	for _, pid := range pids {
		if _, err := os.Stat(dataOf(n, pid)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("process %d: %v", pid, err)
		}
	}
	if _, err := restore(n, images, first.Entry); err != nil {
		t.Fatal(err)
	}
	if _, err := again(true, pids[1]); err == nil || !strings.Contains(err.Error(), "expected a name that no image has") {
		t.Errorf("one of the two processes: %v", err)
	}
	if err := resume(n, pids...); err != nil {
		t.Fatal(err)
	}
	for i, p := range programs {
		if got := p.Do("sum 0 %d", 4*mib); got != sums[i] {
			t.Errorf("process %d: %s, was %s", p.PID, got, sums[i])
		}
	}
	b := shim(n)
	if err := checkpoint.Pause(ctx, b, pids, checkpoint.Options{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if _, err := again(true, pids...); err == nil || !strings.Contains(err.Error(), "expected a name that no image has") {
		t.Errorf("the next pause: %v", err)
	}
}

// Two ranks with the same parameters are paused, moved to an image that needs a good half less, restored, and
// go on with the same memory.
func TestMoveAndRestore(t *testing.T) {
	n := gputest.NewNode(t, 64)
	programs, pids, sums := paused(t, n, 2)
	images, _ := store(t)
	saved, err := save(n, images, true, pids...)
	if err != nil {
		t.Fatal(err)
	}
	if float64(saved.Written) > 0.55*float64(saved.Bytes) {
		t.Errorf("%d bytes for %d", saved.Written, saved.Bytes)
	}
	for _, pid := range pids {
		if _, err := os.Stat(dataOf(n, pid)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("process %d: %v", pid, err)
		}
	}
	m, err := images.Manifest(ctx, saved.Entry)
	if err != nil || offload.Needed(n.Dir, m) != pids[0] {
		t.Errorf("%v; process %d needs the image", err, offload.Needed(n.Dir, m))
	}
	if err := resume(n, pids...); !errors.Is(err, gpu.ErrNoData) || !strings.Contains(err.Error(), "muster image restore --pid "+strconv.Itoa(pids[0])) {
		t.Errorf("resume without memory: %v", err)
	}
	b := shim(n)
	if e, err := offload.Find(ctx, images, b, pids[1]); err != nil || e != saved.Entry {
		t.Errorf("%v, %v", e, err)
	}
	b.Close()
	for _, was := range []bool{false, true} {
		done, err := restore(n, images, saved.Entry)
		if err != nil || len(done) != 2 || done[0].Was != was || done[1].Was != was {
			t.Fatalf("%+v, %v", done, err)
		}
	}
	if offload.Needed(n.Dir, m) != 0 {
		t.Error("the image is needed still")
	}
	if err := resume(n, pids...); err != nil {
		t.Fatal(err)
	}
	for i, p := range programs {
		if got := p.Do("sum 0 %d", 4*mib); got != sums[i] {
			t.Errorf("process %d: %s before, %s after", p.PID, sums[i], got)
		}
	}
	// The image is of the first pause: not of a process that runs, and not of a later pause.
	if _, err := restore(n, images, saved.Entry); !errors.Is(err, checkpoint.ErrNotPaused) {
		t.Error(err)
	}
	b = shim(n)
	defer b.Close()
	if err := checkpoint.Pause(ctx, b, pids, checkpoint.Options{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	os.Remove(dataOf(n, pids[0]))
	_, err = offload.Restore(ctx, b, images, saved.Entry, nil, quiet)
	if err == nil || !strings.Contains(err.Error(), "is not of this process and this pause") || !strings.Contains(err.Error(), "save 1") {
		t.Error(err)
	}
	if left, _ := filepath.Glob(n.Dir + "/*.data*"); len(left) != 1 {
		t.Error(left)
	}
}

// A command that died may have brought one of two processes back to its GPU, behind a closed gate. The next one goes on from there; where
// it cannot, as the other's memory is damaged, both are paused.
func TestRestoredInPart(t *testing.T) {
	n := gputest.NewNode(t, 64)
	programs, pids, sums := paused(t, n, 2)
	images, dir := store(t)
	for i, pid := range pids { // each has its own image
		if _, err := save(n, images, true, pid); err != nil {
			t.Fatal(i, err)
		}
	}
	phases := func() (p [2]checkpoint.Phase) {
		b := shim(n)
		defer b.Close()
		for i, pid := range pids {
			p[i], _ = b.Phase(pid)
		}
		return p
	}
	half := func() {
		b := shim(n)
		defer b.Close()
		if _, err := offload.Back(ctx, b, images, pids[:1], quiet); err != nil {
			t.Fatal(err)
		}
		if err := b.Step(ctx, pids[0], checkpoint.Gated); err != nil {
			t.Fatal(err)
		}
	}
	again := func() error { return offload.Resume(ctx, n.Dir, time.Minute, images, pids, time.Minute, quiet) }

	half()
	regions, err := dir.List(ctx, "regions/")
	if err != nil || len(regions) == 0 {
		t.Fatal(regions, err)
	}
	good := map[string][]byte{}
	for _, r := range regions {
		good[r.Name], _ = dir.Get(ctx, r.Name)
		dir.Put(ctx, r.Name, good[r.Name][:len(good[r.Name])/2])
	}
	if err := again(); !errors.Is(err, image.ErrDamaged) {
		t.Fatal(err)
	}
	if p := phases(); p != [2]checkpoint.Phase{checkpoint.Saved, checkpoint.Saved} {
		t.Fatalf("after a restore that failed: %v", p)
	}
	for name, content := range good {
		dir.Put(ctx, name, content)
	}
	half()
	if err := again(); err != nil {
		t.Fatal(err)
	}
	for i, p := range programs {
		if got := p.Do("sum 0 %d", 4*mib); got != sums[i] {
			t.Errorf("process %d: %s before, %s after", p.PID, sums[i], got)
		}
	}
	if err := again(); err != nil { // killed at its very end, it is run again
		t.Errorf("of processes that go on: %v", err)
	}
}

// What is there and whole is not replaced; what is no whole one is. A damaged store restores nothing.
func TestRestoreOverFiles(t *testing.T) {
	n := gputest.NewNode(t, 64)
	_, pids, _ := paused(t, n, 2)
	images, dir := store(t)
	saved, err := save(n, images, false, pids...)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := os.ReadFile(dataOf(n, pids[0]))
	second, _ := os.ReadFile(dataOf(n, pids[1]))
	put := func(content []byte) {
		if err := os.WriteFile(dataOf(n, pids[0]), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(second)
	if _, err := restore(n, images, saved.Entry); err == nil || !strings.Contains(err.Error(), "it is not replaced") {
		t.Error(err)
	}
	if got, _ := os.ReadFile(dataOf(n, pids[0])); !bytes.Equal(got, second) {
		t.Error("the other file was changed")
	}
	put(first[:len(first)-1])
	regions, _ := dir.List(ctx, "regions/")
	for _, r := range regions {
		good, _ := dir.Get(ctx, r.Name)
		for _, bad := range [][]byte{good[:len(good)/2], append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1)} {
			dir.Put(ctx, r.Name, bad)
			if _, err := restore(n, images, saved.Entry, pids[0]); err == nil {
				continue // a region of the other rank
			} else if !errors.Is(err, image.ErrDamaged) {
				t.Error(err)
			}
			if got, _ := os.ReadFile(dataOf(n, pids[0])); !bytes.Equal(got, first[:len(first)-1]) {
				t.Fatal("a damaged store changed the file")
			}
		}
		dir.Put(ctx, r.Name, good)
		put(first[:len(first)-1])
	}
	if _, err := restore(n, images, saved.Entry); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(dataOf(n, pids[0])); !bytes.Equal(got, first) {
		t.Error("the file is not what was saved")
	}
}

// Memory that is not what the library copied makes no image, and is not removed. A process that
// goes on while it is saved makes none either.
func TestSaveOfWhatIsNotWhole(t *testing.T) {
	n := gputest.NewNode(t, 64)
	programs, pids, _ := paused(t, n, 1)
	images, _ := store(t)
	good, _ := os.ReadFile(dataOf(n, pids[0]))
	bad := bytes.Clone(good)
	bad[len(bad)/2] ^= 1
	os.WriteFile(dataOf(n, pids[0]), bad, 0o600)
	if _, err := save(n, images, true, pids...); err == nil || !strings.Contains(err.Error(), "its checksum differs") {
		t.Error(err)
	}
	os.Remove(dataOf(n, pids[0]))
	if err := os.Symlink("/etc/passwd", dataOf(n, pids[0])); err != nil {
		t.Fatal(err)
	}
	if _, err := save(n, images, true, pids...); err == nil {
		t.Error("a link was followed")
	}
	os.Remove(dataOf(n, pids[0]))
	os.WriteFile(dataOf(n, pids[0]), good, 0o600)
	images.Progress = func(int64) { // the lease of the pause ran out at the worst moment
		images.Progress = nil
		p, err := gpu.OpenPage(n.Dir, pids[0])
		if err != nil {
			t.Error(err)
			return
		}
		defer p.Close()
		p.SetLease(time.Nanosecond)
		programs[0].Do("sum 0 %d", 4*mib)
	}
	if _, err := save(n, images, true, pids...); err == nil || !strings.Contains(err.Error(), "no image was made") {
		t.Error(err)
	}
	if all, _ := images.List(ctx); len(all) > 0 {
		t.Error(all)
	}
	if _, err := save(n, images, true, pids...); !errors.Is(err, checkpoint.ErrNotPaused) {
		t.Error(err)
	}
}

// A disk that is full ends a save or a restore with all that was there.
func TestFullDisk(t *testing.T) {
	n := gputest.NewNode(t, 64)
	_, pids, _ := paused(t, n, 1)
	small := t.TempDir()
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("a disk that is full needs the right to mount one")
	}
	defer syscall.Unmount(small, 0)
	full, err := image.Open(ctx, image.Dir(small), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := save(n, full, true, pids...); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	if all, _ := full.List(ctx); len(all) > 0 {
		t.Error(all)
	}
	images, _ := store(t)
	saved, err := save(n, images, true, pids...)
	if err != nil {
		t.Fatal(err) // the memory is where it was
	}
	// The folder of the pages is full now, and the page is in it.
	page := filepath.Join(n.Dir, strconv.Itoa(pids[0])+".page")
	other := *n
	other.Dir = t.TempDir()
	if err := syscall.Mount("tmpfs", other.Dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(other.Dir, 0)
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other.Dir, filepath.Base(page)), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := restore(&other, images, saved.Entry); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	if left, _ := filepath.Glob(other.Dir + "/*.data*"); len(left) > 0 {
		t.Error(left)
	}
	if _, err := restore(n, images, saved.Entry); err != nil {
		t.Error(err)
	}
}

// mortal kills its process at one of its calls.
type mortal struct {
	image.Dir
	calls, at int64
}

func (m *mortal) step() {
	if atomic.AddInt64(&m.calls, 1) == m.at {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
func (m *mortal) Put(ctx context.Context, object string, data []byte) error {
	m.step()
	err := m.Dir.Put(ctx, object, data)
	m.step()
	return err
}
func (m *mortal) Get(ctx context.Context, object string) ([]byte, error) {
	m.step()
	return m.Dir.Get(ctx, object)
}
func (m *mortal) Has(ctx context.Context, object string) (bool, error) {
	m.step()
	return m.Dir.Has(ctx, object)
}
func (m *mortal) Delete(ctx context.Context, object string) error {
	m.step()
	return m.Dir.Delete(ctx, object)
}

// victim saves or restores, and is killed at the call of the store whose number it is given.
func victim() int {
	at, _ := strconv.ParseInt(os.Getenv("MUSTER_TEST_KILL_AT"), 10, 64)
	pid, _ := strconv.Atoi(os.Getenv("MUSTER_TEST_PID"))
	images, err := image.Open(ctx, image.Dir(os.Getenv("MUSTER_TEST_STORE")), nil, true)
	if err != nil {
		return 1
	}
	images.Store = &mortal{Dir: image.Dir(os.Getenv("MUSTER_TEST_STORE")), at: at}
	b := &checkpoint.Shim{Dir: os.Getenv("MUSTER_TEST_PAGES"), Lease: time.Minute}
	if os.Getenv("MUSTER_TEST_RESTORE") == "" {
		_, err = offload.Save(ctx, b, images, offload.Job{PIDs: []int{pid}, Move: true, Step: quiet})
	} else if e, found := offload.Find(ctx, images, b, pid); found == nil {
		_, err = offload.Restore(ctx, b, images, e, nil, quiet)
	} else {
		err = found
	}
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		return 1
	}
	return 0
}

// Whenever a save or a restore is killed, the memory of the process is beside its page or in an
// image, as a whole; and it goes on with it at the end.
func TestKilledAtAnyStep(t *testing.T) {
	n := gputest.NewNode(t, 64)
	p := n.Start(t)
	p.Do("alloc %d", mib)
	p.Send("train 0 %d 10", mib)
	sum := p.Until("sum ")
	b := shim(n)
	if err := checkpoint.Pause(ctx, b, []int{p.PID}, checkpoint.Options{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	b.Close()
	images, dir := store(t)
	for _, restoring := range []string{"", "1"} {
		killed := 0
		for at := 1; ; at++ {
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), "MUSTER_TEST_KILL_AT="+strconv.Itoa(at), "MUSTER_TEST_PID="+strconv.Itoa(p.PID),
				"MUSTER_TEST_STORE="+string(dir), "MUSTER_TEST_PAGES="+n.Dir, "MUSTER_TEST_RESTORE="+restoring)
			out, err := c.CombinedOutput()
			if !whole(t, n, images, p.PID) {
				t.Fatalf("killed at call %d (restore: %s): the memory is lost", at, restoring)
			}
			if err == nil {
				break
			}
			if c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("%v: %s", err, out)
			}
			killed++
			if restoring == "" {
				if _, err := os.Stat(dataOf(n, p.PID)); err != nil {
					b := shim(n) // it was killed after the removal
					e, err := offload.Find(ctx, images, b, p.PID)
					b.Close()
					if _, again := restore(n, images, e); err != nil || again != nil {
						t.Fatal(err, again)
					}
				}
			}
		}
		if killed < 5 {
			t.Errorf("killed %d times: does this test still test something?", killed)
		}
	}
	if err := resume(n, p.PID); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimPrefix(p.Do("sum 0 %d", mib), "sum "); got != sum {
		t.Errorf("%s before, %s after", sum, got)
	}
}

// whole says whether the memory of a process is beside its page or in an image.
func whole(t *testing.T, n *gputest.Node, images *image.Images, pid int) bool {
	t.Helper()
	file, err := os.Open(dataOf(n, pid))
	if err == nil {
		defer file.Close()
		info, _ := file.Stat()
		_, err := image.Whole(file, info.Size())
		return err == nil
	}
	b := shim(n)
	defer b.Close()
	e, err := offload.Find(ctx, images, b, pid)
	return err == nil && images.Verify(ctx, e) == nil
}
