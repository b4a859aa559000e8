package worker

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/disagg"
	"github.com/muster-sched/muster/disagg/analyze"
)

// Placements returns the GPU of each step under a plan, for one request after the other: replicas take turns. An error
// says which field of the plan does not fit the trace.
func Placements(a *disagg.Answer, r *analyze.Replay) (all [][]int, err error) {
	if len(a.GPUs) > MostGPUs {
		return nil, fmt.Errorf("gpus: expected 1 to %d; found %d", MostGPUs, len(a.GPUs))
	}
	gpus := map[string]int{}
	for i, g := range a.GPUs {
		gpus[g.Name] = i
		if len(a.Kernels) == 0 && g.Kernels > 0 {
			all = append(all, alone(i, len(r.Steps)))
		}
	}
	if len(a.Kernels) == 0 {
		if len(all) == 0 {
			return nil, fmt.Errorf("kernels: expected the GPU of each kernel, or GPUs that are replicas; found none")
		}
		return all, nil
	}
	at := map[string]int{}
	for i, k := range a.Kernels {
		if _, twice := at[k.Name]; twice || !slices.ContainsFunc(r.Steps, func(s analyze.Step) bool { return s.Name == k.Name }) {
			return nil, fmt.Errorf("kernels[%d].name: expected each node of the trace once; found %q", i, k.Name)
		}
		g, ok := gpus[k.GPU]
		if !ok {
			return nil, fmt.Errorf("kernels[%d].gpu: expected one of the plan's GPUs; found %q", i, k.GPU)
		}
		at[k.Name] = g
	}
	one := make([]int, len(r.Steps))
	for i, s := range r.Steps {
		g, ok := at[s.Name]
		if !ok {
			return nil, fmt.Errorf("kernels: expected all nodes of the trace; found none for %s", s.Name)
		}
		one[i] = g
	}
	return [][]int{one}, nil
}

// alone is all steps on one GPU.
func alone(gpu, steps int) []int {
	all := make([]int, steps)
	for i := range all {
		all[i] = gpu
	}
	return all
}
