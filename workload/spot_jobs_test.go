package workload

import (
	"testing"

	"github.com/muster-sched/muster/core"
)

// Over the days, the HP jobs of spot want about 68 % of each large model, and all jobs about 93 %, as
// ASI publishes: a few jobs that run for weeks do not take it far from that. What HP jobs want follows
// the day as in the trace: on the A100 15 % of the GPUs more in the evening than in the morning (18.6 in
// the trace), on the H800 31 % (35.4), on the A10 1 % (1.8).
func TestSpotKeepsItsLoadAndFollowsTheDay(t *testing.T) {
	const days, hour = 12, 3600 * core.Second
	swings := map[string][2]float64{ // the difference between 15:00 to 23:00 and 2:00 to 9:00
		"A10": {0, 0.02}, "A100": {0.07, 0.2}, "H800": {0.1, 0.4}, "GPU-series-1": {-0.01, 0.03}, "GPU-series-2": {0.1, 0.35},
	}
	for seed := range uint64(3) {
		opt := Options{Seed: seed, Length: days * 24 * hour}
		cluster, err := OpenCluster("spot", opt)
		if err != nil {
			t.Fatal(err)
		}
		gpus := map[string]float64{}
		for i := range cluster.Nodes {
			gpus[cluster.Nodes[i].Model] += float64(cluster.Nodes[i].GPUs)
		}
		jobs, _, err := OpenJobs("spot", opt)
		if err != nil {
			t.Fatal(err)
		}
		wanted := map[string]*[days * 24][2]float64{}
		for j, err := range jobs {
			if err != nil {
				t.Fatal(err)
			}
			m := j.Tasks[0].Models[0]
			if wanted[m] == nil {
				wanted[m] = &[days * 24][2]float64{}
			}
			for h := (j.Submitted + hour - 1) / hour; h < days*24 && h*hour < j.Submitted+j.Duration; h++ {
				wanted[m][h][j.Class] += float64(j.GPUs()/core.WholeGPU) / gpus[m]
			}
		}
		for m, hours := range wanted {
			swing, large := swings[m]
			if !large {
				continue // one gang is a large part of these
			}
			var hp, all, evening, morning float64
			for h, w := range hours {
				hp += w[core.HP] / (days * 24)
				all += (w[core.HP] + w[core.LP]) / (days * 24)
				switch h %= 24; {
				case h >= 15 && h < 23:
					evening += w[core.HP] / (days * 8)
				case h >= 2 && h < 9:
					morning += w[core.HP] / (days * 7)
				}
			}
			if hp < 0.63 || hp > 0.77 || all < 0.86 || all > 1.02 {
				t.Errorf("seed %d, %s: HP jobs want %.2f of the GPUs, all jobs %.2f", seed, m, hp, all)
			}
			if by := evening - morning; by < swing[0] || by > swing[1] {
				t.Errorf("seed %d, %s: HP jobs want %.3f of the GPUs more in the evening than in the morning, expected %v", seed, m, by, swing)
			}
		}
	}
}

// The published marginals of each model hold: GPUs of a job and their mean run time.
func TestSpotModels(t *testing.T) {
	for name, m := range spotModels {
		most := map[string]int{"A10": 311, "A100": 432, "H800": 219, "GPU-series-1": 77, "GPU-series-2": 122, "A800": 22}[name]
		if got := meanGPUs(m.sizes(most)); got < 0.97*m.gpus || got > 1.1*m.gpus {
			t.Errorf("%s: %.2f GPUs a job, expected %.2f", name, got, m.gpus)
		}
		life := m.life()
		if got := life.cutMean(spotLongest); got < 0.99*m.seconds || got > 1.01*m.seconds {
			t.Errorf("%s: a GPU is held for %.0f s, expected %.0f", name, got, m.seconds)
		}
	}
}
