package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/devcluster/apiserver"
	"github.com/muster-sched/muster/devcluster/fleet"
	"github.com/muster-sched/muster/workload"
)

// usageError is an error in the command line.
type usageError struct{ problem string }

func (e *usageError) Error() string { return e.problem }

// badUsage returns an error about the command line of c that refers to its help.
func badUsage(c *cobra.Command, format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...) + "; see " + c.CommandPath() + " --help"}
}

// strict makes c and the commands below it report each usage error in one line.
func strict(c *cobra.Command) {
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return badUsage(c, "%s", err) })
	if !c.Runnable() {
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			return badUsage(c, "unknown command %q", args[0])
		}
	} else if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return badUsage(c, "%s", err)
			}
			return nil
		}
	}
	for _, below := range c.Commands() {
		strict(below)
	}
}

// isBadInput reports whether the user can fix the cause of err.
func isBadInput(err error) bool {
	var (
		usage  *usageError
		server *apiserver.InputError
		broken *fleet.InputError
	)
	return errors.As(err, &usage) || errors.As(err, &server) || errors.As(err, &broken) || workload.IsBadInput(err)
}

// message returns what an error says.
func message(err error) string {
	if bad := (*workload.Error)(nil); errors.As(err, &bad) {
		e := *bad
		e.Want = "expected " + e.Want
		return e.Error()
	}
	return err.Error()
}
