// Package act writes to the API what the scheduler decided.
//
// An act is a value: what to write, without any reference to the scheduler's tables. An
// [Actor] carries acts out in goroutines of its own, retries what may succeed later, and
// reports the outcome of each act to [Outcomes].
package act

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/after"
	"github.com/muster-sched/muster/kube/follow"
	"github.com/muster-sched/muster/kube/owners"
	"github.com/muster-sched/muster/kube/translate"
)

// Outcomes receives the outcomes of acts. An actor calls it from many goroutines.
type Outcomes interface {
	// Bound reports the answer to a binding: ok if the pod is bound, gone if it no longer
	// exists.
	Bound(pod types.UID, ok, gone bool)
	// ClaimWritten reports a resource claim as the API returned it after a change,
	// before the watch shows it.
	ClaimWritten(c *resourceapi.ResourceClaim)
	// NotSuspended reports that the owner of a group could not be suspended: its pods
	// are evicted.
	NotSuspended(translate.Group)
	// FoundSuspended reports a group whose owner was suspended by a previous instance,
	// and since when the group is in the queue.
	FoundSuspended(g translate.Group, since time.Time)
	// Resumed reports that the owner of a group is no longer suspended by Muster.
	Resumed(translate.Group)
	// MovedOff reports that the move of a pod has ended. stayed is the request of the
	// drain for which the pod could not leave; nil if it may be asked to leave again.
	MovedOff(pod types.UID, stayed *string)
	// GangRead reports the content of a group's object, or why it could not be read. It
	// returns whether to read the object again.
	GangRead(ctx context.Context, g translate.Group, says *owners.Gang, err error) (again bool)
	// GangChanged reports that an object of a group has changed since it was read.
	GangChanged(translate.Group)
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

// Acts are the acts of one pass of the scheduler.
type Acts struct {
	Bind    []Bind
	Release []translate.ClaimWrite // the resource claims whose devices are to be given back
	Select  []SelectNode
	Evict   []Evict
	// Together has the pods of gangs that save themselves together and then leave one by one.
	Together [][]Evict
	Suspend  []Suspend
	Move     []Move
	Stay     []Stay
	// Count has the pods whose eviction was cancelled, and which the Job controller must
	// count again.
	Count []Pod
	Read  []ReadGang
	// Forget has the groups whose objects need no longer be followed.
	Forget []translate.Group
	Report []Report
	// Standby has what to write into the condition [v1alpha1.StandbyCondition] of pods, and into
	// the annotation that has its reason.
	Standby []Report
	Record  []Record
	// Evictions has the counts of evictions to write on nodes.
	Evictions []Evictions
	Ledgers   []Ledger
	Warn      []Warning
}

// Config is the configuration of an actor.
type Config struct {
	Client   kubernetes.Interface
	Dynamic  dynamic.Interface  // for owners of any kind
	Muster   rest.Interface     // for Muster's own objects
	Metadata metadata.Interface // to watch what was read of them; nil: nothing is watched
	Outcomes Outcomes
	Saver    Saver // nil: no processes are asked to save themselves before their pods leave
	// StatusRate is the maximum number of conditions and statuses written per second; 100
	// if 0.
	StatusRate float32
	// Holds reports whether this instance decides on a shard; nil means always. An
	// eviction or a move in progress ends when this instance no longer decides on its
	// shard.
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
	saver    Saver
	holds    func(shard int) bool
	metrics  *Metrics
	log      *slog.Logger
	now      func() time.Time

	bindings    queue
	evicting    chan struct{}         // has an element for each eviction that is being asked for
	suspensions unfinished[suspended] // owners to resume
	moves       unfinished[move]
	reports     *reports
	standbys    *reports
	statuses    chan []Status // those to be written next
	statusLimit flowcontrol.RateLimiter
	mayNotNote  sync.Once // that counts of evictions cannot be written was said
	mayNotKeep  sync.Once // so was that ledgers cannot
	mayNotDrop  sync.Once // and that those no longer needed stay
	reading     reading
	follow      *follow.Watcher // nil without a client for it
	resources   sync.Map        // schema.GroupVersionKind to schema.GroupVersionResource
	limits      *after.Limits

	recorder   record.EventRecorder // of events; nil before Start
	workers    sync.WaitGroup
	stopEvents func()
}

// evictions is the number of concurrent evictions.
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
		client: c.Client, dynamic: c.Dynamic, muster: c.Muster, outcomes: c.Outcomes, saver: c.Saver, holds: c.Holds, metrics: c.Metrics, log: c.Log, now: c.Now,
		limits:   after.NewLimits(c.Now),
		evicting: make(chan struct{}, evictions), reports: newReports(), standbys: newReports(), statuses: make(chan []Status),
		statusLimit: flowcontrol.NewTokenBucketRateLimiter(c.StatusRate, 2*int(c.StatusRate)), stopEvents: func() {},
	}
	a.bindings.some.L = &a.bindings.mu
	if c.Metadata != nil {
		a.follow = follow.New(c.Metadata, c.Outcomes.GangChanged, c.Log)
	}
	return a
}

// Start carries acts out until ctx ends: at most as many bindings at once as the argument
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
		a.workers.Go(func() { a.writeReports(ctx, a.reports, a.reportWaiting) })
	}
	a.workers.Go(func() { a.writeReports(ctx, a.standbys, a.reportStandby) })
	a.workers.Go(func() { a.writeStatuses(ctx) })
	a.workers.Go(func() { wait.UntilWithContext(ctx, a.moveOn, lookPeriod) })
	a.workers.Go(func() { wait.UntilWithContext(ctx, a.resumeGone, lookPeriod) })
}

// Close waits until the bindings in progress are answered; others are not sent. The
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
	for _, list := range acts.Together {
		go a.evictTogether(ctx, list)
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
	if a.follow != nil {
		for _, g := range acts.Forget {
			a.follow.Drop(g)
		}
	}
	for _, x := range acts.Read {
		a.readGang(ctx, x)
	}
	a.reports.put(acts.Report...)
	a.standbys.put(acts.Standby...)
	if len(acts.Record) > 0 {
		go a.record(ctx, acts.Record)
	}
	if len(acts.Evictions) > 0 {
		go a.noteEvictions(ctx, acts.Evictions)
	}
	if len(acts.Ledgers) > 0 {
		go a.writeLedgers(ctx, acts.Ledgers)
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
	a.recorder.Event(ref, eventType, reason, plainText(message))
}

// plainText is a message as conditions and events have it: it may quote what a user wrote, and
// people read it on terminals. It has no control characters, and a length that people read.
func plainText(message string) string {
	const most = 2000
	message = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, message)
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most], "") + "…"
	}
	return message
}
