package translate

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Drain is what [v1alpha1.DrainAnnotation] of a node asks for.
type Drain struct {
	// Wait is how long a pod may take to be replaced.
	Wait time.Duration
	// Request tells one request from another.
	Request string
}

// String is the value of the annotation.
func (d Drain) String() string {
	return strings.TrimSpace(v1alpha1.Duration(d.Wait).String() + " " + d.Request)
}

// DrainOf returns what a node is asked for, nil when that is nothing: also when
// the node is open to new pods. An error says what the annotation should be.
func DrainOf(n *v1.Node) (*Drain, error) {
	text, ok := n.Annotations[v1alpha1.DrainAnnotation]
	if !ok || !n.Spec.Unschedulable {
		return nil, nil
	}
	wait, request, _ := strings.Cut(text, " ")
	var d v1alpha1.Duration
	if err := d.UnmarshalText([]byte(wait)); err != nil {
		return nil, fmt.Errorf("annotation %s: expected %v; found %q", v1alpha1.DrainAnnotation, err, text)
	}
	return &Drain{time.Duration(d), request}, nil
}

// Move is the value of [v1alpha1.MovingAnnotation].
type Move struct {
	// Owner is whose pod it was.
	Owner metav1.OwnerReference `json:"owner"`
	// Hash is what its label [appsv1.DefaultDeploymentUniqueLabelKey] was.
	Hash string `json:"hash"`
	// Least is how many pods of the owner were available when this one was taken
	// from it, this one too: as many are to be when it goes.
	Least int32 `json:"least"`
	// Until is when it is given back.
	Until metav1.Time `json:"until"`
	// Request is that of the [Drain] it moves for. A move that the engine decided has one of
	// its own.
	Request string `json:"request,omitempty"`
	// Why is the reason of the engine's decision to move it, empty for a drain; To is the node
	// to which the engine moves it.
	Why string `json:"why,omitempty"`
	To  string `json:"to,omitempty"`
	// Kept is why it was given back, [v1alpha1.MovingNotReplaced],
	// [v1alpha1.MovingCancelled] or [v1alpha1.MovingBudget]; empty while it is not.
	Kept string `json:"kept,omitempty"`
}

// MoveOf returns what the annotation of a pod says, nil when it has none that can
// be read.
func MoveOf(p *v1.Pod) *Move {
	text, ok := p.Annotations[v1alpha1.MovingAnnotation]
	if !ok {
		return nil
	}
	m := &Move{}
	if json.Unmarshal([]byte(text), m) != nil || m.Owner.Name == "" || m.Hash == "" {
		return nil
	}
	return m
}

// Active reports whether the pod is out of its owner's hands.
func (m *Move) Active() bool { return m != nil && m.Kept == "" }

// NotReplaced reports whether no other took its place when a drain asked for it.
func (m *Move) NotReplaced(request string) bool {
	return m != nil && m.Kept == v1alpha1.MovingNotReplaced && m.Request == request
}

// Ended reports whether a move with this request ended with the pod where it was.
func (m *Move) Ended(request string) bool { return m != nil && m.Kept != "" && m.Request == request }

// MoveRequest is what [v1alpha1.MoveAnnotation] of a pod asks for.
type MoveRequest struct {
	// Node is where the pod is to go, empty for wherever it fits best.
	Node string
	// Request tells one request from another.
	Request string
}

// String is the value of the annotation.
func (r MoveRequest) String() string { return r.Node + " " + r.Request }

// Together is how many pods of a job restart elsewhere at the same time, as their requests say: the
// last word is of=2. It is 1 if they do not say it.
func (r *MoveRequest) Together() int {
	words := strings.Fields(r.Request)
	if len(words) == 0 {
		return 1
	}
	count, ok := strings.CutPrefix(words[len(words)-1], "of=")
	n, err := strconv.Atoi(count)
	if !ok || err != nil {
		return 1
	}
	return n
}

// MoveRequestOf returns the move that users ask for, nil for none.
func MoveRequestOf(p *v1.Pod) *MoveRequest {
	text, ok := p.Annotations[v1alpha1.MoveAnnotation]
	if !ok {
		return nil
	}
	var r MoveRequest
	r.Node, r.Request, _ = strings.Cut(text, " ")
	return &r
}

// RefusedMove is the message on a pod that is not moved as a request asks. It names the
// request, so that a message about an earlier one can be recognised.
func RefusedMove(why, request string) string { return why + refusal(request) }

func refusal(request string) string { return " (requested: " + strings.TrimSpace(request) + ")" }

// Over says why the move that is asked for was refused or failed, as the pod tells it.
func (r *MoveRequest) Over(p *v1.Pod) (why string, over bool) {
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if c.Type != v1alpha1.MovingCondition || c.Status != v1.ConditionFalse {
			continue
		}
		if why, ok := strings.CutSuffix(c.Message, refusal(r.String())); ok || MoveOf(p).Ended(r.String()) {
			return why, true
		}
	}
	return "", false
}

// LockedMessage is the message on a locked pod about a drain with this request. It names
// the request, so that a message about an earlier request can be recognised.
func LockedMessage(request string) string {
	if request == "" {
		return "its job is locked: the pod stays"
	}
	return "its job is locked: the pod stays; drain requested by " + request
}

// String is the value of the annotation.
func (m *Move) String() string {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // it has nothing that cannot be written
	}
	return string(data)
}

// MovingHash is the hash of a pod that moves in place of the one that its owner
// selects by.
func MovingHash(hash string) string { return hash + "-moving" }

// ControllerOf returns the owner of a pod or, of one that moves, the one it had.
func ControllerOf(p *v1.Pod) *metav1.OwnerReference {
	if o := metav1.GetControllerOf(p); o != nil {
		return o
	}
	if m := MoveOf(p); m.Active() {
		return &m.Owner
	}
	return nil
}

// Replaceable says by which owner another is made for a pod that is taken out of
// its hands, while Services go on to send requests to both; nil when by none. The
// owners are the ReplicaSets of Deployments: they select by one label that nobody
// else selects by. One to which the pod was given back may not have taken it yet.
func Replaceable(p *v1.Pod) *metav1.OwnerReference {
	o := metav1.GetControllerOf(p)
	if m := MoveOf(p); o == nil && m != nil {
		o = &m.Owner
	}
	if o == nil || o.Kind != "ReplicaSet" || !strings.HasPrefix(o.APIVersion, appsv1.GroupName+"/") || p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == "" {
		return nil
	}
	return o
}

// StaysAsTold reports whether the status of a pod says that it stays on a node that is
// drained because no other was there in time. An annotation that says so alone may be
// its author's.
func StaysAsTold(p *v1.Pod) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1alpha1.MovingCondition {
			return c.Status == v1.ConditionFalse && c.Reason == v1alpha1.MovingNotReplaced
		}
	}
	return false
}
