// Package roofline generates profiles of kernels from the public configurations of models and the
// published figures of GPUs, by a roofline: no kernel was measured.
package roofline

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/muster-sched/muster/disagg"
)

// Spec is a GPU as Table I of Tessera (arXiv:2604.10180) lists it.
type Spec struct {
	Name           string
	Vector, Tensor float64 // FLOP/s in FP32 on CUDA cores, in BF16 on tensor cores
	BytesPerSecond float64
	Memory         int64
	Price          float64 // of a GPU, an L40S is 1
}

// Specs are the GPUs of that table, in its order.
var Specs = []Spec{
	{"A100", 19.5e12, 312e12, 1935e9, 80e9, 1.5},
	{"H100", 67e12, 989e12, 3350e9, 80e9, 2.9},
	{"B200", 80e12, 2500e12, 8000e9, 192e9, 5.0},
	{"L40S", 91.6e12, 366.5e12, 864e9, 48e9, 1.0},
	{"RTX6000", 120e12, 500e12, 1597e9, 96e9, 1.2},
}

// The share of the peaks that kernels reach, and the time of an empty kernel. They are usual
// figures, the same for all GPUs, from a study that had the paper's Table III beside it; none was changed to meet it here.
const (
	tensorShare, vectorShare, bandwidthShare = 0.65, 0.5, 0.8
	launchMicros                             = 2
)

// The requests of the paper's offline runs (§V-A: the medians of Splitwise's conversations), in
// batches of our choice: the paper does not give its own.
const (
	promptTokens, outputTokens = 1020, 129
	context                    = promptTokens + outputTokens/2
)

// Batch is how many prompts and how many sequences run together.
type Batch struct{ Prompts, Sequences int }

// Offline is the batch of requests that do not hurry.
var Offline = Batch{Prompts: 4, Sequences: 128}

// Micros is the time of a kernel by the roofline, in microseconds: of operations on floats outside
// and inside tensor cores, which overlap, and of the bytes that it moves.
func (s *Spec) Micros(vector, tensor, bytes float64) float64 {
	return launchMicros + 1e6*max(vector/(s.Vector*vectorShare), tensor/(s.Tensor*tensorShare), bytes/(bandwidthShare*s.BytesPerSecond))
}

// Model is a model whose profile can be generated.
type Model struct {
	Name   string
	Source string // of the configuration
	make   func(*builder)
}

// All are the models of §V-A.
var All = []Model{
	{"llama-3-8b", "meta-llama/Meta-Llama-3-8B config.json", func(b *builder) { b.serve(llama, 0) }},
	{"gpt-oss-20b", "openai/gpt-oss-20b config.json", func(b *builder) { b.serve(gptOSS, 0) }},
	{"mamba-codestral-7b", "mistralai/Mamba-Codestral-7B-v0.1 config.json", func(b *builder) { b.serve(codestral, 0) }},
	{"qwen2.5-vl-7b", "Qwen/Qwen2.5-VL-7B-Instruct config.json", qwenVL},
	{"sd3.5-medium", "stabilityai/stable-diffusion-3.5-medium transformer/config.json", diffusion},
}

// decoder is a model that generates tokens: a transformer, or of state-space layers if state > 0.
type decoder struct {
	layers, hidden, heads, kvHeads, head, inner, vocab int
	experts, active                                    int     // of a mixture; 0 is none
	expertBytes                                        float64 // of one weight of an expert
	window                                             int     // of every other layer's attention; 0 is none
	state, groups, chunk                               int     // Mamba-2
}

var (
	llama     = decoder{layers: 32, hidden: 4096, heads: 32, kvHeads: 8, head: 128, inner: 14336, vocab: 128256}
	gptOSS    = decoder{layers: 24, hidden: 2880, heads: 64, kvHeads: 8, head: 64, inner: 2880, vocab: 201088, experts: 32, active: 4, expertBytes: 4.25 / 8, window: 128}
	codestral = decoder{layers: 64, hidden: 4096, heads: 128, head: 64, inner: 8192, vocab: 32768, state: 128, groups: 8, chunk: 256}
	qwen      = decoder{layers: 28, hidden: 3584, heads: 28, kvHeads: 4, head: 128, inner: 18944, vocab: 152064}
)

// Find returns the GPU of Specs with a name in any case; nil if there is none.
func Find(name string) *Spec {
	if i := slices.IndexFunc(Specs, func(s Spec) bool { return strings.EqualFold(s.Name, name) }); i >= 0 {
		return &Specs[i]
	}
	return nil
}

// Generate returns the profile of a model on GPUs, in a batch; false if there is no such GPU.
func (m *Model) Generate(gpus []string, batch Batch) (*disagg.Profile, bool) {
	b := &builder{held: map[string]bool{}, batch: batch}
	b.p = &disagg.Profile{Model: m.Name, Source: "roofline of published figures; " + m.Source}
	for _, name := range gpus {
		s := Find(name)
		if s == nil {
			return nil, false
		}
		b.specs = append(b.specs, *s)
		b.p.GPUs = append(b.p.GPUs, disagg.GPU{Name: s.Name, Memory: s.Memory})
	}
	m.make(b)
	return b.p, true
}

// builder appends kernels, each of which reads what the one before it wrote.
type builder struct {
	p           *disagg.Profile
	specs       []Spec
	batch       Batch
	held        map[string]bool // buffers that there are
	phase, last string
	lastBytes   float64
	residual    string // the kernel that wrote the residual stream
}

// op is a kernel: its work, the bytes that it moves, and what it writes and keeps.
type op struct {
	name, kind, alike string
	flops             float64
	tensor            bool
	bytes, out        float64
	buffer            string
	held              float64
}

func (b *builder) add(o op) string {
	k := disagg.Kernel{Name: b.phase + "." + o.name, Phase: b.phase, Kind: o.kind, Alike: b.phase + "." + o.alike}
	for _, s := range b.specs {
		vector, tensor := o.flops, 0.0
		if o.tensor {
			vector, tensor = 0, o.flops
		}
		k.Micros = append(k.Micros, s.Micros(vector, tensor, o.bytes))
	}
	if o.buffer != "" {
		k.Buffers = []string{o.buffer}
		if !b.held[o.buffer] {
			b.held[o.buffer] = true
			b.p.Buffers = append(b.p.Buffers, disagg.Buffer{Name: o.buffer, Bytes: int64(o.held)})
		}
	}
	b.p.Kernels = append(b.p.Kernels, k)
	if b.last != "" {
		b.p.Edges = append(b.p.Edges, disagg.Edge{From: b.last, To: k.Name, Bytes: b.lastBytes})
	}
	b.last, b.lastBytes = k.Name, o.out
	return k.Name
}

// begin starts a phase.
func (b *builder) begin(p disagg.Phase) {
	b.p.Phases = append(b.p.Phases, p)
	b.phase, b.last, b.residual = p.Name, "", ""
}

// matmul is a matrix multiplication of tokens by weights of this size.
func (b *builder) matmul(layer, name, kind string, tokens, in, out int) {
	w := 2 * float64(in) * float64(out)
	t := float64(tokens)
	b.add(op{name: layer + name, alike: name, kind: kind, flops: w * t, tensor: true, bytes: w + 2*t*float64(in+out), out: 2 * t * float64(out), buffer: layer + name, held: w})
}

// elementwise reads and writes numbers of each token, with a few operations on each.
func (b *builder) elementwise(layer, name, kind string, tokens, in, out int) string {
	t := float64(tokens)
	return b.add(op{name: layer + name, alike: name, kind: kind, flops: 8 * t * float64(in), bytes: 2 * t * float64(in+out), out: 2 * t * float64(out)})
}

// norm adds what the last kernel wrote to the residual stream, and normalizes it.
func (b *builder) norm(layer, name, kind string, tokens, hidden int) {
	k := b.elementwise(layer, name, kind, tokens, 2*hidden, 2*hidden)
	b.lastBytes = 2 * float64(tokens) * float64(hidden)
	if b.residual != "" {
		b.p.Edges = append(b.p.Edges, disagg.Edge{From: b.residual, To: k, Bytes: b.lastBytes})
	}
	b.residual = k
}

// serve adds the phases of a decoder; prompts have extra tokens.
func (b *builder) serve(d decoder, extra int) {
	prompt := promptTokens + extra
	prompts, sequences := b.batch.Prompts, b.batch.Sequences
	b.begin(disagg.Phase{Name: "prefill", Runs: 1 / float64(prompts), Per: "context", Tokens: float64(prompts * promptTokens)})
	b.decoder(d, prompts*prompt, prompts, prompt, prompt/2)
	b.begin(disagg.Phase{Name: "decode", Runs: float64(outputTokens) / float64(sequences), Per: "generated", Tokens: float64(sequences)})
	b.decoder(d, sequences, sequences, context+extra, context+extra)
	first := "decode.embed"
	b.p.Edges = append(b.p.Edges, disagg.Edge{From: b.last, To: first, Bytes: 4 * float64(sequences), Next: true})
}

// decoder adds one run: tokens of some sequences, each of which attends to seen tokens on average
// and has a cache of length tokens.
func (b *builder) decoder(d decoder, tokens, sequences, length, seen int) {
	b.add(op{name: "embed", alike: "embed", bytes: 4 * float64(tokens*d.hidden), out: 2 * float64(tokens*d.hidden), buffer: "embed", held: 2 * float64(d.vocab*d.hidden)})
	for l := range d.layers {
		layer := fmt.Sprintf("%d.", l)
		if d.state > 0 {
			b.mamba(d, layer, tokens, sequences)
			continue
		}
		window := length
		span := seen
		if d.window > 0 && l%2 == 0 {
			window, span = min(window, d.window), min(span, d.window)
		}
		b.attention(d, layer, tokens, sequences, window, span)
		b.norm(layer, "norm2", "ffn", tokens, d.hidden)
		b.ffn(d, layer, tokens)
	}
	b.norm("", "norm", "", tokens, d.hidden)
	b.matmul("", "head", "", sequences, d.hidden, d.vocab)
	b.elementwise("", "sample", "", sequences, d.vocab, 2)
}

func (b *builder) attention(d decoder, layer string, tokens, sequences, length, seen int) {
	width, kv := d.heads*d.head, 2*d.kvHeads*d.head
	b.norm(layer, "norm1", "attention", tokens, d.hidden)
	b.matmul(layer, "qkv", "attention", tokens, d.hidden, width+kv)
	b.elementwise(layer, "rope", "attention", tokens, width+kv, width+kv)
	cache := 2 * float64(kv) * float64(length)
	name := b.add(op{name: layer + "attention", alike: "attention", kind: "attention", flops: 4 * float64(tokens) * float64(seen) * float64(width), tensor: true,
		bytes: cache*float64(sequences) + 4*float64(tokens*width), out: 2 * float64(tokens*width), buffer: layer + "cache", held: cache * float64(b.batch.Sequences)})
	if b.phase == "decode" { // the cache of a batch of prompts, in time for the first token
		b.p.Edges = append(b.p.Edges, disagg.Edge{From: "prefill." + layer + "rope", To: name, Bytes: cache * float64(b.batch.Prompts)})
	}
	b.matmul(layer, "o", "attention", tokens, width, d.hidden)
}

func (b *builder) ffn(d decoder, layer string, tokens int) {
	if d.experts == 0 {
		b.matmul(layer, "gateup", "ffn", tokens, d.hidden, 2*d.inner)
		b.elementwise(layer, "act", "ffn", tokens, 2*d.inner, d.inner)
		b.matmul(layer, "down", "ffn", tokens, d.inner, d.hidden)
		return
	}
	b.matmul(layer, "router", "ffn", tokens, d.hidden, d.experts)
	b.elementwise(layer, "dispatch", "ffn", tokens, d.hidden, d.active*d.hidden)
	rows := tokens * d.active
	b.expert(d, layer, "gateup", rows, d.hidden, 2*d.inner)
	b.elementwise(layer, "act", "ffn", rows, 2*d.inner, d.inner)
	b.expert(d, layer, "down", rows, d.inner, d.hidden)
	b.elementwise(layer, "combine", "ffn", tokens, d.active*d.hidden, d.hidden)
}

// expert is a grouped multiplication. It reads the experts that some row is for: as many as when
// each token chooses its experts by chance.
func (b *builder) expert(d decoder, layer, name string, rows, in, out int) {
	tokens := float64(rows / d.active)
	read := float64(d.experts) * (1 - math.Pow(1-float64(d.active)/float64(d.experts), tokens))
	one := d.expertBytes * float64(in) * float64(out)
	b.add(op{name: layer + name, alike: name, kind: "ffn", flops: 2 * float64(rows) * float64(in) * float64(out), tensor: true,
		bytes: read*one + 2*float64(rows)*float64(in+out), out: 2 * float64(rows) * float64(out), buffer: layer + name, held: one * float64(d.experts)})
}

// mamba is a Mamba-2 layer: projection, convolution, scan over the state, gate, projection.
func (b *builder) mamba(d decoder, layer string, tokens, sequences int) {
	conv := d.inner + 2*d.groups*d.state
	b.norm(layer, "norm", "", tokens, d.hidden)
	b.matmul(layer, "in", "", tokens, d.hidden, d.inner+conv+d.heads)
	b.elementwise(layer, "conv", "", tokens, conv, conv)
	state := 2 * float64(d.inner*d.state)
	scan := op{name: layer + "scan", alike: "scan", flops: 6 * float64(tokens) * float64(d.inner*d.state), bytes: 2*state*float64(sequences) + 2*float64(tokens*(conv+d.inner)),
		out: 2 * float64(tokens*d.inner), buffer: layer + "state", held: state * float64(b.batch.Sequences)}
	if tokens > sequences {
		d.chunks(&scan, float64(tokens))
	}
	name := b.add(scan)
	if b.phase == "decode" {
		b.p.Edges = append(b.p.Edges, disagg.Edge{From: "prefill." + layer + "scan", To: name, Bytes: state * float64(b.batch.Prompts)})
	}
	b.elementwise(layer, "gate", "", tokens, 2*d.inner, d.inner)
	b.matmul(layer, "out", "", tokens, d.inner, d.hidden)
}

// chunks makes the scan of a prompt one by chunks, as Mamba-2 has it (Dao and Gu, arXiv:2405.21060, §6, and ssd_combined.py of
// state-spaces/mamba): matrix products within a chunk, of which the causal half counts, and of what enters and leaves it. The
// states between chunks are written as f32, and as bf16 once they are summed up, and read each time; the products of C and B in a chunk
// are written as f32 and read.
func (d *decoder) chunks(scan *op, tokens float64) {
	chunk, states := float64(d.chunk), float64(d.inner*d.state)
	products := chunk * float64(d.groups)
	scan.tensor = true
	scan.flops = tokens * (4*states + chunk*float64(d.inner) + products*float64(d.state))
	scan.bytes += tokens * (12*states/chunk + 8*products)
}

// block is a transformer layer without a cache. What the activation reads is up wide, what it writes inner.
func (b *builder) block(layer string, tokens, hidden, up, inner, seen int) {
	b.norm(layer, "norm1", "", tokens, hidden)
	b.matmul(layer, "qkv", "", tokens, hidden, 3*hidden)
	b.add(op{name: layer + "attention", alike: "attention", flops: 4 * float64(tokens) * float64(seen) * float64(hidden), tensor: true, bytes: 8 * float64(tokens*hidden), out: 2 * float64(tokens*hidden)})
	b.matmul(layer, "o", "", tokens, hidden, hidden)
	b.norm(layer, "norm2", "", tokens, hidden)
	b.matmul(layer, "up", "", tokens, hidden, up)
	b.elementwise(layer, "act", "", tokens, up, inner)
	b.matmul(layer, "down", "", tokens, inner, hidden)
}

// qwenVL is an encoder of images of 504 x 504 pixels, 1296 patches and 324 tokens, and a decoder.
// The encoder's gated layers have 3420 wide halves; four of its 32 layers attend to all patches,
// the others to windows of 64.
func qwenVL(b *builder) {
	prompts := b.batch.Prompts
	b.begin(disagg.Phase{Name: "encode", Runs: 1 / float64(prompts)})
	for l := range 32 {
		seen := 64
		if l%8 == 7 {
			seen = 1296
		}
		b.block(fmt.Sprintf("v%d.", l), prompts*1296, 1280, 2*3420, 3420, seen)
	}
	last := b.last
	b.serve(qwen, 324)
	b.p.Edges = append(b.p.Edges, disagg.Edge{From: last, To: "prefill.embed", Bytes: 2 * float64(prompts) * 324 * 3584})
}

// diffusion is 28 steps with guidance, so two passes, over 4096 patches of an image of 1024 x 1024
// pixels and 333 tokens of text; the first 13 of 24 layers attend a second time, to patches alone. Patches and text are one batch
// here: the text's own weights and the modulation, two thirds of the parameters, are left out, as
// they take little of the time.
func diffusion(b *builder) {
	const image, text, hidden = 2 * 4096, 2 * 333, 1536
	b.begin(disagg.Phase{Name: "step", Runs: 28})
	for l := range 24 {
		layer := fmt.Sprintf("%d.", l)
		b.block(layer, image+text, hidden, 4*hidden, 4*hidden, 4096+333)
		if l < 13 {
			b.norm(layer+"b", "norm", "", image, hidden)
			b.matmul(layer+"b", "qkv", "", image, hidden, 3*hidden)
			b.add(op{name: layer + "battention", alike: "battention", flops: 4 * image * 4096 * hidden, tensor: true, bytes: 8 * image * hidden, out: 2 * image * hidden})
			b.matmul(layer+"b", "o", "", image, hidden, hidden)
		}
	}
}
