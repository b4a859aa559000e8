package bench

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"

	"github.com/muster-sched/muster/core"
)

var plain = core.Queue{Name: "q", Weight: 1}

// names returns job names; making them is not what is measured.
func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "job-" + strconv.Itoa(i)
	}
	return out
}

// place submits as many 1-GPU jobs whatever the size of the cluster, again and
// again: what a placement costs by the size of the cluster alone.
func place(nodes int) (measure, error) {
	const jobs, rounds = 2000, 20
	w, err := newWorld(nodes, func(i int) int { return gpusOf(i, nodes) }, plain)
	if err != nil {
		return measure{}, err
	}
	name := names(jobs)
	m := measure{}
	for range rounds {
		one, err := timed(jobs, func(i int) error {
			bound, err := w.submit(job(name[i], plain.Name, 1, 1))
			if err == nil && bound != 1 {
				err = fmt.Errorf("job %d found no room", i)
			}
			return err
		})
		if err != nil {
			return m, err
		}
		m.times, m.bytes, m.placed = append(m.times, one.times...), m.bytes+one.bytes, m.placed+jobs
		for _, n := range name {
			if err := w.end(n); err != nil {
				return m, err
			}
		}
	}
	return m, nil
}

// fill submits 1-GPU jobs until the cluster is full.
func fill(nodes int) (measure, error) {
	total := 0
	for i := range nodes {
		total += gpusOf(i, nodes)
	}
	w, err := newWorld(nodes, func(i int) int { return gpusOf(i, nodes) }, plain)
	if err != nil {
		return measure{}, err
	}
	name := names(total)
	m, err := timed(total, func(i int) error {
		bound, err := w.submit(job(name[i], plain.Name, 1, 1))
		if err == nil && bound != 1 {
			err = fmt.Errorf("job %d found no room", i)
		}
		return err
	})
	m.placed = total
	return m, err
}

// gang places a gang of 8-GPU pods on an empty cluster, again and again.
func gang(gpus int) func(int) (measure, error) {
	return func(nodes int) (measure, error) {
		w, err := newWorld(nodes, func(i int) int { return gpusOf(i, nodes) }, plain)
		if err != nil {
			return measure{}, err
		}
		const rounds = 2000
		m := measure{}
		runtime.GC()
		for range rounds {
			one, err := timedWarm(1, func(int) error {
				bound, err := w.submit(job("gang", plain.Name, gpus/8, 8))
				if err == nil && bound != gpus/8 {
					err = fmt.Errorf("the gang found no room")
				}
				return err
			})
			if err != nil {
				return m, err
			}
			m.times, m.bytes = append(m.times, one.times...), m.bytes+one.bytes
			if err := w.end("gang"); err != nil {
				return m, err
			}
		}
		return m, nil
	}
}

// impossibleGang refuses a 2,048-GPU gang on a cluster of which every node has
// a GPU in use.
func impossibleGang(nodes int) (measure, error) {
	w, err := newWorld(nodes, func(i int) int { return gpusOf(i, nodes) }, plain)
	if err != nil {
		return measure{}, err
	}
	for i := range nodes {
		// A job of all GPUs but one on every node, then one of the rest, which
		// stays: no node is left whole.
		g := gpusOf(i, nodes)
		if _, err := w.submit(job("hold-"+strconv.Itoa(i), plain.Name, 1, max(1, g-1))); err != nil {
			return measure{}, err
		}
	}
	m := measure{}
	runtime.GC()
	for i := range 2000 {
		name := "gang-" + strconv.Itoa(i)
		one, err := timedWarm(1, func(int) error {
			bound, err := w.submit(job(name, plain.Name, 256, 8))
			if err == nil && bound != 0 {
				err = fmt.Errorf("the gang found room")
			}
			return err
		})
		if err != nil {
			return m, err
		}
		m.times, m.bytes = append(m.times, one.times...), m.bytes+one.bytes
		if err := w.end(name); err != nil {
			return m, err
		}
	}
	return m, nil
}

// churn ends a job and submits another, on a cluster 95 % full of jobs of 1 to 8 GPUs and
// some gangs. An operation is both.
func churn(nodes int) (measure, error) {
	w, err := newWorld(nodes, func(i int) int { return gpusOf(i, nodes) }, plain)
	if err != nil {
		return measure{}, err
	}
	rng := rand.New(rand.NewPCG(1, uint64(nodes)))
	total, used, next := 0, 0, 0
	for i := range nodes {
		total += gpusOf(i, nodes)
	}
	type running struct {
		name string
		gpus int
	}
	var live []running
	come := func() error {
		pods, gpus := 1, 1<<rng.IntN(4)
		if gpus == 8 && rng.IntN(8) == 0 {
			pods = 2 << rng.IntN(3)
		}
		next++
		r := running{"job-" + strconv.Itoa(next), pods * gpus}
		bound, err := w.submit(job(r.name, plain.Name, pods, gpus))
		if err != nil {
			return err
		}
		if bound == pods {
			live = append(live, r)
			used += r.gpus
			return nil
		}
		return w.end(r.name)
	}
	for tries := 0; used*100 < total*95 && tries < 10*total; tries++ {
		if err := come(); err != nil {
			return measure{}, err
		}
	}
	return timed(20_000, func(int) error {
		for used*100 >= total*95 && len(live) > 0 {
			i := rng.IntN(len(live))
			used -= live[i].gpus
			if err := w.end(live[i].name); err != nil {
				return err
			}
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		}
		return come()
	})
}

// tenants are an owner and a borrower of all GPUs of a cluster.
func tenants(gpus int) []core.Queue {
	whole := core.Milli(gpus) * core.WholeGPU
	return []core.Queue{
		{Name: "owner", Weight: 1, Quota: []core.Quota{{Model: "H800", Nominal: whole, BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited}}},
		{Name: "borrower", Weight: 1, Quota: []core.Quota{{Model: "H800", BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited}}},
	}
}

// borrowed returns a cluster of 8-GPU nodes full of 1-GPU jobs of a queue that
// borrows all of it.
func borrowed(nodes int) (*world, error) {
	w, err := newWorld(nodes, func(int) int { return 8 }, tenants(8*nodes)...)
	if err != nil {
		return nil, err
	}
	for i := range 8 * nodes {
		bound, err := w.submit(job("lent-"+strconv.Itoa(i), "borrower", 1, 1))
		if err != nil {
			return nil, err
		}
		if bound != 1 {
			return nil, fmt.Errorf("job %d found no room", i)
		}
	}
	w.now += 3600 * core.Second
	return w, nil
}

// settle carries decisions out until there are none, and returns how many pods were
// bound.
func (w *world) settle() (int, error) {
	bound := 0
	for {
		type leaving struct {
			job  string
			pods []int
		}
		var gone []leaving
		for _, d := range w.Decide(w.now) {
			switch d.Op {
			case core.Bind:
				bound += len(d.Pods)
			case core.Evict, core.Requeue:
				l := leaving{job: d.Job}
				for i := range d.Pods {
					l.pods = append(l.pods, d.Pods[i].Pod)
				}
				gone = append(gone, l)
			}
		}
		if len(gone) == 0 {
			return bound, nil
		}
		w.now++
		for _, l := range gone {
			if err := w.Apply(w.now, core.PodsGone{Job: l.job, Pods: l.pods}); err != nil {
				return bound, err
			}
		}
	}
}

// reclaim lets the owner of a full cluster's quota submit 4,000 1-GPU jobs at
// once. The operation is the whole: all evictions and all bindings.
func reclaim(nodes int) (measure, error) {
	const jobs = 4000
	return reclaiming(nodes, jobs, func(w *world) error {
		for i := range jobs {
			w.now++
			j := job("own-"+strconv.Itoa(i), "owner", 1, 1)
			j.Submitted = w.now
			if err := w.Apply(w.now, core.JobSubmitted{Job: j}); err != nil {
				return err
			}
		}
		return nil
	})
}

// reclaimGang lets the owner submit one gang of 2,000 GPUs.
func reclaimGang(nodes int) (measure, error) {
	return reclaiming(nodes, 250, func(w *world) error {
		w.now++
		j := job("own", "owner", 250, 8)
		j.Submitted = w.now
		return w.Apply(w.now, core.JobSubmitted{Job: j})
	})
}

func reclaiming(nodes, pods int, come func(*world) error) (measure, error) {
	m := measure{}
	for range 3 {
		w, err := borrowed(nodes)
		if err != nil {
			return m, err
		}
		one, err := timed(1, func(int) error {
			if err := come(w); err != nil {
				return err
			}
			bound, err := w.settle()
			if err == nil && bound != pods {
				err = fmt.Errorf("%d pods bound, %d expected", bound, pods)
			}
			return err
		})
		if err != nil {
			return m, err
		}
		m.times, m.bytes = append(m.times, one.times...), m.bytes+one.bytes
	}
	return m, nil
}
