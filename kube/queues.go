package kube

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/translate"
)

// From Queue objects to the engine's queues.

const (
	// DefaultQueue is the queue of jobs that name none. Without a Queue object of that
	// name it owns no quota.
	DefaultQueue = "default"
	// OthersQueue holds the GPUs that pods of other schedulers use.
	OthersQueue = "muster-other-schedulers"
)

// queues are the Queue objects, and what the engine was told of them.
type queues struct {
	objects map[string]*v1alpha1.Queue
	told    map[string]core.Queue
	// verdict is why an object is not in effect.
	verdict map[string]settings.Verdict
}

func newQueues() queues {
	return queues{objects: map[string]*v1alpha1.Queue{}, told: map[string]core.Queue{}, verdict: map[string]settings.Verdict{}}
}

// queuesListed takes in all queues there are.
func (m *mirror) queuesListed(list []*v1alpha1.Queue) {
	refill(m.queues.objects, list, nameOf)
	m.queuesChanged()
}

// queueSeen takes in a queue as it is now.
func (m *mirror) queueSeen(q *v1alpha1.Queue) {
	old := m.queues.objects[q.Name]
	m.queues.objects[q.Name] = q
	if old == nil || !reflect.DeepEqual(old.Spec, q.Spec) {
		m.queuesChanged()
	}
}

func (m *mirror) queueGone(name string) {
	delete(m.queues.objects, name)
	m.queuesChanged()
}

func (m *mirror) queuesChanged() {
	if m.engine == nil {
		return
	}
	m.tellQueues()
	for _, g := range m.groups {
		m.weighQueue(g)
	}
	m.tellQueues() // and those that only waiting jobs kept
}

// weighQueue has a job that waits leave the engine if it may not go on to wait in its
// queue. Any other change of a queue is up to the engine: a job that is withdrawn loses
// its plan, and the pods that leave for it would leave for nothing.
func (m *mirror) weighQueue(g *group) {
	if g.submitted && !g.runs() && !g.leaving() && g.id.Kind != others && !m.mayStay(g) {
		m.withdraw(g)
	}
	if !g.submitted {
		m.touch(g)
	}
}

// mayStay reports whether a job that waits may go on to wait where it does.
func (t *tables) mayStay(g *group) bool {
	ready := inOrder(g.pods, (*pod).ready)
	if len(ready) == 0 {
		return false
	}
	a := t.attributesOf(g, ready[0])
	reason, _ := t.turnedAway(g, ready[0], &a)
	return reason == "" && t.queueOf(g, a) == g.queue
}

// turnedAway says why a job may not wait in its queue, or not with its PriorityClass;
// empty when it may.
func (t *tables) turnedAway(g *group, p *pod, a *translate.Attributes) (reason, detail string) {
	queue := t.queueOf(g, *a)
	if reason, detail := t.queues.blocks(t, queue, g.id.Namespace); reason != "" {
		return reason, detail
	}
	return t.unranked(g, p, a, queue)
}

// tellQueues tells the engine of queues that are new, changed or gone: parents
// before children, children gone before parents. A queue whose jobs live on
// goes with the last of them.
func (m *driver) tellQueues() {
	q := &m.queues
	clear(q.verdict)
	want := []core.Queue{{Name: OthersQueue, Weight: 1}}
	if q.objects[DefaultQueue] == nil {
		want = append(want, core.Queue{Name: DefaultQueue, Weight: 1})
	}
	names := make([]string, 0, len(q.objects))
	for name := range q.objects {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(q.depth(a), q.depth(b)), strings.Compare(a, b))
	})
	for _, name := range names {
		o := q.objects[name]
		switch parent := o.Spec.Parent; {
		case q.depth(name) > len(q.objects):
			q.verdict[name] = settings.Verdict{Reason: v1alpha1.QueueCycle, Message: "the queue is its own ancestor"}
		case parent != "" && (q.objects[parent] == nil || q.verdict[parent].Reason != ""):
			q.verdict[name] = settings.Verdict{Reason: v1alpha1.QueueParentNotFound, Message: fmt.Sprintf("parent %s does not exist or is not ready", parent)}
		default:
			want = append(want, o.Spec.Queue(name))
		}
	}
	there := map[string]bool{}
	for _, w := range want {
		there[w.Name] = true
		if old, ok := q.told[w.Name]; ok && reflect.DeepEqual(old, w) {
			continue
		}
		if err := m.tell(core.QueueSet{Queue: w}); err != nil {
			q.verdict[w.Name] = settings.Verdict{Reason: v1alpha1.QueueInvalid, Message: err.Error()}
			continue
		}
		q.told[w.Name] = w
	}
	m.removeQueues(there)
}

// removeQueues removes queues that are not there any more from the engine, as
// far as it lets them go.
func (m *driver) removeQueues(there map[string]bool) {
	q := &m.queues
	for again := true; again; {
		again = false
		for _, name := range sortedKeys(q.told) {
			if !there[name] && m.tell(core.QueueRemoved{Queue: name}) == nil {
				delete(q.told, name)
				again = true
			}
		}
	}
}

// depth is how far below the top a queue is; more than there are queues in a
// cycle.
func (q *queues) depth(name string) int {
	d := 0
	for o := q.objects[name]; o != nil && o.Spec.Parent != "" && d <= len(q.objects); o = q.objects[o.Spec.Parent] {
		d++
	}
	return d
}

// blocks says why a namespace's jobs cannot wait in a queue, "" when they can.
func (q *queues) blocks(t *tables, name, namespace string) (reason, detail string) {
	o := q.objects[name]
	_, told := q.told[name]
	switch v := q.verdict[name]; {
	case v.Reason != "":
		return ReasonQueueNotFound, fmt.Sprintf("queue %s is not ready: %s", name, v.Message)
	case !told || o == nil && name != DefaultQueue:
		return ReasonQueueNotFound, fmt.Sprintf("queue %s does not exist", name)
	case o == nil || o.Spec.NamespaceSelector == nil:
		return "", ""
	}
	s, err := metav1.LabelSelectorAsSelector(o.Spec.NamespaceSelector)
	if err != nil {
		return ReasonQueueNotFound, fmt.Sprintf("queue %s: namespaceSelector: %v", name, err)
	}
	if !s.Matches(labels.Set(t.namespaces[namespace])) {
		return ReasonQueueForbidden, fmt.Sprintf("namespace %s cannot use queue %s: its labels do not match the queue's namespaceSelector", namespace, name)
	}
	return "", ""
}

// namespaceSeen takes in a namespace as it is now.
func (m *mirror) namespaceSeen(o *namespaceObject) {
	if maps.Equal(m.namespaces[o.Name], o.labels) {
		return
	}
	m.namespaces[o.Name] = o.labels
	m.aroundChanged(m.peers.ObserveNamespace(o.Name, o.labels))
	for _, g := range m.groups {
		if g.id.Namespace != o.Name {
			continue
		}
		if m.weighQueue(g); m.shards.several() {
			m.touch(g)
		}
	}
}

func (m *changes) namespaceGone(name string) {
	delete(m.namespaces, name)
	m.peers.ForgetNamespace(name)
}

func (m *mirror) namespacesListed(list []*namespaceObject) {
	compare(m, m.namespaces, list, nameOf, m.namespaceSeen, m.namespaceGone)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
