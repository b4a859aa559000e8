package runlog

import (
	"bufio"
	"io"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/sim"
)

// jobsHeader names the columns of jobs.csv: one row per job, in the order of their ends,
// live jobs last. start_s is when the job was first whole, wait_s the time to then,
// queued_s all its waiting; start_s, wait_s and end_s are empty for what did not happen.
// asked is the number of answers to the question why the job waits, reason the most
// frequent one, given times times, and detail the numbers of the last answer with this
// reason, at asked_s.
const jobsHeader = "job,queue,kind,class,priority,gang,pods,gpus,submit_s,start_s,end_s,wait_s,queued_s," +
	"nodes,groups,fewest_nodes,fewest_groups,evictions,lost_gpu_s,asked,times,reason,asked_s,detail,outcome,user\n"

// jobTable writes jobs.csv.
type jobTable struct {
	out *bufio.Writer
	row []byte
}

func newJobTable(w io.Writer) (*jobTable, error) {
	t := &jobTable{out: bufio.NewWriterSize(w, 64<<10)}
	_, err := t.out.WriteString(jobsHeader)
	return t, err
}

// add adds the row of a job that ended at end, or lives still if end is
// negative.
func (t *jobTable) add(l *sim.Live, j *metrics.Job, end core.Time, outcome string) error {
	b := t.row[:0]
	for _, s := range []string{l.Name, l.Queue, l.Kind.String(), l.Class.String()} {
		b = append(appendField(b, s), ',')
	}
	b = strconv.AppendInt(b, int64(l.Priority), 10)
	b = strconv.AppendBool(append(b, ','), l.Gang)
	b = strconv.AppendInt(append(b, ','), int64(l.Pods), 10)
	b = appendGPUs(append(b, ','), l.GPUs())
	b = appendSeconds(append(b, ','), l.Submitted)
	b = appendIfAny(append(b, ','), j.Started)
	b = appendIfAny(append(b, ','), end)
	b = append(b, ',')
	if j.Started >= 0 {
		b = appendSeconds(b, j.Started-l.Submitted)
	}
	b = appendSeconds(append(b, ','), j.Waited)
	for _, n := range []int{j.Nodes, j.Groups, j.FewestNodes, j.FewestGroups, j.Evictions} {
		b = strconv.AppendInt(append(b, ','), int64(n), 10)
	}
	b = strconv.AppendFloat(append(b, ','), l.Lost/float64(core.WholeGPU), 'f', -1, 64)
	why := j.Why()
	b = appendWhy(append(b, ','), &why)
	b = append(append(b, ','), outcome...)
	b = appendField(append(b, ','), l.User)
	t.row = append(b, '\n')
	_, err := t.out.Write(t.row)
	return err
}

func (t *jobTable) flush() error { return t.out.Flush() }

// appendWhy appends the fields asked, times, reason, asked_s and detail.
func appendWhy(b []byte, w *metrics.Why) []byte {
	if w.Asked == 0 {
		return append(b, "0,0,,,"...)
	}
	b = strconv.AppendInt(b, int64(w.Asked), 10)
	b = strconv.AppendInt(append(b, ','), int64(w.Times), 10)
	b = appendField(append(b, ','), w.Reason)
	b = appendSeconds(append(b, ','), w.At)
	return appendField(append(b, ','), w.Detail)
}

// appendIfAny appends t in seconds, or nothing when it is negative.
func appendIfAny(b []byte, t core.Time) []byte {
	if t < 0 {
		return b
	}
	return appendSeconds(b, t)
}

// appendField appends s as a field of a CSV file.
func appendField(b []byte, s string) []byte {
	if !strings.ContainsAny(s, ",\"\r\n") {
		return append(b, s...)
	}
	b = append(b, '"')
	b = append(b, strings.ReplaceAll(s, `"`, `""`)...)
	return append(b, '"')
}
