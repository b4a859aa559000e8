package reproduce

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-sched/muster/report"
	"github.com/muster-sched/muster/workload"
)

// pageIn returns what the page in a folder shows, and checks that the figures
// beside it are what --json prints.
func pageIn(t *testing.T, dir string, r Result) report.Experiment {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(dir, Page))
	if err != nil {
		t.Fatal(err)
	}
	_, data, _ := bytes.Cut(page, []byte(`<script type="application/json" id="data">`))
	data, _, _ = bytes.Cut(data, []byte("</script>"))
	var shown struct{ Experiment report.Experiment }
	if err := json.Unmarshal(data, &shown); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	figures, err := os.ReadFile(filepath.Join(dir, Figures))
	if err := r.JSON(&printed); err != nil {
		t.Fatal(err)
	}
	if err != nil || !bytes.Equal(figures, printed.Bytes()) {
		t.Errorf("%s is not what --json prints (%v)", Figures, err)
	}
	return shown.Experiment
}

// A folder is new, empty or an earlier experiment's. One that cannot be used is
// refused before anything is run, and stays as it was.
func TestFolder(t *testing.T) {
	ran := false
	e := Experiment{Name: "none", Title: "Nothing", run: func(context.Context, Options) (Result, error) {
		ran = true
		return &Table{Rows: []Row{over("figure", 1, 2, "%")}}, nil
	}}
	dir := t.TempDir()
	for range 2 { // new, then its own
		out := filepath.Join(dir, "new", "folder")
		r, err := e.Run(context.Background(), Options{Out: out})
		if err != nil {
			t.Fatal(err)
		}
		p := pageIn(t, out, r)
		if f := p.Figures[0]; p.Name != "none" || p.Runs != "" || f.OursText != "2 %" || f.TheirsText != "above 1 %" || *f.Low != 1 || f.High != nil {
			t.Errorf("the page shows %+v", p)
		}
	}
	ran = false
	for _, out := range []string{filepath.Dir(write(t, dir, "foreign/notes.txt", "mine")), write(t, dir, "file", "mine")} {
		_, err := e.Run(context.Background(), Options{Out: out})
		if !workload.IsBadInput(err) || !strings.Contains(err.Error(), out) || ran {
			t.Errorf("%s: error %v, ran %v", out, err, ran)
		}
	}
}

// An experiment that cannot run leaves no folder.
func TestNoFolderWithoutItsTrace(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	if _, err := phillyQueueing.Run(context.Background(), Options{Traces: "nowhere", Out: out}); !workload.IsBadInput(err) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("the folder is there")
	}
}

// Low and High are the band that decides what is within.
func TestBandsHaveBounds(t *testing.T) {
	for _, r := range []Row{
		within("", 8, 8.1, 0.02, "%"), within("", 12, 12, 0, ""), within("", 12, 13, 0, ""), over("", 1, 2, "%"), over("", 1, 0.5, "%"),
		below("", 1, 2, "%"), below("", 1, 0.5, "%"), roughly("", 8, 4.1, "%"), roughly("", 8, 3.9, "%"), atLeast("", 0, 10, 9, "%"),
		atLeast("", 0, 10, 11, "%"), atMost("", 1, 2, 1.5, "%"), atMost("", 1, 2, 2.5, "%"), withinPoints("", 93, 2, 91.5, "%"),
		withinPoints("", 93, 2, 95.5, "%"), count("", 8, 1, 7), count("", 8, 1, 6),
	} {
		low, high := math.Inf(-1), math.Inf(1)
		if r.Low != nil {
			low = *r.Low
		}
		if r.High != nil {
			high = *r.High
		}
		if r.Low == nil && r.High == nil || r.Within != (r.Ours >= low && r.Ours <= high) {
			t.Errorf("%+v: the band is from %v to %v", r, low, high)
		}
	}
}
