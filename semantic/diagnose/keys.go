package diagnose

// keys finds which of many literals are in a line, in one pass (Aho-Corasick). ASCII letters match in both cases.
type keys struct {
	class  [256]uint8 // bytes that no literal has are class 0
	width  int        // the number of classes
	next   []uint16   // by state and class
	found  [][]int32  // by state: the literals that end there
	accept []bool     // by state: whether any does
	short  []uint8    // by literal: its length if it is short, or 0
}

func fold(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// newKeys returns an automaton for at most 65,535 bytes of literals.
func newKeys(literals []string) *keys {
	k := &keys{width: 1}
	for _, l := range literals {
		for i := range len(l) {
			if c := fold(l[i]); k.class[c] == 0 {
				k.class[c] = uint8(k.width)
				k.width++
			}
		}
	}
	for c := byte('A'); c <= 'Z'; c++ {
		k.class[c] = k.class[fold(c)]
	}
	state := func() uint16 {
		k.next = append(k.next, make([]uint16, k.width)...)
		k.found = append(k.found, nil)
		return uint16(len(k.found) - 1)
	}
	state() // the start
	for n, l := range literals {
		at := uint16(0)
		for i := range len(l) {
			edge := int(at)*k.width + int(k.class[l[i]])
			if k.next[edge] == 0 {
				to := state()
				k.next[edge] = to
			}
			at = k.next[edge]
		}
		k.found[at] = append(k.found[at], int32(n))
		short := uint8(0)
		if len(l) <= 4 && isWord(l[0]) {
			short = uint8(len(l))
		}
		k.short = append(k.short, short)
	}
	k.link()
	return k
}

// link completes the edges of the trie: where a literal cannot go on, the longest literal that may have begun inside it does.
func (k *keys) link() {
	fail := make([]uint16, len(k.found))
	queue := []uint16{0}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		k.found[s] = append(k.found[s], k.found[fail[s]]...)
		for c := range k.width {
			edge, back := int(s)*k.width+c, k.next[int(fail[s])*k.width+c]
			switch to := k.next[edge]; {
			case to == 0 && s == 0:
			case to == 0:
				k.next[edge] = back
			default:
				if s != 0 {
					fail[to] = back
				}
				queue = append(queue, to)
			}
		}
	}
	k.accept = make([]bool, len(k.found))
	for s := range k.found {
		k.accept[s] = len(k.found[s]) > 0
	}
}

// in calls yield with each literal that is in the line. A literal that occurs twice is reported twice.
func (k *keys) in(line []byte, yield func(literal int32)) {
	s := 0
	for i, c := range line {
		s = int(k.next[s*k.width+int(k.class[c])])
		if k.accept[s] {
			for _, n := range k.found[s] {
				if k.whole(n, line, i+1) {
					yield(n)
				}
			}
		}
	}
}

// whole says whether a literal that ends at a place may count. A short one is part of many words: it must begin one, and a number
// must end there as well.
func (k *keys) whole(n int32, line []byte, end int) bool {
	l := k.short[n]
	if l == 0 {
		return true
	}
	begin := end - int(l)
	if begin > 0 && isWord(line[begin-1]) {
		return false
	}
	return !isDigit(line[begin]) || end == len(line) || !isWord(line[end])
}

func isWord(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c) }
