package workload

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/core"
)

const openbHeader = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"

// line is a job in few words.
func line(j *Job) string {
	s := fmt.Sprintf("%s %s %s %s %d @%v for %v %s:", j.Name, j.Queue, j.Kind, j.Class, j.Priority,
		j.Submitted.Seconds(), j.Duration.Seconds(), j.Outcome)
	if j.Gang {
		s += " gang"
	}
	for i := range j.Tasks {
		t := &j.Tasks[i]
		s += fmt.Sprintf(" %dx%d/%d/%d%v", t.Pods, t.GPU, t.CPUMilli, t.MemMiB, t.Models)
	}
	return s
}

func lines(jobs []Job) string {
	var b strings.Builder
	for i := range jobs {
		b.WriteString(line(&jobs[i]) + "\n")
	}
	return b.String()
}

func TestTraceFormats(t *testing.T) {
	for _, test := range []struct {
		name, file string
		opt        Options
		want       string
	}{
		{
			name: "openb pods are sorted; a failed one fails, a pending one runs from its creation",
			file: "openb_pods.csv",
			want: `
				b default batch LP 0 @50 for 20 completed: 1x460/4000/8192[]
				a default inference HP 100 @100 for 40 failed: 1x1000/8000/16384[V9 W2]
				c default batch HP 50 @100 for 7 completed: 1x4000/32000/0[]
				d default batch HP 100 @120 for 0 completed: 1x0/1000/512[]`,
		},
		{
			name: "openb lists without times: all at once, in their order, endless",
			file: "openb_untimed.csv",
			want: `
				y default inference HP 100 @0 for 3.1536e+09 completed: 1x500/1000/1024[]
				x default inference HP 100 @0 for 3.1536e+09 completed: 1x2000/2000/2048[]`,
		},
		{
			name: "philly jobs beyond a node are gangs of whole nodes and a rest",
			file: "philly_jobs.csv",
			want: `
				7 default training HP 50 @0 for 60 completed: 1x1000/0/0[]
				8 red training HP 50 @30 for 90 completed: 1x8000/0/0[]
				9 blue training HP 50 @86400 for 10.5 completed: gang 2x8000/0/0[] 1x4000/0/0[]
				10 red training HP 50 @86460 for 5 completed: gang 2x8000/0/0[]`,
		},
		{
			name: "philly by wall clock, counted from the first job kept",
			file: "philly_jobs.csv",
			opt:  Options{FromWall: date(2021, 3, 2), ToWall: date(2021, 3, 2).Add(time.Minute), Rebase: true},
			want: `
				9 blue training HP 50 @0 for 10.5 completed: gang 2x8000/0/0[] 1x4000/0/0[]`,
		},
		{
			name: "a selection by time and duration",
			file: "philly_jobs.csv",
			opt:  Options{From: 30 * core.Second, To: 86460 * core.Second, MaxDuration: 60 * core.Second},
			want: `
				9 blue training HP 50 @86400 for 10.5 completed: gang 2x8000/0/0[] 1x4000/0/0[]`,
		},
		{
			name: "tenants that the cluster does not know wait in the default queue",
			file: "philly_jobs.csv",
			opt:  Options{Cluster: queues("blue", "default"), MinDuration: 6 * core.Second},
			want: `
				7 default training HP 50 @0 for 60 completed: 1x1000/0/0[]
				8 default training HP 50 @30 for 90 completed: 1x8000/0/0[]
				9 blue training HP 50 @86400 for 10.5 completed: gang 2x8000/0/0[] 1x4000/0/0[]`,
		},
		{
			name: "lingjun",
			file: "lingjun_jobs.csv",
			want: `
				0 default training HP 50 @0 for 720 completed: gang 6x8000/0/0[] 1x1000/0/0[]
				1 default training HP 50 @60 for 0 completed: 1x4000/0/0[]`,
		},
		{
			name: "chronus counts minutes; best effort is LP",
			file: "chronus_jobs.csv",
			want: `
				a1 red training HP 50 @60 for 180 completed: 1x2000/0/0[]
				a2 red training LP 0 @120 for 60 completed: gang 2x8000/0/0[]
				a3 blue training HP 50 @150 for 60 completed: 1x0/1000/0[]`,
		},
		{
			name: "acme",
			file: "acme_jobs.csv",
			want: `
				0 default training HP 50 @0 for 104.5 completed: gang 4x8000/120000/1024000[]
				1 default training HP 100 @313 for 78 completed: 1x2000/25000/1536[]`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", test.file))
			if err != nil {
				t.Fatal(err)
			}
			jobs, err := collect(string(text), test.opt)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.ReplaceAll(strings.TrimPrefix(test.want, "\n"), "\t", "") + "\n"
			if got := lines(jobs); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func date(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// queues returns a cluster with queues and a large node.
func queues(names ...string) *Cluster {
	c, err := ParseSpec("4x8", Options{})
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		c.Queues = append(c.Queues, core.Queue{Name: name})
	}
	return &c
}

func TestTraceClusters(t *testing.T) {
	for _, test := range []struct {
		name, file string
		opt        Options
		want       string
	}{
		{
			name: "openb: leaf groups of one model, CPU-only nodes among them",
			file: "openb_nodes.csv",
			opt:  Options{LeafSize: 2, SpineSize: 2},
			want: `
				[superspine spine leaf]
				a V9 2/64000/262144 [superspine-0 spine-0 leaf-0]
				b  0/32000/131072 [superspine-0 spine-1 leaf-2]
				c V9 2/64000/262144 [superspine-0 spine-0 leaf-0]
				d V9 4/96000/0 [superspine-0 spine-0 leaf-1]`,
		},
		{
			name: "lingjun: its own topology",
			file: "lingjun_hosts.csv",
			want: `
				[superspine spine leaf]
				h0 GPU 8/192000/2097152 [D1 P1 A1]
				h1 GPU 8/192000/2097152 [D1 P2 A1]`,
		},
		{
			name: "spot: memory by GPUs",
			file: "spot_nodes.csv",
			want: `
				[superspine spine leaf]
				node-0 B7 1/64000/262144 [superspine-0 spine-0 leaf-0]
				node-1 C3 8/192000/2097152 [superspine-0 spine-0 leaf-1]`,
		},
		{
			name: "muster: levels that no node has are dropped",
			file: "muster_cluster.csv",
			want: `
				[spine leaf]
				n0 H800 8/192000/2097152 [s0 l0] hbd=h0 map[zone:east] [{team x }]
				n1  0/64000/131072 [s0 ]`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := OpenCluster(filepath.Join("testdata", test.file), test.opt)
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintln(c.Levels)
			for _, n := range c.Nodes {
				got += fmt.Sprintf("%s %s %d/%d/%d %v", n.Name, n.Model, n.GPUs, n.CPUMilli, n.MemMiB, n.Domains)
				if n.HBD != "" {
					got += fmt.Sprintf(" hbd=%s %v %v", n.HBD, n.Labels, n.Taints)
				}
				got += "\n"
			}
			want := strings.ReplaceAll(strings.TrimPrefix(test.want, "\n"), "\t", "") + "\n"
			if got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// Philly's virtual clusters own the GPUs of their nodes, if quotas are wanted.
func TestPhillyQueues(t *testing.T) {
	const file = "testdata/philly_cluster.csv"
	c, err := OpenCluster(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []core.Queue{{Name: "default", Weight: 1}, {Name: "red", Weight: 1}, {Name: "blue", Weight: 1}}
	if len(c.Nodes) != 5 || !reflect.DeepEqual(c.Queues, want) {
		t.Errorf("got %d nodes, queues %+v", len(c.Nodes), c.Queues)
	}
	if c, err = OpenCluster(file, Options{Quotas: true}); err != nil {
		t.Fatal(err)
	}
	var nominal []core.Milli
	for _, q := range c.Queues[1:] {
		if q.Parent != c.Queues[0].Name {
			t.Errorf("%s is not under %s", q.Name, c.Queues[0].Name)
		}
		nominal = append(nominal, q.Quota[0].Nominal)
	}
	if !slices.Equal(nominal, []core.Milli{0, 16000, 24000}) {
		t.Errorf("got quotas %v", nominal)
	}
}

func TestParseSpec(t *testing.T) {
	c, err := OpenCluster("2x8:H800,1x4:A10,1x0", Options{LeafSize: 1, SpineSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range c.Nodes {
		got = append(got, fmt.Sprintf("%s %s %d %d %d %s", n.Name, n.Model, n.GPUs, n.CPUMilli, n.MemMiB, strings.Join(n.Domains, "/")))
	}
	want := []string{
		"node-00000 H800 8 192000 2097152 superspine-0/spine-0/leaf-0",
		"node-00001 H800 8 192000 2097152 superspine-0/spine-0/leaf-1",
		"node-00002 A10 4 96000 1048576 superspine-0/spine-1/leaf-2",
		"node-00003  0 96000 524288 superspine-0/spine-1/leaf-3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for spec, want := range map[string]string{
		"0x8":            `0x8: NODESxGPUS[:MODEL],… with at most 200000 nodes in all and 64 GPUs a node, found "0x8"`,
		"1x65":           `1x65: NODESxGPUS[:MODEL],… with at most 200000 nodes in all and 64 GPUs a node, found "1x65"`,
		"200000x8,1x8":   `200000x8,1x8: NODESxGPUS[:MODEL],… with at most 200000 nodes in all and 64 GPUs a node, found "1x8"`,
		"4x8,":           `4x8,: NODESxGPUS[:MODEL],… with at most 200000 nodes in all and 64 GPUs a node, found ""`,
		"4x0:A":          `4x0:A: a GPU model after the colon of nodes with GPUs, found "4x0:A"`,
		"9999999999x8":   `9999999999x8: NODESxGPUS[:MODEL],… with at most 200000 nodes in all and 64 GPUs a node, found "9999999999x8"`,
		"2x8_nodes.csv":  `2x8_nodes.csv: NODESxGPUS[:MODEL],… with at most 200000 nodes in all and 64 GPUs a node, found "2x8_nodes.csv"`,
		"no-such-x8.csv": `no-such-x8.csv: a readable file or a built-in name: no such file or directory`,
	} {
		if _, err := OpenCluster(spec, Options{}); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// Every range over the jobs of a file starts at its beginning, also after one
// that was broken off.
func TestRangeAgain(t *testing.T) {
	jobs, format, err := OpenJobs("testdata/lingjun_jobs.csv", Options{})
	if err != nil || format != "lingjun" {
		t.Fatal(format, err)
	}
	for range jobs {
		break
	}
	for range 2 {
		var names []string
		for j, err := range jobs {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, j.Name)
		}
		if !slices.Equal(names, []string{"0", "1"}) {
			t.Errorf("got %v", names)
		}
	}
}

func TestWallClockNeedsATraceWithIt(t *testing.T) {
	const want = "testdata/lingjun_jobs.csv: a trace with wall-clock times to select by, found format lingjun"
	if _, _, err := OpenJobs("testdata/lingjun_jobs.csv", Options{FromWall: date(2021, 1, 1)}); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// traceDir returns the folder of the public traces, or skips the test.
func traceDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("MUSTER_TRACES")
	if dir == "" {
		dir = "../../shared/traces"
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("public traces not found: set MUSTER_TRACES to their folder (%v)", err)
	}
	return dir
}

// The public traces have the sizes that their documentation states, and their
// jobs read back the same from Muster's own format.
func TestPublicTraces(t *testing.T) {
	dir := traceDir(t)
	for _, test := range []struct {
		file, cluster string
		jobs          int
	}{
		{"philly/jobs.csv.gz", "philly/vc_nodes.csv", 66992},
		{"openb-v2023/openb_pod_list_default.csv.gz", "openb-v2023/openb_node_list_gpu_node.csv.gz", 8152},
		{"openb-v2023/openb_pod_list_gpuspec10.csv.gz", "openb-v2023/openb_node_list_all_node.csv.gz", 8152},
		{"openb-v2023/openb_pod_list_multigpu20.csv.gz", "openb-v2023/openb_node_list_gpu_node.csv.gz", 8324},
		{"lingjun-2023/jobs.csv.gz", "lingjun-2023/topo.csv.gz", 1530},
		{"chronus-philly/trace_job_Philly_SLO.csv.gz", "philly/vc_nodes.csv", 21536},
		{"chronus-philly/trace_job_Philly_MIX1.csv.gz", "philly/vc_nodes.csv", 21649},
		{"chronus-philly/trace_job_Philly_MIX2.csv.gz", "philly/vc_nodes.csv", 21465},
		{"acme/kalos_completed_319.csv", "302x8:A100", 229},
	} {
		t.Run(test.file, func(t *testing.T) {
			where := test.cluster
			if !isSpec(where) {
				where = filepath.Join(dir, where)
			}
			c, err := OpenCluster(where, Options{})
			if err != nil {
				t.Fatal(err)
			}
			jobs, _, err := OpenJobs(filepath.Join(dir, test.file), Options{Cluster: &c})
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
			if len(all) != test.jobs {
				t.Errorf("got %d jobs, want %d", len(all), test.jobs)
			}
			back, err := collect(write(t, all), Options{})
			if err != nil || !reflect.DeepEqual(back, all) {
				t.Errorf("does not read back the same (%v)", err)
			}
		})
	}
}

func TestPublicClusters(t *testing.T) {
	dir := traceDir(t)
	for file, want := range map[string]struct{ nodes, gpus int }{
		"openb-v2023/openb_node_list_gpu_node.csv.gz": {1213, 6212},
		"openb-v2023/openb_node_list_all_node.csv.gz": {1523, 6212},
		"philly/vc_nodes.csv":                         {352, 2816},
		"lingjun-2023/topo.csv.gz":                    {847, 6776},
		"spot-gpu-v2026/node_info_df.csv.gz":          {4278, 10412},
	} {
		c, err := OpenCluster(filepath.Join(dir, file), Options{})
		if err != nil {
			t.Error(err)
			continue
		}
		gpus := 0
		for i := range c.Nodes {
			gpus += c.Nodes[i].GPUs
		}
		if len(c.Nodes) != want.nodes || gpus != want.gpus {
			t.Errorf("%s: got %d nodes with %d GPUs, want %d with %d", file, len(c.Nodes), gpus, want.nodes, want.gpus)
		}
	}
}
