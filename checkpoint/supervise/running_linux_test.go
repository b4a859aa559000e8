package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/supervise"
	"github.com/muster-sched/muster/gpu"
)

// leader is what asks jobs to save themselves, as agents do.
func (s *site) leader(lease time.Duration) *checkpoint.Folder {
	b := checkpoint.NewFolder(s.n.Dir, lease)
	s.t.Cleanup(b.Close)
	return b
}

// jobs are the processes that an agent finds.
func (s *site) jobs(b *checkpoint.Folder, want checkpoint.Phase) {
	s.t.Helper()
	pids, err := checkpoint.List(s.n.Dir)
	if err != nil {
		s.t.Fatal(err)
	}
	var found []checkpoint.Status
	for _, pid := range pids {
		if st, err := b.Status(pid); err == nil {
			found = append(found, st)
		}
	}
	if len(found) != 1 || found[0].PID != os.Getpid() || found[0].Phase != want || !found[0].Durable || found[0].Within != time.Minute {
		s.t.Fatalf("found %+v; expected this process alone, %s", found, want)
	}
}

func (s *site) imagesAre(n int) {
	s.t.Helper()
	if all, err := s.images.List(s.t.Context()); err != nil || len(all) != n {
		s.t.Fatalf("images %v, %v; expected %d", all, err, n)
	}
}

// A job is asked to save itself: its processes are an image then. It comes back where it is when it is asked to; by itself when its lease has ended; and
// where it is run again after SIGTERM. What it prints is what one prints that never is asked.
func TestJobSavesItselfWhenAsked(t *testing.T) {
	s := newSite(t)
	const work = "alloc 1048576\ntrain 0 1048576 600\n"
	undisturbed := s.n.Start(t)
	undisturbed.Send("%s", strings.TrimSpace(work))
	want := ""
	for line := ""; !strings.HasPrefix(line, "sum "); want += line + "\n" {
		line = undisturbed.Line()
	}
	undisturbed.Kill()

	command, commands := s.trainer()
	fmt.Fprint(commands, work)
	signals, code := s.run(command...)
	s.out.until(t, "step 10\n")
	pid := 0
	fmt.Sscanf(s.out.String(), "ready %d", &pid)
	me, o := []int{os.Getpid()}, checkpoint.Options{Timeout: time.Minute}

	b := s.leader(time.Hour)
	s.jobs(b, checkpoint.Running)
	if err := checkpoint.Pause(t.Context(), b, me, o); err != nil {
		t.Fatal(err)
	}
	if s.jobs(b, checkpoint.Saved); gpu.Alive(pid) {
		t.Error("a process of the job is there")
	}
	s.imagesAre(1)
	if err := checkpoint.Resume(t.Context(), b, me, time.Minute); err != nil {
		t.Fatal(err)
	}
	if s.jobs(b, checkpoint.Running); !gpu.Alive(pid) {
		t.Error("no process of the job is there")
	}
	s.imagesAre(0)
	b.Close()

	save := func() *checkpoint.Folder {
		b := s.leader(time.Hour)
		for _, to := range []checkpoint.Phase{checkpoint.Gated, checkpoint.Saved} {
			if err := b.Step(t.Context(), me[0], to); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	b = save()
	b.SetLease(time.Second)
	if err := b.Step(t.Context(), me[0], checkpoint.Saved); err != nil {
		t.Fatal(err)
	}
	b.Close() // who asks dies
	s.said.until(t, "job train goes on by itself")
	save().Close()
	signals <- syscall.SIGUSR2
	s.said.until(t, "is not passed on: it is image")
	signals <- syscall.SIGTERM
	if got := code(); got != supervise.Moved {
		t.Fatalf("exit code %d; it said %s", got, s.said)
	}
	if pids, err := checkpoint.List(s.n.Dir); err != nil || len(pids) != 0 {
		t.Error(pids, err)
	}
	s.imagesAre(1)
	signals, code = s.run(command...)
	s.said.until(t, "job train goes on from image")
	s.out.until(t, want[strings.Index(want, "sum "):])
	signals <- syscall.SIGUSR1
	if got := code(); got != 128+int(syscall.SIGUSR1) {
		t.Errorf("exit code %d", got)
	}
	if _, got, _ := strings.Cut(s.out.String(), "\n"); got != want {
		t.Errorf("it prints\n%sexpected\n%s", got, want)
	}
	s.imagesAre(0)
}

// stops is a store that refuses images, and says so once.
type stops struct {
	image.Store
	asked chan struct{}
	put   func(context.Context) error
}

func (s stops) Put(ctx context.Context, object string, content []byte) error {
	if strings.HasPrefix(object, "images/") {
		s.asked <- struct{}{}
		if err := s.put(ctx); err != nil {
			return err
		}
	}
	return s.Store.Put(ctx, object, content)
}

// A job that cannot be saved goes on, and says why: as its store is full, or as whoever asks gives up, or has no lease any more. One that was told
// to end is left alone.
func TestJobThatCannotBeSaved(t *testing.T) {
	s := newSite(t)
	command, commands := s.trainer()
	signals, code := s.run(append([]string{"sh", "-c", `trap "echo told" TERM; "$@" & while :; do wait; done`, "sh"}, command...)...)
	me, o := []int{os.Getpid()}, checkpoint.Options{Timeout: time.Minute}
	s.out.until(t, "ready ")
	b := s.leader(time.Hour)
	refused := func(ctx context.Context, want string) {
		t.Helper()
		if err := checkpoint.Pause(ctx, b, me, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; expected %s", err, want)
		}
		s.jobs(b, checkpoint.Running)
		s.imagesAre(0)
	}
	fmt.Fprintf(commands, "alloc 4096\n")
	s.out.until(t, "alloc 0")
	good, asked := s.images.Store, make(chan struct{}, 1)
	s.images.Store = stops{good, asked, func(context.Context) error { return errors.New("the store is full") }}
	refused(t.Context(), "the store is full; all processes are as before")
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	untilGivenUp := func(ctx context.Context) error {
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(30 * time.Second):
			t.Error("it is not given up")
		}
		return errors.New("given up")
	}
	s.images.Store = stops{good, asked, untilGivenUp}
	refused(ctx, "interrupted")
	<-asked
	b.Close()
	b = s.leader(2 * time.Second) // which ends while the store takes its time, or before, on a slow machine
	refused(t.Context(), "")
	select {
	case <-asked:
	default:
	}
	b.Close()
	b = s.leader(time.Hour)
	s.images.Store = good
	fmt.Fprintf(commands, "alloc 4096\n")
	s.out.until(t, "alloc 1")

	s.images.Store = stops{good, asked, func(context.Context) error { return errors.New("the store is full") }}
	signals <- syscall.SIGTERM
	s.out.until(t, "told")
	<-asked
	s.images.Store = good
	refused(t.Context(), "it was told to end")
	signals <- syscall.SIGQUIT
	if got := code(); got != 128+int(syscall.SIGQUIT) {
		t.Errorf("exit code %d; it said %s", got, s.said)
	}
}

// A job that was asked to save itself, and whose GPU is full when it is to come back, stays an image, and comes back when it can.
func TestJobStaysSaved(t *testing.T) {
	s := newSite(t)
	command, commands := s.trainer()
	signals, code := s.run(command...)
	fmt.Fprintf(commands, "alloc %d\n", 16<<20)
	s.out.until(t, "alloc 0")
	me, b := []int{os.Getpid()}, s.leader(time.Hour)
	if err := checkpoint.Pause(t.Context(), b, me, checkpoint.Options{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	hog := s.n.Start(t)
	hog.Do("alloc %d", 60<<20)
	if err := checkpoint.Resume(t.Context(), b, me, time.Minute); err == nil || !strings.Contains(err.Error(), "too little free memory") {
		t.Error(err)
	}
	s.imagesAre(1)
	if phase, err := b.Phase(me[0]); err != nil || phase != checkpoint.Saved {
		t.Error(phase, err)
	}
	hog.Kill()
	if err := checkpoint.Resume(t.Context(), b, me, time.Minute); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(commands, "alloc 4096\n")
	s.out.until(t, "alloc 1")
	signals <- syscall.SIGUSR1
	if got := code(); got != 128+int(syscall.SIGUSR1) {
		t.Errorf("exit code %d", got)
	}
}

// A job whose name was taken from it while it was an image does not come back: another one may have gone on from that.
func TestSavedJobThatLostItsName(t *testing.T) {
	s := newSite(t)
	command, commands := s.trainer()
	_, code := s.run(command...)
	fmt.Fprintf(commands, "alloc 4096\n")
	s.out.until(t, "alloc 0")
	me, b := []int{os.Getpid()}, s.leader(time.Hour)
	if err := checkpoint.Pause(t.Context(), b, me, checkpoint.Options{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	leases, err := s.images.Store.List(t.Context(), "leases/")
	if err != nil || len(leases) == 0 {
		t.Fatal(leases, err)
	}
	for _, o := range leases {
		if err := s.images.Store.Delete(t.Context(), o.Name); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkpoint.Resume(t.Context(), b, me, time.Minute); err == nil {
		t.Error("it comes back")
	}
	if got := code(); got != 1 || !strings.Contains(s.said.String(), "another one of the name may have gone on from it") {
		t.Errorf("exit code %d; it said %s", got, s.said)
	}
	s.imagesAre(1)
}
