package act

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
)

// SelectNode writes into a volume claim the node for which to create or choose its
// volume; an empty Node removes it.
type SelectNode struct {
	Claim types.NamespacedName
	UID   types.UID // of the claim
	Node  string
	Pod   types.UID // the pod that gets the node; unused if Node is empty
}

// selectNode writes the node into the claim.
func (a *Actor) selectNode(ctx context.Context, x SelectNode) {
	var node any // null removes it
	if x.Node != "" {
		node = x.Node
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": x.UID, "annotations": map[string]any{volume.AnnSelectedNode: node}},
	})
	if err == nil {
		err = Retry(ctx, func() error {
			_, err := a.client.CoreV1().PersistentVolumeClaims(x.Claim.Namespace).Patch(ctx, x.Claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		})
		a.metrics.Request("choose", err)
	}
	if err != nil && x.Node != "" && ctx.Err() == nil {
		a.log.Warn("cannot write the chosen node on a volume claim", "claim", x.Claim, "node", x.Node, "error", err)
		a.outcomes.NodeNotSelected(x.Pod)
	}
}
