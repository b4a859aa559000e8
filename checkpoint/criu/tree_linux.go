package criu

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Tree returns a process and all that descend from it, in ascending order. The caller must not be one of them.
func Tree(root int) ([]int, error) {
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", root)); err != nil {
		return nil, fmt.Errorf("there is no process %d", root)
	}
	tree := []int{root}
	for i := 0; i < len(tree); i++ {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", tree[i]))
		if err != nil {
			return nil, err
		}
		for _, task := range tasks {
			text, err := os.ReadFile(task)
			if err != nil {
				continue // the thread has ended
			}
			for _, word := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(word); err == nil {
					tree = append(tree, pid)
				}
			}
		}
	}
	if slices.Contains(tree, os.Getpid()) {
		return nil, fmt.Errorf("expected a process from which this command does not descend; found %d", root)
	}
	slices.Sort(tree)
	return tree, nil
}

// runs says whether a process is there, and has not ended.
func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !slices.Contains([]string{"Z", "X"}, fieldsOf(text)[0])
}

// areFree is ErrRuns if one of the processes runs. It waits until those that have ended are gone, for a minute at most.
func areFree(ctx context.Context, pids []int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, pid := range pids {
		if pid <= 1 {
			return fmt.Errorf("process %d: expected the ID of a process that can be saved", pid)
		}
		for {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil {
				break
			}
			if state := fieldsOf(text)[0]; state != "Z" && state != "X" {
				return fmt.Errorf("process %d: %w", pid, ErrRuns)
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("waiting until the parent of process %d, which has ended, takes note of it: %w", pid, ctx.Err())
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return nil
}

// fieldsOf gives /proc/PID/stat from field 3 on.
func fieldsOf(stat []byte) []string {
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name may have spaces
}

// sessionOf is field 6 of /proc/PID/stat.
func sessionOf(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(fieldsOf(text)[3])
}

// sharesWithOthers is an error if the tree shares with a process that is not of it what it could not have again: a pipe as input or output, which would
// end there, or a lock of a file, for which a restore would wait as long as the other one has it. Other pipes may be left from a parent, and never used.
func sharesWithOthers(tree []int) error {
	of := map[string]int{} // what the tree has, and which process
	for _, pid := range tree {
		for _, thing := range append(pipes(pid, "[0-2]"), locks(pid)...) {
			of[thing] = pid
		}
	}
	if len(of) == 0 {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		other, err := strconv.Atoi(e.Name())
		if err != nil || slices.Contains(tree, other) {
			continue
		}
		for _, thing := range append(pipes(other, "*"), locks(other)...) {
			switch pid, ok := of[thing]; {
			case ok && strings.HasPrefix(thing, "pipe:"):
				return fmt.Errorf("the input or output of process %d is a pipe of process %d, which is not of its tree, and which it would not find again: start it with files", pid, other)
			case ok:
				return fmt.Errorf("process %d has the lock of a file together with process %d, which is not of its tree: lsof -p %d shows which", pid, other, pid)
			}
		}
	}
	return nil
}

// pipes are the pipes that a process has open under the numbers of a pattern, as pipe:[INODE].
func pipes(pid int, numbers string) (found []string) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/%s", pid, numbers))
	for _, file := range files {
		if link, err := os.Readlink(file); err == nil && strings.HasPrefix(link, "pipe:[") {
			found = append(found, link)
		}
	}
	return found
}

// locks are the files that a process has locked by flock, alone or with those that have the same open file: as DEVICE:INODE.
func locks(pid int) (found []string) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			// lock:	1: FLOCK  ADVISORY  WRITE 4711 fe:00:6430 0 EOF
			if fields := strings.Fields(line); len(fields) > 6 && fields[0] == "lock:" && fields[2] == "FLOCK" {
				found = append(found, fields[6])
			}
		}
	}
	return found
}
