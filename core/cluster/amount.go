package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Named amounts: whatever a node has a number of beside GPUs, CPU, memory and
// pods, such as RDMA adapters, FPGAs, disk space or huge pages.

// Amount is so much of a named resource, in whatever unit the driver counts it.
type Amount struct {
	Name string
	// Value is 0..MaxAmount.
	Value int64
}

// MaxAmount is the most of a resource that a node may have, or a pod request: what
// a thousand pods take can still be summed.
const MaxAmount = 1 << 53

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

// AmountOf returns the value of a name in a list that is sorted by name; 0 when it
// is not there.
func AmountOf(list []Amount, name string) int64 {
	i, ok := slices.BinarySearchFunc(list, name, func(a Amount, name string) int { return strings.Compare(a.Name, name) })
	if !ok {
		return 0
	}
	return list[i].Value
}

// AmountsID numbers the lists of amounts that a state has met; 0 is that of none.
type AmountsID int32

// Amounts is a list of amounts as a state knows it. A nil one has none.
type Amounts struct {
	id   AmountsID
	list []numbered
}

// numbered is an amount, above 0, of the resource of that number.
type numbered struct {
	resource int32
	value    int64
}

// ID returns the number of the list.
func (a *Amounts) ID() AmountsID {
	if a == nil {
		return 0
	}
	return a.id
}

// Amounts returns a list of amounts as the state knows it, the same for all who ask
// for the same: nil when all are 0. What was asked for once is kept.
func (s *State) Amounts(list []Amount) *Amounts {
	if len(list) == 0 {
		return nil
	}
	var key strings.Builder
	var known []numbered
	for _, a := range list {
		if a.Value > 0 {
			fmt.Fprintf(&key, "%d %q ", a.Value, a.Name)
			known = append(known, numbered{s.resource(a.Name), a.Value})
		}
	}
	if known == nil {
		return nil
	}
	id, ok := s.amountsKey[key.String()]
	if !ok {
		id = AmountsID(len(s.amounts))
		s.amountsKey[key.String()] = id
		s.amounts = append(s.amounts, &Amounts{id, known})
	}
	return s.amounts[id]
}

// resource returns the number of a resource.
func (s *State) resource(name string) int32 {
	r, ok := s.resources[name]
	if !ok {
		r = int32(len(s.resources))
		s.resources[name] = r
	}
	return r
}

// countOthers adds by times a list of amounts to what the node has free.
func (n *Node) countOthers(a *Amounts, by int64) {
	for _, x := range a.list {
		n.countOther(x.resource, by*x.value)
	}
}

// others is so much of each resource, by their numbers; 0 of those past the end.
type others []int64

// countOther adds to what the node has free of a resource.
func (n *Node) countOther(resource int32, value int64) {
	if n.others == nil {
		n.others = new(others)
	}
	for len(*n.others) <= int(resource) {
		*n.others = append(*n.others, 0)
	}
	(*n.others)[resource] += value
}

// Times returns how often the node has the amounts free, at most most.
func (n *Node) Times(a *Amounts, most int) int {
	if a == nil {
		return most
	}
	for _, x := range a.list {
		most = min(most, int(max(0, n.freeOf(x.resource))/x.value))
	}
	return most
}

// freeOf returns how much of a resource is free, less than nothing where the node
// has become smaller than its pods.
func (n *Node) freeOf(resource int32) int64 {
	if n.others == nil || int(resource) >= len(*n.others) {
		return 0
	}
	return (*n.others)[resource]
}

// FreeAmount returns how much of a resource is free on a node, less than nothing
// where the node has become smaller than its pods.
func (s *State) FreeAmount(id NodeID, name string) int64 {
	if r, ok := s.resources[name]; ok {
		return s.nodes[id].freeOf(r)
	}
	return 0
}
