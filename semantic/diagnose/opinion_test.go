package diagnose

import (
	"math"
	"testing"
)

// Rules that are sure are not asked about; what they do not know, a model may.
func TestUnsure(t *testing.T) {
	for text, want := range map[string]bool{
		"NVRM: Xid (PCI:0000:5e:00): 48, pid=712, name=python, DBE (double bit error) ECC":             false,
		"the flux capacitor is out of plutonium":                                                       true,
		"slurmstepd: error: *** JOB 881 ON n17 CANCELLED AT 2026-03-03T10:00:00 DUE TO TIME LIMIT ***": false,
		"[rank0]:[E ProcessGroupNCCL.cpp:621] Some NCCL operations have failed or timed out.":          true,
	} {
		if v := diagnosed(t, text); v.Unsure(0.6) != want {
			t.Errorf("%s: %s with %.2f: unsure is %v", text, v.Category, v.Confidence, !want)
		}
	}
}

func TestConsider(t *testing.T) {
	v := diagnosed(t, "step 1 loss 2\nthe flux capacitor is out of plutonium\n")
	o := Opinion{Category: Infrastructure, Component: "gpu", Confidence: 0.99, Line: Line{Index: 1, Text: "the flux capacitor"}, Reason: "no power"}
	n, err := v.Consider(o)
	if err != nil {
		t.Fatal(err)
	}
	if n.Category != Infrastructure || n.Component != "gpu" || *n.SignatureLine != 1 || *n.RootLine != 1 || n.Confidence != 0.5 || n.Signature != modelSignature ||
		n.Action != "restart_elsewhere" || n.Recovery().Limit != 3 || n.Lines != 2 || n.Evidence[0] != (Line{1, "the flux capacitor", "no power"}) {
		t.Errorf("%+v", n)
	}
	// The table holds for the others, and no opinion drains a node.
	for _, c := range Categories {
		for _, part := range Components {
			o.Category, o.Component = c, part
			n, err := v.Consider(o)
			if err != nil {
				t.Fatal(err)
			}
			if node := n.Recovery().Node; node != "nothing" && node != "strike" && node != "check the mounts and cordon" {
				t.Errorf("%s %s: %s", c, part, node)
			}
			if c == UserScript && n.Action != "hold" || c == None && n.Action != "none" {
				t.Errorf("%s: %s", c, n.Action)
			}
		}
	}
	// Beside a rule that is not sure it may be more certain.
	v = diagnosed(t, "[rank0]:[E ProcessGroupNCCL.cpp:621] Some NCCL operations have failed or timed out.")
	o.Category, o.Component, o.Line = Framework, "software", Line{Text: "[rank0]"}
	if n, err = v.Consider(o); err != nil || n.Confidence != 0.8 || n.Action != "hold" {
		t.Errorf("%+v, %v", n, err)
	}
	// If both agree, the rule's names stay.
	v = diagnosed(t, "[rank0]:[E ProcessGroupNCCL.cpp:621] Some NCCL operations have failed or timed out.")
	n, err = v.Consider(Opinion{Category: v.Category, Component: v.Component, Confidence: 0.7})
	if err != nil || n.Signature != v.Signature || n.Action != v.Action || n.Confidence != max(v.Confidence, 0.7) {
		t.Errorf("%+v, %v", n, err)
	}
}

func TestOpinionsThatAreNone(t *testing.T) {
	v := diagnosed(t, "one\ntwo\n")
	for _, o := range []Opinion{
		{Category: "hardware", Component: "gpu"}, {Category: Infrastructure, Component: "flux capacitor"}, {Category: Infrastructure, Component: "gpu", Confidence: 1.1},
		{Category: Infrastructure, Component: "gpu", Confidence: math.NaN()}, {Category: Infrastructure, Component: "gpu", Line: Line{Index: 2}}, {Category: Infrastructure, Component: "gpu", Line: Line{Index: -1}},
	} {
		if n, err := v.Consider(o); err == nil || n.Category != v.Category || n.Action != v.Action {
			t.Errorf("%+v gives %+v, %v", o, n, err)
		}
	}
}
