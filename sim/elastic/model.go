package elastic

import "math"

// observation is a step that a job made.
type observation struct {
	nodes, gpus, batch int // batch of each GPU
	compute, step      float64
}

// params are those of the model of a step's time (Pollux, OSDI 2021, §3.2): computing takes alphaC + betaC * batch; exchanging gradients alphaN +
// betaN * (GPUs - 2) between nodes, and alphaR + betaR * (GPUs - 2) within one; both together (compute^gamma + exchange^gamma)^(1/gamma).
type params struct{ alphaC, betaC, alphaN, betaN, alphaR, betaR, gamma float64 }

// tiny is the least value of a parameter, and what a term counts that is not there.
const tiny = 1e-8

func (p *params) exchange(nodes, gpus int) float64 {
	alpha, beta := tiny, tiny
	switch {
	case nodes > 1:
		alpha, beta = p.alphaN, p.betaN
	case gpus > 1:
		alpha, beta = p.alphaR, p.betaR
	}
	return alpha + beta*max(float64(gpus-2), tiny)
}

// together is how long computing and exchanging take that overlap.
func (p *params) together(compute, exchange float64) float64 {
	a, b := max(compute, exchange), min(compute, exchange)
	return a * math.Pow(1+math.Pow(b/a, p.gamma), 1/p.gamma)
}

// gradients are the square and the variance of a job's gradients, of its smallest batch size.
type gradients struct{ sqr, variance float64 }

// gain is how many steps of the smallest batch size a step is worth with one that is scale times as large.
func (g gradients) gain(scale float64) float64 {
	d := g.variance/scale + g.sqr
	if d <= 0 {
		return 1
	}
	return (g.variance + g.sqr) / d
}

// limits bound the batch sizes: init and most of all GPUs, low and high of each.
type limits struct{ init, most, low, high float64 }

// tuned is the best way to split a batch: steps of batch on each GPU, of which steps-1 exchange no gradients.
type tuned struct {
	goodput      float64 // samples a second of the smallest batch size that would get as far
	batch, steps int
}

// samples is how many batch sizes are tried.
const samples = 50

// tune returns the batch size with the highest goodput on so many GPUs (Pollux §3.2). One GPU accumulates at least two steps of a batch that is
// larger than the smallest, as gradients' variance is measured between steps.
func (p *params) tune(g gradients, nodes, gpus int, l limits) (best tuned) {
	from := max(l.init, l.low*float64(gpus))
	ratio := math.Pow(l.most/from, 1.0/(samples-1))
	exchange := p.exchange(nodes, gpus)
	best.goodput = -1
	for i, total := 0, from; i < samples; i, total = i+1, total*ratio {
		batch, steps := split(total, gpus, l.init, l.high)
		t := tuned{0, batch, steps}
		if b := float64(batch); b >= l.low && b <= l.high {
			compute := p.alphaC + p.betaC*b
			all := float64(gpus * batch * steps)
			seconds := float64(steps-1)*compute + p.together(compute, exchange)
			t.goodput = l.init * g.gain(all/l.init) / seconds
		}
		if t.goodput > best.goodput {
			best = t
		}
	}
	return best
}

// split divides a batch among GPUs, and into steps if high is less than a GPU's part.
func split(total float64, gpus int, init, high float64) (batch, steps int) {
	const eps = 1e-8
	local := total / float64(gpus)
	steps = max(1, int(math.Ceil(local/high-eps)))
	if gpus == 1 && local > init+eps {
		steps = max(steps, 2)
	}
	return int(math.Ceil(local/float64(steps) - eps)), steps
}
