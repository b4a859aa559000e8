package replay

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/quota"
	"github.com/muster-sched/muster/workload"
)

// layers are the topology levels, under the names that files have for them.
type layers struct {
	names []string          // of the levels that are kept
	of    map[string]string // by the log's name
	drop  int               // how many wide levels files have no place for
}

// fileLevels are the levels that files know, widest first.
var fileLevels = []string{"superspine", "spine", "leaf"}

func newLayers(levels []string) layers {
	l := layers{of: map[string]string{"node": "node", "hbd": "hbd"}, drop: max(0, len(levels)-len(fileLevels))}
	kept := levels[l.drop:]
	l.names = fileLevels[len(fileLevels)-len(kept):]
	for i, name := range kept {
		l.of[name] = l.names[i]
	}
	return l
}

// node gives a node its domains at the levels that are kept.
func (l *layers) node(n *core.Node) {
	if l.drop > 0 {
		n.Domains = slices.Clone(n.Domains[min(l.drop, len(n.Domains)):])
	}
}

// job gives a job the names of the levels that are kept.
func (l *layers) job(j *core.Job) {
	j.Topology.Required, j.Topology.Preferred = l.of[j.Topology.Required], l.of[j.Topology.Preferred]
	for i := range j.Tasks {
		task := &j.Tasks[i]
		terms := task.Affinity
		task.Affinity = nil
		for _, t := range terms {
			if level, ok := l.of[t.Level]; ok {
				t.Level = level
				task.Affinity = append(task.Affinity, t)
			}
		}
	}
}

// plain returns a job as far as files can express it. The simulator moves no job, so
// Locked stands for NotPreemptible and Foreign; that a job evicts no others, cannot be on lent
// GPUs, or does not restart elsewhere, is lost.
func plain(j core.Job) core.Job {
	j.Locked = j.Locked || j.NotPreemptible || j.Foreign
	j.NotPreemptible, j.NeverPreempts, j.NeverOnLent, j.NeverRestarts, j.Foreign = false, false, false, false, false
	j.Tasks = slices.Clone(j.Tasks)
	for i := range j.Tasks {
		t := &j.Tasks[i]
		t.AnyOf, t.Others, t.From = nil, nil, nil
		t.Selector = slices.DeleteFunc(slices.Clone(t.Selector), func(r core.Requirement) bool { return r.Op > cluster.DoesNotExist })
		terms := t.Affinity
		t.Affinity = nil
		for _, o := range terms {
			if o.MaxSkew == 0 {
				o.Label = separators.Replace(o.Label)
				t.Affinity = append(t.Affinity, o)
			}
		}
		t.Labels = slices.Clone(t.Labels)
		for k := range t.Labels {
			t.Labels[k] = separators.Replace(t.Labels[k])
		}
	}
	return j
}

var separators = strings.NewReplacer(";", "_", "\n", "_")

// machines has the names of all nodes that ever existed. A node that comes back with
// other properties gets another name.
type machines struct {
	now map[string]string // by the log's name
	at  map[string]int    // by name: its place among the cluster's nodes
}

// added records a node. With strict, a node with other labels, taints or domains counts
// as another node, not only one with other GPUs.
func (m *machines) added(n *core.Node, c *workload.Cluster, l layers, strict bool) {
	like := *n
	l.node(&like)
	like.Devices, like.Unhealthy, like.Cordoned = nil, nil, false
	name, known := m.now[n.Name]
	if known {
		old := &c.Nodes[m.at[name]]
		if sameGPUs(old, &like) && (!strict || sameSite(old, &like)) {
			old.CPUMilli, old.MemMiB = max(old.CPUMilli, like.CPUMilli), max(old.MemMiB, like.MemMiB)
			return
		}
	}
	name = n.Name
	for i := 2; ; i++ {
		if _, taken := m.at[name]; !taken {
			break
		}
		name = fmt.Sprintf("%s~%d", n.Name, i)
	}
	like.Name = name
	m.now[n.Name], m.at[name] = name, len(c.Nodes)
	c.Nodes = append(c.Nodes, like)
}

func sameGPUs(a, b *core.Node) bool { return a.Model == b.Model && a.GPUs == b.GPUs }

func sameSite(a, b *core.Node) bool {
	return a.HBD == b.HBD && maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Taints, b.Taints) && slices.Equal(a.Domains, b.Domains)
}

// change records a change of nodes or queues.
func (f *fold) change(ev core.Event) {
	switch e := ev.(type) {
	case core.NodeAdded:
		e.Node.Name = f.machines.now[e.Node.Name]
		f.layers.node(&e.Node)
		ev = e
	case core.NodeChanged:
		e.Node.Name = f.machines.now[e.Node.Name]
		f.layers.node(&e.Node)
		row := &f.recording.Cluster.Nodes[f.machines.at[e.Node.Name]]
		row.CPUMilli, row.MemMiB = max(row.CPUMilli, e.Node.CPUMilli), max(row.MemMiB, e.Node.MemMiB)
		ev = e
	case core.NodeLost:
		e.Node = f.machines.now[e.Node]
		ev = e
	case core.NodeCordoned:
		e.Node = f.machines.now[e.Node]
		ev = e
	case core.DeviceHealth:
		e.Node = f.machines.now[e.Node]
		ev = e
	case core.QueueSet:
		f.queue(&e.Queue)
	case core.QueueRemoved:
	default:
		return
	}
	f.recording.Changes = append(f.recording.Changes, workload.Change{At: f.now, Event: ev})
}

// queue adds a queue to the list of all queues that ever existed.
func (f *fold) queue(q *core.Queue) {
	all := f.recording.Cluster.Queues
	at := slices.IndexFunc(all, func(o core.Queue) bool { return o.Name == q.Name })
	if at < 0 {
		f.recording.Cluster.Queues = append(all, *q)
		return
	}
	most := *q
	if q.Mode == quota.Isolated && all[at].Mode == quota.Isolated {
		most.Quota = slices.Clone(q.Quota)
		for i := range most.Quota {
			for _, o := range all[at].Quota {
				if o.Model == most.Quota[i].Model {
					most.Quota[i].Nominal = max(most.Quota[i].Nominal, o.Nominal)
				}
			}
		}
	}
	all[at] = most
}

// compare records as changes what differs from the state before the engine began.
func (f *fold) compare() {
	for _, e := range f.tables.Snapshot(f.now) {
		if ev, ok := e.Event.(core.QueueSet); ok {
			old, known := f.before.queues[ev.Queue.Name]
			delete(f.before.queues, ev.Queue.Name)
			if !known || !reflect.DeepEqual(old, ev.Queue) {
				f.change(ev)
			}
		}
		if ev, ok := e.Event.(core.NodeAdded); ok {
			old, known := f.before.nodes[ev.Node.Name]
			delete(f.before.nodes, ev.Node.Name)
			f.compareNode(&old, known, ev)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.before.nodes)) {
		f.change(core.NodeLost{Node: name})
	}
	for _, name := range slices.Sorted(maps.Keys(f.before.queues)) {
		f.change(core.QueueRemoved{Queue: name})
	}
}

// compareNode records how a node differs from before.
func (f *fold) compareNode(old *core.Node, known bool, ev core.NodeAdded) {
	name := ev.Node.Name
	if known && !sameGPUs(old, &ev.Node) {
		f.recording.Changes = append(f.recording.Changes, workload.Change{At: f.now, Event: core.NodeLost{Node: f.before.names[name]}})
		known = false
	}
	if !known {
		f.change(ev)
		return
	}
	if !sameSite(old, &ev.Node) || old.CPUMilli != ev.Node.CPUMilli || old.MemMiB != ev.Node.MemMiB || old.MaxPods != ev.Node.MaxPods ||
		!slices.Equal(old.Others, ev.Node.Others) || !slices.Equal(old.Sets, ev.Node.Sets) {
		f.change(core.NodeChanged{Node: ev.Node})
	}
	if old.Cordoned != ev.Node.Cordoned {
		f.change(core.NodeCordoned{Node: name, Cordoned: ev.Node.Cordoned})
	}
	for g := range ev.Node.GPUs {
		if was, is := slices.Contains(old.Unhealthy, g), slices.Contains(ev.Node.Unhealthy, g); was != is {
			f.change(core.DeviceHealth{Node: name, GPU: g, Healthy: !is})
		}
	}
}

// finish ends the recording.
func (f *fold) finish() *Recording {
	if f.starting {
		f.started()
	}
	f.settle()
	r := &f.recording
	r.End = f.now
	r.Changes = append(r.Changes, workload.Change{At: f.now, Event: core.Tick{}})
	r.List = f.list()
	return r
}
