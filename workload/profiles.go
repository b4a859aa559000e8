package workload

import (
	"fmt"
	"math"
	"slices"

	"github.com/muster-sched/muster/core"
)

// Profiles are measured jobs: what each uses of its GPUs when it has them for itself, and how fast two of them are that share
// GPUs, as the authors of Lucid measured them (ASPLOS 2023, §2.3).
type Profiles struct {
	Solo []Profile
	// pairs has the speeds of two that were measured together, by their places in Solo.
	pairs map[[2]int][2]float64
	// alike is the mean speed of the first of two, by their scores, over the measured pairs.
	alike [core.Jumbo + 1][core.Jumbo + 1]float64
	// Unmeasured, if it is not 0, is the speed of jobs of which no pair was measured. Otherwise it is the mean of the measured pairs
	// with the same scores.
	Unmeasured float64
}

// Profile is what a job uses of its GPUs when it has them for itself.
type Profile struct {
	// Name is model/dataset/batch size, with /amp if it computes in mixed precision.
	Name string
	// Utilization is the share of the time in which a GPU computes, 0..1.
	Utilization float64
	Sharing     core.Sharing
}

var (
	soloColumns = []string{"model", "dataset", "batchsize", "amp", "gpu_util", "gmem", "label"}
	pairColumns = []string{"model1", "dataset1", "batchsize1", "amp1", "speed1", "model2", "dataset2", "batchsize2", "amp2", "speed2"}
)

// OpenProfiles reads single_data.csv and colocate_info.csv of a folder, compressed by gzip (.gz) or not.
func OpenProfiles(folder string) (*Profiles, error) {
	p := &Profiles{pairs: map[[2]int][2]float64{}}
	if err := eachRow(folder, "single_data.csv", soloColumns, p.readSolo); err != nil {
		return nil, err
	}
	if err := eachRow(folder, "colocate_info.csv", pairColumns, p.readPair); err != nil {
		return nil, err
	}
	p.average()
	return p, nil
}

// profileName reads the name of a profile from four columns.
func profileName(t *table, first int) string {
	name := fmt.Sprintf("%s/%s/%s", t.name(first), t.name(first+1), t.name(first+2))
	if t.count(first+3, 0, 1) == 1 {
		name += "/amp"
	}
	return name
}

func (p *Profiles) readSolo(t *table) {
	const percent = 100
	s := Profile{Name: profileName(t, 0), Utilization: float64(t.milli(4, percent)) / (1000 * percent)}
	s.Sharing.Use = int16(math.Round(1000 * s.Utilization))
	s.Sharing.MemMiB = int32(t.milli(5, 1<<30) / 1000)
	s.Sharing.Score = core.Tiny + core.SharingScore(t.count(6, 0, 2))
	if _, known := p.Find(s.Name); known {
		t.wrong(0, "profiles that differ")
	}
	p.Solo = append(p.Solo, s)
}

func (p *Profiles) readPair(t *table) {
	const most = 10
	a, ok := p.Find(profileName(t, 0))
	b, too := p.Find(profileName(t, 5))
	if !ok {
		t.wrong(0, "a profile of single_data.csv")
	}
	if !too {
		t.wrong(5, "a profile of single_data.csv")
	}
	first, second := float64(t.milli(4, most))/1000, float64(t.milli(9, most))/1000
	if first <= 0 || second <= 0 {
		t.wrong(4, "speeds above 0")
	}
	p.pairs[[2]int{a, b}] = [2]float64{first, second}
}

// average finds the mean speeds of pairs by their scores. Scores that no pair has count as speed 1.
func (p *Profiles) average() {
	var sum, n [core.Jumbo + 1][core.Jumbo + 1]float64
	for a := range p.Solo {
		for b := range p.Solo {
			if v, ok := p.pairs[[2]int{a, b}]; ok {
				x, y := p.Solo[a].Sharing.Score, p.Solo[b].Sharing.Score
				sum[x][y], n[x][y] = sum[x][y]+v[0], n[x][y]+1
				sum[y][x], n[y][x] = sum[y][x]+v[1], n[y][x]+1
			}
		}
	}
	for x := range sum {
		for y := range sum[x] {
			if p.alike[x][y] = 1; n[x][y] > 0 {
				p.alike[x][y] = sum[x][y] / n[x][y]
			}
		}
	}
}

// Find returns the place of a profile in Solo.
func (p *Profiles) Find(name string) (int, bool) {
	i := slices.IndexFunc(p.Solo, func(s Profile) bool { return s.Name == name })
	return i, i >= 0
}

// Speed returns how fast a job is that shares its GPUs with another one, relative to its speed alone; both by their places in Solo.
func (p *Profiles) Speed(job, with int) float64 {
	if v, ok := p.pairs[[2]int{job, with}]; ok {
		return v[0]
	}
	if v, ok := p.pairs[[2]int{with, job}]; ok {
		return v[1]
	}
	if p.Unmeasured > 0 {
		return p.Unmeasured
	}
	return p.alike[p.Solo[job].Sharing.Score][p.Solo[with].Sharing.Score]
}
