package extract

import (
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/metadata"
)

// iterations resolves for how long the job trains. A number of steps goes before one of epochs that is stated at the same
// place. Hugging Face's max_steps goes before epochs wherever it is stated.
func (x *extraction) iterations(r *Result) {
	t := &r.Training
	hf := false
	for _, w := range []string{"TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig", "GRPOConfig", "RewardConfig", "KTOConfig", "ORPOConfig"} {
		hf = hf || x.words[w].at != ""
	}
	all := x.candidates(append(slices.Clone(facts().fields.Iterations), x.counted()...))
	for _, c := range all {
		// Of num_updates = total_timesteps // num_steps, the latter is what the job states.
		if i := slices.IndexFunc(all, func(o candidate) bool { return c.via != "" && o.key == c.via && o.unit == c.unit }); i >= 0 {
			whole, _ := positive(all[i].text)
			if part, ok := positive(c.text); ok && part < whole {
				c = all[i]
			}
		}
		unit := metadata.Unit(c.unit)
		text := c.text
		if c.unit == "duration" {
			text, unit = duration(c.text)
		}
		n, ok := positive(text)
		if !ok || n < 1 || unit == "" || ofEpisode.MatchString(c.key) || ofDiffusion.MatchString(c.key) || ofDiffusion.MatchString(c.via) {
			continue
		}
		if strings.HasSuffix(c.key, "total_kimg") {
			n *= 1000
		}
		better := t.Iterations == 0 || hf && ends(c.key, "max_steps") && t.Unit == metadata.Epoch
		if better {
			t.Iterations, t.Unit = int64(math.Round(n)), unit
			r.Sources["iters"], r.Sources["iter_type"] = c.at, c.at
		}
	}
	if t.Iterations > 0 {
		return
	}
	for _, w := range append(slices.Clone(x.launch.args), x.configs...) { // of schedules that are named by their length: nnUNetTrainer_250epochs
		if m := lengthOf.FindStringSubmatch(path.Base(w)); m != nil {
			t.Iterations, t.Unit = int64(count(m[1])), metadata.Epoch
			if strings.Contains(m[2], "it") || strings.Contains(m[2], "step") {
				t.Unit = metadata.Step
			}
			r.Sources["iters"], r.Sources["iter_type"] = x.launch.at, x.launch.at
			if t.Iterations > 0 {
				return
			}
		}
	}
	switch { // what the libraries do if they are told nothing
	case hf:
		t.Iterations, t.Unit = 3, metadata.Epoch
		r.Sources["iters"] = "default of transformers.TrainingArguments"
	case x.words["ultralytics"].at != "" || x.words["yolo"].at != "":
		t.Iterations, t.Unit = 100, metadata.Epoch
		r.Sources["iters"] = "default of ultralytics"
	case x.words["recbole"].at != "":
		t.Iterations, t.Unit = 300, metadata.Epoch
		r.Sources["iters"] = "default of recbole"
	default:
		return
	}
	r.Sources["iter_type"] = r.Sources["iters"]
}

// lengthOf is in the names of schedules.
var lengthOf = regexp.MustCompile(`(?i)(?:^|[_-])([0-9]+)[_-]?(epochs?|ep|iters?|steps)(?:[_.-]|$)`)

// ofEpisode is in keys of the steps of an episode, and not of the training.
var ofEpisode = regexp.MustCompile(`(^|\.)(env|environment|env_\w+|\w+_env|simulation|sim)\.`)

// ofDiffusion is a number of steps in which a model denoises, or is integrated.
var ofDiffusion = regexp.MustCompile(`(^|[._])(diffusion|denoising|noise|inference|sampling|sampler|solver)_(time)?steps?$`)

// counted returns the keys that say in words of how many steps or epochs the training is, such as max_num_epochs and total_iter, but that
// are not listed.
func (x *extraction) counted() []names {
	listed := map[string]bool{}
	for _, group := range facts().fields.Iterations {
		for _, key := range group.Keys {
			listed[key] = true
		}
	}
	of := map[metadata.Unit]*names{metadata.Step: {Unit: string(metadata.Step), Weight: 6}, metadata.Epoch: {Unit: string(metadata.Epoch), Weight: 5}, metadata.Token: {Unit: string(metadata.Token), Weight: 8}}
	for _, last := range slices.Sorted(maps.Keys(x.byName)) {
		if unit := counts(last); unit != "" && !listed[last] && (!strings.Contains(last, "frames") || x.isLong(last)) {
			of[unit].Keys = append(of[unit].Keys, last)
		}
	}
	for _, last := range slices.Sorted(maps.Keys(x.lengths)) {
		if unit := metadata.Epoch; !listed[last] {
			if x.lengths[last] != "epoch" {
				unit = metadata.Step
			}
			of[unit].Keys = append(of[unit].Keys, last)
		}
	}
	return []names{*of[metadata.Token], *of[metadata.Step], *of[metadata.Epoch]}
}

// isLong is whether a key counts so many frames that they are those of a training, and not those of a clip.
func (x *extraction) isLong(key string) bool {
	return slices.ContainsFunc(x.byName[key], func(s *setting) bool {
		n, ok := numeric(x.compute(s).text)
		return ok && n >= 10_000
	})
}

// counts returns what a key of several words counts: one of them is a unit, and the others say no more than that it is the number of all.
func counts(key string) metadata.Unit {
	unit, others, ends := metadata.Unit(""), 0, false
	for word := range strings.SplitSeq(key, "_") {
		switch word {
		case "max", "maximum", "num", "numb", "n", "nb", "no", "number", "total", "of", "train", "training", "trainer", "pretrain", "finetune", "optimization", "optimizer", "the", "for", "to",
			"env", "environment", "agent", "boost", "boosting", "gradient", "run", "my":
			others++
			continue
		case "end", "stop", "exit", "budget", "after", "until":
			others++
			ends = true
			continue
		}
		switch {
		case unit != "":
			return ""
		case strings.HasPrefix(word, "epoch"): // also epoches
			unit = metadata.Epoch
		case word == "step" || word == "steps" || word == "iter" || word == "iters" || word == "iteration" || word == "iterations" || word == "updates" || word == "frames" || word == "round" || word == "rounds":
			unit = metadata.Step
		case word == "tokens":
			unit = metadata.Token
		default:
			return ""
		}
	}
	if others == 0 && unit == metadata.Step || unit == metadata.Token && !ends { // of what, it does not say: max_tokens may be of a batch
		return ""
	}
	return unit
}

// duration reads a duration of Composer: 10ep, 4800ba, 1000000tok, 500sp. A large number alone counts steps.
func duration(text string) (string, metadata.Unit) {
	for suffix, unit := range map[string]metadata.Unit{"ep": metadata.Epoch, "ba": metadata.Step, "tok": metadata.Token, "sp": metadata.Sample} {
		if n, ok := strings.CutSuffix(text, suffix); ok {
			return n, unit
		}
	}
	if n, ok := positive(text); ok && n > 1000 { // of OLMo
		return text, metadata.Step
	}
	return "", ""
}
