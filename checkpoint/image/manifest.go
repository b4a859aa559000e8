package image

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"lukechampine.com/blake3"
)

// formatVersion is the version of manifests and regions.
const formatVersion = 1

// Manifest says what an image has. It was verified before it is handed out.
type Manifest struct {
	Version     int       `json:"version"`
	Created     time.Time `json:"created"`
	Name        string    `json:"name,omitempty"`
	Host        string    `json:"host,omitempty"`
	RegionBytes int       `json:"regionBytes"`
	Ranks       []Rank    `json:"ranks"`
	Files       []File    `json:"files,omitempty"` // of the processes on the host, if they are in the image
}

// File is a file of the processes on the host.
type File struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Sum   string `json:"sum"` // BLAKE3, in hexadecimal
	// Regions has the name of each region, 32 bytes each, from the start of the file; all 0: its bytes are 0.
	Regions []byte `json:"regions"`
}

// Whole says whether the image has the processes themselves.
func (m *Manifest) Whole() bool { return len(m.Files) > 0 }

// Bytes is the size of all files.
func (m *Manifest) Bytes() int64 {
	n := int64(0)
	for i := range m.Files {
		n += m.Files[i].Bytes
	}
	for i := range m.Ranks {
		n += m.Ranks[i].FileBytes
	}
	return n
}

// Process names one pause of one process (gpu.Identity): an image is good for no other one.
type Process struct {
	PID       int    `json:"pid"`          // in its own PID namespace
	Namespace uint64 `json:"pidNamespace"` // inode
	Started   uint64 `json:"startTicks"`
	Saves     uint32 `json:"saves"`
}

// Rank is one process of an image.
type Rank struct {
	Process
	FileBytes int64   `json:"fileBytes"` // of PID.data
	Sum       string  `json:"sum"`       // BLAKE3 of PID.data, in hexadecimal
	Ranges    []Range `json:"ranges"`    // of GPU memory, in the order of PID.data
	// Regions has the name of each region, 32 bytes each, in the order of cuts; all 0: its bytes are 0.
	Regions []byte `json:"regions"`
}

// Range is memory in use at an address of the GPU.
type Range struct {
	Address uint64 `json:"address"`
	Bytes   uint64 `json:"bytes"`
	Offset  uint64 `json:"offset"` // in PID.data
	Sum     uint64 `json:"sum"`    // the library's
}

// magic begins a manifest; the last byte is the version.
var magic = []byte{'M', 'U', 'S', 'T', 'I', 'M', 'G', formatVersion}

// encode makes the object of a manifest: magic, the ID of the key or 0, and the closed JSON.
// An image's ID is the first 8 bytes of the object's hash, in hexadecimal.
func (m *Manifest) encode(k *Key) (id string, object []byte, err error) {
	text, err := json.Marshal(m)
	if err != nil {
		return "", nil, err
	}
	head := bytes.Clone(magic)
	which := [16]byte{}
	if k != nil {
		which = k.id
	}
	head = append(head, which[:]...)
	object = append(bytes.Clone(head), k.close(head, encoder.EncodeAll(text, nil))...)
	return idOf(object), object, nil
}

func idOf(object []byte) string {
	sum := blake3.Sum256(object)
	return hex.EncodeToString(sum[:8])
}

// decodeManifest verifies and reads a manifest. Its hash is compared first: what
// differs then was written so, and is another key's. The label is the name that it goes by in the store.
func decodeManifest(id, label string, object []byte, k *Key) (*Manifest, error) {
	const headBytes = 24
	if len(object) < headBytes || !bytes.Equal(object[:7], magic[:7]) || idOf(object) != id {
		return nil, ErrDamaged
	}
	if object[7] != formatVersion {
		return nil, fmt.Errorf("expected format version %d; found %d", formatVersion, object[7])
	}
	which := [16]byte{}
	if k != nil {
		which = k.id
	}
	if !bytes.Equal(object[8:headBytes], which[:]) {
		return nil, ErrKey
	}
	body, err := k.open(object[:headBytes], object[headBytes:])
	if err != nil {
		return nil, err
	}
	text, err := manifestDecoder.DecodeAll(body, nil)
	if err != nil {
		return nil, ErrDamaged
	}
	m, err := parse(text)
	if err == nil && m.Name != label {
		return nil, ErrDamaged
	}
	return m, err
}

// parse reads the text of a manifest, which may be a forger's if there is no key.
func parse(text []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, ErrDamaged
	}
	if m.Version != formatVersion {
		return nil, fmt.Errorf("expected version %d; found %d", formatVersion, m.Version)
	}
	if !regionSize(m.RegionBytes) {
		return nil, fmt.Errorf("expected regions of a power of two from %d to %d bytes; found %d", leastRegion, mostRegion, m.RegionBytes)
	}
	for i := range m.Ranks {
		r := &m.Ranks[i]
		n, err := layout(r.Ranges, uint64(r.FileBytes), uint64(m.RegionBytes))
		if err != nil || uint64(len(r.Regions)) != n*uint64(len(name{})) {
			return nil, ErrDamaged
		}
	}
	for i := range m.Files {
		f := &m.Files[i]
		if f.Bytes < 0 || f.Bytes > mostBytes || !nameForm.MatchString(f.Name) || uint64(len(f.Regions)) != regionsOf(f.Bytes, m.RegionBytes)*uint64(len(name{})) {
			return nil, ErrDamaged
		}
	}
	return m, nil
}

// SameMemory says whether a whole file with these ranges has the memory of the rank, by the library's checksums.
func (r *Rank) SameMemory(found []Range, size int64) bool {
	return size == r.FileBytes && slices.Equal(found, r.Ranges)
}

// names yields the names of all regions, as often as they are named, and that of no region where the bytes are 0.
func (m *Manifest) names() iter.Seq[name] {
	return func(yield func(name) bool) {
		all := make([][]byte, 0, len(m.Ranks)+len(m.Files))
		for i := range m.Ranks {
			all = append(all, m.Ranks[i].Regions)
		}
		for i := range m.Files {
			all = append(all, m.Files[i].Regions)
		}
		for _, regions := range all {
			for ; len(regions) > 0; regions = regions[len(name{}):] {
				if !yield(name(regions)) {
					return
				}
			}
		}
	}
}
