package bench

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/muster-sched/muster/core"
)

// backlog is a full cluster whose queues have more jobs than run: queues of unlike weight in
// departments, which own four fifths of the GPUs, and jobs of nine sizes, a third of them LP.
type backlog struct {
	*world
	rng    *rand.Rand
	queues []string
	gpus   int
	jobs   int // so far
	// live are the jobs that have not ended; runs are the pods of each that run.
	live []string
	runs map[string]int
	pods map[string]int
	// busy are the jobs of which all pods run; at is the place of each.
	busy []string
	at   map[string]int

	times     []time.Duration // of every pass, with the event before it
	cpu       []time.Duration // the same, for which a core worked
	decisions int
	sum       uint32 // over all decisions
}

// shapes are the pods of a job and the GPUs of each.
var shapes = [...][2]int{{1, 1}, {1, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 8}, {4, 8}, {8, 8}, {16, 8}}

// sizeOf returns how many queues and how many waiting jobs go with a number of nodes: 1,000 and 100,000
// with 37,707.
func sizeOf(nodes int) (queues, jobs int) {
	return max(20, nodes*1000/37707), max(1000, nodes*100_000/37707)
}

// waiting returns a benchmark of one event and its pass while more jobs wait than run, under the default policy with a
// change.
func waiting(change func(*core.Policy)) func(int) (measure, error) {
	return func(nodes int) (measure, error) {
		policy := defaultPolicy()
		change(&policy)
		b, err := newBacklog(nodes, policy)
		if err != nil {
			return measure{}, err
		}
		const warm, events = 500, 2000
		if err := b.churn(warm); err != nil {
			return measure{}, err
		}
		runtime.GC()
		b.times, b.cpu = b.times[:0], b.cpu[:0]
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err = b.churn(events)
		runtime.ReadMemStats(&after)
		m := measure{times: b.times, cpu: b.cpu, bytes: after.TotalAlloc - before.TotalAlloc}
		m.notes = fmt.Sprintf("\t%8d decisions\t%10d crc32", b.decisions, b.sum)
		return m, err
	}
}

// The changes of the benchmarks.
func asItIs(*core.Policy)          {}
func withoutShares(p *core.Policy) { p.Queueing.FairShare = false }

// withLeases lets queues and jobs take turns by the GPU time that they received, in leases of 15 minutes, in place of fair shares.
func withLeases(p *core.Policy) {
	p.Queueing.FairShare, p.Queueing.Order, p.Fairness.Lease = false, core.LongTermFairness, 900*core.Second
}

// newBacklog fills a cluster, and lets an hour pass, after which all may be evicted.
func newBacklog(nodes int, policy core.Policy) (*backlog, error) {
	queues, jobs := sizeOf(nodes)
	b := &backlog{rng: rand.New(rand.NewPCG(2, uint64(nodes))), runs: map[string]int{}, pods: map[string]int{}, at: map[string]int{}}
	for i := range nodes {
		b.gpus += gpusOf(i, nodes)
	}
	var err error
	if b.world, err = newWorldOf(policy, nodes, func(i int) int { return gpusOf(i, nodes) }, b.departments(queues)...); err != nil {
		return nil, err
	}
	for len(b.live) < jobs+b.gpus/5 { // a fifth as many jobs run as there are GPUs
		if err := b.come(); err != nil {
			return nil, err
		}
	}
	for round := range 2 {
		b.now += core.Time(round) * 3600 * core.Second
		if err := b.rest(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// departments returns queues below departments of ten, in the order in which they are set.
func (b *backlog) departments(n int) []core.Queue {
	var out []core.Queue
	quota := func(gpus int) []core.Quota {
		return []core.Quota{{Model: "H800", Nominal: core.Milli(gpus) * core.WholeGPU, BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited}}
	}
	for i := range n {
		if i%10 == 0 {
			out = append(out, core.Queue{Name: "department-" + strconv.Itoa(i/10), Weight: int64(1 + i/10%4)})
		}
		q := core.Queue{Name: "queue-" + strconv.Itoa(i), Parent: "department-" + strconv.Itoa(i/10), Weight: int64(1 + i%5)}
		q.Quota = quota(b.gpus * 8 / 10 / n * (i % 3)) // a third own nothing
		b.queues = append(b.queues, q.Name)
		out = append(out, q)
	}
	return out
}

// come submits a job.
func (b *backlog) come() error {
	shape := shapes[b.rng.IntN(len(shapes))]
	b.jobs++
	j := job("job-"+strconv.Itoa(b.jobs), b.queues[b.rng.IntN(len(b.queues))], shape[0], shape[1])
	if b.rng.IntN(3) == 0 {
		j.Class = core.LP
	}
	b.now += core.Second / 1000
	j.Submitted = b.now
	b.live, b.pods[j.Name] = append(b.live, j.Name), shape[0]
	return b.Apply(b.now, core.JobSubmitted{Job: j})
}

// rest lets passes follow until one decides nothing. What is evicted leaves at once.
func (b *backlog) rest() error {
	for {
		gone := b.pass(nil)
		if len(gone) == 0 {
			return nil
		}
		for _, g := range gone {
			if err := b.Apply(b.now, g); err != nil {
				return err
			}
		}
	}
}

// pass applies an event, makes a pass, and returns the pods that it evicts.
func (b *backlog) pass(ev core.Event) []core.PodsGone {
	start, cpu := time.Now(), cpuTime()
	if ev != nil {
		if err := b.Apply(b.now, ev); err != nil {
			panic(err) // the events of a benchmark are valid
		}
	}
	ds := b.Decide(b.now)
	b.times, b.cpu = append(b.times, time.Since(start)), append(b.cpu, cpuTime()-cpu)
	var gone []core.PodsGone
	for i := range ds {
		d := &ds[i]
		if d.Op == core.Wake {
			continue
		}
		b.decisions++
		b.sum = crc32.Update(b.sum, crc32.IEEETable, fmt.Appendf(nil, "%d %s %v", d.Op, d.Job, d.Reason))
		for k := range d.Pods {
			b.sum = crc32.Update(b.sum, crc32.IEEETable, fmt.Appendf(nil, "%d %s %x", d.Pods[k].Pod, d.Pods[k].Node, d.Pods[k].GPUs))
		}
		switch d.Op {
		case core.Bind:
			b.started(d.Job, len(d.Pods))
		case core.Evict, core.Requeue:
			g := core.PodsGone{Job: d.Job}
			for k := range d.Pods {
				g.Pods = append(g.Pods, d.Pods[k].Pod)
			}
			b.started(d.Job, -len(g.Pods))
			gone = append(gone, g)
		}
	}
	return gone
}

// started counts pods of a job that start, or stop.
func (b *backlog) started(job string, pods int) {
	b.runs[job] += pods
	if b.runs[job] == b.pods[job] {
		b.at[job] = len(b.busy)
		b.busy = append(b.busy, job)
	} else if i, ok := b.at[job]; ok {
		b.forget(job, i)
	}
}

func (b *backlog) forget(job string, i int) {
	last := b.busy[len(b.busy)-1]
	b.busy[i], b.at[last] = last, i
	b.busy = b.busy[:len(b.busy)-1]
	delete(b.at, job)
}

// churn lets jobs end, and as many come, so that a job runs for four hours on average. Every event
// has a pass of its own; pods that are evicted leave ten seconds later.
func (b *backlog) churn(events int) error {
	type leaving struct {
		at core.Time
		core.PodsGone
	}
	var out []leaving
	for n := 0; n < events; n++ {
		var ev core.Event
		switch {
		case len(out) > 0 && out[0].at <= b.now:
			ev, out = out[0].PodsGone, out[1:]
		case n%2 == 0 && len(b.busy) > 0:
			name := b.busy[b.rng.IntN(len(b.busy))]
			b.forget(name, b.at[name])
			delete(b.runs, name)
			delete(b.pods, name)
			ev = core.JobEnded{Job: name}
			b.now += 4 * 3600 * core.Second / core.Time(len(b.busy)+1)
		default:
			if err := b.come(); err != nil {
				return err
			}
		}
		for _, g := range b.pass(ev) {
			out = append(out, leaving{b.now + 10*core.Second, g})
		}
		slices.SortStableFunc(out, func(a, c leaving) int { return int(min(max(a.at-c.at, -1), 1)) })
	}
	for _, l := range out {
		if err := b.Apply(b.now, l.PodsGone); err != nil {
			return err
		}
	}
	return nil
}
