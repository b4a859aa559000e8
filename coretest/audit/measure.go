package audit

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// endOfTime is after every event.
const endOfTime = math.MaxInt64

// measure computes the metrics that summary.json is compared with, from the
// nodes' tallies.
type measure struct {
	told        *summary
	first, last int64 // submission, event
	from, to    int64 // the window of the averages
	now         int64

	allocated, available, fragmented, nodes int64
	unstarted                               int64 // held by gangs that are not whole
	second                                  int64 // held by pods at second places

	gar, gfr                             average
	allocatedTime, gpuTime               float64
	secondTime                           float64
	preemptions, migrations, suspensions int64
	waits                                map[string]*waits
	topology                             topology
	idle                                 idleGPUs
	leaving                              leaving
}

// leaving is how long evicted pods took to leave, in seconds, and how many were killed.
type leaving struct {
	took   []float64
	killed int64
}

func (m *measure) leave(d *decision) {
	m.leaving.took = append(m.leaving.took, float64(d.t-d.told)/1e9)
	if d.killed {
		m.leaving.killed++
	}
}

// compare compares with summary.json. Its percentile errs by half a per cent.
func (l *leaving) compare(told *evictions, same func(what string, told, is float64), breach func(invariant, format string, args ...any)) {
	same("evictions.pods", float64(told.Pods), float64(len(l.took)))
	if len(l.took) == 0 {
		return
	}
	slices.Sort(l.took)
	sum := 0.0
	for _, s := range l.took {
		sum += s
	}
	same("evictions.mean_s", told.Mean, sum/float64(len(l.took)))
	same("evictions.killed", told.Killed, float64(l.killed)/float64(len(l.took)))
	if p95 := l.took[(95*len(l.took)+99)/100-1]; math.Abs(told.P95-p95) > 0.01*p95 {
		breach(Metric, "summary.json has evictions.p95_s %v, the decisions give %v", told.P95, p95)
	}
}

// evictions is what summary.json says of them.
type evictions struct {
	Pods   int64
	Mean   float64 `json:"mean_s"`
	P95    float64 `json:"p95_s"`
	Killed float64 `json:"killed"`
}

// average is a mean over time.
type average struct{ sum, time float64 }

func (m *average) add(part, whole int64, dt float64) {
	if whole > 0 {
		m.sum += float64(part) / float64(whole) * dt
		m.time += dt
	}
}

func (m *average) mean() float64 {
	if m.time == 0 {
		return 0
	}
	return m.sum / m.time
}

type waits struct {
	jobs int64
	sum  float64
}

// byDefault is what summary.json calls the window that is not given.
const byDefault = "first submission to last event"

// begin starts with all nodes empty. first is the first submission, negative
// when there is none.
func (m *measure) begin(nodes map[string]*node, told *summary, first int64) {
	m.told, m.first, m.last, m.waits = told, first, first, map[string]*waits{}
	m.from, m.to = max(first, 0), endOfTime
	if told.Window.Is != byDefault {
		m.from, m.to = nanos(told.Window.From), nanos(told.Window.To)
	}
	for _, n := range nodes {
		m.after(n)
	}
}

func nanos(s float64) int64 { return int64(math.Round(s * 1e9)) }

// before takes off what the node contributes, until after adds it again.
func (m *measure) before(n *node) { m.count(n, -1) }
func (m *measure) after(n *node)  { m.count(n, +1) }

func (m *measure) count(n *node, sign int64) {
	allocated, available, fragmented, counts := n.tally()
	m.idle.count(n, sign)
	m.allocated += sign * allocated
	m.available += sign * available
	if fragmented {
		m.fragmented += sign
	}
	if counts {
		m.nodes += sign
	}
}

// event records that something happened at t.
func (m *measure) event(t int64) { m.last = max(m.last, t) }

// until accounts for the time up to t.
func (m *measure) until(t int64) {
	from, to := max(m.now, m.from), min(t, m.to)
	m.now = max(m.now, t)
	if from >= to || m.first < 0 {
		return
	}
	dt := float64(to-from) / 1e9
	m.gar.add(m.allocated, m.available*wholeGPU, dt)
	m.gfr.add(m.fragmented, m.nodes, dt)
	m.allocatedTime += float64(m.allocated-m.unstarted) / wholeGPU * dt
	m.gpuTime += float64(m.available) * dt
	m.idle.until(dt)
	m.secondTime += float64(m.second) / wholeGPU * dt
}

// wait records that a job of this many milli-GPU was whole after t.
func (m *measure) wait(gpu, t int64) {
	class := classOf(gpu)
	w := m.waits[class]
	if w == nil {
		w = &waits{}
		m.waits[class] = w
	}
	w.jobs++
	w.sum += float64(t) / 1e9
}

// classOf returns the name of the class of a job's size.
func classOf(gpu int64) string {
	if gpu < wholeGPU {
		return "<1"
	}
	low, high := int64(1), int64(1)
	for high*wholeGPU < gpu {
		low, high = high+1, high*2
	}
	switch {
	case high > 2048:
		return ">2048"
	case low == high:
		return fmt.Sprint(high)
	}
	return fmt.Sprintf("%d-%d", low, high)
}

// compare reports the figures of summary.json that differ from the measured.
func (m *measure) compare(breach func(invariant, format string, args ...any)) {
	m.until(m.last)
	if m.told.Window.Is == byDefault && m.first == m.last {
		m.to, m.now = m.last+1e9, m.last // a run of an instant has the figures of that instant
		m.until(m.to)
	}
	same := func(what string, told, is float64) {
		if math.Abs(told-is) > 1e-6*max(math.Abs(told), math.Abs(is))+1e-12 {
			breach(Metric, "summary.json has %s %v, the decisions give %v", what, told, is)
		}
	}
	if m.told.Window.Is == byDefault {
		same("window.from_s", m.told.Window.From, float64(m.first)/1e9)
		same("window.to_s", m.told.Window.To, float64(m.last)/1e9)
	} else if m.first >= 0 && (m.from < m.first || m.to > m.last) {
		breach(Metric, "summary.json has a window from %s to %s, the run is from %s to %s",
			seconds(m.from), seconds(m.to), seconds(m.first), seconds(m.last))
	}
	sor := 0.0
	if m.gpuTime > 0 {
		sor = m.allocatedTime / m.gpuTime
	}
	same("gar.mean", m.told.GAR.Mean, m.gar.mean())
	same("gfr.mean", m.told.GFR.Mean, m.gfr.mean())
	same("sor", m.told.SOR, sor)
	m.idle.compare(same)
	same("preemptions", float64(m.told.Preemptions), float64(m.preemptions))
	same("suspensions", float64(m.told.Suspensions), float64(m.suspensions))
	same("migration_gpu_hours", m.told.Second, m.secondTime/3600)
	same("migrations", float64(m.told.Migrations), float64(m.migrations))
	if m.told.Evictions != nil {
		m.leaving.compare(m.told.Evictions, same, breach)
	}
	if told := m.told.Topology; told != nil {
		is := &m.topology
		same("topology.gangs", float64(told.Gangs), float64(is.Gangs))
		same("topology.spanning", float64(told.Spanning), float64(is.Spanning))
		same("topology.entropy_mean", told.Entropy, is.Entropy/float64(max(1, is.Gangs)))
		same("topology.gpus", told.GPUs, is.GPUs)
		same("topology.cross_group_gpus", told.CrossGPUs, is.CrossGPUs)
	}
	for _, told := range m.told.JWTD {
		if w := m.waits[told.Class]; w != nil {
			same("jwtd jobs of class "+told.Class, float64(told.Jobs), float64(w.jobs))
			same("jwtd mean_s of class "+told.Class, told.Mean, w.sum/float64(w.jobs))
			delete(m.waits, told.Class)
		} else {
			breach(Metric, "summary.json has jwtd of class %s, in which no job started", told.Class)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(m.waits)) {
		breach(Metric, "summary.json lacks jwtd of class %s, in which %d jobs started", class, m.waits[class].jobs)
	}
}

// topology says over how many leaf groups gangs were when they were first whole. What is
// measured has the sum of the entropies in Entropy.
type topology struct {
	Gangs, Spanning int64
	Entropy         float64 `json:"entropy_mean"`
	GPUs            float64
	CrossGPUs       float64 `json:"cross_group_gpus"`
}

// add processes a job that is whole for the first time: a gang of several pods that have GPUs
// and start together.
func (x *topology) add(j *job) {
	if !j.gang || len(j.pods) < 2 || j.gpu() == 0 || slices.ContainsFunc(j.tasks, func(t task) bool { return t.min < t.pods }) {
		return
	}
	held, all, most := map[string]int64{}, int64(0), int64(0)
	for i := range j.pods {
		p := &j.pods[i]
		if p.node == nil {
			continue // of another of its alternatives
		}
		all += p.amount()
		held[p.node.group] += p.amount()
	}
	entropy := 0.0
	for _, milli := range held {
		most = max(most, milli)
		if milli > 0 {
			entropy -= float64(milli) / float64(all) * math.Log(float64(milli)/float64(all))
		}
	}
	x.Gangs++
	if len(held) > 1 {
		x.Spanning++
	}
	x.Entropy += entropy
	x.GPUs += float64(all) / wholeGPU
	x.CrossGPUs += float64(all-most) / wholeGPU
}
