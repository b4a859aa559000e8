package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
)

// decisions reads decisions.jsonl.gz.
type decisions struct {
	file
	hash hash.Hash
	last decision
}

// decision is a line. It is valid until the next one is parsed.
type decision struct {
	t                                  int64
	op, job, pod, node, reason, forJob []byte
	gpus                               []int
	milli, cpu, mem                    int64
	told                               int64 // when an eviction was decided, t where the line does not say
	killed                             bool  // the pod was, as it did not shut down in time
}

func openDecisions(path string) (*decisions, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	return &decisions{file: f, hash: sha256.New()}, nil
}

// each calls take for every line, without its end.
func (d *decisions) each(take func(line []byte) error) error {
	in := bufio.NewReaderSize(io.TeeReader(d.in, d.hash), 1<<20)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return badFile(d.path, err)
		}
		if len(line) == 0 {
			return nil
		}
		if err := take(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			return err
		}
	}
}

// sum returns the SHA-256 of all lines, in hexadecimal.
func (d *decisions) sum() string { return hex.EncodeToString(d.hash.Sum(nil)) }

// parse parses a line: fast when it is spelt as Muster does, or as any JSON.
func (d *decisions) parse(line []byte) (*decision, error) {
	if d.last.scan(line) {
		return &d.last, nil
	}
	err := d.last.unmarshal(line)
	return &d.last, err
}

// scan parses a line with the keys in the order of the format, no spaces, no
// escapes. It reports whether the line is like that.
func (d *decision) scan(line []byte) bool {
	s := scanner{rest: line, ok: true}
	s.skip(`{"t":`)
	d.t = s.seconds()
	s.skip(`,"op":"`)
	d.op = s.text()
	s.skip(`,"job":"`)
	d.job = s.text()
	s.skip(`,"pod":"`)
	d.pod = s.text()
	s.skip(`,"node":"`)
	d.node = s.text()
	s.skip(`,"gpus":[`)
	d.gpus = s.list(d.gpus[:0])
	s.skip(`,"milli":`)
	d.milli = s.int()
	s.skip(`,"cpu_milli":`)
	d.cpu = s.int()
	s.skip(`,"mem_mib":`)
	d.mem = s.int()
	s.skip(`,"reason":"`)
	d.reason = s.text()
	d.forJob = nil
	if s.ok && bytes.HasPrefix(s.rest, []byte(`,"for"`)) {
		s.skip(`,"for":"`)
		d.forJob = s.text()
	}
	d.told = d.t
	if s.ok && bytes.HasPrefix(s.rest, []byte(`,"told"`)) {
		s.skip(`,"told":`)
		d.told = s.seconds()
	}
	if d.killed = s.ok && len(s.rest) > 1; d.killed {
		s.skip(`,"killed":true`)
	}
	s.skip(`}`)
	return s.ok && len(s.rest) == 0
}

// scanner cuts pieces off rest as long as they are as expected.
type scanner struct {
	rest []byte
	ok   bool
}

func (s *scanner) skip(text string) {
	if s.ok = s.ok && len(s.rest) >= len(text) && string(s.rest[:len(text)]) == text; s.ok {
		s.rest = s.rest[len(text):]
	}
}

func (s *scanner) seconds() int64 {
	t, rest, ok := cutSeconds(s.rest)
	s.ok = s.ok && ok
	s.rest = rest
	return t
}

// int cuts a number off that is not negative.
func (s *scanner) int() int64 {
	i, v := 0, int64(0)
	for ; i < len(s.rest) && '0' <= s.rest[i] && s.rest[i] <= '9'; i++ {
		v = v*10 + int64(s.rest[i]-'0')
	}
	s.ok = s.ok && 0 < i && i < 19
	s.rest = s.rest[i:]
	return v
}

// text cuts off the rest of a string and its closing quote.
func (s *scanner) text() []byte {
	i := bytes.IndexByte(s.rest, '"')
	if i < 0 || bytes.IndexByte(s.rest[:i], '\\') >= 0 {
		s.ok = false
		return nil
	}
	text := s.rest[:i]
	s.rest = s.rest[i+1:]
	return text
}

// list cuts off numbers up to the closing bracket.
func (s *scanner) list(into []int) []int {
	for s.ok && len(s.rest) > 0 && s.rest[0] != ']' {
		if len(into) > 0 {
			s.skip(",")
		}
		into = append(into, int(s.int()))
	}
	s.skip("]")
	return into
}

func (d *decision) unmarshal(line []byte) error {
	var v struct {
		T                               *float64
		Op, Job, Pod, Node, Reason, For string
		GPUs                            []int
		Milli                           int64
		CPU                             int64 `json:"cpu_milli"`
		Mem                             int64 `json:"mem_mib"`
		Told                            *float64
		Killed                          bool
	}
	if err := json.Unmarshal(line, &v); err != nil {
		return err
	}
	if v.T == nil || *v.T < 0 || v.Milli < 0 || v.CPU < 0 || v.Mem < 0 {
		return fmt.Errorf("t, milli, cpu_milli or mem_mib is missing or negative: %s", line)
	}
	if v.Told == nil {
		v.Told = v.T
	}
	*d = decision{
		t: int64(math.Round(*v.T * 1e9)), told: int64(math.Round(*v.Told * 1e9)), op: []byte(v.Op), job: []byte(v.Job), pod: []byte(v.Pod),
		node: []byte(v.Node), reason: []byte(v.Reason), forJob: []byte(v.For),
		killed: v.Killed, gpus: v.GPUs, milli: v.Milli, cpu: v.CPU, mem: v.Mem,
	}
	return nil
}
