// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

#define _GNU_SOURCE
#include "data.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// Four lanes, as one would wait for its multiplication.
uint64_t data_sum(uint64_t h, const void *data, size_t size) {
	const unsigned char *p = data;
	uint64_t lane[4] = {h, h ^ 1, h ^ 2, h ^ 3}, w[4];
	h ^= size;
	for (; size >= 32; p += 32, size -= 32) {
		memcpy(w, p, 32);
		for (int i = 0; i < 4; i++)
			lane[i] = (lane[i] ^ w[i]) * 0xff51afd7ed558ccdull, lane[i] ^= lane[i] >> 32;
	}
	for (; size; p++, size--)
		lane[0] = (lane[0] ^ *p) * 0xff51afd7ed558ccdull;
	for (int i = 0; i < 4; i++)
		h = (h ^ lane[i]) * 0xc4ceb9fe1a85ec53ull, h ^= h >> 29;
	return h;
}

uint64_t data_sum_range(const char *data, uint64_t size) {
	uint64_t h = sum_start;
	for (uint64_t done = 0; done < size; done += staging_size)
		h = data_sum(h, data + done, size - done < staging_size ? size - done : staging_size);
	return h;
}

int data_create(const char *path, int how) {
	unlink(path);
	return open(path, how | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
}

int data_staging(char *staging[2], CUresult (*pin)(void *, size_t, unsigned)) {
	for (int i = 0; i < 2; i++) {
		if (staging[i])
			continue;
		char *m = mmap(NULL, staging_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (m == MAP_FAILED)
			return 0;
		if (pin)
			pin(m, staging_size, 0); // without it copies are slower, no more
		staging[i] = m;
	}
	return 1;
}

static int put(int fd, const void *data, size_t size, uint64_t at) {
	while (size) {
		ssize_t n = pwrite(fd, data, size, (off_t)at);
		if (n < 0 && errno != EINTR)
			return 0;
		if (n > 0)
			data = (const char *)data + n, size -= (size_t)n, at += (uint64_t)n;
	}
	return 1;
}

// writer is a thread that writes pieces: one is filled while the other one is written.
struct writer {
	pthread_t thread;
	sem_t filled, empty; // pieces of staging
	char **staging;
	int fd, error; // error: errno of the first write that failed
	struct piece {
		uint64_t at, size; // in the file; size 0: that was all
	} pieces[2];
};

static void wait_sem(sem_t *s) {
	while (sem_wait(s) && errno == EINTR)
		;
}

static void *write_pieces(void *shared) {
	struct writer *w = shared;
	for (int i = 0;; i ^= 1) {
		wait_sem(&w->filled);
		struct piece c = w->pieces[i];
		if (!c.size)
			return NULL;
		if (!w->error && !put(w->fd, w->staging[i], c.size, c.at))
			w->error = errno;
		sem_post(&w->empty);
	}
}

// copy_ranges gives the ranges to the writer, piece by piece.
static CUresult copy_ranges(struct writer *w, struct data_entry *entries, uint64_t count, data_read read, void *context) {
	CUresult r = CUDA_SUCCESS;
	int i = 0;
	for (uint64_t k = 0; k < count && !r; k++) {
		struct data_entry *e = &entries[k];
		for (uint64_t done = 0; done < e->size && !r; done += staging_size, i ^= 1) {
			uint64_t n = e->size - done < staging_size ? e->size - done : staging_size;
			wait_sem(&w->empty);
			if ((r = read(context, e, done, w->staging[i], n)))
				break;
			e->sum = data_sum(done ? e->sum : sum_start, w->staging[i], n);
			w->pieces[i] = (struct piece){e->offset + done, n};
			sem_post(&w->filled);
		}
	}
	if (!r)
		wait_sem(&w->empty);
	w->pieces[i] = (struct piece){0};
	sem_post(&w->filled);
	pthread_join(w->thread, NULL);
	return r;
}

uint32_t data_write(int fd, struct data_entry *entries, uint64_t count, uint64_t size, char *staging[2], data_read read, void *context) {
	struct writer w = {.fd = fd, .staging = staging};
	struct data_header h = {DATA_MAGIC, count, size};
	if (ftruncate(fd, (off_t)size))
		return RESULT_FILE;
	sem_init(&w.filled, 0, 0);
	sem_init(&w.empty, 0, 2);
	uint32_t r = CUDA_ERROR_OUT_OF_MEMORY;
	if (!pthread_create(&w.thread, NULL, write_pieces, &w))
		r = (uint32_t)copy_ranges(&w, entries, count, read, context);
	sem_destroy(&w.filled);
	sem_destroy(&w.empty);
	if (!r && (errno = w.error))
		r = RESULT_FILE;
	if (!r && (!put(fd, &h, sizeof h, 0) || !put(fd, entries, count * sizeof *entries, sizeof h)))
		r = RESULT_FILE;
	return r;
}
