package place

import (
	"cmp"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core/cluster"
)

// Mix is what is known of the requests that come: which, and how many pods of
// each. It is estimated from what has come so far, older requests counting less.
type Mix struct {
	requests map[mixKey]*mixed
	pods     int64 // counted, after halving
	next     int64 // count at which the values are derived anew
	round    uint64
	state    *cluster.State
	values   map[string]*value // by GPU model
}

type mixKey struct {
	gpu      cluster.Milli
	cpu, mem int64
	models   string
}

type mixed struct {
	mixKey
	accepts []string // models; empty for any
	pods    int64
}

const (
	// mixFirst is after how many pods values are derived first; they are again
	// whenever a fifth more has come.
	mixFirst = 16
	// mixMemory is how many pods are remembered: past it, all counts are
	// halved.
	mixMemory = 1 << 16
)

// NewMix returns a mix that has seen nothing.
func NewMix(s *cluster.State) *Mix {
	return &Mix{requests: map[mixKey]*mixed{}, next: 1, state: s, values: map[string]*value{}}
}

// Observe counts pods of a request that has come.
func (m *Mix) Observe(r *cluster.Request, pods int) {
	k := mixKey{r.GPU, r.CPUMilli, r.MemMiB, ""}
	switch len(r.Models) {
	case 0:
	case 1:
		k.models = r.Models[0]
	default:
		k.models = strings.Join(r.Models, "|")
	}
	q := m.requests[k]
	if q == nil {
		q = &mixed{mixKey: k, accepts: r.Models}
		m.requests[k] = q
	}
	q.pods += int64(pods)
	m.pods += int64(pods)
	if m.pods > mixMemory {
		m.halve()
	}
}

func (m *Mix) halve() {
	m.pods = 0
	for k, q := range m.requests {
		q.pods /= 2
		m.pods += q.pods
		if q.pods == 0 {
			delete(m.requests, k)
		}
	}
	m.next = m.pods + m.pods/5
}

// version changes when the values do.
func (m *Mix) version() uint64 {
	if m.pods >= m.next {
		m.derive()
		m.next = max(m.pods+m.pods/5, mixFirst)
	}
	return m.round
}

// sorted returns the requests in a fixed order.
func (m *Mix) sorted() []*mixed {
	out := make([]*mixed, 0, len(m.requests))
	for _, q := range m.requests {
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b *mixed) int {
		return cmp.Or(cmp.Compare(a.gpu, b.gpu), cmp.Compare(a.cpu, b.cpu), cmp.Compare(a.mem, b.mem), cmp.Compare(a.models, b.models))
	})
	return out
}

// derive computes the values of every model's free devices from the mix.
func (m *Mix) derive() {
	m.round++
	requests := m.sorted()
	capacity, all := map[string]int64{}, int64(0)
	for _, p := range m.state.Pools() {
		if p.Model == "" {
			continue
		}
		for _, id := range p.Members() {
			if id >= 0 {
				capacity[p.Model] += int64(m.state.Node(id).Spec.GPUs)
				all += int64(m.state.Node(id).Spec.GPUs)
			}
		}
	}
	for _, p := range m.state.Pools() {
		if p.Model != "" {
			m.values[p.Model] = newValue(p.Model, requests, capacity, all)
		}
	}
}
