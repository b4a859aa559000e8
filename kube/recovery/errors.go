package recovery

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/semantic/diagnose"
	"github.com/muster-sched/muster/semantic/strikes"
)

// This file takes the errors that the driver wrote to the kernel logs of nodes, as the agents publish them, into the nodes' history.

// driverErrors returns what the driver of a node reported, as the node says.
func driverErrors(n *v1.Node) (out []strikes.Incident, err error) {
	text := n.Annotations[v1alpha1.GPUErrorsAnnotation]
	if text == "" {
		return nil, nil
	}
	var all []v1alpha1.GPUError
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("annotation %s: expected errors of the driver, as JSON; %w", v1alpha1.GPUErrorsAnnotation, err)
	}
	for _, e := range all {
		if i, ok := strikes.OfDriver(e.Text, n.Name, e.PCI, e.At.Time); ok {
			out = append(out, i)
		}
	}
	return out, nil
}

// addDriverErrors adds to the history what the driver reported of the node of a pod that failed. An error that programs cause is the job's if the pod ran then
// and failed soon after; of others it is not known whose they are, and they say nothing.
func (h *Handler) addDriverErrors(p *v1.Pod, job string, failed core.Time) {
	h.mu.Lock()
	list := h.driver[p.Spec.NodeName]
	h.mu.Unlock()
	for _, i := range list {
		if i.Category != diagnose.Infrastructure {
			age := wall(failed).Sub(i.At)
			if p.Status.StartTime == nil || i.At.Before(p.Status.StartTime.Time) || age < 0 || age > strikes.Fatal {
				continue
			}
			i.Job = job
		}
		h.nodes.Add(i)
	}
}
