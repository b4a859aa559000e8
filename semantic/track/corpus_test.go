package track

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/internal/corpus"
)

type corpusRecord struct {
	ID, Source, Text string
	Label            struct {
		Progress []corpusReading
	}
}

type corpusReading struct {
	LineIndex      int      `json:"line_index"`
	Step           *float64 `json:"step"`
	TotalSteps     *float64 `json:"total_steps"`
	StepTime       *float64 `json:"step_time_s"`
	Throughput     *float64
	ThroughputUnit string `json:"throughput_unit"`
	Loss           *float64
}

// halves returns the labelled logs. Those of half of the source repositories are held out: nothing is tuned to them.
func halves(t testing.TB) (tuning, held []corpusRecord) {
	for _, r := range corpus.Records[corpusRecord](t) {
		repo := strings.SplitN(r.Source, "/", 3)
		if sha256.Sum256([]byte(strings.Join(repo[:min(2, len(repo))], "/")))[0]&1 == 1 {
			held = append(held, r)
		} else {
			tuning = append(tuning, r)
		}
	}
	return tuning, held
}

// TestCorpus compares each line with its label, within 1 %.
func TestCorpus(t *testing.T) {
	tuning, held := halves(t)
	right, wrong, missed := compare(t, "tuning", tuning)
	if total := right + wrong + missed; right*100 < 97*total {
		t.Errorf("%d of %d figures are right in the logs that the rules were written for", right, total)
	}
	right, wrong, missed = compare(t, "held out", held)
	t.Logf("held out: %d figures right, %d wrong, %d missed", right, wrong, missed)
}

func compare(t *testing.T, part string, logs []corpusRecord) (right, wrong, missed int) {
	for _, rec := range logs {
		var tr Tracker
		want := map[int]corpusReading{}
		for _, p := range rec.Label.Progress {
			want[p.LineIndex] = p
		}
		var c [5][3]int // of the step, the steps in all, the time, the throughput and the loss: right, wrong, missed
		extra := 0
		for i, line := range strings.Split(rec.Text, "\n") {
			got, ok := tr.Line([]byte(line))
			w, labelled := want[i]
			if !labelled {
				if ok {
					extra++
				}
				continue
			}
			for q, x := range []struct {
				got  float64
				want *float64
			}{{got.Step, w.Step}, {got.TotalSteps, w.TotalSteps}, {got.StepTime, w.StepTime}, {got.Throughput, w.Throughput}, {got.Loss, w.Loss}} {
				switch has := ok && !math.IsNaN(x.got); {
				case x.want == nil:
				case !has:
					c[q][2]++
				case math.Abs(x.got-*x.want) <= 0.01*math.Abs(*x.want)+1e-9:
					c[q][0]++
				default:
					c[q][1]++
				}
			}
		}
		for _, q := range c {
			right, wrong, missed = right+q[0], wrong+q[1], missed+q[2]
		}
		if len(want) > 0 {
			t.Logf("%s %-22s right, wrong, missed: step %v of %v time %v rate %v loss %v; %d of %d lines read, but not labelled", part, rec.ID, c[0], c[1], c[2], c[3], c[4], extra,
				strings.Count(rec.Text, "\n"))
		}
	}
	return right, wrong, missed
}

// TestMixes measures what the paper measures (§5.4): a thousand logs, half of them with ten to a hundred times as many lines that say
// nothing about progress between their own. An answer is right within 10 % of the median of the last twenty labels; where labels have throughputs in
// several units, of those in the answer's.
func TestMixes(t *testing.T) {
	tuning, held := halves(t)
	all := append(slices.Clone(tuning), held...)
	for _, part := range []struct {
		name string
		logs []corpusRecord
	}{{"tuning", tuning}, {"held out", held}} {
		rng := rand.New(rand.NewPCG(mixSeed, 2))
		var noise []string
		for _, rec := range all {
			labelled := map[int]bool{}
			for _, p := range rec.Label.Progress {
				labelled[p.LineIndex] = true
			}
			for i, l := range strings.Split(rec.Text, "\n") {
				if !labelled[i] {
					noise = append(noise, l)
				}
			}
		}
		var logs []corpusRecord
		for _, rec := range part.logs {
			if slices.ContainsFunc(rec.Label.Progress, func(p corpusReading) bool { return p.StepTime != nil || p.Throughput != nil }) {
				logs = append(logs, rec)
			}
		}
		right, wrong, none, sum := 0, 0, 0, 0.0
		bad := map[string]int{}
		differ := 0
		for n := range 1000 {
			rec := logs[rng.IntN(len(logs))]
			lines := strings.Split(rec.Text, "\n")
			size := min(30+rng.IntN(171), len(lines))
			from := rng.IntN(len(lines) - size + 1)
			times, rates := []float64{}, map[string][]float64{} // rates by their units: one log has several
			for _, p := range rec.Label.Progress {
				if p.LineIndex >= from && p.LineIndex < from+size {
					if p.StepTime != nil {
						times = append(times, *p.StepTime)
					}
					if p.Throughput != nil {
						rates[p.ThroughputUnit] = append(rates[p.ThroughputUnit], *p.Throughput)
					}
				}
			}
			if len(times)+len(rates) == 0 {
				continue
			}
			var tr Tracker
			var seen []Reading
			read := func(l string) {
				if x, ok := tr.Line([]byte(l)); ok {
					seen = append(seen, x)
				}
			}
			ratio := 0
			if n%2 == 1 {
				ratio = 10 + rng.IntN(91)
			}
			for _, l := range lines[from : from+size] {
				for range ratio {
					read(noise[rng.IntN(len(noise))])
				}
				read(l)
			}
			own := Own(pointers(seen))
			got, e := figure(own, func(x *Reading) float64 { return x.StepTime }), math.Inf(1)
			if len(times) == 0 {
				got = figure(own, func(x *Reading) float64 { return x.Throughput })
				for unit, labels := range rates {
					if rates[unitOf(own)] == nil || unit == unitOf(own) {
						e = min(e, off(got, labels))
					}
				}
			} else {
				e = off(got, times)
			}
			if p := tr.Progress(); len(times) > 0 && math.Abs(p.StepTime-got) > 0.1*got {
				differ++
			}
			switch {
			case math.IsNaN(got):
				none++
				bad[fmt.Sprint(rec.ID, " none ", ratio > 0)]++
			case e <= 0.1:
				right++
				sum += e * e
			default:
				wrong++
				bad[fmt.Sprint(rec.ID, " wrong ", ratio > 0)]++
				sum += e * e
			}
		}
		if part.name == "tuning" && right*100 < 92*(right+wrong+none) {
			t.Errorf("%d right of %d", right, right+wrong+none)
		}
		if part.name == "tuning" && right*100 < 98*(right+wrong) {
			t.Errorf("%d right of %d answers", right, right+wrong)
		}
		t.Logf("%s: right %.1f %% of %d, precision %.1f %%, RMSRE %.3f, differ %d, %v", part.name, 100*float64(right)/float64(right+wrong+none), right+wrong+none,
			100*float64(right)/float64(max(1, right+wrong)), math.Sqrt(sum/float64(max(1, right+wrong))), differ, bad)
	}
}

// mixSeed has the mixes of docs/track.md.
const mixSeed = 1

func figure(all []*Reading, of func(*Reading) float64) float64 {
	var vs []float64
	for _, x := range all {
		if v := of(x); !math.IsNaN(v) {
			vs = append(vs, v)
		}
	}
	return median(vs[max(0, len(vs)-20):])
}

// unitOf returns the unit of the throughput that was read last.
func unitOf(all []*Reading) string {
	for _, x := range slices.Backward(all) {
		if !math.IsNaN(x.Throughput) {
			return x.Unit
		}
	}
	return ""
}

// off returns how far a value is from the median of the last twenty labels, relative to that.
func off(v float64, labels []float64) float64 {
	want := median(labels[max(0, len(labels)-20):])
	return math.Abs(v-want) / want
}
