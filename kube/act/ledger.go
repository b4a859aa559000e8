package act

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Ledger writes an object with what the next engine has to know. Without a resource version, it is new.
type Ledger struct {
	Object *v1alpha1.Ledger
	Shard  int
}

// writeLedgers writes ledgers. What could not be written is written when its turn comes again. A scheduler that may not
// write them says so once: what it has counted is lost when it ends.
func (a *Actor) writeLedgers(ctx context.Context, list []Ledger) {
	for _, x := range list {
		if !a.holds(x.Shard) || a.statusLimit.Wait(ctx) != nil {
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
