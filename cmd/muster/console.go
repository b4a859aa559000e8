package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/kube/console"
)

// consoleFlags select the cluster.
type consoleFlags struct {
	api       apiFlags
	namespace string
}

func (f *consoleFlags) register(c *cobra.Command) {
	f.api.register(c)
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "", "the `NAMESPACE` of the jobs; by default that of the kubeconfig's context")
}

// open returns a client and the selected namespace.
func (f *consoleFlags) open(c *cobra.Command) (*console.Client, string, error) {
	client, err := f.api.client(c)
	if err != nil {
		return nil, "", err
	}
	namespace := f.namespace
	if namespace == "" {
		if namespace, _, err = f.api.clientConfig().Namespace(); err != nil {
			return nil, "", err
		}
	}
	return client, namespace, nil
}

// client returns a client of the cluster.
func (f *apiFlags) client(c *cobra.Command) (*console.Client, error) {
	config, err := f.config(c)
	if err != nil {
		return nil, err
	}
	return console.New(config)
}

// listFlags determine the format of a list, and how often it is refreshed.
type listFlags struct {
	output    string
	noHeaders bool
	watch     bool
	every     time.Duration
}

var outputs = []string{"wide", "json", "yaml"}

func (f *listFlags) register(c *cobra.Command) {
	c.Flags().StringVarP(&f.output, "output", "o", "", "output `FORMAT`: wide, json or yaml")
	c.Flags().BoolVar(&f.noHeaders, "no-headers", false, "omit the header line")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "refresh the output until interrupted")
	complete(c, "output", func() []string { return outputs })
	f.registerEvery(c)
}

func (f *listFlags) registerEvery(c *cobra.Command) {
	c.Flags().DurationVar(&f.every, "interval", 2*time.Second, "the `DURATION` between two refreshes of --watch; longer if reading the cluster is slow")
}

// check refuses invalid combinations.
func (f *listFlags) check(c *cobra.Command) error {
	switch {
	case f.output != "" && !isOneOf(f.output, outputs):
		return badUsage(c, "--output: expected wide, json or yaml; found %q", f.output)
	case f.every < 100*time.Millisecond:
		return badUsage(c, "--interval: expected a duration of at least 100ms; found %s", f.every)
	}
	return nil
}

func isOneOf(s string, list []string) bool {
	for _, l := range list {
		if s == l {
			return true
		}
	}
	return false
}

// page is something to write: as an object of JSON, or for people.
type page struct {
	object any
	text   func(io.Writer, *console.View) error
}

// show reads and writes a page, once or again and again.
func (f *listFlags) show(c *cobra.Command, v console.View, read func(context.Context) (page, error)) error {
	out := c.OutOrStdout()
	v.Wide, v.NoHeaders = f.output == "wide", f.noHeaders
	if !f.watch {
		return f.once(c.Context(), out, v, read)
	}
	ctx, stop := interruptible(c)
	defer stop()
	for {
		began := time.Now()
		var b bytes.Buffer
		v.Screen = 0
		if w, h := terminal(out); w > 0 {
			v.Screen = w
			if _, err := io.WriteString(table.Raw(out), "\x1b[H\x1b[2J"); err != nil {
				return err
			}
			var text bytes.Buffer
			if err := f.once(ctx, &text, v, read); err != nil {
				return notInterrupted(ctx, err)
			}
			b.WriteString(head(text.String(), h-1))
		} else if err := f.once(ctx, &b, v, read); err != nil {
			return notInterrupted(ctx, err)
		}
		if _, err := b.WriteTo(out); err != nil {
			return err
		}
		// A cluster that takes long to read is not read all the time.
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(f.every, 4*time.Since(began))):
		}
	}
}

// notInterrupted returns err, or nil if its cause is that ctx ended.
func notInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// head is the first lines of a text, as many as a screen has.
func head(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[:min(len(all), max(lines, 1))], "")
}

func (f *listFlags) once(ctx context.Context, out io.Writer, v console.View, read func(context.Context) (page, error)) error {
	p, err := read(ctx)
	if err != nil {
		return err
	}
	v.Now = time.Now()
	switch f.output {
	case "json":
		return writeJSON(out, p.object)
	case "yaml":
		return writeYAML(out, p.object)
	}
	if w, _ := terminal(out); w > 0 && !v.Wide {
		v.Screen = w
	}
	return p.text(out, &v)
}

// terminal returns the size of the terminal that w is; 0 when it is none.
func terminal(w io.Writer) (width, height int) {
	f, ok := table.Raw(w).(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, 0
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 80, 24
	}
	return width, height
}

// writeYAML writes what writeJSON would, as YAML.
func writeYAML(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	text, err := yaml.JSONToYAML(data)
	if err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	_, err = w.Write(text)
	return err
}
