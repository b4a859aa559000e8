package cluster

import "slices"

// Labels of pods are counted by the domain that hosts them, for affinity, anti-affinity and
// spread.

// labelAt is a label in a domain.
type labelAt struct {
	label  string
	level  int
	domain int32
}

// anywhere is the level of which the whole cluster is one domain. hosts, in place of a
// domain, is the counter of the domains of a level that host a label.
const (
	anywhere = -1
	hosts    = -1
)

// SetLabels sets the labels of the pods of a job, by their number in the job; nil: none has
// labels. on lists the pods of the job that are on nodes and whose labels change.
func (s *State) SetLabels(job int32, labels func(pod int32) []string, on []Held) {
	for i := range on {
		s.countLasting(on[i].Alloc.Node, on[i].Owner, -1)
	}
	delete(s.podLabels, job)
	if labels != nil {
		s.podLabels[job] = labels
	}
	for i := range on {
		s.countLasting(on[i].Alloc.Node, on[i].Owner, 1)
	}
}

// LabelledAnywhere returns how many pods with the label are placed.
func (s *State) LabelledAnywhere(label string) int {
	return int(s.labels[labelAt{label, anywhere, 0}])
}

// Labelled returns how many pods with the label the domain hosts.
func (s *State) Labelled(label string, level int, domain int32) int {
	return int(s.labels[labelAt{label, level, domain}])
}

// Hosting returns how many domains of a level host pods with the label.
func (s *State) Hosting(label string, level int) int {
	return int(s.labels[labelAt{label, level, hosts}])
}

// LabelChanges counts the changes of what Labelled and Hosting return.
func (s *State) LabelChanges() uint64 { return s.labelled }

// LastingLabelChanges counts commits and events that changed labels. Unlike LabelChanges it
// stays the same over a trial that is rolled back, such as a forecast.
func (s *State) LastingLabelChanges() uint64 { return s.lasting }

// Expect counts the labels of a pod on a node where it will be placed once others have
// left. It is not part of the journal.
func (s *State) Expect(o Owner, id NodeID) {
	s.expected[id] = append(s.expected[id], o)
	s.countLasting(id, o, 1)
}

// Unexpect takes back an Expect.
func (s *State) Unexpect(o Owner, id NodeID) {
	left := slices.DeleteFunc(s.expected[id], func(x Owner) bool { return x == o })
	if s.expected[id] = left; len(left) == 0 {
		delete(s.expected, id)
	}
	s.countLasting(id, o, -1)
}

// countJournaled is count for a change in the journal, countLasting for another.
func (s *State) countJournaled(id NodeID, o Owner, by int32) {
	if s.podLabels[o.Job] != nil {
		s.relabels = true
		s.count(id, o, by)
	}
}

func (s *State) countLasting(id NodeID, o Owner, by int32) {
	if s.podLabels[o.Job] != nil {
		s.lasting++
		s.count(id, o, by)
	}
}

// countAll is count for all pods on the node, and those expected there.
func (s *State) countAll(id NodeID, by int32) {
	for h := range s.nodes[id].Pods {
		s.countLasting(id, h.Owner, by)
	}
	for _, o := range s.expected[id] {
		s.countLasting(id, o, by)
	}
}

// count adds by, 1 or -1, to the label counters for a pod on the node. Pods without labels,
// nearly all, cost one lookup.
func (s *State) count(id NodeID, o Owner, by int32) {
	of := s.podLabels[o.Job]
	if of == nil {
		return
	}
	for _, label := range of(o.Pod) {
		s.labelled++
		// Each level of the topology and the HBD, where the domain is known; the node; the
		// cluster. The cluster has one domain, so those that host the label are not counted.
		for level := range s.domains {
			if d := s.nodes[id].domains[level]; d >= 0 {
				s.countLabel(labelAt{label, level, d}, by)
			}
		}
		s.countLabel(labelAt{label, NodeLevelNum, int32(s.Home(id))}, by)
		s.addLabelled(labelAt{label, anywhere, 0}, by)
	}
}

// countLabel counts a pod with a label in a domain. If it is the first there, or was the last,
// it counts the domain among those that host the label.
func (s *State) countLabel(at labelAt, by int32) {
	if now := s.addLabelled(at, by); now == by || now == 0 {
		s.addLabelled(labelAt{at.label, at.level, hosts}, by)
	}
}

// addLabelled adds by to a counter and returns what it is then. One that is zero is forgotten: labels of jobs that have ended, such as
// the name of each, must not add up.
func (s *State) addLabelled(at labelAt, by int32) int32 {
	now := s.labels[at] + by
	if now == 0 {
		delete(s.labels, at)
	} else {
		s.labels[at] = now
	}
	return now
}
