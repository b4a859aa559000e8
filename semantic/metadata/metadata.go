// Package metadata says what a training job is: its model, its data, for how long it trains and on what. It is the form in
// which a reader of code, with or without a language model, hands over what it found, and by which jobs are compared
// (SchedMate, §3.1 and figure 6).
package metadata

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Job is what is known of a job. An empty field is not known.
type Job struct {
	Model    Model    `json:"model_config"`
	Training Training `json:"training_config"`
	Dataset  Dataset  `json:"dataset_config"`

	// Sources says where a field was found, as file:line relative to the job's folder, as "command", or as "launch" for what
	// else started the job: by the field's name in JSON.
	Sources map[string]string `json:"sources,omitempty"`
}

// Model is what is trained.
type Model struct {
	Name string `json:"model_name,omitempty"`
	Task Task   `json:"task_type,omitempty"`
	// Parameters has what else is known of the model, such as d_model or n_layer, by the name that the code uses.
	Parameters map[string]string `json:"parameters,omitempty"`
}

// Task is the kind of problem that a model solves.
type Task string

// Tasks.
const (
	NLP            Task = "NLP" // text
	Vision         Task = "CV"
	Speech         Task = "Speech"         // speech and audio
	Multimodal     Task = "Multimodal"     // text with pictures, video or sound
	Recommendation Task = "Recommendation" // recommendation and click prediction
	Reinforcement  Task = "RL"
	Graph          Task = "Graph"
	Science        Task = "Science" // molecules, weather, physics
)

// Tasks has every task, in the order above.
var Tasks = []Task{NLP, Vision, Speech, Multimodal, Recommendation, Reinforcement, Graph, Science}

// Training is how the model is trained.
type Training struct {
	Iterations int64   `json:"iters,omitempty"`     // how many units of Unit the job trains
	Unit       Unit    `json:"iter_type,omitempty"` // what Iterations counts
	BatchSize  int64   `json:"batch_size,omitempty"`
	Optimizer  string  `json:"optimizer,omitempty"`
	LearnRate  float64 `json:"lr,omitempty"`
	Precision  string  `json:"precision,omitempty"` // such as bf16
	GPUs       int     `json:"gpus,omitempty"`      // of all nodes together
	Nodes      int     `json:"nodes,omitempty"`
	Framework  string  `json:"framework,omitempty"` // what the code trains with, such as PyTorch or DeepSpeed
}

// Unit is what a number of iterations counts.
type Unit string

// Units.
const (
	Step   Unit = "step" // updates of the optimizer
	Epoch  Unit = "epoch"
	Token  Unit = "token"
	Sample Unit = "sample"
)

// Units has every unit, in the order above.
var Units = []Unit{Step, Epoch, Token, Sample}

// Dataset is what the model is trained on.
type Dataset struct {
	Train string `json:"train,omitempty"`
	Valid string `json:"valid,omitempty"` // what it is validated with, if that is named
}

// Missing returns the names of the mandatory fields of figure 6 that are not known, as in JSON. Valid is not one of them,
// as many jobs validate nothing.
func (j *Job) Missing() []string {
	var missing []string
	for _, f := range []struct {
		name  string
		known bool
	}{
		{"model_name", j.Model.Name != ""},
		{"task_type", j.Model.Task != ""},
		{"iters", j.Training.Iterations > 0},
		{"iter_type", j.Training.Unit != ""},
		{"train", j.Dataset.Train != ""},
	} {
		if !f.known {
			missing = append(missing, f.name)
		}
	}
	return missing
}

// Check returns what is wrong with j: a value out of its range, or a word that is none of the words of its field.
func (j *Job) Check() error {
	t := &j.Training
	switch {
	case j.Model.Task != "" && !slices.Contains(Tasks, j.Model.Task):
		return fmt.Errorf("task_type: %q is none of %v", j.Model.Task, Tasks)
	case t.Unit != "" && !slices.Contains(Units, t.Unit):
		return fmt.Errorf("iter_type: %q is none of %v", t.Unit, Units)
	case t.Iterations < 0:
		return fmt.Errorf("iters: %d is negative", t.Iterations)
	case t.BatchSize < 0:
		return fmt.Errorf("batch_size: %d is negative", t.BatchSize)
	case t.GPUs < 0 || t.Nodes < 0:
		return fmt.Errorf("gpus, nodes: %d and %d: a number of GPUs or nodes is at least 0", t.GPUs, t.Nodes)
	case !(t.LearnRate >= 0 && t.LearnRate < 1e6): // NaN, too
		return fmt.Errorf("lr: %g is no learning rate", t.LearnRate)
	}
	return nil
}

// Fields returns what is known as name=value, in the order of figure 6, parameters last and by name: the text by which
// jobs are compared.
func (j *Job) Fields() []string {
	var fields []string
	add := func(name string, value any) {
		text := strings.TrimSpace(fmt.Sprint(value))
		if text != "" && text != "0" {
			fields = append(fields, name+"="+text)
		}
	}
	t := &j.Training
	add("model_name", j.Model.Name)
	add("task_type", j.Model.Task)
	add("iters", t.Iterations)
	add("iter_type", t.Unit)
	add("batch_size", t.BatchSize)
	add("optimizer", t.Optimizer)
	add("lr", t.LearnRate)
	add("precision", t.Precision)
	add("gpus", t.GPUs)
	add("nodes", t.Nodes)
	add("framework", t.Framework)
	add("train", j.Dataset.Train)
	add("valid", j.Dataset.Valid)
	for _, name := range slices.Sorted(maps.Keys(j.Model.Parameters)) {
		add(name, j.Model.Parameters[name])
	}
	return fields
}
