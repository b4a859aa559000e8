// Package criu saves trees of processes of this machine in files, and brings them back, by the
// program criu (https://criu.org). It does nothing about GPUs: what processes have there is saved before.
package criu

import (
	"encoding/json"
	"errors"
	"fmt"
)

// leastVersion is the first that runs on kernels from 6.13 on: 4.1.
const leastVersion = 401

// ghostBytes is the size of a file that was deleted and is open still, up to which it is
// saved with a process.
const ghostBytes = 256 << 20

// ErrUnavailable is a machine on which processes cannot be saved or brought back: without criu, with too old a
// one, without the right to, or with a kernel that lacks what it needs.
var ErrUnavailable = errors.New("criu cannot save processes here")

// ErrRuns is a process that cannot be brought back, as one with its ID runs.
var ErrRuns = errors.New("a process with this ID runs here: what was saved can only go on under its own")

// Program is the program criu. Each call runs it once.
type Program struct {
	Path string // "": as PATH finds it
	Tag  string // by which Running finds it after the death of who started it; "": it is not found
}

// tagged is the variable of criu's environment that has the tag.
const tagged = "MUSTER_CRIU_TAG="

func (p Program) path() string {
	if p.Path == "" {
		return "criu"
	}
	return p.Path
}

// Root is the process from which the others descend, as the file SavedFile of a folder says.
func Root(text []byte) (int, error) {
	var of saved
	if err := json.Unmarshal(text, &of); err != nil || of.Root == 0 {
		return 0, fmt.Errorf("%s: expected the processes; found %q", SavedFile, text)
	}
	return of.Root, nil
}

// saved is what the files of a tree say beside those of criu: its processes, and whether another process leads its session.
type saved struct {
	Root      int   `json:"root"`
	Processes []int `json:"processes"`
	Shell     bool  `json:"shell"`
}

// SavedFile is the file of a folder that has its processes.
const SavedFile = "muster.json"
