package act

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Evictions writes on a node how many LP pods were evicted from it.
type Evictions struct {
	Node  string
	UID   types.UID // of the node
	Count int
	Shard int // the node's
}

// noteEvictions writes counts of evictions. What could not be written is written in the next round.
// A scheduler that may not change nodes says so once: its counts are lost when it ends.
func (a *Actor) noteEvictions(ctx context.Context, list []Evictions) {
	for _, x := range list {
		if !a.holds(x.Shard) || a.statusLimit.Wait(ctx) != nil {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:"%d"}}}`, x.UID, v1alpha1.EvictionsAnnotation, x.Count)
		_, err := a.client.CoreV1().Nodes().Patch(ctx, x.Node, types.MergePatchType, patch, metav1.PatchOptions{})
		a.metrics.Request("evictions", err)
		switch {
		case err == nil || ctx.Err() != nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		case apierrors.IsForbidden(err):
			a.mayNotNote.Do(func() {
				a.log.Warn("cannot write on nodes how many spot pods were evicted from them: these counts are lost when the scheduler ends", "error", err)
			})
			return
		default:
			a.log.Warn("cannot write on a node how many spot pods were evicted from it", "node", x.Node, "error", err)
		}
	}
}
