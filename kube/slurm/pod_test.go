package slurm

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/muster-sched/muster/core"
)

// The pods of these tests are processes on this machine, with what the containers of the Job have: its command, its
// environment, and the files of its Secret. They find each other at an address of this machine.

// pods are those of a job.
type pods struct {
	*testing.T
	objects *Objects
	dir     string
	list    []*pod
}

type pod struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
	done     chan struct{}
}

// begin starts the pods of a submission; those of an array are its jobs.
func begin(t *testing.T, s *Submission, env ...string) *pods {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	s.Image, s.File = "i", "run.sh"
	o, err := s.Objects()
	if err != nil {
		t.Fatal(err)
	}
	p := &pods{T: t, objects: o, dir: t.TempDir()}
	for _, item := range o.Jobs[0].Spec.Template.Spec.Volumes[0].Secret.Items {
		file := filepath.Join(p.dir, item.Path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(o.Secret.StringData[item.Key]), 0o755); err != nil { //nolint:gosec // they are programs
			t.Fatal(err)
		}
	}
	for _, j := range o.Jobs {
		p.start(j, env)
	}
	t.Cleanup(func() {
		for _, pod := range p.list {
			_ = syscall.Kill(-pod.cmd.Process.Pid, syscall.SIGKILL)
			<-pod.done
		}
	})
	return p
}

// start starts the pods of a Job.
func (p *pods) start(j *batchv1.Job, env []string) {
	p.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	main := &j.Spec.Template.Spec.Containers[0]
	for i := range int(*j.Spec.Completions) {
		index := strconv.Itoa(i)
		pod := &pod{done: make(chan struct{})}
		var args []string
		for _, a := range main.Command {
			a = strings.ReplaceAll(a, "$$", "$")
			if rest, ok := strings.CutPrefix(a, mountPath+"/"); ok {
				a = filepath.Join(p.dir, rest)
			}
			args = append(args, a)
		}
		pod.cmd = exec.Command(args[0], args[1:]...)
		pod.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "MUSTER_DIR=" + p.dir, "JOB_COMPLETION_INDEX=" + index, "HOSTNAME=pod-" + index}, env...)
		for _, e := range main.Env {
			value := strings.ReplaceAll(e.Value, "$$(", "$(")
			if e.ValueFrom != nil {
				value = index
			}
			if e.Name == "MUSTER_BATCH_ADDRESS" {
				value = address
			}
			pod.cmd.Env = append(pod.cmd.Env, e.Name+"="+value)
		}
		pod.cmd.Dir = p.TempDir()
		pod.cmd.Stdout, pod.cmd.Stderr = &pod.out, &pod.err
		pod.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := pod.cmd.Start(); err != nil {
			p.Fatal(err)
		}
		go func() {
			_ = pod.cmd.Wait()
			close(pod.done)
		}()
		p.list = append(p.list, pod)
	}
}

// code waits for a pod to end and returns its exit code.
func (p *pods) code(i int) int {
	p.Helper()
	select {
	case <-p.list[i].done:
		return p.list[i].cmd.ProcessState.ExitCode()
	case <-time.After(time.Minute):
		p.Fatalf("pod %d does not end", i)
		return -1
	}
}

// ends checks how all pods end and what the first one, and with it the script, has written.
func (p *pods) ends(want string, codes ...int) {
	p.Helper()
	for i, c := range codes {
		if got := p.code(i); got != c {
			p.Errorf("pod %d: exit code %d, want %d\n%s", i, got, c, p.list[i].err.String())
		}
	}
	if got := p.list[0].out.String(); got != want {
		p.Errorf("got %s\nwant %s\n%s", got, want, p.list[0].err.String())
	}
}

// The script of PyTorch's examples: it finds the address of the first node, and srun starts a launcher on each.
func TestTorchrunOnNodes(t *testing.T) {
	t.Parallel()
	p := begin(t, &Submission{Name: "My_Train", Nodes: 3, TasksPerNode: 1, GPUsPerNode: 8, CPUs: 4, Args: []string{"--lr", "1e-3 $(x)"}, Script: `#!/bin/bash
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node=${nodes[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" echo 10.0.0.7)
export LOGLEVEL=INFO
torchrun() { :; }
echo "$SLURM_JOB_NAME has $SLURM_NNODES nodes, $SLURM_NTASKS tasks, $SLURM_GPUS_ON_NODE GPUs; this is ${SLURMD_NODENAME%%.*} with $*"
srun sh -c 'echo rank $SLURM_PROCID on node $SLURM_NODEID ${SLURMD_NODENAME%%.*} of $SLURM_NNODES: torchrun --rdzv_endpoint $0:29500 $LOGLEVEL "$@"' $head_node_ip "$@" | sort
`})
	p.ends(`My_Train has 3 nodes, 3 tasks, 8 GPUs; this is my-train-0 with --lr 1e-3 $(x)
rank 0 on node 0 my-train-0 of 3: torchrun --rdzv_endpoint 10.0.0.7:29500 INFO --lr 1e-3 $(x)
rank 1 on node 1 my-train-1 of 3: torchrun --rdzv_endpoint 10.0.0.7:29500 INFO --lr 1e-3 $(x)
rank 2 on node 2 my-train-2 of 3: torchrun --rdzv_endpoint 10.0.0.7:29500 INFO --lr 1e-3 $(x)
`, 0, 0, 0)
	// What a task writes is in the log of its pod too.
	if got := p.list[2].out.String(); !strings.HasPrefix(got, "rank 2 on node 2") || strings.Contains(got, "rank 1") {
		t.Errorf("the log of the last pod is %q", got)
	}
}

// A rank for each GPU of two nodes, each of which sees its own.
func TestRanksOfNodes(t *testing.T) {
	t.Parallel()
	p := begin(t, &Submission{Name: "j", Nodes: 2, TasksPerNode: 2, GPUsPerTask: 2, Script: `#!/bin/sh
srun -l sh -c 'echo local $SLURM_LOCALID of $SLURM_NTASKS_PER_NODE on $SLURM_NODEID, GPUs $CUDA_VISIBLE_DEVICES, job $SLURM_JOB_ID' | sed s/$SLURM_JOB_ID/ID/ | sort
`})
	p.ends(`0: local 0 of 2 on 0, GPUs 0,1, job ID
1: local 1 of 2 on 0, GPUs 2,3, job ID
2: local 0 of 2 on 1, GPUs 0,1, job ID
3: local 1 of 2 on 1, GPUs 2,3, job ID
`, 0, 0)
}

// A job of one node, in which srun is not needed, or starts what the node has.
func TestOneNode(t *testing.T) {
	t.Parallel()
	p := begin(t, &Submission{Name: "j", GPUs: 4, Script: `#!/usr/bin/env python3
import os, subprocess, sys
print(os.environ["SLURM_NNODES"], os.environ["SLURM_PROCID"], os.environ["SLURM_GPUS_ON_NODE"], sys.argv[1:], flush=True)
subprocess.check_call(["srun", "-n", "2", "--gres=gpu:1", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"])
`, Args: []string{"a b"}})
	p.ends("1 0 4 ['a b']\n0\n0\n", 0)
}

// The jobs of an array have their indices, and ids of their own.
func TestArray(t *testing.T) {
	t.Parallel()
	a, err := ParseArray("1,4-10:3%2")
	if err != nil {
		t.Fatal(err)
	}
	p := begin(t, &Submission{Name: "sweep", Array: a, Script: "#!/bin/sh\necho $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT to $SLURM_ARRAY_TASK_MAX, $((SLURM_JOB_ID - SLURM_ARRAY_JOB_ID)), $(srun -n1 echo step)\n"})
	for i, index := range []string{"1", "4", "7", "10"} {
		p.code(i)
		if want := fmt.Sprintf("%s of 4 to 10, %d, step\n", index, i); p.list[i].out.String() != want {
			t.Errorf("got %q, want %q\n%s", p.list[i].out.String(), want, p.list[i].err.String())
		}
	}
	if n := *p.objects.Jobs[0].Spec.Parallelism; n != 2 {
		t.Errorf("%d run at a time", n)
	}
	s := Submission{Image: "i", Command: []string{"sh", "-c", "echo $SLURM_ARRAY_TASK_ID"}, Array: a}
	o, err := s.Objects()
	if err != nil || o.Secret == nil || !slices.Equal(o.Jobs[0].Spec.Template.Spec.Containers[0].Command[:3], []string{"/bin/sh", "/muster/start", "sh"}) {
		t.Errorf("a command of an array that does not begin with 0: %v, %v", o.Jobs[0].Spec.Template.Spec.Containers[0].Command, err)
	}
}

// Each index of an array whose jobs have several nodes is a gang: a script, with steps on the nodes of its own Job.
func TestArrayOfGangs(t *testing.T) {
	t.Parallel()
	p := begin(t, &Submission{Name: "sweep", Array: Array{Indices: []int{3, 8}, AtOnce: 1}, Nodes: 2, Script: `#!/bin/sh
echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT from $SLURM_ARRAY_TASK_MIN to $SLURM_ARRAY_TASK_MAX, $((SLURM_JOB_ID - SLURM_ARRAY_JOB_ID)), $SLURM_JOB_NODELIST
srun -l sh -c 'echo $SLURM_ARRAY_TASK_ID.$SLURM_PROCID on $SLURMD_NODENAME' | sort
`})
	for i, index := range []string{"3", "8"} {
		p.code(2 * i)
		node := func(n int) string { return fmt.Sprintf("sweep-%s-%d.sweep", index, n) }
		want := fmt.Sprintf("%s of 2 from 3 to 8, %d, %s,%s\n0: %s.0 on %s\n1: %s.1 on %s\n", index, i, node(0), node(1), index, node(0), index, node(1))
		if got := p.list[2*i].out.String(); got != want {
			t.Errorf("got %q, want %q\n%s", got, want, p.list[2*i].err.String())
		}
	}
	o := p.objects
	for i, j := range o.Jobs {
		if j.Labels["muster.sh/slurm-array"] != "sweep" || j.Spec.Template.Labels["muster.sh/slurm-array"] != "sweep" || j.Annotations["muster.sh/slurm-array-limit"] != "1" ||
			j.Name != []string{"sweep-3", "sweep-8"}[i] || j.Spec.Template.Spec.Subdomain != "sweep" || j.Spec.Scheduling == nil || *j.Spec.Parallelism != 2 || j.Spec.SuccessPolicy == nil {
			t.Errorf("Job %d is %+v", i, j)
		}
	}
	if o.Service.Name != "sweep" || o.Service.Spec.Selector["muster.sh/slurm-array"] != "sweep" || o.Secret.Name != "sweep" {
		t.Errorf("the Service is %+v", o.Service)
	}
	s := Submission{Image: "i", Command: []string{"x"}, Tasks: 2, Array: Array{Indices: []int{5}}}
	o, err := s.Objects()
	if err != nil || o.Secret != nil || variable(&o.Jobs[0].Spec.Template.Spec.Containers[0], "SLURM_ARRAY_TASK_ID") != "5" || !slices.Equal(o.Jobs[0].Spec.Template.Spec.Containers[0].Command, []string{"x"}) {
		t.Errorf("a command: %+v, %v", o, err)
	}
}

// Steps end with the highest code of their tasks, and the job with that of its script.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	p := begin(t, &Submission{Name: "j", Nodes: 2, TasksPerNode: 2, Script: `#!/bin/bash
srun sh -c 'exit $SLURM_PROCID'; echo $?
srun -n 1 -N 1 sh -c 'kill -9 $$'; echo $?
srun no-such-program; echo $?
srun --multi-prog x; echo $?
srun -N 3 true; echo $?
srun -w other true; echo $?
srun -K sh -c '[ $SLURM_PROCID = 3 ] && exit 9; sleep 1000'; echo $?
exit 5
`})
	p.ends("3\n137\n2\n1\n1\n1\n143\n", 5, 0)
	for _, want := range []string{"srun: error: task 3: Exited with exit code 3", "srun: error: execve(): no-such-program: No such file or directory",
		"srun: error: --multi-prog: use one srun for each program", "expected at most 2 nodes; found 3", "the job has no node other"} {
		if !strings.Contains(p.list[0].err.String(), want) {
			t.Errorf("%q is not in %s", want, p.list[0].err.String())
		}
	}
}

// A step ends when nobody reads its output any longer, as a program alone does, whatever it writes to.
func TestOutputWithoutReader(t *testing.T) {
	t.Parallel()
	p := begin(t, &Submission{Name: "j", Nodes: 2, Script: `#!/bin/bash
srun sh -c 'while :; do echo out; done' | head -n 1; echo ${PIPESTATUS[0]}
srun sh -c 'while :; do echo err; done >&2' 2>&1 | head -n 1; echo ${PIPESTATUS[0]}
srun sh -c 'echo all; exit 4' | true; echo ${PIPESTATUS[0]} | sed s/137/4/ # whichever comes first
`})
	p.ends("out\n137\nerr\n137\n4\n", 0, 0)
	if got := p.list[0].err.String(); strings.Contains(got, "Traceback") || strings.Contains(got, "Exception") || !strings.Contains(got, "srun: error: task 0: SIGKILL") {
		t.Errorf("the script's errors: %s", got)
	}
}

// Steps in the background share the nodes: those for which there is no room wait.
func TestStepsTakeTurns(t *testing.T) {
	t.Parallel()
	p := begin(t, &Submission{Name: "j", Nodes: 1, TasksPerNode: 2, GPUsPerNode: 2, Script: `#!/bin/bash
for i in 1 2 3 4 5; do
  srun -n 1 --exclusive --gres=gpu:1 sh -c 'mkdir gpu$CUDA_VISIBLE_DEVICES && sleep 0.2 && rmdir gpu$CUDA_VISIBLE_DEVICES && echo ran' &
done
wait
`})
	p.ends(strings.Repeat("ran\n", 5), 0)
}

// What a step reads, writes to files and gets of the environment.
func TestStepsFiles(t *testing.T) {
	t.Parallel()
	p := begin(t, &Submission{Name: "j", Nodes: 2, Script: `#!/bin/bash
printf 'a\nb\n' | srun -l tr a-z A-Z | sort
export KEPT=1
srun --export=NONE,B="x y" sh -c 'echo "[$KEPT] $B $SLURM_PROCID"' | sort
srun -o out.%j.%t sh -c 'echo to file $SLURM_PROCID'
srun -o all.txt sh -c 'echo to one file'; sort all.txt
sed "s/^/0: /" out.$SLURM_JOB_ID.0
cd /usr; srun -n1 pwd
scontrol show hostnames 'n[09-10,12].x,m'
scontrol show job 5
`})
	p.ends("0: A\n0: B\n1: A\n1: B\n[] x y 0\n[] x y 1\nto one file\nto one file\n0: to file 0\n/usr\nn09.x\nn10.x\nn12.x\nm\n", 1, 0)
	if list, _ := filepath.Glob(filepath.Join(p.list[0].cmd.Dir, "out.*.1")); len(list) == 0 { // the pods share no disk, but here they do
		t.Error("the file of the second task is not there")
	}
}

// Before the time limit the script or the steps get the signal that was asked for.
func TestSignalBeforeTheLimit(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes ten seconds, and twice that beside other work")
	}
	for _, batch := range []bool{true, false} {
		script := `#!/bin/bash
trap 'echo script; kill $!; exit 3' USR1
srun -n1 sleep 1000 & wait
`
		want, code := "script\n", 3
		if !batch {
			script, want, code = "#!/bin/bash\nsrun bash -c 'trap \"echo step $SLURM_PROCID; exit 4\" USR1; sleep 1000 & wait' | sort\nexit ${PIPESTATUS[0]}\n", "step 0\nstep 1\n", 4
		}
		p := begin(t, &Submission{Name: "j", Nodes: 2, Walltime: 6 * core.Second, Signal: Signal{"USR1", batch, core.Second}, Script: script})
		p.ends(want, code, 0)
	}
}

// told waits until a pod has written a text.
func (p *pods) told(file, text string) {
	p.Helper()
	for range 3000 {
		data, _ := os.ReadFile(file)
		if strings.Contains(string(data), text) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.Fatalf("%s does not have %q", file, text)
}

// A pod that is told to leave passes that on to its tasks, as on an eviction, when all are.
func TestEviction(t *testing.T) {
	t.Parallel()
	p := begin(t, &Submission{Name: "j", Nodes: 2, Script: `#!/bin/bash
srun bash -c 'trap "echo saved $SLURM_PROCID; exit 0" TERM; touch $OUT/up$SLURM_PROCID; echo up > $OUT/up$SLURM_PROCID; sleep 1000 & wait' | sort
`}, "OUT="+t.TempDir())
	var out string
	for _, e := range p.list[0].cmd.Env {
		if v, ok := strings.CutPrefix(e, "OUT="); ok {
			out = v
		}
	}
	p.told(filepath.Join(out, "up0"), "up")
	p.told(filepath.Join(out, "up1"), "up")
	for _, pod := range p.list {
		_ = pod.cmd.Process.Signal(syscall.SIGTERM)
	}
	p.code(0)
	if code := p.code(1); code != 143 {
		t.Errorf("the second pod ends with %d", code)
	}
	if !strings.Contains(p.list[1].out.String(), "saved 1") {
		t.Errorf("the second pod has written %q", p.list[1].out.String())
	}
}

// A job whose node is lost waits to be stopped, and fails where it is not. A pod whose first pod is lost does so too.
func TestLostNodes(t *testing.T) {
	t.Parallel()
	for lost := range 2 {
		out := t.TempDir()
		p := begin(t, &Submission{Name: "j", Nodes: 2, Script: "#!/bin/sh\nsrun sh -c 'echo up > $OUT/up$SLURM_PROCID; [ $SLURM_PROCID = 1 ] && exec sleep 1000'\n"}, "OUT="+out, "MUSTER_LOST_WAIT=0.2")
		p.told(filepath.Join(out, "up1"), "up")
		_ = syscall.Kill(-p.list[lost].cmd.Process.Pid, syscall.SIGKILL)
		if code := p.code(1 - lost); code != 1 {
			t.Errorf("pod %d ends with %d", 1-lost, code)
		}
		want := []string{"the job's first pod is gone", "srun: error: node j-1.j is lost"}[lost]
		if got := p.list[1-lost].err.String(); !strings.Contains(got, want) {
			t.Errorf("pod %d says %q", 1-lost, got)
		}
	}
}

// Only who has the key of the job can be one of its nodes.
func TestStrangers(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	p := begin(t, &Submission{Name: "j", Nodes: 2, Script: "#!/bin/sh\nsrun true\necho > $OUT/up\nwhile [ ! -e $OUT/end ]; do sleep 0.1; done\nsrun echo fine\n"}, "OUT="+out)
	p.told(filepath.Join(out, "up"), "")
	for range 3000 {
		if _, err := os.Stat(filepath.Join(out, "up")); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	address := ""
	for _, e := range p.list[0].cmd.Env {
		if v, ok := strings.CutPrefix(e, "MUSTER_BATCH_ADDRESS="); ok {
			address = v
		}
	}
	var wait sync.WaitGroup
	for _, hello := range []string{"{\"node\": 1, \"proof\": \"0000\", \"nonce\": \"x\"}\n", "{}\n", "x\n", "[]\n", "{\"node\": \"1\"}\n"} {
		wait.Go(func() {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = c.Write([]byte(hello))
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			var all bytes.Buffer
			if _, err := all.ReadFrom(c); err != nil || strings.Count(all.String(), "\n") != 1 {
				t.Errorf("%q: got %q, %v", hello, all.String(), err)
			}
		})
	}
	wait.Wait()
	if err := os.WriteFile(filepath.Join(out, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.ends("fine\nfine\n", 0, 0)
}

// An image without Python runs scripts of one node; others say what they lack.
func TestNoPython(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	for _, name := range []string{"sh", "cut", "hostname", "tr"} {
		if file, err := exec.LookPath(name); err != nil || os.Symlink(file, filepath.Join(bin, name)) != nil {
			t.Fatal(name, err)
		}
	}
	p := begin(t, &Submission{Name: "j", Script: "#!/bin/sh\necho $SLURM_NNODES; srun true; echo $?\n"}, "PATH="+bin)
	p.ends("1\n127\n", 0)
	p = begin(t, &Submission{Name: "j", Nodes: 2, Script: "#!/bin/sh\necho\n"}, "PATH="+bin)
	p.ends("", 127, 127)
	if got := p.list[1].err.String(); !strings.Contains(got, "the image has no python3") {
		t.Errorf("got %q", got)
	}
}
