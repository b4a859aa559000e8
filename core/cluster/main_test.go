package cluster

import (
	"flag"
	"os"
	"testing"
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
