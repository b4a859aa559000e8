package workload

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/muster-sched/muster/core"
)

const day = 24 * 3600 * core.Second

// What ASI §2 and table 1 publish of the cluster.
func TestASICluster(t *testing.T) {
	c, err := OpenCluster("asi", Options{})
	if err != nil {
		t.Fatal(err)
	}
	gpus, models, leaves := 0, map[string]bool{}, map[string][]core.Node{}
	for _, n := range c.Nodes {
		gpus += n.GPUs
		models[n.Model] = true
		leaves[n.Domains[2]] = append(leaves[n.Domains[2]], n)
		switch n.Model {
		case "A10":
			if n.GPUs != 1 || n.CPUMilli != 128_000 {
				t.Fatalf("an A10 node has %d GPUs and %d milli-cores", n.GPUs, n.CPUMilli)
			}
		case "H20":
			if n.GPUs != 8 || n.CPUMilli != 192_000 {
				t.Fatalf("an H20 node has %d GPUs and %d milli-cores", n.GPUs, n.CPUMilli)
			}
		}
	}
	if len(c.Nodes) != 37_707 || gpus != 155_410 || len(models) != 12 || len(c.Queues) != 81 {
		t.Errorf("%d nodes, %d GPUs, %d models, %d queues; want 37,707, 155,410, 12 and 81", len(c.Nodes), gpus, len(models), len(c.Queues))
	}
	for name, nodes := range leaves {
		if len(nodes) < 32 || len(nodes) > 64 {
			t.Errorf("%s has %d nodes, want 32 to 64", name, len(nodes))
		}
		for _, n := range nodes {
			if n.Model != nodes[0].Model {
				t.Errorf("%s has nodes of %s and %s", name, n.Model, nodes[0].Model)
			}
		}
	}
}

// The entries together ask for what their pools are to be asked for, and for as
// many jobs as published.
func TestASIEntries(t *testing.T) {
	var jobs, disaggregated float64
	asked := map[string]*[2]float64{} // GPUs, of HP and of LP jobs
	for _, e := range asiEntries(asiFleet, &Options{}) {
		gpus := float64(e.job.GPUs()) / float64(core.WholeGPU) * e.rate * e.life.cutMean(asiLongest.Seconds())
		model := e.job.Tasks[0].Models[0]
		if asked[model] == nil {
			asked[model] = &[2]float64{}
		}
		asked[model][e.job.Class] += gpus
		jobs += e.rate * asiLength.Seconds()
		if len(e.job.Tasks) == 2 {
			disaggregated += gpus
		}
	}
	within(t, "jobs", jobs, 13.8e6, 14.2e6)
	var hp, all, has float64
	for _, p := range asiFleet {
		gpus := float64(p.nodes * p.gpus)
		a := asked[p.model]
		within(t, p.model+" HP", 100*a[core.HP]/gpus, p.hp-1, p.hp+1)
		within(t, p.model+" HP and LP", 100*(a[core.HP]+a[core.LP])/gpus, p.all-1, p.all+1)
		hp, all, has = hp+a[core.HP], all+a[core.HP]+a[core.LP], has+gpus
	}
	within(t, "HP", hp/has, 0.675, 0.685)
	within(t, "HP and LP", all/has, 0.9299, 0.9301)
	// 1,041 GPUs a day at the beginning, 3,841 at the end.
	within(t, "GPUs of prefill and decode", disaggregated, 2350, 2550)
}

func within(t *testing.T, what string, got, low, high float64) {
	t.Helper()
	if !(got >= low && got <= high) {
		t.Errorf("%s: %.4g, want %.4g to %.4g", what, got, low, high)
	}
}

// asiCounts are of the jobs that a stream yields after its start.
type asiCounts struct {
	rng                                  *rand.Rand
	jobs, gpus, several, parts, standing float64
	kinds, hp                            [len(core.Kinds)]float64
	byHour                               [24]float64
	adopted                              [2]float64 // HP jobs on XPU-A, before and after their number rises
	locked, ranks                        float64    // jobs that are locked, and that train on several pods
	wrong                                []string   // jobs that move and should not, or the reverse
	size, genai, duration, hpDuration    sample
}

func countASI(t *testing.T, opt Options) asiCounts {
	jobs, _, err := OpenJobs("asi", opt)
	if err != nil {
		t.Fatal(err)
	}
	c := asiCounts{rng: rand.New(rand.NewPCG(0, 0))}
	for j, err := range jobs {
		if err != nil {
			t.Fatal(err)
		}
		c.add(&j, opt.Length)
	}
	return c
}

func (c *asiCounts) add(j *Job, length core.Time) {
	gpus := float64(j.GPUs()) / float64(core.WholeGPU)
	if j.Submitted == 0 {
		c.standing += gpus
		return
	}
	c.jobs++
	c.gpus += gpus
	c.kinds[j.Kind]++
	ranks := j.Kind == core.Training && j.Pods() > 1
	switch {
	case j.Locked:
		c.locked++
	case ranks:
		c.ranks++
	}
	if moves := j.Mobility == core.Replaceable; moves != (!j.Locked && !ranks) {
		c.wrong = append(c.wrong, j.Name)
	}
	c.byHour[j.Submitted/(3600*core.Second)%24]++
	c.size.add(c.rng, gpus)
	c.duration.add(c.rng, j.Duration.Seconds()/3600)
	if j.Tasks[0].Name == "genai" {
		c.genai.add(c.rng, gpus)
	}
	if len(j.Tasks[0].Models) > 1 {
		c.several++
	}
	if gpus < 1 {
		c.parts++
	}
	if j.Class == core.HP {
		c.hp[j.Kind]++
		c.hpDuration.add(c.rng, j.Duration.Seconds()/3600)
		if m := j.Tasks[0].Models; len(m) == 1 && m[0] == "XPU-A" {
			switch at := float64(j.Submitted) / float64(length); {
			case at < 120.0/181:
				c.adopted[0] += 181.0 / 120
			case at > 125.0/181:
				c.adopted[1] += 181.0 / 56
			}
		}
	}
}

// What ASI §3 publishes of the jobs holds for every seed, in a short time too.
// All jobs are in order and fit the cluster, or the stream would say so.
func TestASIMarginals(t *testing.T) {
	cluster, err := OpenCluster("asi", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(2) {
		c := countASI(t, Options{Seed: seed, Length: 2 * day, Cluster: &cluster})
		within(t, "share of online inference", c.kinds[core.Inference]/c.jobs, 0.50, 0.56)
		within(t, "HP share of online inference", c.hp[core.Inference]/c.kinds[core.Inference], 0.90, 0.96)
		within(t, "HP share of training", c.hp[core.Training]/c.kinds[core.Training], 0.88, 0.94)
		within(t, "HP share of offline inference", c.hp[core.Batch]/c.kinds[core.Batch], 0.12, 0.20)
		within(t, "HP share of dev", c.hp[core.Dev]/c.kinds[core.Dev], 0.98, 1)
		within(t, "median GPUs", c.size.quantiles().P50, 2, 2)
		within(t, "mean GPUs", c.size.quantiles().Mean, 10, 12)
		within(t, "median GPUs of GenAI", c.genai.quantiles().P50, 4, 4)
		within(t, "mean GPUs of GenAI", c.genai.quantiles().Mean, 10, 12)
		within(t, "median hours", c.duration.quantiles().P50, 4.7, 5.3)
		within(t, "p90 hours of HP", c.hpDuration.quantiles().P90, 23, 25)
		within(t, "share of jobs of two models", c.several/c.jobs, 0.001, 0.01)
		within(t, "share of jobs with a part of a GPU", c.parts/c.jobs, 0.0001, 0.005)
		within(t, "share of locked jobs", c.locked/c.jobs, 0.37, 0.43)
		within(t, "share of training jobs of several pods", c.ranks/c.jobs, 0.01, 0.05)
		if len(c.wrong) > 0 {
			t.Errorf("%d jobs move and should not, or the reverse, such as %s", len(c.wrong), c.wrong[0])
		}
		within(t, "GPUs held at the start", c.standing/155_410, 0.85, 1)
	}
}

// In the day more arrives than at night; XPU-A is asked for more in the end.
func TestASIOverTime(t *testing.T) {
	c := countASI(t, Options{GPUs: 20_000, Length: 12 * day})
	within(t, "jobs at 15:00 over those at 3:00", c.byHour[15]/c.byHour[3], 1.25, 1.6)
	within(t, "HP jobs on XPU-A after over before", c.adopted[1]/c.adopted[0], 2.1, 2.9)
}

// Load, length and size are as asked, and no job takes more than an eighth of
// the GPUs of a model, but for those of a node.
func TestASIParameters(t *testing.T) {
	opt := Options{GPUs: 8000, Load: 0.5, Length: 10 * day}
	work, has := 0.0, map[string]float64{}
	c, err := OpenCluster("asi", opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		has[n.Model] += float64(n.GPUs)
	}
	opt.Cluster = &c
	var last core.Time
	for _, j := range generated(t, "asi", opt) {
		gpus := float64(j.GPUs()) / float64(core.WholeGPU)
		last = j.Submitted
		if j.Submitted > 0 {
			work += gpus * j.Duration.Seconds()
		}
		if m := j.Tasks[0].Models; len(m) == 1 && gpus > max(8, has[m[0]]/8) {
			t.Fatalf("a job of %v GPUs on %v of %s", gpus, has[m[0]], m[0])
		}
	}
	within(t, "load", work/8000/opt.Length.Seconds(), 0.45, 0.55)
	within(t, "last submission", last.Seconds()/opt.Length.Seconds(), 0.99, 1)
}

// A lottery draws as its weights say.
func TestLottery(t *testing.T) {
	weights := []float64{1, 0, 5, 0.5, 3.5}
	l, sum := newLottery(weights)
	if sum != 10 {
		t.Errorf("weights sum to %v", sum)
	}
	for i, w := range weights {
		chance := l.keep[i]
		for k := range weights {
			if l.alias[k] == i && k != i {
				chance += 1 - l.keep[k]
			}
		}
		if math.Abs(chance/float64(len(weights))-w/sum) > 1e-9 {
			t.Errorf("%d is drawn with chance %v, want %v", i, chance/float64(len(weights)), w/sum)
		}
	}
}
