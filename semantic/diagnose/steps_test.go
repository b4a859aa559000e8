package diagnose

import (
	"strings"
	"testing"
)

// Lines as frameworks print them are steps; loading bars, downloads and settings are not.
func TestSteps(t *testing.T) {
	k := known()
	step := func(line string) (int, int64) {
		var m matched
		k.look([]byte(line), &m)
		return k.step([]byte(line), m.steps, 0, -1)
	}
	for line := range strings.Lines(strings.TrimSpace(`
epoch=0/micro_step=14400/global_step=1800, RunningAvgSamplesPerSec=61.2
[2026-01-15 22:40:10,337] [INFO] [logging.py:128:log_dist] [Rank 0] step=1800, skipped=0, lr=[1.9e-05], mom=[(0.9, 0.95)]
Epoch 3:  44%|####      | 880/2000 [12:20<15:40,  1.19it/s, v_num=2, train_loss=0.412]
Training epoch 0, iteration 9/99 | lr: 1e-4 | global_batch_size: 8 | global_step: 9 | reduced_train_loss: 2.1
01/02 10:00:00 - mmengine - INFO - Epoch(train)  [1][ 50/196]  lr: 1.0e-02  eta: 0:01:00  time: 0.2013  loss: 2.1
01/02 10:00:00 - mmengine - INFO - Iter(train) [ 50/1000]  lr: 1
37/100 [==========>...] - ETA: 3s - loss: 0.5 - accuracy: 0.8
      1/100      2.31G      1.204      3.111      1.101         24        640: 100%|##########| 16/16 [00:03<00:00,  4.80it/s]
INFO:root:Epoch[17] Batch [200-220]  Speed: 22447.75 samples/sec  accuracy=0.4
[1,  2000] loss: 2.171
|    total_timesteps    | 20480       |
Episode 100	Last reward: 20.00	Average reward: 18.2
{'loss': 1.9, 'grad_norm': 0.4, 'learning_rate': 1e-05, 'epoch': 1.1}
[node-1:0]:2026-03-03 10:10:10 - INFO - batch 400/5000, loss=1.2
I0710 08:20:11.001 train.py:88] step=3300 loss=2.551 steps_per_sec=1.21
Iteration 400: 0.54
Batch 100 of 400 | loss 0.4
[batch=12/1000]: Train time/batch: 11  Train loss/train/total: 2.33
(RayTrainWorker pid=1190, ip=10.0.0.7) {'epoch': 3, 'step': 900, 'loss': 0.88}
3300/50000, train loss 2.3
it 100/5000 | loss 2.1 | 31 ms
Update 12, num timesteps 24576, FPS 900
epoch 5 | train err 0.214 | val err 0.233
Epoch 00012: val_loss improved from 0.31 to 0.30, saving model to m.h5
[I 2026-04-01 10:22:00,000] Trial 2 finished with value: 0.84 and parameters: {'lr': 0.002}. Best is trial 2 with value: 0.84.
INFO 03-03 11:00:10 [loggers.py:111] Engine 000: Avg prompt throughput: 790.0 tokens/s, Avg generation throughput: 410.9 tokens/s, Running: 11 reqs
`)) {
		if kind, _ := step(strings.TrimSuffix(line, "\n")); kind < 0 {
			t.Errorf("no step: %s", line)
		}
	}
	for line := range strings.Lines(strings.TrimSpace(`
Loading checkpoint shards:  33%|###       | 2/6 [00:10<00:20,  5.1s/it]
Downloading data: 100%|##########| 319M/319M [00:21<00:00, 15.1MB/s]
Map:  12%|#         | 6000/50000 [00:03<00:22, 1944.8 examples/s]
total steps: 5000
warmup_steps=100, max_steps=5000
INFO 03-03 11:00:10 [loggers.py:111] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 reqs
Resuming from epoch 12
`)) {
		if kind, n := step(strings.TrimSuffix(line, "\n")); kind >= 0 {
			t.Errorf("step %d: %s", n, line)
		}
	}
}
