package track

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// say prints a reading as testdata/lines.txt does.
func (x Reading) say() string {
	var b strings.Builder
	put := func(format string, v float64) {
		if !math.IsNaN(v) {
			fmt.Fprintf(&b, format, v)
		}
	}
	put(" %v", x.Step)
	put("/%v", x.TotalSteps)
	put(" epoch %v", x.Epoch)
	put(" time %.6g", x.StepTime)
	put(" of epoch %.6g", x.EpochTime)
	put(" rate %v", x.Throughput)
	if x.Unit != "" {
		b.WriteString(" " + x.Unit)
	}
	if x.HasLoss {
		fmt.Fprintf(&b, " loss %v", x.Loss)
	}
	return b.String()
}

func TestLines(t *testing.T) {
	text, err := os.ReadFile("testdata/lines.txt")
	if err != nil {
		t.Fatal(err)
	}
	var line string
	var r reader
	for n, l := range strings.Split(string(text), "\n") {
		want, ok := strings.CutPrefix(l, "=")
		switch {
		case !ok:
			line = l
			continue
		}
		got := " nothing"
		var x Reading
		if r.read([]byte(line), &x) {
			got = x.say()
		}
		if got != want {
			t.Errorf("lines.txt:%d: %s\nread%s\nwant%s", n, line, got, want)
		}
	}
}

// What silent says of a line is what find finds: nothing.
func TestSilent(t *testing.T) {
	text, err := os.ReadFile("testdata/lines.txt")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(4, 4))
	parts := strings.FieldsFunc(string(text), func(c rune) bool { return c == ' ' || c == '\n' })
	n := 0
	var r reader
	for range 100_000 {
		var line []byte
		for range 1 + rng.IntN(12) {
			line = append(append(line, parts[rng.IntN(len(parts))]...), " /|"[rng.IntN(3)])
		}
		var all meaning
		if r.tokens, all = tokens(line, r.tokens[:0]); silent(line, r.tokens, all) {
			n++
			var x Reading
			if r.find(line, false) && r.conclude(&x) {
				t.Fatalf("%s: silent, but%s", line, x.say())
			}
		}
	}
	if n < 1000 {
		t.Errorf("%d lines of 100000 are silent", n)
	}
}

// follow has the tracker read the lines of a text.
func follow(t *testing.T, text string) Progress {
	t.Helper()
	tr, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return tr.Progress()
}

func TestProgress(t *testing.T) {
	// A step that wrote a checkpoint is left out.
	var b strings.Builder
	for i := 1; i <= 30; i++ {
		fmt.Fprintf(&b, "step %d/100 loss %d time per step %.1fs\n", i, 100-i, map[bool]float64{true: 60, false: 2 + float64(i%3)/10}[i%10 == 0])
	}
	p := follow(t, b.String())
	if p.Step != 30 || p.TotalSteps != 100 || p.StepTime != 2.1 || p.Loss != 70 || p.Left != 147 || p.Interval != 2.1 || p.Readings != last {
		t.Errorf("%+v", p)
	}

	// Without a time on the lines, their time stamps tell it, past midnight, too.
	p = follow(t, "[23:59:50] step 10 loss 1\n[23:59:55] step 20 loss 1\n[00:00:00] step 30 loss 1\n[00:00:05] step 40 loss 1\n")
	if p.StepTime != 0.5 {
		t.Errorf("step time %v", p.StepTime)
	}
	p = follow(t, "2026-03-01T10:00:00 step 1 loss 1\n2026-03-01T10:00:02 step 2 loss 1\n")
	if !math.IsNaN(p.StepTime) {
		t.Errorf("step time %v of two lines", p.StepTime)
	}

	// The bar has the steps, the summaries between have the loss.
	p = follow(t, " 10%|█| 10/100 [00:10<01:30, 1.00s/it]\n{'loss': 0.5, 'epoch': 0.1}\n 20%|█| 20/100 [00:20<01:20, 1.00s/it]\n{'loss': 0.4, 'epoch': 0.2}\n")
	if p.Step != 20 || p.StepTime != 1 || p.Loss != 0.4 || p.Epoch != 0.2 || p.Left != 80 {
		t.Errorf("%+v", p)
	}

	// Lines that print the loss alone, though there are more of them.
	p = follow(t, "step 1/100 time per step 2s\nloss: 3\nloss: 2.5\nstep 2/100 time per step 2s\nloss: 2\n")
	if p.Step != 2 || p.Loss != 2 || p.Interval != 2 || p.Left != 196 {
		t.Errorf("%+v", p)
	}

	// What is left counts the epochs to come.
	p = follow(t, "Epoch 2/3: 50%|█| 5/10 [00:05<00:05, 1.00s/it]\n")
	if p.Left != 15 {
		t.Errorf("left %v", p.Left)
	}

	// A job that prints nothing about steps has its epochs for steps, the first one being slower, and no other job has.
	epochs := "Epoch 1/5 took 40s, loss 4\nEpoch 2/5 took 12s, loss 3\nEpoch 3/5 took 10s, loss 2\n"
	if p = follow(t, epochs); p.Epoch != 3 || p.StepTime != 11 || p.Left != 22 || p.Loss != 2 {
		t.Errorf("%+v", p)
	}
	p = follow(t, "step 1/100 loss 2\nstep 2/100 loss 2\n"+epochs)
	if !math.IsNaN(p.StepTime) {
		t.Errorf("step time %v, but epochs are no steps there", p.StepTime)
	}

	p = follow(t, "step 1 loss 2 time per step 1s\nstep 2 loss inf time per step 1s\n")
	if !p.NaNLoss {
		t.Errorf("%+v", p)
	}
	if p = follow(t, "hello\n"); p.Readings != 0 || !math.IsNaN(p.Step) {
		t.Errorf("%+v", p)
	}
}

// A time that grows as the steps do, or the epochs, is none of a step; what it grows by is.
func TestSinceBegin(t *testing.T) {
	var steps, epochs, slower strings.Builder
	for e := range 2 {
		for i := 1; i <= 5; i++ {
			fmt.Fprintf(&steps, "epoch %d - iter %d/500 - loss 0.5 - time (sec): %.2f\n", e, i*100, float64(i)*25.5)
		}
	}
	for i := 1; i <= 8; i++ {
		fmt.Fprintf(&epochs, "[INFO] Epoch %d/20, Time %.1fs, Loss 0.5\n", i*2, float64(i)*250)
		fmt.Fprintf(&slower, "step %d/900 loss 0.5 time: %.2fs\n", i*100, 1+float64(i)/100)
	}
	if p := follow(t, steps.String()); p.StepTime != 0.255 {
		t.Errorf("step time %v, want 0.255", p.StepTime)
	}
	if p := follow(t, epochs.String()); p.StepTime != 125 || p.Left != 500 {
		t.Errorf("time of an epoch %v, left %v, want 125 and 500", p.StepTime, p.Left)
	}
	if p := follow(t, slower.String()); p.StepTime != 1.045 {
		t.Errorf("step time %v of a job that becomes a little slower, want 1.045", p.StepTime)
	}
	all, err := ReadAll(strings.NewReader(epochs.String()))
	if err != nil || len(all) != 8 || !math.IsNaN(all[7].StepTime) {
		t.Errorf("%v, %d readings, want 8 without a time of a step", err, len(all))
	}
}

// A line that names an epoch and nothing else says of which the steps after it are.
func TestHeading(t *testing.T) {
	var b strings.Builder
	for e := 1; e <= 12; e++ {
		fmt.Fprintf(&b, "Epoch %d/20\n", e)
		for i := 100; i <= 500; i += 100 {
			fmt.Fprintf(&b, "%d/500 [=====>....] - ETA: 1s - 2s/step - loss: 0.5\n", i)
		}
		fmt.Fprintf(&b, "Saving the model of epoch 1\n%s\n", strings.Repeat("x", 20_000))
	}
	for _, p := range []Progress{follow(t, b.String()), follow(t, b.String()+"Epoch 13/20\n")} {
		if p.Step != 500 || p.Epoch != 12 || p.Epochs != 20 || p.Left != 8*500*2 {
			t.Errorf("%+v", p)
		}
	}
	long := strings.Repeat(strings.Repeat("x", 99)+"\n", short/100) + b.String()
	tr, err := Tail(strings.NewReader(long), int64(len(long)), int64(len(long)))
	if p := tr.Progress(); err != nil || p.Epoch != 12 || p.Left != 8*500*2 {
		t.Errorf("%+v, %v from the end", p, err)
	}
	all, err := ReadAll(strings.NewReader(b.String()))
	if err != nil || len(all) != 60 || !math.IsNaN(all[59].Epoch) {
		t.Errorf("%d readings, %v, want 60 that say what their lines do", len(all), err)
	}
}

// Every other step waits for the data: those are no measure of a step.
func TestOutliers(t *testing.T) {
	var b strings.Builder
	for i, s := range []float64{50, 1.0, 60, 1.1, 70, 1.2, 80, 1.3, 1.4} {
		fmt.Fprintf(&b, "step %d loss 1 time per step %.1fs\n", i, s)
	}
	if p := follow(t, b.String()); p.StepTime != 1.2 {
		t.Errorf("step time %v", p.StepTime)
	}
}

func TestMilliseconds(t *testing.T) {
	var b strings.Builder
	for i := range 5 {
		fmt.Fprintf(&b, "2026-03-01 10:00:%02d,%03d step %d loss 1\n", i/4, i%4*250, i)
	}
	if p := follow(t, b.String()); p.StepTime != 0.25 {
		t.Errorf("step time %v", p.StepTime)
	}
}

// Two bars that differ in their totals alone are two.
func TestBars(t *testing.T) {
	var b strings.Builder
	for i := 1; i <= 10; i++ {
		fmt.Fprintf(&b, "%d%%|#| %d/500 [00:01<00:01, 2.00s/it]\n%d%%|#| %d/70 [00:01<00:01, 9.00s/it]\n", i, 100+i, i, i)
	}
	if p := follow(t, b.String()); p.Step != 110 || p.TotalSteps != 500 || p.StepTime != 2 {
		t.Errorf("%+v", p)
	}
}

// The bar of something short says nothing about the steps of a job that prints no time.
func TestShortBar(t *testing.T) {
	text := "10%|#| 1/10 [00:09<01:30, 9.00s/it]\n"
	for i := range 190 {
		text += fmt.Sprintf("step %d loss 1\n", i)
	}
	if p := follow(t, text); p.Step != 189 || !math.IsNaN(p.StepTime) {
		t.Errorf("%+v", p)
	}
}

func TestStalled(t *testing.T) {
	p := follow(t, "step 10 loss 1 time per step 2s\nstep 20 loss 1 time per step 2s\n")
	if p.Stalled(199, 10) || !p.Stalled(201, 10) {
		t.Errorf("stalled after %v s", p.Interval*10)
	}
	p = follow(t, "step 1 loss 1 time per step 10ms\nstep 2 loss 1 time per step 10ms\n")
	if p.Stalled(9, 10) || !p.Stalled(11, 10) {
		t.Error("fast steps")
	}
	if p = follow(t, "step 1 loss 1\nstep 2 loss 1\n"); p.Stalled(1e6, 10) {
		t.Error("stalled, though the time of a step is not known")
	}
}

// Lines of other jobs, in no order, are told from the job's own.
func TestOwn(t *testing.T) {
	var all []Reading
	var tr Tracker
	read := func(format string, args ...any) {
		if x, ok := tr.Line(fmt.Appendf(nil, format, args...)); ok {
			all = append(all, x)
		}
	}
	for i := range 40 {
		read("step %d/500 loss 1.0 time per step 2.0s", i)
		for j := range 5 {
			read("iter %d/700 loss: 3.0, %.1fs/it", (i*37+j*101)%700, 9.0)
		}
	}
	read("epoch: 7, throughput: 3 samples/s") // too short to tell
	p := tr.Progress()
	if p.Step != 39 || p.StepTime != 2 {
		t.Errorf("%+v", p)
	}
	own := Own(pointers(all))
	if len(own) != 40 {
		t.Fatalf("%d readings, want 40", len(own))
	}
	for _, x := range own {
		if x.TotalSteps != 500 {
			t.Fatalf("%+v", x)
		}
	}
}

// Lines that count no steps are in the order of their time stamps if they are the job's own, and those of another source file are another job's.
func TestOwnByTime(t *testing.T) {
	var all []Reading
	var tr Tracker
	for i := range 40 {
		for _, line := range []string{
			fmt.Sprintf(`{"ts": %d, "file": "train.py", "throughput": 100.0}`, 1700000000+i),
			fmt.Sprintf(`{"ts": %d, "file": "other.py", "throughput": 7.0}`, 1700000000+(i*37+11)%40),
			"CurrSamplesPerSec=3.0", // no order at all
		} {
			if x, ok := tr.Line([]byte(line)); ok {
				all = append(all, x)
			}
		}
	}
	if p := tr.Progress(); p.Throughput != 100 {
		t.Errorf("throughput %g, want 100", p.Throughput)
	}
	own := Own(pointers(all))
	if len(all) != 120 || len(own) != 40 || own[0].Throughput != 100 || own[39].Throughput != 100 {
		t.Errorf("%d readings of %d, want the first of three lines", len(own), len(all))
	}
}

// The end of a log says the same as all of it.
func TestTail(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, "some text between\nstep %d/9000 loss 1 time per step %d.5s\n", i, i%4)
	}
	tr, err := Tail(strings.NewReader(b.String()), int64(b.Len()), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tr.Progress(), follow(t, b.String()); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v from the end, %+v of all", got, want)
	}
}

// The columns of a table have their names in a line before.
func TestTables(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"epoch     train_loss  valid_loss  accuracy  time    \n0         0.500000    0.250000    0.750000  00:12     \n1         0.250000    0.250000    0.750000  00:11     \n",
			" epoch 0 of epoch 12 loss 0.5; epoch 1 of epoch 11 loss 0.25"},
		{"E    #       LOSS TOK2VEC  LOSS NER \n---  ------  ------------  --------\n  0     200         11.25    12.50\n", " 200 epoch 0 loss 12.5"},
		{"| step | loss | lr |\n|------|------|----|\n| 10 | 0.5 | 0.1 |\n| 20 | nan | 0.1 |\n", " 10 loss 0.5; 20 loss NaN"},
		{"step  loss  note\n10  0.5  warm\n20  0.5\n30  0.25  1\n", " 10 loss 0.5; 30 loss 0.25"}, // a line of fewer values is no row
		{"# step      rmse_trn    lr\n    0      2.5e+01      1.0e-03\n  100    1.25e+01      1.0e-03\n", " 0; 100"},
		{"Epoch   gpu_mem       box       obj     total   targets  img_size\n2/249     5.0G   0.0625   0.0312    0.09375      12       640\n", " epoch 2 loss 0.09375"},
		{"Step (% Done)       Train Iter (time)    ETA (time)           Train Rays / Sec        trainer.py:604\n-----------------------------------------       trainer.py:554\n" +
			"4100 (82.00%)       42.500 ms            39 s, 250.5 ms       14.50 M                 trainer.py:566\n", " 4100 time 0.0425 rate 1.45e+07 rays/s"},
		{"Step      Train loss              Test loss               Test metric\n0         [1.25e+02, 3.50e+04]    [1.50e+02, 0.00e+00]    []\n", " 0 loss 125"},
		{"Step\tImg/sec\ttotal_loss\n10\timages/sec: 312.5 +/- 0.1 (jitter = 0.5)\t9.125\n", " 10 rate 312.5 images/s loss 9.125"},
		{"steps\tepisodes\telapsed\tmean\taverage_v\taverage_loss\n500\t5\t99.25\t-2.5\t[-2.125]\t0.5\n", " 500 loss 0.5"},
		{"Trial name      status    iter  total time (s)    ts\n-------------   -------   ----  ---------------  -----\nPPO_1a_00000   RUNNING      3     30.25   4000\n", " 3"},
	} {
		var got []string
		var r reader
		for l := range strings.Lines(c.text) {
			var x Reading
			if r.read([]byte(strings.TrimSuffix(l, "\n")), &x) {
				got = append(got, x.say())
			}
		}
		if got := strings.Join(got, ";"); got != c.want {
			t.Errorf("%s\nread%s\nwant%s", c.text, got, c.want)
		}
		tr, err := Tail(strings.NewReader(c.text), int64(len(c.text)), 1<<20)
		if got, want := tr.Progress(), follow(t, c.text); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v, %v from the end, %+v of all", got, err, want)
		}
	}
}

// No line is too strange, and figures are in their ranges.
func FuzzLine(f *testing.F) {
	text, err := os.ReadFile("testdata/lines.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, l := range strings.Split(string(text), "\n") {
		f.Add([]byte(l))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var tr Tracker
		for range 3 {
			x, ok := tr.Line(line)
			if ok && (x.Step < 0 || x.StepTime <= 0 || x.Throughput < 0 || x.TotalSteps < x.Step && !math.IsNaN(x.TotalSteps)) {
				t.Fatalf("%q: %+v", line, x)
			}
		}
		tr.Progress()
	})
}

// A job of reinforcement learning prints how many steps of environments it simulates in a second; what it counts, and times, are updates.
func TestStepsOfEnvironments(t *testing.T) {
	var text strings.Builder
	for i := range 6 {
		fmt.Fprintf(&text, "  Learning iteration %d/1500\n  Computation: %d steps/s (collection: 0.7s, learning 0.3s)\n  Iteration time: 1.00s\n", 100+i, 65000+i)
	}
	tracker, err := Read(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	if p := tracker.Progress(); p.StepTime != 1 || p.Left != 1395 || p.Unit != "steps/s" || math.Abs(p.Throughput-65002.5) > 5 {
		t.Errorf("step time %v, left %v, %v %s", p.StepTime, p.Left, p.Throughput, p.Unit)
	}
}
