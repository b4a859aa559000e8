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

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Outcomes receives what became of acts. An actor calls it from many goroutines.
type Outcomes interface {
	// Bound reports the answer to a binding: ok if the pod is bound, gone if it does
	// not exist any more.
	Bound(pod types.UID, ok, gone bool)
	// ClaimWritten reports a resource claim as the API returned it after a change,
	// before the watch shows it.
	ClaimWritten(c *resourceapi.ResourceClaim)
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
	Release []Claim // the resource claims whose devices are to be given back
	Select  []SelectNode
}

// Config is what an actor works with.
type Config struct {
	Client   kubernetes.Interface
	Outcomes Outcomes
	// Metrics counts the requests; nil for metrics of its own.
	Metrics *Metrics
	Log     *slog.Logger     // nil for none
	Now     func() time.Time // nil for the machine's clock
}

// Actor carries acts out.
type Actor struct {
	client   kubernetes.Interface
	outcomes Outcomes
	metrics  *Metrics
	log      *slog.Logger
	now      func() time.Time

	bindings queue
}

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
	a := &Actor{client: c.Client, outcomes: c.Outcomes, metrics: c.Metrics, log: c.Log, now: c.Now}
	a.bindings.some.L = &a.bindings.mu
	return a
}

// Run binds pods, so many at once, until Close is called and what was begun is answered.
func (a *Actor) Run(ctx context.Context, workers int) {
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { a.bindAll(ctx) })
	}
	group.Wait()
}

// Close ends the binding of pods. What has not been begun never is.
func (a *Actor) Close() { a.bindings.close() }

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
}
