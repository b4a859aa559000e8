package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/kube/console"
	"github.com/muster-sched/muster/semantic/consult"
	"github.com/muster-sched/muster/semantic/llm"
	"github.com/muster-sched/muster/semantic/logtext"
	"github.com/muster-sched/muster/semantic/track"
)

// trackFlags are the flags of muster track.
type trackFlags struct {
	from           sourceFlags
	ask            llmFlags
	models         *models // nil without any
	asJSON, follow bool
	stall          float64
}

func newTrack() *cobra.Command {
	var f trackFlags
	c := &cobra.Command{
		Use:   "track {LOG... | --job JOB}",
		Short: "Show from its log how far a job is, and how fast",
		Long: `Track reads the logs of training and serving jobs, and shows the step, how many there
are, the time that a step takes, the throughput, the loss, and the time that is left.
It knows what the words of a line mean, not the formats of frameworks, so most logs
of people's own will do. A log that does not say how far its job is gets a dash:
track does not guess.

LOG is a file, also one that gzip compressed, or - for stdin. Of a file only the end is
read. The time of a step is the median of the last lines that print it, without
outliers; if none prints it, it is taken from time stamps.

With --llm-config it asks a language model about the last lines of logs that it does not
understand. A figure counts if its line has it.

With --job it reads the last lines of the logs of a job's pods on the Kubernetes cluster
in the kubeconfig, and shows the pods whose logs say something.`,
		Example: `  muster track train.log
  muster track --follow train.log
  muster track --job llama -n team-a
  muster track --job pod/llama-0 --follow
  ssh login1 tail -f slurm-881.out | muster track --follow --stall 20 -
  muster track --json train.log
  muster track --llm-config semantic.yaml homemade.log`,
		Args: f.from.arguments,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case !(f.stall > 1):
				return badUsage(c, "--stall: expected a number above 1; found %v", f.stall)
			case f.follow && (len(args) > 1 || f.asJSON):
				return badUsage(c, "--follow: expected one LOG or --job, and no --json")
			case c.Flags().Changed("stall") && !f.follow:
				return badUsage(c, "--stall: expected --follow too")
			case f.follow && f.ask.config != "":
				return badUsage(c, "--follow: expected no --llm-config")
			}
			logs, err := f.from.logs(c, args)
			if err != nil {
				return err
			}
			var done func()
			if f.models, done, err = f.ask.forLogs(c, logs); err != nil {
				return err
			}
			defer done()
			switch {
			case f.follow:
				return f.followLog(c, logs)
			case f.asJSON:
				return f.readings(c, logs)
			}
			return f.table(c, logs)
		},
	}
	c.Flags().SortFlags = false
	c.Flags().BoolVarP(&f.follow, "follow", "f", false, "keep reading as the log grows, and say when the job stalls")
	c.Flags().Float64Var(&f.stall, "stall", 10, "with --follow: a job stalls when it prints no step for this `NUMBER` of times as long as usual, and for 10 seconds")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print every line that says how far the job is, one JSON object for each")
	f.ask.register(c)
	f.from.register(c)
	return c
}

// tailBytes is how much of the end of a file is read at most.
const tailBytes = 64 << 20

// tailLines is how much of the end of a pod's log is read: many times the lines that Progress looks at.
const tailLines = 5000

// table shows where the jobs stand.
func (f *trackFlags) table(c *cobra.Command, logs []jobLog) error {
	at, asked := make([]track.Progress, len(logs)), make([]bool, len(logs))
	var several errgroup.Group
	several.SetLimit(8) // of many pods, at once
	for i := range logs {
		several.Go(func() error {
			tracker, err := logs[i].lastLines(c)
			if err != nil {
				return logs[i].wrong(err)
			}
			at[i] = tracker.Progress()
			if all := f.readByModel(c, &logs[i], console.LogPart{Lines: tailLines}, at[i].Readings > 0); all != nil {
				at[i], asked[i] = followed(all), true
			}
			return nil
		})
	}
	if err := several.Wait(); err != nil {
		return err
	}
	head := "LOG"
	if f.from.job != "" {
		head = "POD"
	}
	t := table.Table{Align: "lrrrrrrr"}
	t.Add(head, "EPOCH", "STEP", "STEP TIME", "THROUGHPUT", "LOSS", "LEFT", "LINES")
	silent := 0
	for i := range at {
		p := &at[i]
		if p.Readings == 0 && logs[i].pod != nil {
			silent++
			continue
		}
		t.Add(logs[i].name, of(p.Epoch, p.Epochs), of(p.Step, p.TotalSteps), stepTime(p.StepTime), rate(p.Throughput, p.Unit), loss(*p), left(p.Left), strconv.Itoa(p.Readings))
	}
	if err := t.Write(c.OutOrStdout(), 0); err != nil {
		return err
	}
	for i := range asked {
		if asked[i] {
			fmt.Fprintf(c.OutOrStdout(), "%s: a language model was asked.\n", table.Printable(logs[i].name))
		}
	}
	for i := range at {
		if at[i].Readings == 0 && logs[i].pod == nil {
			fmt.Fprintf(c.OutOrStdout(), "%s: no line says how far the job is.\n", table.Printable(logs[i].name))
		}
	}
	if silent == 0 {
		return nil
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "The logs of %d of %d pods do not say how far the job is.\n", silent, len(logs))
	return err
}

// lastLines follows the end of a log, or all of one that cannot be read from its end.
func (l *jobLog) lastLines(c *cobra.Command) (*track.Tracker, error) {
	file := l.copy
	if file == nil && l.pod == nil && l.name != "-" {
		var err error
		if file, err = openLogFile(l.name); err != nil {
			return nil, err
		}
		defer file.Close()
	}
	if file != nil {
		head := make([]byte, logtext.Head)
		n, _ := file.ReadAt(head, 0)
		if s, err := file.Stat(); err == nil && s.Mode().IsRegular() && !logtext.Compressed(head[:n]) {
			if !logtext.IsText(head[:n]) {
				return nil, unreadable(l.name, logtext.ErrNotText)
			}
			return track.Tail(file, s.Size(), tailBytes)
		}
	}
	in, err := l.open(c, console.LogPart{Lines: tailLines})
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return track.Read(in)
}

// followed returns where a job stands by readings.
func followed(all []*track.Reading) track.Progress {
	var t track.Tracker
	for _, x := range all {
		t.Add(*x)
	}
	return t.Progress()
}

// progressLines is how many lines at the end of a log are searched for what a language model is asked about.
const progressLines = 2000

// readByModel asks a language model about a log that is not understood otherwise. It returns nil if there is no need, no model or no answer.
func (f *trackFlags) readByModel(c *cobra.Command, log *jobLog, part console.LogPart, understood bool) []*track.Reading {
	if understood || f.models == nil || f.models.llm == nil {
		return nil
	}
	in, err := log.open(c, part)
	if err != nil {
		return nil // as reading it the first time did
	}
	defer in.Close()
	all, err := f.askAbout(c, in)
	if err != nil {
		f.models.fellBack(languageModel, err)
	}
	return all
}

func (f *trackFlags) askAbout(c *cobra.Command, in io.Reader) ([]*track.Reading, error) {
	m := f.models
	lines, err := consult.Last(in, progressLines)
	if err != nil {
		return nil, err
	}
	var candidates []consult.Line
	if m.embedding != nil {
		if candidates, err = consult.Candidates(c.Context(), m.embedding, m.redact, lines, m.file.Track.Lines); err != nil {
			m.fellBack(embeddingEndpoint, err)
		}
	}
	if m.embedding == nil || err != nil {
		if candidates, err = consult.Candidates(c.Context(), nil, m.redact, lines, 2*m.file.Track.Lines); err != nil {
			return nil, err
		}
	}
	if len(candidates) == 0 {
		return nil, nil // nothing to ask about
	}
	all, err := consult.Progress(c.Context(), m.llm, m.redact, candidates)
	out := make([]*track.Reading, len(all))
	for i := range all {
		out[i] = &all[i]
	}
	return out, err
}

func (f *trackFlags) readings(c *cobra.Command, logs []jobLog) error {
	out := bufio.NewWriterSize(c.OutOrStdout(), 64<<10)
	for _, log := range logs {
		in, err := log.open(c, console.LogPart{})
		if err != nil {
			return err
		}
		own, err := track.ReadAll(in)
		in.Close()
		if err != nil {
			return log.wrong(err)
		}
		stage := llm.Stage("")
		if f.models != nil {
			stage = llm.Embedded
		}
		if asked := f.readByModel(c, &log, console.LogPart{}, len(own) > 0); asked != nil {
			own, stage = asked, llm.Model
		}
		if err := printReadings(out, log.name, stage, own); err != nil {
			return err
		}
	}
	return out.Flush()
}

// followLog prints where the job stands, at most once a second, and that it stalls.
func (f *trackFlags) followLog(c *cobra.Command, logs []jobLog) error {
	ctx, stop := interruptible(c)
	defer stop()
	in := c.InOrStdin()
	switch log := &logs[0]; {
	case log.pod != nil:
		if len(logs) > 1 {
			fmt.Fprintf(c.ErrOrStderr(), "muster: the first of %d pods is followed; to follow another: --job pod/%s\n", len(logs), logs[1].name)
		}
		stream, err := log.pod.Open(ctx, console.LogPart{Lines: tailLines, Follow: true})
		if err != nil {
			return err
		}
		defer stream.Close()
		in = stream
	case log.name != "-":
		file, err := openLogFile(log.name)
		if err != nil {
			return err
		}
		defer file.Close()
		var head [2]byte
		if _, _ = file.ReadAt(head[:], 0); logtext.Compressed(head[:]) {
			return badUsage(c, "--follow: expected a log that grows; found one that gzip compressed: %s", log.name)
		}
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
