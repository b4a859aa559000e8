package audit

import "slices"

// rules are what the policy of the run allows, as summary.json says.
type rules struct {
	HPOnly          bool           `json:"hp_only"`
	Delay           float64        `json:"preempt_delay_s"`
	Lease           float64        `json:"lease_s"`
	OwnQueue        bool           `json:"preempted_in_queue"`
	Unprotected     bool           `json:"unprotected"`
	ProtectedQueues []string       `json:"protected_queues"`
	CPUReserve      float64        `json:"cpu_reserve"`
	RoomMoves       int            `json:"room_max_moves"`
	RoomRestarts    bool           `json:"room_restarts"`
	EvictGrace      float64        `json:"evict_grace_s"`
	StaleGrace      float64        `json:"stale_grace_s"`
	MaxRestarts     int            `json:"recovery_max_restarts"`
	DefragRestarts  string         `json:"defrag_restarts"`
	Forecast        float64        `json:"forecast_s"`
	Estimates       bool           `json:"estimates"`
	LongTerm        *longTermRules `json:"long_term"`
	Packing         bool           `json:"packing"`
	Round           float64        `json:"goodput_round_s"`
}

// forHP checks that LP jobs evict none, where the policy says so. The job may have ended while
// the pod took its grace.
func (a *auditor) forHP(d *decision) {
	if a.summary.Rules == nil || !a.summary.Rules.HPOnly {
		return
	}
	by := a.jobs[string(d.forJob)]
	if by != nil && by.class != "HP" || by == nil && !a.endedHP[nameHash(string(d.forJob))] {
		a.breach(HPOnly, "%s is %s at %s for %q, which is no HP job: only those may evict", d.pod, d.reason, seconds(d.t), d.forJob)
	}
}

// waited checks that pods are evicted for a job no sooner after its submission than the policy says.
func (a *auditor) waited(d *decision) {
	if a.summary.Rules == nil || a.summary.Rules.Delay == 0 || string(d.reason) == "restarted" {
		return
	}
	if by := a.jobs[string(d.forJob)]; by != nil && float64(d.told-by.submit) < a.summary.Rules.Delay*1e9 {
		a.breach(Delay, "%s is %s at %s for job %s, which was submitted at %s: it evicts none sooner than %gs after that",
			d.pod, d.reason, seconds(d.told), by.name, seconds(by.submit), a.summary.Rules.Delay)
	}
}

// leased checks that a pod that leaves for a job that has received less has run for the lease of the policy.
func (a *auditor) leased(p *pod, d *decision) {
	if a.summary.Rules == nil || string(d.reason) != "lease_over" {
		return
	}
	lease := a.summary.Rules.Lease
	if ran := d.told - p.since; lease == 0 || float64(ran) < lease*1e9 {
		a.breach(Lease, "%s leaves at %s for job %s, after %s: the lease is %gs", d.pod, seconds(d.told), d.forJob, seconds(ran), lease)
	}
}

// protects reports whether the policy lets a lock of the job protect it from eviction.
func (a *auditor) protects(j *job) bool {
	r := a.summary.Rules
	if r == nil || !r.Unprotected && len(r.ProtectedQueues) == 0 {
		return true
	}
	for q := a.queues[j.queue]; q != nil && !r.Unprotected; q = q.parent {
		if slices.Contains(r.ProtectedQueues, q.name) {
			return true
		}
	}
	return false
}

// inQueue checks that a job is preempted for one of its own queue, where the policy says so. The
// other one may have ended while the pod took its grace.
func (a *auditor) inQueue(j *job, d *decision) {
	if a.summary.Rules == nil || !a.summary.Rules.OwnQueue || string(d.reason) != "preempted" {
		return
	}
	if by := a.jobs[string(d.forJob)]; by != nil && by.queue != j.queue {
		a.breach(OwnQueue, "%s of queue %s is preempted at %s for job %s of queue %s: priority decides within a queue only",
			d.pod, j.queue, seconds(d.t), by.name, by.queue)
	}
}

// shortage is a pod of a job without GPUs that left less CPU on its node than is kept for the
// idle GPUs of it.
type shortage struct {
	t          int64
	pod, node  string
	left, kept int64
}

// keepsCPU checks that a pod of a job without GPUs leaves the cores that the policy keeps for
// idle GPUs. A GPU that is idle may be kept for a job for which others are leaving, and needs no
// cores then: so what is short is not reported before [auditor.short] knows that no pod was. Of
// what pods on standby lend, the cores are counted otherwise; those nodes are not checked.
func (a *auditor) keepsCPU(j *job, n *node, d *decision) {
	r := a.summary.Rules
	if r == nil || r.CPUReserve == 0 || d.cpu == 0 || len(n.devices) == 0 || n.lent != 0 || a.moving > 0 || j.gpu() > 0 {
		return
	}
	if why := string(d.reason); why == "MadeRoom" || why == consolidation || why == requested || why == defragmentation {
		return // it was chosen earlier
	}
	idle := int64(0)
	for g := range n.devices {
		if n.devices[g].milli == 0 && !n.unhealthy[g] {
			idle++
		}
	}
	kept := n.cpu / int64(len(n.devices)) * idle / 1000 * int64(r.CPUReserve*1000+0.5)
	if left := n.cpu - n.cpuHeld; left < kept {
		a.shortages = append(a.shortages, shortage{d.t, string(d.pod), n.name, left, kept})
	}
}

// leaves takes back the shortages at which a pod was leaving, which was told to at a time.
func (a *auditor) leaves(told int64) {
	a.shortages = slices.DeleteFunc(a.shortages, func(s shortage) bool { return s.t >= told })
}

// short reports the shortages before t at which no pod was leaving: it would have left by now.
func (a *auditor) short(t int64) {
	for len(a.shortages) > 0 && float64(t-a.shortages[0].t) > a.summary.Rules.EvictGrace*1e9 {
		s := a.shortages[0]
		a.shortages = a.shortages[1:]
		a.breach(CPUReserve, "%s is bound at %s to %s and leaves %d milli-cores, %d are kept for its idle GPUs", s.pod, seconds(s.t), s.node, s.left, s.kept)
	}
}
