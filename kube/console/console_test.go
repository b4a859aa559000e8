package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/internal/fakeapi"
	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

var epoch = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// cluster returns a client of an API that has the objects, and the API.
func cluster(t *testing.T, objects string) (*Client, *fakeapi.Server) {
	t.Helper()
	fake, err := fakeapi.New(objects, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return client(t, fake), fake
}

func client(t *testing.T, api http.Handler) *Client {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	c, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// podText is a pod of Muster's in namespace team; more is what follows in its
// metadata, spec and status, each in the braces of YAML.
func podText(name, metadata, spec, status string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: team, uid: uid-%[1]s, creationTimestamp: ago(1h)%s}
spec: {schedulerName: muster, containers: [{name: main, resources: {requests: {nvidia.com/gpu: "2"}}}]%s}
status: {%s}`, name, metadata, spec, status)
}

// Every reason for which a job may wait has a code and says what would change
// it: a reason that is added to the engine or the scheduler is added here too.
func TestReasonsAreWhole(t *testing.T) {
	names := []string{core.MemberLost.String(), NotSeen, NotCreated, Gated, SuspendedByOwner}
	files, err := filepath.Glob("../tables/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "../devices/devices.go") {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, constant := range regexp.MustCompile(`\bReason[A-Z]\w* += "(\w+)"`).FindAllSubmatch(source, -1) {
			names = append(names, string(constant[1]))
		}
	}
	if !slices.Contains(names, tables.ReasonCollecting) {
		t.Fatal("the scheduler's reasons are not found in its source")
	}
	for r := core.QuotaExceeded; r <= core.ExceedsQuota; r++ {
		names = append(names, r.String())
	}
	names = append(names, core.MustNotBorrow.String(), core.HPExpected.String(), core.MaxRunning.String())
	for _, name := range names {
		n := 0
		for _, r := range Reasons {
			if r.Name == name {
				n++
				if r.Code == "" || !strings.HasSuffix(r.Change, ".") {
					t.Errorf("%+v: want a code and a sentence", r)
				}
			}
		}
		if n != 1 {
			t.Errorf("%s is in the table %d times, want once", name, n)
		}
	}
	if len(Reasons) != len(names) {
		t.Errorf("the table has %d reasons, want %d", len(Reasons), len(names))
	}
}

func TestParseStates(t *testing.T) {
	for text, want := range map[string][]State{
		"PD":                {Pending},
		"pd,running":        {Pending, Running},
		"TIMEOUT,node_fail": {TimedOut, NodeFailed},
	} {
		got, err := ParseStates(strings.Split(text, ","))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v; want %v", text, got, err, want)
		}
	}
	if all, err := ParseStates([]string{"all"}); err != nil || len(all) != len(states) {
		t.Errorf("all: got %v, %v", all, err)
	}
	if _, err := ParseStates([]string{"PD", "RUNING"}); err == nil {
		t.Error("RUNING: want an error")
	}
}

// What the pods of a job do makes its state.
func TestStates(t *testing.T) {
	const (
		bound    = ", nodeName: n1"
		deleted  = ", deletionTimestamp: ago(-30s)"
		running  = "phase: Running, conditions: [{type: PodScheduled, status: 'True', lastTransitionTime: ago(30m)}]"
		waits    = "phase: Pending, conditions: [{type: muster.sh/Waiting, status: 'True', reason: %s, message: why, lastTransitionTime: ago(1m)}]"
		preempts = "phase: %s, conditions: [{type: DisruptionTarget, status: 'True', reason: PreemptionByScheduler, message: 'PriorityPreemption: evicted to make room for team/pod/x'}]"
		gang     = ", labels: {muster.sh/gang: g}"
	)
	for name, c := range map[string]struct {
		pods  string
		state State
		code  string
	}{
		"waits, and nothing was said":     {podText("a", "", "", "phase: Pending"), Pending, "None"},
		"waits for resources":             {podText("a", "", "", fmt.Sprintf(waits, "Stranded")), Pending, "Resources"},
		"waits for a reason of later":     {podText("a", "", "", fmt.Sprintf(waits, "NewReason")), Pending, "NewReason"},
		"held by a gate":                  {podText("a", "", ", schedulingGates: [{name: example.com/hold}]", "phase: Pending"), Pending, "JobHeldUser"},
		"the quota's gate is the queue's": {podText("a", "", ", schedulingGates: [{name: muster.sh/quota}]", fmt.Sprintf(waits, "QuotaExceeded")), Pending, "QOSGrpGRES"},
		"runs":                            {podText("a", "", bound, running), Running, ""},
		"runs in part":                    {podText("a", gang, bound, running) + podText("b", gang, "", fmt.Sprintf(waits, "Resources")), Running, "Resources"},
		"failed to start and waits":       {podText("a", "", "", fmt.Sprintf(waits, "BackOff")), Requeued, "BeginTime"},
		"evicted, and made again":         {podText("a", gang+deleted, bound, running) + podText("b", gang, "", fmt.Sprintf(waits, "MemberLost")), Requeued, "Cleaning"},
		"leaves":                          {podText("a", deleted, bound, running), Completing, ""},
		"leaves for another":              {podText("a", deleted, bound, fmt.Sprintf(preempts, "Running")), Preempted, ""},
		"left for another":                {podText("a", "", bound, fmt.Sprintf(preempts, "Failed")), Preempted, ""},
		"deleted before it ran":           {podText("a", deleted, "", "phase: Pending"), Cancelled, ""},
		"ended":                           {podText("a", "", bound, "phase: Succeeded"), Completed, ""},
		"ended in part":                   {podText("a", gang, bound, "phase: Succeeded") + podText("b", gang, bound, running), Running, ""},
		"failed":                          {podText("a", gang, bound, "phase: Succeeded") + podText("b", gang, bound, "phase: Failed"), Failed, ""},
		"ran too long":                    {podText("a", "", bound, "phase: Failed, reason: DeadlineExceeded"), TimedOut, ""},
		"its node went down":              {podText("a", "", bound, "phase: Failed, reason: NodeLost"), NodeFailed, "NodeDown"},
	} {
		all, err := ParseStates([]string{"all"})
		if err != nil {
			t.Fatal(err)
		}
		client, _ := cluster(t, c.pods)
		jobs, err := client.Jobs(context.Background(), Filter{Namespace: "team", States: all})
		if err != nil || len(jobs) != 1 {
			t.Errorf("%s: got %v, %v; want one job", name, jobs, err)
			continue
		}
		if j := jobs[0]; j.State != c.state || j.Code != c.code {
			t.Errorf("%s: got %s (%s), want %s (%s)", name, j.State, j.Code, c.state, c.code)
		}
	}
}

// What a Job says counts for more than what its pods do: they may be gone for
// now, and those that failed may have been made again.
func TestJobsSayHowTheyStand(t *testing.T) {
	const (
		job      = "\n---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: a, namespace: team, creationTimestamp: ago(1h)}\nspec: {suspend: %s, parallelism: 2, template: {spec: {schedulerName: muster, containers: [{name: main, resources: {limits: {nvidia.com/gpu: '4'}}}]}}}\nstatus: {conditions: [%s]}"
		podGroup = "\n---\napiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: g, namespace: team, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: a, uid: u, controller: true}]}\nstatus: {conditions: [{type: PodGroupInitiallyScheduled, status: 'True'}]}"
		owner    = ", ownerReferences: [{apiVersion: batch/v1, kind: Job, name: a, uid: u, controller: true}]"
		native   = ", nodeName: n, schedulingGroup: {podGroupName: g}"
	)
	for name, c := range map[string]struct {
		objects string
		want    string // ID, state, code and GPUs of each job
	}{
		"suspended":                  {fmt.Sprintf(job, "true", ""), "job/a S JobHeldUser 8"},
		"no pods yet":                {fmt.Sprintf(job, "false", ""), "job/a PD Dependency 8"},
		"its pods were evicted":      {fmt.Sprintf(job, "false", "") + podGroup, "job/a RQ Dependency 8"},
		"its first pods are done":    {fmt.Sprintf(job, "false", "") + podGroup + podText("p", owner, native, "phase: Succeeded"), "job/a PD Dependency 8"},
		"its pods failed":            {fmt.Sprintf(job, "false", "") + podGroup + podText("p", owner, native, "phase: Failed"), "job/a RQ Dependency 8"},
		"suspended after it ran":     {fmt.Sprintf(job, "true", "") + podGroup + podText("p", owner, native, "phase: Failed"), "job/a S JobHeldUser 8"},
		"suspended, and still there": {fmt.Sprintf(job, "true", "") + podGroup + podText("p", owner+", deletionTimestamp: ago(-9s)", native, "phase: Running"), "job/a CG  2"},
		"runs":                       {fmt.Sprintf(job, "false", "") + podGroup + podText("p", owner, native, "phase: Running"), "job/a R  2"},
		"over, and its pods too":     {fmt.Sprintf(job, "false", "{type: Complete, status: 'True'}") + podGroup, ""},
		"completed in the end":       {fmt.Sprintf(job, "false", "{type: Complete, status: 'True'}") + podGroup + podText("p", owner, native, "phase: Failed"), "job/a CD  2"},
		"failed in the end":          {fmt.Sprintf(job, "false", "{type: Failed, status: 'True'}") + podGroup + podText("p", owner, native, "phase: Succeeded"), "job/a F  2"},
		"ran too long":               {fmt.Sprintf(job, "false", "{type: Failed, status: 'True', reason: DeadlineExceeded}") + podText("p", owner, "", "phase: Failed"), "job/a TO  2"},
		"its pod ran too long":       {fmt.Sprintf(job, "false", "{type: Failed, status: 'True'}") + podText("p", owner, "", "phase: Failed, reason: DeadlineExceeded"), "job/a TO  2"},
		"of another scheduler":       {strings.Replace(fmt.Sprintf(job, "true", ""), "muster", "other", 1), ""},
	} {
		all, err := ParseStates([]string{"all"})
		if err != nil {
			t.Fatal(err)
		}
		client, _ := cluster(t, c.objects)
		jobs, err := client.Jobs(context.Background(), Filter{Namespace: "team", States: all})
		var got []string
		for _, j := range jobs {
			got = append(got, fmt.Sprintf("%s %s %s %s", j.ID, j.State, j.Code, j.GPUs))
		}
		if err != nil || strings.Join(got, "; ") != c.want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, c.want)
		}
	}
}

// Two PodGroups of one owner are two jobs, under their own names.
func TestOwnersNameTheirOnlyPodGroup(t *testing.T) {
	const owner = ", ownerReferences: [{apiVersion: batch/v1, kind: Job, name: %s, uid: u, controller: true}]"
	client, _ := cluster(t, podText("a-0", fmt.Sprintf(owner, "a"), ", schedulingGroup: {podGroupName: a-1}", "phase: Pending")+
		podText("b-0", fmt.Sprintf(owner, "b"), ", schedulingGroup: {podGroupName: b-1}", "phase: Pending")+
		podText("b-1", fmt.Sprintf(owner, "b"), ", schedulingGroup: {podGroupName: b-2}", "phase: Pending"))
	jobs, err := client.Jobs(context.Background(), Filter{Namespace: "team"})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	if want := []string{"job/a", "podgroup/b-1", "podgroup/b-2"}; !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
}

// A job whose places are settled starts when the last pod that leaves for it is
// gone; of others the scheduler says when, or why nobody knows.
func TestStart(t *testing.T) {
	const evicted = "phase: Running, conditions: [{type: DisruptionTarget, status: 'True', reason: PreemptionByScheduler, message: 'PriorityPreemption: evicted to make room for team/pod/next'}]"
	says := func(name, reason, text string) string {
		return podText(name, "", "", "phase: Pending, conditions: [{type: muster.sh/Waiting, status: 'True', reason: "+reason+", message: '"+text+"', lastTransitionTime: ago(1s)}]")
	}
	client, _ := cluster(t, says("next", "Victims", "pods still leaving for it: 2")+podText("later", "", "", "phase: Pending")+
		says("then", "Resources", "needs much; jobs ahead: 2; expected start: 2026-01-31T18:00:00Z")+
		says("some-day", "Resources", "needs more; jobs ahead: 3; expected start unknown: running jobs without a walltime, or past it: 4; nearest places: move 2 GPUs off n1 | move 3 GPUs off n2")+
		says("owner", "Resources", "needs its own; jobs ahead: 1; evicts others at 2026-01-31T18:00:00Z: team/pod/v1 (minimum run time 5m); in queue: owners; nearest places: move 2 GPUs off n1")+
		podText("v1", ", deletionTimestamp: ago(-20s)", ", nodeName: n", evicted)+podText("v2", ", deletionTimestamp: ago(-30s)", ", nodeName: n", evicted))
	jobs, err := client.Jobs(context.Background(), Filter{Namespace: "team"})
	if err != nil {
		t.Fatal(err)
	}
	soon, late := epoch.Add(30*time.Second), time.Date(2026, 1, 31, 18, 0, 0, 0, time.UTC)
	for name, want := range map[string]struct {
		start           *time.Time
		settled         bool
		why, said, says string
	}{
		"next":     {&soon, true, "", "at the latest: its places are reserved", `Starts by +` + table.Stamp(soon) + `\n`},
		"then":     {&late, false, "", "if walltimes hold", `Starts +` + table.Stamp(late) + `, if running jobs end within their walltimes\n`},
		"some-day": {nil, false, "running jobs without a walltime, or past it: 4", "running jobs without a walltime, or past it: 4", `Starts +unknown: running jobs without a walltime, or past it: 4\n`},
		"owner": {&late, false, "", "soon after it evicts team/pod/v1 (minimum run time 5m)",
			`Queue +owners\n(.|\n)*Starts +soon after ` + table.Stamp(late) + `, when it evicts team/pod/v1 \(minimum run time 5m\)\nTo change +` + core.EvictsAdvice + `\n`},
		"later": {nil, false, "", reasonOf(NotSeen).Change, `Reason +NotSeen`},
	} {
		j := jobs[slices.IndexFunc(jobs, func(j Job) bool { return j.ID == "pod/"+name })]
		if (j.Start == nil) != (want.start == nil) || j.Start != nil && !j.Start.Equal(*want.start) || j.Settled != want.settled || j.NoStart != want.why || j.expected() != want.said {
			t.Errorf("%s starts at %v, settled: %v, %q, %q", name, j.Start, j.Settled, j.NoStart, j.expected())
		}
		if strings.Contains(j.Detail, "expected") || strings.Contains(j.Detail, "evicts") {
			t.Errorf("%s: detail %q", name, j.Detail)
		}
		x, err := client.Explain(context.Background(), "team", name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "then" && x.Ahead != 2 || name == "some-day" && (x.Ahead != 3 || x.Detail != "needs more" || len(x.Nearest) != 2 || x.Nearest[1] != "move 3 GPUs off n2") {
			t.Errorf("%s: %d ahead, detail %q", name, x.Ahead, x.Detail)
		}
		var text bytes.Buffer
		if err := x.Write(&text, &View{Now: epoch}); err != nil || !regexp.MustCompile(want.says).MatchString(text.String()) {
			t.Errorf("%s: %v\n%s", name, err, text.String())
		}
	}
	var text bytes.Buffer
	if err := Starts(&text, &View{Now: epoch}, jobs); err != nil {
		t.Fatal(err)
	}
	var order []string
	for line := range strings.Lines(text.String()) {
		order = append(order, strings.Fields(line)[0])
	}
	if !slices.Equal(order[:3], []string{"JOBID", "pod/next", "pod/then"}) || len(order) != 6 {
		t.Errorf("got\n%s", text.String())
	}
}

// A list that becomes too old while it is read is read again, without counting
// anything twice.
func TestListThatExpires(t *testing.T) {
	var objects strings.Builder
	for i := range page + 10 {
		objects.WriteString(podText(fmt.Sprintf("p-%d", i), ", labels: {muster.sh/gang: g}", "", "phase: Pending"))
	}
	fake, err := fakeapi.New(objects.String(), epoch)
	if err != nil {
		t.Fatal(err)
	}
	var expired atomic.Bool
	client := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("continue") != "" && expired.CompareAndSwap(false, true) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusGone)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
			return
		}
		fake.ServeHTTP(w, r)
	}))
	jobs, err := client.Jobs(context.Background(), Filter{})
	if err != nil || len(jobs) != 1 || jobs[0].Tasks[0].Pods != page+10 {
		t.Fatalf("got %v, %v; want one job of %d pods", len(jobs), err, page+10)
	}
	if !expired.Load() {
		t.Error("no list was continued")
	}
}

// drains runs a drain of node n1 in which the scheduler has done something before
// each look: steps are merge patches of pods of namespace team by name, none for a
// pod that is gone; "ID" in them is the request.
func drains(t *testing.T, ctx context.Context, d Drain, objects string, steps ...map[string]string) (told []string, node map[string]any, err error) {
	t.Helper()
	_, fake := cluster(t, "apiVersion: v1\nkind: Node\nmetadata: {name: n1}"+objects)
	send := func(method, path, body string) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		answer := httptest.NewRecorder()
		if fake.ServeHTTP(answer, r); answer.Code != http.StatusOK {
			t.Errorf("%s %s: %s", method, path, answer.Body)
		}
	}
	const at = "/api/v1/nodes/n1"
	client := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == at && len(steps) > 0 {
			asked := drainOf(fake.Object(at))
			_, request, _ := strings.Cut(asked, " ")
			for name, patch := range steps[0] {
				if path := "/api/v1/namespaces/team/pods/" + name; patch == "" {
					send(http.MethodDelete, path, "")
				} else {
					send(http.MethodPatch, path, strings.ReplaceAll(patch, "ID", request))
				}
			}
			steps = steps[1:]
		}
		fake.ServeHTTP(w, r)
	}))
	d.Node, d.Pause = "n1", time.Millisecond
	tell := d.Tell
	d.Tell = func(line string) {
		told = append(told, line)
		if tell != nil {
			tell(line)
		}
	}
	err = client.Drain(ctx, d)
	return told, fake.Object(at), err
}

func drainOf(node map[string]any) string {
	asked, _, _ := unstructured.NestedString(node, "metadata", "annotations", v1alpha1.DrainAnnotation)
	return asked
}

// movingText is a patch that has a pod say how it moves.
func movingText(status, message string) string {
	return fmt.Sprintf(`{"status":{"phase":"Running","conditions":[{"type":"muster.sh/Moving","status":%q,"message":%q}]}}`, status, message)
}

// A drain asks the scheduler, tells what it does, and ends when Muster's pods are
// gone; those of others stay.
func TestDrain(t *testing.T) {
	on := ", nodeName: n1"
	told, node, err := drains(t, context.Background(), Drain{Replace: 10 * time.Minute, Idle: time.Hour},
		podText("a", "", on, "phase: Running")+
			podText("b", ", ownerReferences: [{apiVersion: example.com/v1, kind: DaemonSet, name: b, uid: u, controller: true}]", on, "phase: Running")+podText("late", "", "", "phase: Pending")+
			strings.Replace(podText("c", "", on, "phase: Running"), "schedulerName: muster", "schedulerName: other", 1)+
			podText("d", ", ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: u, controller: true}]", on, "phase: Running"),
		map[string]string{"a": movingText("True", "a-2 waits")},
		map[string]string{"b": movingText("True", "a budget")},
		map[string]string{"b": `{"metadata":{"deletionTimestamp":"2026-01-31T12:00:00Z"}}`},
		map[string]string{"a": "", "b": ""},
		map[string]string{"late": `{"spec":{"nodeName":"n1"}}`}, // it was being bound
		map[string]string{"late": ""},
	)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"node n1 is cordoned",
		"team/a waits to leave: a-2 waits", "team/b waits to leave: a budget", "team/b leaves", "team/a is gone; pods left: 0", "team/b is gone; pods left: 0", "team/late is gone; pods left: 0",
		"node n1 is drained: it has no pods of Muster left; other pods: 2",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
	if closed, _, _ := unstructured.NestedBool(node, "spec", "unschedulable"); drainOf(node) != "" || !closed {
		t.Errorf("the node is left as %v", node)
	}
}

// A drain that ends early says what is left, and goes on unless it was given up.
func TestDrainThatEndsEarly(t *testing.T) {
	pod := podText("a", "", ", nodeName: n1", "phase: Running")
	kept := func(request string) string {
		m := &translate.Move{Owner: metav1.OwnerReference{Name: "r"}, Hash: "h", Kept: v1alpha1.MovingNotReplaced, Request: request}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.MovingAnnotation: m.String()}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(patch)
	}
	ctx, interrupt := context.WithCancel(context.Background())
	told, node, err := drains(t, ctx, Drain{Replace: time.Minute, Tell: func(line string) {
		if strings.HasPrefix(line, "the scheduler has not reacted to team/a") {
			interrupt()
		}
	}}, pod, map[string]string{"a": kept("an earlier one")})
	if want := "interrupted: node n1 is not drained; pods left: team/a; the scheduler continues the drain: run the command again to watch it, or end it with --uncordon"; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if !strings.HasPrefix(drainOf(node), "1m ") || len(told) != 2 {
		t.Errorf("when interrupted, the node asks for %q; told %q", drainOf(node), told)
	}

	_, node, err = drains(t, context.Background(), Drain{Timeout: time.Second, Idle: time.Hour}, pod)
	if want := "after 1s, node n1 is not drained; pods left: team/a; it stays cordoned: drain it again, or uncordon it with --uncordon"; err == nil || err.Error() != want || drainOf(node) != "" {
		t.Errorf("when the time is up: %v; the node asks for %q", err, drainOf(node))
	}

	told, node, err = drains(t, context.Background(), Drain{Idle: time.Hour}, pod, map[string]string{"a": movingText("False", "no room")}, map[string]string{"a": kept("ID")})
	if err == nil || !strings.HasPrefix(err.Error(), "some pods were not replaced in time: node n1 is not drained; pods left: team/a; they keep running") || drainOf(node) != "" {
		t.Errorf("when a pod stays: %v; the node asks for %q", err, drainOf(node))
	}
	if !slices.Contains(told, "team/a stays: no room") {
		t.Errorf("told %q", told)
	}

	locked := strings.Replace(movingText("False", translate.LockedMessage("ID")), `"type"`, `"reason":"Locked","type"`, 1)
	told, _, err = drains(t, context.Background(), Drain{Idle: time.Hour}, pod, map[string]string{"a": strings.Replace(locked, "ID", "an earlier one", 1)}, map[string]string{"a": locked})
	if err == nil || !strings.HasPrefix(err.Error(), "locked pods stay: node n1 is not drained; pods left: team/a; they keep running") {
		t.Errorf("when a locked pod stays: %v", err)
	}
	if n := len(told); n < 2 || !strings.HasPrefix(told[n-1], "team/a stays: its job is locked") || strings.Contains(told[n-1], "earlier") {
		t.Errorf("told %q", told)
	}
}

// A pod that moves is still its owner's, and says what it waits for.
func TestExplainMoving(t *testing.T) {
	const labels = ", labels: {app: serve}"
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "serve-5d4f", UID: "u", Controller: new(true)}
	move := &translate.Move{Owner: owner, Hash: "5d4f"}
	client, _ := cluster(t, podText("serve-5d4f-a", labels+", ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: serve-5d4f, uid: u, controller: true}]", "", "phase: Pending")+
		podText("serve-5d4f-b", labels+", annotations: {muster.sh/moving: '"+move.String()+"'}", ", nodeName: n1",
			"phase: Running, conditions: [{type: muster.sh/Moving, status: 'True', reason: Replacing, message: serve-5d4f-a waits}]"))
	x, err := client.Explain(context.Background(), "team", "serve-5d4f")
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Pods) != 2 || x.ID != "replicaset/serve-5d4f" || x.Kind != "inference" || x.tasks() != "main 1/2 (moving: 1)" {
		t.Errorf("%s %s: %s, pods %v", x.ID, x.Kind, x.tasks(), x.Pods)
	}
	if p := x.Pods[1]; p.State != "moving" || p.Why != "serve-5d4f-a waits" {
		t.Errorf("got %+v", p)
	}
}

func TestExplainFindsByAnyName(t *testing.T) {
	const owner = ", ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]"
	client, _ := cluster(t, podText("train-0", owner, ", schedulingGroup: {podGroupName: train-x}", "phase: Pending")+podText("x", "", "", "phase: Pending")+
		podText("y", ", labels: {muster.sh/gang: x}", "", "phase: Pending")+
		podText("s-5d4f-a", ", ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: s-5d4f, uid: v, controller: true}]", "", "phase: Pending"))
	for name, want := range map[string]string{
		"train": "job/train", "job/train": "job/train", "podgroup/train-x": "job/train", "team/podgroup/train-x": "job/train", "train-0": "job/train",
		"pod/x": "pod/x", "gang/x": "gang/x", "y": "gang/x",
		"s": "replicaset/s-5d4f", "deployment/s": "replicaset/s-5d4f", "s-5d4f": "replicaset/s-5d4f",
	} {
		x, err := client.Explain(context.Background(), "team", name)
		if err != nil || x.ID != want {
			t.Errorf("%s: got %v, %v; want %s", name, x, err, want)
		}
	}
	if _, err := client.Explain(context.Background(), "team", "x"); err == nil || err.Error() != `"x" is ambiguous: name one of gang/x, pod/x` {
		t.Errorf("x: got %v", err)
	}
	unknown := (*NoJobError)(nil)
	if _, err := client.Explain(context.Background(), "team", "z"); !errors.As(err, &unknown) || !slices.Equal(unknown.Known, []string{"gang/x", "job/train", "pod/x", "replicaset/s-5d4f"}) {
		t.Errorf("z: got %v", err)
	}
}

// Events are those about the job, and about the pods that its Job made before;
// not of other things of the same name.
func TestExplainHasTheEventsOfTheJob(t *testing.T) {
	event := func(name, kind, object, uid, ago string) string {
		return fmt.Sprintf("\n---\napiVersion: v1\nkind: Event\nmetadata: {name: %s, namespace: team}\ninvolvedObject: {kind: %s, name: %s, uid: '%s'}\nreason: %[1]s\nlastTimestamp: ago(%[5]s)", name, kind, object, uid, ago)
	}
	client, _ := cluster(t, "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a, namespace: team, uid: u, creationTimestamp: ago(2h)}\nspec: {template: {spec: {schedulerName: muster}}}"+
		podText("a-0-aaaaa", ", ownerReferences: [{apiVersion: batch/v1, kind: Job, name: a, uid: u, controller: true}]", "", "phase: Pending")+
		event("made", "Job", "a", "u", "119m")+event("preempted", "Pod", "a-0-zzzzz", "gone", "90m")+event("waits", "Pod", "a-0-aaaaa", "uid-a-0-aaaaa", "1m")+
		event("other-uid", "Job", "a", "v", "1m")+event("other-pod", "Pod", "a-b-zzzzz", "x", "1m")+event("older", "Pod", "a-0-yyyyy", "x", "3h"))
	x, err := client.Explain(context.Background(), "team", "a")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range x.Events {
		got = append(got, e.Reason)
	}
	if want := []string{"made", "preempted", "waits"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTimesAreWritten(t *testing.T) {
	for d, want := range map[time.Duration][2]string{
		0:                              {"0:00", "-"},
		59 * time.Second:               {"0:59", "59s"},
		61 * time.Second:               {"1:01", "1m01s"},
		3661 * time.Second:             {"1:01:01", "1h01m"},
		(86400*2 + 3661) * time.Second: {"2-01:01:01", "2d01h"},
	} {
		if got := [2]string{table.Clock(d), table.Span(d)}; got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

// A terminal's lines are not longer than it is wide: the last column is cut.
func TestTablesFitTheScreen(t *testing.T) {
	client, _ := cluster(t, podText("a", "", "", "phase: Pending, conditions: [{type: muster.sh/Waiting, status: 'True', reason: TopologyTooTight, message: why, lastTransitionTime: ago(1s)}]"))
	jobs, err := client.Jobs(context.Background(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var wide, narrow bytes.Buffer
	if err := errors.Join(Queue(&wide, &View{Now: epoch}, jobs), Queue(&narrow, &View{Now: epoch, Screen: 60}, jobs)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(wide.String(), "(Resources: TopologyTooTight)") {
		t.Errorf("got\n%s", wide.String())
	}
	for line := range strings.Lines(narrow.String()) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 60 {
			t.Errorf("%d characters: %q", n, line)
		}
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	answer := func(code int, reason string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"because","code":%d}`, reason, code)
		})
	}
	for want, c := range map[string]*Client{
		"no permission to list the pods of namespace team: because":     client(t, answer(403, "Forbidden")),
		"rejects your credentials: renew them":                          client(t, answer(401, "Unauthorized")),
		"list the pods of namespace team: because":                      client(t, answer(500, "InternalError")),
		"does not answer (connection refused): check that it runs, and": func() *Client { c, _ := New(&rest.Config{Host: "http://127.0.0.1:1"}); return c }(),
	} {
		if _, err := c.Jobs(context.Background(), Filter{Namespace: "team"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A node's GPUs are those that are used, those that can be, and the broken.
func TestNodesCountAllPods(t *testing.T) {
	client, _ := cluster(t, `
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {nvidia.com/gpu.product: NVIDIA-H800}}
status: {capacity: {nvidia.com/gpu: "8"}, allocatable: {nvidia.com/gpu: "7"}, conditions: [{type: Ready, status: 'True'}]}`+
		podText("a", "", ", nodeName: n1", "phase: Running")+podText("b", ", deletionTimestamp: ago(-9s)", ", nodeName: n1", "phase: Running")+
		podText("done", "", ", nodeName: n1", "phase: Succeeded")+podText("waits", "", "", "phase: Pending"))
	nodes, err := client.Nodes(context.Background())
	if err != nil || len(nodes) != 1 {
		t.Fatal(nodes, err)
	}
	n := nodes[0]
	got := []any{n.Model, n.State, n.GPUs, n.Unhealthy, n.Used.String(), n.Free.String(), n.Pods}
	if want := []any{"H800", Mixed, 8, 1, "4", "3", 2}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A node of which pods have more than there is, of all GPUs or of one, is marked.
func TestNodesOvercommitted(t *testing.T) {
	on := func(name, gpus string) string {
		return podText(name, ", annotations: {muster.sh/gpus: '"+gpus+"'}", ", nodeName: n1", "phase: Running")
	}
	for name, test := range map[string]struct {
		gpus, pods string
		want       bool
	}{
		"none":                {"8", on("a", "0,1") + on("b", "2,3"), false},
		"one device":          {"8", on("a", "0,1") + on("b", "1,2"), true},
		"all":                 {"3", on("a", "") + on("b", ""), true},
		"says too many":       {"8", on("a", "0,1") + on("b", "0,1,2"), false},
		"says those not here": {"8", on("a", "0,1") + on("b", "9,10"), false},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := cluster(t, `
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {nvidia.com/gpu.product: NVIDIA-H800}}
status: {capacity: {nvidia.com/gpu: "`+test.gpus+`"}, allocatable: {nvidia.com/gpu: "`+test.gpus+`"}, conditions: [{type: Ready, status: 'True'}]}`+test.pods)
			nodes, err := client.Nodes(context.Background())
			if err != nil || len(nodes) != 1 {
				t.Fatal(nodes, err)
			}
			if nodes[0].Overcommitted != test.want {
				t.Errorf("overcommitted: %v", nodes[0].Overcommitted)
			}
			for _, write := range []func(io.Writer, *View, []Node) error{Pools, NodeLines} {
				var out strings.Builder
				if err := write(&out, &View{}, nodes); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(out.String(), "OVERCOMMITTED") != test.want {
					t.Errorf("the table is\n%s", &out)
				}
			}
		})
	}
}

// A label that names a PriorityClass says the priority.
func TestPriorityByLabel(t *testing.T) {
	client, _ := cluster(t, "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: urgent}\nvalue: 1000"+
		podText("a", ", labels: {priorityClassName: urgent}", "", "phase: Pending")+podText("b", ", labels: {priorityClassName: none}", ", priority: 5", "phase: Pending"))
	jobs, err := client.Jobs(context.Background(), Filter{})
	if err != nil || len(jobs) != 2 || jobs[0].Priority != 1000 || jobs[1].Priority != 5 {
		t.Errorf("got %+v, %v", jobs, err)
	}
}

// The queue of pods that name none is that of the Job that makes them, whether they
// are there or not.
// A gang that an object made has the name of that object, as a Job of Volcano has.
func TestGangsHaveTheNameOfTheirOwner(t *testing.T) {
	const of = ", labels: {volcano.sh/queue-name: q}, annotations: {scheduling.k8s.io/group-name: train-0123}, ownerReferences: [{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: train, uid: u, controller: true}]"
	client, _ := cluster(t, podText("train-worker-0", of, "", "phase: Pending")+podText("train-worker-1", of, "", "phase: Pending"))
	jobs, err := client.Jobs(context.Background(), Filter{Namespace: "team"})
	if err != nil || len(jobs) != 1 || jobs[0].ID != "job.batch.volcano.sh/train" || jobs[0].Group != "gang/train-0123" || jobs[0].Queue != "q" {
		t.Errorf("got %+v, %v", jobs, err)
	}
	if x, err := client.Explain(context.Background(), "team", "train"); err != nil || len(x.Pods) != 2 {
		t.Errorf("explained as %+v, %v", x, err)
	}
}

func TestQueueOfTheJob(t *testing.T) {
	job := func(name, spec string) string {
		return "\n---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: " + name + ", namespace: team, uid: u" + name + ", labels: {kueue.x-k8s.io/queue-name: q}}\nspec: {" + spec + "template: {spec: {schedulerName: muster}}}"
	}
	client, _ := cluster(t, job("a", "")+job("b", "suspend: true, ")+
		podText("a-0", ", ownerReferences: [{apiVersion: batch/v1, kind: Job, name: a, uid: ua, controller: true}]", "", "phase: Pending"))
	jobs, err := client.Jobs(context.Background(), Filter{Queues: []string{"q"}})
	if err != nil || len(jobs) != 2 || jobs[0].ID != "job/a" || jobs[1].ID != "job/b" {
		t.Errorf("got %+v, %v", jobs, err)
	}
}

// GPUs that a node publishes by DRA are its GPUs: used are those that claims have,
// and those that Muster has written on pods.
func TestNodesHavePublishedGPUs(t *testing.T) {
	slice := func(node string, devices ...string) string {
		text := fmt.Sprintf(`
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: %s-gpus}
spec: {driver: gpu.nvidia.com, nodeName: %[1]s, pool: {name: %[1]s, generation: 1, resourceSliceCount: 1}, devices: [`, node)
		for i, extra := range devices {
			text += fmt.Sprintf("{name: gpu-%d, attributes: {type: {string: gpu}, index: {int: %[1]d}, productName: {string: NVIDIA H800}}%s},", i, extra)
		}
		return text + "]}"
	}
	objects := `
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "8"}, conditions: [{type: Ready, status: 'True'}]}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
status: {allocatable: {cpu: "8"}, conditions: [{type: Ready, status: 'True'}]}` +
		slice("n1", "", "", ", taints: [{key: broken, effect: NoSchedule}]", "") + `
---
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: r}
spec: {deviceSelector: {pool: n1, device: gpu-1}, taint: {key: service, effect: NoSchedule}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: other}
spec: {}
status: {allocation: {devices: {results: [{request: r, driver: gpu.nvidia.com, pool: n1, device: gpu-0}]}}}` +
		podText("a", ", annotations: {muster.sh/gpus: '3'}", ", nodeName: n1, resourceClaims: [{name: g, resourceClaimName: d}]", "phase: Running") +
		podText("b", "", ", nodeName: n2", "phase: Running")
	objects = regexp.MustCompile(`nvidia.com/gpu: "?2"?`).ReplaceAllString(objects, `cpu: "2"`)
	for forbid, want := range map[string][]any{
		"^$":               {"H800", 4, 2, "2", "0"},
		"resourceclaims":   {"H800", 4, 2, "1", "1"},
		"devicetaintrules": {"H800", 4, 1, "2", "1"},
		"resourceslices":   {"", 0, 0, "1", "0"},
	} {
		client, fake := cluster(t, objects)
		fake.Forbid(regexp.MustCompile(forbid))
		nodes, err := client.Nodes(context.Background())
		if err != nil || len(nodes) != 2 {
			t.Fatal(nodes, err)
		}
		n := nodes[slices.IndexFunc(nodes, func(n Node) bool { return n.Name == "n1" })]
		if got := []any{n.Model, n.GPUs, n.Unhealthy, n.Used.String(), n.Free.String()}; !reflect.DeepEqual(got, want) {
			t.Errorf("without %s: got %v, want %v", forbid, got, want)
		}
		top, err := client.Top(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if n.GPUs > 0 && (len(top.Models) != 1 || top.Models[0].GPUs != 4 || top.Models[0].Used != n.Used) {
			t.Errorf("without %s: models %+v", forbid, top.Models)
		}
	}
	client, _ := cluster(t, objects)
	jobs, err := client.Jobs(context.Background(), Filter{})
	if err != nil || len(jobs) != 2 || jobs[0].GPUs.String() != "1" {
		t.Errorf("jobs %+v, %v", jobs, err)
	}
}

// docs/cli.md has every reason with its code.
func TestReasonsAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)`[^|]* \\| `([A-Za-z]+)` \\|$").FindAllStringSubmatch(string(data), -1) {
		got[row[1]] = row[2]
	}
	want := map[string]string{}
	for _, r := range Reasons {
		want[r.Name] = r.Code
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the table has %v, want %v", got, want)
	}
}
