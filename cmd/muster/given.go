package main

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mayBeZero are the flags for which 0 is a meaningful value. For other flags, 0 means
// "not given", so a user who passes 0 expects something else.
var mayBeZero = []string{
	"seed", "port", "from", "min-duration", "window-from", // where things begin, and any port
	"start-delay", "hand-over", "evict-grace", "comm-share", "spread-cost", "gpu-jobs-use", "tracked", "settle", // a simulated world without them
	"wait", "calm", "stall", // a monitor without them
	"replace-timeout", "timeout", // no waiting, and no end of it
	"gpus-per-node", "gpus-per-task", // of muster submit: a job without GPUs
}

// checkGiven refuses flags that were given without a value: an empty text, an empty list,
// or a 0 that means "not given".
func checkGiven(c *cobra.Command) error {
	var wrong error
	c.Flags().Visit(func(f *pflag.Flag) {
		zero := slices.Contains(mayBeZero, f.Name) || c.Name() == "submit" && f.Name == "gpus"
		switch value := f.Value.String(); {
		case wrong != nil:
		case isNumber(f.Value.Type()):
			if value == f.DefValue && (value == "" || value == "0") && !zero {
				wrong = badUsage(c, "--%s: expected more than 0; found 0", f.Name)
			}
		case value == "" || value == "[]":
			wrong = badUsage(c, "--%s: expected a value; found none", f.Name)
		}
	})
	return wrong
}

// isNumber reports whether flags of a type are numbers or durations.
func isNumber(typ string) bool {
	return slices.Contains([]string{"int", "uint64", "float32", "float64", "duration", "DURATION"}, typ)
}
