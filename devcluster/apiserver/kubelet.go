package apiserver

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/registry/core/node"
	podstore "k8s.io/kubernetes/pkg/registry/core/pod/storage"
)

// Simulated kubelets run in this process. Their writes bypass HTTP, authorization,
// admission, the merging of patches and managed fields, which are more than half of the
// cost of such a write. Validation and storage are those of the API server, so watches
// see the same as with real kubelets.

// CreateNode creates a node with its status.
func (s *Server) CreateNode(ctx context.Context, n *corev1.Node) error {
	n = n.DeepCopy()
	legacyscheme.Scheme.Default(n)
	var in core.Node
	if err := corev1conversion.Convert_v1_Node_To_core_Node(n, &in, nil); err != nil {
		return err
	}
	ctx, cancel, err := write(ctx, metav1.NamespaceNone, &request.RequestInfo{Verb: "create", Resource: "nodes"})
	if err != nil {
		return err
	}
	defer cancel()
	_, err = s.nodes.Create(ctx, &in, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	return err
}

// UpdatePodStatus calls change with the stored pod to change its status, and stores the
// result if it is valid. It may call change again if the pod changes meanwhile. An error
// of change ends the update.
func (s *Server) UpdatePodStatus(ctx context.Context, namespace, name string, change func(*metav1.ObjectMeta, *corev1.PodStatus) error) error {
	ctx, cancel, err := write(ctx, namespace, &request.RequestInfo{Verb: "update", Resource: "pods", Subresource: "status", Name: name})
	if err != nil {
		return err
	}
	defer cancel()
	changed := func(_ context.Context, _, stored runtime.Object) (runtime.Object, error) {
		p := stored.DeepCopyObject().(*core.Pod)
		var status corev1.PodStatus
		if err := corev1conversion.Convert_core_PodStatus_To_v1_PodStatus(&p.Status, &status, nil); err != nil {
			return nil, err
		}
		if err := change(&p.ObjectMeta, &status); err != nil {
			return nil, err
		}
		p.Status = core.PodStatus{}
		return p, corev1conversion.Convert_v1_PodStatus_To_core_PodStatus(&status, &p.Status, nil)
	}
	_, _, err = s.statuses.Update(ctx, name, rest.DefaultUpdatedObjectInfo(nil, changed),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return err
}

// writing is the time limit of a write.
const writing = 10 * time.Second

// write returns the context of a write. A write that has begun is completed even if ctx
// ends, because etcd's client would log every aborted one.
func write(ctx context.Context, namespace string, of *request.RequestInfo) (context.Context, context.CancelFunc, error) {
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	of.IsResourceRequest, of.APIVersion, of.Namespace = true, "v1", namespace
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writing)
	return request.WithRequestInfo(request.WithNamespace(ctx, namespace), of), cancel, nil
}

// openStorage opens the storage of nodes and pods that the API server will use too.
func (s *Server) openStorage(storage generic.RESTOptionsGetter) error {
	pods, err := podstore.NewStorage(storage, nil, nil, nil, nil)
	if err != nil {
		return err
	}
	s.statuses = pods.Status
	s.cleanup = append(s.cleanup, pods.Pod.Destroy)
	s.nodes = &registry.Store{
		NewFunc:                   func() runtime.Object { return &core.Node{} },
		NewListFunc:               func() runtime.Object { return &core.NodeList{} },
		DefaultQualifiedResource:  core.Resource("nodes"),
		SingularQualifiedResource: core.Resource("node"),
		PredicateFunc:             node.MatchNode,
		CreateStrategy:            node.Strategy, UpdateStrategy: node.Strategy, DeleteStrategy: node.Strategy, ResetFieldsStrategy: node.Strategy,
		TableConvertor: rest.NewDefaultTableConvertor(core.Resource("nodes")),
	}
	if err := s.nodes.CompleteWithOptions(&generic.StoreOptions{RESTOptions: storage, AttrFunc: node.GetAttrs}); err != nil {
		return err
	}
	s.cleanup = append(s.cleanup, s.nodes.Destroy)
	return nil
}
