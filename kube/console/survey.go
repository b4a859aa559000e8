package console

import (
	"context"
	"errors"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/feed"
	"github.com/muster-sched/muster/kube/mirror"
)

// Survey is the picture that a scheduler would have of a cluster at one moment, made of what
// the user may read. It decides nothing and changes nothing.
type Survey struct {
	mirror *mirror.Mirror
	engine *core.Engine
}

// Survey reads a cluster as the scheduler does. Pods and nodes must be readable in all
// namespaces. What else may not be read is left out: the scheduler knows it, and refuses the
// moves that it forbids. The policy is the one in use or, if there is no such object, the one
// given.
func (c *Client) Survey(ctx context.Context, given core.Policy, builtins v1alpha1.Builtins) (*Survey, error) {
	policy, topology, err := c.inUse(ctx)
	if err != nil {
		return nil, err
	}
	box := mirror.NewMailbox()
	m := mirror.New(mirror.Config{Policy: given, PolicyName: policy, Topology: topology, Builtins: builtins, Log: slog.New(slog.DiscardHandler)})
	feeds := mirror.Feeds(box)
	read := func(client rest.Interface, resource string, kind func() runtime.Object) (there bool) {
		if err == nil {
			there, err = c.feed(ctx, client, resource, kind, feeds[resource])
		}
		return there
	}
	api, storage, dra := c.kube.CoreV1().RESTClient(), c.kube.StorageV1().RESTClient(), c.kube.ResourceV1().RESTClient()
	read(c.muster, "schedulingpolicies", func() runtime.Object { return &v1alpha1.SchedulingPolicyList{} })
	read(c.muster, "topologies", func() runtime.Object { return &v1alpha1.TopologyList{} })
	read(c.muster, "queues", func() runtime.Object { return &v1alpha1.QueueList{} })
	read(api, "nodes", func() runtime.Object { return &v1.NodeList{} })
	read(api, "namespaces", func() runtime.Object { return &v1.NamespaceList{} })
	read(c.kube.SchedulingV1().RESTClient(), "priorityclasses", func() runtime.Object { return &schedulingv1.PriorityClassList{} })
	read(c.kube.PolicyV1().RESTClient(), "poddisruptionbudgets", func() runtime.Object { return &policyv1.PodDisruptionBudgetList{} })
	read(c.kube.SchedulingV1beta1().RESTClient(), "podgroups", func() runtime.Object { return &schedulingv1beta1.PodGroupList{} })
	read(api, "persistentvolumeclaims", func() runtime.Object { return &v1.PersistentVolumeClaimList{} })
	read(api, "persistentvolumes", func() runtime.Object { return &v1.PersistentVolumeList{} })
	read(storage, "storageclasses", func() runtime.Object { return &storagev1.StorageClassList{} })
	read(storage, "csinodes", func() runtime.Object { return &storagev1.CSINodeList{} })
	if read(dra, "resourceclaims", func() runtime.Object { return &resourceapi.ResourceClaimList{} }) {
		m.Devices.Serve()
	}
	read(dra, "resourceslices", func() runtime.Object { return &resourceapi.ResourceSliceList{} })
	read(dra, "deviceclasses", func() runtime.Object { return &resourceapi.DeviceClassList{} })
	read(dra, "devicetaintrules", func() runtime.Object { return &resourceapi.DeviceTaintRuleList{} })
	read(api, "pods", func() runtime.Object { return &v1.PodList{} })
	if err != nil {
		return nil, err
	}
	m.At(core.Time(time.Now().UnixNano()))
	for _, fact := range box.Take(nil) {
		fact(m)
	}
	if err := m.Take(0); err != nil {
		return nil, err
	}
	m.Settle()
	engine, ok := m.Engine().(*core.Engine)
	if !ok || m.Broken() {
		return nil, errors.New("the cluster cannot be described to the engine: see the log of the scheduler")
	}
	return &Survey{m, engine}, nil
}

// feed reads all objects of a resource, and reports whether there is such a resource.
func (c *Client) feed(ctx context.Context, client rest.Interface, resource string, list func() runtime.Object, into feed.Feed) (there bool, err error) {
	trim := into.(interface{ Transformer() cache.TransformFunc }).Transformer()
	var all []any
	err = pages(ctx, metav1.ListOptions{}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		l := list()
		return l, client.Get().Resource(resource).SpecificallyVersionedParams(&o, scheme.ParameterCodec, v1.SchemeGroupVersion).Do(ctx).Into(l)
	}, func() { all = all[:0] }, func(l runtime.Object) {
		_ = meta.EachListItem(l, func(o runtime.Object) error {
			t, err := trim(o)
			all = append(all, t)
			return err
		})
	})
	if needed := resource == "pods" || resource == "nodes"; err != nil && (needed || !optional(err)) {
		return false, c.say("list "+resource, err)
	}
	return err == nil, into.Replace(all, "")
}

// inUse names the policy and the topology that the scheduler says it uses; empty for none.
func (c *Client) inUse(ctx context.Context) (policy, topology string, err error) {
	var ps v1alpha1.SchedulingPolicyList
	var ts v1alpha1.TopologyList
	for resource, into := range map[string]runtime.Object{"schedulingpolicies": &ps, "topologies": &ts} {
		if err := c.muster.Get().Resource(resource).Do(ctx).Into(into); err != nil && !optional(err) {
			return "", "", c.say("list "+resource, err)
		}
	}
	for i := range ps.Items {
		if r := meta.FindStatusCondition(ps.Items[i].Status.Conditions, v1alpha1.ReadyCondition); r != nil && r.Reason == v1alpha1.PolicyInUse {
			policy = ps.Items[i].Name
		}
	}
	for i := range ts.Items {
		if r := meta.FindStatusCondition(ts.Items[i].Status.Conditions, v1alpha1.ReadyCondition); r != nil && r.Status == metav1.ConditionTrue && r.Reason != v1alpha1.TopologyAccepted {
			topology = ts.Items[i].Name
		}
	}
	return policy, topology, nil
}
