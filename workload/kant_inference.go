package workload

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/quota"
)

// inferenceMix describes a kant-inference cluster, after Kant §5.2: tenants with quotas
// per GPU model, whose services use nearly the whole cluster but not more than it has, so
// that about 93 % of the GPUs are allocated and no service waits.
type inferenceMix struct {
	pools []inferencePool
	// tenants have quotas in proportion to 1, 1/2, 1/3…; every isolatedEvery-th
	// is Isolated.
	tenants, isolatedEvery int
	// borrow is the share of its quota that a tenant may use beyond the quota.
	borrow float64

	// fill is the share of each pool's GPUs that demand never exceeds.
	fill   float64
	length core.Time
	// life is the run time of a service. gap is the mean time, in seconds, from when
	// there is room for a service until its submission.
	life logNormal
	gap  float64
	// wanting is the number of services that wait for room outside the cluster. If it
	// were one, a large service would block all others.
	wanting int

	cpuMilli, memMiB int64 // asked for with each GPU
	services         []serviceShape
	// largest is the share of a pool that the largest service may request.
	largest float64
}

// inferencePool is the nodes of one GPU model, of 8 GPUs each.
type inferencePool struct {
	model string
	nodes int
}

// serviceShape is a kind of service: a number of replicas, each with a number of GPUs. A
// gang is one replica on several nodes.
type serviceShape struct {
	replicas, gpus int
	gang           bool
	weight         float64
}

// The three clusters of Kant figures 13 to 15: i2, the larger i7 and the smaller a10. The
// paper gives only the order of their sizes. Their maximum load was chosen so that under
// E-Binpack almost no service waits within the length (in a10, which is too small for
// that, a tenth of the services wait) and, in i2 with seed 0, GAR and GFR are near the
// paper's 93 % and 6.5 %.
var (
	kantI2  = kantInference(8, 0.98, inferencePool{"Type-L", 14}, inferencePool{"Type-A", 10})
	kantI7  = kantInference(20, 0.96, inferencePool{"Type-L", 64}, inferencePool{"Type-A", 48}, inferencePool{"Type-H", 16})
	kantA10 = kantInference(5, 0.95, inferencePool{"Type-L", 6}, inferencePool{"Type-A", 5})
)

func kantInference(tenants int, fill float64, pools ...inferencePool) *inferenceMix {
	return &inferenceMix{
		pools:         pools,
		tenants:       tenants,
		isolatedEvery: 4,
		borrow:        1,
		fill:          fill,
		length:        7 * 24 * 3600 * core.Second,
		life:          logNormal{10 * hour, 1.2},
		gap:           300,
		wanting:       5,
		cpuMilli:      16_000,
		memMiB:        160 << 10,
		largest:       0.13,
		services: []serviceShape{
			{1, 1, false, 0.6}, {2, 1, false, 0.6}, {4, 1, false, 0.6}, {8, 1, false, 2},
			{1, 2, false, 0.6}, {2, 2, false, 0.6}, {4, 2, false, 3}, {8, 2, false, 1},
			{1, 4, false, 0.6}, {2, 4, false, 8}, {4, 4, false, 3},
			{1, 8, false, 44}, {2, 8, false, 20}, {4, 8, false, 5}, {8, 8, false, 0.5},
			{8, 8, true, 2}, // 64-GPU expert parallelism over eight nodes
		},
	}
}

// scaled returns the pools for a cluster of about this number of GPUs.
func (m *inferenceMix) scaled(o *Options) []inferencePool {
	pools := slices.Clone(m.pools)
	nodes := 0
	for _, p := range pools {
		nodes += p.nodes
	}
	want := clusterGPUs(o, nodes*gpusPerNode)
	for i := range pools {
		pools[i].nodes = max(1, pools[i].nodes*want/(nodes*gpusPerNode))
	}
	return pools
}

func (m *inferenceMix) cluster(o *Options) Cluster {
	// The cluster has the size of its own options, not that of another cluster.
	own := *o
	own.Cluster = nil
	pools := m.scaled(&own)
	var nodes []core.Node
	for _, p := range pools {
		nodes = appendNodes(nodes, p.nodes, core.Node{GPUs: gpusPerNode, Model: p.model})
	}
	c := addTopology(nodes, o)
	c.Queues = m.queues(pools)
	return c
}

// queues returns a root and under it the tenants, with a quota of each model.
func (m *inferenceMix) queues(pools []inferencePool) []core.Queue {
	const root = "inference"
	queues := []core.Queue{{Name: root, Weight: 1}}
	for t := range m.tenants {
		queues = append(queues, core.Queue{Name: tenant(t), Parent: root, Weight: 1, Mode: m.mode(t)})
	}
	for _, p := range pools {
		for t, gpus := range m.nominal(p) {
			queues[t+1].Quota = append(queues[t+1].Quota, core.Quota{
				Model:          p.model,
				Nominal:        core.Milli(gpus) * core.WholeGPU,
				BorrowingLimit: core.Milli(m.limit(t, gpus)-gpus) * core.WholeGPU,
				LendingLimit:   core.Unlimited,
			})
		}
	}
	return queues
}

func (m *inferenceMix) mode(tenant int) quota.Mode {
	if tenant%m.isolatedEvery == m.isolatedEvery-1 {
		return quota.Isolated
	}
	return quota.Shared
}

// nominal returns the quota of each tenant in a pool, in GPUs; the sum is the pool.
// Quotas that are not lent are whole nodes.
func (m *inferenceMix) nominal(p inferencePool) []int {
	total := 0.0
	for t := range m.tenants {
		total += 1 / float64(t+1)
	}
	gpus := make([]int, m.tenants)
	left := p.nodes * gpusPerNode
	for t := m.tenants - 1; t > 0; t-- {
		gpus[t] = int(float64(p.nodes*gpusPerNode) / (float64(t+1) * total))
		if m.mode(t) == quota.Isolated {
			gpus[t] = (gpus[t] + gpusPerNode/2) / gpusPerNode * gpusPerNode
		}
		left -= gpus[t]
	}
	gpus[0] = left
	return gpus
}

// limit returns the maximum number of GPUs that a tenant with a quota may use.
func (m *inferenceMix) limit(tenant, nominal int) int {
	if m.mode(tenant) == quota.Isolated {
		return nominal
	}
	return nominal + int(m.borrow*float64(nominal))
}

func (m *inferenceMix) jobs(o *Options) nextJob {
	length := or(o.Length, m.length)
	var jobs []Job
	for i, p := range m.scaled(o) {
		rng := rand.New(rand.NewPCG(o.Seed, uint64(i)))
		jobs = append(jobs, m.newPool(rng, p, or(o.Load, m.fill)).run(length.Seconds())...)
	}
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(a.Submitted, b.Submitted) })
	for i := range jobs {
		jobs[i].Name = fmt.Sprintf("service-%05d", i)
	}
	return slice(jobs)
}

// servicePool generates the services of one pool. It keeps a placement of its own, by
// best fit, and submits a service only when it would fit: users who see a full cluster
// wait before they submit, as in the paper.
type servicePool struct {
	mix   *inferenceMix
	rng   *rand.Rand
	model string
	// free has the free GPUs of each node, used is the number of GPUs in use, and most is
	// its bound.
	free       []int
	used, most int
	// nominal and holds are each tenant's quota and use; shared and sharedUse are the
	// sums over all tenants that lend to each other.
	nominal, holds    []int
	shared, sharedUse int
	// wanted is the services that will be submitted as soon as they fit.
	wanted []serviceShape
	ends   serviceEnds
	now    float64
}

func (m *inferenceMix) newPool(rng *rand.Rand, p inferencePool, fill float64) *servicePool {
	s := &servicePool{mix: m, rng: rng, model: p.model, nominal: m.nominal(p), holds: make([]int, m.tenants)}
	for range p.nodes {
		s.free = append(s.free, gpusPerNode)
	}
	s.most = min(int(fill*float64(p.nodes*gpusPerNode)), p.nodes*gpusPerNode)
	for t, n := range s.nominal {
		if m.mode(t) == quota.Shared {
			s.shared += n
		}
	}
	return s
}

// run returns the services submitted within the given seconds. Services that still run at
// the end of this time end there.
func (s *servicePool) run(length float64) []Job {
	var jobs []Job
	full := false // has been
	for {
		for len(s.wanted) < s.mix.wanting {
			s.wanted = append(s.wanted, s.draw())
		}
		shape, t, nodes, ok := s.admit()
		if !ok {
			full = true
			if len(s.ends) == 0 || s.ends[0].at >= length {
				return jobs
			}
			s.now = s.ends[0].at
			s.release(s.now)
			continue
		}
		if full {
			s.now += s.rng.ExpFloat64() * s.mix.gap
		} else {
			s.now++ // one after the other, so that a scheduler sees them in this order
		}
		if s.now >= length {
			return jobs
		}
		life := s.mix.life.quantile(s.rng.Float64())
		s.start(shape, t, nodes, s.now+life)
		jobs = append(jobs, s.job(shape, t, min(life, length-s.now)))
		s.release(s.now)
	}
}

// draw returns a shape that is not too large for the pool.
func (s *servicePool) draw() serviceShape {
	most := max(1, int(s.mix.largest*float64(len(s.free)*gpusPerNode)))
	weights := make([]float64, len(s.mix.services))
	for i, shape := range s.mix.services {
		if shape.replicas*shape.gpus <= most {
			weights[i] = shape.weight
		}
	}
	return s.mix.services[pick(s.rng, weights)]
}

// admit takes the first wanted service for which there is room, and returns it with its
// tenant and the nodes of its pods.
func (s *servicePool) admit() (shape serviceShape, tenant int, nodes []int, ok bool) {
	for i, shape := range s.wanted {
		gpus := shape.replicas * shape.gpus
		tenants := s.roomy(gpus)
		if tenants == nil || s.used+gpus > s.most {
			continue
		}
		if nodes, ok := s.fit(shape); ok {
			s.wanted = slices.Delete(s.wanted, i, i+1)
			return shape, pick(s.rng, tenants), nodes, true
		}
	}
	return shape, 0, nil, false
}

// roomy returns the weight with which each tenant is the next to request this number of
// GPUs: its unused quota, or zero beyond its limit. It returns nil if no tenant has room.
func (s *servicePool) roomy(gpus int) []float64 {
	var weights []float64
	for t, n := range s.nominal {
		isolated := s.mix.mode(t) == quota.Isolated
		if s.holds[t]+gpus > s.mix.limit(t, n) || !isolated && s.sharedUse+gpus > s.shared {
			continue
		}
		if weights == nil {
			weights = make([]float64, len(s.nominal))
		}
		weights[t] = 0.2*float64(n) + float64(max(0, n-s.holds[t]))
	}
	return weights
}

// fit returns the nodes that the pods fit most tightly, in turn.
func (s *servicePool) fit(shape serviceShape) (nodes []int, ok bool) {
	defer func() {
		for _, n := range nodes {
			s.free[n] += shape.gpus
		}
	}()
	for range shape.replicas {
		best := -1
		for n, f := range s.free {
			if f >= shape.gpus && (best < 0 || f < s.free[best]) {
				best = n
			}
		}
		if best < 0 {
			return nodes, false
		}
		s.free[best] -= shape.gpus
		nodes = append(nodes, best)
	}
	return nodes, true
}

func (s *servicePool) start(shape serviceShape, tenant int, nodes []int, end float64) {
	s.use(shape, tenant, nodes, 1)
	heap.Push(&s.ends, serviceEnd{end, shape, tenant, nodes})
}

// release ends the services whose end time has passed.
func (s *servicePool) release(now float64) {
	for len(s.ends) > 0 && s.ends[0].at <= now {
		e := heap.Pop(&s.ends).(serviceEnd)
		s.use(e.shape, e.tenant, e.nodes, -1)
	}
}

// use adds a service to the accounts, or with sign -1 takes it away.
func (s *servicePool) use(shape serviceShape, tenant int, nodes []int, sign int) {
	gpus := sign * shape.replicas * shape.gpus
	s.used += gpus
	s.holds[tenant] += gpus
	if s.mix.mode(tenant) == quota.Shared {
		s.sharedUse += gpus
	}
	for _, n := range nodes {
		s.free[n] -= sign * shape.gpus
	}
}

func (s *servicePool) job(shape serviceShape, t int, life float64) Job {
	var j Job
	j.Queue, j.Kind, j.Priority, j.Gang = tenant(t), core.Inference, normalPriority, shape.gang
	j.Tasks = []core.Task{{Name: "serve", Pods: shape.replicas, Request: core.Request{
		GPU:      core.Milli(shape.gpus) * core.WholeGPU,
		CPUMilli: int64(shape.gpus) * s.mix.cpuMilli,
		MemMiB:   int64(shape.gpus) * s.mix.memMiB,
		Models:   []string{s.model},
	}}}
	j.Submitted = core.Time(s.now*1000) * (core.Second / 1000)
	// Round down, so that the service is gone when its successor arrives.
	j.Duration = seconds(math.Floor(life))
	return j
}

// serviceEnd is the end of a service.
type serviceEnd struct {
	at     float64
	shape  serviceShape
	tenant int
	nodes  []int
}

// serviceEnds is a heap of ends, the next one first. Times are draws from a
// continuous distribution, so that ties do not matter.
type serviceEnds []serviceEnd

func (h serviceEnds) Len() int           { return len(h) }
func (h serviceEnds) Less(i, k int) bool { return h[i].at < h[k].at }
func (h serviceEnds) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }
func (h *serviceEnds) Push(x any)        { *h = append(*h, x.(serviceEnd)) }
func (h *serviceEnds) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	*h = (*h)[:last]
	return e
}
