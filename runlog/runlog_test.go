package runlog

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

func small() *workload.Cluster {
	return &workload.Cluster{
		Levels: []string{"leaf"},
		Nodes: []core.Node{
			{Name: "n0", Model: "A100", GPUs: 2, CPUMilli: 4000, MemMiB: 1024, Domains: []string{"l0"}},
			{Name: "n1", Model: "A100", GPUs: 2, CPUMilli: 4000, MemMiB: 1024, Domains: []string{"l0"}},
		},
		Queues: []core.Queue{{Name: "q", Weight: 1, Quota: []core.Quota{{
			Model: "*", Nominal: 1500, BorrowingLimit: core.Unlimited,
		}}}},
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func live(name string, gpu core.Milli, submitted core.Time) *sim.Live {
	return &sim.Live{Pods: 1, Job: workload.Job{Job: core.Job{
		Name: name, Queue: "q", Submitted: submitted,
		Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: gpu, CPUMilli: 1000, MemMiB: 64}}},
	}}}
}

// short says that a GPU is lacking.
type short struct{}

func (short) Why(string) (core.Reason, string, bool) {
	return core.Resources, "2 GPUs, 1 is free", true
}
func (short) Counted() int { return 1 }

// drive makes a small run: job a runs from 1.5 s to 11.5 s, b runs from 3 s and
// loses its node at 20 s, c is rejected.
func drive(t *testing.T, w *Writer, c *workload.Cluster) {
	t.Helper()
	for i := range c.Nodes {
		ok(t, w.Node(0, &c.Nodes[i], true))
	}
	const s = core.Second
	a, b, d := live("a", 2000, s), live("b", 500, 2*s), live("c,d", 9000, 3*s)
	onA := []core.Placement{{Node: "n0", GPUs: 0b11, GPU: 1000, CPUMilli: 1000, MemMiB: 64}}
	onB := []core.Placement{{Node: "n1", GPUs: 0b10, GPU: 500, CPUMilli: 1000, MemMiB: 64}}
	ok(t, w.Submitted(s, a))
	ok(t, w.Bound(s*3/2, a, onA, core.Placed))
	ok(t, w.Submitted(2*s, b))
	w.Passed(2*s, 1, func() sim.Inquiry { return short{} }, false)
	ok(t, w.Submitted(3*s, d))
	ok(t, w.Ended(3*s, d, &sim.Rejection{Reason: core.NoNode, Detail: "no node is large enough"}))
	ok(t, w.Bound(3*s, b, onB, core.Backfilled))
	ok(t, w.Released(s*23/2, a, onA, sim.Finished, sim.Eviction{}))
	ok(t, w.Ended(s*23/2, a, nil))
	ok(t, w.Released(20*s, b, onB, sim.NodeLost, sim.Eviction{}))
	ok(t, w.Node(20*s, &c.Nodes[1], false))
}

func content(t *testing.T, dir, name string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, name))
	ok(t, err)
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		in, err = gzip.NewReader(f)
		ok(t, err)
	}
	b, err := io.ReadAll(in)
	ok(t, err)
	return string(b)
}

func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := Create(dir, small(), metrics.Options{})
	ok(t, err)
	drive(t, w, small())
	s, err := w.Close(Facts{Policy: "default", Seed: 7, Decisions: 3, Wall: time.Second / 2})
	ok(t, err)
	if s.DecisionsPerSecond != 6 || s.Policy != "default" || s.Seed != 7 || s.PeakRSSMiB <= 0 {
		t.Errorf("summary = %+v", s)
	}
	for name, want := range map[string]string{
		Log: `{"t":1.5,"op":"bind","job":"a","pod":"a-0","node":"n0","gpus":[0,1],"milli":1000,"cpu_milli":1000,"mem_mib":64,"reason":"Placed"}
{"t":3,"op":"bind","job":"b","pod":"b-0","node":"n1","gpus":[1],"milli":500,"cpu_milli":1000,"mem_mib":64,"reason":"Backfilled"}
{"t":11.5,"op":"release","job":"a","pod":"a-0","node":"n0","gpus":[0,1],"milli":1000,"cpu_milli":1000,"mem_mib":64,"reason":"finished"}
{"t":20,"op":"release","job":"b","pod":"b-0","node":"n1","gpus":[1],"milli":500,"cpu_milli":1000,"mem_mib":64,"reason":"node_lost"}
`,
		Jobs: `job,queue,kind,class,priority,gang,pods,gpus,submit_s,start_s,end_s,wait_s,queued_s,nodes,groups,fewest_nodes,fewest_groups,evictions,lost_gpu_s,asked,times,reason,asked_s,detail,outcome,user
"c,d",q,training,HP,0,false,1,9,3,,3,,0,0,0,0,0,0,0,1,1,NoNode,3,no node is large enough,rejected,
a,q,training,HP,0,false,1,2,1,1.5,11.5,0.5,0.5,1,1,1,1,0,0,0,0,,,,completed,
b,q,training,HP,0,false,1,0.5,2,3,,1,1,1,1,1,1,0,0,1,1,Resources,2,"2 GPUs, 1 is free",pending,
`,
		Nodes: "t,node,up,cordoned,unhealthy,after\n20,n1,false,false,,4\n",
		Queues: `{
  "queues": [
    {
      "name": "q",
      "weight": 1,
      "mode": "Shared",
      "quota": [
        {
          "model": "*",
          "nominal": 1.5,
          "lendingLimit": 0
        }
      ]
    }
  ]
}
`,
		Waits: `job,queue,kind,class,pods,gpus,submit_s,wait_s,waits,asked,times,reason,asked_s,detail
b,q,training,HP,1,0.5,2,1,false,1,1,Resources,2,"2 GPUs, 1 is free"
a,q,training,HP,1,2,1,0.5,false,0,0,,,
`,
	} {
		if got := content(t, dir, name); got != want {
			t.Errorf("%s is\n%swant\n%s", name, got, want)
		}
	}
	for _, name := range []string{Summary, Cluster, Workload, Timeseries, Page} {
		if content(t, dir, name) == "" {
			t.Errorf("%s is empty", name)
		}
	}
	rows := content(t, dir, Timeseries)
	for _, want := range []string{"\n0,0,4,0,0,0\n", "\n1,0,4,0,1,0\n", "\n3,2.5,4,1,0,2\n", "\n19,0.5,4,1,0,1\n", "\n20,0,2,0,1,0\n"} {
		if !strings.Contains(rows, want) {
			t.Errorf("%s lacks %q:\n%s", Timeseries, want, rows)
		}
	}

	back, err := Read(dir)
	ok(t, err)
	if len(back.Cluster.Nodes) != 2 || len(back.Cluster.Queues) != 1 || back.Cluster.Queues[0].Quota[0].Nominal != 1500 {
		t.Errorf("read back the cluster %+v", back.Cluster)
	}
	want := w.history()
	want.Frames[0].Queues = []core.Milli{0} // the queue was not there yet
	if h := back.History; len(h.Frames) != 2 || !reflect.DeepEqual(h, want) {
		t.Errorf("read back the history\n%+v want\n%+v", h, want)
	}
	if len(back.Longest) != 2 || back.Longest[0].Job != "b" || back.Longest[0].Waited != core.Second || back.Longest[1].Job != "a" {
		t.Errorf("read back the longest waits %+v", back.Longest)
	}
	if back.Summary.DecisionSHA256 != s.DecisionSHA256 || back.Name != "default" {
		t.Errorf("read back %+v", back.Summary)
	}
	if n := len(back.Series); n != 21 || back.Series[4].GAR() != 2.5/4 || back.Series[4].GPUNodes != 2 {
		t.Errorf("read back %d rows, the fifth %+v", n, back.Series[4])
	}
}

func TestHashNeedsNoFolder(t *testing.T) {
	var sums [2]string
	for i, dir := range []string{"", t.TempDir()} {
		w, err := Create(dir, small(), metrics.Options{})
		ok(t, err)
		drive(t, w, small())
		s, err := w.Close(Facts{})
		ok(t, err)
		sums[i] = s.DecisionSHA256
	}
	if sums[0] != sums[1] || len(sums[0]) != 64 {
		t.Errorf("hash without a folder %s, with one %s", sums[0], sums[1])
	}
}

func TestForeignFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o666))
	_, err := Create(dir, small(), metrics.Options{})
	if !workload.IsBadInput(err) {
		t.Errorf("error %v, want bad input", err)
	}
	_, err = Create(filepath.Join(dir, "thesis.tex"), small(), metrics.Options{})
	if !workload.IsBadInput(err) {
		t.Errorf("for a file: error %v, want bad input", err)
	}
}

// A run that fails leaves the earlier one as it was; a later one replaces it.
func TestEarlierRun(t *testing.T) {
	dir := t.TempDir()
	run := func(policy string) *Writer {
		w, err := Create(dir, small(), metrics.Options{})
		ok(t, err)
		drive(t, w, small())
		return w
	}
	first := run("first")
	_, err := first.Close(Facts{Policy: "first"})
	ok(t, err)

	ok(t, run("second").Abort())
	if r, err := Read(dir); err != nil || r.Name != "first" {
		t.Errorf("after a failed run: %q, %v", r.Name, err)
	}
	if _, err := os.Stat(filepath.Join(dir, unfinished)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed run left its files: %v", err)
	}

	// The third has no lost node: the first's nodes.csv must go.
	third, err := Create(dir, small(), metrics.Options{})
	ok(t, err)
	_, err = third.Close(Facts{Policy: "third"})
	ok(t, err)
	if r, err := Read(dir); err != nil || r.Name != "third" {
		t.Errorf("after the third run: %q, %v", r.Name, err)
	}
	if _, err := os.Stat(filepath.Join(dir, Nodes)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s of the first run is still there: %v", Nodes, err)
	}
}

// However long the run, the rows are few, regular, and those that an exact
// sampling at the final interval takes.
func TestSeriesIsBounded(t *testing.T) {
	for _, step := range []core.Time{core.Second / 3, 17 * core.Second, 100000 * core.Second} {
		s := series[int64]{most: maxRows, interval: rowsEvery}
		now := int64(0)
		for i := range int64(20000) {
			s.until(core.Time(i)*step, func() int64 { return now })
			now = i
		}
		rows := s.rows
		if len(rows) > maxRows || len(rows) < maxRows/2 {
			t.Errorf("step %v: %d rows", step, len(rows))
		}
		for i, r := range rows {
			at := core.Time(i) * s.interval
			if want := int64(at / step); r != want {
				t.Fatalf("step %v: at %d state %d, want %d", step, at, r, want)
			}
		}
	}
}
