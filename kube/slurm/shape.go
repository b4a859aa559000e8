package slurm

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// shape is how many pods a job has, and what each gets.
type shape struct {
	pods int
	// tasks are those of a pod: 1 where the pods run a command.
	tasks, gpus, cpus int
	memory            *resource.Quantity
}

// shape says how many pods there are, and what each gets.
func (s *Submission) shape() (shape, error) {
	var out shape
	nodes, tasks, per, err := s.layout()
	switch {
	case err != nil:
		return out, err
	case s.Fraction != "" && max(s.GPUs, s.GPUsPerNode, s.GPUsPerTask) > 0:
		return out, &UsageError{"gpu-fraction", "expected a fraction of a GPU or whole GPUs; found both"}
	case s.GPUs%nodes != 0:
		return out, &UsageError{"gpus", fmt.Sprintf("expected a multiple of the number of nodes, %d, for the whole job (--gpus-per-node is per node); found %d", nodes, s.GPUs)}
	}
	gpus := cmp.Or(s.GPUsPerNode, s.GPUsPerTask*per, s.GPUs/nodes)
	switch {
	case s.GPUs > 0 && gpus*nodes != s.GPUs:
		return out, &UsageError{"gpus", fmt.Sprintf("expected %d for the whole job, %d for each node (--gpus-per-node is per node); found %d", gpus*nodes, gpus, s.GPUs)}
	case s.GPUsPerTask*per > gpus:
		return out, &UsageError{"gpus-per-task", fmt.Sprintf("expected at most %d for each node, which has %d tasks; found %d", gpus, per, s.GPUsPerTask)}
	}
	cpus := s.CPUs * per
	if s.CPUsPerGPU > 0 {
		if s.CPUs > 0 {
			return out, &UsageError{"cpus-per-gpu", "expected it or --cpus-per-task; found both"}
		}
		cpus = s.CPUsPerGPU * gpus
	}
	memory := s.Memory.Value()
	for _, each := range []struct {
		option string
		amount resource.Quantity
		times  int
	}{{"mem-per-cpu", s.MemPerCPU, max(cpus, per)}, {"mem-per-gpu", s.MemPerGPU, gpus}} {
		if each.amount.IsZero() {
			continue
		}
		if memory > 0 {
			return out, &UsageError{each.option, "expected one of --mem, --mem-per-cpu and --mem-per-gpu; found several"}
		}
		memory = each.amount.Value() * int64(each.times)
	}
	out = shape{pods: nodes, tasks: per, gpus: gpus, cpus: cpus}
	if s.Script == "" { // each task is a pod, with its part of a node
		if gpus%per != 0 {
			return out, &UsageError{"gpus-per-node", fmt.Sprintf("expected a multiple of the number of tasks per node, %d; found %d", per, gpus)}
		}
		out = shape{pods: tasks, tasks: 1, gpus: gpus / per, cpus: cpus / per}
		memory /= int64(per)
	}
	if memory > 0 {
		out.memory = resource.NewQuantity(memory, resource.BinarySI)
	}
	return out, nil
}

// layout says how many nodes and tasks there are, and how many tasks on each node. Tasks without a number of nodes are on
// one, if anything is asked for a node; else each is on a node of its own, wherever the scheduler finds room.
func (s *Submission) layout() (nodes, tasks, per int, err error) {
	nodes, tasks, per = s.Nodes, s.Tasks, s.TasksPerNode
	if n := len(s.NodeList); n > 0 {
		if nodes = cmp.Or(nodes, n); nodes != n {
			return 0, 0, 0, &UsageError{"nodelist", fmt.Sprintf("expected as many nodes as --nodes, %d; found %d: --constraint and --required-topology describe nodes", nodes, n)}
		}
	}
	ofNode := s.GPUsPerNode > 0 || !s.Memory.IsZero()
	switch {
	case s.TasksPerGPU > 0 && s.GPUsPerTask > 0:
		return 0, 0, 0, &UsageError{"ntasks-per-gpu", "expected it or --gpus-per-task; found both"}
	case s.TasksPerGPU > 0 && per > 0:
		return 0, 0, 0, &UsageError{"ntasks-per-gpu", "expected it or --ntasks-per-node; found both"}
	case s.TasksPerGPU > 0 && s.GPUsPerNode > 0:
		per = s.GPUsPerNode * s.TasksPerGPU
	case s.TasksPerGPU > 0 && s.GPUs > 0:
		tasks = cmp.Or(tasks, s.GPUs*s.TasksPerGPU)
		if tasks != s.GPUs*s.TasksPerGPU {
			return 0, 0, 0, &UsageError{"ntasks-per-gpu", fmt.Sprintf("expected %d tasks on %d GPUs; found --ntasks %d", s.GPUs*s.TasksPerGPU, s.GPUs, tasks)}
		}
		ofNode = true
	case s.TasksPerGPU > 0:
		return 0, 0, 0, &UsageError{"ntasks-per-gpu", "expected --gpus or --gpus-per-node with it"}
	case s.GPUsPerTask > 0 && s.GPUsPerNode > 0 && per == 0 && tasks == 0:
		per = s.GPUsPerNode / s.GPUsPerTask
	case s.GPUsPerTask > 0 && s.GPUs > 0 && per == 0 && tasks == 0:
		tasks = s.GPUs / s.GPUsPerTask
	}
	if per > 0 && tasks > 0 && tasks <= per && nodes == 0 {
		per, nodes = tasks, 1
	}
	switch {
	case tasks == 0:
		nodes, per = max(nodes, 1), max(per, 1)
		tasks = nodes * per
	case nodes == 0 && per > 0:
		if nodes = tasks / per; tasks%per != 0 {
			return 0, 0, 0, &UsageError{"ntasks", fmt.Sprintf("expected a multiple of --ntasks-per-node, %d; found %d", per, tasks)}
		}
	case nodes == 0 && ofNode:
		nodes, per = 1, tasks
	case nodes == 0:
		nodes, per = tasks, 1
	default:
		if tasks%nodes != 0 {
			return 0, 0, 0, &UsageError{"ntasks", fmt.Sprintf("expected a multiple of --nodes, %d; found %d", nodes, tasks)}
		}
		if per > 0 && tasks/nodes > per {
			return 0, 0, 0, &UsageError{"ntasks", fmt.Sprintf("expected at most %d, %d for each of %d nodes; found %d", nodes*per, per, nodes, tasks)}
		}
		per = tasks / nodes
	}
	return nodes, tasks, per, nil
}
