package migrate

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// No field is dropped in silence, whatever its type.
func TestFieldsOfOtherTypes(t *testing.T) {
	for _, spec := range []string{
		"{parentQueue: 5}", "{resources: [gpu]}", "{resources: {gpu: 8}}", "{resources: {gpu: {quota: many}}}", "{resources: {gpu: {quota: 8, limit: [9]}}}", "{resources: {disk: {quota: 8}}}",
	} {
		var qs Queues
		if err := qs.Read([]byte("{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: q}, spec: " + spec + "}")); err != nil || len(qs.Refused) != 1 {
			t.Errorf("%s: %v, refused %q", spec, err, qs.Refused)
		}
	}
}

// Whatever is read, what is written is queues.
func FuzzRead(f *testing.F) {
	script, err := os.ReadFile(filepath.Join("..", "cmd", "muster", "testdata", "script", "migrate.txt"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range strings.Split(string(script), "\n-- ") {
		if name, text, ok := strings.Cut(file, " --\n"); ok && strings.HasSuffix(name, ".yaml") {
			f.Add([]byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var qs Queues
		if qs.Read(data) != nil {
			return
		}
		var out bytes.Buffer
		if err := qs.Write(&out); err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(out.String(), "---\n") {
			var q v1alpha1.Queue
			if err := yaml.UnmarshalStrict([]byte(doc), &q); err != nil {
				t.Fatalf("%v in\n%s", err, doc)
			}
		}
	})
}
