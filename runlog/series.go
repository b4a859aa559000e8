package runlog

import (
	"bufio"
	"io"
	"strconv"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/metrics"
)

// maxRows bounds the rows of timeseries.csv.
const maxRows = 4096

// A series samples a run of unknown length at regular instants: every second
// at first, and when maxRows are full it drops every other row and doubles the
// interval. A row is the state after all events up to its instant.
type series struct {
	rows     []metrics.Sample
	interval core.Time
	next     core.Time
}

// until takes the samples due before t, from the state that held until then.
func (s *series) until(t core.Time, now metrics.Sample) {
	if s.interval == 0 {
		s.interval = core.Second
	}
	for ; s.next < t; s.next += s.interval {
		if len(s.rows) == maxRows {
			s.thin()
			if s.next >= t {
				return
			}
		}
		now.T = s.next
		s.rows = append(s.rows, now)
	}
}

// thin keeps the rows at multiples of the doubled interval.
func (s *series) thin() {
	s.interval *= 2
	kept := s.rows[:0]
	for _, r := range s.rows {
		if r.T%s.interval == 0 {
			kept = append(kept, r)
		}
	}
	s.rows = kept
	s.next = kept[len(kept)-1].T + s.interval
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
