package objects

import (
	"reflect"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/translate"
)

// PodGroup is what the scheduler needs of a native PodGroup.
type PodGroup struct {
	metav1.ObjectMeta
	// Min is the gang's minimum, 0 if it is no gang.
	Min        int
	Attributes translate.Attributes
	Wrong      string // what its author must change
	// Required is the node label of the topology level that it must not leave.
	Required string
	// Whole says that its pods are disrupted together.
	Whole    bool
	Priority *int32 // of its class, nil without one
	Class    string // empty without one
	Never    bool   // its preemptionPolicy is Never
	// Scheduled is whether its condition says that it was scheduled once.
	Scheduled    bool
	DeviceClaims []devices.ClaimRef
	Pool         translate.Pool
	Said         string // what its labels and annotations say that counts while a pod has a place
}

// TrimPodGroup cuts a PodGroup down.
func TrimPodGroup(g *schedulingv1beta1.PodGroup) *PodGroup {
	o := &PodGroup{
		ObjectMeta: trimMeta(&g.ObjectMeta),
		Whole:      g.Spec.DisruptionMode != nil && g.Spec.DisruptionMode.All != nil, DeviceClaims: devices.GroupClaims(g),
	}
	// The API server writes a priority into groups that name no class: then that
	// of their pods counts.
	if g.Spec.PriorityClassName != "" {
		o.Priority, o.Class = g.Spec.Priority, g.Spec.PriorityClassName
	}
	o.Never = g.Spec.PreemptionPolicy != nil && *g.Spec.PreemptionPolicy == schedulingv1beta1.PreemptNever
	if gang := g.Spec.SchedulingPolicy.Gang; gang != nil {
		o.Min = int(gang.MinCount)
	}
	if c := g.Spec.SchedulingConstraints; c != nil && len(c.Topology) > 0 {
		o.Required = c.Topology[0].Key
	}
	o.read(g)
	for i := range g.Status.Conditions {
		if c := &g.Status.Conditions[i]; c.Type == schedulingv1beta1.PodGroupInitiallyScheduled {
			o.Scheduled = c.Status == metav1.ConditionTrue
		}
	}
	return o
}

// SaysSame reports whether nothing that counts for a gang that waits has changed.
func (o *PodGroup) SaysSame(x *PodGroup) bool {
	a, b := *o, *x
	a.ObjectMeta, b.ObjectMeta, a.Scheduled, b.Scheduled = metav1.ObjectMeta{}, metav1.ObjectMeta{}, false, false
	a.Attributes.LastCheckpoint = b.Attributes.LastCheckpoint
	return reflect.DeepEqual(a, b)
}

// read applies the labels and annotations of the PodGroup.
func (o *PodGroup) read(g *schedulingv1beta1.PodGroup) {
	said := translate.SaidBy(g)
	if o.Attributes, o.Wrong = (translate.Attributes{}), tooLong(said); o.Wrong != "" {
		return
	}
	if err := o.Attributes.Read(g); err != nil {
		o.Wrong = short(err.Error())
	}
	o.Pool, o.Said = translate.PodGroupPool(g, o.Attributes.Models), said.String()
}

// AsRecorded returns a PodGroup, nil for a deleted one, with the values of a record.
func (o *PodGroup) AsRecorded(id translate.Group, record string) *PodGroup {
	x := PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name}}
	if o != nil {
		x = *o
	}
	said := translate.ReadSaid(record)
	x.read(&schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Labels: said.Labels, Annotations: said.Annotations}})
	if o != nil {
		x.Attributes.LastCheckpoint, x.Attributes.Estimate = o.Attributes.LastCheckpoint, o.Attributes.Estimate
	}
	return &x
}

// OfGPUs reports whether the PodGroup exists and says which GPUs its pods get.
func (o *PodGroup) OfGPUs() bool { return o != nil && o.Attributes.OfGPUs() }

// Ref names the PodGroup for an act.
func (o *PodGroup) Ref() act.Pod {
	return act.Pod{Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}
