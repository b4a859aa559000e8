// Package after says after which jobs a job starts, as sbatch --dependency does, and whether it may.
package after

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Dependency is what a job waits for: that a relation holds to each of the jobs, or to any if Any is set.
type Dependency struct {
	Terms []Term
	Any   bool
}

// Term is a relation to a job: afterok, afternotok, afterany or after, or, without a job, singleton.
type Term struct{ Relation, Job string }

// Parse reads afterok:train:eval,afterany:sweep, with ? in place of commas where any will do. A job is the
// name of a Job, with or without job/, or of an array of gangs.
func Parse(s string) (Dependency, error) {
	bad := errors.New("expected afterok:JOB, afterany:JOB, afternotok:JOB, after:JOB or singleton")
	var out Dependency
	if strings.Contains(s, ",") && strings.Contains(s, "?") {
		return out, errors.New("expected terms with commas (all of them) or with ? (any of them); found both")
	}
	out.Any = strings.Contains(s, "?")
	for term := range strings.SplitSeq(strings.ReplaceAll(s, "?", ","), ",") {
		relation, jobs, named := strings.Cut(term, ":")
		switch {
		case relation == "singleton" && !named:
			out.Terms = append(out.Terms, Term{Relation: relation})
			continue
		case relation == "aftercorr" || relation == "afterburstbuffer" || relation == "expand":
			return out, fmt.Errorf("%s cannot be done here: %w", relation, bad)
		case !slices.Contains([]string{"afterok", "afterany", "afternotok", "after"}, relation) || !named:
			return out, bad
		}
		for job := range strings.SplitSeq(jobs, ":") {
			if relation == "after" && strings.Contains(job, "+") {
				return out, errors.New("minutes after a start cannot be done here: expected after:JOB")
			}
			job = strings.TrimPrefix(job, "job/")
			if len(validation.IsDNS1123Subdomain(job)) > 0 && !element.MatchString(job) {
				return out, bad
			}
			out.Terms = append(out.Terms, Term{relation, job})
		}
	}
	return out, nil
}

// element is how Slurm writes one job of an array, before its name is found.
var element = regexp.MustCompile(`^[0-9]+_[0-9]+$`)

// String writes a dependency as [Parse] reads it.
func (d Dependency) String() string {
	var parts []string
	for _, t := range d.Terms {
		parts = append(parts, strings.TrimSuffix(t.Relation+":"+t.Job, ":"))
	}
	return strings.Join(parts, map[bool]string{false: ",", true: "?"}[d.Any])
}

// Singleton reports whether a job waits for the earlier ones of its name.
func (d Dependency) Singleton() bool { return slices.Contains(d.Terms, Term{Relation: "singleton"}) }

// UnmetError says for what a job waits, and whether that can still be.
type UnmetError struct {
	Never bool
	Text  string
}

func (e *UnmetError) Error() string { return e.Text }

// Jobs reads the Jobs of a namespace.
type Jobs interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*batchv1.Job, error)
	List(ctx context.Context, o metav1.ListOptions) (*batchv1.JobList, error)
}

// Check returns nil if the dependency of an object is met, an [UnmetError] if it is not, and another error if the
// Jobs cannot be read.
func (d Dependency) Check(ctx context.Context, self metav1.Object, jobs Jobs) error {
	var unmet *UnmetError // of all terms, the one to tell: what can never be first
	for _, t := range d.Terms {
		err := t.check(ctx, self, jobs)
		is := (*UnmetError)(nil)
		switch {
		case err == nil && d.Any:
			return nil
		case err != nil && !errors.As(err, &is):
			return err
		case is != nil && (unmet == nil || is.Never != unmet.Never && is.Never != d.Any):
			unmet = is
		}
	}
	if unmet == nil {
		return nil
	}
	return unmet
}

func (t Term) check(ctx context.Context, self metav1.Object, jobs Jobs) error {
	if t.Relation == "singleton" {
		return singleton(ctx, self, jobs)
	}
	all, err := t.jobs(ctx, jobs)
	if err != nil {
		return err
	}
	gone := len(all) == 0
	ended, well, started := true, !gone, true
	for i := range all {
		e, w := End(&all[i])
		ended, well, started = ended && e, well && w, started && (e || hasStarted(&all[i]))
	}
	unmet := func(never bool, text string) error {
		return &UnmetError{never, fmt.Sprintf("%s:%s: job %s %s", t.Relation, t.Job, t.Job, text)}
	}
	switch {
	case t.Relation == "after" && !started:
		return unmet(false, "has not started")
	case t.Relation == "after":
		return nil
	case !ended:
		return unmet(false, "has not ended")
	case gone && t.Relation != "afterany":
		return unmet(true, "does not exist, so how it ended is not known")
	case t.Relation == "afterok" && !well:
		return unmet(true, "failed")
	case t.Relation == "afternotok" && well:
		return unmet(true, "ended well")
	}
	return nil
}

// jobs reads the Job that a term names, or all of the array of that name; none if there is neither.
func (t Term) jobs(ctx context.Context, jobs Jobs) ([]batchv1.Job, error) {
	j, err := jobs.Get(ctx, t.Job, metav1.GetOptions{})
	switch {
	case err == nil:
		return []batchv1.Job{*j}, nil
	case !apierrors.IsNotFound(err):
		return nil, err
	}
	return Array(ctx, jobs, t.Job)
}

// Array reads the Jobs of an array of gangs, in no order: those that exist.
func Array(ctx context.Context, jobs Jobs, name string) ([]batchv1.Job, error) {
	if len(validation.IsValidLabelValue(name)) > 0 {
		return nil, nil
	}
	l, err := jobs.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.SlurmArrayLabel + "=" + name})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(l.Items, func(j batchv1.Job) bool { return j.Labels[v1alpha1.SlurmArrayLabel] != name }), nil
}

// hasStarted reports whether a pod of a Job has become ready, or ended.
func hasStarted(j *batchv1.Job) bool {
	return j.Status.Succeeded+j.Status.Failed > 0 || j.Status.Ready != nil && *j.Status.Ready > 0
}

// singleton is met once the jobs of the same name that were submitted earlier have ended.
func singleton(ctx context.Context, self metav1.Object, jobs Jobs) error {
	array := self.GetLabels()[v1alpha1.SlurmArrayLabel] // whose gangs are one submission
	name := func(o metav1.Object) string {
		return cmp.Or(o.GetAnnotations()[v1alpha1.SlurmJobNameAnnotation], o.GetName())
	}
	before := func(a, b metav1.Object) bool {
		at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
		if !at.Equal(&bt) {
			return at.Before(&bt)
		}
		return a.GetName() < b.GetName() // created in the same second
	}
	l, err := jobs.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range l.Items {
		j := &l.Items[i]
		if ended, _ := End(j); !ended && j.UID != self.GetUID() && name(j) == name(self) && before(j, self) && (array == "" || j.Labels[v1alpha1.SlurmArrayLabel] != array) {
			return &UnmetError{false, fmt.Sprintf("singleton: job %s, which is called %s too, has not ended", j.Name, name(self))}
		}
	}
	return nil
}

// End reports whether a Job has ended, and whether it ended well.
func End(j *batchv1.Job) (ended, well bool) {
	for _, c := range j.Status.Conditions {
		if c.Status == v1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return true, c.Type == batchv1.JobComplete
		}
	}
	return false, false
}
