//go:build linux

package check

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// What failed in a run is measured again by another one; the file then has the figures of both, the newer ones where both have one.
func TestReportOfSeveralRuns(t *testing.T) {
	dir := t.TempDir()
	first := newReport(t, dir)
	first.GPU = "12.8"
	first.record("A2", "pause", 1, "ms")
	first.record("A9", "launch", 2, "ns")
	first.write()
	second := newReport(t, dir)
	second.GPU = "12.8"
	second.run("A9", func(r *report) { r.record("A9", "launch", 3, "ns") })
	text, err := os.ReadFile(filepath.Join(dir, first.Date+"-driver-12.8.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 2 || got.value("A2", "pause") != 1 || got.value("A9", "launch") != 3 {
		t.Errorf("the report has %+v", got.Rows)
	}
}
