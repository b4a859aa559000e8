// Package embed turns what is known of a job into a vector, such that jobs that are alike have vectors of nearly the same
// direction (SchedMate, §3.1, similar job retrieval).
package embed

import (
	"context"
	"hash/fnv"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Field is one thing that is known of a job, such as its model's name.
type Field struct{ Name, Value string }

// Text returns the fields as lines, for an embedding model: name: value.
func Text(fields []Field) string {
	var b strings.Builder
	for _, f := range fields {
		b.WriteString(f.Name + ": " + f.Value + "\n")
	}
	return b.String()
}

// Embedder makes vectors.
type Embedder interface {
	// ID names the model and its version. Only vectors of the same ID can be compared.
	ID() string
	// Weighed reports whether a component of a vector is a feature of its own: whoever compares such vectors weighs each
	// component by how rare it is among the jobs that it compares with.
	Weighed() bool
	// Embed returns a vector for each list of fields, in order, each of length 1, or 0 if there is nothing to embed.
	Embed(ctx context.Context, docs [][]Field) ([][]float32, error)
}

// Hashing embeds without a model, by signed feature hashing: the same fields give the same vector on every machine. A feature is
// a word, a part of 3 to 5 letters of a word, a field with its value, or a field with the magnitude of its number.
type Hashing struct{}

// Dims is how many components a vector of [Hashing] has.
const Dims = 1024

// ID is the embedder's version: it changes with whatever changes a vector.
func (Hashing) ID() string { return "hash-1" }

// Weighed is true: a component is some features.
func (Hashing) Weighed() bool { return true }

// Embed returns the vectors. It cannot fail.
func (Hashing) Embed(_ context.Context, docs [][]Field) ([][]float32, error) {
	vectors := make([][]float32, len(docs))
	for i, fields := range docs {
		vectors[i] = hashed(fields)
	}
	return vectors, nil
}

// weights says how much fields count: what decides how long a job takes counts more. Other fields count 1.
var weights = map[string]float64{
	"model_name": 3, "train": 2, "command": 2, "name": 2, "user": 1.5, "iters": 1.5, "gpus": 1.5, "gpu_model": 1.5,
	"num_workers": 0.25, "seed": 0, "precision": 0.5, "valid": 0.5,
}

// What the kinds of features count within a field.
const (
	wholeShare = 0.5 // the field with its value
	wordShare  = 0.7 // its words, together
	gramShare  = 0.5 // the parts of its words, together
	sizeShare  = 0.7 // the magnitude of a number, in each of two rasters
)

// feature is a feature of a job, and how much it counts.
type feature struct {
	text   string
	weight float64
}

// hashed returns the vector of a job. Sums are in the order of the features' texts, and in the same precision everywhere.
func hashed(fields []Field) []float32 {
	var all []feature
	for _, f := range fields {
		all = append(all, features(f)...)
	}
	slices.SortFunc(all, func(a, b feature) int { return strings.Compare(a.text, b.text) })
	sums := make([]float64, Dims)
	for i := 0; i < len(all); {
		n, most := 0, 0.0
		for ; i+n < len(all) && all[i+n].text == all[i].text; n++ {
			most = max(most, all[i+n].weight)
		}
		h := fnv.New64a()
		h.Write([]byte(all[i].text))
		sum := h.Sum64()
		sum ^= sum >> 32
		value := most * float64(bits.Len(uint(n))) // what is said twice as often counts a step more
		if sum>>31&1 == 1 {
			value = -value
		}
		sums[sum%Dims] += value
		i += n
	}
	return unit(sums)
}

// unit returns a vector of length 1 in the same direction.
func unit(v []float64) []float32 {
	square := 0.0
	for _, x := range v {
		square += float64(x * x) // the conversion forbids to fuse: see the Go specification, on floating-point operators
	}
	out := make([]float32, len(v))
	if square == 0 {
		return out
	}
	length := math.Sqrt(square)
	for i, x := range v {
		out[i] = float32(x / length)
	}
	return out
}

// features returns the features of a field.
func features(f Field) []feature {
	weight, known := weights[f.Name]
	if !known {
		weight = 1
	}
	value := strings.ToLower(strings.TrimSpace(f.Value))
	if value == "" || weight == 0 {
		return nil
	}
	whole := feature{f.Name + "=" + value, weight * wholeShare}
	if n, err := strconv.ParseFloat(value, 64); err == nil && !math.IsInf(n, 0) && !math.IsNaN(n) {
		all := []feature{whole}
		// Numbers within a factor of 1.4 share at least one of the two powers of 2 below them.
		for k, size := range []float64{n, n * math.Sqrt2} {
			_, power := math.Frexp(size)
			all = append(all, feature{f.Name + "~" + strconv.Itoa(k) + "~" + strconv.Itoa(power), weight * sizeShare})
		}
		return all
	}
	all := []feature{whole}
	words := Words(value)
	var grams []string
	for _, w := range words {
		grams = append(grams, parts(w)...)
	}
	for _, w := range words {
		all = append(all, feature{"w " + w, weight * wordShare / math.Sqrt(float64(len(words)))})
	}
	for _, g := range grams {
		all = append(all, feature{"g " + g, weight * gramShare / math.Sqrt(float64(len(grams)))})
	}
	return all
}

// Words splits text into words of letters or of digits, in lower case: "Llama3-8B" is llama, 3, 8, b.
func Words(text string) []string {
	var words []string
	begin, kind := 0, 0
	text = strings.ToLower(text)
	for i, r := range text + " " {
		k := 0
		switch {
		case unicode.IsLetter(r):
			k = 1
		case unicode.IsDigit(r):
			k = 2
		}
		if k == kind {
			continue
		}
		if kind != 0 {
			words = append(words, text[begin:i])
		}
		begin, kind = i, k
	}
	return words
}

// parts returns the parts of 3 to 5 letters of a word, which has marks at its ends.
func parts(word string) []string {
	r := []rune("<" + word + ">")
	var grams []string
	for n := 3; n <= 5; n++ {
		for i := 0; i+n <= len(r); i++ {
			grams = append(grams, string(r[i:i+n]))
		}
	}
	return grams
}
