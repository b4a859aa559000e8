//go:build linux

package check

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu/gputest"
)

// waitingKernel is A7: the kernel of one process waits for that of another, which is paused first.
func waitingKernel(r *report, n *gputest.Node, limit time.Duration) {
	dir, err := os.MkdirTemp("/dev/shm", "") // a driver may refuse to map files of a disk
	if err != nil {
		dir = r.t.TempDir()
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "flags")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		r.t.Fatal(err)
	}
	first, second := n.Start(r.t), n.Start(r.t)
	defer first.Kill()
	defer second.Kill()
	first.Send("meet %s 2 1", path)
	for begun := false; !begun; { // its kernel says so
		text, err := os.ReadFile(path)
		if err != nil {
			r.t.Fatal(err)
		}
		begun = text[0] != 0
	}
	b := byDriver(n)
	defer b.Close()
	pids := []int{first.PID, second.PID}
	if _, err := b.Phase(first.PID); err != nil {
		r.t.Fatal(err)
	}
	began := time.Now()
	err = checkpoint.Pause(context.Background(), b, pids, checkpoint.Options{Timeout: limit})
	late := (time.Since(began) - limit).Seconds()
	r.judge("A7", "a lock that the kernel does not let happen ends late by", late, "s", "0 to 0.5", late >= 0 && late <= 0.5)
	running := err != nil
	for _, pid := range pids {
		phase, err := b.Phase(pid)
		running = running && err == nil && phase == checkpoint.Running
	}
	r.judge("A7", "then all go on", truth(running), "", "1", running)
	met := second.Do("meet %s 2 1", path) == "met" && first.Line() == "met"
	r.judge("A7", "and the job ends", truth(met), "", "1", met)
}
