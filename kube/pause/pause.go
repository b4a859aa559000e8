// Package pause has the processes of pods paused, and go on, where the engine suspends and resumes their jobs: by the agents of their
// nodes, with the pods resized in place meanwhile (docs/adr/0030).
//
//	pause.go    what the engine decides and is told, in the goroutine of the tables
//	carry.go    the steps of a pause and of a resumption, beside it
//	resize.go   what a pod has while it is paused, and again afterwards
//	agents.go   how the agent of a node is found and asked
//	metrics.go  how long it takes, and how it ends
//
// A pod says by its condition [v1alpha1.PausedCondition] where it stands. A pause, or a resumption, that a scheduler did not end is
// taken back by the next one: the pod goes on.
package pause

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// Tables is what a handler asks and tells the goroutine of the tables. Its methods are called in that goroutine alone.
type Tables interface {
	// PodOf returns a pod of a job by its number, if this instance decides on it; nil for none.
	PodOf(job string, pod int) *tables.Pod
	// PodBy returns a pod of the tables; nil for none.
	PodBy(uid types.UID) *tables.Pod
	// Tell tells the engine an event.
	Tell(ev core.Event)
	// Leave evicts a pod.
	Leave(p *tables.Pod, reason, message string)
	// NotePod says that a pod takes something else of its node than before.
	NotePod(p *tables.Pod)
}

// Recorder is told of the engine, as mirror.Recorder.
type Recorder interface {
	Began(now core.Time, c core.Config)
	Told(now core.Time, ev core.Event)
	Decided(now core.Time, ds []core.Decision, e core.Counter)
}

// Config is what a handler is made of.
type Config struct {
	Client kubernetes.Interface
	Agents Agents
	// Tables are those of the scheduler; Put has a function called in their goroutine, later.
	Tables Tables
	Put    func(func())
	// Next receives what the handler is told of the engine, first; nil for none.
	Next    Recorder
	Metrics *Metrics // nil for metrics of its own
	Log     *slog.Logger
	Now     func() time.Time // nil for the machine's clock
}

// most is how many pods are paused, or go on, at the same time.
const most = 256

// Handler pauses pods and lets them go on.
type Handler struct {
	Config
	recorder record.EventRecorder // nil before Run
	ctx      context.Context      // of Run
	slots    chan struct{}
	working  sync.WaitGroup
	// last is closed when what was begun last for a pod has ended. It belongs to the goroutine of the tables.
	last map[types.UID]chan struct{}
}

// New returns a handler, which begins nothing before Start.
func New(c Config) *Handler {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	return &Handler{Config: c, slots: make(chan struct{}, most), last: map[types.UID]chan struct{}{}}
}

// Start lets the handler begin work, which ends with the context. It is called before the engine is told anything.
func (h *Handler) Start(ctx context.Context) {
	broadcaster := record.NewBroadcasterWithCorrelatorOptions(record.CorrelatorOptions{QPS: 1. / 60, BurstSize: 10})
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: h.Client.CoreV1().Events("")})
	h.recorder = broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: v1alpha1.SchedulerName})
	h.ctx = ctx
	context.AfterFunc(ctx, broadcaster.Shutdown)
}

// Wait returns when no request is in flight, after the context of Start has ended and the loop of the tables with it.
func (h *Handler) Wait() { h.working.Wait() }

// Began is that of [Recorder].
func (h *Handler) Began(now core.Time, c core.Config) {
	if h.Next != nil {
		h.Next.Began(now, c)
	}
}

// Told lets a pod go on whose pause or resumption an instance before this one did not end.
func (h *Handler) Told(now core.Time, ev core.Event) {
	if h.Next != nil {
		h.Next.Told(now, ev)
	}
	switch ev := ev.(type) {
	case core.JobSuspended:
		p := h.Tables.PodOf(ev.Job, ev.Pods[0].Pod)
		if p == nil || p.Pause != nil {
			return
		}
		p.Pause = &tables.Pause{Phase: v1alpha1.PausedPaused, Since: ev.Since, GPUs: ev.Pods[0].GPUs}
	case core.PodRunning:
		p := h.Tables.PodOf(ev.Job, ev.Pod)
		switch {
		case p == nil:
		case p.Pause != nil:
			p.Pause.Asked = false // by an engine before
		case p.State == tables.PodBound && p.Object.Pause != nil && p.Object.Pause.Had != nil:
			set := uint64(0)
			for _, g := range ev.GPUs {
				set |= 1 << g
			}
			p.Pause = &tables.Pause{Since: now, GPUs: set}
			h.resume(p)
		}
	}
}

// Decided carries out what the engine decides about suspended jobs.
func (h *Handler) Decided(now core.Time, ds []core.Decision, e core.Counter) {
	if h.Next != nil {
		h.Next.Decided(now, ds, e)
	}
	for i := range ds {
		switch d := &ds[i]; d.Op {
		case core.Suspend:
			h.suspend(now, d)
		case core.Resume:
			for k := range d.Pods {
				if p := h.Tables.PodOf(d.Job, d.Pods[k].Pod); p != nil && p.Pause != nil && p.Pause.Phase == v1alpha1.PausedPaused {
					p.Devices = d.Pods[k].GPUs
					h.Tables.NotePod(p)
					h.resume(p)
				}
			}
		}
	}
}

// suspend has the pod of a job paused, or evicts it where that is not possible now. Only jobs of one pod can be suspended here
// (tables.SuspensionOf).
func (h *Handler) suspend(now core.Time, d *core.Decision) {
	for k := range d.Pods {
		p := h.Tables.PodOf(d.Job, d.Pods[k].Pod)
		switch {
		case p == nil:
		case len(d.Pods) > 1, p.State != tables.PodBound, p.InFlight, p.Moves, p.Pause != nil, p.Object.Phase != v1.PodRunning:
			h.Tables.Leave(p, d.Reason.String(), "evicted to make room for "+d.For)
		default:
			p.Pause = &tables.Pause{Phase: v1alpha1.PausedPausing, Since: now, GPUs: p.Devices, For: d.For, Reason: d.Reason.String(), Asked: true}
			w := h.work(p)
			h.begin(w, func(ctx context.Context) {
				took, err := h.pauseNow(ctx, w)
				h.Put(func() { h.paused(w, took, err) })
			})
		}
	}
}

// resume lets a pod go on whose GPUs are its own again.
func (h *Handler) resume(p *tables.Pod) {
	p.Pause.Phase = v1alpha1.PausedResuming
	w := h.work(p)
	h.begin(w, func(ctx context.Context) {
		took, err := h.resumeNow(ctx, w)
		h.Put(func() { h.resumed(w, took, err) })
	})
}

// work is what is to be done for a pod, without the tables.
type work struct {
	act.Pod
	node       string
	since      core.Time
	gpus       uint64
	suspension core.Suspension
	text       string        // for whom, for people
	pause      *tables.Pause // by which the outcome finds out whether it still counts
}

func (h *Handler) work(p *tables.Pod) work {
	return work{
		Pod: p.Ref(), node: p.Target, since: p.Pause.Since, gpus: p.Pause.GPUs, suspension: p.Object.Pausable, text: p.Pause.For, pause: p.Pause,
	}
}

// begin does something for a pod, after what was begun for it before.
func (h *Handler) begin(w work, do func(context.Context)) {
	before, done := h.last[w.UID], make(chan struct{})
	h.last[w.UID] = done
	h.working.Go(func() {
		defer h.Put(func() { h.forget(w, done) })
		defer close(done)
		if before != nil {
			<-before
		}
		select {
		case h.slots <- struct{}{}:
			defer func() { <-h.slots }()
			do(h.ctx)
		case <-h.ctx.Done():
		}
	})
}

// current returns the pod of an outcome, if it still counts; nil if not.
func (h *Handler) current(w work, phase string) *tables.Pod {
	p := h.Tables.PodBy(w.UID)
	if p == nil || p.Pause != w.pause || p.Pause.Phase != phase {
		return nil
	}
	return p
}

// forget forgets what was begun for a pod and has ended, unless something else was begun since.
func (h *Handler) forget(w work, done chan struct{}) {
	if h.last[w.UID] == done {
		delete(h.last, w.UID)
	}
}

// paused handles how a pause ended.
func (h *Handler) paused(w work, took time.Duration, err error) {
	h.Metrics.paused(took, err)
	h.Log.Info("paused a pod, or could not", "pod", w.String(), "node", w.node, "seconds", took.Seconds(), "error", err)
	p := h.current(w, v1alpha1.PausedPausing)
	switch {
	case p == nil:
	case err != nil:
		reason := p.Pause.Reason
		if !p.Pause.Asked {
			reason = tables.NotPaused // the engine of now has not decided that it leaves
		}
		p.Pause = nil
		h.Tables.Leave(p, reason, "cannot be paused ("+err.Error()+"), so it is evicted to make room for "+w.text)
	case !p.Pause.Asked: // it runs, for the engine of now
		p.Measured.Pause = core.Time(took)
		h.resume(p)
	default:
		p.Measured.Pause = core.Time(took)
		p.Pause.Phase = v1alpha1.PausedPaused
		p.Devices, p.Given = 0, 0
		h.Tables.NotePod(p)
		if p.Slot >= 0 {
			h.Tables.Tell(core.PodsGone{Job: p.Group.Job, Pods: []int{p.Slot}})
		}
	}
}

// resumed handles how a resumption ended.
func (h *Handler) resumed(w work, took time.Duration, err error) {
	h.Metrics.resumed(took, err)
	h.Log.Info("let a pod go on, or could not", "pod", w.String(), "node", w.node, "seconds", took.Seconds(), "error", err)
	p := h.current(w, v1alpha1.PausedResuming)
	if p == nil {
		return
	}
	p.Pause = nil
	if err != nil {
		h.Tables.Leave(p, tables.NotPaused, "it cannot go on after a pause ("+err.Error()+"): evicted")
		return
	}
	if w.suspension.HostMemMiB > 0 {
		p.Measured.Resume = core.Time(took)
	}
}

// devices is a set of GPUs as a text.
func devices(set uint64) string { return translate.Devices(set) }
