package slurm

import (
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
)

// An array whose jobs have several pods is a Job for each index, each a gang of its own. They share a Service and a Secret.

// mostGangs is how many gangs an array may have: with Slurm's defaults it is as many.
const mostGangs = 1000

// gangs makes the Jobs of an array of gangs. Their ids follow each other, from that of the array on.
func (s *Submission) gangs(name, called string, id int, shape shape) ([]*batchv1.Job, error) {
	if n := len(s.Array.Indices); n > mostGangs {
		return nil, &UsageError{"array", fmt.Sprintf("expected at most %d indices of jobs with several nodes, each of which is a Job; found %d", mostGangs, n)}
	}
	jobs := make([]*batchv1.Job, len(s.Array.Indices))
	for i, index := range s.Array.Indices {
		n := one{job: name + "-" + strconv.Itoa(index), domain: name, called: called, id: id + i, array: id, element: index}
		if len(n.job) > longestName {
			return nil, &UsageError{"job-name", fmt.Sprintf("expected at most %d letters, with the index of the array; found %q", longestName, n.job)}
		}
		var err error
		if jobs[i], err = s.job(n, shape); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}
