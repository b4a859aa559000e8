package recovery

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/semantic/strikes"
)

// This file keeps what the API says about failures, for the engine that begins: what counts of the failures of a job is an annotation of its last pod
// that failed, and the strikes of a node are one of the node. While this instance decides, what its engine says counts instead.

// jobRecord is the annotation of a pod that failed: what counts of the failures of its job.
type jobRecord struct {
	Decided  time.Time       `json:"decided"` // when the engine decided what becomes of the job
	At       time.Time       `json:"at"`      // when it failed
	Held     string          `json:"held,omitempty"`
	Restarts []restartRecord `json:"restarts,omitempty"`
	Avoids   []avoidRecord   `json:"avoids,omitempty"`
}

type restartRecord struct {
	Class   string    `json:"class"`
	Allowed int       `json:"allowed,omitempty"`
	At      time.Time `json:"at"`
}

type avoidRecord struct {
	Node  string    `json:"node"`
	Until time.Time `json:"until"`
}

// strikeRecord is an element of the annotation of a node.
type strikeRecord struct {
	At    time.Time `json:"at"`
	Class string    `json:"class"`
	Job   string    `json:"job"`
}

func wall(t core.Time) time.Time  { return time.Unix(0, int64(t)).UTC() }
func since(t time.Time) core.Time { return core.Time(max(0, t.UnixNano())) }

// textOf returns the annotation that says what counts of a job; "" for nothing.
func textOf(j *core.FailedJob, decided core.Time) string {
	r := jobRecord{Decided: wall(decided), At: wall(j.At), Held: j.Held}
	for _, x := range j.Restarts {
		r.Restarts = append(r.Restarts, restartRecord{x.Class, x.Allowed, wall(x.At)})
	}
	for _, a := range j.Avoids {
		r.Avoids = append(r.Avoids, avoidRecord{a.Node, wall(a.Until)})
	}
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // a bug: it has texts and times
	}
	return string(text)
}

// strikesText returns the annotation that has the strikes of a node; "" for none.
func strikesText(list []core.Strike) string {
	if len(list) == 0 {
		return ""
	}
	var all []strikeRecord
	for _, s := range list {
		all = append(all, strikeRecord{wall(s.At), s.Class, s.Job})
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // a bug: as above
	}
	return string(text)
}

// podRecord is what a pod says about the failures of its job.
type podRecord struct {
	core.FailedJob
	pod     types.NamespacedName
	failed  bool // the pod has the annotation; else it waits and says that its job is held
	decided time.Time
}

// recordOf returns what a pod says about the failures of its job; false if that is nothing, or the job was released since.
func recordOf(p *v1.Pod) (r podRecord, ok bool, err error) {
	r.pod = types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	text := p.Annotations[v1alpha1.RecoveryAnnotation]
	switch {
	case p.Status.Phase == v1.PodFailed && p.Spec.NodeName != "" && text != "":
		var is jobRecord
		if err := json.Unmarshal([]byte(text), &is); err != nil {
			return r, false, fmt.Errorf("annotation %s: expected what counts of failures, as JSON; %w", v1alpha1.RecoveryAnnotation, err)
		}
		r.failed, r.decided, r.At, r.Held = true, is.Decided, since(is.At), is.Held
		for _, x := range is.Restarts {
			r.Restarts = append(r.Restarts, core.FailureRestart{Class: x.Class, Allowed: x.Allowed, At: since(x.At)})
		}
		for _, a := range is.Avoids {
			r.Avoids = append(r.Avoids, core.AvoidedNode{Node: a.Node, Until: since(a.Until)})
		}
	case p.Status.Phase == v1.PodPending && p.Spec.NodeName == "":
		// The pod that failed may be gone.
		for i := range p.Status.Conditions {
			if c := &p.Status.Conditions[i]; c.Type == v1alpha1.WaitingCondition && c.Status == v1.ConditionTrue && c.Reason == core.Held.String() {
				r.decided, r.Held = c.LastTransitionTime.Time, c.Message
				r.At = since(r.decided)
			}
		}
	}
	if !r.failed && r.Held == "" {
		return r, false, nil
	}
	r.Job = jobOf(p)
	at, released := releaseOf(p)
	return r, !released || !at.After(r.decided), nil
}

// releaseOf returns when a user released the job of a pod, as the pod says; false if none did.
func releaseOf(p *v1.Pod) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, p.Annotations[v1alpha1.ReleaseAnnotation])
	return at, err == nil
}

// suspectOf returns what a node says about failures; false if that is nothing. If an operator has uncordoned it since, nothing is held against it.
func suspectOf(n *v1.Node) (core.SuspectNode, bool, error) {
	is := core.SuspectNode{Node: n.Name}
	_, ours := n.Annotations[v1alpha1.CordonedAnnotation]
	if ours && !n.Spec.Unschedulable {
		return is, true, nil
	}
	is.Cordoned = ours
	if text := n.Annotations[v1alpha1.StrikesAnnotation]; text != "" {
		var all []strikeRecord
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return is, ours, fmt.Errorf("annotation %s: expected strikes, as JSON; %w", v1alpha1.StrikesAnnotation, err)
		}
		for _, s := range all {
			is.Strikes = append(is.Strikes, core.Strike{At: since(s.At), Class: s.Class, Job: s.Job})
		}
	}
	return is, is.Cordoned || is.Strikes != nil, nil
}

// noteRecord keeps what a pod says.
func (h *Handler) noteRecord(p *v1.Pod) {
	r, ok, err := recordOf(p)
	if err != nil {
		h.config.Log.Warn("cannot read what a pod says about the failures of its job", "namespace", p.Namespace, "pod", p.Name, "error", err)
	}
	if ok {
		h.records[p.UID] = r
	} else {
		delete(h.records, p.UID)
	}
}

// ObserveNode is called with each node that changes.
func (h *Handler) ObserveNode(n *v1.Node) {
	is, ok, err := suspectOf(n)
	if err != nil {
		h.config.Log.Warn("cannot read what a node says about failures", "node", n.Name, "error", err)
	}
	driver, err := driverErrors(n)
	if err != nil {
		h.config.Log.Warn("cannot read what a node says about the errors of its driver", "node", n.Name, "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.driver[n.Name] = driver; driver == nil {
		delete(h.driver, n.Name)
	}
	if ok {
		h.suspects[n.Name] = is
	} else {
		delete(h.suspects, n.Name)
	}
	if _, waits := n.Annotations[v1alpha1.TestAnnotation]; waits {
		h.tests[n.Name] = true
	}
}

// Gone is called with each pod and node that was deleted.
func (h *Handler) Gone(o metav1.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o.GetNamespace() == "" {
		delete(h.suspects, o.GetName())
		delete(h.driver, o.GetName())
		return
	}
	delete(h.records, o.GetUID())
	for job, f := range h.failed { // of at most mostJobs
		if f.uid == o.GetUID() {
			delete(h.failed, job)
		}
	}
}

// Only is called with all pods, or all nodes, that are there: the others have been deleted.
func (h *Handler) Only(pods bool, list []metav1.Object) {
	there := make(map[types.UID]bool, len(list))
	names := make(map[string]bool, len(list))
	for _, o := range list {
		there[o.GetUID()], names[o.GetName()] = true, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if pods {
		maps.DeleteFunc(h.records, func(uid types.UID, _ podRecord) bool { return !there[uid] })
		maps.DeleteFunc(h.failed, func(_ string, f *failedPod) bool { return !there[f.uid] })
	} else {
		maps.DeleteFunc(h.suspects, func(name string, _ core.SuspectNode) bool { return !names[name] })
		maps.DeleteFunc(h.driver, func(name string, _ []strikes.Incident) bool { return !names[name] })
	}
}

// Failures returns what counts of failures, for an engine that begins: what the one before said in this instance or, without one, what the API says.
func (h *Handler) Failures() core.FailuresFound {
	h.mu.Lock()
	defer h.mu.Unlock()
	is := core.FailuresFound{}
	decided := map[string]time.Time{}
	if h.own != nil {
		is = *h.own
	} else {
		latest := map[string]podRecord{}
		for _, r := range h.records {
			if old, ok := latest[r.Job]; !ok || r.failed && !old.failed || r.failed == old.failed && r.decided.After(old.decided) {
				latest[r.Job] = r
			}
		}
		for _, job := range slices.Sorted(maps.Keys(latest)) {
			is.Jobs, decided[job] = append(is.Jobs, latest[job].FailedJob), latest[job].decided
		}
		for _, name := range slices.Sorted(maps.Keys(h.suspects)) {
			n := h.suspects[name]
			if !n.Cordoned && n.Strikes == nil { // uncordoned while no instance ran: else a later cordon of a person's would count as one for failures
				if h.mode == core.Recover {
					h.wish(name)
				}
				continue
			}
			is.Nodes = append(is.Nodes, n)
			h.shown[name] = n
		}
		h.own = &is
	}
	held := map[string]*hold{}
	for i := range is.Jobs {
		if j := &is.Jobs[i]; j.Held != "" && h.mode == core.Recover {
			if held[j.Job] = h.held[j.Job]; held[j.Job] == nil {
				held[j.Job] = &hold{at: decided[j.Job]}
			}
		}
	}
	h.held = held
	return is
}

// sync takes in what the engine says of failures now, and queues the nodes of which other things are held against them than are written there.
func (h *Handler) sync(is core.FailuresFound) {
	h.own = &is
	if h.mode != core.Recover {
		return
	}
	stays := map[string]bool{}
	for i := range is.Jobs {
		stays[is.Jobs[i].Job] = is.Jobs[i].Held != ""
	}
	maps.DeleteFunc(h.held, func(job string, _ *hold) bool { return !stays[job] })
	now := map[string]core.SuspectNode{}
	for _, n := range is.Nodes {
		now[n.Node] = n
	}
	for name := range h.shown {
		if _, ok := now[name]; !ok {
			now[name] = core.SuspectNode{Node: name}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		n, was := now[name], h.shown[name]
		if n.Cordoned == was.Cordoned && slices.Equal(n.Strikes, was.Strikes) {
			continue
		}
		if h.shown[name] = n; !n.Cordoned && n.Strikes == nil {
			delete(h.shown, name)
		}
		h.wish(name)
	}
}

// wish returns what is to be written on a node.
func (h *Handler) wish(name string) *nodeWish {
	w := h.wishes[name]
	if w == nil {
		w = &nodeWish{}
		h.wishes[name] = w
	}
	return w
}

// struck returns the time of a strike that a node has for the failure of a job at about a time: the failure was diagnosed before.
func (h *Handler) struck(node, job string, at core.Time) core.Time {
	for _, s := range h.suspects[node].Strikes {
		if s.Job == job && max(s.At-at, at-s.At) <= 2*core.Second {
			return s.At
		}
	}
	return at
}

// retries reports whether a pod is part of a restart by what made its owner, as JobSets do, and so no other job of its name.
func retries(p *v1.Pod) bool {
	attempt := p.Labels["jobset.sigs.k8s.io/restart-attempt"]
	return attempt != "" && strings.Trim(attempt, "0") != ""
}
