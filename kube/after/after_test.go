package after

import "testing"

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"afterok:train": "", "afterok:a:b,afterany:17": "afterok:a,afterok:b,afterany:17", "afterok:1?afternotok:2": "", "afterok:17_3": "", "singleton": "", "after:job/x": "after:x",
		"afterok": "-", "aftercorr:1": "-", "after:1+5": "-", "afterok:1,singleton?after:3": "-", "later:1": "-", "afterok:": "-", "": "-", "afterok:A_B": "-",
	} {
		d, err := Parse(text)
		if want == "" {
			want = text
		}
		if got := d.String(); (err != nil) != (want == "-") || err == nil && got != want {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
}
