// Package criu saves trees of processes of this machine in files, and brings them back, by the
// program criu (https://criu.org). It does nothing about GPUs: what processes have there is saved before.
package criu

import "errors"

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
}

func (p Program) path() string {
	if p.Path == "" {
		return "criu"
	}
	return p.Path
}
