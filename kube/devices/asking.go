package devices

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/internal/fit"
)

// Which questions a namespace asks, how many it may, and when one is forgotten.
//
// A selector of a claim is compared with each device of each node, and is a label of each node where it holds. So what tenants
// write has bounds:
//
//   - A namespace asks at most [MaxQuestions] at a time. A question counts as long as a pod needs it, and [linger] longer: so that no
//     more are asked by pods that come and go. Further pods wait until there is room, but those that have a place. The
//     selectors of classes alone are the administrator's, and do not count.
//   - In a pass nodes answer for as long as [perPass] allows, question by question, in which namespaces take turns. A pod waits until all have.
//   - A selector that costs more than [selector.MaxCost] on a device is refused, and so are selectors of more than [MaxSelectors] bytes.

// The bounds of what tenants ask.
const (
	// MaxQuestions is how many different selectors and constraints the pods of a namespace have at most, which is far more than
	// the kinds of devices of a cluster.
	MaxQuestions = 100
	// MaxSelectors is the maximum length of the selectors of a request, in bytes, as that of one in the API.
	MaxSelectors = 10 << 10
	// linger is how long a question counts after the last pod that needed it. With MaxQuestions it bounds how many a
	// namespace asks in an hour.
	linger = 10 * 60 * core.Second
)

// What answering takes, in units of CEL, of which the CPU works off about ten in a microsecond.
const (
	perPass = 50_000 // about 5 ms
	perTurn = 2_000
	perNode = 20 // besides what the selectors take
	// perSelectors is what it takes to compile selectors, besides their length.
	perSelectors = 5_000
	// pause is the time between two passes that do nothing else, and publishInterval between two in which nodes are described by new answers
	// while others are being found: each time the engine reads these nodes again.
	pause           = core.Second / 100
	publishInterval = core.Second
)

// inquiry is what a pod asks.
type inquiry struct {
	// questions are true where the namespace pays.
	questions map[*question]bool
	// refused is set if the namespace has no room for one more.
	refused bool
}

// mayAsk reports whether a namespace may ask a question, nil for a new one, beside those that a pod asks already.
func (x *Index) mayAsk(namespace string, q *question, beside map[*question]bool) bool {
	if q != nil && x.allowance.Has(namespace, q) || beside[q] {
		return true
	}
	n := 0
	for o, own := range beside {
		if own && !x.allowance.Has(namespace, o) {
			n++
		}
	}
	return n < x.allowance.Room(namespace)
}

// settle records what a pod asks from now on. What it has asked before it was refused counts if it has cost something.
func (x *Index) settle(p *Pod, now *inquiry) {
	if !now.refused {
		x.use(p.UID, p.Namespace, now.questions)
		x.allowance.Leave(p.Namespace, p.UID)
		return
	}
	x.use(p.UID, p.Namespace, nil)
	x.allowance.Wait(p.Namespace, p.UID)
	for q, own := range now.questions {
		if own && q.begun {
			x.charge(p.Namespace, q)
			x.allowance.Release(p.Namespace, q, false, x.now)
		}
		x.forget(q)
	}
}

// use records which questions a pod of a namespace asks from now on.
func (x *Index) use(pod types.UID, namespace string, questions map[*question]bool) {
	old := x.uses[pod]
	for q, own := range questions {
		q.users[pod] = true
		if own && !old[q] {
			x.charge(namespace, q)
		}
	}
	for q, own := range old {
		if _, still := questions[q]; !still {
			delete(q.users, pod)
		}
		if own && !questions[q] {
			x.allowance.Release(namespace, q, !q.begun, x.now)
		}
		x.forget(q)
	}
	if x.uses[pod] = questions; len(questions) == 0 {
		delete(x.uses, pod)
		x.uses = fit.Map(x.uses, &x.mostUses)
	}
}

// charge counts a question for a namespace, of which a pod more asks it.
func (x *Index) charge(namespace string, q *question) {
	if x.allowance.Use(namespace, q) {
		q.asking++
	}
}

// unasked records that a question counts for a namespace less.
func (x *Index) unasked(q *question) {
	q.asking--
	x.forget(q)
}

// Work has nodes answer questions for as long as a pass may take, and forgets what has lingered. It returns when it has to be called again.
func (x *Index) Work(now core.Time) (Change, core.Time) {
	x.now, x.left = max(x.now, now), perPass

	// 1. What has lingered is forgotten, and as many pods as there is room for are resolved again.
	pods, wake := x.allowance.Admit(x.now)
	for _, uid := range pods {
		x.changes.pods[uid] = true
	}

	// 2. Nodes answer, in turns.
	for x.left > 0 {
		q, ok := x.turns.Take()
		if !ok {
			break
		}
		q.queued = false
		if !q.gone && x.goOn(q, max(0, x.left-perTurn)) && !q.known {
			q.queued, x.found = true, append(x.found, q)
		}
	}

	// 3. New answers are published together.
	if x.turns.Len() > 0 {
		wake = min(wake, x.now+pause)
	}
	if len(x.found) > 0 && (x.turns.Len() == 0 || x.now >= x.publishAt) {
		for _, q := range x.found {
			q.queued = false
			if x.publish(q); len(q.open) > 0 {
				x.queue(q)
			}
		}
		x.found, x.publishAt = nil, x.now+publishInterval
	}
	return x.changes.take(), wake
}
