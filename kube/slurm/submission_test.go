package slurm

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/after"
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
	for text, want := range map[string]GPUs{
		"gpu": {"", 1}, "gpu:8": {"", 8}, "gpu:h100:8": {"h100", 8}, "gpu:h100": {"h100", 1},
		"": {}, "gpu:0": {}, "gpu:h100:x": {}, "mps:8": {}, "gpu::8": {}, "gpu:a:b:8": {}, "gpu:2,shard:3": {}, "gpu:h100:2,nic": {}, "gpu:a:1,gpu:b:1": {},
	} {
		got, err := ParseGres(text)
		if (err == nil) != (want.Count > 0) || err == nil && got != want {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
	if _, err := ParseGres("gpu:2,shard:3"); err == nil || !strings.Contains(err.Error(), "shard:3 asks for a part of a GPU, which is --gpu-fraction 0.25 here") {
		t.Errorf("shards: got %v", err)
	}
	if got, err := ParseGres("none"); err != nil || got != (GPUs{}) {
		t.Errorf("none: got %v, %v", got, err)
	}
}

func TestParseGPUs(t *testing.T) {
	for text, want := range map[string]GPUs{"8": {"", 8}, "a10:8": {"a10", 8}, "a100": {"a100", 1}, ":8": {}, "a:b": {}, "a:1,b:2": {}, "-1": {}, "": {}} {
		got, err := ParseGPUs(text)
		if (err == nil) != (want.Count > 0) || err == nil && got != want {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}

func TestParseArray(t *testing.T) {
	for text, want := range map[string]struct {
		indices string
		atOnce  int
	}{
		"0-9": {"0-9", 0}, "0-9%2": {"0-9", 2}, "0-0": {"0", 0}, "0-3%9": {"0-3", 4}, "1-10%2": {"1-10", 2}, "9": {"9", 0}, "0-20:5": {"0-20:5", 0}, "1,3": {"1,3", 0},
		"7,1-3,2": {"1-3,7", 0}, "0-4:2,5-9:2": {"0-4:2,5-9:2", 0}, "5,6": {"5-6", 0}, "1,4,7,8": {"1-7:3,8", 0},
		"0-9%0": {}, "0-9%": {}, "0-": {}, "0-9:0": {}, "9-1": {}, "x": {}, "1,,2": {}, "0-99999999": {}, "3:2": {}, "": {},
	} {
		got, err := ParseArray(text)
		if (err == nil) != (want.indices != "") || err == nil && (got.String() != want.indices || got.AtOnce != want.atOnce) {
			t.Errorf("%q: got %s, %d, %v", text, got, got.AtOnce, err)
		}
	}
}

func TestParseSignal(t *testing.T) {
	for text, want := range map[string]Signal{
		"USR1": {"USR1", false, 60 * core.Second}, "B:SIGUSR1@120": {"USR1", true, 120 * core.Second}, "10@30": {"USR1", false, 30 * core.Second}, "term@5": {"TERM", false, 5 * core.Second},
		"": {}, "USR1@": {}, "USR1@x": {}, "R:USR1": {}, "99@3": {}, "FOO": {},
	} {
		if got, err := ParseSignal(text); (err == nil) != (want.Name != "") || got != want {
			t.Errorf("%q: got %v, %v", text, got, err)
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

// What is asked for the job, a node or a task comes out as what each pod has: of a script a node, of a command a task.
func TestShapes(t *testing.T) {
	GiB := func(n string) resource.Quantity { return resource.MustParse(n + "Gi") }
	for name, c := range map[string]struct {
		Submission
		script, command string // pods x tasks of each: GPUs, CPUs, memory of each
	}{
		"one":                      {Submission{GPUs: 8}, "1x1: 8, 0, 0", "1: 8, 0, 0"},
		"no GPU":                   {Submission{}, "1x1: 0, 0, 0", "1: 0, 0, 0"},
		"of the job":               {Submission{GPUs: 16, Nodes: 2}, "2x1: 8, 0, 0", "2: 8, 0, 0"},
		"of a node":                {Submission{GPUsPerNode: 8, Nodes: 2, Memory: GiB("64")}, "2x1: 8, 0, 64", "2: 8, 0, 64"},
		"of a task":                {Submission{GPUsPerTask: 1, Tasks: 4}, "4x1: 1, 0, 0", "4: 1, 0, 0"},
		"several tasks on a node":  {Submission{GPUsPerNode: 8, Nodes: 2, Tasks: 4, Memory: GiB("64")}, "2x2: 8, 0, 64", "4: 4, 0, 32"},
		"tasks per node":           {Submission{GPUsPerNode: 8, Nodes: 2, TasksPerNode: 8, CPUs: 4}, "2x8: 8, 32, 0", "16: 1, 4, 0"},
		"tasks on nodes by number": {Submission{GPUsPerTask: 2, Tasks: 8, TasksPerNode: 4}, "2x4: 8, 0, 0", "8: 2, 0, 0"},
		"fewer tasks than a node":  {Submission{Tasks: 2, TasksPerNode: 8}, "1x2: 0, 0, 0", "2: 0, 0, 0"},
		"tasks and GPUs of a node": {Submission{Tasks: 4, GPUsPerNode: 8}, "1x4: 8, 0, 0", "4: 2, 0, 0"},
		"GPUs by tasks":            {Submission{GPUs: 8, GPUsPerTask: 2}, "4x1: 2, 0, 0", "4: 2, 0, 0"},
		"tasks by GPUs":            {Submission{GPUsPerNode: 4, Nodes: 2, TasksPerGPU: 2}, "2x8: 4, 0, 0", ""},
		"tasks by GPUs of a node":  {Submission{GPUsPerNode: 8, GPUsPerTask: 2, Nodes: 2}, "2x4: 8, 0, 0", "8: 2, 0, 0"},
		"tasks by GPUs of the job": {Submission{GPUs: 4, TasksPerGPU: 1}, "1x4: 4, 0, 0", "4: 1, 0, 0"},
		"memory of a CPU":          {Submission{Nodes: 2, TasksPerNode: 2, CPUs: 4, MemPerCPU: GiB("2")}, "2x2: 0, 8, 16", "4: 0, 4, 8"},
		"memory of a GPU":          {Submission{GPUsPerNode: 8, MemPerGPU: GiB("10"), CPUsPerGPU: 6}, "1x1: 8, 48, 80", "1: 8, 48, 80"},
		"as the job says too":      {Submission{GPUsPerNode: 8, Nodes: 2, GPUs: 16}, "2x1: 8, 0, 0", "2: 8, 0, 0"},
		"nodes by name":            {Submission{NodeList: []string{"a", "b"}, GPUsPerNode: 1}, "2x1: 1, 0, 0", "2: 1, 0, 0"},
	} {
		for _, script := range []bool{true, false} {
			s, want := c.Submission, c.command
			if s.Image, s.Command = "i", []string{"x"}; script {
				s.Script, s.File, s.Command, want = "#!/bin/sh\n", "x", nil, c.script
			}
			o, err := s.Objects()
			if err != nil {
				if want != "" {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			main := &o.Jobs[0].Spec.Template.Spec.Containers[0]
			gpus, cpu, memory := main.Resources.Limits["nvidia.com/gpu"], main.Resources.Requests["cpu"], main.Resources.Requests["memory"]
			pods := int(*o.Jobs[0].Spec.Parallelism)
			got := fmt.Sprintf("%d: %d, %d, %d", pods, gpus.Value(), cpu.Value(), memory.Value()>>30)
			if per := variable(main, "SLURM_NTASKS_PER_NODE"); script {
				got = strings.Replace(got, ":", "x"+per+":", 1)
			}
			if got != want {
				t.Errorf("%s, script %t: got %s, want %s", name, script, got, want)
			}
			gang := o.Jobs[0].Spec.Scheduling != nil && int(*o.Jobs[0].Spec.Scheduling.SchedulingPolicy.Gang.MinCount) == pods &&
				o.Jobs[0].Spec.Template.Annotations["muster.sh/min-member"] != "" && o.Service != nil
			if gang != (pods > 1) || (o.Secret != nil) != script || (o.Jobs[0].Spec.SuccessPolicy != nil) != (script && pods > 1) {
				t.Errorf("%s: is it a gang, with a Service: %t; its Secret: %v", name, gang, o.Secret)
			}
		}
	}
}

// variable returns what a container has as a variable of its environment.
func variable(c *v1.Container, name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

func TestSubmissionsThatCannotBe(t *testing.T) {
	for want, s := range map[string]Submission{
		"--ntasks: expected a multiple of --nodes, 2; found 3":                              {Nodes: 2, Tasks: 3},
		"--ntasks: expected a multiple of --ntasks-per-node, 4; found 6":                    {TasksPerNode: 4, Tasks: 6},
		"--ntasks: expected at most 4, 2 for each of 2 nodes; found 8":                      {TasksPerNode: 2, Nodes: 2, Tasks: 8},
		"--gpus: expected 1 for the whole job, 1 for each node ":                            {GPUs: 2, GPUsPerNode: 1},
		"--gpus: expected a multiple of the number of nodes, 3, ":                           {GPUs: 8, Nodes: 3},
		"--gpus-per-task: expected at most 4 for each node, which has 2 tasks; found 4":     {GPUsPerTask: 4, GPUsPerNode: 4, TasksPerNode: 2},
		"--gpus-per-node: expected a multiple of the number of tasks per node, 3; found 8":  {GPUsPerNode: 8, Nodes: 1, Tasks: 3},
		"--gpu-fraction: expected a fraction of a GPU or whole GPUs; found both":            {GPUs: 1, Fraction: "0.5"},
		"--ntasks-per-gpu: expected --gpus or --gpus-per-node with it":                      {TasksPerGPU: 1},
		"--ntasks-per-gpu: expected it or --gpus-per-task; found both":                      {TasksPerGPU: 1, GPUsPerTask: 1},
		"--cpus-per-gpu: expected it or --cpus-per-task; found both":                        {GPUs: 1, CPUs: 1, CPUsPerGPU: 1},
		"--mem-per-cpu: expected one of --mem, --mem-per-cpu and --mem-per-gpu; found sev":  {Memory: resource.MustParse("1Gi"), MemPerCPU: resource.MustParse("1Gi")},
		"--nodelist: expected as many nodes as --nodes, 3; found 1: ":                       {Nodes: 3, NodeList: []string{"a"}},
		"--array: expected at most 1000 indices of jobs with several nodes, each of which":  {Array: Array{Indices: make([]int, 1001)}, Nodes: 2},
		"--job-name: expected at most 52 letters, with the index of the array; found":       {Array: Array{Indices: []int{10}}, Nodes: 2, Name: strings.Repeat("x", 50)},
		"--job-name: expected at most 52 letters, digits, dashes and underscores, ":         {Name: strings.Repeat("x", 53)},
		"--job-name: expected at most 52 letters, digits, dashes and underscores, a letter": {Name: "///"},
		"--env: expected NAME=VALUE; found \"X\"":                                           {Env: []string{"X"}},
		"--annotation: expected KEY=VALUE; found \"a b=c\"":                                 {Annotations: []string{"a b=c"}},
		"muster.sh/kind: \"trainig\": expected one of ":                                     {Kind: "trainig"},
		"muster.sh/gpu-fraction: \"2\": expected a fraction of a GPU":                       {Fraction: "2"},
	} {
		s.Image, s.Command = "i", []string{"x"}
		if _, err := s.Objects(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := (&Submission{Command: []string{"x"}}).Objects(); err == nil || err.Error() != "--image: expected a container image; found nothing" {
		t.Errorf("no image: got %v", err)
	}
	if _, err := (&Submission{Image: "i", Script: strings.Repeat("x", longestScript+1)}).Objects(); err == nil || !strings.HasPrefix(err.Error(), "expected a script of at most 900 KiB") {
		t.Errorf("a long script: got %v", err)
	}
}

// Names of Slurm that Kubernetes does not have are kept for the script; jobs that wait for those of their name have names
// of their own.
func TestNames(t *testing.T) {
	for called, want := range map[string]string{"train": "train", "My_Job": "my-job", "7b_sft.v2": "job-7b-sft-v2", "": "run-[a-z0-9]{5}"} {
		for _, singleton := range []bool{false, true} {
			s := Submission{Image: "i", Script: "echo\n", File: "dir/run.sh", Name: called}
			if singleton {
				s.Dependency.Terms = []after.Term{{Relation: "singleton"}}
			}
			o, err := s.Objects()
			if err != nil {
				t.Fatal(err)
			}
			id := o.Jobs[0].Labels["muster.sh/slurm-job-id"]
			match := want
			if singleton {
				match += "-" + id
			}
			name := o.Jobs[0].Name
			if called != "" {
				name = called
			}
			if !regexp.MustCompile("^"+match+"$").MatchString(o.Jobs[0].Name) || o.Jobs[0].Annotations["muster.sh/slurm-job-name"] != variable(&o.Jobs[0].Spec.Template.Spec.Containers[0], "SLURM_JOB_NAME") ||
				called != "" && o.Jobs[0].Annotations["muster.sh/slurm-job-name"] != name {
				t.Errorf("%q: the Job is %s, with %v", called, o.Jobs[0].Name, o.Jobs[0].Annotations)
			}
		}
	}
}

// A script is run by what it names, with its arguments, of which nothing is expanded before.
func TestScripts(t *testing.T) {
	for script, by := range map[string][]string{
		"#!/bin/bash -e\necho $$ $(date)\n": {"/bin/bash", "-e"}, "#!/usr/bin/env python3\nprint()\n": {"python3"}, "echo $1\n": {"/bin/sh"}, "#!/usr/bin/perl\n": {"/usr/bin/perl"},
		"#!\n": {"/bin/sh"}, "#!/usr/bin/env -S bash -x\n": {"bash", "-x"},
	} {
		s := Submission{Image: "i", Script: script, File: "a b/run.sh", Args: []string{"$(x)", "b"}}
		o, err := s.Objects()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := o.Jobs[0].Spec.Template.Spec.Containers[0].Command, slices.Concat([]string{"/bin/sh", "/muster/start"}, by, []string{"/muster/job/run.sh", "$$(x)", "b"}); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if o.Secret.StringData["script"] != script {
			t.Errorf("the script is %q", o.Secret.StringData["script"])
		}
	}
}

// Commands that do in a pod what they do with Slurm, and those that do not: with the line.
func TestCheckScript(t *testing.T) {
	for script, want := range map[string]string{
		"#!/bin/bash\nsrun -N 2 --ntasks-per-node=8 python train.py\n":         "",
		"srun -l -n$SLURM_NTASKS $OPTS torchrun --nproc 8 train.py --mpi=pmix": "",
		"ip=$(srun -N1 -n1 -w \"$head\" hostname --ip-address)\n":              "",
		"nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )":           "",
		"#!/usr/bin/env python3\nsrun --mpi=pmix\n":                            "",
		"echo a\nexec srun \\\n  --mpi=pmix ./app":                             "line 2: srun: --mpi=pmix: there is no PMI between pods",
		"x=1\n\nsrun --container-mounts=/a:/b x":                               "line 3: srun: --container-mounts: volumes are mounted by the Job",
		"if true; then srun --frobnicate x; fi":                                "line 1: srun: option --frobnicate is not known here",
		"srun -lZ x":                                                           "line 1: srun: option -lZ is not known here",
		"echo\njid=$(sbatch --parsable next.sh)":                               "line 2: sbatch: a job cannot submit jobs",
		"scancel $SLURM_JOB_ID":                                                "line 1: scancel: a script cannot cancel jobs",
		"scontrol requeue $SLURM_JOB_ID":                                       "line 1: scontrol requeue: in the pods there is scontrol show hostnames alone",
	} {
		err := CheckScript(script)
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", script, err, want)
		}
	}
}
