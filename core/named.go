package core

// named counts the pods that have not ended by which labels and device sets of nodes they name. What no pod names may change on
// a node, and nothing follows from that: see [Engine.changeNode].
type named map[string]int

// count counts pods of a task that come, or, with a negative number, that end.
func (n named) count(t *Task, pods int) {
	add := func(name string) {
		if n[name] += pods; n[name] == 0 {
			delete(n, name)
		}
	}
	for i := range t.Selector {
		add(t.Selector[i].Key)
	}
	for _, selector := range t.AnyOf {
		for i := range selector {
			add(selector[i].Key)
		}
	}
	for _, a := range t.From {
		add(a.Name)
	}
	for i := range t.Prefers {
		for k := range t.Prefers[i].Selector {
			add(t.Prefers[i].Selector[k].Key)
		}
	}
}

// names reports whether a task names any labels or device sets of nodes.
func names(t *Task) bool {
	return len(t.Selector)+len(t.AnyOf)+len(t.From)+len(t.Prefers) > 0
}
