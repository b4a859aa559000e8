package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/muster-sched/muster/kube/console"
)

// submitFlags are those of submit that a script may have too.
type submitFlags struct {
	job     console.Submission
	wrap    string
	requeue bool
	fails   bool     // when it is evicted, for good
	noted   []string // options that have no effect here
	refused error
}

func (f *submitFlags) register(flags *pflag.FlagSet) {
	s := &f.job
	flags.StringVarP(&s.Name, "job-name", "J", "", "the job's `NAME`; by default one made up from the command")
	flags.StringVarP(&s.Queue, "partition", "p", "", "the `QUEUE` to wait in; by default that of the namespace")
	flags.StringVarP(&s.Queue, "account", "A", "", "the same as --partition")
	flags.StringVar(&s.Queue, "queue", "", "the same as --partition")
	flags.StringVarP(&s.PriorityClass, "qos", "q", "", "the `PRIORITYCLASS` of the pods")
	flags.StringVar(&s.Image, "image", "", "the container `IMAGE` to run")
	flags.StringVar(&s.Image, "container-image", "", "the same as --image")
	flags.IntVarP(&s.Nodes, "nodes", "N", 0, "run on so many nodes, a task each unless --ntasks says more; all start together")
	flags.IntVarP(&s.Tasks, "ntasks", "n", 0, "run so many tasks, a pod each; all start together")
	flags.IntVarP(&s.GPUs, "gpus", "G", 0, "so many GPUs for the whole job")
	flags.IntVar(&s.GPUsPerNode, "gpus-per-node", 0, "so many GPUs for each node")
	flags.IntVar(&s.GPUsPerTask, "gpus-per-task", 0, "so many GPUs for each task")
	funcVar(flags, "gres", "GRES", "the GPUs of each node: gpu:8, or gpu:h100:8", func(v string) error {
		model, n, err := console.ParseGres(v)
		if model != "" {
			s.Models = model
		}
		s.GPUsPerNode = n
		return err
	})
	flags.StringVarP(&s.Models, "constraint", "C", "", "the GPU `MODELS` that will do, such as h100 or \"h100|a100\"")
	flags.StringVar(&s.Fraction, "gpu-fraction", "", "a `PART` of a GPU for each task, such as 0.25")
	flags.IntVarP(&s.CPUs, "cpus-per-task", "c", 0, "so many CPUs for each task")
	funcVar(flags, "mem", "SIZE", "so much memory for each node, such as 64G", func(v string) (err error) {
		s.Memory, err = console.ParseMemory(v)
		return err
	})
	shortFuncVar(flags, "time", "t", "TIME", "the longest it may run: minutes, 1:30:00, 2-12 (days-hours) or 36h", func(v string) (err error) {
		s.Walltime, err = console.ParseWalltime(v)
		return err
	})
	shortFuncVar(flags, "array", "a", "ARRAY", "run it so many times, such as 0-9, or 0-9%2 for two at a time", func(v string) (err error) {
		s.Array, s.AtOnce, err = console.ParseArray(v)
		return err
	})
	flags.StringVar(&s.Kind, "kind", "", "what it does: training, inference, batch or dev")
	flags.StringVar(&s.Class, "class", "", "HP or LP: LP gives way to HP")
	flags.StringVar(&s.Required, "required-topology", "", "the topology `LEVEL` of which one domain must hold the job")
	flags.StringVar(&s.Preferred, "preferred-topology", "", "the topology `LEVEL` of which one domain should hold the job")
	flags.StringVarP(&s.WorkDir, "chdir", "D", "", "run in this `FOLDER` of the image")
	flags.StringArrayVar(&s.Env, "env", nil, "set a variable, `NAME=VALUE`; may be repeated")
	flags.StringArrayVar(&s.Annotations, "annotation", nil, "give the pods an annotation, `KEY=VALUE`; may be repeated")
	flags.BoolVarP(&s.Hold, "hold", "H", false, "make it suspended: it waits until it is resumed")
	flags.BoolVar(&s.NotPreemptible, "no-preempt", false, "do not evict it for other jobs")
	flags.BoolVar(&f.requeue, "requeue", true, "start it again after it was evicted or its node was lost")
	flags.BoolVar(&f.fails, "no-requeue", false, "let it fail instead")
	flags.StringVar(&f.wrap, "wrap", "", "run this `COMMAND` of the shell")
	for _, o := range refusedOptions {
		o := o
		shortFuncVar(flags, o.name, o.short, "", "", func(string) error {
			if f.refused == nil {
				f.refused = fmt.Errorf("--%s: %s", o.name, o.instead)
			}
			return nil
		})
		flags.Lookup(o.name).Hidden = true
	}
}

// refusedOptions are options of sbatch that cannot be done here, and what to do
// in their place.
var refusedOptions = []struct{ name, short, instead string }{
	{"dependency", "d", "a job cannot wait for another: submit it when that is done, as in kubectl wait --for=condition=complete job/NAME && muster submit …"},
	{"begin", "b", "a job cannot wait for a time: submit it with --hold, and resume it with kubectl patch job NAME -p '{\"spec\":{\"suspend\":false}}'"},
	{"reservation", "", "there are no reservations"},
	{"exclusive", "", "nodes are not taken whole: ask for all GPUs of a node with --gpus-per-node"},
	{"nodelist", "w", "nodes are not named: ask for what they must have, with --constraint or --required-topology"},
}

// uselessOptions are those that scripts have and that mean nothing here.
var uselessOptions = []struct{ name, short string }{
	{"output", "o"}, {"error", "e"}, {"input", "i"}, {"open-mode", ""}, {"export", ""}, {"mail-type", ""}, {"mail-user", ""}, {"comment", ""}, {"signal", ""},
}

func newSubmit() *cobra.Command {
	var (
		flags     submitFlags
		api       apiFlags
		namespace string
		dryRun    bool
		output    string
		parsable  bool
	)
	c := &cobra.Command{
		Use:   "submit [flags] {SCRIPT [ARG…] | -- COMMAND [ARG…]}",
		Short: "Submit a job to a cluster, as sbatch does",
		Long: `Submit makes a Job of Kubernetes whose pods Muster schedules. Several tasks start
together or not at all; task 0 is found under the name in $MASTER_ADDR, and each
has its number in $SLURM_PROCID. SCRIPT is a file here; its lines that start with
#SBATCH are read as flags, and those on the command line count for more. What the
job writes: kubectl logs job/NAME.`,
		Example: `  muster submit --gpus 8 --image pytorch/pytorch -p training -- python train.py
  muster submit -N 4 --gres=gpu:h100:8 -t 12:00:00 --image pytorch/pytorch train.sh
  muster submit --array 0-99%10 -G 1 --image my/image -- ./sweep
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
				models, err := client.Models(c.Context(), s.Models)
				if err != nil && !dryRun {
					return err
				} else if err == nil {
					s.Models = models
				}
			}
			job, service, err := s.Objects()
			if usage := (*console.UsageError)(nil); errors.As(err, &usage) {
				return badUsage(c, "%s", err)
			} else if err != nil {
				return err
			}
			if !dryRun {
				if err := client.Submit(c.Context(), job, service); err != nil {
					return err
				}
			}
			return submitted(c.OutOrStdout(), job, service, output, parsable, dryRun)
		},
	}
	// What follows the script is the script's.
	c.Flags().SetInterspersed(false)
	flags.register(c.Flags())
	api.register(c)
	c.Flags().StringVar(&namespace, "namespace", "", "the `NAMESPACE` to make it in; by default that of the kubeconfig's context")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "make nothing; print what would be made")
	c.Flags().StringVarP(&output, "output", "o", "", "print what is made as yaml or json")
	c.Flags().BoolVar(&parsable, "parsable", false, "print the job's name alone")
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

// complete returns the flags with what the script says, and what to run.
func (f *submitFlags) complete(c *cobra.Command, args []string) (*submitFlags, error) {
	switch {
	case f.wrap != "" && len(args) > 0:
		return nil, badUsage(c, "--wrap: expected it or a command; found both")
	case f.wrap != "":
		f.job.Command = []string{"/bin/sh", "-c", f.wrap}
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
		return badUsage(c, "%s", f.refused)
	}
	for _, n := range []struct {
		flag string
		n    int
	}{
		{"nodes", f.job.Nodes}, {"ntasks", f.job.Tasks}, {"gpus", f.job.GPUs}, {"gpus-per-node", f.job.GPUsPerNode},
		{"gpus-per-task", f.job.GPUsPerTask}, {"cpus-per-task", f.job.CPUs},
	} {
		if n.n < 0 || n.n > 1_000_000 {
			return badUsage(c, "--%s: expected a number, 1 to 1000000; found %d", n.flag, n.n)
		}
	}
	f.job.NotRequeued = f.fails || !f.requeue
	return nil
}

// fromScript returns the flags of a script, under those of the command line.
func (f *submitFlags) fromScript(c *cobra.Command, args []string) (*submitFlags, error) {
	file := args[0]
	data, err := readFile(file, 1<<20)
	if os.IsNotExist(err) {
		return nil, badUsage(c, "expected a script, or -- and a command; found %q, which is no file", file)
	}
	if err != nil {
		return nil, unreadable(file, err)
	}
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, badUsage(c, "%s: expected a script; found a program: to run one that is in the image write -- before it", file)
	}
	lines, err := console.ScriptOptions(string(data))
	if err != nil {
		return nil, badUsage(c, "%s: %s", file, err)
	}
	s := &submitFlags{}
	flags := pflag.NewFlagSet(file, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	s.register(flags)
	useless := map[string]bool{}
	for _, o := range uselessOptions {
		shortFuncVar(flags, o.name, o.short, "", "", func(string) error { return nil })
		useless[o.name] = true
	}
	for _, l := range lines {
		err := flags.ParseAll(l.Args, func(flag *pflag.Flag, value string) error {
			if useless[flag.Name] {
				s.noted = append(s.noted, "--"+flag.Name)
			}
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
		return nil, badUsage(c, "%s: %s", file, s.refused)
	}
	amounts := []string{"gpus", "gpus-per-node", "gpus-per-task", "gres", "gpu-fraction"}
	if slices.ContainsFunc(amounts, c.Flags().Changed) {
		// What the command line says of GPUs is in place of what the script says,
		// in whatever way.
		s.job.GPUs, s.job.GPUsPerNode, s.job.GPUsPerTask, s.job.Fraction = 0, 0, 0, ""
	}
	c.Flags().Visit(func(flag *pflag.Flag) {
		if to := flags.Lookup(flag.Name); to == nil || err != nil {
			return
		} else if from, ok := flag.Value.(pflag.SliceValue); ok {
			err = to.Value.(pflag.SliceValue).Replace(from.GetSlice())
		} else {
			err = to.Value.Set(flag.Value.String())
		}
	})
	if err != nil {
		return nil, err
	}
	if len(s.noted) > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "muster: %s: without effect here: %s; what the job writes is in kubectl logs job/NAME\n", file, strings.Join(s.noted, ", "))
	}
	s.job.Script, s.job.Command = string(data), append([]string{filepath.Base(file)}, args[1:]...)
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
func submitted(w io.Writer, job *batchv1.Job, service *v1.Service, output string, parsable, dryRun bool) error {
	objects := []any{job}
	if service != nil {
		objects = append(objects, service)
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
		_, err := fmt.Fprintln(w, job.Name)
		return err
	}
	_, err := fmt.Fprintf(w, "Submitted batch job job/%s\n", job.Name)
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
