package report

import (
	"io"

	"github.com/muster-sched/muster/workload"
)

// tracePage is what the script shows of a workload: the JSON in the page.
type tracePage struct {
	Trace struct {
		Name    string            `json:"name"`
		Summary *workload.Summary `json:"summary"`
	} `json:"trace"`
}

// TraceHTML writes a self-contained page about a workload.
func TraceHTML(w io.Writer, name string, s *workload.Summary) error {
	var p tracePage
	p.Trace.Name, p.Trace.Summary = name, s
	return write(w, name, p)
}
