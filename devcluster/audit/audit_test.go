package audit

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// The audit uses nothing of Muster.
func TestSharesNoCode(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "audit.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range f.Imports {
		if strings.Contains(i.Path.Value, "muster") {
			t.Errorf("it imports %s", i.Path.Value)
		}
	}
}

func node(allocatable, capacity string) *v1.Node {
	list := func(cpu string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourcePods: resource.MustParse("3"), gpuResource: resource.MustParse("4")}
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1.NodeStatus{Allocatable: list(allocatable), Capacity: list(capacity)}}
}

func pod(name, cpu, gpus string, notes ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}, Labels: map[string]string{queueLabel: "q"}}}
	p.Spec.NodeName, p.Spec.SchedulerName = "n", schedulerName
	p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cpu), gpuResource: resource.MustParse(gpus),
	}}}}
	for i := 0; i < len(notes); i += 2 {
		p.Annotations[notes[i]] = notes[i+1]
	}
	return p
}

// Each kind of error on a node is found, and what is right is not.
func TestNode(t *testing.T) {
	ended := pod("ended", "9", "4", devices, "0,1,2,3")
	ended.Status.Phase = v1.PodSucceeded
	for name, c := range map[string]struct {
		pods []*v1.Pod
		want string
	}{
		"all is well":        {[]*v1.Pod{pod("a", "4", "2", devices, "0,3"), pod("b", "4", "2", devices, "1,2"), ended}, ""},
		"parts of a GPU":     {[]*v1.Pod{pod("a", "1", "0", devices, "1", share, "500"), pod("b", "1", "0", devices, "1", share, "500")}, ""},
		"a GPU twice":        {[]*v1.Pod{pod("a", "1", "2", devices, "0,3"), pod("b", "1", "1", devices, "3")}, "GPU 3 is given to a b"},
		"too many parts":     {[]*v1.Pod{pod("a", "1", "0", devices, "1", share, "500"), pod("b", "1", "0", devices, "1", share, "600")}, "GPU 1 is given to a b: 1100"},
		"no such GPU":        {[]*v1.Pod{pod("a", "1", "1", devices, "4")}, "GPU 4 is given to a; the node has 4"},
		"too few GPUs":       {[]*v1.Pod{pod("a", "1", "2", devices, "0")}, "asks for 2 GPUs and has [0]"},
		"nonsense":           {[]*v1.Pod{pod("a", "1", "0", devices, "0,0")}, `"0,0"`},
		"CPU of allocatable": {[]*v1.Pod{pod("a", "5", "0"), pod("b", "4", "0")}, "9 of cpu is given, and it has 8"},
		"too many pods":      {[]*v1.Pod{pod("a", "1", "0"), pod("b", "1", "0"), pod("c", "1", "0"), pod("d", "1", "0")}, "4 pods, and room for 3"},
		"too many GPUs":      {[]*v1.Pod{pod("a", "1", "3", devices, "0,1,2"), pod("b", "1", "2", devices, "3,4")}, "5 of nvidia.com/gpu"},
	} {
		got := strings.Join(Nodes([]v1.Node{*node("8", "10")}, c.pods), "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: found %q; expected %q", name, got, c.want)
		}
	}
}

// A gang of which some pods run is found, unless one of its pods leaves.
func TestGangs(t *testing.T) {
	groups := []schedulingv1beta1.PodGroup{{ObjectMeta: metav1.ObjectMeta{Name: "g"}}}
	groups[0].Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}
	member := func(node string) *v1.Pod {
		p := pod("p", "1", "1")
		p.Spec.NodeName, p.Spec.SchedulingGroup = node, &v1.PodSchedulingGroup{PodGroupName: ptr.To("g")}
		return p
	}
	if got := Gangs(groups, []*v1.Pod{member("n"), member("")}); len(got) != 1 {
		t.Errorf("found %q", got)
	}
	leaving := member("n")
	leaving.DeletionTimestamp = &metav1.Time{}
	for _, pods := range [][]*v1.Pod{{member("n"), member("n")}, {member(""), member("")}, {member("n")}, {leaving, member("n"), member("")}} {
		if got := Gangs(groups, pods); len(got) > 0 {
			t.Errorf("found %q", got)
		}
	}
}

// What runs counts against its queue; what waits or has ended does not.
func TestQuotas(t *testing.T) {
	waits := pod("w", "1", "9")
	waits.Spec.NodeName = ""
	pods := []*v1.Pod{pod("a", "1", "2"), pod("b", "1", "0", fraction, "0.5"), waits}
	if got := Quotas([]Limit{{Queue: "q", GPUs: 2500, Others: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}, {Queue: "other"}}, pods); len(got) > 0 {
		t.Errorf("found %q", got)
	}
	if got := Quotas([]Limit{{Queue: "q", GPUs: 2499}}, pods); len(got) != 1 || !strings.Contains(got[0], "uses 2500") {
		t.Errorf("found %q", got)
	}
	few := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1900m")}
	if got := Quotas([]Limit{{Queue: "q", GPUs: 2500, Others: few}}, pods); len(got) != 1 || !strings.Contains(got[0], "uses 2 of cpu, and may use 1900m") {
		t.Errorf("found %q", got)
	}
}

// A Job that is suspended, or was and still has the mark, is found; so is a pod that waits,
// leaves, or was refused.
func TestLeftBehind(t *testing.T) {
	marked := metav1.ObjectMeta{Annotations: map[string]string{suspended: "x"}}
	jobs := []batchv1.Job{{}, {Spec: batchv1.JobSpec{Suspend: ptr.To(true)}}, {ObjectMeta: marked}, {Spec: batchv1.JobSpec{Suspend: ptr.To(false)}}}
	if got := Suspended(jobs); len(got) != 2 {
		t.Errorf("found %q", got)
	}
	waits, leaves, refused := pod("waits", "1", "1"), pod("leaves", "1", "1"), pod("refused", "1", "1")
	waits.Spec.NodeName, leaves.DeletionTimestamp = "", &metav1.Time{}
	refused.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu", Message: "no room"}
	if got := Waiting([]*v1.Pod{pod("a", "1", "1"), waits, leaves, refused}); len(got) != 2 {
		t.Errorf("found %q", got)
	}
	if Refused(refused) == "" || Refused(waits) != "" {
		t.Error("a refused pod is not found, or another is")
	}
}
