package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/muster-sched/muster/kube/console"
	"github.com/muster-sched/muster/kube/slurm"
)

func newSubmit() *cobra.Command {
	var (
		flags             submitFlags
		api               apiFlags
		namespace, output string
		dryRun, parsable  bool
	)
	c := &cobra.Command{
		Use:   "submit [flags] {SCRIPT [ARG…] | -- COMMAND [ARG…]}",
		Short: "Submit a job to a cluster, as sbatch does",
		Long: `Submit creates a Kubernetes Job whose pods Muster schedules; they start together
or not at all. SCRIPT is a local file, with the meaning that it has for sbatch: a pod
is a node, the script runs once, in the first one, and srun starts tasks in all of
them. Its lines that start with #SBATCH are read as flags; flags on the command line
override them. COMMAND runs in each task, which is a pod of its own. To see the
output of a job, run kubectl logs job/NAME.`,
		Example: `  muster submit --gpus 8 --image pytorch/pytorch -p training -- python train.py
  muster submit -N 4 --gres=gpu:h100:8 -t 12:00:00 --image pytorch/pytorch train.sh
  muster submit --array 0-99%10 -G 1 --image my/image -- ./sweep
  muster submit --dependency afterok:train --image my/image evaluate.sh
  muster submit -N 2 --gpus-per-node 8 --image my/image --dry-run -o yaml -- ./train`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if output != "" && output != "yaml" && output != "json" {
				return badUsage(c, "--output: expected yaml or json; found %q", output)
			}
			f, err := flags.complete(c, args)
			if err != nil {
				return err
			}
			s := &f.job
			s.Namespace = namespace
			if _, err := s.Objects(); err != nil { // before anyone is asked
				return badUsage(c, "%s", f.where(err))
			}
			client, err := f.connect(c, &api, dryRun)
			if err != nil {
				return err
			}
			if s.Namespace == "" && client != nil {
				if s.Namespace, _, err = api.clientConfig().Namespace(); err != nil {
					return err
				}
			}
			if s.Models != "" && client != nil {
				if models, err := client.Models(c.Context(), s.Models); err == nil {
					s.Models = models
				} else if !dryRun {
					return err
				}
			}
			if !dryRun {
				if err := f.resolve(c, client); err != nil {
					return err
				}
			}
			o, err := s.Objects()
			if err != nil {
				return badUsage(c, "%s", f.where(err))
			}
			if !dryRun {
				if err := client.Submit(c.Context(), o); err != nil {
					return err
				}
			}
			return submitted(c.OutOrStdout(), o, output, parsable, dryRun)
		},
	}
	// What follows the script is the script's.
	c.Flags().SetInterspersed(false)
	flags.register(c.Flags())
	api.register(c)
	c.Flags().StringVar(&namespace, "namespace", "", "the `NAMESPACE` of the job; by default that of the kubeconfig's context")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "create nothing; print the objects that would be created")
	c.Flags().StringVarP(&output, "output", "o", "", "print the created objects in this `FORMAT`: yaml or json")
	c.Flags().BoolVar(&parsable, "parsable", false, "print only the job's name")
	complete(c, "output", func() []string { return []string{"yaml", "json"} })
	return c
}

// connect returns a client; nil for a dry run where there is no cluster.
func (f *submitFlags) connect(c *cobra.Command, api *apiFlags, dryRun bool) (*console.Client, error) {
	config, err := api.config(c)
	if err != nil {
		if dryRun {
			return nil, nil
		}
		return nil, err
	}
	return console.New(config)
}

// resolve refuses what the job names and does not exist, and replaces the ids of jobs after which it starts by their
// names.
func (f *submitFlags) resolve(c *cobra.Command, client *console.Client) (err error) {
	if class := f.job.PriorityClass; class != "" {
		if err := client.HasPriorityClass(c.Context(), class); err != nil {
			return err
		}
	}
	for i := range f.job.Dependency.Terms {
		if job := &f.job.Dependency.Terms[i].Job; *job != "" {
			if *job, err = client.SlurmJob(c.Context(), f.job.Namespace, *job); err != nil {
				return err
			}
		}
	}
	return nil
}

// complete returns the flags with what the script says, and what to run.
func (f *submitFlags) complete(c *cobra.Command, args []string) (*submitFlags, error) {
	switch {
	case f.wrap != "" && len(args) > 0:
		return nil, badUsage(c, "--wrap: expected no command with it; found both")
	case f.wrap != "":
		f.job.Script, f.job.File = "#!/bin/sh\n"+f.wrap+"\n", "wrap"
	case len(args) == 0:
		return nil, badUsage(c, "expected a script, or -- and a command; found nothing")
	case c.ArgsLenAtDash() == 0:
		f.job.Command = args
	default:
		return f.fromScript(c, args)
	}
	return f, f.settle(c)
}

// settle refuses what cannot be.
func (f *submitFlags) settle(c *cobra.Command) error {
	if f.refused != nil {
		return badUsage(c, "%s", f.where(f.refused))
	}
	for _, n := range []struct {
		flag string
		n    int
	}{
		{"nodes", f.job.Nodes}, {"ntasks", f.job.Tasks}, {"ntasks-per-node", f.job.TasksPerNode}, {"ntasks-per-gpu", f.job.TasksPerGPU},
		{"cpus-per-task", f.job.CPUs}, {"cpus-per-gpu", f.job.CPUsPerGPU},
	} {
		if n.n < 0 || n.n > 1_000_000 {
			return badUsage(c, "%s", f.where(&slurm.UsageError{Option: n.flag, Problem: fmt.Sprintf("expected a number from 1 to 1000000; found %d", n.n)}))
		}
	}
	if f.job.Signal.Name != "" && (f.job.Walltime <= f.job.Signal.Before || f.job.Script == "") {
		return badUsage(c, "%s", f.where(&slurm.UsageError{Option: "signal", Problem: "expected a script, and a --time that is longer than the time before its end"}))
	}
	if len(f.noted) > 0 {
		in := ""
		if f.file != "" {
			in = f.file + ": "
		}
		fmt.Fprintf(c.ErrOrStderr(), "muster: %signored options: %s; run kubectl logs job/NAME to see the job's output\n", in, strings.Join(f.noted, ", "))
	}
	f.job.NotRequeued = f.fails || !f.requeue
	return nil
}

// where says in which line of the script the option is that an error is about.
func (f *submitFlags) where(err error) error {
	usage := (*slurm.UsageError)(nil)
	if line := 0; errors.As(err, &usage) {
		if line = f.at[usage.Option]; line > 0 {
			return fmt.Errorf("%s: line %d: %w", f.file, line, err)
		}
	}
	return err
}

// fromScript returns the flags of a script, under those of the command line.
func (f *submitFlags) fromScript(c *cobra.Command, args []string) (*submitFlags, error) {
	file := args[0]
	data, err := readFile(file, 1<<20)
	if os.IsNotExist(err) {
		return nil, badUsage(c, "expected a script, or -- and a command; found %q, which is not a file", file)
	}
	if err != nil {
		return nil, unreadable(file, err)
	}
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, badUsage(c, "%s: expected a script; found a binary: write -- before a command of the image", file)
	}
	lines, err := slurm.ScriptOptions(string(data))
	if err == nil {
		err = slurm.CheckScript(string(data))
	}
	if err != nil {
		return nil, badUsage(c, "%s: %s", file, err)
	}
	s := &submitFlags{file: file, at: map[string]int{}}
	flags := pflag.NewFlagSet(file, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	s.register(flags)
	useless := map[string]bool{}
	for _, o := range uselessOptions {
		shortFuncVar(flags, o.name, o.short, "", "", func(string) error { return nil })
		if useless[o.name] = true; o.bare {
			flags.Lookup(o.name).NoOptDefVal = "yes"
		}
	}
	for _, l := range lines {
		err := flags.ParseAll(l.Args, func(flag *pflag.Flag, value string) error {
			if useless[flag.Name] {
				s.noted = append(s.noted, "--"+flag.Name)
			}
			s.at[flag.Name] = l.Line
			return flags.Set(flag.Name, value)
		})
		if err == nil && flags.NArg() > 0 {
			err = fmt.Errorf("expected options; found %q", flags.Arg(0))
		}
		if err != nil {
			return nil, badUsage(c, "%s: line %d: %s", file, l.Line, scriptProblem(err, flags))
		}
	}
	if s.refused != nil {
		return nil, badUsage(c, "%s", s.where(s.refused))
	}
	amounts := []string{"gpus", "gpus-per-node", "gpus-per-task", "gres", "gpu-fraction", "ntasks-per-gpu"}
	if slices.ContainsFunc(amounts, c.Flags().Changed) {
		// What the command line says of GPUs is in place of what the script says,
		// in whatever way.
		s.job.GPUs, s.job.GPUsPerNode, s.job.GPUsPerTask, s.job.TasksPerGPU, s.job.Fraction = 0, 0, 0, 0, ""
	}
	c.Flags().Visit(func(flag *pflag.Flag) {
		if to := flags.Lookup(flag.Name); to == nil || err != nil {
			return
		} else if from, ok := flag.Value.(pflag.SliceValue); ok {
			err = to.Value.(pflag.SliceValue).Replace(from.GetSlice())
		} else {
			err = to.Value.Set(flag.Value.String())
		}
		delete(s.at, flag.Name)
	})
	if err != nil {
		return nil, err
	}
	s.job.Script, s.job.File, s.job.Args = string(data), file, args[1:]
	return s, s.settle(c)
}

// scriptProblem explains an error about an option in a script.
func scriptProblem(err error, flags *pflag.FlagSet) string {
	unknown, invalid := (*pflag.NotExistError)(nil), (*pflag.InvalidValueError)(nil)
	switch {
	case errors.As(err, &invalid):
		return fmt.Sprintf("--%s: %s; found %q", invalid.GetFlag().Name, wanted(invalid), invalid.GetValue())
	case errors.As(err, &unknown):
		var names []string
		flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return fmt.Sprintf("unknown option %q%s", unknown.GetSpecifiedName(), didYouMean(unknown.GetSpecifiedName(), names))
	}
	return err.Error()
}

// submitted writes what was made, or would be.
func submitted(w io.Writer, made *slurm.Objects, output string, parsable, dryRun bool) error {
	var objects []any
	for _, j := range made.Jobs {
		objects = append(objects, j)
	}
	if made.Service != nil {
		objects = append(objects, made.Service)
	}
	if made.Secret != nil {
		objects = append(objects, made.Secret)
	}
	if output == "" && dryRun {
		output = "yaml"
	}
	for i, o := range objects {
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return err
		}
		delete(m, "status")
		switch output {
		case "json":
			if err := writeJSON(w, m); err != nil {
				return err
			}
		case "yaml":
			text, err := yaml.MarshalWithOptions(m, yaml.UseLiteralStyleIfMultiline(true), yaml.IndentSequence(false))
			if err != nil {
				return err
			}
			if i > 0 {
				fmt.Fprintln(w, "---")
			}
			if _, err := w.Write(text); err != nil {
				return err
			}
		}
	}
	switch {
	case output != "":
		return nil
	case parsable:
		_, err := fmt.Fprintln(w, made.Name)
		return err
	case made.Jobs[0].Name != made.Name:
		_, err := fmt.Fprintf(w, "Submitted batch job %s, an array of %d gangs: job/%s to job/%s\n", made.Name, len(made.Jobs), made.Jobs[0].Name, made.Jobs[len(made.Jobs)-1].Name)
		return err
	}
	_, err := fmt.Fprintf(w, "Submitted batch job job/%s\n", made.Name)
	return err
}

// funcVar adds a flag whose value set takes.
func funcVar(flags *pflag.FlagSet, name, kind, usage string, set func(string) error) {
	shortFuncVar(flags, name, "", kind, usage, set)
}

func shortFuncVar(flags *pflag.FlagSet, name, short, kind, usage string, set func(string) error) {
	flags.VarP(&funcFlag{set: set, kind: kind}, name, short, usage)
}

// funcFlag is a flag that hands over its value.
type funcFlag struct {
	set         func(string) error
	kind, value string
}

func (f *funcFlag) Set(s string) error {
	f.value = s
	return f.set(s)
}

func (f *funcFlag) String() string { return f.value }
func (f *funcFlag) Type() string   { return f.kind }
