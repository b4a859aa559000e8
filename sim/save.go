package sim

import "github.com/muster-sched/muster/core"

// asksToSave reports whether a job is asked to save its progress before it is evicted, as on Kubernetes: not if that takes longer than the policy
// gives evicted pods, nor a gang that can lose some of its pods, which are not asked then.
func (r *run) asksToSave(j *core.Job) bool {
	if grace := r.Policy.Preempt.EvictGrace; grace > 0 && j.SaveWithin > grace {
		return false
	}
	for t := range j.Tasks {
		if j.Gang && j.Tasks[t].Minimum() < j.Tasks[t].Pods {
			return false
		}
	}
	return true
}

// saveTime is how long pods that are evicted for a reason save their progress before they leave. Those of a gang that broke stand still already.
func (r *run) saveTime(s *state, why core.Reason) core.Time {
	if why == core.MemberLost || why == core.StaleGang {
		return 0
	}
	return s.SaveWithin
}
