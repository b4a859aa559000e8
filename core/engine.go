// Package core decides which job runs on which GPUs, and nothing else.
package core

// Engine is the scheduler's state and its rules. It starts empty and learns
// from events alone; the same events give the same decisions. One goroutine
// owns an engine.
type Engine struct{}

// Config is what an engine is told once, at its creation.
type Config struct {
	Policy Policy
	// Levels names the topology levels, widest first; the last is the leaf
	// group.
	Levels []string
}

// New returns an engine that knows no nodes, queues or jobs.
func New(c Config) (*Engine, error) { panic("being written") }

// Apply takes in ev, which happened at now. now never goes back. On an error,
// which says what in the event is wrong, the engine is unchanged.
func (e *Engine) Apply(now Time, ev Event) error { panic("being written") }

// Decide makes a scheduling pass and returns what is to be done, in order. The
// slice and what it points to are valid until the next call.
func (e *Engine) Decide(now Time) []Decision { panic("being written") }

// Explanation says where a job stands.
type Explanation struct {
	// State is "waiting", "running" (at least one pod, or the whole gang, is
	// bound) or "nominated" (evictions for it are under way).
	State string
	// Reason and Detail say why it waits; meaningless when State is "running"
	// and no pod waits.
	Reason Reason
	Detail string
	// Waiting and Running count pods.
	Waiting, Running int
	// Ahead counts the waiting jobs before it in the global order.
	Ahead int
}

// Explain says where the job stands, and false when there is no such live job.
func (e *Engine) Explain(job string) (Explanation, bool) { panic("being written") }
