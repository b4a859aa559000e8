package disagg

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-sched/muster/disagg/plan"
)

// Links says how GPUs are connected.
type Links struct {
	All    plan.Link
	Pairs  map[[2]string]plan.Link // of two models, in both directions and either order
	Shared bool                    // a GPU sends and receives over the same bandwidth
}

// defaultLatency of a transfer, seconds.
const defaultLatency = 10e-6

// ParseLinks reads links: RATE or RATE/LATENCY of all, A:B=RATE of the models A and B, such as
// 200gbps, 25gbps/20us, A100:L40S=100gbps. Later ones replace earlier ones.
func ParseLinks(texts []string) (Links, error) {
	l := Links{Pairs: map[[2]string]plan.Link{}}
	for _, text := range texts {
		pair, link, named := strings.Cut(text, "=")
		if !named {
			link = text
		}
		parsed, err := parseLink(link)
		if err != nil {
			return l, fmt.Errorf("expected a link such as 200gbps, 200gbps/10us or A100:L40S=100gbps; found %q", text)
		}
		if !named {
			l.All = parsed
			continue
		}
		a, b, two := strings.Cut(pair, ":")
		if !two || a == "" || b == "" {
			return l, fmt.Errorf("expected two GPUs such as A100:L40S before =; found %q", text)
		}
		l.Pairs[[2]string{a, b}], l.Pairs[[2]string{b, a}] = parsed, parsed
	}
	return l, nil
}

func parseLink(text string) (plan.Link, error) {
	rate, latency, given := strings.Cut(strings.ToLower(text), "/")
	l := plan.Link{Latency: defaultLatency}
	digits, ok := strings.CutSuffix(rate, "gbps")
	gbps, err := strconv.ParseFloat(digits, 64)
	if err != nil || !ok || !(gbps > 0 && gbps <= 1e6) {
		return l, fmt.Errorf("no rate: %q", rate)
	}
	l.BytesPerSecond = gbps * 1e9 / 8
	if given {
		d, err := time.ParseDuration(latency)
		if err != nil || d < 0 {
			return l, fmt.Errorf("no latency: %q", latency)
		}
		l.Latency = d.Seconds()
	}
	return l, nil
}

// between returns the link from each of the GPUs to each other.
func (l *Links) between(gpus []string) ([][]plan.Link, error) {
	for pair := range l.Pairs {
		if !slices.Contains(gpus, pair[0]) || !slices.Contains(gpus, pair[1]) {
			return nil, fmt.Errorf("link: expected a link between GPUs of the plan; found %s:%s", min(pair[0], pair[1]), max(pair[0], pair[1]))
		}
	}
	all := make([][]plan.Link, len(gpus))
	for u, from := range gpus {
		for _, to := range gpus {
			link, ok := l.Pairs[[2]string{from, to}]
			if !ok {
				link = l.All
			}
			all[u] = append(all[u], link)
		}
	}
	for u := range all {
		for v, link := range all[u] {
			if u != v && link.BytesPerSecond == 0 {
				return nil, fmt.Errorf("link: expected a link between %s and %s; found none", gpus[u], gpus[v])
			}
		}
	}
	return all, nil
}

// ParseMemory reads memory of models, such as A100=80gb, in units of 1e9 bytes (gb) or 2^30 (gib).
func ParseMemory(texts []string) (map[string]int64, error) {
	all := map[string]int64{}
	for _, text := range texts {
		name, amount, ok := strings.Cut(text, "=")
		unit := 0.0
		amount = strings.ToLower(amount)
		for suffix, bytes := range map[string]float64{"gb": 1e9, "gib": 1 << 30} {
			if digits, has := strings.CutSuffix(amount, suffix); has {
				amount, unit = digits, bytes
				break
			}
		}
		x, err := strconv.ParseFloat(amount, 64)
		if !ok || name == "" || err != nil || unit == 0 || !(x > 0 && x < 1e6) {
			return nil, fmt.Errorf("expected memory of a GPU such as A100=80gb or A100=74.5gib; found %q", text)
		}
		all[name] = int64(x * unit)
	}
	return all, nil
}
