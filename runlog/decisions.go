package runlog

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/muster-sched/muster/core"
)

// Decisions writes decisions.jsonl.gz, and hashes the lines before they are
// compressed. Both happen beside the caller, a chunk of lines at a time.
type Decisions struct {
	chunk []byte
	lines int64
	full  chan []byte // to be written
	free  chan []byte // written
	done  chan struct{}
	// The writing goroutine owns these until done is closed.
	hash hash.Hash
	gzip *gzip.Writer // nil to hash only
	err  error
}

const (
	chunkSize = 256 << 10
	chunks    = 4
	longLine  = 4 << 10 // chunks are handed on when less than this is left
)

// NewDecisions writes to out; when out is nil it only hashes. Close must be
// called.
func NewDecisions(out io.Writer) *Decisions {
	d := &Decisions{
		full: make(chan []byte, chunks),
		free: make(chan []byte, chunks),
		done: make(chan struct{}),
		hash: sha256.New(),
	}
	if out != nil {
		// The level is valid, so there is no error.
		d.gzip, _ = gzip.NewWriterLevel(out, gzip.BestSpeed)
	}
	for range chunks - 1 {
		d.free <- make([]byte, 0, chunkSize)
	}
	d.chunk = make([]byte, 0, chunkSize)
	go d.write()
	return d
}

// write writes the full chunks. After an error it only takes them.
func (d *Decisions) write() {
	defer close(d.done)
	for chunk := range d.full {
		d.hash.Write(chunk)
		if d.gzip != nil && d.err == nil {
			_, d.err = d.gzip.Write(chunk)
		}
		d.free <- chunk[:0]
	}
	if d.gzip != nil && d.err == nil {
		d.err = d.gzip.Close()
	}
}

// Bind adds the line of a pod of job that was bound at t.
func (d *Decisions) Bind(t core.Time, job string, p *core.Placement, reason string) {
	d.add(appendLine(d.chunk, t, opBind, job, p, reason, ""))
}

// Release adds the line of a pod of job that left its node at t; forJob names
// the job that it was evicted for, if it was.
func (d *Decisions) Release(t core.Time, job string, p *core.Placement, reason, forJob string) {
	d.add(appendLine(d.chunk, t, opRelease, job, p, reason, forJob))
}

func (d *Decisions) add(chunk []byte) {
	d.lines++
	d.chunk = chunk
	if len(chunk) > chunkSize-longLine {
		d.full <- chunk
		d.chunk = <-d.free
	}
}

// Lines returns how many lines were added.
func (d *Decisions) Lines() int64 { return d.lines }

// Close writes what is left, and returns the SHA-256 of all lines, in
// hexadecimal, with the first error there was in writing them.
func (d *Decisions) Close() (sum string, err error) {
	d.full <- d.chunk
	close(d.full)
	<-d.done
	return hex.EncodeToString(d.hash.Sum(nil)), d.err
}
