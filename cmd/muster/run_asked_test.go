//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/checkpoint/criu"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/gpu/gputest"
)

// containers are what pods are made of here: namespaces of processes and of mounts, in each of which muster run is the first process.
type containers struct {
	t       *testing.T
	n       *gputest.Node
	dir     string
	printed string
	in      *os.File
	command string
}

func newContainers(t *testing.T) *containers {
	if err := (criu.Program{}).Check(t.Context()); err != nil {
		t.Skip(err)
	}
	if out, err := exec.Command("unshare", "--pid", "--mount", "--fork", "--mount-proc", "true").CombinedOutput(); err != nil {
		t.Skipf("unshare: %v: %s", err, out)
	}
	c := &containers{t: t, n: gputest.NewNode(t, 64), dir: t.TempDir()}
	c.printed = filepath.Join(c.dir, "out")
	trainer, _ := c.n.Trainer()
	in := filepath.Join(c.dir, "in")
	err := os.Symlink(os.Args[0], filepath.Join(c.dir, "muster")) // which is muster under this name
	if err == nil {
		err = syscall.Mkfifo(in, 0o600)
	}
	if err == nil {
		c.in, err = os.OpenFile(in, os.O_RDWR, 0)
	}
	if err == nil {
		err = os.Mkdir(filepath.Join(c.dir, "gpu"), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.in.Close() })
	c.command = "exec " + trainer + " <>" + in
	return c
}

// start starts the job in a container that has a folder of the node as its GPU folder.
func (c *containers) start(folder string) *exec.Cmd {
	c.t.Helper()
	program, driver, _ := c.n.Caller()
	_, environment := c.n.Trainer()
	out, err := os.OpenFile(c.printed, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		err = os.MkdirAll(folder, 0o700)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	defer out.Close()
	mounted := filepath.Join(c.dir, "gpu")
	x := exec.Command("unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "sh", "-c", `mount --bind "$0" "$1" && shift && exec "$@"`,
		folder, mounted, filepath.Join(c.dir, "muster"), "run", "--name", "train", "--store", filepath.Join(c.dir, "images"), "--gpu-dir", mounted, "--", "sh", "-c", c.command)
	x.Env = append(append(os.Environ(), environment...), "MUSTER_GPU_CALL="+program, "MUSTER_GPU_DRIVER="+driver)
	x.Stdout, x.Stderr = out, out
	if err := x.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { x.Process.Kill(); x.Wait() })
	return x
}

// until waits until a number of lines begin with a text, and returns what follows in the last one.
func (c *containers) until(n int, part string) string {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(c.printed)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil || time.Now().After(deadline) {
			c.t.Fatalf("expected %d times %q; found %q, %v", n, part, text, err)
		}
		rest := text
		for i := 0; i < n && rest != nil; i++ {
			if _, after, ok := bytes.Cut(rest, []byte(part)); ok {
				rest = after
			} else {
				rest = nil
			}
		}
		if line, _, ok := bytes.Cut(rest, []byte("\n")); ok && rest != nil {
			return string(line)
		}
	}
}

// terminate sends SIGTERM to the first process of a container, and returns the exit code.
func (c *containers) terminate(x *exec.Cmd) int {
	c.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", x.Process.Pid, x.Process.Pid))
	pid, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || bad != nil {
		c.t.Fatal(err, bad)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	x.Wait()
	return x.ProcessState.ExitCode()
}

// An unchanged program under muster run, in a container on a node with an agent: the agent finds the job and none of its processes, pauses and resumes it,
// and checkpoints and restores it. Paused and told to leave, it goes on in a container of another node, whose agent finds it there.
func TestAgentsLeadJobs(t *testing.T) {
	c := newContainers(t)
	certs := filepath.Join(t.TempDir(), "certs")
	muster := func(line string, want ...string) {
		t.Helper()
		var out, problem strings.Builder
		if code := run(strings.Fields(line), strings.NewReader(""), &out, &problem); code != 0 {
			t.Fatalf("muster %s: exit code %d\n%s%s", line, code, out.String(), problem.String())
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("muster %s: expected %q\n%s", line, w, out.String())
			}
		}
	}
	muster("agent certificates --out " + certs + " --host 127.0.0.1")
	store := filepath.Join(c.dir, "images")
	file := func(name string) string { return filepath.Join(certs, name) }
	serve := func(node string) (root, at string) {
		root = t.TempDir()
		images := agent.Store{Metrics: agent.NewMetrics(), Open: func(ctx context.Context) (*image.Images, error) { return image.Open(ctx, image.Dir(store), nil, true) }}
		a, err := agent.Open(agent.Options{Node: node, StateDir: t.TempDir(), GPUDir: root, Images: images, Log: slog.New(slog.DiscardHandler)})
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
			done <- a.Serve(ctx, l, agent.TLS{Cert: file("agent.crt"), Key: file("agent.key"), CA: file("ca.crt")}, []string{"muster"})
		}()
		t.Cleanup(func() { cancel(); <-done; a.Close() })
		return root, " --agent " + l.Addr().String() + " --tls-cert " + file("client.crt") + " --tls-key " + file("client.key") + " --tls-ca " + file("ca.crt")
	}
	root1, at1 := serve("n1")
	root2, at2 := serve("n2")

	first := c.start(filepath.Join(root1, "uid-1"))
	c.until(1, "ready ")
	fmt.Fprintf(c.in, "alloc %d\nsum 0 %d\n", 1<<20, 1<<20)
	sum := c.until(1, "sum ")
	muster("pause --list --json"+at1, `{"pod":"uid-1","pid":1,"phase":"Running","reservedBytes":0,"activeBytes":0,"untrackedCount":0,"durable":true}`+"\n")
	muster("pause --pod uid-1"+at1+" --timeout 1m", "uid-1    1  Saved")
	muster("image list --store "+store, "train")
	muster("resume --pod uid-1"+at1, "uid-1    1  Running")
	muster("checkpoint --pod uid-1 --id kept"+at1+" --timeout 1m", "uid-1    1  Saved")
	muster("image list --store "+store, "train")
	muster("restore --pod uid-1"+at1, "uid-1    1  Running")
	fmt.Fprintf(c.in, "sum 0 %d\n", 1<<20)
	if got := c.until(2, "sum "); got != sum {
		t.Errorf("%s before, %s after", sum, got)
	}
	muster("pause --pod uid-1"+at1+" --timeout 1m", "uid-1    1  Saved")
	if got := c.terminate(first); got != 143 {
		t.Fatalf("exit code %d", got)
	}
	second := c.start(filepath.Join(root2, "uid-2"))
	c.until(1, "goes on from image ")
	fmt.Fprintf(c.in, "sum 0 %d\n", 1<<20)
	if got := c.until(3, "sum "); got != sum {
		t.Errorf("%s on the first node, %s on the second", sum, got)
	}
	muster("pause --list"+at2, "uid-2    1  Running")
	if got := c.terminate(second); got != 143 {
		t.Errorf("exit code %d", got)
	}
}
