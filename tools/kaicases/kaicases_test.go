package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// snapshots are the cases of testdata as snapshots. The others are outside.
var snapshots = []string{
	`{"topology":{},
	"nodes":[{"name":"n0","model":"G","gpus":2,"cpuMilli":20000000,"memMiB":20000,"labels":{"kai.scheduler/type":"n0"}}],
	"queues":[
	{"name":"d","weight":3,"quota":[{"model":"*","nominal":1}]},
	{"name":"owner","parent":"d","weight":3,"quota":[{"model":"*","nominal":1}]},
	{"name":"guest","parent":"d","weight":0,"quota":[{"model":"*","nominal":1,"borrowingLimit":1}]}],
	"jobs":[
	{"name":"waits","queue":"owner","priority":50,"gang":true,"preemptible":true,"submittedAgo":180,"topology":{},
	"tasks":[{"pods":1,"gpuMilli":1000,"cpuMilli":1000,"memMiB":1000}]},
	{"name":"old","queue":"guest","priority":50,"gang":true,"preemptible":true,"submittedAgo":120,"topology":{},
	"tasks":[{"pods":1,"gpuMilli":1000,"cpuMilli":1000,"memMiB":1000,"running":[{"pod":"old-0","node":"n0","gpus":[0]}]}]},
	{"name":"young","queue":"guest","priority":50,"gang":true,"preemptible":true,"submittedAgo":60,"topology":{},
	"tasks":[{"pods":1,"gpuMilli":1000,"cpuMilli":1000,"memMiB":1000,"running":[{"pod":"young-0","node":"n0","gpus":[1]}]}]}]}`,
	`{"topology":{},
	"nodes":[{"name":"n1","model":"G","gpus":3,"cpuMilli":8000,"memMiB":9000,"labels":{"kai.scheduler/type":"n1"}}],
	"queues":[{"name":"q","weight":0,"priority":1,"quota":[{"model":"*","nominal":3}],"resources":[{"name":"cpu","nominal":"4000m"}]}],
	"jobs":[
	{"name":"part","queue":"q","priority":100,"gang":true,"preemptible":false,"submittedAgo":120,"topology":{},
	"tasks":[{"pods":1,"gpuMilli":500,"cpuMilli":1000,"memMiB":1000,"running":[{"pod":"part-0","node":"n1","gpus":[0]}]}]},
	{"name":"gang","queue":"q","priority":49,"gang":true,"preemptible":true,"submittedAgo":60,"topology":{},
	"tasks":[{"pods":3,"minPods":2,"gpuMilli":1000,"cpuMilli":2000,"memMiB":1000,
	"matchExpressions":[{"key":"kai.scheduler/type","operator":"In","values":["n1"]}]}]}]}`,
	`{"topology":{},
	"nodes":[{"name":"n","model":"G","gpus":3,"cpuMilli":20000000,"memMiB":2000,"labels":{"kai.scheduler/type":"n"}}],
	"queues":[{"name":"q","weight":0,"quota":[{"model":"*","nominal":3}]}],
	"jobs":[{"name":"j","queue":"q","priority":0,"gang":true,"preemptible":true,"submittedAgo":60,"topology":{},
	"tasks":[{"name":"s-00","pods":2,"minPods":1,"gpuMilli":1000,"cpuMilli":1000,"memMiB":750},
	{"name":"s-11","pods":1,"gpuMilli":1000,"cpuMilli":1000,"memMiB":750}]}]}`,
	`{"topology":{},
	"nodes":[{"name":"n","model":"G","gpus":2,"cpuMilli":20000000,"memMiB":20000,"labels":{"kai.scheduler/type":"a"}}],
	"queues":[{"name":"q","weight":0,"quota":[{"model":"*","nominal":2}]}],
	"jobs":[
	{"name":"goes","queue":"q","priority":0,"gang":true,"preemptible":true,"submittedAgo":120,"topology":{},
	"tasks":[{"pods":0,"gpuMilli":1000,"cpuMilli":1000,"memMiB":1000,"leaving":[{"pod":"goes-0-leaving","node":"n","gpus":[0]}]}]},
	{"name":"back","queue":"q","priority":0,"gang":true,"preemptible":true,"submittedAgo":60,"topology":{},
	"tasks":[{"pods":1,"gpuMilli":1000,"cpuMilli":1000,"memMiB":1000,
	"matchExpressions":[{"key":"kai.scheduler/type","operator":"In","values":["a"]}],
	"leaving":[{"pod":"back-0-leaving","node":"n","gpus":[1]}]}]}]}`,
}

// rounds returns what muster would print, with a last round in which nothing is decided.
func rounds(t *testing.T, decisions ...string) answer {
	t.Helper()
	var a answer
	text := `{"rounds": [{"decisions": [` + strings.Join(decisions, ", ") + `]}, {"decisions": []}, {"decisions": []}]}`
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestCases(t *testing.T) {
	const (
		old     = `{"op": "evict", "job": "old", "pod": "old-0"}`
		young   = `{"op": "evict", "job": "young", "pod": "young-0"}`
		waits   = `{"op": "bind", "job": "waits", "pod": "waits-0", "node": "n0"}`
		gang0   = `{"op": "bind", "job": "gang", "pod": "gang-0", "node": "n1"}`
		gang1   = `{"op": "bind", "job": "gang", "pod": "gang-1", "node": "n1"}`
		gang2   = `{"op": "bind", "job": "gang", "pod": "gang-2", "node": "n1"}`
		evicted = `{"op": "evict", "job": "part", "pod": "part-0"}`
	)
	const (
		j0 = `{"op": "bind", "job": "j", "pod": "j-0", "node": "n"}`
		j1 = `{"op": "bind", "job": "j", "pod": "j-1", "node": "n"}`
		j2 = `{"op": "bind", "job": "j", "pod": "j-2", "node": "n"}`
	)
	for _, c := range []struct {
		name string
		n    int
		says []string
		want verdict
	}{
		{"as expected", 0, []string{young, waits}, exact},
		{"the job that is the same", 0, []string{old, waits}, equivalent},
		{"the owner waits", 0, nil, differs},
		{"as expected, by count of pods", 1, []string{gang0, gang2}, exact},
		{"more", 1, []string{gang0, gang1, gang2}, better},
		{"a gang below its minimum", 1, []string{gang0}, differs},
		{"more, but a job that must stay was evicted", 1, []string{evicted, gang0, gang1, gang2}, differs},
		{"MIG", 2, nil, outside},
		{"jobs made by code", 3, nil, outside},
		{"no result", 4, nil, outside},
		{"both groups of pods", 5, []string{j0, j1, j2}, exact},
		{"one group of pods", 5, []string{j0, j1}, differs},
		{"a pod comes back", 6, []string{`{"op": "bind", "job": "back", "pod": "back-0", "node": "n"}`}, exact},
	} {
		cases, err := readCases("testdata")
		if err != nil {
			t.Fatal(err)
		}
		d := func(string) (answer, error) { return rounds(t, c.says...), nil }
		got, why, err := replay(&cases[c.n], filepath.Join(t.TempDir(), "s.json"), d)
		if err != nil || got != c.want {
			t.Errorf("%s: %v (%q), %v; want %v", c.name, got, why, err, c.want)
		}
	}
}

func TestRefused(t *testing.T) {
	cases, err := readCases("testdata")
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(string) (answer, error) { return answer{}, errors.New("no such field") }
	got, why, err := replay(&cases[0], filepath.Join(t.TempDir(), "s.json"), refuse)
	if err != nil || got != differs || len(why) != 1 || why[0] != "no such field" {
		t.Errorf("a snapshot that is refused: %v (%q), %v; want %v for the reason", got, why, err, differs)
	}
}

func TestRest(t *testing.T) {
	cases, err := readCases("testdata")
	if err != nil {
		t.Fatal(err)
	}
	c, err := convert(&cases[0])
	if err != nil {
		t.Fatal(err)
	}
	var a answer
	text := `{"rounds": [{"decisions": [{"op": "evict", "pod": "young-0"}]}, {"decisions": [{"op": "bind", "pod": "waits-0", "node": "n0"}]}]}`
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatal(err)
	}
	if got, why := c.compare(&a); got != differs {
		t.Errorf("what is decided in the last round: %v (%q), want %v", got, why, differs)
	}
}

func TestSnapshots(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	if err := run(&out, "testdata", dir, true, func(string) (answer, error) { return answer{}, nil }); err != nil {
		t.Fatal(err)
	}
	for i, want := range snapshots {
		data, err := os.ReadFile(filepath.Join(dir, []string{"000.json", "001.json", "005.json", "006.json"}[i]))
		if err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, data); err != nil {
			t.Fatal(err)
		}
		if got, want := compact.String(), strings.ReplaceAll(strings.ReplaceAll(want, "\n", ""), "\t", ""); got != want {
			t.Errorf("case %d is the snapshot\n%s\nwant\n%s", i, got, want)
		}
	}
	for _, want := range []string{"000 differs    cases_test.go:9 an owner takes back what is its own\n", "it sets RequiredMigInstances", "jobs are made by code", "it expects nothing of any job", "0 of 4 cases that apply agree: 0.0 %\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("found no %q in\n%s", want, out.String())
		}
	}
}
