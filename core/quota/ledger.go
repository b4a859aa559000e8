// Package quota keeps the GPU quotas of queues: who owns how much of which
// model, who uses it, who lends and who borrows (Kant §3.2.1).
package quota

import (
	"errors"
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// Milli counts thousandths of a GPU.
type Milli = cluster.Milli

// Ledger is all queues and what they use. Reading and booking cost O(depth of the tree).
//
// Invariant: every queue has an account for each model that any queue lists; what the accounts
// say is what rebuild derives from the queues' descriptions, own and pinned.
type Ledger struct {
	byName map[string]*Queue
	order  []*Queue
	listed map[string]int // how many queues list a quota for the model
	// root is above all queues that have no parent: they lend to each other.
	root *Queue
}

// Queue is a queue in the ledger: its description, its place in the tree, and what its
// jobs use.
type Queue struct {
	QueueSpec
	parent   *Queue
	children []*Queue
	accounts map[string]*account    // by model or AnyModel
	own      map[string]Milli       // what its own jobs use, by model
	pinned   [pins]map[string]Milli // the part of own that must not be evicted
	governs  map[string][]string    // see governing
	owners   map[string]*Queue      // see Owner
	// leaving is what evicted pods of the queue, and of those below it, still hold, less what
	// is kept for pods that wait for others to leave.
	leaving map[string]Milli
	// Jobs counts live jobs of the queue; the engine keeps it.
	Jobs int
}

// account is what a queue and those below it own, lend and use of one model or of
// AnyModel. The rules are those of hierarchical cohorts: a queue uses first
// what it keeps for itself, then what its parent has for all.
type account struct {
	above   *account // of the queue's parent, nil at the root
	listed  bool     // the queue has a quota for the model
	nominal Milli
	borrow  Milli // how much more it may use, or Unlimited
	lend    Milli // what others may use of what the queue owns, or Unlimited
	// subtree is what the queue owns, with what those below it lend; kept is
	// the part of it that it does not lend in turn.
	subtree, kept Milli
	// usage is what the queue's own jobs use, and what those below it use beyond what they
	// keep.
	usage Milli
	// counted is what jobs use that count against nominal: jobs of the queue, and of queues
	// below it that list no quota of their own for the model. pinned is the part of it that must
	// not be evicted.
	counted Milli
	pinned  [pins]Milli
}

// NewLedger returns a ledger without queues.
func NewLedger() *Ledger {
	return &Ledger{byName: map[string]*Queue{}, listed: map[string]int{}, root: newQueue()}
}

func newQueue() *Queue {
	q := &Queue{own: map[string]Milli{}}
	for p := range q.pinned {
		q.pinned[p] = map[string]Milli{}
	}
	return q
}

// Lookup finds a queue by name.
func (l *Ledger) Lookup(name string) (*Queue, bool) {
	q, ok := l.byName[name]
	return q, ok
}

// Check reports what is wrong with a queue's description by itself.
func Check(q *QueueSpec) error {
	if q.Name == "" {
		return errors.New("queue without a name")
	}
	if q.Weight < 1 {
		return fmt.Errorf("queue %s: weight must be at least 1, found %d", q.Name, q.Weight)
	}
	seen := map[string]bool{}
	for _, m := range q.Quota {
		switch {
		case m.Model == "":
			return fmt.Errorf("queue %s: quota without a model", q.Name)
		case seen[m.Model]:
			return fmt.Errorf("queue %s: two quotas for model %s", q.Name, m.Model)
		case m.Nominal < 0 || m.BorrowingLimit < 0 || m.LendingLimit < 0:
			return fmt.Errorf("queue %s: negative quota for model %s", q.Name, m.Model)
		case m.Nominal > MaxQuota || m.BorrowingLimit > MaxQuota && m.BorrowingLimit != Unlimited || m.LendingLimit > MaxQuota && m.LendingLimit != Unlimited:
			return fmt.Errorf("queue %s: more quota for model %s than %d milli-GPU, expected that at most, or no limit", q.Name, m.Model, MaxQuota)
		}
		seen[m.Model] = true
	}
	return nil
}

// Set adds a queue or changes it; its usage stays. It is an error if the parent
// is unknown or the queue would be its own ancestor. Adding one costs
// O(depth of the tree), changing one or listing a model first O(queues).
func (l *Ledger) Set(spec QueueSpec) error {
	if err := Check(&spec); err != nil {
		return err
	}
	parent := l.root
	if spec.Parent != "" {
		parent = l.byName[spec.Parent]
		if parent == nil {
			return fmt.Errorf("queue %s: parent %s is unknown", spec.Name, spec.Parent)
		}
	}
	// 1. A queue that is known may get another parent, but none from below itself.
	q, known := l.byName[spec.Name]
	for p := parent; known && p != nil; p = p.parent {
		if p == q {
			return fmt.Errorf("queue %s: it would be its own ancestor through %s", spec.Name, spec.Parent)
		}
	}
	// 2. The queue takes its place in the tree.
	if !known {
		q = newQueue()
		l.byName[spec.Name] = q
		l.order = append(l.order, q)
	} else {
		q.parent.drop(q)
		l.list(q.Quota, -1)
	}
	q.QueueSpec, q.parent = spec, parent
	parent.children = append(parent.children, q)
	// 3. The accounts. A new queue has no jobs, so it changes only what those above it may
	// lend. To derive all accounts for each made 1,000 queues take 7 s. A change may move
	// usage to other accounts, and a new model needs an account in every queue.
	if newModel := l.list(spec.Quota, 1); known || newModel {
		l.rebuild()
	} else {
		q.join()
	}
	return nil
}

// list counts quotas in or out, and reports whether any is the first for its model.
func (l *Ledger) list(quota []Quota, by int) (first bool) {
	for _, q := range quota {
		first = first || l.listed[q.Model] == 0
		if l.listed[q.Model] += by; l.listed[q.Model] == 0 {
			delete(l.listed, q.Model)
		}
	}
	return first
}

// join opens the accounts of a queue that is new, and adds what it lends to those above it.
func (q *Queue) join() {
	q.reset()
	for model := range q.parent.accounts {
		q.open(model)
		a := q.accounts[model]
		a.subtree = a.nominal
		a.kept = max(0, a.subtree-a.lend)
		a.above.raise(a.subtree - a.kept)
	}
}

// raise adds what a queue below lends to the account, and what the account lends in turn to
// those above. If the account keeps more now, less of its use counts as borrowed from above.
func (a *account) raise(lent Milli) {
	for ; a != nil && lent != 0; a = a.above {
		// What is lent to an account it lends on, up to its lending limit; the rest it keeps.
		// Use that was booked above may now fit into what it keeps: that part comes back.
		lends, beyond := a.subtree-a.kept, max(0, a.usage-a.kept)
		a.subtree = cluster.Plus(a.subtree, lent)
		a.kept = max(0, a.subtree-a.lend)
		lent = a.subtree - a.kept - lends
		if less := beyond - max(0, a.usage-a.kept); less != 0 && a.above != nil {
			a.above.pass(-less)
		}
	}
}

// drop takes a child out of the tree.
func (q *Queue) drop(child *Queue) {
	q.children = slices.DeleteFunc(q.children, func(c *Queue) bool { return c == child })
}

// Remove takes a queue away. It is an error while it has children or jobs.
func (l *Ledger) Remove(name string) error {
	q := l.byName[name]
	switch {
	case q == nil:
		return fmt.Errorf("queue %s is unknown", name)
	case len(q.children) > 0:
		return fmt.Errorf("queue %s has child queues", name)
	case q.Jobs > 0:
		return fmt.Errorf("queue %s has %d live jobs", name, q.Jobs)
	}
	delete(l.byName, name)
	l.list(q.Quota, -1)
	l.order = slices.DeleteFunc(l.order, func(o *Queue) bool { return o == q })
	q.parent.drop(q)
	l.rebuild()
	return nil
}

// rebuild derives all accounts from the queues and what their jobs use.
func (l *Ledger) rebuild() {
	l.root.reset()
	// 1. What the queues own and lend.
	for model := range l.listed {
		l.root.openAll(model)
	}
	l.root.settle()

	// 2. What their jobs use.
	for _, q := range l.order {
		for model, v := range q.own {
			q.book(model, v)
		}
		for p := range q.pinned {
			for model, v := range q.pinned[p] {
				q.bookPinned(model, v, Pin(p))
			}
		}
	}
}

// reset forgets the accounts of the queue and all below it.
func (q *Queue) reset() {
	q.accounts, q.governs, q.owners = map[string]*account{}, map[string][]string{}, map[string]*Queue{}
	for _, c := range q.children {
		c.reset()
	}
}

// openAll opens an account for a model at the queue and all below it.
func (q *Queue) openAll(model string) {
	q.open(model)
	for _, c := range q.children {
		c.openAll(model)
	}
}

// open makes sure that the queue has an account for a model, as those above it do.
func (q *Queue) open(model string) {
	if q.accounts[model] != nil {
		return
	}
	a := &account{borrow: Unlimited, lend: Unlimited}
	if q.parent != nil {
		a.above = q.parent.accounts[model]
	}
	// Without a quota for the model, a queue owns nothing and may borrow without limit.
	for _, e := range q.Quota {
		if e.Model == model {
			a.listed, a.nominal, a.borrow, a.lend = true, e.Nominal, e.BorrowingLimit, e.LendingLimit
		}
	}
	if q.Mode == Isolated {
		a.borrow, a.lend = 0, 0
	}
	q.accounts[model] = a
}

// settle computes what the queue and those below it own, from below.
func (q *Queue) settle() {
	for _, c := range q.children {
		c.settle()
	}
	for model, a := range q.accounts {
		a.subtree = a.nominal
		for _, c := range q.children {
			ca := c.accounts[model]
			a.subtree = cluster.Plus(a.subtree, ca.subtree-ca.kept)
		}
		a.kept = max(0, a.subtree-a.lend)
	}
}

// governing returns the accounts that limit a request of the queue for a model: the
// model's and AnyModel's, if the nearest queue with quotas, from this one upwards, lists
// them. none is true if it lists neither: then nothing is allowed. If no queue has a
// quota, there is no account and no limit.
func (q *Queue) governing(model string) (accounts []string, none bool) {
	if len(q.accounts) == 0 {
		return nil, false
	}
	g, ok := q.governs[model]
	if !ok {
		// A team that lists A only may not use B, though the queue above lists "*".
		a := q
		for a != nil && len(a.Quota) == 0 {
			a = a.parent
		}
		for _, m := range [2]string{model, AnyModel} {
			if acc := q.accounts[m]; acc != nil && (a == nil || a.accounts[m].listed) {
				g = append(g, m)
			}
		}
		q.governs[model] = g
	}
	return g, len(g) == 0
}

// Limited reports whether any quota limits the queue's jobs.
func (q *Queue) Limited() bool { return len(q.accounts) > 0 }

// Limited reports whether any queue has a quota.
func (l *Ledger) Limited() bool { return l.root.Limited() }

// Room returns how much more of a model the queue's jobs may use now:
// [Unlimited] if no quota limits them. It may be negative after a quota was cut.
func (q *Queue) Room(model string) Milli {
	accounts, none := q.governing(model)
	if none {
		return 0
	}
	room := Unlimited
	for _, m := range accounts {
		room = min(room, q.Available(m))
	}
	return room
}

// isolated returns the owner of an account against which the queue's jobs count if it is
// [Isolated], else nil: its jobs do not borrow from queues below it, either.
func (q *Queue) isolated(account string) *Queue {
	if o := q.Owner(account); o != nil && o.Mode == Isolated {
		return o
	}
	return nil
}

// available returns how much more the queue's jobs may use by the limits of this account
// and those above it.
func (a *account) available() Milli {
	if a.above == nil {
		return a.subtree - a.usage
	}
	// What is left of what it keeps, and what there is above, as far as it may borrow. What it
	// lends comes back to it from above without counting as borrowed.
	above := a.above.available()
	if a.borrow != Unlimited {
		lent := a.subtree - a.kept
		above = min(above, cluster.Plus(lent-max(0, a.usage-a.kept), a.borrow))
	}
	return cluster.Plus(max(0, a.kept-a.usage), above)
}

// Most returns how much of a model the queue's jobs could use if no other queue used
// any: [Unlimited] if no quota limits them.
func (q *Queue) Most(model string) Milli {
	accounts, none := q.governing(model)
	if none {
		return 0
	}
	most := Unlimited
	for _, m := range accounts {
		most = min(most, q.accounts[m].most())
		if o := q.isolated(m); o != nil {
			most = min(most, o.accounts[m].nominal)
		}
	}
	return most
}

// most is what available returns if nothing is in use.
func (a *account) most() Milli {
	if a.above == nil {
		return a.subtree
	}
	above := a.above.most()
	if a.borrow != Unlimited {
		above = min(above, cluster.Plus(a.subtree-a.kept, a.borrow))
	}
	return cluster.Plus(a.kept, above)
}

// Owned returns how much of a model the queue's jobs may use without borrowing when
// they use nothing else.
func (q *Queue) Owned(model string) Milli {
	return q.leftOf(model, func(*account) Milli { return 0 })
}

// RoomNow returns how much more of a model the queue's jobs may be given at once. It is Room,
// except for [Isolated] queues: those never hold more than their quota, with what is leaving.
func (q *Queue) RoomNow(model string) Milli {
	room := q.Room(model)
	// An evicted pod returns its quota at once but holds its GPUs until it has left. A Shared
	// queue may hold more than its quota for that time; an Isolated queue, or one below it, must
	// wait.
	for up := q; up != nil; up = up.parent {
		if up.Mode != Isolated || len(up.leaving) == 0 {
			continue
		}
		for _, m := range q.Governing(model) {
			left := up.leaving[m]
			if m == AnyModel { // all that is leaving, of whichever model
				left = 0
				for _, v := range up.leaving {
					left += v
				}
			}
			if left > 0 {
				room = min(room, up.accounts[m].available()-left)
				if up == q.isolated(m) {
					room = min(room, up.accounts[m].nominal-up.accounts[m].counted-left)
				}
			}
		}
	}
	return room
}

// Leave counts GPU of a model that evicted pods of the queue still hold. The amount is
// negative when they have left, and for GPU that is kept for a job that waits for them.
func (q *Queue) Leave(model string, gpu Milli) {
	for up := q; up != nil; up = up.parent {
		if up.leaving == nil {
			up.leaving = map[string]Milli{}
		}
		if up.leaving[model] += gpu; up.leaving[model] == 0 {
			delete(up.leaving, model)
		}
	}
}

// Add books GPU of a model as used by a job of the queue; a negative amount
// gives it back.
func (q *Queue) Add(model string, gpu Milli) {
	if gpu == 0 {
		return
	}
	q.own[model] += gpu
	q.book(model, gpu)
}

// book counts GPU of a model in the accounts that govern it. The usage is passed up the tree
// as far as it is borrowed, while all of it counts against the nominal quota of one queue: by
// comparing the two, borrowing shows.
func (q *Queue) book(model string, gpu Milli) {
	accounts, _ := q.governing(model)
	for _, m := range accounts {
		q.accounts[m].pass(gpu)
		if o := q.Owner(m); o != nil {
			o.accounts[m].counted += gpu
		}
	}
}

// Pin is why GPU that a job uses must not be evicted.
type Pin uint8

// The reasons: the job may not be evicted, or not for too long a time; or another scheduler
// decides on the job, and may evict it.
const (
	Protected Pin = iota
	Foreign
	pins
)

// Pin notes that GPU of a model, which is also booked by [Queue.Add], must not be evicted; a
// negative amount takes that back.
func (q *Queue) Pin(model string, gpu Milli, why Pin) {
	if gpu == 0 {
		return
	}
	q.pinned[why][model] += gpu
	q.bookPinned(model, gpu, why)
}

// bookPinned counts what must not be evicted against the nominal quotas against which it
// counts.
func (q *Queue) bookPinned(model string, gpu Milli, why Pin) {
	accounts, _ := q.governing(model)
	for _, m := range accounts {
		if o := q.Owner(m); o != nil {
			o.accounts[m].pinned[why] += gpu
		}
	}
}

// NominalRoom returns how much more of a model the queue's jobs may use without borrowing: what
// is left of the nominal quotas against which they count, negative if jobs borrow already. It is
// [Unlimited] if no quota limits the queue. What others have borrowed of it is not subtracted.
func (q *Queue) NominalRoom(model string) Milli {
	return q.leftOf(model, func(a *account) Milli { return a.counted })
}

// OwnRoom is RoomNow without borrowing.
func (q *Queue) OwnRoom(model string) Milli { return min(q.RoomNow(model), q.NominalRoom(model)) }

// PinnedRoom is RoomNow for jobs that must not be evicted: all such jobs together hold at most
// the nominal quotas against which they count.
func (q *Queue) PinnedRoom(model string) Milli {
	return min(q.RoomNow(model), q.PinnedLeft(model))
}

// PinnedLeft returns what jobs that must not be evicted leave of the nominal quotas against
// which the queue's jobs count.
func (q *Queue) PinnedLeft(model string) Milli {
	return q.leftOf(model, func(a *account) Milli { return a.pinned[Protected] + a.pinned[Foreign] })
}

// ProtectedLeft is PinnedLeft without the jobs that another scheduler decides on and may evict.
func (q *Queue) ProtectedLeft(model string) Milli {
	return q.leftOf(model, func(a *account) Milli { return a.pinned[Protected] })
}

// leftOf returns what used leaves of the nominal quotas against which the queue's jobs count.
func (q *Queue) leftOf(model string, used func(*account) Milli) Milli {
	accounts, none := q.governing(model)
	if none {
		return 0
	}
	left := Unlimited
	for _, m := range accounts {
		o := q.Owner(m)
		if o == nil {
			return 0
		}
		a := o.accounts[m]
		left = min(left, a.nominal-used(a))
	}
	return left
}

// pass books an amount in this account, and in those above the part that is beyond what this
// one keeps.
//
// A queue that keeps 4 and uses 3 has booked nothing above. With 2 more it has booked 1 there;
// when it gives those back, the 1 comes back too, and not 2.
func (a *account) pass(gpu Milli) {
	before := max(0, a.usage-a.kept)
	a.usage += gpu
	if up := max(0, a.usage-a.kept) - before; up != 0 && a.above != nil {
		a.above.pass(up)
	}
}

// Nominal returns the queue's own quota for a model or AnyModel, and false
// when it has none.
func (q *Queue) Nominal(model string) (Milli, bool) {
	for _, e := range q.Quota {
		if e.Model == model {
			return e.Nominal, true
		}
	}
	return 0, false
}

// Owner returns the queue against whose nominal quota a job of q counts in an account: the
// nearest, from q upwards, that lists it; nil if none does.
func (q *Queue) Owner(account string) *Queue {
	if o, ok := q.owners[account]; ok {
		return o
	}
	var owner *Queue
	for a := q; a != nil && owner == nil; a = a.parent {
		if _, ok := a.Nominal(account); ok {
			owner = a
		}
	}
	q.owners[account] = owner
	return owner
}

// Governing returns the accounts against which a request of the queue for a model counts. The
// slice is for reading.
func (q *Queue) Governing(model string) []string {
	g, _ := q.governing(model)
	return g
}

// InUse returns what the queue uses of an account, and those below it beyond what they keep;
// of an [Isolated] queue, what counts against its own quota.
func (q *Queue) InUse(account string) Milli {
	a := q.accounts[account]
	switch {
	case a == nil:
		return 0
	case q.isolated(account) == q:
		return a.counted
	}
	return a.usage
}

// Available returns how much more of an account the queue's jobs may use: [Unlimited]
// without quotas.
func (q *Queue) Available(account string) Milli {
	if q.accounts[account] == nil {
		return Unlimited
	}
	room := q.accounts[account].available()
	if o := q.isolated(account); o != nil {
		room = min(room, o.accounts[account].nominal-o.accounts[account].counted)
	}
	return room
}
