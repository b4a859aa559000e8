package diagnose

import (
	"fmt"
	"regexp"
	"slices"
)

// rank orders events by how likely they are the root. Of the highest rank that there is, the first event is.
type rank int

const (
	ignored rank = iota
	aCascade
	aWatch
	aSuspect
	aPrinted // a traceback that the program caught, of which only the type is known
	aRoot
	aDecisive
	ranks
)

func (e *event) rank() rank {
	switch e.sig.Role {
	case roleCascade:
		return aCascade
	case roleWatch:
		return aWatch
	case roleSuspect:
		return aSuspect
	case roleRoot:
		switch {
		case e.sig.Decisive:
			return aDecisive
		case e.printed && e.sig.Generic:
			return aPrinted
		}
		return aRoot
	}
	return ignored
}

// near is how many lines may lie between what other processes or layers print and the root that explains it, in one event.
const near = 8

// maxCluster bounds such an event.
const maxCluster = 40

// message is how many lines of an exception's message, and of a library's own stack in it, are searched for what explains it.
const message = 60

// add keeps an event.
func (s *scan) add(e *event) {
	if e.sig.Role == roleStop || e.sig.Role == roleSuccess { // an exception such as KeyboardInterrupt
		s.observe(e.line, []byte(e.text), e.sig)
		return
	}
	r := e.rank()
	if r == ignored {
		return
	}
	if c := e.chain; c != nil {
		if c.rank() > r || c.rank() == r && e.sig.Generic && !c.sig.Generic {
			return // what it was raised from says more
		}
		s.remove(c)
		e.chain = nil
	}
	s.look()
	if p := s.before; p != nil && e.sig.Explains && !e.traceback && p.traceback && p.sig.Name != e.sig.Name && p.rank() != aDecisive && e.line-p.line <= message {
		e.root, e.traceback, e.printed = p.root, true, p.printed
		s.remove(p)
	}
	e.cluster = e.root
	if p := s.before; p != nil && p.rank() <= aSuspect && e.root > p.line && e.root-p.line <= near && e.root-p.cluster <= maxCluster {
		e.cluster = p.cluster
		if p.rank() < r && r != aDecisive { // a kernel's line stands for itself
			e.root = p.cluster
		}
	}
	e.steps, e.early, e.watched = slices.Clone(s.last), s.steps == 0, e.line+watch
	e.quiet = s.ended && r != aDecisive && !(r >= aRoot && e.sig.Component == "storage") && !(r >= aPrinted && e.traceback && s.stop == nil)
	e.excused = e.root-s.excuse <= 3 && e.root >= s.excuse
	if e.mayGoOn() {
		s.countUp()
		s.remember(e)
	}
	s.before = e
	s.until = max(s.until, e.watched)
	kept := s.events[r]
	if len(kept) == maxEvents {
		kept = slices.DeleteFunc(kept, (*event).over)
	}
	if len(kept) == maxEvents {
		kept = kept[:maxEvents-1] // the first ones, and the last one
	}
	s.events[r] = append(kept, e)
}

func (s *scan) remove(e *event) {
	for r, events := range s.events {
		s.events[r] = slices.DeleteFunc(events, func(o *event) bool { return o == e })
	}
}

// drop forgets suspicions just before the scheduler ended the job: they are how the processes ended.
func (s *scan) drop(index int64) {
	const before = 500
	for r := aCascade; r < aRoot; r++ {
		s.events[r] = slices.DeleteFunc(s.events[r], func(e *event) bool { return e.sig.Role != roleWatch && index-e.line <= before })
	}
}

// restarts notes that the job begins again: what its steps were is of no interest.
func (s *scan) restarts() {
	s.look()
	for _, events := range s.events {
		for _, e := range events {
			if !e.restarted {
				e.restarted, e.begun = true, 0
				for i := range e.steps {
					e.steps[i] = -1
				}
			}
		}
	}
}

// identifier is the name of a device, a host, a path or an address.
var identifier = regexp.MustCompile(`[A-Za-z/][\w./:-]*\d(?:[\w./:-]*\w)?|/\w[\w./-]+\w`)

// recovered notes that what was reported of something is well again, as a line says that names it.
func (s *scan) recovered(line []byte) {
	well := map[string]bool{}
	for _, name := range identifier.FindAll(line, -1) {
		well[string(name)] = true
	}
	for _, events := range s.events {
		for _, e := range events {
			e.recovered = e.recovered || !e.traceback && !e.sig.isHardware() && slices.ContainsFunc(identifier.FindAllString(e.text, -1), func(name string) bool { return well[name] })
		}
	}
}

// failedAgain says whether what an event reported came back after it was well again.
func (s *scan) failedAgain(e *event) bool {
	return slices.ContainsFunc(s.events[e.rank()], func(o *event) bool { return o.line > e.line && o.sig.Name == e.sig.Name && !o.recovered && !o.over() })
}

func (s *scan) clear(names []string) {
	for r, events := range s.events {
		s.events[r] = slices.DeleteFunc(events, func(e *event) bool { return slices.Contains(names, e.sig.Name) })
	}
}

// over says whether the job went on after an event, or had ended before.
func (e *event) over() bool {
	on := e.continued >= enough || e.moved >= moved || e.recurs()
	switch r := e.rank(); {
	case e.quiet, e.survived:
		return true
	case r == aWatch, r == aDecisive && e.sig.isHardware():
		return false
	case e.restarted && e.begun >= enough:
		return r <= aSuspect || !e.sig.isHardware()
	case e.early && !e.traceback && !e.sig.isHardware() && (e.begun >= begun || e.grown >= moved):
		return true
	case r == aDecisive:
		return on && !e.traceback && !e.sig.Elsewhere // a job that lost a node must begin again
	case e.mild && (on || e.continued > 0 || e.early && (e.begun > 0 || e.grown >= moved)):
		return true
	case e.sig.Handled && !e.traceback && on:
		return true
	case r <= aSuspect && on:
		return !e.sig.isHardware() || e.excused
	case r == aCascade && (e.continued > 0 || e.early && e.begun > 0): // a peer that is gone could not have taken part in the step
		return true
	case e.early && (e.begun >= enough || e.moved >= moved || e.grown >= enough): // at the start, the program may try what it can do without
		return e.sig.Optional || e.printed || e.relayed || e.importing || !e.traceback && !e.sig.isHardware()
	case r <= aSuspect:
		return false
	}
	// An error that no one caught ends its process, whatever the lines around it say.
	return on && (e.printed || e.relayed || e.aside || !e.traceback && e.excused)
}

// isHardware says whether a signature is about a part of the node itself, whose failure stands even if the job goes on.
func (s *signature) isHardware() bool {
	return !s.Elsewhere && s.Class == Infrastructure && slices.Contains([]string{"gpu", "nvlink", "node"}, s.Component)
}

// choose returns the root, or nil.
func (s *scan) choose() *event {
	first := func(r rank) *event {
		if i := slices.IndexFunc(s.events[r], s.stands); i >= 0 {
			return s.events[r][i]
		}
		return nil
	}
	if e, fact := first(aRoot), first(aDecisive); e != nil && fact != nil && e.sig.Class == Infrastructure && e.line < fact.line {
		return e // both are about the machine: the first one
	}
	for r := ranks - 1; r > ignored; r-- {
		if e := first(r); e != nil {
			return e
		}
	}
	return nil
}

// stands says whether an event may be the root, after all that came behind it.
func (s *scan) stands(e *event) bool {
	if e.recovered && !s.failedAgain(e) {
		return false
	}
	if e.table.isOfOthers(e) {
		return false
	}
	if e.over() {
		return (e.early || e.moved > 0 && e.continued < enough) && !e.quiet && !e.restarted && s.failedAfter(e)
	}
	return !s.closed(e)
}

// lastLines is how many lines the closing words of a job have.
const lastLines = 8

// close looks for the closing words of the job in its last lines.
func (s *scan) close() {
	for i := max(s.lines-lastLines, s.closing+1, 0); i < s.lines; i++ {
		line := s.ring[i%ring]
		s.know.look(line, &s.found)
		if sig := s.know.classify(line, &s.found, false, false); sig != nil && sig.Role == roleClosing {
			s.closing = i
		}
	}
}

// closed says whether the job's last words are that it ended well, so that what it printed about an error on the way did not end it.
func (s *scan) closed(e *event) bool {
	return s.closing > e.line && s.closing >= s.lines-lastLines && (e.mild || (!e.traceback || e.printed) && !e.sig.isHardware())
}

// failedAfter says whether a launcher reports a failed process after an event. So the program could not do without what was optional.
func (s *scan) failedAfter(e *event) bool {
	return slices.ContainsFunc(s.events[aCascade], func(c *event) bool { return c.line > e.line && c.sig.Class == UserScript && !c.over() })
}

// verdict says what the log is about, after its last line.
func (s *scan) verdict() Verdict {
	for _, b := range s.blocks {
		if b.pending != nil {
			s.add(b.pending)
		}
	}
	s.look()
	if s.before != nil && s.before.survivable() {
		s.recur(s.lines - 1)
	}
	s.close()
	e := s.choose()
	if e == nil || e.sig.Class == None {
		return s.noFailure(e)
	}
	a := s.know.action(e.sig)
	v := Verdict{
		Category: e.sig.Class, Component: e.sig.Component, SignatureLine: &e.line, RootLine: &e.root, Confidence: e.sig.Confidence,
		Action: a.Name, Signature: e.sig.Name, Reason: e.sig.Says, Early: e.early, recovery: a, follows: e.rank() == aCascade,
	}
	if e.printed {
		v.Confidence *= 0.85
	}
	v.Confidence = float64(int(v.Confidence*100+0.5)) / 100
	v.Evidence = s.evidence(e)
	return v
}

func (s *scan) noFailure(e *event) Verdict {
	a := s.know.actions["none"]
	v := Verdict{Category: None, Component: "unknown", Confidence: 0.6, Action: a.Name, Reason: "no line of the log looks like the root of a failure", recovery: a, Evidence: []Line{}}
	switch {
	case s.stop != nil:
		v.Confidence, v.Reason, v.Evidence = 0.9, s.stop.Says, []Line{*s.stop}
	case s.success != nil:
		v.Confidence, v.Reason, v.Evidence = 0.9, s.success.Says, []Line{*s.success}
	case s.lines == 0:
		v.Reason = "the log is empty"
	case e != nil:
		v.Reason, v.Evidence = e.sig.Says, []Line{{e.line, e.text, e.sig.Says}}
	}
	return v
}

// evidence returns the root and what else speaks for it: what the kernel and the driver report, then what followed.
func (s *scan) evidence(root *event) []Line {
	const most = 5
	all := []Line{{root.line, root.text, root.sig.Says}}
	seen := map[string]bool{root.sig.Name: true}
	for r := ranks - 1; r > ignored && len(all) < most; r-- {
		for _, e := range s.events[r] {
			if len(all) < most && s.stands(e) && !seen[e.sig.Name] && !(r == aCascade && e.line < root.root) {
				seen[e.sig.Name] = true
				all = append(all, Line{e.line, e.text, e.sig.Says})
			}
		}
	}
	return all
}

// String returns what a user wants to know, in lines.
func (v *Verdict) String() string {
	if v.Category == None {
		text := "No failure: " + v.Reason + "."
		if len(v.Evidence) > 0 {
			text += fmt.Sprintf("\n  %8d  %s", v.Evidence[0].Index, v.Evidence[0].Text)
		}
		return text
	}
	text := fmt.Sprintf("%s, %s: %s (confidence %.2f).\n", words[v.Category], parts[v.Component], v.Reason, v.Confidence)
	text += fmt.Sprintf("Root: lines %d to %d of %d.\n", *v.RootLine, *v.SignatureLine, v.Lines)
	for _, l := range v.Evidence {
		text += fmt.Sprintf("  %8d  %s\n", l.Index, l.Text)
		if l.Index != *v.SignatureLine {
			text += fmt.Sprintf("  %8s  (%s)\n", "", l.Says)
		}
	}
	return text + "Next (" + v.Action + "): " + v.recovery.Advice
}

var words = map[Category]string{Infrastructure: "Infrastructure", Framework: "Framework", UserScript: "User script"}

var parts = map[string]string{
	"gpu": "GPU", "nvlink": "NVLink", "network": "network", "node": "node", "storage": "storage", "memory_host": "host memory",
	"software": "software", "unknown": "unknown component",
}
