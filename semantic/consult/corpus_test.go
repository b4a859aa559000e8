package consult

import (
	"regexp"
	"strings"
	"testing"

	"github.com/muster-sched/muster/internal/corpus"
	"github.com/muster-sched/muster/semantic/diagnose"
	"github.com/muster-sched/muster/semantic/redact"
)

// TestCorpus measures on labelled logs how often a model would be asked, whether it would be shown the root, and that what it would be shown has no
// address in it.
func TestCorpus(t *testing.T) {
	type record struct {
		ID    string `json:"id"`
		Text  string `json:"text"`
		Label struct {
			Category      diagnose.Category `json:"category"`
			SignatureLine *int64            `json:"signature_line"`
		} `json:"label"`
	}
	addresses := regexp.MustCompile(`\b(?:[1-9]\d?|1\d\d|2[0-4]\d)(?:\.(?:\d|[1-9]\d|1\d\d|2[0-4]\d)){3}\b|[\w.]+@[\w-]+\.\w+|\bhf_[A-Za-z0-9]{16,}`)
	asked, healthy, failures, shown, left := 0, 0, 0, 0, 0
	all := corpus.Records[record](t)
	for _, r := range all {
		v, err := diagnose.Log(strings.NewReader(r.Text))
		if err != nil {
			t.Fatal(err)
		}
		around := int64(-1)
		if v.SignatureLine != nil {
			around = *v.SignatureLine
		}
		lines, err := Window(strings.NewReader(r.Text), around, 200)
		if err != nil {
			t.Fatal(err)
		}
		if Worthwhile(&v, 0.6, lines) {
			if asked++; r.Label.Category == diagnose.None {
				healthy++
			}
		}
		if at := r.Label.SignatureLine; at != nil && r.Label.Category != diagnose.None && len(lines) > 0 {
			if failures++; lines[0].Index <= *at && *at <= lines[len(lines)-1].Index {
				shown++
			}
		}
		hidden := redact.New(redact.Default).Hide(r.Text)
		for _, found := range addresses.FindAllString(hidden, -1) {
			if !strings.HasPrefix(found, "127.") {
				left++
				t.Logf("%s: %s is left", r.ID, found)
			}
		}
	}
	if shown < failures || left > 0 {
		t.Errorf("a model would not be shown the root of %d failures, and would be sent %d addresses", failures-shown, left)
	}
	t.Logf("of %d logs, a model would be asked about %d, of which %d have no failure; of %d failures it would be shown the root of %d; %d addresses are left", len(all), asked, healthy, failures, shown, left)
}
