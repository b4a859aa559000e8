package metrics

import (
	"slices"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
)

// The error is the mean of what the forecast missed; beside it, of what a guess that nothing changes does.
func TestHPForecast(t *testing.T) {
	const hour = 3600 * core.Second
	row := func(at core.Time, held, one core.Milli) sim.HPSample {
		return sim.HPSample{T: at, Model: "A", GPU: held * 1000, Expected: [3]core.Milli{one, -1, -1}}
	}
	rows := []sim.HPSample{
		row(0, 4, -1),
		row(hour+core.Second, 8, 7000),  // 1 too few; it rose by 4
		row(2*hour, 2, 5000),            // 3 too many; it fell by 6
		row(4*hour+core.Second, 9, 900), // what was an hour before is not known
	}
	want := []HPForecast{{Model: "A", Ahead: 3600, Samples: 2, Mean: 5, Error: 2, Unchanged: 5}}
	if got := NewHPForecast(rows, 24*hour); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := NewHPForecast(nil, 0); got != nil {
		t.Errorf("without a forecast: %+v", got)
	}
}
