package workload

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/muster-sched/muster/core"
)

// A good row, and the row with one column replaced.
var goodJob = map[string]string{
	"job": "j1", "task": "w", "queue": "q", "kind": "training", "class": "HP", "priority": "0", "gang": "true",
	"pods": "2", "gpu_milli": "8000", "cpu_milli": "1000", "mem_mib": "1024", "gpu_models": "H800",
	"submit_s": "5", "duration_s": "60", "outcome": "completed", "checkpoint_s": "0", "locked": "false",
	"topology": "", "affinity": "",
}

func jobRow(pairs ...string) string {
	var fields []string
	for _, c := range musterJobs.required {
		value := goodJob[c]
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == c {
				value = pairs[i+1]
			}
		}
		fields = append(fields, value)
	}
	return strings.Join(fields, ",") + "\n"
}

func TestBadJobs(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"an empty file", "", `f: a header row, found an empty file`},
		{"no known header", "a,b,c\n", `f:1: the header of a workload (muster, openb, philly, lingjun, chronus, acme, sia), found "a,b,c"`},
		{"a cluster", clusterHeader, `f:1: the header of a workload (muster, openb, philly, lingjun, chronus, acme, sia), found that of a muster cluster`},
		{"a column missing", strings.Replace(jobsHeader, "queue,", "", 1), `f:1: the header of a muster workload with a column "queue"`},
		{"a column too many", "nice," + jobsHeader, `f:1: the header of a muster workload with no column "nice"`},
		{"a column twice", "job," + jobsHeader, `f:1: the header of a muster workload with one column "job"`},
		{"a short row", jobsHeader + "a,b\n", `f:2: 19 fields as in the header, found 2`},
		{"a long row", jobsHeader + "x," + jobRow(), `f:2: 19 fields as in the header, found 20`},
		{"a row cut off", jobsHeader + jobRow() + jobRow("job", "j2")[:20], `f:3: 19 fields as in the header, found 6`},
		{"no job name", jobsHeader + jobRow("job", ""), `f:2: job: a name, found ""`},
		{"a control character", jobsHeader + jobRow("job", "a\x00b"), `f:2: job: text without control characters, found "a\x00b"`},
		{"no queue", jobsHeader + jobRow("queue", ""), `f:2: queue: a name, found ""`},
		{"an unknown kind", jobsHeader + jobRow("kind", "serving"), `f:2: kind: one of training, inference, batch, dev, found "serving"`},
		{"an unknown class", jobsHeader + jobRow("class", "hp"), `f:2: class: one of HP, LP, found "hp"`},
		{"an unknown outcome", jobsHeader + jobRow("outcome", "lost"), `f:2: outcome: one of completed, failed, cancelled, found "lost"`},
		{"an odd mobility", strings.TrimSuffix(jobsHeader, "\n") + ",mobility\n" + strings.TrimSuffix(jobRow(), "\n") + ",flies\n", `f:2: mobility: one of stays, replaceable, found "flies"`},
		{"an odd boolean", jobsHeader + jobRow("gang", "True"), `f:2: gang: true or false, found "True"`},
		{"an odd boolean", jobsHeader + jobRow("locked", "0"), `f:2: locked: true or false, found "0"`},
		{"priority too high", jobsHeader + jobRow("priority", "2147483648"), `f:2: priority: a whole number -2147483648..2147483647, found "2147483648"`},
		{"no pods", jobsHeader + jobRow("pods", "0"), `f:2: pods: a whole number 1..1000000, found "0"`},
		{"pods below none", jobsHeader + jobRow("pods", "-4"), `f:2: pods: pods 1..1000000 or MIN-MAX, found "-4"`},
		{"pods the wrong way", jobsHeader + jobRow("pods", "8-4"), `f:2: pods: pods 1..1000000 or MIN-MAX, found "8-4"`},
		{"a range of pods outside a gang", jobsHeader + jobRow("pods", "4-8", "gang", "false"), `f:2: pods: one number of pods, because only gangs have a minimum, found "4-8"`},
		{"GPU neither part nor whole", jobsHeader + jobRow("gpu_milli", "1500"), `f:2: gpu_milli: milli-GPUs 0..1000 or whole GPUs up to 64000, found "1500"`},
		{"more GPUs than a node may have", jobsHeader + jobRow("gpu_milli", "65000"), `f:2: gpu_milli: milli-GPUs 0..1000 or whole GPUs up to 64000, found "65000"`},
		{"CPU below 0", jobsHeader + jobRow("cpu_milli", "-1"), `f:2: cpu_milli: a whole number 0..1000000000, found "-1"`},
		{"CPU beyond int64", jobsHeader + jobRow("cpu_milli", "99999999999999999999"), `f:2: cpu_milli: a whole number 0..1000000000, found "99999999999999999999"`},
		{"memory with decimals", jobsHeader + jobRow("mem_mib", "1.5"), `f:2: mem_mib: a whole number 0..1000000000, found "1.5"`},
		{"memory left out", jobsHeader + jobRow("mem_mib", ""), `f:2: mem_mib: a whole number 0..1000000000, found ""`},
		{"an empty model", jobsHeader + jobRow("gpu_models", "A||B"), `f:2: gpu_models: GPU models separated by |, found "A||B"`},
		{"a time below 0", jobsHeader + jobRow("submit_s", "-1"), `f:2: submit_s: seconds 0..3153600000 with at most 9 decimals, found "-1"`},
		{"NaN", jobsHeader + jobRow("submit_s", "NaN"), `f:2: submit_s: seconds 0..3153600000 with at most 9 decimals, found "NaN"`},
		{"Inf", jobsHeader + jobRow("duration_s", "Inf"), `f:2: duration_s: seconds 0..3153600000 with at most 9 decimals, found "Inf"`},
		{"an exponent", jobsHeader + jobRow("duration_s", "1e9"), `f:2: duration_s: seconds 0..3153600000 with at most 9 decimals, found "1e9"`},
		{"more than a century", jobsHeader + jobRow("duration_s", "3153600001"), `f:2: duration_s: seconds 0..3153600000 with at most 9 decimals, found "3153600001"`},
		{"below a nanosecond", jobsHeader + jobRow("checkpoint_s", "0.0000000001"), `f:2: checkpoint_s: seconds 0..3153600000 with at most 9 decimals, found "0.0000000001"`},
		{"a bare point", jobsHeader + jobRow("submit_s", "5."), `f:2: submit_s: seconds 0..3153600000 with at most 9 decimals, found "5."`},
		{"an odd topology", jobsHeader + jobRow("topology", "near=leaf"), `f:2: topology: required=LEVEL;preferred=LEVEL;closeness=SHARE, found "near=leaf"`},
		{"a topology twice", jobsHeader + jobRow("topology", "leaf;required=spine"), `f:2: topology: required=LEVEL;preferred=LEVEL;closeness=SHARE, found "leaf;required=spine"`},
		{"an odd closeness", jobsHeader + jobRow("topology", "leaf;closeness=near"), `f:2: topology: one closeness above 0 to 10, such as closeness=0.1, found "leaf;closeness=near"`},
		{"an odd combination", combined("A100+L40S"), `f:2: combinations: MODEL+MODEL=RATE, with a rate for each level of the topology between the pods and perhaps the price of the GPUs, such as A100+L40S=2.3/1.9@3.5, found "A100+L40S"`},
		{"a combination without a model", combined("A100+L40S=1|A100=2"), `f:2: combinations: one model for each of the job's tasks with GPUs, in their order or as TASK:MODEL, found "A100=2"`},
		{"a combination of no task", combined("v:A100+u:L40S=1"), `f:2: combinations: a task named "u", found "v:A100+u:L40S=1"`},
		{"a combination at no rate", combined("A100+L40S=2/0"), `f:2: combinations: MODEL+MODEL=RATE, with a rate for each level of the topology between the pods and perhaps the price of the GPUs, such as A100+L40S=2.3/1.9@3.5, found "A100+L40S=2/0"`},
		{"combinations that disagree", combinedHeader + combinedRow("v", "A+B=1") + combinedRow("w", "A+B=2"), `f:3: combinations: the same as in the row above, of the same job "j1", found "A+B=2"`},
		{"combinations of one task", combinedHeader + combinedRow("v", "A=1"), `f:2: combinations: job j1: combinations of GPU models are for gangs of several tasks, all of whose pods start together`},
		{"a preference without weight", jobsHeader + jobRow("affinity", "prefer:disk=ssd"), `f:2: affinity: prefer:WEIGHT:KEY=VALUE, with more conditions behind & (50:disk=ssd|nvme&zone), WEIGHT:near:LEVEL:LABEL (-10:near:leaf:web), or WEIGHT:group:LEVEL:LABEL (100:group:leaf:web), found "prefer:disk=ssd"`},
		{"an odd affinity", jobsHeader + jobRow("affinity", "beside:node:x"), `f:2: affinity: tolerate:, near:, apart:, prefer:, label: or a condition on a label, found "beside:node:x"`},
		{"a term without label", jobsHeader + jobRow("affinity", "near:node"), `f:2: affinity: near:LEVEL:label, found "near:node"`},
		{"an empty label", jobsHeader + jobRow("affinity", "label:"), `f:2: affinity: label:x, found "label:"`},
		{"a condition on nothing", jobsHeader + jobRow("affinity", "a=b;"), `f:2: affinity: key, !key, key=value or key!=value, found ""`},
		{"a job again", jobsHeader + jobRow() + jobRow("job", "j2") + jobRow(), `f:4: job: a job named once, found "j1" again`},
		{"a task again", jobsHeader + jobRow() + jobRow(), `f:3: task: a task named once in job "j1", found "w"`},
		{"rows that disagree", jobsHeader + jobRow() + jobRow("task", "v", "queue", "p"), `f:3: queue: the same as in the row above, of the same job "j1", found "p"`},
		{"saves that disagree", strings.TrimSpace(jobsHeader) + ",checkpoint_within_s\n" + strings.TrimSpace(jobRow()) + ",20\n" + strings.TrimSpace(jobRow("task", "v")) + ",30\n", `f:3: checkpoint_within_s: the same as in the row above, of the same job "j1", found "30"`},
		{"too many pods together", jobsHeader + jobRow("pods", "1000000") + jobRow("task", "v"), `f:3: pods: at most 1000 tasks and 1000000 pods in job "j1", found "2"`},
		{"jobs out of order", jobsHeader + jobRow() + jobRow("job", "j2", "submit_s", "4.5"), `f:3: submit time: jobs in order of submission, found "j2" 0.5 s before the job above`},
		{"not UTF-8", jobsHeader + jobRow("job", "\xff"), `f:2: UTF-8 text`},
		{"a quote inside a field", jobsHeader + jobRow("job", `a"b`), `f:2: quotes only around whole fields, doubled inside them and closed on their line`},
		{"an open quote", jobsHeader + jobRow("job", `"a`), `f:2: quotes only around whole fields, doubled inside them and closed on their line`},
		{"text after a quote", jobsHeader + jobRow("job", `"a"b`), `f:2: quotes only around whole fields, doubled inside them and closed on their line`},
		{"a long value", jobsHeader + jobRow("kind", strings.Repeat("x", 1000)), `f:2: kind: one of training, inference, batch, dev, found "` + strings.Repeat("x", 40) + `"…`},

		{"openb: part of several GPUs", openbHeader + "p,1,1,2,500,,LS,Running,0,1,0\n", `f:2: gpu_milli: 1000 for a pod of several GPUs, found "500"`},
		{"openb: GPU without part", openbHeader + "p,1,1,1,0,,LS,Running,0,1,0\n", `f:2: gpu_milli: 1..1000 for a pod of one GPU, found "0"`},
		{"openb: part of no GPU", openbHeader + "p,1,1,0,5,,LS,Running,0,1,0\n", `f:2: gpu_milli: 0 for a pod without GPUs, found "5"`},
		{"openb: an unknown class", openbHeader + "p,1,1,0,0,,XX,Running,0,1,0\n", `f:2: qos: LS, Guaranteed, Burstable or BE, found "XX"`},
		{"openb: ended before it started", openbHeader + "p,1,1,0,0,,LS,Running,0,1,2\n", `f:2: deletion_time: seconds not before 2, found "1"`},
		{"openb: a bad row among unsorted ones", openbHeader + "p,1,1,0,0,,LS,Running,9,9,\nq,1,1,0,0,,LS,Running,8,x,\n", `f:3: deletion_time: seconds 0..3153600000 with at most 9 decimals, found "x"`},
		{"philly: no GPUs", "job_id,submit_s,gpus,duration_s\n1,0,0,5\n", `f:2: gpus: a whole number 1..8000000, found "0"`},
		{"chronus: an odd flag", "job_id,user,num_gpu,submit_time,duration,best_effort\n1,u,1,0,5,2\n", `f:2: best_effort: a whole number 0..1, found "2"`},
		{"chronus: more than a century", "job_id,user,num_gpu,submit_time,duration,best_effort\n1,u,1,0,52560001,0\n", `f:2: duration: minutes 0..52560000 with at most 9 decimals, found "52560001"`},
		{"acme: GPUs with decimals", "job_id,arrival_s,nodes,gpus_per_node,cpus_per_gpu,duration_s,is_pretrain,mem_per_pod_gb\n1,0,1,7.5,1,1,0,1\n", `f:2: gpus_per_node: a whole number 1..64, found "7.5"`},
	} {
		_, err := collect(test.text, Options{})
		if err == nil || err.Error() != test.want {
			t.Errorf("%s:\ngot  %v\nwant %s", test.name, err, test.want)
		}
		if err != nil && !IsBadInput(err) {
			t.Errorf("%s: %T is no *Error", test.name, err)
		}
	}
}

func TestBadClusters(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"no known header", "a,b\n", `f:1: the header of a cluster (muster, openb, philly, lingjun, spot), found "a,b"`},
		{"no node", clusterHeader, `f: at least one node`},
		{"no name", clusterHeader + ",,0,1,1,,,,,\n", `f:2: node: a name, found ""`},
		{"a node again", clusterHeader + "n,,0,1,1,,,,,\nn,,0,1,1,,,,,\n", `f:3: node: a node named once, found "n" again`},
		{"too many GPUs", clusterHeader + "n,A,65,1,1,,,,,\n", `f:2: gpus: a whole number 0..64, found "65"`},
		{"GPUs of no model", clusterHeader + "n,,8,1,1,,,,,\n", `f:2: gpu_model: the model of 8 GPUs, found ""`},
		{"a model without GPUs", clusterHeader + "n,A,0,1,1,,,,,\n", `f:2: gpu_model: the model of 0 GPUs, found "A"`},
		{"a model with a separator", clusterHeader + "n,A|B,8,1,1,,,,,\n", `f:2: gpu_model: the model of 8 GPUs, found "A|B"`},
		{"CPU that is no number", clusterHeader + "n,A,8,many,1,,,,,\n", `f:2: cpu_milli: a whole number 0..1000000000, found "many"`},
		{"a position too few", withDevices + "n,A,2,1,1,,,,,,0/0/0\n", `f:2: devices: island/pcie/numa/nic of each of the 2 GPUs, or island/numa/nic, separated by |, such as 0/0/0/0|0/0/1/-, found "0/0/0"`},
		{"half a position", withDevices + "n,A,1,1,1,,,,,,0/0\n", `f:2: devices: island/pcie/numa/nic of each of the 1 GPUs, or island/numa/nic, separated by |, such as 0/0/0/0|0/0/1/-, found "0/0"`},
		{"a NIC past 63", withDevices + "n,A,1,1,1,,,,,,0/0/64\n", `f:2: devices: island/pcie/numa/nic of each of the 1 GPUs, or island/numa/nic, separated by |, such as 0/0/0/0|0/0/1/-, found "0/0/64"`},
		{"a label without value", clusterHeader + "n,A,8,1,1,,,,,zone\n", `f:2: labels: key=value or taint:key=value, found "zone"`},
		{"a label again", clusterHeader + "n,A,8,1,1,,,,,a=b;a=c\n", `f:2: labels: a label given once, found "a" again`},
		{"a taint without key", clusterHeader + "n,A,8,1,1,,,,,taint:=c\n", `f:2: labels: key=value or taint:key=value, found "taint:=c"`},
		{"openb: a node again", "sn,cpu_milli,memory_mib,gpu,model\nn,1,1,0,\nn,1,1,0,\n", `f:3: node: a node named once, found "n" again`},
		{"philly: a virtual cluster again", "vc,node num\na,1\na,2\n", `f:3: vc: a virtual cluster named once, found "a" again`},
		{"philly: no virtual cluster", "vc,node num\n", `f: at least one virtual cluster`},
		{"philly: no nodes", "vc,node num\na,0\n", `f:2: node num: a whole number 1..200000, found "0"`},
		{"lingjun: no switch", "host,DSW,PSW,ASW\nh,D,,A\n", `f:2: PSW: a name, found ""`},
	} {
		_, err := load(test.text, Options{})
		if err == nil || err.Error() != test.want {
			t.Errorf("%s:\ngot  %v\nwant %s", test.name, err, test.want)
		}
		if err != nil && !IsBadInput(err) {
			t.Errorf("%s: %T is no *Error", test.name, err)
		}
	}
}

func TestForcedFormat(t *testing.T) {
	text := "job_id,arrival_s,gpus,duration_s\n1,0,1,1\n"
	for format, want := range map[string]string{
		"lingjun": "<nil>",
		"philly":  `f:1: the header of a philly workload with a column "submit_s"`,
		"spot":    `f: format: one of muster, openb, philly, lingjun, chronus, acme, sia for a workload, found "spot"`,
		"slurm":   `f: format: one of muster, openb, philly, lingjun, chronus, acme, sia for a workload, found "slurm"`,
	} {
		got := "<nil>"
		if _, err := collect(text, Options{Format: format}); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", format, got, want)
		}
	}
}

// Jobs that the cluster could never run are refused with their line.
func TestJobsOfOtherClusters(t *testing.T) {
	c, err := load(clusterHeader+
		"n1,H800,8,64000,1048576,l0,,,,\n"+
		"n2,A10,4,128000,65536,l0,,,,\n"+
		"n3,,0,256000,4096,l0,,,,\n", Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Queues = []core.Queue{{Name: "q"}}
	for _, test := range []struct{ name, row, want string }{
		{"fits", jobRow(), "<nil>"},
		{"fits one of its models", jobRow("gpu_models", "A10|H800"), "<nil>"},
		{"fits the widest node only", jobRow("gpu_models", "", "gpu_milli", "4000", "cpu_milli", "100000"), "<nil>"},
		{"CPU only", jobRow("gpu_models", "", "gpu_milli", "0", "cpu_milli", "256000"), "<nil>"},
		{"unknown queue", jobRow("queue", "p"), `f:2: queue: a queue of the cluster, found "p"`},
		{"a model like a resource", jobRow("gpu_models", "H800|/cpu"),
			`f:2: gpu_models: GPU models, whose names are not * and do not begin with /, found "H800|/cpu"`},
		{"unknown model", jobRow("gpu_models", "H800|B200"), `f:2: gpu_models: GPU models of the cluster, found "B200"`},
		{"too many GPUs", jobRow("gpu_models", "A10"), `f:2: pod size: a pod that an empty node can hold, found 8 GPUs, 1000 milli-cores, 1024 MiB`},
		{"each fits some node, all none", jobRow("gpu_models", "", "cpu_milli", "100000"), `f:2: pod size: a pod that an empty node can hold, found 8 GPUs, 100000 milli-cores, 1024 MiB`},
		{"too much memory", jobRow("mem_mib", "1048577"), `f:2: pod size: a pod that an empty node can hold, found 8 GPUs, 1000 milli-cores, 1048577 MiB`},
		{"a level", jobRow("topology", "leaf;preferred=node"), "<nil>"},
		{"unknown level", jobRow("topology", "spine"), `f:2: topology: a level of the cluster (node, hbd, leaf), found "spine"`},
		{"unknown level", jobRow("affinity", "near:rack:x"), `f:2: affinity: a level of the cluster (node, hbd, leaf), found "rack"`},
	} {
		got := "<nil>"
		if _, err := collect(jobsHeader+test.row, Options{Cluster: &c}); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, got, test.want)
		}
	}
	tooLarge := jobsHeader + jobRow("gpu_models", "A10")
	if _, err := collect(tooLarge, Options{Cluster: &c, Misfits: true}); err != nil {
		t.Errorf("with Misfits: %v", err)
	}
	if _, err := collect(tooLarge, Options{Cluster: &c, From: 6 * core.Second}); err != nil {
		t.Errorf("outside the selection: %v", err)
	}
}

// What editors and other systems leave in files does no harm.
func TestTolerated(t *testing.T) {
	for name, text := range map[string]string{
		"CRLF":                     strings.ReplaceAll(jobsHeader+jobRow(), "\n", "\r\n"),
		"byte order mark":          "\ufeff" + jobsHeader + jobRow(),
		"no last line end":         strings.TrimSuffix(jobsHeader+jobRow(), "\n"),
		"empty lines":              "\n" + jobsHeader + "\n\n" + jobRow() + "\n",
		"columns in another order": "affinity," + strings.Replace(jobsHeader, ",affinity", "", 1) + "," + strings.TrimSuffix(jobRow(), ",\n") + "\n",
	} {
		jobs, err := collect(text, Options{})
		if err != nil || len(jobs) != 1 || jobs[0].Name != "j1" {
			t.Errorf("%s: got %v, %v", name, jobs, err)
		}
	}
}

// endless is a reader of one line without end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	e.read += len(p)
	return len(p), nil
}

// A line without end fails early: memory is bounded, and so is what is read.
func TestEndlessLine(t *testing.T) {
	const want = "f:2: a line of at most 1048576 bytes"
	rest := &endless{}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	table, err := newTable("f", io.MultiReader(strings.NewReader(jobsHeader), rest))
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	readJobs(table, &Options{}, func(_ Job, err error) bool { failed = err; return true })
	runtime.ReadMemStats(&after)
	if failed == nil || failed.Error() != want {
		t.Errorf("got %v, want %s", failed, want)
	}
	if rest.read > 4*maxLine || after.TotalAlloc-before.TotalAlloc > 8*maxLine {
		t.Errorf("read %d bytes, allocated %d", rest.read, after.TotalAlloc-before.TotalAlloc)
	}
	if _, err := newTable("f", &endless{}); err == nil || err.Error() != "f:1: a line of at most 1048576 bytes" {
		t.Errorf("endless header: got %v", err)
	}
}

func packed(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Gzip is told by its first bytes, and what is wrong with it is said.
func TestGzip(t *testing.T) {
	var text strings.Builder
	text.WriteString(jobsHeader)
	for i := range 5000 {
		text.WriteString(jobRow("job", "j"+strings.Repeat("x", i%7)+string(rune('a'+i%26)), "task", "t", "submit_s", "9"))
	}
	whole := packed(t, jobsHeader+jobRow())
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-6] ^= 1 // in the checksum
	dir := t.TempDir()
	for _, test := range []struct {
		name string
		data []byte
		want string
	}{
		{"whole.csv", whole, "<nil>"},
		{"truncated", whole[:len(whole)-9], "the rest of the gzip data, found the end of the file: it is truncated"},
		{"truncated in its header", whole[:5], "the rest of the gzip data, found the end of the file: it is truncated"},
		{"changed", flipped, "intact gzip data: invalid checksum"},
		{"followed by something else", append(bytes.Clone(whole), "more text than a gzip header has"...), "intact gzip data: invalid header"},
	} {
		path := filepath.Join(dir, test.name)
		if err := os.WriteFile(path, test.data, 0o600); err != nil {
			t.Fatal(err)
		}
		got := "<nil>"
		jobs, _, err := OpenJobs(path, Options{})
		if err == nil {
			for _, e := range jobs {
				err = e
			}
		}
		var bad *Error
		if errors.As(err, &bad) {
			got = bad.Want
		}
		if got != test.want {
			t.Errorf("%s: got %s (%v), want %s", test.name, got, err, test.want)
		}
	}
}

func TestMissingFiles(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir + "/none": dir + "/none: a readable file or a built-in name: no such file or directory",
		dir:           dir + ": readable data: is a directory",
	} {
		if _, _, err := OpenJobs(path, Options{}); err == nil || err.Error() != want || !IsBadInput(err) {
			t.Errorf("jobs: got %v, want %s", err, want)
		}
		if _, err := OpenCluster(path, Options{}); err == nil || err.Error() != want || !IsBadInput(err) {
			t.Errorf("cluster: got %v, want %s", err, want)
		}
	}
}

func FuzzOpenJobs(f *testing.F) {
	f.Add([]byte(jobsHeader + jobRow() + jobRow("task", "v", "affinity", `"a=b;label:x"`)))
	f.Add([]byte(openbHeader + "p,1,1,1,500,A|B,LS,Failed,5,9,6\n"))
	f.Add([]byte("job_id,submit_s,submit_time,gpus,duration_s,vc\n1,0,2020-01-01 00:00:00,17,5,a\n"))
	f.Add([]byte("job_id,arrival_s,gpus,duration_s\n0,0.5,48,7\n"))
	f.Add([]byte("job_id,user,num_gpu,submit_time,duration,best_effort\n1,vc_a,0,1.5,3,1\n"))
	f.Add([]byte("job_id,arrival_s,nodes,gpus_per_node,cpus_per_gpu,duration_s,is_pretrain,mem_per_pod_gb\n1,0,2,8.0,7.5,1,1,100\n"))
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, jobsHeader+jobRow())
	z.Close()
	f.Add(b.Bytes())
	c, err := ParseSpec("2x8:H800,1x4:A10", Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := newTable("f", bytes.NewReader(data))
		if err != nil {
			mustBeBadInput(t, err)
			return
		}
		w := NewJobWriter(io.Discard)
		readJobs(table, &Options{Cluster: &c, Misfits: true, Rebase: true}, func(j Job, err error) bool {
			if err != nil {
				mustBeBadInput(t, err)
			} else if err := w.Write(&j); err != nil {
				t.Errorf("read, but not written: %v", err)
			}
			return true
		})
	})
}

func FuzzOpenCluster(f *testing.F) {
	f.Add([]byte(clusterHeader + "n,A,8,1,1,l,s,ss,h,a=b;taint:c=d\n"))
	f.Add([]byte(withDevices + "n,A,2,1,1,l,s,ss,h,a=b,0/0/0|-/1/-\n"))
	f.Add([]byte(withDevices + "n,A,2,1,1,l,s,ss,h,a=b,0/0/0/0|-/2/1/-\n"))
	f.Add([]byte("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,2,P\n"))
	f.Add([]byte("vc,node num\na,3\n"))
	f.Add([]byte("host,DSW,PSW,ASW\nh,D,P,A\n"))
	f.Add([]byte("gpu_model,gpu_capacity_num,cpu_num,node_name\nA,1,8,0\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := newTable("f", bytes.NewReader(data))
		if err == nil {
			var c Cluster
			if c, err = readCluster(table, &Options{Quotas: true}); err == nil {
				if err := WriteCluster(io.Discard, c); err != nil {
					t.Errorf("read, but not written: %v", err)
				}
				return
			}
		}
		mustBeBadInput(t, err)
	})
}

func mustBeBadInput(t *testing.T, err error) {
	t.Helper()
	if !IsBadInput(err) {
		t.Errorf("%v (%T) is no *Error", err, err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is more than a line", err)
	}
}
