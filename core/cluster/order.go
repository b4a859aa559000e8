package cluster

// LastIf compares two things by a property: those of which it does not hold come first.
func LastIf(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
