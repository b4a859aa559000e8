// Package rules tests the tree of the source itself: which package imports which, and that
// the engine is pure.
package rules
