package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
)

// The layout of PID.data: gpu/shim/page.h.
const (
	dataMagic  = 0x31415441445547
	headBytes  = 24
	entryBytes = 32
	mostRanges = 1 << 24
	mostBytes  = 1 << 42 // of a file: 4 TiB, more than the GPUs of one node have
	pageBytes  = 4096
)

var errNotData = errors.New("expected memory that muster pause saved; found something else, or a part of it")

// ranges reads the head of a file of size bytes.
func ranges(file io.ReaderAt, size int64) ([]Range, error) {
	head := make([]byte, headBytes)
	if _, err := file.ReadAt(head, 0); err != nil {
		return nil, errNotData
	}
	n := binary.NativeEndian.Uint64(head[8:])
	if binary.NativeEndian.Uint64(head) != dataMagic || n > mostRanges || n > uint64(size-headBytes)/entryBytes ||
		binary.NativeEndian.Uint64(head[16:]) != uint64(size) {
		return nil, errNotData
	}
	entries := make([]byte, n*entryBytes)
	if _, err := file.ReadAt(entries, headBytes); err != nil && (n > 0 || err != io.EOF) {
		return nil, errNotData
	}
	all := make([]Range, 0, n)
	for e := entries; len(e) > 0; e = e[entryBytes:] {
		word := func(at int) uint64 { return binary.NativeEndian.Uint64(e[at:]) }
		all = append(all, Range{Address: word(0), Bytes: word(8), Offset: word(16), Sum: word(24)})
	}
	return all, nil
}

// layout checks where the ranges of a file lie, and counts the regions of a size into
// which it is cut. It allocates nothing: the ranges may be a forger's.
func layout(all []Range, size, region uint64) (regions uint64, err error) {
	at := headBytes + entryBytes*uint64(len(all))
	if at > size || size > mostBytes {
		return 0, errNotData
	}
	regions = (at + region - 1) / region
	for i, r := range all {
		if r.Offset < at || r.Offset-at >= pageBytes || r.Offset > size || r.Bytes > size-r.Offset {
			return 0, fmt.Errorf("range %d: %w", i, errNotData)
		}
		regions += (r.Bytes + region - 1) / region
		at = r.Offset + r.Bytes
	}
	if at != size {
		return 0, errNotData
	}
	return regions, nil
}

// cut is a part of a file.
type cut struct {
	offset, bytes uint64
	in            int // the range that it is of; -1: the head
}

// cuts divides a file into regions: its head first, then each range from its own
// start, so that equal memory at other places of another rank has equal regions.
// Between them are fewer than 4096 bytes, which are 0.
func cuts(all []Range, region uint64) iter.Seq2[int, cut] {
	return func(yield func(int, cut) bool) {
		n := 0
		add := func(offset, bytes uint64, in int) bool {
			for bytes > 0 {
				c := cut{offset, min(bytes, region), in}
				if !yield(n, c) {
					return false
				}
				offset, bytes, n = offset+c.bytes, bytes-c.bytes, n+1
			}
			return true
		}
		if !add(0, headBytes+entryBytes*uint64(len(all)), -1) {
			return
		}
		for i, r := range all {
			if !add(r.Offset, r.Bytes, i) {
				return
			}
		}
	}
}

// regionsOf is the number of regions of a plain file.
func regionsOf(size int64, region int) uint64 {
	return (uint64(size) + uint64(region) - 1) / uint64(region)
}

// plainCuts divides a file of any content into regions from its start.
func plainCuts(size int64, region int) iter.Seq2[int, cut] {
	return func(yield func(int, cut) bool) {
		for i, at := 0, uint64(0); at < uint64(size); i, at = i+1, at+uint64(region) {
			if !yield(i, cut{at, min(uint64(size)-at, uint64(region)), -1}) {
				return
			}
		}
	}
}

// rangeSum is the checksum of a range that the library computes when it copies it: sum in
// gpu/shim/shim.c, in pieces of staging_size bytes. What it is given by Write has a
// multiple of 32 bytes, but for the last part.
type rangeSum struct {
	sum, left, piece uint64 // left: bytes after this piece; piece: bytes of it that are missing
	lane             [4]uint64
}

const stagingBytes = 8 << 20

func newRangeSum(bytes uint64) *rangeSum { return &rangeSum{sum: 0x9e3779b97f4a7c15, left: bytes} }

func (s *rangeSum) Write(b []byte) {
	const odd = 0xff51afd7ed558ccd
	for len(b) > 0 {
		if s.piece == 0 {
			s.piece = min(s.left, stagingBytes)
			s.left -= s.piece
			s.lane = [4]uint64{s.sum, s.sum ^ 1, s.sum ^ 2, s.sum ^ 3}
			s.sum ^= s.piece
		}
		part := b[:min(uint64(len(b)), s.piece)]
		b = b[len(part):]
		s.piece -= uint64(len(part))
		l0, l1, l2, l3 := s.lane[0], s.lane[1], s.lane[2], s.lane[3]
		for ; len(part) >= 32; part = part[32:] {
			l0 = (l0 ^ binary.LittleEndian.Uint64(part)) * odd
			l1 = (l1 ^ binary.LittleEndian.Uint64(part[8:])) * odd
			l2 = (l2 ^ binary.LittleEndian.Uint64(part[16:])) * odd
			l3 = (l3 ^ binary.LittleEndian.Uint64(part[24:])) * odd
			l0, l1, l2, l3 = l0^l0>>32, l1^l1>>32, l2^l2>>32, l3^l3>>32
		}
		for _, c := range part {
			l0 = (l0 ^ uint64(c)) * odd
		}
		s.lane = [4]uint64{l0, l1, l2, l3}
		if s.piece > 0 {
			continue
		}
		for _, l := range s.lane {
			s.sum = (s.sum ^ l) * 0xc4ceb9fe1a85ec53
			s.sum ^= s.sum >> 29
		}
	}
}

// Whole says whether a file of size bytes is memory as the library saved it, by its own
// checksums, and which ranges it has.
func Whole(file io.ReaderAt, size int64) ([]Range, error) {
	all, err := ranges(file, size)
	if err != nil {
		return nil, err
	}
	if _, err := layout(all, uint64(size), RegionBytes); err != nil {
		return nil, err
	}
	buffer := make([]byte, RegionBytes)
	for i, r := range all {
		sum := newRangeSum(r.Bytes)
		for at := uint64(0); at < r.Bytes; at += RegionBytes {
			part := buffer[:min(r.Bytes-at, RegionBytes)]
			if _, err := file.ReadAt(part, int64(r.Offset+at)); err != nil {
				return nil, errNotData
			}
			sum.Write(part)
		}
		if sum.sum != r.Sum {
			return nil, fmt.Errorf("range %d: its checksum differs: %w", i, errNotData)
		}
	}
	return all, nil
}
