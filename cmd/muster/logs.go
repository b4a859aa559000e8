package main

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/kube/console"
	"github.com/muster-sched/muster/semantic/logtext"
)

// sourceFlags name a job of a cluster, whose pods' logs are read.
type sourceFlags struct {
	consoleFlags
	job string
}

func (f *sourceFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.job, "job", "", "read the logs of the pods of this `JOB` of the cluster: NAME, KIND/NAME or NAMESPACE/KIND/NAME, or of one pod")
	f.consoleFlags.register(c)
}

// arguments expects LOG..., or --job.
func (f *sourceFlags) arguments(_ *cobra.Command, args []string) error {
	switch {
	case f.job == "" && len(args) == 0:
		return errors.New("expected LOG..., or --job; found neither")
	case f.job != "" && len(args) > 0:
		return errors.New("expected LOG..., or --job; found both")
	}
	return nil
}

// jobLog is a log that a command reads: a file, or of a pod.
type jobLog struct {
	name string
	pod  *console.PodLog // nil for a file
	copy *os.File        // what stdin was written into, if it is read twice
}

// rereadable writes stdin, if it is one of the logs, into a file, so that it can be read again. The file has no name any more when it is
// written: who interrupts the command leaves no copy of a log behind. The function that is returned closes it.
func rereadable(c *cobra.Command, logs []jobLog) (done func(), err error) {
	i := slices.IndexFunc(logs, func(l jobLog) bool { return l.pod == nil && l.name == "-" })
	if i < 0 {
		return func() {}, nil
	}
	f, err := os.CreateTemp("", "muster-*.log")
	if err != nil {
		return nil, err
	}
	unnamed := os.Remove(f.Name()) == nil
	done = func() {
		f.Close()
		if !unnamed { // a system where an open file cannot be removed
			os.Remove(f.Name())
		}
	}
	if _, err := io.Copy(f, c.InOrStdin()); err != nil {
		done()
		return nil, err
	}
	logs[i].copy = f
	return done, nil
}

// logs returns what to read.
func (f *sourceFlags) logs(c *cobra.Command, args []string) ([]jobLog, error) {
	var all []jobLog
	if f.job == "" {
		for _, path := range args {
			all = append(all, jobLog{name: path})
		}
		return all, nil
	}
	client, namespace, err := f.open(c)
	if err != nil {
		return nil, err
	}
	pods, err := client.Logs(c.Context(), namespace, f.job)
	if err != nil {
		return nil, jobHint(err, f.job)
	}
	for i := range pods {
		all = append(all, jobLog{name: pods[i].Pod, pod: &pods[i]})
	}
	return all, nil
}

// wrong returns what is wrong with a log that could be opened, but not read.
func (l *jobLog) wrong(err error) error {
	if l.pod != nil || isBadInput(err) {
		return err
	}
	return unreadable(l.name, err)
}

// open opens a log. part is of a pod's.
func (l *jobLog) open(c *cobra.Command, part console.LogPart) (io.ReadCloser, error) {
	if l.pod != nil {
		return l.pod.Open(c.Context(), part)
	}
	if l.copy != nil {
		r, err := logtext.Plain(io.NewSectionReader(l.copy, 0, math.MaxInt64))
		if err != nil {
			return nil, unreadable(l.name, err)
		}
		return io.NopCloser(r), nil
	}
	return openLog(l.name, c.InOrStdin())
}

// openLog opens the log of a job: a file, also one that gzip compressed, or - for stdin.
func openLog(path string, stdin io.Reader) (io.ReadCloser, error) {
	in := io.NopCloser(stdin)
	if path != "-" {
		f, err := openLogFile(path)
		if err != nil {
			return nil, err
		}
		in = f
	}
	r, err := logtext.Plain(in)
	if err != nil {
		in.Close()
		return nil, unreadable(path, err)
	}
	return both{r, in}, nil
}

// both reads from one thing and closes another.
type both struct {
	io.Reader
	io.Closer
}

func openLogFile(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	if s, err := f.Stat(); err == nil && s.IsDir() {
		f.Close()
		return nil, unreadable(path, syscall.EISDIR)
	}
	return f, nil
}

// growing reads a file that others write to. At its end it waits for more, until the context is done. A file that was emptied is read again
// from its begin.
type growing struct {
	ctx  context.Context
	file *os.File
	poll time.Duration
	at   int64
}

func (g *growing) Read(p []byte) (int, error) {
	for {
		n, err := g.file.ReadAt(p, g.at)
		if g.at += int64(n); n > 0 {
			return n, nil
		}
		if err != io.EOF {
			return 0, err
		}
		if s, err := g.file.Stat(); err == nil && s.Size() < g.at {
			g.at = 0
			continue
		}
		select {
		case <-g.ctx.Done():
			return 0, io.EOF
		case <-time.After(g.poll):
		}
	}
}
