package track

import "strings"

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
)

// words has what words mean. They are in lower case, and a name such as RunningAvgSamplesPerSec, lm-loss or train/loss is
// several words. These are the words of the frameworks that docs/track.md lists, and of most logs of people's own.
var words = spell([]vocabulary{
	{mStep, "step steps iter iters iteration iterations it its update updates"},
	{mItem | mBatch, "episode"},
	{mBatch, "batch batches minibatch"},
	{mEpoch, "epoch epochs ep"},
	{mStep, "up upd"},
	{mLoss, "loss losses nll logloss mlogloss xent"},
	{mLoss | mTrain, "learn"},
	{mError, "rmse mae mse error merror"},
	{mTime, "time timing duration latency dt took takes"},
	{mPer, "per"},
	{mSecond, "s sec secs second seconds"},
	{mStep | mPer | mSecond, "ups"},
	{mMilli, "ms msec msecs millisecond milliseconds"},
	{mMicro, "us usec usecs microsecond microseconds"},
	{mItem, "sample samples token tokens tok toks sequence sequences seq seqs image images img imgs frame frames example examples " +
		"word words sentence sentences item items episodes request requests req reqs graph graphs row rows"},
	{mRate, "throughput speed tps wps sps fps ips qps tgs"},
	{mFlop, "flop flops mflop mflops gflop gflops tflop tflops pflop pflops mfu hfu"},
	{mMean, "avg average mean running ema smoothed smooth median"},
	{mTrain, "train training trn reduced"},
	{mOther, "eval evaluate evaluating evaluation val valid validate validating validation dev test testing predict predicting prediction " +
		"inference infer load loading loaded download downloading map mapping filter filtering capturing capture calculating tokenizing " +
		"tokenize save saving saved extracting resolving fetching uploading preprocessing preparing building indexing compiling warmup " +
		"quantizing converting scanning caching collecting reading writing sanity prompt ap labels instances"},
	{mPart, "data dataloader loader eta remaining left optimizer optim opt " +
		"allreduce communication comm gather scatter sync wait io copy transfer model evaluator setup start end begin stamp timestamp compute overhead idle checkpoint checkpointing " +
		"ckpt ttft tpot"},
	{mPart | mPass, "fwd forward bwd backward bw fw"},
	{mWhole, "elapsed total cumulative wall walltime since uptime"},
	{mNot, "lr learning memory mem allocated reserved norm scale scaler size num number count skipped accumulation accum max min best " +
		"accuracy acc top precision recall auc f1 map reward rewards logps logits margin margins score bleu rouge perplexity ppl entropy " +
		"kl temperature temp port rank world pid seed version consumed seen weight decay momentum beta threshold ratio lineno " +
		"timeout retry retries attempt worker workers layer layers dim hidden head heads param params parameters bytes kb mb gb mib gib " +
		"usage utilization cpu every shape grad gradient clip queue cache hit prefix std var micro"},
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

func spell(all []vocabulary) map[string]meaning {
	out := map[string]meaning{}
	for _, v := range all {
		for _, w := range strings.Fields(v.words) {
			out[w] |= v.meaning
		}
	}
	return out
}
