package slurm

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// How Slurm writes times, amounts of memory, GPUs, arrays, signals and dependencies.
// Each function says in its error what it expected.

// ParseWalltime reads minutes, minutes:seconds, hours:minutes:seconds,
// days-hours, days-hours:minutes, days-hours:minutes:seconds, or a duration with
// units such as 90m.
func ParseWalltime(s string) (core.Time, error) {
	bad := errors.New("expected a time such as 90 (minutes), 1:30:00, 2-12 (days-hours) or 36h")
	days, clock, hasDays := strings.Cut(s, "-")
	if !hasDays {
		days, clock = "0", s
		if strings.ContainsAny(s, "smhd") {
			var d v1alpha1.Duration
			if err := d.UnmarshalText([]byte(s)); err != nil || d == 0 {
				return 0, bad
			}
			return core.Time(d), nil
		}
	}
	parts := strings.Split(clock, ":")
	units := [][]int64{{60}, {60, 1}, {3600, 60, 1}}
	if hasDays {
		units = [][]int64{{3600}, {3600, 60}, {3600, 60, 1}}
	}
	if len(parts) > len(units) {
		return 0, bad
	}
	sum := int64(0)
	for i, p := range append([]string{days}, parts...) {
		n, err := strconv.ParseUint(p, 10, 31)
		if err != nil {
			return 0, bad
		}
		if i == 0 {
			sum = int64(n) * 86400
		} else {
			sum += int64(n) * units[len(parts)-1][i-1]
		}
	}
	if sum <= 0 || sum > 100*365*86400 {
		return 0, bad
	}
	return core.Time(sum) * core.Second, nil
}

// ParseMemory reads a number of MiB, or one with K, M, G or T, or a quantity of
// Kubernetes such as 64Gi.
func ParseMemory(s string) (resource.Quantity, error) {
	text := s
	switch {
	case s == "":
	case strings.ContainsRune("0123456789", rune(s[len(s)-1])):
		text += "Mi"
	case strings.ContainsRune("kKmMgGtT", rune(s[len(s)-1])):
		text = s[:len(s)-1] + map[string]string{"K": "Ki", "M": "Mi", "G": "Gi", "T": "Ti"}[strings.ToUpper(s[len(s)-1:])]
	}
	q, err := v1alpha1.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return q, errors.New("expected memory such as 64G")
	}
	return q, nil
}

// GPUs is a number of GPUs, of one model if it is not empty.
type GPUs struct {
	Model string
	Count int
}

// ParseGPUs reads 8, h100:8 or h100.
func ParseGPUs(s string) (GPUs, error) {
	bad := errors.New("expected COUNT or MODEL:COUNT, such as h100:8")
	if strings.Contains(s, ",") {
		return GPUs{}, errors.New("expected one model, such as h100:8: a job has pods of one shape; --constraint \"h100|a100\" lists models of which any will do")
	}
	model, count, typed := strings.Cut(s, ":")
	if !typed {
		if model, count = "", s; strings.Trim(s, "0123456789") != "" {
			model, count = s, "1"
		}
	}
	n, err := strconv.ParseUint(count, 10, 16)
	if err != nil || typed && model == "" || strings.HasPrefix(model, "-") {
		return GPUs{}, bad
	}
	return GPUs{model, int(n)}, nil
}

// ParseGres reads gpu, gpu:8 or gpu:h100:8, and none.
func ParseGres(s string) (GPUs, error) {
	if s == "none" {
		return GPUs{}, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		switch kind, _, _ := strings.Cut(part, ":"); kind {
		case "gpu":
		case "shard", "mps":
			return GPUs{}, fmt.Errorf("expected GPUs alone, such as gpu:h100:8: %s asks for a part of a GPU, which is --gpu-fraction 0.25 here, in place of whole ones", part)
		default:
			return GPUs{}, fmt.Errorf("expected GPUs alone, such as gpu:h100:8: Muster allocates no generic resource %q", part)
		}
	}
	if s == "gpu" {
		return GPUs{Count: 1}, nil
	}
	out, err := ParseGPUs(strings.TrimPrefix(s, "gpu:"))
	if err == nil && out.Count > 0 {
		return out, nil
	}
	if strings.Contains(s, ",") {
		return GPUs{}, err
	}
	return GPUs{}, errors.New("expected gpu:COUNT or gpu:MODEL:COUNT, such as gpu:h100:8")
}

// Array is which indices an array has, in order and each once.
type Array struct {
	Indices []int
	// AtOnce is how many of them run at a time, 0 for all.
	AtOnce int
}

// mostIndices is how many indices a Job may have.
const mostIndices = 100_000

// ParseArray reads 0-9, 1,4,7 or 0-20:5, with %2 for at most two at a time.
func ParseArray(s string) (Array, error) {
	bad := errors.New("expected indices such as 0-9, 1-10%2 (two at a time), 1,4,7 or 0-20:5")
	list, limit, limited := strings.Cut(s, "%")
	var out Array
	number := func(s string) (int, bool) {
		n, err := strconv.ParseUint(s, 10, 31)
		return int(n), err == nil && n < math.MaxInt32-1
	}
	for part := range strings.SplitSeq(list, ",") {
		span, by, stepped := strings.Cut(part, ":")
		first, last, isSpan := strings.Cut(span, "-")
		if !isSpan {
			last = first
		}
		from, ok1 := number(first)
		to, ok2 := number(last)
		step, ok3 := 1, true
		if stepped {
			step, ok3 = number(by)
		}
		if !ok1 || !ok2 || !ok3 || step == 0 || to < from || stepped && !isSpan {
			return Array{}, bad
		}
		if (to-from)/step >= mostIndices || len(out.Indices) > mostIndices {
			return Array{}, fmt.Errorf("expected at most %d indices", mostIndices)
		}
		for i := from; i <= to; i += step {
			out.Indices = append(out.Indices, i)
		}
	}
	slices.Sort(out.Indices)
	out.Indices = slices.Compact(out.Indices)
	if len(out.Indices) > mostIndices {
		return Array{}, fmt.Errorf("expected at most %d indices", mostIndices)
	}
	if limited {
		n, ok := number(limit)
		if !ok || n == 0 {
			return Array{}, bad
		}
		out.AtOnce = min(n, len(out.Indices))
	}
	return out, nil
}

// String writes the indices as 1-10, 1,4,7 or 0-20:5.
func (a Array) String() string {
	var parts []string
	for i := 0; i < len(a.Indices); {
		j := i + 1 // the last of those that have the same distance
		for j+1 < len(a.Indices) && a.Indices[j+1]-a.Indices[j] == a.Indices[i+1]-a.Indices[i] {
			j++
		}
		switch {
		case j < len(a.Indices) && a.Indices[j]-a.Indices[i] == j-i:
			parts = append(parts, fmt.Sprintf("%d-%d", a.Indices[i], a.Indices[j]))
		case j < len(a.Indices) && j-i > 1:
			parts = append(parts, fmt.Sprintf("%d-%d:%d", a.Indices[i], a.Indices[j], a.Indices[i+1]-a.Indices[i]))
		default:
			j = i
			parts = append(parts, strconv.Itoa(a.Indices[i]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// fromZero reports whether the indices are 0, 1, 2…, as those of a Job are.
func (a Array) fromZero() bool { return a.Indices[len(a.Indices)-1] == len(a.Indices)-1 }

// Signal is one that a job gets before its time is over.
type Signal struct {
	Name string // without SIG
	// Batch: the shell of the script gets it, and the steps do not.
	Batch  bool
	Before core.Time
}

// signals are those that may be sent, by number.
var signals = map[string]string{
	"1": "HUP", "2": "INT", "3": "QUIT", "6": "ABRT", "9": "KILL", "10": "USR1", "12": "USR2", "14": "ALRM", "15": "TERM", "18": "CONT",
}

// ParseSignal reads USR1, B:USR1@120 or 10@60: without a time, it is sent a minute before the end.
func ParseSignal(s string) (Signal, error) {
	out := Signal{Before: 60 * core.Second}
	name, at, timed := strings.Cut(s, "@")
	name, out.Batch = strings.CutPrefix(name, "B:")
	name = strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if n, ok := signals[name]; ok {
		name = n
	}
	n, err := strconv.ParseUint(at, 10, 16)
	if timed {
		out.Before = core.Time(n) * core.Second
	}
	if timed && err != nil || !slices.Contains(slices.Collect(maps.Values(signals)), name) {
		return Signal{}, errors.New("expected a signal and seconds before the time limit, such as USR1@120, or B:USR1@120 for the script alone")
	}
	out.Name = name
	return out, nil
}
