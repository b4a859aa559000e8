package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-sched/muster/internal/hostlist"
	"github.com/muster-sched/muster/kube/after"
	"github.com/muster-sched/muster/kube/slurm"
)

// submitFlags are those of submit that a script may have too.
type submitFlags struct {
	job     slurm.Submission
	wrap    string
	requeue bool
	fails   bool     // when it is evicted, for good
	noted   []string // options that have no effect here
	refused error

	file string         // the script
	at   map[string]int // the line of the script that has an option
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
	f.registerSize(flags)
	f.registerWhen(flags)
	flags.StringVar(&s.Kind, "kind", "", "the `KIND` of work: training, inference, batch or dev")
	flags.StringVar(&s.Class, "class", "", "the `CLASS`: HP, or LP, which HP jobs can preempt")
	flags.StringVar(&s.Required, "required-topology", "", "place the job within one domain of this topology `LEVEL`, or not at all")
	flags.StringVar(&s.Preferred, "preferred-topology", "", "place the job within one domain of this topology `LEVEL`, if possible")
	flags.StringVarP(&s.WorkDir, "chdir", "D", "", "the working `DIRECTORY` in the container")
	flags.StringArrayVar(&s.Env, "env", nil, "set the environment variable `NAME=VALUE`; can be repeated")
	flags.StringArrayVar(&s.Annotations, "annotation", nil, "set the annotation `KEY=VALUE` on the pods; can be repeated")
	flags.StringVar(&s.Comment, "comment", "", "any `TEXT`, kept as an annotation of the Job")
	flags.BoolVarP(&s.Hold, "hold", "H", false, "create the job suspended; it waits until it is resumed")
	flags.BoolVar(&s.NotPreemptible, "no-preempt", false, "do not evict the job for other jobs")
	flags.BoolVar(&f.requeue, "requeue", true, "restart the job after it is evicted or its node is lost")
	flags.BoolVar(&f.fails, "no-requeue", false, "let the job fail after it is evicted or its node is lost")
	flags.StringVar(&f.wrap, "wrap", "", "run this shell `COMMAND` as a script")
	f.registerRefused(flags)
}

// registerSize adds the flags that say how large a job is.
func (f *submitFlags) registerSize(flags *pflag.FlagSet) {
	s := &f.job
	flags.IntVarP(&s.Nodes, "nodes", "N", 0, "`NUMBER` of nodes; one task per node unless more are given; all start together")
	flags.IntVarP(&s.Tasks, "ntasks", "n", 0, "`NUMBER` of tasks; all start together")
	flags.IntVar(&s.TasksPerNode, "ntasks-per-node", 0, "`NUMBER` of tasks per node")
	gpus := func(name, short, usage string, count *int) {
		shortFuncVar(flags, name, short, "GPUS", usage, func(v string) error {
			g, err := slurm.ParseGPUs(v)
			if g.Model != "" {
				s.Models = g.Model
			}
			*count = g.Count
			return err
		})
	}
	gpus("gpus", "G", "GPUs of the whole job: 16, or h100:16", &s.GPUs)
	gpus("gpus-per-node", "", "GPUs per node: 8, or h100:8", &s.GPUsPerNode)
	gpus("gpus-per-task", "", "GPUs per task: 1, or h100:1", &s.GPUsPerTask)
	flags.IntVar(&s.TasksPerGPU, "ntasks-per-gpu", 0, "`NUMBER` of tasks per GPU")
	funcVar(flags, "gres", "GRES", "the GPUs per node: gpu:8, or gpu:h100:8", func(v string) error {
		g, err := slurm.ParseGres(v)
		if g.Model != "" {
			s.Models = g.Model
		}
		s.GPUsPerNode = g.Count
		return err
	})
	flags.StringVarP(&s.Models, "constraint", "C", "", "the GPU `MODELS` that the job can use, such as h100 or \"h100|a100\"")
	flags.StringVar(&s.Fraction, "gpu-fraction", "", "`FRACTION` of a GPU per pod, such as 0.25")
	flags.IntVarP(&s.CPUs, "cpus-per-task", "c", 0, "`NUMBER` of CPUs per task")
	flags.IntVar(&s.CPUsPerGPU, "cpus-per-gpu", 0, "`NUMBER` of CPUs per GPU")
	memory := func(name, usage string, to *resource.Quantity) {
		funcVar(flags, name, "SIZE", usage, func(v string) (err error) {
			if name == "mem" && v == "0" {
				return errors.New("expected memory such as 64G: Muster does not allocate whole nodes")
			}
			*to, err = slurm.ParseMemory(v)
			return err
		})
	}
	memory("mem", "memory per node, such as 64G", &s.Memory)
	memory("mem-per-cpu", "memory per CPU, such as 4G", &s.MemPerCPU)
	memory("mem-per-gpu", "memory per GPU, such as 64G", &s.MemPerGPU)
}

// registerWhen adds those that say when, how often and on which nodes it runs, and with which variables.
func (f *submitFlags) registerWhen(flags *pflag.FlagSet) {
	s := &f.job
	shortFuncVar(flags, "time", "t", "TIME", "maximum run time: minutes, 1:30:00, 2-12 (days-hours) or 36h", func(v string) (err error) {
		s.Walltime, err = slurm.ParseWalltime(v)
		return err
	})
	shortFuncVar(flags, "array", "a", "ARRAY", "run the job once per index, such as 1-10, 1,4,7 or 0-20:5, or 0-9%2 for at most two at a time", func(v string) (err error) {
		s.Array, err = slurm.ParseArray(v)
		return err
	})
	shortFuncVar(flags, "dependency", "d", "DEPENDENCY", "start after other jobs: afterok:JOB, afterany:JOB, afternotok:JOB, after:JOB or singleton", func(v string) (err error) {
		s.Dependency, err = after.Parse(v)
		return err
	})
	funcVar(flags, "signal", "SIGNAL", "signal the steps, or with B: the script, before the time limit: USR1@120, B:USR1@120", func(v string) (err error) {
		s.Signal, err = slurm.ParseSignal(v)
		return err
	})
	funcVar(flags, "export", "NAMES", "set variables: NAME=VALUE, or NAME with its value here; separated by commas", f.export)
	nodes := func(name, short, usage string, to *[]string) {
		shortFuncVar(flags, name, short, "NODES", usage, func(v string) (err error) {
			*to, err = hostlist.Parse(v)
			return err
		})
	}
	nodes("nodelist", "w", "run on these nodes, on all of them, such as n1,n[3-4]", &s.NodeList)
	nodes("exclude", "x", "do not run on these nodes, such as n1,n[3-4]", &s.Exclude)
}

// registerRefused adds those that cannot be done.
func (f *submitFlags) registerRefused(flags *pflag.FlagSet) {
	for _, o := range refusedOptions {
		shortFuncVar(flags, o.name, o.short, "", "", func(string) error {
			if f.refused == nil {
				f.refused = &slurm.UsageError{Option: o.name, Problem: o.instead}
			}
			return nil
		})
		flag := flags.Lookup(o.name)
		flag.Hidden = true
		if o.bare {
			flag.NoOptDefVal = "yes"
		}
	}
}

// export reads what --export names. What the shell of the user has is not copied to the image, which has an
// environment of its own.
func (f *submitFlags) export(v string) error {
	for name := range strings.SplitSeq(v, ",") {
		switch key, _, valued := strings.Cut(name, "="); {
		case name == "ALL":
			f.noted = append(f.noted, "--export=ALL (the image has an environment of its own: name variables, as in --export=HOME,LR=0.1)")
		case name == "NONE" || name == "NIL":
		case key == "":
			return fmt.Errorf("expected NAME=VALUE, NAME, ALL or NONE, separated by commas")
		case valued:
			f.job.Env = append(f.job.Env, name)
		default:
			if value, ok := os.LookupEnv(name); ok {
				f.job.Env = append(f.job.Env, name+"="+value)
			}
		}
	}
	return nil
}

// refusedOptions are options of sbatch that cannot be done here, and what to do
// in their place. Those that are bare have no value, or one after =.
var refusedOptions = []struct {
	name, short, instead string
	bare                 bool
}{
	{name: "begin", short: "b", instead: "Muster has no start times: submit the job with --hold, and resume it with kubectl patch job NAME -p '{\"spec\":{\"suspend\":false}}'"},
	{name: "deadline", instead: "Muster has no deadlines: use --time"},
	{name: "reservation", instead: "Muster has no reservations"},
	{name: "exclusive", instead: "Muster does not allocate whole nodes: request all GPUs of a node with --gpus-per-node, and leave this out", bare: true},
	{name: "mincpus", instead: "use --cpus-per-task"},
	{name: "tmp", instead: "Muster allocates no local disk here: mount a volume"},
	{name: "licenses", short: "L", instead: "Muster has no licenses: a queue can bound how many jobs run (maxRunningJobs)"},
	{name: "switches", instead: "use --required-topology leaf, or --preferred-topology leaf"},
	{name: "nice", instead: "use --qos, which names a PriorityClass", bare: true},
	{name: "priority", instead: "use --qos, which names a PriorityClass"},
	{name: "clusters", short: "M", instead: "name the cluster with --context"},
	{name: "nodefile", short: "F", instead: "list the nodes with --nodelist"},
	{name: "contiguous", instead: "use --required-topology", bare: true},
	{name: "spread-job", instead: "ask for all GPUs of a node with --gpus-per-node", bare: true},
	{name: "use-min-nodes", instead: "say how many with --nodes", bare: true},
	{name: "no-kill", short: "k", instead: "a job that lost a node starts again", bare: true},
	{name: "time-min", instead: "use --time"},
	{name: "wait", short: "W", instead: "use kubectl wait --for=condition=complete job/NAME after it", bare: true},
	{name: "test-only", instead: "use --dry-run", bare: true},
	{name: "gpu-freq", instead: "Muster does not set clocks"},
	{name: "gpu-bind", instead: "use --gpus-per-task or --ntasks-per-gpu, or srun --gpu-bind"},
	{name: "sockets-per-node", instead: "use --cpus-per-task"},
	{name: "cores-per-socket", instead: "use --cpus-per-task"},
	{name: "ntasks-per-core", instead: "use --cpus-per-task"},
	{name: "ntasks-per-socket", instead: "use --ntasks-per-node"},
	{name: "extra-node-info", short: "B", instead: "use --cpus-per-task"},
	{name: "core-spec", short: "S", instead: "use --cpus-per-task"},
	{name: "distribution", short: "m", instead: "tasks fill one node after the other; leave this out"},
	{name: "container-mounts", instead: "volumes are mounted by the Job: add them to what --dry-run prints"},
	{name: "container-workdir", instead: "use --chdir"},
	{name: "container-name", instead: "name an image with --container-image"},
	{name: "het-group", instead: "a job has pods of one shape: submit a job for each"},
	{name: "uid", instead: "the user is that of the image, or of securityContext in what --dry-run prints"},
	{name: "gid", instead: "the user is that of the image, or of securityContext in what --dry-run prints"},
	{name: "bb", instead: "Muster has no burst buffers: mount a volume"},
}

// uselessOptions are those that scripts have and that mean nothing here.
var uselessOptions = []struct {
	name, short string
	bare        bool
}{
	{name: "output", short: "o"}, {name: "error", short: "e"}, {name: "input", short: "i"}, {name: "open-mode"}, {name: "mail-type"}, {name: "mail-user"},
	{name: "parsable", bare: true}, {name: "quiet", short: "Q", bare: true}, {name: "verbose", short: "v", bare: true}, {name: "get-user-env", bare: true},
	{name: "propagate", bare: true}, {name: "profile"}, {name: "acctg-freq"}, {name: "wckey"}, {name: "hint"}, {name: "mem-bind"}, {name: "threads-per-core"},
	{name: "oversubscribe", short: "s", bare: true}, {name: "overcommit", short: "O", bare: true}, {name: "reboot", bare: true}, {name: "kill-on-invalid-dep"},
}
