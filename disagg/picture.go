package disagg

import (
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/muster-sched/muster/disagg/plan"
)

// colors of the GPUs, which readers with any kind of color vision tell apart (Okabe and Ito).
var colors = []string{"#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999"}

const (
	pictureWidth, laneHeight, laneGap = 1200.0, 46.0, 34.0
	left, top                         = 110.0, 74.0
)

// Picture writes a plan as SVG: one lone run of each kernel over time, a lane for each GPU, and a
// line for each edge between GPUs. Replicas have no such picture: then all kernels are on the
// first GPU that serves.
func Picture(w io.Writer, p *plan.Problem, b *plan.Plan) error {
	at := b.At
	if at == nil {
		at = make([]int, len(p.Kernels))
		for k := range at {
			at[k] = b.Serving[0]
		}
	}
	start, end := schedule(p, at)
	last := 1e-12
	for _, t := range end {
		last = max(last, t)
	}
	x := func(t float64) float64 { return left + t/last*(pictureWidth-left-20) }
	y := func(g int) float64 { return top + float64(g)*(laneHeight+laneGap) }
	height := y(len(p.GPUs)) + 24
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" viewBox="0 0 %[1]g %[2]g" font-family="sans-serif" font-size="13">`+"\n", pictureWidth, height)
	fmt.Fprintf(&s, `<rect width="100%%" height="100%%" fill="white"/><text x="%g" y="28" font-size="17">%s: %.3f ms a request, bound %.3f ms</text>`+"\n", left, html.EscapeString(string(b.Shape)), 1e3*b.Seconds, 1e3*b.Bound)
	fmt.Fprintf(&s, `<text x="%g" y="50" fill="#555">One run of each kernel in order, %.3f ms; lines are transfers between GPUs</text>`+"\n", left, 1e3*last)
	for g, gpu := range p.GPUs {
		fmt.Fprintf(&s, `<text x="12" y="%g">%s</text><rect x="%g" y="%g" width="%g" height="%g" fill="#f2f2f2"/>`+"\n", y(g)+laneHeight/2+4, html.EscapeString(gpu.Name), left, y(g), pictureWidth-left-20, laneHeight)
	}
	for k, g := range at {
		name := html.EscapeString(p.Kernels[k].Name)
		fmt.Fprintf(&s, `<rect x="%.2f" y="%g" width="%.2f" height="%g" fill="%s"><title>%s on %s, %.1f us</title></rect>`+"\n", x(start[k]), y(g), max(0.3, x(end[k])-x(start[k])), laneHeight, colors[g%len(colors)], name, html.EscapeString(p.GPUs[g].Name), 1e6*p.Kernels[k].Seconds[g])
	}
	for _, e := range p.Edges {
		u, v := at[e.From], at[e.To]
		if u == v || e.Next {
			continue
		}
		from, to := y(u)+laneHeight, y(v)
		if u > v {
			from, to = y(u), y(v)+laneHeight
		}
		fmt.Fprintf(&s, `<line x1="%.2f" y1="%g" x2="%.2f" y2="%g" stroke="#444" stroke-width="0.7" stroke-opacity="0.6"/>`+"\n", x(end[e.From]), from, x(start[e.To]), to)
	}
	for i := range 6 {
		t := last * float64(i) / 5
		fmt.Fprintf(&s, `<text x="%.1f" y="%g" text-anchor="middle" fill="#555">%.2f ms</text>`+"\n", min(x(t), pictureWidth-34), height-10, 1e3*t)
	}
	s.WriteString("</svg>\n")
	_, err := io.WriteString(w, s.String())
	return err
}

// schedule returns when each kernel starts and ends: in order, after the kernel before it, as the
// latency objective counts, and after the transfers that it waits for.
func schedule(p *plan.Problem, at []int) (start, end []float64) {
	wait := make([]float64, len(at)) // seconds of transfers into a kernel
	for _, e := range p.Edges {
		if u, v := at[e.From], at[e.To]; u != v && !e.Next {
			wait[e.To] += p.Links[u][v].Latency + e.Bytes/p.Links[u][v].BytesPerSecond
		}
	}
	now := 0.0
	for k, g := range at {
		start = append(start, now+wait[k])
		now = start[k] + p.Kernels[k].Seconds[g]
		end = append(end, now)
	}
	return start, end
}
