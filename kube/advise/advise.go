// Package advise is the Scheduling Advisor on Kubernetes (SchedMate §3.1). It reads the objects of each job that is submitted, asks an advisor how
// long the job takes, and tells the engine, as if the user had said so. It does that beside the goroutine that decides, which never waits for it: a job
// for which there is no answer, or none yet, is scheduled as without an advisor.
//
//	advise.go   jobs are read about, one at a time, and the engine is told
//	launch.go   what starts a pod, by its objects
package advise

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
	"github.com/muster-sched/muster/semantic/metadata"
)

// Advisor predicts run times.
type Advisor interface {
	// Advise returns how long a job is expected to run, and why in a line; 0 when it does not know. It is called from one goroutine, also
	// for jobs whose user has said how long they run, and again for a job that is submitted again. An error means that it can be asked again.
	Advise(ctx context.Context, job *metadata.Submitted) (estimate core.Time, because string, err error)
}

// Recorder is told of the engine, as mirror.Recorder.
type Recorder interface {
	Began(now core.Time, c core.Config)
	Told(now core.Time, ev core.Event)
	Decided(now core.Time, ds []core.Decision, e core.Counter)
}

// Config is what a handler is made of.
type Config struct {
	Client  kubernetes.Interface
	Advisor Advisor
	// Tell has a function called in the goroutine that owns the engine, and the engine told of the event that it returns, if it is not nil. It must not
	// wait for that.
	Tell func(func() core.Event)
	// Pod returns a pod of a job by the name that the engine knows; false if there is none any more.
	Pod func(ctx context.Context, job string) (types.NamespacedName, bool)
	// Next receives what the handler is told of the engine, first; nil for none.
	Next Recorder
	Log  *slog.Logger
	// Pause waits; nil: as time.Sleep does, or until the context ends.
	Pause func(context.Context, time.Duration)
}

// Bounds of how long one job is asked about, and of how many wait. What is beyond them has no estimate.
const (
	mostTime  = 10 * time.Second // of an attempt
	mostTries = 8
	mostPause = 30 * time.Second
	mostWait  = 1 << 16
)

// Handler has jobs advised on.
type Handler struct {
	config Config

	mu      sync.Mutex
	live    map[string]*job // by the name that the engine knows
	asked   uint64
	dropped bool // a job was, and the log says so
	queue   chan question
}

// job is a live job.
type job struct {
	known  metadata.Submitted
	number uint64 // of the last question about it
	said   bool   // its user has said how long it runs
}

// question names a job, and a state of it.
type question struct {
	job    string
	number uint64
}

// New returns a handler that has not started.
func New(c Config) *Handler {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Pause == nil {
		c.Pause = pause
	}
	return &Handler{config: c, live: map[string]*job{}, queue: make(chan question, mostWait)}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Run asks about jobs until ctx ends.
func (h *Handler) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-h.queue:
			h.answer(ctx, q)
		}
	}
}

// Began forgets the live jobs: the new engine is told of them again.
func (h *Handler) Began(now core.Time, c core.Config) {
	if h.config.Next != nil {
		h.config.Next.Began(now, c)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.live)
}

// Decided hands on what was decided.
func (h *Handler) Decided(now core.Time, ds []core.Decision, e core.Counter) {
	if h.config.Next != nil {
		h.config.Next.Decided(now, ds, e)
	}
}

// Told notes which jobs are live, and queues those that are submitted, and those of which the user no longer says how long they run.
func (h *Handler) Told(now core.Time, ev core.Event) {
	if h.config.Next != nil {
		h.config.Next.Told(now, ev)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch ev := ev.(type) {
	case core.JobSubmitted:
		if !ev.Job.Foreign {
			h.live[ev.Job.Name] = &job{known: submitted(&ev.Job), said: ev.Job.Estimate > 0}
			h.ask(ev.Job.Name)
		}
	case core.JobEstimated:
		if j := h.live[ev.Job]; j != nil {
			if j.said = ev.Estimate > 0; !j.said {
				h.ask(ev.Job)
			}
		}
	case core.JobEnded:
		delete(h.live, ev.Job)
	}
}

// submitted returns what the engine knows of a job.
func submitted(j *core.Job) metadata.Submitted {
	s := metadata.Submitted{
		ID: j.Name, Name: j.Name, User: j.User, Queue: j.Queue, Kind: j.Kind.String(), Priority: int(j.Priority), Pods: j.Pods(),
		GPUs: float64(j.GPUs()) / float64(core.WholeGPU), At: time.Unix(0, int64(j.Submitted)).UTC(),
	}
	for t := range j.Tasks {
		s.Models = append(s.Models, j.Tasks[t].Models...)
	}
	return s
}

// ask queues a question about a live job. h.mu is held.
func (h *Handler) ask(name string) {
	h.asked++
	h.live[name].number = h.asked
	select {
	case h.queue <- question{name, h.asked}:
		h.dropped = false
	default:
		if !h.dropped {
			h.config.Log.Warn("too many jobs wait for the advisor: jobs have no estimate from now on, until it answers", "job", name)
		}
		h.dropped = true
	}
}

// current returns what is known of the job of a question, nil if the question has no meaning any more.
func (h *Handler) current(q question) *job {
	h.mu.Lock()
	defer h.mu.Unlock()
	if j := h.live[q.job]; j != nil && j.number == q.number {
		copied := *j
		return &copied
	}
	return nil
}

// answer asks about a job, again and again if there is no answer, and tells the engine.
func (h *Handler) answer(ctx context.Context, q question) {
	wait := time.Second
	for try := 1; ctx.Err() == nil; try++ {
		j := h.current(q)
		if j == nil {
			return
		}
		err := h.advise(ctx, q, j)
		if err == nil {
			return
		}
		if try == mostTries {
			h.config.Log.Warn("a job has no estimate: the advisor has no answer", "job", q.job, "error", err)
			return
		}
		if try == 1 {
			h.config.Log.Info("the advisor has no answer: it is asked again", "job", q.job, "error", err)
		}
		h.config.Pause(ctx, wait)
		wait = min(2*wait, mostPause)
	}
}

// advise asks about a job once. A panic, as by what the author of a pod wrote, is an error.
func (h *Handler) advise(ctx context.Context, q question, j *job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, mostTime)
	defer cancel()
	// 1. What its objects say.
	name, ok := h.config.Pod(ctx, q.job)
	if !ok {
		return ctx.Err() // nil if it is gone
	}
	p, err := h.config.Client.CoreV1().Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	Read(&j.known, p)
	// 2. The prediction.
	estimate, because, err := h.config.Advisor.Advise(ctx, &j.known)
	if err != nil || estimate <= 0 || j.said {
		return err
	}
	// 3. The engine is told, unless the job has ended or its user has spoken meanwhile.
	h.config.Tell(func() core.Event {
		if now := h.current(q); now == nil || now.said {
			return nil
		}
		return core.JobEstimated{Job: q.job, Estimate: estimate}
	})
	h.say(ctx, p, because)
	return nil
}

// Read adds what a pod of a job says: what made it, and what starts it.
func Read(s *metadata.Submitted, p *v1.Pod) {
	// The PodGroups that an object makes have random parts in their names.
	if o := translate.ControllerOf(p); o != nil && strings.HasPrefix(s.ID, translate.Group{Namespace: p.Namespace, Kind: translate.ByPodGroup}.Job()) {
		s.Name = translate.Group{Namespace: p.Namespace, Kind: translate.OwnerKind(o.APIVersion, o.Kind), Name: o.Name}.Job()
	}
	s.Launch = LaunchOf(p)
}

// say writes on a pod what its job is expected to take.
func (h *Handler) say(ctx context.Context, p *v1.Pod, because string) {
	condition := v1.PodCondition{
		Type: v1alpha1.EstimateCondition, Status: v1.ConditionTrue, Reason: v1alpha1.HistoryReason, Message: because, LastTransitionTime: metav1.Now(),
	}
	if slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == condition.Type && c.Message == because }) {
		return
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID}, "status": map[string]any{"conditions": []v1.PodCondition{condition}},
	})
	if err == nil {
		_, err = h.config.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		h.config.Log.Warn("cannot write on a pod what its job is expected to take", "namespace", p.Namespace, "pod", p.Name, "error", err)
	}
}
