package track

import (
	"encoding/binary"
	"math/bits"
	"strings"
)

// meaning is what a word of a log line may mean, as a set.
type meaning uint32

const (
	mStep   meaning = 1 << iota // a step of training
	mBatch                      // a step, if nothing else on the line is one
	mEpoch                      // a pass over the data
	mLoss                       // a loss
	mTime                       // a duration
	mPer                        // the next word is the unit below the fraction bar
	mSecond                     // seconds
	mMilli                      // milliseconds
	mMicro                      // microseconds
	mItem                       // what a step processes: samples, tokens
	mRate                       // a throughput
	mFlop                       // floating-point operations: a rate of the device
	mMean                       // an average over many steps
	mTrain                      // of training
	mOther                      // of another phase: evaluation, loading, saving
	mPart                       // a part of a step: data, forward
	mWhole                      // of the whole job: elapsed, total
	mNot                        // no quantity of progress, whatever stands beside it: lr, memory, norm, size
	mValue                      // in the place of a number: nan, inf
	mLast                       // of the summary that a job prints at its end
	mNumber                     // behind a word for a step or an epoch, its number: epoch_num
	mStamp                      // a moment, if the number is large enough for one
	mCost                       // beside a word for a step, a duration: batch_cost
	mCross                      // beside a loss, of its kind: cross_entropy_loss
	mPass                       // a pass of a step, forward or backward
	mError                      // beside a word for training, a loss
	mLoad                       // of what comes before or after training, beside mOther
	mScore                      // how good a model is: with a step, a line of progress
)

// words has what words mean. They are in lower case, and a name such as RunningAvgSamplesPerSec, lm-loss or train/loss is
// several words. These are the words of the frameworks that docs/track.md lists, and of most logs of people's own.
var words = compile([]vocabulary{
	{mStep, "step steps iter iters iteration iterations it its update updates tick ticks"},
	{mItem | mBatch, "episode"},
	{mBatch, "batch batches minibatch"},
	{mEpoch, "epoch epochs ep"},
	{mStep, "up upd"},
	{mLoss, "loss losses nll logloss mlogloss xent objf"},
	{mLoss | mTrain, "learn"},
	{mError, "rmse mae mse error merror"},
	{mTime, "time timing duration latency dt take took takes taken timer"},
	{mPer, "per"},
	{mSecond, "s sec secs second seconds"},
	{mStep | mPer | mSecond, "ups"},
	{mMilli, "ms msec msecs millisecond milliseconds"},
	{mMicro, "us usec usecs microsecond microseconds"},
	{mItem, "sample samples token tokens tok toks sequence sequences seq seqs image images img imgs frame frames example examples " +
		"word words sentence sentences item items episodes request requests req reqs graph graphs row rows ray rays"},
	{mRate, "throughput speed tps wps sps fps ips qps tgs"},
	{mFlop, "flop flops mflop mflops gflop gflops tflop tflops pflop pflops"},
	{mMean, "avg average mean running ema smoothed smooth median"},
	{mTrain, "train training trn reduced"},
	{mOther | mLoad, "load loading loaded download downloading map mapping filter filtering tokenizing tokenize save saving saved extracting resolving " +
		"fetching uploading preprocessing preparing building indexing compiling quantizing converting scanning caching collecting reading writing"},
	{mOther, "eval evaluate evaluating evaluation val valid validate validating validation dev test testing predict predicting prediction " +
		"inference infer evaluator capturing capture calculating warmup sanity prompt ap labels instances"},
	{mPart, "data dataloader loader eta remaining left optimizer optim opt " +
		"allreduce communication comm gather scatter sync wait waiting io copy transfer model setup start end begin stamp timestamp compute overhead idle checkpoint checkpointing " +
		"ckpt ttft tpot"},
	{mPart | mPass, "fwd forward bwd backward bw fw"},
	{mWhole, "elapsed total cumulative wall walltime since uptime"},
	{mNot, "lr learning memory mem allocated reserved norm scale scaler size num number count skipped accumulation accum max min best " +
		"top map logps logits margin margins mfu hfu " +
		"kl temperature temp port rank world pid seed version consumed seen weight decay momentum beta threshold ratio lineno " +
		"timeout retry retries attempt worker workers layer layers dim hidden head heads param params parameters bytes kb mb gb mib gib " +
		"usage utilization cpu every shape grad gradient clip queue cache hit prefix std var micro"},
	{mNot | mScore, "accuracy acc precision recall auc reward rewards score bleu rouge perplexity ppl entropy"},
	{mValue, "nan inf infinity"},
	{mLast, "runtime final"},
	{mNumber, "num number idx index no nr"},
	{mCost, "cost"},
	{mCross, "cross"},
	{mStamp, "time timestamp stamp ts"},
})

type vocabulary struct {
	meaning meaning
	words   string
}

// spelling is the first letters of a word, in lower case.
type spelling [2]uint64

// longest is how many letters a spelling has at most, and a word that means something.
const longest = 16

// spell returns the spelling and the number of letters of the word that text begins with. A word ends where an upper-case letter follows a lower-case one, as in
// camelCase.
func spell(text []byte) (s spelling, n int) {
	first, k, lower := letters(text, 0)
	s[0], n = first, k
	if k == 8 {
		s[1], k, lower = letters(text[8:], lower)
		n += k
	}
	for k == 8 {
		_, k, lower = letters(text[n:], lower)
		n += k
	}
	return s, n
}

// letters returns, of at most eight bytes of text, the letters of a word at its begin, in lower case, and their number. lower is 1 if a lower-case letter is before
// them, and then if the last of eight is one.
func letters(text []byte, lower uint64) (word uint64, n int, after uint64) {
	const every, high = 0x0101010101010101, 0x8080808080808080
	var x uint64
	if len(text) >= 8 {
		x = binary.LittleEndian.Uint64(text)
	} else {
		for i, c := range text {
			x |= uint64(c) << (8 * i)
		}
	}
	// 1. The high bit of each byte says that it is a letter, and that it is a lower-case one: those have bit 5.
	folded := x | every*0x20
	low := folded &^ high
	isLetter := (low + every*(0x80-'a')) &^ (low + every*(0x80-'z'-1)) &^ x & high
	isLower := isLetter & (x << 2)
	// 2. The word ends before what is no letter, and before an upper-case letter behind a lower-case one.
	end := isLetter ^ high | isLetter&^isLower&(isLower<<8|lower<<7)
	if end == 0 {
		return folded, 8, isLower >> 63
	}
	n = bits.TrailingZeros64(end) / 8
	return folded & (1<<(8*n) - 1), n, 0
}

// hash differs between words but for unlikely ones.
func (s spelling) hash() uint64 { return s[0]*0x9e3779b97f4a7c15 ^ s[1]*0xc2b2ae3d27d4eb4f }

// dictionary is a table of words with open addressing. Most of it is empty: a word of a log is found, or found to mean nothing, at the first look.
type dictionary [1 << sizeLog]entry

const sizeLog = 11

// entry is a word that means something.
type entry struct {
	spelling spelling
	meaning  meaning
	item     string // what it counts, as itemOf says
}

// find returns the entry of a word with a hash, or an empty one.
func (d *dictionary) find(s spelling, hash uint64) *entry {
	for i := hash >> (64 - sizeLog); ; i = (i + 1) % uint64(len(d)) {
		if e := &d[i]; e.spelling == s || e.spelling[0] == 0 {
			return e
		}
	}
}

func compile(all []vocabulary) *dictionary {
	d := new(dictionary)
	for _, v := range all {
		for _, w := range strings.Fields(v.words) {
			s, n := spell([]byte(w))
			if n != len(w) || n > longest {
				panic("expected a word of at most 16 letters; found " + w)
			}
			e := d.find(s, s.hash())
			e.spelling, e.item = s, countedBy([]byte(w))
			e.meaning |= v.meaning
		}
	}
	return d
}
