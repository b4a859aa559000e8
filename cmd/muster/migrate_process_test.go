//go:build linux

package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/checkpoint/criu"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/offload"
	"github.com/muster-sched/muster/gpu/gputest"
	"github.com/muster-sched/muster/internal/fakeapi"
)

// movers are agents as processes, and commands as processes, that move programs with one driver between them.
type movers struct {
	t                    *testing.T
	n                    *gputest.Node
	muster, certs, store string
	environment          []string
}

func newMovers(t *testing.T, settings ...string) *movers {
	if err := (criu.Program{}).Check(t.Context()); err != nil {
		t.Skip(err)
	}
	return newAgents(t, settings...)
}

// newAgents is newMovers without criu. The settings are names and values of variables of the driver.
func newAgents(t *testing.T, settings ...string) *movers {
	n := gputest.NewNode(t, 64)
	for i := 0; i < len(settings); i += 2 {
		n.Set(settings[i], settings[i+1])
	}
	dir := t.TempDir()
	x := &movers{t: t, n: n, muster: filepath.Join(dir, "muster"), certs: filepath.Join(dir, "certs"), store: filepath.Join(dir, "images")}
	if err := os.Symlink(os.Args[0], x.muster); err != nil { // which is muster under this name
		t.Fatal(err)
	}
	program, driver, fake := n.Caller()
	x.environment = append(append(os.Environ(), fake...), "MUSTER_GPU_CALL="+program, "MUSTER_GPU_DRIVER="+driver)
	if out, err := x.command("agent certificates --host 127.0.0.1 --host n1 --host n3 --out " + x.certs).CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	return x
}

func (x *movers) command(line string) *exec.Cmd {
	c := exec.Command(x.muster, strings.Fields(line)...)
	c.Env = x.environment
	return c
}

func (x *movers) tls(whose string) string {
	at := filepath.Join(x.certs, whose)
	return fmt.Sprintf(" --tls-cert %s.crt --tls-key %s.key --tls-ca %s", at, at, filepath.Join(x.certs, "ca.crt"))
}

// node is one with an agent.
type node struct {
	x                    *movers
	address, line, state string
	c                    *exec.Cmd
}

func (x *movers) node(name, flags string) *node {
	a := &node{x: x, address: "127.0.0.1:0", state: x.t.TempDir()}
	a.line = "agent --gpu-interval 0 --node-name " + name + " --state-dir " + a.state + flags + x.tls("agent")
	a.start()
	x.t.Cleanup(a.kill)
	return a
}

// start starts the agent, under the address that it had.
func (a *node) start() {
	a.x.t.Helper()
	a.c = a.x.command(a.line + " --listen " + a.address)
	out, err := a.c.StdoutPipe()
	if err == nil {
		err = a.c.Start()
	}
	if err != nil {
		a.x.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		a.x.t.Fatal("the agent ended")
	}
	words := strings.Fields(lines.Text())
	a.address = words[len(words)-1]
}

// kill is kill -9.
func (a *node) kill() {
	a.c.Process.Kill()
	a.c.Wait()
}

func (x *movers) migrate(p *gputest.Program, to *node) *exec.Cmd { return x.migrateTo(p, to.address) }

// migrateTo has the other node in the words of the command line.
func (x *movers) migrateTo(p *gputest.Program, to string) *exec.Cmd {
	return x.command(fmt.Sprintf("migrate process %d --to %s --store %s --gpu-dir %s", p.PID, to, x.store, x.n.Dir) + x.tls("client"))
}

// api is an API server whose nodes say where their agents are, and a kubeconfig for it.
func (x *movers) api() (config string, set func(node, agent string)) {
	api, err := fakeapi.New("", time.Now())
	if err != nil {
		x.t.Fatal(err)
	}
	server := httptest.NewServer(api)
	x.t.Cleanup(server.Close)
	config = filepath.Join(x.t.TempDir(), "kubeconfig")
	if err := os.WriteFile(config, []byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "`+server.URL+`"}}], users: [{name: u, user: {}}]}`), 0o600); err != nil {
		x.t.Fatal(err)
	}
	return config, func(node, agent string) {
		metadata := map[string]any{"name": node}
		if agent != "" {
			metadata["annotations"] = map[string]any{v1alpha1.AgentAnnotation: agent}
		}
		if err := api.Add(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": metadata}); err != nil {
			x.t.Fatal(err)
		}
	}
}

// says runs the command, and returns what it wrote.
func (x *movers) says(c *exec.Cmd, code int, part string) {
	x.t.Helper()
	out, _ := c.CombinedOutput()
	if c.ProcessState.ExitCode() != code || !strings.Contains(string(out), part) {
		x.t.Fatalf("exit code %d: %s; expected %d: %s", c.ProcessState.ExitCode(), out, code, part)
	}
}

// A training moves between nodes in the middle of its work, while commands and agents are killed at any instants. Each of its steps is made
// once, and it ends with the bits of one that was never touched.
func TestMigrateProcess(t *testing.T) {
	x := newMovers(t)
	const size, work = 1 << 20, "train 0 1048576 2000"
	undisturbed := x.n.Start(t)
	undisturbed.Do("alloc %d", size)
	undisturbed.Send(work)
	want := undisturbed.Until("sum ")
	undisturbed.Kill()
	shared := " --image-store " + x.store + " --gpu-dir " + x.n.Dir
	first, second := x.node("n1", shared), x.node("n2", shared)
	p := x.n.StartWithFiles(t)
	go p.Wait() // as a shell
	p.Do("alloc %d", size)
	p.Send(work)
	p.Until("step 100")

	// An image of a command that was killed before the process ended is of no use.
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	of := fmt.Sprintf(" %d --gpu-dir %s", p.PID, x.n.Dir)
	x.says(x.command("pause --backend shim"+of), 0, "Saved")
	x.says(x.command("image save --store "+x.store+" --name "+nameOnTheWay(host, first.address, p.PID)+of), 0, "image ")
	x.says(x.command("resume"+of), 0, "Running")
	x.says(x.migrate(p, first), 0, "goes on on node n1")
	if left, _ := filepath.Glob(filepath.Join(x.store, "images", "*")); len(left) > 0 {
		t.Fatal(left)
	}
	random, rounds, killed := rand.New(rand.NewPCG(1, 2)), 6, 0
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds { // the command dies
		to := []*node{second, first}[round%2]
		for tries := 0; ; tries++ {
			c := x.migrate(p, to)
			if tries < 2 {
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(100+random.IntN(900)) * time.Millisecond) // any instant will do
				c.Process.Kill()
				if c.Wait(); c.ProcessState.ExitCode() == 0 {
					break
				}
				killed++
				continue
			}
			x.says(c, 0, "goes on on node n")
			break
		}
	}
	for round := range rounds { // the agent dies
		to := []*node{second, first}[round%2]
		c := x.migrate(p, to)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(300+random.IntN(900)) * time.Millisecond) // any instant will do
		to.kill()
		to.start()
		if c.Wait(); c.ProcessState.ExitCode() != 0 { // it was not reached at the beginning
			x.says(x.migrate(p, to), 0, "goes on on node n")
		}
	}
	t.Logf("%d commands were killed", killed)
	last, line := 100, ""
	for !strings.HasPrefix(line, "sum ") {
		line = p.Line()
		var step int
		if n, _ := fmt.Sscanf(line, "step %d", &step); n == 1 && step <= last {
			t.Fatalf("step %d after step %d", step, last)
		} else if n == 1 {
			last = step
		}
	}
	if got := strings.TrimPrefix(line, "sum "); got != want {
		t.Errorf("it ended with %s, and with %s undisturbed", got, want)
	}
	x.says(x.command("image list --store "+x.store), 0, "IMAGE  PROCESSES")
	if left, _ := filepath.Glob(filepath.Join(x.store, "images", "*")); len(left) > 0 {
		t.Error(left)
	}
}

// A node of the cluster is named by its name: the agent at its address has a certificate for that name, and is the node's. The same command
// goes on where the address is another one by then.
func TestMigrateProcessByName(t *testing.T) {
	x := newMovers(t)
	p := x.n.StartWithFiles(t)
	go p.Wait() // as a shell
	p.Do("alloc %d", 1<<20)
	p.Send("train 0 1048576 10")
	sum := p.Until("sum ")
	here := func() {
		t.Helper()
		if got := strings.TrimPrefix(p.Do("sum 0 1048576"), "sum "); got != sum {
			t.Errorf("%s; before %s", got, sum)
		}
	}
	a := x.node("n1", " --image-store "+x.store+" --gpu-dir "+x.n.Dir)
	config, set := x.api()
	in := " --kubeconfig " + config
	set("n3", a.address)
	set("n4", a.address)
	set("bare", "")
	x.says(x.migrateTo(p, "n3"+in), 1, `this is the agent of node "n1"; the request is for node "n3"`+"\n")
	x.says(x.migrateTo(p, "n4"+in), 1, "certificate is valid for n1, n3, not n4")
	x.says(x.migrateTo(p, "n5"+in), 1, `read node n5: nodes "n5" not found`)
	x.says(x.migrateTo(p, "bare"+in), 1, "node bare has no internal address, and no annotation muster.sh/agent")
	here()

	// A command was killed when the process was in its image, and the agent is elsewhere by now.
	set("n1", a.address)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	x.says(x.command(fmt.Sprintf("checkpoint %d --process --store %s --name %s --gpu-dir %s", p.PID, x.store, nameOnTheWay(host, "n1", p.PID), x.n.Dir)), 0, "image ")
	a.kill()
	a.address = "127.0.0.1:0"
	a.start()
	x.says(x.migrateTo(p, "n1"+in), 1, "connection refused")
	set("n1", a.address)
	x.says(x.migrateTo(p, "n1"+in), 0, "goes on on node n1")
	here()
	records, err := filepath.Glob(filepath.Join(a.state, "operations", "*.json"))
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	if record, err := os.ReadFile(records[0]); err != nil || !regexp.MustCompile(`"node": +"n1"`).Match(record) {
		t.Errorf("the agent was not told which node is meant: %s %v", record, err)
	}
	for to, want := range map[string]string{
		"n1":                         `--to: expected HOST:PORT of an agent, such as n1:9440, or with --kubeconfig, --context or --agent-port the name of a node of the cluster; found "n1"`,
		a.address + in:               "--kubeconfig: expected the name of a node in --to with it; found the address " + a.address,
		"n1:":                        `--to: expected HOST:PORT of an agent; found "n1:"`,
		"n1 --agent-port 0":          "--agent-port: expected a number from 1 to 65535; found 0",
		"n1 --kubeconfig " + x.store: "--kubeconfig: expected a valid kubeconfig",
	} {
		x.says(x.migrateTo(p, to), 2, want)
	}
}

// A GPU that the agent does not have is refused before anything is done, where the agent looks at its GPUs. One that has gone does not count.
func TestMigrateProcessToNoGPU(t *testing.T) {
	const there, gone = "GPU-77aa03de-52b9-4c06-8a4e-1f9d0b6c2e42", "GPU-5d1f0c4e-8b1c-4f0e-9f55-0c6f2a7d3b11"
	m := migrateProcess{gpus: map[string]string{gone: strings.ToUpper(there[:8]) + there[8:]}, at: remote{addresses: []string{"n1:9440"}}}
	s := &agentpb.NodeStatus{Node: "n1", Hardware: &agentpb.Hardware{Read: timestamppb.Now(), Gpus: []*agentpb.GPU{{Uuid: there}, {Uuid: gone, Index: -1}}}}
	if err := m.onGPUs(s); err != nil {
		t.Error(err)
	}
	m.gpus[there] = gone
	if err := m.onGPUs(s); err == nil || err.Error() != "--gpus: node n1 has no GPU "+gone+"; muster agent gpus --agent n1:9440 shows those that it has" {
		t.Error(err)
	}
	s.Hardware.Read = nil
	if err := m.onGPUs(s); err != nil {
		t.Errorf("it has not looked yet: %v", err)
	}
}

// A process goes on on the GPU that is named for it there.
func TestMigrateProcessToGPU(t *testing.T) {
	x := newMovers(t, "MUSTER_FAKE_GPU_COUNT", "2", "MUSTER_FAKE_GPU_DRIVER", "580")
	const first, second, none = "GPU-00000000-0000-0000-0000-000000000000", "GPU-00000000-0000-0000-0000-000000000001", "GPU-5d1f0c4e-8b1c-4f0e-9f55-0c6f2a7d3b11"
	other := x.n.Start(t)
	left := other.Do("left") // of the first GPU
	p := x.n.StartWithFiles(t)
	go p.Wait() // as a shell
	p.Do("alloc %d", 8<<20)
	sum := p.Do("sum 0 %d", 8<<20)
	a := x.node("n1", " --image-store "+x.store+" --gpu-dir "+x.n.Dir)
	for gpus, want := range map[string]string{
		"0=1": "--gpus: expected UUIDs of GPUs, GPU-…=GPU-…; found 0=1",
		first + "=" + none + "," + second + "=" + none:                  "--gpus: expected each GPU there once; found " + none + " twice",
		none + "=" + first + ",GPU-5D1F0C4E" + none[12:] + "=" + second: "--gpus: expected each GPU here once; found " + none + " twice",
	} {
		x.says(x.migrateTo(p, a.address+" --gpus "+gpus), 2, want)
	}
	x.says(x.migrateTo(p, a.address+" --gpus "+none+"="+second), 1, "--gpus: this machine has no GPU "+none)
	x.says(x.migrateTo(p, a.address+" --gpus "+first+"="+none), 1, fmt.Sprintf("there is none with the ID 5d1f0c4e8b1c4f0e9f550c6f2a7d3b11 here; process %d goes on here", p.PID))
	if other.Do("left") == left {
		t.Error("the process is not on the first GPU")
	}
	x.says(x.migrateTo(p, a.address+" --gpus "+first+"="+second), 0, "goes on on node n1")
	if got := other.Do("left"); got != left {
		t.Errorf("of the first GPU %s; before %s", got, left)
	}
	if got := p.Do("sum 0 %d", 8<<20); got != sum {
		t.Errorf("%s; before %s", got, sum)
	}
}

// A process whose new node refuses it, or cannot bring it back, goes on where it was.
func TestMigrateProcessBack(t *testing.T) {
	x := newMovers(t)
	p := x.n.StartWithFiles(t)
	go p.Wait() // as a shell
	p.Do("alloc %d", 1<<20)
	p.Send("train 0 1048576 10")
	sum := p.Until("sum ")
	for _, c := range []struct{ flags, want string }{
		{" --gpu-dir " + x.n.Dir, "has no store of images: muster agent --image-store gives it one; process %d goes on here"},
		{" --image-store " + t.TempDir() + " --gpu-dir " + x.n.Dir, "the store has no image"},
		{" --image-store " + x.store + " --gpu-dir " + t.TempDir(), "and here it is"},
	} {
		want := c.want
		if strings.Contains(want, "%d") {
			want = fmt.Sprintf(want, p.PID)
		}
		x.says(x.migrate(p, x.node("n1", c.flags)), 1, want)
		if got := strings.TrimPrefix(p.Do("sum 0 1048576"), "sum "); got != sum {
			t.Errorf("%s; before %s", got, sum)
		}
	}
	// A command is killed on the way back here, when it has made the process: the same command ends that, and begins again.
	for _, v := range x.environment {
		if k, v, _ := strings.Cut(v, "="); strings.HasPrefix(k, "MUSTER_") {
			t.Setenv(k, v)
		}
	}
	refuses := x.node("n3", " --gpu-dir "+x.n.Dir)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	m := migrateProcess{name: nameOnTheWay(host, refuses.address, p.PID), dir: x.n.Dir}
	x.says(x.command(fmt.Sprintf("checkpoint %d --process --store %s --name %s --gpu-dir %s", p.PID, x.store, m.name, x.n.Dir)), 0, "image ")
	images, err := image.Open(t.Context(), image.Dir(x.store), nil, false)
	if err != nil {
		t.Fatal(err)
	}
	w := &offload.Whole{Dir: x.n.Dir, Lease: pauseLease, Calls: gpuCalls(x.n.Dir), Images: images, Step: func(string, int64) {}}
	defer w.Calls.Close()
	e, err := w.Images.Find(t.Context(), m.name)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.BringBack(t.Context(), e, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.returningFile(), fmt.Appendf(nil, `{"Image": %q, "Making": [%d]}`, e.ID, p.PID), 0o600); err != nil {
		t.Fatal(err)
	}
	x.says(x.migrate(p, refuses), 1, "has no store of images")
	if got := strings.TrimPrefix(p.Do("sum 0 1048576"), "sum "); got != sum {
		t.Errorf("%s; before %s", got, sum)
	}
	if left, _ := filepath.Glob(m.returningFile() + "*"); len(left) > 0 {
		t.Error(left)
	}
	gone := x.node("n2", " --gpu-dir "+x.n.Dir)
	gone.kill()
	x.says(x.migrate(p, gone), 1, "agent "+gone.address)
	if got := strings.TrimPrefix(p.Do("sum 0 1048576"), "sum "); got != sum {
		t.Errorf("%s; before %s", got, sum)
	}
	for line, want := range map[string]string{
		"":                        "expected PID",
		"x --to n:1":              `PID: expected the ID of a process, such as 4711; found "x"`,
		"1":                       "--to: expected the other node",
		"1 --to n:1 --store s":    "--tls-cert: expected a file",
		"1 --to n:1 --within 0s":  "--within: expected more than 0",
		"1 --to n:1 --timeout 1h": "--timeout: expected more than 0 and at most 5m0s",
		"1 --to n:1 --retries -1": "--retries: expected 0 or more; found -1",
		"1 --to n:1":              "--store: expected the folder",
		"1 --to n:1 --store s --tls-cert none --tls-key none --tls-ca none": "open none",
	} {
		x.says(x.command("migrate process "+line), 2, want)
	}
}
