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
	flags.StringVarP(&s.Name, "job-name", "J", "", "the job's `NAME`; by default derived from the command")
	flags.StringVarP(&s.Queue, "partition", "p", "", "the job's `QUEUE`; by default that of the namespace")
	flags.StringVarP(&s.Queue, "account", "A", "", "the `NAME` of the queue, as --partition")
	flags.StringVar(&s.Queue, "queue", "", "the job's `QUEUE`, as --partition")
	flags.StringVarP(&s.PriorityClass, "qos", "q", "", "the `PRIORITYCLASS` of the pods")
	flags.StringVar(&s.Image, "image", "", "the container `IMAGE` to run")
	flags.StringVar(&s.Image, "container-image", "", "the container `IMAGE`, as --image")
	flags.IntVarP(&s.Nodes, "nodes", "N", 0, "`NUMBER` of nodes; one task per node unless --ntasks is larger; all tasks start together")
	flags.IntVarP(&s.Tasks, "ntasks", "n", 0, "`NUMBER` of tasks, one pod each; all tasks start together")
	flags.IntVarP(&s.GPUs, "gpus", "G", 0, "`NUMBER` of GPUs of the whole job")
	flags.IntVar(&s.GPUsPerNode, "gpus-per-node", 0, "`NUMBER` of GPUs per node")
	flags.IntVar(&s.GPUsPerTask, "gpus-per-task", 0, "`NUMBER` of GPUs per task")
	funcVar(flags, "gres", "GRES", "the GPUs per node: gpu:8, or gpu:h100:8", func(v string) error {
		model, n, err := console.ParseGres(v)
		if model != "" {
			s.Models = model
		}
		s.GPUsPerNode = n
		return err
	})
	flags.StringVarP(&s.Models, "constraint", "C", "", "the GPU `MODELS` that the job can use, such as h100 or \"h100|a100\"")
	flags.StringVar(&s.Fraction, "gpu-fraction", "", "`FRACTION` of a GPU per task, such as 0.25")
	flags.IntVarP(&s.CPUs, "cpus-per-task", "c", 0, "`NUMBER` of CPUs per task")
	funcVar(flags, "mem", "SIZE", "memory per node, such as 64G", func(v string) (err error) {
		s.Memory, err = console.ParseMemory(v)
		return err
	})
	shortFuncVar(flags, "time", "t", "TIME", "maximum run time: minutes, 1:30:00, 2-12 (days-hours) or 36h", func(v string) (err error) {
		s.Walltime, err = console.ParseWalltime(v)
		return err
	})
	shortFuncVar(flags, "array", "a", "ARRAY", "run the job once per index, such as 0-9, or 0-9%2 for at most two at a time", func(v string) (err error) {
		s.Array, s.AtOnce, err = console.ParseArray(v)
		return err
	})
	flags.StringVar(&s.Kind, "kind", "", "the `KIND` of work: training, inference, batch or dev")
	flags.StringVar(&s.Class, "class", "", "the `CLASS`: HP, or LP, which HP jobs can preempt")
	flags.StringVar(&s.Required, "required-topology", "", "place the job within one domain of this topology `LEVEL`, or not at all")
	flags.StringVar(&s.Preferred, "preferred-topology", "", "place the job within one domain of this topology `LEVEL`, if possible")
	flags.StringVarP(&s.WorkDir, "chdir", "D", "", "the working `DIRECTORY` in the container")
	flags.StringArrayVar(&s.Env, "env", nil, "set the environment variable `NAME=VALUE`; can be repeated")
	flags.StringArrayVar(&s.Annotations, "annotation", nil, "set the annotation `KEY=VALUE` on the pods; can be repeated")
	flags.BoolVarP(&s.Hold, "hold", "H", false, "create the job suspended; it waits until it is resumed")
	flags.BoolVar(&s.NotPreemptible, "no-preempt", false, "do not evict the job for other jobs")
	flags.BoolVar(&f.requeue, "requeue", true, "restart the job after it is evicted or its node is lost")
	flags.BoolVar(&f.fails, "no-requeue", false, "let the job fail after it is evicted or its node is lost")
	flags.StringVar(&f.wrap, "wrap", "", "run this shell `COMMAND`")
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
	{"dependency", "d", "Muster has no job dependencies: submit the job after the other one is done, as in kubectl wait --for=condition=complete job/NAME && muster submit …"},
	{"begin", "b", "Muster has no start times: submit the job with --hold, and resume it with kubectl patch job NAME -p '{\"spec\":{\"suspend\":false}}'"},
	{"reservation", "", "Muster has no reservations"},
	{"exclusive", "", "Muster does not allocate whole nodes: request all GPUs of a node with --gpus-per-node"},
	{"nodelist", "w", "Muster does not take node names: describe the nodes with --constraint or --required-topology"},
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
		Long: `Submit creates a Kubernetes Job whose pods Muster schedules. Several tasks start
together or not at all. $MASTER_ADDR holds the address of task 0, and $SLURM_PROCID
the number of each task. SCRIPT is a local file. Its lines that start with #SBATCH
are read as flags; flags on the command line override them. To see the job's
output, run kubectl logs job/NAME.`,
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

// complete returns the flags with what the script says, and what to run.
func (f *submitFlags) complete(c *cobra.Command, args []string) (*submitFlags, error) {
	switch {
	case f.wrap != "" && len(args) > 0:
		return nil, badUsage(c, "--wrap: expected no command with it; found both")
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
			return badUsage(c, "--%s: expected a number from 1 to 1000000; found %d", n.flag, n.n)
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
		return nil, badUsage(c, "expected a script, or -- and a command; found %q, which is not a file", file)
	}
	if err != nil {
		return nil, unreadable(file, err)
	}
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, badUsage(c, "%s: expected a script; found a binary: write -- before a command of the image", file)
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
		fmt.Fprintf(c.ErrOrStderr(), "muster: %s: ignored options: %s; run kubectl logs job/NAME to see the job's output\n", file, strings.Join(s.noted, ", "))
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
