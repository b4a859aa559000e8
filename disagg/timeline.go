package disagg

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"github.com/muster-sched/muster/disagg/pipeline"
)

// mostDrawn is how many runs of kernels a timeline shows.
const mostDrawn = 600

// Timeline writes a recorded run as SVG: for each GPU a lane with its kernels and one with what it
// receives, colored by request. It shows some hundred kernels from the middle of the run.
func Timeline(w io.Writer, policy SimPolicy, spec *pipeline.Spec, r *pipeline.Result) error {
	kernels := slices.Clone(r.Record.Kernels)
	slices.SortStableFunc(kernels, func(a, b pipeline.KernelRun) int { return int(a.Start - b.Start) })
	shown := kernels
	if first := (len(kernels) - mostDrawn) / 2; first > 0 {
		shown = kernels[first : first+mostDrawn]
	}
	from, to := shown[0].Start, max(shown[len(shown)-1].Start, shown[0].Start+1)
	if len(shown) == len(kernels) {
		to = max(r.End, from+1)
	}
	x := func(t pipeline.Time) float64 {
		return left + float64(min(max(t, from), to)-from)/float64(to-from)*(pictureWidth-left-20)
	}
	const receive = 16.0
	y := func(g int) float64 { return top + float64(g)*(laneHeight+receive+laneGap) }
	height := y(len(spec.Problem.GPUs)) + 24
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" viewBox="0 0 %[1]g %[2]g" font-family="sans-serif" font-size="13">`+"\n", pictureWidth, height)
	fmt.Fprintf(&s, `<rect width="100%%" height="100%%" fill="white"/><text x="%g" y="28" font-size="17">%s: %.3f ms from %.3f ms on</text>`+"\n", left, html.EscapeString(string(policy)), millis(to-from), millis(from))
	fmt.Fprintf(&s, `<text x="%g" y="50" fill="#555">Colors are requests; below each GPU what it receives; white is idle</text>`+"\n", left)
	for g, gpu := range spec.Problem.GPUs {
		fmt.Fprintf(&s, `<text x="12" y="%g">%s</text><text x="12" y="%g" fill="#555" font-size="11">receives</text>`+"\n", y(g)+laneHeight/2+4, html.EscapeString(gpu.Name), y(g)+laneHeight+receive-3)
		fmt.Fprintf(&s, `<rect x="%g" y="%g" width="%g" height="%g" fill="none" stroke="#bbb"/>`+"\n", left, y(g), pictureWidth-left-20, laneHeight)
	}
	row := rows(kernels, len(spec.Problem.GPUs), spec.Concurrent)
	for i, k := range kernels {
		if k.End <= from || k.Start >= to {
			continue
		}
		h := laneHeight / float64(spec.Concurrent)
		name := html.EscapeString(spec.Problem.Kernels[k.Kernel].Name)
		fmt.Fprintf(&s, `<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="%s"><title>request %d, iteration %d: %s, %.1f us</title></rect>`+"\n", x(k.Start), y(k.GPU)+h*float64(row[i]), max(0.3, x(k.End)-x(k.Start)), h, colors[k.Request%len(colors)], k.Request, k.Iteration, name, float64(k.End-k.Start)/1e3)
	}
	for _, t := range r.Record.Transfers {
		if t.End <= from || t.Start >= to {
			continue
		}
		fmt.Fprintf(&s, `<rect x="%.2f" y="%g" width="%.2f" height="%g" fill="%s" fill-opacity="0.75"><title>request %d: from %s, %.1f us</title></rect>`+"\n", x(t.Start), y(t.To)+laneHeight+2, max(0.3, x(t.End)-x(t.Start)), receive-4, colors[t.Request%len(colors)], t.Request, html.EscapeString(spec.Problem.GPUs[t.From].Name), float64(t.End-t.Start)/1e3)
	}
	for i := range 6 {
		t := from + (to-from)*pipeline.Time(i)/5
		fmt.Fprintf(&s, `<text x="%.1f" y="%g" text-anchor="middle" fill="#555">%.2f ms</text>`+"\n", min(x(t), pictureWidth-50), height-10, millis(t))
	}
	s.WriteString("</svg>\n")
	_, err := io.WriteString(w, s.String())
	return err
}

// rows puts kernels that run together on a GPU into rows of its lane.
func rows(kernels []pipeline.KernelRun, gpus, most int) []int {
	free := make([][]pipeline.Time, gpus) // of each row, when its last kernel ends
	for g := range free {
		free[g] = make([]pipeline.Time, most)
	}
	row := make([]int, len(kernels))
	for i, k := range kernels {
		for n, t := range free[k.GPU] {
			if t <= k.Start {
				row[i], free[k.GPU][n] = n, k.End
				break
			}
		}
	}
	return row
}
