package replay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-sched/muster/workload"
)

// Whatever is read as a log, it is jobs and nodes, or one line says what is wrong
// and where.
func FuzzRead(f *testing.F) {
	const log = `{"t":0,"begin":{"version":1,"part":1,"levels":["leaf"]}}
{"t":0,"NodeAdded":{"node":{"name":"n","model":"H800","gpus":8,"domains":["a"]}}}
{"t":0,"QueueSet":{"queue":{"name":"q","weight":1}}}
{"t":1,"JobSubmitted":{"job":{"name":"j","queue":"q","gang":true,"tasks":[{"name":"w","pods":2,"gpu":1000}]}}}
{"t":1,"pass":[{"op":"bind","job":"j","reason":"Placed","pods":[{"node":"n","gpus":1,"gpu":1000},{"pod":1,"node":"n","gpus":2,"gpu":1000}]}]}
{"t":2,"pass":[{"op":"evict","job":"j","reason":"QuotaReclaim","pods":[{"node":"n"},{"pod":1}]}]}
{"t":3,"PodEnded":{"job":"j"}}
{"t":3,"PodsGone":{"job":"j"}}
{"t":3,"PodsAdded":{"job":"j","task":{"name":"w","gpu":1000},"pods":[0,2]}}
{"t":4,"PodRunning":{"job":"j","pod":2,"node":"n","gpus":[3]}}
{"t":4,"NodeAdded":{"node":{"name":"m","model":"H800","gpus":8,"domains":["a"]}}}
{"t":4,"MoveRequested":{"job":"j","pod":2,"node":"m"}}
{"t":4,"pass":[{"op":"migrate","job":"j","reason":"Requested","pods":[{"pod":2,"node":"m","gpus":1,"gpu":1000}]}]}
{"t":5,"PodMoved":{"job":"j","pod":2}}
{"t":5,"RestartRequested":{"job":"j","pods":[2],"nodes":["n"]}}
{"t":5,"NodeCordoned":{"node":"n","cordoned":true}}
{"t":5,"DeviceHealth":{"node":"n","gpu":7}}
{"t":6,"NodeLost":{"node":"n"}}
{"t":7,"JobEnded":{"job":"j"}}
`
	f.Add(log)
	f.Add(strings.Replace(log, `"part":1`, `"part":2,"snapshot":4`, 1))
	file := filepath.Join(f.TempDir(), "log.jsonl")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		r, err := Read(file)
		if err != nil {
			if !workload.IsBadInput(err) || !strings.HasPrefix(err.Error(), file) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q", err)
			}
			return
		}
		for i := range r.List {
			j := &r.List[i]
			if pods := j.Pods(); j.Gang && len(j.Recorded.Runs) != 1 || !j.Gang && len(j.Recorded.Runs) != pods {
				t.Errorf("job %s of %d pods has %d runs", j.Name, pods, len(j.Recorded.Runs))
			}
		}
	})
}
