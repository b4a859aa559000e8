// Package redact takes out of a text what must not leave the cluster: keys and passwords, e-mail addresses, IP addresses, names of hosts,
// and, where that is asked for, names of users and paths.
//
// Each value becomes a placeholder such as <host-1>, the same for the same value in all texts of a Redactor, so that a model can still see
// that two lines are about one host. What a model answers with placeholders is restored, but for secrets: these never come back.
// Text that looks like a placeholder is replaced, too, so that no text can ask for a value that is not its own.
package redact

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Rules say what is taken out beside secrets, which always are.
type Rules struct {
	Emails    bool
	Addresses bool     // of IP and of network cards, but for those that mean this host, such as 127.0.0.1
	Hosts     bool     // names with a domain, but for well-known public ones, and names that a line shows to be a host's
	Users     bool     // names in home folders, before an @ and behind user=
	Paths     bool     // the folders of absolute paths; the last part stays
	Names     []string // such as those of projects or machines, in any case, also within words
}

// Default is everything that means nothing to a model.
var Default = Rules{Emails: true, Addresses: true, Hosts: true}

// Redactor takes values out of the texts of one conversation. It is not for several goroutines.
type Redactor struct {
	rules  Rules
	names  *regexp.Regexp    // nil without any
	placed map[string]string // by kind and value: the placeholder
	values map[string]string // by placeholder
	counts map[kind]int
	hosts  map[string]bool // that a line showed to be one
	users  map[string]bool
}

// New returns a Redactor that has seen no text.
func New(rules Rules) *Redactor {
	r := &Redactor{rules: rules, placed: map[string]string{}, values: map[string]string{}, counts: map[kind]int{}, hosts: map[string]bool{}, users: map[string]bool{}}
	var words []string
	for _, n := range rules.Names {
		if n = strings.TrimSpace(n); n != "" {
			words = append(words, regexp.QuoteMeta(n))
		}
	}
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) }) // of two that begin alike, the longer one goes
	if words != nil {
		r.names = regexp.MustCompile(`(?i)(?:` + strings.Join(words, "|") + `)`)
	}
	return r
}

// kind is what a placeholder stands for.
type kind string

const (
	aSecret  kind = "secret"
	anEmail  kind = "email"
	anIP     kind = "ip"
	aHost    kind = "host"
	aUser    kind = "user"
	aPath    kind = "path"
	aName    kind = "name"
	aLiteral kind = "literal" // it looked like a placeholder
)

var placeholder = regexp.MustCompile(`<(?:secret|email|ip|host|user|path|name|literal)-\d+>`)

// place returns the placeholder of a value.
func (r *Redactor) place(k kind, value string) string {
	key := string(k) + " " + value
	if p, ok := r.placed[key]; ok {
		return p
	}
	r.counts[k]++
	p := fmt.Sprintf("<%s-%d>", k, r.counts[k])
	r.placed[key], r.values[p] = p, value
	return p
}

// Hide returns the text without what must not leave the cluster. A text should be whole, such as a file: a key that is cut in two is not
// known for one.
func (r *Redactor) Hide(text string) string {
	s := &spans{r: r, pieces: []piece{{text: text}}}
	if strings.Contains(text, "<") {
		s.matches(placeholder, aLiteral)
	}
	s.secrets(text)
	if r.names != nil {
		s.matches(r.names, aName)
	}
	if r.rules.Emails && strings.Contains(text, "@") {
		s.matches(email, anEmail)
	}
	if r.rules.Addresses {
		s.addresses()
	}
	if r.rules.Users {
		learn(r.users, text, userOf)
		s.known(r.users, aUser)
	}
	if r.rules.Hosts {
		s.domains()
		learn(r.hosts, text, hostOf)
		s.known(r.hosts, aHost)
	}
	if r.rules.Paths {
		s.paths()
	}
	return s.String()
}

// Restore puts the values back for which a text has placeholders. Secrets stay away.
func (r *Redactor) Restore(text string) string {
	if !strings.Contains(text, "<") {
		return text
	}
	return placeholder.ReplaceAllStringFunc(text, func(p string) string {
		if v, ok := r.values[p]; ok && !strings.HasPrefix(p, "<"+string(aSecret)) {
			return v
		}
		return p
	})
}
