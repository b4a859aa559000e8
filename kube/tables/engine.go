package tables

import "github.com/muster-sched/muster/core"

// Engine returns the configuration of an engine for Kubernetes: it suspends no job, whatever the policy says, as nothing there could
// pause the job's processes.
func Engine(c core.Config) core.Config {
	c.Policy.Preempt.MaxSuspended = 0
	return c
}
