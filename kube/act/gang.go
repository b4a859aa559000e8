package act

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/after"
	"github.com/muster-sched/muster/kube/follow"
	"github.com/muster-sched/muster/kube/owners"
	"github.com/muster-sched/muster/kube/translate"
)

// ReadGang reads the objects that say what the pods of a job do not, such as the size of their gang, and the
// owners of these. It is the only act that writes nothing.
type ReadGang struct {
	Group   translate.Group
	Objects []translate.ObjectRef
}

// An object that could not be read is read again after gangPause: its controller may
// create it after the pods, or a cache of the API server may be late. The pause doubles
// each time, up to gangPauseMost.
const (
	gangPause     = 100 * time.Millisecond
	gangPauseMost = 5 * time.Second
)

// mostOwners bounds how many objects one is owned by, one above the other: the API server does not.
const mostOwners = 8

// reading has the groups whose objects are being read.
type reading struct {
	mu sync.Mutex
	of map[translate.Group]*readingOf
}

// readingOf is the reading of a group.
type readingOf struct {
	objects []translate.ObjectRef // those that were asked for last
	wake    chan struct{}         // to read them again at once
}

// begin returns a channel on which the group is asked for again, nil if it is being read: then it is
// asked for on the channel of before.
func (r *reading) begin(x ReadGang) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := r.of[x.Group]; of != nil {
		of.objects = x.Objects
		select {
		case of.wake <- struct{}{}:
		default: // it is asked for already
		}
		return nil
	}
	if r.of == nil {
		r.of = map[translate.Group]*readingOf{}
	}
	of := &readingOf{x.Objects, make(chan struct{}, 1)}
	r.of[x.Group] = of
	return of.wake
}

// objects are those to read for a group that is being read.
func (r *reading) objects(g translate.Group) []translate.ObjectRef {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[g].objects
}

// end reports whether the group was not asked for again; then it is no longer being read.
func (r *reading) end(g translate.Group) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.of[g].wake:
		return false
	default:
		delete(r.of, g)
		return true
	}
}

// stop says that the group is no longer being read, whoever asks for it.
func (r *reading) stop(g translate.Group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, g)
}

// readGang reads the objects of a group, again and again until they need no longer be read. Where
// that is under way, it does not wait for its next turn.
func (a *Actor) readGang(ctx context.Context, x ReadGang) {
	if wake := a.reading.begin(x); wake != nil {
		go a.readAgain(ctx, x.Group, wake)
	}
}

func (a *Actor) readAgain(ctx context.Context, g translate.Group, wake <-chan struct{}) {
	for pause := gangPause; ; pause = min(2*pause, gangPauseMost) {
		gang, err := a.gang(ctx, g, a.reading.objects(g))
		if !a.outcomes.GangRead(ctx, g, gang, err) {
			if a.reading.end(g) {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
			a.reading.stop(g)
			return
		case <-wake:
		case <-time.After(pause):
		}
	}
}

// gang reads the objects once, each with its owners. What one says counts before what its owner says, and this
// before what the next object says.
func (a *Actor) gang(ctx context.Context, group translate.Group, refs []translate.ObjectRef) (*owners.Gang, error) {
	g, read := &owners.Gang{}, map[translate.ObjectRef]bool{}
	for _, ref := range refs {
		var is types.UID
		for range mostOwners {
			if read[ref] {
				break
			}
			read[ref] = true
			o, err := a.said(ctx, group, &ref, is)
			if err == nil && o != nil {
				err = g.Under(o)
			}
			if err == nil && o != nil {
				err = a.after(ctx, o)
			}
			if err != nil {
				return nil, err
			}
			if o == nil {
				break
			}
			// A suspended RayJob creates another RayCluster, which waits in the place of the first.
			if _, again := translate.SuspensionOf(ref.GroupKind()); again && is != "" {
				g.Since = o.GetCreationTimestamp().Time
			}
			up := metav1.GetControllerOf(o)
			if up == nil {
				break
			}
			ref, is = translate.ObjectRef{GroupVersionKind: schema.FromAPIVersionAndKind(up.APIVersion, up.Kind), Name: up.Name}, up.UID
		}
	}
	return g, nil
}

// after returns an error unless the jobs have ended after which an object says that its pods start.
func (a *Actor) after(ctx context.Context, o *unstructured.Unstructured) error {
	wrong := func(err error) error {
		return &owners.WrongError{Object: o.GetKind() + " " + o.GetName(), Text: err.Error()}
	}
	jobs := a.client.BatchV1().Jobs(o.GetNamespace())
	if text := o.GetAnnotations()[v1alpha1.DependencyAnnotation]; text != "" {
		d, err := after.Parse(text)
		if err != nil {
			return wrong(fmt.Errorf("%s: %q: %w", v1alpha1.DependencyAnnotation, text, err))
		}
		if err := d.Check(ctx, o, jobs); err != nil {
			return err
		}
	}
	limit, err := after.ParseLimit(o)
	switch {
	case err != nil:
		return wrong(err)
	case limit == nil:
		return nil
	}
	return a.limits.Check(ctx, o.GetNamespace(), limit, jobs)
}

// said reads an object, of the UID if one is given. It returns nil for an object without which the job can start
// and that does not exist or cannot be read: what is not known changes nothing.
func (a *Actor) said(ctx context.Context, group translate.Group, ref *translate.ObjectRef, is types.UID) (*unstructured.Unstructured, error) {
	optional := is != "" || !owners.Sizes(ref)
	resource, err := a.resource(ref.GroupVersionKind)
	if errors.Is(err, errNotServed) && optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	at := follow.Object{Resource: resource, Namespace: group.Namespace, Name: ref.Name}
	if a.follow != nil {
		a.follow.Follow(ctx, group, at)
	}
	o, err := a.dynamic.Resource(resource).Namespace(group.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	a.metrics.Request("get", err)
	switch {
	case a.follow == nil:
	case err == nil:
		a.follow.Read(group, at, o)
	case apierrors.IsNotFound(err):
		a.follow.Read(group, at, nil)
	}
	switch {
	case optional && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)):
		return nil, nil
	case err != nil:
		return nil, err
	case is != "" && o.GetUID() != is:
		return nil, nil // another has its name
	}
	return o, nil
}
