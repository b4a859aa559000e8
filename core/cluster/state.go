// Package cluster is the state of a cluster: nodes with their devices, the
// topology they are in, and an index that finds nodes with room without
// looking at the others. The state is changed in place; a journal takes
// changes back (Kant §3.4.3 taken to its end: nothing is ever copied).
package cluster

import (
	"cmp"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strings"
)

// NodeID numbers nodes in the order in which they were first added.
type NodeID int32

// Owner names a pod: the slot of its job and its number in the job.
type Owner struct{ Job, Pod int32 }

// Alloc is what a pod takes on a node.
type Alloc struct {
	Node NodeID
	// Others numbers what it takes of other resources, and the device sets that it names, as [State.Amounts] does.
	Others AmountsID
	// GPUs is a set of devices, a bit each; Share is taken from every one:
	// WholeGPU or less.
	GPUs             uint64
	Share            Milli
	CPUMilli, MemMiB int64
}

// GPU returns how much GPU the allocation takes in total.
func (a *Alloc) GPU() Milli { return Milli(bits.OnesCount64(a.GPUs)) * a.Share }

// need returns what an allocation takes beside GPUs.
func (s *State) need(a *Alloc) Need {
	need := Need{Pods: 1, CPU: a.CPUMilli, Mem: a.MemMiB}
	if a.Others != 0 {
		need.Others = s.amounts[a.Others].beside
	}
	return need
}

// Held is a pod on a node.
type Held struct {
	Owner Owner
	Alloc Alloc
}

// State is a cluster. It is not safe for concurrent use.
type State struct {
	levels  []string
	nodes   []Node
	byName  map[string]NodeID
	pools   []*Pool
	poolKey map[string]int32
	domains []domainSet // one a level, then HBD, then one a key
	keys    []string    // of the labels that are levels for terms: see AddTermLevel
	layouts map[string]*layout
	// resources numbers the named resources, amountsKey the lists of amounts.
	resources    map[string]int64
	lastResource int64
	amountsKey   map[string]AmountsID
	amounts      []*Amounts // by number, nil for those that are spare
	spareAmounts []AmountsID
	usedAmounts  int // see ManyAmounts
	journal      []change
	epoch        uint64
	// podLabels returns the labels of the pods of jobs that have some, labels
	// holds how many of them each domain hosts.
	podLabels map[int32]func(pod int32) []string
	labels    map[labelAt]int32
	expected  map[NodeID][]Owner // see Expect
	labelled  uint64             // changes of labels
	lasting   uint64             // those that were not taken back
	relabels  bool               // the journal has changes of labels
	losses    uint64             // nodes lost
	many      int                // pods that are a crowd
	spot      []bool             // by job: its pods are LP
	evictions []int32            // by node, since it was first added: see CountEvictions
	lends     []bool             // by job: its pods are expected to lend their devices, see SetLends
	// lentOf has the lent node of each node of which pods have ever lent devices, loans what such a node has.
	lentOf map[NodeID]NodeID
	loans  map[NodeID]*loan
}

// domainSet is the domains of a level: the number of each by its path.
type domainSet map[string]int32

// New returns a state without nodes. levels are widest first.
func New(levels []string) *State {
	s := &State{
		levels: levels, byName: map[string]NodeID{}, poolKey: map[string]int32{},
		layouts:   map[string]*layout{},
		resources: map[string]int64{}, lastResource: unnamed - 1, amountsKey: map[string]AmountsID{}, amounts: []*Amounts{nil},
		podLabels: map[int32]func(int32) []string{}, labels: map[labelAt]int32{}, expected: map[NodeID][]Owner{},
		domains: make([]domainSet, len(levels)+1),
		lentOf:  map[NodeID]NodeID{}, loans: map[NodeID]*loan{},
		many: many,
	}
	for i := range s.domains {
		s.domains[i] = domainSet{}
	}
	return s
}

// Level returns the number of a level by its name, len(levels) for HBDLevel,
// NodeLevelNum for NodeLevel; false when there is none.
func (s *State) Level(name string) (int, bool) {
	switch name {
	case HBDLevel:
		return len(s.levels), true
	case NodeLevel:
		return NodeLevelNum, true
	}
	i := slices.Index(s.levels, name)
	return i, i >= 0
}

// NodeLevelNum is the number of [NodeLevel]; levels of the topology count
// from 0, widest first. The HBD comes after the last, and after it the labels that are
// levels for terms, in the order in which they were added.
const NodeLevelNum = 1 << 20

// Levels returns the level names, widest first.
func (s *State) Levels() []string { return s.levels }

// Nodes returns how many nodes were ever added.
func (s *State) Nodes() int { return len(s.nodes) }

// Lookup finds a node by its name, lost ones included.
func (s *State) Lookup(name string) (NodeID, bool) {
	id, ok := s.byName[name]
	return id, ok
}

// Pools returns the pools in order of their first node. They are for reading.
func (s *State) Pools() []*Pool { return s.pools }

// Pool returns the pool of a node.
func (s *State) Pool(id NodeID) *Pool { return s.pools[s.nodes[id].pool] }

// Domain returns the number of the domain of a node at a level, -1 when its
// place is unknown. At NodeLevelNum it is the node itself.
func (s *State) Domain(id NodeID, level int) int32 {
	if level == NodeLevelNum {
		return int32(s.Home(id))
	}
	return s.nodes[id].domains[level]
}

// AddNode adds a node, or brings a lost one of that name back. It is an error
// when the node is there already. The journal must be empty.
func (s *State) AddNode(spec NodeSpec) (NodeID, error) {
	s.mustBeSettled()
	if err := Check(&spec); err != nil {
		return 0, err
	}
	id, known := s.byName[spec.Name]
	if known && s.nodes[id].Up {
		return 0, fmt.Errorf("node %s is there already", spec.Name)
	}
	if !known {
		id = NodeID(len(s.nodes))
		s.byName[spec.Name] = id
		s.nodes = append(s.nodes, Node{leaf: -1})
	}
	n := &s.nodes[id]
	if n.leaf >= 0 {
		s.pools[n.pool].leave(n)
	}
	*n = Node{Spec: &spec, Up: true, CPU: spec.CPUMilli, Mem: spec.MemMiB, indexed: -1, leaf: -1}
	n.layout = s.layoutOf(&spec)
	for _, a := range spec.Others {
		n.countOther(s.resource(a.Name), a.Value)
	}
	n.part = make([]int16, spec.GPUs)
	for i := range n.part {
		n.part[i] = int16(WholeGPU)
	}
	n.healthy = lowest(^uint64(0), spec.GPUs)
	for _, u := range spec.Unhealthy {
		n.healthy &^= 1 << u
	}
	n.Whole = n.healthy
	n.countPods()
	s.locate(n)
	n.pool = s.poolOf(&spec, false, false)
	s.pools[n.pool].join(s, n, id)
	s.epoch++
	if spec.Cordoned {
		n.closed = 1
	}
	s.index(n)
	return id, nil
}

// ChangeNode changes the labels, taints, room and place of a node that is up, and
// reports whether anything has changed. Its model and number of GPUs must be as before;
// its devices, their health and whether it is cordoned are ignored. Its pods stay: its
// free CPU and memory may be negative, and then it takes no pods; if another resource is
// negative, it takes no pods that need it. The journal must be empty.
func (s *State) ChangeNode(id NodeID, spec NodeSpec) (changed bool, err error) {
	s.mustBeSettled()
	n := &s.nodes[id]
	old := n.Spec
	spec.Devices, spec.Unhealthy, spec.Cordoned = old.Devices, old.Unhealthy, old.Cordoned
	if spec.Model != old.Model || spec.GPUs != old.GPUs {
		return false, fmt.Errorf("node %s: it has %d GPUs of %q, which may not become %d of %q", spec.Name, old.GPUs, old.Model, spec.GPUs, spec.Model)
	}
	if err := Check(&spec); err != nil || spec.equal(old) {
		return false, err
	}
	s.unindex(n)
	s.countAll(id, -1)
	n.CPU += spec.CPUMilli - old.CPUMilli
	n.Mem += spec.MemMiB - old.MemMiB
	for _, a := range old.Others {
		n.countOther(s.resource(a.Name), -a.Value)
	}
	for _, a := range spec.Others {
		n.countOther(s.resource(a.Name), a.Value)
	}
	n.Spec = &spec
	n.countPods()
	domains := n.domains
	s.locate(n)
	if pool := s.poolOf(&spec, s.pools[n.pool].Zone, false); pool != n.pool || !slices.Equal(domains, n.domains) {
		s.pools[n.pool].leave(n)
		n.pool = pool
		s.pools[pool].join(s, n, id)
	}
	s.countAll(id, 1)
	s.epoch++
	s.index(n)
	s.changeLent(id)
	return true, nil
}

// RelabelNode gives a node other labels and device sets, if nothing else of its description differs, and nothing that does is named: by
// named, or as a level. Then no pod fits that did not before, or the other way round. It reports whether it has done so. The journal must be empty.
func (s *State) RelabelNode(id NodeID, spec NodeSpec, named func(name string) bool) bool {
	s.mustBeSettled()
	n := &s.nodes[id]
	old := n.Spec
	next := *old
	next.Labels, next.Sets = spec.Labels, spec.Sets
	same := spec
	same.Labels, same.Sets = old.Labels, old.Sets
	if _, lends := s.LentAt(id); lends || !same.equal(old) || spec.Model != old.Model || spec.GPUs != old.GPUs || Check(&next) != nil {
		return false
	}
	used := func(name string) bool { return named(name) || slices.Contains(s.keys, name) }
	for _, of := range [...][2]map[string]string{{old.Labels, spec.Labels}, {spec.Labels, old.Labels}} {
		for k, v := range of[0] {
			if other, has := of[1][k]; (!has || other != v) && used(k) {
				return false
			}
		}
	}
	for _, of := range [...][2]*NodeSpec{{old, &spec}, {&spec, old}} {
		for i := range of[0].Sets {
			if d := &of[0].Sets[i]; of[1].set(d.Name) != d.Devices && used(d.Name) {
				return false
			}
		}
	}
	n.Spec = &next
	return true
}

func (s *State) layoutOf(spec *NodeSpec) *layout {
	devices := spec.Devices
	if devices == nil {
		devices = defaultDevices(spec.GPUs)
	}
	key := fmt.Sprint(devices)
	l := s.layouts[key]
	if l == nil {
		l = newLayout(devices)
		s.layouts[key] = l
	}
	return l
}

// locate numbers the domains of a node, making new ones as needed.
func (s *State) locate(n *Node) {
	n.domains = make([]int32, len(s.domains))
	path, known := "", true
	for l := range s.levels {
		name := ""
		if l < len(n.Spec.Domains) {
			name = n.Spec.Domains[l]
		}
		if name == "" {
			known = false
		}
		if !known {
			n.domains[l] = -1
			continue
		}
		if path != "" {
			path += "/"
		}
		path += name
		n.domains[l] = s.domains[l].number(path)
	}
	n.domains[len(s.levels)] = -1
	if n.Spec.HBD != "" {
		n.domains[len(s.levels)] = s.domains[len(s.levels)].number(n.Spec.HBD)
	}
	for i := range s.keys {
		n.domains[len(s.levels)+1+i] = s.byLabel(n, i)
	}
}

// number returns the number of a domain, a new one for a path that is new.
func (d domainSet) number(path string) int32 {
	i, ok := d[path]
	if !ok {
		i = int32(len(d))
		d[path] = i
	}
	return i
}

func (s *State) poolOf(spec *NodeSpec, zone, lent bool) int32 {
	taints := slices.Clone(spec.Taints)
	slices.SortFunc(taints, func(a, b Taint) int { return strings.Compare(a.Key+"="+a.Value, b.Key+"="+b.Value) })
	key := fmt.Sprintf("%q %v %v %#v", spec.Model, zone, lent, taints)
	i, ok := s.poolKey[key]
	if !ok {
		i = int32(len(s.pools))
		s.poolKey[key] = i
		s.pools = append(s.pools, newPool(spec.Model, zone, taints, len(s.levels)+1))
		s.pools[i].Lent = lent
	}
	return i
}

// SetZone moves a node into or out of the dedicated zone. The journal must be
// empty.
func (s *State) SetZone(id NodeID, zone bool) {
	s.mustBeSettled()
	n := &s.nodes[id]
	if s.pools[n.pool].Zone == zone {
		return
	}
	s.unindex(n)
	s.pools[n.pool].leave(n)
	n.pool = s.poolOf(n.Spec, zone, false)
	s.pools[n.pool].join(s, n, id)
	s.epoch++
	s.index(n)
	s.changeLent(id)
}

// Epoch changes when a node is added, comes back or changes: what was
// derived from the nodes' descriptions is then out of date.
func (s *State) Epoch() uint64 { return s.epoch }

// Losses returns how often a node was lost so far.
func (s *State) Losses() uint64 { return s.losses }

// RemoveNode takes a node and its pods away and returns those pods, valid
// until the node comes back. The journal must be empty.
func (s *State) RemoveNode(id NodeID) []Held {
	s.mustBeSettled()
	n := &s.nodes[id]
	s.unindex(n)
	s.countAll(id, -1)
	n.Up = false
	s.losses++
	pods := slices.DeleteFunc(n.pods, func(h Held) bool { return h.Owner.Job == noJob })
	n.pods, n.crowd = nil, nil
	return append(pods, s.removeLent(id)...)
}

// SetCordoned starts or ends keeping new pods off the node.
func (s *State) SetCordoned(id NodeID, cordoned bool) {
	n := &s.nodes[id]
	if n.Spec.Cordoned == cordoned {
		return
	}
	spec := *n.Spec
	spec.Cordoned = cordoned
	n.Spec = &spec
	if cordoned {
		s.Close(id)
	} else {
		s.Open(id)
	}
	if id, lends := s.LentAt(id); lends {
		s.nodes[id].Spec.Cordoned = cordoned
		if cordoned {
			s.Close(id)
		} else {
			s.Open(id)
		}
	}
}

// Close keeps new pods off a node until [State.Open] was called as often as Close.
func (s *State) Close(id NodeID) {
	n := &s.nodes[id]
	n.closed++
	s.unindex(n)
	s.shareRoom(id)
}

// Open takes one Close back.
func (s *State) Open(id NodeID) {
	n := &s.nodes[id]
	n.closed--
	s.index(n)
	s.shareRoom(id)
}

// Closed reports whether new pods are kept off a node.
func (s *State) Closed(id NodeID) bool { return s.nodes[id].closed > 0 }

// Unhealthy returns the devices of a node that have failed, a bit each.
func (s *State) Unhealthy(id NodeID) uint64 {
	n := &s.nodes[id]
	return ^n.healthy & (1<<n.Spec.GPUs - 1)
}

// SetHealth marks a device as healthy or not. Pods keep an unhealthy device
// until they end.
func (s *State) SetHealth(id NodeID, gpu int, healthy bool) {
	s.mustBeSettled()
	n := &s.nodes[id]
	s.unindex(n)
	n.healthy &^= 1 << gpu
	if healthy {
		n.healthy |= 1 << gpu
	}
	n.Whole &^= 1 << gpu
	if healthy && n.part[gpu] == int16(WholeGPU) {
		n.Whole |= 1 << gpu
	}
	s.index(n)
	if lent, lends := s.LentAt(id); lends {
		s.partsChanged(lent)
	}
}

// Open reports whether the node takes new pods.
func (n *Node) Open() bool { return n.Up && n.closed == 0 }

// Holds reports whether a could be placed now, wherever it came from.
func (s *State) Holds(a *Alloc) bool {
	n := &s.nodes[a.Node]
	if !n.Up || !n.Has(s.need(a)) || !s.Suits(a) {
		return false
	}
	if a.Share == WholeGPU {
		return n.Whole&a.GPUs == a.GPUs
	}
	for m := a.GPUs; m != 0; m &= m - 1 {
		d := bits.TrailingZeros64(m)
		if n.healthy>>d&1 == 0 || Milli(n.part[d]) < a.Share {
			return false
		}
	}
	return true
}

// DevicesTaken says which of an allocation's devices does not have enough left for it,
// healthy or not; "" when all have.
func (s *State) DevicesTaken(a *Alloc) string {
	n := &s.nodes[a.Node]
	if l, lent := s.loans[a.Node]; lent {
		if own := a.GPUs &^ s.LentDevices(l.home); own != 0 { // those are drawn from home
			if taken := s.DevicesTaken(&Alloc{Node: l.home, GPUs: own, Share: a.Share}); taken != "" {
				return taken
			}
		}
	}
	for m := a.GPUs; m != 0; m &= m - 1 {
		if d := bits.TrailingZeros64(m); Milli(n.part[d]) < a.Share {
			return fmt.Sprintf("GPU %d has %d milli-GPU free, %d are needed", d, n.part[d], a.Share)
		}
	}
	return ""
}

// HasBeside reports whether the node of an allocation has the CPU, memory, pods and other
// resources that it takes.
func (s *State) HasBeside(a *Alloc) bool { return s.nodes[a.Node].Has(s.need(a)) }

// CompareTopology orders nodes by their domains, widest first, then by number.
func (s *State) CompareTopology(a, b NodeID) int {
	return cmp.Or(slices.Compare(s.nodes[a].domains[:len(s.levels)], s.nodes[b].domains[:len(s.levels)]), cmp.Compare(a, b))
}

// AllLevels yields the numbers of all levels, [NodeLevelNum] and that of [HBDLevel] among them.
func (s *State) AllLevels() iter.Seq[int] {
	return func(yield func(int) bool) {
		if !yield(NodeLevelNum) {
			return
		}
		for l := range s.domains {
			if !yield(l) {
				return
			}
		}
	}
}

// Domains returns how many domains a level has.
func (s *State) Domains(level int) int { return len(s.domains[level]) }
