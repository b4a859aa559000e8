package runlog

import (
	"bufio"
	"io"
	"strconv"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/metrics"
)

// waitsHeader names the columns of waits.csv: a row for each of the longest
// waits, the longest first. Those from asked on are as in jobs.csv.
const waitsHeader = "job,queue,kind,class,pods,gpus,submit_s,wait_s,waits,asked,times,reason,asked_s,detail\n"

func writeWaits(w io.Writer, waits []metrics.LongWait) error {
	out := bufio.NewWriter(w)
	out.WriteString(waitsHeader)
	for i := range waits {
		x := &waits[i]
		var b []byte
		for _, s := range []string{x.Job, x.Queue, x.Kind.String(), x.Class.String()} {
			b = append(appendField(b, s), ',')
		}
		b = strconv.AppendInt(b, int64(x.Pods), 10)
		b = appendGPUs(append(b, ','), x.GPUs)
		b = appendSeconds(append(b, ','), x.Submitted)
		b = appendSeconds(append(b, ','), x.Waited)
		b = strconv.AppendBool(append(b, ','), x.Waits)
		b = appendWhy(append(b, ','), &x.Why)
		out.Write(append(b, '\n'))
	}
	return out.Flush()
}

func readWaits(path string) ([]metrics.LongWait, error) {
	var all []metrics.LongWait
	err := eachRow(path, waitsHeader, func(f *fields) {
		all = append(all, metrics.LongWait{
			Job: f.text(), Queue: f.text(), Kind: core.Kind(f.name(core.Kinds[:]...)), Class: core.Class(f.name("HP", "LP")),
			Pods: int(f.int()), GPUs: f.gpus(), Submitted: f.time(), Waited: f.time(), Waits: f.name("false", "true") == 1,
			Why: f.why(),
		})
	})
	return all, err
}

// why reads what appendWhy appends.
func (f *fields) why() metrics.Why {
	w := metrics.Why{Asked: int(f.int()), Times: int(f.int()), Reason: f.text()}
	if w.Asked == 0 {
		f.next++
	} else {
		w.At = f.time()
	}
	w.Detail = f.text()
	return w
}
