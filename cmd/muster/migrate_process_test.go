//go:build linux

package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint/criu"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/offload"
	"github.com/muster-sched/muster/gpu/gputest"
)

// movers are agents as processes, and commands as processes, that move programs with one driver between them.
type movers struct {
	t                    *testing.T
	n                    *gputest.Node
	muster, certs, store string
	environment          []string
}

func newMovers(t *testing.T) *movers {
	if err := (criu.Program{}).Check(t.Context()); err != nil {
		t.Skip(err)
	}
	n := gputest.NewNode(t, 64)
	dir := t.TempDir()
	x := &movers{t: t, n: n, muster: filepath.Join(dir, "muster"), certs: filepath.Join(dir, "certs"), store: filepath.Join(dir, "images")}
	if err := os.Symlink(os.Args[0], x.muster); err != nil { // which is muster under this name
		t.Fatal(err)
	}
	program, driver, fake := n.Caller()
	x.environment = append(append(os.Environ(), fake...), "MUSTER_GPU_CALL="+program, "MUSTER_GPU_DRIVER="+driver)
	if out, err := x.command("agent certificates --host 127.0.0.1 --out " + x.certs).CombinedOutput(); err != nil {
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
	x             *movers
	address, line string
	c             *exec.Cmd
}

func (x *movers) node(name, flags string) *node {
	a := &node{x: x, address: "127.0.0.1:0", line: "agent --gpu-interval 0 --node-name " + name + " --state-dir " + x.t.TempDir() + flags + x.tls("agent")}
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

func (x *movers) migrate(p *gputest.Program, to *node) *exec.Cmd {
	return x.command(fmt.Sprintf("migrate process %d --to %s --store %s --gpu-dir %s", p.PID, to.address, x.store, x.n.Dir) + x.tls("client"))
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
		"":                      "expected PID",
		"x --to n":              `PID: expected the ID of a process, such as 4711; found "x"`,
		"1":                     "--to: expected the agent of a node",
		"1 --to n --store s":    "--tls-cert: expected a file",
		"1 --to n --within 0s":  "--within: expected more than 0",
		"1 --to n --timeout 1h": "--timeout: expected more than 0 and at most 5m0s",
		"1 --to n --retries -1": "--retries: expected 0 or more; found -1",
		"1 --to n:1":            "--store: expected the folder",
		"1 --to n:1 --store s --tls-cert none --tls-key none --tls-ca none": "open none",
	} {
		x.says(x.command("migrate process "+line), 2, want)
	}
}
