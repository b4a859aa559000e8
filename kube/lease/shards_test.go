package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestParseShards(t *testing.T) {
	for _, c := range []struct {
		list []string
		want string // names, or a part of the error
	}{
		{nil, "*"},
		{[]string{"*"}, "*"},
		{[]string{"H800, H20", "A100", "*"}, "* A100 H20,H800"},
		{[]string{"*", "A100", "H20,H800"}, "* A100 H20,H800"},
		{[]string{"H800"}, "expected a shard *"},
		{[]string{"H800,*"}, "a shard of its own"},
		{[]string{"H800", "*", "A100,H800"}, "found H800 in two places"},
		{[]string{"*", "*"}, "found * in two places"},
		{[]string{"H800,", "*"}, "expected pools"},
		{[]string{"", "*"}, "expected pools"},
	} {
		shards, err := ParseShards(c.list)
		if err != nil {
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: %v; want %q", c.list, err, c.want)
			}
			continue
		}
		var names []string
		for _, s := range shards {
			names = append(names, s.Name())
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%q: shards %q; want %q", c.list, got, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	seen := map[string]string{}
	for _, pools := range []string{"*", "rest", "H800", "h800", "H800,H20", "A_B", "a-b", "-", strings.Repeat("x", 300), strings.Repeat("x", 301), "深"} {
		name := Shard(strings.Split(pools, ",")).leaseName()
		if wrong := validation.IsDNS1123Subdomain(name); wrong != nil {
			t.Errorf("%s: %s: %v", pools, name, wrong)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%s and %s have the same name, %s", pools, other, name)
		}
		seen[name] = pools
		if strings.HasPrefix(name, memberPrefix) {
			t.Errorf("%s could be an instance's", name)
		}
	}
	if a, b := (Shard{"A", "B"}).leaseName(), (Shard{"B", "A"}).leaseName(); a != b {
		t.Errorf("%s and %s are the same shard", a, b)
	}
	if Shard([]string{"*"}).leaseName() != Name {
		t.Error("a scheduler without shards could decide beside one with them")
	}
	divided := func(list ...string) string {
		shards, err := ParseShards(list)
		if err != nil {
			t.Fatal(err)
		}
		return layout(shards)
	}
	if divided("A,B", "*") != divided("*", "B, A") || divided("A,B", "*") == divided("A", "B", "*") || divided() == divided("A", "*") {
		t.Error("layouts are told apart by their pools, and by nothing else")
	}
}

func TestAllot(t *testing.T) {
	for _, c := range []struct{ holders, members, want string }{
		{"- - -", "", "- - -"},
		{"- - -", "a", "a a a"},
		{"- - -", "a b", "a a b"},
		{"a a a", "a b", "a a b"},
		{"a a -", "a b", "a a b"},
		{"a b a", "a c", "a c a"},
		{"a a", "a b c", "a b"},
		{"a - b", "b c a", "a c b"},
		{"- b b b", "a b", "a b b a"},
		{"x x", "a b", "a b"}, // x is no more
	} {
		fields := func(s string) []string {
			list := strings.Fields(s)
			for i := range list {
				list[i] = strings.ReplaceAll(list[i], "-", "")
			}
			return list
		}
		got := allot(fields(c.holders), fields(c.members))
		if want := fields(c.want); !slices.Equal(got, want) {
			t.Errorf("%s among %s: %q; want %q", c.holders, c.members, got, want)
		}
	}
}

// However instances come and go, all have as many shards or one more, nobody
// whose share stays as large loses one, the order in which instances are seen does
// not matter, and what was allotted stays so.
func TestAllotRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		holders := make([]string, 1+rng.IntN(8))
		var members []string
		for i := range 1 + rng.IntN(6) {
			members = append(members, fmt.Sprint("m", i))
		}
		for i := range holders {
			if k := rng.IntN(len(members) + 2); k < len(members) {
				holders[i] = members[k]
			} else if k == len(members) {
				holders[i] = "dead"
			}
		}
		got := allot(holders, members)
		count, held, kept := map[string]int{}, map[string]int{}, map[string]int{}
		for i, m := range got {
			count[m]++
			held[holders[i]]++
			if holders[i] == m {
				kept[m]++
			}
		}
		for _, m := range members {
			if n := len(holders) / len(members); count[m] < n || count[m] > n+1 {
				t.Fatalf("%q among %d: %q: %s has %d", holders, len(members), got, m, count[m])
			}
			if kept[m] != min(held[m], count[m]) {
				t.Fatalf("%q among %d: %q: %s keeps %d of %d", holders, len(members), got, m, kept[m], held[m])
			}
		}
		if len(count) > len(members) {
			t.Fatalf("%q among %q: %q", holders, members, got)
		}
		rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		if again := allot(holders, members); !slices.Equal(got, again) {
			t.Fatalf("%q: %q, then %q", holders, got, again)
		}
		if again := allot(got, members); !slices.Equal(got, again) {
			t.Fatalf("%q does not stay: %q", got, again)
		}
	}
}
