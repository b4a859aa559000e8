package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/kube/console"
	"github.com/muster-sched/muster/semantic/consult"
	"github.com/muster-sched/muster/semantic/diagnose"
	"github.com/muster-sched/muster/semantic/llm"
)

func newDiagnose() *cobra.Command {
	var asJSON bool
	var from sourceFlags
	var ask llmFlags
	var node nodeFlags
	c := &cobra.Command{
		Use:   "diagnose {LOG... | --job JOB}",
		Short: "Find the root of a failure in the log of a job, and say what to do",
		Long: `Diagnose reads the logs of jobs, of any length, and says for each what failed: the
infrastructure (a GPU, NVLink, the network, a node, storage, host memory), a
framework, or the user's script; which lines say so; and what to do next. A job
that was successful, or that a user or the scheduler ended, has no failure.

It uses rules only: no model, no network. The same log gives the same answer. A LOG
may be compressed with gzip; - reads standard input. Lines are numbered from 0.

With --llm-config it asks a language model where the rules are not sure. Keys, e-mail
and IP addresses and names of hosts are taken out of the lines that it sends.

With --node-history it knows what happened on the node before: out of GPU memory at the
start, an hour after a memory error of a GPU there, is the hardware. FILE has a line for
each failure; the command adds this one.

With --job it reads the logs of a job's pods on the Kubernetes cluster in the kubeconfig:
of a container that was started again, the log of the one that ended.`,
		Example: `  muster diagnose slurm-881.out
  muster diagnose --json logs/*.log
  muster diagnose --job train-7b -n team-a
  dmesg | muster diagnose -
  muster diagnose --node n4 --node-history nodes.jsonl train.log
  muster diagnose --llm-config semantic.yaml train.log`,
		Args: from.arguments,
		RunE: func(c *cobra.Command, args []string) error {
			logs, err := from.logs(c, args)
			if err != nil {
				return err
			}
			models, done, err := ask.forLogs(c, logs)
			if err != nil {
				return err
			}
			defer done()
			if err := node.read(c, logs); err != nil {
				return err
			}
			return diagnoseLogs(c, logs, models, &node, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a log, each on a line")
	ask.register(c)
	from.register(c)
	node.register(c)
	return c
}

// diagnoseLogs writes what is found in each log. Of the pods of a job, text has those that failed.
func diagnoseLogs(c *cobra.Command, logs []jobLog, models *models, node *nodeFlags, asJSON bool) error {
	written, healthy := 0, 0
	var verdicts []diagnose.Verdict
	var names []string
	for i := range logs {
		v, err := diagnoseLog(c, &logs[i], models)
		if err != nil {
			return err
		}
		v.Verdict = node.reconsider(v.Verdict, logs[i].name)
		if v.Category == diagnose.None && logs[i].pod != nil && !asJSON && len(logs) > 1 {
			healthy++
			continue
		}
		if err := writeVerdict(c.OutOrStdout(), logs[i].name, v, asJSON, written > 0, len(logs) > 1); err != nil {
			return err
		}
		written++
		verdicts, names = append(verdicts, v.Verdict), append(names, logs[i].name)
		if err := node.keep(&v.Verdict, logs[i].name); err != nil {
			return err
		}
	}
	if !asJSON {
		if err := writeRoot(c.OutOrStdout(), verdicts, names); err != nil {
			return err
		}
	}
	if healthy == 0 {
		return nil
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "The logs of %d of %d pods show no failure.\n", healthy, len(logs))
	return err
}

// writeRoot says which log has the root, if others are of processes that waited for it: true of the logs of one job.
func writeRoot(w io.Writer, verdicts []diagnose.Verdict, names []string) error {
	root := diagnose.Root(verdicts)
	var waited []string
	for i := range verdicts {
		if verdicts[i].Waited() {
			waited = append(waited, names[i])
		}
	}
	if len(waited) == 0 || len(verdicts) < 2 {
		return nil
	}
	const most = 5
	if n := len(waited) - most; n > 0 {
		waited = append(waited[:most], fmt.Sprintf("%d more", n))
	}
	text := "Of one job, all of these waited for a process whose log is not among them."
	if root >= 0 {
		text = fmt.Sprintf("Of one job, the root is in %s; processes that waited for others: %s.", names[root], strings.Join(waited, ", "))
	} else if len(waited) < len(verdicts) {
		return nil
	}
	_, err := fmt.Fprintln(w, "\n"+table.Printable(text))
	return err
}

// staged is a verdict, and what it rests on. Without models there is one stage, which goes without saying.
type staged struct {
	diagnose.Verdict
	Stage llm.Stage `json:"stage,omitempty"`
}

func diagnoseLog(c *cobra.Command, log *jobLog, models *models) (staged, error) {
	in, err := log.open(c, console.LogPart{Ended: true})
	if err != nil {
		return staged{}, err
	}
	defer in.Close()
	v, err := diagnose.Log(in)
	if err != nil {
		return staged{}, log.wrong(err)
	}
	if models == nil {
		return staged{Verdict: v}, nil
	}
	if models.llm == nil || !v.Unsure(models.file.Diagnose.Below) {
		return staged{v, llm.Embedded}, nil
	}
	n, err := models.secondOpinion(c, log, v)
	if err != nil {
		models.fellBack(languageModel, err)
	}
	return n, nil
}

// secondOpinion asks a language model about the lines around the root that the rules found, or the last ones, if it may know more.
func (m *models) secondOpinion(c *cobra.Command, log *jobLog, v diagnose.Verdict) (staged, error) {
	before := staged{v, llm.Embedded}
	in, err := log.open(c, console.LogPart{Ended: true})
	if err != nil {
		return before, err
	}
	defer in.Close()
	around := int64(-1)
	if v.SignatureLine != nil {
		around = *v.SignatureLine
	}
	lines, err := consult.Window(in, around, m.file.Diagnose.Lines)
	if err != nil || !consult.Worthwhile(&v, m.file.Diagnose.Below, lines) {
		return before, err
	}
	n, err := consult.Failure(c.Context(), m.llm, m.redact, v, lines)
	if err != nil {
		return before, err
	}
	return staged{n, llm.Model}, nil
}

// writeVerdict writes what was found in a file. Text has a blank line between files and, of several files, their names.
func writeVerdict(w io.Writer, file string, v staged, asJSON, later, named bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return e.Encode(struct {
			File string `json:"file"`
			staged
		}{file, v})
	}
	head, tail := "", ""
	if later {
		head = "\n"
	}
	if named {
		head += "== " + file + "\n"
	}
	if v.Stage == llm.Model {
		tail = "\nA language model was asked: the rules are not sure."
	}
	_, err := fmt.Fprintln(w, table.Printable(head+v.String()+tail))
	return err
}
