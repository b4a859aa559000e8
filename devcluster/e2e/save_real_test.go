package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/pause"
)

// Real agents, and real programs that save themselves: only the kubelets are simulated, and the test starts and ends a program for each pod.

// asTrainer and asAgent have this test be such a program, or an agent; the value says for what.
const (
	asTrainer = "MUSTER_TEST_TRAINER"
	asAgent   = "MUSTER_TEST_AGENT"
)

// training is the whole state of a program: a chain of hashes.
type training struct {
	Step int
	Sum  [sha256.Size]byte
}

// steps is how many steps the program does in all.
const steps = 1500

func (x *training) next() {
	x.Step++
	x.Sum = sha256.Sum256(x.Sum[:])
}

// train does the steps that are left of what the folder has, with a pause of a millisecond between two, and saves itself there when it is
// asked to, which takes a while. It says in the folder how far it is (began, saving) and what the end is.
func train(folder string) error {
	var x training
	state := filepath.Join(folder, "state")
	if text, err := os.ReadFile(state); err == nil {
		if err := json.Unmarshal(text, &x); err != nil {
			return err
		}
	}
	path := func(name string) string {
		return filepath.Join(os.Getenv("MUSTER_GPU_DIR"), fmt.Sprintf("%d.%s", os.Getpid(), name))
	}
	self, err := os.Create(path("self.new"))
	if err != nil {
		return err
	}
	defer self.Close()
	if err := syscall.Flock(int(self.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if _, err := self.WriteString("durable\n"); err != nil {
		return err
	}
	if err := os.Rename(path("self.new"), path("self")); err != nil {
		return err
	}
	first, phase, last := x.Step, "Running", ""
	ran := func() error { // by this program
		return replace(filepath.Join(folder, fmt.Sprintf("ran-%d", os.Getpid())), fmt.Sprint(x.Step-first))
	}
	for x.Step < steps {
		text, err := os.ReadFile(path("ask"))
		if err == nil && string(text) != last {
			last = string(text)
			words := strings.Fields(last)
			if phase = words[1]; phase == "Saved" {
				state, err := json.Marshal(x)
				if err == nil {
					err = replace(filepath.Join(folder, "saving"), "")
				}
				time.Sleep(200 * time.Millisecond)
				if err = errors.Join(err, replace(filepath.Join(folder, "state"), string(state)), ran()); err != nil {
					return err
				}
			}
			if err := replace(path("says"), words[0]+" "+phase+"\n"); err != nil {
				return err
			}
		}
		if time.Sleep(time.Millisecond); phase == "Running" {
			if x.next(); x.Step-first == 300 {
				if err := replace(filepath.Join(folder, "began"), ""); err != nil {
					return err
				}
			}
		}
	}
	return errors.Join(ran(), replace(filepath.Join(folder, "end"), fmt.Sprintf("%x", x.Sum)))
}

// replace writes a file as a whole.
func replace(path, text string) error {
	if err := os.WriteFile(path+".tmp", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// serveAgent is the agent NODE of a folder, at an address: "NODE FOLDER HOST:PORT CERTIFICATES".
func serveAgent(text string) error {
	words := strings.Fields(text)
	a, err := agent.Open(agent.Options{
		Node: words[0], StateDir: filepath.Join(words[1], "state"), GPUDir: filepath.Join(words[1], "gpu"), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", words[2])
	if err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(words[3], name) }
	return a.Serve(context.Background(), l, agent.TLS{Cert: in("agent.crt"), Key: in("agent.key"), CA: in("ca.crt")}, []string{"muster"})
}

// machines are nodes with real agents.
type machines struct {
	*cluster
	dir     string
	address map[string]string // of the agents, by node
	agents  map[string]*exec.Cmd
}

// machines has nodes of the test have real agents.
func (c *cluster) machines(names ...string) *machines {
	c.Helper()
	m := &machines{c, c.TempDir(), map[string]string{}, map[string]*exec.Cmd{}}
	c.must(agent.WriteCertificates(m.in("certs"), []string{"muster-agent"}, "muster"))
	c.must(os.MkdirAll(m.in("shared"), 0o700))
	for _, name := range names {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		c.must(err)
		m.address[name] = l.Addr().String()
		c.must(l.Close())
		m.agent(name)
		c.editNode(name, func(n *v1.Node) {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AgentAnnotation, m.address[name])
		})
	}
	return m
}

func (m *machines) in(parts ...string) string {
	return filepath.Join(append([]string{m.dir}, parts...)...)
}

// ofNodes lets a scheduler reach the agents.
func (m *machines) ofNodes(k *kube.Config) {
	k.Agents = &pause.Network{Port: 1, Name: "muster-agent", TLS: agent.TLS{Cert: m.in("certs", "client.crt"), Key: m.in("certs", "client.key"), CA: m.in("certs", "ca.crt")}}
}

// agent starts the agent of a node.
func (m *machines) agent(node string) {
	m.Helper()
	m.agents[node] = m.start(asAgent+"="+strings.Join([]string{node, m.in(node), m.address[node], m.in("certs")}, " "), "")
}

// program starts the program of a pod, where the pod is.
func (m *machines) program(p *v1.Pod) *exec.Cmd {
	m.Helper()
	dir := m.in(p.Spec.NodeName, "gpu", string(p.UID))
	m.must(os.MkdirAll(dir, 0o700))
	return m.start(asTrainer+"="+m.in("shared"), dir)
}

func (m *machines) start(environment, gpuDir string) *exec.Cmd {
	m.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), environment, "MUSTER_GPU_DIR="+gpuDir)
	var said bytes.Buffer
	c.Stderr = &said
	m.must(c.Start())
	m.Cleanup(func() {
		kill(c)
		if m.Failed() {
			m.Logf("%s said:\n%s", environment, &said)
		}
	})
	return c
}

// kill is kill -9.
func kill(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// written waits until there is a file of the programs, and returns what it says.
func (m *machines) written(name string) (text string) {
	m.Helper()
	m.until("there is the file "+name, func() error {
		data, err := os.ReadFile(m.in("shared", name))
		text = string(data)
		return err
	})
	return text
}

// only waits until one pod of the Job runs, another than before, and returns it.
func (m *machines) only(before types.UID) (p v1.Pod) {
	m.Helper()
	m.until("the pod runs", func() error {
		pods := m.podsWith(batchv1.JobNameLabel, "train")
		if len(pods) != 1 || pods[0].UID == before || pods[0].Status.Phase != v1.PodRunning {
			return fmt.Errorf("there are %d", len(pods))
		}
		p = pods[0]
		return nil
	})
	return p
}

// A program is moved to another node by the checkpoint that it makes when its agent asks it to: it does no step twice and leaves none out, and
// its end has the same bits as without the move; also if the agent is killed while the program saves itself.
func TestProgramMovesBySaving(t *testing.T) {
	for name, killed := range map[string]bool{"as it is": false, "its agent is killed": true} {
		t.Run(name, func(t *testing.T) {
			c := begin(t)
			c.nodesNamed("n", 2)
			m := c.machines("n0", "n1")
			c.schedule(m.ofNodes)
			c.job("train", &batchv1.JobSpec{Template: podTemplate(asks(2), note(v1alpha1.CheckpointIntervalAnnotation, "1h"), note(v1alpha1.CheckpointWithinAnnotation, "20s"))})
			old := m.only("")
			first := m.program(&old)
			m.written("began")
			to := map[string]string{"n0": "n1", "n1": "n0"}[old.Spec.NodeName]
			c.move(&old, to)
			if killed {
				m.written("saving")
				kill(m.agents[old.Spec.NodeName])
				m.agent(old.Spec.NodeName)
			}
			c.gone(&old)
			kill(first)
			p := m.only(old.UID)
			if p.Spec.NodeName != to {
				t.Errorf("it is on %s", p.Spec.NodeName)
			}
			m.program(&p)

			m.endsAsAlone()
		})
	}
}

// endsAsAlone waits for the end of two programs of which one went on where the other had saved itself, and fails the test unless they did each
// step once, and came to what one program comes to alone.
func (m *machines) endsAsAlone() {
	m.Helper()
	var alone training
	for alone.Step < steps {
		alone.next()
	}
	if end := m.written("end"); end != fmt.Sprintf("%x", alone.Sum) {
		m.Errorf("it ends with %s; alone with %x", end, alone.Sum)
	}
	ran, done := 0, 0
	files, err := filepath.Glob(m.in("shared", "ran-*"))
	m.must(err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		m.must(err)
		_, err = fmt.Sscan(string(text), &ran)
		m.must(err)
		done += ran
	}
	if len(files) != 2 || done != steps {
		m.Errorf("%d programs did %d steps in all; expected 2 and %d", len(files), done, steps)
	}
}

// daemon is a scheduler that is a process of its own.
type daemon struct {
	*haunted
	of *instances
}

// kill is kill -9.
func (d *daemon) kill() {
	d.of.signal(d.haunted, syscall.SIGKILL)
	<-d.ended
}

// schedulers returns what starts one scheduler after the other, which reach the agents.
func (m *machines) schedulers() func() *daemon {
	running, n := &instances{cluster: m.cluster, counts: map[string]int{}}, 0
	return func() *daemon {
		m.Helper()
		n++
		p, err := running.start(&crashing{
			Host: identity.Host, Token: identity.BearerToken, CA: identity.CAData, Identity: fmt.Sprintf("saver-%d", n), Agents: m.in("certs"),
		})
		m.must(err)
		d := &daemon{p, running}
		m.Cleanup(func() {
			if d.kill(); m.Failed() {
				m.Logf("the scheduler said:\n%s", &p.said)
			}
		})
		return d
	}
}

// A program makes room for a job of higher priority, and goes on when that has ended, from the checkpoint that it made when its agent asked
// it to: it does no step twice and leaves none out; also if its agent, or the scheduler, is killed (kill -9) while the program saves itself.
func TestProgramMakesRoomBySaving(t *testing.T) {
	for _, killed := range []string{"nothing", "its agent", "the scheduler"} {
		t.Run(killed+" is killed", func(t *testing.T) {
			c := begin(t)
			high := c.priority("urgent", 1000)
			c.node("n0")
			m := c.machines("n0")
			start := m.schedulers()
			scheduler := start()
			c.job("train", &batchv1.JobSpec{Template: podTemplate(asks(2), note(v1alpha1.CheckpointWithinAnnotation, "20s"))})
			old := m.only("")
			first := m.program(&old)
			m.written("began")
			c.create(pod("high", asks(8), high))
			m.written("saving")
			switch killed {
			case "its agent":
				kill(m.agents["n0"])
				m.agent("n0")
			case "the scheduler":
				scheduler.kill()
				if p := c.get(old.Name); p.UID != old.UID || p.DeletionTimestamp != nil {
					t.Fatal("the pod left before its process had saved itself")
				}
				start()
			}
			c.gone(&old)
			kill(first)
			c.eventOf(&old, "Saved")
			c.bound("high")
			c.delete("high")
			p := m.only(old.UID)
			m.program(&p)
			m.endsAsAlone()
		})
	}
}
