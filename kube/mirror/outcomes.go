package mirror

import (
	"context"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/owners"
	"github.com/muster-sched/muster/kube/translate"
)

// Outcomes puts the outcomes of acts into the mailbox. It is the scheduler's
// [act.Outcomes].
type Outcomes struct{ Box *Mailbox }

func (o Outcomes) Bound(pod types.UID, ok, gone bool) {
	o.Box.Put(func(m *Mirror) { m.bound(pod, ok, gone) })
}

func (o Outcomes) ClaimWritten(c *resourceapi.ResourceClaim) {
	written := devices.ClaimOf(c)
	o.Box.Put(func(m *Mirror) { m.devicesChanged(m.Devices.ObserveWritten(written)) })
}

func (o Outcomes) NotSuspended(id translate.Group) {
	o.Box.Put(func(m *Mirror) { m.unpark(id) })
}

func (o Outcomes) FoundSuspended(id translate.Group, since time.Time) {
	o.Box.Put(func(m *Mirror) { m.park(id, since) })
}

func (o Outcomes) Resumed(id translate.Group) {
	o.Box.Put(func(m *Mirror) { m.resumed(id) })
}

func (o Outcomes) MovedOff(pod types.UID, stayed *string) {
	o.Box.Put(func(m *Mirror) { m.movedOff(pod, stayed) })
}

func (o Outcomes) GangRead(ctx context.Context, id translate.Group, says *owners.Gang, err error) (again bool) {
	answer := make(chan bool, 1)
	o.Box.Put(func(m *Mirror) { answer <- m.asked(id, says, err) })
	select {
	case <-ctx.Done():
		return false
	case again = <-answer:
		return again
	}
}

func (o Outcomes) GangChanged(id translate.Group) {
	o.Box.Put(func(m *Mirror) { m.objectChanged(id) })
}

func (o Outcomes) Recorded(pod types.UID) {
	o.Box.Put(func(m *Mirror) { m.recorded(pod) })
}

func (o Outcomes) NodeNotSelected(pod types.UID) {
	o.Box.Put(func(m *Mirror) { m.notProvided(pod) })
}
