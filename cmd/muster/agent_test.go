//go:build linux

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/gpu/gputest"
	"github.com/muster-sched/muster/internal/fakeapi"
)

// A user makes certificates, and lists, pauses and resumes a pod's processes at an agent.
func TestPauseAtAgent(t *testing.T) {
	n := gputest.NewNode(t, 64)
	root, certs := t.TempDir(), filepath.Join(t.TempDir(), "certs")
	n.Dir = filepath.Join(root, "uid-1")
	if err := os.Mkdir(n.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	muster := func(code int, line string) string {
		t.Helper()
		var out, problem strings.Builder
		if got := run(strings.Fields(line), strings.NewReader(""), &out, &problem); got != code {
			t.Fatalf("muster %s: exit code %d; expected %d\n%s%s", line, got, code, out.String(), problem.String())
		}
		return out.String() + problem.String()
	}
	muster(0, "agent certificates --out "+certs+" --host 127.0.0.1")
	store := t.TempDir()
	metrics := agent.NewMetrics()
	images := agent.Store{Metrics: metrics, Open: func(ctx context.Context) (*image.Images, error) { return image.Open(ctx, image.Dir(store), nil, true) }}
	a, err := agent.Open(agent.Options{Node: "n1", Metrics: metrics, StateDir: t.TempDir(), GPUDir: root, Images: images, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	file := func(name string) string { return filepath.Join(certs, name) }
	go func() {
		done <- a.Serve(ctx, l, agent.TLS{Cert: file("agent.crt"), Key: file("agent.key"), CA: file("ca.crt")}, []string{"muster"})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		a.Close()
	}()
	at := " --agent " + l.Addr().String() + " --tls-cert " + file("client.crt") + " --tls-key " + file("client.key") + " --tls-ca " + file("ca.crt")
	for _, c := range []struct {
		code       int
		line, want string
	}{
		{0, "pause --list" + at, "No process on node n1 can be paused."},
		{1, "pause --pod uid-1" + at, "has no process with a GPU that can be paused"},
		{2, "pause --pod a/b" + at, "pod: expected the UID of a pod"},
		{2, "pause 7 --retries 2" + at, "--retries: it is for this machine"},
		{2, "pause --pod uid-1", "--pod: it is for an agent: expected --agent with it"},
		{2, "pause --agent localhost:1", "--tls-cert: expected a file"},
		{2, "resume --agent localhost:1 --tls-cert none --tls-key none --tls-ca none", "none, none: open none"},
		{2, "pause --job j" + at, "--job: it is for this machine, or for several agents"},
		{2, "pause --agent x:1" + at, "--job: expected the job's name with several agents"},
		{2, "pause 7 --job j --agent x:1" + at, "expected no PID with several agents; found 7"},
		{2, "pause --pod a --pod b" + at, "--pod: expected one pod with one agent; found 2"},
		{1, "resume --job j --pod uid-1 --agent " + l.Addr().String() + at, "no process of the job is there"},
		{2, "agent", "--tls-cert: expected a file"},
		{2, "agent --tls-cert " + file("client.crt") + " --tls-key " + file("agent.key") + " --tls-ca " + file("ca.crt"), "private key does not match"},
		{2, "agent certificates", "expected --out and at least one --host"},
		{2, "agent --image-key k --tls-cert " + file("agent.crt") + " --tls-key " + file("agent.key") + " --tls-ca " + file("ca.crt"), "--image-key: expected --image-store with it"},
		{2, "agent --image-store none --image-key none --tls-cert " + file("agent.crt") + " --tls-key " + file("agent.key") + " --tls-ca " + file("ca.crt"), "--image-key: stat none"},
		{2, "agent --metrics-secure --tls-cert " + file("agent.crt") + " --tls-key " + file("agent.key") + " --tls-ca " + file("ca.crt"), "--metrics-secure: expected --metrics-address with it"},
		{2, "agent --metrics-address 127.0.0.1:x --gpu-interval 0 --listen 127.0.0.1:0 --state-dir " + filepath.Join(root, "state") + " --tls-cert " + file("agent.crt") + " --tls-key " + file("agent.key") + " --tls-ca " + file("ca.crt"), "--metrics-address: expected an address that is free"},
		{1, "checkpoint --pod uid-1" + at, "has no process with a GPU that can be paused"},
		{2, "checkpoint --store x --pod uid-1" + at, "--store: it is for this machine: an agent has its own"},
		{2, "restore --pod uid-1 --id 0123456789abcdef --timeout 0s" + at, "--timeout: expected more than 0"},
		{2, "checkpoint --pod uid-1 --id 0123456789abcdef" + at, "id: it is the name of the image"},
		{2, "checkpoint --job j --agent x:1" + at, "expected the processes of one pod"},
		{2, "checkpoint", "expected a PID"},
		{1, "checkpoint 1 --store x --gpu-dir " + root, "process 1: "},
		{1, "restore 1", "process 1: "},
	} {
		if got := muster(c.code, c.line); !strings.Contains(got, c.want) || strings.Count(got, "\n") != 1 {
			t.Errorf("muster %s: %s; expected %q", c.line, got, c.want)
		}
	}
	p := n.Start(t)
	p.Do("alloc %d", 8<<20)
	sum := p.Do("sum 0 %d", 8<<20)
	row := "uid-1  " + strconv.Itoa(p.PID) + "  "
	if got := muster(0, "pause --pod uid-1 --id one"+at+" --timeout 1m"); !strings.Contains(got, row+"Saved     8 MiB   8 MiB          0\n") {
		t.Error(got)
	}
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	if got := muster(1, "pause --list --agent "+dead.Addr().String()+at); !strings.Contains(got, row+"Saved") || strings.Count(got, "muster: agent "+dead.Addr().String()+": ") != 1 {
		t.Error(got)
	}
	if got := muster(1, "resume --pod uid-1 --id one"+at); !strings.Contains(got, `"one" is that of another operation: pause of pod "uid-1"`) {
		t.Error(got)
	}
	if got := muster(0, "pause --list --json"+at); !strings.Contains(got, `{"pod":"uid-1","pid":`+strconv.Itoa(p.PID)+`,"phase":"Saved",`) {
		t.Error(got)
	}
	if got := muster(0, "resume --pod uid-1"+at); !strings.Contains(got, row+"Running") {
		t.Error(got)
	}
	if got := muster(0, "checkpoint --pod uid-1 --id kept"+at+" --timeout 1m"); !strings.Contains(got, row+"Saved") {
		t.Error(got)
	}
	if got := muster(1, "resume --pod uid-1"+at); !strings.Contains(got, "its saved memory is not there") {
		t.Error(got)
	}
	if got := muster(0, "image list --store "+store); !strings.Contains(got, "kept") {
		t.Error(got)
	}
	if got := muster(0, "restore --pod uid-1"+at); !strings.Contains(got, row+"Running") {
		t.Error(got)
	}
	if got := muster(0, "image list --store "+store); strings.Contains(got, "kept") {
		t.Error(got)
	}
	said := httptest.NewRecorder()
	a.Handler().ServeHTTP(said, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		`muster_agent_image_bytes_total{what="saved"} 8.392704e+06`, `muster_agent_image_bytes_total{what="restored"} 8.392704e+06`,
		`muster_agent_processes{phase="running"} 1`, `muster_agent_operation_seconds_count{action="restore",state="succeeded"} 1`,
	} {
		if !strings.Contains(said.Body.String(), "\n"+line+"\n") {
			t.Errorf("without %s:\n%s", line, said.Body)
		}
	}
	if got := p.Do("sum 0 %d", 8<<20); got != sum {
		t.Errorf("%s before, %s after", sum, got)
	}
}

// A user checkpoints two processes of this machine and continues them; what cannot be stored leaves them running.
func TestCheckpointHere(t *testing.T) {
	n := gputest.NewNode(t, 64)
	var programs []*gputest.Program
	var sums []string
	pids := ""
	for range 2 {
		p := n.Start(t)
		p.Do("alloc %d", 4<<20)
		programs, sums, pids = append(programs, p), append(sums, p.Do("sum 0 %d", 4<<20)), pids+" "+strconv.Itoa(p.PID)
	}
	store, here := filepath.Join(t.TempDir(), "images"), " --gpu-dir "+n.Dir
	muster := func(code int, line, want string) {
		t.Helper()
		var out, problem strings.Builder
		if got := run(strings.Fields(line), strings.NewReader(""), &out, &problem); got != code || !strings.Contains(out.String()+problem.String(), want) {
			t.Fatalf("muster %s: exit code %d; expected %d and %q\n%s%s", line, got, code, want, out.String(), problem.String())
		}
	}
	muster(0, "checkpoint"+pids+" --name llama --store "+store+here, ".llama: 8 MiB")
	muster(0, "pause --list"+here, "Saved")
	muster(1, "resume"+pids+here, "its saved memory is not there")
	muster(2, "restore"+pids+" --store "+store+"x"+here, "--store: ")
	// One of the two cannot have the image's name alone, and the other one still has its memory there.
	muster(1, "checkpoint "+strconv.Itoa(programs[0].PID)+" --name llama --store "+store+here, "all processes are as before")
	muster(0, "restore"+pids+" --store "+store+here, "Running")
	// A name that another image has: nothing is stored, and all run.
	one := " " + strconv.Itoa(programs[0].PID)
	muster(0, "checkpoint"+one+" --name llama --store "+store+here, ".llama: 4 MiB")
	muster(1, "checkpoint "+strconv.Itoa(programs[1].PID)+" --name llama --store "+store+here, "all processes are as before")
	muster(0, "restore"+one+" --store "+store+here, "Running")
	for i, p := range programs {
		if got := p.Do("sum 0 %d", 4<<20); got != sums[i] {
			t.Errorf("program %d: %s before, %s after", i, sums[i], got)
		}
	}
}

// ranks are two programs, rank-0 and rank-1, each on a node of its own with an agent.
type ranks struct {
	dir       string
	programs  []*gputest.Program
	sums      []string
	addresses []string // of the agents
	flags     string   // for the client's certificates
}

func startRanks(t *testing.T) *ranks {
	t.Helper()
	n := gputest.NewNode(t, 64)
	r := &ranks{dir: t.TempDir()}
	certs := filepath.Join(r.dir, "certs")
	r.muster(t, 0, "agent certificates --out "+certs+" --host 127.0.0.1")
	r.flags = " --tls-cert " + filepath.Join(certs, "client.crt") + " --tls-key " + filepath.Join(certs, "client.key") + " --tls-ca " + filepath.Join(certs, "ca.crt")
	for _, rank := range []string{"rank-0", "rank-1"} {
		root := filepath.Join(r.dir, "node-of-"+rank)
		n.Dir = filepath.Join(root, rank)
		if err := os.MkdirAll(n.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		p := n.Start(t)
		p.Do("alloc %d", 4<<20)
		r.programs, r.sums = append(r.programs, p), append(r.sums, p.Do("sum 0 %d", 4<<20))
		a, err := agent.Open(agent.Options{Node: "node-of-" + rank, StateDir: filepath.Join(r.dir, "state-"+rank), GPUDir: root, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() {
			done <- a.Serve(ctx, l, agent.TLS{Cert: filepath.Join(certs, "agent.crt"), Key: filepath.Join(certs, "agent.key"), CA: filepath.Join(certs, "ca.crt")}, []string{"muster"})
		}()
		t.Cleanup(func() { cancel(); <-done; a.Close() })
		r.addresses = append(r.addresses, l.Addr().String())
	}
	return r
}

// muster runs a command, and returns what it wrote.
func (r *ranks) muster(t *testing.T, code int, line string) string {
	t.Helper()
	var out, problem strings.Builder
	if got := run(strings.Fields(line), strings.NewReader(""), &out, &problem); got != code {
		t.Fatalf("muster %s: exit code %d; expected %d\n%s%s", line, got, code, out.String(), problem.String())
	}
	return out.String() + problem.String()
}

// same fails if the programs do not compute what they did before.
func (r *ranks) same(t *testing.T) {
	t.Helper()
	for i, p := range r.programs {
		if got := p.Do("sum 0 %d", 4<<20); got != r.sums[i] {
			t.Errorf("rank %d: %s before, %s after", i, r.sums[i], got)
		}
	}
}

// Ranks at the agents of two nodes are paused as one: while one waits for the other in
// a collective neither is, and both go on.
func TestPauseAtSeveralAgents(t *testing.T) {
	r := startRanks(t)
	at := " --job j --pod rank-0 --pod rank-1" + r.flags + " --state " + filepath.Join(r.dir, "j.json") + " --agent " + strings.Join(r.addresses, " --agent ")
	for range 2 {
		if got := r.muster(t, 0, "pause --timeout 1m"+at); strings.Count(got, "  Saved  ") != 2 {
			t.Error(got)
		}
	}
	if got := r.muster(t, 0, "resume"+at); strings.Count(got, "  Running  ") != 2 {
		t.Error(got)
	}
	counter := filepath.Join(r.dir, "counter")
	if err := os.WriteFile(counter, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	r.programs[0].Send("meet %s 2 1", counter)
	for arrived := false; !arrived; {
		text, _ := os.ReadFile(counter)
		arrived = text[0] == 1
	}
	if got := r.muster(t, 1, "pause --retries 0 --timeout 1s"+at); !strings.Contains(got, "cannot be paused (1 tries; all processes go on)") {
		t.Error(got)
	}
	r.programs[1].Send("meet %s 2 1", counter)
	r.programs[0].Line()
	r.programs[1].Line()
	r.same(t)
}

// A user pauses a job of the cluster by its name, and one pod of it.
func TestPauseJob(t *testing.T) {
	r := startRanks(t)
	t.Chdir(r.dir)
	var objects strings.Builder
	for i, address := range r.addresses {
		fmt.Fprintf(&objects, `apiVersion: v1
kind: Node
metadata: {name: node-of-rank-%[1]d, annotations: {muster.sh/agent: "%[2]s"}}
---
apiVersion: v1
kind: Pod
metadata:
  name: train-%[1]d
  namespace: team-a
  uid: rank-%[1]d
  creationTimestamp: ago(1h)
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u1, controller: true}]
spec: {schedulerName: muster, nodeName: node-of-rank-%[1]d, containers: [{name: main}]}
status: {phase: Running, containerStatuses: [{name: main, state: {running: {}}}]}
---
`, i, address)
	}
	for name, status := range map[string]string{
		"waits":  "status: {phase: Pending}",
		"paused": "status: {phase: Running, containerStatuses: [{name: main, state: {running: {}}}], conditions: [{type: muster.sh/Paused, status: \"True\", reason: Paused, message: for team-b/job/urgent}]}",
	} {
		node := "node-of-rank-0"
		if name == "waits" {
			node = `""`
		}
		fmt.Fprintf(&objects, `apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: team-a, uid: %[1]s, creationTimestamp: ago(1h)}
spec: {schedulerName: muster, nodeName: %[2]s, containers: [{name: main}]}
%[3]s
---
`, name, node, status)
	}
	fake, err := fakeapi.New(strings.TrimSuffix(objects.String(), "---\n"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(fake)
	defer server.Close()
	config := filepath.Join(r.dir, "kubeconfig")
	if err := os.WriteFile(config, []byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u, namespace: team-a}}],
clusters: [{name: c, cluster: {server: "`+server.URL+`"}}], users: [{name: u, user: {}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := " --agent-name 127.0.0.1 --kubeconfig " + config + r.flags
	if got := r.muster(t, 0, "pause train --timeout 1m"+flags); strings.Count(got, "  Saved  ") != 2 {
		t.Error(got)
	}
	if _, err := os.Stat("team-a-job-train.pause.json"); err != nil {
		t.Error(err)
	}
	if got := r.muster(t, 0, "resume team-a/job/train"+flags); strings.Count(got, "  Running  ") != 2 {
		t.Error(got)
	}
	r.same(t)
	if got := r.muster(t, 0, "pause train-1"+flags); !strings.Contains(got, "rank-1") || strings.Contains(got, "rank-0") {
		t.Error(got)
	}
	r.muster(t, 0, "resume train-1"+flags)
	r.same(t)
	for _, c := range []struct {
		code       int
		line, want string
	}{
		{1, "pause waits", "pod waits of pod/waits does not run; muster explain pod/waits says why"},
		{1, "resume paused", "pod paused is paused by the scheduler, which lets it go on"},
		{1, "pause trian", `namespace team-a has no job or pod "trian"`},
		{2, "pause train-1 --job j", "--job: it is for jobs of several pods, and train-1 has one"},
	} {
		if got := r.muster(t, c.code, c.line+flags); !strings.Contains(got, c.want) || strings.Count(got, "\n") != 1 {
			t.Errorf("muster %s: %s; expected %q", c.line, got, c.want)
		}
	}
}

// An agent pauses by the backend that it is started with, and says which that is where it finds nothing.
func TestAgentBackend(t *testing.T) {
	x := newAgents(t)
	p := x.n.StartPlain(t)
	p.Do("alloc %d", 8<<20)
	sum := p.Do("sum 0 %d", 8<<20)
	a := x.node("n1", " --backend driver --gpu-dir "+x.n.Dir)
	at := fmt.Sprintf(" --agent %s%s", a.address, x.tls("client"))
	x.says(x.command("pause --list"+at), 0, "No process on node n1 can be paused (its agent has --backend driver).")
	x.says(x.command(fmt.Sprintf("pause %d%s", p.PID, at)), 0, fmt.Sprintf("%d  Checkpointed ", p.PID))
	a.kill()
	a.start() // it stays paused
	x.says(x.command("pause --list"+at), 0, fmt.Sprintf("%d  Checkpointed ", p.PID))
	x.says(x.command("resume"+at), 0, fmt.Sprintf("%d  Running ", p.PID))
	if got := p.Do("sum 0 %d", 8<<20); got != sum {
		t.Errorf("%s; before %s", got, sum)
	}
	x.says(x.command("pause 1"+at), 1, "process 1 of pod")
	x.says(x.command("agent --backend cuda"+x.tls("agent")), 2, `--backend: expected one of auto, shim, driver, hybrid, replay, framework, none; found "cuda"`)
}
