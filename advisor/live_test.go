package advisor

import (
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/semantic/metadata"
)

// cluster is a cluster's jobs: a recorder, and an advisor whom it tells what it knows.
type cluster struct {
	t    *testing.T
	kept *Kept
	live *Live
	r    *Recorder
	now  core.Time
}

func newCluster(t *testing.T, where string, predict bool) *cluster {
	kept, unanswered, err := Open(t.Context(), where)
	if err != nil || unanswered != nil {
		t.Fatal(err, unanswered)
	}
	c := &cluster{t: t, kept: kept, live: NewLive(kept, predict), now: core.Time(time.Date(2020, 3, 1, 0, 0, 0, 0, time.UTC).UnixNano())}
	c.r = NewRecorder(kept, c.live, slog.New(slog.DiscardHandler), nil)
	c.r.Began(c.now, core.Config{})
	return c
}

// submit submits a job of a pod with 8 GPUs, and returns what is predicted.
func (c *cluster) submit(name, command string) (time.Duration, string) {
	c.t.Helper()
	id := "team/job/" + name
	j := core.Job{Name: id, User: "ann", Queue: "lab", Submitted: c.now}
	j.Tasks = []core.Task{{Name: "main", Pods: 1, Request: core.Request{GPU: 8 * core.WholeGPU}}}
	c.r.Told(c.now, core.JobSubmitted{Job: j})
	expected, because, err := c.live.Advise(c.t.Context(), &metadata.Submitted{
		ID: id, Name: id, User: "ann", Queue: "lab", Kind: "training", Pods: 1, GPUs: 8, At: at(c.now),
		Launch: metadata.Launch{Command: command, Image: "trainer"},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return time.Duration(expected), because
}

// run lets a job run for a time, and end well.
func (c *cluster) run(name string, takes time.Duration) {
	id := "team/job/" + name
	c.r.Decided(c.now, []core.Decision{{Op: core.Bind, Job: id, Pods: []core.Placement{{Node: "n1"}}}}, nil)
	c.now += core.Time(takes)
	c.r.Told(c.now, core.PodEnded{Job: id})
	c.now += core.Second
}

func (c *cluster) close() {
	c.t.Helper()
	c.r.Close()
	if err := c.kept.Close(); err != nil {
		c.t.Fatal(err)
	}
}

// A job that ran is known with what starts it, without its secrets, and predicts its next run, and one that trains twice as long.
func TestLive(t *testing.T) {
	where := filepath.Join(t.TempDir(), "jobs.db")
	const command = "python train.py --model resnet50 --epochs 90 --api_key=abcdef0123456789"
	c := newCluster(t, where, true)
	if got, because := c.submit("vision-1", command); got != 0 || because != "" {
		t.Errorf("%v, %q of the first job", got, because)
	}
	c.run("vision-1", time.Hour)
	c.close()

	c = newCluster(t, where, true)
	defer c.close()
	c.now += core.Time(24 * time.Hour)
	got, because := c.submit("vision-2", command)
	if got != time.Hour || because != "1h0m (1h0m to 1h0m), confidence 0.50, because of team/job/vision-1" {
		t.Errorf("%v, %q", got, because)
	}
	if got, _ := c.submit("vision-3", strings.Replace(command, "90", "180", 1)); got != 2*time.Hour {
		t.Errorf("%v for twice the epochs", got)
	}
	if got, because := c.submit("chat", "deepspeed sft.py --base llama"); got != 0 {
		t.Errorf("%v, %q of a job that is like none", got, because)
	}
	h, err := c.kept.history(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := h.Jobs(t.Context())
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	j := jobs[0]
	if j.Name != "vision-1" || j.Metadata.Training.Iterations != 90 || j.Labels["image"] != "trainer" || !strings.Contains(j.Command, "--model resnet50") || strings.Contains(j.Command, "abcdef") {
		t.Errorf("%+v", j)
	}
}

// Without predict nothing is predicted, and jobs are kept as they are known.
func TestLiveOnlyKeeps(t *testing.T) {
	where := filepath.Join(t.TempDir(), "jobs.db")
	c := newCluster(t, where, false)
	for _, name := range []string{"vision-1", "vision-2"} {
		if got, because := c.submit(name, "python train.py --model resnet50"); got != 0 || because != "" {
			t.Errorf("%v, %q", got, because)
		}
		c.run(name, time.Hour)
	}
	c.r.Close()
	h, err := c.kept.history(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if jobs, err := h.Jobs(t.Context()); err != nil || len(jobs) != 2 || jobs[1].Metadata.Model.Name != "resnet50" || len(c.live.known) != 0 {
		t.Errorf("%+v, %v; %d are still live", jobs, err, len(c.live.known))
	}
	c.kept.Close()
}

// A server that does not answer is tried again; a URL that makes no sense is not.
func TestOpenLater(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	for _, where := range []string{"postgres://muster@" + address + "/jobs", "redis://" + address} {
		kept, unanswered, err := Open(t.Context(), where)
		if err != nil || unanswered == nil {
			t.Fatalf("%s: %v, %v", where, unanswered, err)
		}
		if _, _, err := NewLive(kept, true).Advise(t.Context(), &metadata.Submitted{ID: "team/job/a"}); err == nil {
			t.Errorf("%s: it answers", where)
		}
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, where := range []string{"mysql://host/jobs", filepath.Join(t.TempDir(), "no", "folder", "jobs.db"), "redis://%zz"} {
		if _, unanswered, err := Open(t.Context(), where); err == nil || unanswered != nil {
			t.Errorf("%s: %v, %v", where, unanswered, err)
		}
	}
}
