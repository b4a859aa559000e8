package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/checkpoint/criu"
	"github.com/muster-sched/muster/gpu/gputest"
)

// containers are pods' containers on the machines: namespaces of processes and of mounts, in each of which muster run is the first process. The
// program that it runs knows nothing about Muster: a shell counts rounds, and a process that reads from it trains in the memory of a GPU.
type containers struct {
	*machines
	gpu     *gputest.Node
	trainer string
	with    []string // their environment
	command string
}

// began is what the program prints when it starts; what it prints when it goes on is no such line.
const began = "ready "

func (m *machines) containers() *containers {
	m.Helper()
	if err := (criu.Program{}).Check(m.Context()); err != nil {
		m.Skip(err)
	}
	if out, err := exec.Command("unshare", "--pid", "--mount", "--fork", "--mount-proc", "true").CombinedOutput(); err != nil {
		m.Skipf("unshare: %v: %s", err, out)
	}
	c := &containers{machines: m, gpu: gputest.NewNode(m, 64)}
	c.trainer, c.with = c.gpu.Trainer()
	program, driver, _ := c.gpu.Caller()
	c.with = append(append(os.Environ(), c.with...), "MUSTER_GPU_CALL="+program, "MUSTER_GPU_DRIVER="+driver)
	m.must(os.Mkdir(m.in("mounted"), 0o700))
	c.command = fmt.Sprintf(`n=0
{
	echo alloc %d
	while [ ! -e %s ]; do
		n=$((n + 1))
		echo %s
		sleep 0.01
	done
	echo rounds $n >&2
} | %s`, roundBytes, m.in("shared", "enough"), round, c.trainer)
	m.Cleanup(func() {
		if m.Failed() {
			m.Logf("the containers printed:\n%s", c.printed())
		}
	})
	return c
}

const roundBytes = 1 << 20

var round = fmt.Sprintf("train 0 %d 10", roundBytes)

// run starts the container of a pod, where the pod is.
func (c *containers) run(p *v1.Pod) *exec.Cmd {
	c.Helper()
	out, err := os.OpenFile(c.in("printed"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	c.must(err)
	defer out.Close()
	x := exec.Command("unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "sh", "-c", `mount --bind "$0" "$1" && shift && exec "$@"`,
		c.folder(p), c.in("mounted"), "muster", "run", "--name", "train", "--store", c.in("images"), "--gpu-dir", c.in("mounted"), "--", "sh", "-c", c.command)
	c.must(os.MkdirAll(c.folder(p), 0o700))
	x.Env, x.Stdout, x.Stderr = c.with, out, out
	c.must(x.Start())
	c.Cleanup(func() { kill(x) })
	return x
}

// folder is where the pod's process and the agent of its node meet.
func (c *containers) folder(p *v1.Pod) string { return c.in(p.Spec.NodeName, "gpu", string(p.UID)) }

// signal sends a signal to the first process of a container, once that is one that can take it, and waits until the container has ended.
func (c *containers) signal(x *exec.Cmd, s syscall.Signal) {
	c.Helper()
	c.until("the container has begun", func() error {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", x.Process.Pid, x.Process.Pid))
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
		if err != nil {
			return err
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return err
		}
		// The first process of a namespace does not get a signal for which it has no handler.
		_, caught, _ := strings.Cut(string(status), "SigCgt:")
		caught, _, _ = strings.Cut(caught, "\n")
		if mask, err := strconv.ParseUint(strings.TrimSpace(caught), 16, 64); s != syscall.SIGKILL && (err != nil || mask>>(s-1)&1 == 0) {
			return fmt.Errorf("process %d catches %s, %w", pid, caught, err)
		}
		return syscall.Kill(pid, s)
	})
	_ = x.Wait()
}

// killed ends a container as kill -9 of its first process does, and has two minutes pass for the name that it had. It says whether the job is in an image.
func (c *containers) killed(x *exec.Cmd) (saved bool) {
	c.Helper()
	c.signal(x, syscall.SIGKILL)
	claims, err := filepath.Glob(c.in("images", "leases", "name", "train", "*.alive"))
	c.must(err)
	for _, claim := range claims {
		c.must(replace(claim, "2026-01-01T00:00:00Z"))
	}
	images, err := filepath.Glob(c.in("images", "images", "*"))
	c.must(err)
	images = slices.DeleteFunc(images, func(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") }) // not whole
	return len(images) > 0
}

func (c *containers) printed() string {
	text, err := os.ReadFile(c.in("printed"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.Fatal(err)
	}
	return string(text)
}

// prints waits until the containers have printed a text so many times.
func (c *containers) prints(text string, times int) {
	c.Helper()
	c.until(fmt.Sprintf("%q is printed, %d times", text, times), func() error {
		if n := strings.Count(c.printed(), text); n < times {
			return fmt.Errorf("it is %d times", n)
		}
		return nil
	})
}

// comes waits until there is a file that has a text; a pattern of its path is enough. It looks often: the moment is to be met.
func (c *containers) comes(pattern, text string) {
	c.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		files, err := filepath.Glob(pattern)
		c.must(err)
		if slices.ContainsFunc(files, func(f string) bool {
			has, err := os.ReadFile(f)
			return err == nil && bytes.Contains(has, []byte(text))
		}) {
			return
		}
		if time.Now().After(deadline) {
			c.Fatalf("no file %s has %q", pattern, text)
		}
	}
}

// endsAsAlone lets the program end, and fails the test unless it printed, since its last start, what it prints alone, and it started so many times.
func (c *containers) endsAsAlone(last *exec.Cmd, starts int) {
	c.Helper()
	c.must(replace(c.in("shared", "enough"), ""))
	if err := last.Wait(); err != nil {
		c.Fatal(err)
	}
	// What Muster and unshare say, and how many rounds there were, is not the program's output.
	var lines []string
	rounds := 0
	for line := range strings.Lines(c.printed()) {
		if n, ok := strings.CutPrefix(line, "rounds "); ok {
			var err error
			rounds, err = strconv.Atoi(strings.TrimSpace(n))
			c.must(err)
		} else if !strings.HasPrefix(line, "muster: ") && !strings.HasPrefix(line, "unshare: ") {
			lines = append(lines, line)
		}
	}
	all := strings.Join(lines, "")
	if n := strings.Count(all, began); n != starts {
		c.Errorf("it was started %d times; expected %d", n, starts)
	}
	alone := exec.Command(c.trainer)
	alone.Env = c.with
	alone.Stdin = strings.NewReader(fmt.Sprintf("alloc %d\n", roundBytes) + strings.Repeat(round+"\n", rounds))
	out, err := alone.Output()
	c.must(err)
	// The address is of no interest, nor is the ID of the process.
	trained := func(text string) string {
		_, text, _ = strings.Cut(text[max(0, strings.LastIndex(text, began)):], "alloc ")
		_, text, _ = strings.Cut(text, "\n")
		return text
	}
	if got, want := trained(all), trained(string(out)); got != want || rounds == 0 {
		c.Errorf("in %d rounds it printed\n%s; alone\n%s", rounds, got, want)
	}
}

// A job under muster run makes room for a job of higher priority, and goes on when that has ended, in another container, from its image. What it
// prints is what it prints alone; also if, at any step of the way there or back, kill -9 ends the scheduler, the agent of the node, or muster run
// itself and with it the container. Only in the last case, and if the job is not in an image then, it is started again, as any job that crashes.
func TestRunMakesRoom(t *testing.T) {
	type kills struct {
		name string
		// when is the file of a folder, "" for that of the pod's process, and the text in it, that say that it is time.
		when   func(*containers, *v1.Pod) (pattern, text string)
		onBack bool // and not on the way to the image
	}
	asked := func(phase string) func(*containers, *v1.Pod) (string, string) {
		return func(c *containers, p *v1.Pod) (string, string) {
			return filepath.Join(c.folder(p), "1.ask"), " " + phase + " "
		}
	}
	for _, k := range []kills{
		{"when it is to stand still", asked("Gated"), false},
		{"when it is to save itself", asked("Saved"), false},
		{"when its image is written", func(c *containers, _ *v1.Pod) (string, string) { return c.in("images", "leases", "save-*"), "" }, false},
		{"when it has saved itself", func(c *containers, p *v1.Pod) (string, string) { return filepath.Join(c.folder(p), "1.says"), " Saved" }, false},
		{"when it is to go on", func(c *containers, _ *v1.Pod) (string, string) {
			return c.in("images", "leases", "name", "train", "*"), "pid"
		}, true},
	} {
		victims := []string{"the scheduler", "the agent", "muster run"}
		if k.onBack {
			victims = victims[2:] // alone
		}
		for _, victim := range victims {
			t.Run(victim+" is killed "+k.name, func(t *testing.T) { runMakesRoom(t, victim, k.onBack, k.when) })
		}
	}
	t.Run("none is killed", func(t *testing.T) { runMakesRoom(t, "", false, nil) })
}

func runMakesRoom(t *testing.T, victim string, onBack bool, when func(*containers, *v1.Pod) (pattern, text string)) {
	cluster := begin(t)
	high := cluster.priority("urgent", 1000)
	cluster.node("n0")
	m := cluster.machines("n0")
	c := m.containers()
	start := m.schedulers()
	scheduler, starts := start(), 1
	kills := func(p *v1.Pod, x *exec.Cmd) *exec.Cmd {
		t.Helper()
		c.comes(when(c, p))
		switch victim {
		case "the scheduler":
			scheduler.kill()
			start()
		case "the agent":
			kill(m.agents["n0"])
			m.agent("n0")
		case "muster run":
			if !c.killed(x) {
				starts++
			}
			x = c.run(p) // the kubelet starts the container again
		}
		return x
	}

	cluster.job("train", &batchv1.JobSpec{Template: podTemplate(asks(2), note(v1alpha1.CheckpointWithinAnnotation, "20s"))})
	old := m.only("")
	first := c.run(&old)
	c.prints("sum ", 3)
	cluster.create(pod("high", asks(8), high))
	if victim != "" && !onBack {
		first = kills(&old, first)
	}
	cluster.gone(&old)
	c.signal(first, syscall.SIGTERM)
	cluster.bound("high")
	cluster.delete("high")
	p := m.only(old.UID)
	sums := strings.Count(c.printed(), "sum ")
	second := c.run(&p)
	if victim != "" && onBack {
		second = kills(&p, second)
	}
	c.prints("sum ", sums+3)
	c.endsAsAlone(second, starts)
}
