package embed

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// job returns fields from name, value, name, value.
func job(pairs ...string) []Field {
	var fields []Field
	for i := 0; i < len(pairs); i += 2 {
		fields = append(fields, Field{pairs[i], pairs[i+1]})
	}
	return fields
}

func vector(t testing.TB, fields []Field) []float32 {
	t.Helper()
	v, err := Hashing{}.Embed(context.Background(), [][]Field{fields})
	if err != nil || len(v) != 1 || len(v[0]) != Dims {
		t.Fatalf("vectors %v, %v: want one of %d components", v, err, Dims)
	}
	return v[0]
}

func cosine(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// Of each line, the first job is nearer to the second than to the third.
func TestNearness(t *testing.T) {
	base := job("model_name", "Llama-3-8B", "train", "c4", "iters", "80000", "gpus", "64")
	for name, c := range map[string]struct{ near, far []Field }{
		"the same in other letters": {job("model_name", "llama3_8b", "train", "C4", "iters", "80000", "gpus", "64"), job("model_name", "resnet50", "train", "imagenet", "iters", "90", "gpus", "8")},
		"another size of the model": {job("model_name", "Llama-3-70B", "train", "c4", "iters", "80000", "gpus", "64"), job("model_name", "gpt2", "train", "pile", "iters", "80000", "gpus", "64")},
		"a few steps more":          {job("model_name", "Llama-3-8B", "train", "c4", "iters", "85000", "gpus", "64"), job("model_name", "Llama-3-8B", "train", "c4", "iters", "500", "gpus", "64")},
		"another seed":              {job("model_name", "Llama-3-8B", "train", "c4", "iters", "80000", "gpus", "64", "seed", "7"), job("model_name", "Llama-3-8B", "train", "c4", "iters", "80000", "gpus", "8")},
	} {
		near, far := cosine(vector(t, base), vector(t, c.near)), cosine(vector(t, base), vector(t, c.far))
		if near <= far+0.05 {
			t.Errorf("%s: cosine %.3f, and %.3f to a job that is unlike", name, near, far)
		}
	}
}

func TestNothingIsNoDirection(t *testing.T) {
	for i, x := range vector(t, job("seed", "1", "name", " ")) {
		if x != 0 {
			t.Fatalf("component %d is %g", i, x)
		}
	}
}

// The vectors are those of version hash-1, on every machine: whoever changes one must change [Hashing.ID], or jobs of older
// histories are compared with vectors that mean something else.
func TestVersion(t *testing.T) {
	h := fnv.New64a()
	for _, x := range vector(t, job("model_name", "GPT-2 Größe", "iters", "80000", "lr", "0.001", "command", "torchrun --nproc 8 train.py")) {
		fmt.Fprintf(h, "%08x", math.Float32bits(x))
	}
	if got := fmt.Sprintf("%s %016x", Hashing{}.ID(), h.Sum64()); got != "hash-1 d1d925a9fe00fb83" {
		t.Errorf("version %s", got)
	}
}

// A vector has length 1, and does not depend on the order of the fields.
func TestVectors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.Custom(func(t *rapid.T) Field {
			return Field{rapid.SampledFrom([]string{"model_name", "iters", "command", "x"}).Draw(t, "name"), rapid.String().Draw(t, "value")}
		})
		fields := rapid.SliceOfN(field, 0, 6).Draw(t, "fields")
		a, b := hashed(fields), hashed(rapid.Permutation(fields).Draw(t, "permuted"))
		square := 0.0
		for i := range a {
			if a[i] != b[i] {
				t.Fatalf("component %d is %g, and %g in another order", i, a[i], b[i])
			}
			square += float64(a[i]) * float64(a[i])
		}
		if square != 0 && math.Abs(square-1) > 1e-5 {
			t.Fatalf("length² %g", square)
		}
	})
}

func TestText(t *testing.T) {
	if got := Text(job("model_name", "gpt", "iters", "5")); got != "model_name: gpt\niters: 5\n" {
		t.Errorf("%q", got)
	}
}
