package track

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// label is what a line of a log of others says: by the short name of a figure, the values that are right; "?" for a figure that is not judged.
type label map[string]string

// figureNames has the short names of testdata/README.md.
var figureNames = map[string]func(*Reading) float64{
	"s":  func(x *Reading) float64 { return x.Step },
	"t":  func(x *Reading) float64 { return x.TotalSteps },
	"e":  func(x *Reading) float64 { return x.Epoch },
	"st": func(x *Reading) float64 { return x.StepTime },
	"r":  func(x *Reading) float64 { return x.Throughput },
	"l":  func(x *Reading) float64 { return x.Loss },
}

var hash = regexp.MustCompile(`^[0-9a-f]{12}$`)

// labelled returns the labels of a log by its lines; nil for a line that is not judged.
func labelled(t *testing.T, lines int, text string) map[int64]label {
	t.Helper()
	all := map[int64]label{}
	for part := range strings.SplitSeq(text, "; ") {
		if part == "" {
			continue
		}
		number, what, _ := strings.Cut(part, " ")
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n >= lines {
			t.Fatalf("%q: expected the number of a line below %d", part, lines)
		}
		if what == "?" {
			all[int64(n)] = nil
			continue
		}
		l := label{}
		for f := range strings.FieldsSeq(what) {
			name, value, _ := strings.Cut(f, "=")
			if _, ok := figureNames[name]; !ok {
				t.Fatalf("%q: expected s, t, e, st, r or l", f)
			}
			for v := range strings.SplitSeq(value, "|") {
				if _, err := strconv.ParseFloat(v, 64); err != nil && v != "?" {
					t.Fatalf("%q: expected a number or ?", f)
				}
			}
			l[name] = value
		}
		all[int64(n)] = l
	}
	return all
}

// right reports whether got is one of the values of a label, within 1 %.
func right(got float64, want string) bool {
	for w := range strings.SplitSeq(want, "|") {
		v, _ := strconv.ParseFloat(w, 64)
		if math.IsNaN(v) && math.IsNaN(got) || math.Abs(got-v) <= 0.01*math.Abs(v)+1e-9 {
			return true
		}
	}
	return false
}

// TestOthers reads the labels of real logs of others. With their texts in a folder, in files named by their sums, it says how many lines are read as labelled.
func TestOthers(t *testing.T) {
	rounds, err := filepath.Glob("testdata/others/*.tsv")
	if err != nil || len(rounds) == 0 {
		t.Fatal(err, len(rounds))
	}
	seen := map[string]bool{}
	for _, round := range rounds {
		text, err := os.ReadFile(round)
		if err != nil {
			t.Fatal(err)
		}
		var c struct{ texts, lines, rightLines, figures, rightFigures, answers, none, extra int }
		for row := range strings.Lines(string(text)) {
			cell := strings.Split(strings.TrimSuffix(row, "\n"), "\t")
			if cell[0] == "sha256" {
				continue
			}
			lines, err := strconv.Atoi(cell[1])
			if len(cell) != 4 || !hash.MatchString(cell[0]) || seen[cell[2]] || err != nil {
				t.Fatalf("%s: %q: expected a sum, a number of lines, a source that no other row has, and labels", round, row)
			}
			seen[cell[2]] = true
			labels := labelled(t, lines, cell[3])
			log, err := os.Open(filepath.Join(os.Getenv("MUSTER_OTHERS"), cell[0]+".txt"))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			all, err := ReadAll(log)
			log.Close()
			if err != nil {
				t.Fatal(err)
			}
			got := map[int64]*Reading{}
			for _, x := range all {
				got[x.Line] = x
			}
			c.texts++
			for n := range int64(lines) {
				l, is := labels[n]
				x := got[n]
				switch {
				case is && l == nil:
					continue
				case !is:
					if c.none++; x != nil {
						c.extra++
					}
				}
				ok, judged := true, false
				for name, of := range figureNames {
					v := math.NaN()
					if x != nil {
						v = of(x)
					}
					has := x != nil && (!math.IsNaN(v) || name == "l" && x.HasLoss)
					want := l[name]
					judged = judged || want != "" && want != "?"
					switch {
					case want == "?":
					case want == "":
						if ok = ok && !has; has {
							c.answers++
						}
					default:
						if c.figures++; has {
							c.answers++
						}
						if has && right(v, want) {
							c.rightFigures++
						} else {
							ok = false
						}
					}
				}
				if is && judged {
					if c.lines++; ok {
						c.rightLines++
					}
				}
			}
		}
		if c.texts > 0 {
			t.Logf("%s: %d texts: %d of %d lines, %d of %d figures, %d of %d answers right; %d of %d lines without progress were answered", filepath.Base(round), c.texts,
				c.rightLines, c.lines, c.rightFigures, c.figures, c.rightFigures, c.answers, c.extra, c.none)
		}
	}
}
