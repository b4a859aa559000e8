package mirror

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/tables"
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
// for its spec says nothing of GPUs. A pod without that record counts as it says,
// as far as its spec, its node and the rights of its namespace allow (DevicesOf,
// translate.Held, Charge).

// keepRecord has what counts for a pod on its node, and for its PodGroup, written into the
// pod's status, if that is needed and not done yet.
func (m *changes) keepRecord(p *tables.Pod) {
	o := p.Object
	if !o.Ours || o.Node == "" || !m.Shards.Held[m.Whose(p)] {
		return
	}
	edits := translate.Differences(o.Said, o.Says)
	group := ""
	if g := p.Group; g != nil && g.Settled != nil {
		now := ""
		if pg := m.PodGroupOf(g); pg != nil {
			now = pg.Said
		}
		group = g.Settled.Said
		for _, k := range translate.Differences(group, now) {
			edits = append(edits, k+" of PodGroup "+g.ID.Name)
		}
	}
	// The spec says how many whole GPUs the pod has, so nothing has to be recorded before an edit.
	// It says nothing of a part of a GPU, nor of GPUs that the kubelet does not count.
	if len(edits) == 0 && o.Share == core.WholeGPU && o.Attributes.GPUCount == 0 {
		return
	}
	if edited := strings.Join(edits, ", "); p.Edited != edited {
		if p.Edited = edited; edited != "" {
			m.tellPod(p, tables.ChangeIgnored, "changed while the pod runs: "+edited+"; the values that the pod was bound with count until it ends")
		}
	}
	if (o.Record != o.Said || o.GroupRecord != group) && !p.Recording {
		p.Recording = true
		m.acts.Record = append(m.acts.Record, act.Record{Pod: p.Ref(), Said: translate.Recorded(o.Said, group)})
	}
}

// recorded handles the outcome of writing a record.
func (m *changes) recorded(uid types.UID) {
	if p := m.Pods[uid]; p != nil {
		p.Recording = false
	}
}

// tellPod publishes an event on a pod, if this instance is responsible for it.
func (m *changes) tellPod(p *tables.Pod, reason, message string) {
	if m.Shards.Held[m.Whose(p)] {
		m.acts.Warn = append(m.acts.Warn, act.Warning{Pod: p.Ref(), Reason: reason, Message: message})
	}
}

// warn publishes events about what a job asks for in vain, unknown keys and pauses that cannot be, once for each job and before it
// runs.
func (m *changes) warn(g *tables.Group) {
	if g.Warned || g.ID.Kind == tables.Foreign {
		return
	}
	others := g.NotPausable()
	notPausable := func(p *tables.Pod) string {
		if why := m.NotPausable(g, p); why != "" || p.Object.Pausable.HostMemMiB == 0 {
			return why
		}
		return others
	}
	inVain := func(p *tables.Pod) bool {
		return p.State == tables.PodWaiting && (m.UnknownKeys(g, p) != "" || notPausable(p) != "")
	}
	list := tables.InOrder(g.Loose, inVain)
	if len(list) == 0 {
		return
	}
	p := list[0]
	if keys := m.UnknownKeys(g, p); keys != "" {
		m.acts.Warn = append(m.acts.Warn, act.Warning{Pod: p.Ref(), Reason: tables.UnknownKey, Message: keys})
	}
	if why := notPausable(p); why != "" {
		m.acts.Warn = append(m.acts.Warn, act.Warning{Pod: p.Ref(), Reason: tables.NotPausable, Message: v1alpha1.PausableAnnotation + " has no effect: " + why})
	}
	g.Warned = true
}
