package runlog

import (
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/quota"
	"github.com/muster-sched/muster/workload"
)

// queueFile is a queue in queues.json, spelt as in a snapshot. Amounts are in GPUs; a
// limit that is not set is omitted.
type queueFile struct {
	Name   string      `json:"name"`
	Parent string      `json:"parent,omitempty"`
	Weight int64       `json:"weight"`
	Mode   string      `json:"mode"`
	Quota  []quotaFile `json:"quota,omitempty"`
}

type quotaFile struct {
	Model          string   `json:"model"`
	Nominal        float64  `json:"nominal"`
	BorrowingLimit *float64 `json:"borrowingLimit,omitempty"`
	LendingLimit   *float64 `json:"lendingLimit,omitempty"`
}

func writeQueues(w io.Writer, queues []core.Queue) error {
	all := make([]queueFile, len(queues))
	for i, q := range queues {
		all[i] = queueFile{Name: q.Name, Parent: q.Parent, Weight: q.Weight, Mode: "Shared"}
		if q.Mode == quota.Isolated {
			all[i].Mode = "Isolated"
		}
		for _, x := range q.Quota {
			all[i].Quota = append(all[i].Quota, quotaFile{
				Model: x.Model, Nominal: inGPUs(x.Nominal),
				BorrowingLimit: limit(x.BorrowingLimit), LendingLimit: limit(x.LendingLimit),
			})
		}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Queues []queueFile `json:"queues"`
	}{all})
}

func limit(m core.Milli) *float64 {
	if m == core.Unlimited {
		return nil
	}
	gpus := inGPUs(m)
	return &gpus
}

func inGPUs(m core.Milli) float64 { return float64(m) / float64(core.WholeGPU) }

// readQueues reads the names, parents and nominal quotas of queues.json, which is all
// that reports show; nil if the file does not exist.
func readQueues(path string) ([]core.Queue, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &workload.Error{File: path, Want: "the queues of a run: " + cause(err)}
	}
	var file struct{ Queues []queueFile }
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, &workload.Error{File: path, Want: "the queues of a run: " + err.Error()}
	}
	all := make([]core.Queue, len(file.Queues))
	for i, q := range file.Queues {
		all[i] = core.Queue{Name: q.Name, Parent: q.Parent, Weight: q.Weight}
		for _, x := range q.Quota {
			all[i].Quota = append(all[i].Quota, core.Quota{Model: x.Model, Nominal: inMilli(x.Nominal)})
		}
	}
	return all, nil
}
