package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/offload"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/gpu"
)

// The flags that are for this machine alone: an agent has a store of its own.
var ofThisMachine = []string{"store", "key", "name", "gpu-dir", "retries", "process", "ghost", "scratch", "image"}

// atAgent finds the one agent that the arguments or flags name, and returns the processes; false: this machine is meant.
func (r *remote) atAgent(c *cobra.Command, args []string) (pids []int, at bool, err error) {
	args, err = r.find(c, false, args)
	if err != nil {
		return nil, false, err
	}
	if pids, err = processes(c, args, r.used()); err != nil || !r.used() {
		return pids, false, err
	}
	if len(r.addresses) > 1 || len(r.pods) > 1 {
		return nil, true, badUsage(c, "expected the processes of one pod: muster pause pauses those of several as one")
	}
	for _, flag := range ofThisMachine {
		if c.Flags().Changed(flag) {
			return nil, true, badUsage(c, "--%s: it is for this machine: an agent has its own (muster agent --image-store)", flag)
		}
	}
	return pids, true, nil
}

func newCheckpoint() *cobra.Command {
	var (
		dir, name string
		timeout   = 10 * core.Second
		retries   = 3
		process   bool
		ghost     bool
		scratch   string
		of        storeFlags
		at        remote
	)
	c := &cobra.Command{
		Use:   "checkpoint {PID... --store STORE | JOB | --agent HOST:PORT}",
		Short: "Pause processes that use a GPU, and store its memory elsewhere",
		Long: `Checkpoint pauses processes as muster pause does, and moves the GPU memory that was
copied to the host to an image in a folder or a bucket, as muster image save --move
does: the memory of GPU and host is free. The processes stay, and muster restore
continues them. If anything fails, all are as before.

With --process the image has the process itself, too, and all that descend from it: when
it is whole, they end, and muster restore --image brings them back, here or on a machine
with the same files and an equal GPU. It takes criu 4.1 or later, the right to run it
(root), and a driver that can checkpoint. docs/images.md says what moves and what does not.
With --ghost the processes hand their GPU memory over to muster-gpu-call, without a copy, and
that writes it to the host while criu reads the processes: they stand still for less time.

With --agent the agent of another node does it, with its own store (muster agent
--image-store), to all processes of the pod or to those named; --timeout then bounds
all of it. The operation's --id is the name of the image. JOB is a job of one pod of the
Kubernetes cluster, or the pod.`,
		Example: `  muster checkpoint 4711 4712 --store /data/images
  muster checkpoint 4711 --store s3://images/alice --key image.key --name llama
  muster checkpoint 4711 --process --store /data/images --name llama
  muster checkpoint 4711 --process --ghost --store /data/images
  muster checkpoint train-7b -n team-a --timeout 5m --tls-cert client.crt --tls-key client.key --tls-ca ca.crt
  muster checkpoint --agent node-1:9440 --pod 5d1f… --timeout 5m --tls-cert client.crt --tls-key client.key --tls-ca ca.crt`,
		RunE: func(c *cobra.Command, args []string) error {
			pids, remote, err := at.atAgent(c, args)
			if err != nil {
				return err
			}
			if timeout <= 0 || !remote && time.Duration(timeout) > pauseLease/2 {
				return badUsage(c, "--timeout: expected more than 0 and at most %v; found %v", pauseLease/2, time.Duration(timeout))
			}
			if retries < 0 {
				return badUsage(c, "--retries: expected 0 or more; found %d", retries)
			}
			if remote {
				return at.do(c, agentpb.Action_ACTION_CHECKPOINT, pids, time.Duration(timeout), 0, of.asJSON)
			}
			if name == "" {
				name = agent.NewID()
			}
			if err := image.CheckName(name); err != nil {
				return badUsage(c, "--name: %v", err)
			}
			o := checkpoint.Options{Timeout: time.Duration(timeout), Retries: retries, Backoff: time.Second}
			if process {
				return checkpointProcess(c, pids, dir, scratch, name, &of, o, ghost)
			}
			if ghost {
				return badUsage(c, "--ghost: expected it with --process: without, the processes wait for the copy only")
			}
			return checkpointMemory(c, pids, dir, name, &of, o)
		},
	}
	of.register(c)
	dirFlag(c, &dir)
	c.Flags().StringVar(&name, "name", "", "a `NAME` for the image, which no other one has; a random one if empty")
	durationVar(c.Flags(), &timeout, "timeout", "of one try of the pause: how long the GPU work in progress may take to end, and its memory to be copied; with --agent, of all")
	c.Flags().IntVar(&retries, "retries", retries, "how often to try the pause again")
	c.Flags().BoolVar(&process, "process", false, "store the process itself, too, with all that descend from it, and end them")
	c.Flags().BoolVar(&ghost, "ghost", false, "with --process, copy the GPU memory while criu reads the processes; no GPU has shown yet that the driver allows it")
	scratchFlag(c, &scratch)
	at.flags(c)
	return c
}

// checkpointMemory moves the GPU memory of processes that stay to an image.
func checkpointMemory(c *cobra.Command, pids []int, dir, name string, of *storeFlags, o checkpoint.Options) error {
	if err := areThere(dir, pids); err != nil {
		return err
	}
	images, err := of.open(c, true)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(c)
	defer stop()
	m, began := newMeter(c, images), time.Now()
	saved, err := offload.Checkpoint(ctx, dir, pauseLease, images, offload.Job{Name: name, PIDs: pids, Step: m.begin}, o)
	m.finish()
	if err != nil {
		return pauseError(dir, interrupted(ctx, err))
	}
	return writeSaved(c, saved, memoryFree, time.Since(began), of.asJSON)
}

// checkpointProcess moves a process with all that descend from it to an image.
func checkpointProcess(c *cobra.Command, pids []int, dir, scratch, name string, of *storeFlags, o checkpoint.Options, ghost bool) error {
	if len(pids) != 1 {
		return badUsage(c, "--process: expected one PID, that of the process from which all others descend; found %d", len(pids))
	}
	images, err := of.open(c, true)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(c)
	defer stop()
	m, began := newMeter(c, images), time.Now()
	w := whole(dir, scratch, images, m)
	w.Ghost = ghost
	defer w.Calls.Close()
	saved, err := w.Checkpoint(ctx, pids[0], name, o)
	m.finish()
	if err != nil {
		return pauseError(dir, interrupted(ctx, err))
	}
	return writeSaved(c, saved, "the processes have ended; muster restore --image "+saved.ID+" brings them back", time.Since(began), of.asJSON)
}

// whole is what moves whole processes.
func whole(dir, scratch string, images *image.Images, m *meter) *offload.Whole {
	return &offload.Whole{Dir: dir, Lease: pauseLease, Calls: gpuCalls(dir), Scratch: scratch, Images: images, Step: m.begin}
}

func scratchFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "scratch", "", "a `FOLDER` with room for the memory that the processes have on the host, on its way to or from the image; that for temporary files if empty")
}

func newRestore() *cobra.Command {
	var (
		dir     string
		ref     string
		scratch string
		timeout = 5 * 60 * core.Second
		of      storeFlags
		at      remote
	)
	c := &cobra.Command{
		Use:   "restore {PID... --store STORE | --image IMAGE --store STORE | JOB | --agent HOST:PORT}",
		Short: "Continue processes whose memory is stored elsewhere",
		Long: `Restore writes the memory of paused processes back from the images of their pauses
(muster checkpoint, muster image save --move), and continues all of them, as muster
resume does, or none. Every byte is verified first. The images are then deleted: each
was good for this pause alone.

With --image it brings back the processes of an image of muster checkpoint --process, under
the IDs that they had, and continues them. The files that they had open must be there.

With --agent the agent of another node does it, from its own store. JOB is a job of one
pod of the Kubernetes cluster, or the pod.`,
		Example: `  muster restore 4711 4712 --store /data/images
  muster restore --image llama --store /data/images
  muster restore train-7b -n team-a --tls-cert client.crt --tls-key client.key --tls-ca ca.crt`,
		RunE: func(c *cobra.Command, args []string) error {
			if timeout <= 0 {
				return badUsage(c, "--timeout: expected more than 0; found %v", time.Duration(timeout))
			}
			if ref != "" && !at.used() {
				if len(args) > 0 {
					return badUsage(c, "--image: expected no PID with it, as the image has them; found %s", args[0])
				}
				return restoreImage(c, ref, scratch, &of, time.Duration(timeout))
			}
			pids, remote, err := at.atAgent(c, args)
			if err != nil {
				return err
			}
			if remote {
				return at.do(c, agentpb.Action_ACTION_RESTORE, pids, time.Duration(timeout), 0, of.asJSON)
			}
			if err := areThere(dir, pids); err != nil {
				return err
			}
			images, err := of.open(c, false)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(c)
			defer stop()
			m, began := newMeter(c, images), time.Now()
			err = offload.Resume(ctx, dir, pauseLease, images, pids, time.Duration(timeout), m.begin)
			m.finish()
			if err != nil {
				return pauseError(dir, interrupted(ctx, err))
			}
			shim := &checkpoint.Shim{Dir: dir, Lease: pauseLease}
			defer shim.Close()
			return writeChanged(c, shim, pids, time.Since(began), of.asJSON)
		},
	}
	of.register(c)
	dirFlag(c, &dir)
	durationVar(c.Flags(), &timeout, "timeout", "how long the memory may take to be restored to the GPU; with --agent, all of it")
	c.Flags().StringVar(&ref, "image", "", "bring back the processes of this `IMAGE`, by its ID or name")
	scratchFlag(c, &scratch)
	at.flags(c)
	return c
}

// restoreImage brings the processes of an image back.
func restoreImage(c *cobra.Command, ref, scratch string, of *storeFlags, timeout time.Duration) error {
	images, err := of.open(c, false)
	if err != nil {
		return err
	}
	e, err := images.Find(c.Context(), ref)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(c)
	defer stop()
	m, began := newMeter(c, images), time.Now()
	w := whole("", scratch, images, m)
	defer func() { w.Calls.Close() }()
	_, pids, err := w.Restore(ctx, e, timeout)
	m.finish()
	if err != nil {
		return pauseError(w.Dir, interrupted(ctx, err))
	}
	b := w.Hybrid()
	defer b.Close()
	return writeChanged(c, b, pids, time.Since(began), of.asJSON)
}

// areThere says which of the processes are not there, before a store is begun.
func areThere(dir string, pids []int) error {
	shim := &checkpoint.Shim{Dir: dir, Lease: pauseLease}
	defer shim.Close()
	for _, pid := range pids {
		_, err := shim.Phase(pid)
		if err == nil {
			continue
		}
		if themselves, _ := gpu.ListSelf(dir); slices.Contains(themselves, pid) && gpu.Alive(pid) {
			return fmt.Errorf("process %d saves itself, to the store that it was run with: expected muster pause %d, and muster resume %d for it to go on", pid, pid, pid)
		}
		return pauseError(dir, fmt.Errorf("process %d: %w", pid, err))
	}
	return nil
}
