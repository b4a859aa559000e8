package mirror

import (
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/journey"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/tables"
)

// submit tells the engine about the job with all its pods.
func (m *driver) submit(g *tables.Group) {
	// 1. Which pods: all that have a place, for their devices are not free; those that wait if
	// this instance decides on them.
	ours := m.Decides(g)
	list := tables.InOrder(g.Pods, func(p *tables.Pod) bool { return p.State != tables.PodWaiting || p.Ready() && !g.Draining && ours })
	job := core.Job{Name: g.Job, Kind: g.Kind, Submitted: min(m.Now, objects.TimeOf(g.Created))}
	// 2. The attributes of the job, from one pod for all.
	// What their PodGroup says is recorded on those that have a place.
	speaker := list[max(0, slices.IndexFunc(list, func(p *tables.Pod) bool { return p.State != tables.PodWaiting }))]
	if g.ID.Kind == tables.Foreign {
		job.Queue, job.Foreign = queues.Others, true
	} else {
		m.describe(g, speaker, &job)
		// A job that runs stays what it was admitted as, in another engine too: otherwise a user who
		// edits a pod would move its charge to another queue, or raise its priority.
		if g.Admitted != nil && speaker.State != tables.PodWaiting {
			g.Admitted.Apply(&m.Tables, &job)
		} else {
			g.Admitted = tables.Admit(&job)
		}
	}
	if !ours { // it is as it is
		job.Foreign, job.Gang, job.Topology, job.Mobility = true, false, core.Job{}.Topology, core.Stays
	}
	g.NeverOnLent = job.Class == core.LP && slices.ContainsFunc(list, func(p *tables.Pod) bool { return p.Object.Counted() })
	g.Queue, job.NeverOnLent = job.Queue, g.NeverOnLent
	// 3. Its roles, each with the number of pods that must start together.
	kept, _ := m.KeptOf(g)
	byTask, lack := m.Roles(g, list, &kept, &job)
	// 4. The engine may refuse the job. Then it is not scheduled, and what its pods take
	// is subtracted from their nodes.
	reason, err := tables.ReasonTooComplex, g.TooMany()
	if err == nil {
		reason, err = tables.ReasonMisconfigured, m.tell(core.JobSubmitted{Job: job})
	}
	if err != nil {
		if g.Reset(); m.panics.Broken {
			return
		}
		g.Wait(m.Now, reason, err.Error())
		for _, p := range list {
			if p.State != tables.PodWaiting { // it has what it has, all the same
				m.outside(p, err)
			}
		}
		return
	}
	g.Submitted, g.Relabel = true, false
	if m.traced != nil && !g.Ran && g.ID.Kind != tables.Foreign && m.Ours(g) {
		g.Journey = &journey.Tracked{Journey: journey.Journey{Job: g.Job, Queue: g.Queue, Created: g.Created, Submitted: m.Clock()}}
	}
	g.Worked = g.Worked || lack == nil && g.Runs() && len(list) < g.Min // others may have succeeded before
	m.Jobs[g.Job] = g
	// 5. The engine numbers pods by the order of its roles. The numbers must be known before the
	// engine receives the pods' nodes, because that may remove a pod from the group (outside).
	for _, t := range g.Tasks {
		for _, p := range byTask[t] {
			g.Has(p, len(g.Slots), t)
		}
		for range lack[t] {
			m.mustTell(core.PodEnded{Job: g.Job, Pod: g.Absent(t)})
		}
	}
	if !m.adoptPaused(g) {
		for _, p := range list {
			m.settleIn(p)
		}
	}
	for _, ev := range m.GoesOn(g, &kept) {
		m.mustTell(ev)
	}
	if a := m.AttributesOf(g, speaker); !a.LastCheckpoint.IsZero() {
		m.mustTell(core.Checkpointed{Job: g.Job, At: min(m.Now, objects.TimeOf(a.LastCheckpoint))})
	}
}

// describe fills in the attributes of the job.
func (m *changes) describe(g *tables.Group, p *tables.Pod, job *core.Job) {
	a := m.AttributesOf(g, p)
	job.Queue = m.QueueOf(g, a)
	found := p.State != tables.PodWaiting && g.Admitted == nil // on its node, and not weighed by this instance
	if _, told := m.Queues.Told[job.Queue]; !told && !found {
		job.Queue = queues.Default // it must be counted somewhere
	}
	if a.KindGiven {
		job.Kind = a.Kind
	}
	rank := m.PriorityOf(g, p, &a)
	job.User, job.Class, job.Priority, job.NeverPreempts = tables.UserOf(g, &a), a.Class, rank.Value, rank.Never
	job.NotPreemptible, job.Locked, job.Lends = a.NotPreemptible, a.Locked, p.Object.WillLend
	if found {
		for _, x := range m.Charge(g, p, &a, job) {
			m.tellPod(p, x.Reason, x.Detail)
		}
	}
	job.MinRuntime, job.Checkpoint, job.Estimate, job.StaleGrace = a.MinRuntime, a.Checkpoint, a.Estimate, a.StaleGrace
	job.Suspend, job.SaveWithin = m.SuspensionOf(g, p), m.SaveWithin(g)
	job.Topology.Required, _ = m.Topologies.Level(tables.RequiredBy(g, &a))
	job.Topology.Preferred, _ = m.Topologies.Level(a.Preferred)
	job.Topology.Closeness = a.Closeness
	job.Gang, job.Mobility, job.NeverRestarts = g.Gang(), m.Mobility(g, p), !m.Restartable(g, p)
	if g.Together() {
		job.Topology.Required = cluster.NodeLevel
	}
}

// add tells the engine about new pods of a job that it knows, but those that are early: they take
// the places of pods that are not gone yet.
func (m *driver) add(g *tables.Group, early map[*tables.Pod]bool) {
	if g.Paused() {
		return // the job takes no pods until it goes on
	}
	ours := m.Decides(g)
	list := tables.InOrder(g.Loose, func(p *tables.Pod) bool {
		return !early[p] && p.State != tables.PodLeaving && (p.State != tables.PodWaiting || p.Ready() && ours)
	})
	if g.Admitted != nil && g.Admitted.Class() == core.LP && !g.NeverOnLent && slices.ContainsFunc(list, func(p *tables.Pod) bool { return p.Object.Counted() }) {
		m.tellAnew(g) // from now on its pods must not be put on lent GPUs
		m.touch(g)
		return
	}
	byTask, view := map[*tables.Task][]*tables.Pod{}, m.LookAround()
	var order []*tables.Task
	for _, p := range list {
		if err := g.Full(p, view); err != nil {
			if g.Wait(m.Now, tables.ReasonTooComplex, err.Error()); p.State != tables.PodWaiting {
				m.outside(p, err)
			}
			continue
		}
		t := g.TaskOf(p, view)
		if byTask[t] == nil {
			order = append(order, t)
		}
		byTask[t] = append(byTask[t], p)
	}
	for _, t := range order {
		ev := core.PodsAdded{Job: g.Job, Task: t.As(len(byTask[t]), core.Elastic)}
		for _, p := range byTask[t] {
			// The numbers of pods that are over are used again, so that a job whose pods come and go
			// for months does not grow.
			slot := len(g.Slots)
			if k := len(t.Free); k > 0 {
				slot, t.Free = t.Free[k-1], t.Free[:k-1]
			}
			g.Has(p, slot, t)
			ev.Pods = append(ev.Pods, p.Slot)
		}
		m.mustTell(ev)
		for _, p := range byTask[t] {
			m.settleIn(p)
		}
	}
}

// settleIn tells the engine the node of a pod that has a place already.
func (m *driver) settleIn(p *tables.Pod) {
	if p.State != tables.PodWaiting {
		m.adopt(p)
	}
}
