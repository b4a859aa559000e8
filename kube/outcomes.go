package kube

import (
	"context"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/translate"
)

// outcomes puts what became of acts into the mailbox. It is the scheduler's
// [act.Outcomes].
type outcomes struct{ box *mailbox }

func (o outcomes) Bound(pod types.UID, ok, gone bool) {
	o.box.put(func(m *mirror) { m.bound(pod, ok, gone) })
}

func (o outcomes) ClaimWritten(c *resourceapi.ResourceClaim) {
	written := devices.ClaimOf(c)
	o.box.put(func(m *mirror) { m.devicesChanged(m.devices.ObserveWritten(written)) })
}

func (o outcomes) NotSuspended(id translate.Group) {
	o.box.put(func(m *mirror) { m.unpark(id) })
}

func (o outcomes) FoundSuspended(id translate.Group, since time.Time) {
	o.box.put(func(m *mirror) { m.park(id, since) })
}

func (o outcomes) Resumed(id translate.Group) {
	o.box.put(func(m *mirror) { m.resumed(id) })
}

func (o outcomes) MovedOff(pod types.UID, stayed *string) {
	o.box.put(func(m *mirror) { m.movedOff(pod, stayed) })
}

func (o outcomes) GangRead(ctx context.Context, id translate.Group, says *translate.Gang, err error) (again bool) {
	answer := make(chan bool, 1)
	o.box.put(func(m *mirror) { answer <- m.asked(id, says, err) })
	select {
	case <-ctx.Done():
		return false
	case again = <-answer:
		return again
	}
}

func (o outcomes) Recorded(pod types.UID) {
	o.box.put(func(m *mirror) { m.recorded(pod) })
}

func (o outcomes) NodeNotSelected(pod types.UID) {
	o.box.put(func(m *mirror) { m.notProvided(pod) })
}
