package workload

import (
	"testing"

	"github.com/muster-sched/muster/core"
)

// The HP jobs of spot want about 68 % of each large model all the time, and all jobs about 93 %, as ASI
// publishes, give or take a gang of the largest size, an eighth of the model: a few jobs that run for weeks do not
// take it far from that.
func TestSpotKeepsItsLoad(t *testing.T) {
	const days, hour = 6, 3600 * core.Second
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
				wanted[m][h][j.Class] += float64(j.GPUs() / core.WholeGPU)
			}
		}
		for m, hours := range wanted {
			if gpus[m] < 900 {
				continue // one gang is a large part of these
			}
			for h, w := range hours {
				if hp, all := w[core.HP]/gpus[m], (w[core.HP]+w[core.LP])/gpus[m]; hp < 0.48 || hp > 0.88 || all < 0.7 || all > 1.2 {
					t.Errorf("seed %d, %s, hour %d: HP jobs want %.2f of the GPUs, all jobs %.2f", seed, m, h, hp, all)
				}
			}
		}
	}
}
