package console

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// How Slurm writes times, amounts of memory, GPUs and arrays, and options in a
// script. Each function says in its error what it expected.

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
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return q, errors.New("expected memory such as 64G")
	}
	return q, nil
}

// ParseGres reads gpu, gpu:8 or gpu:h100:8.
func ParseGres(s string) (model string, gpus int, err error) {
	if strings.Contains(s, ",") {
		return "", 0, errors.New("expected GPUs alone, such as gpu:h100:8: Muster allocates no other generic resources, and no shards")
	}
	parts := strings.Split(s, ":")
	count := "1"
	switch {
	case len(parts) == 2 && strings.Trim(parts[1], "0123456789") == "":
		count = parts[1]
	case len(parts) == 2:
		model = parts[1]
	case len(parts) == 3:
		model, count = parts[1], parts[2]
	}
	n, err := strconv.ParseUint(count, 10, 16)
	if err != nil || n == 0 || parts[0] != "gpu" || len(parts) > 3 || len(parts) > 1 && parts[1] == "" {
		return "", 0, errors.New("expected gpu:COUNT or gpu:MODEL:COUNT, such as gpu:h100:8")
	}
	return model, int(n), nil
}

// ParseArray reads 0-9, or 0-9%2: how many there are, and how many of them run
// at a time, 0 for all.
func ParseArray(s string) (count, atOnce int, err error) {
	bad := errors.New("expected 0-LAST or 0-LAST%AT_ONCE, such as 0-9%2 (indices start at 0)")
	list, limit, limited := strings.Cut(s, "%")
	last, ok := strings.CutPrefix(list, "0-")
	n, err := strconv.ParseUint(last, 10, 31)
	if !ok || err != nil || n >= math.MaxInt32-1 {
		return 0, 0, bad
	}
	if limited {
		l, err := strconv.ParseUint(limit, 10, 31)
		if err != nil || l == 0 {
			return 0, 0, bad
		}
		atOnce = min(int(l), int(n)+1)
	}
	return int(n) + 1, atOnce, nil
}

// ScriptLine is the options in a line of a script that starts with #SBATCH.
type ScriptLine struct {
	Line int
	Args []string
}

// ScriptOptions reads the options in the lines of a script that start with
// #SBATCH, up to its first command.
func ScriptOptions(script string) ([]ScriptLine, error) {
	var out []ScriptLine
	n := 0
	for line := range strings.SplitSeq(script, "\n") {
		n++
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' {
			break
		}
		rest, ok := strings.CutPrefix(line, "#SBATCH")
		if !ok || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
			continue
		}
		args, err := words(rest)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(args) > 0 {
			out = append(out, ScriptLine{n, args})
		}
	}
	return out, nil
}

// words splits a line as a shell does, as far as quotes and comments go.
func words(line string) ([]string, error) {
	var (
		out   []string
		word  strings.Builder
		quote rune
		begun bool
	)
	flush := func() {
		if begun {
			out = append(out, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, begun = r, true
		case r == ' ' || r == '\t':
			flush()
		case r == '#' && !begun:
			return out, nil
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("expected a closing %c", quote)
	}
	flush()
	return out, nil
}
