package analyze

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/api/strict"
	"github.com/muster-sched/muster/workload"
)

// Trace is what one or more iterations of a model did on a GPU, in order. docs/disagg.md describes
// the fields.
type Trace struct {
	Source  string       `json:"source,omitempty"` // where it is from
	Buffers []Allocation `json:"buffers"`
	Graphs  []Captured   `json:"graphs,omitempty"`
	Nodes   []Call       `json:"nodes"`
}

// Allocation is a buffer: of the allocator of the framework if it has its own, as it knows the
// tensors. Values are the first of its content, of a type such as u32; the others are then 0. Without,
// the content is not known.
type Allocation struct {
	Name    string    `json:"name"`
	Address Value     `json:"address"`
	Bytes   int64     `json:"bytes" min:"1" max:"1099511627776"`
	Type    string    `json:"type,omitempty"`
	Values  []float64 `json:"values,omitempty"`
}

// Captured is a captured graph, and how often it runs for one request.
type Captured struct {
	Name string  `json:"name"`
	Runs float64 `json:"runs" min:"0"`
}

// Call is one node: a kernel, a copy, a fill, a call of a library, or a change of the allocations.
type Call struct {
	Graph     string             `json:"graph,omitempty"`
	Iteration int                `json:"iteration,omitempty" min:"0"`
	Name      string             `json:"name,omitempty"`
	Kind      string             `json:"kind,omitempty"` // for the planner, such as attention
	Micros    map[string]float64 `json:"us,omitempty"`   // measured, by GPU

	Kernel   string           `json:"kernel,omitempty"`
	Grid     []int            `json:"grid,omitempty" min:"1"`
	Block    []int            `json:"block,omitempty" min:"1"`
	Shared   int              `json:"shared,omitempty" min:"0"`
	Args     []Value          `json:"args,omitempty"`
	Accesses []Access         `json:"accesses,omitempty"` // known
	Recorded *Recorded        `json:"recorded,omitempty"` // by an instrumented kernel
	Copy     *Copy            `json:"copy,omitempty"`
	Fill     *Copy            `json:"fill,omitempty"` // only To and Bytes
	Library  string           `json:"library,omitempty"`
	Values   map[string]Value `json:"values,omitempty"` // arguments of the library, by their names
	Allocate *Allocation      `json:"allocate,omitempty"`
	Free     string           `json:"free,omitempty"`
}

// Access is bytes that a kernel was seen to access.
type Access struct {
	At    Value `json:"at"`
	Bytes int64 `json:"bytes" min:"1"`
	Read  bool  `json:"read,omitempty"`
	Write bool  `json:"write,omitempty"`
	All   bool  `json:"all,omitempty"` // it wrote each byte; otherwise some of them may be as before
}

// Copy is bytes that are copied. From without a buffer is memory of the host.
type Copy struct {
	From  Value `json:"from,omitempty"`
	To    Value `json:"to,omitempty"`
	Bytes int64 `json:"bytes" min:"1"`
}

// Value is a number, an address, or a buffer with an offset such as x+16.
type Value string

// UnmarshalText reads any text.
func (v *Value) UnmarshalText(b []byte) error {
	*v = Value(b)
	return nil
}

// ReadTrace reads a trace. What is wrong with the file is a *workload.Error.
func ReadTrace(file string) (*Trace, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, &workload.Error{File: file, Want: fmt.Sprintf("a file that can be read; found: %v", err)}
	}
	t := &Trace{}
	if _, err := strict.Decode(file, data, t); err != nil {
		return nil, err
	}
	if len(t.Nodes) == 0 {
		return nil, &workload.Error{File: file, Field: "nodes", Want: "at least one node; found 0"}
	}
	return t, nil
}

// address resolves a value to an address among the live buffers.
func (a *analysis) address(v Value) (uint64, error) {
	text := strings.TrimSpace(string(v))
	if n, err := strconv.ParseUint(text, 0, 64); err == nil {
		return n, nil
	}
	name, offset, _ := strings.Cut(text, "+")
	n := uint64(0)
	if offset != "" {
		var err error
		if n, err = strconv.ParseUint(strings.TrimSpace(offset), 0, 64); err != nil {
			return 0, fmt.Errorf("a buffer and an offset such as x+16; found %q", text)
		}
	}
	for _, b := range a.live {
		if b.Name == strings.TrimSpace(name) {
			return b.from + n, nil
		}
	}
	return 0, fmt.Errorf("a number, or a buffer with an offset or without; found %q", text)
}

// within checks that bytes lie in one live buffer.
func (a *analysis) within(at uint64, bytes int64) (Range, error) {
	for _, b := range a.live {
		if at >= b.from && at < b.to {
			if uint64(bytes) <= b.to-at {
				return Range{at, at + uint64(bytes)}, nil
			}
			return Range{}, fmt.Errorf("at most the %d bytes that are left of buffer %s; found %d", b.to-at, b.Name, bytes)
		}
	}
	return Range{}, fmt.Errorf("an address in a buffer; found %#x", at)
}
