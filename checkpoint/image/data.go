package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The layout of PID.data: gpu/shim/page.h.
const (
	dataMagic  = 0x31415441445547
	headBytes  = 24
	entryBytes = 32
	mostRanges = 1 << 24
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
	if binary.NativeEndian.Uint64(head) != dataMagic || n > mostRanges || binary.NativeEndian.Uint64(head[16:]) != uint64(size) {
		return nil, errNotData
	}
	entries := make([]byte, n*entryBytes)
	if _, err := file.ReadAt(entries, headBytes); err != nil && (n > 0 || err != io.EOF) {
		return nil, errNotData
	}
	var all []Range
	for e := entries; len(e) > 0; e = e[entryBytes:] {
		all = append(all, Range{binary.NativeEndian.Uint64(e), binary.NativeEndian.Uint64(e[8:]), binary.NativeEndian.Uint64(e[16:])})
	}
	return all, nil
}

// cut is a part of a file.
type cut struct{ offset, bytes uint64 }

// cuts divides a file into regions: its head first, then each range from its own
// start, so that equal memory at other places of another rank has equal regions.
// Between them are fewer than 4096 bytes, which are 0.
func cuts(all []Range, size uint64) ([]cut, error) {
	var found []cut
	add := func(offset, bytes uint64) {
		for bytes > 0 {
			n := min(bytes, RegionBytes)
			found = append(found, cut{offset, n})
			offset, bytes = offset+n, bytes-n
		}
	}
	at := headBytes + entryBytes*uint64(len(all))
	if at > size {
		return nil, errNotData
	}
	add(0, at)
	for i, r := range all {
		if r.Offset < at || r.Offset-at >= pageBytes || r.Offset > size || r.Bytes > size-r.Offset {
			return nil, fmt.Errorf("range %d: %w", i, errNotData)
		}
		add(r.Offset, r.Bytes)
		at = r.Offset + r.Bytes
	}
	if at != size {
		return nil, errNotData
	}
	return found, nil
}
