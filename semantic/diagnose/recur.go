package diagnose

import (
	"bytes"
	"slices"
	"strconv"
)

// Some programs do not say how much they have done: "loss 0.31 psnr 24.1", "accepted 121, rejected 6". Lines like those right before an event, with other
// numbers, that come again soon after it say that the program goes on.

// kind is the last line of those that differ in their numbers only.
type kind struct {
	line   int64
	values shape // a hash of its numbers
	whole  [candidates]int64
}

// around is how many lines before an event, and behind it, such a line may be. All of them come before the ring is full again.
const around = 16

// burst is events of which each comes soon after the one before.
type burst struct {
	recurred int // how often lines came after it that are like those right before it
}

// remember notes the lines right before an event.
func (s *scan) remember(e *event) {
	from := max(e.root-around, s.lines-ring, 0)
	if p := s.before; p != nil && p.burst != nil && e.root-p.line <= around {
		e.burst, e.recurred = p.burst, p.burst.recurred
		from = max(from, p.line+1) // the lines before are known
		e.busy = p.busy && p.speaker == e.speaker
	} else {
		e.burst = &burst{}
		clear(s.kinds)
	}
	for i := from; i < e.root; i++ {
		if at, now := s.kindAt(i); at != noShape {
			s.kinds[at] = now
			e.busy = e.busy || e.speaker != "" && speaker(s.ring[i%ring]) == e.speaker
		}
	}
}

// answers says whether a line may be of the process that had an error. If it reported what it did before, others do not speak for it.
func (e *event) answers(line []byte) bool { return !e.busy || speaker(line) == e.speaker }

// kindAt returns the kind of a line of the ring; noShape if it says nothing of what the job does.
func (s *scan) kindAt(i int64) (shape, kind) {
	n, line := i%ring, s.ring[i%ring]
	if s.step[n] || s.idle[n] && s.know.isIdle(line) { // the numbers of steps say more
		return noShape, kind{}
	}
	at, now := kindOf(line)
	if at != noShape && s.know.monitors(line) {
		return noShape, kind{}
	}
	now.line = i
	return at, now
}

// recur counts a line if one of its kind came right before the last event.
func (s *scan) recur(i int64) {
	e := s.before
	if e.burst == nil || i <= e.line || i-e.line >= ring {
		return
	}
	at, now := s.kindAt(i)
	was, ok := s.kinds[at]
	if !ok || !e.answers(s.ring[i%ring]) {
		return
	}
	if !was.sameRun(&now) {
		return
	}
	s.kinds[at] = now
	if was.values != now.values && (was.line > e.line || i-e.line <= around) {
		e.burst.recurred++
	}
}

// recurs says whether enough lines came after an event that are like those right before it.
func (e *event) recurs() bool { return e.burst != nil && e.burst.recurred-e.recurred >= enough }

// monitors says whether a line measures the machine, not what the job does.
func (k *knowledge) monitors(line []byte) bool {
	for i := range line {
		if isWord(line[i]) && (i == 0 || !isWord(line[i-1])) && slices.ContainsFunc(k.machine, func(w string) bool { return beginsWith(line[i:], w) }) {
			return true
		}
	}
	return false
}

// sameRun says whether the whole numbers of a line may follow those of another one.
func (k *kind) sameRun(next *kind) bool {
	for i, was := range k.whole {
		if n := next.whole[i]; n > max(100, 3*was) || was > max(100, 3*n) {
			return false
		}
	}
	return true
}

// kindOf returns a hash of the words of a line, and its numbers but for those of times, dates and addresses; noShape if there are too few of either.
func kindOf(line []byte) (shape, kind) {
	h, letters, found, numbers := noShape, 0, 0, kind{values: noShape}
	for i := 0; i < len(line); {
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
		h = h.with('#')
		if number := line[i:end]; joints == 0 || joints == 1 && bytes.IndexByte(number, '.') >= 0 && (i == 0 || line[i-1] != '[') {
			numbers.values = numbers.values.and(number).with(' ')
			if n, err := strconv.ParseInt(string(number), 10, 64); err == nil && found < candidates {
				numbers.whole[found], found = n, found+1
			}
		}
		i = end
	}
	if letters < 3 || numbers.values == noShape {
		return noShape, kind{}
	}
	return h, numbers
}
