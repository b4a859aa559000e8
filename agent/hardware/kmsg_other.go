//go:build !unix

package hardware

import "errors"

func openLog(string) (int, error) { return 0, errors.ErrUnsupported }

func readLog(int, []byte) (int, error) { return 0, errors.ErrUnsupported }

func closeLog(int) {}
