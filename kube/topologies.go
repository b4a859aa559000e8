package kube

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/translate"
)

// From Topology objects, or the labels of nodes, to the engine's levels.

// topologies are the Topology objects, and what is known of the labels of nodes.
type topologies struct {
	objects map[string]*v1alpha1.Topology
	// given are levels to use in place of any object. name is that of the object to place by, empty when none was named; used is
	// that of the one in use, empty for none.
	given      []translate.Level
	name, used string
	verdict    map[string]verdict

	// Of the nodes there are, and of those that have each label of
	// translate.LevelFamilies, in their order.
	nodes  int
	having []int
	// relabelled says that these have changed since the levels were chosen.
	relabelled bool
	chosen     core.Time
	// labelled is how many nodes have the labels of all levels of each object,
	// as far as it was counted since any node came, went or was relabelled.
	labelled map[string]int
}

// chooseAgain is how long levels that labels of nodes suggested stay at least:
// while nodes come, the first hundred may be labelled otherwise than the rest.
const chooseAgain = 60 * core.Second

func newTopologies(given []translate.Level) topologies {
	t := topologies{objects: map[string]*v1alpha1.Topology{}, verdict: map[string]verdict{}, given: given, labelled: map[string]int{}}
	for _, f := range translate.LevelFamilies {
		t.having = append(t.having, make([]int, len(f))...)
	}
	return t
}

func (m *mirror) topologiesListed(list []*v1alpha1.Topology) {
	refill(m.topologies.objects, list, nameOf)
	clear(m.topologies.labelled)
	m.chooseLevels()
}

// topologySeen takes in a topology as it is now.
func (m *mirror) topologySeen(t *v1alpha1.Topology) {
	old := m.topologies.objects[t.Name]
	m.topologies.objects[t.Name] = t
	if old == nil || !reflect.DeepEqual(old.Spec, t.Spec) {
		delete(m.topologies.labelled, t.Name)
		m.chooseLevels()
	}
}

func (m *mirror) topologyGone(name string) {
	delete(m.topologies.objects, name)
	m.chooseLevels()
}

// present is the bit of a node that is there, beside those of its labels.
const present = 1 << 63

// survey notes that a node has other labels than it had: bits as those of
// translate.FamilyLabels and present, 0 for a node that is not there.
func (t *topologies) survey(n *node, labels uint64) {
	if n.surveyed == labels {
		return
	}
	for i := range t.having {
		t.having[i] += int(labels>>i&1) - int(n.surveyed>>i&1)
	}
	t.nodes += int(labels>>63) - int(n.surveyed>>63)
	n.surveyed, t.relabelled = labels, true
}

// family returns the levels that the labels of nodes suggest: those labels of
// the first family that most nodes have.
func (t *topologies) family() []translate.Level {
	i := 0
	for _, f := range translate.LevelFamilies {
		var levels []translate.Level
		for _, l := range f {
			if 2*t.having[i] > t.nodes {
				levels = append(levels, l)
			}
			i++
		}
		if levels != nil {
			return levels
		}
	}
	return nil
}

// oldest names the object that has been there for longest.
func (t *topologies) oldest() string {
	names := sortedKeys(t.objects)
	return slices.MinFunc(names, func(a, b string) int {
		return t.objects[a].CreationTimestamp.Compare(t.objects[b].CreationTimestamp.Time)
	})
}

// chooseLevels puts in use the Topology that was named, else the oldest there
// is, else what the labels of nodes suggest. Before all objects were listed it
// is too early.
func (m *driver) chooseLevels() {
	if m.engine == nil {
		return
	}
	if m.pickLevels() {
		m.outdated = true
	}
}

// pickLevels does it, and reports whether the levels are others.
func (m *changes) pickLevels() bool {
	t := &m.topologies
	t.used, t.relabelled, t.chosen = "", false, m.now
	levels := t.given
	switch {
	case len(levels) > 0:
	case t.objects[t.name] != nil:
		t.used = t.name
	case t.name == "" && len(t.objects) > 0:
		t.used = t.oldest()
	case t.name == "":
		levels = t.family()
	}
	if t.used != "" {
		levels = translate.Levels(&t.objects[t.used].Spec)
	}
	clear(t.verdict)
	for name := range t.objects {
		switch {
		case name == t.used:
			t.verdict[name] = verdict{v1alpha1.TopologyInUse, "the scheduler uses this topology"}
		case t.used != "":
			t.verdict[name] = verdict{v1alpha1.TopologyAccepted, fmt.Sprintf("topology %s is in use", t.used)}
		default:
			t.verdict[name] = verdict{v1alpha1.TopologyAccepted, "the scheduler is configured to use another topology"}
		}
	}
	if slices.Equal(levels, m.levels) {
		return false
	}
	m.levels = levels
	m.log.Info("other topology levels are in use", "topology", t.used, "levels", m.levelNames())
	return true
}

// watchLabels chooses levels anew when the labels of nodes suggest others.
func (m *driver) watchLabels() {
	t := &m.topologies
	if m.engine == nil || !t.relabelled || t.used != "" || t.name != "" || len(t.given) > 0 {
		return
	}
	if at := t.chosen + chooseAgain; len(m.levels) > 0 && m.now < at {
		m.acts.wake = min(m.acts.wake, at)
		return
	}
	m.chooseLevels()
}

// labelledNodes counts the nodes that have the labels of all levels of an
// object.
func (t *tables) labelledNodes(o *v1alpha1.Topology) int {
	if count, ok := t.topologies.labelled[o.Name]; ok {
		return count
	}
	levels, count := translate.Levels(&o.Spec), 0
nodes:
	for _, n := range t.nodes {
		if n.gone {
			continue
		}
		for _, l := range levels {
			if n.object.node.Labels[l.Label] == "" {
				continue nodes
			}
		}
		count++
	}
	t.topologies.labelled[o.Name] = count
	return count
}

// level returns the engine's name of a topology level, of the narrowest of
// several.
func (t *tables) level(names string) (string, bool) {
	narrowest, found := "", -1
	for name := range strings.SplitSeq(names, ",") {
		l, ok := t.oneLevel(name)
		if !ok {
			return "", false
		}
		i := slices.IndexFunc(t.levels, func(o translate.Level) bool { return o.Name == l })
		switch l {
		case cluster.HBDLevel:
			i = len(t.levels)
		case cluster.NodeLevel:
			i = len(t.levels) + 1
		}
		if i >= found {
			narrowest, found = l, i
		}
	}
	return narrowest, true
}

func (t *tables) oneLevel(name string) (string, bool) {
	if t := t.topologies.objects[t.topologies.used]; t != nil {
		if l, ok := t.Spec.Level(name); ok {
			name = l
		}
	}
	switch name {
	case "", cluster.NodeLevel, cluster.HBDLevel:
		return name, true
	case v1alpha1.HostnameLabel:
		return cluster.NodeLevel, true
	}
	for _, l := range t.levels {
		if l.Name == name || l.Label == name {
			return l.Name, true
		}
	}
	return "", false
}

// levelNames lists the levels for those who named another.
func (t *tables) levelNames() string {
	names := make([]string, 0, len(t.levels)+2)
	for _, l := range t.levels {
		names = append(names, l.Name)
	}
	return strings.Join(append(names, cluster.NodeLevel, cluster.HBDLevel), ", ")
}
