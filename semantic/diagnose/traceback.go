package diagnose

import (
	"bytes"
	"cmp"
	"regexp"
	"strings"
)

// block is a traceback whose last line has not come yet.
type block struct {
	prefix    string // what stands before the head, such as a rank, and so before each of its lines
	root      int64
	last      int64 // the last line that is its own
	frames    int
	outermost string // the function of its first frame
	innermost string // the file of its last frame
	scratch   bool   // its program is a temporary file: the job had a model write it, and ran it
	foreign   int    // lines of others since
	stack     bool   // not of an error: a logger was asked where it is
	importing bool   // its last frame is of a library that is imported: a program may do without
	setup     bool   // a frame is of the program's setup
	first     bool   // a frame is of a call that is the first to use the GPU, and needs little memory
	imports   bool   // the last frame of the program imports something
	deep      int    // how many of its last frames are of libraries
	source    bool   // the last line was a frame of the program, so that the next one is its source
	aside     bool   // of a thread, a task or a child process
	unheeded  bool   // Python itself reports it, and goes on whatever it is
	pending   *event // it ended with an exception that gives another one again
	chain     *event // the event during which, or because of which, it was raised
}

const (
	maxBlocks  = 64
	maxForeign = 200 // of other processes, inside a traceback
)

var (
	frame = regexp.MustCompile(`File "([^"]*)", line \d+(?:, in (\S+))?`)
	// An exception has the name of a class, with its modules, and then a colon or nothing.
	className = regexp.MustCompile(`^((?:[A-Za-z_]\w*\.)*)([A-Za-z_]\w*)(:|\(|$|\s*:)`)
	endsLike  = regexp.MustCompile(`(?:Error|Exception|Exit|Interrupt|Expired|Timeout|timeout|error|Empty|Full|Warning|gaierror|Again|Iteration|Failure|Fault|Mismatch|NotFound|Denied|Killed|Unavailable|OutOf[A-Z])\w*$`)
	// The last exception of a traceback that is one line, as loggers make them.
	inOneLine = regexp.MustCompile(`.*\s((?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure|Timeout)\b(?:: .*)?)$`)
	library   = regexp.MustCompile(`(?:site|dist)-packages/|/lib/python\d|^<frozen |^[\w/]+\.pyx$`)
)

// A traceback of an error that ends the process begins with one of these functions. Otherwise the program printed it itself.
var rootFunctions = map[string]bool{
	"<module>": true, "_bootstrap": true, "_bootstrap_inner": true, "_wrap": true, "_run_code": true, "_run_module_as_main": true, "spawn_main": true, "_main": true,
	"_worker_loop": true, "__bootstrap": true, "_wrapped_fn": true, "run_code": true, "launch": true, "": true,
}

// What Python prints above the traceback of a thread, a task or a child process, and above one that changes nothing.
var (
	panics       = regexp.MustCompile(`^panic: |^goroutine \d+ \[running\]|^thread '([^']*)' panicked`)
	asideHead    = regexp.MustCompile(`Exception in thread |\bProcess [\w:.-]+:$|(?:Task|Future) exception was never retrieved|Exception in callback `)
	unheededHead = regexp.MustCompile(`--- Logging error ---|Exception ignored (?:in|on)\b`)
)

// panicsAside says whether a line is the panic of a thread that is not the main one, or of a program in Go, which ends it: a job that goes on is another one.
func panicsAside(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("panic: ")) && !bytes.HasPrefix(line, []byte("goroutine ")) && !bytes.HasPrefix(line, []byte("thread '")) {
		return false // the expression is slow
	}
	m := panics.FindSubmatch(line)
	return m != nil && string(m[1]) != "main"
}

// oneLine undoes what JSON does to quotes and the ends of lines.
var oneLine = strings.NewReplacer(`\"`, `"`, `\n`, " ")

// levels of loggers stand where a class would.
var levels = map[string]bool{"DEBUG": true, "INFO": true, "NOTICE": true, "WARN": true, "WARNING": true, "ERROR": true, "CRITICAL": true, "FATAL": true}

// exceptionLike says whether a line begins with the name of an exception. Behind a frame the name of any class will do.
func exceptionLike(text []byte, behindFrame bool) bool {
	m := className.FindSubmatch(text)
	if m == nil {
		return false
	}
	name := m[2]
	if levels[string(name)] {
		return false
	}
	if endsLike.Match(name) {
		return len(m[1]) > 0 || name[0] >= 'A' && name[0] <= 'Z'
	}
	return behindFrame && (len(m[1]) > 0 && len(m[3]) > 0 && m[3][0] == ':' || name[0] >= 'A' && name[0] <= 'Z' && len(name) > 3)
}

// head opens a traceback, or goes on with one whose exception gives another one again.
func (s *scan) head(index int64, line []byte) {
	at := bytes.Index(line, []byte("Traceback (most"))
	prefix := string(line[:max(at, 0)])
	for _, word := range []string{"Original ", "Exception Group "} {
		prefix = strings.TrimSuffix(prefix, word)
	}
	prefix = strings.TrimRight(prefix, "╭─│|+ ")
	if strings.TrimRight(string(line[:max(at, 0)]), " ") == prefix {
		prefix = string(line[:max(at, 0)]) // nothing but the prefix of a process stood there
	}
	for _, b := range s.blocks {
		if b.pending != nil && b.prefix == prefix {
			b.frames, b.last, b.foreign = 0, index, 0
			return
		}
	}
	b := &block{prefix: prefix, root: index, last: index}
	if s.opener >= 0 && index-s.opener <= 3 {
		b.root = s.opener
	}
	for i := max(index-3, 0); i < index; i++ {
		b.aside = b.aside || asideHead.Match(s.ring[i%ring])
		b.unheeded = b.unheeded || unheededHead.Match(s.ring[i%ring])
	}
	s.open(b)
	if whole := oneLine.Replace(string(line[max(at, 0):])); frame.MatchString(whole) {
		s.oneLine(b, index, []byte(whole))
	}
}

// oneLine ends a traceback that is one line.
func (s *scan) oneLine(b *block, index int64, whole []byte) {
	for _, at := range frame.FindAllIndex(whole, -1) {
		s.frame(b, index, whole[at[0]:at[1]])
	}
	if m := inOneLine.FindSubmatch(whole); m != nil {
		s.mayEnd(b, index, m[1])
	}
}

func (s *scan) open(b *block) {
	s.look() // while the steps before it are still known
	if len(s.blocks) == maxBlocks {
		s.blocks = append(s.blocks[:0], s.blocks[1:]...)
	}
	s.blocks = append(s.blocks, b)
}

// stack opens the stack that a logger shows with a message. Its end is no error.
func (s *scan) stack(index int64, line []byte) {
	at := max(bytes.Index(line, []byte("Stack (most")), bytes.Index(line, []byte("Call stack:")), 0)
	s.open(&block{prefix: string(line[:at]), root: index, last: index, stack: true})
}

// orphan opens a traceback whose head is missing: a cut log, or a syntax error.
func (s *scan) orphan(index int64, line []byte) {
	at := bytes.Index(line, []byte(`File "`))
	if at < 0 { // in other letters
		return
	}
	prefix := strings.TrimSuffix(string(line[:at]), "  ")
	if len(prefix) > 60 || !frame.Match(line) {
		return
	}
	b := &block{prefix: prefix, root: index}
	s.open(b)
	s.frame(b, index, line)
}

// within says whether a line belongs to a traceback, and returns what is behind its prefix.
func (b *block) within(line []byte) ([]byte, bool) {
	if rest, ok := bytes.CutPrefix(line, []byte(b.prefix)); ok {
		return rest, true
	}
	// A time stamp differs from line to line.
	if len(line) < len(b.prefix) {
		trimmed := strings.TrimRight(b.prefix, " ")
		return nil, len(line) > 0 && string(line) == trimmed
	}
	digits := 0
	for i := range len(b.prefix) {
		p, c := b.prefix[i], line[i]
		if isDigit(p) {
			digits++
		}
		if p != c && !(isDigit(p) && isDigit(c)) {
			return nil, false
		}
	}
	return line[len(b.prefix):], digits >= 6
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// traceback hands a line to the tracebacks that are open. It says whether the line is one of theirs.
func (s *scan) traceback(index int64, line []byte) bool {
	var owner *block
	var text []byte
	for _, b := range s.blocks { // the longest prefix; of tracebacks that mix, the last one has the frames
		if rest, ok := b.within(line); ok && (owner == nil || len(b.prefix) >= len(owner.prefix)) {
			owner, text = b, rest
		}
	}
	own := false
	if owner != nil {
		switch boxed := bytes.TrimLeft(text, "│╭╰─|+ \t"); {
		case len(bytes.TrimSpace(text)) == 0:
			own = owner.pending == nil
		case frame.Match(text) || text[0] == ' ' || text[0] == '\t' || len(boxed) < len(text):
			s.frame(owner, index, text)
			own = true
		default:
			own = s.mayEnd(owner, index, text)
		}
	}
	kept := s.blocks[:0]
	for _, b := range s.blocks {
		if !(own && b == owner) {
			b.foreign++
		}
		switch {
		case b.root < 0: // it ended
		case b.foreign > maxForeign || b.pending != nil && b.foreign > 3:
			if b.pending != nil {
				s.add(b.pending)
			}
		default:
			kept = append(kept, b)
		}
	}
	clear(s.blocks[len(kept):])
	s.blocks = kept
	return own
}

func (s *scan) frame(b *block, index int64, text []byte) {
	b.foreign, b.last = 0, index
	if m := frame.FindSubmatch(text); m != nil {
		if b.frames == 0 {
			b.outermost = string(m[2])
			b.unheeded = b.unheeded || b.outermost == "__del__" // Python reports what a destructor raises, and goes on
			b.scratch = bytes.HasPrefix(m[1], []byte("/tmp/")) || bytes.HasPrefix(m[1], []byte("/var/tmp/"))
		}
		b.innermost = string(m[1])
		b.frames++
		in := string(m[2])
		b.importing = in == "<module>" && library.Match(m[1])
		b.setup = b.setup || strings.Contains(in, "init") || strings.Contains(in, "setup")
		b.deep++
		if b.source = !library.Match(m[1]); b.source {
			b.deep = 0
		}
		b.imports = b.imports && !b.source
		b.first = b.first || in == "barrier" || in == "init_process_group" || in == "_lazy_init" || in == "set_device"
	} else if b.source {
		code := bytes.TrimSpace(text)
		b.imports = bytes.HasPrefix(code, []byte("import ")) || bytes.HasPrefix(code, []byte("from "))
		b.source = false
	}
}

// mayEnd ends a traceback if a line is an exception. Of tracebacks that mix, that is the first one.
func (s *scan) mayEnd(owner *block, index int64, text []byte) bool {
	if owner.stack {
		owner.root = -1
		return false
	}
	if !exceptionLike(text, owner.last == index-1 && owner.frames > 0) {
		return false
	}
	b := owner
	for _, o := range s.blocks {
		if o.prefix == owner.prefix && o.root >= 0 {
			b = o
			break
		}
	}
	sig := s.know.classify(text, &s.found, true, true)
	if sig != nil && sig.Role == roleWrapper {
		sig = s.know.classify(text, &s.found, true, false)
		b.pending = s.raised(b, index, text, sig)
		b.last, b.foreign = index, 0
		return true
	}
	s.add(s.raised(b, index, text, sig))
	b.root = -1
	return true
}

// raised returns the event of a traceback and its last line.
func (s *scan) raised(b *block, index int64, text []byte, sig *signature) *event {
	if sig == nil {
		sig = s.know.exception
	}
	if class := cmp.Or(sig.Library, imported(sig, b)); class != "" && library.MatchString(b.innermost) && !(sig.Checks && b.deep == 1) {
		c := *sig
		c.Class = class
		sig = &c
	}
	warned := b.unheeded || level.MatchString(b.prefix)
	if warned && sig.Role == roleRoot && !sig.isHardware() {
		c := *sig
		c.Role, c.Confidence = roleSuspect, c.Confidence*0.7
		if b.unheeded && c.Class != Infrastructure { // of a full disk, it may be all that is said
			c.Role = roleNoise
		}
		sig = &c
	}
	if sig.Parse == "first-allocation" {
		sig = s.firstAllocation(sig, b)
	}
	return &event{
		root: b.root, line: index, text: clip(text), sig: sig, traceback: true, prefix: b.prefix,
		printed: warned || quoted(b.prefix) || b.frames > 0 && (!rootFunctions[b.outermost] || b.scratch), importing: b.importing, relayed: relays(b.prefix), chain: b.chain,
		aside: b.aside || b.unheeded, mild: warned && !sig.isHardware(),
	}
}

// imported returns the class of an exception that a library raises while the program imports it, if it is another one.
func imported(sig *signature, b *block) Category {
	if b.imports {
		return sig.Import
	}
	return ""
}

// speaks is a name before what a process of it prints, where several ones share a log: "exporter | ", "[loader] ", "trainer: ".
var speaks = regexp.MustCompile(`^\s*(?:\[[A-Za-z][\w./-]*\]|[A-Za-z][\w.-]* *\||[A-Za-z][\w.-]*:) `)

func speaker(line []byte) string { return string(speaks.Find(line)) }

// quoted says whether a traceback stands further to the right, as text that a program shows.
func quoted(prefix string) bool { return len(prefix) >= 2 && strings.TrimLeft(prefix, " \t>") == "" }

// relays says whether a prefix is of another program, whose output the job shows. That of a rank or of a logger has a number.
func relays(prefix string) bool {
	letters := 0
	for i := range len(prefix) {
		if isDigit(prefix[i]) {
			return false
		} else if isWord(prefix[i]) {
			letters++
		}
	}
	return letters >= 3 && !level.MatchString(prefix) && !strings.Contains(prefix, "ERROR")
}

// firstAllocation judges an out-of-memory error of the CUDA run time. Raised by the first barrier, before any step, it is not
// the model that fills the GPU.
func (s *scan) firstAllocation(sig *signature, b *block) *signature {
	if !b.first || s.steps > 0 && !b.setup {
		return sig
	}
	c := *sig
	c.Class, c.Component, c.Confidence, c.Action = Infrastructure, "gpu", 0.5, "cordon_and_restart"
	c.Says = "the first call finds no GPU memory: another process holds it, or the GPU is faulty"
	return &c
}

// clip returns the beginning of a line, to show it.
func clip(line []byte) string {
	const most = 400
	if len(line) <= most {
		return string(line)
	}
	return strings.ToValidUTF8(string(line[:most]), "") + "…"
}
