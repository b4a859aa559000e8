// Package corpus reads labelled logs of real jobs, which are not a part of this repository, for the tests that measure with them.
package corpus

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Records reads corpus.jsonl, an object a line, in the folder that MUSTER_LOGS names; without that variable it skips the test.
func Records[R any](t testing.TB) []R {
	t.Helper()
	dir := os.Getenv("MUSTER_LOGS")
	if dir == "" {
		t.Skip("MUSTER_LOGS names no folder with labelled logs (corpus.jsonl)")
	}
	f, err := os.Open(filepath.Join(dir, "corpus.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []R
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var r R
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
