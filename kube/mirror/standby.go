package mirror

import (
	"fmt"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// This file lets pods lend their GPUs (core.StandbyBegan):
//
//  1. An annotation says until when. The pod's place on its node is what it has then
//     (tables.Pod.After): what it gives back by being resized is kept for it.
//  2. When it requests no more than it is to keep, the engine lends its GPUs and the rest. The
//     condition Standby says so, with the pod's place, for the next instance.
//  3. When the time is over, or the annotation is gone, or the pod requests more again, the engine
//     evicts the pods there.
//  4. When the last has left, the engine decides core.Resume. The condition tells the pod.
//
// An engine that is built again receives the pods that lend before those on their GPUs.

// sweepStandby tells the engine what pods say about standby now.
func (m *driver) sweepStandby() {
	if len(m.resting) == 0 {
		return
	}
	for _, p := range tables.InOrder(m.resting, func(p *tables.Pod) bool {
		return p.Group != nil && m.Decides(p.Group) && p.Slot >= 0 && p.State == tables.PodBound && !p.InFlight
	}) {
		m.standby(p)
	}
}

// standby compares what a pod says about standby with what it does.
func (m *driver) standby(p *tables.Pod) {
	s, l, n := p.Object.Standby, p.Lending, m.Nodes[p.Target]
	until := objects.TimeOf(s.Until)
	asks := s.Wrong == "" && !s.Until.IsZero() && until > m.Now && !p.Object.Deleting && (n == nil || n.Object.Drain == nil)
	switch {
	case l == nil && !asks:
		if s.Wrong != "" {
			m.sayStandby(p, v1alpha1.StandbyRefused, s.Wrong)
		}
	case l == nil:
		if why := m.MayLend(p); why != "" {
			m.sayStandby(p, v1alpha1.StandbyRefused, why)
		} else if why := p.ToBeResized(); why != "" {
			m.sayStandby(p, v1alpha1.StandbyPreparing, why)
		} else if err := m.lend(p, until); err != nil {
			m.sayStandby(p, v1alpha1.StandbyRefused, err.Error())
		}
	case l.Returning: // until the engine decides that it goes on
	case !asks || p.ToBeResized() != "": // it waits for what it gave back
		l.Returning, l.Since = true, min(l.Until, m.Now)
		m.mustTell(core.StandbyEnded{Job: p.Group.Job, Pods: []int{p.Slot}})
		m.sayStandby(p, v1alpha1.StandbyReturning, "the pods on its GPUs are evicted")
	case until != l.Until:
		if err := m.lend(p, until); err != nil {
			m.sayStandby(p, v1alpha1.StandbyRefused, err.Error())
		}
	}
}

// lend tells the engine that a pod lends its GPUs, or until when it does.
func (m *driver) lend(p *tables.Pod, until core.Time) error {
	if err := m.tellStandby(p, until); err != nil {
		return err
	}
	m.sayStandby(p, v1alpha1.StandbyLending, fmt.Sprintf("LP jobs may use its GPUs %s until %s", translate.Devices(p.Devices), translate.Clock(until)))
	return nil
}

// lendAgain tells a new engine that a pod is on standby, before it receives the pods on its GPUs.
// What the pod says now counts from the next pass on.
func (m *driver) lendAgain(p *tables.Pod) {
	if !p.Lends() || p.State != tables.PodBound || !m.Decides(p.Group) {
		return
	}
	until := objects.TimeOf(p.Object.Standby.Until)
	if p.Lending != nil {
		until = p.Lending.Until
	}
	if p.Object.Standby.Until.IsZero() || p.Lending != nil && p.Lending.Returning {
		until = m.Now
	}
	was := p.Lending
	if err := m.tellStandby(p, max(until, m.Now)); err != nil {
		m.log.Warn("a pod is no longer on standby", "pod", p.Ref().String(), "why", err)
		p.Lending = nil
	} else if was != nil {
		p.Lending = was
	}
}

// tellStandby is lend without a message.
func (m *driver) tellStandby(p *tables.Pod, until core.Time) error {
	ev := core.StandbyBegan{Job: p.Group.Job, Pods: []int{p.Slot}, Until: until, CPUMilli: p.Object.Amounts.CPUMilli, MemMiB: p.Object.Amounts.MemMiB}
	if k := p.Object.Standby.Keeps; k != nil {
		ev.CPUMilli, ev.MemMiB = k.CPUMilli, k.MemMiB
	}
	if err := m.tell(ev); err != nil {
		return err
	}
	p.Lending = &tables.Lending{Until: until}
	m.NotePod(p)
	return nil
}

// resume tells pods that their GPUs are their own again.
func (m *driver) resume(d *core.Decision) {
	g := m.Jobs[d.Job]
	m.touch(g) // a job that was suspended takes pods again
	for i := range d.Pods {
		p := g.Slots[d.Pods[i].Pod]
		l := p.Lending
		if l == nil {
			continue
		}
		if !l.Returning {
			l.Since = min(l.Until, m.Now)
		}
		p.Lending = nil
		m.NotePod(p)
		took := m.Now - l.Since
		m.metrics.Resumed(took)
		m.sayStandby(p, v1alpha1.StandbyResumed, fmt.Sprintf("its GPUs are its own again, %.1f s after the end of the standby", took.Seconds()))
	}
}

// sayStandby writes the condition Standby on a pod, and an event when its reason is new.
func (m *driver) sayStandby(p *tables.Pod, reason, message string) {
	s := p.Object.Standby
	if s.Place != nil {
		message = objects.WithPlace(message, s.Place)
	}
	said := reason + ": " + message
	if p.StandbySaid == said {
		return
	}
	x := act.Report{Pod: p.Ref(), Reason: reason, Message: message, Shard: p.Group.Shard}
	if p.StandbySaid != "" || s.Reason != reason {
		x.Event = objects.WithoutPlace(message)
	}
	p.StandbySaid = said
	m.acts.Standby = append(m.acts.Standby, x)
}
