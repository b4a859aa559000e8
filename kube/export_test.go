package kube

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
)

// Puppet is a scheduler of which a test turns the loop: what was seen is taken
// in and a pass is made when the test says so, and not else.
type Puppet struct {
	*Scheduler
	// Held reports whether the API lets the binding of a pod wait for its answer; nil
	// for never. Nobody waits for such bindings.
	Held  func(namespace, name string) bool
	ended chan error
	stop  context.CancelFunc
}

// NewPuppet starts a scheduler and returns when it could decide.
func NewPuppet(c Config) (*Puppet, error) {
	s, err := New(c)
	if err != nil {
		return nil, err
	}
	p := &Puppet{Scheduler: s, ended: make(chan error, 1)}
	begun := make(chan struct{})
	s.drive = func(ctx context.Context) {
		close(begun)
		<-ctx.Done()
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	go func() { p.ended <- s.Run(ctx) }()
	select {
	case <-begun:
	case err := <-p.ended:
		return nil, err
	}
	return p, p.Until(func() error {
		if s.mirror.Engine() == nil {
			return fmt.Errorf("the cluster has not been listed")
		}
		return nil
	})
}

// Stop ends the scheduler.
func (p *Puppet) Stop() error {
	p.stop()
	return <-p.ended
}

// hung is how long a test waits for what must come. It only ends tests that would never end: on a
// machine with much other work, the API server may take seconds for what takes milliseconds else.
const hung = 2 * time.Minute

// Until takes in what is seen until check returns nothing, or returns what it
// returned last.
func (p *Puppet) Until(check func() error) error {
	m := p.mirror
	for deadline := time.Now().Add(hung); ; {
		m.At(core.Time(p.now().UnixNano()))
		for _, f := range p.box.Take(nil) {
			f(m)
		}
		acts, _ := m.Acts()
		p.actor.Do(context.Background(), acts)
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-p.box.Ready:
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Decide makes a pass and waits until what was decided has been done, as far as
// the API does it.
func (p *Puppet) Decide() error {
	m := p.mirror
	m.Decide(core.Time(p.now().UnixNano()))
	acts, _ := m.Acts()
	p.actor.Do(context.Background(), acts)
	return p.Until(p.carriedOut)
}

// Answered waits until a binding has had its answer.
func (p *Puppet) Answered(uid types.UID) error {
	return p.Until(func() error {
		if x := p.mirror.Pods[uid]; x != nil && x.InFlight {
			return fmt.Errorf("the binding of pod %s has no answer", x.Object.Name)
		}
		return p.carriedOut()
	})
}

// carriedOut returns an error until what was decided has been done.
func (p *Puppet) carriedOut() error {
	for _, x := range p.mirror.Pods {
		switch {
		case x.InFlight && p.Held != nil && p.Held(x.Object.Namespace, x.Object.Name):
		case x.InFlight, x.State == tables.PodBound && x.Object.Node == "":
			return fmt.Errorf("pod %s has not been bound", x.Object.Name)
		case x.State == tables.PodLeaving && !x.Object.Deleting:
			return fmt.Errorf("pod %s has not been evicted", x.Object.Name)
		}
	}
	return nil
}

// Settle tells the engine what has changed, so that what happened first is told
// first.
func (p *Puppet) Settle() { p.mirror.Settle() }

// Saw returns an error until an object has been seen as it was at a resource
// version (a ResourceSlice at a generation of its pool), or later; version "" asks
// that it is there no more.
func (p *Puppet) Saw(kind, namespace, name string, uid types.UID, version string) error {
	m := p.mirror
	seen := ""
	switch kind {
	case "Pod":
		if x := m.Pods[uid]; x != nil {
			seen = x.Object.ResourceVersion
		}
	case "PodGroup":
		if x := m.PodGroups[objects.Key(namespace, name)]; x != nil {
			seen = x.ResourceVersion
		}
	case "Node":
		if x := m.Nodes[name]; x != nil && !x.Gone {
			seen = x.Object.ResourceVersion
		}
	case "Queue":
		if x := m.Queues.Objects[name]; x != nil {
			seen = x.ResourceVersion
		}
	case "PriorityClass": // of which only the content is kept
		if _, ok := m.Priorities[name]; ok {
			seen = version
		}
	case "PodDisruptionBudget":
		if x := m.Peers.Budget(namespace, name); x != nil {
			seen = x.ResourceVersion
		}
	case "DeviceClass":
		if x := m.Devices.Class(name); x != nil {
			seen = x.ResourceVersion
		}
	case "ResourceClaim":
		if x := m.Devices.Claim(namespace, name); x != nil {
			seen = x.ResourceVersion
		}
	case "ResourceSlice": // of which the generation is kept
		if x := m.Devices.Slice(name); x != nil {
			seen = strconv.FormatInt(x.Generation, 10)
		}
	}
	want, _ := strconv.ParseUint(version, 10, 64)
	at, _ := strconv.ParseUint(seen, 10, 64)
	if version == "" && seen != "" || version != "" && at < want {
		return fmt.Errorf("%s %s has been seen at version %q; expected %q", kind, name, seen, version)
	}
	return nil
}

// Engine is what decides. It is the caller's between calls of the others.
func (p *Puppet) Engine() *core.Engine { return p.mirror.Engine().(*core.Engine) }
