package replay

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/coretest/audit"
	"github.com/muster-sched/muster/eventlog"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/workload"
)

// tale is a log that is told by hand. Times are seconds.
type tale struct {
	t *testing.T
	f *fold
}

func newTale(t *testing.T) *tale {
	t.Helper()
	a := &tale{t, newFold()}
	a.begin(100, 0)
	for i := range 4 {
		a.event(100, core.NodeAdded{Node: core.Node{Name: fmt.Sprint("n", i), GPUs: 8, Model: "H800"}})
	}
	a.event(100, core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	return a
}

func (a *tale) take(e eventlog.Entry) {
	a.t.Helper()
	if err := a.f.take(&e); err != nil {
		a.t.Fatal(err)
	}
}

func (a *tale) begin(at float64, snapshot int) {
	a.t.Helper()
	a.take(eventlog.Entry{Now: seconds(at), Begin: &eventlog.Header{Snapshot: snapshot, Levels: []string{"rack"}}})
}

func (a *tale) event(at float64, ev core.Event) {
	a.t.Helper()
	a.take(eventlog.Entry{Now: seconds(at), Event: ev})
}

func (a *tale) pass(at float64, ds ...core.Decision) {
	a.t.Helper()
	a.take(eventlog.Entry{Now: seconds(at), Pass: true, Decided: ds})
}

// submit submits a job of so many pods; change may be nil.
func (a *tale) submit(at float64, name string, pods int, change func(*core.Job)) {
	a.t.Helper()
	j := core.Job{Name: name, Queue: "q", Submitted: seconds(at), Tasks: []core.Task{{Name: "w", Pods: pods, Request: core.Request{GPU: 1000}}}}
	if change != nil {
		change(&j)
	}
	a.event(at, core.JobSubmitted{Job: j})
}

func gang(j *core.Job) { j.Gang = true }

// pods are decisions about pods 0 to below n.
func pods(op core.Op, job string, list ...int) core.Decision {
	d := core.Decision{Op: op, Job: job}
	for _, i := range list {
		d.Pods = append(d.Pods, core.Placement{Pod: i, Node: "n0", GPUs: 1 << i, GPU: 1000})
	}
	return d
}

func seconds(s float64) core.Time { return core.Time(s * 1e9) }

// jobs describes what was made of the log: name, when it came, pods and how
// long they run (- to the end), or when they are withdrawn (!).
func (a *tale) jobs() string {
	var b strings.Builder
	for _, j := range a.f.finish().List {
		kind := "pods"
		if j.Gang {
			kind = "gang"
		}
		fmt.Fprintf(&b, "%s at %g %s", j.Name, j.Submitted.Seconds(), kind)
		for i := range j.Tasks {
			fmt.Fprintf(&b, " %d", j.Tasks[i].Pods)
			if m := j.Tasks[i].MinPods; m > 0 {
				fmt.Fprintf(&b, " of %d", m)
			}
		}
		b.WriteString(":")
		for _, r := range j.Recorded.Runs {
			switch {
			case r.Withdrawn > 0:
				fmt.Fprintf(&b, " !%g", r.Withdrawn.Seconds())
			case r.Duration >= workload.Endless:
				b.WriteString(" -")
			default:
				fmt.Fprintf(&b, " %g", r.Duration.Seconds())
			}
		}
		for _, p := range j.Recorded.Found {
			fmt.Fprintf(&b, ", %d on %s", p.Pod, p.Node)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (a *tale) want(want string) {
	a.t.Helper()
	if got := a.jobs(); got != want {
		a.t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Pods run from their binding to their end, each its own time; a gang until the
// last one ends. What runs at the end runs on.
func TestDurations(t *testing.T) {
	a := newTale(t)
	a.submit(101, "pods", 3, nil)
	a.submit(101, "gang", 2, gang)
	a.submit(102, "on", 2, gang)
	a.pass(103, pods(core.Bind, "pods", 0, 1), pods(core.Bind, "gang", 0, 1))
	a.pass(104, pods(core.Bind, "pods", 2), pods(core.Bind, "on", 0, 1))
	a.event(113, core.PodEnded{Job: "pods", Pod: 1})
	a.event(123, core.PodEnded{Job: "gang", Pod: 1})
	a.event(133, core.PodEnded{Job: "gang", Pod: 0})
	a.event(133, core.JobEnded{Job: "gang"})
	a.event(144, core.JobEnded{Job: "pods"})
	a.pass(150)
	a.want("pods at 1 pods 3: 41 10 40\ngang at 1 gang 2: 30\non at 2 gang 2: -\n")
}

// A job has the estimate that it was given later from its beginning; one that is taken away leaves the one before.
func TestEstimates(t *testing.T) {
	a := newTale(t)
	a.submit(101, "advised", 1, nil)
	a.submit(101, "said", 1, func(j *core.Job) { j.Estimate = seconds(7) })
	a.event(102, core.JobEstimated{Job: "advised", Estimate: seconds(5)})
	a.event(103, core.JobEstimated{Job: "said"})
	a.pass(104)
	for i, want := range []float64{5, 7} {
		if j := a.f.finish().List[i]; j.Estimate.Seconds() != want {
			t.Errorf("%s: %g s, want %g", j.Name, j.Estimate.Seconds(), want)
		}
	}
}

// A pod that is moved runs on: the node that it left may be lost.
func TestMoved(t *testing.T) {
	a := newTale(t)
	a.submit(100, "j", 2, nil)
	a.pass(100, pods(core.Bind, "j", 0, 1))
	move := func(at float64, pod int) {
		t.Helper()
		a.event(at, core.MoveRequested{Job: "j", Pod: pod, Node: "n1"})
		a.pass(at, core.Decision{Op: core.Migrate, Job: "j", Pods: []core.Placement{{Pod: pod, Node: "n1", GPUs: 1, GPU: 1000}}})
	}
	move(110, 0)
	a.event(120, core.PodMoved{Job: "j"})
	move(130, 1)
	a.event(131, core.MoveFailed{Job: "j", Pod: 1})
	a.event(140, core.NodeLost{Node: "n0"})
	a.event(160, core.JobEnded{Job: "j"})
	a.want("j at 0 pods 2: 60 40\n")
}

// An evicted gang whose pods are made again, as Kubernetes does, is one job: the
// work up to its last checkpoint counts, and what it did at last.
func TestEvictedAndMadeAnew(t *testing.T) {
	for checkpoint, want := range map[float64]string{30: "j at 0 gang 2: 130\n", 0: "j at 0 gang 2: 40\n"} {
		a := newTale(t)
		a.submit(100, "j", 2, func(j *core.Job) { j.Gang, j.Checkpoint = true, seconds(checkpoint) })
		a.pass(100, pods(core.Bind, "j", 0, 1))
		a.pass(200, pods(core.Evict, "j", 0, 1))
		a.event(203, core.PodEnded{Job: "j", Pod: 0})
		a.event(204, core.PodEnded{Job: "j", Pod: 1})
		a.event(204, core.JobEnded{Job: "j"})
		a.submit(205, "j", 2, gang) // other pods, so another time of submission
		a.pass(300, pods(core.Bind, "j", 0, 1))
		a.event(340, core.JobEnded{Job: "j"})
		a.want(want)
	}
}

// One pod of a service is evicted and another takes its place; one ends by
// itself, and the one that comes then is another job. One is evicted and never
// comes back: it runs as long as it did.
func TestPodsReplaced(t *testing.T) {
	a := newTale(t)
	a.submit(100, "s", 3, nil)
	a.pass(100, pods(core.Bind, "s", 0, 1, 2))
	a.pass(110, pods(core.Evict, "s", 1))
	a.event(111, core.PodEnded{Job: "s", Pod: 1})
	a.event(112, core.PodsAdded{Job: "s", Task: core.Task{Name: "w", Request: core.Request{GPU: 1000}}, Pods: []int{1}})
	a.pass(120, pods(core.Bind, "s", 1))
	a.event(150, core.PodEnded{Job: "s", Pod: 0})
	a.event(151, core.PodsAdded{Job: "s", Task: core.Task{Name: "w", Request: core.Request{GPU: 1000}}, Pods: []int{0}})
	a.pass(152, pods(core.Bind, "s", 0))
	a.pass(160, pods(core.Evict, "s", 2))
	a.event(161, core.PodEnded{Job: "s", Pod: 2})
	a.event(180, core.PodEnded{Job: "s", Pod: 1})
	a.event(190, core.PodEnded{Job: "s", Pod: 0})
	a.event(190, core.JobEnded{Job: "s"})
	a.want("s at 0 pods 3: 50 60 60\ns+1 at 51 pods 1: 38\n")
}

// Pods that come within ten seconds are one job with those before; a gang takes
// those that come before it starts as well.
func TestPodsComeOneByOne(t *testing.T) {
	a := newTale(t)
	add := func(at float64, job string, i int) {
		a.event(at, core.PodsAdded{Job: job, Task: core.Task{Name: "w", Request: core.Request{GPU: 1000}}, Pods: []int{i}})
		a.pass(at)
	}
	a.submit(100, "p", 1, nil)
	a.submit(100, "g", 2, gang)
	a.pass(100)
	add(105, "p", 1)
	add(109, "p", 2)
	add(120, "p", 3)
	add(130, "g", 2)
	a.pass(131, pods(core.Bind, "g", 0, 1, 2))
	add(140, "g", 3)
	a.pass(150)
	a.want("p at 0 pods 3: - - -\ng at 0 gang 3 of 2: -\np+1 at 20 pods 1: -\ng+1 at 40 pods 1: -\n")
}

// A job that the log takes back and submits again at once, in other roles, is the same
// one, and so are its pods.
func TestToldAnew(t *testing.T) {
	a := newTale(t)
	a.submit(100, "j", 3, gang)
	a.pass(110, pods(core.Bind, "j", 0, 1, 2))
	a.submit(110, "w", 2, gang)
	a.pass(120)
	parts := func(j *core.Job) {
		gang(j)
		j.Submitted = seconds(100)
		j.Tasks = append(j.Tasks, j.Tasks[0])
		j.Tasks[0].Pods, j.Tasks[1].Pods, j.Tasks[1].Name = j.Tasks[0].Pods-1, 1, "w-2"
	}
	a.event(130, core.JobEnded{Job: "j"})
	a.submit(130, "j", 3, parts)
	for i, g := range []int{2, 0, 1} {
		a.event(130, core.PodRunning{Job: "j", Pod: i, Node: "n0", GPUs: []int{g}, Started: seconds(110)})
	}
	a.event(130, core.JobEnded{Job: "w"})
	a.submit(130, "w", 2, func(j *core.Job) { parts(j); j.Submitted = seconds(110) })
	a.pass(130)
	a.pass(140, core.Decision{Op: core.Bind, Job: "w", Pods: []core.Placement{{Pod: 0, Node: "n1", GPUs: 1}, {Pod: 1, Node: "n1", GPUs: 2}}})
	for i := range 3 {
		a.event(150, core.PodEnded{Job: "j", Pod: i})
	}
	a.event(155, core.JobEnded{Job: "w"})
	a.pass(160)
	a.want("j at 0 gang 2 1: 40\nw at 10 gang 1 1: 15\n")
}

// What is withdrawn before it ran leaves when it did; what the log takes back and
// submits again as of the same time stays the same job; a name that is used again
// after its end is another job.
func TestWithdrawn(t *testing.T) {
	a := newTale(t)
	a.submit(100, "gone", 2, gang)
	a.submit(100, "some", 2, nil)
	a.submit(100, "again", 1, nil)
	a.submit(100, "used", 1, nil)
	a.pass(100, pods(core.Bind, "used", 0), pods(core.Bind, "some", 0))
	a.event(110, core.PodEnded{Job: "some", Pod: 1})
	a.event(120, core.JobEnded{Job: "gone"})
	a.event(120, core.JobEnded{Job: "again"})
	a.event(120, core.JobEnded{Job: "used"})
	a.event(120, core.JobEnded{Job: "some"})
	a.submit(130, "again", 1, func(j *core.Job) { j.Submitted = seconds(100) })
	a.submit(130, "used", 1, nil)
	a.pass(140, pods(core.Bind, "again", 0), pods(core.Bind, "used", 0))
	a.event(150, core.JobEnded{Job: "again"})
	a.event(155, core.JobEnded{Job: "used"})
	a.want("gone at 0 gang 2: !20\nsome at 0 pods 1: 20\nsome+1 at 0 pods 1: !10\nagain at 0 pods 1: 10\nused at 0 pods 1: 20\nused~2 at 30 pods 1: 15\n")
}

// A scheduler that starts again tells a new engine of what it finds: jobs go on,
// pods run on where they are, and what is not there any more ended.
func TestAnotherEngine(t *testing.T) {
	a := newTale(t)
	a.submit(100, "on", 2, gang)
	a.submit(100, "over", 1, nil)
	a.submit(100, "waits", 1, nil)
	a.pass(100, pods(core.Bind, "on", 0, 1), pods(core.Bind, "over", 0))
	a.event(150, core.NodeCordoned{Node: "n3", Cordoned: true})
	a.begin(170, 0)
	for _, n := range []string{"n0", "n1", "n3"} {
		a.event(170, core.NodeAdded{Node: core.Node{Name: n, GPUs: 8, Model: "H800", Unhealthy: []int{7}[:map[string]int{"n1": 1}[n]]}})
	}
	a.event(170, core.QueueSet{Queue: core.Queue{Name: "q", Weight: 2}})
	a.submit(170, "waits", 1, func(j *core.Job) { j.Submitted = seconds(100) })
	a.submit(170, "on", 2, func(j *core.Job) { j.Gang, j.Submitted = true, seconds(100) })
	for i := range 2 { // the numbers are others
		a.event(170, core.PodRunning{Job: "on", Pod: i, Node: "n0", GPUs: []int{1 - i}, Started: seconds(100)})
	}
	a.pass(170)
	a.pass(180, pods(core.Bind, "waits", 0))
	a.event(190, core.JobEnded{Job: "waits"})
	a.event(200, core.JobEnded{Job: "on"})
	a.want("on at 0 gang 2: 100\nover at 0 pods 1: 50\nwaits at 0 pods 1: 10\n")
	var got []string
	for _, c := range a.f.recording.Changes[5:] {
		got = append(got, fmt.Sprintf("%g %T%+v", c.At.Seconds(), c.Event, c.Event))
	}
	want := []string{
		"50 core.NodeCordoned{Node:n3 Cordoned:true}",
		"70 core.QueueSet{Queue:{Name:q Parent: Weight:2 Priority:0 Mode:0 Quota:[] Resources:[] MaxRunning:{Jobs:0 GPU:0} MaxRunningPerUser:{Jobs:0 GPU:0} FairUsers:false}}",
		"70 core.DeviceHealth{Node:n1 GPU:7 Healthy:false}",
		"70 core.NodeCordoned{Node:n3 Cordoned:false}",
		"70 core.NodeLost{Node:n2}",
		"100 core.Tick{}",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("changes\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A file that is read without those before it begins with what ran and waited
// then, where and since when.
func TestBeginsInTheMiddle(t *testing.T) {
	whole := newTale(t)
	whole.submit(100, "runs", 2, gang)
	whole.submit(100, "leaves", 1, nil)
	whole.submit(101, "waits", 1, nil)
	whole.pass(101, pods(core.Bind, "runs", 0, 1), pods(core.Bind, "leaves", 0))
	whole.pass(110, pods(core.Evict, "leaves", 0))
	snapshot := whole.f.tables.Snapshot(seconds(120))
	a := &tale{t, newFold()}
	a.begin(120, len(snapshot))
	for _, e := range snapshot {
		a.take(e)
	}
	a.event(125, core.PodsGone{Job: "leaves"})
	a.pass(130, pods(core.Bind, "waits", 0))
	a.event(140, core.JobEnded{Job: "runs"})
	a.event(150, core.JobEnded{Job: "waits"})
	a.pass(150)
	a.want("runs at 0 gang 2: 20, 0 on n0, 1 on n0\nleaves at 0 pods 1: -, 0 on n0\nwaits at 0 pods 1: 20\n")
	for i, want := range []float64{-20, -20, -19} {
		if got := a.f.recording.List[i].Recorded.Spec.Submitted.Seconds(); got != want {
			t.Errorf("%s orders the queue as of %g, want %g", a.f.recording.List[i].Name, got, want)
		}
	}
}

// A node that comes back as another machine has another name.
func TestNodesComeBack(t *testing.T) {
	a := newTale(t)
	a.pass(100)
	a.event(110, core.NodeLost{Node: "n1"})
	a.event(120, core.NodeAdded{Node: core.Node{Name: "n1", GPUs: 8, Model: "H800", CPUMilli: 5}})
	a.event(130, core.NodeLost{Node: "n1"})
	a.event(140, core.NodeAdded{Node: core.Node{Name: "n1", GPUs: 4, Model: "A10"}})
	a.event(150, core.NodeLost{Node: "n1"})
	r := a.f.finish()
	var names []string
	for _, n := range r.Cluster.Nodes {
		names = append(names, n.Name)
	}
	if got := strings.Join(names, " "); got != "n0 n1 n2 n3 n1~2" || r.Cluster.Nodes[1].CPUMilli != 5 {
		t.Errorf("nodes %s", got)
	}
	if last := r.Changes[len(r.Changes)-2].Event; last != (core.NodeLost{Node: "n1~2"}) {
		t.Errorf("the last change is %+v", last)
	}
}

// What files cannot say decides all the same: here that one of two nodes has a
// label, and another resource, only later, and that pods are spread. The run's files hold what they can.
func TestBeyondFiles(t *testing.T) {
	a := &tale{t, newFold()}
	a.begin(100, 0)
	hca := []core.Amount{{Name: "hca", Value: 1}}
	node := func(name, zone string, others []core.Amount) core.Node {
		return core.Node{Name: name, GPUs: 8, Model: "H800", Labels: map[string]string{"gen": zone}, Domains: []string{name}, MaxPods: 9, Others: others}
	}
	a.event(100, core.NodeAdded{Node: node("n0", "1", nil)})
	a.event(100, core.NodeAdded{Node: node("n1", "3", hca)})
	a.event(100, core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	a.submit(100, "new", 12, func(j *core.Job) {
		j.NotPreemptible, j.Tasks[0].Labels, j.MinRuntime = true, []string{"a;b"}, core.Second
		j.Tasks[0].Selector = []core.Requirement{{Key: "gen", Op: cluster.Gt, Values: []string{"2"}}}
		j.Tasks[0].AnyOf = [][]core.Requirement{{{Key: "gen", Op: cluster.Exists}}}
	})
	a.submit(100, "even", 2, func(j *core.Job) {
		j.Tasks[0].Labels, j.Tasks[0].Affinity = []string{"e"}, []core.Term{{Level: "rack", Label: "e", MaxSkew: 1}}
	})
	a.pass(100)
	a.submit(105, "other", 1, func(j *core.Job) { j.Tasks[0].Others = hca })
	a.event(110, core.NodeChanged{Node: node("n0", "4", nil)})
	a.event(120, core.NodeChanged{Node: node("n0", "4", hca)})
	a.pass(200)
	r := a.f.finish()
	r.Policy = policyOf(t, "default")
	dir := t.TempDir()
	s := simulate(t, dir, config(r))
	if report, err := audit.Audit(dir); err != nil || !report.OK() {
		t.Errorf("%v %v", report, err)
	}
	lines := read(t, filepath.Join(dir, runlog.Log))
	at := map[string]int{}
	for _, l := range lines {
		job, _, _ := strings.Cut(l[strings.Index(l, `"job":"`)+7:], `"`)
		on, _, _ := strings.Cut(l[strings.Index(l, `"node":"`)+8:], `"`)
		when, _, _ := strings.Cut(l[strings.Index(l, `"t":`)+4:], ",")
		at[job+" "+on+" at "+when]++
	}
	want := map[string]int{"new n1 at 0": 7, "even n0 at 0": 1, "even n1 at 0": 1, "new n0 at 10": 5, "other n0 at 20": 1}
	if !maps.Equal(at, want) || s.Jobs.Running != 3 {
		t.Errorf("%v, want %v; %+v", at, want, s.Jobs)
	}
}

// read returns the lines of a compressed file.
func read(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
