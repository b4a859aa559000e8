package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/disagg"
	"github.com/muster-sched/muster/disagg/plan"
	"github.com/muster-sched/muster/disagg/roofline"
)

func newDisagg() *cobra.Command {
	c := &cobra.Command{
		Use:   "disagg",
		Short: "Plan on which of several unlike GPUs each kernel of a model runs",
		Long: `Disagg plans kernel-granularity disaggregation (Tessera): the kernels of one model run
on GPUs of different models, each where that is best for the whole. It also simulates
requests that run on such plans.`,
		Example: `  muster disagg profile --model llama-3-8b --gpus A100,L40S >profile.json
  muster disagg analyze model.ptx --trace trace.json --profile profile.json --gpus A100,L40S
  muster disagg plan --kernels profile.json --gpus A100,L40S --link 200gbps
  muster disagg simulate --kernels profile.json --link 200gbps --policy serial,throughput
  muster disagg run model.ptx --trace trace.json --plan plan.json --requests 8`,
	}
	c.AddCommand(newDisaggProfile(), newDisaggPlan(), newDisaggPairs(), newDisaggSimulate(), newDisaggAnalyze(), newDisaggRun(), newDisaggWorker())
	return c
}

func newDisaggProfile() *cobra.Command {
	var model string
	var gpus []string
	batch := roofline.Offline
	var names, known []string
	for i := range roofline.All {
		names = append(names, roofline.All[i].Name)
	}
	for _, s := range roofline.Specs {
		known = append(known, s.Name)
	}
	c := &cobra.Command{
		Use:   "profile --model MODEL --gpus LIST",
		Short: "Print a profile of a known model on known GPUs, by a roofline of published figures",
		Long: `Profile generates the kernels of a model from its public configuration, and their times
from the published FLOPS and bandwidths of the GPUs. No time in it was measured.

Models: ` + strings.Join(names, ", ") + `
GPUs:   ` + strings.Join(known, ", "),
		Example: `  muster disagg profile --model llama-3-8b --gpus A100,L40S >profile.json
  muster disagg profile --model gpt-oss-20b --gpus A100,L40S --prompts 1 --sequences 1`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			i := slices.Index(names, model)
			if i < 0 {
				return badUsage(c, "--model: expected one of %s; found %q", strings.Join(names, ", "), model)
			}
			if len(gpus) == 0 {
				gpus = known
			}
			for name, n := range map[string]int{"prompts": batch.Prompts, "sequences": batch.Sequences} {
				if n < 1 || n > 65536 {
					return badUsage(c, "--%s: expected a number from 1 to 65536; found %d", name, n)
				}
			}
			p, ok := roofline.All[i].Generate(gpus, batch)
			if !ok {
				return badUsage(c, "--gpus: expected some of %s; found %s", strings.Join(known, ", "), strings.Join(gpus, ","))
			}
			return writeJSON(c.OutOrStdout(), p)
		},
	}
	c.Flags().StringVar(&model, "model", "", "the `MODEL`")
	c.Flags().StringSliceVar(&gpus, "gpus", nil, "the `LIST` of GPUs; by default all that are known")
	c.Flags().IntVar(&batch.Prompts, "prompts", batch.Prompts, "how many prompts run together")
	c.Flags().IntVar(&batch.Sequences, "sequences", batch.Sequences, "how many sequences generate together")
	return c
}

// disaggInput are the flags of what is planned or simulated.
type disaggInput struct {
	kernels             string
	gpus, links, memory []string
	shared, alike       bool
	linkLoad            float64
}

func (f *disaggInput) add(c *cobra.Command) {
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.kernels, "kernels", "", "the `FILE` with the kernels and their times (profile.json)")
	flags.StringSliceVar(&f.gpus, "gpus", nil, "the `LIST` of GPUs, by their models in the profile; a model may be repeated; by default one of each")
	flags.StringArrayVar(&f.links, "link", nil, "the `LINK` between GPUs, such as 200gbps, 200gbps/10us or A100:L40S=100gbps; can be repeated")
	flags.BoolVar(&f.shared, "shared-link", false, "a GPU sends and receives over the same bandwidth")
	flags.Float64Var(&f.linkLoad, "link-load", 1, "for throughput: the largest `SHARE` of the stage time that a GPU may receive, above 0 and at most 1")
	flags.StringSliceVar(&f.memory, "memory", nil, "the `LIST` of memories by model, such as A100=80gb, instead of the profile's")
	flags.BoolVar(&f.alike, "alike", false, "place the kernels of identical layers alike: coarser, and faster for large models")
}

func (f *disaggInput) options() plan.Options {
	return plan.Options{Alike: f.alike, LinkLoad: f.linkLoad}
}

// problem reads the profile and makes the planner's problem of it.
func (f *disaggInput) problem(c *cobra.Command) (*disagg.Profile, *plan.Problem, error) {
	if f.kernels == "" {
		return nil, nil, badUsage(c, "--kernels: expected the file of a profile; found none")
	}
	if !(f.linkLoad > 0 && f.linkLoad <= 1) {
		return nil, nil, badUsage(c, "--link-load: expected a share above 0 and at most 1; found %v", f.linkLoad)
	}
	profile, err := disagg.ReadProfile(f.kernels)
	if err != nil {
		return nil, nil, err
	}
	links, err := disagg.ParseLinks(profile.Spell(f.links))
	if err != nil {
		return nil, nil, badUsage(c, "--link: %s", err)
	}
	links.Shared = f.shared
	memory, err := disagg.ParseMemory(profile.Spell(f.memory))
	if err != nil {
		return nil, nil, badUsage(c, "--memory: %s", err)
	}
	gpus := profile.Spell(f.gpus)
	if gpus == nil {
		for _, g := range profile.GPUs {
			gpus = append(gpus, g.Name)
		}
	}
	problem, err := profile.Problem(gpus, links, memory)
	if err != nil {
		return nil, nil, badUsage(c, "--%s", err)
	}
	return profile, problem, nil
}

// disaggPlan are the flags of muster disagg plan.
type disaggPlan struct {
	disaggInput
	objective, svg string
	asJSON         bool
}

func newDisaggPlan() *cobra.Command {
	var f disaggPlan
	c := &cobra.Command{
		Use:   "plan --kernels FILE --link LINK [--gpus LIST] [--objective O]",
		Short: "Find the GPU of each kernel, with a bound on how much better any plan could be",
		Long: `Plan reads the times of kernels on several models of GPUs, and finds where each kernel
runs best. It compares that with one GPU, with independent replicas, and with splits by
phase and by attention, and says which shape wins and how far the winner can be from
the optimum. Objectives:
  throughput  the stage time of a pipeline of requests: the largest of all GPUs'
              computing and receiving times
  latency     the time of a lone request: all kernels and all transfers
A LINK is RATE or RATE/LATENCY, for all GPUs or, after A:B=, for two models; the
latency is 10us unless given.`,
		Example: `  muster disagg plan --kernels profile.json --gpus A100,L40S --link 200gbps
  muster disagg plan --kernels profile.json --link 25gbps/20us --objective latency
  muster disagg plan --kernels profile.json --gpus A100,A100,L40S --link 200gbps --link A100:A100=2400gbps
  muster disagg plan --kernels profile.json --link 200gbps --memory L40S=24gb --svg plan.svg --json`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.add(c)
	flags := c.Flags()
	flags.StringVar(&f.objective, "objective", string(plan.Throughput), "minimize for this `OBJECTIVE`: throughput or latency")
	flags.BoolVar(&f.asJSON, "json", false, "print the plan as JSON, with the GPU of each kernel")
	flags.StringVar(&f.svg, "svg", "", "write a picture of the plan to this `FILE`")
	return c
}

func (f *disaggPlan) run(c *cobra.Command) error {
	objective := plan.Objective(f.objective)
	if objective != plan.Throughput && objective != plan.Latency {
		return badUsage(c, "--objective: expected one of throughput, latency; found %q", f.objective)
	}
	_, problem, err := f.problem(c)
	if err != nil {
		return err
	}
	best, err := plan.Best(problem, objective, f.options())
	if err != nil {
		return err
	}
	if f.svg != "" {
		if err := writeFile(f.svg, func(w io.Writer) error { return disagg.Picture(w, problem, best) }); err != nil {
			return err
		}
	}
	answer := disagg.NewAnswer(problem, objective, best)
	if f.asJSON {
		return writeJSON(c.OutOrStdout(), answer)
	}
	return answer.Text(c.OutOrStdout())
}

// writeFile writes a file, whole or not at all.
func writeFile(path string, draw func(io.Writer) error) error {
	var b bytes.Buffer
	if err := draw(&b); err != nil {
		return err
	}
	part := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".part")
	if err := os.WriteFile(part, b.Bytes(), 0o644); err != nil {
		return unwritable(path, err)
	}
	if err := os.Rename(part, path); err != nil {
		os.Remove(part)
		return unwritable(path, err)
	}
	return nil
}
