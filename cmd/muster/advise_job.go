package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/advisor"
	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/kube/advise"
	"github.com/muster-sched/muster/kube/console"
	"github.com/muster-sched/muster/semantic/estimate"
	"github.com/muster-sched/muster/semantic/history"
	"github.com/muster-sched/muster/semantic/metadata"
)

// adviseJob shows what the objects of a job of the cluster say of it, and what finished jobs predict.
func (f *adviseFlags) adviseJob(c *cobra.Command) error {
	for _, name := range []string{"command", "name", "user", "queue", "gpus", "llm-config"} {
		if c.Flags().Changed(name) {
			return badUsage(c, "--%s: expected DIR with it; found --job", name)
		}
	}
	client, namespace, err := f.cluster.open(c)
	if err != nil {
		return err
	}
	x, err := client.Explain(c.Context(), namespace, f.job)
	if err != nil {
		return jobHint(err, f.job)
	}
	s, err := knownOf(c, client, x)
	if err != nil {
		return err
	}
	r := advice{Result: advisor.Extracted(s)}
	r.Command, r.At = cmp.Or(s.Launch.Command, r.Command), "its objects"
	var e *estimate.Estimate
	if f.history != "" {
		err = withHistory(c, f.history, history.Options{Existing: true}, func(h *history.History) error {
			job := advisor.Job(s)
			if x.Ended == nil {
				job.Submit = time.Now() // as if it were submitted now
			}
			found, err := (&estimate.Advisor{History: h, Options: estimate.Default}).Estimate(c.Context(), job)
			e = &found
			if err != nil {
				return badHistory(c, f.history, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	out := c.OutOrStdout()
	if f.asJSON {
		return adviseJSON(out, "", x.Namespace+"/"+x.ID, &r, e)
	}
	if err := adviseTable(out, "", &r, false, false); err != nil {
		return err
	}
	if e != nil {
		_, err = fmt.Fprintf(out, "\n%s\n", table.Printable(e.String()))
	}
	return err
}

// knownOf returns a job as the scheduler knew it when it was submitted.
func knownOf(c *cobra.Command, client *console.Client, x *console.Explanation) (*metadata.Submitted, error) {
	s := &metadata.Submitted{ID: x.Namespace + "/" + x.Group, Queue: x.Queue, Kind: x.Kind, Priority: int(x.Priority), Pods: len(x.Pods), At: x.Created}
	s.Name = s.ID
	first := -1
	for i := range x.Pods {
		s.GPUs += float64(x.Pods[i].GPUs) / 1000
		if first < 0 || x.Pods[i].GPUs > 0 && x.Pods[first].GPUs == 0 {
			first = i
		}
	}
	p, err := client.Pod(c.Context(), x.Namespace, x.Pods[first].Name)
	if err != nil {
		return nil, err
	}
	advise.Read(s, p)
	user, models := advise.Asks(p)
	s.User = cmp.Or(user, x.Namespace)
	for range x.Tasks {
		s.Models = append(s.Models, models...)
	}
	return s, nil
}
