// Package monitor decides when to change between a policy for latency and one for throughput, as
// requests arrive faster or slower (Tessera, arXiv:2604.10180, §III-D). It is a state machine that
// computes and does nothing else: its input is what each window measured.
//
// The measure is L_req / L_exec: the time that requests spent in the system, over the time that they
// executed. It is 1 if none waits. The paper takes the means over the requests that end in a window;
// in 300 ms few end, so here both sums are over the window: all time that any request was present,
// and all that was executed.
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
	// Up is the ratio from which on the policy is Throughput (the paper's beta), Down the one up to
	// which it is Latency again; between them it stays. The paper has no second one: Down == Up.
	Up, Down float64
	// Dwell is the least time between two decisions to switch. 0 is none, as in the paper.
	Dwell Time
	// Stall is how long the workers take to agree on a switch, once no iteration is under way.
	Stall Time
}

// Default are the paper's window and threshold, and a hysteresis of our own.
var Default = Config{Window: 300e6, Up: 1.5, Down: 1.2, Dwell: 1500e6, Stall: 30e6}

// Check reports the first field that is out of its range.
func (c *Config) Check() error {
	switch {
	case c.Window <= 0:
		return fmt.Errorf("window: expected more than 0; found %d ns", c.Window)
	case !(c.Up >= 1 && c.Up <= 1e6):
		return fmt.Errorf("beta: expected at least 1; found %g", c.Up)
	case !(c.Down >= 0 && c.Down <= c.Up):
		return fmt.Errorf("beta down: expected from 0 to beta; found %g", c.Down)
	case c.Dwell < 0 || c.Stall < 0:
		return fmt.Errorf("dwell and stall: expected at least 0; found %d and %d ns", c.Dwell, c.Stall)
	}
	return nil
}

// MostSwitches is the largest number of switches in any time of this length: decisions are at ends of windows, and
// the dwell time apart.
func (c *Config) MostSwitches(span Time) int { return 1 + int(span/max(c.Window, c.Dwell)) }

// MostStalled bounds the harm of switching: in any time of this length all switches together
// keep requests from starting iterations for no longer. iteration is the longest that an iteration
// takes. With a dwell time D the share of the time approaches (Stall + iteration) / D.
func (c *Config) MostStalled(span, iteration Time) Time {
	return Time(c.MostSwitches(span)) * (c.Stall + iteration)
}

// Window is what was measured in a window: the time that requests were present and the time that
// they executed, each summed over requests.
type Window struct{ Present, Executed Time }

// ratio is 1 of a window without requests.
func (w Window) ratio() float64 {
	if w.Present == 0 {
		return 1
	}
	return float64(w.Present) / float64(max(1, w.Executed))
}

// Monitor is the state.
type Monitor struct {
	config   Config
	policy   Policy
	switched Time
	ever     bool
}

// New returns a monitor; the config must pass [Config.Check].
func New(c Config) *Monitor { return &Monitor{config: c} }

// Close ends a window at a time, and returns the policy from then on. Times do not go back.
func (m *Monitor) Close(now Time, w Window) Policy {
	want := m.policy
	switch r := w.ratio(); {
	case r >= m.config.Up:
		want = Throughput
	case r <= m.config.Down:
		want = Latency
	}
	if want != m.policy && (!m.ever || now-m.switched >= m.config.Dwell) {
		m.policy, m.switched, m.ever = want, now, true
	}
	return m.policy
}
