package llm

import (
	"cmp"
	"context"
	"fmt"
	"math"
)

// Embed returns a vector for each text, in order. All vectors of a client have the same dimension and finite numbers, not all of them 0.
func (c *Client) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	all := make([][]float32, 0, len(texts))
	for len(texts) > 0 {
		n := min(len(texts), c.at.Batch)
		vectors, err := c.embed(ctx, texts[:n])
		if err != nil {
			return nil, err
		}
		all, texts = append(all, vectors...), texts[n:]
	}
	return all, nil
}

func (c *Client) embed(ctx context.Context, texts []string) ([][]float32, error) {
	request := struct {
		Model    string   `json:"model"`
		Input    []string `json:"input"`
		Encoding string   `json:"encoding_format"`
	}{c.at.Model, texts, "float"}
	var answer struct {
		Data []embedding `json:"data"`
	}
	var vectors [][]float32
	err := c.call(ctx, "/embeddings", request, &answer, func() (err error) {
		vectors, err = c.vectors(answer.Data, len(texts))
		return err
	})
	return vectors, err
}

type embedding struct {
	Index  int       `json:"index"`
	Vector []float64 `json:"embedding"`
}

// vectors puts n vectors in the order of their texts, and checks them.
func (c *Client) vectors(data []embedding, n int) ([][]float32, error) {
	if len(data) != n {
		return nil, fmt.Errorf("expected %d vectors; found %d", n, len(data))
	}
	all := make([][]float32, n)
	for _, d := range data {
		if d.Index < 0 || d.Index >= n || all[d.Index] != nil {
			return nil, fmt.Errorf("expected each index below %d once; found %d", n, d.Index)
		}
		if len(d.Vector) == 0 {
			return nil, fmt.Errorf("vector %d is empty", d.Index)
		}
		v := make([]float32, len(d.Vector))
		sum := 0.0
		for i, x := range d.Vector {
			v[i] = float32(x)
			sum += float64(v[i]) * float64(v[i])
		}
		if math.IsInf(sum, 0) || sum == 0 {
			return nil, fmt.Errorf("vector %d has no finite length above 0", d.Index)
		}
		all[d.Index] = v
	}
	want := cmp.Or(c.dimension.Load(), int64(len(all[0])))
	for i, v := range all {
		if int64(len(v)) != want {
			return nil, fmt.Errorf("vector %d has %d numbers; those before have %d", i, len(v), want)
		}
	}
	if !c.dimension.CompareAndSwap(0, want) && c.dimension.Load() != want { // another call was first
		return nil, fmt.Errorf("the vectors have %d numbers; others have %d", want, c.dimension.Load())
	}
	return all, nil
}
