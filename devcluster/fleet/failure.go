package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// InputError is a request that is not possible: the node, GPU or pod does not exist or is
// in the wrong state.
type InputError struct{ problem string }

func (e *InputError) Error() string { return e.problem }

func badInput(format string, args ...any) error {
	return &InputError{fmt.Sprintf(format, args...)}
}

// FailNode makes a node unreachable, with the same effect as if its kubelet stopped
// reporting: Ready is Unknown, taints keep pods away, and its pods are not ready. Its
// containers continue to run, unobserved.
func FailNode(ctx context.Context, client kubernetes.Interface, name string) error {
	err := editNode(ctx, client, name, func(n *corev1.Node) {
		now := metav1.Now()
		setCondition(n, corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.",
			LastHeartbeatTime: now, LastTransitionTime: now,
		})
		n.Spec.Taints = append(reachable(n.Spec.Taints),
			corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &now},
			corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &now})
	})
	if err != nil {
		return err
	}
	return setReady(ctx, client, name, corev1.ConditionFalse)
}

// RemoveNode removes a node from the cluster. [RepairNode] adds it again unchanged.
func RemoveNode(ctx context.Context, client kubernetes.Interface, name string) error {
	n, err := getNode(ctx, client, name)
	if err != nil {
		return err
	}
	// RepairNode restores the node as it was created, with labels and taints that were
	// added since.
	n = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, Annotations: n.Annotations},
		Spec:       n.Spec, Status: n.Status,
	}
	n.Spec.Taints = reachable(n.Spec.Taints)
	setCondition(n, readyCondition(metav1.Now()))
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	keep := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: removedName(name)},
		BinaryData: map[string][]byte{"node": data},
	}
	_, err = client.CoreV1().ConfigMaps(keep.Namespace).Create(ctx, keep, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.CoreV1().ConfigMaps(keep.Namespace).Update(ctx, keep, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	return client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
}

// removedName is the name of the ConfigMap that stores a removed node.
func removedName(node string) string { return "devcluster-removed-" + node }

// RepairNode makes a node reachable again, or adds a removed node again. Its failed GPUs
// stay failed.
func RepairNode(ctx context.Context, client kubernetes.Interface, name string) error {
	err := editNode(ctx, client, name, func(n *corev1.Node) {
		setCondition(n, readyCondition(metav1.Now()))
		n.Spec.Taints = reachable(n.Spec.Taints)
	})
	if err == nil {
		return setReady(ctx, client, name, corev1.ConditionTrue)
	}
	kept := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	keep, lost := kept.Get(ctx, removedName(name), metav1.GetOptions{})
	if lost != nil {
		return err
	}
	n := new(corev1.Node)
	if err := json.Unmarshal(keep.BinaryData["node"], n); err != nil {
		return fmt.Errorf("saved copy of node %s: %w", name, err)
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
		return err
	}
	return kept.Delete(ctx, keep.Name, metav1.DeleteOptions{})
}

// FailGPU makes a GPU of a node unhealthy: the node has one allocatable GPU less or, with
// DRA, the device has a taint that pods do not tolerate.
func FailGPU(ctx context.Context, client kubernetes.Interface, node string, index int) error {
	return setGPU(ctx, client, node, index, true)
}

// RepairGPU makes a GPU of a node healthy.
func RepairGPU(ctx context.Context, client kubernetes.Interface, node string, index int) error {
	return setGPU(ctx, client, node, index, false)
}

func setGPU(ctx context.Context, client kubernetes.Interface, node string, index int, fails bool) error {
	n, err := getNode(ctx, client, node)
	if err != nil {
		return err
	}
	count, _ := strconv.Atoi(n.Labels[labelCount])
	if index < 0 || index >= count {
		return badInput("GPU %d of node %s: expected an index below %d, the number of its GPUs", index, node, count)
	}
	err = editNode(ctx, client, node, func(n *corev1.Node) {
		failed, _ := parseIndices(n.Annotations[FailedGPUs])
		failed &^= newIndices(index)
		if fails {
			failed |= newIndices(index)
		}
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, FailedGPUs, failed.String())
		if all, ok := n.Status.Capacity[GPUResource]; ok {
			n.Status.Allocatable[GPUResource] = *resource.NewQuantity(all.Value()-int64(failed.count()), resource.DecimalSI)
		}
	})
	if err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		s, err := client.ResourceV1().ResourceSlices().Get(ctx, sliceName(node), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		d := &s.Spec.Devices[index]
		d.Taints = slices.DeleteFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == unhealthy().Key })
		if fails {
			d.Taints = append(d.Taints, unhealthy())
		}
		_, err = client.ResourceV1().ResourceSlices().Update(ctx, s, metav1.UpdateOptions{})
		return err
	})
}

// FailPod crashes the containers of a running pod. The pod fails or its containers
// restart, depending on its restart policy.
func FailPod(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		full, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return badInput("pod %s/%s: not found", namespace, name)
		}
		if err != nil {
			return err
		}
		p := condense(full)
		if p.phase != corev1.PodRunning {
			return badInput("pod %s/%s: expected a running pod; found phase %s", namespace, name, p.phase)
		}
		_, err = client.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType,
			p.patch(p.finished(time.Now(), true, 137)), metav1.PatchOptions{}, "status")
		return err
	})
}

func getNode(ctx context.Context, client kubernetes.Interface, name string) (*corev1.Node, error) {
	n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, badInput("node %s: not found", name)
	}
	return n, err
}

// editNode changes a node and its status.
func editNode(ctx context.Context, client kubernetes.Interface, name string, edit func(*corev1.Node)) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		n, err := getNode(ctx, client, name)
		if err != nil {
			return err
		}
		edit(n)
		status := n.Status
		if n, err = client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{}); err != nil {
			return err
		}
		n.Status = status
		_, err = client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	})
}

func setCondition(n *corev1.Node, c corev1.NodeCondition) {
	i := slices.IndexFunc(n.Status.Conditions, func(of corev1.NodeCondition) bool { return of.Type == c.Type })
	if i < 0 {
		n.Status.Conditions = append(n.Status.Conditions, c)
	} else if n.Status.Conditions[i].Status != c.Status {
		n.Status.Conditions[i] = c
	}
}

// reachable returns taints without those of an unreachable node.
func reachable(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeUnreachable || t.Key == corev1.TaintNodeNotReady
	})
}

// setReady sets the condition Ready of the pods that run on a node.
func setReady(ctx context.Context, client kubernetes.Interface, node string, ready corev1.ConditionStatus) error {
	on := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, on)
	if err != nil {
		return err
	}
	for i := range list.Items {
		full := &list.Items[i]
		if full.Status.Phase != corev1.PodRunning {
			continue
		}
		p := condense(full)
		patch := p.patch(corev1.PodStatus{Phase: p.phase, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()},
		}})
		_, err := client.CoreV1().Pods(full.Namespace).Patch(ctx, full.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		// A pod that has changed meanwhile has probably ended, or will end soon.
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}
