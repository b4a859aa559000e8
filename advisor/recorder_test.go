package advisor

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/semantic/history"
)

// A gang of two pods is evicted, starts again and ends well; others fail, are deleted, or change. Only the first is kept, with
// the time for which it ran.
func TestRecorder(t *testing.T) {
	ctx := context.Background()
	kept, _, err := Open(ctx, "memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	h, _ := kept.history(ctx)
	began := core.Time(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	at := func(s int) core.Time { return began + core.Time(s)*core.Second }
	r := NewRecorder(kept, NewLive(kept, false), slog.New(slog.DiscardHandler), nil)
	submit := func(name string, pods int) {
		j := core.Job{Name: name, User: "ann", Queue: "lab", Gang: true, Submitted: at(0)}
		j.Tasks = []core.Task{{Name: "worker", Pods: pods, Request: core.Request{GPU: 8 * core.WholeGPU, Models: []string{"H100"}}}}
		r.Told(at(0), core.JobSubmitted{Job: j})
	}
	decide := func(s int, op core.Op, name string, pods ...int) {
		d := core.Decision{Op: op, Job: name}
		for _, p := range pods {
			d.Pods = append(d.Pods, core.Placement{Pod: p, Node: fmt.Sprint("node", p)})
		}
		r.Decided(at(s), []core.Decision{d}, nil)
	}
	r.Began(at(0), core.Config{})
	for _, name := range []string{"team/bert", "team/lost", "team/deleted", "team/grows"} {
		submit(name, 2)
		decide(10, core.Bind, name, 0, 1)
	}
	decide(30, core.Evict, "team/bert", 0, 1) // 20 s
	decide(50, core.Bind, "team/bert", 0, 1)
	r.Told(at(90), core.PodEnded{Job: "team/bert", Pod: 1}) // 40 s
	r.Told(at(91), core.PodEnded{Job: "team/bert", Pod: 0}) // and the other a second longer
	r.Told(at(95), core.JobEnded{Job: "team/bert"})

	r.Told(at(40), core.PodEnded{Job: "team/lost", Pod: 0, Failed: true})
	r.Told(at(41), core.PodEnded{Job: "team/lost", Pod: 1})
	r.Told(at(42), core.JobEnded{Job: "team/lost"})
	r.Told(at(43), core.JobEnded{Job: "team/deleted"})
	r.Told(at(44), core.PodsAdded{Job: "team/grows", Pods: []int{2}})
	r.Told(at(45), core.PodEnded{Job: "team/grows", Pod: 0})
	r.Told(at(45), core.PodEnded{Job: "team/grows", Pod: 1})

	// One that runs when the scheduler starts, on a node of which it is the only pod.
	submit("team/found", 1)
	r.Told(at(60), core.PodRunning{Job: "team/found", Pod: 0, Node: "node7", Started: at(-100)})
	r.Told(at(70), core.PodEnded{Job: "team/found", Pod: 0})
	// One whose node was removed.
	submit("team/node", 1)
	decide(60, core.Bind, "team/node", 0)
	r.Told(at(65), core.NodeLost{Node: "node0"})
	r.Told(at(66), core.PodEnded{Job: "team/node", Pod: 0})
	r.Close()

	jobs, err := h.Jobs(ctx)
	if err != nil || len(jobs) != 2 {
		t.Fatalf("%d jobs, %v, want 2: %+v", len(jobs), err, jobs)
	}
	if j := jobs[1]; j.Name != "bert" || j.User != "ann" || j.Tenant != "lab" || j.GPUs != 16 || j.Ran != 61*time.Second || !j.Start.Equal(time.Unix(0, int64(at(10)))) ||
		j.ID != "team/bert@2026-03-01T00:00:00Z" || j.Outcome != history.Completed {
		t.Errorf("%+v", j)
	}
	if j := jobs[0]; j.Name != "found" || j.Ran != 170*time.Second {
		t.Errorf("%+v", j)
	}
}

// A history that does not answer holds up no scheduler that ends.
func TestCloseGivesUp(t *testing.T) {
	ctx := context.Background()
	file := filepath.Join(t.TempDir(), "jobs.db")
	h, err := history.Open(ctx, file, history.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Append(ctx, history.Job{ID: "first", End: time.Unix(1, 0), Outcome: history.Completed}); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	other, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil { // nobody else may write
		t.Fatal(err)
	}
	var log bytes.Buffer
	kept := &Kept{where: file, h: h}
	r := NewRecorder(kept, NewLive(kept, false), slog.New(slog.NewTextHandler(&log, nil)), nil)
	r.grace = time.Millisecond
	for i := range 100 {
		r.ended <- history.Job{ID: fmt.Sprint(i), End: time.Unix(2, 0), Outcome: history.Completed}
		r.left.Add(1)
	}
	r.Close()
	if !strings.Contains(log.String(), "it does not answer\" jobs=100") {
		t.Errorf("log %s", log.String())
	}
	if _, err := other.ExecContext(ctx, "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	<-r.done
}
