package track

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// ordinary are what a job prints beside its progress, with numbers that change from line to line.
var ordinary = []string{
	"2026-03-01 10:%02[2]d:%02[3]d,%03[4]d - INFO - trainer - Loading checkpoint shards from /data/ckpt/llama-7b/model-%05[1]d-of-00064.safetensors\n",
	"node-17:2031:2215 [%[3]d] NCCL INFO Channel %02[2]d/0 : %[3]d[%[3]d] -> %[2]d[%[2]d] via P2P/CUMEM/read\n",
	"[rank3]:W0301 10:%02[2]d:%02[3]d.%06[1]d 140245 torch/nn/parallel/distributed.py:1234] find_unused_parameters=True was specified, but no unused parameters were found\n",
	"/opt/conda/lib/python3.11/site-packages/torch/utils/checkpoint.py:%[4]d: FutureWarning: `torch.cpu.amp.autocast(args...)` is deprecated.\n",
	"  with torch.enable_grad(), device_autocast_ctx, torch.cpu.amp.autocast(**ctx.cpu_autocast_kwargs):\n",
	"wandb: Run data is saved locally in /data/wandb/run-20260301_10%02[2]d%02[3]d-abc%[1]d\n",
	"[2026-03-01 10:%02[2]d:%02[3]d,%03[4]d] [INFO] [logging.py:96:log_dist] [Rank 0] [Torch] Checkpoint global_step%[1]d is about to be saved!\n",
	"[Rank %[3]d] (after %[1]d iterations) memory (MB) | allocated: 20153.%[3]d | max allocated: 35153.2 | reserved: 41234.0 | max reserved: 41234.0\n",
	"INFO 03-01 10:%02[2]d:%02[3]d [gpu_executor.py:122] # GPU blocks: %[1]d, # CPU blocks: 2048\n",
	"Saving model checkpoint to /data/out/checkpoint-%[1]d\n",
}

// progress are lines of frameworks, one format each: the step, a percentage, a loss, a part of a second, the clock, the epoch.
var progress = map[string]string{
	"megatron": " iteration %8[1]d/  500000 | consumed samples: %12[1]d | elapsed time per iteration (ms): 12%02[2]d.5 | learning rate: 1.500E-04 | global batch size:   256 | lm loss: %.6[3]E | loss scale: 1.0 | grad norm: 0.%03[4]d | number of skipped iterations:   0 | number of nan iterations:   0 |\n",
	"titan":    "[rank0]:2026-03-01 10:%02[5]d:%02[6]d,%03[4]d - root - INFO - step: %[1]d  loss: %8.4[3]f  grad_norm:  0.%03[4]d  memory: 61.%02[2]dGiB(64.5%%)  tps: 6,%03[4]d  tflops: 384.%02[2]d  mfu: 38.%02[2]d%%\n",
	"bar":      "\r%3[2]d%%|███▌      | %[1]d/500000 [05:10<2:41:%02[6]d,  1.%02[2]ds/it]",
	"trainer":  "{'loss': %.4[3]f, 'grad_norm': 1.%03[4]d, 'learning_rate': 4.8%[4]de-05, 'epoch': %.2[7]f}\n",
	"lines":    "epoch 3 | step %[1]d/500000 | loss %.4[3]f | 1.%02[2]d s/it | lr 1.5e-4\n",
}

// realistic returns a log of about a size that prints progress in a format, with lines of other things between any two lines of it.
func realistic(format string, between, size int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for step := 1; b.Len() < size; step++ {
		for range between {
			write(&b, ordinary[rng.IntN(len(ordinary))], step, rng.IntN(60), rng.IntN(8), rng.IntN(1000))
		}
		write(&b, progress[format], step, rng.IntN(100), 2+rng.Float64(), rng.IntN(1000), step/60%60, step%60, float64(step)/1000)
	}
	return b.Bytes()
}

// write fills in a format, which need not use all figures.
func write(b *bytes.Buffer, format string, figures ...any) {
	text := fmt.Sprintf(format, figures...)
	line, _, _ := strings.Cut(text, "%!(EXTRA")
	b.WriteString(line)
}

// BenchmarkLog reads logs as muster track --json does, but for printing.
func BenchmarkLog(b *testing.B) {
	for _, part := range []struct {
		name    string
		between int
	}{{"among", 4}, {"every-other", 1}, {"all", 0}} {
		for _, format := range []string{"megatron", "titan", "bar", "trainer", "lines"} {
			b.Run(part.name+"/"+format, func(b *testing.B) { follows(b, realistic(format, part.between, 4<<20)) })
		}
	}
}

// BenchmarkLines reads a log that no job writes: each line is of another format.
func BenchmarkLines(b *testing.B) {
	text, err := os.ReadFile("testdata/lines.txt")
	if err != nil {
		b.Fatal(err)
	}
	follows(b, text)
}

func follows(b *testing.B, text []byte) {
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if all, err := ReadAll(bytes.NewReader(text)); err != nil || len(all) == 0 {
			b.Fatal(len(all), err)
		}
	}
}
