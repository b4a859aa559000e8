package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu"
)

// scripted is a backend of processes 1 to n, in which one call of one process fails.
type scripted struct {
	mu     sync.Mutex
	path   []checkpoint.Phase
	phases map[int]checkpoint.Phase
	kept   map[int]bool
	calls  map[int]int
	pid    int // whose call
	call   int // with this number
	fails  error
}

// paths are those of the backends.
var paths = [][]checkpoint.Phase{
	{checkpoint.Running, checkpoint.Gated, checkpoint.Saved},
	{checkpoint.Running, checkpoint.Locked, checkpoint.Checkpointed},
	{checkpoint.Running, checkpoint.Gated, checkpoint.Saved, checkpoint.Locked, checkpoint.Checkpointed},
}

// newScripted has n processes at one end of the path.
func newScripted(n int, path []checkpoint.Phase, phase checkpoint.Phase) *scripted {
	s := &scripted{path: path, phases: map[int]checkpoint.Phase{}, kept: map[int]bool{}, calls: map[int]int{}}
	for pid := 1; pid <= n; pid++ {
		s.phases[pid] = phase
	}
	return s
}

func (s *scripted) Path() []checkpoint.Phase { return s.path }

func (s *scripted) end() checkpoint.Phase { return s.path[len(s.path)-1] }

func (s *scripted) Phase(pid int) (checkpoint.Phase, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	phase, ok := s.phases[pid]
	if !ok {
		return "", gpu.ErrGone
	}
	return phase, nil
}

// fail says whether this call fails, and lets the process die if that is how.
func (s *scripted) fail(pid int) error {
	if _, ok := s.phases[pid]; !ok {
		return gpu.ErrGone
	}
	s.calls[pid]++
	if pid != s.pid || s.calls[pid] != s.call {
		return nil
	}
	if errors.Is(s.fails, gpu.ErrGone) {
		delete(s.phases, pid)
	}
	return s.fails
}

func (s *scripted) Step(_ context.Context, pid int, to checkpoint.Phase) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fail(pid); err != nil {
		return err
	}
	if d := slices.Index(s.path, s.phases[pid]) - slices.Index(s.path, to); d > 1 || d < -1 {
		return fmt.Errorf("a step from %s to %s", s.phases[pid], to)
	}
	s.phases[pid], s.kept[pid] = to, false
	return nil
}

func (s *scripted) Keep(pid int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fail(pid); err != nil {
		return err
	}
	s.kept[pid] = true
	return nil
}

// all says whether all living processes are in the phase; paused ones are kept.
func (s *scripted) all(phase checkpoint.Phase) bool {
	for pid, p := range s.phases {
		if p != phase || s.kept[pid] != (phase == s.end()) {
			return false
		}
	}
	return true
}

var faults = []error{errors.New("the disk is full"), context.DeadlineExceeded, gpu.ErrCancelled, gpu.ErrGone, gpu.ErrNoMemory}

// Whatever fails, of whichever process: all that live are paused, or all go on.
func TestAllOrNone(t *testing.T) {
	o := checkpoint.Options{Timeout: time.Second, Retries: 1, Backoff: time.Nanosecond}
	for _, path := range paths {
		paused, refused := 0, 0
		for call := 1; call <= 2*len(path)+1; call++ {
			for pid := 1; pid <= 3; pid++ {
				for _, fault := range faults {
					s := newScripted(3, path, checkpoint.Running)
					s.pid, s.call, s.fails = pid, call, fault
					err := checkpoint.Pause(ctx, s, []int{1, 2, 3}, o)
					want := checkpoint.Running
					if err == nil {
						want = s.end()
						paused++
					} else {
						refused++
					}
					if !s.all(want) {
						t.Errorf("call %d of process %d: %v: Pause: %v: %v, kept %v", call, pid, fault, err, s.phases, s.kept)
					}
				}
			}
		}
		if paused == 0 || refused == 0 {
			t.Errorf("%v: %d pauses, %d refusals: the faults do not reach both ends", path, paused, refused)
		}
	}
}

// mortal is a backend whose caller dies before one of its calls: nothing that it does
// after that has an effect, the way back included.
type mortal struct {
	*scripted
	left int
}

var errDead = errors.New("the caller is dead")

func (m *mortal) Step(ctx context.Context, pid int, to checkpoint.Phase) error {
	if m.dies() {
		return errDead
	}
	return m.scripted.Step(ctx, pid, to)
}

func (m *mortal) Keep(pid int) error {
	if m.dies() {
		return errDead
	}
	return m.scripted.Keep(pid)
}

func (m *mortal) dies() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left--
	return m.left < 0
}

// Whenever a caller dies, the next one ends what it is asked for, for all. A process
// that was paused and not kept would go on by itself at the end of its lease.
func TestNextCallerAfterDeath(t *testing.T) {
	for _, path := range paths {
		t.Run(string(path[len(path)-1]), func(t *testing.T) { nextCallerAfterDeath(t, path) })
	}
}

func nextCallerAfterDeath(t *testing.T, path []checkpoint.Phase) {
	pids := []int{1, 2, 3}
	pause := func(b checkpoint.Backend) error {
		return checkpoint.Pause(ctx, b, pids, checkpoint.Options{Timeout: time.Second, Backoff: time.Nanosecond})
	}
	resume := func(b checkpoint.Backend) error { return checkpoint.Resume(ctx, b, pids, time.Second) }
	paused := func() *scripted {
		s := newScripted(3, path, checkpoint.Running)
		pause(s)
		return s
	}
	died := map[string]func(calls int) *scripted{
		"pause": func(calls int) *scripted {
			s := newScripted(3, path, checkpoint.Running)
			pause(&mortal{s, calls})
			return s
		},
		"resume": func(calls int) *scripted {
			s := paused()
			resume(&mortal{s, calls})
			return s
		},
	}
	for name, after := range died {
		for calls := range 4 * len(path) {
			s := after(calls)
			if err := pause(s); err != nil || !s.all(s.end()) {
				t.Errorf("a %s died after %d calls; then a pause: %v: %v, kept %v", name, calls, err, s.phases, s.kept)
			}
			s = after(calls)
			if err := resume(s); err != nil || !s.all(checkpoint.Running) {
				t.Errorf("a %s died after %d calls; then a resume: %v: %v", name, calls, err, s.phases)
			}
			s = after(calls)
			if s.phases[1] == checkpoint.Running || s.phases[2] != s.end() || s.phases[3] == checkpoint.Running {
				continue
			}
			s.pid, s.call, s.fails = 2, s.calls[2]+1, gpu.ErrNoMemory
			if err := resume(s); !errors.Is(err, gpu.ErrNoMemory) || !s.all(s.end()) {
				t.Errorf("a %s died after %d calls; then a resume without room: %v: %v, kept %v", name, calls, err, s.phases, s.kept)
			}
		}
	}
}

// The same for resume; what fails after the first process has gone on leaves others
// to continue, which a second call does.
func TestResumeAllOrNone(t *testing.T) {
	for _, path := range paths {
		last := len(path) - 1 // the call with which a process goes on
		for call := 1; call <= last; call++ {
			for pid := 1; pid <= 3; pid++ {
				for _, fault := range faults {
					s := newScripted(3, path, path[last])
					for pid := range s.phases {
						s.kept[pid] = true
					}
					s.pid, s.call, s.fails = pid, call, fault
					err := checkpoint.Resume(ctx, s, []int{1, 2, 3}, time.Second)
					switch {
					case err != nil && call == last && errors.Is(fault, gpu.ErrGone):
						t.Errorf("process %d ended when it went on: %v", pid, err)
					case err == nil && !s.all(checkpoint.Running):
						t.Errorf("call %d of process %d: %v: %v", call, pid, fault, s.phases)
					case err != nil && call < last && !s.all(s.end()):
						t.Errorf("call %d of process %d: %v: Resume: %v: %v, kept %v", call, pid, fault, err, s.phases, s.kept)
					case err != nil && call == last:
						var living []int
						for pid := range s.phases {
							living = append(living, pid)
						}
						if err := checkpoint.Resume(ctx, s, living, time.Second); err != nil || !s.all(checkpoint.Running) {
							t.Errorf("call %d of process %d: %v: again: %v: %v", call, pid, fault, err, s.phases)
						}
					}
				}
			}
		}
	}
}

// What a command that died left in any phases, the next one pauses or continues.
func TestLeftInAnyPhases(t *testing.T) {
	o := checkpoint.Options{Timeout: time.Second}
	for _, path := range paths {
		for _, first := range path {
			for _, second := range path {
				left := func() *scripted {
					s := newScripted(2, path, first)
					s.phases[2] = second
					s.kept[1], s.kept[2] = first == s.end(), second == s.end()
					return s
				}
				s := left()
				if err := checkpoint.Pause(ctx, s, []int{1, 2}, o); err != nil || !s.all(s.end()) {
					t.Errorf("left %s and %s: Pause: %v: %v", first, second, err, s.phases)
				}
				s = left()
				if err := checkpoint.Resume(ctx, s, []int{1, 2}, time.Second); err != nil || !s.all(checkpoint.Running) {
					t.Errorf("left %s and %s: Resume: %v: %v", first, second, err, s.phases)
				}
			}
		}
	}
}

// A phase that is not on the backend's path, as of a process that another backend paused.
func TestPhaseOfAnotherBackend(t *testing.T) {
	s := newScripted(1, paths[0], checkpoint.Checkpointed)
	if err := checkpoint.Resume(ctx, s, []int{1}, time.Second); err == nil || !strings.Contains(err.Error(), "the process is Checkpointed") {
		t.Errorf("%v", err)
	}
}
