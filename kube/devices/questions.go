package devices

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/internal/fit"
	"github.com/muster-sched/muster/kube/fair"
	"github.com/muster-sched/muster/kube/selector"
	"github.com/muster-sched/muster/kube/translate"
)

// Questions about the devices of every node. Each different list of selectors is one, and so is each constraint. Nodes have labels
// that say what their answers are, and requests ask for the labels. Who pays for a question, and when it is forgotten: see asking.go.

// question is a question about the devices of every node.
type question struct {
	key, label string
	// selectors are what devices must meet; they are compiled when the first node answers. A question without selectors is
	// about constraints, or about the answers to other questions, of which parts are those that cost something.
	selectors []string
	compiled  *selector.Selector
	parts     []*question
	answers   func(*translate.Inventory) answer
	// gpus, nics and parts count the nodes where it holds for some or all GPUs, network devices and partitions; sizes those
	// where it holds for GPUs, by for how many; all and allNICs those where it holds for all.
	gpus, nics, partitions, all, allNICs int
	sizes                                map[int]int
	// single says that there was a node where it holds for some GPUs and not for all: requests name its
	// device set then, and nodes say which GPUs are in it.
	single bool
	// reason and wrong say why nodes cannot answer, "" if they can.
	reason, wrong string

	// open are the nodes that have not answered. queued says that it waits for its turn to go on with them, or to be published;
	// known that it was: then requests go by it. begun says that it has cost something.
	open                 []string
	queued, known, begun bool
	namespace            string // who asked first, for the turns
	// users are the pods that need the answers, asking how many namespaces it counts for.
	users  map[types.UID]bool
	asking int
	gone   bool
}

// answer says for how many of a node's GPUs, network devices and partitions something holds, and for which GPUs.
type answer struct {
	gpus, nics, parts selector.Match
	devices           uint64
}

// matches are the values of matchLabel.
var matches = [...]string{selector.None: "", selector.Some: "some", selector.All: "all"}

// newQuestion returns a question that no node has answered.
func newQuestion(key string) *question {
	h := fnv.New64a()
	h.Write([]byte(key))
	return &question{key: key, label: matchLabel + strconv.FormatUint(h.Sum64(), 36), sizes: map[int]int{}, users: map[types.UID]bool{}}
}

// selectorsOf returns the selectors of a class and a request, not nil.
func selectorsOf(class *Class, selectors []string) []string {
	return slices.Concat([]string{}, class.selectors, selectors)
}

// selectorKey is the key of the question which devices meet all selectors of a list.
func selectorKey(list []string) string { return strings.Join(list, "\x00") }

// compile makes the selectors of a question ready. It sets wrong if they cannot be read.
func (x *Index) compile(q *question) {
	if q.compiled != nil || q.selectors == nil || q.wrong != "" {
		return
	}
	q.begun = true
	x.left -= perSelectors + int64(len(q.key))
	s, err := selector.Compile(q.selectors)
	if err != nil {
		q.reason, q.wrong = ReasonMisconfigured, err.Error()
		return
	}
	q.compiled, q.answers = s, func(v *translate.Inventory) answer {
		a := answer{nics: s.Match(v.NICs), parts: s.Match(v.Parts)}
		a.hold(v, func(i int) bool { return s.Holds(&v.GPUs[i]) })
		return a
	}
}

// inquiries is what is known of questions.
type inquiries struct {
	questions map[string]*question
	byClass   map[string]bool                  // the keys of the administrator's: the selectors of classes
	uses      map[types.UID]map[*question]bool // by pod; true where the namespace pays
	allowance *fair.Allowance[*question]       // which count for a namespace
	turns     fair.Queue[*question]
	found     []*question        // that all nodes have answered, and that are not published
	moved     map[*question]bool // whose answers have changed since pods were resolved again
	// now is when the last pass began, left what is left of it, in units of CEL.
	now, publishAt core.Time
	left           int64
	most, mostUses int
}

func newInquiries() inquiries {
	return inquiries{
		questions: map[string]*question{}, byClass: map[string]bool{}, uses: map[types.UID]map[*question]bool{},
		moved: map[*question]bool{}, left: perPass,
	}
}

// spent is what the question has cost since the last call, in units of CEL.
func (q *question) spent() int64 {
	n := int64(perNode)
	if q.compiled != nil {
		n += q.compiled.Spent()
	}
	for _, p := range q.parts {
		n += p.spent()
	}
	return n
}

// hold fills in for which GPUs of a node something holds.
func (a *answer) hold(v *translate.Inventory, holds func(i int) bool) {
	for i := range v.GPUs[:min(len(v.GPUs), cluster.MaxGPUs)] {
		if v.GPUs[i].Name != "" && holds(i) {
			a.devices |= 1 << i
		}
	}
	switch bits.OnesCount64(a.devices) {
	case 0:
		a.gpus = selector.None
	case v.Count():
		a.gpus = selector.All
	default:
		a.gpus = selector.Some
	}
}

// count adds the answer of a node to what is known of all, or takes it away.
func (q *question) count(a answer, by int) {
	if a.gpus != selector.None {
		q.gpus += by
		n := bits.OnesCount64(a.devices)
		if q.sizes[n] += by; q.sizes[n] == 0 {
			delete(q.sizes, n)
		}
	}
	if a.nics != selector.None {
		q.nics += by
	}
	if a.nics == selector.All {
		q.allNICs += by
	}
	if a.parts != selector.None {
		q.partitions += by
	}
	if a.gpus == selector.All {
		q.all += by
	}
}

// set records the answer of a node.
func (x *Index) set(q *question, node string, p *published, a answer) {
	old := p.answers[q]
	if a == old {
		return
	}
	q.count(old, -1)
	q.count(a, 1)
	if p.answers[q] = a; a == (answer{}) {
		delete(p.answers, q)
		p.answers = fit.Map(p.answers, &p.most)
	}
	if q.known {
		x.changes.node(node)
		x.moved[q] = true
	}
	if a.gpus == selector.Some && !q.single {
		if q.single = true; q.known {
			x.publish(q) // requests name its device set from now on, and nodes say which it is
		}
	}
}

// publish has the nodes described by their answers to a question, and the pods resolved that need these.
func (x *Index) publish(q *question) {
	q.known = true
	for uid := range q.users {
		x.changes.pods[uid] = true
	}
	for name, p := range x.published {
		if _, holds := p.answers[q]; holds {
			x.changes.node(name)
		}
	}
}

// askNode has a node answer, at the expense of what is left of the pass.
func (x *Index) askNode(q *question, node string, p *published) {
	if x.compile(q); q.wrong != "" {
		return
	}
	a := q.answers(p.inventory)
	q.begun = true
	x.left -= q.spent()
	if q.compiled != nil && q.compiled.Dear() != "" {
		x.giveUp(q)
		return
	}
	x.set(q, node, p, a)
}

// giveUp forgets the answers to a question that costs too much.
func (x *Index) giveUp(q *question) {
	q.reason, q.wrong = ReasonTooComplex, q.compiled.Dear()
	for name, p := range x.published {
		x.set(q, name, p, answer{})
	}
	if q.known {
		x.publish(q)
	}
}

// goOn has nodes answer that have not yet, until so much is left of the pass. It reports whether all have answered.
func (x *Index) goOn(q *question, until int64) bool {
	for len(q.open) > 0 && x.left > until && q.wrong == "" {
		name := q.open[0]
		q.open = q.open[1:]
		if p := x.published[name]; p != nil && p.inventory != nil {
			x.askNode(q, name, p)
		}
	}
	if len(q.open) > 0 && q.wrong == "" {
		x.queue(q)
		return false
	}
	x.compile(q) // where there is no node, too: its author is told what is wrong
	q.open = nil
	return true
}

// queue has a question wait for its turn.
func (x *Index) queue(q *question) {
	if !q.queued {
		q.queued = true
		x.turns.Put(q.namespace, q)
	}
}

// answered reports whether all nodes have answered a question that is asked for a pod. What remains of the pass is used
// for that at once; an administrator's question is answered whatever it takes.
func (x *Index) answered(q *question, own bool) bool {
	if q.known {
		return true
	}
	if own {
		if q.queued || !x.goOn(q, 0) {
			return false
		}
	} else {
		left := x.left
		x.goOn(q, never)
		x.left = left
	}
	x.publish(q)
	return true
}

// never is less than is ever left of a pass.
const never = -1 << 62

// askAgain has a node answer all questions, as it has other devices: at once, or when it is the question's turn.
func (x *Index) askAgain(node string, p *published) {
	for _, key := range slices.Sorted(maps.Keys(x.questions)) {
		q := x.questions[key]
		if q.wrong != "" || slices.Contains(q.open, node) {
			continue
		}
		switch {
		case x.byClass[key]:
			left := x.left
			x.askNode(q, node, p)
			x.left = left
		case x.left > 0:
			x.askNode(q, node, p)
		default:
			x.set(q, node, p, answer{})
			q.open = append(q.open, node)
			x.queue(q)
		}
	}
}

// retract removes the answers of a node.
func (x *Index) retract(node string, p *published) {
	for q := range p.answers {
		x.set(q, node, p, answer{})
	}
}

// forget forgets a question that nobody asks.
func (x *Index) forget(q *question) {
	if q.gone || q.asking > 0 || len(q.users) > 0 || x.byClass[q.key] {
		return
	}
	q.gone = true
	delete(x.questions, q.key)
	delete(x.moved, q)
	x.questions = fit.Map(x.questions, &x.most)
	if !q.begun {
		return
	}
	for name, p := range x.published {
		if _, holds := p.answers[q]; holds {
			delete(p.answers, q)
			p.answers = fit.Map(p.answers, &p.most)
			x.changes.node(name)
		}
	}
}

// asked returns the question of a class and selectors, nil if it is not asked.
func (x *Index) asked(class *Class, selectors []string) *question {
	return x.questions[selectorKey(selectorsOf(class, selectors))]
}

// ofClass returns the question which devices are of a class, answered.
func (x *Index) ofClass(class *Class) *question {
	key := selectorKey(class.selectors)
	q := x.questions[key]
	if q == nil {
		q = x.open(newQuestion(key))
		q.selectors = selectorsOf(class, nil)
	}
	x.answered(q, false)
	return q
}

// open adds a question, which all nodes have yet to answer.
func (x *Index) open(q *question) *question {
	x.questions[q.key] = q
	for name, p := range x.published {
		if p.inventory != nil {
			q.open = append(q.open, name)
		}
	}
	slices.SortFunc(q.open, cmp.Compare[string])
	return q
}
