package hostlist

import (
	"strings"
	"testing"
)

func TestFormat(t *testing.T) {
	for want, names := range map[string][]string{
		"":                          nil,
		"gpu-1":                     {"gpu-1"},
		"gpu-[1-3]":                 {"gpu-3", "gpu-1", "gpu-2", "gpu-2"},
		"gpu-[09-11,20]":            {"gpu-20", "gpu-10", "gpu-09", "gpu-11"},
		"gpu-[9,09-10]":             {"gpu-9", "gpu-09", "gpu-10"},
		"a-[1-2].site,b-7.site":     {"a-1.site", "b-7.site", "a-2.site"},
		"login,n-[0-1]":             {"n-0", "login", "n-1"},
		"i-99999999999999999999999": {"i-99999999999999999999999"},
	} {
		if got := Format(names); got != want {
			t.Errorf("%v: got %s, want %s", names, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	for list, want := range map[string]string{
		"gpu-1": "gpu-1", "gpu-[1-3]": "gpu-1 gpu-2 gpu-3", "login,n-[0-1]": "login n-0 n-1", "gpu-[09-11,20].x,b": "gpu-09.x gpu-10.x gpu-11.x gpu-20.x b",
		"a[1]b": "a1b", "": "", "a,": "", "a[1": "", "a]": "", "a[2-1]": "", "a[x]": "", "a[1-2][3]": "", "n[0-99999999]": "", "a b": "",
	} {
		got, err := Parse(list)
		if strings.Join(got, " ") != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", list, got, err, want)
		}
	}
}
