package workload

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
)

const (
	soloFile = "model,dataset,batchsize,amp,speed,gpu_util,gmem_util,gmem,label\n" +
		"Small,D,32,0,100.5,20.5,10,2458.0,0\nBig,D,64,1,3.25,97.125,60,20162.0,2\nHuge,D,64,0,3,99,60,20000,2\n"
	pairFile = "model1,dataset1,gpu_num1,batchsize1,amp1,speed1,model2,dataset2,gpu_num2,batchsize2,amp2,speed2,gpu_util,gmem_util,gmem\n" +
		"Small,D,1,32,0,0.9,Big,D,1,64,1,0.7,99,60,22000\n"
)

// profileFolder writes the two files of a folder of profiles.
func profileFolder(t *testing.T, solo, pairs string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"single_data.csv": solo, "colocate_info.csv": pairs} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Speeds are those of the pair, whichever comes first; of pairs that were not measured, the mean of those with the same scores.
func TestProfiles(t *testing.T) {
	p, err := OpenProfiles(profileFolder(t, soloFile, pairFile))
	if err != nil {
		t.Fatal(err)
	}
	big, ok := p.Find("Big/D/64/amp")
	if want := (Profile{"Big/D/64/amp", 0.97125, core.Sharing{Score: core.Jumbo, MemMiB: 20162, Use: 971}}); !ok || p.Solo[big] != want {
		t.Errorf("found %v %+v, want %+v", ok, p.Solo[big], want)
	}
	for _, c := range []struct {
		job, with int
		want      float64
	}{{0, 1, 0.9}, {1, 0, 0.7}, {0, 2, 0.9}, {2, 0, 0.7}, {1, 2, 1}} {
		if got := p.Speed(c.job, c.with); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("the speed of %d with %d is %v, want %v", c.job, c.with, got, c.want)
		}
	}
	if p.Unmeasured = 0.5; p.Speed(1, 2) != 0.5 || p.Speed(0, 1) != 0.9 {
		t.Error("Unmeasured is not for the pairs that were not measured alone")
	}
}

func TestBadProfiles(t *testing.T) {
	for _, c := range []struct{ name, solo, pairs, want string }{
		{"a label", strings.Replace(soloFile, "2458.0,0", "2458.0,3", 1), pairFile, "single_data.csv:2: label: a whole number 0..2"},
		{"a column", strings.Replace(soloFile, "label", "score", 1), pairFile, "single_data.csv:1: label"},
		{"twice", soloFile + "Small,D,32,0,1,1,1,1,0\n", pairFile, "single_data.csv:5: model"},
		{"unknown", soloFile, strings.Replace(pairFile, "Big,", "Bug,", 1), "colocate_info.csv:2: model2: a profile of single_data.csv"},
		{"stands still", soloFile, strings.Replace(pairFile, "0.9,", "0,", 1), "colocate_info.csv:2: speed1: speeds above 0"},
	} {
		_, err := OpenProfiles(profileFolder(t, c.solo, c.pairs))
		if !IsBadInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := OpenProfiles(t.TempDir()); !IsBadInput(err) {
		t.Errorf("an empty folder: error %v", err)
	}
}
