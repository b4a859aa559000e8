package tables

import "github.com/muster-sched/muster/core"

// Engine returns the configuration of an engine for Kubernetes. Unless agents pause processes there, it suspends no job, whatever the
// policy says.
func Engine(c core.Config, pauses bool) core.Config {
	if !pauses {
		c.Policy.Preempt.MaxSuspended = 0
	}
	return c
}
