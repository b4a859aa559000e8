package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/lease"
	"github.com/muster-sched/muster/kube/lost"
)

// asScheduler has the test's binary be a scheduler, as the JSON of a crashing says.
const asScheduler = "TEST_AS_SCHEDULER"

// crashing is a scheduler that the crash test starts as a process of its own.
type crashing struct {
	Host, Token string
	CA          []byte
	Identity    string
	Shards      []string
	Seed        [2]uint64
	// Bad is how many of a thousand requests something happens to; Leaps has the clock jump.
	Bad   int64
	Leaps bool
	// Agents has what clients of the nodes' agents need; empty: no pod is paused.
	Agents string
}

// crashLease has an instance that falls silent lose its leases as soon as can be.
var crashLease = lease.Leader{
	Namespace: systemNamespace, LeaseDuration: 2 * time.Second, RenewDeadline: 1200 * time.Millisecond, RetryPeriod: 250 * time.Millisecond,
}

// runScheduler is the scheduler's process. It ends as muster does: with 0 when it is
// asked to, and with 1 when it cannot go on.
func runScheduler(text string) int {
	var c crashing
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	fail := func(err error) int {
		log.Error(theEnd, "error", err)
		return 1
	}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return fail(err)
	}
	shards, err := lease.ParseShards(c.Shards)
	if err != nil {
		return fail(err)
	}
	doc, _ := policy.ByName("default")
	config := kube.Config{
		API:    &rest.Config{Host: c.Host, BearerToken: c.Token, TLSClientConfig: rest.TLSClientConfig{CAData: c.CA}},
		Policy: doc.Policy, Log: log, Leader: crashLease, Shards: shards,
	}
	config.Leader.Identity = c.Identity
	config.Policy.Preempt.MinRuntime, config.Policy.Preempt.Interval = 0, 0
	config.Lost = lost.Config{After: time.Second, Rate: 100, Secondary: 100, Unhealthy: 0.55}
	config.API.WarningHandler = rest.NoWarnings{}
	if c.Agents != "" {
		agents = c.Agents
		pausing(&config)
	}
	if c.Bad > 0 {
		bad := &cable{rng: rand.New(rand.NewPCG(c.Seed[0], c.Seed[1])), counts: map[string]int{}}
		bad.note = func(what string) { fmt.Fprintln(os.Stderr, mishapPrefix+what) }
		bad.bad.Store(c.Bad)
		config.API.Wrap(bad.wrap)
	}
	if c.Leaps {
		config.Now = (&leaps{rng: rand.New(rand.NewPCG(c.Seed[1], c.Seed[0]))}).now
	}
	s, err := kube.New(config)
	if err != nil {
		return fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := s.Run(ctx); err != nil {
		return fail(err)
	}
	return 0
}

// instances are the schedulers of the crash test, each with a supervisor that starts it
// again when it has ended, as a kubelet does.
type instances struct {
	*cluster
	dir     string // where their logs are kept, if not empty
	running sync.WaitGroup
	end     context.CancelFunc

	mu     sync.Mutex
	storm  bool
	turned chan struct{}   // closed when the weather changes
	under  *sync.WaitGroup // the processes under this weather
	serial int
	counts map[string]int // what was done to them, and what they did
	faults []string
	ended  []time.Time // when those that decide were ended or stopped, or ended by themselves
}

// instance is one of them: its name, and what it decides on.
type instance struct {
	name   string
	shards []string
	rng    *rand.Rand
}

// launch starts instances, in a storm: requests fail, clocks jump, and processes are
// killed and stopped.
func (c *cluster) launch(seed uint64, list ...instance) *instances {
	c.Helper()
	ctx, cancel := context.WithCancel(ctx())
	a := &instances{cluster: c, dir: os.Getenv("MUSTER_CRASH_LOGS"), end: cancel, storm: true, turned: make(chan struct{}), under: &sync.WaitGroup{}, counts: map[string]int{}}
	for i := range list {
		list[i].rng = rand.New(rand.NewPCG(seed, uint64(i)))
		a.running.Go(func() { a.supervise(ctx, &list[i]) })
	}
	return a
}

// weather begins a storm or ends it: all processes are started again. It returns when those
// before have ended.
func (a *instances) weather(storm bool) {
	a.mu.Lock()
	before := a.under
	a.storm, a.under = storm, &sync.WaitGroup{}
	close(a.turned)
	a.turned = make(chan struct{})
	a.mu.Unlock()
	before.Wait()
}

// stop ends all of them, as people do, and returns what was found wrong with them.
func (a *instances) stop() []string {
	a.end()
	a.running.Wait()
	return a.faults
}

// ends returns when schedulers that decide were ended or stopped, or ended by themselves.
func (a *instances) ends() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.ended)
}

// notesEnd notes that one of them ends now, or stops.
func (a *instances) notesEnd() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = append(a.ended, time.Now())
}

func (a *instances) count(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts[what]++
}

// begins is called for a process to be. It says how the weather is, returns what is closed
// when that changes, and a number that no other process has; over is to be called when the
// process has ended.
func (a *instances) begins() (storm bool, turned <-chan struct{}, serial int, over func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serial++
	a.under.Add(1)
	return a.storm, a.turned, a.serial, a.under.Done
}

// supervise runs one process after the other.
func (a *instances) supervise(ctx context.Context, i *instance) {
	for ctx.Err() == nil {
		storm, turned, serial, over := a.begins()
		name := fmt.Sprintf("%s-%d", i.name, serial)
		c := crashing{
			Host: identity.Host, Token: identity.BearerToken, CA: identity.CAData, Identity: name, Shards: i.shards,
			Seed: [2]uint64{i.rng.Uint64(), i.rng.Uint64()},
		}
		if storm {
			c.Bad, c.Leaps = 300, true
		}
		p, err := a.start(&c)
		if err != nil {
			over()
			a.find("process %s: %v", name, err)
			return
		}
		a.haunt(ctx, i, p, storm, turned)
		over()
		p.close(a)
	}
}

// haunted is a process of an instance.
type haunted struct {
	*exec.Cmd
	name  string
	said  record
	ended chan struct{}
	asked bool // to end
	took  atomic.Bool
}

// Write takes what the process says.
func (p *haunted) Write(text []byte) (int, error) {
	if bytes.Contains(text, []byte("this instance schedules")) {
		p.took.Store(true)
	}
	return p.said.Write(text)
}

func (a *instances) start(c *crashing) (*haunted, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	p := &haunted{Cmd: exec.Command(os.Args[0]), name: c.Identity, ended: make(chan struct{})}
	p.Env, p.Stderr = append(os.Environ(), asScheduler+"="+string(text)), p
	if err := p.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = p.Wait()
	}()
	a.count("started")
	return p, nil
}

// haunt lets a process be for some time, and does something to it then; it returns when
// the process has ended. At the end, and when the storm is over, the process is ended too:
// by a signal that it cannot see, unless the test is over.
func (a *instances) haunt(ctx context.Context, i *instance, p *haunted, storm bool, turned <-chan struct{}) {
	rest := func(d time.Duration) (undisturbed bool) {
		select {
		case <-p.ended:
		case <-ctx.Done():
			a.signal(p, syscall.SIGTERM)
		case <-turned:
			a.signal(p, syscall.SIGKILL)
		case <-time.After(d):
			return true
		}
		<-p.ended
		return false
	}
	for {
		if !storm {
			rest(time.Duration(math.MaxInt64))
			return
		}
		// Most do not live long: they are killed at any moment of their start, while they list, or
		// acquire a lease. The others are to decide first.
		most := 500 * time.Millisecond
		if i.rng.IntN(4) == 0 {
			most = 2 * time.Second
			for k := 0; k < 500 && !p.decides(); k++ {
				if !rest(10 * time.Millisecond) {
					return
				}
			}
		}
		if !rest(instant(i.rng, most)) {
			return
		}
		switch roll := i.rng.IntN(20); {
		case roll < 11:
			a.signal(p, syscall.SIGKILL)
			<-p.ended
			return
		case roll < 13:
			a.signal(p, syscall.SIGTERM)
			if !rest(instant(i.rng, time.Second)) {
				return
			}
			a.signal(p, syscall.SIGKILL) // in the midst of it
			<-p.ended
			return
		default:
			a.signal(p, syscall.SIGSTOP)
			if !rest(instant(i.rng, 4*time.Second)) {
				return // a process that is stopped can be killed
			}
			if roll < 15 {
				a.signal(p, syscall.SIGKILL)
				<-p.ended
				return
			}
			a.signal(p, syscall.SIGCONT)
		}
	}
}

// instant is a random time from a millisecond on, as often of each order of magnitude.
func instant(rng *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(float64(time.Millisecond) * math.Pow(float64(most/time.Millisecond), rng.Float64()))
}

// signal sends a signal to a process that has not ended.
func (a *instances) signal(p *haunted, s syscall.Signal) {
	select {
	case <-p.ended:
		return
	default:
	}
	if p.decides() {
		a.count(s.String() + " while it decides")
		a.notesEnd()
	}
	if s == syscall.SIGKILL || s == syscall.SIGTERM {
		p.asked = true
	}
	if err := p.Process.Signal(s); err == nil {
		a.count(s.String())
	}
	if s == syscall.SIGTERM { // a process that is stopped does not see it
		_ = p.Process.Signal(syscall.SIGCONT)
	}
}

// decides reports whether a process has said that it decides on something.
func (p *haunted) decides() bool { return p.took.Load() }

// mishapPrefix begins the lines of a process about what happened to its requests.
const mishapPrefix = "mishap: "

// theEnd is what a process says when it cannot go on.
const theEnd = "the scheduler ends"

// mayEnd are errors with which a process may end by itself: the kubelet starts it again.
var mayEnd = []string{"another instance has taken the lease", "the API server does not answer"}

// close reads what a process said that has ended.
func (p *haunted) close(a *instances) {
	text := p.said.String()
	if a.dir != "" {
		if err := os.WriteFile(filepath.Join(a.dir, p.name+".log"), []byte(text), 0o644); err != nil {
			a.find("process %s: %v", p.name, err)
		}
	}
	for line := range strings.Lines(text) {
		if what, ok := strings.CutPrefix(strings.TrimSpace(line), mishapPrefix); ok {
			a.count("request: " + what)
		}
		for _, fault := range []string{"the engine refused an event", "cannot rebuild the engine", "is forbidden", "panic", "fatal error"} {
			if strings.Contains(line, fault) && !strings.Contains(line, "these counts are lost when the scheduler ends") {
				a.find("process %s said: %s", p.name, strings.TrimSpace(line))
			}
		}
	}
	if p.decides() {
		a.count("took a lease")
		a.notesEnd()
	}
	if !p.asked && p.ProcessState.ExitCode() != -1 {
		a.count("ended by itself")
		if why := reason(text); !slices.ContainsFunc(mayEnd, func(may string) bool { return strings.Contains(why, may) }) {
			a.find("process %s ended by itself with %v: %s", p.name, p.ProcessState, why)
		}
	}
}

// reason returns what a process said when it ended by itself; others of its goroutines may
// have said something after that.
func reason(text string) string {
	i := strings.LastIndex(text, theEnd)
	if i < 0 {
		return "it does not say why"
	}
	line, _, _ := strings.Cut(text[i:], "\n")
	return line
}

// find takes note of something that is wrong.
func (a *instances) find(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = append(a.faults, fmt.Sprintf(format, args...))
}
