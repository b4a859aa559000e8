package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Process is a scheduler in a process of its own.
type Process struct {
	command *exec.Cmd
	address string // of its metrics
	said    last   // on the standard error
	ended   chan struct{}
	err     error
}

// last is the last line that was written to it.
type last struct{ line []byte }

func (l *last) Write(p []byte) (int, error) {
	if lines := bytes.Split(bytes.TrimSpace(p), []byte("\n")); len(lines[len(lines)-1]) > 0 {
		l.line = bytes.Clone(lines[len(lines)-1])
	}
	return len(p), nil
}

// StartScheduler starts program, which is muster, as the scheduler of the cluster with a
// kubeconfig and with further flags. It is killed when ctx ends.
func StartScheduler(ctx context.Context, program, kubeconfig string, flags ...string) (*Process, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		return nil, err
	}
	p := &Process{address: l.Addr().String(), ended: make(chan struct{})}
	if err := l.Close(); err != nil {
		return nil, err
	}
	args := append([]string{"scheduler", "--kubeconfig", kubeconfig, "--metrics-address", p.address}, flags...)
	p.command = exec.CommandContext(ctx, program, args...)
	p.command.Stderr = &p.said
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		p.err = p.command.Wait()
	}()
	return p, nil
}

// Usage is what a process uses of the machine.
type Usage struct {
	// CPU is the processor time since it began, in seconds.
	CPU float64
	// Live is what of its heap the last garbage collection found in use, Resident all memory
	// that it has, in bytes.
	Live, Resident float64
	Goroutines     int
}

// Usage asks the scheduler's metrics. The error says if it has ended.
func (p *Process) Usage(ctx context.Context) (u Usage, err error) {
	select {
	case <-p.ended:
		return u, fmt.Errorf("the scheduler ended (%w): %s", cmp.Or(p.err, errors.New("exit status 0")), p.said.line)
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/metrics", nil)
	if err != nil {
		return u, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return u, err
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return u, err
	}
	read := func(name string) float64 {
		f := families[name]
		if f == nil || len(f.Metric) != 1 {
			err = errors.Join(err, fmt.Errorf("the scheduler has no metric %s", name))
			return 0
		}
		if c := f.Metric[0].GetCounter(); c != nil {
			return c.GetValue()
		}
		return f.Metric[0].GetGauge().GetValue()
	}
	u = Usage{
		CPU: read("process_cpu_seconds_total"), Live: read("go_gc_heap_live_bytes"), Resident: read("process_resident_memory_bytes"),
		Goroutines: int(read("go_goroutines")),
	}
	return u, err
}
