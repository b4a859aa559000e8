// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum { devices = 64, alignment = 512 };

static struct arena arenas[devices];

struct arena *memory_arena(CUdevice device) {
	if (device < 0 || device >= devices)
		return NULL;
	arenas[device].device = device;
	return &arenas[device];
}

static uint64_t up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

// room makes space for one more element at index at of an array; 0: no memory.
static int room(void **array, size_t *count, size_t *capacity, size_t element, size_t at) {
	if (*count == *capacity) {
		size_t more = *capacity ? *capacity * 2 : 8;
		void *grown = realloc(*array, more * element);
		if (!grown)
			return 0;
		*array = grown, *capacity = more;
	}
	char *base = *array;
	memmove(base + (at + 1) * element, base + at * element, (*count - at) * element);
	memset(base + at * element, 0, element);
	(*count)++;
	return 1;
}

// after returns the index of the first range that begins behind the address.
static size_t after(const struct range *r, size_t count, uint64_t address) {
	size_t low = 0, high = count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (r[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static size_t block_after(const struct arena *a, uint64_t address) {
	size_t low = 0, high = a->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (a->blocks[middle]->address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int is_small(const struct arena *a, size_t size) { return size <= a->granularity / 2; }

int memory_place(struct arena *a, size_t size, uint64_t *address) {
	int small = is_small(a, size);
	uint64_t need = up(size, alignment);
	for (size_t i = 0; i < a->count; i++) {
		struct block *b = a->blocks[i];
		if (b->slab != small || (!small && (b->count || b->size < size)))
			continue;
		uint64_t at = b->address;
		for (size_t k = 0; k <= b->count; k++) {
			uint64_t end = k < b->count ? b->ranges[k].address : b->address + b->size;
			if (end - at >= (small ? need : size)) {
				if (!room((void **)&b->ranges, &b->count, &b->capacity, sizeof *b->ranges, k))
					return 0;
				b->ranges[k].address = at, b->ranges[k].size = size;
				*address = at;
				return 1;
			}
			if (k < b->count)
				at = b->ranges[k].address + up(b->ranges[k].size, alignment);
		}
	}
	return 0;
}

struct block *memory_block(struct arena *a, size_t size) {
	if (size > a->size)
		return NULL;
	uint64_t need = up(size, a->granularity), at = a->address;
	size_t i = 0;
	for (; i < a->count && a->blocks[i]->address - at < need; i++)
		at = a->blocks[i]->address + a->blocks[i]->size;
	if (i == a->count && a->address + a->size - at < need)
		return NULL;
	struct block *b = calloc(1, sizeof *b);
	if (!b || !room((void **)&a->blocks, &a->count, &a->capacity, sizeof *a->blocks, i)) {
		free(b);
		return NULL;
	}
	b->address = at, b->size = need, b->device = a->device, b->slab = is_small(a, size);
	a->blocks[i] = b;
	return b;
}

void memory_drop(struct arena *a, struct block *b) {
	size_t i = block_after(a, b->address) - 1;
	memmove(a->blocks + i, a->blocks + i + 1, (--a->count - i) * sizeof *a->blocks);
	free(b->ranges);
	free(b);
}

struct block *memory_find(uint64_t address, struct arena **a) {
	for (int d = 0; d < devices; d++) {
		*a = &arenas[d];
		if (!arenas[d].count || address < arenas[d].address || address >= arenas[d].address + arenas[d].size)
			continue;
		size_t i = block_after(&arenas[d], address);
		if (i && address < arenas[d].blocks[i - 1]->address + arenas[d].blocks[i - 1]->size)
			return arenas[d].blocks[i - 1];
	}
	return NULL;
}

// holder returns the range that holds the address, or NULL.
static struct range *holder(uint64_t address) {
	struct arena *a;
	struct block *b = memory_find(address, &a);
	size_t i = b ? after(b->ranges, b->count, address) : 0;
	return i && address < b->ranges[i - 1].address + b->ranges[i - 1].size ? &b->ranges[i - 1] : NULL;
}

int memory_free(struct block *b, uint64_t address) {
	size_t i = after(b->ranges, b->count, address);
	if (!i || b->ranges[i - 1].address != address)
		return 0;
	free(b->ranges[i - 1].parts);
	memmove(b->ranges + i - 1, b->ranges + i, (b->count - i) * sizeof *b->ranges);
	b->count--;
	return 1;
}

int memory_range(uint64_t address, uint64_t *start, uint64_t *size) {
	const struct range *r = holder(address);
	if (!r)
		return 0;
	*start = r->address, *size = r->size;
	return 1;
}

int memory_use(uint64_t address, uint64_t size) {
	struct range *r = holder(address);
	if (!r || !size || size > r->address + r->size - address)
		return -1;
	r->pool = 1;
	size_t i = after(r->parts, r->part_count, address);
	if (i && r->parts[i - 1].address == address) { // named again, with another size
		r->parts[i - 1].size = size;
		return 0;
	}
	if (!room((void **)&r->parts, &r->part_count, &r->part_capacity, sizeof *r->parts, i))
		return -1;
	r->parts[i].address = address, r->parts[i].size = size;
	return 0;
}

int memory_unuse(uint64_t address) {
	struct range *r = holder(address);
	if (!r)
		return -1;
	size_t i = after(r->parts, r->part_count, address);
	if (!i || r->parts[i - 1].address != address)
		return -1;
	memmove(r->parts + i - 1, r->parts + i, (r->part_count - i) * sizeof *r->parts);
	r->part_count--;
	return 0;
}

uint64_t memory_active(struct data_entry *out) {
	uint64_t n = 0;
	for (struct block *b = memory_next(NULL); b; b = memory_next(b))
		for (size_t i = 0; i < b->count; i++) {
			const struct range *r = &b->ranges[i];
			size_t parts = r->pool ? r->part_count : 1;
			for (size_t k = 0; k < parts; k++, n++) {
				const struct range *part = r->pool ? &r->parts[k] : r;
				if (out)
					out[n] = (struct data_entry){.address = part->address, .size = part->size};
			}
		}
	return n;
}

struct block *memory_next(const struct block *prior) {
	int d = prior ? prior->device : 0;
	size_t i = prior ? block_after(&arenas[d], prior->address) : 0;
	for (; d < devices; d++, i = 0)
		if (i < arenas[d].count)
			return arenas[d].blocks[i];
	return NULL;
}
