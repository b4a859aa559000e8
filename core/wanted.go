package core

// wanted is how much each GPU model is wanted: what runs on it, and what waits for it and can use no
// other. Only the order [LeastWanted] needs it.
//
// Invariant: by has the GPUs of the pods that have not ended of tasks that name one model, and of the
// running pods of other tasks, by the model on which they run. gpus has the GPUs of the nodes that
// are up, broken ones included. Nodes do not change their GPUs.
type wanted struct {
	on   bool
	by   map[string]*[LP + 1]Milli // by model, then by class
	gpus map[string]int
}

func newWanted(o ModelOrder) wanted {
	return wanted{on: o == LeastWanted, by: map[string]*[LP + 1]Milli{}, gpus: map[string]int{}}
}

// requested counts pods of a task that come (n is positive) or end: see [Engine.requested].
func (w *wanted) requested(j *job, task, n int) {
	if t := &j.Tasks[task]; w.on && len(t.Models) == 1 {
		w.add(t.Models[0], j.Class, Milli(n)*t.GPU)
	}
}

// runs counts a pod that starts (by 1) or stops (by -1) on a node of a model.
func (w *wanted) runs(j *job, p *pod, model string, by int) {
	if t := &j.Tasks[p.task]; len(t.Models) != 1 {
		w.add(model, j.Class, Milli(by)*t.GPU)
	}
}

func (w *wanted) add(model string, c Class, gpu Milli) {
	if gpu == 0 {
		return
	}
	if w.by[model] == nil {
		w.by[model] = new([LP + 1]Milli)
	}
	w.by[model][c] += gpu
}

// node counts a node that comes (by 1) or is lost (by -1).
func (w *wanted) node(n *Node, by int) {
	if w.on && n.GPUs > 0 {
		w.gpus[n.Model] += by * n.GPUs
	}
}

// share returns how much a model is wanted, as a share of its GPUs, in thousandths, at most 1000. For
// an HP job only HP jobs count: it comes before LP jobs.
func (w *wanted) share(model string, lp bool) int64 {
	by, gpus := w.by[model], w.gpus[model]
	if by == nil || gpus == 0 {
		return 0
	}
	sum := by[HP]
	if lp {
		sum += by[LP]
	}
	return min(int64(sum)/int64(gpus), 1000)
}
