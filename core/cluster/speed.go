package cluster

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxSpeed is the highest speed, 1000 times that for which run times hold.
const maxSpeed = 1_000_000

// Accept sets the models that the pod accepts, from texts such as H20 or XPU-A=0.8: a model, and
// how fast the pod works there if that is not the same on all. A model without a speed has speed 1. The error says
// what is expected.
func (r *Request) Accept(texts []string) error {
	r.Models, r.Speeds = texts, nil
	if slices.ContainsFunc(texts, func(s string) bool { return CheckModel(s) != nil }) {
		return errors.New("GPU models, whose names are not * and do not begin with /")
	}
	if !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, "=") }) {
		return nil
	}
	r.Models, r.Speeds = make([]string, len(texts)), make([]int64, len(texts))
	for i, text := range texts {
		model, speed, has := strings.Cut(text, "=")
		v := 1.0
		if has {
			var err error
			if v, err = strconv.ParseFloat(speed, 64); err != nil || !(v >= 0.001 && v <= maxSpeed/1000) {
				return fmt.Errorf("speeds of GPU models from 0.001 to %d, as in H20|XPU-A=0.8", maxSpeed/1000)
			}
		}
		r.Models[i], r.Speeds[i] = model, int64(math.Round(v*1000))
	}
	return nil
}

// Accepted returns the texts for [Request.Accept].
func (r *Request) Accepted() []string {
	if len(r.Speeds) == 0 {
		return r.Models
	}
	out := make([]string, len(r.Models))
	for i, m := range r.Models {
		out[i] = m + "=" + strconv.FormatFloat(float64(r.Speeds[i])/1000, 'f', -1, 64)
	}
	return out
}

// SpeedOn returns how fast the pod works on a model, in thousandths.
func (r *Request) SpeedOn(model string) int64 {
	if i := slices.Index(r.Models, model); i >= 0 && len(r.Speeds) > 0 {
		return r.Speeds[i]
	}
	return 1000
}
