package kube

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// outcomes puts what became of acts into the mailbox. It is the scheduler's
// [act.Outcomes].
type outcomes struct{ box *mailbox }

func (o outcomes) Bound(pod types.UID, ok, gone bool) {
	o.box.put(func(m *mirror) { m.bound(pod, ok, gone) })
}

func (o outcomes) ClaimWritten(c *resourceapi.ResourceClaim) {
	written := trimDeviceClaim(c)
	o.box.put(func(m *mirror) { m.claimWritten(written) })
}

func (o outcomes) NodeNotSelected(pod types.UID) {
	o.box.put(func(m *mirror) { m.notProvided(pod) })
}
