package keys

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// KueueSlices is Kueue's key of slices on several levels.
const KueueSlices = "kueue.x-k8s.io/podset-slice-required-topology-constraints"

// ReadKueueSlices reads its value, which lists levels from the widest to the narrowest, as lists that name the narrowest first:
// the sizes of slices, and the levels of which one domain holds a slice.
func ReadKueueSlices(value string) (sizes, levels string, err error) {
	var list []struct {
		Topology string          `json:"topology"`
		Size     json.RawMessage `json:"size"`
		Sizes    []int           `json:"sizes"`
	}
	wrong := errors.New(`expected levels from the widest to the narrowest, such as [{"topology": "block", "size": 16}, {"topology": "rack", "size": 4}]`)
	if err := json.Unmarshal([]byte(value), &list); err != nil || len(list) == 0 {
		return "", "", wrong
	}
	var of, on []string
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Sizes != nil {
			return "", "", fmt.Errorf("sizes %v are not supported: expected one size for all slices of %s", list[i].Sizes, list[i].Topology)
		}
		if list[i].Topology == "" || strings.Contains(list[i].Topology, ",") {
			return "", "", wrong
		}
		of, on = append(of, strings.Trim(string(list[i].Size), `"`)), append(on, list[i].Topology)
	}
	return strings.Join(of, ","), strings.Join(on, ","), nil
}
