package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// foreignKinds are the kinds of other makers' objects that tests make.
var foreignKinds = []schema.GroupVersionKind{
	kind("batch.volcano.sh", "v1alpha1", "Job"),
	kind("jobset.x-k8s.io", "v1alpha2", "JobSet"),
	kind("kubeflow.org", "v1", "PyTorchJob"),
	kind("kubeflow.org", "v2beta1", "MPIJob"),
	kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
	kind("ray.io", "v1", "RayCluster"),
	kind("ray.io", "v1", "RayJob"),
	kind("scheduling.run.ai", "v2alpha2", "PodGroup"),
	kind("scheduling.sigs.k8s.io", "v1alpha1", "PodGroup"),
	kind("scheduling.volcano.sh", "v1beta1", "PodGroup"),
	kind("scheduling.x-k8s.io", "v1alpha1", "PodGroup"),
}

func kind(group, version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

// foreign is the resource of a foreign kind.
func foreign(gvk schema.GroupVersionKind) schema.GroupVersionResource {
	return gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")
}

// installForeign defines the foreign kinds, each with any spec, and waits until
// they are served.
func installForeign(ctx context.Context) error {
	for _, gvk := range foreignKinds {
		err := apply(ctx, fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[3]s.%[1]s,
			annotations: {api-approved.kubernetes.io: "unapproved, for tests"}},
			spec: {group: %[1]s, scope: Namespaced, names: {plural: %[3]s, singular: %[4]s, kind: %[2]s},
			versions: [{name: %[5]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {
			spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}]}}`,
			gvk.Group, gvk.Kind, foreign(gvk).Resource, strings.ToLower(gvk.Kind), gvk.Version), "")
		if err != nil {
			return err
		}
	}
	for _, gvk := range foreignKinds {
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			if _, err := anyKind.Resource(foreign(gvk)).List(ctx, metav1.ListOptions{}); err != nil {
				return false, nil
			}
			_, err := admin.Discovery().ServerResourcesForGroupVersion(gvk.GroupVersion().String())
			return err == nil, nil
		})
		if err != nil {
			return fmt.Errorf("%v is not served: %w", gvk, err)
		}
	}
	return nil
}
