package kube

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/translate"
)

// The devices that drivers publish, and what the engine is told of them.

// sliceSeen takes in a ResourceSlice as it is now.
func (m *mirror) sliceSeen(o *translate.Slice) {
	if o.Node == "" {
		return
	}
	p := m.dra.nodes[o.Node]
	if p == nil {
		p = &published{slices: map[string]*translate.Slice{}, answers: map[*question]answer{}}
		m.dra.nodes[o.Node] = p
	}
	p.slices[o.Name] = o
	m.dra.pools[poolID{o.Driver, o.Pool}] = o.Node
	m.inventory(o.Node, p)
}

func (m *mirror) sliceGone(o *translate.Slice) {
	p := m.dra.nodes[o.Node]
	if p == nil {
		return
	}
	delete(p.slices, o.Name)
	if n := m.nodes[o.Node]; len(p.slices) == 0 && (n == nil || n.gone) {
		m.forget(p)
		delete(m.dra.nodes, o.Node)
		return
	}
	m.inventory(o.Node, p)
}

func (m *mirror) slicesListed(list []*translate.Slice) {
	there := make(map[string]bool, len(list))
	for _, o := range list {
		there[o.Name] = true
		m.sliceSeen(o)
	}
	for _, p := range m.dra.nodes {
		for name, o := range p.slices {
			if !there[name] {
				m.sliceGone(o)
			}
		}
	}
}

// inventory reads the slices of a node anew. While some are missing, what was
// there stays, and nothing is placed on it.
func (m *mirror) inventory(name string, p *published) {
	list := make([]*translate.Slice, 0, len(p.slices))
	for _, s := range p.slices {
		list = append(list, s)
	}
	v := translate.InventoryOf(list)
	p.stale = !v.Complete || len(v.GPUs) == 0 && p.inventory != nil && len(p.inventory.GPUs) > 0
	if len(v.GPUs) > cluster.MaxGPUs {
		m.log.Warn("cannot use the GPUs of a node", "node", name, "why", fmt.Sprintf("%d GPUs, expected at most %d", len(v.GPUs), cluster.MaxGPUs))
		p.stale = true
	}
	if !p.stale || p.inventory == nil && len(v.GPUs) <= cluster.MaxGPUs {
		m.forget(p)
		p.inventory = v
		for _, q := range m.dra.questions {
			m.put(q, p)
		}
		m.dra.changed = true
	}
	m.nodeDirty(name)
	if len(v.GPUs) > 0 && !m.dra.any {
		m.dra.any = true
		if m.engine != nil {
			if err := m.rebuild(); err != nil {
				m.log.Error("cannot rebuild the engine", "error", err)
			}
		}
	}
}

func (m *mirror) nodeDirty(name string) {
	if n := m.nodes[name]; n != nil {
		m.dirtyNodes[name] = n
	}
}

// put asks a node a question.
func (m *mirror) put(q *question, p *published) {
	a := q.answer(p.inventory)
	p.answers[q] = a
	q.count(a, p.inventory, 1)
}

// forget takes back what a node answered.
func (m *mirror) forget(p *published) {
	for q, a := range p.answers {
		q.count(a, p.inventory, -1)
	}
	clear(p.answers)
}

func (q *question) count(a answer, v *translate.Inventory, by int) {
	if a.gpus != translate.MatchNone {
		q.gpus += by
	}
	if a.nics != translate.MatchNone {
		q.nics += by
	}
	if a.gpus == translate.MatchAll {
		q.all += by
		n := v.Count()
		if q.sizes[n] += by; q.sizes[n] == 0 {
			delete(q.sizes, n)
		}
	}
}

// ask returns the question of a key, which every node has answered.
func (m *mirror) ask(key string, answer func(*translate.Inventory) answer) *question {
	q := m.dra.questions[key]
	if q != nil {
		return q
	}
	h := fnv.New64a()
	h.Write([]byte(key))
	q = &question{label: matchLabel + strconv.FormatUint(h.Sum64(), 36), answer: answer, sizes: map[int]int{}}
	m.dra.questions[key] = q
	for name, p := range m.dra.nodes {
		if p.inventory != nil {
			m.put(q, p)
			m.nodeDirty(name)
		}
	}
	return q
}

// askSelector asks on how many nodes the devices are as a class and selectors
// say.
func (m *mirror) askSelector(class *deviceClassObject, selectors []string) (*question, error) {
	all := slices.Concat(class.selectors, selectors)
	key := strings.Join(all, "\x00")
	if q := m.dra.questions[key]; q != nil {
		return q, nil
	}
	s, err := translate.CompileSelector(all)
	if err != nil {
		return nil, err
	}
	return m.ask(key, func(v *translate.Inventory) answer { return answer{s.Match(v.GPUs), s.Match(v.NICs)} }), nil
}

// publish describes the devices of a node to the engine, if drivers publish them
// and no device plugin does.
func (m *mirror) publish(n *node, want *core.Node) {
	p := m.dra.nodes[want.Name]
	if p == nil || p.inventory == nil || len(p.inventory.GPUs) == 0 || want.GPUs > 0 {
		return
	}
	v := p.inventory
	want.GPUs, want.Devices = len(v.GPUs), v.Layout
	if want.Model = translate.Model(want.Labels); want.Model == translate.UnknownModel && v.Product != "" {
		want.Model = v.Product
	}
	want.Labels = maps.Clone(want.Labels)
	want.Labels[gpusLabel] = strconv.Itoa(v.Count())
	if v.Paired {
		want.Labels[nicsLabel] = "paired"
	}
	for q, a := range p.answers {
		if a.gpus != translate.MatchNone {
			want.Labels[q.label] = matches[a.gpus]
		}
		if a.nics != translate.MatchNone {
			want.Labels[q.label+"-nics"] = matches[a.nics]
		}
	}
}

// unusable returns the devices of a node that the engine may not use; false when
// its GPUs are not published by DRA.
func (m *mirror) unusable(n *node) (uint64, bool) {
	p := m.dra.nodes[n.object.Name]
	if _, ok := n.told.Labels[gpusLabel]; !ok || p == nil || p.inventory == nil {
		return 0, false
	}
	if p.stale {
		return 1<<n.told.GPUs - 1, true
	}
	tainted := func(d translate.DeviceID) bool {
		for _, r := range m.dra.rules {
			if r.Taints(d) {
				return true
			}
		}
		return false
	}
	set := p.inventory.Unusable(tainted, func(d translate.DeviceID) bool { return m.dra.held[d] != nil })
	used := uint64(0)
	for _, o := range n.pods {
		used |= o.devices
	}
	for i := range p.inventory.GPUs {
		if d := &p.inventory.GPUs[i]; used>>i&1 == 0 && m.held(d.DeviceID) {
			set |= 1 << i
		}
	}
	return set, true
}

// held reports whether a claim has the device, or is about to.
func (m *mirror) held(d translate.DeviceID) bool {
	if m.dra.held[d] != nil {
		return true
	}
	for _, list := range m.dra.inFlight {
		if slices.Contains(list, d) {
			return true
		}
	}
	return false
}
