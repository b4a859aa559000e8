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
	// on, at the latest after a while, and the error says why. They go on, too, if they are not evicted.
	Save(ctx context.Context, pods []Saving) error
}

// Saving is a pod whose processes are to save themselves.
type Saving struct {
	Pod
	Node   string        // where it is
	Within time.Duration // how long they may take
}

// save has the processes of pods save themselves that say that they can, as one, before the pods leave. Those that have not leave all the
// same: the engine has given their places away. Then they lose what they did since they last saved it by themselves.
func (a *Actor) save(ctx context.Context, leaving []Evict) {
	var pods []Saving
	for i := range leaving {
		if e := &leaving[i]; e.SaveWithin > 0 {
			pods = append(pods, Saving{e.Pod, e.Node, e.SaveWithin})
		}
	}
	if a.saver == nil || len(pods) == 0 {
		return
	}
	a.log.Info("asking the processes of pods to save their progress before they leave", "pods", len(pods), "pod", pods[0].String())
	began := a.now()
	err := a.saver.Save(ctx, pods)
	if ctx.Err() != nil {
		return
	}
	kind, reason, message := v1.EventTypeNormal, "Saved", fmt.Sprintf("its processes saved their progress before it leaves, in %.1f s", a.now().Sub(began).Seconds())
	if err != nil {
		kind, reason, message = v1.EventTypeWarning, "NotSaved", "its processes did not save their progress before it leaves: "+err.Error()
	}
	a.log.Info(message, "pods", len(pods), "pod", pods[0].String())
	for i := range pods {
		a.event("Pod", pods[i].Pod, kind, reason, message)
	}
}
