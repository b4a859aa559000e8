package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/disagg/analyze"
	"github.com/muster-sched/muster/disagg/instrument"
	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/workload"
)

// disaggAnalyze are the flags of muster disagg analyze.
type disaggAnalyze struct {
	trace, profile, instrument string
	gpus                       []string
	granule                    int
	asJSON                     bool
}

func newDisaggAnalyze() *cobra.Command {
	var f disaggAnalyze
	c := &cobra.Command{
		Use:   "analyze FILE.ptx... [--trace TRACE.json [--profile OUT.json --gpus LIST]] [--instrument OUT.ptx]",
		Short: "Find which memory kernels access, and which kernels thus depend on which",
		Long: `Analyze reads modules in PTX, the assembly language of NVIDIA's GPUs, and prints what each
kernel accesses in global memory, and where the text does not tell: textures, tensor maps,
calls through pointers. Such a kernel needs one GPU with all that it may access.

With --trace it reads what one or more iterations of a model did: kernels with their
arguments, copies, calls of cuBLAS and cuDNN. It runs the kernels on the CPU, or takes the
accesses that were recorded, and prints which node depends on which through which bytes.
--profile writes that as the input of muster disagg plan.

With --instrument it writes the module again, with kernels that record which bytes they
access in a buffer that is their last parameter, and says what was not instrumented.`,
		Example: `  muster disagg analyze model.ptx
  muster disagg analyze model.ptx --trace trace.json
  muster disagg analyze model.ptx --trace trace.json --profile profile.json --gpus A100,L40S
  muster disagg analyze model.ptx --instrument recording.ptx --granule 4`,
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) == 0 {
				return errors.New("expected FILE.ptx; found 0 arguments")
			}
			return nil
		},
		RunE: func(c *cobra.Command, files []string) error { return f.run(c, files) },
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.trace, "trace", "", "analyze the nodes of this `FILE`")
	flags.StringVar(&f.profile, "profile", "", "with --trace: write a profile for muster disagg plan to this `FILE`")
	flags.StringSliceVar(&f.gpus, "gpus", nil, "with --profile: the `LIST` of GPUs; times that the trace lacks are by a roofline of published figures")
	flags.StringVar(&f.instrument, "instrument", "", "write the module with kernels that record what they access to this `FILE`, and print its sites as JSON")
	flags.IntVar(&f.granule, "granule", 0, "with --instrument: also record bitmaps of granules of these `BYTES`, a power of two")
	flags.BoolVar(&f.asJSON, "json", false, "print the kernels, or with --trace the graph, as JSON")
	return c
}

func (f *disaggAnalyze) run(c *cobra.Command, files []string) error {
	switch {
	case f.instrument != "" && (len(files) != 1 || f.trace != ""):
		return badUsage(c, "--instrument: expected one FILE.ptx and no --trace; found %d", len(files))
	case f.profile != "" && (f.trace == "" || len(f.gpus) == 0):
		return badUsage(c, "--profile: expected --trace and --gpus as well")
	}
	var modules []*ptx.Module
	var kernels []analyze.Kernel
	for _, file := range files {
		m, err := readPTX(file)
		if err != nil {
			return err
		}
		modules = append(modules, m)
		kernels = append(kernels, analyze.Kernels(m)...)
	}
	switch {
	case f.instrument != "":
		return instrumented(c, files[0], modules[0], f.instrument, f.granule)
	case f.trace != "":
		return f.graph(c, modules)
	case f.asJSON:
		return writeJSON(c.OutOrStdout(), map[string]any{"kernels": kernels})
	}
	return analyze.WriteKernels(c.OutOrStdout(), kernels)
}

// graph analyzes a trace.
func (f *disaggAnalyze) graph(c *cobra.Command, modules []*ptx.Module) error {
	t, err := analyze.ReadTrace(f.trace)
	if err != nil {
		return err
	}
	g, err := analyze.Analyze(f.trace, t, modules)
	if err != nil {
		return err
	}
	if f.profile != "" {
		p, err := g.Profile(f.gpus)
		if err != nil {
			return &workload.Error{File: f.trace, Want: err.Error()}
		}
		if err := writeJSONFile(f.profile, p); err != nil {
			return err
		}
	}
	if f.asJSON {
		return writeJSON(c.OutOrStdout(), g)
	}
	return analyze.WriteGraph(c.OutOrStdout(), g)
}

// readPTX reads a module.
func readPTX(file string) (*ptx.Module, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, &workload.Error{File: file, Want: fmt.Sprintf("a file that can be read; found: %v", err)}
	}
	m, err := ptx.Parse(string(data))
	var wrong *ptx.Error
	if errors.As(err, &wrong) {
		return nil, &workload.Error{File: file, Line: wrong.Line, Want: wrong.Want}
	}
	return m, err
}

// instrumented writes a module with kernels that record what they access.
func instrumented(c *cobra.Command, file string, m *ptx.Module, out string, granule int) error {
	r, err := instrument.Rewrite(m, instrument.Options{Granule: granule})
	if err != nil {
		return &workload.Error{File: file, Want: err.Error()}
	}
	err = writeFile(out, func(w io.Writer) error {
		_, err := io.WriteString(w, r.Text)
		return err
	})
	if err != nil {
		return err
	}
	return writeJSON(c.OutOrStdout(), map[string]any{"granule": granule, "sites": r.Sites, "limits": r.Limits})
}
