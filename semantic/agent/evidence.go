package agent

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/metadata"
	"github.com/muster-sched/muster/semantic/numeral"
)

// evidence is the lines that a model has read: the command, and what file_read returned. A value that stands in none of them is the
// model's invention.
type evidence struct {
	lines []seen
	files map[string][]string // the text as it is, by path
	shown map[string]map[int]bool
}

// seen is a line.
type seen struct {
	where   string // file:line, or command
	text    string // letters and digits only, in lower case
	words   []string
	numbers []float64
}

func (e *evidence) add(where, text string) {
	if text == "" {
		return
	}
	words := strings.FieldsFunc(strings.ToLower(text), notLetter)
	e.lines = append(e.lines, seen{where, strings.Join(words, ""), words, numeral.In(text)})
}

// file notes the lines of a file. They count when they are shown.
func (e *evidence) file(name string, lines []string) {
	if e.files == nil {
		e.files, e.shown = map[string][]string{}, map[string]map[int]bool{}
	}
	e.files[name], e.shown[name] = lines, map[int]bool{}
}

// show counts line i of a file, from 0.
func (e *evidence) show(name string, i int) {
	if lines := e.files[name]; i < len(lines) && !e.shown[name][i] {
		e.shown[name][i] = true
		e.add(fmt.Sprintf("%s:%d", name, i+1), shorten(lines[i]))
	}
}

func notLetter(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r > 0x7f)
}

// number returns where a number stands, "" if nowhere. A line that has one of the hints comes first; without one, a number below ten means nothing, as it is
// everywhere.
func (e *evidence) number(v float64, hints ...string) string {
	without := ""
	for _, l := range e.lines {
		if !numeral.Has(l.numbers, v) {
			continue
		}
		if slices.ContainsFunc(hints, func(h string) bool { return strings.Contains(l.text, h) }) {
			return l.where
		}
		if without == "" && math.Abs(v) >= 10 {
			without = l.where
		}
	}
	return without
}

// product returns where a number stands as that of nodes times that on each: in the command.
func (e *evidence) product(v float64) string {
	for _, l := range e.lines {
		if l.where != "command" {
			continue
		}
		for i, a := range l.numbers {
			for _, b := range l.numbers[:i] {
				if a*b == v {
					return l.where
				}
			}
		}
	}
	return ""
}

// text returns where a text stands, "" if nowhere. Letters and digits count. A text of several words may stand in several lines; then the first of its longest word counts.
func (e *evidence) text(v string) string {
	words := strings.FieldsFunc(strings.ToLower(v), notLetter)
	all := strings.Join(words, "")
	if all == "" {
		return ""
	}
	for _, form := range append([]string{all}, aliases[all]...) {
		if at := e.word(form); at != "" {
			return at
		}
	}
	longest, where := "", ""
	for _, w := range words {
		at := e.word(w)
		if at == "" {
			return ""
		}
		if len(w) > len(longest) {
			longest, where = w, at
		}
	}
	return where
}

// word returns the first line that has a word. One of up to three letters must stand alone.
func (e *evidence) word(w string) string {
	for _, l := range e.lines {
		if len(w) <= 3 && slices.Contains(l.words, w) || len(w) > 3 && strings.Contains(l.text, w) {
			return l.where
		}
	}
	return ""
}

// aliases are other forms of a name in code.
var aliases = map[string][]string{
	"pytorch": {"torch"}, "pytorchlightning": {"lightning"}, "huggingfacetransformers": {"transformers"}, "tensorflow": {"keras", "tf"}, "scikitlearn": {"sklearn"},
	"jax": {"flax"}, "bf16": {"bfloat16"}, "bfloat16": {"bf16"}, "fp16": {"float16", "half", "amp", "autocast"}, "float16": {"fp16", "half"}, "fp32": {"float32", "float"}, "fp8": {"float8"},
}

// field is one of a job's, by its name in JSON.
type field struct {
	name  string
	known func(*metadata.Job) bool
	clear func(*metadata.Job)
	copy  func(to, from *metadata.Job)
	find  func(*evidence, *metadata.Job) string // where its value stands, nil for one that is concluded
}

// of makes a field of a part of a job.
func of[T comparable](name string, at func(*metadata.Job) *T, find func(*evidence, T) string) field {
	var zero T
	f := field{
		name: name, known: func(j *metadata.Job) bool { return *at(j) != zero }, clear: func(j *metadata.Job) { *at(j) = zero },
		copy: func(to, from *metadata.Job) { *at(to) = *at(from) },
	}
	if find != nil {
		f.find = func(e *evidence, j *metadata.Job) string { return find(e, *at(j)) }
	}
	return f
}

func number[T int | int64 | float64](hints ...string) func(*evidence, T) string {
	return func(e *evidence, v T) string { return e.number(float64(v), hints...) }
}

// fields are in the order of figure 6. task_type and iter_type are the model's conclusions; the check bounds them.
var fields = []field{
	of("model_name", func(j *metadata.Job) *string { return &j.Model.Name }, (*evidence).text),
	of("task_type", func(j *metadata.Job) *metadata.Task { return &j.Model.Task }, nil),
	of("iters", func(j *metadata.Job) *int64 { return &j.Training.Iterations }, number[int64]("iter", "step", "epoch", "token", "sample", "update")),
	of("iter_type", func(j *metadata.Job) *metadata.Unit { return &j.Training.Unit }, nil),
	batchSize,
	of("optimizer", func(j *metadata.Job) *string { return &j.Training.Optimizer }, (*evidence).text),
	of("lr", func(j *metadata.Job) *float64 { return &j.Training.LearnRate }, number[float64]("lr", "learn", "rate")),
	of("precision", func(j *metadata.Job) *string { return &j.Training.Precision }, (*evidence).text),
	of("gpus", func(j *metadata.Job) *int { return &j.Training.GPUs }, func(e *evidence, v int) string {
		if at := e.number(float64(v), "gpu", "nproc", "device", "world", "gres", "ntasks", "accelerat"); at != "" {
			return at
		}
		return e.product(float64(v))
	}),
	of("nodes", func(j *metadata.Job) *int { return &j.Training.Nodes }, number[int]("node")),
	of("framework", func(j *metadata.Job) *string { return &j.Training.Framework }, (*evidence).text),
	of("train", func(j *metadata.Job) *string { return &j.Dataset.Train }, (*evidence).text),
	of("valid", func(j *metadata.Job) *string { return &j.Dataset.Valid }, (*evidence).text),
}

// batchSize is that of one update: it stands somewhere, or is the batch of a device times the batches that are accumulated, times the GPUs.
var batchSize = func() field {
	f := of("batch_size", func(j *metadata.Job) *int64 { return &j.Training.BatchSize }, number[int64]("batch", "bs", "bsz"))
	direct := f.find
	f.find = func(e *evidence, j *metadata.Job) string {
		if at := direct(e, j); at != "" {
			return at
		}
		times, accumulations := []float64{1, float64(j.Training.GPUs)}, append(e.near("accum"), 1)
		for _, l := range e.lines {
			if !strings.Contains(l.text, "batch") {
				continue
			}
			for _, one := range l.numbers {
				for _, accumulated := range accumulations {
					if slices.ContainsFunc(times, func(n float64) bool { return one*accumulated*n == float64(j.Training.BatchSize) }) {
						return l.where
					}
				}
			}
		}
		return ""
	}
	return f
}()

// near returns the numbers of the lines that have a hint.
func (e *evidence) near(hint string) (all []float64) {
	for _, l := range e.lines {
		if strings.Contains(l.text, hint) {
			all = append(all, l.numbers...)
		}
	}
	return all
}

// check clears the values of a job that stand nowhere, notes the sources of the others, and returns the names of those it cleared.
func (e *evidence) check(j *metadata.Job) (dropped []string) {
	j.Sources = map[string]string{}
	for _, f := range fields {
		if !f.known(j) || f.find == nil {
			continue
		}
		if at := f.find(e, j); at != "" {
			j.Sources[f.name] = at
			continue
		}
		f.clear(j)
		dropped = append(dropped, f.name)
	}
	if j.Training.Iterations == 0 {
		j.Training.Unit = "" // a unit of nothing
	}
	for _, name := range slices.Sorted(maps.Keys(j.Model.Parameters)) {
		v := j.Model.Parameters[name]
		at := ""
		if all := numeral.In(v); len(all) == 1 {
			at = e.number(all[0], strings.Join(strings.FieldsFunc(strings.ToLower(name), notLetter), ""))
		} else {
			at = e.text(v)
		}
		if at == "" {
			delete(j.Model.Parameters, name)
			dropped = append(dropped, name)
			continue
		}
		j.Sources[name] = at
	}
	if len(j.Model.Parameters) == 0 {
		j.Model.Parameters = nil
	}
	return dropped
}

// fill copies what a job does not say from another one. Iterations and their unit belong together.
func fill(to, from *metadata.Job) {
	for _, f := range fields {
		switch {
		case f.known(to) || !f.known(from):
			continue
		case f.name == "iter_type" && to.Training.Iterations != from.Training.Iterations:
			continue
		}
		f.copy(to, from)
		if at := from.Sources[f.name]; at != "" {
			to.Sources[f.name] = at
		}
	}
	for name, v := range from.Model.Parameters {
		if _, ok := to.Model.Parameters[name]; !ok {
			if to.Model.Parameters == nil {
				to.Model.Parameters = map[string]string{}
			}
			to.Model.Parameters[name] = v
			if at := from.Sources[name]; at != "" {
				to.Sources[name] = at
			}
		}
	}
}

// firstOf returns the n entries whose names come first, nil without any.
func firstOf(all map[string]string, n int) map[string]string {
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i >= n {
			delete(all, name)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}
