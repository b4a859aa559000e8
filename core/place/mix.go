package place

import (
	"cmp"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core/cluster"
)

// Mix is what is known about the requests: which there are, and how many pods of each. It
// is estimated from the requests so far; older ones count less.
type Mix struct {
	requests map[requestKey]*mixed
	pods     int64 // counted, after halving
	due      int64 // pods until the values are derived again
	full     bool  // older requests have been forgotten
	round    uint64
	pools    int // of the state, when the values were derived last
	state    *cluster.State
	values   map[string]*value // by GPU model
	inPool   []*value          // the same by number of the pool
	// What the nodes are, counted at an epoch of the state.
	surveyed uint64
	devices  int64
	capacity map[string]int64 // devices by model
	shapes   []nodesOfShape
}

// nodeShape is what nodes of one kind have when they are empty.
type nodeShape struct {
	model    string
	gpus     int
	cpu, mem int64
}

type nodesOfShape struct {
	nodeShape
	nodes int64
}

// requestKey is a request for resources of nodes of some models.
type requestKey struct {
	gpu      cluster.Milli
	cpu, mem int64
	models   string
}

type mixed struct {
	requestKey
	accepts []string // models; empty for any
	pods    int64
}

const (
	// mixFirst is after how many pods values are derived a second time; the
	// first time is with the first pod, the later ones whenever a fifth more
	// has come.
	mixFirst = 16
	// mixMemory is how many pods are remembered, or mixPerDevice for each device
	// if those are more: past it, all counts are halved. From then on values are
	// derived after half as many, and replace the old ones when one of them
	// changed by more than mixTolerance.
	// Of more than mixRequests different requests, the older ones are forgotten too: a user may write another amount on each pod.
	mixMemory    = 1 << 16
	mixRequests  = 1 << 14
	mixPerDevice = 8
	mixTolerance = 0.05
)

// NewMix returns a mix that has seen nothing.
func NewMix(s *cluster.State) *Mix {
	return &Mix{requests: map[requestKey]*mixed{}, due: 1, state: s, values: map[string]*value{}}
}

func keyOf(r *cluster.Request) requestKey {
	k := requestKey{r.GPU, r.CPUMilli, r.MemMiB, ""}
	switch len(r.Models) {
	case 0:
	case 1:
		k.models = r.Models[0]
	default:
		k.models = strings.Join(r.Accepted(), "|")
	}
	return k
}

// Observe counts pods of a request that has come.
func (m *Mix) Observe(r *cluster.Request, pods int) {
	k := keyOf(r)
	q := m.requests[k]
	if q == nil {
		q = &mixed{requestKey: k, accepts: r.Models}
		m.requests[k] = q
	}
	q.pods += int64(pods)
	m.pods += int64(pods)
	m.due -= int64(pods)
	if m.pods > m.memory() {
		m.halve()
		m.full = true
	}
	for len(m.requests) > mixRequests {
		m.halve()
	}
}

// memory is how many pods are remembered.
func (m *Mix) memory() int64 { return max(mixMemory, mixPerDevice*m.devices) }

func (m *Mix) halve() {
	m.pods = 0
	for k, q := range m.requests {
		q.pods /= 2
		m.pods += q.pods
		if q.pods == 0 {
			delete(m.requests, k)
		}
	}
}

// learn derives the values again when it is time or pools are new.
func (m *Mix) learn() {
	if n := len(m.state.Pools()); m.due <= 0 || m.pools != n {
		m.pools = n // a new one may be of a new model
		m.derive()
		m.due = max(m.pods/5, mixFirst-m.pods)
		if m.full {
			m.due = m.memory() / 2
		}
	}
}

// version changes when the values do.
func (m *Mix) version() uint64 { return m.round }

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
	m.survey()
	requests := m.sorted()
	values, tolerance, changed := map[string]*value{}, 0.0, false
	if m.full {
		tolerance = mixTolerance
	}
	for _, p := range m.state.Pools() {
		if p.Model != "" && values[p.Model] == nil {
			v := m.newValue(p.Model, requests)
			values[p.Model] = v
			changed = changed || !v.near(m.values[p.Model], tolerance)
		}
	}
	if changed {
		m.values, m.inPool = values, m.inPool[:0]
		m.round++
	}
}

// valueIn returns the value of the devices in a pool, nil when it has none.
func (m *Mix) valueIn(pool int) *value {
	for len(m.inPool) <= pool {
		m.inPool = append(m.inPool, m.values[m.state.Pools()[len(m.inPool)].Model])
	}
	return m.inPool[pool]
}

// survey counts the devices there are, by model and by shape of node. O(nodes), but only after
// nodes came or changed: a survey each time that values are derived cost more than all
// placements between two of them.
func (m *Mix) survey() {
	if m.surveyed == m.state.Epoch() {
		return
	}
	m.surveyed = m.state.Epoch()
	m.devices, m.capacity, m.shapes = 0, map[string]int64{}, m.shapes[:0]
	at := map[nodeShape]int{}
	for _, p := range m.state.Pools() {
		for _, id := range p.Members() {
			if id < 0 || p.Model == "" || p.Lent {
				continue
			}
			n := m.state.Node(id).Spec
			s := nodeShape{n.Model, n.GPUs, n.CPUMilli, n.MemMiB}
			i, ok := at[s]
			if !ok {
				i = len(m.shapes)
				at[s] = i
				m.shapes = append(m.shapes, nodesOfShape{nodeShape: s})
			}
			m.shapes[i].nodes++
			m.capacity[n.Model] += int64(n.GPUs)
			m.devices += int64(n.GPUs)
		}
	}
}

// roomy returns how many devices, on nodes large enough for a pod of the
// request, such pods can use.
func (m *Mix) roomy(q *mixed) int64 {
	n, gpus := int64(0), int(q.gpu/cluster.WholeGPU)
	for _, s := range m.shapes {
		if s.gpus >= gpus && s.cpu >= q.cpu && s.mem >= q.mem && accepts(q.accepts, s.model) {
			n += s.nodes * int64(s.gpus/gpus*gpus)
		}
	}
	return n
}
