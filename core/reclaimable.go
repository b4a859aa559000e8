package core

import (
	"iter"
	"math/bits"

	"github.com/muster-sched/muster/core/cluster"
)

// This file lists the running pods by what covers them, under [Queueing.FairShare], and says for which jobs no search
// among them can make room, without one: of a thousand such pods, each on a node of its own, none frees a whole node.

// coveredPod is a running pod as a search sees it first: of thousands that are listed, most need no other look.
type coveredPod struct {
	cluster.Owner
	node   cluster.NodeID
	tenant int32
	since  Time // when it started, or its gang, with which it may leave
	// protected says that it may have to run for longer than since then and the minimum time that the policy says for all.
	protected bool
	class     Class
	// devices are how many it would free; one that pods share counts for each of them.
	devices uint8
	cover   cover
	// gpu is the part of its GPU that is divided among queues. loses is the part of which the work since then, or
	// since the last checkpoint, is lost when it leaves; 0 if that is not said so simply.
	gpu, loses        Milli
	checkpoint, saved Time
	seq               uint64 // of its job
}

// listedPods returns the running pods of a cohort with a cover, in no order. After entitlement.shareOut, they are
// listed when they are asked for first.
func (c *entitlement) listedPods(k *cohort, of cover) []coveredPod {
	if !k.lists.pods {
		k.lists.pods = true
		c.listPods(k)
	}
	return k.pods[of]
}

// listPods lists the running pods of a cohort.
func (c *entitlement) listPods(k *cohort) {
	for of := range k.pods {
		k.pods[of] = k.pods[of][:0]
	}
	for n := range k.units {
		u := &k.units[n]
		of := u.cover()
		for i := range u.pods {
			p := &u.job.pods[i]
			if p.state != podRunning {
				continue
			}
			since := p.started
			if u.job.Gang {
				since = min(since, u.job.started)
			}
			out := coveredPod{
				Owner: cluster.Owner{Job: u.job.slot, Pod: int32(i)}, node: p.alloc.Node, tenant: u.tenant, since: since,
				protected: u.job.MinRuntime > 0 || u.job.Gang && u.pod >= 0, class: u.job.Class, devices: uint8(bits.OnesCount64(p.alloc.GPUs)),
				cover: of, checkpoint: u.job.Checkpoint, saved: u.job.saved, seq: u.job.key.seq,
			}
			if len(u.uses) > 0 && c.ledger.LimitsGPUs() {
				out.gpu = u.job.gpu(p)
			}
			if (!u.job.Gang || p.started == u.job.started) && (c.policy.Preempt.MaxSuspended == 0 || u.job.Suspend.HostMemMiB == 0) {
				out.loses = u.job.gpu(p)
			}
			k.pods[of] = append(k.pods[of], out)
		}
	}
}

// checkpointed notes that a job has saved its progress: its pods lose less.
func (c *entitlement) checkpointed(j *job) {
	if n, ok := c.cohortOf[j.queue]; ok && !c.stale {
		c.cohorts[n].lists.pods = false
	}
}

// listed reports whether the pods that a job may evict are listed by what covers them. Leases ask for more than that.
func (pl *planner) listed() bool { return pl.shares.count() && !pl.longTerm.repairing }

// leavers yields the listed pods that may have to make room for the job, as far as what covers them and their
// precedence says: those of other queues that are covered less, and those that rank below it and are not covered more.
func (pl *planner) leavers(c preemptor) iter.Seq[*coveredPod] {
	reclaims := pl.mayReclaim(c)
	own, some := pl.entitlement.numberIn[c.queue]
	if !some {
		own = -1
	}
	return func(yield func(*coveredPod) bool) {
		for n := range pl.entitlement.cohorts {
			k := &pl.entitlement.cohorts[n]
			for of := uncovered; of <= c.cover; of++ {
				pods := pl.entitlement.listedPods(k, of)
				for i := range pods {
					p := &pods[i]
					if p.class < c.Class || !(reclaims && of < c.cover && p.tenant != own) && !pl.mayYieldByRank(c, pl.jobs.evictable[p.Job]) {
						continue
					}
					if !yield(p) {
						return
					}
				}
			}
		}
	}
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
		return pl.mayReclaim(c) || pl.mayClearByRank(c)
	}
	// 1. What all of those hold by node, and those of them that have run for long enough.
	nodes := pl.state.Nodes()
	freed, now := cleared(pl.freed, nodes), cleared(pl.freedNow, nodes)
	young := false
	for p := range pl.leavers(c) {
		freed[p.node] += int32(p.devices)
		if pl.isYoung(p, c.now) {
			young = true
		} else {
			now[p.node] += int32(p.devices)
		}
	}
	if pl.freed, pl.freedNow = freed, now; !pl.roomBeside(c, freed) {
		return false
	}
	if !young || pl.roomBeside(c, now) {
		return true
	}

	// 2. When will the first one of the others have run for long enough?
	s := pl.newSearch(of)
	s.due = Never
	pl.trial++
	pl.gatherListed(s, c, true)
	s.victims = s.victims[:0]
	c.later.note(s.due)
	pl.keep(s)
	return false
}

// isYoung reports whether neither a pod nor its gang has run for the minimum time that the policy says for all.
func (pl *planner) isYoung(p *coveredPod, now Time) bool {
	return now < cluster.Plus(p.since, pl.policy.Preempt.MinRuntime)
}

// gatherListed adds to a search on all nodes what may be evicted, from the list of pods by cover; or finds only when
// the first one that is too young may be.
func (pl *planner) gatherListed(s *search, c preemptor, onlyDue bool) {
	for p := range pl.leavers(c) {
		if pl.isYoung(p, c.now) {
			if cluster.Plus(p.since, pl.policy.Preempt.MinRuntime) >= s.due {
				continue // it would change nothing
			}
		} else if onlyDue && !p.protected {
			continue
		}
		if pl.jobs.evictable[p.Job] != unevictable {
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
			if !pl.mayYieldByRank(c, r.precedence) {
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
	return pl.roomBeside(c, freed)
}

// roomBeside reports whether the job would find room by count if so many devices more were free, by node.
func (pl *planner) roomBeside(c preemptor, freed []int32) bool {
	pl.tried = pl.tried[:0]
	for id, devices := range freed {
		if devices == 0 {
			continue
		}
		id := cluster.NodeID(id)
		pl.tried = append(pl.tried, id)
		if home := pl.state.Home(id); home != id && pl.state.Draws(id) { // the home came first
			if freed[home] == 0 {
				pl.tried = append(pl.tried, home)
			}
			freed[home] += int32(bits.OnesCount64(pl.state.Drawn(id)))
		}
	}
	return pl.placer.RoomWith(c.unit, pl.tried, func(id cluster.NodeID) (uint64, cluster.Need) {
		n := pl.state.Node(id)
		left := cluster.Need{Pods: n.Spec.MaxPods, CPU: n.Spec.CPUMilli, Mem: n.Spec.MemMiB}
		if left.Pods == 0 {
			left.Pods = n.PodsLeft()
		}
		free := min(n.HealthyGPUs(), n.Free()+int(freed[id]))
		return uint64(1)<<free - 1, left
	})
}
