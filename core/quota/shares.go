package quota

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/internal/fit"
)

// Share is what a queue and all below it are owed of a GPU model, or of a resource, by its account.
type Share struct {
	Model string
	// Requested is what their jobs request, those that run and those that wait, but at most what
	// the limits of the queues allow. Nominal is the part that their quota covers.
	Requested, Nominal Milli
	// Fair is what they are owed: Nominal, and their part of what no queue owns or requests.
	// It is at most Requested.
	Fair Milli
	// rounded is the part of Fair that it got as a queue gets whole devices and its name comes before that of
	// another queue with the same right to it: nothing is evicted for it.
	rounded Milli
	// Used is what their jobs have.
	Used Milli
}

// String says what is owed, and why.
func (s Share) String() string {
	text := func(amount Milli) string { return AmountText(s.Model, amount) }
	return fmt.Sprintf("has %s of the %s %s that it is owed: %s by quota, %s by weight; it requests %s", text(s.Used), text(s.Fair), AccountText(s.Model),
		text(min(s.Nominal, s.Fair)), text(max(0, s.Fair-s.Nominal)), text(s.Requested))
}

// Request notes that jobs of the queue request GPU, whether they run or wait; a negative amount
// takes that back. A job requests the first of the models that it accepts and its queue may use,
// or if it accepts all, a part of each: always the same, or what queues are owed would change with the
// places that jobs get.
func (q *Queue) Request(models []string, gpu Milli) {
	q.RequestOf(strings.Join(models, "\n"), gpu)
}

// RequestOf is Request of a resource, by its account.
func (q *Queue) RequestOf(account string, amount Milli) {
	if q.requested[account] += amount; q.requested[account] == 0 { // or each model that a job ever named would cost a look in every division
		delete(q.requested, account)
		q.requested = fit.Map(q.requested, &q.mostRequested)
	}
	q.ledger.divided = nil
	q.ledger.requests++
	for up := q; up != nil; up = up.parent {
		up.changed = q.ledger.requests
	}
}

// Divide divides what the cluster has of each GPU model, and of each resource that any queue lists, among the queues that request it. It costs
// O(queues x models), and O(queues x log queues) for each model, if anything has changed since the
// last call; of GPUs, if no more than requests have changed, that for the queues below those only that request or are owed something else.
//
// At each level of the tree, every queue first gets what its quota covers of its request. What is
// left goes to those that request more: first to those of the highest priority, until they have all
// that they request, then to those of the next (KAI's priority of queues). Among those of one
// priority it is divided by weight, so that none can get more without another that has less of it,
// in proportion to its weight, getting less (weighted max-min fairness); those of weight 0 divide evenly what the others
// leave. The own jobs of a queue
// with children have its weight beside those, and priority 0. What a queue does not lend is not divided. A queue whose request is not covered gets
// whole devices. What jobs of other schedulers use is not divided.
//
// Where some queues have quotas for single models and others for all together, quota of one kind
// covers no request of a queue that has the other kind.
func (l *Ledger) Divide(capacity map[string]Milli) {
	if l.divided != nil && maps.Equal(l.divided, capacity) {
		return
	}
	l.divided = maps.Clone(capacity)
	l.divisions++
	l.bookings++
	l.settings++
	d := division{unit: cluster.WholeGPU}
	for _, model := range slices.Sorted(maps.Keys(capacity)) {
		if _, ok := cluster.ResourceOf(model); !ok {
			d.models = append(d.models, model)
		}
	}
	for _, model := range d.models {
		left := capacity[model]
		for _, q := range l.order {
			left -= q.pinned[Foreign].of(model)
		}
		d.capacity = append(d.capacity, max(0, left))
	}
	if last := l.lastDivision; last != nil && slices.Equal(last.models, d.models) && slices.Equal(last.capacity, d.capacity) {
		d = *last
	} else {
		d.root = d.newClaim(l.root)
	}
	root := &d.root
	d.sum(root)
	d.requests, l.lastDivision = l.requests, &d
	copy(root.fair, d.capacity)
	if l.lent == nil {
		for i, owned := range d.covered(root.fair, root.quota, root.quotaOfAll) {
			if !l.Free(d.models[i]) {
				root.fair[i] = owned // what no queue owns cannot be used
			}
		}
	}
	d.divide(root)
	for _, r := range l.resources {
		l.divideResource(r, capacity[r])
	}
}

// divideResource divides a resource among the queues that it limits: as a GPU model, by itself.
func (l *Ledger) divideResource(r string, capacity Milli) {
	d := division{models: []string{r}, unit: 1, resource: true}
	if r == cluster.AccountOf(cluster.CPU) {
		d.unit = 1000 // whole cores
	}
	for _, q := range l.order {
		capacity -= q.pinned[Foreign].of(r)
	}
	d.capacity = []Milli{max(0, capacity)}
	root := d.newClaim(l.root)
	d.sum(&root)
	copy(root.fair, d.capacity)
	if l.lent == nil {
		root.fair = d.covered(d.capacity, root.quota, 0) // what no queue owns cannot be used
	}
	d.divide(&root)
}

// without returns the shares without that of an account.
func without(shares []Share, account string) []Share {
	return slices.DeleteFunc(shares, func(s Share) bool { return s.Model == account })
}

// Shares returns what the queue and all below it were owed when [Ledger.Divide] was called last, and
// what they have now, in the order of the models' names and then of the resources', for those that they request and that
// a quota limits: what is free for all is owed to none. It costs O(queues below it).
func (q *Queue) Shares() []Share {
	out := slices.DeleteFunc(slices.Concat(q.shares, q.resourceShares), func(s Share) bool {
		_, isResource := cluster.ResourceOf(s.Model)
		return !isResource && q.Limited() && q.ledger.Free(s.Model)
	})
	for i := range out {
		out[i].Used = q.usedBelow(out[i].Model)
	}
	return out
}

// usedBelow returns what the queue and all below it use of a model.
func (q *Queue) usedBelow(model string) Milli {
	used := q.own.of(model)
	for _, c := range q.children {
		used += c.usedBelow(model)
	}
	return used
}

// ownShare returns what the queue's own jobs are owed of a model or resource.
func (q *Queue) ownShare(model string) Share {
	_, isResource := cluster.ResourceOf(model)
	switch own := len(q.children) > 0; {
	case isResource && own:
		return shareOf(q.ownResourceShares, model)
	case isResource:
		return shareOf(q.resourceShares, model)
	case own:
		return shareOf(q.ownShares, model)
	}
	return shareOf(q.shares, model)
}

// share returns what the queue and all below it are owed of a model or resource.
func (q *Queue) share(model string) Share {
	if _, isResource := cluster.ResourceOf(model); isResource {
		return shareOf(q.resourceShares, model)
	}
	return shareOf(q.shares, model)
}

// divides reports whether the queue's part of a model or resource bounds its jobs: not that of a resource
// of which no quota limits them, nor that of GPUs if there are quotas of resources only.
func (q *Queue) divides(model string) bool {
	if _, isResource := cluster.ResourceOf(model); isResource {
		return q.Owner(model) != nil
	}
	return q.ledger.LimitsGPUs() || !q.Limited()
}

// held returns what the queue's own jobs use of a model, without those of other schedulers.
func (q *Queue) held(model string) Milli { return q.own.of(model) - q.pinned[Foreign].of(model) }

// OwedRoom returns how much more of a model the queue's own jobs may use until they have what they were
// owed when [Ledger.Divide] was called last; negative if they have more.
func (q *Queue) OwedRoom(model string) Milli {
	return q.recallOwn(model, owedRoom, func() Milli {
		if !q.divides(model) {
			return Unlimited
		}
		return q.ownShare(model).Fair - q.held(model)
	})
}

// Claim returns what the queue's own jobs were owed of a model when [Ledger.Divide] was called last, but for what
// rounding gave them because of the queue's name: others leave for that much.
func (q *Queue) Claim(model string) Milli { return q.ownShare(model).Claim() }

// ClaimRoom returns how much more of a model the queue's own jobs may use until they have their
// [Queue.Claim], and each queue above, up to those below top, with all below it, has its own. It costs O(depth).
func (q *Queue) ClaimRoom(model string, top *Queue) Milli {
	if top == q {
		return q.recallOwn(model, claimRoom, func() Milli {
			if !q.divides(model) {
				return Unlimited
			}
			return q.Claim(model) - q.held(model)
		})
	}
	if !q.divides(model) {
		return Unlimited
	}
	room := q.Claim(model) - q.held(model)
	for up := q; up != top && up.parent != nil; up = up.parent {
		if len(up.children) > 0 {
			room = min(room, up.share(model).Claim()-up.heldWithBelow(model))
		}
	}
	return room
}

// heldWithBelow returns what the jobs of the queue and of all below it use of a model, or of a resource as far as a
// quota limits them.
func (q *Queue) heldWithBelow(model string) Milli {
	_, isResource := cluster.ResourceOf(model)
	if !isResource || q.Owner(model) != nil {
		return q.held(model) + q.below.of(model)
	}
	held := Milli(0)
	for _, c := range q.children {
		held += c.heldWithBelow(model)
	}
	return held
}

// Claim is the part of Fair for which others leave: without what rounding gave because of the queue's name.
func (s Share) Claim() Milli { return s.Fair - s.rounded }

// Common returns the nearest queue that is above both queues, or one of them. The top of the tree is
// above all.
func (q *Queue) Common(o *Queue) *Queue {
	for q != o {
		if q.depth >= o.depth {
			q = q.parent
		} else {
			o = o.parent
		}
	}
	return q
}

// Divided reports whether what queues request and own is as it was when [Ledger.Divide] was called last.
func (l *Ledger) Divided() bool { return l.divided != nil }

// Divisions counts how often [Ledger.Divide] has divided, as something had changed.
func (l *Ledger) Divisions() uint64 { return l.divisions }

// Gains counts how often [Ledger.Divide] found that the queue or one above it is owed more of a model or resource
// than before. It never goes back as long as the queue keeps its parents.
func (q *Queue) Gains() uint64 {
	gains := uint64(0)
	for up := q; up.parent != nil; up = up.parent {
		gains += up.gains
	}
	return gains
}

// Excesses counts how often [Ledger.Divide] found that own jobs of a queue have more of a model or resource than they
// are owed, and were owed more before.
func (l *Ledger) Excesses() uint64 { return l.excesses }

func shareOf(shares []Share, model string) Share {
	for i := range shares {
		if shares[i].Model == model {
			return shares[i]
		}
	}
	return Share{}
}

// division is one call of [Ledger.Divide].
type division struct {
	models   []string
	capacity []Milli
	before   []Share // scratch memory
	// unit is what is not divided: a device, a core, 1 of other resources. resource says that it is of one
	// resource.
	unit     Milli
	resource bool
	// root is what all queues claim, and requests is Ledger.requests when that was summed up; 0 if it was not.
	root     claim
	requests uint64
}

// claim is what a queue and all below it claim of what is divided at its level, or what the own
// jobs of a queue with children do. Amounts are by the number of the model.
type claim struct {
	queue  *Queue // nil for the own jobs of a queue with children
	weight int64
	// priority comes before weight; 0 for own jobs beside queues below.
	priority int32
	order    int
	// quota is the sum of the nominal quotas of the queue and those below it; quotaOfAll is the
	// same for [AnyModel].
	quota      []Milli
	quotaOfAll Milli
	// requested is at most what limits allow, nominal the part that quota covers. kept is
	// what stays with the queue even if it does not request it; keptOfAll is the same for
	// all models together.
	requested, nominal, kept []Milli
	keptOfAll                Milli
	// rounded is the part of fair that rounding gave for the order alone.
	fair, rounded []Milli
	lost          Milli // what rounding took of the model that is divided now
	below         []claim
	// divided is what of it was divided among those below last; nil if nothing was, or they claim something else now.
	divided []Milli
}

// newClaim returns what a queue and all below it claim, before that is summed up.
func (d *division) newClaim(q *Queue) claim {
	c := d.emptyClaim(q)
	if len(q.children) > 0 {
		own := d.emptyClaim(q)
		own.queue, own.priority = nil, 0
		c.below = append(make([]claim, 0, 1+len(q.children)), own)
	}
	for _, child := range q.children {
		b := d.newClaim(child)
		b.order = len(c.below)
		c.below = append(c.below, b)
	}
	return c
}

func (d *division) emptyClaim(q *Queue) claim {
	n := len(d.models)
	all := make([]Milli, 6*n)
	cut := func() (part []Milli) { part, all = all[:n:n], all[n:]; return part }
	return claim{queue: q, weight: q.Weight, priority: q.Priority, quota: cut(), requested: cut(), nominal: cut(), kept: cut(), fair: cut(), rounded: cut()}
}

// sum sums up what a queue and all below it claim, as far as any of them requests something else than last time.
func (d *division) sum(c *claim) {
	q := c.queue
	if d.requests > 0 && q.changed <= d.requests {
		return
	}
	c.divided = nil

	// 1. Own jobs. Beside queues below they claim as one of those would that owns what this one does.
	clear(c.requested)
	d.requestedOf(q, c.requested)
	for i, model := range d.models {
		c.quota[i], _ = q.Nominal(model)
	}
	if !d.resource {
		c.quotaOfAll, _ = q.Nominal(AnyModel)
	}
	if len(c.below) > 0 {
		own := &c.below[0]
		copy(own.requested, c.requested)
		copy(own.nominal, d.covered(own.requested, c.quota, c.quotaOfAll))
	}
	for k := 1; k < len(c.below); k++ {
		b := &c.below[k]
		d.sum(b)
		for i := range d.models {
			c.requested[i] = cluster.Plus(c.requested[i], b.requested[i])
			c.quota[i] += b.quota[i]
		}
		c.quotaOfAll += b.quotaOfAll
	}

	// 2. Limits, and what stays with the queue.
	for i, model := range d.models {
		if a := q.accounts[model]; a != nil && (c.quota[i] > 0 || c.quotaOfAll == 0) {
			c.requested[i] = min(c.requested[i], a.limit(c.quota[i]))
			c.kept[i] = min(c.quota[i], a.kept)
		}
	}
	if a := q.accounts[AnyModel]; a != nil && c.quotaOfAll > 0 {
		scaleTo(c.requested, a.limit(c.quotaOfAll), d.unit)
		c.keptOfAll = min(c.quotaOfAll, a.kept)
	}

	// 3. What quota covers. The queues below own together what each of them owns.
	for i, part := range d.covered(c.requested, c.quota, c.quotaOfAll) {
		below := Milli(0)
		for k := range c.below {
			below += c.below[k].nominal[i]
		}
		c.nominal[i] = min(max(below, part), c.requested[i])
	}
}

// covered returns the part of what is requested that quotas cover.
func (d *division) covered(requested, quota []Milli, ofAll Milli) []Milli {
	out := slices.Clone(requested)
	for i := range d.models {
		if quota[i] > 0 || ofAll == 0 {
			out[i] = min(out[i], quota[i])
		}
	}
	if ofAll > 0 {
		scaleTo(out, ofAll, d.unit)
	}
	return out
}

// requestedOf adds up what the queue's own jobs request, by the number of the model.
func (d *division) requestedOf(q *Queue, to []Milli) {
	if d.resource {
		if r := d.models[0]; q.Owner(r) != nil { // else it is not limited, and owed nothing
			to[0] = min(q.requested[r], q.Most(r))
		}
		return
	}
	for key, gpu := range q.requested {
		if key == "" {
			parts := slices.Clone(d.capacity)
			for i, model := range d.models {
				parts[i] = min(parts[i], q.Most(model))
			}
			scaleTo(parts, gpu, d.unit)
			for i := range parts {
				to[i] += parts[i]
			}
			continue
		}
		for model := range strings.SplitSeq(key, "\n") {
			if i, ok := slices.BinarySearch(d.models, model); ok && d.capacity[i] > 0 && q.Most(model) > 0 {
				to[i] = cluster.Plus(to[i], gpu)
				break
			}
		}
	}
	for i, model := range d.models {
		to[i] = min(to[i], q.Most(model))
	}
}

// limit returns how much a queue and those below it may use of an account of which they
// own so much.
func (a *account) limit(own Milli) Milli {
	if a.borrow == Unlimited {
		return Unlimited
	}
	return cluster.Plus(own, a.borrow)
}

// divide gives the queues below, and own jobs, their parts of what the claim is owed.
func (d *division) divide(c *claim) {
	if len(c.below) == 0 || c.divided != nil && slices.Equal(c.divided, c.fair) {
		return // those below have it already
	}
	c.divided = append(c.divided[:0], c.fair...)
	// 1. What quota covers, and what is left for the others.
	left := slices.Clone(c.fair)
	total, reserved := Milli(0), Milli(0)
	for i := range d.models {
		nominal := make([]Milli, len(c.below))
		for k := range c.below {
			nominal[k] = c.below[k].nominal[i]
		}
		scaleTo(nominal, left[i], d.unit) // the cluster may have less than its queues own
		for k := range c.below {
			b := &c.below[k]
			b.fair[i], b.rounded[i] = nominal[k], 0
			left[i] -= max(nominal[k], b.kept[i])
		}
		left[i] = max(0, left[i])
		total += c.fair[i]
	}
	for k := range c.below {
		b := &c.below[k]
		got := Milli(0)
		for i := range d.models {
			got += b.fair[i]
		}
		reserved += max(got, b.keptOfAll)
	}
	scaleTo(left, max(0, total-reserved), d.unit)

	// 2. The rest, by priority and weight.
	for i := range d.models {
		fill(c.below, i, left[i], d.unit)
	}

	// 3. The same one level below.
	for k := range c.below {
		b := &c.below[k]
		if d.resource {
			d.recordResource(b, c.queue)
			if b.queue != nil {
				d.divide(b)
			}
			continue
		}
		if b.queue == nil {
			c.queue.ownShares = d.record(b, c.queue, c.queue.ownShares, true)
			continue
		}
		b.queue.shares = d.record(b, b.queue, b.queue.shares, len(b.below) == 0)
		d.divide(b)
	}
}

// recordResource notes what a queue, or the own jobs of the queue above, are owed of a resource, in place of what they were
// owed before.
func (d *division) recordResource(c *claim, above *Queue) {
	q, to, own := above, &above.ownResourceShares, true
	if c.queue != nil {
		q, to, own = c.queue, &c.queue.resourceShares, len(c.below) == 0
	}
	now, before := d.shareFor(c, 0), shareOf(*to, d.models[0])
	*to = without(*to, d.models[0])
	q.countChange(now, before, own)
	if now.Requested > 0 {
		*to = append(*to, now)
	}
}

// shareFor returns what a claim came to be owed of a model, by its number.
func (d *division) shareFor(c *claim, model int) Share {
	return Share{Model: d.models[model], Requested: c.requested[model], Nominal: c.nominal[model], Fair: c.fair[model], rounded: c.rounded[model]}
}

// countChange counts what another division lets others evict, or the queue's jobs: see Gains and Excesses. own says
// that the share is that of the queue's own jobs.
func (q *Queue) countChange(now, before Share, own bool) {
	if now.Claim() > before.Claim() {
		q.gains++
	}
	if own && now.Claim() < before.Claim() && now.Claim() < q.held(now.Model) {
		q.ledger.excesses++
	}
}

// record notes what a queue is owed, in place of what it was owed before: it with all below it, or its own jobs (own).
func (d *division) record(c *claim, q *Queue, to []Share, own bool) []Share {
	d.before = append(d.before[:0], to...)
	to = to[:0]
	for i, model := range d.models {
		now := d.shareFor(c, i)
		q.countChange(now, shareOf(d.before, model), own)
		if now.Requested > 0 {
			to = append(to, now)
		}
	}
	return to
}

// fill divides an amount of a model among the claims that request more than they have got: by
// priority, and by weight among those of one priority.
func fill(claims []claim, model int, amount, unit Milli) {
	var open []*claim
	for k := range claims {
		if c := &claims[k]; c.requested[model] > c.fair[model] {
			open = append(open, c)
		}
	}
	inTurn := func(a, b *claim) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cluster.LastIf(a.weight == 0, b.weight == 0))
	}
	slices.SortStableFunc(open, inTurn)
	for len(open) > 0 {
		n := 1
		for n < len(open) && inTurn(open[0], open[n]) == 0 {
			n++
		}
		amount = fillByWeight(open[:n], model, amount, unit)
		open = open[n:]
	}
}

// parts is the weight of a claim among those that are filled together: those of weight 0 are, with no others.
func (c *claim) parts() int64 { return max(c.weight, 1) }

// fillByWeight divides an amount of a model by weight among claims that request more than they have
// got, and returns what is left.
//
//  1. Those that want least for their weight get all they want, as long as that is no more than
//     their part.
//  2. The others get their parts in whole devices.
//  3. What rounding leaves goes to those from which it took most, at most one device each, then to the
//     first by name. What one got for its name is noted.
func fillByWeight(open []*claim, model int, amount, unit Milli) (left Milli) {
	weights := int64(0)
	for _, c := range open {
		weights += c.parts()
	}
	wants := func(c *claim) Milli { return c.requested[model] - c.fair[model] }
	slices.SortFunc(open, func(a, b *claim) int {
		return cmp.Or(cluster.CompareProducts(int64(wants(a)), b.parts(), int64(wants(b)), a.parts()), cmp.Compare(a.order, b.order))
	})
	for len(open) > 0 && cluster.CompareProducts(int64(wants(open[0])), weights, int64(amount), open[0].parts()) <= 0 {
		amount -= wants(open[0])
		open[0].fair[model] = open[0].requested[model]
		weights -= open[0].parts()
		open = open[1:]
	}
	rest := amount
	for _, c := range open {
		part := Milli(cluster.Part(int64(amount), c.parts(), weights))
		whole := part - part%unit
		c.fair[model] += whole
		c.lost = part - whole
		rest -= whole
	}
	slices.SortFunc(open, func(a, b *claim) int {
		return cmp.Or(cmp.Compare(b.lost, a.lost), cmp.Compare(a.order, b.order))
	})
	short := Milli(-1) // what rounding took from the first that gets less than it could
	for _, c := range open {
		more := min(rest, unit, wants(c))
		if short < 0 && more < min(unit, wants(c)) {
			short = c.lost
		}
		c.fair[model] += more
		c.rounded[model] = more
		rest -= more
	}
	for _, c := range open {
		if c.lost != short {
			c.rounded[model] = 0
		}
	}
	return rest
}

// scaleTo reduces amounts in proportion, so that their sum is at most most: to whole devices, and what
// rounding leaves goes to those from which it took most, at most one device each, then to the first.
func scaleTo(amounts []Milli, most, unit Milli) {
	sum := Milli(0)
	for _, v := range amounts {
		sum = cluster.Plus(sum, v)
	}
	if sum <= most {
		return
	}
	rest, lost := most, make([]Milli, len(amounts))
	for i, v := range amounts {
		part := Milli(cluster.Part(int64(most), int64(v), int64(sum)))
		lost[i] = part % unit
		rest -= part - lost[i]
	}
	whole := func(i int) Milli { return Milli(cluster.Part(int64(most), int64(amounts[i]), int64(sum))) - lost[i] }
	order := make([]int, len(amounts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lost[b], lost[a]) })
	for _, i := range order {
		more := min(rest, unit, amounts[i]-whole(i))
		amounts[i] = whole(i) + more
		rest -= more
	}
}
