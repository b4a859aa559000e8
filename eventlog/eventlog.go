// Package eventlog keeps what an engine was told and what it decided: as lines
// of JSON in compressed files that follow one another. Whoever drives an engine
// tells a [Writer] of everything; [Read] gives it back. The same events told to
// an engine of the same policy at the same times give the same decisions.
package eventlog

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/muster-sched/muster/core"
)

// Version is that of the format. It changes when a file of the old one would be
// read as something else.
const Version = 1

// Header is the first line of a file.
type Header struct {
	Version int
	// Engine is when the engine began; Part counts the files since, from 1.
	Engine core.Time
	Part   int
	// Gap says that something is missing between the part before and this one.
	Gap bool
	// Snapshot is how many lines follow that say how things stand, before those
	// of what happens.
	Snapshot int
	// Policy and Levels are what the engine was told once.
	Policy core.Policy
	Levels []string
}

// Entry is a line: one of Begin, Event and Pass is there.
type Entry struct {
	// Now is when it happened.
	Now core.Time
	// Begin says that an engine starts from nothing, or that what is known of
	// one does: forget what was before. The entries up to the first with
	// Restored unset say how things stood.
	Begin *Header
	// Restored says that Event, or the evictions that were Decided, happened
	// earlier.
	Restored bool
	Event    core.Event
	// Pass says that the engine was asked to decide, and Decided.
	Pass    bool
	Decided []core.Decision
	// File and Line say where it was read.
	File string
	Line int
}

// name returns the name of the n-th file.
func name(n int) string { return fmt.Sprintf("events-%08d.jsonl.gz", n) }

var namePattern = regexp.MustCompile(`^events-(\d{8})\.jsonl\.gz$`)

// number returns the number in the name of a file, false if it is no log's.
func number(file string) (int, bool) {
	m := namePattern.FindStringSubmatch(file)
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1])
	return n, err == nil
}
