// Package act writes to the API what the scheduler decided.
//
// An act is a value: what is to be written, and nothing of the scheduler's tables. An
// [Actor] carries acts out beside the goroutine that decides, tries again what may
// succeed later, and reports what became of each to [Outcomes].
package act

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/translate"
)

// Outcomes receives what became of acts. An actor calls it from many goroutines.
type Outcomes interface {
	// Bound reports the answer to a binding: ok if the pod is bound, gone if it does
	// not exist any more.
	Bound(pod types.UID, ok, gone bool)
	// ClaimWritten reports a resource claim as the API returned it after a change,
	// before the watch shows it.
	ClaimWritten(c *resourceapi.ResourceClaim)
	// NotSuspended reports that the owner of a group could not be suspended: its pods
	// are evicted.
	NotSuspended(translate.Group)
	// FoundSuspended reports a group whose owner an instance suspended that decided
	// before, since when it is in the queue.
	FoundSuspended(g translate.Group, since time.Time)
	// Resumed reports that the owner of a group is not suspended by Muster any more.
	Resumed(translate.Group)
	// MovedOff reports that a pod is not being moved any more. stayed is the request of
	// the drain for which it could not leave; nil when it may be asked to leave again.
	MovedOff(pod types.UID, stayed *string)
	// GangRead reports what the object of a group says, or why it could not be read. It
	// returns whether the object is to be read again.
	GangRead(ctx context.Context, g translate.Group, says *translate.Gang, err error) (again bool)
	// Recorded reports that the record of a pod was written, or could not be.
	Recorded(pod types.UID)
	// NodeNotSelected reports that the node of a pod could not be written into its
	// volume claim.
	NodeNotSelected(pod types.UID)
}

// Pod names a pod. The UID keeps an act from another pod of the same name.
type Pod struct {
	Namespace, Name string
	UID             types.UID
}

// String is namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Acts is what one pass of the scheduler asks for.
type Acts struct {
	Bind    []Bind
	Release []translate.ClaimWrite // the resource claims whose devices are to be given back
	Select  []SelectNode
	Evict   []Evict
	Suspend []Suspend
	Move    []Move
	Stay    []Stay
	// Count has the pods that were to be evicted, and are to be counted again by the Job
	// controller.
	Count  []Pod
	Read   []ReadGang
	Report []Report
	Record []Record
	Warn   []Warning
}

// Config is what an actor works with.
type Config struct {
	Client   kubernetes.Interface
	Dynamic  dynamic.Interface // for owners of any kind
	Muster   rest.Interface    // for Muster's own objects
	Outcomes Outcomes
	// StatusRate is how many conditions and statuses are written in a second at most;
	// 100 when 0.
	StatusRate float32
	// Holds reports whether this instance decides on a shard. An eviction or a move that
	// takes time ends when it does not any more. nil for always.
	Holds func(shard int) bool
	// Metrics counts the requests; nil for metrics of its own.
	Metrics *Metrics
	Log     *slog.Logger     // nil for none
	Now     func() time.Time // nil for the machine's clock
}

// Actor carries acts out.
type Actor struct {
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	muster   rest.Interface
	outcomes Outcomes
	holds    func(shard int) bool
	metrics  *Metrics
	log      *slog.Logger
	now      func() time.Time

	bindings    queue
	evicting    chan struct{}         // has an element for each eviction that is being asked for
	suspensions unfinished[suspended] // owners to resume
	moves       unfinished[move]
	reports     *reports
	statuses    chan []Status // those to be written next
	statusLimit flowcontrol.RateLimiter
	resources   sync.Map // schema.GroupVersionKind to schema.GroupVersionResource

	recorder   record.EventRecorder // of events; nil before Start
	workers    sync.WaitGroup
	stopEvents func()
}

// evictions is how many evictions are asked for at once.
const evictions = 32

// New returns an actor. It binds no pods before Run.
func New(c Config) *Actor {
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.StatusRate == 0 {
		c.StatusRate = 100
	}
	if c.Holds == nil {
		c.Holds = func(int) bool { return true }
	}
	a := &Actor{
		client: c.Client, dynamic: c.Dynamic, muster: c.Muster, outcomes: c.Outcomes, holds: c.Holds, metrics: c.Metrics, log: c.Log, now: c.Now,
		evicting: make(chan struct{}, evictions), reports: newReports(), statuses: make(chan []Status),
		statusLimit: flowcontrol.NewTokenBucketRateLimiter(c.StatusRate, 2*int(c.StatusRate)), stopEvents: func() {},
	}
	a.bindings.some.L = &a.bindings.mu
	return a
}

// Start begins to carry acts out until ctx ends: as many bindings at once as the argument
// says, and moves and suspensions step by step.
func (a *Actor) Start(ctx context.Context, bindings int) {
	broadcaster := record.NewBroadcasterWithCorrelatorOptions(record.CorrelatorOptions{QPS: 1. / 60, BurstSize: 10})
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: a.client.CoreV1().Events("")})
	a.recorder = broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: v1alpha1.SchedulerName})
	a.stopEvents = broadcaster.Shutdown
	for range bindings {
		a.workers.Go(func() { a.bindAll(ctx) })
	}
	for range 4 {
		a.workers.Go(func() { a.writeReports(ctx) })
	}
	a.workers.Go(func() { a.writeStatuses(ctx) })
	a.workers.Go(func() { wait.UntilWithContext(ctx, a.moveOn, lookPeriod) })
	a.workers.Go(func() { wait.UntilWithContext(ctx, a.resumeGone, lookPeriod) })
}

// Close waits until the bindings that were begun are answered; the others never are. The
// context of Start must have ended.
func (a *Actor) Close() {
	a.bindings.close()
	a.workers.Wait()
	a.stopEvents()
}

// Do begins acts and returns at once. Acts of one kind on different objects may end in
// any order.
func (a *Actor) Do(ctx context.Context, acts Acts) {
	a.bindings.put(acts.Bind...)
	if len(acts.Release) > 0 {
		go a.giveBack(ctx, acts.Release)
	}
	for _, x := range acts.Select {
		go a.selectNode(ctx, x)
	}
	for _, x := range acts.Evict {
		go a.evict(ctx, x)
	}
	for i := range acts.Suspend {
		go a.suspend(ctx, &acts.Suspend[i])
	}
	for _, x := range acts.Move {
		a.moves.add(move{Move: x})
	}
	for _, x := range acts.Stay {
		go a.stay(ctx, x)
	}
	for _, x := range acts.Count {
		go a.countAgain(ctx, x)
	}
	for _, x := range acts.Read {
		go a.readGang(ctx, x)
	}
	a.reports.put(acts.Report...)
	if len(acts.Record) > 0 {
		go a.record(ctx, acts.Record)
	}
	for _, x := range acts.Warn {
		a.event("Pod", x.Pod, v1.EventTypeWarning, x.Reason, x.Message)
	}
}

// event publishes an event on an object, a Pod or a PodGroup.
func (a *Actor) event(kind string, o Pod, eventType, reason, message string) {
	if a.recorder == nil {
		return
	}
	ref := &v1.ObjectReference{Kind: kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID, APIVersion: "v1"}
	if kind == "PodGroup" {
		ref.APIVersion = "scheduling.k8s.io/v1beta1"
	}
	a.recorder.Event(ref, eventType, reason, message)
}
