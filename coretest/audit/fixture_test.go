package audit

import (
	"bytes"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// fixture is a run folder written from readable lines.
type fixture struct {
	t    *testing.T
	w    *runlog.Writer
	node map[string]*core.Node
	jobs map[string]*sim.Live
	wait []workload.Job // in order of submission
	on   map[string]core.Placement
	to   map[string]core.Placement // of pods that are being moved
}

const clusterHeader = "node,gpu_model,gpus,cpu_milli,mem_mib,leaf,spine,superspine,hbd,labels\n"
const workloadHeader = "job,task,queue,kind,class,priority,gang,pods,gpu_milli,cpu_milli,mem_mib,gpu_models,submit_s,duration_s,outcome,checkpoint_s,locked,topology,affinity\n"

// write makes a run folder of a cluster, its queues, a workload (both as CSV
// without the header, which the workload may have) and a script of what was decided:
//
//	T bind POD NODE GPUS [MILLI]   GPUS as 0,1 or -; MILLI is per GPU
//	T again POD NODE GPUS          a bind to a place kept for a restart that makes room; asked: for
//	                               one that was requested; freed: for one that frees a node
//	T release POD REASON [FOR [TOLD]]   FOR - is no job
//	T migrate POD NODE GPUS, T room POD NODE GPUS FOR, T moved POD, T movefailed POD
//	T standby POD, T resume POD TOLD
//	T restart JOB, T hold JOB, T unhold JOB
//	T end JOB [rejected]
//	T lost NODE, T back NODE, T cordon NODE
//
// Lines of one job and instant that follow each other are one call. Nobody
// checks that the script makes sense: that is the audit's task.
func write(t *testing.T, nodes string, queues []core.Queue, jobs, script string) string {
	t.Helper()
	return writeBy(t, nil, nodes, queues, jobs, script)
}

// writeBy is write, by rules of the policy.
func writeBy(t *testing.T, r *metrics.Rules, nodes string, queues []core.Queue, jobs, script string) string {
	t.Helper()
	tmp := t.TempDir()
	save := func(name, text string) string {
		path := filepath.Join(tmp, name)
		must(t, os.WriteFile(path, []byte(text), 0o666))
		return path
	}
	c, err := workload.OpenCluster(save("c.csv", clusterHeader+nodes), workload.Options{})
	must(t, err)
	c.Queues = queues
	dir := filepath.Join(tmp, "run")
	f := &fixture{t: t, node: map[string]*core.Node{}, jobs: map[string]*sim.Live{}, on: map[string]core.Placement{}, to: map[string]core.Placement{}}
	f.w, err = runlog.Create(dir, &c, metrics.Options{})
	must(t, err)
	for i := range c.Nodes {
		f.node[c.Nodes[i].Name] = &c.Nodes[i]
		must(t, f.w.Node(0, &c.Nodes[i], true))
	}
	all, _, err := workload.OpenJobs(save("w.csv", header(jobs)+jobs), workload.Options{})
	must(t, err)
	for j, err := range all {
		must(t, err)
		f.wait = append(f.wait, j)
	}
	f.play(script)
	facts := runlog.Facts{Policy: "test", Rules: r}
	if r != nil {
		facts.Grace = core.Time(r.EvictGrace * float64(core.Second))
	}
	_, err = f.w.Close(facts)
	must(t, err)
	return dir
}

// header is that of workload files, unless the jobs bring their own.
func header(jobs string) string {
	if strings.HasPrefix(jobs, "job,") {
		return ""
	}
	return workloadHeader
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) play(script string) {
	var batch []core.Placement
	lines := strings.Split(strings.TrimSpace(script), "\n")
	for i, line := range lines {
		w := strings.Fields(line)
		at := f.time(w[0])
		f.submit(at)
		switch w[1] {
		case "bind", "again", "asked", "freed", "packed":
			p := f.placement(w)
			f.on[w[2]] = p
			batch = append(batch, p)
		case "release":
			batch = append(batch, f.on[w[2]])
		case "migrate", "room":
			p := f.placement(w)
			f.to[w[2]] = p
			why, by := core.Requested, ""
			if w[1] == "room" {
				why, by = core.Consolidation, w[5]
			}
			must(f.t, f.w.Moving(at, f.jobs[jobOf(w[2])], p, why, by))
			continue
		case "standby":
			warm := f.on[w[2]]
			warm.CPUMilli, warm.MemMiB = warm.CPUMilli/2, warm.MemMiB/2
			must(f.t, f.w.Standby(at, f.jobs[jobOf(w[2])], warm))
			continue
		case "restart", "hold", "unhold":
			what := map[string]sim.Recovered{"restart": sim.ToRestart, "hold": sim.ToHold, "unhold": sim.ToRelease}[w[1]]
			must(f.t, f.w.Recovered(at, f.jobs[w[2]], what))
			continue
		case "resume":
			must(f.t, f.w.Resumed(at, f.jobs[jobOf(w[2])], f.on[w[2]], f.time(w[3])))
			continue
		case "moved":
			old, to := f.on[w[2]], f.to[w[2]]
			f.on[w[2]] = to
			must(f.t, f.w.MoveOver(at, f.jobs[jobOf(w[2])], old, &to))
			continue
		case "movefailed":
			must(f.t, f.w.MoveOver(at, f.jobs[jobOf(w[2])], f.to[w[2]], nil))
			continue
		case "end":
			var rejected *sim.Rejection
			if len(w) > 3 {
				rejected = &sim.Rejection{Reason: core.NoNode}
			}
			must(f.t, f.w.Ended(at, f.jobs[w[2]], rejected))
			continue
		default:
			n := *f.node[w[2]]
			n.Cordoned = w[1] == "cordon"
			must(f.t, f.w.Node(at, &n, w[1] != "lost"))
			continue
		}
		if i+1 < len(lines) && sameCall(w, strings.Fields(lines[i+1])) {
			continue
		}
		f.call(at, w, batch)
		batch = nil
	}
}

// call makes the call that a bind or release line, the last of a batch, is of.
func (f *fixture) call(at core.Time, w []string, batch []core.Placement) {
	j := f.jobs[jobOf(w[2])]
	switch w[1] {
	case "bind":
		must(f.t, f.w.Bound(at, j, batch, core.Placed))
		return
	case "again":
		must(f.t, f.w.Bound(at, j, batch, core.Consolidation))
		return
	case "asked":
		must(f.t, f.w.Bound(at, j, batch, core.Requested))
		return
	case "freed":
		must(f.t, f.w.Bound(at, j, batch, core.Defragmentation))
		return
	case "packed":
		must(f.t, f.w.Bound(at, j, batch, core.Packed))
		return
	}
	by := sim.Eviction{Told: at}
	if len(w) > 4 && w[4] != "-" {
		by.For = w[4]
	}
	if len(w) > 5 {
		n, err := strconv.Atoi(w[5])
		must(f.t, err)
		by.Told = core.Time(n) * core.Second
	}
	for why := sim.Finished; why <= sim.LeaseOver; why++ {
		if why.String() == w[3] {
			must(f.t, f.w.Released(at, j, batch, why, by))
			return
		}
	}
	f.t.Fatalf("no reason %q", w[3])
}

func sameCall(a, b []string) bool {
	return len(b) > 3 && a[0] == b[0] && a[1] == b[1] && jobOf(a[2]) == jobOf(b[2]) && (a[1] != "release" || a[3] == b[3])
}

func jobOf(pod string) string { return pod[:strings.LastIndexByte(pod, '-')] }

func (f *fixture) time(s string) core.Time {
	v, err := strconv.ParseFloat(s, 64)
	must(f.t, err)
	return core.Time(v * float64(core.Second))
}

// submit submits the jobs that are due by t.
func (f *fixture) submit(t core.Time) {
	for len(f.wait) > 0 && f.wait[0].Submitted <= t {
		l := &sim.Live{Job: f.wait[0], Pods: f.wait[0].Pods()}
		f.wait = f.wait[1:]
		f.jobs[l.Name] = l
		must(f.t, f.w.Submitted(l.Submitted, l))
	}
}

func (f *fixture) placement(w []string) core.Placement {
	pod, err := strconv.Atoi(w[2][strings.LastIndexByte(w[2], '-')+1:])
	must(f.t, err)
	task := f.jobs[jobOf(w[2])].Tasks[0]
	p := core.Placement{Pod: pod, Node: w[3], CPUMilli: task.CPUMilli, MemMiB: task.MemMiB}
	if w[4] != "-" {
		for s := range strings.SplitSeq(w[4], ",") {
			g, err := strconv.Atoi(s)
			must(f.t, err)
			p.GPUs |= 1 << g
		}
		p.GPU = task.GPU / core.Milli(bits.OnesCount64(p.GPUs))
	}
	if len(w) > 5 && w[1] != "room" {
		milli, err := strconv.Atoi(w[5])
		must(f.t, err)
		p.GPU = core.Milli(milli)
	}
	return p
}

// replace edits a file of a run folder, which must contain old.
func replace(t *testing.T, dir, name, old, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	was := contents(t, path)
	if !strings.Contains(was, old) {
		t.Fatalf("%s has no %q:\n%s", name, old, was)
	}
	edited := []byte(strings.Replace(was, old, text, 1))
	if strings.HasSuffix(name, ".gz") {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(edited)
		must(t, z.Close())
		edited = b.Bytes()
	}
	must(t, os.WriteFile(path, edited, 0o666))
}

func contents(t *testing.T, path string) string {
	t.Helper()
	f, err := open(path)
	must(t, err)
	defer f.close()
	b, err := io.ReadAll(f.in)
	must(t, err)
	return string(b)
}

// names lists the invariants that a report names, each once, in order.
func names(r Report) string {
	var all []string
	for _, v := range r.Violations {
		if len(all) == 0 || all[len(all)-1] != v.Invariant {
			all = append(all, v.Invariant)
		}
	}
	return strings.Join(all, " ")
}
