package console

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/muster-sched/muster/kube/slurm"
)

func TestModels(t *testing.T) {
	client, _ := cluster(t, `
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}
status: {allocatable: {nvidia.com/gpu: "8"}}
---
apiVersion: v1
kind: Node
metadata: {name: n2, labels: {nvidia.com/gpu.product: NVIDIA-H100-PCIe}}
status: {allocatable: {nvidia.com/gpu: "8"}}
---
apiVersion: v1
kind: Node
metadata: {name: n3, labels: {nvidia.com/gpu.product: NVIDIA-A10}}
status: {allocatable: {nvidia.com/gpu: "8"}}
---
apiVersion: v1
kind: Node
metadata: {name: cpu}
`)
	for text, want := range map[string]string{"h100": "H100-80GB-HBM3|H100-PCIe", "a10": "A10", "a10|H100-pcie": "A10|H100-PCIe", "a1": "", "a10|v100": ""} {
		got, err := client.Models(context.Background(), text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v; want %q", text, got, err, want)
		}
	}
}

// The Service of a gang goes with its Job; a cluster that does not know gangs
// of Jobs is told by annotation alone; a name that is taken is said.
func TestSubmit(t *testing.T) {
	client, fake := cluster(t, "")
	s := slurm.Submission{Name: "train", Namespace: "team", Image: "i", Command: []string{"x"}, Nodes: 2, GPUsPerNode: 8}
	objects := func() *slurm.Objects {
		o, err := s.Objects()
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	if err := client.Submit(context.Background(), objects()); err != nil {
		t.Fatal(err)
	}
	made, err := json.Marshal(fake.Object("/api/v1/namespaces/team/services/train"))
	if err != nil || !strings.Contains(string(made), `"ownerReferences":[{"apiVersion":"batch/v1"`) {
		t.Errorf("the Service is %s, %v", made, err)
	}
	err = client.Submit(context.Background(), objects())
	if err == nil || !strings.HasPrefix(err.Error(), "namespace team already has a Job train: choose another --job-name") {
		t.Errorf("a name that is taken: got %v", err)
	}
	fake.Refuse(regexp.MustCompile(`"scheduling":`), "Job.batch \"old\" is invalid: spec.scheduling: Forbidden: the gate is off")
	s.Name = "old"
	if err := client.Submit(context.Background(), objects()); err != nil {
		t.Fatal(err)
	}
	if old := fake.Object("/apis/batch/v1/namespaces/team/jobs/old"); old == nil {
		t.Error("the Job was not made")
	}
	s.Name, s.Script, s.File = "script", "#!/bin/sh\nsrun hostname\n", "run.sh"
	o := objects()
	if err := client.Submit(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if made, err = json.Marshal(fake.Object("/api/v1/namespaces/team/secrets/script")); err != nil || !strings.Contains(string(made), `"ownerReferences":[{"apiVersion":"batch/v1"`) {
		t.Errorf("the Secret is %s, %v", made, err)
	}
	for _, text := range []string{"script", o.Jobs[0].Labels["muster.sh/slurm-job-id"]} {
		if name, err := client.SlurmJob(context.Background(), "team", text); err != nil || name != "script" {
			t.Errorf("job %s is %q, %v", text, name, err)
		}
	}
	if _, err := client.SlurmJob(context.Background(), "team", "4711"); err == nil || err.Error() != "--dependency: namespace team has no job 4711" {
		t.Errorf("a job that is not there: %v", err)
	}
}

// An array of gangs is found by its name and its id, its jobs by theirs; what they need goes with the last of them.
func TestSubmitArrayOfGangs(t *testing.T) {
	client, fake := cluster(t, "")
	submit := func(name string, nodes int) *slurm.Objects {
		t.Helper()
		o, err := (&slurm.Submission{Name: name, Namespace: "team", Image: "i", Script: "#!/bin/sh\n", File: "a", Nodes: nodes, Array: slurm.Array{Indices: []int{3, 8}}}).Objects()
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Submit(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	o, plain := submit("sweep", 2), submit("plain", 1)
	id := func(j *batchv1.Job) string { return j.Labels["muster.sh/slurm-job-id"] }
	first, second, other := id(o.Jobs[0]), id(o.Jobs[1]), id(plain.Jobs[0])
	for text, want := range map[string]string{"sweep": "sweep", first: "sweep", first + "_8": "sweep-8", first + "_3": "sweep-3", second: "sweep-8", "sweep-3": "sweep-3", first + "_4": "", second + "_3": "", other: "plain", other + "_3": "", "swept": ""} {
		if got, err := client.SlurmJob(context.Background(), "team", text); got != want || (err == nil) != (want != "") {
			t.Errorf("%s is %q, %v; want %q", text, got, err, want)
		}
	}
	for _, kind := range []string{"secrets", "services"} {
		made, err := json.Marshal(fake.Object("/api/v1/namespaces/team/" + kind + "/sweep"))
		if err != nil || strings.Count(string(made), `"apiVersion":"batch/v1"`) != 2 || strings.Contains(string(made), `"controller":true`) {
			t.Errorf("%s: %s, %v", kind, made, err)
		}
	}
}

// Where what its pods need cannot be made, no Job is left that could not run.
func TestSubmitOrNothing(t *testing.T) {
	client, fake := cluster(t, "")
	fake.Refuse(regexp.MustCompile(`"kind":"Secret"`), "secrets is forbidden")
	o, err := (&slurm.Submission{Name: "train", Namespace: "team", Image: "i", Script: "#!/bin/sh\n", File: "a"}).Objects()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Submit(context.Background(), o); err == nil || fake.Object("/apis/batch/v1/namespaces/team/jobs/train") != nil {
		t.Errorf("got %v, and a Job", err)
	}
}
