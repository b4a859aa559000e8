package main

import (
	"slices"
	"strings"
	"testing"
)

// What `go test -json` writes of a package that passes, one that fails and one of which all is skipped.
const stream = `{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestPage"}
{"Action":"output","Package":"a","Test":"TestPage","Output":"=== RUN   TestPage\n"}
{"Action":"output","Package":"a","Test":"TestPage","Output":"    page_test.go:12: needs Chromium\n"}
{"Action":"output","Package":"a","Test":"TestPage","Output":"--- SKIP: TestPage (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"TestPage"}
{"Action":"output","Package":"a","Test":"TestText","Output":"noise\n"}
{"Action":"pass","Package":"a","Test":"TestText/x"}
{"Action":"pass","Package":"a","Test":"TestText"}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"}
{"Action":"pass","Package":"a"}
make: a line that is no event
{"Action":"output","Package":"b","Test":"TestSum","Output":"    sum_test.go:7: 3, want 4\n"}
{"Action":"fail","Package":"b","Test":"TestSum"}
{"Action":"output","Package":"b","Output":"FAIL\tb\t0.1s\n"}
{"Action":"fail","Package":"b"}
{"Action":"output","Package":"c","Test":"TestShim","Output":"    shim_test.go:3: no C compiler\n"}
{"Action":"skip","Package":"c","Test":"TestShim"}
{"Action":"output","Package":"c","Test":"TestCall","Output":"    call_test.go:3: no C compiler\n"}
{"Action":"skip","Package":"c","Test":"TestCall"}
{"Action":"output","Package":"c","Output":"ok  \tc\t0.1s\n"}
{"Action":"pass","Package":"c"}
{"Action":"output","Package":"d","Output":"?   \td\t[no test files]\n"}
{"Action":"skip","Package":"d"}
`

func TestReport(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	if want := "ok  \ta\t0.1s\nmake: a line that is no event\n    sum_test.go:7: 3, want 4\nFAIL\tb\t0.1s\nok  \tc\t0.1s\n?   \td\t[no test files]\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if got, want := r.skipped(), []string{"skipped: TestPage (a): needs Chromium", "skipped: 2 tests, such as TestShim (c): no C compiler"}; !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("skipped %q, want %q", got, want)
	}
	if got, want := r.hidden(), []string{"nothing of c is tested: all 2 tests were skipped"}; !slices.Equal(got, want) {
		t.Errorf("hidden %q, want %q", got, want)
	}
	if !r.failed {
		t.Error("a test failed, and the report says that none did")
	}
}
