// Package monitor decides when to change between a policy for latency and one for throughput, as
// requests arrive faster or slower (Tessera, arXiv:2604.10180, §III-D). It is a state machine that
// computes and does nothing else: its input is what each window measured.
//
// The measure is L_req / L_exec: the time that requests spent in the system, over the time that they
// executed. It is 1 if none waits. The paper takes the means over the requests that end in a window;
// in 300 ms few end, so here both sums are over the window: all time that any request was present,
// and all that was executed.
//
// The paper switches at one threshold. Here the way back is another: the policy is Latency again when no
// more than one request has been present for a time, not when requests that overlap do not wait; under
// Latency all but one of them would. And switches come out of a budget, so that no arrivals can make the
// switches themselves the load.
package monitor

import "fmt"

// Time is nanoseconds.
type Time int64

// Policy is what the monitor chooses.
type Policy int

// The policies. A monitor starts with Latency, under which one request runs at a time.
const (
	Latency Policy = iota
	Throughput
)

// Config are the parameters.
type Config struct {
	Window Time // W
	// Beta is the ratio below which a window is calm.
	Beta float64
	// Calm is for how long windows have to be calm, one after the other, before the policy is Latency again, and in the
	// last of them no more than one request may be present on average. 0 is one calm window with any number of
	// requests, as in the paper.
	Calm Time
	// Every is how often a switch is allowed, and Burst, at least 2, how many at once after a time without. Every of
	// 0 is no limit, as in the paper.
	Every Time
	Burst int
	// Stall is how long the workers take to agree on a switch.
	Stall Time
	// Barrier is the paper's switch: all requests end their iterations, stop for Stall, and go on under the other
	// policy. Otherwise each goes on under the old one for Stall, and changes when it next starts an iteration; how many
	// requests may run, and what one begins under, changes at once.
	Barrier bool
}

// Default reacts fast: a request waits for hundreds of milliseconds if another is served first, and a switch stalls for some
// 35 with the iterations that it ends. Windows of 2 ms see a crowd at once, and without Calm they would see calm as soon: that is
// worse than windows of 10 ms without. It can be long, as a lone request runs by the same plan under either policy if requests run
// apart. The paper has a window of 300 ms, a beta of 1.5, and no hysteresis.
var Default = Config{Window: 2e6, Beta: 1.1, Calm: 1e9, Every: 1e9, Burst: 8, Stall: 30e6}

// Check reports the first field that is out of its range.
func (c *Config) Check() error {
	switch {
	case c.Window <= 0:
		return fmt.Errorf("window: expected more than 0; found %d ns", c.Window)
	case !(c.Beta >= 1 && c.Beta <= 1e6):
		return fmt.Errorf("beta: expected at least 1; found %g", c.Beta)
	case c.Calm < 0 || c.Every < 0 || c.Stall < 0:
		return fmt.Errorf("calm, every and stall: expected at least 0; found %d, %d and %d ns", c.Calm, c.Every, c.Stall)
	case c.Every > 0 && !(c.Burst >= 2 && c.Burst <= 1000):
		return fmt.Errorf("burst: expected 2, a switch and the one back, to 1000; found %d", c.Burst)
	case c.Every > 1e15:
		return fmt.Errorf("every: expected at most 10 days; found %d ns", c.Every)
	}
	return nil
}

// MostSwitches is the largest number of switches in any time of this length.
func (c *Config) MostSwitches(span Time) int {
	if c.Every == 0 {
		return 1 + int(span/c.Window)
	}
	return c.Burst + int(span/c.Every)
}

// MostStalled bounds the harm of switching: in any time of this length all switches together
// keep requests from starting iterations for no longer. iteration is the longest that an iteration
// takes. With a barrier the share of the time approaches (Stall + iteration) / Every; without one it is 0.
func (c *Config) MostStalled(span, iteration Time) Time {
	if !c.Barrier {
		return 0
	}
	return Time(c.MostSwitches(span)) * (c.Stall + iteration)
}

// Window is what was measured in a window: the time that requests were present and the time that
// they executed, each summed over requests.
type Window struct{ Present, Executed Time }

// Monitor is the state.
type Monitor struct {
	config Config
	policy Policy
	calm   Time // how long windows have been calm
	// budget is what is left for switches, each of which takes Every of it. Under Latency there is always enough
	// for one: a monitor that cannot go to Throughput would let requests queue.
	budget Time
}

// New returns a monitor; the config must pass [Config.Check].
func New(c Config) *Monitor { return &Monitor{config: c, budget: Time(c.Burst) * c.Every} }

// Close ends a window, and returns the policy from then on.
func (m *Monitor) Close(w Window) Policy {
	c := &m.config
	m.budget = min(Time(c.Burst)*c.Every, m.budget+c.Window)
	// A window without requests is calm.
	waits := w.Present > 0 && w.Present >= Time(c.Beta*float64(w.Executed))
	if m.calm += c.Window; waits {
		m.calm = 0
	}
	crowd := c.Calm > 0 && w.Present > c.Window
	switch {
	case m.policy == Latency && waits:
		m.policy = Throughput
		m.budget -= c.Every
	case m.policy == Throughput && !waits && !crowd && m.calm >= c.Calm && m.budget >= 2*c.Every:
		m.policy = Latency
		m.budget -= c.Every
	}
	return m.policy
}
