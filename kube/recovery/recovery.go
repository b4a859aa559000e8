// Package recovery is the Failure Handler on Kubernetes (SchedMate §3.3). It reads the logs of pods that failed, tells the engine why they did, and carries
// out what the engine decides about that, or in a dry run says what it would do. It reads one log at a time, beside the goroutine that decides, and reads
// none while the policy has recovery off.
//
//	recovery.go   pods that failed are read about, and the engine is told
//	carry.go      what the engine decided is written to the API
//	errors.go     what drivers reported of nodes, for what is read
//	diagnostic.go Jobs that test nodes
//	memory.go     what is written there, for the engine that begins
//	release.go    what a user writes to release a job, and what that is for the engine
package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/semantic/diagnose"
	"github.com/muster-sched/muster/semantic/strikes"
)

// Config is what a handler is made of.
type Config struct {
	Client kubernetes.Interface
	// Tell hands an event on to the engine. It is called from a goroutine of the handler, and must not wait for the engine.
	Tell func(core.Event)
	// Leads reports whether this instance decides now: without that, no log is read and nothing is written; nil for always.
	Leads func() bool
	// Next receives what the handler is told of the engine, first; nil for none.
	Next Recorder
	Log  *slog.Logger
	// Logs opens the log of a container; nil: the API's.
	Logs func(ctx context.Context, pod *v1.Pod, container string) (io.ReadCloser, error)
	// Events publishes events; nil: with the client.
	Events record.EventRecorder
	// Diagnostic is the ConfigMap with the template of the Jobs that test nodes; zero for none, and then no node is tested.
	Diagnostic types.NamespacedName
	// Now is the clock by which the engine is called; nil: the machine's.
	Now func() time.Time
}

// Recorder is told of the engine, as mirror.Recorder.
type Recorder interface {
	Began(now core.Time, c core.Config)
	Told(now core.Time, ev core.Event)
	Decided(now core.Time, ds []core.Decision, e core.Counter)
}

// Bounds of what is read of a log, and of what waits to be read or written. What is beyond them is left out, and the log of the scheduler says so.
const (
	mostLines = 100_000
	mostBytes = 256 << 20
	mostTime  = 2 * time.Minute
	mostWait  = 1_000
	// readAfter is for how long a pod is read that failed while no instance decided; mostJobs is how many jobs that failed are remembered, so that
	// their owners can be told what becomes of them.
	readAfter = time.Hour
	mostJobs  = 1_000
	// retryAfter is the time between two attempts to write on a node.
	retryAfter = 5 * time.Second
)

// Handler handles failures.
type Handler struct {
	config Config

	mu     sync.Mutex
	begun  bool // an engine of this instance decides
	rests  bool // this instance has no shard
	mode   core.RecoveryMode
	seen   map[types.UID]bool     // pods that were queued
	order  []types.UID            // of seen, the oldest first
	unread map[types.UID]failedAt // pods that failed while no engine of this instance decided
	failed map[string]*failedPod  // the pod of each job that was diagnosed last, by the job's name
	held   map[string]*hold       // jobs that are held, by name
	// records is what pods of the API say about failures, and suspects what nodes do, by name.
	records  map[types.UID]podRecord
	suspects map[string]core.SuspectNode
	// own is what the engine of this instance said last; nil for none. shown is what of it is on nodes or is to be written there, and wishes are
	// the nodes on which something is to be written.
	own    *core.FailuresFound
	shown  map[string]core.SuspectNode
	wishes map[string]*nodeWish
	driver map[string][]strikes.Incident // what the drivers of nodes reported, by the node's name
	tests  map[string]bool               // nodes that are to pass a test
	stale  bool                          // the engine may know of other failures than own
	stop   context.CancelFunc            // ends the reading of a log; nil for none

	pods  chan failedAt
	todo  chan task
	nodes strikes.History // of the goroutine that reads logs
	// lastError is what kept nodes from being tested last, of the goroutine that writes.
	lastError string
}

// failedAt is a pod that failed.
type failedAt struct {
	pod types.NamespacedName
	at  core.Time
}

// failedPod is what is kept of a pod that was diagnosed.
type failedPod struct {
	v1.ObjectReference // the pod
	uid                types.UID
	owner              *v1.ObjectReference // nil for none
	maker              types.UID
	number             int // of those that were diagnosed
}

// New returns a handler that has not started.
func New(c Config) *Handler {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Leads == nil {
		c.Leads = func() bool { return true }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	h := &Handler{
		config: c, seen: map[types.UID]bool{}, unread: map[types.UID]failedAt{}, failed: map[string]*failedPod{}, held: map[string]*hold{},
		records: map[types.UID]podRecord{}, suspects: map[string]core.SuspectNode{}, shown: map[string]core.SuspectNode{}, wishes: map[string]*nodeWish{}, driver: map[string][]strikes.Incident{}, tests: map[string]bool{},
		pods: make(chan failedAt, mostWait), todo: make(chan task, mostWait),
	}
	if h.config.Logs == nil {
		h.config.Logs = h.readLog
	}
	return h
}

// Run reads logs and writes what was decided until ctx ends.
func (h *Handler) Run(ctx context.Context) {
	stop := h.startEvents()
	defer stop()
	var both sync.WaitGroup
	both.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case f := <-h.pods:
				h.read(ctx, f)
			}
		}
	})
	both.Go(func() {
		again := time.NewTicker(retryAfter)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case t := <-h.todo:
				h.carry(ctx, &t)
			case <-again.C:
				h.writeNodes(ctx)
				h.testNodes(ctx)
			}
		}
	})
	both.Wait()
}

// Resume ends a rest: an engine of this instance begins.
func (h *Handler) Resume() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rests = false
}

// Rest ends what goes on, because this instance no longer decides. The next one reads what this one has not.
func (h *Handler) Rest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rests, h.begun, h.mode, h.own, h.stale = true, false, core.NoRecovery, nil, false
	clear(h.held)
	clear(h.shown)
	clear(h.wishes)
	clear(h.seen)
	h.order = nil
	if h.stop != nil {
		h.stop()
	}
	for len(h.pods) > 0 {
		<-h.pods
	}
	for len(h.todo) > 0 {
		<-h.todo
	}
}

// Observe is called with each pod that is there or changes. It is quick, and keeps nothing of most pods.
func (h *Handler) Observe(p *v1.Pod) {
	if p.Spec.SchedulerName != v1alpha1.SchedulerName {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteRecord(p)
	switch {
	case h.begun && h.mode == core.NoRecovery:
	case h.releases(p):
	case p.Status.Phase != v1.PodFailed || p.Spec.NodeName == "" || p.DeletionTimestamp != nil || h.seen[p.UID] || p.Annotations[v1alpha1.RecoveryAnnotation] != "":
	default:
		// The API has whole seconds, of the clock of the node. When the pod was seen to have failed is after it started, and before another pod in its
		// place can start; unless nobody looked at the time.
		now := h.config.Now()
		f := failedAt{types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, core.Time(now.UnixNano())}
		if _, at := failure(p); !at.IsZero() && at.Before(now.Add(-readAfter)) {
			return
		} else if !at.IsZero() && !h.begun {
			f.at = min(f.at, core.Time(at.Add(time.Second-1).UnixNano()))
		}
		if h.begun {
			h.queue(p.UID, f)
		} else if len(h.unread) < mostWait {
			h.unread[p.UID] = f
		}
	}
}

// queue queues a pod to be read, once.
func (h *Handler) queue(uid types.UID, f failedAt) {
	h.seen[uid] = true
	if h.order = append(h.order, uid); len(h.order) > 10*mostWait { // the oldest is forgotten
		delete(h.seen, h.order[0])
		h.order = h.order[1:]
	}
	select {
	case h.pods <- f:
	default:
		h.config.Log.Warn("too many pods failed at once: the log of one is not read", "namespace", f.pod.Namespace, "pod", f.pod.Name)
	}
}

// jobOf returns the name by which the engine knows the job of a pod.
func jobOf(p *v1.Pod) string { return objects.TrimPod(p).Membership.Group.Job() }

// maker returns who made a pod: its controller, or itself.
func maker(p *v1.Pod) types.UID {
	if c := metav1.GetControllerOf(p); c != nil {
		return c.UID
	}
	return p.UID
}

// failure returns the container of a pod whose failure ended it: the first one to end that failed; of a pod without one, its first container.
func failure(p *v1.Pod) (name string, at time.Time) {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 && (name == "" || t.FinishedAt.Time.Before(at)) {
			name, at = s.Name, t.FinishedAt.Time
		}
	}
	if name == "" && len(p.Spec.Containers) > 0 {
		name = p.Spec.Containers[0].Name
	}
	return name, at
}

// errRests says that this instance no longer decides.
var errRests = errors.New("this instance no longer decides")

// leads waits while it is not known whether this instance decides, and reports whether it does.
func (h *Handler) leads(ctx context.Context) bool {
	for {
		h.mu.Lock()
		begun := h.begun
		h.mu.Unlock()
		if !begun || h.config.Leads() {
			return begun
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Second):
		}
	}
}

// read reads the log of a pod that failed, and tells the engine why it did. Without an answer, it tells nothing.
func (h *Handler) read(ctx context.Context, f failedAt) {
	ctx, cancel := context.WithTimeout(ctx, mostTime)
	defer cancel()
	if !h.leads(ctx) {
		return
	}
	h.mu.Lock()
	h.stop = cancel
	h.mu.Unlock()
	p, err := h.config.Client.CoreV1().Pods(f.pod.Namespace).Get(ctx, f.pod.Name, metav1.GetOptions{})
	if err != nil || p.Status.Phase != v1.PodFailed {
		return // it is gone, and its log with it
	}
	container, _ := failure(p)
	v, err := h.diagnose(ctx, p, container)
	if err != nil {
		h.config.Log.Warn("cannot diagnose a pod that failed", "namespace", p.Namespace, "pod", p.Name, "error", err)
		return
	}
	job, at := jobOf(p), wall(f.at)
	h.addDriverErrors(p, job, f.at)
	v, because := h.nodes.Reconsider(v, p.Spec.NodeName, job, at)
	if i, ok := strikes.Of(&v, p.Spec.NodeName, job, at); ok {
		h.nodes.Add(i)
	}
	h.config.Log.Info("diagnosed a pod that failed", "namespace", p.Namespace, "pod", p.Name, "node", p.Spec.NodeName, "category", v.Category,
		"component", v.Component, "signature", v.Signature, "confidence", v.Confidence, "action", v.Action, "history", because != nil)
	if v.Category == diagnose.None {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begun {
		h.noteFailed(job, p)
		h.config.Tell(Diagnosis(&v, job, p.Spec.NodeName, h.struck(p.Spec.NodeName, job, f.at)))
	}
}

// noteFailed keeps which pod of a job failed, and forgets the oldest of many.
func (h *Handler) noteFailed(job string, p *v1.Pod) {
	f := &failedPod{ObjectReference: v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}, uid: p.UID, maker: maker(p)}
	if c := metav1.GetControllerOf(p); c != nil {
		f.owner = &v1.ObjectReference{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: p.Namespace, Name: c.Name, UID: c.UID}
	}
	oldest := ""
	for name, o := range h.failed {
		f.number = max(f.number, o.number+1)
		if oldest == "" || o.number < h.failed[oldest].number {
			oldest = name
		}
	}
	if len(h.failed) >= mostJobs {
		delete(h.failed, oldest)
	}
	h.failed[job] = f
}

// Diagnosis returns a verdict as the event for the engine.
func Diagnosis(v *diagnose.Verdict, job, node string, at core.Time) core.JobDiagnosed {
	a := v.Recovery()
	ev := core.JobDiagnosed{
		Job: job, Class: string(v.Category) + "/" + v.Component, At: max(at, 0), Confidence: int64(v.Confidence*1000 + 0.5),
		Remedy: core.Remedy{Restarts: a.Limit, Node: core.NodeRemedy(max(0, slices.Index(core.NodeRemedies[:], a.Suspects)))},
	}
	if a.GoesOn {
		ev.Remedy.Restarts = core.AsBefore
	}
	if v.Category == diagnose.Infrastructure && !v.Waited() {
		ev.Suspects = []string{node}
	} else {
		ev.Remedy.Node = core.NoStrike
	}
	return ev
}

func (h *Handler) diagnose(ctx context.Context, p *v1.Pod, container string) (diagnose.Verdict, error) {
	in, err := h.config.Logs(ctx, p, container)
	if err != nil {
		return diagnose.Verdict{}, fmt.Errorf("read the log of container %s: %w", container, err)
	}
	defer in.Close()
	v, err := diagnose.Log(io.LimitReader(whileLeading{in, h.config.Leads}, mostBytes))
	if err == nil && !h.config.Leads() {
		err = errRests
	}
	return v, err
}

// whileLeading reads a log while this instance decides.
type whileLeading struct {
	io.Reader
	leads func() bool
}

// Read reads what comes next of the log.
func (r whileLeading) Read(b []byte) (int, error) {
	if !r.leads() {
		return 0, errRests
	}
	return r.Reader.Read(b)
}

// readLog opens the last lines of a container's log. The API server holds back what is not read yet.
func (h *Handler) readLog(ctx context.Context, p *v1.Pod, container string) (io.ReadCloser, error) {
	lines := int64(mostLines)
	return h.config.Client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &v1.PodLogOptions{Container: container, TailLines: &lines}).Stream(ctx)
}
