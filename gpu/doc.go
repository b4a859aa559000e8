// Package gpu is the other end of the shim in gpu/shim: it finds the control
// pages of the processes that can be paused, and reads and writes them. What a
// page says is another process's word: nothing here trusts it beyond that process.
package gpu
