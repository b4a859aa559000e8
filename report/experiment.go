package report

import (
	"io"

	"github.com/muster-sched/muster/workload"
)

// Experiment is a published experiment that was repeated.
type Experiment struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Caption describes what was run and what it is compared with.
	Caption string `json:"caption"`
	// Theirs is the source of the reference figures, Tally the sentence about how many
	// figures are within their bands.
	Theirs  string   `json:"theirs,omitempty"`
	Tally   string   `json:"tally,omitempty"`
	Figures []Figure `json:"figures,omitempty"`
	// Lists is how full a cluster gets, by list of pods.
	Lists []PodList `json:"lists,omitempty"`
	// Stacks are sums by their parts, a plot each.
	Stacks []Stack `json:"stacks,omitempty"`
	// TradeOffs are what settings gain and cost, a plot each.
	TradeOffs []TradeOff `json:"trade_offs,omitempty"`
	// Notes explain differences, a paragraph each.
	Notes []string `json:"notes,omitempty"`
	// Runs is the address of a page about the experiment's runs, relative to its
	// own; empty when there is none.
	Runs string `json:"runs,omitempty"`
	// Workload describes the jobs, nil when they are not what is compared.
	Workload *workload.Summary `json:"workload,omitempty"`
}

// Figure is one figure, theirs and ours.
type Figure struct {
	Name string  `json:"name"`
	Ours float64 `json:"ours"`
	Unit string  `json:"unit"`
	// Theirs is nil when no figure is published. It is a bound when Bound is "above"
	// or "below", a figure to come near to when Bound is empty.
	Theirs *float64 `json:"theirs"`
	Bound  string   `json:"bound,omitempty"`
	// Low and High bound the band of ours; nil where it is open.
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
	// How describes the band.
	How    string `json:"how"`
	Within bool   `json:"within"`
	// Judged says that there is a reference to compare with.
	Judged bool   `json:"judged"`
	Note   string `json:"note,omitempty"`
	// The figures as text.
	TheirsText     string `json:"theirs_text"`
	OursText       string `json:"ours_text"`
	DifferenceText string `json:"difference_text"`
}

// Stack is a plot of sums, each of parts on top of each other.
type Stack struct {
	Title string `json:"title"`
	Note  string `json:"note,omitempty"`
	Unit  string `json:"unit"`
	// Names are of the sums, a bar each; without them, the sums are those of the hours from the start.
	Names []string    `json:"names,omitempty"`
	Parts []StackPart `json:"parts"`
}

// StackPart is a part of each sum of a stack, in their order.
type StackPart struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
}

// TradeOff is two figures of several settings. X and Y name the figures, with their units.
type TradeOff struct {
	Title string       `json:"title"`
	X     string       `json:"x"`
	Y     string       `json:"y"`
	Lines []TradeCurve `json:"lines"`
}

// TradeCurve is settings of one kind, which a line joins in their order.
type TradeCurve struct {
	Name   string       `json:"name"`
	Points []TradePoint `json:"points"`
}

// TradePoint is a setting.
type TradePoint struct {
	Label string  `json:"label"`
	X     float64 `json:"x"`
	Y     float64 `json:"y"`
}

// PodList is how full a cluster gets with the pods of a list.
type PodList struct {
	Name     string    `json:"name"`
	Fillings []Filling `json:"fillings"`
}

// Filling is how full a policy gets a cluster: the GPUs allocated, in per cent,
// means over the seeds.
type Filling struct {
	Policy string `json:"policy"`
	// Curve has a value for each whole per cent of demand that has arrived, from 0
	// to 130.
	Curve []float64 `json:"curve"`
	// Std is the standard deviation over the seeds at 130 %.
	Std float64 `json:"std"`
	// Published and Goal are what is published and what was aimed at, at 130 %; 0
	// where there is none.
	Published float64 `json:"published,omitempty"`
	Goal      float64 `json:"goal,omitempty"`
	// How says what passes, Verdict whether it does ("pass" or "fail"); both are
	// empty where there is nothing to compare with.
	How     string `json:"how,omitempty"`
	Verdict string `json:"verdict,omitempty"`
}

// ExperimentHTML writes a self-contained page about an experiment.
func ExperimentHTML(w io.Writer, e *Experiment) error {
	return write(w, e.Name, map[string]*Experiment{"experiment": e})
}
