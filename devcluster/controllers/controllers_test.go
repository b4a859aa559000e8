package controllers

import (
	"strings"
	"testing"
)

func TestSelect(t *testing.T) {
	every := strings.Join(Names(), " ")
	for _, c := range []struct{ list, want string }{
		{"*", every},
		{"", ""},
		{"job-controller", "job-controller"},
		{"*,-job-controller", strings.TrimPrefix(every, "job-controller ")},
		{"-job-controller,*", strings.TrimPrefix(every, "job-controller ")},
		{"namespace-controller,job-controller", "job-controller namespace-controller"},
	} {
		got, err := Select(strings.FieldsFunc(c.list, func(r rune) bool { return r == ',' }))
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%q selects %q (%v); want %q", c.list, got, err, c.want)
		}
	}
	for _, list := range []string{"nonsense", "-nonsense", "*,job"} {
		if got, err := Select(strings.Split(list, ",")); err == nil {
			t.Errorf("%q selects %q; want an error", list, got)
		}
	}
}
