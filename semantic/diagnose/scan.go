package diagnose

import (
	"bytes"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/semantic/logtext"
)

// event is a place where something may have failed.
type event struct {
	root, line int64
	cluster    int64 // the first of the suspicions and consequences right before it
	text       string
	sig        *signature
	prefix     string
	traceback  bool
	// printed tracebacks do not begin where a process does: the program caught the error and printed it.
	printed bool
	// importing: a library could not be imported, which a program may do without. relayed: it is of another program, whose output the job shows.
	importing, relayed bool
	aside              bool // it is of a thread, a task or a child process, without which the job may go on
	// excused errors have words around them that say that the program goes on.
	excused bool
	// mild: the level of its logger, or its signature, says that the program goes on.
	mild bool
	// early: no step was complete before it.
	early bool
	// quiet: it came after the end of the job.
	quiet bool
	// survived: it came before the first step, and the job went on and ended well. Such a line is a note of the program, or of its data.
	survived bool

	// What the steps were before it, by kind of line, and how many came after it that continue them, or begin.
	steps                   []int64
	continued, begun, other int
	moved                   int // how often numbers grew after it that had grown before
	grown                   int // how often numbers grew after it that had not been there before
	burst                   *burst
	// speaker is the name before its line. busy: lines of the same name, with numbers, came right before it.
	speaker   string
	busy      bool
	recurred  int // what the burst had counted before it
	table     *table
	watched   int64 // the line up to which steps matter
	restarted bool  // the job began again after it
	recovered bool  // what it is about was well again

	// chain is the event during which, or because of which, this one was raised.
	chain *event
}

// ring is how many of the last lines are kept, to find the steps before an event.
const ring = 64

// ringLine is how many bytes of them.
const ringLine = 256

// start is for how many lines the first step of the job is looked for.
const start = 100_000

// enough steps after an event say that the job went on.
const enough = 3

// begun is how many steps after a line before the first one say that it was a note of the program.
const begun = 2

// reopened is how many steps after the end of a job say that another run began. Its own last one may come after its closing words.
const reopened = 2

// watch is for how many lines after an event steps matter.
const watch = 600

// maxEvents bounds the events of a rank that are kept.
const maxEvents = 128

// scan reads a log, line by line.
type scan struct {
	know   *knowledge
	found  matched
	blocks []*block
	opener int64 // the last line that introduces a traceback
	chain  bool  // the next traceback belongs to the last event

	ring  [ring][]byte
	may   [ring]uint64 // by bit: the kinds of step that each of them may report
	idle  [ring]bool   // whether each of them has a word that says that its numbers count nothing
	step  [ring]bool   // whether each of them reports one
	table *table       // of which the last line is a row
	diff  diff
	lines int64   // read so far
	seen  int64   // lines of the ring up to here are searched for steps
	last  []int64 // by kind
	kind  int     // of the last step; -1: there was none
	steps int64
	until int64 // steps are of interest up to this line

	events  [ranks][]*event
	before  *event // the last one
	success *Line
	stop    *Line
	ended   bool  // the job has ended, and no step came since
	endedAt int64 // where
	again   int   // steps since
	excuse  int64 // the last line that says that the program goes on
	closing int64 // the last line that says that the job ended well
	counts  counts
	kinds   map[shape]kind // of lines around the last event
}

func newScan(k *knowledge) *scan {
	s := &scan{know: k, kind: -1, opener: -1, excuse: -1 << 40, endedAt: -1, closing: -1, counts: counts{last: map[shape]count{}}, kinds: map[shape]kind{}}
	s.last = make([]int64, len(k.progress))
	for i := range s.last {
		s.last[i] = -1
	}
	return s
}

// line reads a line. The bytes are not kept.
func (s *scan) line(index int64, line []byte) {
	s.lines = index + 1
	s.know.look(line, &s.found)
	slot := &s.ring[index%ring]
	*slot = append((*slot)[:0], line[:min(len(line), ringLine)]...)
	s.may[index%ring], s.idle[index%ring] = s.found.steps, s.found.has(markIdle)
	s.step[index%ring] = false
	s.rows(line)
	if index < s.until || s.steps == 0 && index < start {
		s.look()
	}
	if e := s.before; index < s.until && e != nil && e.survivable() {
		if e.mayGoOn() {
			s.countUp()
		}
		s.recur(index - 1)
	}
	if s.inDiff(line) {
		return
	}
	if !s.matters() && s.found.marks&^(1<<markExcuse|1<<markIdle|1<<markState) == 0 && len(s.blocks) == 0 {
		s.excused(index, line)
		return
	}
	if !logtext.IsText(line) {
		return // words in it are there by chance
	}
	switch {
	case s.found.has(markTraceback) && bytes.Contains(line, []byte("Traceback")): // CANN writes another B
		s.head(index, line)
		s.chained()
		return
	case s.found.has(markStack):
		s.stack(index, line)
		return
	case s.found.has(markChain):
		s.chain = s.before != nil
		return
	case s.found.has(markOpener) && !bytes.Contains(line, []byte(`thread "`)): // else of Java, which has no traceback
		s.opener = index
		return
	}
	if len(s.blocks) > 0 {
		if s.traceback(index, line) {
			return
		}
	}
	if s.found.has(markFrame) {
		s.orphan(index, line)
		return
	}
	s.excused(index, line)
	sig := s.know.classify(line, &s.found, false, false)
	if sig == nil {
		sig = s.bareException(line)
	}
	if sig != nil {
		s.observe(index, line, sig)
	}
}

// matters says whether a signature that was found can change the verdict, so that it has to be tried.
func (s *scan) matters() bool {
	return slices.ContainsFunc(s.found.signatures, func(n int32) bool {
		switch s.know.signatures[n].Role {
		case roleNoise, roleClosing:
			return false
		case roleRestarts, roleRecovered:
			return s.before != nil
		}
		return true
	})
}

// level finds the level of a logger that says that the program goes on. NCCL reports its errors as warnings.
var level = regexp.MustCompile(`^.{0,80}?(?:\b(?:WARNING|WARN|INFO|DEBUG)\b|\[W[\d ]|^[WI]\d{4} [\d:.]{8}|"level": ?"(?:warn|warning|info|debug)"|\blevel=(?:warn|warning|info|debug)\b)`)

// mild says whether a line's logger holds it for less than an error.
func mild(line []byte) bool {
	head := line[:min(len(line), 96)]
	if !hasLevel(head) {
		return false
	}
	return level.Match(line) && !bytes.Contains(line, []byte("NCCL "))
}

// hasLevel says whether a line's head may have a level: the expression is slow.
func hasLevel(head []byte) bool {
	if len(head) > 1 && (head[0] == 'W' || head[0] == 'I') && isDigit(head[1]) {
		return true
	}
	return slices.ContainsFunc(levelWords, func(w []byte) bool { return bytes.Contains(head, w) })
}

var levelWords = [][]byte{[]byte("WARN"), []byte("INFO"), []byte("DEBUG"), []byte("[W"), []byte("level")}

// excused notes lines that say that the program goes on. They matter only next to an event.
func (s *scan) excused(index int64, line []byte) {
	near := s.before != nil && index-s.before.line <= 4
	if s.found.has(markExcuse) && (near || bytes.Contains(line, []byte("WARN"))) {
		s.excuse = index
		if near {
			s.before.excused = true
		}
	}
}

// standing is what may stand before an exception outside a traceback: ranks, times, levels of a logger.
var standing = regexp.MustCompile(`^(?:\s+|[\[(][^\])]{0,60}[\])]:?\s*|\d+:\s+|[\d:.,TZ/+-]{4,}\s+|(?:ERROR|CRITICAL|FATAL|Error|E)\b[:\s|-]*|[\w.-]{1,40}\s*[|]\s*|[\w.-]+: )`)

// bareException returns the meaning of an exception without a traceback: a suspicion.
func (s *scan) bareException(line []byte) *signature {
	rest := line
	for i := 0; !exceptionLike(rest, false); i++ {
		n := len(standing.Find(rest))
		if n == 0 || i == 8 {
			return nil
		}
		rest = rest[n:]
	}
	sig := s.know.classify(rest, &s.found, true, false)
	if sig == nil || sig.Role != roleRoot {
		return sig
	}
	c := *sig
	c.Role, c.Confidence = roleSuspect, c.Confidence*0.7
	return &c
}

func (s *scan) observe(index int64, line []byte, sig *signature) {
	switch sig.Role {
	case roleNoise, roleClosing:
	case roleRestarts:
		s.restarts()
	case roleRecovered:
		s.recovered(line)
	case roleSuccess:
		s.success, s.closing = &Line{index, clip(line), sig.Says}, index
		s.ends(index)
		for _, events := range s.events {
			for _, e := range events {
				e.survived = e.survived || !e.traceback && !e.sig.isHardware() && e.rank() != aDecisive && (e.mild || e.early && e.begun > 0)
			}
		}
	case roleStop:
		s.stop = &Line{index, clip(line), sig.Says}
		s.ends(index)
		s.drop(index)
	case roleClears:
		s.clear(sig.Clears)
	default:
		name := speaker(line) // with a colon, perhaps that of an exception
		e := &event{root: index, line: index, text: clip(line), sig: sig, speaker: name, relayed: relays(name) && !strings.HasSuffix(name, ": "), aside: panicsAside(line), table: s.table, mild: sig.Mild || mild(line) && !sig.isHardware()}
		if e.mild && e.rank() == aRoot {
			c := *sig
			c.Role, c.Confidence = roleSuspect, c.Confidence*0.7
			e.sig = &c
		}
		s.add(e)
	}
}

// ends notes that the job has ended. Errors after that are noise, unless steps show that another run began.
func (s *scan) ends(index int64) {
	s.look()
	s.ended, s.endedAt, s.again, s.until = true, index, 0, max(s.until, index+watch)
}

// chained makes the traceback that has just begun a part of the last event, if the line before said so.
func (s *scan) chained() {
	if s.chain && len(s.blocks) > 0 {
		s.blocks[len(s.blocks)-1].chain = s.before
	}
	s.chain = false
}

// look searches the lines since the last time for completed steps.
func (s *scan) look() {
	for i := max(s.seen, s.lines-ring); i < s.lines; i++ {
		kind, step := s.know.step(s.ring[i%ring], s.may[i%ring], i, s.kind)
		if kind < 0 {
			continue
		}
		s.steps++
		s.step[i%ring] = true
		s.last[kind], s.kind = step, kind
		if s.ended && i > s.endedAt {
			s.again++
			s.ended = s.again < reopened
		}
		for _, events := range s.events {
			for _, e := range events {
				e.after(i, kind, step)
			}
		}
	}
	s.seen = s.lines
	if !s.ended && (s.before == nil || s.before.decided()) {
		s.until = 0
	}
}

// step returns which kind of line reports a completed step, and its number, or its index where it has none; -1 if the line does not. The kind of the
// last such line is tried first: a job has few of them.
func (k *knowledge) step(line []byte, may uint64, index int64, last int) (kind int, step int64) {
	if may == 0 {
		return -1, 0
	}
	var lower [ringLine]byte
	folded := lower[:len(line)]
	for i, c := range line {
		folded[i] = fold(c)
	}
	if last >= 0 && may&(1<<last) != 0 {
		if n, ok := k.progress[last].step(folded, index); ok {
			return last, n
		}
	}
	for ; may != 0; may &= may - 1 {
		i := bits.TrailingZeros64(may)
		if i == last {
			continue
		}
		if n, ok := k.progress[i].step(folded, index); ok {
			return i, n
		}
	}
	return -1, 0
}

// step returns the number of the step that a line in lower case reports, if it is of this kind.
func (p *stepLine) step(line []byte, index int64) (int64, bool) {
	at := 0
	if p.Match[0] != '^' {
		if at = bytes.Index(line, []byte(p.Find)); at < 0 { // behind what is kept of a long line
			return 0, false
		}
	}
	m := p.match.FindSubmatchIndex(line[at:])
	switch {
	case m == nil:
		return 0, false
	case len(m) == 2: // of a server, which has no last step
		return index, true
	}
	number := string(line[at+m[2] : at+m[3]])
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(number, 64) // of epochs
	return int64(1000 * f), err == nil && f < 1e12
}

// after counts a step that was completed after an event.
func (e *event) after(index int64, kind int, step int64) {
	if index <= e.line || index > e.watched {
		return
	}
	switch before := e.steps[kind]; {
	case before < 0:
		e.begun++
	case step > before && step <= before+max(1000, before/2):
		e.continued++
		e.steps[kind] = step
	default:
		e.other++
	}
}

// decided says whether more steps would change nothing.
func (e *event) decided() bool {
	return e.continued >= enough || e.begun >= enough || e.other >= 10*enough
}
