package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/gpu"
	"github.com/muster-sched/muster/internal/table"
)

// pauseLease is how long a process stays paused after the death of a command that
// has not finished. It is longer than any try.
const pauseLease = 10 * time.Minute

func newPause() *cobra.Command {
	var (
		asJSON, list bool
		dir, name    string
		timeout      = 10 * core.Second
		retries      = 3
		at           remote
	)
	c := &cobra.Command{
		Use:   "pause {PID... | JOB | --list | --agent HOST:PORT}",
		Short: "Pause processes that use a GPU, and free its memory",
		Long: `Pause stops the GPU work of processes of this machine, copies the GPU memory that
they use to files, and releases it. The processes stay, and so do their addresses:
muster resume continues them where they were, on the same GPU.

A process must run with Muster's libcuda.so.1 (make gpu), which LD_LIBRARY_PATH and
MUSTER_GPU_DIR tell it. Name all ranks of a job at once: either all are paused, or
all go on. A rank that waits for another one cannot come to rest; the command then
lets all go on, and tries again.

With --agent the agent of another node (muster agent) does it, to all processes of the
pod or to those named; --timeout then bounds all tries. With several agents the
processes of all nodes are one job: all are paused, or all go on.

JOB is a job of the Kubernetes cluster, or a pod of it, as for muster explain: the agents
of its pods' nodes pause all of its processes as one. It keeps its GPUs.`,
		Example: `  LD_LIBRARY_PATH=$PWD/bin/gpu MUSTER_GPU_DIR=/run/muster/gpu python train.py &
  muster pause --list
  muster pause 4711
  muster pause $(pgrep -f train.py) --timeout 30s
  muster resume 4711
  muster pause train-7b -n team-a --tls-cert client.crt --tls-key client.key --tls-ca ca.crt
  muster pause --agent node-1:9440 --pod 5d1f… --timeout 2m --tls-cert client.crt --tls-key client.key --tls-ca ca.crt`,
		RunE: func(c *cobra.Command, args []string) error {
			args, err := at.find(c, list, args)
			if err != nil {
				return err
			}
			if list {
				return listPausable(c, &at, dir, args, asJSON)
			}
			pids, err := processes(c, args, at.used())
			if err != nil {
				return err
			}
			if timeout <= 0 || time.Duration(timeout) > pauseLease/2 {
				return badUsage(c, "--timeout: expected more than 0 and at most %v; found %v", pauseLease/2, time.Duration(timeout))
			}
			if retries < 0 {
				return badUsage(c, "--retries: expected 0 or more; found %d", retries)
			}
			if at.used() {
				return at.do(c, agentpb.Action_ACTION_PAUSE, pids, time.Duration(timeout), retries, asJSON)
			}
			backend, err := openBackend(c, name, dir, pids)
			if err != nil {
				return err
			}
			defer backend.Close()
			ctx, stop := interruptible(c)
			defer stop()
			began, try := time.Now(), time.Duration(timeout)
			if !c.Flags().Changed("timeout") {
				try = checkpoint.Longest(backend, pids, try)
			}
			if err := checkpoint.Pause(ctx, backend, pids, checkpoint.Options{Timeout: try, Retries: retries, Backoff: time.Second}); err != nil {
				return pauseError(dir, err)
			}
			return writeChanged(c, backend, pids, time.Since(began), asJSON)
		},
	}
	dirFlag(c, &dir)
	c.Flags().StringVar(&name, "backend", "auto", "what pauses the processes: shim, driver, hybrid, which is both, replay, which is shim and destroys and makes again what is left, framework, which is themselves, none, or auto: shim or framework as each process has it, else driver")
	c.Flags().BoolVar(&list, "list", false, "list the processes that can be paused, and those that are")
	durationVar(c.Flags(), &timeout, "timeout", "of one try: how long the GPU work in progress may take to end, and its memory to be copied; if it is not set, longer for a process that says so")
	c.Flags().IntVar(&retries, "retries", retries, "how often to try again; before each try the command waits, 1 s at first and then twice as long")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a process, each on a line")
	at.flags(c)
	return c
}

func newResume() *cobra.Command {
	var (
		asJSON  bool
		dir     string
		name    string
		timeout = 5 * 60 * core.Second
		at      remote
	)
	c := &cobra.Command{
		Use:   "resume {PID... | JOB | --agent HOST:PORT}",
		Short: "Continue paused processes",
		Long: `Resume gives paused processes their GPU memory back, at the same addresses, and
continues them. Where the GPU has too little free memory for one of them, all stay
paused. The saved memory is compared with its checksums first: damaged memory never
reaches the GPU.

With --agent the agent of another node (muster agent) does it, to all processes of the
pod or to those named. With several agents all go on, or all stay paused. So do the
processes of JOB, a job of the Kubernetes cluster in the kubeconfig, or a pod of it,
that muster pause has paused.`,
		Example: `  muster resume 4711
  muster resume 4711 4712 --timeout 1m
  muster resume train-7b -n team-a --tls-cert client.crt --tls-key client.key --tls-ca ca.crt`,
		RunE: func(c *cobra.Command, args []string) error {
			args, err := at.find(c, false, args)
			if err != nil {
				return err
			}
			pids, err := processes(c, args, at.used())
			if err != nil {
				return err
			}
			if timeout <= 0 {
				return badUsage(c, "--timeout: expected more than 0; found %v", time.Duration(timeout))
			}
			if at.used() {
				return at.do(c, agentpb.Action_ACTION_RESUME, pids, time.Duration(timeout), 0, asJSON)
			}
			backend, err := openBackend(c, name, dir, pids)
			if err != nil {
				return err
			}
			defer backend.Close()
			ctx, stop := interruptible(c)
			defer stop()
			began := time.Now()
			if err := checkpoint.Resume(ctx, backend, pids, time.Duration(timeout)); err != nil {
				return pauseError(dir, err)
			}
			return writeChanged(c, backend, pids, time.Since(began), asJSON)
		},
	}
	dirFlag(c, &dir)
	c.Flags().StringVar(&name, "backend", "auto", "what continues the processes: a name as for muster pause, or auto: whatever holds them")
	durationVar(c.Flags(), &timeout, "timeout", "how long the memory may take to be restored")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a process, each on a line")
	at.flags(c)
	return c
}

func dirFlag(c *cobra.Command, to *string) {
	dir := os.Getenv("MUSTER_GPU_DIR")
	if dir == "" {
		dir = "/run/muster/gpu"
	}
	c.Flags().StringVar(to, "gpu-dir", dir, "the folder that the processes have as MUSTER_GPU_DIR")
}

// openBackend opens the backend of the name for the processes.
func openBackend(c *cobra.Command, name, dir string, pids []int) (checkpoint.Local, error) {
	if err := checkBackend(c, name); err != nil {
		return nil, err
	}
	backend, err := checkpoint.Choose(name, dir, pauseLease, gpuCalls(dir), pids)
	if err != nil {
		return nil, pauseError(dir, err)
	}
	return backend, nil
}

func checkBackend(c *cobra.Command, name string) error {
	if !slices.Contains(checkpoint.Names, name) {
		return badUsage(c, "--backend: expected one of %s; found %q", strings.Join(checkpoint.Names, ", "), name)
	}
	return nil
}

// gpuCalls makes the driver's calls for processes of a folder.
func gpuCalls(dir string) *gpu.Calls {
	return &gpu.Calls{Program: gpuProgram("muster-gpu-call", "MUSTER_GPU_CALL"), Driver: os.Getenv("MUSTER_GPU_DRIVER"), Dir: dir}
}

// gpuProgram is the path of a C program that calls the driver: what the environment says, or where make gpu puts it beside muster.
func gpuProgram(name, environment string) string {
	if path := os.Getenv(environment); path != "" {
		return path
	}
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), "gpu", name)
}

// processes reads process IDs.
func processes(c *cobra.Command, args []string, mayBeNone bool) ([]int, error) {
	if len(args) == 0 && !mayBeNone {
		return nil, badUsage(c, "expected a PID")
	}
	var pids []int
	seen := map[int]bool{}
	for _, arg := range args {
		pid, err := strconv.Atoi(arg)
		if err != nil || pid <= 0 {
			return nil, badUsage(c, "PID: expected the ID of a process, such as 4711; found %q", arg)
		}
		if seen[pid] {
			return nil, badUsage(c, "PID: expected each process once; found %d twice", pid)
		}
		seen[pid] = true
		pids = append(pids, pid)
	}
	return pids, nil
}

// pauseError adds what to do next.
func pauseError(dir string, err error) error {
	switch {
	case errors.Is(err, gpu.ErrNoPage):
		return fmt.Errorf("%w; muster pause --list shows those in %s", err, dir)
	case errors.Is(err, gpu.ErrNoMemory):
		return fmt.Errorf("%w: pause or end what uses it, and try again", err)
	case errors.Is(err, gpu.ErrDamaged):
		return fmt.Errorf("%w: the process cannot go on; start it again from its last checkpoint", err)
	case errors.Is(err, gpu.ErrRefused):
		return fmt.Errorf("%w; --backend shim pauses it and leaves its contexts on the GPU", err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w; name all ranks of the job, or use a longer --timeout", err)
	}
	return err
}

// listPausable is pause --list.
func listPausable(c *cobra.Command, at *remote, dir string, args []string, asJSON bool) error {
	if len(args) > 0 {
		return badUsage(c, "--list: expected no PID with it; found %s", args[0])
	}
	if at.used() {
		return at.list(c, asJSON)
	}
	return listProcesses(c, dir, asJSON)
}

func listProcesses(c *cobra.Command, dir string, asJSON bool) error {
	backend := checkpoint.NewFolder(dir, pauseLease)
	defer backend.Close()
	pids, err := checkpoint.List(dir)
	if err != nil {
		return err
	}
	var found []checkpoint.Status
	for _, pid := range pids {
		st, err := backend.Status(pid)
		switch {
		case errors.Is(err, gpu.ErrGone), errors.Is(err, gpu.ErrNoPage):
			continue // it ended; its files are removed
		case err != nil:
			fmt.Fprintf(c.ErrOrStderr(), "muster: %v\n", err)
			continue
		}
		if st.Released {
			st.Phase = checkpoint.Released
		}
		found = append(found, st)
	}
	if len(found) == 0 && !asJSON {
		_, err := fmt.Fprintf(c.OutOrStdout(), "No process in %s can be paused.\n", table.Printable(dir))
		return err
	}
	return writeStatus(c, found, 0, asJSON)
}

// isSaved says that what a process uses of the GPU is on the host.
func isSaved(p checkpoint.Phase) bool {
	return p == checkpoint.Saved || p == checkpoint.Released || p == checkpoint.Checkpointed
}

func writeChanged(c *cobra.Command, backend checkpoint.Local, pids []int, took time.Duration, asJSON bool) error {
	var all []checkpoint.Status
	for _, pid := range pids {
		st, err := backend.Status(pid)
		if err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
		all = append(all, st)
	}
	return writeStatus(c, all, took, asJSON)
}

func writeStatus(c *cobra.Command, all []checkpoint.Status, took time.Duration, asJSON bool) error {
	w := c.OutOrStdout()
	if asJSON {
		encoder := json.NewEncoder(w)
		for _, st := range all {
			if err := encoder.Encode(st); err != nil {
				return err
			}
		}
		return nil
	}
	t := table.Table{Align: "rlrrr"}
	t.Add("PID", "PHASE", "RESERVED", "ACTIVE", "UNTRACKED")
	var active int64
	for _, st := range all {
		copied := "-"
		if isSaved(st.Phase) {
			copied = mebibytes(st.Active)
			active += st.Active
		}
		t.Add(strconv.Itoa(st.PID), string(st.Phase), mebibytes(st.Reserved), copied, strconv.Itoa(st.Untracked))
	}
	if err := t.Write(w, 0); err != nil {
		return err
	}
	if took == 0 {
		return nil
	}
	rate := ""
	if active > 0 {
		rate = fmt.Sprintf(", %.1f GB/s", float64(active)/1e9/took.Seconds())
	}
	_, err := fmt.Fprintf(w, "in %v%s\n", took.Round(time.Millisecond), rate)
	return err
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<19)>>20) }
