package advisor

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/semantic/history"
)

// Recorder adds to a history the jobs of a cluster that ended well: those of which every pod did. It is told what the engine of
// the scheduler is told and decides, whose time is nanoseconds since 1970. It writes in a goroutine of its own.
type Recorder struct {
	next  Next
	kept  *Kept
	jobs  *Live // what is known of those that are live
	log   *slog.Logger
	live  map[string]*observed
	ended chan history.Job
	left  atomic.Int64 // of those, and of the one that is being written
	done  chan struct{}

	stop  context.CancelFunc // gives up what is being written
	grace time.Duration      // for which Close waits
}

// Next receives, after a [Recorder], what it receives.
type Next interface {
	Began(now core.Time, c core.Config)
	Told(now core.Time, ev core.Event)
	Decided(now core.Time, ds []core.Decision, e core.Counter)
}

// observed is a live job.
type observed struct {
	spec    core.Job
	pods    int
	running map[int]string // the nodes of those that run
	over    int            // those that ended well
	started core.Time      // when it first ran whole; 0 before
	whole   core.Time      // since when all pods that are not over run; 0 when they do not
	ran     core.Time      // so far, whole
	changes bool           // pods joined it: how long it would have taken is not known
}

const (
	waiting = 4096             // jobs wait for a history that does not answer; beyond that they are left out
	grace   = 10 * time.Second // for which a scheduler that ends waits for them
)

// NewRecorder returns a recorder, which adds to the history what jobs knows of those that ended. next may be nil. Close ends it; the history stays open.
func NewRecorder(kept *Kept, jobs *Live, log *slog.Logger, next Next) *Recorder {
	ctx, stop := context.WithCancel(context.Background())
	r := &Recorder{
		next: next, kept: kept, jobs: jobs, log: log, live: map[string]*observed{}, ended: make(chan history.Job, waiting), done: make(chan struct{}),
		stop: stop, grace: grace,
	}
	go r.write(ctx)
	return r
}

// Close waits until all jobs are written, or for ten seconds: a scheduler has to end also if its history does not answer. Nothing may be
// told after it.
func (r *Recorder) Close() {
	defer r.stop()
	close(r.ended)
	select {
	case <-r.done:
	case <-time.After(r.grace):
		r.log.Warn("finished jobs are not in the history: it does not answer", "jobs", r.left.Load())
	}
}

// write adds jobs until there are no more, or ctx is done.
func (r *Recorder) write(ctx context.Context) {
	defer close(r.done)
	for j := range r.ended {
		if err := r.try(ctx, j); ctx.Err() != nil {
			return // Close has said so
		} else if err != nil {
			r.log.Warn("a finished job is not in the history", "job", j.Name, "error", err)
		}
		r.left.Add(-1)
	}
}

// try adds a job, in three tries, unless it is the job that is wrong.
func (r *Recorder) try(ctx context.Context, j history.Job) error {
	if err := j.Check(); err != nil {
		return err
	}
	for n := 1; ; n++ {
		once, cancel := context.WithTimeout(ctx, 10*time.Second)
		h, err := r.kept.history(once)
		if err == nil {
			err = h.Append(once, j)
		}
		cancel()
		if err == nil || n == 3 {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Duration(n) * time.Second):
		}
	}
}

// Began forgets the live jobs: the new engine is told of them again.
func (r *Recorder) Began(now core.Time, c core.Config) {
	if r.next != nil {
		r.next.Began(now, c)
	}
	for name := range r.live {
		r.forget(name)
	}
}

// forget returns what was known of a job when it was submitted, which is not live any more; nil for nothing.
func (r *Recorder) forget(name string) *history.Job {
	o := r.live[name]
	if o == nil {
		return nil
	}
	delete(r.live, name)
	return r.jobs.end(liveID(name, at(o.spec.Submitted)))
}

// Told notes what the engine was told.
func (r *Recorder) Told(now core.Time, ev core.Event) {
	if r.next != nil {
		r.next.Told(now, ev)
	}
	switch ev := ev.(type) {
	case core.JobSubmitted:
		r.submitted(&ev)
	case *core.JobSubmitted:
		r.submitted(ev)
	case core.PodsAdded:
		if o := r.live[ev.Job]; o != nil {
			o.changes = true
		}
	case core.PodRunning:
		r.change(now, ev.Job, func(o *observed) {
			o.running[ev.Pod] = ev.Node
			if len(o.running) == o.pods-o.over && ev.Started > 0 { // found as it runs
				o.whole, o.started = ev.Started, ev.Started
			}
		})
	case core.PodEnded:
		r.change(now, ev.Job, func(o *observed) {
			if _, runs := o.running[ev.Pod]; runs && !ev.Failed && !ev.Lost {
				o.over++
			}
			delete(o.running, ev.Pod)
		})
	case core.BindFailed:
		r.change(now, ev.Job, func(o *observed) { delete(o.running, ev.Pod) })
	case core.NodeLost:
		for name := range r.live {
			r.change(now, name, func(o *observed) {
				for pod, node := range o.running {
					if node == ev.Node {
						delete(o.running, pod)
					}
				}
			})
		}
	case core.JobEnded:
		r.forget(ev.Job)
	}
}

func (r *Recorder) submitted(ev *core.JobSubmitted) {
	r.jobs.begin(liveID(ev.Job.Name, at(ev.Job.Submitted)))
	r.live[ev.Job.Name] = &observed{spec: ev.Job, pods: ev.Job.Pods(), running: map[int]string{}}
}

// Decided notes which pods run, and which no longer.
func (r *Recorder) Decided(now core.Time, ds []core.Decision, e core.Counter) {
	if r.next != nil {
		r.next.Decided(now, ds, e)
	}
	for i := range ds {
		d := &ds[i]
		r.change(now, d.Job, func(o *observed) {
			for k := range d.Pods {
				switch p := &d.Pods[k]; d.Op {
				case core.Bind, core.Migrate:
					o.running[p.Pod] = p.Node
				case core.Evict, core.Requeue:
					delete(o.running, p.Pod)
				}
			}
		})
	}
}

// change changes what is known of a job, counts for how long it ran whole, and notices its end.
func (r *Recorder) change(now core.Time, name string, do func(*observed)) {
	o := r.live[name]
	if o == nil {
		return
	}
	was := o.whole
	do(o)
	switch runs := len(o.running) > 0 && len(o.running) == o.pods-o.over; {
	case was == 0 && o.whole == 0 && runs:
		o.whole = now
		if o.started == 0 {
			o.started = now
		}
	case was > 0 && !runs:
		o.ran += now - was
		o.whole = 0
	}
	if o.over < o.pods || o.started == 0 || o.changes {
		return
	}
	select {
	case r.ended <- o.finished(now, r.forget(name)):
		r.left.Add(1)
	default:
		r.log.Warn("a finished job is not in the history: it does not answer", "job", name)
	}
}

// finished returns the job as the history has it. known is what was known when it was submitted, nil for what the engine was told.
func (o *observed) finished(now core.Time, known *history.Job) history.Job {
	s := &o.spec
	if known == nil {
		j := described(bareName(s.Name), time.Time{}, s.Kind.String(), o.pods, int(s.Priority))
		j.User, j.Tenant, j.GPUs, j.Model = s.User, s.Queue, gpus(s.GPUs()), modelsOf(s)
		j.ID, j.Submit = liveID(s.Name, at(s.Submitted)), at(s.Submitted)
		known = &j
	}
	j := *known
	j.Start, j.End, j.Ran, j.Outcome = at(o.started), at(now), time.Duration(o.ran), history.Completed
	return j
}

// liveID returns the ID of a job of a cluster. Another job may have its name later: the ID says when it was submitted.
func liveID(name string, submitted time.Time) string {
	return name + "@" + submitted.Format(time.RFC3339Nano)
}

func at(t core.Time) time.Time { return time.Unix(0, int64(t)).UTC() }

// modelsOf returns the GPU models that a job names.
func modelsOf(j *core.Job) string {
	var models []string
	for t := range j.Tasks {
		models = append(models, j.Tasks[t].Models...)
	}
	return strings.Join(models, ",")
}
