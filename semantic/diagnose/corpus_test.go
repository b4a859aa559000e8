package diagnose

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/internal/corpus"
)

// record is a log of a labelled corpus: a file corpus.jsonl in the folder MUSTER_LOGS.
type record struct {
	ID     string `json:"id"`
	Source string `json:"source"`
	Text   string `json:"text"`
	Label  struct {
		Category      Category `json:"category"`
		Component     string   `json:"component"`
		SignatureLine int64    `json:"signature_line"`
		RootLine      int64    `json:"root_line"`
		Outcome       string   `json:"outcome"`
	} `json:"label"`
}

// tuning says whether a record may be looked at while the knowledge is written: half of the source repositories, by a hash of their names.
// The scores of the others are what a case that is not known would meet.
func (r *record) tuning() bool {
	source := r.Source
	if parts := strings.SplitN(source, "/", 3); len(parts) == 3 && !strings.HasPrefix(source, "index:") {
		source = parts[0] + "/" + parts[1]
	}
	h := fnv.New32a()
	h.Write([]byte(source))
	return h.Sum32()%2 == 0
}

func diagnosed(t *testing.T, text string) Verdict {
	t.Helper()
	v, err := Log(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// score counts how records were judged. Its figures are those of SchedMate §5.4, table 4.
type score struct {
	tp, fp, fn, tn int         // infrastructure or not
	within         map[int]int // located, by slack in lines
	failures       int
	alarms         int // failures found in logs without one
	healthy        int
	components     map[string]*[3]int // of infrastructure: right, wrongly found, missed
}

func newScore() *score { return &score{within: map[int]int{}, components: map[string]*[3]int{}} }

func (s *score) component(name string) *[3]int {
	if s.components[name] == nil {
		s.components[name] = &[3]int{}
	}
	return s.components[name]
}

// judge counts a verdict. The root of the record is shift lines further down than its label says.
func (s *score) judge(r *record, v *Verdict, shift int64) {
	is, found := r.Label.Category == Infrastructure, v.Category == Infrastructure
	switch {
	case is && found:
		s.tp++
	case is:
		s.fn++
	case found:
		s.fp++
	default:
		s.tn++
	}
	switch {
	case is && found && r.Label.Component == v.Component:
		s.component(v.Component)[0]++
	default:
		if found {
			s.component(v.Component)[1]++
		}
		if is {
			s.component(r.Label.Component)[2]++
		}
	}
	if r.Label.Category == None {
		s.healthy++
		if v.Category != None {
			s.alarms++
		}
		return
	}
	s.failures++
	for _, slack := range []int{0, 5, 20} {
		if at := v.SignatureLine; at != nil && *at >= r.Label.RootLine+shift-int64(slack) && *at <= r.Label.SignatureLine+shift+int64(slack) {
			s.within[slack]++
		}
	}
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// figures returns precision, recall, F1 and accuracy as they are.
func (s *score) figures() [4]float64 {
	tp, fp, fn, tn := float64(s.tp), float64(s.fp), float64(s.fn), float64(s.tn)
	return [4]float64{ratio(tp, tp+fp), ratio(tp, tp+fn), ratio(2*tp, 2*tp+fp+fn), ratio(tp+tn, tp+fp+fn+tn)}
}

// weighted returns them as if a quarter of the logs were failures of the infrastructure, as in the paper.
func (s *score) weighted() [4]float64 {
	const share = 0.25
	tpr, fpr := ratio(float64(s.tp), float64(s.tp+s.fn)), ratio(float64(s.fp), float64(s.fp+s.tn))
	p := ratio(share*tpr, share*tpr+(1-share)*fpr)
	return [4]float64{p, tpr, ratio(2*p*tpr, p+tpr), share*tpr + (1-share)*(1-fpr)}
}

func (s *score) macroF1() float64 {
	sum := 0.0
	for _, c := range s.components {
		sum += ratio(2*float64(c[0]), float64(2*c[0]+c[1]+c[2]))
	}
	return ratio(sum, float64(len(s.components)))
}

// judged is a record and what was found.
type judged struct {
	r     *record
	v     Verdict
	shift int64
}

func scoreOf(all []judged) *score {
	s := newScore()
	for i := range all {
		s.judge(all[i].r, &all[i].v, all[i].shift)
	}
	return s
}

// interval returns the middle 95 % of a figure over resampled records.
func interval(all []judged, figure func(*score) float64) (low, high float64) {
	random := rand.New(rand.NewPCG(1, 1))
	var values []float64
	for range 1000 {
		again := make([]judged, len(all))
		for i := range again {
			again[i] = all[random.IntN(len(all))]
		}
		values = append(values, figure(scoreOf(again)))
	}
	slices.Sort(values)
	return values[25], values[974]
}

func show(t *testing.T, name string, all []judged) *score {
	s := scoreOf(all)
	text := &strings.Builder{}
	fmt.Fprintf(text, "%s: %d logs\n", name, len(all))
	figures, weighted := s.figures(), s.weighted()
	for i, figure := range []string{"precision", "recall", "F1", "accuracy"} {
		low, high := interval(all, func(s *score) float64 { return s.figures()[i] })
		wlow, whigh := interval(all, func(s *score) float64 { return s.weighted()[i] })
		fmt.Fprintf(text, "  infrastructure %-9s %5.1f %% (%.1f to %.1f); at 25 %% infrastructure %5.1f %% (%.1f to %.1f)\n", figure,
			100*figures[i], 100*low, 100*high, 100*weighted[i], 100*wlow, 100*whigh)
	}
	fmt.Fprintf(text, "  macro-F1 over components %.1f %%\n", 100*s.macroF1())
	fmt.Fprintf(text, "  located: %d of %d exactly, %d within 5 lines, %d within 20\n", s.within[0], s.failures, s.within[5], s.within[20])
	fmt.Fprintf(text, "  false alarms: %d of %d", s.alarms, s.healthy)
	t.Log(text)
	return s
}

// buried puts a log into 5,000 to 50,000 lines of other healthy ones, and returns how many lines are before it.
func buried(all []record, r *record, seed uint64) (text string, before int64) {
	random := rand.New(rand.NewPCG(seed, 2))
	var healthy []string
	for i := range all {
		if o := &all[i]; o.Label.Category == None && o.Label.Outcome == "" && o.Source != r.Source && o.tuning() == r.tuning() {
			healthy = append(healthy, o.Text)
		}
	}
	want := 5000 + random.IntN(45001)
	var lines []string
	for len(lines) < want {
		lines = append(lines, strings.Split(healthy[random.IntN(len(healthy))], "\n")...)
	}
	at := random.IntN(want + 1)
	return strings.Join(slices.Concat(lines[:at], []string{r.Text}, lines[at:want]), "\n"), int64(at)
}

// The targets hold on the records for which the knowledge was written, also inside long healthy logs. The figures of the other
// records are printed, not asserted: they are what is to be expected of logs that are not known.
func TestCorpus(t *testing.T) {
	all := corpus.Records[record](t)
	parts := map[string][]judged{}
	for i := range all {
		r, part := &all[i], "held out"
		if r.tuning() {
			part = "tuning"
		}
		v := diagnosed(t, r.Text)
		parts[part] = append(parts[part], judged{r, v, 0})
		text, shift := buried(all, r, uint64(i))
		bv := diagnosed(t, text)
		parts[part+", buried"] = append(parts[part+", buried"], judged{r, bv, shift})
		if r.tuning() && (v.Category != r.Label.Category || bv.Category != v.Category || bv.SignatureLine != nil && *bv.SignatureLine != *v.SignatureLine+shift) {
			t.Logf("%s: %s, want %s; buried from line %d: %+v", r.ID, v.Category, r.Label.Category, shift, bv)
		}
	}
	for _, part := range []string{"tuning", "tuning, buried", "held out", "held out, buried"} {
		s := show(t, part, parts[part])
		if !strings.HasPrefix(part, "tuning") {
			continue
		}
		f := s.figures()
		if f[0] <= 0.78 || f[2] <= 0.68 || f[3] <= 0.91 || float64(s.within[0]) <= 0.85*float64(s.failures) || s.alarms > 0 {
			t.Errorf("%s: below the targets", part)
		}
	}
}

// BenchmarkLogs reads the healthy logs of the corpus.
func BenchmarkLogs(b *testing.B) {
	var text strings.Builder
	for _, r := range corpus.Records[record](b) {
		if r.Label.Category == None && r.Label.Outcome == "" {
			text.WriteString(r.Text + "\n")
		}
	}
	long := strings.Repeat(text.String(), 20)
	b.SetBytes(int64(len(long)))
	for b.Loop() {
		if _, err := Log(strings.NewReader(long)); err != nil {
			b.Fatal(err)
		}
	}
}
