package tables

import (
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// combine adds the combinations of GPU models that a job's attributes list. Roles that name no model are on those.
func combine(a *translate.Attributes, job *core.Job) error {
	cs, err := core.ParseCombinations(strings.Split(a.Combinations, "|"), job.Tasks)
	if err != nil {
		return err
	}
	job.Combinations = cs
	for t := range job.Tasks {
		if len(job.Tasks[t].Models) == 0 {
			job.Tasks[t].Models = core.CombinedModels(cs, t)
		}
	}
	return nil
}

// wrongCombinations says what is wrong with the combinations of GPU models that a gang lists, "" if nothing is.
func (t *Tables) wrongCombinations(g *Group, a *translate.Attributes) string {
	if a.Combinations == "" {
		return ""
	}
	trial, job := *g, core.Job{Name: g.Job, Gang: g.Gang()}
	trial.Tasks = nil
	job.Topology.Closeness = a.Closeness
	t.Roles(&trial, InOrder(g.Pods, (*Pod).Ready), &Kept{}, &job)
	if err := combine(a, &job); err != nil {
		return "muster.sh/gpu-combinations: expected " + err.Error()
	}
	if err := core.CheckJob(&job); err != nil {
		return err.Error()
	}
	return ""
}
