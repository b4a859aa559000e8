package console

import (
	"context"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-sched/muster/core"
)

func TestParseWalltime(t *testing.T) {
	const minute, hour, day = 60, 3600, 86400
	for text, seconds := range map[string]int64{
		"90": 90 * minute, "1:30": 90, "12:00:00": 12 * hour, "2-12": 2*day + 12*hour, "1-1:30": day + hour + 30*minute, "1-00:00:30": day + 30, "36h": 36 * hour,
		"": 0, "0": 0, "x": 0, "1:2:3:4": 0, "-1": 0, "1-": 0, "1-2:3:4:5": 0, "99999999999": 0, "5y": 0,
	} {
		got, err := ParseWalltime(text)
		if (err == nil) != (seconds > 0) || err == nil && got != core.Time(seconds)*core.Second {
			t.Errorf("%q: got %v, %v; want %d s", text, got, err, seconds)
		}
	}
}

func TestParseMemory(t *testing.T) {
	for text, want := range map[string]string{"512": "512Mi", "64G": "64Gi", "8k": "8Ki", "1T": "1Ti", "64Gi": "64Gi", "": "", "x": "", "-1G": "", "0": ""} {
		got, err := ParseMemory(text)
		if (err == nil) != (want != "") || err == nil && got.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%q: got %s, %v; want %s", text, got.String(), err, want)
		}
	}
}

func TestParseGres(t *testing.T) {
	for text, want := range map[string]struct {
		model string
		gpus  int
	}{
		"gpu": {"", 1}, "gpu:8": {"", 8}, "gpu:h100:8": {"h100", 8}, "gpu:h100": {"h100", 1},
		"": {}, "gpu:0": {}, "gpu:h100:x": {}, "mps:8": {}, "gpu::8": {}, "gpu:a:b:8": {}, "gpu:2,shard:3": {}, "gpu:h100:2,nic": {},
	} {
		model, gpus, err := ParseGres(text)
		if (err == nil) != (want.gpus > 0) || model != want.model || gpus != want.gpus {
			t.Errorf("%q: got %q, %d, %v", text, model, gpus, err)
		}
	}
}

func TestParseArray(t *testing.T) {
	for text, want := range map[string][2]int{
		"0-9": {10, 0}, "0-9%2": {10, 2}, "0-0": {1, 0}, "0-3%9": {4, 4},
		"1-9": {}, "9": {}, "0-9%0": {}, "0-9%": {}, "0-": {}, "0-9:2": {}, "1,3": {},
	} {
		count, atOnce, err := ParseArray(text)
		if (err == nil) != (want[0] > 0) || count != want[0] || atOnce != want[1] {
			t.Errorf("%q: got %d, %d, %v", text, count, atOnce, err)
		}
	}
}

func TestScriptOptions(t *testing.T) {
	got, err := ScriptOptions(`#!/bin/bash
# A comment
#SBATCH --job-name="my job" -N 2   # and why
#SBATCHx --no
#SBATCH -t '1:00:00'

#SBATCH
echo
#SBATCH --late`)
	if want := []ScriptLine{{3, []string{"--job-name=my job", "-N", "2"}}, {5, []string{"-t", "1:00:00"}}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if _, err := ScriptOptions("\n#SBATCH -J 'x"); err == nil || err.Error() != "line 2: expected a closing '" {
		t.Errorf("got %v", err)
	}
}

// What is asked for the job, a node or a task comes out as what each pod has.
func TestShapes(t *testing.T) {
	for name, c := range map[string]struct {
		Submission
		pods   int
		gpus   string // of each pod
		memory string
	}{
		"one":                       {Submission{GPUs: 8}, 1, "8", ""},
		"no GPU":                    {Submission{}, 1, "", ""},
		"of the job":                {Submission{GPUs: 16, Nodes: 2}, 2, "8", ""},
		"of a node":                 {Submission{GPUsPerNode: 8, Nodes: 2, Memory: resource.MustParse("64Gi")}, 2, "8", "64Gi"},
		"of a task":                 {Submission{GPUsPerTask: 1, Tasks: 4}, 4, "1", ""},
		"of a node of several":      {Submission{GPUsPerNode: 8, Nodes: 2, Tasks: 4, Memory: resource.MustParse("64Gi")}, 4, "4", "32Gi"},
		"of a task on several nods": {Submission{GPUsPerTask: 2, Nodes: 2, Tasks: 8}, 8, "2", ""},
	} {
		c.Image, c.Command = "i", []string{"x"}
		job, service, err := c.Objects()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := job.Spec.Template.Spec.Containers[0].Resources
		gpus, memory := "", ""
		if q, ok := r.Limits["nvidia.com/gpu"]; ok {
			gpus = q.String()
		}
		if q, ok := r.Requests["memory"]; ok {
			memory = q.String()
		}
		if n := int(*job.Spec.Parallelism); n != c.pods || gpus != c.gpus || memory != c.memory {
			t.Errorf("%s: got %d pods with %q GPUs and %q each", name, n, gpus, memory)
		}
		gang := job.Spec.Scheduling != nil && int(*job.Spec.Scheduling.SchedulingPolicy.Gang.MinCount) == c.pods &&
			job.Spec.Template.Annotations["muster.sh/min-member"] != "" && service != nil
		if gang != (c.pods > 1) {
			t.Errorf("%s: is it a gang, with a Service: %t", name, gang)
		}
	}
}

func TestSubmissionsThatCannotBe(t *testing.T) {
	for want, s := range map[string]Submission{
		"--ntasks: expected a multiple of --nodes, 2; found 3":                                                    {Nodes: 2, Tasks: 3},
		"--gpus: expected one of --gpus (of the job), --gpus-per-node, --gres and --gpus-per-task; found several": {GPUs: 1, GPUsPerNode: 1},
		"--gpus: expected a multiple of the number of tasks, 3, ":                                                 {GPUs: 8, Nodes: 3},
		"--gpus-per-node: expected a multiple of the number of tasks per node, 3; found 8":                        {GPUsPerNode: 8, Nodes: 1, Tasks: 3},
		"--gpu-fraction: expected a fraction of a GPU or whole GPUs; found both":                                  {GPUs: 1, Fraction: "0.5"},
		"--array: expected a job with one task: ":                                                                 {Array: 3, Nodes: 2},
		"--job-name: expected at most 52 lower-case letters, ":                                                    {Name: "My_Job"},
		"--env: expected NAME=VALUE; found \"X\"":                                                                 {Env: []string{"X"}},
		"--annotation: expected KEY=VALUE; found \"a b=c\"":                                                       {Annotations: []string{"a b=c"}},
		"muster.sh/kind: \"trainig\": expected one of ":                                                           {Kind: "trainig"},
		"muster.sh/gpu-fraction: \"2\": expected a fraction of a GPU":                                             {Fraction: "2"},
	} {
		s.Image, s.Command = "i", []string{"x"}
		if _, _, err := s.Objects(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, _, err := (&Submission{Command: []string{"x"}}).Objects(); err == nil || err.Error() != "--image: expected a container image; found nothing" {
		t.Errorf("no image: got %v", err)
	}
}

// A script is run by the shell that it names, with its arguments, and nothing
// in it is expanded before.
func TestScripts(t *testing.T) {
	for script, shell := range map[string][]string{
		"#!/bin/bash -e\necho $$ $(date)\n": {"/bin/bash", "-e"}, "#!/usr/bin/env python3\nprint()\n": {"python3"}, "echo $1\n": {"/bin/sh"},
	} {
		s := Submission{Image: "i", Script: script, Command: []string{"run.sh", "a"}}
		job, _, err := s.Objects()
		if err != nil {
			t.Fatal(err)
		}
		escaped := script
		if strings.Contains(script, "$$") {
			escaped = strings.ReplaceAll(script, "$", "$$")
		}
		if got, want := job.Spec.Template.Spec.Containers[0].Command, slices.Concat(shell, []string{"-c", escaped, "run.sh", "a"}); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if !regexp.MustCompile(`^run-[a-z0-9]{5}$`).MatchString(job.Name) {
			t.Errorf("the job is called %s", job.Name)
		}
	}
	for want, script := range map[string]string{
		"expected a script of at most 100 KiB":                     strings.Repeat("x", longestScript+1),
		"expected a shell or Python script; found \"#!/bin/perl\"": "#!/bin/perl\n",
		"expected a shell or Python script; found \"#!\"":          "#!\n",
	} {
		s := Submission{Image: "i", Script: script, Command: []string{"x"}}
		if _, _, err := s.Objects(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

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
	s := Submission{Name: "train", Namespace: "team", Image: "i", Command: []string{"x"}, Nodes: 2, GPUsPerNode: 8}
	job, service, err := s.Objects()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Submit(context.Background(), job, service); err != nil {
		t.Fatal(err)
	}
	made, err := json.Marshal(fake.Object("/api/v1/namespaces/team/services/train"))
	if err != nil || !strings.Contains(string(made), `"ownerReferences":[{"apiVersion":"batch/v1"`) {
		t.Errorf("the Service is %s, %v", made, err)
	}
	err = client.Submit(context.Background(), job, service)
	if err == nil || !strings.HasPrefix(err.Error(), "namespace team already has a Job train: choose another --job-name") {
		t.Errorf("a name that is taken: got %v", err)
	}
	fake.Refuse(regexp.MustCompile(`"scheduling":`), "Job.batch \"old\" is invalid: spec.scheduling: Forbidden: the gate is off")
	s.Name = "old"
	if job, service, err = s.Objects(); err != nil {
		t.Fatal(err)
	}
	if err := client.Submit(context.Background(), job, service); err != nil {
		t.Fatal(err)
	}
	if old := fake.Object("/apis/batch/v1/namespaces/team/jobs/old"); old == nil {
		t.Error("the Job was not made")
	}
}
