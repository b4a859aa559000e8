package kube

import (
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
)

// evictAct asks to make a pod leave.
type evictAct struct {
	pod     *pod
	reason  string
	message string
	shard   int // of the group it was of, for a pod that has none any more
}

// value is the act without the tables. A budget does not protect a pod that runs on
// borrowed quota from the quota's owner.
func (e *evictAct) value() act.Evict {
	o := e.pod.object
	x := act.Evict{
		Pod: e.pod.ref(), Reason: e.reason, Message: e.message, Counted: o.counts || o.uncounted, Shard: e.shard,
		DespiteBudgets: e.reason == core.QuotaReclaim.String(),
	}
	if g := e.pod.group; g != nil {
		x.Shard = g.shard
	}
	if o.slow && e.reason != act.Drained {
		x.Grace = new(int64(act.MaxGrace / time.Second))
	}
	return x
}

// noteUncounted records whether a pod was removed from what the Job controller counts.
func (m *changes) noteUncounted(o *podObject) {
	if o.uncounted {
		m.uncounted[o.UID] = act.Pod{Namespace: o.Namespace, Name: o.Name, UID: o.UID}
	} else {
		delete(m.uncounted, o.UID)
	}
}

// countsAgain finds the pods that an instance before this one was about to evict, and did
// not evict: their finalizers are put back.
func (m *changes) countsAgain() {
	for uid, x := range m.uncounted {
		p := m.pods[uid]
		if p == nil && m.shards.held[m.shards.rest] || p != nil && p.state == podBound && !p.moves && m.shards.held[m.whose(p)] {
			m.acts.count = append(m.acts.count, x)
			delete(m.uncounted, uid)
		}
	}
}
