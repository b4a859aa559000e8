package workload

import (
	"reflect"
	"testing"

	"github.com/muster-sched/muster/core"
)

var combinedHeader = jobsHeader[:len(jobsHeader)-1] + ",combinations\n"

func combinedRow(task, combinations string) string {
	row := jobRow("task", task, "gpu_models", "")
	return row[:len(row)-1] + "," + combinations + "\n"
}

// combined returns a workload of a job with two tasks that lists combinations of models.
func combined(list string) string {
	return combinedHeader + combinedRow("v", list) + combinedRow("w", list)
}

// TestCombinations reads a job that lists combinations of GPU models, and reads what is written of it.
func TestCombinations(t *testing.T) {
	jobs, err := collect(combined("w:L40S+v:A100=2.3/1.9@3.5|A100+A100=2"), Options{})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	j := &jobs[0]
	gpus := int64(j.GPUs())
	want := []core.Combination{{Models: []string{"A100", "L40S"}, Rates: []int64{2300, 1900}, Price: 3500}, {Models: []string{"A100", "A100"}, Rates: []int64{2000}, Price: gpus}}
	if !reflect.DeepEqual(j.Combinations, want) {
		t.Errorf("got %v, want %v", j.Combinations, want)
	}
	back, err := collect(write(t, jobs), Options{})
	if err != nil || !reflect.DeepEqual(back, jobs) {
		t.Errorf("%v: written and read again: %+v, want %+v", err, back, jobs)
	}
}
