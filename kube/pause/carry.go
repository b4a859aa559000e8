package pause

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/translate"
)

const (
	// slack is how long a pause or a resumption may take beside twice what the pod says.
	slack = 30 * time.Second
	// wayBack bounds what is asked of the API for pods that cannot be paused, and are evicted after that.
	wayBack = 20 * time.Second
	// again is the time between two attempts to let pods go on.
	again = time.Second
)

// patient is the time for an operation that takes this long as a rule.
func patient(usual core.Time) time.Duration { return 2*time.Duration(usual) + slack }

// pauseNow has the processes of the pods of a job paused, and returns how long that took:
//
//  1. The condition says that it begins, and what a pod has. Until the pods are paused, the next scheduler lets them go on.
//  2. The pods' memory grows by what is on their GPUs.
//  3. The agents of their nodes pause their processes, all or none.
//  4. Their CPU is given back, and the condition says that they are paused.
//
// After an error the pods have what they had, as far as that can be achieved within a while, and their processes run: they are to be evicted.
func (h *Handler) pauseNow(ctx context.Context, w *work) (took time.Duration, err error) {
	began := h.Now()
	err = w.each(func(m *member) error {
		p, err := h.get(ctx, m)
		if err != nil {
			return err
		}
		if why := objects.NotPausable(p); why != "" {
			return errors.New(why)
		}
		if was := objects.PauseOf(p); was != nil && was.Had != nil {
			return errors.New("it does not go on after its last pause")
		}
		m.had = hadOf(p)
		m.had.Since, m.had.GPUs, m.had.Lead = time.Unix(0, int64(w.since)).UTC(), m.gpus, w.lead
		return nil
	})
	if err != nil {
		return 0, err
	}
	asked := false
	defer func() {
		if err != nil && ctx.Err() == nil {
			h.takeBack(ctx, w, asked, err)
		}
	}()
	pausing := func(*member) string { return "its processes are being paused" + w.forWhom() }
	if err := h.tell(ctx, w, leadFirst, v1.ConditionFalse, v1alpha1.PausedPausing, pausing); err != nil {
		return 0, err
	}
	if err := w.each(func(m *member) error { return h.shape(ctx, m, shape{cpu: true, image: m.image}) }); err != nil {
		return 0, err
	}
	asked = true
	if err := h.pauseProcesses(ctx, w); err != nil {
		return 0, err
	}
	if err := w.each(func(m *member) error { return h.shape(ctx, m, shape{image: m.image}) }); err != nil {
		return 0, err
	}
	took = h.Now().Sub(began)
	err = h.tell(ctx, w, leadLast, v1.ConditionTrue, v1alpha1.PausedPaused, func(m *member) string {
		return fmt.Sprintf("its processes are paused%s: others may use its GPUs %s; they go on when these and the quota are free (paused in %.1f s)", w.forWhom(), translate.Devices(m.gpus), took.Seconds())
	})
	if err != nil {
		return 0, err
	}
	for _, m := range w.pods {
		h.event(m, v1.EventTypeNormal, "Paused", fmt.Sprintf("its processes are paused%s, in %.1f s; it keeps its node", w.forWhom(), took.Seconds()))
	}
	return took, nil
}

// takeBack lets pods go on that could not be paused: their processes, if the agents were asked to pause them, and what the pods had.
func (h *Handler) takeBack(ctx context.Context, w *work, asked bool, why error) {
	if asked {
		if err := h.giveUp(ctx, w, why); err != nil {
			h.Log.Warn("the agents do not say that the processes of pods go on that could not be paused", "pods", w.String(), "error", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, wayBack)
	defer cancel()
	if err := w.each(func(m *member) error { return h.shape(ctx, m, shape{cpu: true}) }); err != nil {
		h.Log.Warn("pods that could not be paused cannot be resized to what they had", "pods", w.String(), "error", err)
	}
	message := "its processes cannot be paused: " + why.Error()
	for _, m := range w.pods {
		m.had = nil
		h.event(m, v1.EventTypeWarning, v1alpha1.PausedNot, message)
	}
	err := h.tell(ctx, w, leadLast, v1.ConditionFalse, v1alpha1.PausedNot, func(*member) string { return message })
	if err != nil && !apierrors.IsNotFound(err) {
		h.Log.Warn("cannot write on pods that they could not be paused", "pods", w.String(), "error", err)
	}
}

// resumeNow lets the pods of a job go on: those that were paused, or whose pause or resumption was not ended. It returns how long that took:
//
//  1. The condition says that the GPUs are their own again: the next scheduler counts them as running. A pause that is not ended is given
//     up.
//  2. They get their CPU back.
//  3. The agents let their processes go on, tried until the time is over: what had the GPUs may take a moment to leave them.
//  4. They give back the memory, and the condition says that they run.
//
// After an error, they are to be evicted.
func (h *Handler) resumeNow(ctx context.Context, w *work) (took time.Duration, err error) {
	began := h.Now()
	err = w.each(func(m *member) error {
		p, err := h.get(ctx, m)
		if err != nil {
			return err
		}
		was := objects.PauseOf(p)
		switch {
		case was != nil && was.Had != nil:
			m.had = was.Had
		case w.lead != "": // the instance before died before it wrote on this one, or after it had let it go on
			m.had = hadOf(p)
			m.had.Since, m.had.GPUs, m.had.Lead = time.Unix(0, int64(w.since)).UTC(), m.gpus, w.lead
		default:
			return errors.New("what it had before its pause is not known")
		}
		if w.lead == "" && was.Reason == v1alpha1.PausedPausing { // by an instance before this one
			w.since = objects.TimeOf(was.Since)
			if err := h.Agents.Cancel(ctx, m.node, w.pauseID()); err != nil {
				h.Log.Warn("the agent does not say that a pause is given up", "pod", m.String(), "error", err)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	defer func() {
		if err == nil || ctx.Err() != nil {
			return
		}
		for _, m := range w.pods {
			h.event(m, v1.EventTypeWarning, v1alpha1.PausedNot, "its processes cannot go on: "+err.Error())
		}
	}()
	resuming := func(*member) string { return "its GPUs are its own again, and its processes go on" }
	if err := h.tell(ctx, w, leadFirst, v1.ConditionFalse, v1alpha1.PausedResuming, resuming); err != nil {
		return 0, err
	}
	if err := w.each(func(m *member) error { return h.shape(ctx, m, shape{cpu: true, image: m.image}) }); err != nil {
		return 0, err
	}
	within := patient(w.suspension.Resume)
	for until := h.Now().Add(within); ; {
		if err = h.resumeProcesses(ctx, w, within); err == nil {
			break
		}
		if ctx.Err() != nil || !h.Now().Before(until) {
			return 0, err
		}
		h.Log.Info("pods cannot go on yet", "pods", w.String(), "why", err)
		if err := sleep(ctx, again); err != nil {
			return 0, err
		}
	}
	took = h.Now().Sub(began)
	if err := w.each(func(m *member) error { return h.shape(ctx, m, shape{cpu: true}) }); err != nil {
		h.Log.Warn("a pod keeps the memory of its pause", "pods", w.String(), "error", err) // it runs
	}
	for _, m := range w.pods {
		m.had = nil
	}
	message := fmt.Sprintf("its processes go on (in %.1f s)", took.Seconds())
	if err := h.tell(ctx, w, leadLast, v1.ConditionFalse, v1alpha1.PausedResumed, func(*member) string { return message }); err != nil {
		h.Log.Warn("cannot write on pods that they go on", "pods", w.String(), "error", err)
	}
	for _, m := range w.pods {
		h.event(m, v1.EventTypeNormal, "Resumed", fmt.Sprintf("its processes go on, in %.1f s", took.Seconds()))
	}
	return took, nil
}

func (w *work) forWhom() string {
	if w.text == "" {
		return ""
	}
	return " for " + w.text
}
