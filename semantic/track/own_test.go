package track

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// mixedLog has 60 lines of a job among several times as many of another one with the same program, in no order.
func mixedLog(rng *rand.Rand, lines, others int, own, other string) []Reading {
	var all []Reading
	var tr Tracker
	read := func(format string, step int) {
		if x, ok := tr.Line(fmt.Appendf(nil, format, step)); ok {
			all = append(all, x)
		}
	}
	for i := range lines {
		read(own, 400+10*i)
		for range others {
			read(other, 10*rng.IntN(200))
		}
	}
	return all
}

// The lines of a job are found among those of another one with the same program: as they follow each other.
func TestChain(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, c := range []struct{ lines, others int }{{60, 1}, {60, 5}, {20, 3}, {12, 2}} {
		own := Own(pointers(mixedLog(rng, c.lines, c.others, "step %d loss 1.5 time per step 2.0s", "step %d loss 3.5 time per step 9.0s")))
		right := 0
		for _, x := range own {
			if x.StepTime == 2 {
				right++
			}
		}
		if right < c.lines-1 || right < len(own)-1 {
			t.Errorf("%d lines among %d times as many: %d right of %d", c.lines, c.others, right, len(own))
		}
	}

	// Steps that are not equally far from each other.
	var all []Reading
	var tr Tracker
	step := 0
	for range 80 {
		step += 1 + rng.IntN(9)
		for _, l := range []string{fmt.Sprintf("step %d loss 1.5 time per step 2.0s", step), fmt.Sprintf("step %d loss 3.5 time per step 9.0s", rng.IntN(900))} {
			if x, ok := tr.Line([]byte(l)); ok {
				all = append(all, x)
			}
		}
	}
	if p := tr.Progress(); p.StepTime != 2 {
		t.Errorf("step time %v", p.StepTime)
	}
	if got := figure(Own(pointers(all)), func(x *Reading) float64 { return x.StepTime }); got != 2 {
		t.Errorf("step time %v", got)
	}
}

// Lines in no order are of no job: chance makes chains, but as long ones in the opposite direction.
func TestNoChain(t *testing.T) {
	found := 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 9))
		n, distinct := 8+rng.IntN(400), 5+rng.IntN(300)
		var readings []Reading
		for i := range n {
			x := new(Reading)
			new(reader).read(fmt.Appendf(nil, "step %d loss 3.5 time per step 9.0s", 10*rng.IntN(distinct)), x)
			x.Line = int64(i)
			readings = append(readings, *x)
		}
		if o, _ := orderOf(pointers(readings)); o == mixed && chain(pointers(readings)) != nil {
			found++
		}
	}
	if found > 3 {
		t.Errorf("a chain in %d of 300 series without order", found)
	}
}

// Where lines stand that are of no job, a job that prints how fast it is without any order is not told from them: no answer.
func TestOwnUnknown(t *testing.T) {
	var all []Reading
	var tr Tracker
	for i := range 30 {
		for _, l := range []string{fmt.Sprintf("CurrSamplesPerSec=%d.0", 3+i%2), fmt.Sprintf("iter %d/700 loss: 3.0, 9.0s/it", (i*i*37)%700)} {
			if x, ok := tr.Line([]byte(l)); ok {
				all = append(all, x)
			}
		}
	}
	if own := Own(pointers(all)); len(all) != 60 || len(own) != 0 {
		t.Errorf("%d of %d readings", len(own), len(all))
	}
}

// Of two throughputs of different names, the one counts on the lines that tell more; of one name, all do.
func TestSpeaker(t *testing.T) {
	own := func(lines ...string) (rates []float64) {
		var all []Reading
		var tr Tracker
		for i := range 10 {
			for _, l := range lines {
				if x, ok := tr.Line(fmt.Appendf(nil, l, i)); ok {
					all = append(all, x)
				}
			}
		}
		for _, x := range Own(pointers(all)) {
			if x.Throughput > 0 {
				rates = append(rates, x.Throughput)
			}
		}
		return rates
	}
	if got := own("global_step=%d, CurrSamplesPerSec=16.0", "step %d/100 loss 1.5 5800 tokens/s"); len(got) != 10 || got[0] != 5800 {
		t.Errorf("%v", got)
	}
	if got := own("step %d/100 loss 1.5 5800 tokens/s", "step %d/100 5000 tokens/s"); len(got) != 20 {
		t.Errorf("%v", got)
	}
}

// A job that prints nothing about steps has its epochs for steps, also among lines of other jobs that do.
func TestOwnEpochs(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	var all []Reading
	var tr Tracker
	for i := range 20 {
		for _, l := range []string{fmt.Sprintf("Epoch %d/50 took 12.5s, loss 2.5", i), fmt.Sprintf("step %d/700 loss 3.0", rng.IntN(700)), fmt.Sprintf("step %d/700 loss 3.0", rng.IntN(700))} {
			if x, ok := tr.Line([]byte(l)); ok {
				all = append(all, x)
			}
		}
	}
	own := Own(pointers(all))
	if len(own) != 20 || own[19].StepTime != 12.5 {
		t.Errorf("%d readings, the last %+v", len(own), own[len(own)-1])
	}
}
