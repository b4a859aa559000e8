package history

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/muster-sched/muster/semantic/embed"
)

// constant is an embedding model to which all jobs are the same.
type constant struct{}

func (constant) ID() string    { return "constant" }
func (constant) Weighed() bool { return false }
func (constant) Embed(_ context.Context, docs [][]embed.Field) ([][]float32, error) {
	vectors := make([][]float32, len(docs))
	for i := range vectors {
		vectors[i] = []float32{1}
	}
	return vectors, nil
}

// endless makes a vector that is none.
type endless struct{ constant }

func (endless) Embed(_ context.Context, docs [][]embed.Field) ([][]float32, error) {
	return [][]float32{{float32(math.Inf(1))}}, nil
}

// What a history could not read it does not write.
func TestVectorsThatAreNone(t *testing.T) {
	where := filepath.Join(t.TempDir(), "history.db")
	if err := open(t, where, Options{Embedder: endless{}}).Append(context.Background(), training("j1", "resnet50", 0, 60)); err == nil {
		t.Error("no error")
	}
	h := open(t, where, Options{})
	add(t, h, training("j2", "resnet50", 0, 60))
	if got := ids(t, h); got != "j2" {
		t.Errorf("jobs %q", got)
	}
}

// Jobs that were added with an embedding model are found without it. Those that were added without are not known to the model.
func TestOtherEmbedders(t *testing.T) {
	where := filepath.Join(t.TempDir(), "history.db")
	model := open(t, where, Options{Embedder: constant{}})
	add(t, model, training("j1", "resnet50", 0, 60), training("j2", "bert", 0, 60))
	q := Query{Job: training("new", "resnet50", 100, 0), K: 5, Threshold: 0.75}
	q.Job.User = "bo" // else j1 is an earlier run of it
	if got := found(t, model, q); got != "j2 j1" {
		t.Errorf("the model finds %q, want both", got)
	}
	hashing := open(t, where, Options{})
	if got := found(t, hashing, q); got != "j1" {
		t.Errorf("without the model %q is found, want the one that is alike", got)
	}
	add(t, hashing, training("j3", "resnet18", 0, 61))
	if got := found(t, model, q); got != "j2 j1" {
		t.Errorf("the model finds %q, want those it knows", got)
	}
}
