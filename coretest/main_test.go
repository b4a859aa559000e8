package coretest

import (
	"flag"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// TestMain gives the random tests a seed, so that a failure is not a matter of
// luck: -rapid.seed plays others, -rapid.checks more.
func TestMain(m *testing.M) {
	set := func(name, value string) {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			if err := f.Value.Set(value); err != nil {
				panic(err)
			}
		}
	}
	flag.Parse()
	set("rapid.seed", "1")
	set("rapid.checks", "1000")
	set("rapid.nofailfile", "true")
	os.Exit(m.Run())
}

// fixed plays a story with the same draws each time, so many of them, whatever flags say about random ones: for what stories
// must show, such as that a search was hard, and do not show by chance.
func fixed(t *testing.T, stories int, play func(*rapid.T)) {
	t.Helper()
	for i := range stories {
		rapid.Custom(func(rt *rapid.T) bool {
			play(rt)
			return true
		}).Example(i)
	}
}
