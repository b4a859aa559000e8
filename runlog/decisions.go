package runlog

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
)

// Decisions writes decisions.jsonl.gz, and hashes the lines before they are
// compressed.
type Decisions struct {
	line  []byte
	lines int64
	out   *behind
	hash  hash.Hash // out's until it is closed
}

// NewDecisions writes to out; when out is nil it only hashes. Close must be
// called.
func NewDecisions(out io.Writer) *Decisions {
	d := &Decisions{hash: sha256.New()}
	h := hashed{d.hash, nil}
	if out != nil {
		h.zip = newZip(out)
	}
	d.out = newBehind(h)
	return d
}

// newZip compresses to out, quickly.
func newZip(out io.Writer) *gzip.Writer {
	z, _ := gzip.NewWriterLevel(out, gzip.BestSpeed) // the level is valid: there is no error
	return z
}

// hashed hashes what it compresses; without zip it only hashes.
type hashed struct {
	hash hash.Hash
	zip  *gzip.Writer
}

func (h hashed) Write(p []byte) (int, error) {
	h.hash.Write(p)
	if h.zip == nil {
		return len(p), nil
	}
	return h.zip.Write(p)
}

func (h hashed) Close() error {
	if h.zip == nil {
		return nil
	}
	return h.zip.Close()
}

// Bind adds the line of a pod of job that was bound at t.
func (d *Decisions) Bind(t core.Time, job string, p *core.Placement, reason string) {
	d.add(appendLine(d.line, t, opBind, job, p, reason, sim.Eviction{}))
}

// Release adds the line of a pod of job that left its node at t; by is zero unless
// it was evicted.
func (d *Decisions) Release(t core.Time, job string, p *core.Placement, reason string, by sim.Eviction) {
	d.add(appendLine(d.line, t, opRelease, job, p, reason, by))
}

// Migrate adds the line of a pod of job that holds a second place from t on, to which it is
// being moved; forJob is the job for which that makes room, if any.
func (d *Decisions) Migrate(t core.Time, job string, to *core.Placement, reason, forJob string) {
	d.add(appendLine(d.line, t, opMigrate, job, to, reason, sim.Eviction{For: forJob, Told: t}))
}

// Standby adds the line of a pod of job that lends its GPUs from t on; cpu_milli and mem_mib are
// what it keeps.
func (d *Decisions) Standby(t core.Time, job string, p *core.Placement) {
	d.add(appendLine(d.line, t, opStandby, job, p, "standby", sim.Eviction{}))
}

// Resume adds the line of a pod of job that goes on at t, which it was told to at a time.
func (d *Decisions) Resume(t core.Time, job string, p *core.Placement, told core.Time) {
	d.add(appendLine(d.line, t, opResume, job, p, core.StandbyReturns.String(), sim.Eviction{For: job, Told: told}))
}

// Recovered adds the line of what becomes of a job that failed, at t.
func (d *Decisions) Recovered(t core.Time, job string, what sim.Recovered) {
	d.add(appendLine(d.line, t, what.String(), job, &core.Placement{}, "failure", sim.Eviction{}))
}

func (d *Decisions) add(line []byte) {
	d.lines++
	d.line = line[:0]
	d.out.Write(line)
}

// Lines returns how many lines were added.
func (d *Decisions) Lines() int64 { return d.lines }

// Close writes what is left, and returns the SHA-256 of all lines, in
// hexadecimal, with the first error there was in writing them.
func (d *Decisions) Close() (sum string, err error) {
	err = d.out.Close()
	return hex.EncodeToString(d.hash.Sum(nil)), err
}
