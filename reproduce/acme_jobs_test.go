package reproduce

import (
	"fmt"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// The jobs are as is published of Seren, and come as fast as they shall.
func TestAcmeJobs(t *testing.T) {
	var shapes []acmeShape
	for seed := range uint64(5) {
		a := acmeJobs{jobs: 40_000, gpus: serenGPUs, load: 0.9, spread: 0.5, seed: seed + 1}
		jobs := a.make()
		shapes = append(shapes, shapeOf(jobs))
		var all []workload.Job
		for i := range jobs {
			all = append(all, jobs[i].Job)
		}
		if load := loadOf(all, serenGPUs/8); load < 0.899 || load > 0.901 {
			t.Errorf("seed %d: the load is %.4f, want 0.9", a.seed, load)
		}
	}
	small := acmeJobs{jobs: 5000, gpus: 128, load: 0.9, spread: 0.5, seed: 1}
	whole := 0
	for _, j := range small.make() {
		switch n := j.GPUs() / core.WholeGPU; {
		case n > 128:
			t.Fatalf("a job has %d GPUs, the cluster 128", n)
		case n == 128:
			whole++
		}
	}
	if whole < 10 {
		t.Errorf("%d jobs take all 128 GPUs, want those that are as large or larger", whole)
	}
	for _, r := range shapeRows("Acme-shaped", shapes) {
		if !r.Within {
			t.Errorf("%s: %.1f %s, published %.1f", r.Figure, r.Ours, r.Unit, r.Paper)
		}
	}
}

// Jobs of the same work have the same code and about the same run time.
func TestAcmeWorks(t *testing.T) {
	a := acmeJobs{jobs: 5000, gpus: serenGPUs, load: 0.9, spread: 0.1, training: true, seed: 1}
	times := map[string][]float64{}
	for _, j := range a.make() {
		if j.kind == "evaluation" {
			t.Fatal("an evaluation, though only training was wanted")
		}
		if j.Outcome == workload.Completed {
			work := fmt.Sprint(j.User, j.code.Fields())
			times[work] = append(times[work], j.Duration.Seconds())
		}
	}
	repeated, near := 0, 0
	for _, of := range times {
		for _, x := range of[1:] {
			repeated++
			if x > of[0]/2 && x < 2*of[0] {
				near++
			}
		}
	}
	if repeated < 1000 || near < repeated*9/10 {
		t.Errorf("%d of %d jobs take from half to double of the first of their work, want nearly all", near, repeated)
	}
}
