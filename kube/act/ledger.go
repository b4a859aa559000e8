package act

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Ledger writes an object with what the next engine has to know. Without a resource version, it is new. One that is Surplus is deleted,
// unless it has changed since.
type Ledger struct {
	Object  *v1alpha1.Ledger
	Shard   int
	Surplus bool
}

// writeLedgers writes ledgers. What could not be written is written when its turn comes again. A scheduler that may not
// write them says so once: what it has counted is lost when it ends.
func (a *Actor) writeLedgers(ctx context.Context, list []Ledger) {
	for _, x := range list {
		if !a.holds(x.Shard) || a.statusLimit.Wait(ctx) != nil {
			continue
		}
		if x.Surplus {
			a.deleteLedger(ctx, x.Object)
			continue
		}
		r := a.muster.Put().Name(x.Object.Name)
		if x.Object.ResourceVersion == "" {
			r = a.muster.Post()
		}
		err := r.Resource("ledgers").Body(x.Object).Do(ctx).Error()
		a.metrics.Request("ledger", err)
		switch {
		case err == nil || ctx.Err() != nil || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err):
		case apierrors.IsForbidden(err) || apierrors.IsNotFound(err) && x.Object.ResourceVersion == "":
			a.mayNotKeep.Do(func() {
				a.log.Warn("cannot write Ledger objects: the GPU time that queues and jobs received, and since when gangs are stale, are forgotten when the scheduler ends", "error", err)
			})
		case !apierrors.IsNotFound(err):
			a.log.Warn("cannot write a Ledger object", "name", x.Object.Name, "error", err)
		}
	}
}

// deleteLedger deletes an object of which no entry counts, if it is still as it was observed.
func (a *Actor) deleteLedger(ctx context.Context, o *v1alpha1.Ledger) {
	as := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion}}
	err := a.muster.Delete().Resource("ledgers").Name(o.Name).Body(as).Do(ctx).Error()
	a.metrics.Request("ledger", err)
	switch {
	case err == nil || ctx.Err() != nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err):
	case apierrors.IsForbidden(err):
		a.mayNotDrop.Do(func() { a.log.Warn("cannot delete Ledger objects that are no longer needed: they stay", "error", err) })
	default:
		a.log.Warn("cannot delete a Ledger object", "name", o.Name, "error", err)
	}
}
