package slurm

import (
	"cmp"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the pods of a script have of Slurm: start, srun and scontrol, and the program behind them, which begins in slurm.py. They come as a
// Secret beside the Job, so that the image needs a shell and, for srun, Python 3, and nothing of ours.

//go:embed pod
var podFiles embed.FS

// mountPath is where the pods have the files.
const mountPath = "/muster"

// port is the one on which the first pod listens for the others, as slurmd does.
const port = 6818

func podFile(name string) []byte {
	data, err := podFiles.ReadFile("pod/" + name)
	if err != nil {
		panic(err)
	}
	return data
}

// podNames are the files, and where the pods have them below [mountPath].
var podNames = map[string]string{"start": "start", "slurm.py": "slurm.py", "wire.py": "wire.py", "agent.py": "agent.py", "batch.py": "batch.py", "srun.py": "srun.py", "options.json": "options.json", "srun": "bin/srun", "scontrol": "bin/scontrol"}

// secret holds the files of a job, its script under the name file, and the key by which its pods know each other.
func secret(name, namespace string, labels map[string]string, script, file string) (*v1.Secret, v1.Volume) {
	data := map[string]string{"key": newKey()}
	items := []v1.KeyToPath{{Key: "key", Path: "key"}}
	for n, to := range podNames {
		data[n] = string(podFile(n))
		items = append(items, v1.KeyToPath{Key: n, Path: to})
	}
	if file != "" {
		data["script"] = script
		items = append(items, v1.KeyToPath{Key: "script", Path: path.Join("job", file)})
	}
	slices.SortFunc(items, func(a, b v1.KeyToPath) int { return cmp.Compare(a.Key, b.Key) })
	return &v1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels},
			StringData: data,
		}, v1.Volume{Name: "muster", VolumeSource: v1.VolumeSource{
			Secret: &v1.SecretVolumeSource{SecretName: name, Items: items, DefaultMode: ptr(int32(0o555))},
		}}
}

func newKey() string {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// fileName is what a script is called in the pods.
func fileName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, path.Base(name))
	return cmp.Or(strings.TrimLeft(name, "."), "script")
}
