package audit

// A pod that is being moved holds two places: from its migrate line on, until the release of
// one of them. All that is checked of a move is checked at the first, but for how it ends.

// migrate checks that a bound pod may be moved as d says, and gives it its second place.
func (a *auditor) migrate(j *job, d *decision) {
	i, ok := j.index(d.pod)
	if !ok {
		a.breach(Format, "pod %s is not one of job %s", d.pod, j.name)
		return
	}
	p, t := j.pod(i)
	n := a.nodes[string(d.node)]
	switch {
	case p.node == nil:
		a.breach(Move, "%s is to move to %s at %s and is not bound", d.pod, d.node, seconds(d.t))
		return
	case p.to != nil:
		a.breach(Move, "%s is to move to %s at %s, while it is being moved to %s", d.pod, d.node, seconds(d.t), p.to.node.name)
		return
	case n == nil:
		a.breach(Node, "%s is to move to %s, which is not in cluster.csv", d.pod, d.node)
		return
	case n == p.node:
		a.breach(Move, "%s is to move to %s at %s, where it is", d.pod, d.node, seconds(d.t))
	case t.gpu > 0 && n.model != p.node.model:
		a.breach(Model, "%s is to move from a %s to %s, a %s", d.pod, p.node.model, n.name, n.model)
	}
	a.unlocked(j, d)
	if !j.locked && !j.replaceable {
		a.breach(Move, "%s is to move at %s, and its job stays", d.pod, seconds(d.t))
	}
	a.asked(t, d)

	// It must fit there as if it were not where it is: it does not repel its own double.
	a.label(t, p.node, -1)
	a.suits(j, t, n, d)
	a.label(t, p.node, +1)
	a.touch(j)
	p.to = &pod{node: n, gpus: a.devices(n, d), milli: d.milli, cpu: d.cpu, mem: d.mem}
	a.hold(n, p.to, +1)
	a.measure.second += p.to.amount()
	a.moving++
	a.moveBegins(p, d)
	a.within(n, d)
	a.label(t, n, +1)
}

// endMove takes one of its two places from a pod, the old one if it has moved. It reports
// false if the line releases another.
func (a *auditor) endMove(j *job, t *task, p *pod, d *decision) bool {
	moved := string(d.reason) == "migrated"
	if p.to == nil {
		a.unlocked(j, d)
		if !j.locked {
			a.breach(Move, "%s: %s at %s, and it was not being moved", d.pod, d.reason, seconds(d.t))
		}
		return false
	}
	free, stays := *p.to, *p
	if moved {
		free, stays = *p, *p.to
	}
	if !free.matches(d) {
		a.breach(Pod, "%s leaves %s %v at %s; its places are %s %b and %s %b",
			d.pod, d.node, d.gpus, seconds(d.t), p.node.name, p.gpus, p.to.node.name, p.to.gpus)
	}
	a.hold(free.node, &free, -1)
	free.node.free(j, free.gpus, d.t)
	a.measure.second -= free.amount()
	a.moving--
	a.moveEnds(p, d.t, moved)
	a.label(t, free.node, -1)
	stays.room = nil
	*p = stays // on the same GPU model: quota counts it as before
	p.to = nil
	if moved {
		a.measure.migrations++
	}
	return true
}
