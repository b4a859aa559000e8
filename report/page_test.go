package report

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/workload"
)

func pageOf(t *testing.T, runs []Run) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, runs); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What a page shows, in a real browser: every plot has the marks of every run,
// in light and dark; the map changes with its slider; nothing is asked of the
// network, and there is no error.
func TestPageInABrowser(t *testing.T) {
	chromium := browser(t)
	three := []string{"StrictFIFO", "BestEffortFIFO", "default"}
	for _, c := range []struct {
		name          string
		nodes         int
		policies      []string
		width, height int64
	}{
		{"1000-nodes", 1000, three[2:], 1280, 900},
		{"1000-nodes-compared", 1000, three, 1280, 900},
		{"1000-nodes-phone", 1000, three, 390, 800},
		{"37707-nodes", 37707, three[2:], 1280, 900},
		{"37707-nodes-compared", 37707, three, 1280, 900},
	} {
		if c.nodes > 1000 && testing.Short() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			page := pageOf(t, synthetic(c.nodes, c.policies...))
			t.Logf("%d bytes", len(page))
			p := open(t, chromium, page, c.width, c.height)
			background := map[string]string{}
			for _, scheme := range []string{"light", "dark"} {
				p.scheme(scheme)
				checkPlots(t, p, len(c.policies))
				checkMap(t, p)
				if len(c.policies) > 1 {
					checkSwitch(t, p, len(c.policies))
				}
				background[eval[string](p, `getComputedStyle(document.body).backgroundColor`)] = scheme
				p.shoot(c.name + "-" + scheme)
			}
			if len(background) != 2 {
				t.Errorf("backgrounds are %v", background)
			}
			p.quiet()
		})
	}
}

// checkPlots checks that each figure is there and has the marks of every run.
func checkPlots(t *testing.T, p *tab, runs int) {
	t.Helper()
	drawn := eval[map[string][]int](p, drawnIn)
	want := []string{"gar", "gfr", "pending", "running", "jwtd", "jtted-nodes", "jtted-groups"}
	for q := range queuesShown + 1 {
		want = append(want, "queue-"+strconv.Itoa(q))
	}
	for r := range runs {
		want = append(want, fmt.Sprintf("forecast-%d-0", r), fmt.Sprintf("forecast-%d-1", r))
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(drawn)); !slices.Equal(got, want) {
		t.Errorf("figures are %v, want %v", got, want)
	}
	for figure, colours := range drawn {
		n := runs
		if figure == "jwtd" && runs == 1 {
			n = 4 // mean and quantiles
		}
		if strings.HasPrefix(figure, "forecast") {
			n = 3 // what was held, and expected at two times before
		}
		if len(colours) != n {
			t.Errorf("%s has marks in the colours %v, want %d", figure, colours, n)
		}
	}
	for _, b := range eval[[]string](p, overlaps) {
		t.Error(b)
	}
}

// checkMap checks that the map has nodes in all states, and others at the end
// than at the beginning.
func checkMap(t *testing.T, p *tab) {
	t.Helper()
	from, first := eval[string](p, moveTo("min")), eval[map[string]int](p, mapColours)
	to, last := eval[string](p, moveTo("max")), eval[map[string]int](p, mapColours)
	// The page, the blocks, idle, four parts, full, lost.
	if len(first) < 9 {
		t.Errorf("the map has the colours %v, want 9 at least", first)
	}
	if from == to || maps.Equal(first, last) {
		t.Errorf("the map does not change from %q to %q", from, to)
	}
	if text := eval[string](p, pointAtFirstNode); !regexp.MustCompile(`^gpu-00000 .*(of 8 GPUs allocated|lost) H800 · spine-0/leaf-0$`).MatchString(text) {
		t.Errorf("the pointer says %q", text)
	}
	eval[string](p, moveTo("min"))
	if played := eval[string](p, play); played == from {
		t.Errorf("playing leaves the map at %q", played)
	}
}

// checkSwitch checks that the map and the longest waits change with the policy.
func checkSwitch(t *testing.T, p *tab, runs int) {
	t.Helper()
	for _, section := range []string{"map", "longest"} {
		if n := len(slices.Compact(eval[[]string](p, textByRun(section)))); n != runs {
			t.Errorf("section %s says %d different things of %d policies", section, n, runs)
		}
	}
}

// Twelve queues are shown, parents with those below them, the others together.
func TestQueuesOfThePage(t *testing.T) {
	c := &workload.Cluster{Queues: []core.Queue{
		{Name: "org", Quota: []core.Quota{{Model: "H800", Nominal: 3000}, {Model: "A10", Nominal: 500}}},
		{Name: "team", Parent: "org", Quota: []core.Quota{{Model: "A10", Nominal: 500}, {Model: "*", Nominal: 2000}}},
	}}
	r := Run{Cluster: c, History: metrics.History{Interval: core.Second, End: 3 * core.Second, Queues: []string{"team"}}}
	first, last := metrics.Frame{Queues: []core.Milli{9000}}, metrics.Frame{Queues: []core.Milli{7000}}
	for i := range 15 {
		r.History.Queues = append(r.History.Queues, "q"+strconv.Itoa(i))
		last.Queues = append(last.Queues, core.Milli(1000+i))
	}
	r.History.Frames = []metrics.Frame{first, last}
	shown := topQueues([]Run{r})
	times, held := queueUse(&r, shown)
	if len(shown) != queuesShown+1 || shown[0].Name != "org" || !shown[0].Parent || *shown[0].Quota != 3.5 || shown[1].Name != "team" ||
		*shown[1].Quota != 2 || shown[2].Name != "q14" || shown[2].Quota != nil || shown[12].Others != 5 {
		t.Errorf("queues shown are %+v", shown)
	}
	for i, want := range map[int][]float64{0: {9, 7}, 1: {9, 7}, 2: {0, 1.01}, 12: {0, 5.01}} {
		if !slices.Equal(held[i], want) {
			t.Errorf("queue %d holds %v, want %v", i, held[i], want)
		}
	}
	if !slices.Equal(times, []float64{0, 3}) {
		t.Errorf("times are %v", times)
	}
}

// Pages about runs of which little is known have no error either.
func TestBarePagesInABrowser(t *testing.T) {
	chromium := browser(t)
	bare := synthetic(4, "bare")[0]
	bare.Summary.JWTD, bare.Summary.JTTED, bare.Longest, bare.History.Frames = nil, nil, nil, bare.History.Frames[:1]
	bare.History.End = 0
	bare.Cluster.Queues = nil
	for name, runs := range map[string][]Run{"empty": {{}}, "two empty": {{}, {}}, "an instant": {bare}} {
		t.Run(name, func(t *testing.T) {
			p := open(t, chromium, pageOf(t, runs), 1000, 700)
			p.shoot(strings.ReplaceAll(name, " ", "-"))
			p.quiet()
		})
	}
}

// The page about a workload, beside a cluster.
func TestTracePageInABrowser(t *testing.T) {
	chromium := browser(t)
	o := workload.Options{Seed: 1, Length: 24 * 3600 * core.Second, GPUs: 4000}
	c, err := workload.OpenCluster("kant-inference-i7", o)
	if err != nil {
		t.Fatal(err)
	}
	o.Cluster = &c
	jobs, _, err := workload.OpenJobs("kant-inference-i7", o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := workload.Describe(jobs)
	if err != nil {
		t.Fatal(err)
	}
	s.Over(&c)
	var page bytes.Buffer
	if err := TraceHTML(&page, "a </script> trace", &s); err != nil {
		t.Fatal(err)
	}
	for name, width := range map[string]int64{"trace": 1280, "trace-phone": 390} {
		p := open(t, chromium, page.Bytes(), width, 900)
		for _, scheme := range []string{"light", "dark"} {
			p.scheme(scheme)
			drawn := eval[map[string][]int](p, drawnIn)
			for _, figure := range []string{
				"wanted", "asked", "hours", "spread-duration", "spread-gpus", "spread-cores", "sizes", "models", "by-queue", "allocated",
			} {
				if len(drawn[figure]) == 0 {
					t.Errorf("%s: %s has no marks", name, figure)
				}
			}
			for _, bad := range eval[[]string](p, overlaps) {
				t.Errorf("%s: %s", name, bad)
			}
			p.shoot(name + "-" + scheme)
		}
		p.quiet()
	}
}

// The page has one script that is not data, and asks for nothing else.
func TestPageIsWhole(t *testing.T) {
	runs := synthetic(40, `</script><b>&"x`, "default")
	page := string(pageOf(t, runs))
	if strings.Contains(page, "<b>&") || strings.Count(page, "</script") != 2 || !strings.HasSuffix(page, "</html>\n") {
		t.Error("a name ends the script")
	}
	if bad := regexp.MustCompile(`(?i)<link|@import|<script[^>]+src=|<img`).FindString(page); bad != "" {
		t.Errorf("the page has %q", bad)
	}
	if !strings.Contains(page, "prefers-color-scheme:dark") && !strings.Contains(page, "prefers-color-scheme: dark") {
		t.Error("the page has no dark colours")
	}
}

// What the script includes is named with its licence.
func TestLicences(t *testing.T) {
	text, err := os.ReadFile("web/dist/LICENCES.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"echarts", "zrender", "tslib", "Apache License", "Redistribution and use"} {
		if !strings.Contains(string(text), name) {
			t.Errorf("the licences lack %q", name)
		}
	}
}

// A page stays small however many runs it compares.
func TestPageOfManyRunsIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var policies []string
	for i := range 12 {
		policies = append(policies, strconv.Itoa(i))
	}
	if n := len(pageOf(t, synthetic(5000, policies...))); n < 4e6 || n > pageBytes {
		t.Errorf("the page has %d bytes, want them filled up to %d", n, pageBytes)
	}
}

// However much nodes change, frames keep to their budget, at even times.
func TestFramesKeepToTheirBudget(t *testing.T) {
	r := synthetic(2000, "default")[0]
	all, err := newFrames(&r, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	few, err := newFrames(&r, len(all.Packed)/3)
	if err != nil {
		t.Fatal(err)
	}
	if len(all.T) != 240 || len(few.T) >= 120 || len(few.T) < 30 || len(few.Packed) > len(all.Packed)/3 {
		t.Errorf("%d frames in %d bytes, and %d in %d", len(all.T), len(all.Packed), len(few.T), len(few.Packed))
	}
	if last := few.T[len(few.T)-1]; last != all.T[239] {
		t.Errorf("the last frame is at %v, want %v", last, all.T[239])
	}
}

// The page has the users who lack most, and the summary that it is made from stays as it was.
func TestUsersOfPage(t *testing.T) {
	f := &metrics.Fairness{Users: &metrics.UsersFairness{Users: usersShown + 10}}
	for i := range usersShown + 10 {
		f.ByUser = append(f.ByUser, metrics.UserFairness{User: strconv.Itoa(i), Deserved: float64(i)})
	}
	is := mostLacking(f).ByUser
	if len(is) != usersShown || is[0].User != strconv.Itoa(usersShown+9) || f.ByUser[0].User != "0" {
		t.Errorf("%d users, the first is %v", len(is), is[0])
	}
}
