// Package kube runs Muster on Kubernetes: it watches the API, feeds the engine with what it
// observes, and carries out what the engine decides. A pod passes through its packages in this
// order:
//
//	watch.go                reflectors
//	  feed/                 what they observe, as facts in the mailbox of the mirror
//	scheduler.go            the loop: one goroutine owns the mirror, and hands on its acts
//	  mirror/               from what is observed to the engine's events, and from its decisions to acts
//	    reports/            why jobs wait, and the statuses of Muster's own objects
//	    tables/             what is known of the cluster; answers questions and changes nothing
//	    objects/            what is kept of the API's objects, cut down
//	    standby/            which pods lend their GPUs, until when
//	    peers/ storage/ devices/ settings/ queues/ lost/   indexes: each observes, and returns what changed
//	    owners/             what the objects that make pods say of their jobs
//	    translate/          objects in the engine's words, and back
//	      keys/             the table of other schedulers' labels and annotations
//	  advise/               how long jobs are expected to run, from what their objects say and an advisor knows
//	  pause/                suspended jobs: their processes are paused, and go on, by agents of the nodes
//	  recovery/             why pods failed, from their logs, and what the engine decides about that
//	  follow/               objects that say more of jobs are watched, and read again when they change
//	  act/                  acts are written to the API; what became of them goes into the mailbox
//	tenure.go               how this instance takes shards over, and gives them up
//	  lease/                the Leases of shards, and the fence that every write passes
//	serve.go figures.go     metrics, health and figures
//	  stats/                the figures, summed up, and the metrics for Prometheus
//	client.go clock.go      a client for Muster's own objects, and a clock that no one can set
//
// Packages import only packages below them. Decisions count as carried out at once. Other
// goroutines carry them out; a failure returns as a fact in the mailbox.
package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/advise"
	"github.com/muster-sched/muster/kube/journey"
	"github.com/muster-sched/muster/kube/lease"
	"github.com/muster-sched/muster/kube/lost"
	"github.com/muster-sched/muster/kube/mirror"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/pause"
	"github.com/muster-sched/muster/kube/recovery"
	"github.com/muster-sched/muster/kube/standby"
	"github.com/muster-sched/muster/kube/stats"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// Config configures a scheduler; it does not change while the scheduler runs.
type Config struct {
	// API is the address of the API server and the credentials. Its request limits are
	// ignored: Workers and StatusRate limit the requests.
	API *rest.Config
	// Policy is the policy to use if there is no SchedulingPolicy object named
	// PolicyName. If it has no name, Run fails when there is no such object.
	Policy     core.Policy
	PolicyName string
	// Builtins finds the policies that SchedulingPolicy objects start from.
	Builtins v1alpha1.Builtins
	// Topology is the name of the Topology object to use. If empty, the oldest is used
	// or, if there is none, the well-known labels of nodes.
	Topology string
	// Levels are the levels of the topology, widest first, instead of any object;
	// usually empty.
	Levels []translate.Level
	// ClosedQueues says that a Queue without a namespaceSelector is for no namespace.
	ClosedQueues bool
	// Lost determines when the pods of nodes that are not ready are evicted.
	Lost lost.Config
	// Workers is the maximum number of concurrent bindings; 0 means 64.
	Workers int
	// StatusRate is the maximum number of conditions written per second; 0 means 100.
	StatusRate float32
	Log        *slog.Logger
	// Now is the clock; when nil, the machine's. It counts as it is when the scheduler is made, and then
	// only for the time that has passed by its monotonic readings, if it has some: it may be set.
	Now func() time.Time
	// PassLimit is how long a pass may last before Run ends with an error; 0 means 5 min.
	PassLimit time.Duration
	// Leader configures the leases, if other instances stand by or share the cluster.
	Leader lease.Leader
	// Shards are the pools that one instance decides on together, as
	// [lease.ParseShards] returns them, the same for all instances; nil for all pools in
	// one. Several need a Leader.
	Shards []lease.Shard
	// Traced is called once for each job, when enough of it runs, in the goroutine that
	// decides; may be nil.
	Traced func(*journey.Journey)
	// Record receives all that happens in the engine; may be nil.
	Record mirror.Recorder
	// Recording reports whether Record keeps what it receives; nil if it cannot fail.
	Recording func() bool
	// Logs opens the log of a container of a pod that failed; nil: the API's.
	Logs func(ctx context.Context, pod *v1.Pod, container string) (io.ReadCloser, error)
	// Diagnostic is the ConfigMap with the template of the Jobs that test nodes, see [recovery.Config]; zero for none.
	Diagnostic types.NamespacedName
	// Advisor says how long jobs run whose users do not say it; nil for none.
	Advisor advise.Advisor
	// Agents is how the agents of nodes are reached, which pause the processes of pods; Client is ignored. Nil: no job is suspended,
	// whatever the policy says.
	Agents *pause.Network
}

// Scheduler is Muster on one cluster.
type Scheduler struct {
	config   Config
	log      *slog.Logger
	now      func() time.Time
	client   kubernetes.Interface
	election *lease.Election
	fence    *lease.Fence   // what is written passes it; nil without an election
	muster   rest.Interface // for our own objects
	box      *mirror.Mailbox
	mirror   *mirror.Mirror
	actor    *act.Actor
	recovery *recovery.Handler
	advise   *advise.Handler // nil without an advisor
	pauses   *pause.Handler  // nil without agents
	metrics  *stats.Metrics

	drive    func(context.Context) // the loop, until its context ends
	watchdog watchdog
	listed   chan struct{} // closed when all objects have been listed once
	begun    sync.Once
	ready    chan struct{} // closed when it decides
	metadata metadata.Interface
	held     []atomic.Bool // the shards that are ours
}

// New returns a scheduler that has not started.
func New(c Config) (*Scheduler, error) {
	if err := c.settle(); err != nil {
		return nil, err
	}
	api := rest.CopyConfig(c.API)
	api.QPS, api.RateLimiter = -1, nil
	api.UserAgent = "muster"
	own := rest.CopyConfig(api)
	api.ContentType, api.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	var fence *lease.Fence
	if c.Leader.Namespace != "" {
		fence = lease.NewFence(&c.Leader, lease.SinceBoot)
	}
	passing, err := lease.Client(own, fence, c.Leader.RenewDeadline)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfigAndClient(api, passing)
	if err != nil {
		return nil, err
	}
	muster, err := newClient(own, passing)
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfigAndClient(own, passing)
	if err != nil {
		return nil, err
	}
	meta, err := metadata.NewForConfigAndClient(own, passing)
	if err != nil {
		return nil, err
	}
	leasing, err := kubernetes.NewForConfig(lease.LeaseConfig(api, &c.Leader))
	if err != nil {
		return nil, err
	}
	s := &Scheduler{
		config: c, log: c.Log, now: c.Now, client: client, muster: muster, fence: fence,
		box:     mirror.NewMailbox(),
		metrics: stats.NewMetrics(),
		listed:  make(chan struct{}), ready: make(chan struct{}),
		metadata: meta, held: make([]atomic.Bool, len(c.Shards)),
	}
	agents, pauses, saver := c.reach(client)
	s.actor = act.New(act.Config{
		Saver: saver, Client: client, Dynamic: dyn, Metadata: meta, Muster: muster, StatusRate: c.StatusRate, Metrics: s.metrics.Metrics, Log: c.Log, Now: c.Now,
		Outcomes: mirror.Outcomes{Box: s.box}, Holds: func(shard int) bool { return s.held[shard].Load() },
	})
	s.election = lease.New(lease.Config{
		Leader: c.Leader, Shards: c.Shards, Client: leasing, Fence: fence, Holder: tenure{s}, Log: c.Log, Now: c.Now, Requested: s.metrics.Request,
	})
	s.drive, s.watchdog.limit = s.loop, c.PassLimit
	next := c.Record
	if c.Advisor != nil {
		s.advise = advise.New(advise.Config{Client: client, Advisor: c.Advisor, Tell: s.tellLate, Pod: s.podOf, Next: next, Log: c.Log})
		next = s.advise
	}
	if c.Agents != nil {
		s.pauses = s.newPauses(agents, pauses, next)
		next = s.pauses
	}
	s.recovery = recovery.New(recovery.Config{Client: client, Log: c.Log, Tell: s.tell, Leads: s.leads, Now: c.Now, Next: next, Logs: c.Logs, Diagnostic: c.Diagnostic})
	s.mirror = mirror.New(mirror.Config{
		Policy: c.Policy, PolicyName: c.PolicyName, Builtins: c.Builtins, Levels: c.Levels, Topology: c.Topology, Lost: c.Lost, Shards: c.Shards,
		Log: c.Log, Metrics: s.metrics, Record: s.recovery, Traced: c.Traced, Failures: s.recovery.Failures, Pauses: c.Agents != nil, Sleeper: s.sleeper(), ClosedQueues: c.ClosedQueues,
	})
	s.metrics.Registry.MustRegister(&stats.Gauges{Stats: s.ownStats, Now: c.Now})
	if c.Recording != nil {
		s.metrics.Registry.MustRegister(recordingGauge(c.Recording))
	}
	for i, shard := range c.Shards {
		s.metrics.Registry.MustRegister(heldGauge(shard.Name(), &s.held[i]))
	}
	if _, err := core.New(core.Config{Policy: c.Policy}); err != nil {
		return nil, err
	}
	return s, nil
}

// settle sets the defaults, and checks what was set.
func (c *Config) settle() error {
	if c.Workers == 0 {
		c.Workers = 64
	}
	if c.PassLimit == 0 {
		c.PassLimit = 5 * time.Minute
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Now = steady(c.Now)
	if len(c.Shards) == 0 {
		c.Shards = []lease.Shard{{lease.RestPools}}
	}
	if len(c.Shards) > 1 && c.Leader.Namespace == "" {
		return errors.New("several shards: expected a namespace for their leases; found none")
	}
	c.Leader.Settle()
	return c.Leader.Check()
}

// Ready is closed when the scheduler has seen the whole cluster and decides.
func (s *Scheduler) Ready() <-chan struct{} { return s.ready }

// Run schedules until ctx ends. It returns nil then, and an error when it
// cannot go on.
func (s *Scheduler) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	synced, err := s.watch(ctx)
	if ctx.Err() != nil {
		return nil // it was asked to end before it began
	}
	if err != nil {
		return fmt.Errorf("the API server does not answer: %w", err)
	}
	s.actor.Start(ctx, s.config.Workers)
	if s.pauses != nil {
		s.pauses.Start(ctx)
	}
	go s.recovery.Run(ctx)
	if s.advise != nil {
		go s.advise.Run(ctx)
	}
	var leader sync.WaitGroup
	stopped := make(chan struct{})
	leader.Go(func() {
		for _, c := range synced {
			select {
			case <-c:
			case <-ctx.Done():
				return
			}
		}
		close(s.listed)
		s.election.Run(ctx, stopped, cancel)
	})
	if err := s.guard(ctx); err != nil {
		return err // what hangs is not waited for; the leases expire
	}
	s.finish(stopped)
	leader.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// guard runs the loop until its context ends, and returns an error if it is stuck.
func (s *Scheduler) guard(ctx context.Context) error {
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.drive(ctx)
	}()
	if !s.watchdog.watch(over) {
		return nil
	}
	err := stuckError{s.watchdog.limit}
	s.log.Error(err.Error(), "stacks", stacks())
	return err
}

// tell hands an event about a failure on to the engine, if there is one by then.
func (s *Scheduler) tell(ev core.Event) {
	s.box.Put(func(m *mirror.Mirror) {
		if m.Engine() == nil {
			return
		}
		if d, ok := ev.(core.JobDiagnosed); ok {
			d.At = min(d.At, m.Now) // the node's clock may be ahead
			ev = d
		}
		m.Tell(ev)
	})
}

// tellLate tells the engine what a function returns, if there is an engine by then and it returns anything.
func (s *Scheduler) tellLate(event func() core.Event) {
	s.box.Put(func(m *mirror.Mirror) {
		if m.Engine() == nil {
			return
		}
		if ev := event(); ev != nil {
			m.Tell(ev)
		}
	})
}

// podOf returns a pod of a job: of those with GPUs, if there are any, the first by name. It waits for the goroutine that owns the tables.
func (s *Scheduler) podOf(ctx context.Context, job string) (types.NamespacedName, bool) {
	found := make(chan types.NamespacedName, 1)
	s.box.Put(func(m *mirror.Mirror) {
		defer close(found)
		g := m.Jobs[job]
		if g == nil {
			return
		}
		all := tables.InOrder(g.Pods, func(*tables.Pod) bool { return true })
		if i := slices.IndexFunc(all, func(p *tables.Pod) bool { return p.Object.HasGPUs() || p.Object.Request.GPU > 0 }); i > 0 {
			all = all[i:]
		}
		if len(all) > 0 {
			found <- objects.KeyOf(&all[0].Object.ObjectMeta)
		}
	})
	select {
	case name, ok := <-found:
		return name, ok
	case <-ctx.Done():
		return types.NamespacedName{}, false
	}
}

// sleeper is what stops the processes of pods on standby; nil without agents.
func (s *Scheduler) sleeper() standby.Sleeper {
	if s.pauses == nil {
		return nil
	}
	return s.pauses
}

// reach returns how the agents of nodes are reached, the metrics of what they do, and what has processes save themselves; nil without agents.
func (c *Config) reach(client kubernetes.Interface) (*pause.Network, *pause.Metrics, act.Saver) {
	if c.Agents == nil {
		return nil, nil, nil
	}
	agents, metrics := *c.Agents, pause.NewMetrics()
	agents.Client = client
	return &agents, metrics, pause.NewSaver(&agents, metrics, c.Log, c.Now)
}

// newPauses returns the handler of pauses, which tells next what it is told.
func (s *Scheduler) newPauses(agents *pause.Network, metrics *pause.Metrics, next mirror.Recorder) *pause.Handler {
	s.metrics.Registry.MustRegister(metrics.Collectors()...)
	s.metrics.Registry.MustRegister(pause.ExpiryGauge(agents.TLS))
	return pause.New(pause.Config{
		Client: s.client, Agents: agents, Tables: pausing{s}, Put: func(f func()) { s.box.Put(func(*mirror.Mirror) { f() }) },
		Next: next, Metrics: metrics, Log: s.log, Now: s.now,
	})
}

// pausing is what the handler of pauses asks and tells the tables.
type pausing struct{ *Scheduler }

// PodOf is that of [pause.Tables].
func (s pausing) PodOf(job string, pod int) *tables.Pod {
	g := s.mirror.Jobs[job]
	if g == nil || !s.mirror.Decides(g) || pod >= len(g.Slots) {
		return nil
	}
	return g.Slots[pod]
}

// PodsOf is that of [pause.Tables].
func (s pausing) PodsOf(job string) (list []*tables.Pod) {
	if g := s.mirror.Jobs[job]; g != nil && s.mirror.Decides(g) {
		list = slices.DeleteFunc(slices.Clone(g.Slots), func(p *tables.Pod) bool { return p == nil })
	}
	return list
}

// PodBy is that of [pause.Tables].
func (s pausing) PodBy(uid types.UID) *tables.Pod { return s.mirror.Pods[uid] }

// Tell is that of [pause.Tables].
func (s pausing) Tell(ev core.Event) { s.mirror.Tell(ev) }

// Leave is that of [pause.Tables].
func (s pausing) Leave(list []*tables.Pod, reason, message string) {
	s.mirror.Leave(list, reason, message)
}

// NotePod is that of [pause.Tables].
func (s pausing) NotePod(p *tables.Pod) { s.mirror.NotePod(p) }

// leads reports whether this instance decides on anything now.
func (s *Scheduler) leads() bool { return len(s.Holds()) > 0 && !s.fence.Stale() }

// finish waits until no act is in flight, and closes stopped: other instances may decide
// then.
func (s *Scheduler) finish(stopped chan<- struct{}) {
	s.actor.Close()
	if s.pauses != nil {
		s.pauses.Wait()
	}
	s.fence.Wait()
	close(stopped)
}

// loop owns the tables: it applies the facts in the mailbox, decides, and hands the
// decisions to the workers.
func (s *Scheduler) loop(ctx context.Context) {
	m := s.mirror
	var spare []mirror.Fact
	wake := time.NewTimer(time.Hour)
	defer wake.Stop()
	status := time.NewTicker(statusPeriod)
	defer status.Stop()
	look := time.NewTicker(statusesPeriod)
	defer look.Stop()
	var statuses []act.Status
	var show chan<- []act.Status // nil while there is nothing to show
	stale := false
	for {
		s.watchdog.begin()
		select {
		case <-ctx.Done():
			return
		case <-s.box.Ready:
		case <-wake.C:
		case <-status.C:
			m.At(core.Time(s.now().UnixNano()))
			if s.actor.Do(ctx, act.Acts{Report: m.Explain(explained)}); m.Broken() {
				wake.Reset(0)
			}
			continue
		case <-look.C:
			if statuses, show = m.Statuses(metav1.NewTime(s.now())), nil; len(statuses) > 0 {
				show = s.actor.Statuses()
			}
			s.actor.Do(ctx, m.Memory())
			continue
		case show <- statuses:
			show = nil
			continue
		}
		if s.fence.Stale() {
			// Others may decide. This instance goes on if it turns out that none did, which the
			// next facts show, and ends otherwise.
			if !stale {
				s.log.Warn("the lease was not renewed in time: scheduling pauses until it is")
			}
			stale = true
			continue
		}
		stale = false
		m.At(core.Time(s.now().UnixNano()))
		list := s.box.Take(spare)
		for _, f := range list {
			f(m)
		}
		spare = list
		began := time.Now()
		m.Decide(core.Time(s.now().UnixNano()))
		s.metrics.Decide.Observe(time.Since(began).Seconds())
		acts, wakeAt := m.Acts()
		s.actor.Do(ctx, acts)
		next := time.Hour
		if wakeAt != core.Never {
			next = max(0, time.Unix(0, int64(wakeAt)).Sub(s.now()))
		}
		wake.Reset(next)
	}
}

// Holds names the shards that this instance decides on.
func (s *Scheduler) Holds() []string {
	var names []string
	for i, shard := range s.config.Shards {
		if s.held[i].Load() {
			names = append(names, shard.Name())
		}
	}
	return names
}

// statusPeriod is the time between two rounds of questions about waiting jobs, explained the
// number of jobs in a round at most: a question costs a millisecond or two in the largest
// clusters.
const (
	statusPeriod = 250 * time.Millisecond
	explained    = 20
)

// statusesPeriod is the time between two looks at statuses.
const statusesPeriod = 3 * time.Second
