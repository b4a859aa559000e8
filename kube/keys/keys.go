// Package keys is the one table of the labels and annotations by which users of other schedulers say
// what their jobs need: of each key it says what Muster does with it. The scheduler reads the keys
// that it honours from here, docs/migrate.md prints the table, and nothing else lists such keys.
package keys

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/internal/spelling"
)

// Answer is what Muster does with a key.
type Answer uint8

const (
	// Honoured: Muster acts on it.
	Honoured Answer = iota
	// Irrelevant: it changes nothing that Muster decides, or only something that nobody relies on.
	Irrelevant
	// Refused: the job would not run as its author wants. It waits, and Text says what to write instead.
	Refused
)

// Key is a label or an annotation of another scheduler's.
type Key struct {
	// Name is the key; one that ends in "*" stands for all that begin so.
	Name   string
	Answer Answer
	// Means is Muster's own key that says the same, for keys that are Honoured; empty where there is none.
	Means string
	// Text says how an honoured key differs, empty if it does not; why a key is irrelevant; or what to do
	// instead of a refused one.
	Text string
	// Harmless are the values of a refused key that ask for nothing.
	Harmless []string
}

// Peer is a scheduler from which users come.
type Peer struct {
	Name string
	// Domains are those of its keys, each with the domains below it: a key that begins so, and is not in
	// the table, is reported.
	Domains []string
	Keys    []Key
}

// index finds a key by its name.
var index = func() map[string]*Key {
	out := map[string]*Key{}
	for _, p := range Peers {
		for i := range p.Keys {
			if k := &p.Keys[i]; out[k.Name] == nil {
				out[k.Name] = k
			}
		}
	}
	return out
}()

// families are the keys that stand for all that begin so.
var families = func() []*Key {
	var out []*Key
	for _, k := range index {
		if strings.HasSuffix(k.Name, "*") {
			out = append(out, k)
		}
	}
	// Of several that a name begins with, the longest counts.
	slices.SortFunc(out, func(a, b *Key) int { return len(b.Name) - len(a.Name) })
	return out
}()

// Find returns what the table says of a key, nil if it is not there.
func Find(name string) *Key {
	if k := index[name]; k != nil {
		return k
	}
	for _, k := range families {
		if strings.HasPrefix(name, strings.TrimSuffix(k.Name, "*")) {
			return k
		}
	}
	return nil
}

// Same returns the keys that say what a key of Muster's says, in the order in which they count: Muster's
// own first, then those of the table.
func Same(own string) []string {
	out := []string{own}
	for _, p := range Peers {
		for _, k := range p.Keys {
			if k.Answer == Honoured && k.Means == own && !slices.Contains(out, k.Name) {
				out = append(out, k.Name)
			}
		}
	}
	return out
}

// PeerOf returns the scheduler in whose domain a key is, nil for none.
func PeerOf(name string) *Peer {
	domain, _, ok := strings.Cut(name, "/")
	if !ok {
		return nil
	}
	for i := range Peers {
		for _, d := range Peers[i].Domains {
			if domain == d || strings.HasSuffix(domain, "."+d) {
				return &Peers[i]
			}
		}
	}
	return nil
}

// Labelled is an object with labels and annotations.
type Labelled interface {
	GetLabels() map[string]string
	GetAnnotations() map[string]string
}

// Refusal says which labels and annotations of an object Muster refuses, and what to do instead; nil for
// none. Of several it names the first by name.
func Refusal(o Labelled) error {
	var wrong []string
	for _, table := range [...]map[string]string{o.GetLabels(), o.GetAnnotations()} {
		for name, v := range table {
			if k := Find(name); k != nil && k.Answer == Refused && !slices.Contains(k.Harmless, v) {
				wrong = append(wrong, fmt.Sprintf("%s: %q is not supported: %s", name, v, k.Text))
			}
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%s", slices.Min(wrong))
}

// Unknown says which labels and annotations of an object are in Muster's domain or in another scheduler's
// and are not known, sorted, with those that may have been meant: the first five, for a user may write
// thousands. It is empty if there are none.
func Unknown(o Labelled) string {
	wrong := map[string]bool{}
	for _, table := range [...]map[string]string{o.GetLabels(), o.GetAnnotations()} {
		for name := range table {
			switch {
			case strings.HasPrefix(name, v1alpha1.Prefix):
				if !slices.Contains(v1alpha1.Keys, name) {
					wrong[name] = true
				}
			case PeerOf(name) != nil && Find(name) == nil:
				wrong[name] = true
			}
		}
	}
	var out strings.Builder
	for i, name := range slices.Sorted(maps.Keys(wrong)) {
		if i == 5 {
			fmt.Fprintf(&out, "; and so are %d more", len(wrong)-i)
			break
		}
		switch before := out.String(); {
		case strings.HasSuffix(before, "?"):
			out.WriteString(" ")
		case before != "":
			out.WriteString("; ")
		}
		out.WriteString(name + " is unknown")
		if meant := nearest(name); meant != "" {
			out.WriteString("; did you mean " + meant + "?")
		}
	}
	return out.String()
}

// nearest returns the key that may have been meant, of Muster's or of the scheduler in whose domain the
// key is; empty for none.
func nearest(name string) string {
	domain, rest, _ := strings.Cut(name, "/")
	var candidates []string
	if strings.HasPrefix(name, v1alpha1.Prefix) {
		candidates = v1alpha1.Keys
	} else {
		for _, k := range PeerOf(name).Keys {
			candidates = append(candidates, k.Name)
		}
	}
	// By the part after the domain, by which all are alike.
	var short []string
	for _, k := range candidates {
		if d, r, ok := strings.Cut(k, "/"); ok && d == domain && !strings.HasSuffix(r, "*") {
			short = append(short, r)
		}
	}
	if meant := spelling.Nearest(rest, short); meant != "" {
		return domain + "/" + meant
	}
	return ""
}
