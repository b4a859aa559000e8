package core

import (
	"iter"
	"math"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// This file lists the running pods by what covers them, under [Queueing.FairShare], and says for which jobs no search
// among them can make room, without one: of a thousand such pods, each on a node of its own, none frees a whole node.

// coveredPods are the running pods with a cover of jobs of one precedence that may be evicted.
type coveredPods struct {
	of     precedence
	cover  cover
	cohort int32
	pods   []coveredPod
	// frees says of each of them what it would free where, by itself: to add that up reads a fifth of the memory. latest is when the last one
	// of them started.
	frees  []nodeFreed
	terms  []term // and since when, and what is lost
	latest Time
	// tenant is whose all of them are, -1 of several; least is the least part of a GPU that one holds.
	tenant int32
	least  Milli
}

// term is since when a pod runs, or its gang, with which it may leave; and what is lost then: the work on a part of a GPU from a time on, or since the last
// checkpoint. That part is 0 if it is not said so simply.
type term struct {
	since, from, checkpoint Time
	loses                   Milli
}

// nodeFreed is how many devices are freed on a node.
type nodeFreed struct {
	node    cluster.NodeID
	devices int32
}

// add lists another pod.
func (l *coveredPods) add(p coveredPod, t term) {
	l.pods, l.terms = append(l.pods, p), append(l.terms, t)
	l.frees = append(l.frees, nodeFreed{p.node, int32(p.devices)})
	l.latest = max(l.latest, t.since)
	if len(l.pods) == 1 {
		l.tenant, l.least = p.tenant, p.gpu
	}
	if l.least = min(l.least, p.gpu); l.tenant != p.tenant {
		l.tenant = -1
	}
}

// coveredPod is a running pod as a search sees it first: of thousands that are listed, most need no other look.
type coveredPod struct {
	cluster.Owner
	node   cluster.NodeID
	tenant int32
	// protected says that it may have to run for longer than the minimum time that the policy says for all.
	protected bool
	// follows says that it leaves only with its gang, and that a search finds the gang by a pod before it.
	follows bool
	// devices are how many it would free; one that pods share counts for each of them.
	devices uint8
	cover   cover
	// gpu is the part of its GPU, or of that of the minimum of its gang on one model, that is divided among queues.
	gpu Milli
	seq uint64 // of its job
}

// coveredGroup is the lists of pods with one cover of jobs of one precedence, one for each cohort that had any. Searches read all of them several times a
// plan: so they are one after the other in memory.
type coveredGroup struct {
	of    precedence
	lists []coveredPods
}

// listedAt is where a list of pods of a cohort is.
type listedAt struct {
	cover     cover
	group, at int32
}

// unlistPods notes that the lists of the running pods of a cohort are outdated.
func (c *entitlement) unlistPods(k *cohort) {
	if k.lists.pods {
		k.lists.pods = false
		c.unlisted = append(c.unlisted, k.number)
	}
}

// listPods lists the running pods that may be evicted of the cohorts of which they are not listed, by cover and precedence, in no order. It is to be called after
// entitlement.shareOut, when they are asked for.
func (c *entitlement) listPods() {
	for _, n := range c.unlisted {
		c.cohorts[n].lists.pods = true
		c.listPodsOf(&c.cohorts[n])
	}
	c.unlisted = c.unlisted[:0]
}

// listPodsOf is listPods for a cohort.
func (c *entitlement) listPodsOf(k *cohort) {
	for _, at := range k.pods {
		l := &c.leavers[at.cover][at.group].lists[at.at]
		l.pods, l.frees, l.terms, l.latest = l.pods[:0], l.frees[:0], l.terms[:0], -MaxTime
	}
	for n := range k.units {
		u := &k.units[n]
		precedence := c.jobs.evictable[u.job.slot]
		if precedence == unevictable {
			continue
		}
		of := u.cover()
		list := c.podsOf(k, of, precedence)
		from := len(list.pods)
		gpu, loses := c.together(u)
		for i := range u.pods {
			p := &u.job.pods[i]
			if p.state != podRunning {
				continue
			}
			out := coveredPod{
				Owner: cluster.Owner{Job: u.job.slot, Pod: int32(i)}, node: p.alloc.Node, tenant: u.tenant,
				protected: u.job.MinRuntime > 0 || u.job.Gang && u.pod >= 0, devices: uint8(bits.OnesCount64(p.alloc.GPUs)),
				cover: of, gpu: gpu, seq: u.job.key.seq,
			}
			t := term{since: p.started, checkpoint: u.job.Checkpoint}
			if u.job.Gang {
				t.since = min(p.started, u.job.started)
			}
			t.from = max(t.since, u.job.saved)
			if u.pod < 0 && t.since == u.job.started || u.pod >= 0 && (!u.job.Gang || p.started == u.job.started) {
				t.loses = loses
			}
			out.follows = u.pod < 0 && len(list.pods) > from && list.terms[from].since == t.since && c.followsIn(&list.pods[from], &out)
			list.add(out, t)
		}
	}
}

// podsOf returns the list of the pods of a cohort with a cover and a precedence.
func (c *entitlement) podsOf(k *cohort, of cover, at precedence) *coveredPods {
	groups := &c.leavers[of]
	for _, l := range k.pods {
		if l.cover == of && (*groups)[l.group].of == at {
			return &(*groups)[l.group].lists[l.at]
		}
	}
	g := slices.IndexFunc(*groups, func(g coveredGroup) bool { return g.of == at })
	if g < 0 {
		g = len(*groups)
		*groups = append(*groups, coveredGroup{of: at})
	}
	lists := &(*groups)[g].lists
	k.pods = append(k.pods, listedAt{of, int32(g), int32(len(*lists))})
	*lists = append(*lists, coveredPods{of: at, cover: of, cohort: k.number, latest: -MaxTime})
	return &(*lists)[len(*lists)-1]
}

// together returns coveredPod.gpu for the pods of a unit, and term.loses if all of them started with their job.
func (c *entitlement) together(u *holding) (gpu, loses Milli) {
	resources := int32(c.dividedAs(0))
	for _, d := range u.uses {
		if d.account >= resources {
			gpu = max(gpu, d.amount)
		}
	}
	if c.policy.Preempt.MaxSuspended > 0 && u.job.Suspend.HostMemMiB > 0 || u.job.SaveWithin > 0 {
		return gpu, 0
	}
	_, loses = u.job.lost(0, int(u.pod))
	return gpu, loses
}

// followsIn reports whether a search that looks at a pod of the minimum of a gang need not look at another one, which has run for as long.
func (c *entitlement) followsIn(first, p *coveredPod) bool {
	a, b := c.state.Node(first.node), c.state.Node(p.node)
	pods := c.jobs.slots[p.Job].pods
	return pods[first.Pod].task == pods[p.Pod].task && a.PoolNumber() == b.PoolNumber() &&
		c.state.Home(first.node) == first.node && c.state.Home(p.node) == p.node
}

// checkpointed notes that a job has saved its progress: its pods lose less.
func (c *entitlement) checkpointed(j *job) {
	if n, ok := c.cohortOf[j.queue]; ok && !c.stale {
		c.unlistPods(&c.cohorts[n])
	}
}

// listed reports whether the pods that a job may evict are listed by what covers them. Leases ask for more than that.
func (pl *planner) listed() bool { return pl.shares.count() && !pl.longTerm.repairing }

// leaving says which pods of a list may have to make room for a job: those of all queues, of all but its own, or of its own alone.
type leaving struct {
	own          int32 // the number of the job's queue among the tenants, -1 if it has no units
	others, only bool
}

// omits reports whether a pod of the list does not have to make room.
func (w leaving) omits(p *coveredPod) bool {
	return w.others && p.tenant == w.own || w.only && p.tenant != w.own
}

// leavers yields the lists of pods that may have to make room for the job, as far as what covers them and their
// precedence says: those of other queues that are covered less, and those that rank below it and are not covered more; but for a job in debt, of what is
// covered for other tenants none.
func (pl *planner) leavers(c *preemptor) iter.Seq2[*coveredPods, leaving] {
	pl.entitlement.listPods()
	reclaims := pl.mayReclaim(c)
	own, tenant := pl.entitlement.cohortAt(c.queue), pl.tenantOfOwn(c)
	return func(yield func(*coveredPods, leaving) bool) {
		for of := uncovered; of <= c.cover; of++ {
			for g := range pl.entitlement.leavers[of] {
				group := &pl.entitlement.leavers[of][g]
				byRank := pl.mayYieldByRank(c, group.of)
				if group.of.class < c.Class || !byRank && !(reclaims && of < c.cover) {
					continue
				}
				for i := range group.lists {
					l := &group.lists[i]
					if len(l.pods) == 0 || c.inDebt && l.cohort != own && (of == byShare || of == byNominal && l.tenant >= 0 && pl.apart(l.tenant, c)) {
						continue
					}
					if !yield(l, leaving{own: tenant, others: !byRank && l.cohort == own, only: c.inDebt && of == byShare}) {
						return
					}
				}
			}
		}
	}
}

// apart reports whether no queue above both a tenant of another cohort and the job's queue has quota.
func (pl *planner) apart(tenant int32, c *preemptor) bool {
	return pl.entitlement.tenants[tenant].queue.Common(c.queue).Lists() == nil
}

// tenantOfOwn returns the number of the job's queue among the tenants, -1 if it has no units.
func (pl *planner) tenantOfOwn(c *preemptor) int32 {
	if n, some := pl.entitlement.numberIn[c.queue]; some {
		return n
	}
	return -1
}

// mostCounted is how many pods that rank below a job are counted for it, one by one. Among more, a search soon finds
// some.
const mostCounted = 4096

// mayClear reports whether the job would find room by count if all left that it may evict, as far as that is known
// without a search. False is certain, true is not. If it would once more of them have run for their minimum time,
// c.later says when the first one has.
func (pl *planner) mayClear(c preemptor, of searchOf) bool {
	if c.head || c.unit.Required >= 0 || pl.longTerm.repairing {
		return true
	}
	if !pl.listed() {
		return pl.mayReclaim(&c) || pl.mayClearByRank(c)
	}
	// 1. What those of them hold by node that have run for long enough. Where there is room, a few nodes show it most of the time: those that
	// so many leave as one pod takes.
	now := cleared(pl.freed, pl.state.Nodes())
	pl.freed, pl.young, pl.tried = now, pl.young[:0], pl.tried[:0]
	size, missing := c.largest()
	if len(c.unit.Tasks) > 1 || size == 0 {
		size, missing = math.MaxInt32, 1
	}
	for l, leaving := range pl.leavers(&c) {
		someYoung, all := pl.isYoung(l.latest, c.now), !leaving.others && !leaving.only
		for i, f := range l.frees {
			if !all && leaving.omits(&l.pods[i]) {
				continue
			}
			if someYoung && pl.isYoung(l.terms[i].since, c.now) {
				pl.young = append(pl.young, f)
				continue
			}
			was := now[f.node]
			now[f.node] = was + f.devices
			if int(was+f.devices) < size {
				continue
			}
			before := int(was) / size
			if more := int(was+f.devices)/size - before; more > 0 {
				if before == 0 {
					pl.tried = append(pl.tried, f.node)
				}
				if missing -= more; missing <= 0 {
					if pl.roomOn(&c, pl.tried, now) {
						return true
					}
					missing = len(pl.tried) // twice as many, or more
				}
			}
		}
	}
	if pl.roomBeside(&c, now) {
		return true
	}
	if len(pl.young) == 0 {
		return false
	}
	for _, f := range pl.young {
		now[f.node] += f.devices
	}
	if !pl.roomBeside(&c, now) {
		return false
	}

	// 2. When will the first one of the others have run for long enough?
	s := pl.newSearch(of)
	s.due = Never
	pl.trial++
	pl.gatherListed(s, &c, true)
	s.victims = s.victims[:0]
	c.later.note(s.due)
	pl.keep(s)
	return false
}

// isYoung reports whether neither a pod nor its gang, one of which started at a time, has run for the minimum time that the policy says for all.
func (pl *planner) isYoung(since, now Time) bool {
	return now < cluster.Plus(since, pl.policy.Preempt.MinRuntime)
}

// gatherListed adds to a search on all nodes what may be evicted, from the list of pods by cover; or finds only when
// the first one that is too young may be.
func (pl *planner) gatherListed(s *search, c *preemptor, onlyDue bool) {
	for l, leaving := range pl.leavers(c) {
		for i := range l.pods {
			p := &l.pods[i]
			if p.follows || leaving.omits(p) {
				continue
			}
			if since := l.terms[i].since; pl.isYoung(since, c.now) {
				if cluster.Plus(since, pl.policy.Preempt.MinRuntime) >= s.due {
					continue // it would change nothing
				}
			} else if onlyDue && !p.protected {
				continue
			}
			pl.mayAddVictim(s, c, pl.jobs.slots[p.Job], int(p.Pod))
		}
	}
}

// mayClearByRank is mayClear for a job that may evict by its rank alone, where pods are not listed by cover.
func (pl *planner) mayClearByRank(c preemptor) bool {
	freed, pods := cleared(pl.freed, pl.state.Nodes()), 0
	pl.freed = freed
	for _, m := range c.class.models {
		for k := range pl.runs.loads[m].evictable {
			r := &pl.runs.loads[m].evictable[k]
			if !pl.mayYieldByRank(&c, r.precedence) {
				continue
			}
			if pods += len(r.pods); pods > mostCounted {
				return true
			}
			for _, p := range r.pods {
				freed[p.alloc.Node] += int32(bits.OnesCount64(p.alloc.GPUs))
			}
		}
	}
	return pl.roomBeside(&c, freed)
}

// roomBeside reports whether the job would find room by count if so many devices more were free, by node.
func (pl *planner) roomBeside(c *preemptor, freed []int32) bool {
	least, _ := c.largest()
	if len(c.unit.Tasks) > 1 || pl.standbys.ever {
		least = 0
	}
	pl.tried, pl.drawn = pl.tried[:0], pl.drawn[:0]
	for id, devices := range freed {
		if devices == 0 {
			continue
		}
		id := cluster.NodeID(id)
		if pl.state.Node(id).Free()+int(devices) < least {
			continue // for none of its pods
		}
		pl.tried = append(pl.tried, id)
		if home := pl.state.Home(id); home != id && pl.state.Draws(id) { // the home came first
			if freed[home] == 0 {
				pl.tried = append(pl.tried, home)
			}
			pl.drawn = append(pl.drawn, nodeFreed{home, int32(bits.OnesCount64(pl.state.Drawn(id)))})
			freed[home] += pl.drawn[len(pl.drawn)-1].devices
		}
	}
	ok := pl.roomOn(c, pl.tried, freed)
	for _, d := range pl.drawn {
		freed[d.node] -= d.devices
	}
	return ok
}

// roomOn is roomBeside on some nodes.
func (pl *planner) roomOn(c *preemptor, on []cluster.NodeID, freed []int32) bool {
	return pl.placer.RoomWith(c.unit, on, func(id cluster.NodeID) (uint64, cluster.Need) {
		n := pl.state.Node(id)
		left := cluster.Need{Pods: n.Spec.MaxPods, CPU: n.Spec.CPUMilli, Mem: n.Spec.MemMiB}
		if left.Pods == 0 {
			left.Pods = n.PodsLeft()
		}
		free := min(n.HealthyGPUs(), n.Free()+int(freed[id]))
		return uint64(1)<<free - 1, left
	})
}
