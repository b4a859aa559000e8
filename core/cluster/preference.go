package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// Preference is a condition that a pod need not meet, and by which it chooses between nodes: one on the node's labels or,
// with a Label, one on the pods around it. A node's score for the pod is the sum of what its preferences count there.
type Preference struct {
	// Weight is what the preference counts, -[MaxWeight]..[MaxWeight] and not 0. Below 0, the pod would rather be elsewhere.
	Weight int32
	// Selector counts the weight where all requirements hold.
	Selector []Requirement
	// Label counts the weight for each pod with the label in the node's domain of Level, but for no more than
	// [MostCounted] of them; a node of which the domain is not known has none.
	Level, Label string
	// Group, of a preference with a Label, makes a group of the tasks of a gang that have it: where there is a way to
	// place each group of the gang in one domain of its level, the gang starts so.
	Group bool `json:",omitempty"`
}

// Bounds of preferences.
const (
	// MaxWeight is the largest weight of a preference, as on Kubernetes.
	MaxWeight = 100
	// MostCounted is how many pods a preference counts at most in one domain.
	MostCounted = 1000
	// MaxPreferences is how many preferences a pod may have.
	MaxPreferences = 100
)

// Check reports what is wrong with a preference, but for its level.
func (p *Preference) Check() error {
	if p.Weight == 0 || p.Weight < -MaxWeight || p.Weight > MaxWeight {
		return fmt.Errorf("a preference with weight %d, expected -%d..%d and not 0", p.Weight, MaxWeight, MaxWeight)
	}
	if (p.Label == "") == (len(p.Selector) == 0) || (p.Label == "") != (p.Level == "") {
		return fmt.Errorf("a preference for labels %v and for pods labelled %q in one %s, expected one of the two", p.Selector, p.Label, p.Level)
	}
	if p.Group && (p.Label == "" || p.Weight < 0) {
		return fmt.Errorf("a preference for a group with weight %d and label %q, expected a label and a weight above 0", p.Weight, p.Label)
	}
	for i := range p.Selector {
		if err := p.Selector[i].Check(); err != nil {
			return err
		}
	}
	return nil
}

// Holds reports whether labels of a node meet the selector of the preference.
func (p *Preference) Holds(labels map[string]string) bool { return matches(p.Selector, labels) }

const expectedPreference = "WEIGHT:KEY=VALUE, with more conditions behind & (50:disk=ssd|nvme&zone), WEIGHT:near:LEVEL:LABEL (-10:near:leaf:web), or WEIGHT:group:LEVEL:LABEL (100:group:leaf:web)"

// ParsePreference reads a preference, such as 50:disk=ssd&zone=a|b, 10:near:leaf:web, -10:near:node:web or 100:group:leaf:web. The error says what is
// expected.
func ParsePreference(text string) (Preference, error) {
	wrong := func() (Preference, error) { return Preference{}, fmt.Errorf("%s", expectedPreference) }
	weight, of, ok := strings.Cut(text, ":")
	n, err := strconv.ParseInt(weight, 10, 32)
	if !ok || err != nil || of == "" {
		return wrong()
	}
	p := Preference{Weight: int32(n)}
	near, ok := strings.CutPrefix(of, "near:")
	if !ok {
		near, p.Group = strings.CutPrefix(of, "group:")
	}
	if ok || p.Group {
		if p.Level, p.Label, ok = strings.Cut(near, ":"); !ok || p.Level == "" || p.Label == "" {
			return wrong()
		}
		return p, p.Check()
	}
	for r := range strings.SplitSeq(of, "&") {
		q, ok := ParseRequirement(r)
		if !ok {
			return wrong()
		}
		p.Selector = append(p.Selector, q)
	}
	return p, p.Check()
}

// ParseRequirement reads k=v, k=v|w, k!=v, k>n, k<n, k (it exists) or !k (it does not).
func ParseRequirement(text string) (Requirement, bool) {
	r := Requirement{Key: text, Op: Exists}
	for _, o := range [...]struct {
		sign string
		op   Op
	}{{"!=", NotIn}, {"=", In}, {">", Gt}, {"<", Lt}} {
		if k, v, ok := strings.Cut(text, o.sign); ok {
			r = Requirement{Key: k, Op: o.op, Values: strings.Split(v, "|")}
			break
		}
	}
	if k, ok := strings.CutPrefix(r.Key, "!"); ok && r.Op == Exists {
		r = Requirement{Key: k, Op: DoesNotExist}
	}
	return r, r.Key != "" && !strings.ContainsAny(r.Key, "!=<>:")
}

// String is the inverse of [ParsePreference].
func (p *Preference) String() string {
	weight := strconv.Itoa(int(p.Weight)) + ":"
	if p.Group {
		weight += "group:"
	} else if p.Label != "" {
		weight += "near:"
	}
	if p.Label != "" {
		return weight + p.Level + ":" + p.Label
	}
	var list []string
	for i := range p.Selector {
		list = append(list, p.Selector[i].String())
	}
	return weight + strings.Join(list, "&")
}

// String is the inverse of [ParseRequirement].
func (r *Requirement) String() string {
	values := strings.Join(r.Values, "|")
	switch r.Op {
	case In:
		return r.Key + "=" + values
	case NotIn:
		return r.Key + "!=" + values
	case Gt:
		return r.Key + ">" + values
	case Lt:
		return r.Key + "<" + values
	case DoesNotExist:
		return "!" + r.Key
	}
	return r.Key
}

// Tolerates reports whether one of the tolerations is for the taint.
func Tolerates(by []Toleration, t Taint) bool {
	for i := range by {
		if by[i].Bears(&t) {
			return true
		}
	}
	return false
}
