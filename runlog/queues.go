package runlog

import (
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/quota"
	"github.com/muster-sched/muster/workload"
)

// queueFile is a queue in queues.json, spelt as in a snapshot. Amounts are in GPUs; a
// limit that is not set is omitted.
type queueFile struct {
	Name     string      `json:"name"`
	Parent   string      `json:"parent,omitempty"`
	Weight   int64       `json:"weight"`
	Priority int32       `json:"priority,omitempty"`
	Mode     string      `json:"mode"`
	Quota    []quotaFile `json:"quota,omitempty"`

	MaxRunningJobs        int     `json:"maxRunningJobs,omitempty"`
	MaxRunningGPUs        float64 `json:"maxRunningGPUs,omitempty"`
	MaxRunningJobsPerUser int     `json:"maxRunningJobsPerUser,omitempty"`
	MaxRunningGPUsPerUser float64 `json:"maxRunningGPUsPerUser,omitempty"`
	FairBetween           string  `json:"fairBetween,omitempty"`

	// Resources are in cores, bytes, or units of the resource.
	Resources []resourceFile `json:"resources,omitempty"`
}

type resourceFile struct {
	Name           string   `json:"name"`
	Nominal        float64  `json:"nominal"`
	BorrowingLimit *float64 `json:"borrowingLimit,omitempty"`
	LendingLimit   *float64 `json:"lendingLimit,omitempty"`
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
		all[i] = queueFile{Name: q.Name, Parent: q.Parent, Weight: q.Weight, Priority: q.Priority, Mode: "Shared"}
		all[i].MaxRunningJobs, all[i].MaxRunningGPUs = q.MaxRunning.Jobs, inGPUs(q.MaxRunning.GPU)
		all[i].MaxRunningJobsPerUser, all[i].MaxRunningGPUsPerUser = q.MaxRunningPerUser.Jobs, inGPUs(q.MaxRunningPerUser.GPU)
		if q.FairUsers {
			all[i].FairBetween = "Users"
		}
		if q.Mode == quota.Isolated {
			all[i].Mode = "Isolated"
		}
		for _, x := range q.Quota {
			all[i].Quota = append(all[i].Quota, quotaFile{
				Model: x.Model, Nominal: owned(x.Nominal, inGPUs),
				BorrowingLimit: limit(x.BorrowingLimit, inGPUs), LendingLimit: limit(x.LendingLimit, inGPUs),
			})
		}
		for _, x := range q.Resources {
			in := func(m core.Milli) float64 { return cluster.InUnits(x.Resource, m) }
			all[i].Resources = append(all[i].Resources, resourceFile{
				Name: x.Resource, Nominal: owned(x.Nominal, in), BorrowingLimit: limit(x.BorrowingLimit, in), LendingLimit: limit(x.LendingLimit, in),
			})
		}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Queues []queueFile `json:"queues"`
	}{all})
}

func limit(m core.Milli, in func(core.Milli) float64) *float64 {
	if m == core.Unlimited {
		return nil
	}
	v := in(m)
	return &v
}

// owned is what a queue owns, -1 without limit.
func owned(m core.Milli, in func(core.Milli) float64) float64 {
	if m >= quota.MaxQuota {
		return -1
	}
	return in(m)
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
		all[i] = core.Queue{Name: q.Name, Parent: q.Parent, Weight: q.Weight, Priority: q.Priority}
		for _, x := range q.Quota {
			all[i].Quota = append(all[i].Quota, core.Quota{Model: x.Model, Nominal: inMilli(x.Nominal)})
			if x.Nominal < 0 {
				all[i].Quota[len(all[i].Quota)-1].Nominal = quota.MaxQuota
			}
		}
	}
	return all, nil
}
