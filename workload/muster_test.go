package workload

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// collect returns the jobs of a text, which is called f in errors.
func collect(text string, opt Options) ([]Job, error) {
	t, err := newTable("f", strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	var jobs []Job
	var failed error
	readJobs(t, &opt, func(j Job, err error) bool {
		if err != nil {
			failed = err
		} else {
			jobs = append(jobs, j)
		}
		return true
	})
	return jobs, failed
}

// load returns the cluster of a text, which is called f in errors.
func load(text string, opt Options) (Cluster, error) {
	t, err := newTable("f", strings.NewReader(text))
	if err != nil {
		return Cluster{}, err
	}
	return readCluster(t, &opt)
}

// write returns jobs as a workload file.
func write(t *testing.T, jobs []Job) string {
	t.Helper()
	var b bytes.Buffer
	w := NewJobWriter(&b)
	for i := range jobs {
		if err := w.Write(&jobs[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const jobsHeader = "job,task,queue,kind,class,priority,gang,pods,gpu_milli,cpu_milli,mem_mib,gpu_models," +
	"submit_s,duration_s,outcome,checkpoint_s,locked,topology,affinity\n"

const clusterHeader = "node,gpu_model,gpus,cpu_milli,mem_mib,leaf,spine,superspine,hbd,labels\n"

// withDevices is the header of a cluster with the optional column.
const withDevices = "node,gpu_model,gpus,cpu_milli,mem_mib,leaf,spine,superspine,hbd,labels,devices\n"

func TestReadMusterJobs(t *testing.T) {
	got, err := collect(jobsHeader+
		`llm,driver,research,training,HP,70,true,1,0,4000,8192,,0.25,3600,failed,900,true,required=spine;preferred=leaf,label:driver;near:leaf:llm`+"\n"+
		`llm,worker,research,training,HP,70,true,4-8,8000,96000,524288,H800|A100,0.25,3600,failed,900,true,required=spine;preferred=leaf,"label:llm;apart:node:llm;disk=ssd|nvme;zone!=b;fast;!slow;tolerate:team=x"`+"\n"+
		`"odd,name",,"say ""hi""",dev,LP,-3,false,2,250,500,1024,,1.000000001,0,cancelled,0,false,leaf,`+"\n", Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Job{
		{
			Job: core.Job{
				Name: "llm", Queue: "research", Priority: 70, Gang: true, Locked: true,
				Tasks: []core.Task{
					{
						Name: "driver", Pods: 1, Request: core.Request{CPUMilli: 4000, MemMiB: 8192},
						Labels: []string{"driver"}, Affinity: []core.Term{{Level: "leaf", Label: "llm"}},
					},
					{Name: "worker", Pods: 8, MinPods: 4, Request: core.Request{
						GPU: 8000, CPUMilli: 96000, MemMiB: 524288, Models: []string{"H800", "A100"},
						Selector: []core.Requirement{
							{Key: "disk", Op: cluster.In, Values: []string{"ssd", "nvme"}},
							{Key: "zone", Op: cluster.NotIn, Values: []string{"b"}},
							{Key: "fast", Op: cluster.Exists},
							{Key: "slow", Op: cluster.DoesNotExist},
						},
						Tolerations: []core.Toleration{{Key: "team", Value: "x"}},
					}, Labels: []string{"llm"}, Affinity: []core.Term{{Level: "node", Label: "llm", Anti: true}}},
				},
				Topology:   core.TopologyRequest{Required: "spine", Preferred: "leaf"},
				Submitted:  core.Second / 4,
				Checkpoint: 900 * core.Second,
			},
			Duration: 3600 * core.Second, Outcome: Failed,
		},
		{
			Job: core.Job{
				Name: "odd,name", Queue: `say "hi"`, Kind: core.Dev, Class: core.LP, Priority: -3,
				Tasks:     []core.Task{{Pods: 2, Request: core.Request{GPU: 250, CPUMilli: 500, MemMiB: 1024}}},
				Topology:  core.TopologyRequest{Required: "leaf"},
				Submitted: core.Second + 1,
			},
			Outcome: Cancelled,
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Reading what was written gives the same jobs, and writing them again the same
// bytes.
func TestJobsRoundTrip(t *testing.T) {
	for seed := range uint64(200) {
		jobs := randomJobs(rand.New(rand.NewPCG(seed, 1)), 20)
		text := write(t, jobs)
		back, err := collect(text, Options{})
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		if !reflect.DeepEqual(back, jobs) {
			t.Fatalf("seed %d:\ngot  %+v\nwant %+v", seed, back, jobs)
		}
		if again := write(t, back); again != text {
			t.Fatalf("seed %d: written again:\n%s\nfirst:\n%s", seed, again, text)
		}
	}
}

func TestClusterRoundTrip(t *testing.T) {
	for seed := range uint64(200) {
		c := randomCluster(rand.New(rand.NewPCG(seed, 2)))
		var first, second bytes.Buffer
		if err := WriteCluster(&first, c); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		back, err := load(first.String(), Options{})
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, first.String())
		}
		if !reflect.DeepEqual(back, c) {
			t.Fatalf("seed %d:\ngot  %+v\nwant %+v", seed, back, c)
		}
		if err := WriteCluster(&second, back); err != nil || first.String() != second.String() {
			t.Fatalf("seed %d: written again (%v):\n%s\nfirst:\n%s", seed, err, second.String(), first.String())
		}
	}
}

// A name from letters that CSV, affinity and topology treat specially, less
// those given.
func randomName(rng *rand.Rand, not string) string {
	letters := strings.Map(func(r rune) rune {
		if strings.ContainsRune(not, r) {
			return -1
		}
		return r
	}, `ab",:=!|; é-`)
	var b strings.Builder
	runes := []rune(letters)
	for range 1 + rng.IntN(5) {
		b.WriteRune(runes[rng.IntN(len(runes))])
	}
	return b.String()
}

// some returns up to three of what f makes, nil for none.
func some[T any](rng *rand.Rand, f func() T) []T {
	var all []T
	for range rng.IntN(4) {
		all = append(all, f())
	}
	return all
}

func randomTime(rng *rand.Rand, most core.Time) core.Time {
	units := []core.Time{1, 1000, core.Second / 10, core.Second, 60 * core.Second}
	unit := units[rng.IntN(len(units))]
	return core.Time(rng.Int64N(int64(most/unit))) * unit
}

func randomJobs(rng *rand.Rand, n int) []Job {
	jobs := make([]Job, n)
	var at core.Time
	for i := range jobs {
		j := &jobs[i]
		at += randomTime(rng, Endless/core.Time(n))
		*j = Job{
			Job: core.Job{
				Name: fmt.Sprint(randomName(rng, ""), i), Queue: randomName(rng, ""),
				Kind: core.Kind(rng.IntN(len(core.Kinds))), Class: core.Class(rng.IntN(2)), Priority: int32(rng.Uint32()),
				Gang: rng.IntN(2) == 0, Locked: rng.IntN(2) == 0, Mobility: core.Mobility(rng.IntN(2)),
				Submitted: at, Checkpoint: randomTime(rng, Endless), SaveWithin: randomTime(rng, Endless),
			},
			Duration: randomTime(rng, Endless), Outcome: Outcome(rng.IntN(3)),
		}
		if rng.IntN(2) == 0 {
			j.Profile = randomName(rng, "")
		}
		if rng.IntN(2) == 0 {
			j.Topology.Required = randomName(rng, "=;")
		}
		if rng.IntN(2) == 0 {
			j.Topology.Preferred = randomName(rng, "=;")
		}
		if rng.IntN(2) == 0 {
			j.Topology.Closeness = 1 + rng.Int64N(core.MaxCloseness)
		}
		for k := range 1 + rng.IntN(3) {
			j.Tasks = append(j.Tasks, randomTask(rng, k, j.Gang))
		}
	}
	return jobs
}

func randomTask(rng *rand.Rand, k int, gang bool) core.Task {
	task := core.Task{
		Name:   fmt.Sprint(k, randomName(rng, "")),
		Pods:   1 + rng.IntN(100),
		Labels: some(rng, func() string { return randomName(rng, ";") }),
		Affinity: some(rng, func() core.Term {
			return core.Term{Level: randomName(rng, ":;"), Label: randomName(rng, ";"), Anti: rng.IntN(2) == 0}
		}),
		Prefers: some(rng, func() core.Preference {
			if rng.IntN(2) == 0 {
				return core.Preference{Weight: 1 + rng.Int32N(100), Level: "leaf", Label: randomName(rng, ";")}
			}
			return core.Preference{Weight: -1 - rng.Int32N(100), Selector: []core.Requirement{{Key: "disk", Op: cluster.In, Values: []string{"ssd", "hdd"}}, {Key: "old", Op: cluster.DoesNotExist}}}
		}),
		Request: core.Request{
			GPU: core.Milli(rng.IntN(1000)), CPUMilli: rng.Int64N(maxCPUMilli), MemMiB: rng.Int64N(maxMemMiB),
			Models: some(rng, func() string { return randomName(rng, "|=") }),
			Selector: some(rng, func() core.Requirement {
				r := core.Requirement{Key: randomName(rng, "!=:;"), Op: cluster.Op(rng.IntN(4))}
				if r.Op == cluster.In || r.Op == cluster.NotIn {
					r.Values = append(some(rng, func() string { return randomName(rng, "|;") }), "")
				}
				return r
			}),
			Tolerations: some(rng, func() core.Toleration {
				return core.Toleration{Key: randomName(rng, "=;"), Value: randomName(rng, ";"), Effect: randomName(rng, "=:;!")}
			}),
		},
	}
	if rng.IntN(2) == 0 {
		task.GPU = core.Milli(rng.IntN(cluster.MaxGPUs+1)) * core.WholeGPU
	}
	if gang && rng.IntN(2) == 0 {
		task.MinPods = 1 + rng.IntN(task.Pods)
	}
	return task
}

func randomCluster(rng *rand.Rand) Cluster {
	c := Cluster{Levels: []string{}}
	for _, l := range levels {
		if rng.IntN(3) > 0 {
			c.Levels = append(c.Levels, l)
		}
	}
	for i := range 1 + rng.IntN(10) {
		n := core.Node{
			Name: fmt.Sprint(randomName(rng, ""), i), GPUs: rng.IntN(cluster.MaxGPUs + 1),
			CPUMilli: rng.Int64N(maxCPUMilli), MemMiB: rng.Int64N(maxMemMiB), Domains: []string{},
			Taints: some(rng, func() core.Taint {
				return core.Taint{Key: randomName(rng, "=;"), Value: randomName(rng, ";"), Effect: randomName(rng, "=:;!")}
			}),
		}
		if n.GPUs > 0 {
			n.Model = randomName(rng, "|")
		}
		if rng.IntN(2) == 0 {
			n.HBD = randomName(rng, "")
		}
		if rng.IntN(3) == 0 {
			for range n.GPUs {
				position := func() int8 { return int8(rng.IntN(65) - 1) }
				n.Devices = append(n.Devices, core.Device{Island: position(), PCIe: position(), NUMA: position(), NIC: position()})
			}
		}
		for range rng.IntN(3) {
			if n.Labels == nil {
				n.Labels = make(map[string]string)
			}
			n.Labels[randomName(rng, "=;:")] = randomName(rng, ";")
		}
		for range c.Levels {
			n.Domains = append(n.Domains, randomName(rng, ""))
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

// What a file cannot express is refused by the writer, not altered.
func TestWritersRefuse(t *testing.T) {
	good := func() Job {
		var j Job
		j.Name, j.Queue = "j", "q"
		j.Tasks = []core.Task{{Pods: 1}}
		return j
	}
	for name, spoil := range map[string]func(*Job){
		"NotPreemptible":            func(j *Job) { j.NotPreemptible = true },
		"no task":                   func(j *Job) { j.Tasks = nil },
		"no name":                   func(j *Job) { j.Name = "" },
		"a line break in a name":    func(j *Job) { j.Name = "a\nb" },
		"not UTF-8":                 func(j *Job) { j.Queue = "\xff" },
		"a time below 0":            func(j *Job) { j.Submitted = -1 },
		"a time without end":        func(j *Job) { j.Duration = core.Never },
		"MinPods outside a gang":    func(j *Job) { j.Tasks[0].MinPods = 1 },
		"no pods":                   func(j *Job) { j.Tasks[0].Pods = 0 },
		"one GPU and a half":        func(j *Job) { j.Tasks[0].GPU = 1500 },
		"a model with a speed":      func(j *Job) { j.Tasks[0].Models = []string{"a=1"} },
		"a model with a separator":  func(j *Job) { j.Tasks[0].Models = []string{"a|b"} },
		"a label with a separator":  func(j *Job) { j.Tasks[0].Labels = []string{"a;b"} },
		"a level with a separator":  func(j *Job) { j.Topology.Required = "a=b" },
		"a term without a level":    func(j *Job) { j.Tasks[0].Affinity = []core.Term{{Label: "x"}} },
		"a toleration, key with =":  func(j *Job) { j.Tasks[0].Tolerations = []core.Toleration{{Key: "a=b"}} },
		"a condition without value": func(j *Job) { j.Tasks[0].Selector = []core.Requirement{{Key: "k", Op: cluster.In}} },
		"a condition, key with !":   func(j *Job) { j.Tasks[0].Selector = []core.Requirement{{Key: "!k", Op: cluster.Exists}} },
	} {
		j := good()
		w := NewJobWriter(io.Discard)
		if err := w.Write(&j); err != nil {
			t.Fatal(err)
		}
		spoil(&j)
		if err := w.Write(&j); err == nil {
			t.Errorf("%s: written", name)
		}
	}
	for name, c := range map[string]Cluster{
		"unknown level":        {Levels: []string{"zone"}, Nodes: []core.Node{{Name: "n"}}},
		"levels the wrong way": {Levels: []string{"leaf", "spine"}, Nodes: []core.Node{{Name: "n"}}},
		"cordoned":             {Nodes: []core.Node{{Name: "n", Cordoned: true}}},
		"an island past 63":    {Nodes: []core.Node{{Name: "n", Model: "A", GPUs: 1, Devices: []core.Device{{Island: 64}}}}},
		"unhealthy":            {Nodes: []core.Node{{Name: "n", Model: "A", GPUs: 1, Unhealthy: []int{0}}}},
		"GPUs of no model":     {Nodes: []core.Node{{Name: "n", GPUs: 1}}},
		"label with ;":         {Nodes: []core.Node{{Name: "n", Labels: map[string]string{"a": "b;c=d"}}}},
		"label like a taint":   {Nodes: []core.Node{{Name: "n", Labels: map[string]string{"taint:a": "b"}}}},
	} {
		if err := WriteCluster(io.Discard, c); err == nil {
			t.Errorf("cluster with %s: written", name)
		}
	}
}

// The empty workload has a header and no jobs.
func TestEmptyWorkload(t *testing.T) {
	text := write(t, nil)
	if want := strings.TrimSuffix(jobsHeader, "\n") + ",mobility,standby,user,profile,suspend,combinations,alternatives,checkpoint_within_s\n"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	if jobs, err := collect(text, Options{}); err != nil || len(jobs) != 0 {
		t.Errorf("got %v, %v, want nothing", jobs, err)
	}
}

// manyJobs returns a workload file of n jobs of the kind that millions are of.
func manyJobs(b *testing.B, n int) []byte {
	b.Helper()
	var out bytes.Buffer
	w := NewJobWriter(&out)
	for i := range n {
		j := benchJob(i)
		if err := w.Write(&j); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	return out.Bytes()
}

func benchJob(i int) Job {
	j := trainingJob(fmt.Sprintf("job-%08d", i), int64(1+i%8))
	j.Queue = tenant(i % 300)
	j.Submitted, j.Duration = core.Time(i)*core.Second/3, core.Time(i%100000)*core.Second
	j.Tasks[0].CPUMilli, j.Tasks[0].MemMiB, j.Tasks[0].Models = 8000, 65536, []string{"H800"}
	return j
}

func BenchmarkReadJobs(b *testing.B) {
	const rows = 100_000
	plain := manyJobs(b, rows)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(plain)
	z.Close()
	for _, input := range []struct {
		name string
		text []byte
	}{{"plain", plain}, {"gzip", packed.Bytes()}} {
		b.Run(input.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(plain)))
			for b.Loop() {
				t, err := newTable("f", bytes.NewReader(input.text))
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				readJobs(t, &Options{}, func(j Job, err error) bool {
					if err != nil {
						b.Fatal(err)
					}
					n++
					return true
				})
				if n != rows {
					b.Fatal(n)
				}
			}
			b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func BenchmarkWriteJobs(b *testing.B) {
	j := benchJob(7)
	w := NewJobWriter(io.Discard)
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Write(&j); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
