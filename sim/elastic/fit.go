package elastic

import "math"

// fit returns the parameters whose times are nearest to the observations, by the root mean square of the differences of logarithms, and a small
// penalty for what is less plausible (Pollux §4.1, and the authors' code). A parameter that nothing tells about is optimistic. start, if it is not nil, is
// where the search begins.
func fit(seen []observation, start *params) params {
	f := newFitting(seen)
	x := []float64{math.Log(0.1), math.Log(0.01), math.Log(0.1), math.Log(0.01), math.Log(0.1), math.Log(0.01), math.Log(0.05)}
	if start != nil {
		x = []float64{math.Log(start.alphaC), math.Log(start.betaC), math.Log(start.alphaN), math.Log(start.betaN), math.Log(start.alphaR), math.Log(start.betaR), math.Log(max(start.gamma-1, 1e-3))}
	}
	f.search(x)
	p := f.params(x)
	if !f.between {
		p.alphaN, p.betaN = max(p.alphaN, 1.1*p.alphaR), max(p.betaN, 1.1*p.betaR)
	}
	return p
}

// fitting is the search for parameters. They are searched as their logarithms, gamma as that of gamma - 1.
type fitting struct {
	seen []observation
	// between and within say that there are steps between nodes, and of several GPUs within one.
	between, within bool
	free            [7]bool
	fixed           params // of those that are not free
	logs            [][2]float64
}

func newFitting(seen []observation) *fitting {
	f := &fitting{seen: seen, fixed: params{alphaN: tiny, betaN: tiny, alphaR: tiny, betaR: tiny}}
	one, many, mean := true, false, 0.0
	for _, o := range seen {
		one = one && o.batch == seen[0].batch
		f.between = f.between || o.nodes > 1
		f.within = f.within || o.nodes == 1 && o.gpus > 1
		many = many || o.gpus > 2
		mean += o.compute / float64(len(seen))
		f.logs = append(f.logs, [2]float64{math.Log(o.compute), math.Log(o.step)})
	}
	// With one batch size alone, half of the time is taken not to depend on it.
	f.fixed.alphaC = mean / 2
	f.free = [7]bool{!one, true, f.between, f.between && many, f.within, f.within && many, true}
	return f
}

func (f *fitting) params(x []float64) params {
	p := f.fixed
	for i, to := range []*float64{&p.alphaC, &p.betaC, &p.alphaN, &p.betaN, &p.alphaR, &p.betaR} {
		if f.free[i] {
			*to = max(tiny, math.Exp(x[i]))
		}
	}
	p.gamma = min(10, 1+math.Exp(x[6]))
	return p
}

// loss is what is minimized.
func (f *fitting) loss(x []float64) float64 {
	p := f.params(x)
	var compute, step float64
	for i := range f.seen {
		o := &f.seen[i]
		c := p.alphaC + p.betaC*float64(o.batch)
		d, e := math.Log(c)-f.logs[i][0], math.Log(p.together(c, p.exchange(o.nodes, o.gpus)))-f.logs[i][1]
		compute, step = compute+d*d, step+e*e
	}
	n, square := float64(len(f.seen)), func(x float64) float64 { return x * x }
	return math.Sqrt(compute/n+1e-12) + math.Sqrt(step/n+1e-12) + 1e-3*square(p.gamma-1) + 1e-2*(square(p.betaN/p.alphaN)+square(p.betaR/p.alphaR))
}

// Limits of the search.
const (
	fitIterations = 100
	fitEnough     = 1e-6 // an iteration that gains less is the last
	fitStep       = 1e-5 // of the differences that are taken for derivatives
	farthest      = 25.0 // of a logarithm from 0
)

// search lowers the loss from x on, by the method of Broyden, Fletcher, Goldfarb and Shanno with a search along the line that halves its step.
func (f *fitting) search(x []float64) {
	var free []int
	for i, ok := range f.free {
		if ok {
			free = append(free, i)
		}
	}
	n := len(free)
	h := make([][]float64, n) // the inverse of the second derivatives, as far as it is known
	for i := range h {
		h[i] = make([]float64, n)
	}
	reset := func() {
		for i := range h {
			clear(h[i])
			h[i][i] = 1
		}
	}
	reset()
	now, g := f.loss(x), f.slope(x, free)
	fresh := true // h is that of a reset
	for range fitIterations {
		d, down := make([]float64, n), 0.0
		for i := range d {
			for k := range g {
				d[i] -= h[i][k] * g[k]
			}
			down += d[i] * g[i]
		}
		was := now
		if down >= 0 || !f.line(x, free, d, &now) || was-now < fitEnough {
			if fresh {
				return
			}
			reset()
			fresh, g = true, f.slope(x, free)
			continue
		}
		fresh = false
		next := f.slope(x, free)
		update(h, d, g, next)
		g = next
	}
}

// line moves x along d, by d at most, so far that the loss falls, and reports whether it does. d becomes the way.
func (f *fitting) line(x []float64, free []int, d []float64, now *float64) bool {
	longest := 0.0
	for _, v := range d {
		longest = max(longest, math.Abs(v))
	}
	to := append([]float64(nil), x...)
	for step := min(1, 2/max(longest, 1e-12)); step > 1e-6; step /= 2 {
		for k, i := range free {
			to[i] = min(max(x[i]+step*d[k], -farthest), farthest)
		}
		if v := f.loss(to); v < *now {
			for k, i := range free {
				d[k] = to[i] - x[i]
			}
			copy(x, to)
			*now = v
			return true
		}
	}
	return false
}

// slope returns the derivatives of the loss.
func (f *fitting) slope(x []float64, free []int) []float64 {
	g := make([]float64, len(free))
	for k, i := range free {
		at := x[i]
		x[i] = at + fitStep
		up := f.loss(x)
		x[i] = at - fitStep
		g[k] = (up - f.loss(x)) / (2 * fitStep)
		x[i] = at
	}
	return g
}

// update corrects the inverse of the second derivatives after a step s along which the derivatives changed from g to next.
func update(h [][]float64, s, g, next []float64) {
	n := len(s)
	y, hy := make([]float64, n), make([]float64, n)
	var sy, yhy float64
	for i := range y {
		y[i] = next[i] - g[i]
		sy += s[i] * y[i]
	}
	if sy < 1e-12 {
		return
	}
	for i := range hy {
		for k := range y {
			hy[i] += h[i][k] * y[k]
		}
		yhy += y[i] * hy[i]
	}
	for i := range h {
		for k := range h {
			h[i][k] += (1+yhy/sy)*s[i]*s[k]/sy - (hy[i]*s[k]+s[i]*hy[k])/sy
		}
	}
}
