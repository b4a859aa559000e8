package image

import (
	"bytes"
	"fmt"
	"testing"
)

// BenchmarkImages is saving, restoring and verifying 64 MiB by the size of regions: random bytes, zeros, and
// random bytes of which the store has all. docs/images.md has the figures.
func BenchmarkImages(b *testing.B) {
	const size = 64 << 20
	random := noise(1, size)
	for _, region := range []int{64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20} {
		for _, kind := range []string{"random", "zero", "duplicate"} {
			content := random
			if kind == "zero" {
				content = make([]byte, size)
			}
			f := data(content)
			im := &Images{Store: Dir(b.TempDir()), Key: speedKey(b), regionBytes: region}
			source := func() []Source { return []Source{{File: bytes.NewReader(f), Size: int64(len(f))}} }
			s, err := im.Save(ctx, "", source())
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("save/%s/region=%dKiB", kind, region>>10), func(b *testing.B) {
				b.SetBytes(size)
				for b.Loop() {
					fresh := *im
					if kind == "random" {
						b.StopTimer()
						fresh.Store = Dir(b.TempDir())
						b.StartTimer()
					}
					if _, err := fresh.Save(ctx, "", source()); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(fmt.Sprintf("verify/%s/region=%dKiB", kind, region>>10), func(b *testing.B) {
				b.SetBytes(size)
				for b.Loop() {
					if err := im.Verify(ctx, s.Entry); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(fmt.Sprintf("restore/%s/region=%dKiB", kind, region>>10), func(b *testing.B) {
				b.SetBytes(size)
				for b.Loop() {
					if err := restore(im, s.Entry, 0, b.TempDir()+"/1.data"); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func speedKey(b *testing.B) *Key {
	b.Helper()
	k, err := ParseKey(bytes.Repeat([]byte("ab"), 32))
	if err != nil {
		b.Fatal(err)
	}
	return k
}
