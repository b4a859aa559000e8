package translate

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/core"
)

// A pod that asks for more than there can be is told so. What it takes where it runs
// is the most that there is, not what is left of an overflow.
func TestRequestsBeyondBounds(t *testing.T) {
	for _, c := range []struct {
		containers string // requests of each
		want       Amounts
		wrong      string
	}{
		{`{cpu: 5P, nvidia.com/gpu: 1}`, Amounts{GPUs: 1, CPUMilli: core.MaxAmount}, "5P of cpu is requested, expected at most 281474976710"},
		{`{cpu: 3P}`, Amounts{CPUMilli: core.MaxAmount}, "3P of cpu"},
		{`{cpu: 9E}`, Amounts{CPUMilli: core.MaxAmount}, "9E of cpu"},
		{`{cpu: 5E}; {cpu: 5E}`, Amounts{CPUMilli: core.MaxAmount}, "of cpu is requested"},
		{`{cpu: 281474976710}`, Amounts{CPUMilli: 281474976710000}, ""},
		{`{memory: 7E}; {memory: 7E}`, Amounts{MemMiB: 1<<43 - 1}, "of memory is requested"},
		{`{memory: 9223372036854775807}`, Amounts{MemMiB: 1 << 43}, ""},
		{`{nvidia.com/gpu: 2305843009213693960}`, Amounts{GPUs: core.MaxAmount}, "GPUs are requested, expected at most 64 per pod"},
		{`{nvidia.com/gpu: 18446744073709552}`, Amounts{GPUs: core.MaxAmount}, "GPUs are requested, expected at most 64 per pod"},
		{`{nvidia.com/gpu: 9E}; {amd.com/gpu: 9E}`, Amounts{GPUs: 2 * core.MaxAmount}, "GPUs are requested"},
		{`{rdma/hca: 9E}; {rdma/hca: 9E}`, Amounts{Others: []core.Amount{{Name: "rdma/hca", Value: core.MaxAmount}}}, "of rdma/hca is requested, expected at most 281474976710656"},
	} {
		var list []string
		for i, r := range strings.Split(c.containers, ";") {
			list = append(list, fmt.Sprintf("{name: c%d, resources: {requests: %s}}", i, r))
		}
		p := read[v1.Pod](t, fmt.Sprintf("spec: {containers: [%s]}", strings.Join(list, ", ")))
		if got := Requests(p); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %+v, expected %+v", c.containers, got, c.want)
		}
		r, err := Request(p, &Attributes{})
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: error %v, expected %q", c.containers, err, c.wrong)
		}
		if err := core.CheckJob(&core.Job{Name: "j", Tasks: []core.Task{{Pods: 1, Request: r}}}); err != nil {
			t.Errorf("%s: the engine does not take what is left of the request: %v", c.containers, err)
		}
	}
}

// So is who writes such numbers in labels and annotations.
func TestAttributesBeyondBounds(t *testing.T) {
	for _, says := range []string{
		"gpu-fraction=NaN", "gpu-fraction=Inf", "gpu-fraction=-Inf", "gpu-fraction=-0.5", "gpu-fraction=1e300", "gpu-fraction=0", "muster.sh/gpu-fraction=nan",
		"gpu-memory=-1", "gpu-memory=9223372036854775807", "gpu-memory=NaN", "muster.sh/min-member=9223372036854775807", "muster.sh/min-member=a=9223372036854775807",
		"muster.sh/min-member=-1", "muster.sh/min-runtime=1e300", "muster.sh/min-runtime=-1s", "muster.sh/walltime=10000000h", "muster.sh/checkpoint-interval=9223372036854775807",
		`yunikorn.apache.org/task-groups=[{"name":"a","minMember":9223372036854775807}]`,
		"yunikorn.apache.org/schedulingPolicyParameters=placeholderTimeoutInSeconds=9223372036854775807",
	} {
		key, value, _ := strings.Cut(says, "=")
		var a Attributes
		if err := a.Read(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: value}}}); err == nil {
			t.Errorf("%s is taken as %+v", says, a)
		}
	}
}

// A node has no more than there can be.
func TestNodeBeyondBounds(t *testing.T) {
	n := read[v1.Node](t, `{metadata: {name: n}, status: {allocatable: {cpu: 9E, memory: 9E, pods: 9E, rdma/hca: 9E, nvidia.com/gpu: 8}}}`)
	got, _, err := Node(n)
	if err != nil || got.CPUMilli != core.MaxAmount || got.MaxPods != maxPods || got.Others[0].Value != core.MaxAmount {
		t.Errorf("%+v, %v", got, err)
	}
	n = read[v1.Node](t, `{metadata: {name: n}, status: {allocatable: {nvidia.com/gpu: 18446744073709552}}}`)
	if _, _, err := Node(n); err == nil {
		t.Error("a node has any number of GPUs")
	}
}
