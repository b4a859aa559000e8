package advisor

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/semantic/estimate"
	"github.com/muster-sched/muster/semantic/extract"
	"github.com/muster-sched/muster/semantic/history"
	"github.com/muster-sched/muster/semantic/metadata"
	"github.com/muster-sched/muster/semantic/redact"
)

// Live advises on the jobs of a cluster that are submitted. It also keeps what is known of them until they end, for a [Recorder]: jobs are compared by
// what was known when they were submitted.
type Live struct {
	kept    *Kept
	predict bool

	mu    sync.Mutex
	known map[string]*history.Job // of live jobs, by ID; nil while nothing is known
}

// NewLive returns an advisor on the jobs of a cluster. Without predict it knows no run times, and only keeps what is known of jobs.
func NewLive(kept *Kept, predict bool) *Live {
	return &Live{kept: kept, predict: predict, known: map[string]*history.Job{}}
}

// Advise returns how long a job is expected to run: the mean of the finished jobs that are like it, as in simulations; 0 if none is. because says so in
// a line.
func (l *Live) Advise(ctx context.Context, s *metadata.Submitted) (expected core.Time, because string, err error) {
	job := Job(s)
	l.keep(&job)
	if !l.predict {
		return 0, "", nil
	}
	query := job
	query.Submit = time.Now() // the API has whole seconds: a job that ended just before it was submitted counts
	h, err := l.kept.history(ctx)
	if err != nil {
		return 0, "", err
	}
	e, err := (&estimate.Advisor{History: h, Options: estimate.Default}).Estimate(ctx, query)
	if err != nil || !e.Known() {
		return 0, "", err
	}
	return seconds(e.Duration.Mean), lineOf(&e), nil
}

// mostNamed bounds the finished jobs that a line names.
const mostNamed = 3

func lineOf(e *estimate.Estimate) string {
	var names []string
	for i := range min(mostNamed, len(e.Because)) {
		id, _, _ := strings.Cut(e.Because[i].Job, "@")
		names = append(names, id)
	}
	if more := len(e.Because) - mostNamed; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return e.Line() + ", because of " + strings.Join(names, ", ")
}

// begin notes that a job is live, end that it is not.
func (l *Live) begin(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[id] = nil
}

// end returns what was known of the job, nil for nothing.
func (l *Live) end(id string) *history.Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	job := l.known[id]
	delete(l.known, id)
	return job
}

func (l *Live) keep(job *history.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, live := l.known[job.ID]; live {
		l.known[job.ID] = job
	}
}

// Job returns a job of a cluster as it is compared with others. Secrets in its command are not kept.
func Job(s *metadata.Submitted) history.Job {
	j := described(bareName(s.Name), s.At, s.Kind, s.Pods, s.Priority)
	j.ID = liveID(s.ID, s.At)
	j.User, j.Tenant, j.GPUs, j.Model, j.Submit = s.User, s.Queue, s.GPUs, strings.Join(s.Models, ","), s.At
	j.Command = redact.New(redact.Rules{}).Hide(s.Launch.Command)
	if s.Launch.Image != "" {
		j.Labels["image"] = s.Launch.Image
	}
	j.Metadata = Extracted(s).Job
	return j
}

// bareName returns the name of a job of a cluster without its namespace and kind: these would name jobs whose names say nothing.
func bareName(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// Extracted returns what the objects of a job say that it is.
func Extracted(s *metadata.Submitted) extract.Result {
	r := extract.Launched(s.Launch)
	if s.GPUs >= 1 && s.GPUs == float64(int(s.GPUs)) { // what it has is what it asks for
		r.Training.GPUs = int(s.GPUs)
		if r.Sources == nil {
			r.Sources = map[string]string{}
		}
		r.Sources["gpus"] = "launch"
	}
	return r
}
