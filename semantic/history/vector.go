package history

import (
	"encoding/binary"
	"fmt"
	"math"
)

// sparse is the components of a vector that are not 0, in order.
type sparse struct {
	dims   []int32
	values []float32
}

// mostDims bounds the components of a vector.
const mostDims = 1 << 16

// encode returns a vector as bytes: for each component that is not 0, how many after the one before it, and its value. A vector
// without any is empty.
func encode(v []float32) []byte {
	var b []byte
	last := -1
	for i, x := range v {
		if x != 0 {
			b = binary.AppendUvarint(b, uint64(i-last))
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			last = i
		}
	}
	return b
}

// decode is the inverse of encode, of bytes that [valid] accepts.
func decode(b []byte) sparse {
	var s sparse
	last := int32(-1)
	for len(b) > 0 {
		step, n := binary.Uvarint(b)
		last += int32(step)
		s.dims = append(s.dims, last)
		s.values = append(s.values, math.Float32frombits(binary.LittleEndian.Uint32(b[n:])))
		b = b[n+4:]
	}
	return s
}

// valid returns an error if b is not the bytes of a vector.
func valid(b []byte) error {
	for at := uint64(0); len(b) > 0; {
		step, n := binary.Uvarint(b)
		if n <= 0 || step == 0 || step > mostDims || at+step > mostDims || len(b) < n+4 {
			return fmt.Errorf("a vector is damaged")
		}
		x := math.Float32frombits(binary.LittleEndian.Uint32(b[n:]))
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return fmt.Errorf("a vector has a component that is no number")
		}
		at += step
		b = b[n+4:]
	}
	return nil
}

// queryVector is a vector to compare with others, under weights.
type queryVector struct {
	weights, product []float64 // product: component times the square of its weight
	square           float64   // of its length
}

func newQueryVector(v []float32, weights []float64) *queryVector {
	q := &queryVector{weights: weights, product: make([]float64, len(v))}
	for i, x := range v {
		weighed := float64(x) * weights[i]
		q.product[i] = float64(weighed * weights[i])
		q.square += float64(weighed * weighed)
	}
	return q
}

// cosine returns the cosine with a vector; 0 if one of the two has no direction. Sums are in the order of the components, and no
// operation is fused, so that it is the same on every machine.
func (q *queryVector) cosine(s *sparse) float64 {
	sum, square := 0.0, 0.0
	for i, d := range s.dims {
		if int(d) >= len(q.product) {
			return 0
		}
		x := float64(s.values[i])
		sum += float64(q.product[d] * x)
		weighed := x * q.weights[d]
		square += float64(weighed * weighed)
	}
	if square == 0 || q.square == 0 {
		return 0
	}
	return sum / (math.Sqrt(square) * math.Sqrt(q.square))
}
