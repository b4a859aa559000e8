package runlog

import (
	"bufio"
	"io"
	"path/filepath"
	"strconv"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/metrics"
)

// fairHeader names the columns of fairness.csv: at each of some times, a row for each queue that
// deserved or received GPU time before, with those below it. own is true in the row of the jobs that
// such a queue has itself. The last three are the same in all rows of a time.
const fairHeader = "t,queue,own,received_gpu_hours,deserved_gpu_hours,tenants_unfairness,jobs_unfairness,users_unfairness\n"

// The most times in fairness.csv, and the interval between them at first.
const (
	maxFair   = 240
	fairEvery = 60 * core.Second
)

func writeFair(w io.Writer, rows []metrics.FairRow) error {
	out := bufio.NewWriter(w)
	out.WriteString(fairHeader)
	var b []byte
	for i := range rows {
		if i > 0 && rows[i].T == rows[i-1].T {
			continue // nothing happened
		}
		for _, q := range rows[i].Queues {
			b = appendSeconds(b[:0], rows[i].T)
			b = appendField(append(b, ','), q.Queue)
			b = strconv.AppendBool(append(b, ','), q.Own)
			b = strconv.AppendFloat(append(b, ','), q.Received, 'f', 6, 64)
			b = strconv.AppendFloat(append(b, ','), q.Deserved, 'f', 6, 64)
			b = strconv.AppendFloat(append(b, ','), rows[i].Tenants, 'f', 6, 64)
			b = strconv.AppendFloat(append(b, ','), rows[i].Jobs, 'f', 6, 64)
			b = strconv.AppendFloat(append(b, ','), rows[i].Users, 'f', 6, 64)
			out.Write(append(b, '\n'))
		}
	}
	return out.Flush()
}

// ReadFair reads the summary of the run in a folder, and its fairness over time. The error is bad
// input if dir is not a run folder, or one of a version that did not measure fairness.
func ReadFair(dir string) (metrics.Summary, []metrics.FairRow, error) {
	var s metrics.Summary
	if err := readSummary(filepath.Join(dir, Summary), &s); err != nil {
		return s, nil, err
	}
	var rows []metrics.FairRow
	err := eachRow(filepath.Join(dir, Fair), fairHeader, func(f *fields) {
		t := f.time()
		if len(rows) == 0 || rows[len(rows)-1].T != t {
			rows = append(rows, metrics.FairRow{T: t})
		}
		row := &rows[len(rows)-1]
		q := metrics.QueueFairness{Queue: f.text(), Own: f.name("false", "true") == 1, Received: f.number(), Deserved: f.number()}
		if q.Deserved > 0 {
			q.Index = q.Received / q.Deserved
		}
		row.Queues = append(row.Queues, q)
		row.Tenants, row.Jobs, row.Users = f.number(), f.number(), f.number()
	})
	return s, rows, err
}
