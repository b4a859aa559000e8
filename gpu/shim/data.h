// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// How GPU memory is written to PID.data, by the library or by a ghost.
#ifndef MUSTER_DATA_H
#define MUSTER_DATA_H

#include "driver.h"
#include "page.h"

enum { staging_size = 8 << 20 }; // bytes that are copied at a time

// data_sum is a checksum of 64 bits, for damage and not for attackers. It goes on
// from the sum of the bytes before, whose number is a multiple of 32.
static const uint64_t sum_start = 0x9e3779b97f4a7c15ull;
uint64_t data_sum(uint64_t h, const void *data, size_t size);

// data_sum_range is the sum of a range, in the pieces in which it was copied.
uint64_t data_sum_range(const char *data, uint64_t size);

// data_create makes a file that is this process's own: where others may write to
// the folder, a link that waits under its name is not followed.
int data_create(const char *path, int how);

// data_staging makes pinned host memory through which the GPU's goes to the
// file, once; 0: there is too little memory.
int data_staging(char *staging[2], CUresult (*pin)(void *, size_t, unsigned));

// data_write writes the file of the size: its header, the entries, of which it
// fills in the sums, and their bytes, which read copies from the GPU, piece by
// piece in order. It returns 0, the error of read, or RESULT_FILE and errno.
typedef CUresult (*data_read)(void *context, const struct data_entry *e, uint64_t from, void *to, uint64_t size);
uint32_t data_write(int fd, struct data_entry *entries, uint64_t count, uint64_t size, char *staging[2], data_read read, void *context);

#endif
