package e2e

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/tables"
)

// podTemplate is a pod as an owner describes it.
func podTemplate(options ...func(*v1.Pod)) v1.PodTemplateSpec {
	p := pod("", options...)
	return v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec}
}

// A Job's pods are bound as they come, and it completes.
func TestJob(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	c.job("work", &batchv1.JobSpec{Parallelism: ptr.To[int32](3), Completions: ptr.To[int32](6), Template: podTemplate(runsFor(50 * time.Millisecond))})
	c.completes("work")
}

// A Job that says it is a gang gets a PodGroup, and starts whole or not at all.
func TestJobGang(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	c.create(pod("blocker", asks(4)))
	c.bound("blocker")
	c.job("train", &batchv1.JobSpec{
		Parallelism: ptr.To[int32](3), Completions: ptr.To[int32](3), CompletionMode: ptr.To(batchv1.IndexedCompletion),
		Scheduling: &batchv1.JobSchedulingConfiguration{
			SchedulingPolicy: &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{
				Gang: &schedulingv1alpha3.WorkloadPodGroupGangSchedulingPolicy{MinCount: ptr.To[int32](3)},
			},
		},
		Template: podTemplate(asks(2), runsFor(50*time.Millisecond)),
	})
	var pods []v1.Pod
	c.until("the Job has its pods", func() error {
		if pods = c.podsWith(batchv1.JobNameLabel, "train"); len(pods) != 3 {
			return fmt.Errorf("there are %d", len(pods))
		}
		return nil
	})
	for _, p := range pods {
		c.waits(p.Name, "Resources")
		c.unbound(p.Name)
	}
	c.delete("blocker")
	c.completes("train")
}

// A Job that is not a gang keeps what it has when a pod of it fails.
func TestJobRetries(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	c.job("work", &batchv1.JobSpec{
		Parallelism: ptr.To[int32](2), Completions: ptr.To[int32](2), BackoffLimit: ptr.To[int32](5), Template: podTemplate(),
	})
	var first v1.Pod
	c.until("both pods run", func() error {
		pods := c.podsWith(batchv1.JobNameLabel, "work")
		for _, p := range pods {
			if p.Status.Phase != v1.PodRunning {
				return fmt.Errorf("%s is %s", p.Name, p.Status.Phase)
			}
		}
		if len(pods) != 2 {
			return fmt.Errorf("there are %d", len(pods))
		}
		first = pods[0]
		return nil
	})
	c.delete(first.Name)
	c.until("another runs in its place", func() error {
		n := 0
		for _, p := range c.podsWith(batchv1.JobNameLabel, "work") {
			if p.Status.Phase == v1.PodRunning && p.UID != first.UID {
				n++
			}
		}
		if n != 2 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
}

// Replicas of a Deployment and of a StatefulSet are placed as inference is: by
// a policy that spreads it, each on a node of its own.
func TestReplicas(t *testing.T) {
	app := map[string]string{"app": "serve"}
	serve := podTemplate(label("app", "serve"))
	serve.Spec.RestartPolicy = v1.RestartPolicyAlways
	selector := &metav1.LabelSelector{MatchLabels: app}
	for kind, create := range map[string]func(*cluster) error{
		"Deployment": func(c *cluster) error {
			_, err := admin.AppsV1().Deployments(c.namespace).Create(ctx(), &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Name: "serve"},
				Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](3), Selector: selector, Template: serve},
			}, metav1.CreateOptions{})
			return err
		},
		"StatefulSet": func(c *cluster) error {
			_, err := admin.AppsV1().StatefulSets(c.namespace).Create(ctx(), &appsv1.StatefulSet{
				ObjectMeta: metav1.ObjectMeta{Name: "serve"},
				Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3), Selector: selector, Template: serve},
			}, metav1.CreateOptions{})
			return err
		},
	} {
		t.Run(kind, func(t *testing.T) {
			c := begin(t)
			c.nodesNamed("n", 3)
			c.schedule(func(k *kube.Config) { k.Policy.Placement[core.Inference] = place.Spread })
			c.must(create(c))
			on := map[string]bool{}
			c.until("all replicas run", func() error {
				clear(on)
				pods := c.podsWith("app", "serve")
				for _, p := range pods {
					if p.Status.Phase != v1.PodRunning {
						return fmt.Errorf("%s is %s", p.Name, p.Status.Phase)
					}
					on[p.Spec.NodeName] = true
				}
				if len(pods) != 3 {
					return fmt.Errorf("there are %d", len(pods))
				}
				return nil
			})
			if len(on) != 3 {
				t.Errorf("three replicas are on %d nodes; expected 3", len(on))
			}
		})
	}
}

// Owners of other makers' have their pods gathered without a word from the
// user: none is bound while the gang is not whole.
func TestOwners(t *testing.T) {
	for _, o := range []struct {
		name  string
		gvk   schema.GroupVersionKind // of the owner; none when the pods say it all
		spec  string
		least int
		// pod is what the controller writes on a pod, beside the owner reference
		// of those that own pods directly.
		pod    func(*v1.Pod)
		direct bool
	}{
		{
			"JobSet", kind("jobset.x-k8s.io", "v1alpha2", "JobSet"),
			`{replicatedJobs: [{name: driver, template: {spec: {parallelism: 1}}}, {name: worker, replicas: 2, template: {spec: {parallelism: 2}}}]}`,
			5, label("jobset.sigs.k8s.io/jobset-name", "train"), false,
		}, {
			"PyTorchJob", kind("kubeflow.org", "v1", "PyTorchJob"),
			`{pytorchReplicaSpecs: {Master: {replicas: 1}, Worker: {replicas: 3}}}`,
			4, label("training.kubeflow.org/replica-type", "worker"), true,
		}, {
			"PyTorchJob that says how many are enough", kind("kubeflow.org", "v1", "PyTorchJob"),
			`{runPolicy: {schedulingPolicy: {minAvailable: 2}}, pytorchReplicaSpecs: {Worker: {replicas: 3}}}`,
			2, label("training.kubeflow.org/replica-type", "worker"), true,
		}, {
			"MPIJob", kind("kubeflow.org", "v2beta1", "MPIJob"),
			`{mpiReplicaSpecs: {Launcher: {replicas: 1}, Worker: {replicas: 2}}}`, 3, label("training.kubeflow.org/job-name", "train"), true,
		}, {
			"RayCluster", kind("ray.io", "v1", "RayCluster"),
			`{headGroupSpec: {}, workerGroupSpecs: [{groupName: small, replicas: 4, minReplicas: 2}]}`, 3, func(p *v1.Pod) {
				p.Labels["ray.io/cluster"] = "train"
				p.Labels["ray.io/group"] = map[bool]string{true: "headgroup", false: "small"}[p.Name == "train-0"]
			}, false,
		}, {
			"LeaderWorkerSet", schema.GroupVersionKind{}, "", 3, func(p *v1.Pod) {
				p.Labels["leaderworkerset.sigs.k8s.io/name"], p.Labels["leaderworkerset.sigs.k8s.io/group-index"] = "train", "0"
				p.Annotations["leaderworkerset.sigs.k8s.io/size"] = "3"
			}, false,
		},
	} {
		t.Run(o.name, func(t *testing.T) {
			c := begin(t)
			c.node("n")
			c.schedule()
			options := []func(*v1.Pod){o.pod}
			if o.spec != "" {
				owner := c.makeObject(o.gvk, "train", o.spec)
				if o.direct {
					options = append(options, ownedBy(owner))
				}
			}
			early := c.several("train", 0, o.least-1, options...)
			if o.least > 1 {
				c.waits(early[0], tables.ReasonCollecting)
				c.unbound(early...)
			}
			c.bound(append(early, c.several("train", o.least-1, 1, options...)...)...)
		})
	}
}

// A RayJob that was suspended makes another RayCluster, whose pods wait since the
// RayJob was made.
func TestRayJobKeepsItsPlace(t *testing.T) {
	c := begin(t)
	c.node("n", gpus(2, "H800"))
	c.schedule()
	c.create(pod("blocker", asks(2)))
	c.bound("blocker")
	job := c.makeObject(kind("ray.io", "v1", "RayJob"), "train", "{}")
	c.until("the time of creation is another", func() error {
		if !time.Now().Truncate(time.Second).After(job.GetCreationTimestamp().Time) {
			return fmt.Errorf("it is %v still", job.GetCreationTimestamp())
		}
		return nil
	})
	c.create(pod("second", asks(2)))
	ray := parse(t, "{metadata: {name: train-x2}, spec: {workerGroupSpecs: [{groupName: w, replicas: 1}]}}")
	ray.SetGroupVersionKind(kind("ray.io", "v1", "RayCluster"))
	ray.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(job, job.GroupVersionKind())})
	_, err := anyKind.Resource(foreign(ray.GroupVersionKind())).Namespace(c.namespace).Create(ctx(), ray, metav1.CreateOptions{})
	c.must(err)
	for _, group := range []string{"headgroup", "w"} {
		c.create(pod(group, label("ray.io/cluster", "train-x2"), label("ray.io/group", group)))
	}
	c.waits("w", "Resources")
	c.waits("second", "Resources")
	c.delete("blocker")
	c.bound("headgroup", "w")
	c.unbound("second")
}

// makeObject makes an object of another maker's.
func (c *cluster) makeObject(gvk schema.GroupVersionKind, name, spec string) *unstructured.Unstructured {
	c.Helper()
	o := parse(c.T, fmt.Sprintf("{metadata: {name: %s}, spec: %s}", name, spec))
	o.SetGroupVersionKind(gvk)
	made, err := anyKind.Resource(foreign(gvk)).Namespace(c.namespace).Create(ctx(), o, metav1.CreateOptions{})
	c.must(err)
	return made
}

// ownedBy makes an object the controller of a pod.
func ownedBy(o *unstructured.Unstructured) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o, o.GroupVersionKind())}
	}
}

func (c *cluster) job(name string, spec *batchv1.JobSpec) {
	c.Helper()
	_, err := admin.BatchV1().Jobs(c.namespace).Create(ctx(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *spec}, metav1.CreateOptions{})
	c.must(err)
}

// completes waits until a Job has.
func (c *cluster) completes(job string) {
	c.Helper()
	c.until("Job "+job+" completes", func() error {
		j, err := admin.BatchV1().Jobs(c.namespace).Get(ctx(), job, metav1.GetOptions{})
		if err == nil && j.Status.CompletionTime == nil {
			err = fmt.Errorf("%d active, %d succeeded, %d failed", j.Status.Active, j.Status.Succeeded, j.Status.Failed)
		}
		return err
	})
}
