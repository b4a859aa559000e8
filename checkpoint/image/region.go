package image

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
	"lukechampine.com/blake3"
)

// RegionBytes is the size of a region; only the last one of a range is smaller.
const RegionBytes = 256 << 10

// What other versions may have chosen.
const (
	leastRegion = 64 << 10
	mostRegion  = 4 << 20
)

func regionSize(n int) bool { return n >= leastRegion && n <= mostRegion && n&(n-1) == 0 }

// ErrDamaged is an object of a store that is not what was written.
var ErrDamaged = errors.New("damaged")

// ErrKey is an image that was saved with another key, or with none.
var ErrKey = errors.New("the image was saved with another key")

// Key encrypts images, and makes the names of regions say nothing about their content.
// A nil Key stores plain images.
type Key struct {
	seal  cipher.AEAD
	names []byte // of keyed BLAKE3
	id    [16]byte
}

// ParseKey reads a key file: 64 hexadecimal digits, with white space around them.
func ParseKey(text []byte) (*Key, error) {
	master, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(master) != 32 {
		return nil, errors.New("expected a key of 64 hexadecimal digits")
	}
	k := &Key{names: make([]byte, 32)}
	secret := make([]byte, 32)
	blake3.DeriveKey(k.names, "muster checkpoint/image v1: names of regions", master)
	blake3.DeriveKey(secret, "muster checkpoint/image v1: content", master)
	blake3.DeriveKey(k.id[:], "muster checkpoint/image v1: which key", master)
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	k.seal, err = cipher.NewGCMWithRandomNonce(block)
	return k, err
}

type name [32]byte

// nameOf is the name of a region, by its content.
func (k *Key) nameOf(region []byte) (n name) {
	var names []byte
	if k != nil {
		names = k.names
	}
	h := blake3.New(32, names)
	h.Write(region)
	h.Sum(n[:0])
	return n
}

func (n name) text() string { return hex.EncodeToString(n[:]) }

func (n name) object() string {
	text := n.text()
	return "regions/" + text[:2] + "/" + text
}

// Forms of a region's bytes.
const (
	asIs       = 0
	compressed = 1
)

var (
	encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
	decoder, _ = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(2*mostRegion), zstd.WithDecodeAllCapLimit(true))
	// manifestDecoder has room for the names of 4 TiB of regions.
	manifestDecoder, _ = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(1<<30))
)

// encode makes the object of a region: its form, its bytes, compressed where that
// shrinks them, and a checksum. With a key they are sealed, and bound to the name.
func (k *Key) encode(n name, region []byte) []byte {
	body := encoder.EncodeAll(region, []byte{compressed})
	if len(body) > len(region) {
		body = append([]byte{asIs}, region...)
	}
	return k.close(n[:], body)
}

// decode is the way back. What it returns has the name, and so many bytes.
func (k *Key) decode(n name, object []byte, size uint64) ([]byte, error) {
	region, err := k.content(n, object, size)
	if err == nil && k.nameOf(region) != n {
		err = ErrDamaged
	}
	return region, err
}

// content is decode for who has the region, and compares all of it: that needs no name.
func (k *Key) content(n name, object []byte, size uint64) ([]byte, error) {
	body, err := k.open(n[:], object)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, ErrDamaged
	}
	region := body[1:]
	switch body[0] {
	case asIs:
	case compressed:
		if region, err = decoder.DecodeAll(region, make([]byte, 0, size)); err != nil {
			return nil, ErrDamaged
		}
	default:
		return nil, ErrDamaged
	}
	if uint64(len(region)) != size {
		return nil, ErrDamaged
	}
	return region, nil
}

// close seals a body, or without a key appends a checksum; both cover what it is bound to.
func (k *Key) close(bound, body []byte) []byte {
	if k != nil {
		return k.seal.Seal(nil, nil, body, bound)
	}
	sum := blake3.Sum256(append(bytes.Clone(body), bound...))
	return append(body, sum[:]...)
}

func (k *Key) open(bound, object []byte) ([]byte, error) {
	if k != nil {
		body, err := k.seal.Open(nil, nil, object, bound)
		if err != nil {
			return nil, ErrDamaged
		}
		return body, nil
	}
	if len(object) < 32 {
		return nil, ErrDamaged
	}
	body, sum := object[:len(object)-32], object[len(object)-32:]
	if is := blake3.Sum256(append(bytes.Clone(body), bound...)); !bytes.Equal(is[:], sum) {
		return nil, ErrDamaged
	}
	return body, nil
}

func isZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

func of(object string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", object, err)
}
