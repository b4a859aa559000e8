package image

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"lukechampine.com/blake3"
)

// formatVersion is the version of manifests and regions.
const formatVersion = 1

// Manifest says what an image has. It was verified before it is handed out.
type Manifest struct {
	Version     int       `json:"version"`
	Created     time.Time `json:"created"`
	Job         string    `json:"job,omitempty"`
	Host        string    `json:"host,omitempty"`
	RegionBytes int       `json:"regionBytes"`
	Ranks       []Rank    `json:"ranks"`
}

// Rank is one process of an image.
type Rank struct {
	PID       int     `json:"pid"`
	FileBytes int64   `json:"fileBytes"` // of PID.data
	Sum       string  `json:"sum"`       // BLAKE3 of PID.data, in hexadecimal
	Ranges    []Range `json:"ranges"`    // of GPU memory, in the order of PID.data
	// Regions has the name of each region, 32 bytes each, in the order of Cuts; all 0: its bytes are 0.
	Regions []byte `json:"regions"`
}

// Range is memory in use at an address of the GPU.
type Range struct {
	Address uint64 `json:"address"`
	Bytes   uint64 `json:"bytes"`
	Offset  uint64 `json:"offset"` // in PID.data
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
// differs then was written so, and is another key's.
func decodeManifest(id string, object []byte, k *Key) (*Manifest, error) {
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
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, ErrDamaged
	}
	if m.Version != formatVersion || m.RegionBytes != RegionBytes {
		return nil, fmt.Errorf("expected version %d with regions of %d bytes; found %d, %d", formatVersion, RegionBytes, m.Version, m.RegionBytes)
	}
	for i := range m.Ranks {
		r := &m.Ranks[i]
		pieces, err := cuts(r.Ranges, uint64(r.FileBytes))
		if err != nil || len(r.Regions) != len(pieces)*len(name{}) {
			return nil, ErrDamaged
		}
	}
	return m, nil
}
