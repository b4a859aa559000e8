package diagnose

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
)

//go:embed knowledge
var files embed.FS

// Role is what a line that matches a signature says about the failure.
type role string

const (
	roleRoot    role = "root"    // it may have begun here
	roleSuspect role = "suspect" // it may have, if nothing more certain is found
	roleWatch   role = "watch"   // the hardware reports something that a job survives
	roleCascade role = "cascade" // a process reports that another one failed
	roleNoise   role = "noise"   // healthy jobs print it as well
	roleSuccess role = "success" // the job did what it had to
	roleStop    role = "stop"    // the scheduler or a user ended the job
	roleClosing role = "closing" // a job that ended well says so in its last lines
	roleClears  role = "clears"  // what the signatures in Clears reported is over
	roleWrapper role = "wrapper" // an exception that gives another one again, which follows

	roleRestarts  role = "restarts"  // the job begins again
	roleRecovered role = "recovered" // what has a name in the line, such as a host, is well again

	// Roles of xid.tsv that the text of a line, or the lines around it, turn into one of those above.
	roleProgram    role = "program"
	roleBySeverity role = "by-severity"
	roleByAction   role = "by-action"
)

// signature is an entry of the knowledge: how a line looks, and what it means.
type signature struct {
	Name string `yaml:"name"`
	// A line matches if it has one of the literals Find (in any case), the expression Match, and not the expression Unless.
	Find   []string `yaml:"find"`
	Match  string   `yaml:"match"`
	Unless string   `yaml:"unless"`
	// In is "exception" if only the last line of a traceback can match.
	In         string   `yaml:"in"`
	Role       role     `yaml:"role"`
	Class      Category `yaml:"class"`
	Component  string   `yaml:"component"`
	Action     string   `yaml:"action"`
	Confidence float64  `yaml:"confidence"`
	Says       string   `yaml:"says"`
	Clears     []string `yaml:"clears"`
	// Decisive facts come from the kernel, a driver or the scheduler. They explain what the program printed before.
	Decisive bool `yaml:"decisive"`
	// Generic signatures know only the type of an exception. Library is their class if the exception comes from a library.
	Generic bool     `yaml:"generic"`
	Library Category `yaml:"library"`
	// Checks: a library raises it at once, in the function that the program calls, if an argument is wrong. Then it is the program's.
	Checks bool `yaml:"checks"`
	// Import is their class if a library raises the exception while the program imports it.
	Import Category `yaml:"import"`
	// Optional exceptions are often handled: a program goes on without the package or the tracker.
	Optional bool `yaml:"optional"`
	// Explains: a library prints it under its exception, to say what happened.
	Explains bool `yaml:"explains"`
	// Handled: programs often catch the error, print a line and go on.
	Handled bool `yaml:"handled"`
	// Mild: a job that completes a step after it is not affected.
	Mild bool `yaml:"mild"`
	// Subjects are the components that the signature is about instead if the line has a word of them.
	Subjects []string `yaml:"subjects"`
	// Elsewhere: the job may lose what the signature is about, such as a node, and go on with others.
	Elsewhere bool `yaml:"elsewhere"`
	// Parse names what reads the rest of the line: xid, sxid, first-allocation, fewer, all, last-try.
	Parse string `yaml:"parse"`

	match, unless *regexp.Regexp
}

// group is signatures with something in common.
type group struct {
	Role       role         `yaml:"role"`
	Class      Category     `yaml:"class"`
	Component  string       `yaml:"component"`
	Action     string       `yaml:"action"`
	Confidence float64      `yaml:"confidence"`
	In         string       `yaml:"in"`
	Signatures []*signature `yaml:"signatures"`
}

// Action is an entry of the recovery table.
type Action struct {
	Name    string `yaml:"name"`
	Restart string `yaml:"restart"` // never, once, or up to limit
	Limit   int    `yaml:"limit"`   // restarts a day
	Node    string `yaml:"node"`    // what happens to the node
	// Suspects is that in one word: nothing, strike, test or cordon. GoesOn says that the job is treated as if nothing were known.
	Suspects string `yaml:"suspects"`
	GoesOn   bool   `yaml:"goes_on"`
	// Elsewhere is whether the log is of a process that waited for others: its node is no suspect.
	Elsewhere bool   `yaml:"elsewhere"`
	Advice    string `yaml:"advice"`
}

type rule struct {
	Category  Category `yaml:"category"`
	Component string   `yaml:"component"`
	By        string   `yaml:"by"` // model: only for what a model found, before the others; else for all
	Action    string   `yaml:"action"`
}

// stepLine is how a kind of line reports a completed step.
type stepLine struct {
	Find  string `yaml:"find"`
	Match string `yaml:"match"`

	match *regexp.Regexp
}

// subject is how a line names a component.
type subject struct {
	Component string `yaml:"component"`
	Match     string `yaml:"match"`

	match *regexp.Regexp
}

// maxSteps is how many kinds of lines that report a step there may be: each is a bit.
const maxSteps = 64

// knowledge is the embedded files, ready for use. It does not change.
type knowledge struct {
	signatures []*signature // in the order of the files: the first one that matches a line holds
	xids       map[int]*signature
	actions    map[string]Action
	rules      []rule
	progress   []*stepLine
	idle       map[byte][]string // by first letter: how words begin that say that the numbers of a line count nothing
	machine    []string          // how words begin that a monitor measures
	named      map[string]bool   // words before a number that is a name
	subjects   []subject
	keys       *keys
	owner      []int32 // by literal: the signature, the negative of one of the marks below, or -stepOwner less the kind of step
	exception  *signature
}

// Literals that the scanner itself asks for.
const (
	markTraceback = 1 + iota
	markFrame
	markChain
	markOpener
	markStack  // of a logger that was asked for it, without an error
	markExcuse // the program goes on
	markIdle   // numbers in the line may count nothing
	markState  // the line may be the head of a table of states

	stepOwner = 100 // and below: what lines that report a step have
)

var marks = []struct {
	literal string
	mark    int32
}{
	{"Traceback (most recent call last", markTraceback},
	{`File "`, markFrame},
	{"During handling of the above exception", markChain},
	{"was the direct cause of the following exception", markChain},
	{"Error executing job with overrides", markOpener},
	{"Exception in thread ", markOpener},
	{"Stack (most recent call last", markStack}, {"Call stack:", markStack},
	{"retry", markExcuse}, {"retried", markExcuse}, {"skipp", markExcuse}, {"ignor", markExcuse}, {"fall back", markExcuse},
	{"falling back", markExcuse}, {"fallback", markExcuse}, {"continu", markExcuse}, {"will try", markExcuse}, {"trying again", markExcuse},
	{"non-fatal", markExcuse}, {"recover", markExcuse}, {"resum", markExcuse}, {"not critical", markExcuse}, {" handled", markExcuse},
	{"attempt ", markExcuse},
	{"state", markState}, {"status", markState}, {"result", markState}, {" st ", markState}, {"outcome", markState},
}

var known = sync.OnceValue(func() *knowledge {
	k, err := load(files)
	if err != nil {
		panic(err) // the files are part of the program, and a test reads them
	}
	return k
})

func load(from fs.FS) (*knowledge, error) {
	k := &knowledge{actions: map[string]Action{}}
	if err := k.loadProgress(from); err != nil {
		return nil, err
	}
	if err := k.loadSubjects(from); err != nil {
		return nil, err
	}
	if err := k.loadSignatures(from); err != nil {
		return nil, err
	}
	var recovery struct {
		Actions []Action `yaml:"actions"`
		Rules   []rule   `yaml:"rules"`
	}
	if err := readYAML(from, "knowledge/recovery.yaml", &recovery); err != nil {
		return nil, err
	}
	for _, a := range recovery.Actions {
		k.actions[a.Name] = a
	}
	k.rules = recovery.Rules
	if err := k.loadXids(from); err != nil {
		return nil, err
	}
	return k, k.check()
}

func (k *knowledge) loadProgress(from fs.FS) error {
	const name = "knowledge/progress.yaml"
	var file struct {
		Steps []*stepLine `yaml:"steps"`
		Idle  []string    `yaml:"idle"`
		Named []string    `yaml:"named"`
		// Machine is how words begin that a monitor measures.
		Machine []string `yaml:"machine"`
	}
	err := readYAML(from, name, &file)
	if err != nil {
		return err
	}
	k.progress, k.machine = file.Steps, file.Machine
	k.idle, k.named = map[byte][]string{}, map[string]bool{}
	for _, w := range file.Idle {
		k.idle[w[0]] = append(k.idle[w[0]], w)
	}
	for _, w := range file.Named {
		k.named[w] = true
	}
	if len(k.progress) > maxSteps {
		return fmt.Errorf("%s: %d kinds of lines, at most %d", name, len(k.progress), maxSteps)
	}
	for _, p := range k.progress {
		if p.match, err = regexp.Compile(p.Match); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func readYAML(from fs.FS, name string, into any) error {
	data, err := fs.ReadFile(from, name)
	if err != nil {
		return err
	}
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.DisallowUnknownField()).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (k *knowledge) loadSignatures(from fs.FS) error {
	names, err := fs.Glob(from, "knowledge/[0-9]-*.yaml")
	if err != nil {
		return err
	}
	var literals []string
	for _, m := range marks {
		literals, k.owner = append(literals, m.literal), append(k.owner, -m.mark)
	}
	for _, words := range k.idle {
		for _, w := range words {
			literals, k.owner = append(literals, w), append(k.owner, -markIdle)
		}
	}
	for i, p := range k.progress {
		literals, k.owner = append(literals, p.Find), append(k.owner, int32(-stepOwner-i))
	}
	for _, name := range names {
		var groups []group
		if err := readYAML(from, name, &groups); err != nil {
			return err
		}
		for _, g := range groups {
			for _, s := range g.Signatures {
				if err := s.complete(g); err != nil {
					return fmt.Errorf("%s: %s: %w", name, s.Name, err)
				}
				for _, l := range s.Find {
					literals, k.owner = append(literals, l), append(k.owner, int32(len(k.signatures)))
				}
				k.signatures = append(k.signatures, s)
			}
		}
	}
	for i, l := range literals {
		literals[i] = strings.Map(func(r rune) rune { return rune(fold(byte(r))) }, l)
	}
	k.keys = newKeys(literals)
	k.exception = k.signatures[slices.IndexFunc(k.signatures, func(s *signature) bool { return s.Name == "exception" })]
	return nil
}

func (k *knowledge) loadSubjects(from fs.FS) error {
	const name = "knowledge/subjects.yaml"
	if err := readYAML(from, name, &k.subjects); err != nil {
		return err
	}
	for i := range k.subjects {
		var err error
		if k.subjects[i].match, err = regexp.Compile("(?i)" + k.subjects[i].Match); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// about returns a signature with the component that a line is about.
func (k *knowledge) about(s *signature, line []byte) *signature {
	for i := range k.subjects {
		if c := k.subjects[i].Component; c != s.Component && slices.Contains(s.Subjects, c) && k.subjects[i].match.Match(line) {
			other := *s
			other.Component = c
			return &other
		}
	}
	return s
}

// complete fills in what a signature has in common with its group.
func (s *signature) complete(g group) (err error) {
	s.Role = cmp.Or(s.Role, g.Role, roleRoot)
	s.Class = cmp.Or(s.Class, g.Class, None)
	s.Component = cmp.Or(s.Component, g.Component, "unknown")
	s.Action = cmp.Or(s.Action, g.Action)
	s.Confidence = cmp.Or(s.Confidence, g.Confidence, 0.9)
	s.In = cmp.Or(s.In, g.In)
	for _, e := range []struct {
		text string
		into **regexp.Regexp
	}{{s.Match, &s.match}, {s.Unless, &s.unless}} {
		if e.text != "" {
			if *e.into, err = regexp.Compile("(?i)" + e.text); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *knowledge) loadXids(from fs.FS) error {
	const name = "knowledge/xid.tsv"
	data, err := fs.ReadFile(from, name)
	if err != nil {
		return err
	}
	k.xids = map[int]*signature{}
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		f := strings.Split(line, "\t")
		if strings.HasPrefix(line, "#") || f[0] == "xid" {
			continue
		}
		code, err := strconv.Atoi(f[0])
		if err != nil || len(f) != 7 {
			return fmt.Errorf("%s:%d: expected seven columns, the first a number; found %q", name, i+1, line)
		}
		s := &signature{Name: "xid-" + f[0], Role: role(f[2]), Class: Category(f[3]), Component: f[4], Action: f[5], Says: "Xid " + f[0] + ": " + f[6]}
		switch s.Role {
		case roleRoot:
			s.Confidence, s.Decisive = 0.95, true
		case roleProgram, roleSuspect:
			s.Confidence = 0.55
		default:
			s.Confidence = 0.6
		}
		k.xids[code] = s
	}
	return nil
}

// check says whether the files refer to what exists.
func (k *knowledge) check() error {
	names := map[string]bool{}
	all := slices.Clone(k.signatures)
	for _, s := range k.xids {
		all = append(all, s)
	}
	for _, s := range all {
		if names[s.Name] {
			return fmt.Errorf("two signatures are called %s", s.Name)
		}
		names[s.Name] = true
		if s.Action != "" && k.actions[s.Action].Name == "" {
			return fmt.Errorf("%s: recovery.yaml has no action %q", s.Name, s.Action)
		}
	}
	for _, s := range all {
		for _, c := range s.Clears {
			if !names[c] {
				return fmt.Errorf("%s: no signature is called %q", s.Name, c)
			}
		}
	}
	for _, r := range k.rules {
		if k.actions[r.Action].Name == "" {
			return fmt.Errorf("recovery.yaml has no action %q", r.Action)
		}
	}
	return nil
}

// action returns the recovery of a failure.
func (k *knowledge) action(s *signature) Action {
	if s.Action != "" {
		return k.actions[s.Action]
	}
	for _, r := range k.rules {
		if r.By == "" && r.Category == s.Class && (r.Component == "" || r.Component == s.Component) {
			return k.actions[r.Action]
		}
	}
	return k.actions["none"]
}

// matched is what the literals of a line led to.
type matched struct {
	signatures []int32 // in order, each once
	marks      uint16  // by bit: one of the marks
	steps      uint64  // by bit: a kind of line that may report a step
}

// look finds the literals of a line.
func (k *knowledge) look(line []byte, m *matched) {
	m.signatures, m.marks, m.steps = m.signatures[:0], 0, 0
	k.keys.in(line, func(literal int32) {
		if o := k.owner[literal]; o <= -stepOwner {
			m.steps |= 1 << (-o - stepOwner)
		} else if o < 0 {
			m.marks |= 1 << -o
		} else if !slices.Contains(m.signatures, o) {
			m.signatures = append(m.signatures, o)
		}
	})
	slices.Sort(m.signatures)
}

func (m *matched) has(mark int) bool { return m.marks&(1<<mark) != 0 }

// classify returns the first of the signatures found that the line matches as a whole, or nil.
func (k *knowledge) classify(line []byte, m *matched, exception, wrappers bool) *signature {
	var counted []byte // the line without the counts that are 0
	for _, n := range m.signatures {
		s, line := k.signatures[n], line
		if s.In != "" && !exception || s.Role == roleWrapper && !wrappers || !s.matches(line) {
			continue
		}
		if !exception && s.isFailure() {
			if counted == nil {
				counted = k.withoutZeros(line)
			}
			if len(counted) < len(line) {
				if line = counted; !s.literalIn(line) || !s.matches(line) {
					continue
				}
			}
		}
		switch s.Parse {
		case "xid":
			s = k.xid(line)
		case "sxid":
			s = sxid(s, line)
		case "fewer":
			if !fewer(line) {
				s = nil
			}
		case "all":
			if !all(line) {
				s = nil
			}
		case "last-try":
			if !lastTry(line) {
				s = nil
			}
		}
		if s != nil {
			return k.about(s, line)
		}
	}
	return nil
}

// matches says whether a line that has a literal of a signature matches it as a whole.
func (s *signature) matches(line []byte) bool {
	return (s.match == nil || s.match.Match(line)) && (s.unless == nil || !s.unless.Match(line))
}
