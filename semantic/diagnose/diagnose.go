// Package diagnose finds the root of a failure in the log of a job, and says what failed and what to do. It is the Failure Handler
// (SchedMate, §3.3) without a language model: what it knows of drivers, libraries and file systems is data, in the folder knowledge.
//
// A log is read once, from the first line to the last, in bounded memory. Lines that match a signature become events, and so do the
// tracebacks of Python, also where the lines of several processes mix. Each signature has a role: the root of a failure, what other
// processes print because of it, noise. At the end the first event of the highest rank is the root (root.go).
package diagnose

import (
	"errors"
	"fmt"
	"io"

	"github.com/muster-sched/muster/semantic/logtext"
)

// Category is the class of a failure.
type Category string

// The categories. None: there is no failure to act on, or a user or the scheduler ended the job.
const (
	Infrastructure Category = "infrastructure"
	Framework      Category = "framework"
	UserScript     Category = "user_script"
	None           Category = "none"
)

// Line is a line of the log.
type Line struct {
	Index int64  `json:"line"` // from 0
	Text  string `json:"text"`
	Says  string `json:"says"` // what it means
}

// Verdict is what a log says about a failure.
type Verdict struct {
	Category Category `json:"category"`
	// Component is gpu, nvlink, network, node, storage, memory_host, software or unknown.
	Component string `json:"component"`
	// SignatureLine is the line that names the root, RootLine the first line of its event, such as the head of the traceback. From 0;
	// nil without a failure.
	SignatureLine *int64  `json:"signature_line"`
	RootLine      *int64  `json:"root_line"`
	Confidence    float64 `json:"confidence"` // from 0 to 1
	Action        string  `json:"action"`     // of the recovery table
	Signature     string  `json:"signature"`  // its name in the knowledge; empty without a failure
	Reason        string  `json:"reason"`
	Evidence      []Line  `json:"evidence"` // the signature first
	Lines         int64   `json:"lines"`    // of the log
	// Early is whether the failure came before a step was completed.
	Early bool `json:"-"`

	recovery Action
	follows  bool // the root that was found follows from what other processes did
}

// Recovery returns the entry of the recovery table that Action names.
func (v *Verdict) Recovery() Action { return v.recovery }

// Waited reports whether the log is of a process that waited for others, or was ended by them, and does not say what became of those.
func (v *Verdict) Waited() bool { return v.recovery.Elsewhere || v.follows }

// Root returns which of the verdicts on the logs of one job, such as those of its nodes, is about the root of its failure; -1 if none of them is, as where all waited for
// each other. It is the one that is most certain, of equals the first.
func Root(of []Verdict) int {
	root := -1
	for i := range of {
		if v := &of[i]; v.Category != None && !v.Waited() && (root < 0 || v.Confidence > of[root].Confidence) {
			root = i
		}
	}
	return root
}

// Log diagnoses a log, which may be compressed with gzip.
func Log(r io.Reader) (Verdict, error) {
	r, err := logtext.Plain(r)
	if err != nil {
		return Verdict{}, err
	}
	s := newScan(known())
	lines := logtext.NewScanner(r)
	for lines.Scan() {
		s.line(lines.Index(), lines.Line())
	}
	if err := lines.Err(); err != nil {
		if lines.Index() < 0 || errors.Is(err, logtext.ErrNotText) {
			return Verdict{}, err
		}
		return Verdict{}, fmt.Errorf("after line %d: %w", lines.Index(), err)
	}
	v := s.verdict()
	v.Lines = lines.Index() + 1
	return v, nil
}
