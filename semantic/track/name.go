package track

import (
	"bytes"
	"slices"
)

// This file reads what a number is called, and its unit.

// unit is what stands behind a number, or in parentheses before it.
type unit struct {
	num, den meaning
	scale    float64 // 27.6K
	size     bool    // GiB
	percent  bool
	item     string
	per      float64 // (100 iters): the number of steps
	to       int     // its last token
}

// name is what stands before a number.
type name struct {
	all, last  meaning
	step, time int // where the first word for a step and for a unit of time are, from 1, in the order of the line
	words      int
	unknown    bool // one of several words means nothing
	slash      bool // words are joined by a slash
	most       bool // one of them is max
	updates    bool // the last word is updates
	letter     bool // the last word is a letter
	only       bool // the word for a step is update, which is a part of a step in reinforcement learning
	separator  bool // a : or = comes before the number
	bracket    bool // a [ does
	group      unit // (ms)
	item       string
	hash       uint64
}

// itemOf returns what a word such as "toks" or "tps" counts, in the plural; empty if it does not say.
func itemOf(text []byte) string {
	if s, n := spell(text); n <= longest {
		if e := words.find(s, s.hash()); e.meaning != 0 {
			return e.item
		}
	}
	return countedBy(text)
}

func countedBy(text []byte) string {
	var lower [16]byte
	switch w := bytes.TrimSuffix(append(lower[:0], bytes.ToLower(text)...), []byte("s")); string(w) {
	case "tok", "token", "tp", "tg":
		return "tokens"
	case "img", "image":
		return "images"
	case "seq", "sequence":
		return "sequences"
	case "req", "request", "qp":
		return "requests"
	case "word", "wp":
		return "words"
	case "frame", "fp":
		return "frames"
	case "sp":
		return "samples"
	case "tflop", "gflop", "pflop":
		return string(bytes.ToUpper(w)) + "s"
	case "", "ip", "throughput", "speed", "mfu", "hfu", "flop":
		return ""
	default:
		return string(w) + "s"
	}
}

// unitAt reads the unit that begins at token i into u.
func (r *reader) unitAt(i int, u *unit) {
	*u = unit{scale: 1, to: i - 1}
	if i >= len(r.tokens) {
		return
	}
	t := &r.tokens[i]
	if t.kind == other && t.joined {
		switch {
		case t.char == '%':
			u.percent, u.to = true, i
		case t.char == '/' && i+1 < len(r.tokens) && r.tokens[i+1].joined && r.tokens[i+1].meaning&mSecond != 0: // 2659.02/s
			u.num, u.den, u.to = mItem, mSecond, i+1
		}
		return
	}
	if t.kind != word || t.wide {
		return
	}
	if t.joined && t.meaning == 0 { // 27.6K tok/s, 12.8G
		switch string(r.text(i)) {
		case "k", "K":
			u.scale = 1e3
		case "M":
			u.scale, u.size = 1e6, true
		case "G", "GB", "GiB", "MB", "MiB", "KB", "KiB":
			u.size = true
		default:
			return
		}
		u.to = i
		if u.scale == 1 || i+1 >= len(r.tokens) || r.tokens[i+1].kind != word {
			return
		}
		i++
		t = &r.tokens[i]
	}
	if !t.joined && t.meaning == 0 && t.to-t.from == 1 && (i+1 == len(r.tokens) || r.tokens[i+1].is(',')) { // 14.50 M
		switch r.line[t.from] {
		case 'K':
			u.scale, u.to = 1e3, i
		case 'M':
			u.scale, u.to = 1e6, i
		}
		return
	}
	if !t.joined && i+2 < len(r.tokens) && r.tokens[i+1].is('_') && r.tokens[i+1].joined && r.tokens[i+2].joined {
		return // the first word of the next name: 15.3 token_entropy: 1.02
	}
	const units = mSecond | mMilli | mMicro | mItem | mStep | mBatch | mFlop | mEpoch
	if t.meaning == 0 && i+2 < len(r.tokens) && r.tokens[i+1].is('/') && r.tokens[i+1].joined && r.tokens[i+2].meaning&mSecond != 0 {
		if last := r.line[t.to-1]; last != 'B' && last != 'b' { // 31.5 utts/s, but not 1.2 GB/s
			*u = unit{num: mItem, den: mSecond, scale: u.scale, item: itemOf(r.text(i)), to: i + 2}
			return
		}
	}
	if t.meaning&units == 0 {
		return
	}
	u.item = itemOf(r.text(i))
	under := i + 2
	if i+2 < len(r.tokens) && (r.tokens[i+1].is('/') && (r.tokens[i+1].joined || r.tokens[i+2].meaning&mStep != 0) || r.tokens[i+1].meaning&mPer != 0) && r.tokens[i+2].meaning&units != 0 { // s/it, s / iter
		if !t.joined && r.names(under+1) && !(under+2 < len(r.tokens) && r.tokens[under+2].kind == word) { // 16532.1 words/s : norm 1.2
			return
		}
		u.num, u.den, u.to = t.meaning&units, r.tokens[under].meaning&units, under
		return
	}
	// A word behind a space may be the name of the next number.
	if t.joined || i+1 >= len(r.tokens) || r.tokens[i+1].kind == other && !r.names(i+1) {
		u.num, u.to = t.meaning&units, i
	}
}

// names reports whether token i says that what is before it is a name.
func (r *reader) names(i int) bool {
	return i < len(r.tokens) && (r.tokens[i].is(':') || r.tokens[i].is('='))
}

// name reads what stands before the number at token i into k.
func (r *reader) name(i int, k *name) {
	*k = name{hash: 14695981039346656037}
	j := i - 1
skip:
	for ; j > r.stop; j-- {
		switch t := &r.tokens[j]; {
		case t.kind == number && k.separator && r.inName(j):
			j--
		case t.kind != other:
			break skip
		case t.char == '\'' || t.char == '"' || t.char == '#':
		case t.char == '.' && t.joined && !r.tokens[j+1].joined: // Ep. 3
		case t.char == '|' && r.cell && !k.separator:
			k.separator = true
		case (t.char == ':' || t.char == '=') && !k.separator:
			k.separator = true
		case t.char == '[' && !k.bracket && !k.separator:
			k.bracket = true
		case t.char == ')' && k.group.to == 0:
			from := r.open(j)
			if from < 0 {
				return
			}
			for _, t := range r.tokens[from+1 : j] {
				r.head |= t.meaning & mOther // Epoch(val)
			}
			r.groupAt(from+1, &k.group)
			k.group.to = j
			j = from
		default:
			return
		}
	}
	first := j
	for n := 0; j > r.stop && n < 7; j-- {
		t := &r.tokens[j]
		if t.kind == other && n > 0 && t.joined && (t.char == '_' || t.char == '-' || t.char == '/' || t.char == '.') && r.tokens[j+1].joined {
			k.slash = k.slash || t.char == '/'
			continue
		}
		if n > 0 && t.kind == rounded && r.tokens[j+1].joined {
			k.unknown = true
			break
		}
		if t.kind != word || n > 0 && r.tokens[j+1].wide {
			break
		}
		if n == 0 {
			if t.meaning&mNumber != 0 { // epoch_num
				if before := r.counted(j); before >= 0 {
					j = before + 1
					continue
				}
			}
			k.last, k.letter, k.updates = t.meaning, t.to-t.from == 1, t.meaning&mStep != 0 && string(r.text(j)) == "updates"
		}
		k.all |= t.meaning
		k.most = k.most || string(r.text(j)) == "max"
		k.unknown = k.unknown || t.meaning == 0
		n++
		k.words = n
		if t.meaning&(mStep|mBatch) != 0 {
			k.step = first - j + 1
			k.only = string(r.text(j)) == "update"
		}
		if t.meaning&(mSecond|mMilli|mMicro) != 0 {
			k.time = first - j + 1
		}
		if t.meaning&(mItem|mRate) != 0 && k.item == "" {
			k.item = itemOf(r.text(j))
		}
		k.hash = (k.hash ^ t.hash) * 1099511628211
	}
	if k.all&mCross != 0 && k.all&mLoss != 0 {
		k.all &^= mNot | mScore
	}
	if k.all&mCost != 0 && k.all&(mStep|mBatch) != 0 {
		k.all |= mTime
	}
	if k.words == 1 && k.all == 0 && string(r.text(first)) == "value" {
		r.nameOfKey(first, k)
	}
}

// counted returns the token of the word for a step or an epoch that the word at token j is the number of, or -1.
func (r *reader) counted(j int) int {
	if j--; j > r.stop && r.tokens[j].is('_') {
		j--
	}
	if j > r.stop && r.tokens[j].meaning&(mStep|mEpoch) != 0 {
		return j
	}
	return -1
}

// nameOfKey reads the name of a value that JSON has as {"key": "eval_loss", "value": 1.5}, or as {"name": "loss", ...}.
func (r *reader) nameOfKey(i int, k *name) {
	stop := r.stop
	r.stop = -1 // numbers may stand between
	defer func() { r.stop = stop }()
	for j := i - 2; j >= 0 && j > i-32; j-- {
		if t := string(r.text(j)); t == "key" || t == "name" {
			if comma := slices.IndexFunc(r.tokens[j:i], func(t token) bool { return t.is(',') }); comma > 0 {
				r.name(j+comma, k)
			}
			return
		}
	}
}

// open returns the token of the parenthesis that the one at token j closes, or -1.
func (r *reader) open(j int) int {
	for i := j - 1; i > r.stop && i > j-10; i-- {
		if r.tokens[i].is('(') {
			return i
		}
	}
	return -1
}

// groupAt reads a unit in parentheses, "(ms)", and "(100 iters)".
func (r *reader) groupAt(i int, u *unit) {
	if t := &r.tokens[i]; t.kind == number && i+1 < len(r.tokens) && r.tokens[i+1].meaning&(mStep|mBatch) != 0 {
		*u = unit{scale: 1, per: t.value}
		return
	}
	r.unitAt(i, u)
}
