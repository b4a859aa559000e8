package kube

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/peers"
	"github.com/muster-sched/muster/kube/translate"
)

// attributesOf is what is said of the job: by its PodGroup, and by the pod
// where that says more.
func (t *tables) attributesOf(g *group, p *pod) translate.Attributes {
	a := p.object.attributes
	if g.says != nil {
		a = a.Over(&g.says.Attributes)
	}
	if pg := t.termsOf(g); pg != nil {
		a = a.Over(&pg.attributes)
		if a.Required == "" {
			a.Required = pg.required
		}
	}
	return a
}

// inherit returns a pod as it is with what is said of its job's GPUs, by its PodGroup
// or the object of the gang, where it says nothing of them itself. An error says what
// of it cannot be.
func (t *tables) inherit(p *pod) (*podObject, error) {
	var job translate.Attributes
	if g := p.group; g.says != nil {
		job = g.says.Attributes
	}
	if pg := t.termsOf(p.group); pg != nil {
		job = job.Over(&pg.attributes)
	}
	if !job.OfGPUs() {
		return p.object, nil
	}
	o := *p.object
	if len(o.deviceClaims) > 0 {
		job = translate.Attributes{Models: job.Models}
	}
	return &o, translate.Inherit(&o.request, &o.attributes, &job)
}

// queueOf names the queue of a group: what its pods say, else its namespace,
// else the default.
func (t *tables) queueOf(g *group, a translate.Attributes) string {
	return cmp.Or(a.Queue, translate.NamespaceQueue(t.namespaces[g.id.Namespace]), DefaultQueue)
}

// submit tells the engine of the job with all its pods.
func (m *driver) submit(g *group) {
	ours := m.decides(g)
	list := inOrder(g.pods, func(p *pod) bool { return p.state != podWaiting || p.ready() && !g.draining && ours })
	job := core.Job{Name: g.job, Kind: g.kind, Submitted: min(m.now, timeOf(g.created))}
	// What their object says is noted on those that have a place.
	speaker := list[max(0, slices.IndexFunc(list, func(p *pod) bool { return p.state != podWaiting }))]
	if g.id.Kind == others {
		job.Queue, job.Foreign = OthersQueue, true
	} else {
		m.describe(g, speaker, &job)
		if g.admitted != nil && speaker.state != podWaiting {
			g.admitted.apply(&m.tables, &job)
		} else {
			g.admitted = admit(&job)
		}
	}
	if !ours { // it is as it is
		job.Foreign, job.Gang, job.Topology = true, false, core.Job{}.Topology
	}
	g.queue = job.Queue
	byTask, view := map[*task][]*pod{}, m.lookAround()
	for _, p := range list {
		t := g.taskOf(p, view)
		byTask[t] = append(byTask[t], p)
	}
	least := g.spread(byTask)
	for _, t := range g.tasks {
		task := t.as(len(byTask[t]), 0)
		switch n := least[t]; {
		case !job.Gang:
		case n == 0:
			task.MinPods = core.Elastic
		default:
			task.MinPods = n
		}
		job.Tasks = append(job.Tasks, task)
	}
	if err := m.tell(core.JobSubmitted{Job: job}); err != nil {
		if g.reset(); m.panics.broken {
			return
		}
		g.wait(m.now, ReasonMisconfigured, err.Error())
		for _, p := range list {
			if p.state != podWaiting { // it has what it has, all the same
				m.outside(p, err)
			}
		}
		return
	}
	g.submitted, g.relabel = true, false
	m.setOff(g)
	g.worked = g.worked || g.runs() && len(list) < g.min // it is found so: some may have done their work before
	m.jobs[g.job] = g
	for _, t := range g.tasks {
		for _, p := range byTask[t] {
			g.has(p, len(g.slots), t)
		}
	}
	for _, p := range list {
		m.settleIn(p)
	}
	if a := m.attributesOf(g, speaker); !a.LastCheckpoint.IsZero() {
		m.mustTell(core.Checkpointed{Job: g.job, At: min(m.now, timeOf(a.LastCheckpoint))})
	}
}

// describe fills in what is said of the job.
func (m *changes) describe(g *group, p *pod, job *core.Job) {
	a := m.attributesOf(g, p)
	job.Queue = m.queueOf(g, a)
	found := p.state != podWaiting && g.admitted == nil // on its node, and not weighed by this instance
	if found {
		job.Queue = m.chargeable(g, p, job.Queue)
	} else if _, told := m.queues.told[job.Queue]; !told {
		job.Queue = DefaultQueue // it must be counted somewhere
	}
	if a.KindGiven {
		job.Kind = a.Kind
	}
	rank := m.priorityOf(g, p, &a)
	if found {
		rank = m.bearable(g, p, &a, job.Queue, rank)
	}
	job.Class, job.Priority, job.NeverPreempts = a.Class, rank.Value, rank.Never
	job.NotPreemptible, job.Locked = a.NotPreemptible, a.Locked
	job.MinRuntime, job.Checkpoint, job.Estimate = a.MinRuntime, a.Checkpoint, a.Estimate
	job.Topology.Required, _ = m.topologies.Level(a.Required)
	job.Topology.Preferred, _ = m.topologies.Level(a.Preferred)
	job.Gang = g.gang()
	if g.together() {
		job.Topology.Required = cluster.NodeLevel
	}
}

// taskOf finds the role of a pod, or makes one. Pods that say the same role and
// ask for different things, of their nodes or of the pods around, or that others
// mean alone, have roles of their own.
func (g *group) taskOf(p *pod, view *peers.View) *task {
	spec, around := p.request(), view.Of(&p.around)
	if g.id.Kind == others {
		spec = amountsOf(p.takes())
		spec.GPU = max(spec.GPU, p.object.request.GPU) // of a stranded pod
	}
	role := cmp.Or(p.object.membership.Role, translate.MainRole)
	name := role
	for i := 2; ; i++ {
		t := g.task(name)
		if t == nil {
			t = &task{name: name, role: role, spec: spec, around: *around}
			g.tasks = append(g.tasks, t)
			return t
		}
		if t.role == role && around.Equal(&t.around) && reflect.DeepEqual(t.spec, spec) {
			return t
		}
		name = fmt.Sprintf("%s-%d", role, i)
	}
}

// add tells the engine of pods that came to a job it has.
func (m *driver) add(g *group) {
	ours := m.decides(g)
	list := inOrder(g.loose, func(p *pod) bool { return p.state != podLeaving && (p.state != podWaiting || p.ready() && ours) })
	byTask, view := map[*task][]*pod{}, m.lookAround()
	var order []*task
	for _, p := range list {
		t := g.taskOf(p, view)
		if byTask[t] == nil {
			order = append(order, t)
		}
		byTask[t] = append(byTask[t], p)
	}
	for _, t := range order {
		ev := core.PodsAdded{Job: g.job, Task: t.as(len(byTask[t]), core.Elastic)}
		for _, p := range byTask[t] {
			slot := len(g.slots)
			if k := len(t.free); k > 0 {
				slot, t.free = t.free[k-1], t.free[:k-1]
			}
			g.has(p, slot, t)
			ev.Pods = append(ev.Pods, p.slot)
		}
		m.mustTell(ev)
		for _, p := range byTask[t] {
			m.settleIn(p)
		}
	}
}

// settleIn tells the engine where a pod is that has a place already.
func (m *driver) settleIn(p *pod) {
	if p.state != podWaiting {
		m.adopt(p)
	}
}
