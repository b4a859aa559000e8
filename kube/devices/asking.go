package devices

import (
	"cmp"
	"maps"
	"slices"

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
	// sweepInterval is the time between two looks at which questions have lingered long enough.
	sweepInterval = 60 * core.Second
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

// asking is what the pods of a namespace ask.
type asking struct {
	charges map[*question]*charge
	// refused are the pods that wait for room, by when they came; room says that there may be some.
	refused map[types.UID]uint64
	room    bool
}

// charge is a question that counts for a namespace.
type charge struct {
	pods  int
	until core.Time // it lingers, if it has no pods
}

// mayAsk reports whether a namespace may ask a question, nil for a new one, beside those that a pod asks already.
func (x *Index) mayAsk(namespace string, q *question, beside map[*question]bool) bool {
	a := x.asking[namespace]
	if a == nil {
		a = &asking{}
	}
	if a.charges[q] != nil || beside[q] {
		return true
	}
	n := len(a.charges)
	for o, own := range beside {
		if own && a.charges[o] == nil {
			n++
		}
	}
	return n < MaxQuestions
}

// settle records what a pod asks from now on. What it has asked before it was refused counts if it has cost something.
func (x *Index) settle(p *Pod, now *inquiry) {
	if !now.refused {
		x.use(p.UID, p.Namespace, now.questions)
		x.admit(p.UID, p.Namespace)
		return
	}
	a := x.askingOf(p.Namespace)
	if _, waits := a.refused[p.UID]; !waits {
		x.came++
		a.refused[p.UID] = x.came
	}
	room := a.room
	x.use(p.UID, p.Namespace, now.questions)
	x.use(p.UID, p.Namespace, nil)
	a.room = room
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
			x.discharge(namespace, q)
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
	a := x.askingOf(namespace)
	c := a.charges[q]
	switch {
	case c == nil:
		c = &charge{}
		a.charges[q] = c
		q.asking++
	case c.pods == 0:
		x.lingering--
	}
	c.pods++
}

// discharge records that a pod of a namespace no longer asks a question that counts for it.
func (x *Index) discharge(namespace string, q *question) {
	a := x.asking[namespace]
	c := a.charges[q]
	if c.pods--; c.pods > 0 {
		return
	}
	if q.begun { // it has cost something
		c.until = x.now + linger
		x.lingering++
		return
	}
	x.clear(namespace, a, q)
}

// clear ends that a question counts for a namespace.
func (x *Index) clear(namespace string, a *asking, q *question) {
	delete(a.charges, q)
	a.room = true
	q.asking--
	if x.forget(q); len(a.charges)+len(a.refused) == 0 {
		delete(x.asking, namespace)
	}
}

func (x *Index) askingOf(namespace string) *asking {
	a := x.asking[namespace]
	if a == nil {
		a = &asking{charges: map[*question]*charge{}, refused: map[types.UID]uint64{}}
		x.asking[namespace] = a
	}
	return a
}

// admit records that a pod does not wait for room.
func (x *Index) admit(pod types.UID, namespace string) {
	a := x.asking[namespace]
	if a == nil {
		return
	}
	if delete(a.refused, pod); len(a.charges)+len(a.refused) == 0 {
		delete(x.asking, namespace)
	}
}

// Work has nodes answer questions for as long as a pass may take, and forgets what has lingered. It returns when it has to be called again.
func (x *Index) Work(now core.Time) (Change, core.Time) {
	x.now, x.left = max(x.now, now), perPass

	// 1. What has lingered is forgotten, and as many pods as there is room for are resolved again.
	if x.lingering > 0 && x.now >= x.sweepAt {
		x.sweep()
		x.sweepAt = x.now + sweepInterval
	}
	for _, a := range x.asking {
		x.readmit(a)
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
	wake := core.Never
	if x.turns.Len() > 0 {
		wake = x.now + pause
	}
	if len(x.found) > 0 && (wake == core.Never || x.now >= x.publishAt) {
		for _, q := range x.found {
			q.queued = false
			if x.publish(q); len(q.open) > 0 {
				x.queue(q)
			}
		}
		x.found, x.publishAt = nil, x.now+publishInterval
	}
	if x.lingering > 0 {
		wake = min(wake, x.sweepAt)
	}
	return x.changes.take(), wake
}

// sweep ends the charges that have lingered long enough.
func (x *Index) sweep() {
	for namespace, a := range x.asking {
		for q, c := range a.charges {
			if c.pods == 0 && x.now >= c.until {
				x.lingering--
				x.clear(namespace, a, q)
			}
		}
	}
}

// readmit has as many refused pods of a namespace resolved again as there is room for, first those that have waited longest.
func (x *Index) readmit(a *asking) {
	n := MaxQuestions - len(a.charges)
	if !a.room || n <= 0 || len(a.refused) == 0 {
		return
	}
	a.room = false
	list := slices.SortedFunc(maps.Keys(a.refused), func(i, j types.UID) int { return cmp.Compare(a.refused[i], a.refused[j]) })
	for _, pod := range list[:min(n, len(list))] {
		x.came++
		a.refused[pod] = x.came // if it is refused again, others come first
		x.changes.pods[pod] = true
	}
}
