//go:build !linux

package criu

import (
	"context"
	"fmt"
)

// Check is ErrUnavailable: criu is a program for Linux.
func (p Program) Check(context.Context) error {
	return fmt.Errorf("%w: it takes Linux", ErrUnavailable)
}

// Dump is ErrUnavailable.
func (p Program) Dump(ctx context.Context, _ int, _ string, _ func() error) error {
	return p.Check(ctx)
}

// Restore is ErrUnavailable.
func (p Program) Restore(ctx context.Context, _ string, _ func(root int) error) error {
	return p.Check(ctx)
}

// Running is false.
func (p Program) Running() bool { return false }

// Tree is ErrUnavailable.
func Tree(int) ([]int, error) { return nil, Program{}.Check(context.Background()) }
