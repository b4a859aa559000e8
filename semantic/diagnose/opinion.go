package diagnose

import (
	"fmt"
	"slices"
)

// Opinion is what a model says of a failure, where the rules are not sure.
type Opinion struct {
	Category   Category
	Component  string
	Confidence float64 // as the model says
	Line       Line    // that names the root, without what it says; ignored if Category is None
	Reason     string
}

// Categories and Components are the words of a verdict.
var (
	Categories = []Category{Infrastructure, Framework, UserScript, None}
	Components = []string{"gpu", "nvlink", "network", "node", "storage", "memory_host", "software", "unknown"}
)

// modelSignature is the signature of a verdict that rests on an opinion.
const modelSignature = "model"

// These bound the confidence in an opinion: models are as sure of what is wrong as of what is right.
const (
	mostOpinion = 0.8
	mostAlone   = 0.5 // where no rule found a failure
)

// Unsure says whether another opinion may be better: the rules are less confident than below, or no line says how the job ended.
func (v *Verdict) Unsure(below float64) bool {
	if v.Category == None {
		return v.Confidence <= 0.6
	}
	return v.Confidence < below
}

// Consider returns the verdict after an opinion. If both agree, the rule's names stay and the confidence grows. Otherwise the opinion holds, and
// the action is the one of the recovery table for its category and component; where the table has a rule for models, by that: an opinion may have been
// steered by the text of the log, so that it does not drain a node. An error says which word of the opinion is none of ours.
func (v Verdict) Consider(o Opinion) (Verdict, error) {
	switch {
	case !slices.Contains(Categories, o.Category):
		return v, fmt.Errorf("category: expected one of %v; found %q", Categories, o.Category)
	case !slices.Contains(Components, o.Component):
		return v, fmt.Errorf("component: expected one of %v; found %q", Components, o.Component)
	case !(o.Confidence >= 0 && o.Confidence <= 1):
		return v, fmt.Errorf("confidence: expected a number from 0 to 1; found %v", o.Confidence)
	case o.Category != None && (o.Line.Index < 0 || o.Line.Index >= v.Lines):
		return v, fmt.Errorf("line: expected one of the log's %d; found %d", v.Lines, o.Line.Index)
	}
	o.Confidence = min(o.Confidence, mostOpinion)
	if o.Category == v.Category && (o.Category == None || o.Component == v.Component) {
		v.Confidence = max(v.Confidence, o.Confidence)
		return v, nil
	}
	if v.Category == None {
		o.Confidence = min(o.Confidence, mostAlone)
	}
	n := Verdict{Category: o.Category, Component: o.Component, Confidence: o.Confidence, Signature: modelSignature, Reason: o.Reason, Evidence: []Line{}, Lines: v.Lines}
	if o.Category == None {
		n.Component, n.Signature = "unknown", ""
	} else {
		line := o.Line
		line.Text, line.Says = clip([]byte(line.Text)), o.Reason
		n.SignatureLine, n.RootLine = &line.Index, &line.Index
		n.Evidence = append(n.Evidence, line)
	}
	for _, l := range v.Evidence {
		if len(n.Evidence) == 0 || l.Index != n.Evidence[0].Index {
			n.Evidence = append(n.Evidence, l)
		}
	}
	n.recovery = known().actionOfModel(n.Category, n.Component)
	n.Action = n.recovery.Name
	return n, nil
}

// actionOfModel returns the recovery of a failure that a model found.
func (k *knowledge) actionOfModel(c Category, component string) Action {
	for _, by := range []string{"model", ""} {
		for _, r := range k.rules {
			if r.By == by && r.Category == c && (r.Component == "" || r.Component == component) {
				return k.actions[r.Action]
			}
		}
	}
	return k.actions["none"]
}

// Hardware returns the verdict as one on a part of the node, as what happened there before says. The lines stay the same.
func (v Verdict) Hardware(component, action string, confidence float64, why string) Verdict {
	v.Category, v.Component, v.Confidence, v.Reason = Infrastructure, component, confidence, why
	v.recovery, v.follows = known().actions[action], false
	v.Action = v.recovery.Name
	return v
}

// HasSignature says whether a rule of the knowledge has a name.
func HasSignature(name string) bool {
	k := known()
	for _, s := range k.signatures {
		if s.Name == name {
			return true
		}
	}
	for _, s := range k.xids {
		if s.Name == name {
			return true
		}
	}
	return false
}

// HasAction says whether an action of the recovery table has a name.
func HasAction(name string) bool { return known().actions[name].Name != "" }
