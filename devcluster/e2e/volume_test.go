package e2e

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// A node attaches no more volumes of a CSI driver than that can.
func TestVolumesAttached(t *testing.T) {
	const driver = "disks.example.com"
	c := begin(t)
	c.node("n")
	limits := func(count int32) *storagev1.CSINode {
		return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: driver, NodeID: "n", Allocatable: &storagev1.VolumeNodeResources{Count: &count},
		}}}}
	}
	nodes := admin.StorageV1().CSINodes()
	_, err := nodes.Create(ctx(), limits(1), metav1.CreateOptions{})
	c.must(err)
	t.Cleanup(func() { c.must(nodes.Delete(ctx(), "n", metav1.DeleteOptions{})) })
	for _, name := range []string{"a", "b"} {
		c.disk(name, driver)
	}
	using := func(claim string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
		}
	}
	c.schedule()
	c.create(pod("first", using("a")))
	c.bound("first")
	c.create(pod("second", using("b")), pod("none"))
	c.bound("none")
	c.waits("second", "InsufficientOther", "0 of 1 attachable-volumes-csi-"+driver)
	c.unbound("second")
	c.must(nodes.Delete(ctx(), "n", metav1.DeleteOptions{})) // how the driver's registration goes and comes
	_, err = nodes.Create(ctx(), limits(2), metav1.CreateOptions{})
	c.must(err)
	c.bound("second")
}

// disk makes a volume claim that is bound to a volume of a CSI driver.
func (c *cluster) disk(name, driver string) {
	c.Helper()
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	access := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: access, Resources: v1.VolumeResourceRequirements{Requests: size}, VolumeName: c.namespace + "-" + name, StorageClassName: ptr.To(""),
		},
	}
	volumes, claims := admin.CoreV1().PersistentVolumes(), admin.CoreV1().PersistentVolumeClaims(c.namespace)
	made, err := claims.Create(ctx(), claim, metav1.CreateOptions{})
	c.must(err)
	_, err = volumes.Create(ctx(), &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName},
		Spec: v1.PersistentVolumeSpec{
			AccessModes: access, Capacity: size, PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			ClaimRef:               &v1.ObjectReference{Namespace: c.namespace, Name: name, UID: made.UID},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}},
		},
	}, metav1.CreateOptions{})
	c.must(err)
	_, err = claims.Patch(ctx(), name, types.MergePatchType, []byte(`{"status":{"phase":"Bound"}}`), metav1.PatchOptions{}, "status")
	c.must(err)
	c.Cleanup(func() {
		// No controller takes away what protects them.
		free := []byte(`{"metadata":{"finalizers":null}}`)
		_, err := claims.Patch(ctx(), name, types.MergePatchType, free, metav1.PatchOptions{})
		c.must(err)
		_, err = volumes.Patch(ctx(), claim.Spec.VolumeName, types.MergePatchType, free, metav1.PatchOptions{})
		c.must(err)
		c.must(volumes.Delete(ctx(), claim.Spec.VolumeName, metav1.DeleteOptions{}))
	})
}
