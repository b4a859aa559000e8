package settings

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/translate"
)

// Topologies are the Topology objects, what is known of the labels of nodes, and the
// levels that count.
type Topologies struct {
	// Name is that of the object to place by, empty when none was named; it is set
	// before the first observation.
	Name string

	objects map[string]*v1alpha1.Topology
	// given are levels to use in place of any object; used is the name of the object
	// that is in use, empty for none.
	given   []translate.Level
	levels  []translate.Level
	used    string
	verdict map[string]Verdict

	// nodes has what is known of each. There are count of them, and having[i] have the
	// ith label of translate.LevelFamilies.
	nodes  map[string]nodeLabels
	having []int
	// relabelled says that these have changed since the levels were chosen.
	relabelled bool
	// keys counts the nodes by the keys of their labels; newKeys says that one came that no node had.
	keys    map[string]int
	newKeys bool
	chosen  core.Time
	// labelled is how many nodes have the labels of all levels of each object,
	// as far as it was counted since any node came, went or was relabelled.
	labelled map[string]int
}

// nodeLabels is the labels of a node, and which of translate.LevelFamilies are among them.
type nodeLabels struct {
	labels   map[string]string
	families uint64
}

// chooseAgain is how long levels that labels of nodes suggested stay at least:
// while nodes come, the first hundred may be labelled otherwise than the rest.
const chooseAgain = 60 * core.Second

// NewTopologies returns topologies without objects. given are levels to use in place of
// any, nil for none.
func NewTopologies(given []translate.Level) *Topologies {
	t := &Topologies{
		objects: map[string]*v1alpha1.Topology{}, verdict: map[string]Verdict{}, given: given, levels: given,
		nodes: map[string]nodeLabels{}, labelled: map[string]int{}, keys: map[string]int{},
	}
	for _, f := range translate.LevelFamilies {
		t.having = append(t.having, make([]int, len(f))...)
	}
	return t
}

// Levels returns the levels to place by, widest first.
func (t *Topologies) Levels() []translate.Level { return t.levels }

// Used names the object that is in use, "" for none.
func (t *Topologies) Used() string { return t.used }

// Verdict returns the verdict on an object.
func (t *Topologies) Verdict(name string) Verdict { return t.verdict[name] }

// Observe records the present state of a topology, and reports whether levels are to be chosen
// again.
func (t *Topologies) Observe(o *v1alpha1.Topology) (again bool) {
	old := t.objects[o.Name]
	t.objects[o.Name] = o
	if old != nil && reflect.DeepEqual(old.Spec, o.Spec) {
		return false
	}
	delete(t.labelled, o.Name)
	return true
}

// Forget records that a topology was deleted: levels are to be chosen again.
func (t *Topologies) Forget(o *v1alpha1.Topology) (again bool) {
	delete(t.objects, o.Name)
	return true
}

// Replace replaces all known topologies: levels are to be chosen again.
func (t *Topologies) Replace(list []*v1alpha1.Topology) (again bool) {
	clear(t.objects)
	for _, o := range list {
		t.objects[o.Name] = o
	}
	clear(t.labelled)
	return true
}

// ObserveNode records the labels of a node as they are now. [Topologies.Suggest] says
// what follows.
func (t *Topologies) ObserveNode(name string, labels map[string]string) {
	old, there := t.nodes[name]
	if there && maps.Equal(old.labels, labels) {
		return
	}
	t.nodes[name] = nodeLabels{labels, translate.FamilyLabels(labels)}
	for k := range labels {
		t.keys[k]++
		t.newKeys = t.newKeys || t.keys[k] == 1
	}
	t.uncount(old.labels)
	t.survey(old.families, t.nodes[name].families, !there)
}

// ForgetNode records that a node was deleted.
func (t *Topologies) ForgetNode(name string) {
	if old, there := t.nodes[name]; there {
		delete(t.nodes, name)
		t.uncount(old.labels)
		t.survey(old.families, 0, true)
	}
}

// uncount takes the labels of a node out of the counts of keys.
func (t *Topologies) uncount(labels map[string]string) {
	for k := range labels {
		if t.keys[k]--; t.keys[k] == 0 {
			delete(t.keys, k)
		}
	}
}

// NewKeys reports whether nodes have labels by now that none had at the last call.
func (t *Topologies) NewKeys() bool {
	is := t.newKeys
	t.newKeys = false
	return is
}

// survey counts a node with other labels than before; other says that it came or went.
func (t *Topologies) survey(before, now uint64, other bool) {
	clear(t.labelled)
	for i := range t.having {
		t.having[i] += int(now>>i&1) - int(before>>i&1)
	}
	t.relabelled = t.relabelled || before != now || other
}

// Suggest reports whether levels are to be chosen again because the labels of nodes
// suggest others, or when they may be at the earliest; [core.Never] for no time.
func (t *Topologies) Suggest(now core.Time) (again bool, at core.Time) {
	if !t.relabelled || t.used != "" || t.Name != "" || len(t.given) > 0 {
		return false, core.Never
	}
	if at := t.chosen + chooseAgain; len(t.levels) > 0 && now < at {
		return false, at
	}
	return true, core.Never
}

// Choose puts in use the Topology that was named, else the oldest there is, else what
// the labels of nodes suggest. It reports whether the levels changed.
func (t *Topologies) Choose(now core.Time) (changed bool) {
	t.used, t.relabelled, t.chosen = "", false, now
	levels := t.given
	switch {
	case len(levels) > 0:
	case t.objects[t.Name] != nil:
		t.used = t.Name
	case t.Name == "" && len(t.objects) > 0:
		t.used = t.oldest()
	case t.Name == "":
		levels = t.family()
	}
	if t.used != "" {
		levels = translate.Levels(&t.objects[t.used].Spec)
	}
	clear(t.verdict)
	for name := range t.objects {
		switch {
		case name == t.used:
			t.verdict[name] = Verdict{v1alpha1.TopologyInUse, "the scheduler uses this topology"}
		case t.used != "":
			t.verdict[name] = Verdict{v1alpha1.TopologyAccepted, fmt.Sprintf("topology %s is in use", t.used)}
		default:
			t.verdict[name] = Verdict{v1alpha1.TopologyAccepted, "the scheduler is configured to use another topology"}
		}
	}
	if slices.Equal(levels, t.levels) {
		return false
	}
	t.levels = levels
	return true
}

// family returns the levels that the labels of nodes suggest: those labels of
// the first family that most nodes have.
func (t *Topologies) family() []translate.Level {
	i := 0
	for _, f := range translate.LevelFamilies {
		var levels []translate.Level
		for _, l := range f {
			if 2*t.having[i] > len(t.nodes) {
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
func (t *Topologies) oldest() string {
	return slices.MinFunc(slices.Sorted(maps.Keys(t.objects)), func(a, b string) int {
		return t.objects[a].CreationTimestamp.Compare(t.objects[b].CreationTimestamp.Time)
	})
}

// Level returns the engine's name of a topology level, of the narrowest of several that
// are separated by commas; false when one is unknown.
func (t *Topologies) Level(names string) (string, bool) {
	narrowest, found := "", -1
	for name := range strings.SplitSeq(names, ",") {
		l, ok := t.one(name)
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

func (t *Topologies) one(name string) (string, bool) {
	if o := t.objects[t.used]; o != nil {
		if l, ok := o.Spec.Level(name); ok {
			name = l
		}
	}
	switch name {
	case "", cluster.NodeLevel, cluster.HBDLevel:
		return name, true
	case v1alpha1.HostnameLabel:
		return cluster.NodeLevel, true
	}
	if n, ok := translate.ParseTier(name); ok && n >= 1 && n <= len(t.levels) {
		return t.levels[len(t.levels)-n].Name, true
	}
	for _, l := range t.levels {
		if l.Name == name || l.Label == name {
			return l.Name, true
		}
	}
	return "", false
}

// TermLevel returns the engine's name of the level of a term with a topologyKey: a level of the topology, or any label
// that some node has; false if none has it.
func (t *Topologies) TermLevel(key string) (string, bool) {
	if l, ok := t.one(key); ok {
		return l, true
	}
	return cluster.LabelLevel + key, t.keys[key] > 0
}

// Names lists the levels for those who named another.
func (t *Topologies) Names() string {
	names := make([]string, 0, len(t.levels)+2)
	for _, l := range t.levels {
		names = append(names, l.Name)
	}
	return strings.Join(append(names, cluster.NodeLevel, cluster.HBDLevel), ", ")
}

// Statuses returns the objects of which the status changed, sorted by name.
func (t *Topologies) Statuses(now metav1.Time) []*v1alpha1.Topology {
	var out []*v1alpha1.Topology
	for _, name := range slices.Sorted(maps.Keys(t.objects)) {
		o := *t.objects[name]
		old, v, nodes := o.Status, t.verdict[name], t.labelledNodes(&o)
		if nodes == 0 && v.Reason == v1alpha1.TopologyInUse {
			v = Verdict{v1alpha1.TopologyNoNodes, "no node has the labels of all levels"}
		}
		o.Status = v1alpha1.TopologyStatus{
			Nodes: int32(nodes), Conditions: v.On(old.Conditions, v.Reason != v1alpha1.TopologyNoNodes, o.Generation, now),
		}
		if !equality.Semantic.DeepEqual(o.Status, old) {
			out = append(out, &o)
		}
	}
	return out
}

// labelledNodes counts the nodes that have the labels of all levels of an
// object.
func (t *Topologies) labelledNodes(o *v1alpha1.Topology) int {
	if count, ok := t.labelled[o.Name]; ok {
		return count
	}
	levels, count := translate.Levels(&o.Spec), 0
	for _, n := range t.nodes {
		if !slices.ContainsFunc(levels, func(l translate.Level) bool { return n.labels[l.Label] == "" }) {
			count++
		}
	}
	t.labelled[o.Name] = count
	return count
}
