package track

import (
	"bytes"
	"math"
	"slices"
	"time"
)

// Reading is what one line says of the progress of a job. A figure that the line does not print is NaN, but for Loss: Has says whether
// the line prints one, which may be NaN itself.
type Reading struct {
	Line       int64   // its number, from 0
	Step       float64 // the step, and of how many
	TotalSteps float64
	Epoch      float64
	Epochs     float64 // of how many
	StepTime   float64 // seconds for a step
	EpochTime  float64 // seconds for an epoch, of a line that says nothing about a step
	Throughput float64 // in Unit, such as "samples/s"; empty if the line does not say
	Unit       string
	Loss       float64
	HasLoss    bool
	// Elapsed is since the begin of the bar that the line is, and Left what the line expects to be left; in seconds.
	Elapsed, Left float64
	// At is the moment that the line begins with, in seconds from any moment: only differences mean something.
	At float64

	series uint64 // what the line prints, and by which names: lines of one print statement have the same
}

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
	separator  bool // a : or = comes before the number
	bracket    bool // a [ does
	group      unit // (ms)
	item       string
	hash       uint64
}

// choice is the best figure found so far for one quantity. A lower rank is better, and of equal ones the first.
type choice struct {
	value, total float64
	rank         int
	hash         uint64
}

func (c *choice) offer(value, total float64, rank int, hash uint64) {
	if c.rank == 0 || rank < c.rank {
		*c = choice{value, total, rank, hash}
	}
}

// reader reads lines. It keeps the memory of the last one.
type reader struct {
	line   []byte
	tokens []token
	stop   int // names begin behind this token: what is before is the unit of another number
	head   meaning
	inHead bool

	step, epoch, pace, rate, loss choice
	epochPace                     choice
	unit                          string
	elapsed, left, at             float64
	columns                       []float64 // the numbers without a name behind the first pair: a table
	sized                         bool      // the first of them is a size
	pairs                         int       // how many n of N the line has
	beside                        bool      // the line has another figure of training, such as the accuracy
	source                        uint64    // of the files that the line names: the print statement is in one of them
}

// read returns what a line says of the progress of training, and whether it says anything.
func (r *reader) read(line []byte) (Reading, bool) {
	if !slices.ContainsFunc(line, digit) {
		return Reading{}, false
	}
	*r = reader{line: line, tokens: tokens(line, r.tokens[:0]), columns: r.columns[:0], stop: -1, inHead: true, elapsed: math.NaN(), left: math.NaN(), at: math.NaN()}
	for i := 0; i < len(r.tokens); i++ {
		switch t := &r.tokens[i]; t.kind {
		case word:
			if t.meaning&mLast != 0 && !r.ofPart(i) {
				return Reading{}, false
			}
			if r.inHead {
				r.head |= t.meaning
			}
			if t.meaning&mValue != 0 && i > 0 {
				r.figure(i, math.NaN())
			}
			if i > 1 && t.joined && r.tokens[i-1].is('.') && string(r.text(i)) == "py" {
				r.source = hashed(r.source, r.path(i))
			}
		case number:
			r.inHead = false
			i = r.number(i)
		case date, clock:
			i = r.moment(i)
		}
	}
	if r.head&mOther != 0 && r.head&mTrain == 0 {
		return Reading{}, false
	}
	return r.conclude()
}

// ofPart reports whether the word at token i is the last of a name that says of what part of the job it is: interval_runtime, not train_runtime.
func (r *reader) ofPart(i int) bool {
	return i > 1 && r.tokens[i].joined && r.tokens[i-1].is('_') && r.tokens[i-2].kind == word && r.tokens[i-2].meaning&(mTrain|mOther) == 0
}

// moment reads the clock or the date at token i, and returns its last token: "elapsed<left" in a bar, or the time stamp of the line.
func (r *reader) moment(i int) int {
	t := &r.tokens[i]
	if t.kind == clock && i+2 < len(r.tokens) && r.tokens[i+1].is('<') && r.tokens[i+2].kind == clock {
		r.elapsed, r.left = t.value, r.tokens[i+2].value
		return i + 2
	}
	day := 0.0
	if t.kind == date {
		d, err := time.Parse(time.DateOnly, string(r.text(i)))
		if i++; i < len(r.tokens) && string(r.text(i)) == "T" {
			i++
		}
		if err != nil || i == len(r.tokens) || r.tokens[i].kind != clock {
			return i - 1
		}
		day = float64(d.Unix())
	}
	if i > 8 || !math.IsNaN(r.at) {
		return i
	}
	r.at = day + r.tokens[i].value
	if i+2 < len(r.tokens) && r.tokens[i+1].is(',') && r.tokens[i+1].joined && r.tokens[i+2].joined && r.tokens[i+2].kind == number { // 12:00:00,125
		r.at += r.tokens[i+2].value / 1000
		i += 2
	}
	return i
}

// number reads the number at token i, and returns the last token of it and of its unit.
func (r *reader) number(i int) int {
	slash := r.scaled(i) + 1
	if slash+1 >= len(r.tokens) || !r.tokens[slash].is('/') || r.tokens[slash+1].kind != number {
		return r.figure(i, r.tokens[i].value)
	}
	end := r.scaled(slash + 1)
	n, of := r.times(i), r.times(slash+1)
	if !whole(n) || !whole(of) {
		return r.figure(i, r.tokens[i].value)
	}
	if end+1 >= len(r.tokens) || r.tokens[end+1].kind != clock && !(r.tokens[end+1].is('/') && r.tokens[end+1].joined) { // else 05/26 12:00:00, 2026/05/26
		r.pair(i, n, of, end)
	}
	r.stop = end
	return end
}

// scaled returns the last token of a number such as 11.1k or 11.1kit, as bars print large ones.
func (r *reader) scaled(i int) int {
	if i+1 < len(r.tokens) && r.tokens[i+1].kind == word && r.tokens[i+1].joined {
		switch string(r.text(i + 1)) {
		case "k", "K", "M", "it", "kit", "Mit":
			return i + 1
		}
	}
	return i
}

// path returns the name of the file that ends with token i, with its folders.
func (r *reader) path(i int) []byte {
	end := r.tokens[i].to
	from := 1 + bytes.LastIndexAny(r.line[:end], " \t\"'([{<=,;|")
	return r.line[from:end]
}

func hashed(h uint64, text []byte) uint64 {
	for _, c := range text {
		h = (h ^ uint64(c|0x20)) * 1099511628211
	}
	return h
}

// text returns the text of token i.
func (r *reader) text(i int) []byte { return r.line[r.tokens[i].from:r.tokens[i].to] }

// times returns the number at token i with its scale.
func (r *reader) times(i int) float64 {
	v := r.tokens[i].value
	if end := r.scaled(i); end > i {
		switch r.text(end)[0] {
		case 'M':
			return math.Round(v * 1e6)
		case 'k', 'K':
			return math.Round(v * 1e3)
		}
	}
	return v
}

func whole(v float64) bool { return v >= 0 && v == math.Trunc(v) && v < 1e15 }

// pair reads n of N, whose first token is i and whose last is end.
func (r *reader) pair(i int, n, of float64, end int) {
	k := r.name(i)
	named := k.all &^ (mTrain | mItem | mOther)
	switch {
	case n > of, k.all&mOther != 0 && k.all&mTrain == 0, k.last&(mNot|mPart|mTime|mLoss) != 0:
	case k.last&mEpoch != 0:
		r.epoch.offer(n, of, 1, k.hash)
	case k.last&(mStep|mBatch) != 0:
		r.step.offer(n, of, 1, k.hash)
	case len(r.text(end)) > 1 && r.tokens[end].meaning&mStep != 0 || bytes.HasSuffix(r.text(end), []byte("it")): // 11.1kit/200kit
		r.step.offer(n, of, 1, 6)
	case r.inBar(i, end):
		if r.pairs == 1 && r.step.rank == 4 { // the first pair of the table is the epoch
			r.epoch.offer(r.step.value, r.step.total, 2, 1)
			r.step = choice{}
		}
		r.step.offer(n, of, 2, 2)
	case k.bracket && named == 0:
		if r.step.rank == 3 && i > 1 && r.tokens[i-1].joined && r.tokens[i-2].is(']') && r.tokens[i-2].joined { // [12/300][350/1251]: the epoch comes first
			r.epoch.offer(r.step.value, r.step.total, 2, 3)
			r.step = choice{}
		}
		r.step.offer(n, of, 3, 3)
	case i == 0, named == 0 && k.separator && r.epoch.rank > 0: // "epoch 143:  85 / 282"
		r.step.offer(n, of, 4, 4)
	}
	r.pairs++
}

// inBar reports whether the pair at token i stands behind the cells of a bar: 37%|███   | 37/100.
func (r *reader) inBar(i, end int) bool {
	if end+1 < len(r.tokens) && r.tokens[end+1].is(bar) { // Keras: 37/100 ━━━━
		return true
	}
	if i == 0 || !r.tokens[i-1].is('|') && !r.tokens[i-1].is(bar) && !r.tokens[i-1].is(']') {
		return false
	}
	for j := i - 1; j > 0 && j > i-60; j-- {
		if r.tokens[j].is('%') && r.tokens[j-1].kind == number {
			return true
		}
	}
	return false
}

// itemOf returns what a word such as "toks" or "tps" counts, in the plural; empty if it does not say.
func itemOf(text []byte) string {
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

// unitAt reads the unit that begins at token i.
func (r *reader) unitAt(i int) unit {
	u := unit{scale: 1, to: i - 1}
	if i >= len(r.tokens) {
		return u
	}
	t := &r.tokens[i]
	if t.kind == other && t.joined {
		switch {
		case t.char == '%':
			u.percent, u.to = true, i
		case t.char == '/' && i+1 < len(r.tokens) && r.tokens[i+1].joined && r.tokens[i+1].meaning&mSecond != 0: // 2659.02/s
			u.num, u.den, u.to = mItem, mSecond, i+1
		}
		return u
	}
	if t.kind != word || t.wide {
		return u
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
			return u
		}
		u.to = i
		if u.scale == 1 || i+1 >= len(r.tokens) || r.tokens[i+1].kind != word {
			return u
		}
		i++
		t = &r.tokens[i]
	}
	if !t.joined && i+2 < len(r.tokens) && r.tokens[i+1].is('_') && r.tokens[i+1].joined && r.tokens[i+2].joined {
		return u // the first word of the next name: 15.3 token_entropy: 1.02
	}
	const units = mSecond | mMilli | mMicro | mItem | mStep | mBatch | mFlop | mEpoch
	if t.meaning == 0 && i+2 < len(r.tokens) && r.tokens[i+1].is('/') && r.tokens[i+1].joined && r.tokens[i+2].meaning&mSecond != 0 {
		if last := r.line[t.to-1]; last != 'B' && last != 'b' { // 31.5 utts/s, but not 1.2 GB/s
			return unit{num: mItem, den: mSecond, scale: u.scale, item: itemOf(r.text(i)), to: i + 2}
		}
	}
	if t.meaning&units == 0 {
		return u
	}
	u.item = itemOf(r.text(i))
	under := i + 2
	if i+2 < len(r.tokens) && (r.tokens[i+1].is('/') && r.tokens[i+1].joined || r.tokens[i+1].meaning&mPer != 0) && r.tokens[i+2].meaning&units != 0 {
		if !t.joined && r.names(under+1) {
			return u
		}
		u.num, u.den, u.to = t.meaning&units, r.tokens[under].meaning&units, under
		return u
	}
	// A word behind a space may be the name of the next number.
	if t.joined || i+1 >= len(r.tokens) || r.tokens[i+1].kind == other && !r.names(i+1) {
		u.num, u.to = t.meaning&units, i
	}
	return u
}

// names reports whether token i says that what is before it is a name.
func (r *reader) names(i int) bool {
	return i < len(r.tokens) && (r.tokens[i].is(':') || r.tokens[i].is('='))
}

// name reads what stands before the number at token i.
func (r *reader) name(i int) name {
	k := name{hash: 14695981039346656037}
	j := i - 1
skip:
	for ; j > r.stop; j-- {
		switch t := &r.tokens[j]; {
		case t.kind != other:
			break skip
		case t.char == '\'' || t.char == '"' || t.char == '#':
		case (t.char == ':' || t.char == '=') && !k.separator:
			k.separator = true
		case t.char == '[' && !k.bracket && !k.separator:
			k.bracket = true
		case t.char == ')' && k.group.to == 0:
			from := r.open(j)
			if from < 0 {
				return k
			}
			for _, t := range r.tokens[from+1 : j] {
				r.head |= t.meaning & mOther // Epoch(val)
			}
			k.group = r.groupAt(from + 1)
			k.group.to = j
			j = from
		default:
			return k
		}
	}
	first := j
	for n := 0; j > r.stop && n < 7; j-- {
		t := &r.tokens[j]
		if t.kind == other && n > 0 && t.joined && bytes.IndexByte([]byte("_-/."), t.char) >= 0 && r.tokens[j+1].joined {
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
		if before := r.counted(j); n == 0 && t.meaning&mNumber != 0 && before >= 0 { // epoch_num
			j = before + 1
			continue
		}
		if n == 0 {
			k.last = t.meaning
		}
		k.all |= t.meaning
		k.unknown = k.unknown || t.meaning == 0
		n++
		k.words = n
		if t.meaning&(mStep|mBatch) != 0 {
			k.step = first - j + 1
		}
		if t.meaning&(mSecond|mMilli|mMicro) != 0 {
			k.time = first - j + 1
		}
		if t.meaning&(mItem|mRate) != 0 && k.item == "" {
			k.item = itemOf(r.text(j))
		}
		k.hash = hashed(k.hash, r.text(j))
	}
	if k.all&mCross != 0 && k.all&mLoss != 0 {
		k.all &^= mNot
	}
	if k.all&mCost != 0 && k.all&(mStep|mBatch) != 0 {
		k.all |= mTime
	}
	if k.words == 1 && k.all == 0 && string(r.text(first)) == "value" {
		return r.nameOfKey(first, k)
	}
	return k
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

// nameOfKey reads the name of a value that JSON has as {"key": "eval_loss", "value": 1.5}.
func (r *reader) nameOfKey(i int, k name) name {
	for j := i - 2; j > r.stop && j > i-16; j-- {
		if string(r.text(j)) == "key" && r.tokens[j].kind == word {
			if comma := slices.IndexFunc(r.tokens[j:i], func(t token) bool { return t.is(',') }); comma > 0 {
				return r.name(j + comma)
			}
			return k
		}
	}
	return k
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
func (r *reader) groupAt(i int) unit {
	if t := &r.tokens[i]; t.kind == number && i+1 < len(r.tokens) && r.tokens[i+1].meaning&(mStep|mBatch) != 0 {
		return unit{scale: 1, per: t.value}
	}
	return r.unitAt(i)
}

// figure reads the number at token i with its name and its unit, and returns the last token of it.
func (r *reader) figure(i int, v float64) int {
	k := r.name(i)
	u := r.unitAt(i + 1)
	end := max(i, u.to)
	if u.num&mStep != 0 && i > 0 && r.tokens[i-1].is('(') {
		return end // (100 iters) is a part of the name of the next number
	}
	if u.num == 0 && k.group.num != 0 {
		u = k.group
	}
	u.per = k.group.per
	if i+1 < len(r.tokens) && r.tokens[i+1].is('?') {
		return end
	}
	switch {
	case k.words == 0 && r.leads(i) && whole(v):
		r.step.offer(v, math.NaN(), 6, 7)
	case k.words == 1 && k.all == mTrain && k.separator && whole(v) && i+1 < len(r.tokens) && r.tokens[i+1].is('['): // Train: 5 [ 350/1251
		r.epoch.offer(v, math.NaN(), 2, k.hash)
	case k.words == 0 && r.step.rank > 0 && u.num&(mSecond|mMilli|mMicro) != 0 && u.den == 0 && r.tokens[i-1].is('|') && end+1 < len(r.tokens) && r.tokens[end+1].is('|'): // | 250.00 ms |
		r.seconds(v*timeUnit(u.num), anyTime, k)
	}
	r.offer(k, u, v)
	if k.words == 0 && r.pairs > 0 && !u.percent && r.columns != nil && len(r.columns) < 16 || r.pairs == 1 && len(r.columns) == 0 && u.size {
		if len(r.columns) == 0 {
			r.sized = u.size
		}
		r.columns = append(r.columns, v)
	}
	r.stop = end
	return end
}

// leads reports whether the number at token i, in brackets, is all that is before the figures of the line: [40]<tab>train-logloss:0.1, or behind the
// source line of abseil, train.py:48] [500] loss=0.1.
func (r *reader) leads(i int) bool {
	if i == 0 || i+2 >= len(r.tokens) || !r.tokens[i-1].is('[') || !r.tokens[i+1].is(']') {
		return false
	}
	if i == 1 {
		return r.line[r.tokens[i+1].to] == '\t'
	}
	return i > 4 && r.tokens[i-2].is(']') && r.tokens[i-4].is(':') && r.source != 0
}

// offer takes a figure for what its name and unit say that it is.
func (r *reader) offer(k name, u unit, v float64) {
	const small = mSecond | mMilli | mMicro
	if k.all&mStamp != 0 && math.IsNaN(r.at) { // seconds or milliseconds since 1970, of this century
		switch {
		case 1e9 < v && v < 1e10:
			r.at = v
		case 1e12 < v && v < 1e13:
			r.at = v / 1000
		}
	}
	steps := meaning(mStep | mBatch)
	switch {
	case u.percent || u.size && u.den == 0:
		return
	case k.all&mOther != 0 && k.all&mTrain == 0:
		return
	case k.all&mLoss != 0:
		if k.all&(mNot|mPart|mTime) == 0 && u.num == 0 {
			r.loss.offer(v, 0, lossRank(k), k.hash)
		}
		return
	case math.IsNaN(v):
		return
	}
	v *= u.scale
	if r.ofEpoch(k, u) {
		r.epochPace.offer(v*timeUnit(u.num), 0, 1, k.hash)
	}
	switch {
	case u.num&small != 0 && u.den&steps != 0: // 3.8s/it
		r.seconds(v*timeUnit(u.num), 1, k)
	case u.num&steps != 0 && u.den&mSecond != 0: // 1.2it/s
		r.seconds(1/v, 2, k)
	case u.num&(mItem|mFlop) != 0 && u.den&mSecond != 0:
		r.throughput(k, u, v)
	case k.all&(mNot|mPart) != 0:
		r.beside = r.beside || k.all&mNot != 0
	case k.all&(mRate|mFlop) != 0 && k.all&(mTime|mStep) == 0 && !(k.all&mBatch != 0 && k.all&mSecond != 0),
		k.all&mItem != 0 && k.all&mSecond != 0 && (k.slash || k.all&mPer != 0):
		r.throughput(k, u, v)
	case k.step > 0 && k.time > 0 && (k.slash || k.all&mPer != 0) && k.all&mTime == 0: // steps_per_second, ms/step
		if k.step >= k.time && k.all&mStep != 0 && k.all&mMean == 0 {
			r.seconds(1/v, 1, k)
		} else if k.step >= k.time {
			r.seconds(1/v, 2, k)
		} else {
			r.seconds(v*timeUnit(k.all), 1, k)
		}
	case k.last&mEpoch != 0 && k.all&mTime != 0 && k.all&mPer == 0 && !k.separator && !k.slash && u.num == 0 && whole(v): // time for epoch 3
		r.epoch.offer(v, math.NaN(), 1, k.hash)
	case k.all&mTime != 0 || k.words == 1 && k.all&small != 0 && k.separator && u.num == 0 || k.all&steps != 0 && u.num&small != 0 && u.den == 0:
		r.stepTime(k, u, v)
	case k.last&mEpoch != 0 && u.num == 0:
		r.epoch.offer(v, math.NaN(), 1, k.hash)
	case k.last&steps != 0 && k.all&(mMean|mPer|mWhole|mSecond) == 0 && u.num == 0 && whole(v):
		r.step.offer(v, math.NaN(), stepRank(k), k.hash)
	}
}

// ofEpoch reports whether a figure is the time of an epoch that the line has named: "time taken for epoch 3 is 4.1 sec", "Epoch 3 took 12s".
func (r *reader) ofEpoch(k name, u unit) bool {
	timed := u.num&(mSecond|mMilli) != 0 && u.den == 0
	return timed && r.epoch.rank > 0 && k.all&^(mTime|mEpoch|mTrain|mWhole) == 0 && (k.words == 0 || k.all != 0 || !k.separator)
}

func lossRank(k name) int {
	switch {
	case k.words == 1:
		return 1
	case k.all&^(mLoss|mTrain|mWhole|mMean) == 0 && k.all&(mTrain|mWhole) != 0, k.words == 2 && k.all == mLoss:
		return 2
	}
	return 3
}

func stepRank(k name) int {
	if k.last&mStep == 0 {
		return 5
	}
	return 1
}

// stepTime takes a duration whose name says that it is one of a step, or of nothing else.
func (r *reader) stepTime(k name, u unit, v float64) {
	scale := 1.0
	if u.num != 0 && u.den == 0 {
		scale = timeUnit(u.num)
	} else if k.all&(mSecond|mMilli|mMicro) != 0 {
		scale = timeUnit(k.all)
	}
	v *= scale
	if u.per > 0 {
		v /= u.per
	}
	switch {
	case k.all&mEpoch != 0, u.den != 0:
	case k.all&(mStep|mBatch) != 0 && k.all&mMean == 0, u.per > 0:
		r.seconds(v, 1, k)
	case k.all&(mStep|mBatch) != 0:
		r.seconds(v, 4, k)
	case k.all&(mWhole|mTrain|mLoss) == 0 && !k.unknown:
		r.seconds(v, anyTime, k)
	}
}

// anyTime is the rank of a duration whose name does not say what took it.
const anyTime = 3

func timeUnit(m meaning) float64 {
	switch {
	case m&mMilli != 0:
		return 1e-3
	case m&mMicro != 0:
		return 1e-6
	}
	return 1
}

func (r *reader) seconds(v float64, rank int, k name) {
	if v > 1e-6 && v < 1e5 {
		r.pace.offer(v, 0, rank, k.hash)
	}
}

func (r *reader) throughput(k name, u unit, v float64) {
	rank := 2
	switch {
	case k.all&mFlop != 0 || u.num&mFlop != 0:
		rank = 4
	case k.all&mMean != 0:
		rank = 3
	case k.all&mRate != 0 && k.all&mMean == 0:
		rank = 1
	}
	if v < 0 || r.rate.rank > 0 && r.rate.rank <= rank {
		return
	}
	r.rate.offer(v, 0, rank, k.hash)
	if r.unit = ""; u.item != "" {
		r.unit = u.item + "/s"
	} else if k.item != "" {
		r.unit = k.item + "/s"
	}
}

// conclude puts together what was found.
func (r *reader) conclude() (Reading, bool) {
	r.table()
	x := Reading{Step: math.NaN(), TotalSteps: math.NaN(), Epoch: math.NaN(), Epochs: math.NaN(), StepTime: math.NaN(), EpochTime: math.NaN(), Throughput: math.NaN(), Loss: math.NaN(),
		Elapsed: r.elapsed, Left: r.left, At: r.at, Unit: r.unit}
	if r.step.rank > 0 {
		x.Step, x.TotalSteps = r.step.value, r.step.total
	}
	if r.epoch.rank > 0 {
		x.Epoch, x.Epochs = r.epoch.value, r.epoch.total
	}
	if r.pace.rank > 0 {
		x.StepTime = r.pace.value
	}
	if r.rate.rank > 0 {
		x.Throughput = r.rate.value
	}
	ofEpoch := r.epochPace.rank > 0 && (r.pace.rank == 0 || r.pace.rank == anyTime) && r.rate.rank == 0 && r.step.rank == 0
	if ofEpoch {
		x.EpochTime, x.StepTime = r.epochPace.value, math.NaN()
	}
	x.Loss, x.HasLoss = r.loss.value, r.loss.rank > 0
	if !x.HasLoss {
		x.Loss = math.NaN()
	}
	timed := r.pace.rank > 0 || r.rate.rank > 0 || ofEpoch
	counted := r.step.rank > 0 || r.epoch.rank > 0
	of := r.step.rank == 1 && r.step.total > 0 && r.beside // step 150/100000; acc: 25.5
	if !(of || counted && (x.HasLoss || timed || !math.IsNaN(x.Elapsed)) || timed && x.HasLoss || r.loss.rank == 1 || r.pace.rank == 1 || r.rate.rank > 0 && r.rate.rank < 4) {
		return x, false
	}
	x.series = r.source
	for _, c := range []choice{r.step, r.epoch, r.pace, r.epochPace, r.rate, r.loss} {
		x.series = (x.series ^ c.hash) * 1099511628211
		if c.total > 0 { // two bars differ in little else
			x.series = (x.series ^ math.Float64bits(c.total)) * 1099511628211
		}
	}
	return x, true
}

// table reads the columns of YOLO: the epoch, the memory, the losses, the number of labels, the size of an image. If one is the sum of all
// losses before it, it is the total.
func (r *reader) table() {
	if !r.sized || len(r.columns) < 4 || r.loss.rank > 0 {
		return
	}
	sum := 0.0
	for i, v := range r.columns[1:] {
		if i >= 2 && v > 0 && math.Abs(v-sum) <= 2e-3*sum {
			r.loss.offer(v, 0, 2, 5)
			return
		}
		sum += v
	}
}
