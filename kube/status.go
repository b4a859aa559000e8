package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
)

// Why jobs wait, as the API is told: in conditions of pods and PodGroups. The
// engine answers when asked (core.Engine.Explain), which costs; so some jobs
// are asked about at a time, in turn, and what has not changed is not written.

const (
	// firstSay is how long a job waits before it is said why: most start at
	// once.
	firstSay = core.Second
	// sayAgain is how often numbers are written anew while the reason stays.
	sayAgain = 30 * core.Second
)

// verse is what is to be written of one object.
type verse struct {
	namespace, name string
	uid             types.UID
	podGroup        bool
	reason, message string // empty: it waits no more
	ungate          bool
	event           string    // what people are told in an event too, once a job
	since           time.Time // since when the object is said to wait; zero: from now on
	shard           int
}

// said is what was last written of a group.
type said struct {
	reason, message string
	at              core.Time
	told            core.Time // when people were told in an event
}

// explain asks about up to n waiting jobs, in turn, and returns what is to be
// written.
func (m *mirror) explain(n int) []verse {
	if m.engine == nil || m.panics.broken {
		return nil
	}
	if len(m.asking) == 0 {
		for g := range m.waiters {
			if m.tells(g) {
				m.asking = append(m.asking, g)
			} else {
				delete(m.waiters, g)
			}
		}
		slices.SortFunc(m.asking, func(a, b *group) int { return a.created.Compare(b.created) })
	}
	var out []verse
	for ; n > 0 && len(m.asking) > 0; n-- {
		g := m.asking[0]
		m.asking = m.asking[1:]
		if m.tells(g) {
			out = append(out, m.say(g)...)
		}
	}
	return out
}

// tells reports whether it is to be said why a group waits.
func (m *mirror) tells(g *group) bool { return m.groups[g.id] == g && g.waits() && m.ours(g) }

// waits reports whether pods of a group wait for a place.
func (g *group) waits() bool {
	for _, p := range g.pods {
		if p.state == podWaiting {
			return true
		}
	}
	return false
}

// say returns what is to be written of a group that waits.
func (m *mirror) say(g *group) []verse {
	if g.submitted && g.quarantine == nil {
		var x core.Explanation
		ok := false
		if !m.guarded(g, func() { x, ok = m.engine.Explain(g.job) }) {
			return nil
		}
		reason, detail := x.Reason.String(), x.Detail
		if !ok || x.Waiting == 0 {
			if reason, detail = g.unready(); reason == "" {
				return nil
			}
		} else {
			if x.Settled != core.Never {
				detail += "; the first can be evicted at " + clock(x.Settled)
			}
			if wantsRoom(x.Reason) {
				detail += m.shards.within()
			}
			if x.Ahead > 0 {
				detail += fmt.Sprint(translate.AheadMark, x.Ahead)
			}
			detail += m.expects(g, x.Reason)
		}
		g.wait(m.now, reason, detail)
		m.noteGroup(g)
	}
	if g.waiting.reason == "" || m.now-g.waiting.since < firstSay {
		return nil
	}
	now := said{reason: g.waiting.reason, message: g.waiting.detail, at: m.now}
	old := g.said
	if now.reason == old.reason && (now.message == old.message || m.now-old.at < sayAgain) && !g.unsaid() {
		return nil
	}
	// An event is what has happened: numbers alone that change are news now and then.
	now.told = old.told
	event := ""
	if now.reason != old.reason || translate.WhyWaiting(now.message) != translate.WhyWaiting(old.message) && m.now-old.told >= sayAgain {
		event, now.told = translate.WhyWaiting(now.message), m.now
	}
	g.said = now
	var out []verse
	pg := m.podGroupOf(g)
	if pg != nil {
		out = append(out, verse{namespace: pg.Namespace, name: pg.Name, uid: pg.UID, podGroup: true, reason: now.reason, message: now.message, event: event, shard: g.shard})
		event = ""
	}
	for i, p := range inOrder(g.pods, func(p *pod) bool { return p.state == podWaiting && !p.object.otherGates }) {
		if now.reason == old.reason && i > 0 && p.said == now.reason {
			continue // the numbers are on the first pod; it would be too much to write them on all
		}
		p.said = now.reason
		out = append(out, verse{
			namespace: p.object.Namespace, name: p.object.Name, uid: p.object.UID, reason: now.reason, message: now.message,
			event: event, since: p.object.waitingSince, shard: g.shard,
			ungate: p.object.quotaGate && g.submitted && !quotaShort(now.reason),
		})
		event = ""
	}
	return out
}

// outlook is the last forecast.
type outlook struct {
	core.Forecast
	of    map[*group]bool // who waited then
	until core.Time       // when it is to be made anew
}

// expects says when a job is expected to start, or why that is not known; nothing where
// it does not wait for what others hold.
func (m *mirror) expects(g *group, why core.Reason) string {
	if !wantsRoom(why) && why != core.QuotaExceeded && why != core.HeldBack {
		return ""
	}
	if m.now >= m.outlook.until {
		m.outlook = outlook{of: map[*group]bool{}, until: m.now + sayAgain}
		m.guarded(nil, func() { m.outlook.Forecast = m.engine.Forecast() })
		for g := range m.waiters {
			m.outlook.of[g] = g.submitted
		}
	}
	f := &m.outlook
	at, ok := f.Starts[g.job]
	switch {
	case ok:
		return translate.StartMark + clock(at)
	case f.Cut:
		return translate.NoStartMark + "too many jobs wait to forecast all of them"
	case !f.of[g]:
		return translate.NoStartMark + "the job was created after the last forecast"
	case f.Endless > 0:
		return translate.NoStartMark + fmt.Sprintf("running jobs without a walltime, or past it: %d", f.Endless)
	}
	return translate.NoStartMark + "jobs before it have no walltime, or it needs more than running jobs will free"
}

// clock is a time as messages say it: a message that said how long until then would be
// another all the time, and written anew.
func clock(t core.Time) string { return time.Unix(0, int64(t)).UTC().Format(time.RFC3339) }

// wantsRoom reports whether a job waits for room on nodes.
func wantsRoom(why core.Reason) bool {
	switch why {
	case core.Resources, core.Stranded, core.InsufficientCPU, core.InsufficientMemory, core.InsufficientPods, core.InsufficientOther,
		core.TopologyTooTight, core.Affinity:
		return true
	}
	return false
}

// quotaShort reports whether a job waits for quota.
func quotaShort(reason string) bool {
	return slices.Contains([]string{core.QuotaExceeded.String(), core.MinRuntime.String(), core.ExceedsQuota.String()}, reason)
}

// unsaid reports whether a waiting pod has not been told why it waits.
func (g *group) unsaid() bool {
	for _, p := range g.pods {
		if p.state == podWaiting && p.said == "" && !p.object.otherGates {
			return true
		}
	}
	return false
}

// unsay returns what is to be written of pods that waited and run now.
func (m *mirror) unsay(g *group) []verse {
	var out []verse
	for _, p := range g.pods {
		if (p.said != "" || p.inherited()) && p.state != podWaiting {
			p.said = ""
			out = append(out, verse{namespace: p.object.Namespace, name: p.object.Name, uid: p.object.UID, shard: g.shard})
		}
	}
	pg := m.podGroupOf(g)
	if pg != nil && (g.said.reason != "" || !pg.scheduled) && !g.waits() {
		out = append(out, verse{namespace: pg.Namespace, name: pg.Name, uid: pg.UID, podGroup: true, shard: g.shard})
	}
	g.said = said{}
	return out
}

// warning is what people are told of a pod in an event.
type warning struct {
	namespace, name string
	uid             types.UID
	reason, message string
}

// UnknownKey is the reason of the event of a pod whose labels or annotations, or those
// of its PodGroup or owner, begin as Muster's do and are none.
const UnknownKey = "UnknownKey"

// warn has people told, once a job and before it runs, of keys that mean nothing.
func (m *mirror) warn(g *group) {
	if g.warned || g.id.Kind == others {
		return
	}
	job := ""
	if pg := m.podGroupOf(g); pg != nil {
		job = pg.attributes.Unknown
	}
	if g.says != nil {
		job = cmp.Or(job, g.says.Attributes.Unknown)
	}
	for _, p := range inOrder(g.loose, func(p *pod) bool { return p.state == podWaiting && cmp.Or(p.object.attributes.Unknown, job) != "" }) {
		m.acts.warn = append(m.acts.warn, warning{p.object.Namespace, p.object.Name, p.object.UID, UnknownKey, cmp.Or(p.object.attributes.Unknown, job)})
		g.warned = true
		return
	}
}

// verses are what is to be written, the latest for each object, in the order in
// which objects were first spoken of. Of one object one thing is written at a
// time, so that the latest stays.
type verses struct {
	mu    sync.Mutex
	by    map[types.UID]verse
	busy  map[types.UID]int // being written: of which shard
	order []types.UID       // those in by that are not busy
	ready chan struct{}
}

func newVerses() *verses {
	return &verses{by: map[types.UID]verse{}, busy: map[types.UID]int{}, ready: make(chan struct{}, 1)}
}

func (v *verses) put(list []verse) {
	if len(list) == 0 {
		return
	}
	v.mu.Lock()
	for _, x := range list {
		old, ok := v.by[x.uid]
		if _, busy := v.busy[x.uid]; !ok && !busy {
			v.order = append(v.order, x.uid)
		}
		x.ungate = x.ungate || old.ungate
		if x.reason == old.reason {
			x.event = cmp.Or(x.event, old.event)
		}
		v.by[x.uid] = x
	}
	v.mu.Unlock()
	v.wake()
}

func (v *verses) wake() {
	select {
	case v.ready <- struct{}{}:
	default:
	}
}

func (v *verses) take() (verse, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.order) == 0 {
		return verse{}, false
	}
	uid := v.order[0]
	v.order = v.order[1:]
	x := v.by[uid]
	delete(v.by, uid)
	v.busy[uid] = x.shard
	return x, true
}

// written says that a verse was written, or not: then it is to be written again,
// unless there is a later one.
func (v *verses) written(x *verse, ok bool) {
	v.mu.Lock()
	delete(v.busy, x.uid)
	if _, later := v.by[x.uid]; later || !ok {
		if !later {
			v.by[x.uid] = *x
		}
		v.order = append(v.order, x.uid)
	}
	v.mu.Unlock()
	v.wake()
}

// drain forgets what is to be written of a shard, and waits for what is being
// written. It reports false when ctx ended first.
func (v *verses) drain(ctx context.Context, shard int) bool {
	for {
		busy := false
		v.mu.Lock()
		v.order = slices.DeleteFunc(v.order, func(uid types.UID) bool {
			drop := v.by[uid].shard == shard
			if drop {
				delete(v.by, uid)
			}
			return drop
		})
		for uid, of := range v.busy {
			if of == shard {
				busy = true
				delete(v.by, uid)
			}
		}
		v.mu.Unlock()
		if !busy {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// write writes what is said until ctx ends, no faster than the limit.
func (s *Scheduler) write(ctx context.Context) {
	for ctx.Err() == nil {
		x, ok := s.verses.take()
		if !ok {
			select {
			case <-ctx.Done():
			case <-s.verses.ready:
			}
			continue
		}
		if s.statusLimit.Wait(ctx) != nil {
			return
		}
		var err error
		if x.podGroup {
			err = s.writePodGroup(ctx, &x)
		} else {
			err = s.writePod(ctx, &x)
		}
		s.metrics.Request("status", err)
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			s.log.Debug("cannot write a condition", "object", x.namespace+"/"+x.name, "error", err)
			if act.Passes(err) {
				time.AfterFunc(writeAgain, func() { s.verses.written(&x, false) })
				continue
			}
		}
		s.verses.written(&x, true)
	}
}

// writeAgain is how long it takes until a condition is written again that the
// API server could not take.
const writeAgain = time.Second

func (s *Scheduler) writePod(ctx context.Context, x *verse) error {
	now := metav1.NewTime(s.now())
	var conditions []v1.PodCondition
	if x.reason == "" {
		conditions = []v1.PodCondition{{
			Type: v1alpha1.WaitingCondition, Status: v1.ConditionFalse, Reason: "Started", Message: "the pod has a node", LastTransitionTime: now,
		}}
	} else {
		if !x.since.IsZero() {
			now = metav1.NewTime(x.since)
		}
		conditions = []v1.PodCondition{
			{Type: v1alpha1.WaitingCondition, Status: v1.ConditionTrue, Reason: x.reason, Message: x.message, LastTransitionTime: now},
			{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: scheduledReason(x.reason), Message: x.reason + ": " + x.message, LastTransitionTime: now},
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": x.uid}, "status": map[string]any{"conditions": conditions}})
	if err != nil {
		return err
	}
	if x.ungate {
		if err := s.actor.Ungate(ctx, act.Pod{Namespace: x.namespace, Name: x.name, UID: x.uid}); err != nil {
			return err
		}
	}
	_, err = s.client.CoreV1().Pods(x.namespace).Patch(ctx, x.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil && x.event != "" {
		s.actor.Event("Pod", act.Pod{Namespace: x.namespace, Name: x.name, UID: x.uid}, v1.EventTypeWarning, x.reason, x.event)
	}
	return err
}

// scheduledReason is the reason of PodScheduled=False: autoscalers make room
// for pods that are Unschedulable, and more nodes are no help to the others.
func scheduledReason(reason string) string {
	switch reason {
	case core.Resources.String(), core.Stranded.String(), core.InsufficientCPU.String(), core.InsufficientMemory.String(), core.InsufficientPods.String(),
		core.InsufficientOther.String(), core.NoNode.String(), core.TopologyTooTight.String(), core.Affinity.String():
		return v1.PodReasonUnschedulable
	}
	return reason
}

func (s *Scheduler) writePodGroup(ctx context.Context, x *verse) error {
	now := metav1.NewTime(s.now())
	waiting := metav1.Condition{Type: v1alpha1.WaitingCondition, Status: metav1.ConditionTrue, Reason: x.reason, Message: x.message, LastTransitionTime: now}
	scheduled := metav1.Condition{
		Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: metav1.ConditionFalse, Reason: schedulingv1beta1.PodGroupReasonUnschedulable,
		Message: x.reason + ": " + x.message, LastTransitionTime: now,
	}
	if x.reason == "" {
		waiting.Status, waiting.Reason, waiting.Message = metav1.ConditionFalse, "Started", "its pods have nodes"
		scheduled.Status, scheduled.Reason, scheduled.Message = metav1.ConditionTrue, "Scheduled", "all pods of the gang are bound"
	}
	groups := s.client.SchedulingV1beta1().PodGroups(x.namespace)
	g, err := groups.Get(ctx, x.name, metav1.GetOptions{})
	if err != nil || g.UID != x.uid {
		return err
	}
	for i := range g.Status.Conditions { // the time is when the status changed
		for _, c := range []*metav1.Condition{&waiting, &scheduled} {
			if old := &g.Status.Conditions[i]; old.Type == c.Type && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	was := slices.IndexFunc(g.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == schedulingv1beta1.PodGroupInitiallyScheduled && c.Status == metav1.ConditionTrue
	})
	conditions := []metav1.Condition{waiting}
	if was < 0 { // it never goes back
		conditions = append(conditions, scheduled)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": x.uid}, "status": map[string]any{"conditions": conditions}})
	if err != nil {
		return err
	}
	_, err = groups.Patch(ctx, x.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil && x.event != "" {
		s.actor.Event("PodGroup", act.Pod{Namespace: x.namespace, Name: x.name, UID: x.uid}, v1.EventTypeWarning, x.reason, x.event)
	}
	return err
}

// statusPeriod is how often some jobs are asked about, explained how many at
// most each time: asking costs a millisecond or two in the largest clusters.
const (
	statusPeriod = 250 * time.Millisecond
	explained    = 20
)
