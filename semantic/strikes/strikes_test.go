package strikes

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/semantic/diagnose"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func verdict(t *testing.T, log string) diagnose.Verdict {
	t.Helper()
	v, err := diagnose.Log(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

const (
	ecc     = "[8812.1] NVRM: Xid (PCI:0000:5e:00): 48, pid=7, name=python, DBE (double bit error) ECC\n"
	fault31 = "[8812.1] NVRM: Xid (PCI:0000:5e:00): 31, pid=7, name=python, MMU Fault\n"
	early   = "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    main()\n  File \"train.py\", line 2, in main\n    torch.zeros(8).cuda()\n" +
		"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB\n"
	late = "step 10/100 loss 2.0\nstep 11/100 loss 2.0\nstep 12/100 loss 2.0\n" + early
)

// The same log is a fault of the hardware or the program's, as the node's history says.
func TestReconsider(t *testing.T) {
	for _, c := range []struct {
		name, log string
		// before is the log of another job on node n1, so long before.
		before string
		ago    time.Duration
		node   string
		want   diagnose.Category
	}{
		{"out of memory at the start, an hour after an ECC error", early, ecc, time.Hour, "n1", diagnose.Infrastructure},
		{"the same two days later", early, ecc, 48 * time.Hour, "n1", diagnose.Framework},
		{"the same on another node", early, ecc, time.Hour, "n2", diagnose.Framework},
		{"out of memory after steps", late, ecc, time.Hour, "n1", diagnose.Framework},
		{"out of memory at the start, after a failure of a script", early, "ModuleNotFoundError: No module named 'foo'\n", time.Hour, "n1", diagnose.Framework},
		{"a page fault alone is the program's", fault31, "", 0, "n1", diagnose.Framework},
		{"a page fault again, in another job", fault31, fault31, time.Hour, "n1", diagnose.Infrastructure},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h History
			if c.before != "" {
				v := verdict(t, c.before)
				i, ok := Of(&v, "n1", "other", noon.Add(-c.ago))
				if !ok {
					t.Fatalf("no incident: %+v", v)
				}
				h.Add(i)
			}
			was := verdict(t, c.log)
			got, because := h.Reconsider(was, c.node, "train", noon)
			if got.Category != c.want || (because != nil) != (got.Category != was.Category) {
				t.Errorf("%s, %s (%s) because of %v; expected %s; without a history %s", got.Category, got.Component, got.Reason, because, c.want, was.Category)
			}
			if because != nil && (got.Action != "cordon_and_restart" || *got.SignatureLine != *was.SignatureLine) {
				t.Errorf("action %s, line %d", got.Action, *got.SignatureLine)
			}
		})
	}
}

// The same job that fails again in the same way is no second opinion on the node.
func TestSameJobIsNoWitness(t *testing.T) {
	var h History
	v := verdict(t, fault31)
	i, _ := Of(&v, "n1", "train", noon.Add(-time.Hour))
	h.Add(i)
	if got, because := h.Reconsider(v, "n1", "train", noon); because != nil {
		t.Errorf("%+v because of %+v", got, because)
	}
}

// What happened longer ago than the window, by the last incident of its node, is forgotten.
func TestWindow(t *testing.T) {
	var h History
	for _, ago := range []time.Duration{30 * time.Hour, 12 * time.Hour, 0} {
		h.Add(Incident{At: noon.Add(-ago), Node: "n1", Category: diagnose.Infrastructure, Component: "gpu", Confidence: 0.8})
	}
	if got := h.Before("n1", noon, 48*time.Hour); len(got) != 2 || !got[0].At.Equal(noon.Add(-12*time.Hour)) {
		t.Errorf("incidents %+v, want the last two", got)
	}
	if got := h.Before("n2", noon, Window); got != nil {
		t.Errorf("incidents of a node without any: %+v", got)
	}
}

func TestReadNamesTheLine(t *testing.T) {
	const good = `{"at":"2026-03-01T11:00:00Z","node":"n1","category":"infrastructure","component":"gpu","signature":"xid-48","confidence":0.95}` + "\n"
	h, err := Read(strings.NewReader(good + "\n" + good))
	if err != nil || len(h.Before("n1", noon, Window)) != 2 {
		t.Fatalf("%v, %+v", err, h)
	}
	for text, want := range map[string]string{
		good + "{}\n":                  "line 2: expected at and node; found neither or one",
		`{"when":1}` + "\n":            `line 1: expected an incident as JSON; json: unknown field "when"`,
		good + good + "x\n":            "line 3: expected an incident as JSON; invalid character 'x' looking for beginning of value",
		`{"node":"n1"}` + "\n":         "line 1: expected at and node; found neither or one",
		strings.TrimSpace(good) + good: `line 1: expected one incident; found more behind it: "{\"at\":\"2026-03-01T11"`,
		strings.Replace(good, "infrastructure", "hardware", 1): `line 1: category: expected one of [infrastructure framework user_script none]; found "hardware"`,
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, expected %s", text, err, want)
		}
	}
}

// Rules refer to what there is.
func TestRulesAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"- {signatures: [no-such], within: 1h, becomes: {action: hold}}":   `rule 1: no signature is called "no-such"`,
		"- {signatures: [killed], within: 30h, becomes: {action: hold}}":   `rule 1: within: expected a duration up to 24h0m0s; found "30h"`,
		"- {signatures: [killed], within: 1h, becomes: {action: explode}}": `rule 1: the recovery table has no action "explode"`,
	} {
		if _, err := read([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, expected %s", text, err, want)
		}
	}
	if len(rules()) == 0 {
		t.Error("no rules")
	}
}

// An error that programs cause is the GPU's where the driver reports the same of it with two jobs.
func TestDriver(t *testing.T) {
	const access = "step 10/100 loss 2.0\ntorch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
	of := func(line, device, job string, ago time.Duration) Incident {
		i, ok := OfDriver(line, "n1", device, noon.Add(-ago))
		if !ok {
			t.Fatalf("%q is no incident", line)
		}
		i.Job = job
		return i
	}
	other, own := of(fault31, "5e", "other", time.Hour), of(fault31, "5e", "train", time.Minute)
	for name, c := range map[string]struct {
		log    string
		before []Incident
		want   diagnose.Category
	}{
		"another job met it on the same GPU":          {access, []Incident{other, own}, diagnose.Infrastructure},
		"another job met it on another GPU":           {access, []Incident{of(fault31, "6e", "other", time.Hour), own}, diagnose.Framework},
		"this job alone":                              {access, []Incident{of(fault31, "5e", "train", time.Hour), own}, diagnose.Framework},
		"the driver says nothing of this failure":     {access, []Incident{other}, diagnose.Framework},
		"what it says of this job is long ago":        {access, []Incident{other, of(fault31, "5e", "train", 10*time.Minute)}, diagnose.Framework},
		"out of memory first, after an ECC error":     {early, []Incident{of(ecc, "5e", "", time.Hour)}, diagnose.Infrastructure},
		"what was reported of a time is counted once": {access, []Incident{own, of(fault31, "5e", "other", time.Minute)}, diagnose.Framework},
	} {
		var h History
		for _, i := range c.before {
			h.Add(i)
		}
		if got, _ := h.Reconsider(verdict(t, c.log), "n1", "train", noon); got.Category != c.want {
			t.Errorf("%s: %s (%s), expected %s", name, got.Category, got.Reason, c.want)
		}
	}
	if i, ok := OfDriver("NVRM: loading NVIDIA UNIX Open Kernel Module", "n1", "", noon); ok {
		t.Errorf("no error, but %+v", i)
	}
}
