package console

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// listed writes jobs as muster queue does, a line each.
func listed(t *testing.T, objects string, states ...State) []string {
	t.Helper()
	client, _ := cluster(t, objects)
	jobs, err := client.Jobs(context.Background(), Filter{Namespace: "team", States: states})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := Queue(&b, &View{Now: epoch, NoHeaders: true}, jobs); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(b.String()), "\n")
}

// A job that failed shows the exit code of the pod that failed first, and not that of those that were ended then.
func TestFailedJobsShowTheirCode(t *testing.T) {
	const of = ", labels: {muster.sh/gang: %s}"
	ended := func(code, reason, ago string) string {
		return "phase: Failed, containerStatuses: [{name: main, state: {terminated: {exitCode: " + code + ", reason: " + reason + ", finishedAt: ago(" + ago + ")}}}]"
	}
	text := podText("a0", strings.Replace(of, "%s", "a", 1), ", nodeName: n1", ended("143", "Error", "1m")) +
		podText("a1", strings.Replace(of, "%s", "a", 1), ", nodeName: n1", ended("3", "Error", "2m")) +
		podText("b0", strings.Replace(of, "%s", "b", 1), ", nodeName: n1", ended("137", "OOMKilled", "1m")) +
		podText("c0", strings.Replace(of, "%s", "c", 1), ", nodeName: n1", "phase: Failed")
	got := listed(t, text, Failed)
	for i, want := range []string{"(NonZeroExitCode: exit code 3)", "(OutOfMemory: exit code 137, OOMKilled)", " -"} {
		if i >= len(got) || !strings.HasSuffix(strings.TrimRight(got[i], " "), want) && i < 2 || i == 2 && strings.Contains(got[i], "exit code") {
			t.Errorf("got %q, want %q in line %d", got, want, i)
		}
	}
	client, _ := cluster(t, text)
	jobs, err := client.Jobs(context.Background(), Filter{Namespace: "team", States: []State{Failed}})
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := json.Marshal(jobs[0]); !strings.Contains(string(text), `"exit_code":3`) {
		t.Errorf("as JSON: %s", text)
	}
}

// A job that was evicted and waits again is RQ, as the scheduler says in the message.
func TestEvictedJobsAreRequeued(t *testing.T) {
	waits := func(message string) string {
		return "phase: Pending, conditions: [{type: muster.sh/Waiting, status: 'True', reason: Resources, message: '" + message + "', lastTransitionTime: ago(1m)}]"
	}
	text := podText("a", "", "", waits("no room")) + podText("b", "", "", waits("no room; jobs ahead: 1; expected start: 2026-01-31T13:00:00Z; it ran before; nearest places: x")) +
		podText("c", "", "", waits("no room; jobs ahead: 1"))
	for _, line := range listed(t, text, Pending, Requeued) {
		f := strings.Fields(line)
		if want := map[string]string{"pod/a": "PD", "pod/b": "RQ", "pod/c": "PD"}[f[0]]; f[2] != want || strings.Contains(line, "ran before") {
			t.Errorf("got %q, want %s", line, want)
		}
	}
}

// Jobs on nodes that are not ready, or have GPUs that are not healthy, are marked; those without GPUs are not for these.
func TestJobsOnBrokenHardware(t *testing.T) {
	text := podText("a", "", ", nodeName: dead", "phase: Running") + podText("b", "", ", nodeName: sick", "phase: Running") + podText("c", "", ", nodeName: fine", "phase: Running") +
		strings.ReplaceAll(podText("d", "", ", nodeName: sick", "phase: Running"), `resources: {requests: {nvidia.com/gpu: "2"}}`, "image: x") + `
---
apiVersion: v1
kind: Node
metadata: {name: dead}
status: {capacity: {nvidia.com/gpu: "8"}, allocatable: {nvidia.com/gpu: "8"}, conditions: [{type: Ready, status: Unknown}]}
---
apiVersion: v1
kind: Node
metadata: {name: sick}
status: {capacity: {nvidia.com/gpu: "8"}, allocatable: {nvidia.com/gpu: "7"}, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Node
metadata: {name: fine}
status: {capacity: {nvidia.com/gpu: "8"}, allocatable: {nvidia.com/gpu: "8"}, conditions: [{type: Ready, status: "True"}]}
`
	want := map[string]string{"pod/a": "dead (NodeDown: dead is not ready)", "pod/b": "sick (GPUDown: sick: GPUs not healthy: 1 of 8)", "pod/c": "fine", "pod/d": "sick"}
	lines := listed(t, text)
	for _, line := range lines {
		if name := strings.Fields(line)[0]; !strings.HasSuffix(strings.TrimSpace(line), " "+want[name]) {
			t.Errorf("got %q, want %q", line, want[name])
		}
	}
	if len(lines) != len(want) {
		t.Errorf("got %q", lines)
	}
}

// A Job whose pods the API refuses says why there are none.
func TestJobsWithoutPods(t *testing.T) {
	got := listed(t, `
apiVersion: batch/v1
kind: Job
metadata: {name: a, namespace: team, creationTimestamp: ago(1h)}
spec: {parallelism: 1, template: {spec: {schedulerName: muster, priorityClassName: none}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: b, namespace: team, creationTimestamp: ago(1h)}
spec: {parallelism: 1, template: {spec: {schedulerName: muster}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: c, namespace: team, creationTimestamp: ago(1h)}
spec: {parallelism: 1, template: {spec: {schedulerName: muster, priorityClassName: none}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: d, namespace: team, creationTimestamp: ago(1h)}
spec: {parallelism: 1, template: {spec: {schedulerName: muster, priorityClassName: some}}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: some}
value: 3
---
apiVersion: v1
kind: Event
metadata: {name: e1, namespace: team}
involvedObject: {kind: Job, namespace: team, name: a}
reason: FailedCreate
message: 'Error creating: pods "a-x" is forbidden: no PriorityClass with name none was found'
lastTimestamp: ago(1m)
`)
	if len(got) != 4 || !strings.HasSuffix(got[0], "(BadConstraints: NotCreated)") || !strings.HasSuffix(got[1], "(Dependency: Collecting)") ||
		!strings.HasSuffix(got[2], "(BadConstraints: NotCreated)") || !strings.HasSuffix(got[3], "(Dependency: Collecting)") {
		t.Errorf("got %q", got)
	}
}
