package reproduce

import (
	"math/bits"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
)

// lentIdle is a [sim.Lender] that says why lent GPUs are not used, as far as each GPU model can tell:
//
//  1. LP jobs wait that accept the model: they do not fit on what is lent;
//  2. LP jobs run on other GPUs of the model;
//  3. no more LP jobs want the model.
//
// A lent GPU that is idle has the first cause of which there is enough.
type lentIdle struct {
	model  map[string]string // of each node
	of     map[string]*lentModel
	lent   map[string]uint64 // devices by node
	used   map[string]uint64 // devices of LP pods by node
	owners map[standing]core.Placement
	now    core.Time
	hours  [][lentCauses]float64 // GPU-hours of each hour
}

// standing is a pod on standby.
type standing struct {
	job *sim.Live
	pod int
}

const (
	lentUsed = iota
	lentMisfit
	lentElsewhere
	lentUnwanted
	lentCauses
)

// lentModel counts GPUs of a model.
type lentModel struct {
	lent, used int
	// spot is those of LP pods that are not lent.
	spot    int
	waiting core.Milli
}

var _ sim.Lender = (*lentIdle)(nil)

func newLentIdle() *lentIdle {
	return &lentIdle{
		model: map[string]string{}, of: map[string]*lentModel{}, lent: map[string]uint64{}, used: map[string]uint64{},
		owners: map[standing]core.Placement{},
	}
}

func (l *lentIdle) at(node string) *lentModel { return l.of[l.model[node]] }

// until counts what was so up to a time, and returns the GPU-hours of each hour.
func (l *lentIdle) until(t core.Time) [][lentCauses]float64 {
	const hour = 3600 * core.Second
	if l.now >= t {
		return l.hours
	}
	var gpus [lentCauses]int
	for _, m := range l.of {
		idle := m.lent - m.used
		misfit := min(idle, int(m.waiting/core.WholeGPU))
		elsewhere := min(idle-misfit, m.spot)
		for cause, n := range [lentCauses]int{m.used, misfit, elsewhere, idle - misfit - elsewhere} {
			gpus[cause] += n
		}
	}
	for l.now < t {
		h := int(l.now / hour)
		for len(l.hours) <= h {
			l.hours = append(l.hours, [lentCauses]float64{})
		}
		next := min(t, core.Time(h+1)*hour)
		for cause, n := range gpus {
			l.hours[h][cause] += float64(n) * (next - l.now).Seconds() / 3600
		}
		l.now = next
	}
	return l.hours
}

// Node implements [sim.Sink].
func (l *lentIdle) Node(t core.Time, n *core.Node, _ bool) error {
	l.until(t)
	l.model[n.Name] = n.Model
	if l.of[n.Model] == nil {
		l.of[n.Model] = &lentModel{}
	}
	return nil
}

// demand counts GPUs that a job waits for on each model that it accepts.
func (l *lentIdle) demand(j *sim.Live, gpu core.Milli) {
	if j.Class != core.LP || gpu == 0 {
		return
	}
	models := j.Tasks[0].Accepted()
	if len(models) == 0 {
		for _, m := range l.of {
			m.waiting += gpu
		}
		return
	}
	for _, m := range models {
		if l.of[m] != nil {
			l.of[m].waiting += gpu
		}
	}
}

// hold counts the GPUs of LP pods that come (by 1) or go.
func (l *lentIdle) hold(j *sim.Live, pods []core.Placement, by int) (gpu core.Milli) {
	for i := range pods {
		p := &pods[i]
		gpu += core.Milli(bits.OnesCount64(p.GPUs)) * p.GPU
		if j.Class != core.LP || p.GPU != core.WholeGPU {
			continue
		}
		if by > 0 {
			l.used[p.Node] |= p.GPUs
		} else {
			l.used[p.Node] &^= p.GPUs
		}
		m, lent := l.at(p.Node), bits.OnesCount64(p.GPUs&l.lent[p.Node])
		m.used += by * lent
		m.spot += by * (bits.OnesCount64(p.GPUs) - lent)
	}
	return gpu
}

func (l *lentIdle) end(j *sim.Live, pod int) {
	p, ok := l.owners[standing{j, pod}]
	if !ok {
		return
	}
	delete(l.owners, standing{j, pod})
	m, used := l.at(p.Node), bits.OnesCount64(p.GPUs&l.used[p.Node])
	m.lent -= bits.OnesCount64(p.GPUs)
	m.used -= used
	m.spot += used
	l.lent[p.Node] &^= p.GPUs
}

// Standby implements [sim.Lender].
func (l *lentIdle) Standby(t core.Time, j *sim.Live, p core.Placement) error {
	l.until(t)
	l.owners[standing{j, p.Pod}] = p
	l.lent[p.Node] |= p.GPUs
	l.at(p.Node).lent += bits.OnesCount64(p.GPUs)
	return nil
}

// Resumed implements [sim.Lender].
func (l *lentIdle) Resumed(t core.Time, j *sim.Live, p core.Placement, _ core.Time) error {
	l.until(t)
	l.end(j, p.Pod)
	return nil
}

// Submitted implements [sim.Sink].
func (l *lentIdle) Submitted(t core.Time, j *sim.Live) error {
	l.until(t)
	l.demand(j, j.GPUs())
	return nil
}

// Bound implements [sim.Sink].
func (l *lentIdle) Bound(t core.Time, j *sim.Live, pods []core.Placement, _ core.Reason) error {
	l.until(t)
	l.demand(j, -l.hold(j, pods, 1))
	return nil
}

// Released implements [sim.Sink].
func (l *lentIdle) Released(t core.Time, j *sim.Live, pods []core.Placement, why sim.Release, _ sim.Eviction) error {
	l.until(t)
	for i := range pods {
		l.end(j, pods[i].Pod)
	}
	gpu := l.hold(j, pods, -1)
	if why == sim.Preempted || why == sim.Reclaimed {
		l.demand(j, gpu)
	}
	return nil
}

// Ended implements [sim.Sink].
func (l *lentIdle) Ended(t core.Time, _ *sim.Live, _ *sim.Rejection) error {
	l.until(t)
	return nil
}
