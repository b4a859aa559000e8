package pause

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu"
)

// memory is a backend of processes that are numbers. Its faults come from the seed.
type memory struct {
	mu     sync.Mutex
	rand   *rand.Rand
	faulty bool
	lease  time.Duration
	phases []checkpoint.Phase
	leased []bool
}

func newMemory(n int, seed uint64) *memory {
	b := &memory{rand: rand.New(rand.NewPCG(seed, 1)), leased: make([]bool, n)}
	for range n {
		b.phases = append(b.phases, checkpoint.Running)
	}
	return b
}

func (b *memory) setLease(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lease = d
}

// strike lets a lease run out now and then.
func (b *memory) strike(pid int) {
	if b.faulty && b.leased[pid] && b.rand.IntN(80) == 0 {
		b.phases[pid], b.leased[pid] = checkpoint.Running, false
	}
}

func (b *memory) Path() []checkpoint.Phase { return phases[:3] }

func (b *memory) Phase(pid int) (checkpoint.Phase, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.strike(pid)
	return b.phases[pid], nil
}

func (b *memory) Step(ctx context.Context, pid int, to checkpoint.Phase) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	b.strike(pid)
	from := b.phases[pid]
	switch {
	case from == to:
		return nil
	case from == checkpoint.Running && to == checkpoint.Saved, from == checkpoint.Saved && to == checkpoint.Running:
		return gpu.ErrCancelled
	case to == checkpoint.Running:
		b.leased[pid] = false
	default:
		b.leased[pid] = b.lease > 0
	}
	if from == checkpoint.Running {
		b.phases[pid] = to // the gate closes at once; what may be late is the calls in flight
	}
	if b.faulty && b.rand.IntN(30) == 0 {
		return context.DeadlineExceeded
	}
	b.phases[pid] = to
	return nil
}

func (b *memory) Keep(pid int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.strike(pid)
	if b.phases[pid] != checkpoint.Saved {
		return gpu.ErrCancelled
	}
	b.leased[pid] = false
	return nil
}

// phase is that of all processes, and false if they differ or a paused one has a lease.
func (b *memory) phase() (checkpoint.Phase, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, p := range b.phases {
		if p != b.phases[0] || b.leased[i] {
			return "", false
		}
	}
	return b.phases[0], true
}

// network is a participant behind a network that loses, delays and repeats messages,
// and an agent that is killed between two of them, as the seed says.
type network struct {
	start func() Participant

	mu     sync.Mutex
	rand   *rand.Rand
	faulty bool
	agent  Participant
	life   context.Context // of the agent
	kill   context.CancelFunc
	calls  sync.WaitGroup
	old    []Request // which may arrive again
}

func newNetwork(seed uint64, start func() Participant) *network {
	n := &network{start: start, rand: rand.New(rand.NewPCG(seed, 2)), faulty: true, agent: start()}
	n.life, n.kill = context.WithCancel(context.Background())
	return n
}

var errLost = errors.New("lost")

func (n *network) Advance(ctx context.Context, r Request) (Reply, error) {
	n.mu.Lock()
	fault := 0
	if n.faulty {
		fault = 1 + n.rand.IntN(10)
	}
	n.old = append(n.old, r)
	again := n.old[n.rand.IntN(len(n.old))]
	if fault == 1 {
		n.kill()
		n.calls.Wait()
		n.life, n.kill = context.WithCancel(context.Background())
		n.agent = n.start()
	}
	agent, life := n.agent, n.life
	n.calls.Add(1)
	if fault == 5 {
		n.calls.Go(func() { agent.Advance(life, r) })
	}
	n.mu.Unlock()
	defer n.calls.Done()
	alive, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(life, stop)()
	switch fault {
	case 2:
		return Reply{}, errLost
	case 3, 4:
		agent.Advance(alive, again) // an older one, late
	}
	reply, err := agent.Advance(alive, r)
	if fault == 6 || life.Err() != nil {
		return Reply{}, errLost
	}
	return reply, err
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls.Wait()
	n.faulty = false
}

// dying is a store whose coordinator dies at a chosen decision, before or after it is stored.
type dying struct {
	Store
	left  int
	after bool
}

var errDied = errors.New("the coordinator died")

func (s *dying) Save(state State) error {
	s.left--
	if s.left == 0 && !s.after {
		return errDied
	}
	if err := s.Store.Save(state); err != nil {
		return err
	}
	if s.left == 0 {
		return errDied
	}
	return nil
}

func quick(retries int) Options {
	return Options{Job: "job", Options: checkpoint.Options{Timeout: 10 * time.Second, Retries: retries, Backoff: time.Microsecond}, Lease: time.Minute}
}

// Whatever is lost, late, repeated or killed: what is reported is true, and once all is
// well again the job runs or is paused as a whole.
func TestFaults(t *testing.T) {
	paused, gaveUp, died := 0, 0, 0
	var unfinished *UnfinishedError
	for seed := range uint64(120) {
		b := newMemory(4, seed)
		b.faulty = true
		dir := t.TempDir()
		var members []Participant
		var networks []*network
		for i := range 2 {
			n := newNetwork(10*seed+uint64(i), func() Participant {
				return &Local{Backend: b, SetLease: b.setLease, Processes: []int{2 * i, 2*i + 1}, File: filepath.Join(dir, fmt.Sprint("member", i))}
			})
			members, networks = append(members, n), append(networks, n)
		}
		file := File(filepath.Join(dir, "coordinator"))
		store := &dying{Store: file, left: int(seed % 30), after: seed%2 == 0}
		o := quick(int(seed % 3))
		err := Pause(context.Background(), members, store, o)
		var given *checkpoint.UnpausableError
		switch {
		case err == nil:
			paused++
			expect(t, seed, b, checkpoint.Saved)
			err = Resume(context.Background(), members, store, o)
			if err == nil {
				expect(t, seed, b, checkpoint.Running)
			}
		case errors.As(err, &given):
			gaveUp++
			expect(t, seed, b, checkpoint.Running)
		case errors.Is(err, errDied):
			died++
		case errors.As(err, &unfinished): // what the network lost in this time
		default:
			t.Errorf("seed %d: %v", seed, err)
		}
		for _, n := range networks {
			n.heal()
		}
		b.mu.Lock()
		b.faulty = false
		b.mu.Unlock()
		s, err := Recover(context.Background(), members, file, o)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		want := checkpoint.Running
		if s.Paused() {
			want = checkpoint.Saved
		}
		expect(t, seed, b, want)
		if err := Resume(context.Background(), members, file, o); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		expect(t, seed, b, checkpoint.Running)
	}
	t.Logf("%d paused, %d given up, %d coordinators died", paused, gaveUp, died)
	if paused == 0 || gaveUp == 0 || died == 0 {
		t.Errorf("does this test still test something?")
	}
}

func expect(t *testing.T, seed uint64, b *memory, want checkpoint.Phase) {
	t.Helper()
	if got, whole := b.phase(); got != want || !whole {
		t.Fatalf("seed %d: reported %s; the processes are %v, leased %v", seed, want, b.phases, b.leased)
	}
}

func locals(t *testing.T, b *memory) []Participant {
	var all []Participant
	for i := range b.phases {
		all = append(all, &Local{Backend: b, SetLease: b.setLease, Processes: []int{i}, File: filepath.Join(t.TempDir(), "member")})
	}
	return all
}

// unreachable is a member on the other side of a partition.
type unreachable struct{ Participant }

func (unreachable) Advance(context.Context, Request) (Reply, error) { return Reply{}, errLost }

// A member that cannot be reached is named, and what was decided is finished later.
func TestPartition(t *testing.T) {
	b := newMemory(3, 0)
	members := locals(t, b)
	store := File(filepath.Join(t.TempDir(), "coordinator"))
	o := quick(3)
	o.Timeout = 300 * time.Millisecond
	parted := []Participant{members[0], unreachable{}, members[2]}
	err := Pause(context.Background(), parted, store, o)
	var unfinished *UnfinishedError
	if !errors.As(err, &unfinished) || unfinished.Goal != Release || fmt.Sprint(unfinished.Members) != "[1]" {
		t.Fatalf("%v", err)
	}
	expect(t, 0, b, checkpoint.Running)
	if s, err := Recover(context.Background(), members, store, quick(3)); err != nil || !s.Paused() {
		t.Errorf("%+v, %v", s, err) // the try after it
	}
	expect(t, 0, b, checkpoint.Saved)
	if err := Pause(context.Background(), parted, store, o); err != nil {
		t.Errorf("a paused job: %v", err)
	}
	if err := Resume(context.Background(), parted, store, o); !errors.As(err, &unfinished) || unfinished.Goal != Keep {
		t.Errorf("%v", err)
	}
	if err := Resume(context.Background(), members, store, quick(3)); err != nil {
		t.Error(err)
	}
	expect(t, 0, b, checkpoint.Running)
}

// A member's reply to a request that was delayed is not taken for a failure of the newest one.
func TestStaleIsNoFailure(t *testing.T) {
	c := NewCoordinator(State{}, 2, 0)
	c.Begin(Pausing)
	c.Receive(0, Reply{Epoch: 1, Outcome: Reached})
	c.Receive(1, Reply{Epoch: 1, Outcome: Reached})
	for _, r := range []Reply{{Epoch: 2, Outcome: Stale}, {Epoch: 1, Outcome: Late}} {
		if c.Receive(0, r) || c.Goal != Save {
			t.Errorf("after %+v the goal is %s", r, c.Goal)
		}
	}
}

// An interrupted caller leaves no process behind, and a store that was lost is noticed.
func TestInterruptedAndLost(t *testing.T) {
	b := newMemory(2, 0)
	members := locals(t, b)
	store := File(filepath.Join(t.TempDir(), "coordinator"))
	ctx, cancel := context.WithCancel(context.Background())
	hanging := []Participant{members[0], &atGoal{members[1], Save, cancel}}
	if err := Pause(ctx, hanging, store, quick(3)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	expect(t, 0, b, checkpoint.Running)
	if s, err := store.Load(); s.Cause != "interrupted" || err != nil {
		t.Errorf("%+v, %v", s, err) // and not out of time
	}
	var stale *StaleError
	if err := Pause(context.Background(), members, File(filepath.Join(t.TempDir(), "new")), quick(3)); !errors.As(err, &stale) || stale.Stored != 1 {
		t.Errorf("%v", err)
	}
	o := quick(3)
	o.Lease = o.Timeout
	if err := Pause(context.Background(), members, store, o); err == nil {
		t.Error("a lease shorter than a try was accepted")
	}
}

// A member obeys no older request, also after its agent was killed, and repeats its reply to the newest.
func TestMemberRemembers(t *testing.T) {
	b := newMemory(1, 0)
	file := filepath.Join(t.TempDir(), "member")
	start := func() *Local {
		return &Local{Backend: b, SetLease: b.setLease, Processes: []int{0}, File: file}
	}
	l := start()
	for _, c := range []struct {
		epoch uint64
		goal  Goal
		kill  bool
		want  Outcome
		phase checkpoint.Phase
	}{
		{1, Gate, false, Reached, checkpoint.Gated},
		{4, Release, false, Reached, checkpoint.Running},
		{1, Gate, false, Stale, checkpoint.Running},
		{1, Gate, true, Stale, checkpoint.Running},
		{4, Gate, true, Stale, checkpoint.Running}, // an epoch has one goal
		{4, Release, true, Reached, checkpoint.Running},
		{5, Keep, false, Open, checkpoint.Running},
		{6, Gate, true, Reached, checkpoint.Gated},
		{7, Save, true, Reached, checkpoint.Saved},
		{7, Save, true, Reached, checkpoint.Saved},
	} {
		if c.kill {
			l = start()
		}
		r, err := l.Advance(context.Background(), Request{Epoch: c.epoch, Goal: c.goal, Lease: time.Minute})
		phase, _ := b.Phase(0)
		if r.Outcome != c.want || err != nil || phase != c.phase {
			t.Errorf("%+v: %+v, %v, and the process is %s", c, r, err, phase)
		}
	}
	if err := os.WriteFile(file, []byte(`{"epoch":7,"goal":"Sleep"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := start().Advance(context.Background(), Request{Epoch: 8, Goal: Release}); err == nil || !strings.Contains(err.Error(), `goal "Sleep": expected one of`) {
		t.Errorf("a damaged file: %v", err)
	}
}

// atGoal does something when a goal is requested, and does not reply to it.
type atGoal struct {
	Participant
	goal Goal
	do   func()
}

func (a *atGoal) Advance(ctx context.Context, r Request) (Reply, error) {
	if r.Goal != a.goal {
		return a.Participant.Advance(ctx, r)
	}
	a.do()
	<-ctx.Done()
	return Reply{}, ctx.Err()
}
