package workload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
)

var elasticFiles = map[string]string{
	"profile_placements.csv": "app,gpu_type,placement,local_bsz,step_time,sync_time\n" +
		"net,fast,1,8,0.5,0.01\nnet,fast,1,4,0.25,0.01\nnet,fast,22,4,0.5,0.2\nnet,fast,12,4,0.9,0.2\n",
	"profile_scalability.csv": "app,gpu_type,num_nodes,num_replicas,local_bsz,step_time,sync_time\n" +
		"net,fast,2,4,4,9,1\nnet,fast,3,6,4.0,0.75,0.25\nnet,fast,2,3,4,9,1\n",
	"profile_validation.csv": "app,batch_size,progress,iteration,metric,grad_sqr,grad_var\n" +
		"net,8,10,10,0,1,2\nnet,4,11,11,0,0.0,4e3\nnet,8,20,20,0,3,4\nnet,4,21.5,21,0,5,6\n",
	"jobs.csv": "workload,name,time,application,num_replicas,batch_size\n" +
		"2,b,7,net,1,8\n1,late,9,net,1,4\n1,early,0.5,net,2,8\n",
}

// elasticFolder writes the files, one of them changed.
func elasticFolder(t *testing.T, file, old, now string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range elasticFiles {
		if name == file {
			text = strings.Replace(text, old, now, 1)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Step times are in the order of batch sizes; those of the first file come first, and places with unequal nodes are left out.
func TestElastic(t *testing.T) {
	dir := elasticFolder(t, "", "", "")
	e, err := OpenElastic(dir)
	if err != nil {
		t.Fatal(err)
	}
	a := e.App("net")
	if a == nil || e.App("other") != nil || len(a.Steps) != 3 || len(a.Runs) != 2 {
		t.Fatalf("read %+v", e)
	}
	for _, c := range []struct {
		place ElasticPlace
		want  []StepTime
	}{
		{ElasticPlace{"fast", 1, 1}, []StepTime{{4, 0.25, 0.01}, {8, 0.5, 0.01}}},
		{ElasticPlace{"fast", 2, 4}, []StepTime{{4, 0.5, 0.2}}},
		{ElasticPlace{"fast", 3, 6}, []StepTime{{4, 0.75, 0.25}}},
	} {
		got := a.Steps[c.place]
		if len(got) != len(c.want) {
			t.Errorf("%v: %v, want %v", c.place, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%v: %v, want %v", c.place, got, c.want)
			}
		}
	}
	if r := a.Runs[0]; r.Batch != 4 || r.Epochs[0] != (ElasticEpoch{11, 0, 4000}) || r.Epochs[1] != (ElasticEpoch{21.5, 5, 6}) {
		t.Errorf("the first training is %+v", r)
	}
	file := filepath.Join(dir, "jobs.csv")
	if n, err := Samples(file); n != 2 || err != nil {
		t.Errorf("%d samples, %v; want 2", n, err)
	}
	for sample, want := range map[int]string{0: "early 0.5s of 2 GPUs, batch 8; late 9s of 1 GPUs, batch 4; ", 2: "b 7s of 1 GPUs, batch 8; "} {
		jobs, _, err := OpenJobs(file, Options{Sample: sample})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for j, err := range jobs {
			if err != nil {
				t.Fatal(err)
			}
			got += fmt.Sprintf("%s %vs of %d GPUs, batch %d; ", j.Name, j.Submitted.Seconds(), j.GPUs()/core.WholeGPU, j.Training.Batch)
		}
		if got != want {
			t.Errorf("sample %d: %s, want %s", sample, got, want)
		}
	}
}

func TestBadElastic(t *testing.T) {
	for _, c := range []struct {
		file, old, now, want string
		sample               int
	}{
		{"profile_placements.csv", "placement", "place", "profile_placements.csv:1: placement: a column", 0},
		{"profile_placements.csv", "22", "2x", "profile_placements.csv:4: placement: a digit 1..9", 0},
		{"profile_placements.csv", "0.25", "0", "profile_placements.csv:3: step_time: a number above 0", 0},
		{"profile_placements.csv", "0.25", "NaN", "profile_placements.csv:3: step_time: a number of at least 0", 0},
		{"profile_scalability.csv", "3,6", "0,6", "profile_scalability.csv:3: num_nodes: a whole number", 0},
		{"profile_validation.csv", "4e3", "-1", "profile_validation.csv:3: grad_var: a number of at least 0", 0},
		{"profile_validation.csv", "net,4,21.5,21,0,5,6\n", "", "profile_validation.csv: as many epochs", 0},
		{"profile_validation.csv", "21.5", "11", "profile_validation.csv: progress that grows", 0},
		{"profile_scalability.csv", "net,fast,3", "web,fast,3", "profile_validation.csv: trainings of each application", 0},
		{"jobs.csv", "2,b,7", "1,b,soon", "jobs.csv:2: time: seconds", 0},
		{"jobs.csv", "9,net", "9,web", "jobs.csv:3: application: an application that was measured", 0},
		{"jobs.csv", "2,b,7", "2,b,7", "jobs.csv: workload: jobs of sample 3, found none", 3},
	} {
		dir := elasticFolder(t, c.file, c.old, c.now)
		_, err := OpenElastic(dir)
		if c.file == "jobs.csv" {
			err = errors.Join(err, readAll(filepath.Join(dir, c.file), c.sample))
		}
		if !IsBadInput(err) || !strings.Contains(strings.ReplaceAll(err.Error(), ": expected", ":"), c.want) {
			t.Errorf("%s with %q: %v, want %q", c.file, c.now, err, c.want)
		}
	}
}

// readAll reads all jobs of a sample.
func readAll(path string, sample int) error {
	jobs, _, err := OpenJobs(path, Options{Sample: sample})
	if err != nil {
		return err
	}
	for _, err := range jobs {
		if err != nil {
			return err
		}
	}
	return nil
}
