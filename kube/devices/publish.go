package devices

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/translate"
)

// The devices that DRA drivers publish, and how nodes are described by them.

// Pseudo labels of nodes.
const (
	// gpusLabel says how many GPUs the node publishes by DRA.
	gpusLabel = "dra.muster.sh/gpus"
	// nicsLabel says, as "paired", that each of them has a NIC of its own.
	nicsLabel = "dra.muster.sh/nics"
	// matchLabel and the number of a question say what its answer is.
	matchLabel = "dra.muster.sh/match-"
	// countSuffix ends the label that says for how many GPUs of the node it holds, if it holds for
	// single GPUs of nodes.
	countSuffix = "-gpus"
)

// question is a question about the devices of every node.
type question struct {
	label  string
	answer func(*translate.Inventory) answer
	// gpus, nics and parts count the nodes where it holds for some or all GPUs, network devices and partitions; sizes those
	// where it holds for GPUs, by for how many; all and allNICs those where it holds for all.
	gpus, nics, parts, all, allNICs int
	sizes                           map[int]int
	// single says that there was a node where it holds for some GPUs and not for all: requests name its
	// device set then, and nodes say which GPUs are in it.
	single bool
}

// answer says for how many of a node's GPUs, network devices and partitions something holds, and for which GPUs.
type answer struct {
	gpus, nics, parts translate.Match
	devices           uint64
}

// matches are the values of matchLabel.
var matches = [...]string{translate.MatchNone: "", translate.MatchSome: "some", translate.MatchAll: "all"}

// published is what DRA drivers say of a node.
type published struct {
	slices map[string]*translate.Slice
	// inventory is the last that was whole; stale says that its slices are being
	// replaced, or gone.
	inventory *translate.Inventory
	stale     bool
	answers   map[*question]answer
}

// poolID names a pool of devices.
type poolID struct{ driver, name string }

// ObserveSlice records the present state of a ResourceSlice.
func (x *Index) ObserveSlice(o *translate.Slice) Change {
	x.observeSlice(o)
	return x.changes.take()
}

func (x *Index) observeSlice(o *translate.Slice) {
	if o.Node == "" {
		return
	}
	p := x.published[o.Node]
	if p == nil {
		p = &published{slices: map[string]*translate.Slice{}, answers: map[*question]answer{}}
		x.published[o.Node] = p
	}
	p.slices[o.Name] = o
	x.pools[poolID{o.Driver, o.Pool}] = o.Node
	x.takeStock(o.Node, p)
}

// ForgetSlice records that a ResourceSlice was deleted.
func (x *Index) ForgetSlice(o *translate.Slice) Change {
	x.forgetSlice(o)
	return x.changes.take()
}

func (x *Index) forgetSlice(o *translate.Slice) {
	p := x.published[o.Node]
	if p == nil {
		return
	}
	delete(p.slices, o.Name)
	if len(p.slices) == 0 && x.plugins.nodes[o.Node] == nil {
		x.retract(p)
		delete(x.published, o.Node)
		return
	}
	x.takeStock(o.Node, p)
}

// ReplaceSlices replaces all known ResourceSlices.
func (x *Index) ReplaceSlices(list []*translate.Slice) Change {
	there := make(map[string]bool, len(list))
	for _, o := range list {
		there[o.Name] = true
		x.observeSlice(o)
	}
	for _, p := range x.published {
		for name, o := range p.slices {
			if !there[name] {
				x.forgetSlice(o)
			}
		}
	}
	return x.changes.take()
}

// takeStock reads the slices of a node again. While some are missing, what was there
// stays, and nothing is placed on it.
func (x *Index) takeStock(name string, p *published) {
	v := translate.InventoryOf(slices.Collect(maps.Values(p.slices)))
	p.stale = !v.Complete || len(v.GPUs) == 0 && p.inventory != nil && len(p.inventory.GPUs) > 0
	if len(v.GPUs) > cluster.MaxGPUs {
		x.changes.warnings = append(x.changes.warnings, Warning{name, fmt.Sprintf("%d GPUs, expected at most %d", len(v.GPUs), cluster.MaxGPUs)})
		p.stale = true
	}
	if !p.stale || p.inventory == nil && len(v.GPUs) <= cluster.MaxGPUs {
		x.retract(p)
		p.inventory = v
		for _, q := range x.questions {
			if was := q.single; q.put(p) && !was {
				x.singled(q)
			}
		}
		x.moved = true
	}
	x.changes.node(name)
	if len(v.GPUs) > 0 && !x.any {
		x.any = true
		x.changes.rebuild = true
	}
}

// put answers a question for a node. It returns whether it has held for single GPUs of a node.
func (q *question) put(p *published) (single bool) {
	a := q.answer(p.inventory)
	p.answers[q] = a
	q.count(a, 1)
	q.single = q.single || a.gpus == translate.MatchSome
	return q.single
}

// singled records that a question holds for single GPUs of a node, for the first time: requests are resolved
// again, and nodes described again.
func (x *Index) singled(q *question) {
	for _, c := range x.claims {
		x.changes.users(c)
	}
	for name, p := range x.published {
		if p.answers[q].gpus != translate.MatchNone {
			x.changes.node(name)
		}
	}
}

// retract removes the answers of a node.
func (x *Index) retract(p *published) {
	for q, a := range p.answers {
		q.count(a, -1)
	}
	clear(p.answers)
}

func (q *question) count(a answer, by int) {
	if a.gpus != translate.MatchNone {
		q.gpus += by
		n := bits.OnesCount64(a.devices)
		if q.sizes[n] += by; q.sizes[n] == 0 {
			delete(q.sizes, n)
		}
	}
	if a.nics != translate.MatchNone {
		q.nics += by
	}
	if a.nics == translate.MatchAll {
		q.allNICs += by
	}
	if a.parts != translate.MatchNone {
		q.parts += by
	}
	if a.gpus == translate.MatchAll {
		q.all += by
	}
}

// ask returns the question of a key, which every node has answered.
func (x *Index) ask(key string, answer func(*translate.Inventory) answer) *question {
	q := x.questions[key]
	if q != nil {
		return q
	}
	h := fnv.New64a()
	h.Write([]byte(key))
	q = &question{label: matchLabel + strconv.FormatUint(h.Sum64(), 36), answer: answer, sizes: map[int]int{}}
	x.questions[key] = q
	for name, p := range x.published {
		if p.inventory != nil {
			q.put(p)
			x.changes.node(name)
		}
	}
	return q
}

// askSelector asks on how many nodes the devices are as a class and selectors
// say.
func (x *Index) askSelector(class *Class, selectors []string) (*question, error) {
	all := slices.Concat(class.selectors, selectors)
	key := strings.Join(all, "\x00")
	if q := x.questions[key]; q != nil {
		return q, nil
	}
	s, err := translate.CompileSelector(all)
	if err != nil {
		return nil, err
	}
	return x.ask(key, func(v *translate.Inventory) answer {
		a := answer{nics: s.Match(v.NICs), parts: s.Match(v.Parts)}
		a.hold(v, func(i int) bool { return s.Holds(&v.GPUs[i]) })
		return a
	}), nil
}

// hold fills in for which GPUs of a node something holds.
func (a *answer) hold(v *translate.Inventory, holds func(i int) bool) {
	for i := range v.GPUs[:min(len(v.GPUs), cluster.MaxGPUs)] {
		if v.GPUs[i].Name != "" && holds(i) {
			a.devices |= 1 << i
		}
	}
	switch bits.OnesCount64(a.devices) {
	case 0:
		a.gpus = translate.MatchNone
	case v.Count():
		a.gpus = translate.MatchAll
	default:
		a.gpus = translate.MatchSome
	}
}

// Publishes reports whether DRA drivers have published devices of a node.
func (x *Index) Publishes(node string) bool { return x.published[node] != nil }

// Describe adds to a node what drivers publish of its devices, if they do and no device
// plugin does.
func (x *Index) Describe(n *core.Node) {
	p := x.published[n.Name]
	if p == nil || p.inventory == nil || len(p.inventory.GPUs) == 0 || n.GPUs > 0 {
		return
	}
	v := p.inventory
	n.GPUs, n.Devices = len(v.GPUs), v.Layout
	if n.Model = translate.Model(n.Labels); n.Model == translate.UnknownModel && v.Product != "" {
		n.Model = v.Product
	}
	n.Labels = maps.Clone(n.Labels)
	n.Labels[gpusLabel] = strconv.Itoa(v.Count())
	if v.Paired {
		n.Labels[nicsLabel] = "paired"
	}
	for q, a := range p.answers {
		if a.gpus != translate.MatchNone {
			n.Labels[q.label] = matches[a.gpus]
			if q.single {
				n.Labels[q.label+countSuffix] = strconv.Itoa(bits.OnesCount64(a.devices))
				n.Sets = append(n.Sets, core.DeviceSet{Name: q.label, Devices: a.devices})
			}
		}
		if a.nics != translate.MatchNone {
			n.Labels[q.label+"-nics"] = matches[a.nics]
		}
	}
	slices.SortFunc(n.Sets, func(a, b core.DeviceSet) int { return strings.Compare(a.Name, b.Name) })
}

// Described reports whether the GPUs of a node are those that [Index.Describe] added.
func Described(n *core.Node) bool { return n.Labels[gpusLabel] != "" }

// Unusable returns the devices of a node that the engine must not use: those that are
// tainted, and those that belong to a claim without a known pod. n is the node as it was
// described, used has the devices of the pods on it. It is false if its GPUs are not
// published through DRA.
func (x *Index) Unusable(n *core.Node, used uint64) (uint64, bool) {
	p := x.published[n.Name]
	if !Described(n) || p == nil || p.inventory == nil {
		return 0, false
	}
	if p.stale {
		return 1<<n.GPUs - 1, true
	}
	tainted := func(d translate.DeviceID) bool {
		for _, r := range x.rules {
			if r.Taints(d) {
				return true
			}
		}
		return false
	}
	set := p.inventory.Unusable(tainted, func(d translate.DeviceID) bool { return x.held[d] != nil })
	for i := range p.inventory.GPUs {
		if d := &p.inventory.GPUs[i]; used>>i&1 == 0 && x.isHeld(d.DeviceID) {
			set |= 1 << i
		}
	}
	return set, true
}

// isHeld reports whether a claim has the device, or is about to.
func (x *Index) isHeld(d translate.DeviceID) bool {
	if x.held[d] != nil {
		return true
	}
	for _, list := range x.inFlight {
		if slices.Contains(list, d) {
			return true
		}
	}
	return false
}

// devices names the GPUs of a set, and the NICs that are nearest to them.
func (p *published) devices(set uint64) (gpus, nics []translate.DeviceID) {
	for s := set; s != 0 && p.inventory != nil; s &= s - 1 {
		i := bits.TrailingZeros64(s)
		if i >= len(p.inventory.GPUs) {
			break
		}
		gpus = append(gpus, p.inventory.GPUs[i].DeviceID)
		if nic := p.inventory.Layout[i].NIC; nic >= 0 {
			nics = append(nics, p.inventory.NICs[nic].DeviceID)
		}
	}
	return gpus, nics
}

// ObserveTaintRule records the present state of a DeviceTaintRule.
func (x *Index) ObserveTaintRule(o *translate.TaintRule) Change {
	x.setRule(o.Name, o)
	return x.changes.take()
}

// ForgetTaintRule records that a DeviceTaintRule was deleted.
func (x *Index) ForgetTaintRule(o *translate.TaintRule) Change {
	x.setRule(o.Name, nil)
	return x.changes.take()
}

// ReplaceTaintRules replaces all known DeviceTaintRules.
func (x *Index) ReplaceTaintRules(list []*translate.TaintRule) Change {
	there := map[string]bool{}
	for _, o := range list {
		there[o.Name] = true
		x.setRule(o.Name, o)
	}
	for name := range x.rules {
		if !there[name] {
			x.setRule(name, nil)
		}
	}
	return x.changes.take()
}

// setRule records a rule, nil for none, and notes the nodes that it concerns now or did
// before.
func (x *Index) setRule(name string, o *translate.TaintRule) {
	for _, r := range []*translate.TaintRule{x.rules[name], o} {
		for pool, node := range x.pools {
			if r != nil && r.Concerns(pool.driver, pool.name) {
				x.changes.node(node)
			}
		}
	}
	if x.rules[name] = o; o == nil {
		delete(x.rules, name)
	}
}
