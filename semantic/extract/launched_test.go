package extract

import (
	"strings"
	"testing"

	"github.com/muster-sched/muster/semantic/metadata"
)

func TestLaunched(t *testing.T) {
	for _, c := range []struct {
		name, command string
		env           []string
		want          string
	}{
		{"options", "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3-8B --max_steps 2000 --dataset_name c4", nil,
			"model_name=meta-llama/Llama-3-8B task_type=NLP iters=2000 iter_type=step gpus=8 train=c4"},
		{"a shell", "bash -c 'pip install -r requirements.txt && python train.py --model resnet50 --epochs $N'", []string{"N=90"},
			"model_name=resnet50 task_type=CV iters=90 iter_type=epoch"},
		{"a login shell", "/bin/sh -lc 'python train.py --model resnet50 --epochs ${N}'", []string{"N=90"}, "model_name=resnet50 task_type=CV iters=90 iter_type=epoch"},
		{"the environment", "python train.py", []string{"MODEL_NAME=bert-base-uncased", "NUM_EPOCHS=3", "HOME=/root"},
			"model_name=bert-base-uncased task_type=NLP iters=3 iter_type=epoch"},
		{"the command counts more", "python train.py --epochs 5", []string{"EPOCHS=3"}, "iters=5 iter_type=epoch"},
		{"quotes", "python train.py", []string{"EPOCHS=3'; python evil.py --epochs 9 #"}, ""},
		{"no command", "", []string{"EPOCHS=3"}, "iters=3 iter_type=epoch"},
		{"nothing", "sleep infinity", nil, ""},
	} {
		r := Launched(metadata.Launch{Command: c.command, Env: c.env})
		if got := strings.Join(r.Fields(), " "); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q; by %q, sources %v", c.name, got, c.want, r.Command, r.Sources)
		}
	}
}

// A command and an environment of the largest size that is read, in which variables grow, and quotes and braces do not end.
func TestLaunchedHostile(t *testing.T) {
	var env []string
	for i := range 256 {
		env = append(env, "V"+strings.Repeat("x", i%40)+"="+strings.Repeat("$V'\"{", 200))
	}
	for _, part := range []string{"a=$a$a;", "$(", "'\"", "{ ", "<<E ", "--x=${V:-", "if ", "sh -c '"} {
		Launched(metadata.Launch{Command: strings.Repeat(part, (32<<10)/len(part)), Env: env})
		Launched(metadata.Launch{Command: "sh -c '" + strings.Repeat(strings.ReplaceAll(part, "'", ""), (32<<10)/len(part)) + "'", Env: env})
	}
}
