package track

import (
	"bytes"
	"math"
	"slices"
)

// This file chooses, of the figures of a line, the one for each quantity.

// choice is the best figure found so far for one quantity. A lower rank is better, and of equal ones the first.
type choice struct {
	value, total float64
	rank         int
	hash         uint64
}

func (c *choice) offer(value, total float64, rank int, hash uint64) {
	same := c.rank > 0 && math.Abs(c.value-value) <= 1 // a bar counts from 1, and what is beside it from 0
	switch {
	case c.rank == 0:
		*c = choice{value, total, rank, hash}
	case rank < c.rank:
		if same && math.IsNaN(total) && c.total >= value {
			total = c.total
		}
		*c = choice{value, total, rank, hash}
	case same && math.IsNaN(c.total) && total >= c.value:
		c.total = total
	}
}

// offer takes a figure for what its name and unit say that it is.
func (r *reader) offer(k *name, u *unit, v float64) {
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
	case u.percent:
		r.scored = r.scored || k.all&(mTrain|mScore) != 0 && k.all&mOther == 0
		return
	case u.size && u.den == 0:
		return
	case k.all&mOther != 0 && k.all&mTrain == 0:
		return
	case k.all&mLoss != 0:
		if k.all&(mNot|mPart|mTime) == 0 && u.num == 0 {
			r.loss.offer(v, 0, lossRank(k), k.hash)
			r.trains = r.trains || k.all&(mTrain|mWhole) != 0 && lossRank(k) == 2 || k.words == 2 && k.all == mMean|mLoss
		}
		return
	case k.words == 1 && k.all == mCost && u.num == 0, k.words == 2 && k.all == mError|mTrain && r.step.rank == 6: // train-rmse, of a boosted tree
		r.loss.offer(v, 0, 3, k.hash)
		return
	case math.IsNaN(v):
		return
	}
	v *= u.scale
	if k.words == 2 && k.last&mStep != 0 && u.num == 0 && whole(v) && (k.all == mStep|mWhole || k.all == mStep|mNot && k.most) { // total_steps, max_steps
		r.total = v
	}
	if k.updates && k.words == 2 && k.all == mStep|mNot|mNumber && u.num == 0 && whole(v) { // fairseq's num_updates
		r.step.offer(v, math.NaN(), 6, k.hash)
	}
	if r.ofEpoch(k, u) {
		r.epochPace.offer(v*timeUnit(u.num), 0, 1, k.hash)
	}
	switch {
	case u.num&small != 0 && u.den&steps != 0: // 3.8s/it
		r.seconds(v*timeUnit(u.num), 1, k)
	case u.num&steps != 0 && u.den&mSecond != 0 && v*leastStep > 1: // 65000 steps/s are of simulated environments
		if r.throughput(k, u, v); r.unit == "" {
			r.unit = "steps/s"
		}
	case u.num&steps != 0 && u.den&mSecond != 0: // 1.2it/s
		r.seconds(1/v, 2, k)
	case u.num&(mItem|mFlop) != 0 && u.den&mSecond != 0:
		r.throughput(k, u, v)
	case k.all&(mNot|mPart) != 0, k.all&mWhole != 0 && k.all&mItem != 0 && k.all&mSecond == 0 && u.num == 0: // throughput/total_tokens
		r.beside = r.beside || k.all&mNot != 0
		r.scored = r.scored || k.all&mScore != 0
		if k.all&mPass != 0 && k.all&mTime != 0 {
			r.part = max(r.part, v*timeUnit(u.num|k.all))
		}
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
	case k.all&mTime != 0 || k.words == 1 && !k.letter && k.all&small != 0 && k.separator && u.num == 0 || k.all&steps != 0 && u.num&small != 0 && u.den == 0:
		r.stepTime(k, u, v)
	case k.last&mEpoch != 0 && u.num == 0:
		r.epoch.offer(v, math.NaN(), 1, k.hash)
	case k.last&steps != 0 && k.all&(mMean|mPer|mWhole|mSecond) == 0 && u.num == 0 && whole(v) && (k.words == 1 || !r.cell) && // not | n_updates | 10 |
		!(k.slash && k.last&mStep == 0 && k.all&mItem != 0): // words/batch
		r.step.offer(v, math.NaN(), stepRank(k), k.hash)
	}
}

// ofEpoch reports whether a figure is the time of an epoch that the line has named: "time taken for epoch 3 is 4.1 sec", "Epoch 3 took 12s".
func (r *reader) ofEpoch(k *name, u *unit) bool {
	timed := u.num&(mSecond|mMilli) != 0 && u.den == 0
	return timed && r.epoch.rank > 0 && k.all&^(mTime|mStamp|mEpoch|mTrain|mWhole|mCost) == 0 && (k.words == 0 || k.all != 0 || !k.separator)
}

func lossRank(k *name) int {
	switch {
	case k.words == 1 && !k.unknown: // not l1_loss
		return 1
	case k.all&^(mLoss|mTrain|mWhole|mMean|mCross) == 0 && k.all&(mTrain|mWhole) != 0, k.words == 2 && k.all == mLoss:
		return 2
	case k.all&mMean != 0:
		return 4
	}
	return 3
}

func stepRank(k *name) int {
	if k.last&mStep == 0 {
		return 5
	}
	return 1
}

// stepTime takes a duration whose name says that it is one of a step, or of nothing else.
func (r *reader) stepTime(k *name, u *unit, v float64) {
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
	case k.all&mEpoch != 0, u.den != 0, k.only && k.all&mPer == 0:
	case k.all&mCost != 0 && k.all&(mStep|mBatch) == 0 && u.num == 0: // MXNet's time cost is that of an epoch, or of all steps since the last line
		if r.epoch.rank > 0 && r.step.rank == 0 {
			r.epochPace.offer(v, 0, 1, k.hash)
		}
	case k.all&(mStep|mBatch) != 0 && k.slash && u.num == 0 && k.all&mSecond == 0 && scale == 1 && whole(v): // Composer's time/batch: 119 counts batches
	case k.all&(mStep|mBatch) != 0 && k.last == 0 && k.step <= 3: // verl's timing_s/update_actor is a part of a step
		r.seconds(v, 4, k)
	case k.all&(mStep|mBatch) != 0 && k.all&mMean == 0, u.per > 0:
		r.seconds(v, 1, k)
	case k.all&(mStep|mBatch) != 0:
		r.seconds(v, 4, k)
	case k.all&(mWhole|mTrain|mLoss) == 0 && !k.unknown:
		r.seconds(v, anyTime, k)
	case k.all&^mStamp == mTrain|mTime:
		r.trained.offer(v, 0, 1, k.hash)
	}
}

// leastStep is how many seconds an update of a model takes at least: it is of several kernels, of which each takes microseconds.
const leastStep = 5e-5

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

func (r *reader) seconds(v float64, rank int, k *name) {
	if v > 1e-6 && v < 1e5 {
		r.pace.offer(v, 0, rank, k.hash)
	}
}

func (r *reader) throughput(k *name, u *unit, v float64) {
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

// mostTokens is how long a line may be that says little but the step: longer ones print the settings of a job.
const mostTokens = 100

// conclude puts together in x what was found, and returns whether it says anything.
func (r *reader) conclude(x *Reading) bool {
	r.table()
	if r.pace.value < r.part || r.part > 0 && r.trained.rank > 0 { // ESPnet's iter_time is what the loader takes
		r.pace = r.trained
	}
	*x = Reading{Step: math.NaN(), TotalSteps: math.NaN(), Epoch: math.NaN(), Epochs: math.NaN(), StepTime: math.NaN(), EpochTime: math.NaN(), Throughput: math.NaN(), Loss: math.NaN(),
		Elapsed: r.elapsed, At: r.at, Unit: r.unit}
	if r.step.rank > 0 {
		if x.Step, x.TotalSteps = r.step.value, r.step.total; r.total > x.Step && math.IsNaN(x.TotalSteps) {
			x.TotalSteps = r.total
		}
	}
	if r.epoch.rank > 0 {
		x.Epoch, x.Epochs = r.epoch.value, r.epoch.total
	}
	if r.pace.rank > 0 {
		x.StepTime, x.timeName, x.anyTime = r.pace.value, r.pace.hash, r.pace.rank == anyTime
	}
	if r.rate.rank > 0 {
		x.Throughput, x.rateName = r.rate.value, r.rate.hash
	}
	ofEpoch := r.epochPace.value > 0 && (r.pace.rank == 0 || r.pace.rank == anyTime) && r.rate.rank == 0 && r.step.rank == 0
	if ofEpoch {
		x.EpochTime, x.StepTime, x.timeName = r.epochPace.value, math.NaN(), r.epochPace.hash
	}
	x.Loss, x.HasLoss = r.loss.value, r.loss.rank > 0
	if !x.HasLoss {
		x.Loss = math.NaN()
	}
	timed := r.pace.rank > 0 || r.rate.rank > 0 || ofEpoch
	counted := r.step.rank > 0 || r.epoch.rank > 0
	named := r.step.rank == 1 && r.step.hash != inBar
	brief := len(r.tokens) <= mostTokens
	of := named && (r.step.total > 0 && r.beside || r.scored && brief || r.cell || r.epoch.rank == 1 && brief && !r.plural()) // step 150/100000; acc: 25.5
	if !(of || counted && (x.HasLoss || timed || !math.IsNaN(x.Elapsed)) || timed && x.HasLoss || r.loss.rank == 1 || r.trains || r.pace.rank == 1 || r.pace.rank == 2 && r.pairs == 0 || r.rate.rank > 0 && r.rate.rank < 4 || r.step.rank > 0 && (r.row || r.alone())) {
		return false
	}
	x.series = r.source
	for _, c := range []choice{r.step, r.epoch, r.pace, r.epochPace, r.rate, r.loss} {
		x.series = (x.series ^ c.hash) * 1099511628211
		if c.total > 0 { // two bars differ in little else
			x.series = (x.series ^ math.Float64bits(c.total)) * 1099511628211
		}
	}
	return true
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

// counterWords may stand beside the word for a step.
var counterWords = []string{"global", "current", "learning"}

// alone reports whether the line says the step, or the epoch and the step, and nothing else: "Iteration: 27". "steps: 1000" may be how many there will be.
func (r *reader) alone() bool {
	numbers, words := 0, 0
	for i := range r.tokens {
		switch t := &r.tokens[i]; t.kind {
		case number:
			numbers++
		case word:
			if t.meaning&(mStep|mBatch|mEpoch|mTrain) == 0 && !slices.Contains(counterWords, string(bytes.ToLower(r.text(i)))) {
				return false
			}
			if t.meaning&(mStep|mBatch) != 0 {
				words++
			}
		case clock, date, span, rounded:
			return false
		}
	}
	return words > 0 && numbers <= 4 && (r.step.total > 0 || r.epoch.total > 0 || !r.plural())
}

// plural reports whether the line speaks of several steps or epochs, as lines do that say how many there will be.
func (r *reader) plural() bool {
	return slices.ContainsFunc(r.tokens, func(t token) bool {
		return t.kind == word && t.meaning&(mStep|mBatch|mEpoch) != 0 && r.line[t.to-1]|0x20 == 's'
	})
}
