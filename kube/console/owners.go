package console

import (
	"cmp"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// Jobs of Kubernetes say more than their pods: how they ended, and that pods
// will come where there are none.

// own lets owners say how their jobs stand, and adds the jobs of those that
// have no pods now. ran says of which PodGroups were scheduled before.
func own(byGroup map[translate.Group]*Job, owners map[translate.Group]*batchv1.Job, ran map[translate.Group]bool, namespaceQueues map[string]string) {
	pods := map[string][]*Job{} // by namespace and owner
	for _, j := range byGroup {
		if owner := j.pods[0].owner; owner != "" {
			owner = j.Namespace + "/" + owner
			pods[owner] = append(pods[owner], j)
		}
	}
	for id, o := range owners {
		list := pods[id.Job()]
		for _, j := range list {
			if made := o.CreationTimestamp.Time; made.Before(j.Created) {
				j.Created = made
			}
		}
		if slices.ContainsFunc(list, func(j *Job) bool { return j.live }) {
			continue
		}
		end := endOfJob(o)
		switch suspended := o.Spec.Suspend != nil && *o.Spec.Suspend; {
		case end != "":
			for _, j := range list {
				if end == Completed || j.State == Failed || j.State == Completed {
					if j.State = end; end == Completed { // pods that failed and were made again do not count
						j.Code, j.Reason, j.Detail, j.ExitCode = "", "", "", 0
					}
				}
			}
			continue
		case suspended:
			byGroup[id] = podless(id, o, namespaceQueues, Suspended, SuspendedByOwner, "the Job has spec.suspend: true")
		case len(list) > 0 && !slices.ContainsFunc(list, func(j *Job) bool { return j.State != Completed }):
			byGroup[id] = podless(id, o, namespaceQueues, Pending, tables.ReasonCollecting, "its pods are done, and its Job has yet to create the next ones")
		case ran[id] || len(list) > 0:
			byGroup[id] = podless(id, o, namespaceQueues, Requeued, tables.ReasonCollecting, "its pods are gone, and its Job has yet to create new ones")
		default:
			byGroup[id] = podless(id, o, namespaceQueues, Pending, tables.ReasonCollecting, "its Job has yet to create its pods")
		}
		for _, j := range list {
			if j.group != id {
				delete(byGroup, j.group)
			}
		}
	}
}

// endOfJob is how a Job ended, empty while it has not.
func endOfJob(o *batchv1.Job) State {
	var end State
	for _, k := range o.Status.Conditions {
		if k.Status != v1.ConditionTrue {
			continue
		}
		switch k.Type {
		case batchv1.JobComplete, batchv1.JobSuccessCriteriaMet:
			end = Completed
		case batchv1.JobFailed, batchv1.JobFailureTarget:
			end = Failed
			if k.Reason == batchv1.JobReasonDeadlineExceeded {
				return TimedOut
			}
		}
	}
	return end
}

// podless is the job of an owner that has no pods now.
func podless(id translate.Group, o *batchv1.Job, namespaceQueues map[string]string, state State, reason, detail string) *Job {
	var a, job translate.Attributes
	_, _ = a.Read(&o.Spec.Template), job.Read(o)
	a = a.Over(&job)
	j := &Job{
		ID: id.String(), Group: id.String(), Namespace: o.Namespace,
		Queue: cmp.Or(a.Queue, namespaceQueues[o.Namespace], queues.Default), Kind: a.Kind.String(), Class: a.Class.String(),
		State: state, Reason: reason, Code: reasonOf(reason).Code, Detail: detail, Gang: a.Minimum(), Created: o.CreationTimestamp.Time, group: id, class: o.Spec.Template.Spec.PriorityClassName,
		Tasks: []Task{}, Nodes: []string{},
	}
	pods := int32(1)
	if o.Spec.Parallelism != nil {
		pods = *o.Spec.Parallelism
	}
	// The template of a pod may say limits alone, which requests follow.
	pod := &v1.Pod{Spec: *o.Spec.Template.Spec.DeepCopy()}
	for i := range pod.Spec.Containers {
		r := &pod.Spec.Containers[i].Resources
		for name, limit := range r.Limits {
			if _, ok := r.Requests[name]; !ok {
				if r.Requests == nil {
					r.Requests = v1.ResourceList{}
				}
				r.Requests[name] = limit
			}
		}
	}
	j.GPUs = v1alpha1.GPUs(gpusOf(pod, &a)) * v1alpha1.GPUs(pods)
	return j
}
