package metrics

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// submitTo submits a job of one pod to a queue.
func (r *run) submitTo(at int, queue, name string, gpus, duration int) {
	l := &sim.Live{Pods: 1, Job: workload.Job{Duration: seconds(duration), Job: core.Job{
		Name: name, Queue: queue, Gang: true, Tasks: []core.Task{task(1, gpus)}, Submitted: seconds(at),
	}}}
	r.jobs[name] = l
	r.ok(r.Submitted(seconds(at), l))
}

// Two tenants with weights 1 and 3 on 8 GPUs, by ASTRAEA's words: what a tenant received to what it
// deserves, by weight among those that are active. a asks for 8 GPUs and runs from 0 to 10 s, b asks for
// 4 of its 6 and runs from 10 to 20 s.
//
//	          a deserves  a received  b deserves  b received
//	0..10 s   40          80          40          0
//	10..20 s  0           0           40          40
func TestFairnessOfTwoTenants(t *testing.T) {
	r := newRun(t, Options{Levels: 1, Queues: []core.Queue{{Name: "a", Weight: 1}, {Name: "b", Weight: 3}}})
	r.node(0, "n0", "l")
	r.submitTo(0, "a", "first", 8, 10)
	r.submitTo(0, "b", "second", 4, 10)
	r.bind(0, "first", on("n0", 0, 0, 8))
	r.release(10, "first", sim.Finished, on("n0", 0, 0, 8))
	r.end(10, "first")
	r.bind(10, "second", on("n0", 0, 0, 4))
	r.release(20, "second", sim.Finished, on("n0", 0, 0, 4))
	r.end(20, "second")

	f := r.Summary().Fairness
	want := []QueueFairness{
		{Queue: "a", Weight: 1, Jobs: 1, Received: 80. / 3600, Deserved: 40. / 3600, Index: 2, Met: 1, Rho: 0.5},
		{Queue: "b", Weight: 3, Jobs: 1, Received: 40. / 3600, Deserved: 80. / 3600, Index: 0.5, Met: 0.5, Rho: 2},
	}
	if !slices.Equal(f.Queues, want) {
		t.Errorf("queues %+v, want %+v", f.Queues, want)
	}
	x := f.Tenants
	near(t, "unfairness: b lacks 40 of 120", x.Unfairness, 40./120)
	near(t, "its mean: 40 of 80 after 10 s, then that", x.Mean, (0.5+1./3)/2)
	near(t, "lowest index", x.Min, 0.5)
	near(t, "highest to lowest", x.MaxMin, 4)
	near(t, "Gini", x.Gini, 0.3)
	near(t, "met: 40 of 40, and 40 of 80", x.Met, 80./120)
	near(t, "rho: 40 of 80, and 80 of 40 GPU-seconds", f.Jobs.Rho.Mean, 1.25)
	near(t, "largest rho", f.Jobs.Rho.Max, 2)
	near(t, "late", f.Jobs.Late, 0.5)
	near(t, "unfairness of jobs", f.Jobs.Unfairness, 40./120)
	if row := r.Fair(); row.Tenants != x.Unfairness || row.Jobs != f.Jobs.Unfairness {
		t.Errorf("at the end, queues lack %v and jobs %v", row.Tenants, row.Jobs)
	}
	if math.Abs(f.Jobs.Gini-0.3) > 0.01 {
		t.Errorf("Gini of jobs %v, want 0.3", f.Jobs.Gini)
	}
}

// At every level of the tree: x has 4 of 8 GPUs, of which its own job and those of a and b have a third
// each, and y the other 4. When nothing is requested in x, nothing is deserved there at any level.
func TestFairnessInATree(t *testing.T) {
	r := newRun(t, Options{Levels: 1, Queues: []core.Queue{
		{Name: "x", Weight: 1}, {Name: "y", Weight: 1}, {Name: "a", Parent: "x", Weight: 1}, {Name: "b", Parent: "x", Weight: 1},
	}})
	r.node(0, "n0", "l")
	for _, q := range []string{"x", "y", "a", "b"} {
		r.submitTo(0, q, q, 8, 6)
	}
	for _, q := range []string{"x", "y", "a", "b"} {
		r.end(6, q)
	}
	r.submitTo(6, "y", "y2", 8, 6)
	r.end(12, "y2")
	for _, q := range r.Summary().Fairness.Queues {
		want := 8.
		if q.Queue == "x" && !q.Own {
			want = 24
		} else if q.Queue == "y" {
			want = 24 + 48
		}
		near(t, q.Queue+" deserved", q.Deserved*3600, want)
	}
}

// The fast accounting against a slow one, second by second.
func TestFairnessAgainstSlow(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		queues := []core.Queue{{Name: "q0", Weight: rng.Int64N(4)}, {Name: "q1", Weight: rng.Int64N(4)}, {Name: "q2", Weight: rng.Int64N(4)}}
		r := newRun(t, Options{Levels: 1, Queues: queues})
		r.node(0, "n0", "l")
		type slow struct {
			queue, gpus        int
			received, deserved float64
			running            bool
		}
		live, deserved, received := map[string]*slow{}, [3]float64{}, [3]float64{}
		for now := range 60 {
			switch k := rng.IntN(5); {
			case k < 2:
				name := strconv.Itoa(now)
				s := &slow{queue: rng.IntN(3), gpus: 1 + rng.IntN(8)}
				r.submitTo(now, queues[s.queue].Name, name, s.gpus, 5)
				live[name] = s
				if s.running = !slices.ContainsFunc(values(live), func(o *slow) bool { return o.running }); s.running {
					r.bind(now, name, on("n0", 0, 0, s.gpus))
				}
			case k == 2 && len(live) > 0:
				name := names(live)[rng.IntN(len(live))]
				if live[name].running {
					r.release(now, name, sim.Finished, on("n0", 0, 0, live[name].gpus))
				}
				a := r.Collector.jobs[r.jobs[name]]
				r.end(now, name)
				near(t, "received by "+name, a.received/1000, live[name].received)
				near(t, "deserved by "+name, (a.account.size(core.Milli(live[name].gpus)*core.WholeGPU).each-a.deserved)/1000, live[name].deserved)
				delete(live, name)
			}
			wants, weights := [3]float64{}, [3]float64{}
			for _, s := range live {
				wants[s.queue] += float64(s.gpus)
			}
			for q := range queues {
				weights[q] = float64(queues[q].Weight)
			}
			for q, rate := range divided(8, wants[:], weights[:]) {
				deserved[q] += rate
				var of []*slow
				var sizes, ones []float64
				for _, name := range names(live) {
					if s := live[name]; s.queue == q {
						of, sizes, ones = append(of, s), append(sizes, float64(s.gpus)), append(ones, 1)
					}
				}
				for i, each := range filled(rate, sizes, ones) {
					of[i].deserved += each
				}
			}
			for _, s := range live {
				if s.running {
					s.received += float64(s.gpus)
					received[s.queue] += float64(s.gpus)
				}
			}
		}
		r.node(60, "n0", "l")
		for _, q := range r.Summary().Fairness.Queues {
			i := int(q.Queue[1] - '0')
			near(t, "deserved by "+q.Queue, q.Deserved*3600, deserved[i])
			near(t, "received by "+q.Queue, q.Received*3600, received[i])
		}
	}
}

// divided divides a rate by weights, and what is left evenly among those of weight 0.
func divided(rate float64, wants, weights []float64) []float64 {
	weighted, even := slices.Clone(wants), slices.Clone(wants)
	for i, w := range weights {
		if w > 0 {
			even[i] = 0
		} else {
			weighted[i] = 0
		}
	}
	out := filled(rate, weighted, weights)
	for _, x := range out {
		rate -= x
	}
	for i, x := range filled(rate, even, []float64{1, 1, 1}) {
		out[i] += x
	}
	return out
}

// filled divides a rate by weights, no more to each than it wants: little by little.
func filled(rate float64, wants, weights []float64) []float64 {
	out := make([]float64, len(wants))
	for rate > 1e-12 {
		sum, most := 0.0, math.Inf(1)
		for i := range wants {
			if wants[i] > out[i] {
				sum += weights[i]
				most = min(most, (wants[i]-out[i])/weights[i])
			}
		}
		if sum == 0 {
			break
		}
		most = min(most, rate/sum)
		for i := range wants {
			if wants[i] > out[i] {
				if out[i] += most * weights[i]; wants[i]-out[i] < 1e-12 {
					out[i] = wants[i]
				}
			}
		}
		rate -= most * sum
	}
	return out
}

func names[T any](m map[string]T) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func values[T any](m map[string]T) []T {
	var out []T
	for _, k := range names(m) {
		out = append(out, m[k])
	}
	return out
}

// submitAs submits a job of one pod of a user to a queue.
func (r *run) submitAs(at int, queue, user, name string, gpus, duration int) {
	l := &sim.Live{Pods: 1, Job: workload.Job{Duration: seconds(duration), Job: core.Job{
		Name: name, Queue: queue, User: user, Gang: true, Tasks: []core.Task{task(1, gpus)}, Submitted: seconds(at),
	}}}
	r.jobs[name] = l
	r.ok(r.Submitted(seconds(at), l))
}

// ann has two jobs of 4 GPUs, bob one of 2, in a queue of 8 GPUs that nobody else wants. Each user deserves half, bob no more than he
// requests, whatever the number of jobs.
//
//	          ann deserves  ann received  bob deserves  bob received
//	0..10 s   60            80            20            0
//	10..20 s  0             0             20            20
func TestFairnessOfUsers(t *testing.T) {
	r := newRun(t, Options{Levels: 1, Queues: []core.Queue{{Name: "q", Weight: 1}, {Name: "other", Weight: 1}}})
	r.node(0, "n0", "l")
	for _, name := range []string{"a1", "a2"} {
		r.submitAs(0, "q", "ann", name, 4, 10)
	}
	r.submitAs(0, "q", "bob", "b", 2, 10)
	r.bind(0, "a1", on("n0", 0, 0, 4))
	r.bind(0, "a2", on("n0", 0, 4, 4))
	for k, name := range []string{"a1", "a2"} {
		r.release(10, name, sim.Finished, on("n0", 0, 4*k, 4))
		r.end(10, name)
	}
	r.bind(10, "b", on("n0", 0, 0, 2))
	r.release(20, "b", sim.Finished, on("n0", 0, 0, 2))
	r.end(20, "b")

	// A queue of which no job names a user has none to compare. Nor has ann a claim of when she requested nothing.
	r.submitTo(20, "other", "x", 8, 10)
	r.submitAs(30, "q", "ann", "a3", 8, 10)
	f := r.Summary().Fairness
	want := []UserFairness{
		{Queue: "q", User: "ann", Jobs: 3, Received: 80. / 3600, Deserved: 60. / 3600, Index: 80. / 60, Met: 1, Rho: 0.75},
		{Queue: "q", User: "bob", Jobs: 1, Received: 20. / 3600, Deserved: 40. / 3600, Index: 0.5, Met: 0.5, Rho: 2},
	}
	if !slices.Equal(f.ByUser, want) {
		t.Errorf("users %+v, want %+v", f.ByUser, want)
	}
	x := f.Users
	near(t, "unfairness: bob lacks 20 of 100", x.Unfairness, 0.2)
	near(t, "lowest index", x.Min, 0.5)
	near(t, "highest to lowest", x.MaxMin, 80./30)
	near(t, "met: 60 of 60, and 20 of 40", x.Met, 0.8)
	if x.Users != 2 || r.Fair().Users != x.Unfairness {
		t.Errorf("at the end, %d users lack %v", x.Users, r.Fair().Users)
	}
}
