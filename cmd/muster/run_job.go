package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/supervise"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/internal/table"
)

// exitError ends muster with the exit code of what it ran, and without a word of its own, but for why that did not run.
type exitError struct {
	code int
	why  error
}

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func newRun() *cobra.Command {
	var (
		dir, name, scratch string
		timeout            = 10 * core.Second
		retries            = 3
		within             = 5 * 60 * core.Second
		of                 storeFlags
	)
	c := &cobra.Command{
		Use:   "run --name NAME --store STORE [--] COMMAND [ARGUMENT...]",
		Short: "Run a command that goes on elsewhere when it has to leave",
		Long: `Run runs a command. At SIGTERM, which a pod or a job of Slurm
gets when it is evicted, it moves the command's processes to an image, as muster checkpoint --process
does, and ends with code 143. Run again with the same name and store, here or on another
node, it brings the processes back instead of starting the command, and they go on where
they were. The program needs no change. If it cannot move, it gets the signal itself.

For agents and muster pause, run is a process that saves itself, in --gpu-dir: asked to, it
moves the command to the image, and brings it back when it is asked to, or who asked is gone.

The exit code is the command's otherwise; other signals are passed on. One command of a
name runs at a time: another one waits until that has ended. Standard input is empty.
As the first process of a container, run numbers the command's processes from 1000 on, so
that their IDs are free where they go on. docs/images.md says what it takes.`,
		Example: `  muster run --name train-7b --store /shared/images -- python train.py
  muster run --name $SLURM_JOB_NAME --store s3://images/alice --key image.key python train.py`,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return badUsage(c, "expected a command; found nothing")
			case name == "":
				return badUsage(c, "--name: expected a name by which the job is found again; found none")
			case timeout <= 0 || within <= timeout || time.Duration(timeout) > pauseLease/2:
				return badUsage(c, "expected a --timeout of more than 0 and at most %v, and more than that --within; found %v and %v", pauseLease/2, time.Duration(timeout), time.Duration(within))
			case retries < 0:
				return badUsage(c, "--retries: expected 0 or more; found %d", retries)
			}
			if err := image.CheckName(name); err != nil {
				return badUsage(c, "--name: %v", err)
			}
			dir, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			images, err := of.open(c, true)
			if err != nil {
				return err
			}
			signals := make(chan os.Signal, 16)
			signal.Notify(signals, supervise.Signals...)
			defer signal.Stop(signals)
			broken := make(chan os.Signal, 1)
			signal.Notify(broken, syscall.SIGPIPE) // the command gets it from its own pipe
			defer signal.Stop(broken)
			j := &supervise.Job{
				Name: name, Command: args, Dir: dir, Environment: withLibrary(), Whole: whole(supervise.Folder(dir, name), scratch, images, &meter{}),
				Pause:  checkpoint.Options{Timeout: time.Duration(timeout), Retries: retries, Backoff: time.Second},
				Within: time.Duration(within), Restore: time.Duration(within),
				Out: table.Raw(c.OutOrStdout()), Err: table.Raw(c.ErrOrStderr()),
				Say: func(line string) { fmt.Fprintln(c.ErrOrStderr(), "muster: "+line) },
			}
			j.Whole.Step = func(string, int64) {}
			defer func() { j.Whole.Calls.Close() }()
			code, err := j.Run(c.Context(), signals)
			if code != 0 {
				return &exitError{code, err}
			}
			return nil
		},
	}
	c.Flags().SetInterspersed(false) // what follows the command is the command's
	of.place(c)
	dirFlag(c, &dir)
	scratchFlag(c, &scratch)
	c.Flags().StringVar(&name, "name", "", "the `NAME` of the job, which it has when it is run again")
	durationVar(c.Flags(), &timeout, "timeout", "of one try of the pause: how long the GPU work in progress may take to end, and its memory to be copied")
	c.Flags().IntVar(&retries, "retries", retries, "how often to try the pause again")
	durationVar(c.Flags(), &within, "within", "how long the whole way to the image may take, and the one back: less than the grace period of the pod or job")
	return c
}

// withLibrary lets a program find Muster's libcuda.so.1 where it is beside muster.
func withLibrary() []string {
	library := gpuProgram("libcuda.so.1", "")
	if _, err := os.Stat(library); err != nil {
		return nil
	}
	path := filepath.Dir(library)
	if others := os.Getenv("LD_LIBRARY_PATH"); others != "" {
		path += ":" + others
	}
	return []string{"LD_LIBRARY_PATH=" + path}
}
