// Package follow watches the objects that say more of jobs than their pods do: PodGroups of other schedulers, and the
// owners of pods. When one changes that was read for a job, it is read again.
//
// A kind is watched, with its metadata alone, from when an object of it is first read. Nothing is kept of the objects but
// a line for each that was read. A change is one of the generation, which counts the changes of the spec, of a label or of
// an annotation: most changes are of the status, and none of these counts. A kind that may not be watched is not
// followed: its objects are read again while a job waits for what they may say wrongly.
package follow

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-sched/muster/kube/translate"
)

// A job is told at most once in a pause that an object has changed: some controllers write often. Whether a kind may be
// watched is tried again after refusedPause.
const (
	pause        = time.Second
	refusedPause = time.Minute
)

// Object names an object.
type Object struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
}

// Watcher follows objects. Its methods may be called from many goroutines.
type Watcher struct {
	client  metadata.Interface
	changed func(translate.Group)
	log     *slog.Logger

	mu    sync.Mutex
	kinds map[schema.GroupVersionResource]map[types.NamespacedName]*followed
	jobs  map[translate.Group]*follower
}

// followed is an object that is read for jobs.
type followed struct {
	seen    bool   // it was read, or the watch has shown it
	was     string // what counted of it then, empty if it did not exist
	version string // the resource version then, empty if it did not exist when it was read
	jobs    map[translate.Group]*follower
}

// follower is a job for which objects were read.
type follower struct {
	objects map[Object]bool
	told    time.Time // when it was told last that one has changed
	due     *time.Timer
}

// New returns a watcher that follows nothing. It calls changed, which must not wait, for a job when an object has changed
// that was read for it.
func New(client metadata.Interface, changed func(translate.Group), log *slog.Logger) *Watcher {
	return &Watcher{
		client: client, changed: changed, log: log,
		kinds: map[schema.GroupVersionResource]map[types.NamespacedName]*followed{}, jobs: map[translate.Group]*follower{},
	}
}

// Follow is called before an object is read for a job, so that no change is missed between the two. The kind of the object is watched
// until ctx ends.
func (w *Watcher) Follow(ctx context.Context, job translate.Group, at Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	objects := w.kinds[at.Resource]
	if objects == nil {
		objects = map[types.NamespacedName]*followed{}
		w.kinds[at.Resource] = objects
		go w.watch(ctx, at.Resource)
	}
	name := types.NamespacedName{Namespace: at.Namespace, Name: at.Name}
	f := objects[name]
	if f == nil {
		f = &followed{jobs: map[translate.Group]*follower{}}
		objects[name] = f
	}
	j := w.jobs[job]
	if j == nil {
		j = &follower{objects: map[Object]bool{}}
		w.jobs[job] = j
	}
	f.jobs[job], j.objects[at] = j, true
}

// Read records how an object was read for a job; o is nil if it does not exist. A job that read what is known to be old is told at once.
func (w *Watcher) Read(job translate.Group, at Object, o metav1.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.kinds[at.Resource][types.NamespacedName{Namespace: at.Namespace, Name: at.Name}]
	if f == nil || f.jobs[job] == nil {
		return // the job was dropped
	}
	is, version := signature(o), f.version
	if o != nil {
		version = o.GetResourceVersion()
	}
	switch old := o == nil || older(version, f.version); {
	case !f.seen:
		f.seen, f.was, f.version = true, is, version
	case f.was == is:
	case old:
		w.tell(job, f.jobs[job])
	default: // the watch is behind: for the other jobs, it has changed
		f.was, f.version = is, version
		for other, j := range f.jobs {
			if other != job {
				w.tell(other, j)
			}
		}
	}
}

// older reports whether a resource version is before another one.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// Drop forgets a job.
func (w *Watcher) Drop(job translate.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[job]
	if j == nil {
		return
	}
	if j.due != nil {
		j.due.Stop()
	}
	delete(w.jobs, job)
	for at := range j.objects {
		objects, name := w.kinds[at.Resource], types.NamespacedName{Namespace: at.Namespace, Name: at.Name}
		if f := objects[name]; f != nil {
			if delete(f.jobs, job); len(f.jobs) == 0 {
				delete(objects, name)
			}
		}
	}
}

// watch shows the watcher the objects of a kind until ctx ends.
func (w *Watcher) watch(ctx context.Context, r schema.GroupVersionResource) {
	of := w.client.Resource(r)
	for refused := false; ; refused = true {
		_, err := of.List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			break
		}
		if !refused && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) {
			w.log.Warn("objects that say more of jobs cannot be watched: what is corrected there is seen late, or not", "resource", r.GroupResource().String(), "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(refusedPause):
		}
	}
	cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return of.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return of.Watch(ctx, o)
		},
	}, &metav1.PartialObjectMetadata{}, kind{w, r}, cache.ReflectorOptions{Name: "muster " + r.GroupResource().String()}).RunWithContext(ctx)
}

// signature is a sum of what counts of an object: annotations may have 256 KiB.
func signature(o metav1.Object) string {
	if o == nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendln(nil, o.GetUID(), o.GetGeneration(), o.GetLabels(), o.GetAnnotations()))
	return string(sum[:])
}

// kind receives the objects of a kind, and keeps none.
type kind struct {
	w  *Watcher
	of schema.GroupVersionResource
}

// seen handles the current state of an object, which may have been deleted.
func (k kind) seen(x any, deleted bool) error {
	o, ok := x.(metav1.Object)
	if !ok {
		return fmt.Errorf("unexpected %T", x)
	}
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	f := k.w.kinds[k.of][types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}]
	if f == nil {
		return nil
	}
	if deleted {
		k.w.compare(f, o.GetResourceVersion(), "")
	} else {
		k.w.compare(f, o.GetResourceVersion(), signature(o))
	}
	return nil
}

// compare tells the jobs of an object if it has changed since it was seen.
func (w *Watcher) compare(f *followed, version, is string) {
	if older(version, f.version) {
		return // what was read is newer
	}
	changed := f.seen && f.was != is
	if f.seen, f.was, f.version = true, is, version; !changed {
		return
	}
	for job, j := range f.jobs {
		w.tell(job, j)
	}
}

// tell tells a job that an object has changed, at once or when its pause is over.
func (w *Watcher) tell(job translate.Group, j *follower) {
	if j.due != nil {
		return
	}
	wait := time.Until(j.told.Add(pause))
	j.due = time.AfterFunc(max(wait, 0), func() {
		w.mu.Lock()
		there := w.jobs[job] == j
		j.due, j.told = nil, time.Now()
		w.mu.Unlock()
		if there {
			w.changed(job)
		}
	})
}

// Add handles a new object.
func (k kind) Add(o any) error { return k.seen(o, false) }

// Update handles a changed object.
func (k kind) Update(o any) error { return k.seen(o, false) }

// Delete handles a deleted object.
func (k kind) Delete(o any) error { return k.seen(o, true) }

// Replace handles the list of all objects: at the start, and after a watch was lost.
func (k kind) Replace(list []any, version string) error {
	there := make(map[types.NamespacedName]bool, len(list))
	for _, x := range list {
		if err := k.seen(x, false); err != nil {
			return err
		}
		o := x.(metav1.Object)
		there[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}] = true
	}
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	for name, f := range k.w.kinds[k.of] {
		if !there[name] {
			k.w.compare(f, version, "")
		}
	}
	return nil
}

// Resync has nothing to do: nothing is cached.
func (kind) Resync() error { return nil }
