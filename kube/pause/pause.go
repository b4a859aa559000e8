// Package pause has the processes of pods paused, and go on, where the engine suspends and resumes their jobs: by the agents of their
// nodes, with the pods resized in place meanwhile (docs/adr/0030).
//
//	pause.go    what the engine decides and is told, in the goroutine of the tables
//	carry.go    the steps of a pause and of a resumption, beside it
//	pods.go     what is asked of the API for a pod
//	resize.go   what a pod has while it is paused, and again afterwards
//	process.go  how the processes of a job are paused: of one pod, and of several as one
//	sleep.go    how pods that lend their GPUs have their processes paused meanwhile
//	save.go     how pods that restart elsewhere save their progress before they leave
//	agents.go   how the agent of a node is found and asked
//	metrics.go  how long it takes, and how it ends
//
// A pod says by its condition [v1alpha1.PausedCondition] where it stands. A pause, or a resumption, that a scheduler did not end is
// taken back by the next one: the pod goes on. Of the pods of a job one leads: it says first that they are being paused or go on, and last
// that they are paused or have gone on. What it says is so for all (docs/adr/0057).
package pause

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
)

// Tables is what a handler asks and tells the goroutine of the tables. Its methods are called in that goroutine alone.
type Tables interface {
	// PodOf returns a pod of a job by its number, if this instance decides on it; nil for none.
	PodOf(job string, pod int) *tables.Pod
	// PodsOf returns all pods of a job by their numbers, without those that are over.
	PodsOf(job string) []*tables.Pod
	// PodBy returns a pod of the tables; nil for none.
	PodBy(uid types.UID) *tables.Pod
	// Tell tells the engine an event.
	Tell(ev core.Event)
	// Leave evicts pods of a job.
	Leave(list []*tables.Pod, reason, message string)
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

// most is how many jobs are paused, or go on, at the same time.
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
	// found are the jobs of several pods that are about to go on since an instance before did not end what it did with them. It belongs to
	// the goroutine of the tables.
	found map[string]bool
	// sleeps are the pods whose processes are paused for their standby, or were. It belongs to the goroutine of the tables.
	sleeps map[types.UID]*slumber
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
	return &Handler{Config: c, slots: make(chan struct{}, most), last: map[types.UID]chan struct{}{}, found: map[string]bool{}, sleeps: map[types.UID]*slumber{}}
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

// Told lets pods go on whose pause or resumption an instance before this one did not end.
func (h *Handler) Told(now core.Time, ev core.Event) {
	if h.Next != nil {
		h.Next.Told(now, ev)
	}
	switch ev := ev.(type) {
	case core.JobSuspended:
		for _, at := range ev.Pods {
			if p := h.Tables.PodOf(ev.Job, at.Pod); p != nil && p.Pause == nil {
				p.Pause = &tables.Pause{Phase: v1alpha1.PausedPaused, Since: ev.Since, GPUs: at.GPUs, Lead: leadOf(p)}
			}
		}
	case core.PodRunning:
		p := h.Tables.PodOf(ev.Job, ev.Pod)
		switch {
		case p == nil:
		case p.Pause != nil:
			p.Pause.Asked = false // by an engine before
		case p.State == tables.PodBound && p.Object.Pause != nil && p.Object.Pause.Had != nil:
			p.Pause = &tables.Pause{Phase: v1alpha1.PausedResuming, Since: now, GPUs: tables.SetOf(ev.GPUs), Lead: leadOf(p)}
			if p.Pause.Lead == "" {
				h.resume([]*tables.Pod{p})
			} else if !h.found[ev.Job] {
				h.found[ev.Job] = true
				h.Put(func() { h.goOn(now, ev.Job) }) // when the engine knows all pods of it
			}
		}
	}
}

// leadOf is the pod that leads the job of a pod, as that says.
func leadOf(p *tables.Pod) types.UID {
	if p.Object.Pause == nil || p.Object.Pause.Had == nil {
		return ""
	}
	return p.Object.Pause.Had.Lead
}

// goOn lets the pods of a job go on that were found neither paused nor as before. Those of which nothing is written go on with them: the
// instance before died when it had begun to write.
func (h *Handler) goOn(now core.Time, job string) {
	delete(h.found, job)
	all := h.Tables.PodsOf(job)
	var lead types.UID
	for _, p := range all {
		if p.Pause != nil && p.Pause.Phase == v1alpha1.PausedResuming {
			lead = p.Pause.Lead
		}
	}
	var list []*tables.Pod
	for _, p := range all {
		if p.Pause == nil && p.State == tables.PodBound {
			p.Pause = &tables.Pause{Phase: v1alpha1.PausedResuming, Since: now, GPUs: p.Devices, Lead: lead}
		}
		if p.Pause != nil && p.Pause.Phase == v1alpha1.PausedResuming && p.Pause.Lead == lead {
			list = append(list, p)
		}
	}
	if lead != "" {
		h.resume(list)
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
			var list []*tables.Pod
			for k := range d.Pods {
				if p := h.Tables.PodOf(d.Job, d.Pods[k].Pod); p != nil && p.Pause != nil && p.Pause.Phase == v1alpha1.PausedPaused {
					p.Devices = d.Pods[k].GPUs
					h.Tables.NotePod(p)
					list = append(list, p)
				}
			}
			if len(list) > 0 {
				h.resume(list)
			}
		}
	}
}

// suspend has the pods of a job paused, or evicts them where that is not possible now. Pods that are about to go on do so first: the
// instance before may have died when it paused them for the same job.
func (h *Handler) suspend(now core.Time, d *core.Decision) {
	if h.found[d.Job] {
		h.goOn(now, d.Job)
	}
	var list []*tables.Pod
	ready := true
	for k := range d.Pods {
		p := h.Tables.PodOf(d.Job, d.Pods[k].Pod)
		if p == nil {
			ready = false
			continue
		}
		list = append(list, p)
		idle := p.Pause == nil || p.Pause.Phase == v1alpha1.PausedResuming
		ready = ready && p.State == tables.PodBound && !p.InFlight && !p.Moves && idle && p.Object.Phase == v1.PodRunning
	}
	switch {
	case len(list) == 0:
	case !ready:
		h.Tables.Leave(list, d.Reason.String(), "evicted to make room for "+d.For)
	default:
		lead := types.UID("")
		if len(list) > 1 {
			lead = list[0].Object.UID
		}
		for _, p := range list {
			p.Pause = &tables.Pause{Phase: v1alpha1.PausedPausing, Since: now, GPUs: p.Devices, For: d.For, Reason: d.Reason.String(), Lead: lead, Asked: true}
		}
		w := h.work(list)
		h.begin(w, func(ctx context.Context) {
			took, err := h.pauseNow(ctx, w)
			h.Put(func() { h.paused(w, took, err) })
		})
	}
}

// resume lets the pods of a job go on whose GPUs are their own again.
func (h *Handler) resume(list []*tables.Pod) {
	for _, p := range list {
		p.Pause.Phase = v1alpha1.PausedResuming
	}
	w := h.work(list)
	h.begin(w, func(ctx context.Context) {
		took, err := h.resumeNow(ctx, w)
		h.Put(func() { h.resumed(w, took, err) })
	})
}

// work is what is to be done for the pods of a job, without the tables.
type work struct {
	pods       []*member       // that which leads first, if it is there
	lead       types.UID       // the one that led when the pause was decided; empty for a job of one pod
	since      core.Time       // when the pause was decided
	suspension core.Suspension // the most that a pod says
	text       string          // for whom, for people
}

// member is a pod of a work.
type member struct {
	act.Pod
	node  string
	gpus  uint64
	image int64         // MiB of what is on its GPUs
	pause *tables.Pause // by which the outcome finds out whether it still counts
	had   *objects.Had  // what it has when it runs; nil before it was read
	said  v1.PodCondition
	// processes are those of it while they are paused with others, or go on with them; nil if it has none.
	processes *participant
}

func (h *Handler) work(list []*tables.Pod) *work {
	first := list[0].Pause
	w := &work{lead: first.Lead, since: first.Since, text: first.For}
	for _, p := range list {
		m := &member{Pod: p.Ref(), node: p.Target, gpus: p.Pause.GPUs, image: p.Object.Pausable.HostMemMiB, pause: p.Pause}
		if w.pods = append(w.pods, m); m.UID == w.lead {
			last := len(w.pods) - 1
			w.pods[0], w.pods[last] = w.pods[last], w.pods[0]
		}
		s, x := &w.suspension, &p.Object.Pausable
		s.Pause, s.Resume = max(s.Pause, x.Pause), max(s.Resume, x.Resume)
	}
	return w
}

// String names the pods, for people.
func (w *work) String() string {
	if len(w.pods) == 1 {
		return w.pods[0].String()
	}
	return fmt.Sprintf("%s and %d more pods of its job", w.pods[0], len(w.pods)-1)
}

// begin does something for pods, after what was begun for them before.
func (h *Handler) begin(w *work, do func(context.Context)) {
	done := make(chan struct{})
	var before []chan struct{}
	for _, m := range w.pods {
		if c := h.last[m.UID]; c != nil {
			before = append(before, c)
		}
		h.last[m.UID] = done
	}
	h.working.Go(func() {
		defer h.Put(func() { h.forget(w, done) })
		defer close(done)
		for _, c := range before {
			<-c
		}
		select {
		case h.slots <- struct{}{}:
			defer func() { <-h.slots }()
			do(h.ctx)
		case <-h.ctx.Done():
		}
	})
}

// current returns the pods for which an outcome still counts.
func (h *Handler) current(w *work, phase string) (list []*tables.Pod) {
	for _, m := range w.pods {
		if p := h.Tables.PodBy(m.UID); p != nil && p.Pause == m.pause && p.Pause.Phase == phase {
			list = append(list, p)
		}
	}
	return list
}

// forget forgets what was begun for pods and has ended, unless something else was begun since.
func (h *Handler) forget(w *work, done chan struct{}) {
	for _, m := range w.pods {
		if h.last[m.UID] == done {
			delete(h.last, m.UID)
		}
	}
}

// paused handles how a pause ended.
func (h *Handler) paused(w *work, took time.Duration, err error) {
	h.Metrics.paused(took, err)
	h.Log.Info("paused the pods of a job, or could not", "pods", w.String(), "node", w.pods[0].node, "seconds", took.Seconds(), "error", err)
	list := h.current(w, v1alpha1.PausedPausing)
	if len(list) == 0 {
		return
	}
	asked := !slices.ContainsFunc(list, func(p *tables.Pod) bool { return !p.Pause.Asked })
	if err != nil {
		reason := list[0].Pause.Reason
		if !asked {
			reason = tables.NotPaused // the engine of now has not decided that it leaves
		}
		for _, p := range list {
			p.Pause = nil
		}
		h.Tables.Leave(list, reason, "cannot be paused ("+err.Error()+"), so it is evicted to make room for "+w.text)
		return
	}
	for _, p := range list {
		p.Measured.Pause = core.Time(took)
	}
	if !asked { // they run, for the engine of now
		h.resume(list)
		return
	}
	gone := map[string][]int{}
	for _, p := range list {
		p.Pause.Phase = v1alpha1.PausedPaused
		p.Devices, p.Given = 0, 0
		h.Tables.NotePod(p)
		if p.Slot >= 0 {
			gone[p.Group.Job] = append(gone[p.Group.Job], p.Slot)
		}
	}
	for _, job := range slices.Sorted(maps.Keys(gone)) { // one, unless a pod was taken from its owner meanwhile
		h.Tables.Tell(core.PodsGone{Job: job, Pods: gone[job]})
	}
}

// resumed handles how a resumption ended.
func (h *Handler) resumed(w *work, took time.Duration, err error) {
	h.Metrics.resumed(took, err)
	h.Log.Info("let the pods of a job go on, or could not", "pods", w.String(), "node", w.pods[0].node, "seconds", took.Seconds(), "error", err)
	list := h.current(w, v1alpha1.PausedResuming)
	for _, p := range list {
		if p.Pause = nil; err == nil && p.Object.Pausable.HostMemMiB > 0 {
			p.Measured.Resume = core.Time(took)
		}
	}
	if err != nil {
		h.Tables.Leave(list, tables.NotPaused, "it cannot go on after a pause ("+err.Error()+"): evicted")
	}
}
