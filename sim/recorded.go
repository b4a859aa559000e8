package sim

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core"
)

// Replay of what happened to a recorded cluster.

// setUpRecorded reports all nodes of the whole recording to the sinks, and those that
// exist at first to the engine.
func (r *run) setUpRecorded() error {
	r.recordedNodes = true
	first := map[string]*core.Node{}
	for _, c := range r.Changes {
		if added, ok := c.Event.(core.NodeAdded); ok && c.At <= 0 {
			if first[added.Node.Name] == nil {
				first[added.Node.Name] = &added.Node
			}
		}
	}
	for i := range r.Cluster.Nodes {
		spec := &r.Cluster.Nodes[i]
		n := &node{spec: spec, group: leafOf(spec), jobs: map[*state]int{}}
		r.nodes[spec.Name] = n
		up := first[spec.Name] != nil
		if up {
			spec = first[spec.Name]
		}
		if err := r.sinks.node(0, spec, true); err != nil {
			return err
		}
		if up {
			continue
		}
		if err := r.sinks.node(0, spec, false); err != nil {
			return err
		}
	}
	for len(r.Changes) > 0 && r.Changes[0].At <= 0 {
		c := r.Changes[0]
		r.Changes = r.Changes[1:]
		if added, ok := c.Event.(core.NodeAdded); ok && first[added.Node.Name] != nil {
			delete(first, added.Node.Name) // the sinks know
			if err := r.nodeComes(0, &added.Node); err != nil {
				return err
			}
			continue
		}
		if err := r.change(0, c.Event); err != nil {
			return err
		}
	}
	return nil
}

// changeAt makes the changes that are due.
func (r *run) changeAt(now core.Time) error {
	for len(r.Changes) > 0 && r.Changes[0].At <= now {
		c := r.Changes[0]
		r.Changes = r.Changes[1:]
		if err := r.change(now, c.Event); err != nil {
			return fmt.Errorf("change at %.9gs: %w", c.At.Seconds(), err)
		}
	}
	if r.unremoved != nil {
		r.unremoved = slices.DeleteFunc(r.unremoved, func(q string) bool {
			return r.tell(now, core.QueueRemoved{Queue: q}) == nil
		})
	}
	return nil
}

func (r *run) change(now core.Time, ev core.Event) error {
	switch ev := ev.(type) {
	case core.QueueSet:
		r.queues[ev.Queue.Name] = true
		r.unremoved = slices.DeleteFunc(r.unremoved, func(q string) bool { return q == ev.Queue.Name })
	case core.QueueRemoved:
		// Jobs may still be live here that had ended by then in the recording.
		r.unremoved = append(r.unremoved, ev.Queue)
		return nil
	case core.NodeAdded:
		if err := r.nodeComes(now, &ev.Node); err != nil {
			return err
		}
		return r.sinks.node(now, &ev.Node, true)
	case core.NodeLost:
		return r.loseNode(now, r.nodes[ev.Node])
	}
	if err := r.tell(now, ev); err != nil {
		return err
	}
	switch ev := ev.(type) {
	case core.NodeChanged:
		n := r.nodes[ev.Node.Name]
		spec := ev.Node
		spec.Model, spec.GPUs, spec.Devices = n.spec.Model, n.spec.GPUs, n.spec.Devices
		spec.Unhealthy, spec.Cordoned = n.spec.Unhealthy, n.spec.Cordoned
		n.spec, n.group = &spec, leafOf(&spec)
	case core.NodeCordoned:
		return r.nodeIs(now, ev.Node, func(n *core.Node) { n.Cordoned = ev.Cordoned })
	case core.DeviceHealth:
		return r.nodeIs(now, ev.Node, func(n *core.Node) {
			n.Unhealthy = slices.DeleteFunc(slices.Clone(n.Unhealthy), func(g int) bool { return g == ev.GPU })
			if !ev.Healthy {
				n.Unhealthy = append(n.Unhealthy, ev.GPU)
				slices.Sort(n.Unhealthy)
			}
		})
	}
	return nil
}

// nodeComes reports a new node to the engine.
func (r *run) nodeComes(now core.Time, spec *core.Node) error {
	n := r.nodes[spec.Name]
	n.spec, n.group = spec, leafOf(spec)
	return r.tell(now, core.NodeAdded{Node: *spec})
}

// nodeIs reports a changed node to the sinks.
func (r *run) nodeIs(now core.Time, name string, change func(*core.Node)) error {
	n := r.nodes[name]
	spec := *n.spec
	change(&spec)
	n.spec = &spec
	return r.sinks.node(now, n.spec, true)
}

// recorded puts the pods of a job where they were found, says what it received before, and plans the withdrawal of pods.
func (r *run) recorded(now core.Time, s *state) error {
	if served := s.Recorded.Served; served != (core.Served{}) {
		if err := r.tell(now, core.GPUTimeCounted{At: now, Jobs: []core.JobTime{{Job: s.Name, Served: served}}}); err != nil {
			return err
		}
	}
	var found []core.Placement
	for _, ev := range s.Recorded.Found {
		if r.tell(now, ev) != nil {
			continue // another job has the room: it waits
		}
		found = append(found, s.placement(&ev))
	}
	if found != nil {
		d := core.Decision{Op: core.Bind, Job: s.Name, Pods: found, Reason: core.Placed}
		if err := r.bind(now, s, &d); err != nil {
			return err
		}
		r.stats.Decisions -= len(found) // they were not decided here
	}
	for i, run := range s.Recorded.Runs {
		if run.Withdrawn > 0 {
			r.plan(event{at: max(now, run.Withdrawn), do: withdraw, job: s, runner: int32(i)})
		}
	}
	return nil
}

// placement is where a pod was found.
func (s *state) placement(ev *core.PodRunning) core.Placement {
	p := core.Placement{Pod: ev.Pod, Node: ev.Node}
	for _, g := range ev.GPUs {
		p.GPUs |= 1 << g
	}
	pod := ev.Pod
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if pod -= t.Pods; pod < 0 {
			p.CPUMilli, p.MemMiB = t.CPUMilli, t.MemMiB
			if p.GPUs != 0 {
				p.GPU = min(t.GPU, core.WholeGPU)
			}
			break
		}
	}
	return p
}

// withdraw removes a runner from its job, whatever its state.
func (r *run) withdraw(now core.Time, s *state, i int32) error {
	w := &s.runners[i]
	if w.over || r.jobs[s.Name] != s {
		return nil
	}
	if w.speed > 0 {
		r.stop(now, w)
	}
	w.left = 0
	w.turn++
	s.gone(w.pods)
	return r.end(now, s, w, Cancelled)
}
