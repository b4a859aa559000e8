package consult

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/numeral"
	"github.com/muster-sched/muster/semantic/redact"
	"github.com/muster-sched/muster/semantic/track"
)

// categories are what lines of logs are about, each in words of which the vector stands for the category (SchedMate, §3.2). The first one is progress.
var categories = []string{
	"training progress: step or iteration number, loss, time per step, throughput in samples or tokens per second, learning rate, remaining time",
	"initialization: configuration, arguments, versions, devices, ranks, number of parameters",
	"loading or downloading data, weights, a tokenizer or a checkpoint",
	"saving a checkpoint or a file",
	"evaluation or validation results: accuracy, validation loss, metrics",
	"warning: deprecated, fallback, not found, will be ignored",
	"error: exception, traceback, failed, timeout, killed",
	"system monitoring: memory, temperature, utilization, network, heartbeat",
}

const (
	mostShapes = 96 // kinds of lines that are classified
	repeated   = 3  // lines of a shape that counts steps
)

var digits = regexp.MustCompile(`\d+(?:[.,:]\d+)*`)

// shape is a line without its numbers: lines of one print statement mostly have the same.
func shape(line string) string { return digits.ReplaceAllString(line, "0") }

// Candidates returns the last n lines that may say how far a job is. These are lines of a shape that repeats and, with an embedder, that is nearer to the words for progress than to those
// for anything else. Lines come in order.
func Candidates(ctx context.Context, e Embedder, rules redact.Rules, lines []Line, n int) ([]Line, error) {
	count := map[string]int{}
	for _, l := range lines {
		count[shape(l.Text)]++
	}
	var shapes, examples []string
	seen := map[string]bool{}
	for _, l := range slices.Backward(lines) {
		s := shape(l.Text)
		if seen[s] || count[s] < repeated || !strings.ContainsAny(l.Text, "0123456789") || len(shapes) == mostShapes {
			continue
		}
		seen[s] = true
		shapes, examples = append(shapes, s), append(examples, l.Text)
	}
	if len(shapes) == 0 {
		return nil, nil
	}
	keep := seen
	if e != nil {
		r := redact.New(rules)
		for i := range examples {
			examples[i] = r.Hide(examples[i])
		}
		vectors, err := e.Embed(ctx, append(slices.Clone(categories), examples...))
		if err != nil {
			return nil, err
		}
		keep = map[string]bool{}
		for i, s := range shapes {
			keep[s] = nearest(vectors[len(categories)+i], vectors[:len(categories)]) == 0
		}
	}
	var out []Line
	for _, l := range slices.Backward(lines) {
		if keep[shape(l.Text)] && len(out) < n {
			out = append(out, l)
		}
	}
	slices.Reverse(out)
	return out, nil
}

// nearest returns which of some vectors has the direction nearest to v: the first one of equals.
func nearest(v []float32, of [][]float32) int {
	best, at := math.Inf(-1), 0
	for i, o := range of {
		dot, square := 0.0, 0.0
		for k := range min(len(v), len(o)) {
			dot += float64(v[k]) * float64(o[k])
			square += float64(o[k]) * float64(o[k])
		}
		if c := dot / math.Sqrt(square); c > best {
			best, at = c, i
		}
	}
	return at
}

const progressTask = `You read lines of the log of a job that trains or serves a model. Say for each line that reports the progress of training or serving what it
prints; leave out every line that does not, such as one of evaluation, loading or saving, and every field that a line does not print:
line: its number; step and total_steps; epoch; step_time_s: the time of one step in seconds, so that 250 ms is 0.25 and 4 it/s is 0.25; throughput and
throughput_unit, such as samples/s; loss: the loss of training. Compute nothing else. Never take the time since the start, the remaining time or the time of an epoch for that of a step.`

var progressSchema = func() json.RawMessage {
	number := map[string]any{"type": "number"}
	line := map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"line"},
		"properties": map[string]any{
			"line": map[string]any{"type": "integer"}, "step": number, "total_steps": number, "epoch": number, "step_time_s": number, "throughput": number,
			"throughput_unit": map[string]any{"type": "string"}, "loss": number,
		},
	}
	return must(map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"lines"}, "properties": map[string]any{"lines": map[string]any{"type": "array", "items": line}},
	})
}()

// Progress asks a model what lines say of the progress of a job. A figure that does not stand in its line is left out, and so is a line without figures.
func Progress(ctx context.Context, m Model, rules redact.Rules, lines []Line) ([]track.Reading, error) {
	if len(lines) == 0 {
		return nil, errors.New("no line of the log may be progress")
	}
	var out []track.Reading
	err := ask(ctx, m, redact.New(rules), progressTask, progressSchema, lines, func(object json.RawMessage) error {
		var answer struct {
			Lines []figures `json:"lines"`
		}
		if err := json.Unmarshal(object, &answer); err != nil || answer.Lines == nil {
			return errors.New("expected an object with the list lines, of numbers")
		}
		out = nil
		for _, f := range answer.Lines {
			i, ok := slices.BinarySearchFunc(lines, f.Line, func(l Line, n int64) int { return cmp.Compare(l.Index, n) })
			if !ok || slices.ContainsFunc(out, func(x track.Reading) bool { return x.Line == f.Line }) {
				continue
			}
			if x, ok := f.reading(lines[i].Text); ok {
				out = append(out, x)
			}
		}
		slices.SortFunc(out, func(a, b track.Reading) int { return cmp.Compare(a.Line, b.Line) })
		return nil
	})
	return out, err
}

// figures are what a model says that a line prints.
type figures struct {
	Line       int64    `json:"line"`
	Step       *float64 `json:"step"`
	TotalSteps *float64 `json:"total_steps"`
	Epoch      *float64 `json:"epoch"`
	StepTime   *float64 `json:"step_time_s"`
	Throughput *float64 `json:"throughput"`
	Unit       string   `json:"throughput_unit"`
	Loss       *float64 `json:"loss"`
}

var unitForm = regexp.MustCompile(`^[A-Za-z][A-Za-z/ _-]{0,19}$`)

// reading returns what of f stands in the line, and whether anything does.
func (f *figures) reading(line string) (track.Reading, bool) {
	there := numeral.In(line)
	known := false
	pick := func(v *float64, forms ...float64) float64 {
		if v == nil || !(*v >= 0) || math.IsInf(*v, 0) {
			return math.NaN()
		}
		for _, scale := range append([]float64{1}, forms...) {
			if numeral.Has(there, *v*scale) {
				known = true
				return *v
			}
		}
		return math.NaN()
	}
	x := track.Reading{
		Line: f.Line, Step: pick(f.Step), TotalSteps: pick(f.TotalSteps), Epoch: pick(f.Epoch), Epochs: math.NaN(), StepTime: pick(f.StepTime, 1e3, 1e6),
		Throughput: pick(f.Throughput), Loss: pick(f.Loss), Elapsed: math.NaN(), At: math.NaN(),
	}
	x.HasLoss = !math.IsNaN(x.Loss)
	if math.IsNaN(x.StepTime) && f.StepTime != nil && *f.StepTime > 0 { // a rate, whose inverse the model may have rounded
		for _, n := range there {
			if n > 0 && math.Abs(*f.StepTime*n-1) < 0.01 {
				x.StepTime, known = 1/n, true
			}
		}
	}
	if !math.IsNaN(x.Throughput) && unitForm.MatchString(f.Unit) {
		x.Unit = f.Unit
	}
	return x, known
}
