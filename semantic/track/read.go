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
	own        bool    // of the job whose log it is: see Own
	anyTime    bool    // the line does not say what took StepTime
	Elapsed    float64 // seconds since the begin of the bar that the line is
	// At is the moment that the line begins with, in seconds from any moment: only differences mean something.
	At float64

	series uint64 // what the line prints, and by which names: lines of one print statement have the same

	timeName, rateName uint64 // what it calls StepTime and Throughput
}

// reader reads lines. Of one it keeps for the next what the lines of a log share.
type reader struct {
	figures
	header header // the names of the columns, if the lines are a table
	heads  bool   // the last line was a heading: epoch has the epoch that begins
	day    day
}

// figures are what was found in a line.
type figures struct {
	line   []byte
	tokens []token
	stop   int // names begin behind this token: what is before is the unit of another number
	head   meaning
	inHead bool

	step, epoch, pace, rate, loss choice
	epochPace                     choice
	unit                          string
	elapsed, at                   float64
	columns                       []float64 // the numbers without a name behind the first pair: a table
	sized                         bool      // the first of them is a size
	pairs                         int       // how many n of N the line has
	beside                        bool      // the line has another figure of training, such as the learning rate
	row                           bool      // it is a row of a table whose columns have names
	scored                        bool      // it says how good the model is
	listed                        bool      // names are behind numbers: 15: 825.5, 680.2 avg, 10.1 seconds, 960 images
	source                        uint64    // of the files that the line names: the print statement is in one of them
	cell                          bool      // the line is a row of a name and its value: | loss | 0.25 |
	part                          float64   // the longest time of a part of a step
	trains                        bool      // a loss is named as one of training
	total                         float64   // the number of steps in all, where it has a name of its own
	trained                       choice    // a time of training, of which the line does not say whether it is a step's
}

// read reads what a line says of the progress of training into x, and returns whether it says anything.
func (r *reader) read(line []byte, x *Reading) bool {
	if !slices.ContainsFunc(line, digit) {
		r.header.read(line)
		return false
	}
	if names := withoutSource(line); len(names) < len(line) && !slices.ContainsFunc(names, digit) {
		r.header.read(names)
		return false
	}
	line, row := r.header.name(line)
	var all meaning
	r.tokens, all = tokens(line, r.tokens[:0])
	if all&mValue == 0 && !slices.ContainsFunc(r.tokens, func(t token) bool { return t.kind == number || t.kind == clock }) {
		r.header.read(line)
		return false
	}
	r.heads = false
	if silent(line, r.tokens, all) || !r.find(line, row) {
		return false
	}
	if r.conclude(x) {
		return true
	}
	r.heads = all&mEpoch != 0 && r.heading(all)
	return false
}

// heading reports whether the line says which epoch begins, and nothing else: "Epoch 3/100". all is what its words may mean.
func (r *reader) heading(all meaning) bool {
	return r.epoch.rank == 1 && r.step.rank == 0 && all&(mOther|mNot|mPart|mLast) == 0 && !r.plural()
}

// silent reports whether no line of these tokens says anything of progress: there is no word for a step, a loss, a time or what is processed, no time of a
// bar, and no unit of size, as tables have. Most lines of most logs are so. all is what their words may mean.
func silent(line []byte, tokens []token, all meaning) bool {
	if all&(mStep|mBatch|mEpoch|mLoss|mError|mTime|mCost|mSecond|mMilli|mMicro|mItem|mRate|mFlop) != 0 {
		return false
	}
	for i := range tokens {
		t := &tokens[i]
		switch {
		case t.is('<'), t.is('%'):
			return false
		case t.kind == word && t.joined:
			switch line[t.from] {
			case 'G', 'M', 'K', 'k': // 12.8G, 11.1kit
				return false
			}
		}
	}
	return true
}

// find finds the figures of a line, which may be a row of a table, in its tokens, and returns whether the line may be of the progress of training.
func (r *reader) find(line []byte, row bool) bool {
	tokens, columns := r.tokens, r.columns[:0]
	r.figures = figures{} // and set in place: it is large
	r.line, r.tokens, r.columns, r.stop, r.inHead, r.elapsed, r.at = line, tokens, columns, -1, true, math.NaN(), math.NaN()
	r.cell, r.row = r.isCell(), row
	for i := 0; i < len(r.tokens); i++ {
		switch t := &r.tokens[i]; t.kind {
		case word:
			if t.meaning&mLast != 0 && !r.ofPart(i) {
				return false
			}
			if r.inHead {
				r.head |= t.meaning
			} else if t.meaning&mOther != 0 && r.phase(i) {
				r.head |= mOther
			}
			if t.joined && r.line[t.to-1] == 'B' && !math.IsNaN(r.elapsed) && i+1 < len(r.tokens) && r.tokens[i+1].is('/') {
				return false // the bar of a download: 22.8MB/s
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
		case span: // Batch [20-40], 101-200batch
			var k name
			r.name(i, &k)
			of := k.last
			if i+1 < len(r.tokens) && r.tokens[i+1].joined {
				of |= r.tokens[i+1].meaning
			}
			if of&(mStep|mBatch) != 0 {
				r.step.offer(t.value, math.NaN(), 3, 9)
			}
		}
	}
	return r.head&mOther == 0 || r.head&mTrain != 0 && (r.head&mLoad == 0 || r.step.hash != inBar) // train: Scanning 3/8
}

// phase reports whether the word at token i, right behind the number of an epoch or a step, says of what phase the line is: "Epoch 16: testing psnr = 34.4",
// "epoch 010 | valid on subset". It does not if the line speaks of training too, or if the word begins a name, such as val_loss.
func (r *reader) phase(i int) bool {
	if r.stop < i-3 || r.stop > i-2 || r.epoch.rank == 0 && r.step.rank == 0 || i+1 < len(r.tokens) && r.tokens[i+1].kind == other && r.tokens[i+1].joined && !r.names(i+1) {
		return false
	}
	for j := r.stop + 1; j < i; j++ {
		if r.tokens[j].kind != other || r.tokens[j].is(',') {
			return false
		}
	}
	return !slices.ContainsFunc(r.tokens, func(t token) bool { return t.kind == word && t.meaning&mTrain != 0 })
}

// ofPart reports whether the word at token i is the last of a name that says of what part of the job it is: interval_runtime, not train_runtime.
func (r *reader) ofPart(i int) bool {
	return i > 1 && r.tokens[i].joined && r.tokens[i-1].is('_') && r.tokens[i-2].kind == word && r.tokens[i-2].meaning&(mTrain|mOther) == 0
}

// moment reads the clock or the date at token i, and returns its last token: "elapsed<left" in a bar, or the time stamp of the line.
func (r *reader) moment(i int) int {
	t := &r.tokens[i]
	if t.kind == clock && i > 3 && r.stop == i-1 && r.step.hash == inBar { // 1849/1849 13:15
		r.elapsed = t.value
		return i
	}
	if t.kind == clock && i > 1 && r.names(i-1) {
		var k name
		if r.name(i, &k); k.words > 0 && (k.last&mStamp == 0 || k.all&(mStep|mBatch|mEpoch) != 0) { // dt=00:04:59, eta: 2:00:00
			r.took(i, t.value)
			return i
		}
	}
	if t.kind == clock && i+2 < len(r.tokens) && r.tokens[i+1].is('<') && (r.tokens[i+2].kind == clock || r.tokens[i+2].kind == number) { // 9:32:53<1 is cut off
		r.elapsed = t.value
		return i + 2
	}
	day := 0.0
	if t.kind == date {
		seconds, ok := r.day.seconds(r.text(i))
		if i++; i < len(r.tokens) && string(r.text(i)) == "T" {
			i++
		}
		if !ok || i == len(r.tokens) || r.tokens[i].kind != clock {
			return i - 1
		}
		day = seconds
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

// day is the last date that was read: the lines of a log have few.
type day struct {
	text [len(time.DateOnly)]byte
	unix float64
	ok   bool
}

// seconds returns when a date begins, in seconds since 1970, and whether it is one.
func (d *day) seconds(text []byte) (float64, bool) {
	if string(text) != string(d.text[:]) {
		t, err := time.Parse(time.DateOnly, string(text))
		copy(d.text[:], text)
		d.unix, d.ok = float64(t.Unix()), err == nil
	}
	return d.unix, d.ok
}

// number reads the number at token i, and returns the last token of it and of its unit.
func (r *reader) number(i int) int {
	if r.tokens[i].joined && i > 1 && r.tokens[i-1].is(':') && (r.inName(i) || r.inSource(i)) {
		return i
	}
	if i+3 < len(r.tokens) && r.tokens[i+1].kind == word {
		if end, v := r.duration(i); end > i { // several parts
			r.took(i, v)
			r.stop = end
			return end
		}
		if t := r.tokens[i+1:]; t[1].is('/') && t[0].meaning&(mStep|mBatch|mEpoch) != 0 && t[2].kind == number && whole(t[2].value) && whole(r.tokens[i].value) && r.tokens[i].value <= t[2].value { // 7 epoch / 20 epochs
			c := &r.step
			if t[0].meaning&mEpoch != 0 {
				c = &r.epoch
			}
			c.offer(r.tokens[i].value, t[2].value, 2, 13)
			r.stop = i + 3
			return i + 3
		}
	}
	slash := r.scaled(i) + 1
	if i == 0 && slash+1 < len(r.tokens) && r.tokens[slash].is('/') && string(r.text(slash+1)) == "Unknown" && whole(r.tokens[i].value) { // Keras: 12/Unknown
		r.step.offer(r.tokens[i].value, math.NaN(), 4, 4)
		r.stop = slash + 1
		return slash + 1
	}
	if slash+1 >= len(r.tokens) || !r.tokens[slash].is('/') && string(r.text(slash)) != "of" || r.tokens[slash+1].kind != number {
		return r.figure(i, r.tokens[i].value)
	}
	end := r.scaled(slash + 1)
	n, of := r.times(i), r.times(slash+1)
	var u unit
	if r.unitAt(end+1, &u); u.num&mItem != 0 && u.den&mSecond != 0 { // of the source and of the target: 25123/24231 tok/s
		i = r.figure(end, n)
		return i
	}
	if !whole(n) || !whole(of) {
		return r.figure(i, r.tokens[i].value)
	}
	if end+1 >= len(r.tokens) || r.tokens[end+1].kind != clock && !(r.tokens[end+1].is('/') && r.tokens[end+1].joined) || r.behindBar(i, end) { // else 05/26 12:00:00, 2026/05/26
		r.pair(i, n, of, end)
	} else if r.tokens[end+1].is('/') { // iteration 2600/2600/2741
		var k name
		if r.name(i, &k); k.last&mStep != 0 {
			r.step.offer(n, math.NaN(), 1, k.hash)
		}
	}
	r.stop = end
	return end
}

// inName reports whether the number at token i is a part of the name of another, such as the output that TensorFlow calls features:0.
func (r *reader) inName(i int) bool {
	return i > 1 && i+1 < len(r.tokens) && r.tokens[i+1].is(':') && r.tokens[i+1].joined && r.tokens[i].joined && r.tokens[i-1].is(':') && r.tokens[i-1].joined && r.tokens[i-2].kind == word
}

// inSource reports whether the number at token i is the line of the program that printed the log's line: yolox.core.trainer:after_iter:238 - .
func (r *reader) inSource(i int) bool {
	if i < 4 || i+1 >= len(r.tokens) || !r.tokens[i].joined || !r.tokens[i-1].is(':') || !r.tokens[i+1].is('-') || r.tokens[i+1].joined {
		return false
	}
	j := i - 1
	for ; j > 0 && r.tokens[j].joined; j-- {
		if r.tokens[j].is(':') && j < i-1 {
			return true
		}
	}
	return false
}

// duration reads a duration of several units, such as 1h 38m 21s or 2m13s, whose first number is token i, and returns its last token and its seconds.
func (r *reader) duration(i int) (end int, sum float64) {
	end = i
	if !r.tokens[i+1].joined || r.tokens[i+1].to-r.tokens[i+1].from > 3 {
		return end, 0
	}
	for parts, largest := 0, math.Inf(1); i+1 < len(r.tokens) && r.tokens[i+1].kind == word && r.tokens[i+1].joined; parts++ {
		unit := clockUnit(r.text(i + 1))
		v := r.tokens[i].value
		if r.tokens[i].kind == rounded { // 13 in 2m13s
			v = value(r.text(i))
		}
		if unit == 0 || unit >= largest || math.IsNaN(v) {
			break
		}
		largest, sum = unit, sum+v*unit
		if i += 2; parts > 0 {
			end = i - 1
		}
	}
	return end, sum
}

// clockUnit returns how many seconds a part of a duration counts; 0 if it is no part of one.
func clockUnit(text []byte) float64 {
	switch string(text) {
	case "d":
		return 86400
	case "h", "hr":
		return 3600
	case "m", "min":
		return 60
	case "s", "sec":
		return 1
	}
	return 0
}

// took takes a duration of several units at token i: for that of an epoch, or of a step, only if its name says so. Most are since the begin of the job.
func (r *reader) took(i int, v float64) {
	var k name
	r.name(i, &k)
	switch {
	case k.all&(mOther|mPart|mNot|mWhole) != 0:
	case k.all&mTime != 0 && k.all&(mStep|mBatch) != 0, k.words == 1 && k.all&mTime != 0 && k.all&mStamp == 0 && r.names(i-1): // dt
		r.seconds(v, 1, &k)
	case r.ofEpoch(&k, &unit{num: mSecond}):
		r.epochPace.offer(v, 0, 1, k.hash)
	}
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
	var k name
	r.name(i, &k)
	named := k.all &^ (mTrain | mItem | mOther)
	switch {
	case n > of, k.all&mOther != 0 && k.all&mTrain == 0, k.last&(mNot|mPart|mTime|mLoss) != 0:
	case k.last&mEpoch != 0:
		r.epoch.offer(n, of, 1, k.hash)
	case k.last&(mStep|mBatch) != 0:
		r.step.offer(n, of, 1, k.hash)
	case named == 0 && end+1 < len(r.tokens) && r.tokens[end+1].meaning&(mStep|mBatch) != 0 && !r.names(end+2): // 345 of 1000 batches, 55/200 steps
		r.step.offer(n, of, 2, 8)
	case len(r.text(end)) > 1 && r.tokens[end].meaning&mStep != 0 || bytes.HasSuffix(r.text(end), []byte("it")): // 11.1kit/200kit
		r.step.offer(n, of, 1, 6)
	case r.behindBar(i, end):
		if r.pairs == 1 && r.step.rank == 4 { // the first pair of the table is the epoch
			r.epoch.offer(r.step.value, r.step.total, 2, 1)
			r.step = choice{}
		}
		r.step.offer(n, of, 1, inBar)
	case k.bracket && named == 0:
		if r.step.rank == 3 && i > 1 && r.tokens[i-1].joined && r.tokens[i-2].is(']') && r.tokens[i-2].joined { // [12/300][350/1251]: the epoch comes first
			r.epoch.offer(r.step.value, r.step.total, 2, 3)
			r.step = choice{}
		}
		r.step.offer(n, of, 3, 3)
	case r.percentOf(end, n, of):
		r.step.offer(n, of, 3, 12)
		r.scored = r.epoch.rank > 0 || r.scored
	case i == 0, i == 1 && r.tokens[0].is('('), named == 0 && r.epoch.rank > 0 && (k.separator || r.tokens[i-1].kind == number), // "epoch 143:  85 / 282", "epoch 143  85 / 282"
		r.ofTraining(i, end):
		r.step.offer(n, of, 4, 4)
	}
	r.pairs++
}

// ofTraining reports whether the pair at token i stands alone in parentheses behind a word for training: [Train](10/400).
func (r *reader) ofTraining(i, end int) bool {
	if i < 3 || end+1 >= len(r.tokens) || !r.tokens[i-1].is('(') || !r.tokens[end+1].is(')') {
		return false
	}
	word := r.tokens[i-2]
	if word.is(']') {
		word = r.tokens[i-3]
	}
	return word.meaning&mTrain != 0
}

// percentOf reports whether behind the pair that ends at token end stands how many percent it is: 100/3161(3.16%).
func (r *reader) percentOf(end int, n, of float64) bool {
	t := r.tokens[end+1:]
	return len(t) > 3 && t[0].is('(') && t[1].kind == number && t[2].is('%') && t[3].is(')') && math.Abs(t[1].value-100*n/of) <= 1
}

// inBar is the name of a step that the bar of its line counts.
const inBar = 2

// behindBar reports whether the pair at token i stands behind the cells of a bar: 37%|███   | 37/100.
func (r *reader) behindBar(i, end int) bool {
	if t := r.tokens[end+1:]; len(t) > 0 && t[0].is(bar) || len(t) > 2 && i > 0 && r.tokens[i-1].is('|') && t[0].is('[') && t[1].kind == clock && t[2].is('<') { // Keras: 37/100 ━━━━; ###|37/100[00:59<01:39
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

// figure reads the number at token i with its name and its unit, and returns the last token of it.
func (r *reader) figure(i int, v float64) int {
	var k name
	var u unit
	r.name(i, &k)
	r.unitAt(i+1, &u)
	end := max(i, u.to)
	if u.num&mStep != 0 && u.den == 0 && i > 0 && r.tokens[i-1].is('(') {
		return end // (100 iters) is a part of the name of the next number
	}
	if u.num == 0 && k.group.num != 0 {
		u = k.group
	}
	if u.per = k.group.per; u.num&(mSecond|mMilli) != 0 && i > 2 && k.words == 2 && (string(r.text(i-1)) == "in" || r.tokens[i-1].meaning&mTime != 0) && r.tokens[i-2].meaning&(mStep|mBatch) != 0 && r.tokens[i-3].kind == number {
		u.per = r.tokens[i-3].value // 5000 batches in 250.0s
	}
	if i+1 < len(r.tokens) && r.tokens[i+1].is('?') {
		return end
	}
	if next := i + 1; k.all&mLoss != 0 && k.all&(mOther|mNot|mPart) == 0 && !k.separator && whole(v) && next < len(r.tokens) && r.tokens[next].kind == number && !r.tokens[next].joined &&
		bytes.IndexByte(r.text(i), '.') < 0 && bytes.IndexByte(r.text(next), '.') > 0 { // Train loss 25 0.625
		r.step.offer(v, math.NaN(), 2, 15)
		r.loss.offer(r.tokens[next].value, 0, lossRank(&k), k.hash)
		r.stop = next
		return next
	}
	switch {
	case k.all == 0 && u.num == mEpoch && r.tokens[i+1].joined && r.names(i+2) && whole(v): // ESPnet's 3epoch:train
		r.epoch.offer(v, math.NaN(), 3, 10)
	case k.words == 0 && r.leads(i) && whole(v):
		r.step.offer(v, math.NaN(), 6, 7)
	case k.words == 1 && k.all == mTrain && k.separator && whole(v) && i+1 < len(r.tokens) && r.tokens[i+1].is('['): // Train: 5 [ 350/1251
		r.epoch.offer(v, math.NaN(), 2, k.hash)
	case k.words == 1 && i > 2 && u.num&mSecond != 0 && u.den == 0 && r.tokens[i-2].kind == number && r.tokens[i-3].meaning&mTrain != 0 && string(r.text(i-1)) == "in": // Train 1792 in 4.5seconds
		r.seconds(v, anyTime, &k)
	case k.words == 0 && r.step.rank > 0 && u.num&(mSecond|mMilli|mMicro) != 0 && u.den == 0 && r.tokens[i-1].is('|') && (end+1 == len(r.tokens) || r.tokens[end+1].is('|')): // | 250.00 ms |
		r.seconds(v*timeUnit(u.num), anyTime, &k)
	}
	switch {
	case end == i+1 && string(r.text(end)) == "it" && r.tokens[end].joined && end+1 < len(r.tokens) && r.tokens[end+1].is('[') && whole(v): // a bar without a total: 18it [05:01, 17.00s/it]
		r.step.offer(v, math.NaN(), 1, 6)
	case k.words == 0 && k.group.to == 0:
		end = r.behind(i, end, v)
	}
	r.offer(&k, &u, v)
	if k.words == 0 && r.pairs > 0 && !u.percent && r.columns != nil && len(r.columns) < 16 || r.pairs == 1 && len(r.columns) == 0 && u.size {
		if len(r.columns) == 0 {
			r.sized = u.size
		}
		r.columns = append(r.columns, v)
	}
	r.stop = end
	return end
}

// behind reads the name of the number at token i, whose unit ends at end, that stands behind it and before a comma, or at the end of the line:
// "91300 iter, 7 epoch"; and in a line that its step and a colon begin, "680.2 avg loss, 10.1 seconds, 960 images". It returns the last token of it.
func (r *reader) behind(i, end int, v float64) int {
	all, words, j := meaning(0), 0, i+1
	for ; j < len(r.tokens) && r.tokens[j].kind == word && words < 3; j++ {
		all |= r.tokens[j].meaning
		words++
	}
	if words == 0 || j < len(r.tokens) && !r.tokens[j].is(',') {
		return end
	}
	const name = 11
	switch {
	case words == 1 && all&mStep != 0 && whole(v):
		r.step.offer(v, math.NaN(), 3, name)
	case words == 1 && all&mEpoch != 0 && whole(v):
		r.epoch.offer(v, math.NaN(), 3, name)
	case r.listed && all&mLoss != 0, r.listed && words == 1 && all == mMean:
		r.loss.offer(v, 0, 4, name)
	case r.listed && r.tokens[i+1].meaning&(mSecond|mMilli) != 0 && all&(mPart|mNot|mWhole) == 0: // 10.1 s run
		r.pace.offer(v*timeUnit(all), 0, anyTime, name)
	case r.listed && words == 1 && all&mFlop != 0:
		r.rate.offer(v, 0, 4, name)
	default:
		return end
	}
	return max(end, j-1)
}

// leads reports whether the number at token i is all that is before the figures of the line: [40]<tab>train-logloss:0.1, 40:<tab>learn: 0.1, 40<tab>images/sec: 5.5
// or, behind the source line of abseil, train.py:48] [500] loss=0.1.
func (r *reader) leads(i int) bool {
	if i == 3 && len(r.tokens) > 4 && r.tokens[0].is('[') && r.tokens[1].kind == number && r.tokens[2].is(']') && r.tokens[4].is('|') { // [  0]     520 || loss: 3.5
		r.epoch.offer(r.tokens[1].value, math.NaN(), 6, 14)
		return true
	}
	if i == 0 && len(r.tokens) > 3 && !r.tokens[0].joined {
		if r.tokens[1].is('|') && r.tokens[2].kind == word && r.tokens[3].kind == number { // 10 | loss 9.375
			return true
		}
		end := 0
		if r.tokens[1].is(':') && r.tokens[1].joined {
			end = 1
		}
		r.listed = r.tokens[end+1].kind == number && !r.tokens[end+1].joined && bytes.IndexByte(r.line, ',') > 0
		return r.listed || r.line[r.tokens[end].to] == '\t' && r.tokens[end+1].kind == word
	}
	if i == 0 || i+2 >= len(r.tokens) || !r.tokens[i-1].is('[') || !r.tokens[i+1].is(']') {
		return false
	}
	if i == 1 {
		return r.line[r.tokens[i+1].to] == '\t'
	}
	return i > 4 && r.tokens[i-2].is(']') && r.tokens[i-4].is(':') && r.source != 0
}
