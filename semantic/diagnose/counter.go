package diagnose

import (
	"bytes"
	"slices"
	"strconv"
)

// Programs count what they have done in words of their own: "processed 12000 docs", "[3/5] evaluating", "wrote shard 8". A number that grows in lines
// that are otherwise alike, before an event and after it, says that the program goes on, whatever it does.

// counts are the last numbers of lines that look alike, by their shape.
type counts struct {
	last map[shape]count
	line int64 // lines of the ring up to here are read
}

// shape is a hash (FNV-1a) of what stands around a number.
type shape uint64

const noShape shape = 14695981039346656037

func (h shape) with(b byte) shape { return (h ^ shape(b)) * 1099511628211 }

func (h shape) and(text []byte) shape {
	for _, b := range text {
		h = h.with(b)
	}
	return h
}

type count struct {
	first, n int64 // the first line, and the largest number
}

// moved is how often numbers must grow after an event to say that the program goes on.
const moved = 2

// survivable says whether a job may go on after an event.
func (e *event) survivable() bool {
	return !e.quiet && e.rank() < aDecisive && !e.sig.isHardware() && (!e.traceback || e.printed || e.aside || e.relayed || e.importing)
}

// mayGoOn says whether numbers that grow can say that an event was not the end.
func (e *event) mayGoOn() bool { return e.survivable() && e.moved < moved && e.continued < enough }

// maxCounts bounds the kinds of lines that are kept; beyond that, all are forgotten.
const maxCounts = 4096

// candidates is how many numbers of a line may be the one that grows. The first ones are often those of a process.
const candidates = 3

// countUp searches the lines since the last time for numbers that grew.
func (s *scan) countUp() {
	c := &s.counts
	for i := max(c.line, s.lines-ring); i < s.lines; i++ {
		line := s.ring[i%ring]
		if s.step[i%ring] || s.idle[i%ring] && s.know.isIdle(line) { // steps count by themselves
			continue
		}
		since, grew := int64(0), false
		s.know.numbers(line, func(at shape, n int64) {
			was, ok := c.last[at]
			switch {
			case !ok:
				c.keep(at, count{i, n})
			case n > was.n && n <= max(100, 3*was.n): // else of another run
				c.last[at] = count{was.first, n}
				since, grew = max(since, was.first), true
			}
		})
		if !grew {
			continue
		}
		for _, events := range s.events {
			for _, e := range events {
				switch {
				case i <= e.line || i > e.watched || !e.answers(line):
				case e.root >= since:
					e.moved++
				default:
					e.grown++
				}
			}
		}
	}
	c.line = s.lines
}

func (c *counts) keep(at shape, n count) {
	if len(c.last) == maxCounts {
		clear(c.last)
	}
	c.last[at] = n
}

// isIdle says whether the numbers of a line count nothing that was done: it reports a failure, or that something waits. "timeouts=3" and "3 retried" are numbers like others.
func (k *knowledge) isIdle(line []byte) bool {
	for i := 0; i < len(line); {
		if !isWord(line[i]) && line[i] != '_' {
			i++
			continue
		}
		end := i
		for end < len(line) && (isWord(line[end]) || line[end] == '_') {
			end++
		}
		if words := k.idle[fold(line[i])]; words != nil && !isMetric(line[:i], line[end:]) && slices.ContainsFunc(words, func(w string) bool { return beginsWith(line[i:end], w) }) {
			return true
		}
		i = end
	}
	return false
}

// isMetric says whether a word between these two is the name of a number: "3 ", "=3", ": 3".
func isMetric(before, behind []byte) bool {
	if n := len(before); n > 1 && before[n-1] == ' ' && isDigit(before[n-2]) {
		return true
	}
	if len(behind) == 0 || behind[0] != '=' && behind[0] != ':' {
		return false
	}
	behind = bytes.TrimLeft(behind[1:], " ")
	return len(behind) > 0 && isDigit(behind[0])
}

func beginsWith(word []byte, lower string) bool {
	if len(word) < len(lower) {
		return false
	}
	for i := range len(lower) {
		if fold(word[i]) != lower[i] {
			return false
		}
	}
	return true
}

// namesProcess says whether the number behind these words is one of a process.
func (k *knowledge) namesProcess(before []byte) bool {
	before = bytes.TrimRight(before, " =:")
	return len(before) >= 3 && beginsWith(before[len(before)-3:], "pid")
}

// namesOne says whether the word before a number is one of a thing that has a number for a name, such as "rank 3": such a number says which, not how many.
func (k *knowledge) namesOne(before []byte) bool {
	end := len(before)
	for i := 0; i < 3 && end > 0 && !isWord(before[end-1]); i++ {
		end--
	}
	begin := end
	for begin > 0 && isWord(before[begin-1]) && !isDigit(before[begin-1]) {
		begin--
	}
	var lower [12]byte
	if n := end - begin; n == 0 || n > len(lower) {
		return false
	}
	for i, c := range before[begin:end] {
		lower[i] = fold(c)
	}
	word := lower[:end-begin]
	return k.named[string(word)] || word[len(word)-1] == 's' && k.named[string(word[:len(word)-1])]
}

// joined returns the end of a run of digits that begins at i, with what joins them in times, dates, addresses and decimal numbers, and how often that does.
func joined(line []byte, i int) (end, joints int) {
	for end = i; end < len(line) && (isDigit(line[end]) || end+1 < len(line) && isDigit(line[end+1]) && isJoint(line[end])); end++ {
		if !isDigit(line[end]) {
			joints++
		}
	}
	return end, joints
}

// numbers calls yield with each number of a line that may count something, and the shape of what stands before it and of the word behind it.
func (k *knowledge) numbers(line []byte, yield func(at shape, n int64)) {
	h, letters := noShape, 0
	for i, found := 0, 0; i < len(line) && found < candidates; {
		b := line[i]
		if !isDigit(b) {
			if b != ' ' {
				h = h.with(fold(b))
			}
			if isWord(b) {
				letters++
			}
			i++
			continue
		}
		end, joints := joined(line, i)
		digits, total := end-i, []byte(nil)
		if slash := bytes.IndexByte(line[i:end], '/'); joints == 1 && slash > 0 { // "3/5"
			digits, total = slash, line[i+slash:end]
		}
		inWord := i > 0 && (isWord(line[i-1]) || line[i-1] == '_' || line[i-1] == '-' && i > 1 && isWord(line[i-2]))
		hasUnit := end < len(line) && (isWord(line[end]) || line[end] == '_')
		switch {
		case inWord && joints == 0: // "gpu3", "node-14"
			h = h.and(line[i:end])
		case inWord, hasUnit, joints > 1, joints == 1 && total == nil, digits > 12:
			h = h.with('~')
		case i > 0 && line[i-1] == '#': // "frame #3" says which
			h = h.and(line[i:end])
		case k.namesProcess(line[max(0, i-16):i]): // workers take turns
			h = h.with('#')
		case k.namesOne(line[max(0, i-16):i]):
			h = h.and(line[i:end])
		default:
			behind, word, rest := h.with('#').and(total), 0, line[end:]
			if total != nil { // what is counted may have names
				rest = nil
			}
			for _, b := range rest {
				if letter := isWord(b) && !isDigit(b); !letter && (word > 0 || isDigit(b)) || word == 12 {
					break
				} else if letter {
					behind, word = behind.with(fold(b)), word+1
				}
			}
			if n, err := strconv.ParseInt(string(line[i:i+digits]), 10, 64); err == nil && (total != nil || letters+word >= 3) {
				yield(behind, n)
			}
			h = h.and(line[i:end])
			found++
		}
		i = end
	}
}

func isJoint(b byte) bool {
	return b == '.' || b == ':' || b == '-' || b == '/' || b == ',' || b == 'T'
}
