package consult

import (
	"context"
	"math"

	"github.com/muster-sched/muster/semantic/embed"
	"github.com/muster-sched/muster/semantic/redact"
)

// Fingerprints embeds what is known of jobs by an embedding model (SchedMate, §3.1, similar job retrieval). What must not leave the cluster is taken out
// before, in each job for itself, so that the same job has the same vector.
type Fingerprints struct {
	Embedder Embedder
	Model    string // its name: vectors of another model cannot be compared
	Redact   redact.Rules
}

var _ embed.Embedder = Fingerprints{}

// ID names the model.
func (f Fingerprints) ID() string { return "endpoint " + f.Model }

// Weighed is false: a component of such a vector means nothing by itself.
func (f Fingerprints) Weighed() bool { return false }

// Embed returns the vectors: of length 1, or none for a job of which nothing is known.
func (f Fingerprints) Embed(ctx context.Context, docs [][]embed.Field) ([][]float32, error) {
	var texts []string
	var of []int
	for i, fields := range docs {
		if text := embed.Text(fields); text != "" {
			texts, of = append(texts, redact.New(f.Redact).Hide(text)), append(of, i)
		}
	}
	out := make([][]float32, len(docs))
	if texts == nil {
		return out, nil
	}
	vectors, err := f.Embedder.Embed(ctx, texts)
	if err != nil {
		return nil, err
	}
	for k, v := range vectors {
		sum := 0.0
		for _, x := range v {
			sum += float64(x) * float64(x)
		}
		for i := range v {
			v[i] = float32(float64(v[i]) / math.Sqrt(sum))
		}
		out[of[k]] = v
	}
	return out, nil
}
