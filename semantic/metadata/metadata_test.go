package metadata

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// The sample of figure 6.
func sample() Job {
	return Job{
		Model: Model{
			Name: "GPT", Task: NLP,
			Parameters: map[string]string{"n_layer": "12", "d_model": "768"},
		},
		Training: Training{Iterations: 80000, Unit: Step, BatchSize: 256, LearnRate: 0.001, GPUs: 8, Nodes: 1},
		Dataset:  Dataset{Train: "pile", Valid: "pile-val"},
	}
}

func TestFields(t *testing.T) {
	job := sample()
	want := "model_name=GPT task_type=NLP iters=80000 iter_type=step batch_size=256 lr=0.001 gpus=8 nodes=1 " +
		"train=pile valid=pile-val d_model=768 n_layer=12"
	if got := strings.Join(job.Fields(), " "); got != want {
		t.Errorf("fields:\n%s\nwant\n%s", got, want)
	}
	if missing := job.Missing(); missing != nil {
		t.Errorf("missing: %v, want none", missing)
	}
	var unknown Job
	if got := unknown.Fields(); got != nil {
		t.Errorf("an unknown job has the fields %v", got)
	}
	if want := []string{"model_name", "task_type", "iters", "iter_type", "train"}; !slices.Equal(unknown.Missing(), want) {
		t.Errorf("missing: %v, want %v", unknown.Missing(), want)
	}
}

func TestCheck(t *testing.T) {
	job := sample()
	if err := job.Check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Job){
		"task_type":   func(j *Job) { j.Model.Task = "poetry" },
		"iter_type":   func(j *Job) { j.Training.Unit = "hour" },
		"iters":       func(j *Job) { j.Training.Iterations = -1 },
		"batch_size":  func(j *Job) { j.Training.BatchSize = -1 },
		"gpus, nodes": func(j *Job) { j.Training.Nodes = -1 },
		"lr":          func(j *Job) { j.Training.LearnRate = math.NaN() },
	} {
		job := sample()
		change(&job)
		if err := job.Check(); err == nil || !strings.HasPrefix(err.Error(), want+":") {
			t.Errorf("error %v, want one of %s", err, want)
		}
	}
}
