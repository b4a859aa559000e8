package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// Bounds. Every amount that comes in is checked against them, so that the books
// are exact: what a node has free, less all that it holds, stays within an int64.
// Multiply and add beyond a node with [Times] and [Plus], which stop at the largest
// number.
const (
	// MaxAmount is the most CPU, in thousandths of a core, memory, in MiB, or other
	// resource that a node may have or a pod may request.
	MaxAmount = 1 << 48
	// MaxHeld is how many pods a node holds at most, those included that are found
	// on it and are more than it takes: MaxHeld times MaxAmount is an int64.
	MaxHeld = 1<<15 - 1
)

// Plus returns a + b, or the number nearest to it.
func Plus[T ~int64](a, b T) T {
	switch sum := a + b; {
	case (sum > a) == (b > 0):
		return sum
	case b > 0:
		return math.MaxInt64
	}
	return math.MinInt64
}

// Times returns n times a, or the number nearest to it. Neither is negative.
func Times[T ~int64](n int, a T) T {
	high, low := bits.Mul64(uint64(n), uint64(a))
	if high != 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return T(low)
}

// Named amounts: resources of a node beside GPUs, CPU, memory and pods, such as RDMA
// adapters, FPGAs, disk space or huge pages.

// Amount is an amount of a named resource, in the unit in which the driver counts it.
type Amount struct {
	Name string
	// Value is 0..MaxAmount.
	Value int64
}

// checkRoom reports what is wrong with an amount of CPU and of memory.
func checkRoom(cpuMilli, memMiB int64) error {
	switch {
	case cpuMilli < 0 || cpuMilli > MaxAmount:
		return fmt.Errorf("%d milli-cores, expected 0..%d", cpuMilli, int64(MaxAmount))
	case memMiB < 0 || memMiB > MaxAmount:
		return fmt.Errorf("%d MiB of memory, expected 0..%d", memMiB, int64(MaxAmount))
	}
	return nil
}

// checkAmounts reports what is wrong with a list of amounts: it is sorted by name,
// each name is there once.
func checkAmounts(list []Amount) error {
	for i := range list {
		switch a := &list[i]; {
		case a.Name == "":
			return errors.New("an amount without a name")
		case a.Value < 0 || a.Value > MaxAmount:
			return fmt.Errorf("%d %s, expected 0..%d", a.Value, a.Name, int64(MaxAmount))
		case i > 0 && list[i-1].Name >= a.Name:
			return fmt.Errorf("amounts of %s and then %s, expected each name once, in order", list[i-1].Name, a.Name)
		}
	}
	return nil
}

// AmountOf returns the value of a name in a list that is sorted by name; 0 if the name is
// missing.
func AmountOf(list []Amount, name string) int64 {
	i, ok := slices.BinarySearchFunc(list, name, func(a Amount, name string) int { return strings.Compare(a.Name, name) })
	if !ok {
		return 0
	}
	return list[i].Value
}

// CPU and Memory are the names of these resources where amounts of any resource are named.
const (
	CPU    = "cpu"
	Memory = "memory"
)

// AccountOf names the account of a resource in quotas, where a GPU model names its own: "/cpu" counts
// milli-cores, "/memory" MiB, and "/" before another name its amounts.
func AccountOf(resource string) string { return "/" + resource }

// CheckModel reports what is wrong with the name of a GPU model: it must not be that of another account
// (see [AccountOf]), or "*", which stands for all models.
func CheckModel(name string) error {
	if name == "*" || strings.HasPrefix(name, "/") {
		return fmt.Errorf("GPU model %q, expected a name other than * that does not begin with /", name)
	}
	return nil
}

// ResourceOf returns the resource of an account, and false if the account is of GPUs.
func ResourceOf(account string) (resource string, ok bool) { return strings.CutPrefix(account, "/") }

// InUnits returns an amount of a resource in cores, bytes, or units of the resource.
func InUnits(resource string, m Milli) float64 {
	switch resource {
	case CPU:
		return float64(m) / 1000
	case Memory:
		return float64(m) * (1 << 20)
	}
	return float64(m)
}

// Takes returns how much the pod takes of the account of a resource: see [AccountOf].
func (r *Request) Takes(account string) Milli {
	return inAccount(account, r.CPUMilli, r.MemMiB, r.Others)
}

// Has returns how much of the account of a resource the node has: see [AccountOf].
func (n *NodeSpec) Has(account string) Milli {
	return inAccount(account, n.CPUMilli, n.MemMiB, n.Others)
}

func inAccount(account string, cpu, mem int64, others []Amount) Milli {
	switch {
	case account == "/"+CPU:
		return Milli(cpu)
	case account == "/"+Memory:
		return Milli(mem)
	case len(others) == 0:
		return 0
	}
	return Milli(AmountOf(others, account[1:]))
}

// AmountsID is the number of a list of amounts in a state; 0 is the empty list.
type AmountsID int32

// Amounts is a list of amounts as a state knows it, who picks the devices of pods that need them, and from which device sets. A nil one has
// none, of pods that may be beside any others, and have any devices.
type Amounts struct {
	id     AmountsID
	list   []numbered
	picker Picker
	from   []ofSet  // of which device sets the pods take devices
	beside *Amounts // the same without from
}

// sets returns of which device sets the pods take devices, nil for any.
func (a *Amounts) sets() []ofSet {
	if a == nil {
		return nil
	}
	return a.from
}

// picked are the numbers of resources that no node has, of which each pod with GPUs takes one by its picker: what is
// taken of it counts these pods. against are those that must not be on the same node, if it is blind.
var (
	picked  = [...]int64{EnginePicks: 0, NodePicks: 1}
	against = [...]int64{EnginePicks: 1, NodePicks: 0}
)

// unnamed is how many resources have numbers and no names.
const unnamed = 2

// numbered is an amount, above 0, of the resource of that number.
type numbered struct{ resource, value int64 }

// ID returns the number of the list.
func (a *Amounts) ID() AmountsID {
	if a == nil {
		return 0
	}
	return a.id
}

// Amounts returns the other resources of a request as the state knows them, with the picker and the device sets if it is for GPUs. It
// returns the same for equal ones, nil if all amounts are 0 and any picker and any devices will do. They are kept until [State.KeepAmounts].
func (s *State) Amounts(r *Request) *Amounts {
	if len(r.Others) == 0 && r.Picks() == AnyPicker && len(r.From) == 0 {
		return nil
	}
	return s.listed(r.Others, r.Picks(), r.from())
}

func (s *State) listed(list []Amount, picker Picker, from []ofSet) *Amounts {
	var key strings.Builder
	var known []numbered
	for _, a := range list {
		if a.Value > 0 {
			fmt.Fprintf(&key, "%d %q ", a.Value, a.Name)
			known = append(known, numbered{s.resource(a.Name), a.Value})
		}
	}
	if known == nil && picker == AnyPicker && from == nil {
		return nil
	}
	key.WriteString(Pickers[picker])
	for _, f := range from {
		fmt.Fprintf(&key, " %d/%q", f.n, f.set)
	}
	id, ok := s.amountsKey[key.String()]
	if !ok {
		beside := (*Amounts)(nil)
		if from != nil {
			beside = s.listed(list, picker, nil)
		}
		if n := len(s.spareAmounts); n > 0 {
			id, s.spareAmounts = s.spareAmounts[n-1], s.spareAmounts[:n-1]
		} else {
			id = AmountsID(len(s.amounts))
			s.amounts = append(s.amounts, nil)
		}
		s.amountsKey[key.String()] = id
		s.amounts[id] = &Amounts{id, known, picker, from, beside}
		if from == nil {
			s.amounts[id].beside = s.amounts[id]
		}
	}
	return s.amounts[id]
}

// fewAmounts is how many lists of amounts are kept whether they are used or not.
const fewAmounts = 1 << 12

// ManyAmounts reports whether there are so many lists of amounts that those that are not used any more should go: more than
// twice as many as were used when that was done last.
func (s *State) ManyAmounts() bool { return len(s.amountsKey) > max(fewAmounts, 2*s.usedAmounts) }

// KeepAmounts drops the lists of amounts that are neither of these requests nor of pods on nodes, and the numbers of the resources that only such
// lists have. All requests must be compiled again then, as after a change of nodes.
// The journal must be empty. O(requests + pods + nodes).
func (s *State) KeepAmounts(requests iter.Seq[*Request]) {
	s.mustBeSettled()

	// 1. What is used.
	lists, resources := map[AmountsID]bool{}, map[int64]bool{}
	use := func(a *Amounts) {
		for ; a != nil && !lists[a.id]; a = a.beside {
			lists[a.id] = true
			for _, x := range a.list {
				resources[x.resource] = true
			}
		}
	}
	for r := range requests {
		use(s.Amounts(r))
	}
	for i := range s.nodes {
		n := &s.nodes[i]
		for h := range n.Pods {
			use(s.amounts[h.Alloc.Others])
		}
		if n.others != nil {
			for _, x := range n.others.free {
				resources[x.resource] = true
			}
		}
		for _, a := range n.Spec.Others { // of which nothing may be free
			resources[s.resource(a.Name)] = true
		}
	}

	// 2. The rest goes. A resource that comes back gets another number; a list may have the number of one that has gone.
	maps.DeleteFunc(s.resources, func(_ string, number int64) bool { return !resources[number] })
	kept := make(map[string]AmountsID, len(lists))
	for key, id := range s.amountsKey {
		if lists[id] {
			kept[key] = id
		} else {
			s.amounts[id] = nil
		}
	}
	s.amountsKey, s.usedAmounts, s.spareAmounts = kept, len(kept), s.spareAmounts[:0]
	for id := len(s.amounts) - 1; id > 0; id-- { // in this order whatever that of the map is
		if s.amounts[id] == nil {
			s.spareAmounts = append(s.spareAmounts, AmountsID(id))
		}
	}
	s.epoch++
}

// resource returns the number of a resource.
func (s *State) resource(name string) int64 {
	r, ok := s.resources[name]
	if !ok {
		s.lastResource++
		r = s.lastResource
		s.resources[name] = r
	}
	return r
}

// countOthers adds by times a list of amounts to what the node has free.
func (n *Node) countOthers(a *Amounts, by int64) {
	for _, x := range a.list {
		n.countOther(x.resource, by*x.value)
	}
	if a.picker != AnyPicker {
		n.countOther(picked[a.picker], by)
	}
}

// others is what a node has that is counted for few pods only. A tenant may name any number of resources, so nothing here is as long as the
// numbers are large.
type others struct {
	free []numbered // amounts other than 0, by resource in ascending order
}

// countOther adds to what the node has free of a resource.
func (n *Node) countOther(resource, value int64) {
	if value == 0 {
		return
	}
	if n.others == nil {
		n.others = new(others)
	}
	free := n.others.free
	i, ok := slices.BinarySearchFunc(free, resource, func(x numbered, r int64) int { return cmp.Compare(x.resource, r) })
	if !ok {
		n.others.free = slices.Insert(free, i, numbered{resource, value})
	} else if free[i].value += value; free[i].value == 0 {
		n.others.free = slices.Delete(free, i, i+1)
	}
}

// Times returns how many times the node has the amounts free, at most most; 0 if it is blind and has pods that must
// not be beside those that need them. Of devices it looks only at the sets that are named.
func (n *Node) Times(a *Amounts, most int) int {
	if a == nil {
		return most
	}
	if n.Keeps(a.picker) {
		return 0
	}
	for _, x := range a.list {
		most = min(most, int(max(0, n.freeOf(x.resource))/x.value))
	}
	if a.from != nil {
		return times(n.Whole, n.wants(a.from, 1), most)
	}
	return most
}

// Keeps reports whether the node keeps pods of a picker off, since it is blind and has some of the other one.
func (n *Node) Keeps(off Picker) bool {
	return off != AnyPicker && n.Spec.Blind && n.freeOf(against[off]) < 0
}

// freeOf returns how much of a resource is free, less than nothing where the node
// has become smaller than its pods.
func (n *Node) freeOf(resource int64) int64 {
	if n.others != nil {
		for _, x := range n.others.free {
			if x.resource == resource {
				return x.value
			}
		}
	}
	return 0
}

// FreeAmount returns how much of a resource is free on a node, less than nothing
// where the node has become smaller than its pods.
func (s *State) FreeAmount(id NodeID, name string) int64 {
	if r, ok := s.resources[name]; ok {
		return s.nodes[id].freeOf(r)
	}
	return 0
}
