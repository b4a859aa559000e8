package objects

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/prefer"
	"github.com/muster-sched/muster/kube/translate"
)

// Pod is what the scheduler needs of a pod.
type Pod struct {
	metav1.ObjectMeta // name, namespace, UID, resource version and, of ours, generateName alone
	Created           time.Time
	Started           time.Time // when it was bound, as far as known
	Node              string    // empty while it has none
	Phase             v1.PodPhase
	Deleting          bool
	// Labels, Terms and Ports are what matters to the pods around it.
	Labels translate.Labels
	Terms  []translate.Term
	Ports  []translate.Port
	Claims []translate.Claim

	// Ours says that Muster schedules it. What follows is set for such pods.
	Ours       bool
	Membership translate.Membership
	Attributes translate.Attributes
	Priority   int32
	Class      string // its PriorityClass
	Never      bool   // it preempts no others
	Request    core.Request
	// Prefers is what it prefers of the labels of nodes.
	Prefers    []core.Preference
	Wrong      string // what the author must change before it can run
	TooComplex bool   // Wrong says what it has too many of
	QuotaGate  bool   // it has our scheduling gate
	OtherGates bool   // it has others': it is not ready
	// Waits says that it has the Waiting condition, True; WaitingSince since when.
	Waits        bool
	WaitingSince time.Time
	Owner        *metav1.OwnerReference
	Counts       bool            // the Job controller counts it
	Uncounted    bool            // it does not, because the pod was to be evicted
	Grace        int64           // the seconds that it requests to terminate
	Replaceable  bool            // by another pod of its owner, before it ends
	Move         *translate.Move // of a pod that moves, or whose move failed
	StaysAsTold  bool            // its status says that its move failed
	// MoveRequest is a user's request to move it, nil for none or if its status says that the
	// request was refused.
	MoveRequest *translate.MoveRequest
	// Standby is what it says about lending its GPUs, nil for nothing.
	Standby *Standby
	// Pause is what the scheduler wrote on it about the pause of its processes, nil for nothing. Pausable is what it says about
	// that, the zero value for nothing, and NotPausable why they cannot be paused all the same.
	Pause       *Pause
	Pausable    core.Suspension
	NotPausable string
	// CheckpointWithin is how long its processes take at most to save their progress when they are asked to; 0 if they do not.
	CheckpointWithin time.Duration
	// WillLend says that it is to lend its GPUs at times, as far as its annotations say.
	WillLend     bool
	DeviceClaims []devices.ClaimRef
	// Resource is the resource by which it asks for GPUs; Extended the claim that
	// was made for it where DRA provides that resource.
	Resource v1.ResourceName
	Extended string
	Pool     translate.Pool

	// Bears lists the troubles of a node that it tolerates for ever.
	Bears [troubles]bool

	// Amounts, GPUs and Share are what it holds of its node, if it has one.
	Amounts    translate.Amounts
	GPUs       []int
	Share      core.Milli
	Backfilled bool
	// Held is [translate.Held], and already part of the request.
	Held core.Milli
	// Said is the part of its labels and annotations that counts until it ends, from the
	// record in its status if there is one; Says is what they say now.
	Said, Says string
	// Record and GroupRecord are the records in its status, of itself and of its PodGroup.
	Record, GroupRecord string
	// Unread says that it could not be read: only the first lines and the amounts are
	// known.
	Unread bool
}

// TrimPod cuts a pod down.
func TrimPod(p *v1.Pod) *Pod {
	wrong := tooComplex(p)
	if wrong != "" {
		p = plain(p)
	}
	o := &Pod{
		Wrong: wrong, TooComplex: wrong != "",
		ObjectMeta: trimMeta(&p.ObjectMeta),
		Created:    p.CreationTimestamp.Time, Node: p.Spec.NodeName, Phase: p.Status.Phase, Deleting: p.DeletionTimestamp != nil,
		Ours:   p.Spec.SchedulerName == v1alpha1.SchedulerName,
		Labels: translate.LabelsOf(p.Labels), Ports: translate.Ports(p), Claims: translate.Claims(p),
	}
	if stem := p.GenerateName; o.Ours && strings.HasPrefix(p.Name, stem) {
		o.GenerateName = p.Name[:len(stem)] // in the memory of the name
	}
	o.Started = o.Created
	for i := range p.Status.Conditions {
		switch c := &p.Status.Conditions[i]; c.Type {
		case v1.PodScheduled:
			if c.Status == v1.ConditionTrue {
				o.Started = c.LastTransitionTime.Time
			}
		case v1alpha1.WaitingCondition:
			if o.Waits = c.Status == v1.ConditionTrue; o.Waits {
				o.WaitingSince = c.LastTransitionTime.Time
			}
		}
	}
	o.Amounts = translate.Requests(p)
	if o.Ours {
		o.Said = translate.SaidBy(p).String()
		o.Says = o.Said
		if o.Record, o.GroupRecord = translate.Record(p); o.Record != "" && o.Node != "" {
			p, o.Said = translate.AsAdmitted(p, o.Record), o.Record
		}
	}
	if o.Node != "" {
		// On another scheduler's pod only its author can have written it.
		if gpus, err := translate.ParseDevices(p.Annotations[v1alpha1.GPUsAnnotation]); err == nil && o.Ours {
			o.GPUs = gpus
		}
		o.Share = translate.Share(p)
		o.Backfilled = p.Annotations[v1alpha1.BackfilledAnnotation] == "true"
	}
	if !o.Ours {
		// Terms that the API server accepted and that cannot be read match no pod.
		o.Terms, _ = translate.AntiTerms(p)
		return o
	}
	o.readOurs(p)
	return o
}

// readOurs reads what only a pod counts for that the scheduler places.
func (o *Pod) readOurs(p *v1.Pod) {
	wrong := func(err error) {
		if err != nil && o.Wrong == "" {
			o.Wrong = short(err.Error())
		}
	}
	wrong(o.Attributes.Read(p))
	o.Membership = translate.MembershipOf(p, &o.Attributes)
	var err error
	o.Request, err = translate.Request(p, &o.Attributes)
	wrong(err)
	if o.Node != "" {
		o.Held = translate.Held(p)
		if o.Request.GPU = max(o.Request.GPU, o.Held); o.Attributes.GPUMemory > 0 && o.Amounts.GPUs == 0 {
			o.Request.GPU = 0 // kube/devices determines it from the memory
		}
	}
	o.Pool = translate.PodPool(p, &o.Request)
	o.Terms, err = translate.Terms(p)
	wrong(err)
	segment, err := translate.Segment(p, &o.Attributes)
	o.Terms = append(o.Terms, segment...)
	wrong(err)
	var preferred []translate.Term
	o.Prefers, preferred, err = prefer.Of(p)
	o.Terms = append(o.Terms, preferred...)
	wrong(err)
	if p.Spec.Priority != nil {
		o.Priority = *p.Spec.Priority
	}
	o.Class, o.Never = p.Spec.PriorityClassName, p.Spec.PreemptionPolicy != nil && *p.Spec.PreemptionPolicy == v1.PreemptNever
	for _, g := range p.Spec.SchedulingGates {
		if g.Name == v1alpha1.QuotaGate {
			o.QuotaGate = true
		} else {
			o.OtherGates = true
		}
	}
	o.Bears[notReady], o.Bears[unreachable] = bears(p, v1.TaintNodeNotReady), bears(p, v1.TaintNodeUnreachable)
	o.Owner = metav1.GetControllerOf(p)
	if p.Spec.TerminationGracePeriodSeconds != nil {
		o.Grace = *p.Spec.TerminationGracePeriodSeconds
	}
	o.Counts, o.Uncounted = translate.Counted(&p.ObjectMeta), translate.Uncounted(&p.ObjectMeta)
	o.Replaceable, o.Move, o.StaysAsTold = translate.Replaceable(p) != nil, translate.MoveOf(p), translate.StaysAsTold(p)
	if r := translate.MoveRequestOf(p); r != nil {
		if _, over := r.Over(p); !over {
			o.MoveRequest = r
		}
	}
	o.WillLend = willLend(p)
	if v, ok := p.Annotations[v1alpha1.PausableAnnotation]; ok {
		o.Pausable, err = readPausable(v)
		wrong(err)
		o.NotPausable = NotPausable(p)
	}
	if v, ok := p.Annotations[v1alpha1.CheckpointWithinAnnotation]; ok {
		o.CheckpointWithin, err = readCheckpointWithin(v)
		wrong(err)
	}
	if o.Node != "" {
		o.Standby = StandbyOf(p)
		o.KeepPlace()
		o.readPause(p)
	}
	o.DeviceClaims = devices.PodClaims(p)
	if o.Request.GPU >= core.WholeGPU {
		o.Resource = translate.GPUResource(p)
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		o.Extended = s.ResourceClaimName
	}
}

// bears reports whether a pod tolerates for ever that its node has a taint that
// evicts. Kubernetes adds a toleration with an end to pods that have none.
func bears(p *v1.Pod, key string) bool {
	there := false
	for _, t := range p.Spec.Tolerations {
		if t.Effect != "" && t.Effect != v1.TaintEffectNoExecute || t.Key != key && t.Key != "" || t.Key == "" && t.Operator != v1.TolerationOpExists {
			continue
		}
		if t.TolerationSeconds != nil {
			return false
		}
		there = true
	}
	return there
}

// KeepPlace counts for a pod that was on standby, or is about to be, what is kept for it on its
// node: it has given some of it back for others to use.
func (o *Pod) KeepPlace() {
	if o.Standby == nil || o.Standby.Place == nil {
		return
	}
	for _, x := range [...][2]*int64{
		{&o.Amounts.CPUMilli, &o.Standby.Place.CPUMilli}, {&o.Amounts.MemMiB, &o.Standby.Place.MemMiB},
		{&o.Request.CPUMilli, &o.Standby.Place.CPUMilli}, {&o.Request.MemMiB, &o.Standby.Place.MemMiB},
	} {
		*x[0] = max(*x[0], *x[1])
	}
}

// Counted reports whether the kubelet counts GPUs of the pod, or a driver holds them for it.
func (o *Pod) Counted() bool {
	return o.Amounts.GPUs > 0 || len(o.DeviceClaims) > 0 || o.Extended != ""
}

// HasGPUs reports whether a pod that is known by what it takes alone has GPUs.
func (o *Pod) HasGPUs() bool { return o.Amounts.GPUs > 0 || !o.Ours && o.Request.GPU > 0 }

// Over reports whether the pod no longer holds anything.
func (o *Pod) Over() bool { return o.Phase == v1.PodSucceeded || o.Phase == v1.PodFailed }

// Ended reports whether the pod is over, or will never have a node.
func (o *Pod) Ended() bool { return o.Over() || o.Deleting && o.Node == "" }

// Stranded returns a pod known only by what it takes, like those of other schedulers.
func (o *Pod) Stranded() *Pod {
	x := *o
	x.Ours, x.Move, x.MoveRequest, x.Standby, x.Pause, x.Membership = false, nil, nil, nil, nil, translate.Membership{}
	if len(x.DeviceClaims) > 0 || x.Extended != "" {
		x.Request.GPU = 0 // its claims hold its devices
	}
	return &x
}

// BarePod is what is known of a pod that cannot be read.
func BarePod(p *v1.Pod) *Pod {
	o := &Pod{
		ObjectMeta: trimMeta(&p.ObjectMeta), Created: p.CreationTimestamp.Time, Started: p.CreationTimestamp.Time,
		Node: p.Spec.NodeName, Phase: p.Status.Phase, Deleting: p.DeletionTimestamp != nil, Unread: true,
	}
	func() {
		defer func() { _ = recover() }() // it may be what cannot be read
		o.Amounts = translate.Requests(p)
		o.Request.GPU = translate.Held(p)
		if gpus, err := translate.ParseDevices(p.Annotations[v1alpha1.GPUsAnnotation]); err == nil {
			o.GPUs = gpus
		}
		o.Share = translate.Share(p)
	}()
	return o
}

// AsBefore returns a pod that can no longer be read: as it was, except for its state.
func (o *Pod) AsBefore(before *Pod) *Pod {
	x := *before
	x.ObjectMeta, x.Node, x.Phase, x.Deleting = o.ObjectMeta, o.Node, o.Phase, o.Deleting
	return &x
}
