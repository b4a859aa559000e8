package eventlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/coretest"
	"github.com/muster-sched/muster/eventlog"
	"github.com/muster-sched/muster/replay"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// replaceable yields jobs of which the pods may be moved.
func replaceable(jobs workload.Jobs) workload.Jobs {
	return func(yield func(workload.Job, error) bool) {
		for j, err := range jobs {
			if j.Mobility = core.Replaceable; !yield(j, err) {
				return
			}
		}
	}
}

// scenario is a run of the simulator with evictions, moves and lost nodes.
func scenario(t *testing.T, name string) sim.Config {
	t.Helper()
	o := workload.Options{Seed: 7, GPUs: 256, Length: 4 * 24 * 3600 * core.Second, Load: 1.3}
	c, err := workload.OpenCluster("kant-training", o)
	if err != nil {
		t.Fatal(err)
	}
	o.Cluster = &c
	jobs, _, err := workload.OpenJobs("kant-training", o)
	if err != nil {
		t.Fatal(err)
	}
	doc, ok := policy.ByName(name)
	if !ok {
		t.Fatalf("no policy %s", name)
	}
	return sim.Config{
		Cluster: c, Jobs: replaceable(jobs), Policy: doc.Policy, Seed: 7,
		Models: sim.Models{
			Grace: 5 * core.Second, MTBF: 200 * 3600 * core.Second, Repair: 3600 * core.Second, Checkpoint: 600 * core.Second,
			MoveEvery: 60 * core.Second, HandOver: 600 * core.Second,
		},
	}
}

// both tells two recorders.
type both [2]sim.Recorder

func (b both) Began(now core.Time, c core.Config) {
	for _, r := range b {
		r.Began(now, c)
	}
}

func (b both) Told(now core.Time, ev core.Event) {
	for _, r := range b {
		r.Told(now, ev)
	}
}

func (b both) Decided(now core.Time, ds []core.Decision, e core.Counter) {
	for _, r := range b {
		r.Decided(now, ds, e)
	}
}

// texts keeps what was told and decided as text.
type texts []string

func (x *texts) Began(now core.Time, c core.Config) { *x = append(*x, fmt.Sprintf("%d %+v", now, c)) }
func (x *texts) Told(now core.Time, ev core.Event) {
	if p, ok := ev.(*core.JobSubmitted); ok {
		ev = *p
	}
	*x = append(*x, fmt.Sprintf("%d %T%+v", now, ev, ev))
}
func (x *texts) Decided(now core.Time, ds []core.Decision, _ core.Counter) {
	*x = append(*x, fmt.Sprintf("%d pass\n%s", now, coretest.Format(now, ds)))
}

// replayed tells an engine what a log says it was told, compares what it
// decides with what the log says was decided, and returns all as text.
func replayed(t *testing.T, path string) texts {
	t.Helper()
	var got texts
	var engine *core.Engine
	for e, err := range eventlog.Read(path) {
		switch {
		case err != nil:
			t.Fatal(err)
		case e.Begin != nil:
			c := core.Config{Policy: e.Begin.Policy, Levels: e.Begin.Levels}
			if engine, err = core.New(c); err != nil {
				t.Fatal(err)
			}
			got.Began(e.Now, c)
		case e.Pass:
			ds := engine.Decide(e.Now)
			if a, b := coretest.Format(e.Now, ds), coretest.Format(e.Now, e.Decided); a != b {
				t.Fatalf("%s:%d: decided\n%sthe log says\n%s", e.File, e.Line, a, b)
			}
			got.Decided(e.Now, ds, engine)
		default:
			if err := engine.Apply(e.Now, e.Event); err != nil {
				t.Fatalf("%s:%d: %v", e.File, e.Line, err)
			}
			got.Told(e.Now, e.Event)
		}
	}
	return got
}

// An engine that is told what the log says decides what was decided, byte for
// byte, however many files the log has.
func TestReplayIsExact(t *testing.T) {
	for _, name := range []string{"default", "StrictFIFO"} {
		for _, most := range []int64{0, 4 << 10} {
			dir := t.TempDir()
			w, err := eventlog.NewWriter(eventlog.Config{Dir: dir, MaxBytes: most, MaxFiles: 1000})
			if err != nil {
				t.Fatal(err)
			}
			var want texts
			c := scenario(t, name)
			c.Record = both{w, &want}
			if most > 0 {
				c.Record = both{eventlog.Turning(w, 200), &want}
			}
			stats, err := sim.Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			got := replayed(t, dir)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %d entries come back, not the %d that were told", name, len(got), len(want))
			}
			files, _ := filepath.Glob(filepath.Join(dir, "*"))
			if most > 0 && len(files) < 5 {
				t.Errorf("%d files, want many", len(files))
			}
			t.Logf("%s: %d entries, %d decisions, %d files", name, len(want), stats.Decisions, len(files))
		}
	}
}

// Each file can be read alone, and gives the tables that the files up to it
// give.
func TestEachFileAlone(t *testing.T) {
	dir := t.TempDir()
	w, err := eventlog.NewWriter(eventlog.Config{Dir: dir, MaxBytes: 4 << 10, MaxFiles: 1000})
	if err != nil {
		t.Fatal(err)
	}
	c := scenario(t, "default")
	c.Record = eventlog.Turning(w, 200)
	if _, err := sim.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	whole := eventlog.NewTables()
	at := map[string][]string{} // by the file that ended
	last := ""
	note := func(tables *eventlog.Tables) []string {
		var all []string
		for _, e := range tables.Snapshot(0) {
			all = append(all, fmt.Sprintf("%T%+v %+v", e.Event, e.Event, e.Decided))
		}
		return all
	}
	for e, err := range eventlog.Read(dir) {
		if err != nil {
			t.Fatal(err)
		}
		if last != e.File && last != "" {
			at[last] = note(whole)
		}
		last = e.File
		if err := whole.Take(&e); err != nil {
			t.Fatalf("%s:%d: %v", e.File, e.Line, err)
		}
	}
	at[last] = note(whole)
	for _, file := range files {
		alone := eventlog.NewTables()
		for e, err := range eventlog.Read(file) {
			if err != nil {
				t.Fatal(err)
			}
			if err := alone.Take(&e); err != nil {
				t.Fatalf("%s:%d: %v", e.File, e.Line, err)
			}
		}
		if got := note(alone); !slices.Equal(got, at[file]) {
			t.Errorf("%s alone ends with %d lines of state, after those before it %d", filepath.Base(file), len(got), len(at[file]))
		}
	}
	if len(files) < 5 {
		t.Errorf("%d files, want many", len(files))
	}
}

// What a crash leaves, cut anywhere, reads up to the last whole line.
func TestCutOff(t *testing.T) {
	dir := t.TempDir()
	w, err := eventlog.NewWriter(eventlog.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	c := scenario(t, "default")
	c.Until = 4 * 3600 * core.Second
	c.Record = eventlog.Turning(w, 100)
	if _, err := sim.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	all := len(replayed(t, dir))
	for _, keep := range []int{len(data) - 1, len(data) - 100, len(data) / 2, len(data) / 3} {
		cut := filepath.Join(t.TempDir(), filepath.Base(files[0]))
		if err := os.WriteFile(cut, data[:keep], 0o666); err != nil {
			t.Fatal(err)
		}
		n := len(replayed(t, cut))
		if low := all*keep/len(data) - all/4; n > all || n < low {
			t.Errorf("%d of %d bytes give %d of %d entries, want at least %d", keep, len(data), n, all, low)
		}
	}
}

// A recorder that fails is tried again, and what it writes then can be read
// from there on. Nobody is kept waiting.
func TestDiskFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	now := time.Unix(0, 0)
	w, turn, err := eventlog.Manual(eventlog.Config{Dir: dir, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	doc, _ := policy.ByName("default")
	w.Began(0, core.Config{Policy: doc.Policy})
	node := func(i int) { w.Told(core.Time(i), core.NodeAdded{Node: core.Node{Name: fmt.Sprint("n", i)}}) }
	node(1)
	turn()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o666); err != nil { // no folder can be made there
		t.Fatal(err)
	}
	now = now.Add(25 * time.Hour)
	turn() // another file is due
	node(2)
	turn()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	node(3)
	turn()
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) > 0 {
		t.Fatalf("%v before it was time to try again", files)
	}
	now = now.Add(time.Minute)
	turn()
	node(4)
	turn()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for e, err := range eventlog.Read(dir) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Begin != nil {
			got = append(got, fmt.Sprintf("part %d gap %v", e.Begin.Part, e.Begin.Gap))
			continue
		}
		got = append(got, fmt.Sprint(e.Event.(core.NodeAdded).Node.Name, " ", e.Restored))
	}
	if want := "n1 true,n2 true,n3 true,n4 false"; strings.Join(got[1:], ",") != want || !strings.HasSuffix(got[0], "gap true") {
		t.Errorf("%v, want a gap, then %s", got, want)
	}
}

// A disk that is full may accept data and fail only when it is to be durable. That costs
// the recording, is told, and ends when there is room again.
func TestDiskIsFull(t *testing.T) {
	var full atomic.Bool
	var said bytes.Buffer
	now := time.Unix(0, 0)
	dir := t.TempDir()
	w, turn, err := eventlog.Manual(eventlog.Config{
		Dir: dir, MaxAge: time.Hour, Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&said, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	eventlog.FailSync(w, func() error {
		if full.Load() {
			return errors.New("no space left on device")
		}
		return nil
	})
	doc, _ := policy.ByName("default")
	w.Began(0, core.Config{Policy: doc.Policy})
	hours := func(n int) {
		for range n {
			w.Told(0, core.NodeAdded{Node: core.Node{Name: fmt.Sprint("n", now.Unix())}})
			now = now.Add(2 * time.Hour)
			turn()
			turn()
		}
	}
	hours(2)
	full.Store(true)
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("the recording ends with %v; it said\n%s", err, &said)
	}
}

// There are so many files at most, and the newest stay.
func TestOldFilesGo(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(0, 0)
	w, turn, err := eventlog.Manual(eventlog.Config{Dir: dir, MaxFiles: 3, MaxAge: time.Hour, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	keep := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(keep, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	doc, _ := policy.ByName("default")
	w.Began(0, core.Config{Policy: doc.Policy})
	for i := range 6 {
		w.Told(core.Time(i), core.NodeAdded{Node: core.Node{Name: fmt.Sprint("n", i)}})
		turn()
		now = now.Add(2 * time.Hour)
		turn()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	want := []string{"events-00000005.jsonl.gz", "events-00000006.jsonl.gz", "events-00000007.jsonl.gz", "notes.txt"}
	if !reflect.DeepEqual(files, want) {
		t.Errorf("%v, want %v", files, want)
	}
}

// A writer that begins in a folder with files goes on with their numbers.
func TestBeginsAgain(t *testing.T) {
	dir := t.TempDir()
	doc, _ := policy.ByName("default")
	for range 2 {
		w, err := eventlog.NewWriter(eventlog.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		w.Began(5, core.Config{Policy: doc.Policy, Levels: []string{"leaf"}})
		w.Told(6, core.NodeAdded{Node: core.Node{Name: "n"}})
		w.Decided(7, nil, nil)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := replayed(t, dir); len(got) != 6 {
		t.Errorf("%d entries, want those of two engines: %v", len(got), got)
	}
}

// Under an order by GPU time received, an engine that is told what one file says, alone, has counted what the engine of the whole log
// has at its beginning.
func TestEachFileSaysWhatWasCounted(t *testing.T) {
	dir := t.TempDir()
	w, err := eventlog.NewWriter(eventlog.Config{Dir: dir, MaxBytes: 4 << 10, MaxFiles: 1000})
	if err != nil {
		t.Fatal(err)
	}
	c := scenario(t, "Astraea")
	c.Policy.Fairness.HalfLife = 12 * 3600 * core.Second
	c.Until = 24 * 3600 * core.Second
	c.Record = eventlog.Turning(w, 200)
	if _, err := sim.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	whole, files := engineOf(t, c.Cluster.Levels, c.Policy), 0
	last := ""
	for e, err := range eventlog.Read(dir) {
		if err != nil {
			t.Fatal(err)
		}
		if last != e.File && last != "" {
			files++
			alone, at := begun(t, e.File, c.Policy)
			if got, want := alone.Counted(at), whole.Counted(at); !reflect.DeepEqual(got, want) || len(got.Jobs) == 0 {
				t.Fatalf("%s begins with\n%+v, expected\n%+v", filepath.Base(e.File), got, want)
			}
		}
		last = e.File
		switch {
		case e.Pass:
			whole.Decide(e.Now)
		case e.Event != nil:
			if err := whole.Apply(e.Now, e.Event); err != nil {
				t.Fatal(err)
			}
		}
	}
	if files < 4 {
		t.Errorf("%d files after the first, want many", files)
	}
}

// A file begins with what was decided about failures before it: an engine that reads it alone holds the same jobs.
func TestEachFileSaysWhatFailed(t *testing.T) {
	dir := t.TempDir()
	w, err := eventlog.NewWriter(eventlog.Config{Dir: dir, MaxBytes: 1, MaxFiles: 1000})
	if err != nil {
		t.Fatal(err)
	}
	p := core.Policy{Recovery: core.DefaultRecovery()}
	p.Recovery.Mode, p.Recovery.Strikes = core.Recover, 3
	e, r := engineOf(t, nil, p), eventlog.Turning(w, 1)
	r.Began(0, core.Config{Policy: p})
	for i, ev := range []core.Event{
		core.NodeAdded{Node: core.Node{Name: "n", Model: "H800", GPUs: 8}},
		core.JobDiagnosed{Job: "j", Class: "infrastructure/gpu", Suspects: []string{"n"}, Confidence: 1000, Remedy: core.Remedy{Node: core.StrikeNode}},
		core.Tick{}, core.Tick{}, core.Tick{},
	} {
		now := core.Time(i+1) * core.Second
		if err := e.Apply(now, ev); err != nil {
			t.Fatal(err)
		}
		r.Told(now, ev)
		r.Decided(now, e.Decide(now), e)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	last := ""
	for x, err := range eventlog.Read(dir) {
		if err != nil {
			t.Fatal(err)
		}
		last = x.File
	}
	alone, _ := begun(t, last, p)
	if got, want := alone.Failures(), e.Failures(); !reflect.DeepEqual(got, want) || len(got.Jobs) != 1 || got.Jobs[0].Held == "" || len(got.Nodes) != 1 {
		t.Errorf("%s begins with\n%+v, expected\n%+v", filepath.Base(last), got, want)
	}
}

func engineOf(t *testing.T, levels []string, p core.Policy) *core.Engine {
	t.Helper()
	e, err := core.New(core.Config{Policy: p, Levels: levels})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// begun returns an engine that is told the state at the beginning of a file, and when that is.
func begun(t *testing.T, file string, p core.Policy) (alone *core.Engine, at core.Time) {
	t.Helper()
	for e, err := range eventlog.Read(file) {
		switch {
		case err != nil:
			t.Fatal(err)
		case e.Begin != nil:
			alone, at = engineOf(t, e.Begin.Levels, p), e.Now
		case !e.Restored:
			return alone, at
		case !e.Pass:
			if err := alone.Apply(e.Now, e.Event); err != nil {
				t.Fatal(err)
			}
		}
	}
	return alone, at
}

// aging makes the file of a writer too old when a job comes.
type aging struct {
	*eventlog.Writer
	job  string
	turn func()
	now  *time.Time
}

func (a aging) Told(now core.Time, ev core.Event) {
	a.Writer.Told(now, ev)
	if j, ok := ev.(core.JobSubmitted); ok && j.Job.Name == a.job {
		a.turn()
		*a.now = a.now.Add(2 * time.Hour)
		a.turn()
	}
}

// starts keeps which jobs start, in order.
type starts struct{ jobs []string }

func (*starts) Began(core.Time, core.Config) {}
func (*starts) Told(core.Time, core.Event)   {}
func (s *starts) Decided(_ core.Time, ds []core.Decision, _ core.Counter) {
	for i := range ds {
		if ds[i].Op == core.Bind {
			s.jobs = append(s.jobs, ds[i].Job)
		}
	}
}

// A replay that begins with a later file starts jobs in the order of the cluster: a had all GPUs for an hour before that file, so
// b has the next ones. Without that hour the two would take turns.
func TestReplayFromALaterFileKeepsTheOrder(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(0, 0)
	w, turn, err := eventlog.Manual(eventlog.Config{Dir: dir, MaxAge: time.Hour, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	var jobs []workload.Job
	job := func(name, queue string, gpus int, at, runs core.Time) {
		jobs = append(jobs, workload.Job{Duration: runs * core.Second, Job: core.Job{
			Name: name, Queue: queue, Submitted: at * core.Second, Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: core.Milli(gpus) * core.WholeGPU}}},
		}})
	}
	job("a-first", "a", 4, 0, 3600)
	for i := range 4 {
		job(fmt.Sprint("a", i), "a", 1, 1, 600)
		job(fmt.Sprint("b", i), "b", 1, 1, 600)
	}
	job("last", "b", 1, 3590, 600)
	p := core.Policy{Queueing: core.Queueing{Mode: core.BestEffortFIFO, Order: core.LongTermFairness}}
	all := func(yield func(workload.Job, error) bool) {
		for _, j := range jobs {
			if !yield(j, nil) {
				return
			}
		}
	}
	var want, got starts
	_, err = sim.Run(t.Context(), sim.Config{
		Cluster: workload.Cluster{Nodes: []core.Node{{Name: "n", Model: "H800", GPUs: 4}}, Queues: []core.Queue{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}},
		Jobs:    all, Policy: p, Record: both{aging{w, "last", turn, &now}, &want},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) != 2 {
		t.Fatalf("%d files, expected 2", len(files))
	}
	r, err := replay.Read(files[1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sim.Run(t.Context(), sim.Config{Cluster: r.Cluster, Changes: r.Changes, Jobs: r.Jobs(), Policy: r.Policy, Record: &got}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.jobs, want.jobs[1:]) || !slices.Equal(want.jobs[:5], []string{"a-first", "b0", "b1", "b2", "b3"}) {
		t.Errorf("the replay starts %v, the cluster %v", got.jobs, want.jobs)
	}
}
