package eventlog_test

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
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/coretest"
	"github.com/muster-sched/muster/eventlog"
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

func (b both) Decided(now core.Time, ds []core.Decision) {
	for _, r := range b {
		r.Decided(now, ds)
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
func (x *texts) Decided(now core.Time, ds []core.Decision) {
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
			got.Decided(e.Now, ds)
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
		w.Decided(7, nil)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := replayed(t, dir); len(got) != 6 {
		t.Errorf("%d entries, want those of two engines: %v", len(got), got)
	}
}
