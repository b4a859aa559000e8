package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// command sets the command of a pod, whose image is not run.
func command(words ...string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Command = words }
}

// Jobs that end well predict the next ones: the shorter of two that wait starts first, though it was submitted last. A scheduler whose
// history does not answer schedules all the same.
func TestFinishedJobsPredictOthers(t *testing.T) {
	c := begin(t)
	c.node("n")
	short, long := command("python", "train.py", "--model", "resnet18"), command("deepspeed", "pretrain.py", "--model", "gpt2")
	jobs := filepath.Join(t.TempDir(), "jobs.db")
	p := c.process("--history", jobs, "--advisor", "history", "--policy", "LucidSJF")
	c.create(pod("vision-1", asks(8), short, runsFor(time.Second)))
	c.phase(v1.PodSucceeded, "vision-1")
	c.create(pod("chat-1", asks(8), long, runsFor(10*time.Second)))
	c.phase(v1.PodSucceeded, "chat-1")
	c.until("the history knows both", func() error {
		list, err := exec.Command("muster", "history", "list", "--history", jobs).CombinedOutput()
		if err == nil && (!strings.Contains(string(list), "/vision-1@") || !strings.Contains(string(list), "/chat-1@")) {
			err = fmt.Errorf("it has\n%s", list)
		}
		return err
	})

	c.create(pod("before", asks(8), note(v1alpha1.WalltimeAnnotation, "1h")))
	c.bound("before")
	c.create(pod("chat-2", asks(8), long))
	c.create(pod("vision-2", asks(8), short))
	for name, like := range map[string]string{"chat-2": "chat-1", "vision-2": "vision-1"} {
		c.until(name+" has an estimate", func() error {
			k := condition(c.get(name), v1alpha1.EstimateCondition)
			if k == nil || k.Reason != v1alpha1.HistoryReason || !strings.HasSuffix(k.Message, ", because of "+c.namespace+"/pod/"+like) {
				return fmt.Errorf("its condition is %+v", k)
			}
			return nil
		})
	}
	if k := condition(c.get("before"), v1alpha1.EstimateCondition); k != nil {
		t.Errorf("a job with a walltime has the estimate %s", k.Message)
	}
	c.delete("before")
	c.bound("vision-2")
	c.unbound("chat-2")
	p.interrupt()

	p = c.process("--history", "postgres://muster@127.0.0.1:1/jobs", "--advisor", "history", "--policy", "LucidSJF")
	c.until("the log says that the history does not answer", func() error { return p.said.has("the history does not answer") })
	c.must(admin.CoreV1().Pods(c.namespace).Delete(ctx(), "vision-2", metav1.DeleteOptions{}))
	c.bound("chat-2")
	p.interrupt()
}
