package storage

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// What is kept of the API's objects.

// Claim is what is kept of a PersistentVolumeClaim.
type Claim struct {
	metav1.ObjectMeta
	owner    types.UID // its controller's
	class    string
	volume   string
	bound    bool
	lost     bool
	deleting bool
	// exclusive says that one pod at a time may use it.
	exclusive bool
	// shared says that pods of several nodes may use it.
	shared bool
	// selected is the node for which its volume is to be made.
	selected string
}

// ClaimOf cuts a PersistentVolumeClaim down.
func ClaimOf(c *v1.PersistentVolumeClaim) *Claim {
	o := &Claim{
		ObjectMeta: translate.Identity(&c.ObjectMeta), class: volume.GetPersistentVolumeClaimClass(c), volume: c.Spec.VolumeName,
		lost: c.Status.Phase == v1.ClaimLost, deleting: c.DeletionTimestamp != nil,
		exclusive: slices.Contains(c.Spec.AccessModes, v1.ReadWriteOncePod), selected: c.Annotations[volume.AnnSelectedNode],
	}
	o.shared = slices.Contains(c.Spec.AccessModes, v1.ReadWriteMany) || slices.Contains(c.Spec.AccessModes, v1.ReadOnlyMany)
	_, complete := c.Annotations[volume.AnnBindCompleted]
	o.bound = complete && o.volume != ""
	if owner := metav1.GetControllerOf(c); owner != nil {
		o.owner = owner.UID
	}
	return o
}

// Volume is what is kept of a PersistentVolume.
type Volume struct {
	metav1.ObjectMeta
	claim types.NamespacedName // which it is, or is to be, bound to
	nodes core.Request         // the labels of those that can reach it
	wrong string               // why these cannot be read
	// driver is the CSI driver that attaches it, empty when none does.
	driver string
}

// VolumeOf cuts a PersistentVolume down.
func VolumeOf(v *v1.PersistentVolume) *Volume {
	o := &Volume{ObjectMeta: translate.Identity(&v.ObjectMeta)}
	if r := v.Spec.ClaimRef; r != nil {
		o.claim = types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
	}
	if v.Spec.CSI != nil {
		o.driver = v.Spec.CSI.Driver
	}
	if err := translate.VolumeNodes(v, &o.nodes); err != nil {
		o.wrong = err.Error()
	}
	return o
}

// Class is what is kept of a StorageClass.
type Class struct {
	metav1.ObjectMeta
	// late says that volumes are made, or chosen, for the node of their first pod.
	late        bool
	makes       bool // it has a provisioner
	provisioner string
	nodes       core.Request // the labels of those for which it makes volumes
}

// ClassOf cuts a StorageClass down.
func ClassOf(c *storagev1.StorageClass) *Class {
	o := &Class{
		ObjectMeta: translate.Identity(&c.ObjectMeta), makes: c.Provisioner != "kubernetes.io/no-provisioner", provisioner: c.Provisioner,
		late: c.VolumeBindingMode != nil && *c.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer,
	}
	translate.ClassNodes(c, &o.nodes)
	return o
}

// Limits is what is kept of a CSINode: how many volumes a node can attach.
type Limits struct {
	metav1.ObjectMeta
	drivers map[string]int64 // without those that have no limit
}

// LimitsOf cuts a CSINode down.
func LimitsOf(n *storagev1.CSINode) *Limits {
	o := &Limits{ObjectMeta: translate.Identity(&n.ObjectMeta)}
	for i := range n.Spec.Drivers {
		if d := &n.Spec.Drivers[i]; d.Allocatable != nil && d.Allocatable.Count != nil {
			if o.drivers == nil {
				o.drivers = map[string]int64{}
			}
			o.drivers[d.Name] = int64(*d.Allocatable.Count)
		}
	}
	return o
}
