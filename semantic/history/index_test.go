package history

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/semantic/embed"
)

// plain finds jobs as the package says it, job by job: to compare the index with.
func plain(jobs []Job, q Query) []string {
	vector := func(j *Job) []float32 {
		v, _ := embed.Hashing{}.Embed(context.Background(), [][]embed.Field{j.Fields()})
		return v[0]
	}
	var known []Job
	var same []Job
	for _, j := range jobs {
		if j.Outcome != Completed || j.End.After(q.Job.Submit) {
			continue
		}
		known = append(known, j)
		if s := j.series(); s != "" && s == q.Job.series() {
			same = append(same, j)
		}
	}
	last := func(a, b Job) int { return cmp.Or(b.End.Compare(a.End), strings.Compare(b.ID, a.ID)) }
	if len(same) > 0 {
		slices.SortFunc(same, last)
		var names []string
		for _, j := range same[:min(q.K, len(same))] {
			names = append(names, j.ID+"=")
		}
		return names
	}
	known = slices.DeleteFunc(known, func(j Job) bool { return !q.Shared && j.Tenant != q.Job.Tenant })
	distinct := map[string]bool{}
	counts := make([]float64, embed.Dims)
	for i := range known {
		v := vector(&known[i])
		if key := known[i].Tenant + fmt.Sprint(v); !distinct[key] {
			distinct[key] = true
			for d, x := range v {
				if x != 0 {
					counts[d]++
				}
			}
		}
	}
	weigh := func(v []float32) (w []float64) {
		for d, x := range v {
			w = append(w, float64(x)*(1+math.Log((float64(len(distinct))+1)/(counts[d]+1))))
		}
		return w
	}
	cosine := func(a, b []float64) float64 {
		ab, aa, bb := 0.0, 0.0, 0.0
		for i := range a {
			ab, aa, bb = ab+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
		}
		if aa == 0 || bb == 0 {
			return 0
		}
		return math.Round(ab/math.Sqrt(aa*bb)*1e9) / 1e9
	}
	score := map[string]float64{}
	for i := range known {
		score[known[i].ID] = cosine(weigh(vector(&known[i])), weigh(vector(&q.Job)))
	}
	known = slices.DeleteFunc(known, func(j Job) bool { return score[j.ID] < q.Threshold })
	slices.SortFunc(known, func(a, b Job) int { return cmp.Or(cmp.Compare(score[b.ID], score[a.ID]), last(a, b)) })
	var names []string
	for _, j := range known[:min(q.K, len(known))] {
		names = append(names, j.ID)
	}
	return names
}

// The index finds what a look at every job finds.
func TestIndexIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
		job := func(id string) Job {
			j := training(id, pick("model", "resnet50", "resnet101", "bert"), 0, 1+rapid.IntRange(0, 20).Draw(t, "end"))
			j.User, j.Tenant, j.Name = pick("user", "ana", "bo"), pick("tenant", "vision", "speech"), pick("name", "", "", "nightly-1", "nightly-2")
			j.Outcome = Outcome(pick("outcome", "completed", "completed", "completed", "failed"))
			return j
		}
		x := newIndex()
		jobs := map[string]Job{}
		for range rapid.IntRange(0, 30).Draw(t, "jobs") {
			j := job(fmt.Sprintf("j%02d", rapid.IntRange(0, 20).Draw(t, "id"))) // some replace others
			v, _ := embed.Hashing{}.Embed(context.Background(), [][]embed.Field{j.Fields()})
			x.add(record{j, "hash", encode(v[0])})
			jobs[j.ID] = j
		}
		var all []Job
		for _, j := range jobs {
			all = append(all, j)
		}
		q := Query{Job: job("new"), K: rapid.IntRange(1, 6).Draw(t, "k"), Threshold: 0.5, Shared: rapid.Bool().Draw(t, "shared")}
		q.Job.Submit = q.Job.End
		v, _ := embed.Hashing{}.Embed(context.Background(), [][]embed.Field{q.Job.Fields()})
		var got []string
		for _, m := range x.similar(&q, "hash", true, v[0]) {
			name := m.Job.ID
			if m.Same {
				name += "="
			}
			got = append(got, name)
		}
		if want := plain(all, q); !slices.Equal(got, want) {
			t.Fatalf("found %q, want %q", got, want)
		}
	})
}

func TestStable(t *testing.T) {
	for name, want := range map[string]string{
		"train-gpt-17":         "train-gpt",
		"Train_GPT_2026-03-01": "train-gpt",
		"resnet50-v2":          "resnet50-v2",
		"llama-x7k2p":          "llama",
		"job-000017":           "",
		"train-run-4":          "",
		"llama-adapt":          "llama-adapt",
		"eval-0f3a9bc1d2":      "eval",
		"42":                   "",
		"":                     "",
		"vit-3f2504e0-4f89-41d3-9a0c-0305e82c3301": "vit",
	} {
		if got := stable(name); got != want {
			t.Errorf("%q is stable as %q, want %q", name, got, want)
		}
	}
	for command, want := range map[string]string{
		"python train.py --seed 3 --batch 32":                "python train.py --seed --batch 32",
		"python train.py --seed=3 --output_dir=/tmp/17 -x":   "python train.py --seed --output_dir -x",
		"torchrun --master-port 1234 train.py --resume --lr": "torchrun --master-port train.py --resume --lr",
		"python -m train seed=4 experiment=pile/gpt":         "python -m train seed experiment=pile/gpt",
	} {
		if got := stableCommand(command); got != want {
			t.Errorf("%q is stable as\n%q, want\n%q", command, got, want)
		}
	}
}

func FuzzVector(f *testing.F) {
	f.Add(encode([]float32{0, 1, 0, -2.5}))
	f.Add([]byte{0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if valid(b) != nil {
			return
		}
		dense := make([]float32, mostDims)
		for i, s := 0, decode(b); i < len(s.dims); i++ {
			dense[s.dims[i]] = s.values[i]
		}
		kept := encode(dense)
		if err := valid(kept); err != nil {
			t.Fatalf("%x: %v", kept, err)
		}
		for i, s := 0, decode(kept); i < len(s.dims); i++ {
			if dense[s.dims[i]] != s.values[i] {
				t.Fatalf("component %d is %g, want %g", s.dims[i], s.values[i], dense[s.dims[i]])
			}
			dense[s.dims[i]] = 0
		}
		if i := slices.IndexFunc(dense, func(x float32) bool { return x != 0 }); i >= 0 {
			t.Fatalf("component %d got lost", i)
		}
	})
}
