package audit

import (
	"maps"
	"math/bits"
	"slices"
	"strings"
)

// bind checks that a pod may be bound as d says, and binds it.
func (a *auditor) bind(j *job, d *decision) {
	i, ok := j.index(d.pod)
	if !ok {
		a.breach(Format, "pod %s is not one of job %s", d.pod, j.name)
		return
	}
	p, t := j.pod(i)
	n := a.nodes[string(d.node)]
	switch {
	case p.node != nil:
		a.breach(Pod, "%s is bound to %s at %s and still bound to %s", d.pod, d.node, seconds(d.t), p.node.name)
		return
	case n == nil:
		a.breach(Node, "%s is bound to %s, which is not in cluster.csv", d.pod, d.node)
		return
	case p.ended == "finished":
		a.breach(Pod, "%s is bound at %s after it finished", d.pod, seconds(d.t))
	}
	a.unheld(j, d)
	a.suits(j, t, n, d)
	a.asked(t, d)
	if p.done(j) {
		t.done--
	}
	a.startsAgainst(j, d)
	a.inTime.starts(j, d)
	if p.done(j) {
		a.inTime.want(j, t, 1)
	}
	left, promised, lost := p.left, p.promise, p.lost
	*p = pod{node: n, gpus: a.devices(n, d), milli: d.milli, cpu: d.cpu, mem: d.mem, since: d.t}
	if j.bound == 0 {
		j.since = d.t
	}
	if j.gang {
		p.since = j.since
	}
	a.back(left, p, d)
	a.hold(n, p, +1)
	a.within(n, d)
	a.keepsCPU(j, n, d)
	if promised != nil || !lost { // one that is lost on its way out goes to its kept place, too
		a.again(j, promised, p, d)
	}
	if n.lent&p.gpus != 0 && j.class != "LP" {
		a.breach(Standby, "%s is bound at %s to GPUs of %s that are lent, and %s", d.pod, seconds(d.t), n.name, j.class)
	}
	a.charge(j, n, p, +1)
	a.inTime.hold(j, n, p, +1)
	a.forecast.held(j, p, +1)
	a.label(t, n, +1)
	t.bound++
	j.bound++
	j.binds.add(d.t)
	a.bound(j, p)
}

// asked checks that a pod of a task gets what it asks for.
func (a *auditor) asked(t *task, d *decision) {
	if got := int64(len(d.gpus)) * d.milli; got != t.gpu || d.cpu != t.cpu || d.mem != t.mem {
		a.breach(Request, "%s gets %d milli-GPU, %d milli-cores, %d MiB; it asks for %d, %d, %d",
			d.pod, got, d.cpu, d.mem, t.gpu, t.cpu, t.mem)
	}
}

// left is a place that a pod left at t, as it was told to before, for a job; and how
// often that job had been bound, nodes had changed and pods with labels had ended then.
type left struct {
	t, told               int64
	node                  *node
	gpus                  uint64
	job                   *job
	binds, shifts, parted counted
}

// counted says how often something has happened, and when it did last.
type counted struct {
	n    int
	last int64
}

func (c *counted) add(t int64) { c.n, c.last = c.n+1, t }

// since reports whether it has happened since before, or, before that, after t.
func (c counted) since(before counted, t int64) bool { return c.n != before.n || c.n > 0 && c.last > t }

// returned is a pod that is back at a place it had left, at t.
type returned struct {
	t    int64
	pod  string
	left *left
}

// back notes a pod that is where it was before it left for a job that has not
// started since the pod was told to leave. A plan is given up when a node changes and,
// if its job must be near or apart from others, or they from it, when those end: its victims have their
// grace all the same, and may come back then.
func (a *auditor) back(l *left, p *pod, d *decision) {
	if l == nil || l.node != p.node || l.gpus != p.gpus {
		return
	}
	if l.job.binds.since(l.binds, l.told) || a.shifts.since(l.shifts, l.told) || l.job.minds() && a.parted.since(l.parted, l.told) {
		return
	}
	a.returned = append(a.returned, returned{d.t, string(d.pod), l})
}

// inPlace reports the pods that came back where they were, unless the job that they
// left for is over: those of an instant end after its decisions.
func (a *auditor) inPlace() {
	for _, r := range a.returned {
		if by := r.left.job; by.ended >= 0 && by.ended <= r.t {
			continue
		}
		a.breach(Return, "%s is back on %s at %s, which it left at %s for %s, which has not started since",
			r.pod, r.left.node.name, seconds(r.t), seconds(r.left.t), r.left.job.name)
	}
	a.returned = a.returned[:0]
}

// bound follows what the job's new pod makes of the job.
func (a *auditor) bound(j *job, p *pod) {
	a.touch(j)
	// A gang that lost a node may get its pods back one by one, if the policy gives it time.
	j.dissolving = j.dissolving && j.started && a.summary.Rules != nil && a.summary.Rules.StaleGrace > 0 && !j.complete()
	if j.gang && !j.started {
		j.held += p.amount()
		a.measure.unstarted += p.amount()
	}
	if !j.complete() {
		return
	}
	j.started = true
	a.measure.unstarted -= j.held
	j.held = 0
	if j.whole < 0 {
		j.whole = a.now
		a.measure.wait(j.gpu(), a.now-j.submit)
		a.measure.topology.add(j)
	}
}

// touch has the gang checked at the end of the instant.
func (a *auditor) touch(j *job) {
	if j.gang && !j.touched {
		j.touched = true
		a.gangs = append(a.gangs, j)
	}
}

// suits checks what the job asks of the nodes it runs on.
func (a *auditor) suits(j *job, t *task, n *node, d *decision) {
	if !n.up || n.cordoned {
		a.breach(Node, "%s is bound to %s at %s, which is lost or cordoned", d.pod, n.name, seconds(d.t))
	}
	if len(t.models) > 0 && !slices.Contains(t.models, n.model) {
		a.breach(Model, "%s is on %s, a %s; it accepts %s", d.pod, n.name, n.model, strings.Join(t.models, ", "))
	}
	for _, c := range t.conditions {
		if !n.meets(c) {
			a.breach(Affinity, "%s is on %s, whose labels do not meet %s", d.pod, n.name, c)
		}
	}
	for _, x := range n.taints {
		if !slices.ContainsFunc(t.tolerations, x.tolerated) {
			a.breach(Affinity, "%s is on %s and does not tolerate %s=%s", d.pod, n.name, x.key, x.value)
		}
	}
	for _, x := range t.terms {
		a.term(j, t, x, n, d)
	}
	for _, l := range t.labels {
		for _, level := range slices.Sorted(maps.Keys(n.domain)) {
			if there := a.apart[labelAt{l, level, n.domain[level]}]; there > 0 {
				a.breach(Affinity, "%s, labelled %s, is on %s, with %d pods in its %s that must be apart from that", d.pod, l, n.name, there, level)
			}
		}
	}
	if j.required == "" {
		return
	}
	switch at := n.domain[j.required]; {
	case at == "":
		a.breach(Topology, "%s must be within one %s, and %s is in none", d.pod, j.required, n.name)
	case j.bound == 0:
		j.domain = at
	case at != j.domain:
		a.breach(Topology, "job %s must be within one %s, and %s is on %s in another", j.name, j.required, d.pod, n.name)
	}
}

// meets reports whether the node's labels meet a condition of the affinity
// column: key=v1|v2, key!=v1|v2, key or !key.
func (n *node) meets(condition string) bool {
	key, values, valued := strings.Cut(condition, "=")
	if !valued {
		absent := strings.HasPrefix(key, "!")
		_, has := n.labels[strings.TrimPrefix(key, "!")]
		return has != absent
	}
	key, not := strings.CutSuffix(key, "!")
	value, has := n.labels[key]
	in := has && slices.Contains(strings.Split(values, "|"), value)
	return in != not
}

// tolerated reports whether a toleration (key=value, key or nothing) covers the
// taint.
func (x taint) tolerated(toleration string) bool {
	key, value, _ := strings.Cut(toleration, "=")
	return key == "" || key == x.key && (value == "" || value == x.value)
}

// labelAt is a label in a domain of a level; the level "" is everywhere.
type labelAt struct{ label, level, domain string }

// term checks an affinity term against the pods bound so far. The first pods of
// a group that wants to be near itself may start anywhere.
func (a *auditor) term(j *job, t *task, x term, n *node, d *decision) {
	there := a.there(x, n)
	first := a.first(t, x)
	switch {
	case x.apart && there > 0:
		a.breach(Affinity, "%s is on %s, with %d pods labelled %s in its %s", d.pod, n.name, there, x.label, x.level)
	case !x.apart && there == 0 && !first && j.gang:
		j.alone = append(j.alone, alone{string(d.pod), n, x})
	case !x.apart && there == 0 && !first:
		a.breach(Affinity, "%s is on %s, without a pod labelled %s in its %s", d.pod, n.name, x.label, x.level)
	}
}

// there returns how many pods are bound that a term means, in its domain.
func (a *auditor) there(x term, n *node) int {
	if n.domain[x.level] == "" {
		return 0
	}
	return a.labels[labelAt{x.label, x.level, n.domain[x.level]}]
}

// first reports whether a pod of the task would be the first of those that a term means, which may start anywhere.
func (a *auditor) first(t *task, x term) bool {
	return slices.Contains(t.labels, x.label) && a.labels[labelAt{label: x.label}] == 0
}

// beside checks that those pods of a gang are alone no more that were when they were bound: in
// their domain is now one that could be there without them. Else they are near to each other alone,
// as the halves of a group would be that is in two domains.
func (a *auditor) beside(j *job) {
	for _, x := range j.alone {
		switch there := a.there(x.term, x.node); {
		case there == 0:
			a.breach(Affinity, "%s is on %s, without a pod labelled %s in its %s", x.pod, x.node.name, x.term.label, x.term.level)
		case !a.settled[labelAt{x.term.label, x.term.level, x.node.domain[x.term.level]}]:
			a.breach(Affinity, "%s is on %s, and the %d pods labelled %s in its %s are those that had to be near others elsewhere",
				x.pod, x.node.name, there, x.term.label, x.term.level)
		}
	}
	j.alone = j.alone[:0]
}

// label counts the labels of a pod of the task on the node, and what it must be apart
// from.
func (a *auditor) label(t *task, n *node, sign int) {
	for _, l := range t.labels {
		for level, domain := range n.domain {
			if domain == "" {
				continue
			}
			at, near := labelAt{l, level, domain}, term{level: level, label: l}
			if sign > 0 && (!slices.Contains(t.terms, near) || a.first(t, near)) {
				a.settled[at] = true
			}
			if a.labels[at] += sign; a.labels[at] == 0 {
				delete(a.settled, at)
			}
		}
		a.labels[labelAt{label: l}] += sign
	}
	for _, x := range t.terms {
		if domain := n.domain[x.level]; x.apart && domain != "" {
			a.apart[labelAt{x.label, x.level, domain}] += sign
		}
	}
}

// devices returns the set of the line's GPUs that can be allocated, and
// reports the others.
func (a *auditor) devices(n *node, d *decision) uint64 {
	var set uint64
	for _, g := range d.gpus {
		switch {
		case g < 0 || g >= len(n.devices):
			a.breach(Device, "%s gets GPU %d of %s, which has %d", d.pod, g, n.name, len(n.devices))
		case set>>g&1 == 1:
			a.breach(Device, "%s gets GPU %d of %s twice", d.pod, g, n.name)
		case n.unhealthy[g]:
			a.breach(Device, "%s gets GPU %d of %s, which is unhealthy", d.pod, g, n.name)
			fallthrough
		default:
			set |= 1 << g
		}
	}
	return set
}

// hold adds what the pod takes of the node, or (sign -1) takes it off.
func (a *auditor) hold(n *node, p *pod, sign int64) {
	a.measure.before(n)
	for rest := p.gpus; rest != 0; rest &= rest - 1 {
		dev := &n.devices[bits.TrailingZeros64(rest)]
		if p.milli < wholeGPU {
			dev.milli += sign * p.milli
			dev.part += int(sign)
			continue
		}
		// What two pods have whole is allocated once: within says whether they may.
		if dev.whole += int(sign); sign > 0 && dev.whole == 1 || sign < 0 && dev.whole == 0 {
			dev.milli += sign * p.milli
		}
	}
	n.cpuHeld += sign * p.cpu
	n.memHeld += sign * p.mem
	n.pods += int(sign)
	a.measure.after(n)
}

// packs reports whether a pod may be bound to GPUs that another one has.
func (a *auditor) packs(d *decision) bool {
	return a.summary.Rules != nil && a.summary.Rules.Packing && string(d.reason) == "Packed"
}

// within checks that no more of the node is allocated than it has.
func (a *auditor) within(n *node, d *decision) {
	for _, g := range d.gpus {
		if g < 0 || g >= len(n.devices) {
			continue
		}
		switch dev := n.devices[g]; {
		case dev.whole > 0 && dev.part > 0:
			a.breach(Sharing, "%s shares GPU %d of %s: %d pods have it whole, %d in part", d.pod, g, n.name, dev.whole, dev.part)
		case dev.whole > 2 || dev.whole == 2 && !a.packs(d):
			a.breach(Device, "%s gets GPU %d of %s, which %d other pods have whole", d.pod, g, n.name, dev.whole-1)
		case dev.whole == 1 && string(d.reason) == "Packed":
			a.breach(Device, "%s is packed on GPU %d of %s, which no other pod has", d.pod, g, n.name)
		case dev.milli > wholeGPU:
			a.breach(Device, "%s brings GPU %d of %s to %d milli of %d", d.pod, g, n.name, dev.milli, wholeGPU)
		}
	}
	if n.cpuHeld > n.cpu && d.cpu > 0 {
		a.breach(CPU, "%s brings %s to %d milli-cores of %d", d.pod, n.name, n.cpuHeld, n.cpu)
	}
	if n.memHeld > n.mem && d.mem > 0 {
		a.breach(Memory, "%s brings %s to %d MiB of %d", d.pod, n.name, n.memHeld, n.mem)
	}
}

// release checks that a pod may leave its node as d says, and releases it.
func (a *auditor) release(j *job, d *decision) {
	i, ok := j.index(d.pod)
	if !ok {
		a.breach(Format, "pod %s is not one of job %s", d.pod, j.name)
		return
	}
	p, t := j.pod(i)
	if p.node == nil {
		a.breach(Pod, "%s is released from %s at %s and not bound", d.pod, d.node, seconds(d.t))
		return
	}
	if why := string(d.reason); (why == "migrated" || why == "move_failed") && a.endMove(j, t, p, d) {
		return
	}
	if p.to != nil {
		a.breach(Move, "%s is released at %s, while it is being moved to %s", d.pod, seconds(d.t), p.to.node.name)
		a.hold(p.to.node, p.to, -1)
		a.measure.second -= p.to.amount()
		a.label(t, p.to.node, -1)
		a.moving--
		a.moveEnds(p, d.t, false)
	}
	if !p.matches(d) {
		a.breach(Pod, "%s leaves %s %v (%d milli, %d milli-cores, %d MiB); it was bound to %s %b (%d, %d, %d)",
			d.pod, d.node, d.gpus, d.milli, d.cpu, d.mem, p.node.name, p.gpus, p.milli, p.cpu, p.mem)
	}
	was := *p
	*p = pod{ended: ended(d.reason), lost: string(d.reason) == "node_lost"}
	a.hold(was.node, was.holds(), -1)
	a.forecast.left(j, &was, d)
	a.forecast.held(j, &was, -1)
	if was.warm != nil {
		was.node.lent &^= was.gpus
		j.binds.add(d.t) // what left for it may be back
	}
	was.node.free(j, was.gpus, d.t)
	a.inTime.hold(j, was.node, &was, -1)
	restarts := string(d.reason) == "restarted"
	if !restarts {
		a.charge(j, was.node, &was, -1)
	}
	a.label(t, was.node, -1)
	t.bound--
	j.bound--
	if p.done(j) {
		t.done++
		a.inTime.want(j, t, -1)
	}
	a.touch(j)
	if j.gang && !j.started {
		j.held -= was.amount()
		a.measure.unstarted -= was.amount()
	}
	if p.ended != "" && len(t.labels)+len(t.terms) > 0 {
		a.parted.add(d.t)
	}
	if restarts {
		a.restart(j, p, was, d)
	} else if by := a.jobs[string(d.forJob)]; by != nil {
		p.left = &left{d.t, d.told, was.node, was.gpus, by, by.binds, a.shifts, a.parted}
		if plan := a.plans[planKey{by.name, false, d.told}]; plan != nil {
			plan.last = d.t // by the same plan, others restart where this pod was
		}
	}
	a.cause(j, d)
	a.leased(&was, d)
	if j.bound == 0 {
		j.started, j.dissolving = false, false
	}
}

// ended returns the reason why a pod left if it ended by itself, else nothing.
func ended(reason []byte) string {
	switch string(reason) {
	case "finished":
		return "finished"
	case "failed":
		return "failed"
	case "cancelled":
		return "cancelled"
	}
	return ""
}

// done reports whether the pod needs no other: it ended by itself. A member of
// a gang that failed takes the gang with it and is not done.
func (p *pod) done(j *job) bool { return p.ended == "finished" || p.ended != "" && !j.gang }

// matches reports whether the pod is bound as the line says.
func (p *pod) matches(d *decision) bool {
	var set uint64
	for _, g := range d.gpus {
		if g < 0 || g > 63 {
			return false
		}
		set |= 1 << g
	}
	return p.node.name == string(d.node) && p.gpus == set && p.milli == d.milli && p.cpu == d.cpu && p.mem == d.mem
}

// amount is what the pod has of all its GPUs together.
func (p *pod) amount() int64 { return int64(bits.OnesCount64(p.gpus)) * p.milli }

// cause checks that the pod may leave for the reason given.
func (a *auditor) cause(j *job, d *decision) {
	switch reason := string(d.reason); reason {
	case "finished", "failed", "cancelled":
		if j.dissolving {
			a.breach(Gang, "%s is %s at %s, after its gang lost a node or was evicted", d.pod, reason, seconds(d.t))
		}
	case "node_lost", "crashed":
		j.dissolving = j.gang && j.bound > 0 && !j.complete()
	case "migrated", "move_failed": // see endMove
	case "resized":
		a.resized(j, d)
	case "preempted", "reclaimed", "restarted", "lease_over":
		a.measure.leave(d)
		a.leaves(d.told)
		a.inTime.left(d)
		a.inQueue(j, d)
		a.waited(d)
		forNone := reason == "restarted" && len(d.forJob) == 0 // see restarts.go
		if !forNone {
			a.forHP(d)
		}
		if d.told != d.t {
			// The pods of an evicted gang shut down one after the other: it neither goes on nor
			// ends until it is bound again.
			j.dissolving = j.dissolving || j.gang && j.bound > 0 && !j.complete()
		}
		if j.evicted != d.told {
			j.evicted = d.told
			j.evictions++
			a.measure.preemptions++
		}
		if !j.exposed && a.protects(j) {
			a.unlocked(j, d)
		}
		if !forNone {
			a.beneficiary(j, d)
		}
	case "suspended": // it yields as one that is evicted
		a.inQueue(j, d)
		a.forHP(d)
		if j.evicted != d.told {
			j.evicted = d.told
			a.measure.suspensions++
		}
		if !j.exposed && a.protects(j) {
			a.unlocked(j, d)
		}
		a.beneficiary(j, d)
	default:
		a.breach(Format, "%s is released for reason %q", d.pod, reason)
	}
}

// resized checks that a pod may stop so that its job runs as another of its tasks.
func (a *auditor) resized(j *job, d *decision) {
	r := a.summary.Rules
	if !j.alternatives || r == nil || r.Round == 0 {
		a.breach(Gang, "%s is resized at %s, and its job has no alternatives or the policy does not choose", d.pod, seconds(d.t))
	}
	if d.told != d.t {
		j.dissolving = j.dissolving || j.bound > 0 && !j.complete()
	}
}

func (a *auditor) unlocked(j *job, d *decision) {
	if j.locked {
		a.breach(Locked, "%s at %s: %s of locked job %s", d.reason, seconds(d.t), d.pod, j.name)
	}
}

// beneficiary checks that an HP job yields to HP jobs alone. The job it yields to
// may have ended while it took its grace.
func (a *auditor) beneficiary(j *job, d *decision) {
	if j.class != "HP" {
		return
	}
	by, known := a.jobs[string(d.forJob)], a.endedHP[nameHash(string(d.forJob))]
	switch {
	case by == nil && !known:
		a.breach(Class, "HP pod %s is %s at %s for job %q, which is not submitted, or an LP job that ended", d.pod, d.reason, seconds(d.t), d.forJob)
	case by != nil && by.class != "HP":
		a.breach(Class, "HP pod %s is %s at %s for %s job %s", d.pod, d.reason, seconds(d.t), by.class, d.forJob)
	}
}
