package snapshot

import (
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
)

// Idle returns the nodes with what pods leave idle of them that run, or are being deleted.
func Idle(s Snapshot) []frag.Node {
	byName := map[string]int{}
	var all []frag.Node
	for i := range s.Nodes {
		byName[s.Nodes[i].Name] = i
		all = append(all, frag.Empty(&s.Nodes[i]))
	}
	jobs := slices.Concat(s.Jobs, s.Leaving)
	for i := range jobs {
		j := &jobs[i]
		for _, p := range j.Running {
			pod, t := p.Pod, 0
			for ; pod >= j.Tasks[t].Pods; t++ {
				pod -= j.Tasks[t].Pods
			}
			r := &j.Tasks[t].Request
			gpus := uint64(0)
			for _, d := range p.GPUs {
				gpus |= 1 << d
			}
			n := &all[byName[p.Node]]
			n.Take(gpus, min(r.GPU, core.WholeGPU), r.CPUMilli, r.MemMiB, 1)
			n.TakeOthers(r.Others)
		}
	}
	return all
}
