// Package rules tests the tree of the source itself: who imports whom, and that
// the engine is pure.
package rules
