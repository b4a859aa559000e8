package hardware

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/muster-sched/muster/agent/agentpb"
)

// Errors of NVML that mean something here.
const (
	nvmlNoPermission  = 4 // for this process, such as in a container that was not given the GPU: no fault of the GPU
	nvmlGPUIsLost     = 15
	nvmlResetRequired = 16
)

// reading is what muster-gpu-nvml prints.
type reading struct {
	Missing string // why the library cannot be opened
	Code    int    // of an error instead of the GPUs
	Error   string
	Driver  string
	GPUs    []rawGPU
}

type rawGPU struct {
	Index           int32
	UUID, Name, PCI string
	Code            int // of an error instead of the rest
	Error           string

	Memory                 *int64
	MemoryUsed             *int64 `json:"memory_used"`
	Busy                   *int32
	MemoryBusy             *int32 `json:"memory_busy"`
	Celsius                *int32
	Milliwatts             *int64
	Corrected, Uncorrected *int64
	RowsPending            *bool `json:"rows_pending"`
	RowsFailed             *bool `json:"rows_failed"`
	MIG                    *bool
	Links                  []struct {
		Link    int32
		Active  bool
		To, PCI string
	}
}

func (r *rawGPU) gpu() *agentpb.GPU {
	g := &agentpb.GPU{
		Index: r.Index, Uuid: r.UUID, Name: r.Name, Pci: address(r.PCI),
		MemoryBytes: r.Memory, MemoryUsedBytes: r.MemoryUsed, BusyPercent: r.Busy, MemoryBusyPercent: r.MemoryBusy,
		Celsius: r.Celsius, Milliwatts: r.Milliwatts, CorrectedErrors: r.Corrected, UncorrectedErrors: r.Uncorrected,
		RowsPending: r.RowsPending, RowsFailed: r.RowsFailed, Mig: r.MIG,
	}
	for _, l := range r.Links {
		g.Links = append(g.Links, &agentpb.NVLink{Link: l.Link, Active: l.Active, To: l.To, Pci: address(l.PCI)})
	}
	return g
}

// address is a PCI address as the kernel writes it, such as 0000:5e:00.0, from one that NVML or the
// driver's messages have: 00000000:5E:00.0, 0000:5e:00.
func address(s string) string {
	s = strings.ToLower(s)
	if domain, rest, ok := strings.Cut(s, ":"); ok && len(domain) == 8 && strings.HasPrefix(domain, "0000") {
		s = domain[4:] + ":" + rest
	}
	if s != "" && !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// Why the driver was not asked, or did not answer.
var (
	errNoProgram = errors.New("no program")
	errProgram   = errors.New("muster-gpu-nvml") // it failed by itself, such as for a library that its image lacks
	errNoLibrary = errors.New("no library")
	errHangs     = errors.New("the driver does not answer")
)

// maxOutput bounds what is read of the program: 64 GPUs with 18 links each print a tenth of it.
const maxOutput = 4 << 20

// program runs muster-gpu-nvml.
type program struct {
	path, library string
	environment   []string
	timeout       time.Duration

	// ended is the end of a run that was given up. A process that waits in the driver may outlive kill -9; until it has
	// ended, no other one is started, so that there is one at most.
	ended <-chan error
	since time.Time
}

// bounded is a buffer that refuses what is too much.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxOutput {
		return 0, fmt.Errorf("more than %d bytes", maxOutput)
	}
	return b.Buffer.Write(p)
}

// read asks the driver once. It returns within the timeout and a second.
func (p *program) read(ctx context.Context) (reading, error) {
	var r reading
	if p.ended != nil {
		select {
		case <-p.ended:
			p.ended = nil
		default:
			return r, fmt.Errorf("%w: it has held the program that asks it since %s", errHangs, p.since.UTC().Format(time.RFC3339))
		}
	}
	var args []string
	if p.library != "" {
		args = []string{p.library}
	}
	c := exec.Command(p.path, args...)
	c.Env = append(os.Environ(), p.environment...)
	var out, problem bounded
	c.Stdout, c.Stderr = &out, &problem
	began := time.Now()
	if err := c.Start(); err != nil {
		return r, fmt.Errorf("%w to ask the driver: %v; make gpu builds it", errNoProgram, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	select {
	case err := <-ended:
		if err != nil {
			first, _, _ := strings.Cut(problem.String(), "\n")
			return r, fmt.Errorf("%w: %v %s", errProgram, err, first)
		}
	case <-ctx.Done():
		c.Process.Kill()
		select {
		case <-ended:
		case <-time.After(time.Second):
			p.ended, p.since = ended, began
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return r, ctx.Err()
		}
		return r, fmt.Errorf("%w: NVML did not within %v", errHangs, p.timeout)
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return r, fmt.Errorf("%w: %v", errProgram, err)
	}
	if r.Missing != "" {
		return r, fmt.Errorf("%w: %s", errNoLibrary, r.Missing)
	}
	return r, nil
}
