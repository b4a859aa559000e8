package workload

import "testing"

// Windows read back as they are written, also those with an early return.
func TestStandbyWindows(t *testing.T) {
	for text, want := range map[string]string{
		"3600-7200":                        "3600-7200",
		"daily:79200-108000@100800.5;0-10": "daily:79200-108000@100800.5;0-10",
		"0-10@9":                           "0-10@9",
		"0-10@10":                          "",
		"5-10@5":                           "",
		"5-10@":                            "",
		"5-10@7@8":                         "",
		"daily:79200-108000@10000":         "",
		"5-10;7-12@9223372036854775808":    "",
	} {
		w, err := parseStandby(text)
		if got := standbyText(w); err == nil != (want != "") || err == nil && got != want {
			t.Errorf("%q: read as %q, %v; want %q", text, got, err, want)
		}
	}
	w, err := parseStandby("3600-7200@5400")
	if err != nil || w[0].End() != w[0].Back || w[0].End().Seconds() != 5400 {
		t.Errorf("a window with an early return ends at %v, %v", w, err)
	}
}
