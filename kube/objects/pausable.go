package objects

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// readPausable reads how the processes of a pod can be paused: "pause=5s,resume=10s,memory=160Gi".
func readPausable(v string) (s core.Suspension, err error) {
	const want = "expected how long the pause and the resumption take, and the memory for what is on the GPUs, such as pause=5s,resume=10s,memory=160Gi"
	seen := map[string]bool{}
	for part := range strings.SplitSeq(v, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		var d v1alpha1.Duration
		switch key {
		case "pause", "resume":
			if err := d.UnmarshalText([]byte(value)); err != nil || d < 0 {
				return core.Suspension{}, fmt.Errorf("%s: %q: %s", v1alpha1.PausableAnnotation, v, want)
			}
			if key == "pause" {
				s.Pause = core.Time(d)
			} else {
				s.Resume = core.Time(d)
			}
		case "memory":
			q, err := v1alpha1.ParseQuantity(value)
			if err != nil || q.Sign() <= 0 || q.Value()>>20 > core.MaxAmount {
				return core.Suspension{}, fmt.Errorf("%s: %q: %s", v1alpha1.PausableAnnotation, v, want)
			}
			s.HostMemMiB = translate.AmountsIn(v1.ResourceList{v1.ResourceMemory: q}).MemMiB
		default:
			return core.Suspension{}, fmt.Errorf("%s: %q: %s", v1alpha1.PausableAnnotation, v, want)
		}
		if seen[key] {
			return core.Suspension{}, fmt.Errorf("%s: %q: %s", v1alpha1.PausableAnnotation, v, want)
		}
		seen[key] = true
	}
	if len(seen) < 3 {
		return core.Suspension{}, fmt.Errorf("%s: %q: %s", v1alpha1.PausableAnnotation, v, want)
	}
	return s, nil
}

// maxCheckpoint is how long a pod that is to leave may take to save its progress.
const maxCheckpoint = time.Hour

// readCheckpointWithin reads how long the processes of a pod take to save their progress.
func readCheckpointWithin(v string) (time.Duration, error) {
	var d v1alpha1.Duration
	if err := d.UnmarshalText([]byte(v)); err != nil || d <= 0 || time.Duration(d) > maxCheckpoint {
		return 0, fmt.Errorf("%s: %q: expected how long the processes take to save their progress, at most %v, such as 2m", v1alpha1.CheckpointWithinAnnotation, v, v1alpha1.Duration(maxCheckpoint))
	}
	return time.Duration(d), nil
}

// NotPausable says why the processes of a pod cannot be paused where it is, whatever agent its node has; empty if they may be. The pod
// is resized in place for the time of the pause: its CPU is for others, and its memory has what was on the GPUs.
func NotPausable(p *v1.Pod) string {
	r := translate.Requests(p)
	switch {
	case r.GPUs > 0 || len(p.Spec.ResourceClaims) > 0:
		return fmt.Sprintf("the kubelet counts its GPUs, also while it is paused: expected %s in place of %s or resource claims", v1alpha1.GPUCountAnnotation, v1alpha1.GPUResource)
	case p.Spec.Resources != nil || !p.Spec.Overhead.Cpu().IsZero():
		return "it requests CPU for the pod as a whole, which cannot be given back: expected requests of its containers"
	case p.Status.QOSClass == v1.PodQOSGuaranteed:
		return "it is Guaranteed, so its CPU cannot be given back: expected a CPU limit above the CPU request, or none"
	case r.MemMiB == 0:
		return "it requests no memory, so it cannot be resized: expected a memory request"
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if (c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways) && !c.Resources.Requests.Cpu().IsZero() {
			return fmt.Sprintf("its init container %s requests CPU, which counts as long as the pod is there: expected none", c.Name)
		}
	}
	for _, c := range Resizable(p) {
		for _, x := range c.ResizePolicy {
			if x.RestartPolicy == v1.RestartContainer {
				return fmt.Sprintf("its container %s restarts when its %s is resized: expected resizePolicy NotRequired", c.Name, x.ResourceName)
			}
		}
	}
	return ""
}

// Resizable lists the containers of a pod that run beside each other.
func Resizable(p *v1.Pod) []*v1.Container {
	var out []*v1.Container
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			out = append(out, c)
		}
	}
	for i := range p.Spec.Containers {
		out = append(out, &p.Spec.Containers[i])
	}
	return out
}
