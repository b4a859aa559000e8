//go:build !linux

package gpu

import (
	"errors"
	"fmt"
	"os"
)

const noFollow = 0

func mapFile(*os.File) ([]byte, error) {
	return nil, errors.New("GPU work can be paused on Linux only")
}
func unmapFile([]byte)             {}
func hasMapped(int, *os.File) bool { return false }
func lockFile(*os.File) error      { return nil }
func wake(*uint32)                 {}
func errnoText(n uint32) string    { return fmt.Sprintf("error %d", n) }

func ownerOf(*os.File) (user, group int, err error) { return 0, 0, errors.ErrUnsupported }
