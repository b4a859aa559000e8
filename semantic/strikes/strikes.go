// Package strikes keeps what happened on which node, and says what that makes of a failure there. One log is often not enough: "out of memory" in
// the first barrier, on a node that had an ECC error an hour ago, is the hardware.
//
// What happened counts for a day at most. The rules are data, in rules.yaml.
package strikes

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/muster-sched/muster/semantic/diagnose"
)

// Incident is something that happened on a node, as a log or a health check said.
type Incident struct {
	At   time.Time `json:"at"`
	Node string    `json:"node"`
	Job  string    `json:"job,omitempty"`
	// Device is the PCI address of the GPU, if the driver named it.
	Device string `json:"device,omitempty"`
	// Category, Component, Signature and Confidence are those of the verdict.
	Category   diagnose.Category `json:"category"`
	Component  string            `json:"component"`
	Signature  string            `json:"signature"`
	Confidence float64           `json:"confidence"`
}

// Of returns what a verdict on a log says happened on a node, false if nothing that is worth keeping did: there was no failure, no rule
// named it, or it is elsewhere.
func Of(v *diagnose.Verdict, node, job string, at time.Time) (Incident, bool) {
	i := Incident{At: at, Node: node, Job: job, Category: v.Category, Component: v.Component, Signature: v.Signature, Confidence: v.Confidence}
	return i, v.Category != diagnose.None && v.Signature != "" && node != "" && !v.Waited()
}

// OfDriver returns what a message of the driver in the kernel log, such as an Xid, says happened to a device of a node; false as with [Of].
func OfDriver(message, node, device string, at time.Time) (Incident, bool) {
	v, err := diagnose.Log(strings.NewReader(message))
	if err != nil {
		return Incident{}, false
	}
	i, ok := Of(&v, node, "", at)
	i.Device = device
	return i, ok
}

// Window is for how long an incident is kept.
const Window = 24 * time.Hour

// Fatal is how long after an error of the driver's a program that caused it ends at most, for the failure to be of that error.
const Fatal = 5 * time.Minute

// History is the incidents of nodes. The zero value is empty.
type History struct {
	byNode map[string][]Incident // in the order of time
}

// Add adds an incident. What the driver said of a device at a time counts once. Those of its node that are older than it by more than the window are forgotten.
func (h *History) Add(i Incident) {
	if h.byNode == nil {
		h.byNode = map[string][]Incident{}
	}
	if i.Device != "" && slices.ContainsFunc(h.byNode[i.Node], func(o Incident) bool {
		return o.At.Equal(i.At) && o.Device == i.Device && o.Signature == i.Signature
	}) {
		return
	}
	all := append(h.byNode[i.Node], i)
	slices.SortStableFunc(all, func(a, b Incident) int { return a.At.Compare(b.At) })
	last := all[len(all)-1].At
	h.byNode[i.Node] = slices.DeleteFunc(all, func(o Incident) bool { return last.Sub(o.At) > Window })
}

// Before returns what happened on a node within a time before another one, the first first.
func (h *History) Before(node string, at time.Time, within time.Duration) []Incident {
	var out []Incident
	for _, i := range h.byNode[node] {
		if age := at.Sub(i.At); age >= 0 && age <= within {
			out = append(out, i)
		}
	}
	return out
}

// rule is an entry of rules.yaml.
type rule struct {
	Signatures []string `yaml:"signatures"`
	// Early is whether the failure has to come before the job completes a step.
	Early bool `yaml:"early"`
	After struct {
		Components []string `yaml:"components"`
		Same       bool     `yaml:"same"`
		// Both are signatures of which the node has one of the job and the same of another job, of the same device.
		Both []string `yaml:"both"`
	} `yaml:"after"`
	Within  string `yaml:"within"`
	Becomes struct {
		Component  string  `yaml:"component"` // by default that of the incident
		Action     string  `yaml:"action"`
		Confidence float64 `yaml:"confidence"`
		Says       string  `yaml:"says"`
	} `yaml:"becomes"`

	within time.Duration
}

//go:embed rules.yaml
var text []byte

var rules = sync.OnceValue(func() []rule {
	out, err := read(text)
	if err != nil {
		panic(err) // the file is part of the program, and a test reads it
	}
	return out
})

// read reads rules, and checks what they refer to.
func read(text []byte) ([]rule, error) {
	var out []rule
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.DisallowUnknownField()).Decode(&out); err != nil {
		return nil, err
	}
	for i := range out {
		r := &out[i]
		var err error
		if r.within, err = time.ParseDuration(r.Within); err != nil || r.within <= 0 || r.within > Window {
			return nil, fmt.Errorf("rule %d: within: expected a duration up to %s; found %q", i+1, Window, r.Within)
		}
		for _, s := range slices.Concat(r.Signatures, r.After.Both) {
			if !diagnose.HasSignature(s) {
				return nil, fmt.Errorf("rule %d: no signature is called %q", i+1, s)
			}
		}
		if !diagnose.HasAction(r.Becomes.Action) {
			return nil, fmt.Errorf("rule %d: the recovery table has no action %q", i+1, r.Becomes.Action)
		}
	}
	return out, nil
}

// Reconsider returns a verdict on a job's log after what happened on a node where the job ran, and the incident that makes it another one; nil if
// none does. A failure of the infrastructure stays what it is, and so do failures that no rule names.
func (h *History) Reconsider(v diagnose.Verdict, node, job string, at time.Time) (diagnose.Verdict, *Incident) {
	for _, r := range rules() {
		if !slices.Contains(r.Signatures, v.Signature) || v.Category == diagnose.Infrastructure && v.Confidence >= r.Becomes.Confidence || r.Early && !v.Early {
			continue
		}
		before := h.Before(node, at, r.within)
		for _, i := range slices.Backward(before) {
			same := r.After.Same && i.Signature == v.Signature && i.Job != job
			both := i.Job != job && slices.Contains(r.After.Both, i.Signature) && slices.ContainsFunc(before, func(own Incident) bool {
				return own.Job == job && own.Signature == i.Signature && own.Device == i.Device && at.Sub(own.At) <= Fatal
			})
			if !same && !both && !(i.Category == diagnose.Infrastructure && slices.Contains(r.After.Components, i.Component)) {
				continue
			}
			component := r.Becomes.Component
			if component == "" {
				component = i.Component
			}
			why := fmt.Sprintf("%s (%s, %s before)", r.Becomes.Says, i.Signature, at.Sub(i.At).Round(time.Minute))
			return v.Hardware(component, r.Becomes.Action, r.Becomes.Confidence, why), &i
		}
	}
	return v, nil
}

// Read reads incidents, an object of JSON a line. The error names the line.
func Read(r io.Reader) (*History, error) {
	h := &History{}
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for n := 1; in.Scan(); n++ {
		if len(bytes.TrimSpace(in.Bytes())) == 0 {
			continue
		}
		var i Incident
		d := json.NewDecoder(bytes.NewReader(in.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&i); err != nil {
			return nil, fmt.Errorf("line %d: expected an incident as JSON; %w", n, err)
		}
		switch rest := bytes.TrimSpace(in.Bytes()[d.InputOffset():]); {
		case len(rest) > 0:
			return nil, fmt.Errorf("line %d: expected one incident; found more behind it: %.20q", n, rest)
		case i.Node == "" || i.At.IsZero():
			return nil, fmt.Errorf("line %d: expected at and node; found neither or one", n)
		case !slices.Contains(diagnose.Categories, i.Category):
			return nil, fmt.Errorf("line %d: category: expected one of %v; found %q", n, diagnose.Categories, i.Category)
		}
		h.Add(i)
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, errors.New("expected lines of at most 1 MiB")
	} else if err != nil {
		return nil, err
	}
	return h, nil
}
