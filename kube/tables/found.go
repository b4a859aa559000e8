package tables

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/translate"
)

// An author can put a pod on a node directly, without the scheduler. Such a job cannot be turned
// away. It is charged to a queue that its namespace may use, with what that queue accepts: else
// one such pod would let all others of its job into any queue, with any class.

// Told is what people are told of a job.
type Told struct{ Reason, Detail string }

// Charge sets what counts for a job of which pods were found on nodes, and says what of what they
// say does not. The job has what they say.
func (t *Tables) Charge(g *Group, p *Pod, a *translate.Attributes, j *core.Job) []Told {
	var told []Told
	add := func(reason, detail, so string) {
		if reason != "" {
			told = append(told, Told{reason, detail + so})
		}
	}
	reason, detail := t.Queues.Blocks(t, j.Queue, g.ID.Namespace)
	if reason != "" {
		j.Queue = t.fallback(g, j.Queue)
	}
	add(reason, detail, "; the running pods are charged to queue "+j.Queue)
	// Without a class that the queue accepts the priority is at most 0, as without a class.
	if reason, detail = t.Unranked(g, p, a, j.Queue); reason != "" {
		j.Priority = min(j.Priority, 0)
		add(reason, detail, fmt.Sprintf("; the job has priority %d", j.Priority))
	}
	reason, detail = t.Queues.curb(g, a, j)
	add(reason, detail, "; of pods that run, what the queue does not accept does not count")
	return told
}

// fallback returns the queue to which pods are charged that name one that their namespace may not
// use: that of the namespace or, if it may not use that either, the default, which has a
// quota only if a Queue object gives it one.
func (t *Tables) fallback(g *Group, named string) string {
	queue := translate.NamespaceQueue(t.Namespaces[g.ID.Namespace])
	if queue == "" || queue == named {
		return queues.Default
	}
	if why, _ := t.Queues.Blocks(t, queue, g.ID.Namespace); why != "" {
		return queues.Default
	}
	return queue
}

// curb takes from a job what its queue does not accept: it is of class LP and of a kind that the
// queue accepts, may be evicted and is not locked. An expected run time is left: longer is no
// advantage. It returns what [Queues.Disallowed] does.
func (q *Queues) curb(g *Group, a *translate.Attributes, j *core.Job) (reason, detail string) {
	if reason, detail = q.Disallowed(j.Queue, g, a); reason == "" {
		return "", ""
	}
	s := &q.Objects[j.Queue].Spec
	if len(s.Classes) > 0 && !slices.Contains(s.Classes, v1alpha1.JobClass(core.HP.String())) {
		j.Class = core.LP
	}
	if k := v1alpha1.JobKind(j.Kind.String()); len(s.Kinds) > 0 && !slices.Contains(s.Kinds, k) {
		j.Kind = core.Kind(slices.Index(core.Kinds[:], string(s.Kinds[0])))
	}
	if s.Protection == "Forbidden" {
		j.Locked, j.NotPreemptible = false, false
	}
	return reason, detail
}
