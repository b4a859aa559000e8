package after

import (
	"context"
	"errors"
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
