package workload

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// affinity is the content of the column of that name, in elements separated by
// semicolons:
//
//	key=value  key=v1|v2  key!=v1|v2  key  !key    conditions on a node's labels
//	tolerate:key=value  tolerate:key  tolerate:    tolerations
//	near:LEVEL:label  apart:LEVEL:label            terms
//	label:x                                        labels
//	prefer:WEIGHT:key=value                        preferences, of nodes
//	prefer:WEIGHT:near:LEVEL:label                 and of pods, by group: a group of a gang
type affinity struct {
	prefers     []core.Preference
	selector    []core.Requirement
	tolerations []core.Toleration
	terms       []core.Term
	labels      []string
}

// parseAffinity parses the column; the error says what was expected.
func parseAffinity(text string) (affinity, error) {
	var a affinity
	if text == "" {
		return a, nil
	}
	for element := range strings.SplitSeq(text, ";") {
		if err := a.add(element); err != nil {
			return affinity{}, err
		}
	}
	return a, nil
}

// add parses one element.
func (a *affinity) add(element string) error {
	word, rest, directed := strings.Cut(element, ":")
	if !directed || strings.ContainsAny(word, "=!<>") {
		r, err := parseRequirement(element)
		a.selector = append(a.selector, r)
		return err
	}
	word, effect, _ := strings.Cut(word, "/")
	switch word {
	case "tolerate":
		key, value, _ := strings.Cut(rest, "=")
		a.tolerations = append(a.tolerations, core.Toleration{Key: key, Value: value, Effect: effect})
	case "near", "apart":
		level, label, ok := strings.Cut(rest, ":")
		if !ok || level == "" || label == "" {
			return fmt.Errorf("%s:LEVEL:label, found %q", word, element)
		}
		a.terms = append(a.terms, core.Term{Level: level, Label: label, Anti: word == "apart"})
	case "prefer":
		p, err := cluster.ParsePreference(rest)
		if err != nil {
			return fmt.Errorf("prefer:%w, found %q", err, element)
		}
		if len(a.prefers) == core.MaxPreferences {
			return fmt.Errorf("at most %d preferences, found %q", core.MaxPreferences, element)
		}
		a.prefers = append(a.prefers, p)
	case "label":
		if rest == "" {
			return fmt.Errorf("label:x, found %q", element)
		}
		a.labels = append(a.labels, rest)
	default:
		return fmt.Errorf("tolerate:, near:, apart:, prefer:, label: or a condition on a label, found %q", element)
	}
	return nil
}

// parseRequirement parses a condition on a node's labels.
func parseRequirement(text string) (core.Requirement, error) {
	r := core.Requirement{Key: text, Op: cluster.Exists}
	if key, values, ok := strings.Cut(text, "="); ok {
		r = core.Requirement{Key: key, Op: cluster.In, Values: strings.Split(values, "|")}
		if not, ok := strings.CutSuffix(key, "!"); ok {
			r.Key, r.Op = not, cluster.NotIn
		}
	} else if not, ok := strings.CutPrefix(text, "!"); ok {
		r = core.Requirement{Key: not, Op: cluster.DoesNotExist}
	}
	if r.Key == "" || strings.Contains(r.Key, "!") {
		return r, fmt.Errorf("key, !key, key=value or key!=value, found %q", text)
	}
	return r, nil
}

// appendAffinity appends the column for a task. It does not check that it can be
// parsed back; see errUnwritable.
func appendAffinity(b []byte, t *core.Task) []byte {
	start := len(b)
	add := func(parts ...string) {
		if len(b) > start {
			b = append(b, ';')
		}
		for _, p := range parts {
			b = append(b, p...)
		}
	}
	for _, label := range t.Labels {
		add("label:", label)
	}
	for _, term := range t.Affinity {
		word := "near:"
		if term.Anti {
			word = "apart:"
		}
		add(word, term.Level, ":", term.Label)
	}
	for i := range t.Prefers {
		add("prefer:", t.Prefers[i].String())
	}
	for i := range t.Selector {
		r := &t.Selector[i]
		switch r.Op {
		case cluster.In:
			add(r.Key, "=", strings.Join(r.Values, "|"))
		case cluster.NotIn:
			add(r.Key, "!=", strings.Join(r.Values, "|"))
		case cluster.Exists:
			add(r.Key)
		case cluster.DoesNotExist:
			add("!", r.Key)
		}
	}
	for _, tol := range t.Tolerations {
		if tol.Value == "" {
			add(ofEffect("tolerate", tol.Effect), tol.Key)
		} else {
			add(ofEffect("tolerate", tol.Effect), tol.Key, "=", tol.Value)
		}
	}
	return b
}

// ofEffect is the word before a taint or a toleration: with its effect, if it has one.
func ofEffect(word, effect string) string {
	if effect != "" {
		word += "/" + effect
	}
	return word + ":"
}

// parseTopology parses the topology column: required=LEVEL;preferred=LEVEL;closeness=SHARE,
// any of them, or LEVEL, which is required.
func parseTopology(text string) (core.TopologyRequest, error) {
	var r core.TopologyRequest
	if text == "" {
		return r, nil
	}
	for element := range strings.SplitSeq(text, ";") {
		word, level, ok := strings.Cut(element, "=")
		if !ok {
			word, level = "required", element
		}
		if word == "closeness" {
			c, err := core.ParseCloseness(level)
			if err != nil || c == 0 || r.Closeness != 0 {
				return r, fmt.Errorf("one closeness above 0 to %d, such as closeness=0.1, found %q", core.MaxCloseness/1000, text)
			}
			r.Closeness = c
			continue
		}
		to := &r.Required
		if word == "preferred" {
			to = &r.Preferred
		}
		if level == "" || *to != "" || word != "required" && word != "preferred" || strings.Contains(level, "=") {
			return r, fmt.Errorf("required=LEVEL;preferred=LEVEL;closeness=SHARE, found %q", text)
		}
		*to = level
	}
	return r, nil
}

// appendTopology appends the topology column.
func appendTopology(b []byte, r core.TopologyRequest) []byte {
	from := len(b)
	add := func(word, value string) {
		if len(b) > from {
			b = append(b, ';')
		}
		b = append(append(b, word...), value...)
	}
	if r.Required != "" {
		add("required=", r.Required)
	}
	if r.Preferred != "" {
		add("preferred=", r.Preferred)
	}
	if r.Closeness != 0 {
		add("closeness=", core.FormatCloseness(r.Closeness))
	}
	return b
}

// tags is the content of the labels column of a cluster: k=v labels and taint:k=v taints,
// separated by semicolons.
type tags struct {
	labels map[string]string
	taints []core.Taint
}

// parseTags parses the column; the error says what was expected.
func parseTags(text string) (tags, error) {
	var t tags
	if text == "" {
		return t, nil
	}
	for element := range strings.SplitSeq(text, ";") {
		key, value, ok := strings.Cut(element, "=")
		word, taint, tainted := strings.Cut(key, ":")
		word, effect, _ := strings.Cut(word, "/")
		tainted = tainted && word == "taint"
		switch {
		case !ok || key == "" || tainted && taint == "":
			return tags{}, fmt.Errorf("key=value or taint:key=value, found %q", element)
		case tainted:
			t.taints = append(t.taints, core.Taint{Key: taint, Value: value, Effect: effect})
		case t.labels == nil:
			t.labels = map[string]string{key: value}
		default:
			if _, dup := t.labels[key]; dup {
				return tags{}, fmt.Errorf("a label given once, found %q again", key)
			}
			t.labels[key] = value
		}
	}
	return t, nil
}

// appendTags appends the labels, by key, then the taints.
func appendTags(b []byte, t tags) []byte {
	start := len(b)
	add := func(prefix, key, value string) {
		if len(b) > start {
			b = append(b, ';')
		}
		b = append(append(append(append(b, prefix...), key...), '='), value...)
	}
	keys := make([]string, 0, len(t.labels))
	for k := range t.labels {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		add("", k, t.labels[k])
	}
	for _, taint := range t.taints {
		add(ofEffect("taint", taint.Effect), taint.Key, taint.Value)
	}
	return b
}

// errUnwritable reports that a value has a form that the files cannot express.
var errUnwritable = errors.New("cannot be written so that it reads back the same")
