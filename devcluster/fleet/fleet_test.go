package fleet

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// The nodes of every built-in cluster are nodes that Kubernetes takes, and tell
// their GPU models apart.
func TestBuiltins(t *testing.T) {
	for _, b := range workload.Builtins() {
		c, err := workload.OpenCluster(b.Name, workload.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(&c); err != nil {
			t.Fatal(err)
		}
		models := make(map[string]string) // by product
		for i := range c.Nodes {
			spec := &c.Nodes[i]
			n := node(i, spec, c.Levels, false)
			for k, v := range n.Labels {
				if problems := append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...); len(problems) > 0 {
					t.Fatalf("%s: node %s: label %s=%s: %v", b.Name, n.Name, k, v, problems)
				}
			}
			if gpus := n.Status.Allocatable[GPUResource]; int(gpus.Value()) != spec.GPUs {
				t.Fatalf("%s: node %s has %v GPUs; want %d", b.Name, n.Name, gpus.Value(), spec.GPUs)
			}
			product := n.Labels[labelProduct]
			if was, ok := models[product]; ok && was != spec.Model {
				t.Fatalf("%s: %s and %s are both %s", b.Name, was, spec.Model, product)
			}
			models[product] = spec.Model
			if !strings.Contains(product, spec.Model) {
				t.Fatalf("%s: the product of %s is %s", b.Name, spec.Model, product)
			}
		}
		if len(models) == 0 {
			t.Errorf("%s has no GPUs", b.Name)
		}
	}
}

// What a cluster says of a node is found on it.
func TestNodeOfSpec(t *testing.T) {
	n := node(300, &core.Node{
		Name: "Node-A", Model: "Strange GPU", GPUs: 4, CPUMilli: 1500, MemMiB: 2048, HBD: "rack 7",
		Domains: []string{"", "s0", "l0"}, Labels: map[string]string{"team": "a/b"},
		Taints: []core.Taint{{Key: "dedicated", Value: "infra"}}, Unhealthy: []int{1, 3}, Cordoned: true,
	}, []string{"superspine", "spine", "leaf"}, false)
	want := map[string]string{
		"nvidia.com/gpu.product": "Strange-GPU", "muster.sh/gpu-model": "Strange-GPU", "nvidia.com/gpu.clique": "rack-7", "team": "a-b",
		LevelLabel("spine"): "s0", LevelLabel("leaf"): "l0", "kubernetes.io/hostname": "node-a",
	}
	for k, v := range want {
		if n.Labels[k] != v {
			t.Errorf("label %s is %q; want %q", k, n.Labels[k], v)
		}
	}
	if _, ok := n.Labels[LevelLabel("superspine")]; ok {
		t.Error("the node has a label for a place that is not known")
	}
	left := n.Status.Allocatable[GPUResource]
	if n.Name != "node-a" || left.Value() != 2 || n.Annotations[FailedGPUs] != "1,3" || !n.Spec.Unschedulable ||
		n.Status.Capacity.Cpu().MilliValue() != 1500 || n.Status.Capacity.Memory().Value() != 2<<30 ||
		len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Effect != corev1.TaintEffectNoSchedule || n.Status.Addresses[0].Address != "172.16.1.44" {
		t.Errorf("the node is %+v", n)
	}

	n = node(0, &core.Node{Name: "a", Model: "H800", GPUs: 8, Unhealthy: []int{5}}, nil, true)
	devices := slice(n).Spec.Devices
	if len(devices) != 8 || len(devices[5].Taints) != 1 || len(devices[4].Taints) != 0 {
		t.Errorf("the devices are %+v", devices)
	}
	if slice(node(0, &core.Node{Name: "a", Model: "H800", GPUs: 8}, nil, false)) != nil {
		t.Error("a node with the resource has a slice too")
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		names, want string
	}{
		{"a b.c", ""},
		{"a A", `twice`},
		{"a b_c", `"b_c"`},
	} {
		var cluster workload.Cluster
		for name := range strings.FieldsSeq(c.names) {
			cluster.Nodes = append(cluster.Nodes, core.Node{Name: name})
		}
		err := Check(&cluster)
		if c.want == "" && err != nil || c.want != "" && (!workload.IsBadInput(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want an error that says %q", c.names, err, c.want)
		}
	}
}

func TestIndices(t *testing.T) {
	for _, c := range []struct{ text, want string }{{"", ""}, {"0", "0"}, {"3,0,3", "0,3"}, {"63", "63"}} {
		if s, err := parseIndices(c.text); err != nil || s.String() != c.want {
			t.Errorf("%q reads as %q (%v); want %q", c.text, s, err, c.want)
		}
	}
	for _, text := range []string{"64", "-1", "a", "1,", "1 2"} {
		if s, err := parseIndices(text); err == nil {
			t.Errorf("%q reads as %q; want an error", text, s)
		}
	}
}

// When the containers of a deleted pod end.
func TestTermination(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		termination string
		grace       int64
		stop        time.Duration // after the deletion
		left        bool
	}{
		{"", 30, 0, false},
		{"10s", 30, 10 * time.Second, false},
		{"10m", 30, 30 * time.Second, false},
		{"nonsense", 30, 0, false},
		{"10s", 0, 0, true},
	} {
		p := condense(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Annotations:                map[string]string{Termination: c.termination},
			DeletionTimestamp:          &metav1.Time{Time: at.Add(time.Duration(c.grace) * time.Second)},
			DeletionGracePeriodSeconds: ptr.To(c.grace),
		}})
		if got := p.stop.Sub(at); got != c.stop || p.left != c.left {
			t.Errorf("termination %q, grace %ds: ends after %v, left %v; want %v, %v", c.termination, c.grace, got, p.left, c.stop, c.left)
		}
	}
}

// The status of init containers and sidecars follows that of the pod.
func TestStatusOfInits(t *testing.T) {
	p := condense(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u"},
		Spec: corev1.PodSpec{
			RestartPolicy:  corev1.RestartPolicyNever,
			InitContainers: []corev1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}},
			Containers:     []corev1.Container{{Name: "a"}, {Name: "b"}},
		},
	})
	now := time.Now()
	states := func(got corev1.PodStatus) string {
		state := make(map[string]string)
		for _, s := range append(got.InitContainerStatuses, got.ContainerStatuses...) {
			state[s.Name] = "running"
			if s.State.Terminated != nil {
				state[s.Name] = s.State.Terminated.Reason
			}
		}
		var text []string
		for _, name := range slices.Sorted(maps.Keys(state)) {
			text = append(text, name+" "+state[name])
		}
		return string(got.Phase) + ": " + strings.Join(text, ", ")
	}
	if got, want := states(p.running(now, "172.16.0.1")), "Running: a running, b running, init Completed, sidecar running"; got != want {
		t.Errorf("it runs as %q; want %q", got, want)
	}
	if got, want := states(p.finished(now, true, 1)), "Failed: a Error, b Error, init Completed, sidecar Completed"; got != want {
		t.Errorf("it ends as %q; want %q", got, want)
	}
}
