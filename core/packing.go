package core

import (
	"errors"
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// Two jobs of one pod each may share the same whole GPUs (Lucid, ASPLOS 2023, §3.3: indolent packing). The one that came
// first is the host, the other one its guest.
//
//   - Both have as many GPUs, of the kind [Training] and of one class. Each says in [Job].Sharing how much it uses of them.
//   - The state holds the GPUs for the host alone. The guest has its CPU and memory there, and no device: so no GPU is
//     allocated twice. Quota counts both.
//   - When the host leaves its node, the guest has the GPUs from then on, and may be host to another one.
//   - When the driver reports that the host is too slow beside its guest ([JobSlowed]), the guest is evicted, and is
//     never packed again (SchedMate §4.1: packing cancellation).
//
// No job is evicted, moved or restarted to make room under a policy that packs: see [Packing.Check].

// Packing says which jobs may share GPUs. The zero value: none.
type Packing struct {
	On bool
	// MemMiB is the memory of a GPU: both jobs take at most that much together on each.
	MemMiB int32
	// First packs a job if it can, and gives it free GPUs else; without it, free GPUs come first.
	First bool
	// LeastCost packs a job with the one beside which it costs least ([Sharing.cost]), whatever their scores; without it, with the one
	// that started first of those whose scores allow it.
	LeastCost bool
	// Longest is how long a guest may be expected to run at most: so many thousandths of its host's estimate. 0 is no bound.
	Longest int64
	// Cancel is the share, in thousandths, of the host's throughput without its guest below which the guest is evicted. 0: it never is.
	Cancel int64
}

// Check says what is expected of a policy that packs, and is not so; nil if nothing is wrong.
func (p *Packing) Check(of *Policy) error {
	switch {
	case !p.On:
		return nil
	case p.MemMiB <= 0:
		return fmt.Errorf("the memory of a GPU, above 0 MiB; found %d", p.MemMiB)
	case p.Longest < 0 || p.Cancel < 0 || p.Cancel > 1000:
		return fmt.Errorf("a bound on estimates of at least 0 and a throughput of 0 to 1; found %d and %d thousandths", p.Longest, p.Cancel)
	case of.Preempt.evicts() || of.Preempt.Backfill || of.Fairness.Lease > 0 || of.Room.MaxMoves > 0 || of.Room.Restarts || of.Defrag != (Defrag{}):
		return errors.New("no preemption, lease, room or defragmentation beside it, as those count on GPUs that one job has; found some")
	}
	return nil
}

// SharingScore is how much of its GPUs a job uses, for packing: the scores of two that share them add up to at most that of one
// Jumbo and one Tiny job (Lucid §3.3.1: 2, where Tiny counts 0).
type SharingScore uint8

// The sharing scores.
const (
	NotShared SharingScore = iota // not known, or not to be packed
	Tiny
	Medium
	Jumbo
)

// mostShared is what the scores of two jobs may add up to.
const mostShared = Jumbo + Tiny

// Sharing is what a job uses of its GPUs, as far as packing has to know.
type Sharing struct {
	Score SharingScore
	// MemMiB is the memory that it takes of each of its GPUs.
	MemMiB int32
	// Use is the utilization of each of its GPUs that it is expected to have with them for itself, in thousandths: for [Packing.LeastCost].
	Use int16
}

// cost is what it costs that two jobs share GPUs with this memory, in millionths: Horus's cost of a GPU (Yeung et al., IEEE TPDS 2022, with the
// weights of its simulator). That is 1.3 times the share of the memory that both take, and how far their utilizations together are
// from all of it, where what is above counts 1.6 times. The simulator adds the number of jobs that a GPU has, which is 1 of
// each host here, so that one without any is always better.
func (s Sharing) cost(o Sharing, mem int32) int64 {
	use := int64(s.Use) + int64(o.Use) - 1000
	if use > 0 {
		use *= 1600
	} else {
		use *= -1000
	}
	return use + 1_300_000*(int64(s.MemMiB)+int64(o.MemMiB))/int64(mem)
}

// packs is which jobs share GPUs, and which could.
//
// Invariant: hosts has each running packable job without a partner once, in the order of their starts. A pair is in the ties of
// both its pods.
type packs struct {
	*Engine
	hosts map[packKind][]*job
	// listed has the kind under which each of them is listed: whether a job may be packed can change while it runs.
	listed map[*job]packKind
	// joined says that there are hosts that were none when the classes were tried.
	joined bool
	// slowed are the pairs to be cancelled by the next pass.
	slowed []*pack
}

// pack is two jobs on the same GPUs.
type pack struct{ host, guest *job }

// packKind is what jobs have in common that may be packed with the same ones.
type packKind struct {
	gpus  Milli
	score SharingScore
}

func kindOf(j *job) packKind { return packKind{j.Tasks[0].GPU, j.Sharing.Score} }

// pack returns the pair that the pod is of, nil if it has its GPUs for itself.
func (p *pod) pack() *pack {
	if p.ties == nil {
		return nil
	}
	return p.ties.pack
}

// packed reports whether the job shares its GPUs.
func (j *job) packed() bool { return len(j.pods) == 1 && j.pods[0].pack() != nil }

// packable reports whether the job may share GPUs, as far as that depends on itself alone. Jobs that are particular about their
// nodes, or the pods around them, are left out.
func (j *job) packable() bool {
	if j.Sharing.Score == NotShared || len(j.pods) != 1 || len(j.Tasks) != 1 || j.Kind != Training || !j.evictable() {
		return false
	}
	t := &j.Tasks[0]
	return t.GPU >= WholeGPU && plain(t) && t.From == nil && t.Selector == nil && t.AnyOf == nil && j.Topology.none()
}

// on reports whether the job takes part in packing.
func (ps *packs) on(j *job) bool { return ps.policy.Packing.On && j.packable() }

// started lists a job that has its GPUs for itself from now on.
func (ps *packs) started(j *job) {
	if !ps.on(j) || j.pods[0].pack() != nil || j.count[podRunning] == 0 {
		return
	}
	if ps.hosts == nil {
		ps.hosts, ps.listed = map[packKind][]*job{}, map[*job]packKind{}
	}
	k := kindOf(j)
	ps.listed[j] = k
	at, _ := slices.BinarySearchFunc(ps.hosts[k], j, startedFirst)
	ps.hosts[k] = slices.Insert(ps.hosts[k], at, j)
	ps.joined = true
	ps.changes.hostJoined(j)
}

// startedFirst orders running jobs of one pod by their starts.
func startedFirst(a, b *job) int {
	if a.pods[0].came != b.pods[0].came {
		if a.pods[0].came < b.pods[0].came {
			return -1
		}
		return 1
	}
	return int(a.slot) - int(b.slot)
}

// unlist takes a job off the list of hosts, if it is there.
func (ps *packs) unlist(j *job) {
	k, ok := ps.listed[j]
	if !ok {
		return
	}
	delete(ps.listed, j)
	at, _ := slices.BinarySearchFunc(ps.hosts[k], j, startedFirst)
	ps.hosts[k] = slices.Delete(ps.hosts[k], at, at+1)
}

// estimated handles a new estimate of a host: it may suffice for guests now that it did not suffice for.
func (ps *packs) estimated(j *job) {
	if _, ok := ps.listed[j]; ok && ps.policy.Packing.Longest > 0 {
		ps.joined = true
		ps.changes.hostJoined(j)
	}
}

// keeps refuses what would change a job that packing looks at: it keeps its one pod and that pod's labels.
func (ps *packs) keeps(j *job) error {
	if ps.policy.Packing.On && j.Sharing.Score != NotShared {
		return fmt.Errorf("job %s: it may share GPUs, so its pod and labels stay as they are", j.Name)
	}
	return nil
}

// any reports whether there are hosts whose scores allow the job. False is certain, true is not.
func (ps *packs) any(j *job) bool {
	if !ps.on(j) {
		return false
	}
	for s := Tiny; s <= ps.mostBeside(j); s++ {
		if len(ps.hosts[packKind{j.Tasks[0].GPU, s}]) > 0 {
			return true
		}
	}
	return false
}

// mostBeside returns the highest score of a job that the job may share GPUs with.
func (ps *packs) mostBeside(j *job) SharingScore {
	if ps.policy.Packing.LeastCost {
		return Jumbo
	}
	return mostShared - j.Sharing.Score
}

// hostFor returns the job that a waiting one may join: the one that started first, or, under [Packing.LeastCost], the first of those that cost
// least; nil if there is none. O(hosts of its size).
func (ps *packs) hostFor(j *job, u *place.Unit) *job {
	if ps.policy.Packing.LeastCost {
		return ps.cheapestHost(j, u)
	}
	var best *job
	for s := Tiny; s <= ps.mostBeside(j); s++ {
		for _, h := range ps.hosts[packKind{j.Tasks[0].GPU, s}] {
			if best != nil && startedFirst(best, h) < 0 {
				break
			}
			if ps.suits(j, h, u) {
				best = h
				break
			}
		}
	}
	return best
}

// cheapestHost returns the host beside which a job costs least; of equals, the one that started first.
func (ps *packs) cheapestHost(j *job, u *place.Unit) *job {
	var best *job
	var least int64
	for s := Tiny; s <= ps.mostBeside(j); s++ {
		for _, h := range ps.hosts[packKind{j.Tasks[0].GPU, s}] {
			cost := j.Sharing.cost(h.Sharing, ps.policy.Packing.MemMiB)
			if best != nil && (cost > least || cost == least && startedFirst(best, h) < 0) {
				continue
			}
			if ps.suits(j, h, u) {
				best, least = h, cost
			}
		}
	}
	return best
}

// suits reports whether a waiting job may join a host.
func (ps *packs) suits(j, h *job, u *place.Unit) bool {
	p := &ps.policy.Packing
	node := h.pods[0].alloc.Node
	switch {
	case h.pods[0].move() != nil || h.pods[0].standby() != nil || j.Class != h.Class || j.Sharing.MemMiB+h.Sharing.MemMiB > p.MemMiB:
		return false
	case p.Longest > 0 && cluster.CompareProducts(int64(j.Estimate), 1000, int64(h.Estimate), p.Longest) > 0:
		return false
	case ps.state.Lent(node): // when the owner returns, the pods that have its devices leave: a guest has none
		return false
	case !ps.state.Node(node).Open() || !j.class.shapes[0].Accepts(ps.state.Pool(node)):
		return false
	}
	a := ps.beside(j, h)
	if !ps.state.HasBeside(&a) {
		return false
	}
	model := ps.state.Pool(node).Model
	return !j.queue.Limited() || u.Room(model) >= j.Tasks[0].GPU && j.queue.MayUse(model) && affords(ps.state, j, []place.Placed{{Alloc: a}}, u.Room)
}

// beside is what a guest takes of its host's node: no device.
func (ps *packs) beside(j, h *job) cluster.Alloc {
	t := &j.Tasks[0]
	return cluster.Alloc{
		Node: h.pods[0].alloc.Node, Others: ps.state.Amounts(&t.Request).ID(), Share: WholeGPU, CPUMilli: t.CPUMilli, MemMiB: t.MemMiB,
	}
}

// pack starts a waiting job on the GPUs of a running one, and reports whether there was one.
func (ps *pass) pack(j *job, u *place.Unit) bool {
	if !ps.packs.any(j) {
		return false
	}
	h := ps.packs.hostFor(j, u)
	if h == nil {
		return false
	}
	placed := []place.Placed{{Alloc: ps.packs.beside(j, h)}}
	if j.runnable(placed) == 0 {
		return false
	}
	ps.state.Place(cluster.Owner{Job: j.slot}, placed[0].Alloc)
	ps.state.Commit()
	ps.packs.join(h, j)
	ps.bind(j, placed, ps.now, Packed)
	ps.out[len(ps.out)-1].For = h.Name
	return true
}

// join makes a pair of a host, if there is one, and its guest.
func (ps *packs) join(host, guest *job) {
	if host == nil {
		return
	}
	ps.unlist(host)
	pair := &pack{host, guest}
	host.pods[0].tied().pack, guest.pods[0].tied().pack = pair, pair
}

// found returns the host on whose GPUs a job is found running, and takes them from what the job has; nil if there is none: they are
// free, or it could not be there.
func (ps *packs) found(j *job, a *cluster.Alloc) *job {
	if !ps.on(j) || a.GPUs == 0 {
		return nil
	}
	for h := range ps.state.Node(a.Node).Pods {
		if o := ps.jobs.slots[h.Owner.Job]; h.Alloc.GPUs == a.GPUs && ps.on(o) && o.pods[0].pack() == nil && o.count[podRunning] == 1 {
			a.GPUs = 0
			return o
		}
	}
	return nil
}

// newHosts files the classes to be tried again whose first jobs may join hosts that came since they were tried. It reports whether
// there are any. That comes to an end, as there are new hosts only where a job has started.
func (ps *pass) newHosts() bool {
	if !ps.packs.joined {
		return false
	}
	ps.packs.joined = false
	some := false
	for ic := range ps.waiting.idle.all() {
		if c := ic.class; c.state == classStuck && ps.packs.any(c.head()) {
			some = ps.waiting.retry(c) || some
		}
	}
	return some
}

// released ends the sharing of a job that is off its node. A guest has the GPUs from then on. The journal grows.
func (ps *packs) released(j *job) {
	pair := ps.part(j)
	if pair == nil {
		return
	}
	left := pair.host
	if left == j {
		left = pair.guest
		a := ps.state.Remove(cluster.Owner{Job: left.slot}, left.pods[0].alloc.Node)
		a.GPUs = j.pods[0].alloc.GPUs
		ps.state.PlaceFound(cluster.Owner{Job: left.slot}, a)
		left.pods[0].alloc = a
	}
	ps.started(left)
}

// lost ends the sharing on a node that is about to be lost with its pods.
func (ps *packs) lost(node cluster.NodeID) {
	for h := range ps.state.Node(node).Pods {
		ps.part(ps.jobs.slots[h.Owner.Job])
	}
}

// part ends the sharing of a job, and returns the pair that it was of; nil if it was of none.
func (ps *packs) part(j *job) *pack {
	if !j.packed() {
		return nil
	}
	pair := j.pods[0].pack()
	pair.host.pods[0].ties.pack, pair.guest.pods[0].ties.pack = nil, nil
	ps.slowed = slices.DeleteFunc(ps.slowed, func(o *pack) bool { return o == pair })
	return pair
}

// slow handles the report that a job runs at a share of the throughput that it had before another one joined it. What a guest
// lacks counts for nothing: it would not run without its host.
func (e *Engine) slow(ev JobSlowed) error {
	j, err := e.job(ev.Job)
	if err != nil {
		return err
	}
	if ev.Share < 0 {
		return fmt.Errorf("job %s: a share of %d thousandths, expected at least 0", ev.Job, ev.Share)
	}
	if !j.packed() || ev.Share >= e.policy.Packing.Cancel {
		return nil
	}
	pair := j.pods[0].pack()
	if pair.host == j && pair.guest.count[podRunning] == 1 && !slices.Contains(e.packs.slowed, pair) {
		e.packs.slowed = append(e.packs.slowed, pair)
	}
	return nil
}

// cancel evicts the guests beside which hosts are too slow.
func (ps *packs) cancel() {
	for _, pair := range ps.slowed {
		j := pair.guest
		p := &j.pods[0]
		if p.state != podRunning {
			continue
		}
		from := len(ps.places)
		ps.places = append(ps.places, ps.placement(j, 0))
		j.charge(ps.state, p, -1)
		j.leaves(ps.state, p, 1)
		ps.set(j, p, podLeaving)
		ps.stopped(j, p)
		ps.changes.quotaReturned()
		ps.nominations.goes(j)
		ps.waiting.dequeue(j)
		j.begun = false
		j.Sharing = Sharing{}
		ps.out = append(ps.out, Decision{
			Op: Evict, Job: j.Name, Pods: ps.places[from:len(ps.places):len(ps.places)], Reason: PackingCancelled, For: pair.host.Name,
		})
	}
	ps.slowed = ps.slowed[:0]
}

// placeOf is where a pod is: a guest is on the GPUs of its host.
func (p *pod) placeOf() cluster.Alloc {
	a := p.alloc
	if pair := p.pack(); pair != nil && a.GPUs == 0 {
		a.GPUs = pair.host.pods[0].alloc.GPUs
	}
	return a
}
