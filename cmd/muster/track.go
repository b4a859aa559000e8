package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/semantic/logtext"
	"github.com/muster-sched/muster/semantic/track"
)

// trackFlags are the flags of muster track.
type trackFlags struct {
	asJSON, follow bool
	stall          float64
}

func newTrack() *cobra.Command {
	var f trackFlags
	c := &cobra.Command{
		Use:   "track LOG...",
		Short: "Show from its log how far a job is, and how fast",
		Long: `Track reads the logs of training and serving jobs, and shows the step, how many there
are, the time that a step takes, the throughput, the loss, and the time that is left.
It knows what the words of a line mean, not the formats of frameworks, so most logs
of people's own will do. A log that does not say how far its job is gets a dash:
track does not guess.

LOG is a file, also one that gzip compressed, or - for stdin. Of a file only the end is
read. The time of a step is the median of the last lines that print it, without
outliers; if none prints it, it is taken from time stamps.`,
		Example: `  muster track train.log
  kubectl logs job/llama | muster track -
  muster track --follow train.log
  kubectl logs -f job/llama | muster track --follow --stall 20 -
  muster track --json train.log`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("expected LOG; found 0 arguments")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case !(f.stall > 1):
				return badUsage(c, "--stall: expected a number above 1; found %v", f.stall)
			case f.follow && (len(args) > 1 || f.asJSON):
				return badUsage(c, "--follow: expected one LOG, and no --json")
			case c.Flags().Changed("stall") && !f.follow:
				return badUsage(c, "--stall: expected --follow too")
			case f.follow:
				return f.followLog(c, args[0])
			case f.asJSON:
				return f.readings(c, args)
			}
			return f.table(c, args)
		},
	}
	c.Flags().SortFlags = false
	c.Flags().BoolVarP(&f.follow, "follow", "f", false, "keep reading as the log grows, and say when the job stalls")
	c.Flags().Float64Var(&f.stall, "stall", 10, "with --follow: a job stalls when it prints no step for this `NUMBER` of times as long as usual, and for 10 seconds")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print every line that says how far the job is, one JSON object for each")
	return c
}

// tailBytes is how much of the end of a file is read at most.
const tailBytes = 64 << 20

// table shows where the jobs stand.
func (f *trackFlags) table(c *cobra.Command, args []string) error {
	t := table.Table{Align: "lrrrrrrr"}
	t.Add("LOG", "EPOCH", "STEP", "STEP TIME", "THROUGHPUT", "LOSS", "LEFT", "LINES")
	for _, path := range args {
		tracker, err := lastLines(path, c.InOrStdin())
		if err != nil {
			return err
		}
		p := tracker.Progress()
		t.Add(path, of(p.Epoch, p.Epochs), of(p.Step, p.TotalSteps), stepTime(p.StepTime), rate(p.Throughput, p.Unit), loss(p), left(p.Left), strconv.Itoa(p.Readings))
	}
	return t.Write(c.OutOrStdout(), 0)
}

// lastLines follows the end of a log, or all of one that cannot be read from its end.
func lastLines(path string, stdin io.Reader) (*track.Tracker, error) {
	if path != "-" {
		file, err := openLogFile(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		var head [2]byte
		_, _ = file.ReadAt(head[:], 0)
		if s, err := file.Stat(); err == nil && s.Mode().IsRegular() && !logtext.Compressed(head[:]) {
			return track.Tail(file, s.Size(), tailBytes)
		}
	}
	in, err := openLog(path, stdin)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return track.Read(in, nil)
}

// trackLine is a reading as --json prints it. What the line does not say is null.
type trackLine struct {
	File       string   `json:"file"`
	Line       int64    `json:"line_index"`
	Step       *float64 `json:"step"`
	TotalSteps *float64 `json:"total_steps"`
	Epoch      *float64 `json:"epoch"`
	StepTime   *float64 `json:"step_time_s"`
	Throughput *float64 `json:"throughput"`
	Unit       *string  `json:"throughput_unit"`
	Loss       *float64 `json:"loss"`
	NaNLoss    bool     `json:"nan_loss,omitempty"` // it is printed, and not a finite number
}

func (f *trackFlags) readings(c *cobra.Command, args []string) error {
	out := bufio.NewWriter(c.OutOrStdout())
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	for _, path := range args {
		in, err := openLog(path, c.InOrStdin())
		if err != nil {
			return err
		}
		var all []track.Reading
		_, err = track.Read(in, func(x track.Reading) { all = append(all, x) })
		in.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, x := range track.Own(all) {
			l := trackLine{File: path, Line: x.Line, Step: known(x.Step), TotalSteps: known(x.TotalSteps), Epoch: known(x.Epoch), StepTime: known(x.StepTime),
				Throughput: known(x.Throughput), Loss: known(x.Loss)}
			if l.Throughput != nil && x.Unit != "" {
				l.Unit = &x.Unit
			}
			l.NaNLoss = x.HasLoss && l.Loss == nil
			if err := e.Encode(l); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// followLog prints where the job stands, at most once a second, and that it stalls.
func (f *trackFlags) followLog(c *cobra.Command, path string) error {
	ctx, stop := interruptible(c)
	defer stop()
	in := c.InOrStdin()
	if path != "-" {
		file, err := openLogFile(path)
		if err != nil {
			return err
		}
		defer file.Close()
		in = &growing{ctx: ctx, file: file, poll: 200 * time.Millisecond}
	}
	lines := make(chan string) // without a buffer: who writes the log waits for us
	failed := make(chan error, 1)
	go func() {
		s := logtext.NewScanner(in)
		for s.Scan() {
			select {
			case lines <- string(s.Line()):
			case <-ctx.Done():
				failed <- nil
				return
			}
		}
		failed <- s.Err()
	}()
	return f.watch(ctx, c.OutOrStdout(), lines, failed)
}

// watch follows lines until they end.
func (f *trackFlags) watch(ctx context.Context, out io.Writer, lines <-chan string, failed <-chan error) error {
	var t track.Tracker
	every := time.NewTicker(time.Second)
	defer every.Stop()
	heard, news, stalled := time.Now(), false, false
	for {
		select {
		case l := <-lines:
			if _, ok := t.Line([]byte(l)); ok {
				heard, news, stalled = time.Now(), true, false
			}
		case now := <-every.C:
			p := t.Progress()
			if news {
				fmt.Fprintln(out, status(p))
				news = false
			}
			if silent := now.Sub(heard); !stalled && p.Stalled(silent.Seconds(), f.stall) {
				fmt.Fprintf(out, "stalled: no step for %s; usually one is printed every %s\n", silent.Round(time.Second), stepTime(p.Interval))
				stalled = true
			}
		case err := <-failed:
			if news {
				fmt.Fprintln(out, status(t.Progress()))
			}
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// status is where a job stands in a line.
func status(p track.Progress) string {
	var b strings.Builder
	for _, s := range []struct{ name, value string }{
		{"epoch", of(p.Epoch, p.Epochs)}, {"step", of(p.Step, p.TotalSteps)}, {"step time", stepTime(p.StepTime)}, {"throughput", rate(p.Throughput, p.Unit)},
		{"loss", loss(p)}, {"left", left(p.Left)},
	} {
		if s.value != "-" {
			if b.Len() > 0 {
				b.WriteString(", ")
			}
			b.WriteString(s.name + " " + s.value)
		}
	}
	return b.String()
}

func of(n, all float64) string {
	switch {
	case math.IsNaN(n):
		return "-"
	case math.IsNaN(all):
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return strconv.FormatFloat(n, 'f', -1, 64) + "/" + strconv.FormatFloat(all, 'f', -1, 64)
}

func stepTime(s float64) string {
	switch {
	case math.IsNaN(s):
		return "-"
	case s < 1:
		return strconv.FormatFloat(s*1000, 'g', 4, 64) + "ms"
	}
	return strconv.FormatFloat(s, 'f', 2, 64) + "s"
}

func rate(v float64, unit string) string {
	if math.IsNaN(v) {
		return "-"
	}
	return strings.TrimSpace(strconv.FormatFloat(v, 'f', 1, 64) + " " + unit)
}

func loss(p track.Progress) string {
	switch {
	case p.NaNLoss:
		return "NaN"
	case math.IsNaN(p.Loss):
		return "-"
	}
	return strconv.FormatFloat(p.Loss, 'g', 5, 64)
}

func left(s float64) string {
	if math.IsNaN(s) || s < 0 || s > 1e9 {
		return "-"
	}
	return (time.Duration(s) * time.Second).String()
}
