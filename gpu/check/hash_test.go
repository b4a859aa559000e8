//go:build linux

package check

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"slices"
)

// hashes is A8: a kernel hashes the regions of two replicas, of which one in a hundred differs by a bit or by the order of
// its parts; by the hashes, what is stored once is found.
func hashes(r *report, l *lab, s sizes, real bool) {
	text, err := os.ReadFile("testdata/hash.ptx")
	l.must(err)
	k := l.kernel(0, string(text), "hash")
	random := rand.NewChaCha8([32]byte{8})
	replica := make([]byte, s.regions*s.region)
	random.Read(replica)
	copy(replica[s.region:2*s.region], replica) // two are equal within a replica
	base, out := l.alloc(2*len(replica)), l.alloc(2*s.regions*16)
	truth := map[[32]byte]bool{}
	seen := func() {
		for part := range slices.Chunk(replica, s.region) {
			truth[sha256.Sum256(part)] = true
		}
	}
	l.put(base, replica)
	seen()
	for i := range s.regions / 100 {
		part := replica[(2+i*97)*s.region:][:s.region]
		at := int(random.Uint64()%uint64(s.region/32)) * 16
		if i%2 == 0 {
			part[at] ^= 0x80
		} else {
			for at = at % 4096 / 32 * 32; at < s.region; at += 4096 { // what one thread hashes, and the next one
				for b := at; b < at+16; b++ {
					part[b], part[b+16] = part[b+16], part[b]
				}
			}
		}
	}
	l.put(base+uint64(len(replica)), replica)
	seen()
	x := run{grid: [3]int{2 * s.regions, 1, 1}, block: [3]int{256, 1, 1}, args: []any{base, uint64(s.region), out}}
	us := l.micros(0, s.times, func() { l.launch(0, k, x) })
	found := map[[2]uint64]bool{}
	for h := range slices.Chunk(l.get(out, 2*s.regions*16), 16) {
		found[[2]uint64{binary.LittleEndian.Uint64(h), binary.LittleEndian.Uint64(h[8:])}] = true
	}
	off := 100 * math.Abs(float64(len(found)-len(truth))) / float64(len(truth))
	r.judge("A8", "what is stored once, by hashes of the GPU, off by", off, "%", "at most 0.1", off <= 0.1)
	rate := float64(2*len(replica)) / us / 1e6
	if real {
		r.judge("A8", "hashed on the GPU", rate, "TB/s", ">= 1", rate >= 1)
	} else {
		r.record("A8", "hashed on the GPU", rate, "TB/s")
	}
}
