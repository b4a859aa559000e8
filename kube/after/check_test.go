package after

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// world is the Jobs of a namespace.
type world map[string]*batchv1.Job

func (w world) Get(_ context.Context, name string, _ metav1.GetOptions) (*batchv1.Job, error) {
	if name == "hidden" {
		return nil, errors.New("jobs is forbidden")
	}
	if j := w[name]; j != nil {
		return j, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "jobs"}, name)
}

func (w world) List(context.Context, metav1.ListOptions) (*batchv1.JobList, error) {
	l := &batchv1.JobList{}
	for _, j := range w {
		l.Items = append(l.Items, *j)
	}
	return l, nil
}

// A job starts when what it names has happened to the jobs that it names, and is told when that can no longer be.
func TestCheck(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := world{}
	job := func(name, called string, at time.Duration, end batchv1.JobConditionType) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(start.Add(at))}}
		if called != "" {
			j.Annotations = map[string]string{"muster.sh/slurm-job-name": called}
		}
		if end != "" {
			j.Status.Conditions = []batchv1.JobCondition{{Type: end, Status: v1.ConditionTrue}}
		}
		w[name] = j
		return j
	}
	job("good", "chain", 0, batchv1.JobComplete)
	job("bad", "", 0, batchv1.JobFailed)
	job("waits", "chain", time.Minute, "")
	ready, running := int32(1), job("runs", "", 0, "")
	running.Status.Ready = &ready
	job("ending", "", 0, batchv1.JobFailureTarget) // its pods still leave
	first, later := job("first", "first", 0, ""), job("first-2", "first", time.Hour, "")
	same := job("chain-b", "chain", time.Minute, "")
	for i, end := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed, "", batchv1.JobComplete, batchv1.JobComplete} {
		j := job(fmt.Sprintf("gangs-%d", i), "", 0, end)
		j.Labels = map[string]string{"muster.sh/slurm-array": []string{"gangs", "done"}[i/3]}
	}
	for _, c := range []struct {
		self  *batchv1.Job
		text  string
		want  string
		never bool
	}{
		{later, "afterok:good", "", false},
		{later, "afterok:bad", "afterok:bad: job bad failed", true},
		{later, "afterok:runs", "afterok:runs: job runs has not ended", false},
		{later, "afterok:ending", "afterok:ending: job ending has not ended", false},
		{later, "afterok:gone", "afterok:gone: job gone does not exist, so how it ended is not known", true},
		{later, "afternotok:bad", "", false},
		{later, "afternotok:good", "afternotok:good: job good ended well", true},
		{later, "afterany:bad:good:gone", "", false},
		{later, "afterany:bad:runs", "afterany:runs: job runs has not ended", false},
		{later, "after:runs", "", false},
		{later, "after:waits", "after:waits: job waits has not started", false},
		{later, "after:bad", "", false},
		{later, "afterok:runs,afterok:bad", "afterok:bad: job bad failed", true},
		{later, "afterok:bad?afterok:runs", "afterok:runs: job runs has not ended", false},
		{later, "afterok:bad?afterok:good", "", false},
		{later, "afterok:bad?afterok:gone", "afterok:bad: job bad failed", true},
		{later, "singleton", "singleton: job first, which is called first too, has not ended", false},
		{first, "singleton", "", false},
		{same, "singleton", "", false}, // of two of one second, the one that is first by name
		{w["waits"], "singleton", "singleton: job chain-b, which is called chain too, has not ended", false},
		{later, "afterany:gangs", "afterany:gangs: job gangs has not ended", false},
		{later, "after:gangs", "after:gangs: job gangs has not started", false},
		{later, "afterok:done", "", false},
		{later, "afternotok:done", "afternotok:done: job done ended well", true},
		{later, "afterok:gangs-1", "afterok:gangs-1: job gangs-1 failed", true},
		{later, "afterok:hidden", "jobs is forbidden", false},
	} {
		d, err := Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		err = d.Check(context.Background(), c.self, w)
		unmet := (*UnmetError)(nil)
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want || errors.As(err, &unmet) && unmet.Never != c.never {
			t.Errorf("%s after %s: got %v", c.self.Name, c.text, err)
		}
	}
}

// The jobs of an array start in their order, as many at a time as its limit says. They are read once for all that ask.
func TestLimit(t *testing.T) {
	w := world{}
	for i := range 5 {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("sweep-%d", i), Labels: map[string]string{"muster.sh/slurm-array": "sweep", "muster.sh/slurm-job-id": fmt.Sprint(100 + i)},
			Annotations: map[string]string{"muster.sh/slurm-array-limit": "2"}}}
		w[j.Name] = j
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	limits := NewLimits(func() time.Time { return now })
	may := func() (out string) {
		t.Helper()
		for i := range 5 {
			limit, err := ParseLimit(w[fmt.Sprintf("sweep-%d", i)])
			if err != nil || limit == nil {
				t.Fatal(limit, err)
			}
			unmet := (*UnmetError)(nil)
			if err = limits.Check(context.Background(), "team", limit, w); err == nil {
				out += fmt.Sprint(i)
			} else if !errors.As(err, &unmet) || unmet.Never || unmet.Text != fmt.Sprintf("array sweep: 2 of its jobs run at a time, and %d before this one have not ended", i-len(w)+5-ended(w)) {
				t.Errorf("%d: %v", i, err)
			}
		}
		return out
	}
	if got := may(); got != "01" {
		t.Errorf("at first %s may run", got)
	}
	w["sweep-1"].Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: v1.ConditionTrue}}
	now = now.Add(readFor)
	if got := may(); got != "012" {
		t.Errorf("once one has failed, %s may run", got)
	}
	for text, labels := range map[string]map[string]string{
		"two": w["sweep-0"].Labels, "0": w["sweep-0"].Labels, "2": {"muster.sh/slurm-array": "sweep"},
	} {
		if _, err := ParseLimit(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"muster.sh/slurm-array-limit": text}}}); err == nil {
			t.Errorf("%s with %v was read", text, labels)
		}
	}
	if limit, err := ParseLimit(&batchv1.Job{}); limit != nil || err != nil {
		t.Errorf("none: %v, %v", limit, err)
	}
}

func ended(w world) (n int) {
	for _, j := range w {
		if e, _ := End(j); e {
			n++
		}
	}
	return n
}
