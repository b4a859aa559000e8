package kube

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
)

// What a job was admitted with counts until it ends: whoever may write a pod may
// change its labels and annotations while it runs, and would move its charge to
// another queue, or free its GPUs in the books.
//
// While this instance runs, its tables have what counts: of a pod as it was when it
// was first seen on its node (settled), of a job as it was submitted (admitted). For
// the next instance it is written into the pod's status, where tenants cannot write,
// as soon as the pod says anything else; and of a pod with a part of a GPU at once,
// for its spec says nothing of GPUs. A pod without that record is taken at its word
// as far as its spec, its node and the rights of its namespace let it (devicesOf,
// translate.Held, chargeable).

// Reasons of the Warning events of a pod that runs.
const (
	// ChangeIgnored: labels or annotations were changed that count as they were
	// when the pod was bound.
	ChangeIgnored = "ChangeIgnored"
	// DevicesNotAsAnnotated: it does not have the GPUs that its annotation names; others are
	// booked for it.
	DevicesNotAsAnnotated = "DevicesNotAsAnnotated"
	// GPUsOvercommitted: it has more GPUs than its node has left.
	GPUsOvercommitted = "GPUsOvercommitted"
)

// admitted is what of a job counts as it was submitted for as long as pods of it have
// a place, when the engine is built again too.
type admitted struct {
	queue                                 string
	class                                 core.Class
	priority                              int32
	neverPreempts, notPreemptible, locked bool
	minRuntime, checkpoint                core.Time
}

func admit(j *core.Job) *admitted {
	return &admitted{
		queue: j.Queue, class: j.Class, priority: j.Priority, neverPreempts: j.NeverPreempts,
		notPreemptible: j.NotPreemptible, locked: j.Locked, minRuntime: j.MinRuntime, checkpoint: j.Checkpoint,
	}
}

// apply has a job be as it was admitted. The queue counts as long as there is one.
func (a *admitted) apply(t *tables, j *core.Job) {
	if _, told := t.queues.told[a.queue]; told {
		j.Queue = a.queue
	}
	j.Class, j.Priority, j.NeverPreempts = a.class, a.priority, a.neverPreempts
	j.NotPreemptible, j.Locked, j.MinRuntime, j.Checkpoint = a.notPreemptible, a.locked, a.minRuntime, a.checkpoint
}

// chargeable returns the queue to which a job is charged of which pods run, whatever
// they say: the one they name if their namespace may use it, else that of the
// namespace, else the default, which owns nothing unless it was given a quota.
func (m *changes) chargeable(g *group, p *pod, named string) string {
	reason, detail := m.queues.blocks(&m.tables, named, g.id.Namespace)
	if reason == "" {
		return named
	}
	queue := translate.NamespaceQueue(m.namespaces[g.id.Namespace])
	if queue == "" || queue == named {
		queue = DefaultQueue
	} else if why, _ := m.queues.blocks(&m.tables, queue, g.id.Namespace); why != "" {
		queue = DefaultQueue
	}
	m.tellPod(p, reason, fmt.Sprintf("%s; the running pods are charged to queue %s", detail, queue))
	return queue
}

// keepRecord has what counts of a pod on its node, and of its PodGroup, written into its
// status, where that is needed and not done.
func (m *changes) keepRecord(p *pod) {
	o := p.object
	if !o.ours || o.node == "" || !m.shards.held[m.whose(p)] {
		return
	}
	edits := translate.Differences(o.said, o.says)
	group := ""
	if g := p.group; g != nil && g.settled != nil {
		now := ""
		if pg := m.podGroupOf(g); pg != nil {
			now = pg.said
		}
		group = g.settled.said
		for _, k := range translate.Differences(group, now) {
			edits = append(edits, k+" of PodGroup "+g.id.Name)
		}
	}
	if len(edits) == 0 && o.share == core.WholeGPU {
		return
	}
	if edited := strings.Join(edits, ", "); p.edited != edited {
		if p.edited = edited; edited != "" {
			m.tellPod(p, ChangeIgnored, "changed while the pod runs: "+edited+"; the values that the pod was bound with count until it ends")
		}
	}
	if (o.record != o.said || o.groupRecord != group) && !p.recording {
		p.recording = true
		m.acts.record = append(m.acts.record, act.Record{Pod: p.ref(), Said: translate.Recorded(o.said, group)})
	}
}

// recorded takes in that a record was written, or could not be.
func (m *changes) recorded(uid types.UID) {
	if p := m.pods[uid]; p != nil {
		p.recording = false
	}
}

// tellPod tells people of a pod in an event, if it is up to this instance.
func (m *changes) tellPod(p *pod, reason, message string) {
	if m.shards.held[m.whose(p)] {
		m.acts.warn = append(m.acts.warn, act.Warning{Pod: p.ref(), Reason: reason, Message: message})
	}
}
