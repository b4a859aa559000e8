package diagnose

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Two shapes: "Xid (PCI:0000:3b:00): 79, …", with or without "PCI:", a domain, a MIG instance; "Xid 79", "Xid error: 79", "xid=79".
var (
	xidOfGPU = regexp.MustCompile(`(?i)\bxid\s*\((?:PCI:)?[0-9a-f:.]+[^)]*\):?\s*(\d{1,3})\b`)
	xidAlone = regexp.MustCompile(`(?i)\bxid[^0-9(]{0,20}(\d{1,3})\b[^.\d]?`)
	fatal    = regexp.MustCompile(`(?i)\bfatal\b`)
	nonFatal = regexp.MustCompile(`(?i)non-?\s?fatal`)
	health   = regexp.MustCompile(`(?i)health ?check|nhc|check_gpu`)
	newState = regexp.MustCompile(`(?i)changed from .* to \S+ \(([^)]*)\)`)
	earlier  = regexp.MustCompile(`(?i)caused by previous xid (\d{1,3})\b`)
	severity = regexp.MustCompile(`(?i)\bseverity (\d)`) // of an NVSwitch: 0 is not fatal
)

// xid returns what the driver's error in a line means, nil if there is no code that is known.
func (k *knowledge) xid(line []byte) *signature {
	found := earlier.FindSubmatch(line) // the error that the line's own one follows from
	if found == nil {
		found = xidOfGPU.FindSubmatch(line)
	}
	if found == nil {
		found = xidAlone.FindSubmatch(line)
	}
	if found == nil {
		return nil
	}
	code, _ := strconv.Atoi(string(found[1]))
	known := k.xids[code]
	if known == nil {
		return nil
	}
	s := *known
	switch s.Role {
	case roleProgram:
		s.Role = roleSuspect
		if health.Match(line) { // who runs this check holds it for the node's fault
			s.Class, s.Component, s.Action = Infrastructure, "gpu", "cordon_and_restart"
		}
	case roleBySeverity:
		s.Role, s.Decisive, s.Confidence = roleRoot, true, 0.9
		if nonFatal.Match(line) {
			s.Role, s.Decisive, s.Confidence, s.Action = roleWatch, false, 0.6, "watch"
		}
	case roleByAction:
		byAction(&s, line)
	}
	return &s
}

// byAction reads the action that the driver recommends with Xid 154.
func byAction(s *signature, line []byte) {
	s.Role, s.Confidence = roleWatch, 0.6
	found := newState.FindSubmatch(line)
	if found == nil {
		return
	}
	to := strings.ToLower(string(found[1]))
	s.Role, s.Decisive, s.Confidence = roleRoot, true, 0.9
	switch {
	case strings.Contains(to, "reboot"):
		s.Action = "reboot_node"
	case strings.Contains(to, "reset"):
		s.Action = "reset_gpu"
	case strings.Contains(to, "drain"):
		s.Action = "cordon_and_restart"
	default:
		s.Role, s.Decisive = roleNoise, false
	}
}

// sxid returns what an NVSwitch's error means: the text says whether it is fatal.
func sxid(s *signature, line []byte) *signature {
	c := *s
	c.Component, c.Says = "nvlink", "an NVSwitch reports a fatal error"
	c.Decisive = true
	isFatal := fatal.Match(line) && !nonFatal.Match(line)
	if m := severity.FindSubmatch(line); m != nil {
		isFatal = m[1][0] != '0'
	}
	if !isFatal {
		c.Role, c.Decisive, c.Confidence, c.Action, c.Says = roleWatch, false, 0.6, "watch", "an NVSwitch reports an error that is not fatal"
	}
	return &c
}

// Two shapes: "7 devices, want 8" and "expected 8 GPUs, found 7".
var (
	haveFirst = regexp.MustCompile(`(?i)\b(\d{1,4})\b.{0,24}\b(?:gpus?|npus?|devices?|accelerators?|cards?|nics?|hcas?)\b.{0,30}?\b(?:want(?:ed)?|expect(?:ed|s|ing)?|need(?:s|ed)?|instead of|should (?:be|have))\W{0,3}(\d{1,4})\b`)
	haveLast  = regexp.MustCompile(`(?i)\b(?:want(?:ed)?|expect(?:ed|s|ing)?|need(?:s|ed)?|should (?:be|have))\W{0,3}(\d{1,4})\b.{0,12}\b(?:gpus?|npus?|devices?|accelerators?|cards?|nics?|hcas?)\b.{0,30}?\b(?:found|detected|only|but|got|sees?|saw|has|have|visible)\b\D{0,12}(\d{1,4})\b`)
)

// fewer says whether a line tells that there are fewer devices than there should be.
func fewer(line []byte) bool {
	have, want := 1, 2
	m := haveFirst.FindSubmatch(line)
	if m == nil {
		m, have, want = haveLast.FindSubmatch(line), 2, 1
	}
	if m == nil {
		return false
	}
	n, _ := strconv.Atoi(string(m[have]))
	all, _ := strconv.Atoi(string(m[want]))
	return n < all
}

var ofAll = regexp.MustCompile(`\b(\d+) of (\d+)\b`)

// all says whether a line counts as many as there are: "411 of 411 done".
func all(line []byte) bool {
	m := ofAll.FindSubmatch(line)
	return m != nil && string(m[1]) == string(m[2])
}

var ofTries = regexp.MustCompile(`(?i)\b(?:retry\w*|retries|try|tries|attempts?)\W{1,3}(\d+) ?(?:/|of|out of) ?(\d+)\b`)

// lastTry says whether a line counts its try as the last one: "retrying (5/5)".
func lastTry(line []byte) bool {
	m := ofTries.FindSubmatch(line)
	return m != nil && string(m[1]) == string(m[2])
}

// isFailure says whether a signature is of something that failed, not of how the job ended or goes on.
func (s *signature) isFailure() bool {
	switch s.Role {
	case roleRoot, roleSuspect, roleWatch, roleCascade, roleProgram:
		return true
	}
	return false
}

// literalIn says whether a line has one of the literals of a signature.
func (s *signature) literalIn(line []byte) bool {
	lower := bytes.ToLower(line)
	return slices.ContainsFunc(s.Find, func(l string) bool { return bytes.Contains(lower, []byte(strings.ToLower(l))) })
}

// zero is a part of a list that ends with a count of 0: "ecc errors 0", "link_downed=0".
var zero = regexp.MustCompile(`((?:[\w-]+ ){0,2}[\w-]+)(\s?[=:]\s?| )0\s*(?:[,;|]|$)`)

// mayCountZero says whether a line has a 0 where a part of a list may end.
func mayCountZero(line []byte) bool {
	for i, c := range line {
		if c == '0' && i > 0 && (line[i-1] == ' ' || line[i-1] == '=' || line[i-1] == ':') && (i+1 == len(line) || bytes.IndexByte([]byte(",;| "), line[i+1]) >= 0) {
			return true
		}
	}
	return false
}

// withoutZeros returns a line without those of its parts that count 0: nothing of what they name has happened. A single part has to say so with a sign; a number behind the
// word of a thing, such as "port 0", says which.
func (k *knowledge) withoutZeros(line []byte) []byte {
	if !mayCountZero(line) {
		return line
	}
	all := zero.FindAllSubmatchIndex(line, -1)
	counts := all[:0]
	for _, m := range all {
		argument := m[0] > 0 && line[m[0]-1] == '('                             // of a call
		argument = argument || bytes.Contains(line[m[2]:m[3]], []byte(" are ")) // a sentence, such as that arguments are required
		if name := line[m[2]:m[3]]; !argument && len(name) > 0 && !isDigit(name[len(name)-1]) && !k.namesOne(line[max(0, m[3]-16):m[3]]) {
			counts = append(counts, m)
		}
	}
	if len(counts) == 0 || len(counts) == 1 && !bytes.ContainsAny(line[counts[0][4]:counts[0][5]], "=:") {
		return line
	}
	var rest []byte
	at := 0
	for _, m := range counts {
		rest, at = append(rest, line[at:m[0]]...), m[1]
	}
	return append(rest, line[at:]...)
}
