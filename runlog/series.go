package runlog

import (
	"bufio"
	"io"
	"strconv"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/metrics"
)

// The most rows of timeseries.csv and frames in frames.json.gz, and the
// intervals between them at first.
const (
	maxRows     = 4096
	rowsEvery   = core.Second
	maxFrames   = 240
	framesEvery = 60 * core.Second
)

// A series samples a run of unknown length at regular times: when it has the maximum number of
// rows, it drops every other row and doubles the interval. Row i is the state after all events up
// to i times the interval.
type series[T any] struct {
	most     int // even
	rows     []T
	interval core.Time
	next     core.Time
}

// until takes the samples due before t, of the state that held until then.
func (s *series[T]) until(t core.Time, state func() T) {
	if s.next >= t {
		return
	}
	for now := state(); s.next < t; s.next += s.interval {
		if len(s.rows) == s.most {
			s.thin()
			if s.next >= t {
				return
			}
		}
		s.rows = append(s.rows, now)
	}
}

// thin keeps the rows at multiples of the doubled interval.
func (s *series[T]) thin() {
	for i := range s.rows {
		if i%2 == 0 {
			s.rows[i/2] = s.rows[i]
		}
	}
	clear(s.rows[s.most/2:])
	s.rows = s.rows[:s.most/2]
	s.interval *= 2
	s.next = core.Time(len(s.rows)) * s.interval
}

const seriesHeader = "t,allocated_gpus,available_gpus,fragmented_nodes,pending_jobs,running_jobs\n"

func writeSeries(w io.Writer, rows []metrics.Sample) error {
	out := bufio.NewWriter(w)
	out.WriteString(seriesHeader)
	var b []byte
	for _, r := range rows {
		b = appendSeconds(b[:0], r.T)
		b = appendGPUs(append(b, ','), r.Allocated)
		for _, n := range []int64{r.Available, r.FragmentedNodes, r.Pending, r.Running} {
			b = strconv.AppendInt(append(b, ','), n, 10)
		}
		out.Write(append(b, '\n'))
	}
	return out.Flush()
}
