package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/workload"
)

// Exit codes.
const (
	exitDone = iota
	exitFailed
	exitBadInput
)

// run runs the command that args ask for and returns the exit code.
// What it shows may quote what others wrote, so it passes a screen.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out, errs := table.NewScreen(stdout), table.NewScreen(stderr)
	defer func() { _ = errors.Join(out.Flush(), errs.Flush()) }()
	stdout, stderr = out, errs
	root := newRoot(isPlugin(os.Args[0]))
	strict(root)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return exitDone
	}
	if of := (*exitError)(nil); errors.As(err, &of) {
		if of.why != nil {
			fmt.Fprintln(stderr, "muster: "+message(of.why))
		}
		return of.code
	}
	fmt.Fprintln(stderr, "muster: "+message(err))
	if isBadInput(err) {
		return exitBadInput
	}
	return exitFailed
}

// isBadInput reports whether the user must change something: the command line, or a file.
func isBadInput(err error) bool {
	usage := (*usageError)(nil)
	return errors.As(err, &usage) || workload.IsBadInput(err)
}

// interruptible returns a context that the first SIGINT or SIGTERM from now on
// cancels. From a second later on another one kills the process: who sends a signal
// to a process and to its group, as timeout does, means it once. It is for what has
// something to bring to an end; all else just dies.
func interruptible(c *cobra.Command) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	return ctx, stop
}

// message returns an error in one line.
func message(err error) string {
	text := err.Error()
	if bad := (*workload.Error)(nil); errors.As(err, &bad) {
		e := *bad
		e.Want = "expected " + e.Want
		text = e.Error()
	}
	return table.Printable(strings.Join(strings.Fields(text), " "))
}

// usageError is a command line, or a file of another program that it names, that is not as it should be.
type usageError struct{ problem string }

func (e *usageError) Error() string { return e.problem }

// badUsage says what is wrong with the command line of c, and where to read on.
func badUsage(c *cobra.Command, format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...) + "; see " + c.CommandPath() + " --help"}
}

// strict makes c and the commands below it report each misuse in one line.
func strict(c *cobra.Command) {
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetFlagErrorFunc(wrongFlag)
	if c.Args == nil && !c.Runnable() {
		c.Args, c.RunE, c.DisableFlagsInUseLine = cobra.ArbitraryArgs, group, true
	}
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return badUsage(c, "%s", err)
			}
			return nil
		}
	}
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			if err := checkGiven(c); err != nil {
				return err
			}
			return run(c, args)
		}
	}
	for _, below := range c.Commands() {
		strict(below)
	}
}

// group is what a command does that only has others below it.
func group(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	var names []string
	for _, below := range c.Commands() {
		names = append(names, below.Name())
	}
	return badUsage(c, "unknown command %q%s", args[0], didYouMean(args[0], names))
}

// wrongFlag explains an error about the flags of c.
func wrongFlag(c *cobra.Command, err error) error {
	unknown, invalid := (*pflag.NotExistError)(nil), (*pflag.InvalidValueError)(nil)
	switch {
	case errors.As(err, &invalid):
		return badUsage(c, "--%s: %s; found %q", invalid.GetFlag().Name, wanted(invalid), invalid.GetValue())
	case errors.As(err, &unknown):
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		name := unknown.GetSpecifiedName()
		return badUsage(c, "unknown flag %q%s", name, didYouMean(name, names))
	}
	return badUsage(c, "%s", err)
}

// wanted says what a flag accepts.
func wanted(e *pflag.InvalidValueError) string {
	switch e.GetFlag().Value.Type() {
	case "int", "uint64":
		return "expected a whole number"
	case "float32", "float64":
		return "expected a number"
	case "bool":
		return "expected true or false"
	case "duration":
		return "expected a duration such as 500ms, 90s or 10m"
	}
	return e.Unwrap().Error()
}

// arguments accepts exactly the arguments so named.
func arguments(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return fmt.Errorf("expected no arguments; found %q", args[0])
		}
		return fmt.Errorf("expected %s; found %d arguments", strings.Join(names, " "), len(args))
	}
}
