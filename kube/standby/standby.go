// Package standby has pods lend their GPUs ([core.StandbyBegan]):
//
//  1. An annotation says until when. The pod's place on its node is what it has then
//     ([tables.Pod.After]): what it gives back by being resized is kept for it.
//  2. When it requests no more than it is to keep, the engine lends its GPUs and the rest. The
//     condition Standby says so, with the pod's place, for the next instance.
//  3. When the time is over, or the annotation is gone, or the pod requests more again, the engine
//     evicts the pods there.
//  4. When the last has left, the engine decides [core.Resume]. The condition tells the pod.
//
// An engine that is built again receives the pods that lend before those on their GPUs.
package standby

import (
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/stats"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// Lenders are the pods that lend their GPUs, or ask to.
type Lenders struct {
	Tables  *tables.Tables
	Census  *tables.Census
	Log     *slog.Logger
	Metrics *stats.Metrics // nil for none
	// Tell applies an event to the engine, which may refuse it; MustTell one that only a bug can make
	// wrong. Say has a condition written on a pod.
	Tell     func(core.Event) error
	MustTell func(core.Event)
	Say      func(act.Report)
	// Sleeper stops the processes of pods before they lend; nil: they stop by themselves.
	Sleeper Sleeper

	resting map[types.UID]*tables.Pod // that say anything about standby
}

// Sleeper stops the processes of pods while they are on standby.
type Sleeper interface {
	// Sleep has the processes of a pod stopped, and reports whether they are; why says why they cannot be. It is called again until then.
	Sleep(p *tables.Pod) (asleep bool, why string)
	// Wake lets them go on, unless they do.
	Wake(p *tables.Pod)
}

// Note records whether a pod says anything about standby.
func (ls *Lenders) Note(p *tables.Pod) {
	if p.Object.Standby == nil {
		delete(ls.resting, p.Object.UID)
		return
	}
	if ls.resting == nil {
		ls.resting = map[types.UID]*tables.Pod{}
	}
	ls.resting[p.Object.UID] = p
}

// Forget forgets a pod that is over.
func (ls *Lenders) Forget(pod types.UID) { delete(ls.resting, pod) }

// Sweep tells the engine what pods say about standby now.
func (ls *Lenders) Sweep() {
	if len(ls.resting) == 0 {
		return
	}
	for _, p := range tables.InOrder(ls.resting, func(p *tables.Pod) bool {
		return p.Group != nil && ls.Tables.Decides(p.Group) && p.Slot >= 0 && p.State == tables.PodBound && !p.InFlight
	}) {
		ls.standby(p)
	}
}

// standby compares what a pod says about standby with what it does.
func (ls *Lenders) standby(p *tables.Pod) {
	s, l, n := p.Object.Standby, p.Lending, ls.Tables.Nodes[p.Target]
	until := objects.TimeOf(s.Until)
	asks := s.Wrong == "" && !s.Until.IsZero() && until > ls.Tables.Now && !p.Object.Deleting && (n == nil || n.Object.Drain == nil)
	switch {
	case l == nil && !asks:
		ls.wake(p)
		if s.Wrong != "" {
			ls.say(p, v1alpha1.StandbyRefused, s.Wrong)
		}
	case l == nil:
		ls.prepare(p, until)
	case l.Returning: // until the engine decides that it goes on
	case !asks || p.ToBeResized() != "": // it waits for what it gave back
		l.Returning, l.Since = true, min(l.Until, ls.Tables.Now)
		ls.MustTell(core.StandbyEnded{Job: p.Group.Job, Pods: []int{p.Slot}})
		ls.say(p, v1alpha1.StandbyReturning, "the pods on its GPUs are evicted")
	case until != l.Until:
		if err := ls.lend(p, until); err != nil {
			ls.say(p, v1alpha1.StandbyRefused, err.Error())
		}
	}
}

// prepare has a pod lend its GPUs when its processes have stopped, and it is resized.
func (ls *Lenders) prepare(p *tables.Pod, until core.Time) {
	if why := ls.Tables.MayLend(p); why != "" {
		ls.wake(p)
		ls.say(p, v1alpha1.StandbyRefused, why)
		return
	}
	if ls.Sleeper != nil {
		switch asleep, why := ls.Sleeper.Sleep(p); {
		case why != "":
			ls.say(p, v1alpha1.StandbyRefused, why)
			return
		case !asleep:
			ls.say(p, v1alpha1.StandbyPreparing, "its processes are being paused")
			return
		}
	}
	if why := p.ToBeResized(); why != "" {
		ls.say(p, v1alpha1.StandbyPreparing, why)
	} else if err := ls.lend(p, until); err != nil {
		ls.wake(p)
		ls.say(p, v1alpha1.StandbyRefused, err.Error())
	}
}

func (ls *Lenders) wake(p *tables.Pod) {
	if ls.Sleeper != nil {
		ls.Sleeper.Wake(p)
	}
}

// lend tells the engine that a pod lends its GPUs, or until when it does.
func (ls *Lenders) lend(p *tables.Pod, until core.Time) error {
	if err := ls.tell(p, until); err != nil {
		return err
	}
	ls.say(p, v1alpha1.StandbyLending, fmt.Sprintf("LP jobs may use its GPUs %s until %s", translate.Devices(p.Devices), translate.Clock(until)))
	return nil
}

// LendAgain tells a new engine that a pod is on standby, before it receives the pods on its GPUs.
// What the pod says now counts from the next pass on.
func (ls *Lenders) LendAgain(p *tables.Pod) {
	if !p.Lends() || p.State != tables.PodBound || !ls.Tables.Decides(p.Group) {
		return
	}
	until := objects.TimeOf(p.Object.Standby.Until)
	if p.Lending != nil {
		until = p.Lending.Until
	}
	if p.Object.Standby.Until.IsZero() || p.Lending != nil && p.Lending.Returning {
		until = ls.Tables.Now
	}
	was := p.Lending
	if err := ls.tell(p, max(until, ls.Tables.Now)); err != nil {
		ls.Log.Warn("a pod is no longer on standby", "pod", p.Ref().String(), "why", err)
		p.Lending = nil
	} else if was != nil {
		p.Lending = was
	}
}

// tell is lend without a message.
func (ls *Lenders) tell(p *tables.Pod, until core.Time) error {
	ev := core.StandbyBegan{Job: p.Group.Job, Pods: []int{p.Slot}, Until: until, CPUMilli: p.Object.Amounts.CPUMilli, MemMiB: p.Object.Amounts.MemMiB}
	if k := p.Object.Standby.Keeps; k != nil {
		ev.CPUMilli, ev.MemMiB = k.CPUMilli, k.MemMiB
	}
	if err := ls.Tell(ev); err != nil {
		return err
	}
	p.Lending = &tables.Lending{Until: until}
	ls.Census.NotePod(p)
	return nil
}

// Resume tells pods of a group that their GPUs are their own again.
func (ls *Lenders) Resume(g *tables.Group, pods []core.Placement) {
	for i := range pods {
		p := g.Slots[pods[i].Pod]
		l := p.Lending
		if l == nil {
			continue
		}
		if !l.Returning {
			l.Since = min(l.Until, ls.Tables.Now)
		}
		p.Lending = nil
		ls.Census.NotePod(p)
		took := ls.Tables.Now - l.Since
		ls.Metrics.Resumed(took)
		ls.say(p, v1alpha1.StandbyResumed, fmt.Sprintf("its GPUs are its own again, %.1f s after the end of the standby", took.Seconds()))
	}
}

// say writes the condition Standby on a pod, and an event when its reason is new.
func (ls *Lenders) say(p *tables.Pod, reason, message string) {
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
	ls.Say(x)
}
