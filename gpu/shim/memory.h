// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// Which GPU addresses the shim has given out. Nothing here calls the driver or
// locks: the caller holds the one lock.
#ifndef MUSTER_MEMORY_H
#define MUSTER_MEMORY_H

#include "driver.h"
#include "page.h"

// A range is an allocation of the program's, or a part of one that is in use.
struct range {
	uint64_t address, size;
	struct range *parts; // in use, by address, if a framework says so
	size_t part_count, part_capacity;
	int pool; // the framework has named parts: only they are saved
};

// A block is physical memory at one address: a large allocation of its own, or
// a slab of small ones. Its ranges are by address.
struct block {
	uint64_t address, size;
	CUdevice device;
	CUcontext context; // in which it was made
	CUmemGenericAllocationHandle handle;
	int mapped, slab;
	struct range *ranges;
	size_t count, capacity;
};

// An arena is the reserved addresses of one device. Its blocks are by address.
struct arena {
	uint64_t address, size, granularity;
	CUdevice device;
	struct block **blocks;
	size_t count, capacity;
};

// memory_arena returns the device's arena, with size 0 until it is reserved; NULL beyond 64 devices.
struct arena *memory_arena(CUdevice device);

// memory_place gives a range of the size within a block that has room; 0: none
// has, and memory_block makes one for it, which memory_drop forgets again.
int memory_place(struct arena *a, size_t size, uint64_t *address);
struct block *memory_block(struct arena *a, size_t size);
void memory_drop(struct arena *a, struct block *b);

// memory_find returns the block that holds the address, or NULL.
struct block *memory_find(uint64_t address, struct arena **a);

// memory_free frees the range that begins at the address; 0: there is none.
int memory_free(struct block *b, uint64_t address);

// memory_range returns the allocation that holds the address; 0: none does.
int memory_range(uint64_t address, uint64_t *start, uint64_t *size);

// memory_use and memory_unuse name parts in use; -1: no allocation holds them.
int memory_use(uint64_t address, uint64_t size);
int memory_unuse(uint64_t address);

// memory_active lists what is in use, by device and address, and returns how
// many there are; with NULL it only counts.
uint64_t memory_active(struct data_entry *out);

// memory_next returns the block after the given one, in the same order.
struct block *memory_next(const struct block *after);

#endif
