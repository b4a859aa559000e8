package act

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Saver has the processes of pods save themselves.
type Saver interface {
	// Save returns when the processes of all pods have saved their progress, and stand still for long enough to evict them. Otherwise all go
	// on, at the latest after a while, and the error says why. They go on, too, if they are not evicted. It is given up after the time that it
	// may take in all, if that is not 0.
	Save(ctx context.Context, pods []Saving, inAll time.Duration) error
}

// Saving is a pod whose processes are to save themselves.
type Saving struct {
	Pod
	Node   string        // where it is
	Within time.Duration // how long they may take
}

// save has the processes of pods save themselves that say that they can, as one, before the pods leave. Those that have not leave all the
// same: the engine has given their places away. Then they lose what they did since they last saved it by themselves.
//
// Where another job waits for the pods, all of it takes no longer than their notice, and those that have saved themselves have what is left
// of it to end.
func (a *Actor) save(ctx context.Context, leaving []Evict) {
	var pods []Saving
	within, notice := time.Duration(0), time.Duration(0)
	for i := range leaving {
		if e := &leaving[i]; e.SaveWithin > 0 {
			pods = append(pods, Saving{e.Pod, e.Node, e.SaveWithin})
			within, notice = max(within, e.SaveWithin), e.Notice
		}
	}
	if a.saver == nil || len(pods) == 0 {
		return
	}
	began := a.now()
	var err error
	if notice > 0 && within > notice {
		err = fmt.Errorf("they take %v, and the policy gives them %v (preemption.evictGrace)", within, notice)
	} else {
		a.log.Info("asking the processes of pods to save their progress before they leave", "pods", len(pods), "pod", pods[0].String())
		err = a.saver.Save(ctx, pods, notice)
	}
	if ctx.Err() != nil {
		return
	}
	took := a.now().Sub(began)
	kind, reason, message := v1.EventTypeNormal, "Saved", fmt.Sprintf("its processes saved their progress before it leaves, in %.1f s", took.Seconds())
	if err != nil {
		kind, reason, message = v1.EventTypeWarning, "NotSaved", "its processes did not save their progress before it leaves: "+err.Error()
	}
	a.log.Info(message, "pods", len(pods), "pod", pods[0].String())
	for i := range pods {
		a.event("Pod", pods[i].Pod, kind, reason, message)
	}
	if err == nil && notice > 0 {
		left := max(1, int64((notice-took)/time.Second))
		for i := range leaving {
			if e := &leaving[i]; e.SaveWithin > 0 && e.Asks > left {
				e.Grace = &left
			}
		}
	}
}
