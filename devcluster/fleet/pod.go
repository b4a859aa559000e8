package fleet

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Annotations of pods with which a user controls the simulated containers.
const (
	// Duration is the run time of the containers, such as "90s"; without it, they run
	// until the pod is deleted.
	Duration = "devcluster.muster.sh/duration"
	// Outcome is how they end: "succeeded", which is the default, or "failed".
	Outcome = "devcluster.muster.sh/outcome"
	// Termination is the time that they take to end when the pod is deleted, at most its
	// grace period; without it they end at once.
	Termination = "devcluster.muster.sh/termination"
)

// pod is what the simulator remembers of a bound pod: a tenth of the object.
type pod struct {
	metav1.ObjectMeta // namespace, name, UID and resource version

	node  string
	phase corev1.PodPhase
	// began is when the containers began, as in the status: in whole seconds.
	began    time.Time
	restarts int32
	ip       netip.Addr
	// containers and inits are those of the spec; sidecars are among the inits.
	containers, inits []container
	requests          []amount
	restart           corev1.RestartPolicy
	duration          time.Duration // negative: until deleted
	savesTo           string        // where its process saves its progress; empty for nowhere
	failed            bool          // how it ends
	// deadline is when a pod that is being deleted must have ended, zero for others; stop
	// is when its containers end.
	deadline, stop time.Time
	// left reports whether the node has finished with the pod.
	left bool
	// outgrown reports whether the status says that containers have other resources than the spec.
	outgrown bool
	// watched reports whether a controller waits to see how the pod ended: the pod has
	// finalizers.
	watched bool
}

type container struct {
	name, image string
	sidecar     bool
	// resources are those of the spec, of pods that are [Pausable]; nil for others, which nobody resizes.
	resources *corev1.ResourceRequirements
}

// condense returns what the simulator remembers of a pod.
func condense(p *corev1.Pod) *pod {
	c := &pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: intern(p.Namespace), Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion},
		node:       intern(p.Spec.NodeName),
		phase:      corev1.PodPhase(intern(string(p.Status.Phase))),
		restart:    corev1.RestartPolicy(intern(string(p.Spec.RestartPolicy))),
		containers: containers(p.Spec.Containers, p.Annotations[Pausable] != ""),
		inits:      containers(p.Spec.InitContainers, p.Annotations[Pausable] != ""),
		requests:   requests(p),
		duration:   duration(p.Annotations[Duration], -1),
		savesTo:    savesTo(p),
		failed:     p.Annotations[Outcome] == "failed",
		watched:    len(p.Finalizers) > 0,
	}
	c.ip, _ = netip.ParseAddr(p.Status.PodIP)
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			now := c.resourcesOf(list[i].Name)
			c.outgrown = c.outgrown || now != nil && list[i].State.Running != nil && !equality.Semantic.DeepEqual(list[i].Resources, now)
		}
	}
	for _, s := range p.Status.ContainerStatuses {
		c.restarts = max(c.restarts, s.RestartCount)
		if s.State.Running != nil {
			c.began = s.State.Running.StartedAt.Time
		}
	}
	if p.DeletionTimestamp != nil {
		grace := time.Duration(ptr.Deref(p.DeletionGracePeriodSeconds, 0)) * time.Second
		c.deadline = p.DeletionTimestamp.Time
		c.stop = c.deadline.Add(min(0, duration(p.Annotations[Termination], 0)-grace))
		c.left = grace == 0
	}
	return c
}

// resourcesOf returns the resources of a container, nil if they are not kept.
func (p *pod) resourcesOf(name string) *corev1.ResourceRequirements {
	for _, list := range [][]container{p.containers, p.inits} {
		for i := range list {
			if list[i].name == name {
				return list[i].resources
			}
		}
	}
	return nil
}

func containers(of []corev1.Container, resized bool) []container {
	if len(of) == 0 {
		return nil
	}
	list := make([]container, len(of))
	for i := range of {
		always := of[i].RestartPolicy != nil && *of[i].RestartPolicy == corev1.ContainerRestartPolicyAlways
		list[i] = container{name: intern(of[i].Name), image: intern(of[i].Image), sidecar: always}
		if resized {
			list[i].resources = &corev1.ResourceRequirements{Requests: of[i].Resources.Requests, Limits: of[i].Resources.Limits}
		}
	}
	return list
}

// intern returns a copy of s that all pods share.
func intern(s string) string { return unique.Make(s).Value() }

// duration parses an annotation; an invalid duration counts as none.
func duration(text string, without time.Duration) time.Duration {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d
	}
	return without
}

// ended reports whether the pod has reached its last phase.
func (p *pod) ended() bool { return p.phase == corev1.PodSucceeded || p.phase == corev1.PodFailed }

// restartsAfter reports whether the containers restart after they ended.
func (p *pod) restartsAfter(failed bool) bool {
	return p.restart == corev1.RestartPolicyAlways || p.restart == corev1.RestartPolicyOnFailure && failed
}

// running returns the changes in the status of a pod that starts to run now.
func (p *pod) running(now time.Time, hostIP string) corev1.PodStatus {
	at := metav1.NewTime(now)
	s := corev1.PodStatus{
		Phase:     corev1.PodRunning,
		StartTime: &at,
		HostIP:    hostIP, HostIPs: []corev1.HostIP{{IP: hostIP}},
		PodIP: p.ip.String(), PodIPs: []corev1.PodIP{{IP: p.ip.String()}},
		Conditions:        p.conditions(at, corev1.ConditionTrue, ""),
		ContainerStatuses: p.statuses(p.containers, runningState(at), corev1.ContainerState{}),
	}
	for _, c := range p.inits {
		state := corev1.ContainerState{Terminated: exit(0, at, at)}
		if c.sidecar {
			state = runningState(at)
		}
		s.InitContainerStatuses = append(s.InitContainerStatuses, p.statuses([]container{c}, state, corev1.ContainerState{})...)
	}
	return s
}

// finished returns the changes in the status when the containers end now: the pod ends too or,
// unless it is being deleted, restarts them if its restart policy requires this.
func (p *pod) finished(now time.Time, failed bool, code int32) corev1.PodStatus {
	at, began := metav1.NewTime(now), metav1.NewTime(p.began)
	last := corev1.ContainerState{Terminated: exit(code, began, at)}
	if p.restartsAfter(failed) && p.deadline.IsZero() {
		again := *p
		again.restarts++
		return corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: again.statuses(p.containers, runningState(at), last)}
	}
	s := corev1.PodStatus{Phase: corev1.PodSucceeded}
	reason := "PodCompleted"
	if failed {
		s.Phase, reason = corev1.PodFailed, "PodFailed"
	}
	s.Conditions = p.conditions(at, corev1.ConditionFalse, reason)
	s.ContainerStatuses = p.statuses(p.containers, last, corev1.ContainerState{})
	for _, c := range p.inits {
		s.InitContainerStatuses = append(s.InitContainerStatuses,
			p.statuses([]container{c}, corev1.ContainerState{Terminated: exit(0, began, at)}, corev1.ContainerState{})...)
	}
	return s
}

// conditions are those of a pod whose containers are ready or, with a reason, no longer
// ready.
func (p *pod) conditions(at metav1.Time, ready corev1.ConditionStatus, reason string) []corev1.PodCondition {
	list := []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: ready},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
		{Type: corev1.ContainersReady, Status: ready, Reason: reason},
		{Type: corev1.PodReady, Status: ready, Reason: reason},
	}
	for i := range list {
		list[i].LastTransitionTime = at
	}
	return list
}

func (p *pod) statuses(of []container, state, last corev1.ContainerState) []corev1.ContainerStatus {
	var list []corev1.ContainerStatus
	for _, c := range of {
		ok := state.Running != nil || state.Terminated != nil && slices.Contains(p.inits, c) && state.Terminated.ExitCode == 0
		list = append(list, corev1.ContainerStatus{
			Name: c.name, Image: c.image, ImageID: "simulated://" + c.image,
			ContainerID: fmt.Sprintf("simulated://%s/%s/%d", p.UID, c.name, p.restarts),
			Ready:       ok, Started: ptr.To(state.Running != nil),
			RestartCount: p.restarts, State: state, LastTerminationState: last, Resources: c.resources,
		})
	}
	return list
}

func runningState(at metav1.Time) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
}

func exit(code int32, began, at metav1.Time) *corev1.ContainerStateTerminated {
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	return &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, StartedAt: began, FinishedAt: at}
}

// patch returns a strategic merge patch of the status of this pod and its known version:
// if the pod has changed since, the API server refuses the patch.
func (p *pod) patch(status corev1.PodStatus) []byte {
	type meta struct {
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion"`
	}
	data, err := json.Marshal(struct {
		Metadata meta             `json:"metadata"`
		Status   corev1.PodStatus `json:"status"`
	}{meta{p.UID, p.ResourceVersion}, status})
	if err != nil {
		panic(err) // a status is made of what JSON has
	}
	return data
}
