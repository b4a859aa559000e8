package audit

import "math/bits"

// From its standby line until its resume line, a pod holds only what it keeps of CPU and memory,
// and LP pods alone may be bound to its GPUs.

// holds is what the pod takes of its node now.
func (p *pod) holds() *pod {
	if p.warm != nil {
		return p.warm
	}
	return p
}

// free notes that a pod of a job left GPUs at t.
func (n *node) free(j *job, gpus uint64, t int64) {
	if gpus&n.lent != 0 {
		n.made = t
	}
	if n.freedBy == nil {
		n.freedBy = make([]*job, len(n.devices))
	}
	for rest := gpus; rest != 0; rest &= rest - 1 {
		g := bits.TrailingZeros64(rest)
		n.freed[g], n.freedBy[g] = t, j
	}
}

// freedSince returns one of some GPUs that a pod of another job left after t, -1 if there is none.
func (n *node) freedSince(gpus uint64, t int64, but *job) int {
	for rest := gpus; rest != 0 && n.freedBy != nil; rest &= rest - 1 {
		if g := bits.TrailingZeros64(rest); n.freed[g] > t && n.freedBy[g] != but {
			return g
		}
	}
	return -1
}

// standby checks that a bound pod may lend its GPUs, and takes them from it.
func (a *auditor) standby(j *job, d *decision) {
	i, ok := j.index(d.pod)
	if !ok {
		a.breach(Format, "pod %s is not one of job %s", d.pod, j.name)
		return
	}
	p, _ := j.pod(i)
	switch {
	case p.node == nil || p.warm != nil:
		a.breach(Standby, "%s goes on standby at %s; it is not bound, or on standby already", d.pod, seconds(d.t))
		return
	case j.class != "HP" || p.gpus == 0 || p.milli != wholeGPU || p.to != nil:
		a.breach(Standby, "%s goes on standby at %s; it is %s, has %d milli of GPUs %b, or is being moved", d.pod, seconds(d.t), j.class, p.milli, p.gpus)
	case d.cpu > p.cpu || d.mem > p.mem:
		a.breach(Standby, "%s keeps %d milli-cores and %d MiB on standby, and has %d and %d", d.pod, d.cpu, d.mem, p.cpu, p.mem)
	}
	a.hold(p.node, p, -1)
	p.warm = &pod{node: p.node, cpu: d.cpu, mem: d.mem}
	a.hold(p.node, p.warm, +1)
	p.node.lent |= p.gpus
}

// resume checks that a pod on standby goes on as soon as its GPUs are free or, if others there used its CPU or memory, a pod has
// left lent GPUs of its node; within the bound. It gives them back to it.
func (a *auditor) resume(j *job, d *decision) {
	i, ok := j.index(d.pod)
	if !ok {
		a.breach(Format, "pod %s is not one of job %s", d.pod, j.name)
		return
	}
	p, _ := j.pod(i)
	if p.node == nil || p.warm == nil {
		a.breach(Standby, "%s goes on at %s and is not on standby", d.pod, seconds(d.t))
		return
	}
	since := d.told
	for rest := p.gpus; rest != 0; rest &= rest - 1 {
		since = max(since, p.node.freed[bits.TrailingZeros64(rest)])
	}
	since = max(since, p.node.made)
	if d.t > since {
		a.breach(Standby, "%s goes on at %s, and could since %s", d.pod, seconds(d.t), seconds(since))
	}
	if most := int64(a.summary.Standby.Bound * 1e9); d.t-d.told > most {
		a.breach(Standby, "%s goes on at %s; it was told to at %s, and evictions take at most %s", d.pod, seconds(d.t), seconds(d.told), seconds(most))
	}
	a.hold(p.node, p.warm, -1)
	p.warm = nil
	a.hold(p.node, p, +1)
	p.node.lent &^= p.gpus
	a.within(p.node, d)
	j.binds.add(d.t)
}
