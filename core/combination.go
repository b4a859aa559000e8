package core

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// This file reads and checks the combinations of GPU models that a gang lists. Their place is chosen in core/place.

// MaxCombinations is how many combinations a job may list at most.
const MaxCombinations = 64

// Limits of a combination: how fast the job may be in it and what its GPUs may cost, both in thousandths, and for how many distances.
const (
	maxWorth int64 = 1_000_000
	maxPrice int64 = 1_000_000_000
	maxRates       = 16
)

const expectedCombination = "MODEL+MODEL=RATE, with a rate for each level of the topology between the pods and perhaps the price of the GPUs, such as A100+L40S=2.3/1.9@3.5"

// ParseCombinations reads combinations for the tasks with these names, such as A100+L40S=2.3/1.9@3.5 and A100+A100=2: a model
// for each task with GPUs, in their order, or behind its name (decode:L40S+prefill:A100); how fast the job is within one leaf group,
// one level apart, and so on; and the price of the GPUs. Without prices each GPU costs the same. The error says what is expected.
func ParseCombinations(list []string, tasks []Task) ([]Combination, error) {
	var out []Combination
	for _, text := range list {
		c, err := parseCombination(strings.TrimSpace(text), tasks)
		if err != nil {
			return nil, fmt.Errorf("%w, found %q", err, text)
		}
		out = append(out, c)
	}
	return out, nil
}

func parseCombination(text string, tasks []Task) (Combination, error) {
	wrong := func() (Combination, error) { return Combination{}, fmt.Errorf("%s", expectedCombination) }
	models, worth, ok := strings.Cut(text, "=")
	if !ok {
		return wrong()
	}
	// 1. A model for each task with GPUs.
	c := Combination{Models: make([]string, len(tasks)), Price: 0}
	next, gpus := 0, Milli(0)
	for _, m := range strings.Split(models, "+") {
		t := -1
		if role, model, named := strings.Cut(m, ":"); named {
			t, m = slices.IndexFunc(tasks, func(t Task) bool { return t.Name == role }), model
			if t < 0 {
				return c, fmt.Errorf("a task named %q", role)
			}
		} else {
			for next < len(tasks) && tasks[next].GPU == 0 {
				next++
			}
			t = next
			next++
		}
		if m == "" || t >= len(tasks) || c.Models[t] != "" || tasks[t].GPU == 0 {
			return c, fmt.Errorf("one model for each of the job's tasks with GPUs, in their order or as TASK:MODEL")
		}
		c.Models[t] = m
	}
	for t := range tasks {
		if tasks[t].GPU > 0 && c.Models[t] == "" {
			return c, fmt.Errorf("one model for each of the job's tasks with GPUs, in their order or as TASK:MODEL")
		}
		gpus += Milli(tasks[t].Pods) * tasks[t].GPU
	}
	// 2. Its worth.
	rates, price, priced := strings.Cut(worth, "@")
	for _, r := range strings.Split(rates, "/") {
		v, ok := thousandths(r, maxWorth)
		if !ok {
			return wrong()
		}
		c.Rates = append(c.Rates, v)
	}
	c.Price = min(max(int64(gpus), 1), maxPrice)
	if priced {
		if c.Price, ok = thousandths(price, maxPrice); !ok {
			return wrong()
		}
	}
	return c, nil
}

// thousandths reads a number from 0.001 to most thousandths.
func thousandths(text string, most int64) (int64, bool) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0.001 && v <= float64(most)/1000) {
		return 0, false
	}
	return int64(math.Round(v * 1000)), true
}

// FormatCombinations is the inverse of [ParseCombinations], with | between them and the name of its task before each model; without
// tasks, the models are in their order.
func FormatCombinations(cs []Combination, tasks []Task) string {
	var list []string
	for i := range cs {
		list = append(list, formatCombination(&cs[i], tasks))
	}
	return strings.Join(list, "|")
}

func formatCombination(c *Combination, tasks []Task) string {
	var models []string
	for t, m := range c.Models {
		if m != "" && tasks != nil {
			m = tasks[t].Name + ":" + m
		}
		if m != "" {
			models = append(models, m)
		}
	}
	var rates []string
	for _, r := range c.Rates {
		rates = append(rates, strconv.FormatFloat(float64(r)/1000, 'f', -1, 64))
	}
	return strings.Join(models, "+") + "=" + strings.Join(rates, "/") + "@" + strconv.FormatFloat(float64(c.Price)/1000, 'f', -1, 64)
}

// CombinedModels returns the models on which a task may be by the combinations, in their order.
func CombinedModels(cs []Combination, task int) []string {
	var out []string
	for i := range cs {
		if m := cs[i].Models[task]; m != "" && !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

// checkCombinations reports what is wrong with the combinations of a job.
func checkCombinations(j *Job) error {
	if len(j.Combinations) == 0 {
		return nil
	}
	elastic := func(t Task) bool { return t.Minimum() != t.Pods }
	speeds := func(t Task) bool { return t.Speeds != nil }
	switch {
	case len(j.Combinations) > MaxCombinations:
		return fmt.Errorf("job %s: %d combinations of GPU models, expected at most %d", j.Name, len(j.Combinations), MaxCombinations)
	case !j.Gang || len(j.Tasks) < 2 || slices.ContainsFunc(j.Tasks, elastic):
		return fmt.Errorf("job %s: combinations of GPU models are for gangs of several tasks, all of whose pods start together", j.Name)
	case j.Topology.Closeness != 0 || slices.ContainsFunc(j.Tasks, speeds):
		return fmt.Errorf("job %s: combinations of GPU models say how fast the job is: expected no closeness and no speeds of models beside them", j.Name)
	}
	for i := range j.Combinations {
		if err := checkCombination(j, &j.Combinations[i]); err != nil {
			return err
		}
	}
	return nil
}

func checkCombination(j *Job, c *Combination) error {
	if len(c.Models) != len(j.Tasks) || len(c.Rates) == 0 || len(c.Rates) > maxRates || c.Price < 1 || c.Price > maxPrice {
		return fmt.Errorf("job %s: a combination of %d GPU models with %d rates and price %d, expected %d models, 1..%d rates and 1..%d",
			j.Name, len(c.Models), len(c.Rates), c.Price, len(j.Tasks), maxRates, maxPrice)
	}
	for t, m := range c.Models {
		if task := &j.Tasks[t]; (m == "") != (task.GPU == 0) || m != "" && !slices.Contains(task.Models, m) {
			return fmt.Errorf("job %s: GPU model %q in a combination, expected one that task %d names", j.Name, m, t)
		}
	}
	for _, r := range c.Rates {
		if r < 1 || r > maxWorth {
			return fmt.Errorf("job %s: a combination of GPU models with rate %d, expected 1..%d thousandths", j.Name, r, maxWorth)
		}
	}
	return nil
}
