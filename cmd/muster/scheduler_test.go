package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A log line has at most some kilobytes of what a tenant wrote, and whole stacks.
func TestLogLinesAreBounded(t *testing.T) {
	for _, format := range logFormats {
		var b bytes.Buffer
		log, err := (&logFlags{level: "info", format: format}).to(&cobra.Command{}, &b)
		if err != nil {
			t.Fatal(err)
		}
		long := strings.Repeat("é", 200_000)
		log.Info("x", "value", long, "error", errors.New(long), "short", "s", "n", 7)
		if n := b.Len(); n < 2*mostLogged || n > 2*mostLogged+1000 {
			t.Errorf("%s: the line has %d bytes", format, n)
		}
		b.Reset()
		if log.Error("x", "stacks", long); b.Len() < len(long) {
			t.Errorf("%s: stacks are cut to %d bytes", format, b.Len())
		}
	}
}
