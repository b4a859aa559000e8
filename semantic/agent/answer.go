package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/muster-sched/muster/semantic/metadata"
	"github.com/muster-sched/muster/semantic/numeral"
	"github.com/muster-sched/muster/semantic/redact"
)

// schema is the form of an answer.
var schema = func() json.RawMessage {
	text, number := map[string]any{"type": "string"}, map[string]any{"type": "number"}
	object := func(properties map[string]any) map[string]any {
		return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	}
	data, err := json.Marshal(object(map[string]any{
		"model_config": object(map[string]any{
			"model_name": text, "task_type": map[string]any{"enum": metadata.Tasks}, "parameters": map[string]any{"type": "object", "additionalProperties": text},
		}),
		"training_config": object(map[string]any{
			"iters": number, "iter_type": map[string]any{"enum": metadata.Units}, "batch_size": number, "optimizer": text, "lr": number, "precision": text,
			"gpus": number, "nodes": number, "framework": text,
		}),
		"dataset_config": object(map[string]any{"train": text, "valid": text}),
	}))
	if err != nil {
		panic(err)
	}
	return data
}()

const (
	maxText       = 200 // bytes of a value
	maxParameters = 32
)

// parse reads the model's answer. Placeholders in it are restored. The error says what is wrong, for the model.
func parse(object json.RawMessage, r *redact.Redactor) (metadata.Job, error) {
	if object == nil {
		return metadata.Job{}, errors.New("it has no JSON object")
	}
	var answer struct {
		Model    map[string]any `json:"model_config"`
		Training map[string]any `json:"training_config"`
		Data     map[string]any `json:"dataset_config"`
	}
	if err := json.Unmarshal(object, &answer); err != nil {
		return metadata.Job{}, errors.New("expected an object of the objects model_config, training_config and dataset_config")
	}
	model, training, data := answer.Model, answer.Training, answer.Data
	if model == nil && training == nil && data == nil {
		return metadata.Job{}, errors.New("it has none of model_config, training_config and dataset_config")
	}
	p := parser{r: r}
	var job metadata.Job
	job.Model.Name = p.text(model, "model_name")
	job.Model.Task = metadata.Task(p.text(model, "task_type"))
	job.Model.Parameters = p.parameters(model["parameters"])
	t := &job.Training
	t.Iterations = int64(p.whole(training, "iters"))
	t.Unit = metadata.Unit(strings.ToLower(p.text(training, "iter_type")))
	t.BatchSize = int64(p.whole(training, "batch_size"))
	t.Optimizer = p.text(training, "optimizer")
	t.LearnRate = p.number(training, "lr")
	t.Precision = p.text(training, "precision")
	t.GPUs, t.Nodes = int(p.whole(training, "gpus")), int(p.whole(training, "nodes"))
	t.Framework = p.text(training, "framework")
	job.Dataset.Train, job.Dataset.Valid = p.text(data, "train"), p.text(data, "valid")
	if p.err == nil {
		p.err = job.Check()
	}
	return job, p.err
}

// parser reads values, and keeps the first error.
type parser struct {
	r   *redact.Redactor
	err error
}

func (p *parser) wrong(name, want string, v any) {
	if p.err == nil {
		p.err = fmt.Errorf("%s: expected %s; found %.40q", name, want, fmt.Sprint(v))
	}
}

// text returns a value that is a short text in one line. Words by which models say that they do not know are none.
func (p *parser) text(from map[string]any, name string) string {
	v := from[name]
	if v == nil {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		if n, is := v.(float64); is {
			s, ok = strconv.FormatFloat(n, 'g', -1, 64), true
		}
	}
	s = p.r.Restore(strings.TrimSpace(s))
	if !ok || len(s) > maxText || strings.ContainsFunc(s, unicode.IsControl) {
		p.wrong(name, "a short text", v)
		return ""
	}
	switch strings.ToLower(s) {
	case "unknown", "none", "null", "n/a", "not known", "not specified", "unspecified", "?", "-":
		return ""
	}
	return s
}

// number returns a number, which models also write as text.
func (p *parser) number(from map[string]any, name string) float64 {
	switch v := from[name].(type) {
	case nil:
		return 0
	case float64:
		return v
	case string:
		if p.text(from, name) == "" {
			return 0
		}
		if all := numeral.In(v); len(all) == 1 {
			return all[0]
		}
	}
	p.wrong(name, "a number", from[name])
	return 0
}

// whole returns a number without a fraction.
func (p *parser) whole(from map[string]any, name string) float64 {
	v := p.number(from, name)
	if v != math.Trunc(v) || math.Abs(v) > 1<<53 || (name == "gpus" || name == "nodes") && math.Abs(v) > 1e6 {
		p.wrong(name, "a whole number", from[name])
		return 0
	}
	return v
}

// parameters returns what else the model says of the model: the first ones by the order of their names, if there are too many.
func (p *parser) parameters(v any) map[string]string {
	all, _ := v.(map[string]any)
	out := map[string]string{}
	for name := range all {
		if s := p.text(all, name); s != "" && len(name) <= 64 && !strings.ContainsFunc(name, unicode.IsControl) {
			out[name] = s
		}
	}
	return firstOf(out, maxParameters)
}
