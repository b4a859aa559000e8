package disagg

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/disagg/plan"
	"github.com/muster-sched/muster/internal/table"
)

// Pair is what two GPUs together are worth to a job that serves a model on them.
type Pair struct {
	GPUs [2]string `json:"gpus"`
	// Shapes and Rates are the best plan for throughput and what it serves, by how far apart the GPUs are: first in one
	// leaf group. 1 is two of the first model of GPU side by side. Both are nil if the memory does not suffice.
	Shapes []plan.Shape `json:"shapes,omitempty"`
	Rates  []float64    `json:"rates,omitempty"`
	Price  float64      `json:"price"` // of both; 1 for each GPU unless prices are known
}

// Pairs plans for all pairs of these models of GPU, which may be alike. links has the link between two of them by distance: in one
// leaf group, one level of the topology apart, and so on. prices has those of some models; the others cost 1.
func (p *Profile) Pairs(gpus []string, links []plan.Link, memory map[string]int64, prices map[string]float64, o plan.Options) ([]Pair, error) {
	var out []Pair
	base := 0.0 // seconds of a request on the pair that counts 1
	for i, first := range gpus {
		for _, second := range gpus[i:] {
			pair := Pair{GPUs: [2]string{first, second}, Price: price(prices, first) + price(prices, second)}
			for _, link := range links {
				best, err := p.pair(pair.GPUs, link, memory, o)
				if none := (*plan.NoRoom)(nil); errors.As(err, &none) {
					break
				}
				if err != nil {
					return nil, err
				}
				if base == 0 {
					base = best.Seconds
				}
				pair.Shapes, pair.Rates = append(pair.Shapes, best.Shape), append(pair.Rates, base/best.Seconds)
			}
			out = append(out, pair)
		}
	}
	if base == 0 {
		return nil, errors.New("no pair of these GPUs holds the model")
	}
	return out, nil
}

// pair plans for two GPUs with a link between them.
func (p *Profile) pair(gpus [2]string, link plan.Link, memory map[string]int64, o plan.Options) (*plan.Plan, error) {
	of := map[string]int64{}
	for _, g := range gpus {
		if m, ok := memory[g]; ok {
			of[g] = m
		}
	}
	problem, err := p.Problem(gpus[:], Links{All: link}, of)
	if err != nil {
		return nil, err
	}
	return plan.Best(problem, plan.Throughput, o)
}

func price(prices map[string]float64, gpu string) float64 {
	if v, ok := prices[gpu]; ok {
		return v
	}
	return 1
}

// Combination returns the pair, which holds the model, as one of those that a job lists. The last rate holds for all distances beyond it.
func (p *Pair) Combination() core.Combination {
	c := core.Combination{Models: p.GPUs[:], Price: thousandths(p.Price)}
	for _, r := range p.Rates {
		c.Rates = append(c.Rates, thousandths(r))
	}
	for n := len(c.Rates); n > 1 && c.Rates[n-1] == c.Rates[n-2]; n-- {
		c.Rates = c.Rates[:n-1]
	}
	return c
}

// thousandths rounds a number above 0, to at least one thousandth.
func thousandths(x float64) int64 { return max(1, int64(x*1000+0.5)) }

// Combinations lists the pairs that hold the model as a job does: A100+A100=1@4.4|A100+L40S=1.085/1.044@3.1.
func Combinations(pairs []Pair) string {
	var list []core.Combination
	for i := range pairs {
		if len(pairs[i].Rates) > 0 {
			list = append(list, pairs[i].Combination())
		}
	}
	return core.FormatCombinations(list, nil)
}

// PairsText writes pairs as a table, with what a job lists.
func PairsText(w io.Writer, pairs []Pair) error {
	t := table.Table{Align: "lrlrrr"}
	t.Add("PAIR", "LEVELS APART", "SHAPE", "RATE", "PRICE", "RATE/PRICE")
	for i := range pairs {
		p := &pairs[i]
		name := p.GPUs[0] + "+" + p.GPUs[1]
		if len(p.Rates) == 0 {
			t.Add(name, "-", "does not fit", "-", fmt.Sprintf("%.2f", p.Price), "-")
		}
		for apart, rate := range p.Rates {
			t.Add(name, strconv.Itoa(apart), string(p.Shapes[apart]), fmt.Sprintf("%.3f", rate), fmt.Sprintf("%.2f", p.Price), fmt.Sprintf("%.3f", rate/p.Price))
		}
	}
	if err := t.Write(w, 80); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nWhat a job lists (combinations, muster.sh/gpu-combinations):\n%s\n", Combinations(pairs))
	return err
}

// ParsePrices reads prices of models, such as A100=2.2.
func ParsePrices(texts []string) (map[string]float64, error) {
	all := map[string]float64{}
	for _, text := range texts {
		name, amount, ok := strings.Cut(text, "=")
		v, err := strconv.ParseFloat(amount, 64)
		if !ok || name == "" || err != nil || !(v >= 0.001 && v <= 100_000) {
			return nil, fmt.Errorf("expected the price of a GPU such as A100=2.2, 0.001 to 100000; found %q", text)
		}
		all[name] = v
	}
	return all, nil
}

// ParseDistances reads the links between two GPUs by their distance, such as 2400gbps and 200gbps/12us.
func ParseDistances(texts []string) ([]plan.Link, error) {
	var out []plan.Link
	for _, text := range texts {
		l, err := parseLink(text)
		if err != nil {
			return nil, fmt.Errorf("expected a link such as 200gbps or 200gbps/10us; found %q", text)
		}
		out = append(out, l)
	}
	return out, nil
}
