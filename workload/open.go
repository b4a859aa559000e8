package workload

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/muster-sched/muster/core"
)

// OpenCluster returns the cluster that path names: a built-in generator (see
// [Builtins]), a homogeneous or mixed cluster such as "108x8" or
// "64x8:H800,32x4:A10" (see [ParseSpec]), or a file, plain or gzip-compressed.
// Errors are of type *[Error].
func OpenCluster(path string, opt Options) (Cluster, error) {
	if g := builtin(path); g != nil {
		if err := g.check(&opt); err != nil {
			return Cluster{}, err
		}
		return g.cluster(&opt), nil
	}
	if isSpec(path) {
		return ParseSpec(path, opt)
	}
	t, err := openTable(path)
	if err != nil {
		return Cluster{}, err
	}
	defer t.close()
	return readCluster(t, &opt)
}

// readCluster reads the cluster in t.
func readCluster(t *table, opt *Options) (Cluster, error) {
	f, err := detect(t, asCluster, opt.Format)
	if err != nil {
		return Cluster{}, err
	}
	return f.cluster.read(t, opt)
}

// OpenJobs returns the workload that path names, a built-in generator (see
// [Builtins]) or a file, plain or gzip-compressed, and the name of its format
// or generator. The header has been checked when it returns.
//
// Every range over the jobs starts from the first one; a file is closed when the range ends.
// Muster's own format and the traces that are in order of submission stream; a trace that is not
// is loaded and sorted. The check that names differ costs memory only where names are not
// numbered in order: some 16 bytes per job. Jobs share what they point to (Models, Selector…):
// callers may keep it, but not change it. Errors, here and in the range, are of type *[Error].
func OpenJobs(path string, opt Options) (Jobs, string, error) {
	if g := builtin(path); g != nil {
		if err := g.check(&opt); err != nil {
			return nil, "", err
		}
		return func(yield func(Job, error) bool) { newStream(path, &opt, g.jobs(&opt)).run(yield) }, path, nil
	}
	t, err := openTable(path)
	if err != nil {
		return nil, "", err
	}
	f, err := detect(t, asWorkload, opt.Format)
	if err == nil && !f.jobs.wall && !(opt.FromWall.IsZero() && opt.ToWall.IsZero()) {
		err = &Error{File: path, Want: "a trace with wall-clock times to select by, found format " + f.name}
	}
	if err != nil {
		t.close()
		return nil, "", err
	}
	opened := t
	return func(yield func(Job, error) bool) {
		t := opened
		opened = nil
		if t == nil {
			var err error
			if t, err = openTable(path); err != nil {
				yield(Job{}, err)
				return
			}
		}
		defer t.close()
		readJobs(t, &opt, yield)
	}, f.name, nil
}

// readJobs yields the jobs of t.
func readJobs(t *table, opt *Options, yield func(Job, error) bool) {
	f, err := detect(t, asWorkload, opt.Format)
	if err != nil {
		yield(Job{}, err)
		return
	}
	next := f.jobs.start(t, opt)
	if f.jobs.unsorted {
		next = sorted(next)
	}
	s := newStream(t.file, opt, next)
	s.misfits = s.misfits || f.jobs.misfits
	s.run(yield)
}

// stream checks jobs and selects those that the options ask for.
type stream struct {
	file     string
	opt      *Options
	next     nextJob
	capacity *Capacity
	misfits  bool
	names    *nameSet
	last     core.Time
	zero     core.Time
	based    bool
}

func newStream(file string, opt *Options, next nextJob) *stream {
	s := &stream{file: file, opt: opt, next: next, misfits: opt.Misfits, names: newNameSet()}
	if opt.Cluster != nil {
		s.capacity = NewCapacity(opt.Cluster)
	}
	return s
}

func (s *stream) run(yield func(Job, error) bool) {
	for {
		j, line, err := s.next()
		if err == io.EOF {
			return
		}
		if err == nil {
			err = s.check(&j, line)
		}
		if err == nil && s.opt.To > 0 && j.Submitted >= s.opt.To {
			return
		}
		keep := err == nil && s.keeps(&j)
		if keep {
			err = s.fits(&j, line)
		}
		if err != nil {
			yield(Job{}, err)
			return
		}
		if keep && !yield(s.rebased(j), nil) {
			return
		}
	}
}

// check returns an error if a job's name is not new, or if its submission is before that
// of its predecessor.
func (s *stream) check(j *Job, line int) error {
	if j.Submitted < s.last {
		return &Error{File: s.file, Line: line, Field: "submit time", Want: fmt.Sprintf(
			"jobs in order of submission, found %q %v s before the job above", j.Name, (s.last - j.Submitted).Seconds())}
	}
	s.last = j.Submitted
	if !s.names.add(j.Name) {
		return &Error{File: s.file, Line: line, Field: "job", Want: fmt.Sprintf("a job named once, found %q again", j.Name)}
	}
	return nil
}

// keeps reports whether the options select a job, apart from To.
func (s *stream) keeps(j *Job) bool {
	o := s.opt
	return j.Submitted >= o.From && j.Duration >= o.MinDuration && (o.MaxDuration == 0 || j.Duration <= o.MaxDuration)
}

// fits returns an error when the cluster could never run a job.
func (s *stream) fits(j *Job, line int) error {
	if s.capacity == nil {
		return nil
	}
	var e *Error
	if !errors.As(s.capacity.Check(&j.Job), &e) || s.misfits && e.Field == podSize {
		return nil
	}
	e.File, e.Line = s.file, line
	return e
}

// rebased returns a job with its time counted from the first selected job, if the options
// require it.
func (s *stream) rebased(j Job) Job {
	if s.opt.Rebase && !s.based {
		s.zero, s.based = j.Submitted, true
	}
	j.Submitted -= s.zero
	return j
}

// sorted loads all jobs and returns them by submission, simultaneous ones in the order of
// the file.
func sorted(next nextJob) nextJob {
	type entry struct {
		job  Job
		line int
	}
	var all []entry
	var failed error
	for {
		j, line, err := next()
		if err != nil {
			failed = err
			break
		}
		all = append(all, entry{j, line})
	}
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.job.Submitted, b.job.Submitted) })
	return func() (Job, int, error) {
		if failed != io.EOF || len(all) == 0 {
			return Job{}, 0, failed
		}
		e := all[0]
		all = all[1:]
		return e.job, e.line, nil
	}
}
