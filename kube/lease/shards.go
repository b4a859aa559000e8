package lease

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Several instances may share a cluster. Its pools of nodes are divided into shards, and
// each shard is held by one instance at a time: that instance alone binds pods to the
// shard's nodes, and evicts, reports on and counts the shard's jobs. All instances watch
// the whole cluster, so that each knows what the jobs of others use of a quota, a node or
// a domain.

// Shard is the set of pools on which one instance decides together. A shard with the
// single pool [RestPools] has all pools that no other shard has.
type Shard []string

// RestPools stands for all pools that no other shard names.
const RestPools = "*"

// Name is the pools, sorted and separated by commas.
func (s Shard) Name() string {
	sorted := slices.Clone(s)
	slices.Sort(sorted)
	return strings.Join(sorted, ",")
}

// leaseName is the name of the shard's Lease. The rest has that of a scheduler without
// shards, so that the two never decide at the same time.
func (s Shard) leaseName() string {
	name := s.Name()
	if name == RestPools {
		return Name
	}
	return Name + "-shard-" + objectName(name)
}

// objectName makes the name of an object from any text: the valid characters and a
// digest, so that different texts have different names.
func objectName(text string) string {
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, text)
	return strings.Trim(plain[:min(len(plain), 40)], "-") + "-" + digest(text)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

// ParseShards reads shards as users write them, each as pools separated by commas, and
// sorts them by name. One of them must be the rest. An empty list makes one shard of all
// pools. An error says what is wrong, and what was expected.
func ParseShards(list []string) ([]Shard, error) {
	if len(list) == 0 {
		return []Shard{{RestPools}}, nil
	}
	var shards []Shard
	known := map[string]bool{}
	for _, text := range list {
		var s Shard
		for pool := range strings.SplitSeq(text, ",") {
			pool = strings.TrimSpace(pool)
			switch {
			case pool == "":
				return nil, fmt.Errorf("expected pools separated by commas, such as H800,H20; found %q", text)
			case pool == RestPools && strings.TrimSpace(text) != RestPools:
				return nil, fmt.Errorf("expected %s to be a shard of its own; found %q", RestPools, text)
			case known[pool]:
				return nil, fmt.Errorf("expected each pool in one shard; found %s in two places", pool)
			}
			known[pool] = true
			s = append(s, pool)
		}
		shards = append(shards, s)
	}
	if !known[RestPools] {
		return nil, fmt.Errorf("expected a shard %s for the pools that no other shard names; found none", RestPools)
	}
	slices.SortFunc(shards, func(a, b Shard) int { return strings.Compare(a.Name(), b.Name()) })
	return shards, nil
}

// layout identifies a division into shards. Instances with other shards have another
// layout.
func layout(shards []Shard) string {
	names := make([]string, len(shards))
	for i, s := range shards {
		names[i] = s.Name()
	}
	return digest(strings.Join(names, " "))
}

// RestOf returns the index of the shard with the pools that no other shard has. Its
// holder does what concerns the cluster as a whole.
func RestOf(shards []Shard) int {
	return slices.IndexFunc(shards, func(s Shard) bool { return s[0] == RestPools })
}

// allot returns which member is to hold each shard, given who holds it now; "" is no
// member. Each gets as many, or one more, and keeps what it holds as far as that allows:
//
//  1. The members are sorted, those that hold most first: they may keep one more.
//  2. Each keeps shards that it holds, up to its number.
//  3. The shards that are left go to the members that lack most.
//
// It is "" for all without members.
func allot(holders, members []string) []string {
	holds, quota := map[string]int{}, map[string]int{}
	for _, h := range holders {
		holds[h]++
	}
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b string) int { return cmp.Or(holds[b]-holds[a], strings.Compare(a, b)) })
	for i := range holders {
		if len(members) > 0 {
			quota[members[i%len(members)]]++
		}
	}
	out := make([]string, len(holders))
	for i, h := range holders {
		if quota[h] > 0 {
			out[i] = h
			quota[h]--
		}
	}
	for i := range out {
		if out[i] != "" {
			continue
		}
		for _, m := range members {
			if quota[m] > quota[out[i]] {
				out[i] = m
			}
		}
		quota[out[i]]--
	}
	return out
}
