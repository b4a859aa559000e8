// Package fit lets maps give memory back: a map keeps the room that it had at its peak, however few entries it has left.
package fit

import "maps"

// A map is copied when it is below a part of its peak, unless that was small.
const (
	least = 1024
	part  = 8
)

// Map returns the map, or a copy in its place if it has far fewer entries than at its peak, which it notes in most. The copies cost
// less than the removals before them, and so it may be called after each removal.
func Map[K comparable, V any](m map[K]V, most *int) map[K]V {
	*most = max(*most, len(m))
	if *most < least || len(m) > *most/part {
		return m
	}
	small := make(map[K]V, len(m))
	maps.Copy(small, m)
	*most = len(m)
	return small
}
