// Package eventlog records the events and decisions of an engine, as lines of JSON in a
// sequence of compressed files. The driver of the engine reports everything to a
// [Writer]; [Read] returns it. The same events, applied to an engine of the same policy
// at the same times, give the same decisions.
package eventlog

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/muster-sched/muster/core"
)

// Version is the version of the format. It changes when files of the old version would be
// misread.
const Version = 1

// Header is the first line of a file.
type Header struct {
	Version int
	// Engine is when the engine began; Part counts the files since, from 1.
	Engine core.Time
	Part   int
	// Gap is set if entries are missing between the previous part and this one.
	Gap bool
	// Snapshot is the number of lines that follow with the state at the beginning of the
	// file, before the lines of events.
	Snapshot int
	// Policy and Levels are the configuration of the engine.
	Policy core.Policy
	Levels []string
}

// Entry is a line: exactly one of Begin, Event and Pass is set.
type Entry struct {
	// Now is when it happened.
	Now core.Time
	// Begin is set if an empty engine starts, or if the record of an engine starts again:
	// the reader must forget the state so far. The entries up to the first one with
	// Restored unset describe the state at this point.
	Begin *Header
	// Restored is set if Event, or the evictions in Decided, happened earlier.
	Restored bool
	Event    core.Event
	// Pass is set if the engine made a scheduling pass, with the decisions in Decided.
	Pass    bool
	Decided []core.Decision
	// File and Line are the position of the entry.
	File string
	Line int
}

// name returns the name of the n-th file.
func name(n int) string { return fmt.Sprintf("events-%08d.jsonl.gz", n) }

var namePattern = regexp.MustCompile(`^events-(\d{8})\.jsonl\.gz$`)

// number returns the number in the name of a file, or false if the file is not a log
// file.
func number(file string) (int, bool) {
	m := namePattern.FindStringSubmatch(file)
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1])
	return n, err == nil
}
