// Package recovery is the Failure Handler on Kubernetes (SchedMate §3.3). It reads the logs of pods that failed, tells the engine why they did, and carries
// out what the engine decides about that, or in a dry run says what it would do. It reads one log at a time, beside the goroutine that decides, and reads
// none while the policy has recovery off.
//
//	recovery.go   pods that failed are read about, and the engine is told
//	carry.go      what the engine decided is written to the API
package recovery

import (
	"context"
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
	// Next receives what the handler is told of the engine, first; nil for none.
	Next Recorder
	Log  *slog.Logger
	// Logs opens the log of a container; nil: the API's.
	Logs func(ctx context.Context, pod *v1.Pod, container string) (io.ReadCloser, error)
	// Events publishes events; nil: with the client.
	Events record.EventRecorder
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
)

// Handler handles failures.
type Handler struct {
	config Config
	began  time.Time

	mu     sync.Mutex
	mode   core.RecoveryMode
	seen   map[types.UID]bool   // pods that were queued
	failed map[string]*v1.Pod   // the pod of each job that was diagnosed last, by the job's name
	held   map[string]types.UID // who made the pods of jobs that are held, by the job's name
	order  []types.UID          // of seen, the oldest first
	pods   chan types.NamespacedName
	todo   chan core.Decision
	nodes  strikes.History // of the goroutine that reads logs
}

// New returns a handler that has not started.
func New(c Config) *Handler {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	h := &Handler{
		config: c, began: time.Now(), seen: map[types.UID]bool{}, failed: map[string]*v1.Pod{}, held: map[string]types.UID{},
		pods: make(chan types.NamespacedName, mostWait), todo: make(chan core.Decision, mostWait),
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
			case name := <-h.pods:
				h.read(ctx, name)
			}
		}
	})
	both.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case d := <-h.todo:
				h.carry(ctx, &d)
			}
		}
	})
	both.Wait()
}

// Observe is called with each pod that changes. It is quick, and keeps nothing of the pod.
func (h *Handler) Observe(p *v1.Pod) {
	if p.Spec.SchedulerName != v1alpha1.SchedulerName {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.mode == core.NoRecovery:
	case p.Spec.NodeName == "" && len(h.held) > 0:
		// The owner of a held job made a new one of its name: that is no retry.
		if job := jobOf(p); h.held[job] != "" && h.held[job] != maker(p) {
			delete(h.held, job)
			h.config.Tell(core.JobReleased{Job: job})
		}
	case p.Status.Phase == v1.PodFailed && p.Spec.NodeName != "" && p.DeletionTimestamp == nil && !h.seen[p.UID] && endOf(p).After(h.began):
		h.note(p.UID)
		select {
		case h.pods <- types.NamespacedName{Namespace: p.Namespace, Name: p.Name}:
		default:
			h.config.Log.Warn("too many pods failed at once: the log of one is not read", "namespace", p.Namespace, "pod", p.Name)
		}
	}
}

// note remembers a pod that was queued, and forgets the oldest of many.
func (h *Handler) note(uid types.UID) {
	h.seen[uid] = true
	if h.order = append(h.order, uid); len(h.order) > 10*mostWait {
		delete(h.seen, h.order[0])
		h.order = h.order[1:]
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

// endOf returns when a pod failed; now if that is not known.
func endOf(p *v1.Pod) time.Time {
	if _, at := failure(p); !at.IsZero() {
		return at.Add(time.Second) // the API has whole seconds
	}
	return time.Now()
}

// read reads the log of a pod that failed, and tells the engine why it did. Without an answer, it tells nothing.
func (h *Handler) read(ctx context.Context, name types.NamespacedName) {
	ctx, cancel := context.WithTimeout(ctx, mostTime)
	defer cancel()
	p, err := h.config.Client.CoreV1().Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil || p.Status.Phase != v1.PodFailed {
		return // it is gone, and its log with it
	}
	container, at := failure(p)
	v, err := h.diagnose(ctx, p, container)
	if err != nil {
		h.config.Log.Warn("cannot diagnose a pod that failed", "namespace", p.Namespace, "pod", p.Name, "error", err)
		return
	}
	job := jobOf(p)
	v, because := h.nodes.Reconsider(v, p.Spec.NodeName, job, endOf(p))
	if i, ok := strikes.Of(&v, p.Spec.NodeName, job, endOf(p)); ok {
		h.nodes.Add(i)
	}
	h.config.Log.Info("diagnosed a pod that failed", "namespace", p.Namespace, "pod", p.Name, "node", p.Spec.NodeName, "category", v.Category,
		"component", v.Component, "signature", v.Signature, "confidence", v.Confidence, "action", v.Action, "history", because != nil)
	if v.Category == diagnose.None {
		return
	}
	h.mu.Lock()
	h.failed[job] = p
	h.mu.Unlock()
	h.config.Tell(Diagnosis(&v, job, p.Spec.NodeName, core.Time(at.UnixNano())))
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
	if v.Category == diagnose.Infrastructure {
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
	return diagnose.Log(io.LimitReader(in, mostBytes))
}

// readLog opens the last lines of a container's log. The API server holds back what is not read yet.
func (h *Handler) readLog(ctx context.Context, p *v1.Pod, container string) (io.ReadCloser, error) {
	lines := int64(mostLines)
	return h.config.Client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &v1.PodLogOptions{Container: container, TailLines: &lines}).Stream(ctx)
}
