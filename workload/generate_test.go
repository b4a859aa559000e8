package workload

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/quota"
)

// generated returns the jobs of a built-in.
func generated(t *testing.T, name string, opt Options) []Job {
	t.Helper()
	jobs, _, err := OpenJobs(name, opt)
	if err != nil {
		t.Fatal(err)
	}
	var all []Job
	for j, err := range jobs {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, j)
	}
	return all
}

// Every built-in gives the same for the same seed and something else for
// another, fits its own cluster, and reads back the same from a file.
func TestBuiltins(t *testing.T) {
	for _, b := range Builtins() {
		t.Run(b.Name, func(t *testing.T) {
			var opt Options
			if strings.HasPrefix(b.Name, "asi") { // all of it is 14 million jobs
				opt = Options{GPUs: 8000, Length: 24 * 3600 * core.Second}
			}
			c, err := OpenCluster(b.Name, opt)
			if err != nil {
				t.Fatal(err)
			}
			opt.Seed, opt.Cluster = 1, &c
			jobs := generated(t, b.Name, opt)
			if !reflect.DeepEqual(jobs, generated(t, b.Name, opt)) {
				t.Error("the same seed gives other jobs")
			}
			opt.Seed = 2
			if reflect.DeepEqual(jobs, generated(t, b.Name, opt)) {
				t.Error("another seed gives the same jobs")
			}
			back, err := collect(write(t, jobs), Options{})
			if err != nil || !reflect.DeepEqual(back, jobs) {
				t.Errorf("jobs do not read back the same (%v)", err)
			}
			var file bytes.Buffer
			if err := WriteCluster(&file, c); err != nil {
				t.Fatal(err)
			}
			again, err := load(file.String(), Options{})
			if err != nil || !reflect.DeepEqual(again.Nodes, c.Nodes) || !reflect.DeepEqual(again.Levels, c.Levels) {
				t.Errorf("the cluster does not read back the same (%v)", err)
			}
		})
	}
}

// What Kant §2 and §5.1 tell of the training cluster holds for every seed.
func TestKantTrainingMarginals(t *testing.T) {
	c, err := OpenCluster("kant-training", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Nodes) != 1000 || len(pools(c.Nodes)) != 1 || c.Nodes[999].GPUs != 8 {
		t.Errorf("cluster is not 1,000 like nodes of 8 GPUs")
	}
	for seed := range uint64(5) {
		var s struct{ jobs, upTo8, sub8, large, all, sub8Time, upTo8Time, largeTime, standing float64 }
		var sizes []int64
		for _, j := range generated(t, "kant-training", Options{Seed: seed}) {
			if j.Submitted == 0 {
				s.standing += float64(j.GPUs() / core.WholeGPU)
				continue
			}
			gpus := int64(j.GPUs() / core.WholeGPU)
			work := float64(gpus) * j.Duration.Seconds()
			s.jobs++
			s.all += work
			if gpus < 8 {
				s.sub8Time += work
			}
			if gpus <= 8 {
				s.upTo8++
				s.upTo8Time += work
			}
			if gpus >= 256 {
				s.large++
				s.largeTime += work
			}
			if !slices.Contains(sizes, gpus) {
				sizes = append(sizes, gpus)
			}
			if j.Gang != (gpus > 8) {
				t.Fatalf("seed %d: gang is %v for a job of %d GPUs", seed, j.Gang, gpus)
			}
		}
		check := func(what string, got, low, high float64) {
			if got < low || got > high {
				t.Errorf("seed %d: %s is %.4f, want %v..%v", seed, what, got, low, high)
			}
		}
		check("jobs", s.jobs, 10_000, 20_000)
		check("smallest size", float64(slices.Min(sizes)), 1, 1)
		check("largest size", float64(slices.Max(sizes)), 2048, 2048)
		check("job share of up to 8 GPUs", s.upTo8/s.jobs, 0.90, 1)
		check("GPU-time share of up to 8 GPUs", s.upTo8Time/s.all, 0.05, 0.10)
		check("GPU-time share below 8 GPUs", s.sub8Time/s.all, 0.03, 0.04)
		check("GPU-time share from 256 GPUs", s.largeTime/s.all, 0.50, 0.70)
		check("load", s.all/(8000*7*24*3600), 0.92, 0.97)
		check("load at the start", s.standing/8000, 0.5, 2)
	}
}

// Load, length and size are as asked; a workload follows the cluster given.
func TestKantTrainingParameters(t *testing.T) {
	c, err := ParseSpec("100x8", Options{})
	if err != nil {
		t.Fatal(err)
	}
	jobs := generated(t, "kant-training", Options{Load: 0.5, Length: 2 * 24 * 3600 * core.Second, Cluster: &c})
	work, largest := 0.0, core.Milli(0)
	for _, j := range jobs {
		if j.Submitted == 0 {
			continue // ran before
		}
		work += float64(j.GPUs()) / 1000 * j.Duration.Seconds()
		largest = max(largest, j.GPUs())
	}
	if load := work / (800 * 2 * 24 * 3600); math.Abs(load-0.5) > 0.05 {
		t.Errorf("load is %v, want 0.5", load)
	}
	if last := jobs[len(jobs)-1].Submitted.Seconds(); last < 2*24*3600*0.95 || last > 2*24*3600 {
		t.Errorf("last submission at %v s", last)
	}
	if largest > 256*core.WholeGPU {
		t.Errorf("largest job has %d milli-GPUs", largest)
	}
}

// Kant §5.2.2: demand comes near capacity and never above it, in every pool and
// within every tenant's limit; clusters order by size as i7, i2, a10.
func TestKantInferenceDemand(t *testing.T) {
	for name, nodes := range map[string][2]int{
		"kant-inference":     {128, 192},
		"kant-inference-i7":  {1000, 1050},
		"kant-inference-a10": {60, 100},
	} {
		c, err := OpenCluster(name, Options{})
		if err != nil {
			t.Fatal(err)
		}
		size := map[string]int{}
		for _, n := range c.Nodes {
			size[n.Model] += n.GPUs
			size[""] += n.GPUs
		}
		if size[""] < nodes[0] || size[""] > nodes[1] {
			t.Errorf("%s has %d GPUs", name, size[""])
		}
		for seed := range uint64(5) {
			jobs := generated(t, name, Options{Seed: seed})
			checkInferenceDemand(t, name, c, size, jobs)
		}
	}
}

// checkInferenceDemand follows the GPUs that live services hold.
func checkInferenceDemand(t *testing.T, name string, c Cluster, size map[string]int, jobs []Job) {
	type change struct {
		at         core.Time
		gpus       int
		model, who string
	}
	var changes []change
	for i := range jobs {
		j := &jobs[i]
		gpus, model := int(j.GPUs()/core.WholeGPU), j.Tasks[0].Models[0]
		changes = append(changes, change{j.Submitted, gpus, model, j.Queue}, change{j.Submitted + j.Duration, -gpus, model, j.Queue})
	}
	slices.SortStableFunc(changes, func(a, b change) int {
		if a.at != b.at {
			return int(max(-1, min(1, a.at-b.at)))
		}
		return a.gpus - b.gpus
	})
	held := map[string]int{}
	area, last := 0.0, core.Time(0)
	for _, x := range changes {
		area += float64(held[""]) * (x.at - last).Seconds()
		last = x.at
		for _, key := range []string{"", x.model, x.who + " " + x.model} {
			held[key] += x.gpus
		}
		if held[x.model] > size[x.model] {
			t.Fatalf("%s: %d GPUs of %s asked for at %v", name, held[x.model], x.model, x.at)
		}
		if most := tenantLimit(c, x.who, x.model); held[x.who+" "+x.model] > most {
			t.Fatalf("%s: %s holds %d of %s at %v, limit %d", name, x.who, held[x.who+" "+x.model], x.model, x.at, most)
		}
	}
	if gar := area / float64(size[""]) / last.Seconds(); gar < 0.88 || gar > 0.97 {
		t.Errorf("%s: mean allocation would be %.3f", name, gar)
	}
}

// tenantLimit is the most a queue may use of a model.
func tenantLimit(c Cluster, queue, model string) int {
	for _, q := range c.Queues {
		for _, share := range q.Quota {
			if q.Name == queue && share.Model == model {
				limit := share.Nominal
				if q.Mode == quota.Shared {
					limit += share.BorrowingLimit
				}
				return int(limit / core.WholeGPU)
			}
		}
	}
	return 0
}

// Quotas sum to the cluster, and some tenants keep theirs to themselves.
func TestKantInferenceQuotas(t *testing.T) {
	for _, name := range []string{"kant-inference", "kant-inference-i7", "kant-inference-a10"} {
		c, err := OpenCluster(name, Options{})
		if err != nil {
			t.Fatal(err)
		}
		left := map[string]core.Milli{}
		for _, n := range c.Nodes {
			left[n.Model] += core.Milli(n.GPUs) * core.WholeGPU
		}
		isolated := 0
		for _, q := range c.Queues {
			if q.Mode == quota.Isolated {
				isolated++
			}
			for _, share := range q.Quota {
				left[share.Model] -= share.Nominal
			}
		}
		for model, milli := range left {
			if milli != 0 {
				t.Errorf("%s: quotas of %s leave %d milli-GPUs", name, model, milli)
			}
		}
		if isolated == 0 || isolated > len(c.Queues)/2 {
			t.Errorf("%s: %d of %d queues are Isolated", name, isolated, len(c.Queues))
		}
	}
}

func TestGeneratorParametersOutOfRange(t *testing.T) {
	for want, opt := range map[string]Options{
		"kant-training: load: a load above 0 and up to 10, found NaN":                            {Load: math.NaN()},
		"kant-training: load: a load above 0 and up to 10, found -1":                             {Load: -1},
		"kant-training: length: 0..3.1536e+07 s, found -1":                                       {Length: -core.Second},
		"kant-training: gpus: 0..1600000, found -8":                                              {GPUs: -8},
		"kant-training: wall clock: no selection by it of a built-in, found 2020-01-02 00:00:00": {FromWall: date(2020, 1, 2)},
		"kant-training: format: none for a built-in, found philly":                               {Format: "philly"},
	} {
		if _, _, err := OpenJobs("kant-training", opt); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		if _, err := OpenCluster("kant-training", opt); err == nil || !strings.HasPrefix(err.Error(), "kant-training: ") {
			t.Errorf("cluster: got %v", err)
		}
	}
}
