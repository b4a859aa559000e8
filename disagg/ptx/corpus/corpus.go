// Package corpus finds modules in PTX that compilers wrote, on machines that have some, for tests.
package corpus

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Modules returns the texts of the modules by name: the .ptx files below
// MUSTER_PTX, and those in the Go files of mumax, a simulator of magnets, if it was downloaded as a
// Go module (go mod download github.com/mumax/3@latest). Without any it skips the test.
func Modules(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(name, text string) {
		if strings.Contains(text, ".version") && strings.Contains(text, ".target") {
			all[name] = text
		}
	}
	if dir := os.Getenv("MUSTER_PTX"); dir != "" {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && filepath.Ext(path) == ".ptx" {
				var b []byte
				if b, err = os.ReadFile(path); err == nil {
					add(path, string(b))
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	cache := os.Getenv("GOMODCACHE")
	if home, err := os.UserHomeDir(); cache == "" && err == nil {
		cache = filepath.Join(home, "go", "pkg", "mod")
	}
	files, _ := filepath.Glob(filepath.Join(cache, "github.com", "mumax", "3@*", "cuda", "*_wrapper.go"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range strings.Split(string(b), "`") {
			if i%2 == 1 {
				add(fmt.Sprintf("%s#%d", filepath.Base(f), i/2), text)
			}
		}
	}
	if len(all) == 0 {
		t.Skip("no real PTX on this machine: set MUSTER_PTX to a folder with .ptx files, or run go mod download github.com/mumax/3@latest elsewhere")
	}
	return all
}

// Mutate returns a text with a few words removed, doubled or put elsewhere.
func Mutate(r *rand.Rand, text string) string {
	for range 1 + r.IntN(3) {
		from := r.IntN(len(text))
		to := min(from+1+r.IntN(12), len(text))
		at := r.IntN(len(text))
		switch r.IntN(4) {
		case 0:
			text = text[:from] + text[to:]
		case 1:
			text = text[:at] + text[from:to] + text[at:]
		case 2:
			text = text[:at] + string("{}()[],;.%@!:\"/*0x"[r.IntN(18)]) + text[at:]
		case 3: // a whole operand
			if k := strings.IndexByte(text[from:], ','); k >= 0 {
				if e := strings.IndexAny(text[from+k+1:], ",;"); e >= 0 {
					text = text[:from+k] + text[from+k+1+e:]
				}
			}
		}
		if text == "" {
			return text
		}
	}
	return text
}
