// Package monitor decides when to change between a policy for latency and one for throughput, as
// requests arrive faster or slower (Tessera, arXiv:2604.10180, §III-D). It is a state machine that
// computes and does nothing else: its input is what each window measured.
//
// The measure is L_req / L_exec: the time that requests spent in the system, over the time that they
// executed. It is 1 if none waits. The paper takes the means over the requests that end in a window;
// in 300 ms few end, so here both sums are over the window: all time that any request was present,
// and all that was executed.
//
// The paper switches at one threshold. Here there has to be a reason that is worth a switch: waiting
// that adds up before the policy is Throughput, a calm time before it is Latency again.
package monitor

import "fmt"

// Time is nanoseconds.
type Time int64

// Policy is what the monitor chooses.
type Policy int

// The policies. A monitor starts with Latency.
const (
	Latency Policy = iota
	Throughput
)

// Config are the parameters.
type Config struct {
	Window Time // W
	// Beta is the ratio below which a window is calm.
	Beta float64
	// Wait is how much waiting beyond Beta has to add up, with no calm window between, before the
	// policy is Throughput. 0 is one window that is not calm, as in the paper.
	Wait Time
	// Calm is for how long windows have to be calm, one after the other, before the policy is Latency again. 0 is
	// one window, as in the paper.
	Calm Time
	// Stall is how long the workers take to agree on a switch, once no iteration is under way.
	Stall Time
}

// Default has a hysteresis of our own: a switch there and back stalls for some 100 ms with the iterations that it ends, so
// as much waiting has to come first. The paper has a window of 300 ms, a beta of 1.5, and no hysteresis.
var Default = Config{Window: 100e6, Beta: 1.1, Wait: 100e6, Calm: 800e6, Stall: 30e6}

// Check reports the first field that is out of its range.
func (c *Config) Check() error {
	switch {
	case c.Window <= 0:
		return fmt.Errorf("window: expected more than 0; found %d ns", c.Window)
	case !(c.Beta >= 1 && c.Beta <= 1e6):
		return fmt.Errorf("beta: expected at least 1; found %g", c.Beta)
	case c.Wait < 0 || c.Calm < 0 || c.Stall < 0:
		return fmt.Errorf("wait, calm and stall: expected at least 0; found %d, %d and %d ns", c.Wait, c.Calm, c.Stall)
	}
	return nil
}

// MostSwitches is the largest number of switches in any time of this length: before each switch back to
// Latency there is a calm time without a switch, and at most one switch to Throughput between two of those.
func (c *Config) MostSwitches(span Time) int {
	return 2 + 2*int(span/max(2*c.Window, c.Calm+c.Window))
}

// MostStalled bounds the harm of switching: in any time of this length all switches together
// keep requests from starting iterations for no longer. iteration is the longest that an iteration
// takes. The share of the time approaches 2 (Stall + iteration) / (Calm + Window). And as each switch to
// Throughput comes after waiting of at least Wait, the switches keep requests for no longer than 2 (Stall + iteration) / Wait of the
// time that they waited.
func (c *Config) MostStalled(span, iteration Time) Time {
	return Time(c.MostSwitches(span)) * (c.Stall + iteration)
}

// Window is what was measured in a window: the time that requests were present and the time that
// they executed, each summed over requests.
type Window struct{ Present, Executed Time }

// beyond is the waiting beyond a ratio; below 0 a window is calm, and one without requests is too.
func (w Window) beyond(beta float64) (waiting Time, calm bool) {
	x := w.Present - Time(beta*float64(w.Executed))
	return x, x < 0 || w.Present == 0
}

// Monitor is the state.
type Monitor struct {
	config Config
	policy Policy
	calm   Time // how long windows have been calm
	wait   Time // the waiting that added up
}

// New returns a monitor; the config must pass [Config.Check].
func New(c Config) *Monitor { return &Monitor{config: c} }

// Close ends a window, and returns the policy from then on.
func (m *Monitor) Close(w Window) Policy {
	waiting, calm := w.beyond(m.config.Beta)
	if calm {
		m.calm, m.wait = m.calm+m.config.Window, 0
	} else {
		m.calm, m.wait = 0, m.wait+waiting
	}
	switch {
	case calm && m.calm >= m.config.Calm:
		m.policy = Latency
	case !calm && m.wait >= m.config.Wait:
		m.policy = Throughput
	}
	return m.policy
}
