package consult

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/diagnose"
	"github.com/muster-sched/muster/semantic/redact"
)

const failureTask = `You read the part of a job's log around a failure, of a job that trains or serves a model on a GPU cluster. Find the first error
that the others follow from, and classify it:
category: infrastructure (hardware, a node, the network, storage or a service outside the job), framework (GPU memory that does not suffice, shapes, checkpoints,
crashes of libraries, versions), user_script (files, packages, arguments, data, the user's code), or none (no failure, or a user or the scheduler ended the job);
component: gpu, nvlink, network, node, storage, memory_host, software or unknown;
line: the number of the line that names the root, and quote: a part of that line, word for word;
confidence: from 0 to 1; reason: why, in at most 20 words.
What all ranks report because another one failed, such as a collective that timed out or a closed connection, is not the root. If nothing says what the root is,
the component is unknown and the confidence low.`

var failureSchema = must(map[string]any{
	"type": "object", "additionalProperties": false,
	"properties": map[string]any{
		"category": map[string]any{"enum": diagnose.Categories}, "component": map[string]any{"enum": diagnose.Components}, "line": map[string]any{"type": "integer"},
		"quote": map[string]any{"type": "string"}, "confidence": map[string]any{"type": "number"}, "reason": map[string]any{"type": "string"},
	},
	"required": []string{"category", "component", "line", "quote", "confidence", "reason"},
})

// Worthwhile says whether a model may know more than the rules: they are less confident than below, or found no failure in a log of which a line reports an error. About
// a log without such a line a model can be wrong only.
func Worthwhile(v *diagnose.Verdict, below float64, lines []Line) bool {
	return v.Unsure(below) && (v.Category != diagnose.None || slices.ContainsFunc(lines, func(l Line) bool { return suspicious([]byte(l.Text)) }))
}

// Failure asks a model what failed, given what the rules found and lines of the log around it. Secrets and whatever else the rules of redact name are taken out of
// the lines before. On an error the rules' verdict stands.
func Failure(ctx context.Context, m Model, rules redact.Rules, v diagnose.Verdict, lines []Line) (diagnose.Verdict, error) {
	if len(lines) == 0 {
		return v, errors.New("the log is empty")
	}
	r := redact.New(rules)
	amended := v
	err := ask(ctx, m, r, failureTask, failureSchema, lines, func(object json.RawMessage) error {
		var answer struct {
			Category   diagnose.Category `json:"category"`
			Component  string            `json:"component"`
			Line       int64             `json:"line"`
			Quote      string            `json:"quote"`
			Confidence float64           `json:"confidence"`
			Reason     string            `json:"reason"`
		}
		if err := json.Unmarshal(object, &answer); err != nil {
			return errors.New("a field has a value of another type")
		}
		o := diagnose.Opinion{Category: answer.Category, Component: answer.Component, Confidence: answer.Confidence, Reason: plain(r.Restore(answer.Reason), 200)}
		if o.Category != diagnose.None {
			l, err := quoted(lines, answer.Line, answer.Quote, r)
			if err != nil {
				return err
			}
			o.Line = diagnose.Line{Index: l.Index, Text: l.Text}
		}
		if o.Reason == "" {
			return errors.New("reason: expected some words; found none")
		}
		var err error
		amended, err = v.Consider(o)
		return err
	})
	return amended, err
}

// quoted returns the line that has a quote, as it is or as the model was shown it: the one with the number, or the nearest one, as models miscount.
func quoted(lines []Line, number int64, quote string, r *redact.Redactor) (Line, error) {
	const least = 6 // letters of a quote
	shown, restored := squeeze(quote), squeeze(r.Restore(quote))
	if len(shown) < least {
		return Line{}, fmt.Errorf("quote: expected a part of the line with at least %d letters; found %.20q", least, shown)
	}
	number = min(max(number, 0), math.MaxInt32*1024)
	best := -1
	for i, l := range lines {
		if best >= 0 && distance(l.Index, number) >= distance(lines[best].Index, number) {
			continue
		}
		if strings.Contains(squeeze(l.Text), restored) || strings.Contains(squeeze(r.Hide(l.Text)), shown) {
			best = i
		}
	}
	if best < 0 {
		return Line{}, errors.New("quote: expected a part of one of the lines, word for word; no line has it")
	}
	return lines[best], nil
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

// squeeze takes the spaces out of a text: models write them in their own way.
func squeeze(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r <= ' ' || r == 0xa0 }), "")
}
