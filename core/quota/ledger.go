// Package quota keeps the quotas of queues: who owns how much of which GPU
// model, or of CPU, memory and other resources, who uses it, who lends and who
// borrows (Kant §3.2.1).
//
// Each model, [AnyModel] and each resource has an account in every queue, all with
// the same rules. Where a method takes an account, that is the name of a model, or
// what [cluster.AccountOf] makes of the name of a resource.
package quota

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// Milli counts thousandths of a GPU; in the account of a resource, its unit.
type Milli = cluster.Milli

// Ledger is all queues and what they use. Reading and booking cost O(depth of the tree).
//
// Invariant: every queue has an account for each model and resource that any queue lists; what the
// accounts say is what rebuild derives from the queues' descriptions, own and pinned. resources
// has the accounts of resources that any queue lists, by name.
type Ledger struct {
	byName    map[string]*Queue
	order     []*Queue
	listed    map[string]int // how many queues list a quota for the account
	resources []string
	atTop     atTop
	// root is above all queues that have no parent: they lend to each other.
	root *Queue
	// deepest is the greatest depth of a queue that has queues below it.
	deepest int
	// divided is what the cluster had when Divide was called last, nil if something has changed.
	// divisions and excesses count what it did: see Divisions and Excesses.
	divided             map[string]Milli
	divisions, excesses uint64
	// lastDivision is how it divided GPUs last; nil if what it depends on beside requests and capacity has changed since. requests
	// counts changes of what is requested.
	lastDivision *division
	requests     uint64
	// unowned is what the top of the tree has to lend beside what queues lend, by account; lent is the
	// capacity of which it is a part, nil if queues have changed since. See LendUnowned.
	unowned, lent map[string]Milli
	// bounded counts the queues that bound what runs.
	bounded int
	// fairUsers counts the queues that are fair between users.
	fairUsers int
	// bookings counts the changes of what queues own, use or are owed, settings those of what they own or are owed.
	bookings, settings uint64
}

// Queue is a queue in the ledger: its description, its place in the tree, and what its
// jobs use.
type Queue struct {
	QueueSpec
	parent   *Queue
	children []*Queue            // by name
	depth    int                 // 1 without a parent
	accounts map[string]*account // by model, AnyModel or resource
	own      tally               // what its own jobs use
	below    tally               // what the queues below it use, without jobs of other schedulers
	pinned   [pins]tally         // the part of own that must not be evicted
	ledger   *Ledger
	// requested is what its own jobs request, by the models that they accept: see Request. shares
	// and ownShares are what it with all below it, and its own jobs alone, are owed: see Divide.
	requested         map[string]Milli
	mostRequested     int // see fit.Map
	shares, ownShares []Share
	// resourceShares and ownResourceShares are the same of resources.
	resourceShares, ownResourceShares []Share
	// gains counts how often Divide found that it, or its own jobs, are owed more of a model than before.
	gains uint64
	// changed is Ledger.requests when its own jobs, or those of a queue below it, requested more or less last.
	changed     uint64
	governs     []*governed // see governed
	recalled    recalled
	booked      uint64            // counts the changes of own and pinned
	bookedIn    uint64            // of a queue without a parent: those of all below it, and of what is leaving
	owners      map[string]*Queue // see Owner
	limits      []string          // see Limits
	knowsLimits bool
	// leaving is what evicted pods of the queue, and of those below it, still hold, less what
	// is kept for pods that wait for others to leave.
	leaving map[string]Milli
	// running is what runs in the queue and all below it, byUser what each user's jobs do: see Run.
	running Running
	byUser  map[string]*Running
	// Jobs counts live jobs of the queue; the engine keeps it.
	Jobs int
}

// governed is the accounts against which a request for a model or resource counts. none says that
// nothing of it is allowed.
type governed struct {
	model    string
	accounts []string
	none     bool
	// By the places of accounts: the queue's own, its owner, nil if there is none, and that one's account.
	uses   []*account
	owners []*Queue
	owned  []*account
	plain  int8 // see [Queue.Plain], -1 if it is not
}

// account is what a queue and those below it own, lend and use of one model, of
// AnyModel, or of a resource. The rules are those of hierarchical cohorts: a queue uses first
// what it keeps for itself, then what its parent has for all.
type account struct {
	above   *account // of the queue's parent, nil at the root
	listed  bool     // the queue has a quota for it
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
	l := &Ledger{byName: map[string]*Queue{}, listed: map[string]int{}}
	l.root = l.newQueue()
	return l
}

func (l *Ledger) newQueue() *Queue {
	return &Queue{ledger: l, requested: map[string]Milli{}}
}

// Lookup finds a queue by name.
func (l *Ledger) Lookup(name string) (*Queue, bool) {
	q, ok := l.byName[name]
	return q, ok
}

// All yields the queues in the order in which they were set first.
func (l *Ledger) All() iter.Seq[*Queue] { return slices.Values(l.order) }

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
		q = l.newQueue()
		l.byName[spec.Name] = q
		l.order = append(l.order, q)
	} else {
		q.parent.drop(q)
		l.list(&q.QueueSpec, -1)
		l.bound(q, -1)
	}
	l.divided, l.lent, l.lastDivision = nil, nil, nil
	l.bookings++
	l.settings++
	q.QueueSpec, q.parent = spec, parent
	l.bound(q, 1)
	parent.adopt(q)
	// 3. The accounts. A new queue has no jobs, so it changes only what those above it may
	// lend. To derive all accounts for each made 1,000 queues take 7 s. A change may move
	// usage to other accounts, and a new model or resource needs an account in every queue.
	if newAccount := l.list(&spec, 1); known || newAccount {
		l.rebuild()
	} else {
		q.join()
		l.deepest = max(l.deepest, parent.depth)
	}
	return nil
}

// Free reports whether no quota limits a GPU model: no queue lists it, nor all models together.
func (l *Ledger) Free(model string) bool { return l.listed[model] == 0 && l.listed[AnyModel] == 0 }

// list counts the quotas of a queue in or out, and reports whether any is the first for its account.
func (l *Ledger) list(q *QueueSpec, by int) (first bool) {
	for e := range q.entries {
		first = first || l.listed[e.account] == 0
		if l.listed[e.account] += by; l.listed[e.account] == 0 {
			delete(l.listed, e.account)
		}
	}
	if len(q.Resources) > 0 {
		l.resources = l.resources[:0:0]
		for account := range l.listed {
			if _, ok := cluster.ResourceOf(account); ok {
				l.resources = append(l.resources, account)
			}
		}
		slices.Sort(l.resources)
	}
	return first
}

// Counted returns the accounts of the resources of which any queue has a quota, in order. What jobs
// take of those must be booked; what they took before a resource was listed, too. The slice is for
// reading.
func (l *Ledger) Counted() []string { return l.resources }

// LimitsGPUs reports whether any queue has a quota of GPUs. Else no quota, and nothing that queues are
// owed, bounds which GPUs jobs use.
func (l *Ledger) LimitsGPUs() bool { return len(l.listed) > len(l.resources) }

// Forget drops what is known of the use of a resource that no queue lists any more.
func (l *Ledger) Forget(account string) {
	l.bookings++
	l.settings++
	for _, q := range l.order {
		q.own.forget(account)
		delete(q.leaving, account)
		delete(q.requested, account)
		q.resourceShares, q.ownResourceShares = without(q.resourceShares, account), without(q.ownResourceShares, account)
		for p := range q.pinned {
			q.pinned[p].forget(account)
		}
	}
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

// adopt puts a child in its place in the tree.
func (q *Queue) adopt(child *Queue) {
	at, _ := slices.BinarySearchFunc(q.children, child.Name, func(c *Queue, name string) int { return cmp.Compare(c.Name, name) })
	q.children = slices.Insert(q.children, at, child)
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
	l.list(&q.QueueSpec, -1)
	l.bound(q, -1)
	l.order = slices.DeleteFunc(l.order, func(o *Queue) bool { return o == q })
	q.parent.drop(q)
	l.rebuild()
	return nil
}

// rebuild derives all accounts from the queues and what their jobs use.
func (l *Ledger) rebuild() {
	l.divided, l.lent, l.unowned, l.lastDivision = nil, nil, nil, nil
	l.bookings++
	l.settings++
	l.root.reset()
	// 1. What the queues own and lend.
	for model := range l.listed {
		l.root.openAll(model)
	}
	l.root.settle()

	// 2. What their jobs use.
	l.deepest = 0
	for _, q := range l.order {
		q.below = q.below[:0]
	}
	for _, q := range l.order {
		l.deepest = max(l.deepest, q.parent.depth)
		for _, a := range q.own {
			q.count(a.account, a.Milli)
			q.book(a.account, a.Milli)
		}
		for p := range q.pinned {
			for _, a := range q.pinned[p] {
				q.bookPinned(a.account, a.Milli, Pin(p))
				if Pin(p) == Foreign {
					q.count(a.account, -a.Milli)
				}
			}
		}
	}
}

// reset forgets the accounts of the queue and all below it.
func (q *Queue) reset() {
	q.accounts, q.governs, q.owners = map[string]*account{}, q.governs[:0:0], map[string]*Queue{}
	q.limits, q.knowsLimits = nil, false
	if q.parent != nil {
		q.depth = q.parent.depth + 1
	}
	for _, c := range q.children {
		c.reset()
	}
}

// openAll opens an account for a model or resource at the queue and all below it.
func (q *Queue) openAll(model string) {
	q.open(model)
	for _, c := range q.children {
		c.openAll(model)
	}
}

// open makes sure that the queue has an account for a model or resource, as those above it do.
func (q *Queue) open(model string) {
	if q.accounts[model] != nil {
		return
	}
	a := &account{borrow: Unlimited, lend: Unlimited}
	if q.parent != nil {
		a.above = q.parent.accounts[model]
	}
	// Without a quota for it, a queue owns nothing and may borrow without limit.
	for e := range q.entries {
		if e.account == model {
			a.listed, a.nominal, a.borrow, a.lend = true, e.nominal, e.borrow, e.lend
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
// quota of the model or of all models together, there is no account and no limit.
//
// A resource counts against its account if this queue, or one above it, lists it. If none does, it
// is not limited: a queue that divides GPUs among teams says nothing about their CPU.
func (q *Queue) governing(model string) (accounts []string, none bool) {
	g := q.governed(model)
	return g.accounts, g.none
}

// governed is governing, with the accounts themselves. There are few, so that to look at each costs less than a map.
func (q *Queue) governed(model string) *governed {
	if len(q.accounts) == 0 {
		return &ungoverned
	}
	for _, g := range q.governs {
		if g.model == model {
			return g
		}
	}
	g := q.findGoverning(model)
	g.model = model
	for _, m := range g.accounts {
		o, owned := q.Owner(m), (*account)(nil)
		if o != nil {
			owned = o.accounts[m]
		}
		g.uses, g.owners, g.owned = append(g.uses, q.accounts[m]), append(g.owners, o), append(g.owned, owned)
	}
	g.plain = q.plainIn(&g)
	q.governs = append(q.governs, &g)
	return &g
}

// ungoverned is what limits nothing.
var ungoverned = governed{plain: -1}

func (q *Queue) findGoverning(model string) (g governed) {
	if _, ok := cluster.ResourceOf(model); ok {
		if q.Owner(model) != nil {
			g.accounts = []string{model}
		}
		return g
	}
	if q.ledger.Free(model) {
		return g
	}
	// A team that lists A only may not use B, though the queue above lists "*".
	a := q.Lists()
	for _, m := range [2]string{model, AnyModel} {
		if acc := q.accounts[m]; acc != nil && (a == nil || a.accounts[m].listed) {
			g.accounts = append(g.accounts, m)
		}
	}
	g.none = len(g.accounts) == 0
	return g
}

// Lists returns the nearest queue, from q upwards, that lists quotas of GPUs: they say which models the
// jobs of q may use. nil if none does.
func (q *Queue) Lists() *Queue {
	for q != nil && len(q.Quota) == 0 {
		q = q.parent
	}
	return q
}

// Limits returns the accounts of the resources that limit the queue's jobs, in order. The slice is
// for reading.
func (q *Queue) Limits() []string {
	if len(q.ledger.resources) == 0 {
		return nil
	}
	if !q.knowsLimits {
		for _, r := range q.ledger.resources {
			if q.Owner(r) != nil {
				q.limits = append(q.limits, r)
			}
		}
		q.knowsLimits = true
	}
	return q.limits
}

// Counted is [Ledger.Counted].
func (q *Queue) Counted() []string { return q.ledger.resources }

// LimitsGPUs is [Ledger.LimitsGPUs].
func (q *Queue) LimitsGPUs() bool { return q.ledger.LimitsGPUs() }

// MayUse reports whether the queue's jobs may use a model at all.
func (q *Queue) MayUse(model string) bool {
	_, none := q.governing(model)
	return !none
}

// Limited reports whether any quota limits the queue's jobs.
func (q *Queue) Limited() bool { return len(q.accounts) > 0 }

// Limited reports whether any queue has a quota.
func (l *Ledger) Limited() bool { return l.root.Limited() }

// Room returns how much more of a model the queue's jobs may use now:
// [Unlimited] if no quota limits them. It may be negative after a quota was cut.
func (q *Queue) Room(model string) Milli {
	g := q.governed(model)
	if g.none {
		return 0
	}
	room := Unlimited
	for i, a := range g.uses {
		room = min(room, a.available())
		if o := g.owners[i]; o != nil && o.Mode == Isolated {
			room = min(room, g.owned[i].nominal-g.owned[i].counted)
		}
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
func (a *account) available() Milli { return a.availableIn(nil) }

// availableIn is available if the account top lends nothing from above: only what its queue owns
// counts, with the queues below it. nil is the top of the tree.
func (a *account) availableIn(top *account) Milli {
	if a.above == nil || a == top {
		return a.subtree - a.usage
	}
	// What is left of what it keeps, and what there is above, as far as it may borrow. What it
	// lends comes back to it from above without counting as borrowed.
	above := a.above.availableIn(top)
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
	return q.recall(model, roomNow, func() Milli { return q.roomNow(model) })
}

func (q *Queue) roomNow(model string) Milli {
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
				for of, v := range up.leaving {
					if _, ok := cluster.ResourceOf(of); !ok {
						left += v
					}
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
	q.ledger.bookings++
	q.top().bookedIn++
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
	q.noteBooking()
	q.own.add(model, gpu)
	q.count(model, gpu)
	q.book(model, gpu)
}

// noteBooking notes that what the queue's own jobs use changes.
func (q *Queue) noteBooking() {
	q.ledger.bookings++
	q.booked++
	q.top().bookedIn++
}

// count adds GPU of a model to what the queues above have below them.
func (q *Queue) count(model string, gpu Milli) {
	for up := q.parent; up.parent != nil; up = up.parent {
		up.below.add(model, gpu)
	}
}

// book counts GPU of a model in the accounts that govern it. The usage is passed up the tree
// as far as it is borrowed, while all of it counts against the nominal quota of one queue: by
// comparing the two, borrowing shows.
func (q *Queue) book(model string, gpu Milli) {
	if !q.Limited() {
		return
	}
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
	q.noteBooking()
	q.pinned[why].add(model, gpu)
	if why == Foreign {
		q.ledger.divided = nil
		q.count(model, -gpu)
	}
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
	return q.recall(model, nominalRoom, func() Milli {
		return q.leftOf(model, func(a *account) Milli { return a.counted })
	})
}

// In reports whether the queue, or one above it, has this name.
func (q *Queue) In(name string) bool {
	for up := q; up != nil; up = up.parent {
		if up.Name == name {
			return true
		}
	}
	return false
}

// Own is deeper than every queue: at this depth a queue borrows nothing.
const Own = math.MaxInt32

// Deepest returns the greatest depth of a queue that has others below it. The depth of a queue
// without a parent is 1; it is 0 if no queue has a parent.
func (l *Ledger) Deepest() int { return l.deepest }

// RoomWithin returns how much more of a model the queue's jobs may use if nothing is borrowed
// from beyond the queue above them at a depth: what is left of the nominal quotas against which
// they count or, if that is more, of what the queue at that depth, or one on the way to it, owns
// together with those below it. Depth 0 is the whole tree; at [Own] it is NominalRoom. What
// queues beyond have borrowed is not subtracted. The less deep, the more. It costs O(depth²).
func (q *Queue) RoomWithin(model string, depth int) Milli {
	if depth == Own {
		return q.NominalRoom(model)
	}
	return q.recall(model, depthRoom+max(depth, 0), func() Milli { return q.roomWithin(model, max(depth, 0)) })
}

func (q *Queue) roomWithin(model string, depth int) Milli {
	room := q.NominalRoom(model)
	g := q.governed(model)
	if len(g.accounts) == 0 {
		return room
	}
	for top := g.owners[0]; top != nil && top.depth >= max(depth, 1); top = top.parent {
		left := Unlimited
		for i, m := range g.accounts {
			left = min(left, g.uses[i].availableIn(top.accounts[m]))
		}
		room = max(room, left)
	}
	if depth <= 0 {
		room = max(room, q.Room(model))
	}
	return room
}

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
	g := q.governed(model)
	if g.none {
		return 0
	}
	left := Unlimited
	for _, a := range g.owned {
		if a == nil {
			return 0
		}
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

// Nominal returns the queue's own quota for a model, AnyModel or a resource, and false
// when it has none.
func (q *Queue) Nominal(account string) (Milli, bool) {
	for _, e := range q.Quota {
		if e.Model == account {
			return e.Nominal, true
		}
	}
	if resource, ok := cluster.ResourceOf(account); ok {
		for _, e := range q.Resources {
			if e.Resource == resource {
				return e.Nominal, true
			}
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
