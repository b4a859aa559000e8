// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// The shim stands in for libcuda.so.1 in a job's process, so that the process
// can be paused: its calls wait at a gate, the memory in use is copied to the
// host, and the GPU's memory is released, at addresses that stay reserved.
// Everything else goes to the real driver as it is.
//
// The shim has the driver's SONAME instead of hooks into dlsym: the CUDA
// runtime opens libcuda.so.1 and asks it for cuGetProcAddress, and finds the
// shim by LD_LIBRARY_PATH and by LD_PRELOAD.
//
// Environment: MUSTER_GPU_DIR is where the control page goes (without it the
// shim only forwards); MUSTER_GPU_DRIVER is the real driver's path.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "data.h"
#include "driver.h"
#include "hand.h"
#include "memory.h"
#include "page.h"
#include "ptx.h"
#include "replay.h"

// --- the real driver

// REAL lists what the shim itself calls.
#define REAL(X) \
	X(cuInit, (unsigned)) \
	X(cuGetProcAddress, (const char *, void **, int, uint64_t)) \
	X(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *)) \
	X(cuCtxGetCurrent, (CUcontext *)) \
	X(cuCtxSetCurrent, (CUcontext)) \
	X(cuCtxGetDevice, (CUdevice *)) \
	X(cuCtxSynchronize, (void)) \
	X(cuStreamIsCapturing, (CUstream, int *)) \
	X(cuStreamSynchronize, (CUstream)) \
	X(cuStreamSynchronize_ptsz, (CUstream)) \
	X(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, uint64_t)) \
	X(cuMemGetAllocationGranularity, (size_t *, const CUmemAllocationProp *, int)) \
	X(cuMemCreate, (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, uint64_t)) \
	X(cuMemRelease, (CUmemGenericAllocationHandle)) \
	X(cuMemExportToShareableHandle, (void *, CUmemGenericAllocationHandle, int, uint64_t)) \
	X(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle *, void *, int)) \
	X(cuDeviceGetUuid, (unsigned char *, CUdevice)) \
	X(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, uint64_t)) \
	X(cuMemUnmap, (CUdeviceptr, size_t)) \
	X(cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)) \
	X(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr)) \
	X(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t)) \
	X(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t)) \
	X(cuMemHostRegister_v2, (void *, size_t, unsigned)) \
	X(cuMemHostUnregister, (void *)) \
	X(cuMemFree_v2, (CUdeviceptr)) \
	X(cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
	X(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned)) \
	X(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream)) \
	X(cuMemFreeAsync, (CUdeviceptr, CUstream)) \
	X(cuMemAllocAsync_ptsz, (CUdeviceptr *, size_t, CUstream)) \
	X(cuMemFreeAsync_ptsz, (CUdeviceptr, CUstream)) \
	X(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned)) \
	X(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemoryPool, CUstream)) \
	X(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr *, size_t, CUmemoryPool, CUstream))

static struct {
#define X(name, args) CUresult (*name) args;
	REAL(X)
#undef X
} real;

// muster_forwarded is the table behind the exports that the shim only passes on: where
// each leads. The assembly below has one jump per name, so that no argument is touched. It
// has more for functions that the shim does not know by name and that
// cuGetProcAddress gives (unnamed).
enum {
#define HARMLESS(name) index_##name,
#define FORWARD(name) index_##name,
#include "forward.inc"
	named_count,
	unnamed_count = 256,
	forwarded_count = named_count + unnamed_count,
};
#undef HARMLESS
#undef FORWARD
__attribute__((visibility("hidden"))) void *_Atomic muster_forwarded[forwarded_count];
static void *forwarded_to[forwarded_count]; // the driver's
static const char *forwarded_names[forwarded_count] = {
#define HARMLESS(name) #name,
#define FORWARD(name) #name,
#include "forward.inc"
};
#undef HARMLESS
#undef FORWARD

#if defined(__x86_64__)
#define JUMP(name) \
	__asm__(".text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n" \
		"\tjmp *muster_forwarded+" "8*(muster_index_" #name ")(%rip)\n.size " #name ",.-" #name "\n");
#else
#error "the shim's jumps are written for x86-64"
#endif
// The assembler needs each index as a number: it counts in the same order.
__asm__(".set muster_count, 0\n");
#define HARMLESS(name) __asm__(".set muster_index_" #name ", muster_count\n.set muster_count, muster_count+1\n");
#define FORWARD(name) HARMLESS(name)
#include "forward.inc"
#undef HARMLESS
#define HARMLESS(name) JUMP(name)
#include "forward.inc"
#undef HARMLESS
#undef FORWARD

// The first call of each, but the harmless ones, goes to its stub, which gives muster_noted
// its index and goes on to what that returns, with all registers as they were.
#define UNNAMED "256"
__asm__(".text\n.p2align 4\nmuster_unnamed:\n"
	".rept " UNNAMED "\n.p2align 4\n\tjmp *muster_forwarded+8*muster_count(%rip)\n.set muster_count, muster_count+1\n.endr\n"
	".set muster_stub, 0\n.p2align 4\nmuster_stubs:\n"
	".rept muster_count\n.p2align 4\n\tpushq $muster_stub\n\tjmp muster_note\n.set muster_stub, muster_stub+1\n.endr\n"
	"muster_note:\n"
	"\tpushq %rbp\n\tmovq %rsp, %rbp\n"
	"\tpushq %rdi\n\tpushq %rsi\n\tpushq %rdx\n\tpushq %rcx\n\tpushq %r8\n\tpushq %r9\n\tpushq %rax\n"
	"\tsubq $128, %rsp\n\tandq $-16, %rsp\n"
	"\tmovups %xmm0, (%rsp)\n\tmovups %xmm1, 16(%rsp)\n\tmovups %xmm2, 32(%rsp)\n\tmovups %xmm3, 48(%rsp)\n"
	"\tmovups %xmm4, 64(%rsp)\n\tmovups %xmm5, 80(%rsp)\n\tmovups %xmm6, 96(%rsp)\n\tmovups %xmm7, 112(%rsp)\n"
	"\tmovq 8(%rbp), %rdi\n\tcall muster_noted\n\tmovq %rax, %r11\n"
	"\tmovups (%rsp), %xmm0\n\tmovups 16(%rsp), %xmm1\n\tmovups 32(%rsp), %xmm2\n\tmovups 48(%rsp), %xmm3\n"
	"\tmovups 64(%rsp), %xmm4\n\tmovups 80(%rsp), %xmm5\n\tmovups 96(%rsp), %xmm6\n\tmovups 112(%rsp), %xmm7\n"
	"\tleaq -56(%rbp), %rsp\n"
	"\tpopq %rax\n\tpopq %r9\n\tpopq %r8\n\tpopq %rcx\n\tpopq %rdx\n\tpopq %rsi\n\tpopq %rdi\n\tpopq %rbp\n"
	"\taddq $8, %rsp\n\tjmp *%r11\n");
extern const char muster_unnamed[], muster_stubs[] __attribute__((visibility("hidden")));
enum { stub_size = 16 };

static CUresult no_driver(void) { return CUDA_ERROR_NO_DEVICE; }
static CUresult not_there(void) { return CUDA_ERROR_NOT_SUPPORTED; }

static void *driver; // NULL: there is no driver

// open_driver opens the real driver by its path: the shim has its name.
static void *open_driver(void) {
	const char *paths[] = {
		getenv("MUSTER_GPU_DRIVER"),
		"/usr/lib/x86_64-linux-gnu/libcuda.so.1",
		"/usr/lib64/libcuda.so.1",
		"/usr/local/nvidia/lib64/libcuda.so.1",
		"/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.1",
	};
	Dl_info self;
	char mine[PATH_MAX], other[PATH_MAX];
	if (!dladdr((void *)open_driver, &self) || !realpath(self.dli_fname, mine))
		return NULL;
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		if (!paths[i] || !realpath(paths[i], other) || !strcmp(mine, other))
			continue;
		void *h = dlopen(other, RTLD_NOW | RTLD_LOCAL);
		if (h)
			return h;
	}
	return NULL;
}

__attribute__((constructor)) static void load(void) {
	driver = open_driver();
	void *missing = driver ? (void *)not_there : (void *)no_driver;
	void *p;
#define X(name, args) real.name = (CUresult(*) args)(driver && (p = dlsym(driver, #name)) ? p : missing);
	REAL(X)
#undef X
#define X(name, args) replay_driver.name = (CUresult(*) args)(driver && (p = dlsym(driver, #name)) ? p : missing);
	REPLAY(X)
#undef X
	for (int i = 0; i < forwarded_count; i++) {
		forwarded_to[i] = driver && forwarded_names[i] && (p = dlsym(driver, forwarded_names[i])) ? p : missing;
		muster_forwarded[i] = driver ? (void *)(muster_stubs + i * stub_size) : missing;
	}
#define FORWARD(name)
#define HARMLESS(name) muster_forwarded[index_##name] = forwarded_to[index_##name];
#include "forward.inc"
#undef HARMLESS
#undef FORWARD
}

// --- the gate

static struct page unshared; // until cuInit, and where there is no MUSTER_GPU_DIR
static _Atomic(struct page *) page = &unshared;

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *limit) {
	return syscall(SYS_futex, word, op, value, limit, NULL, 0);
}

// A thread has a stack of current contexts. Those of the driver are gone after a
// replay: the thread's first call then makes the new ones current.
enum { thread_contexts = 6 }; // few: a library that is opened late has little room for variables of threads
static __thread struct {
	uint32_t replays; // that it has followed
	int depth;
	CUcontext contexts[thread_contexts]; // as the program has them, the current one last
} mine __attribute__((tls_model("initial-exec")));

static __attribute__((noinline)) void follow(void) {
	if (mine.depth == 1) {
		real.cuCtxSetCurrent(replay_context_now(mine.contexts[0]));
	} else {
		CUcontext gone;
		for (int i = 0; i < mine.depth; i++)
			replay_driver.cuCtxPopCurrent_v2(&gone);
		for (int i = 0; i < mine.depth; i++)
			replay_driver.cuCtxPushCurrent_v2(replay_context_now(mine.contexts[i]));
	}
	mine.replays = replays;
}

// enter waits while the gate is closed, and counts the call. The count goes up
// before the gate is read, so that who closes the gate and then sees no call
// in flight knows that none will come.
static struct page *enter(void) {
	struct page *p = atomic_load_explicit(&page, memory_order_acquire);
	for (;;) {
		atomic_fetch_add(&p->in_flight, 1);
		uint32_t gate = atomic_load(&p->gate);
		if (gate == GATE_OPEN) {
			if (__builtin_expect(mine.replays != atomic_load_explicit(&replays, memory_order_relaxed), 0))
				follow();
			return p;
		}
		atomic_fetch_sub(&p->in_flight, 1);
		atomic_fetch_add(&p->stuck, 1);
		while ((gate = atomic_load(&p->gate)) != GATE_OPEN)
			futex(&p->gate, FUTEX_WAIT, gate, NULL);
	}
}

static void leave(struct page *p) { atomic_fetch_sub(&p->in_flight, 1); }

// muster_noted says where a call leads of which the shim does not know what it
// takes and makes. It is noted before the gate: who is releasing the process meanwhile sees it, or it waits
// until the process is back. What the program then has is not the driver's, and the call is refused.
__attribute__((visibility("hidden"), used)) void *muster_noted(long i) {
	replay_bar(forwarded_names[i]);
	struct page *p = enter();
	void *to = replays ? (void *)not_there : forwarded_to[i];
	leave(p);
	if (to != forwarded_to[i])
		fprintf(stderr, "muster: %s is not known to the replay of this process, and fails\n", forwarded_names[i]);
	atomic_store(&muster_forwarded[i], to);
	return to;
}

// open_gate lets the calls go on, if the gate has the given value.
static int open_gate(struct page *p, uint32_t from) {
	atomic_fetch_add(&p->opened, 1); // before: who sees the same count knows that the gate was closed all the time
	if (!atomic_compare_exchange_strong(&p->gate, &from, GATE_OPEN))
		return 0;
	futex(&p->gate, FUTEX_WAKE, INT_MAX, NULL);
	return 1;
}

// --- memory: who owns which address is memory.c's; here it is mapped

static pthread_mutex_t memory = PTHREAD_MUTEX_INITIALIZER; // guards blocks and contexts

// exportable is the kind of handle by which another process can take memory over:
// a descriptor; 0 where the driver makes no such memory.
static int exportable = MEM_HANDLE_FD;

// place maps memory at the block's address. On an error the handle is the caller's still.
static CUresult place(struct block *b, CUmemGenericAllocationHandle h) {
	CUmemAccessDesc access = {.location = {1, b->device}, .flags = 3};
	CUresult r = real.cuMemMap(b->address, b->size, 0, h, 0);
	if (r)
		return r;
	if ((r = real.cuMemSetAccess(b->address, b->size, &access, 1))) {
		real.cuMemUnmap(b->address, b->size);
		return r;
	}
	b->handle = h;
	b->mapped = 1;
	return CUDA_SUCCESS;
}

// map gives a block physical memory at its address. On an error the block has none.
static CUresult map(struct block *b) {
	CUmemAllocationProp prop = {.type = 1, .requestedHandleTypes = exportable, .location = {1, b->device}};
	CUmemGenericAllocationHandle h;
	CUresult r = real.cuMemCreate(&h, b->size, &prop, 0);
	if (r && r != CUDA_ERROR_OUT_OF_MEMORY && exportable) {
		prop.requestedHandleTypes = 0;
		if (!(r = real.cuMemCreate(&h, b->size, &prop, 0)))
			exportable = 0;
	}
	if (!r && (r = place(b, h)))
		real.cuMemRelease(h);
	return r;
}

// unmap gives the physical memory back and keeps the address.
static CUresult unmap(struct block *b) {
	CUresult r = real.cuMemUnmap(b->address, b->size);
	if (r)
		return r;
	b->mapped = 0;
	return real.cuMemRelease(b->handle);
}

static struct arena *arena_of(CUdevice device) {
	struct arena *a = memory_arena(device);
	if (!a || a->size)
		return a;
	CUmemAllocationProp prop = {.type = 1, .location = {1, device}};
	size_t granularity = 0;
	if (real.cuMemGetAllocationGranularity(&granularity, &prop, 0) || !granularity)
		return NULL;
	// A fixed hint gives all runs the same addresses; another address does as well.
	for (size_t size = (size_t)1 << 40; size >= (size_t)1 << 36; size >>= 1) {
		CUdeviceptr at = 0;
		CUdeviceptr hint = 0x600000000000ull + ((uint64_t)device << 40);
		if (!real.cuMemAddressReserve(&at, size, 0, hint, 0)) {
			a->address = at, a->size = size, a->granularity = granularity;
			return a;
		}
	}
	return NULL;
}

// allocate is cuMemAlloc. The caller has passed the gate.
static CUresult allocate(struct page *p, CUdeviceptr *out, size_t size) {
	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	CUcontext context = NULL;
	CUdevice device = 0;
	CUresult r = real.cuCtxGetCurrent(&context);
	if (!r && !context)
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (!r)
		r = real.cuCtxGetDevice(&device);
	if (r)
		return r;

	pthread_mutex_lock(&memory);
	struct arena *a = arena_of(device);
	struct block *b = NULL;
	r = a ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	if (a && !memory_place(a, size, out)) {
		b = memory_block(a, size);
		r = b ? map(b) : CUDA_ERROR_OUT_OF_MEMORY;
		if (b && r)
			memory_drop(a, b);
		else if (b) {
			b->context = context;
			atomic_fetch_add(&p->reserved, b->size);
			if (!memory_place(a, size, out))
				r = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	pthread_mutex_unlock(&memory);
	return r;
}

static int ours(CUdeviceptr address) {
	struct arena *a;
	pthread_mutex_lock(&memory);
	int found = memory_find(address, &a) != NULL;
	pthread_mutex_unlock(&memory);
	return found;
}

// release is cuMemFree of what allocate gave. What uses the memory has ended.
static CUresult release(struct page *p, CUdeviceptr address) {
	CUresult r = CUDA_SUCCESS;
	struct arena *a;
	pthread_mutex_lock(&memory);
	struct block *b = memory_find(address, &a);
	if (!b || !memory_free(b, address)) {
		r = CUDA_ERROR_INVALID_VALUE;
	} else if (!b->count) {
		size_t size = b->size;
		r = unmap(b);
		if (!b->mapped) {
			atomic_fetch_sub(&p->reserved, size);
			memory_drop(a, b);
		}
	}
	pthread_mutex_unlock(&memory);
	return r;
}

// --- save and restore, in the control thread

static char data_path[PATH_MAX], data_temporary[PATH_MAX], page_path[PATH_MAX];
static struct data_entry *saved; // what was saved, in memory: the file is checked against it
static uint64_t saved_count;

static uint32_t file_error(struct page *p) {
	atomic_store(&p->errnum, (uint32_t)errno);
	return RESULT_FILE;
}

// list_active fills saved with the ranges in use, and returns the size of the file.
static uint64_t list_active(void) {
	free(saved);
	saved_count = memory_active(NULL);
	saved = calloc(saved_count + 1, sizeof *saved);
	if (!saved)
		return 0;
	memory_active(saved);
	uint64_t at = sizeof(struct data_header) + saved_count * sizeof *saved;
	for (uint64_t i = 0; i < saved_count; i++) {
		at = (at + 4095) & ~4095ull;
		saved[i].offset = at;
		at += saved[i].size;
	}
	return at;
}

static char *staging[2];

// read_range copies from the GPU for data_write.
static CUresult read_range(void *none, const struct data_entry *e, uint64_t from, void *to, uint64_t size) {
	(void)none;
	struct arena *a;
	CUresult r = from ? CUDA_SUCCESS : real.cuCtxSetCurrent(memory_find(e->address, &a)->context);
	return r ? r : real.cuMemcpyDtoH_v2(to, e->address + from, size);
}

// copy_out writes the ranges of saved to the file of the given size.
static uint32_t copy_out(struct page *p, uint64_t size) {
	if (!data_staging(staging, real.cuMemHostRegister_v2))
		return CUDA_ERROR_OUT_OF_MEMORY;
	int fd = data_create(data_temporary, O_WRONLY);
	if (fd < 0)
		return file_error(p);
	uint32_t r = data_write(fd, saved, saved_count, size, staging, read_range, NULL);
	if (r == RESULT_FILE)
		file_error(p);
	if (close(fd) && !r)
		r = file_error(p);
	if (!r && rename(data_temporary, data_path))
		r = file_error(p);
	if (r)
		unlink(data_temporary);
	return r;
}

#include "ghost.inc"

// settle waits until everything that was submitted has ended. It holds no
// lock: the work may wait for another rank, which waits for this process.
static uint32_t settle(struct page *p, uint32_t opened) {
	while (atomic_load(&p->in_flight)) {
		if (atomic_load(&p->opened) != opened)
			return RESULT_CANCELLED;
		nanosleep(&(struct timespec){.tv_nsec = 50 * 1000}, NULL);
	}
	CUcontext contexts[64];
	int n = 0;
	for (CUdevice d = 0; d < 64; d++)
		if (replay_context(d))
			contexts[n++] = replay_context(d);
	pthread_mutex_lock(&memory);
	for (struct block *b = memory_next(NULL); b; b = memory_next(b)) {
		int k = 0;
		while (k < n && contexts[k] != b->context)
			k++;
		if (k == n && n < 64)
			contexts[n++] = b->context;
	}
	pthread_mutex_unlock(&memory);
	for (int k = 0; k < n; k++) {
		CUresult r = real.cuCtxSetCurrent(contexts[k]);
		if (!r)
			r = real.cuCtxSynchronize();
		if (r)
			return (uint32_t)r;
	}
	return 0;
}

// save copies what is in use to the file, or hands all to the ghost, and releases the GPU's memory.
// 1. Everything submitted ends. Until then the gate may be opened from outside.
// 2. The gate is sealed: only restore opens it now.
// 3. The ranges are copied, or the ghost says that it has the memory. 4. Only then is memory released.
static uint32_t save(struct page *p, uint32_t to) {
	if (atomic_load(&p->state) == STATE_SAVED || atomic_load(&p->state) == to)
		return 0;
	if (atomic_load(&p->state) != STATE_RUNNING)
		return CUDA_ERROR_INVALID_VALUE;
	uint32_t opened = atomic_load(&p->opened);
	uint32_t closed = GATE_CLOSED;
	if (atomic_load(&p->gate) != closed)
		return RESULT_CANCELLED;
	uint32_t r = settle(p, opened);
	if (r)
		return r;
	if (!atomic_compare_exchange_strong(&p->gate, &closed, GATE_SEALED))
		return RESULT_CANCELLED;
	if (atomic_load(&p->opened) != opened) {
		// The gate was opened and closed again: calls may have been submitted since.
		atomic_store(&p->gate, GATE_CLOSED);
		return RESULT_CANCELLED;
	}
	pthread_mutex_lock(&memory);
	uint64_t size = list_active();
	r = !size ? CUDA_ERROR_OUT_OF_MEMORY : to == STATE_HANDED ? give(size) : copy_out(p, size);
	int done = !r;
	uint64_t active = 0;
	for (uint64_t k = 0; k < saved_count; k++)
		active += saved[k].size;
	for (struct block *b = done ? memory_next(NULL) : NULL; b && !r; b = memory_next(b))
		r = (uint32_t)unmap(b);
	pthread_mutex_unlock(&memory);
	// From then on, restore is the only way back, also if the driver refused to release some of the memory.
	if (done) {
		atomic_store(&p->active, active);
		atomic_store(&p->table, 0);
		if (to == STATE_SAVED)
			atomic_fetch_add(&p->saves, 1); // before: who sees the state finds the number of this save
		atomic_store(&p->state, to);
	} else {
		atomic_store(&p->gate, GATE_CLOSED);
	}
	return r;
}

// check compares the file with what was saved, byte by byte through the sums,
// before any memory is created.
static uint32_t check(struct page *p, const char **out, uint64_t *size) {
	int fd = open(data_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	if (fd < 0 || fstat(fd, &st)) {
		uint32_t r = file_error(p);
		if (fd >= 0)
			close(fd);
		return r;
	}
	*size = (uint64_t)st.st_size;
	uint64_t head = sizeof(struct data_header) + saved_count * sizeof *saved;
	char *file = *size < head ? MAP_FAILED : mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (file == MAP_FAILED)
		return RESULT_CORRUPT;
	const struct data_header *h = (const struct data_header *)file;
	int good = h->magic == DATA_MAGIC && h->entries == saved_count && h->size == *size;
	if (good && atomic_load(&p->table))
		good = take_sums((const struct data_entry *)(h + 1), atomic_load(&p->table));
	good = good && !memcmp(h + 1, saved, saved_count * sizeof *saved);
	for (uint64_t i = 0; good && i < saved_count; i++)
		good = saved[i].offset + saved[i].size <= *size && data_sum_range(file + saved[i].offset, saved[i].size) == saved[i].sum;
	if (!good) {
		munmap(file, *size);
		return RESULT_CORRUPT;
	}
	*out = file;
	return 0;
}

#include "release.inc"

// restore is the way back: memory at the same addresses, then its bytes. The
// gate is then closed, no longer sealed. If the GPU has no room the process
// stays saved, and may try again.
static uint32_t restore(struct page *p) {
	if (atomic_load(&p->state) == STATE_RUNNING)
		return 0;
	if (atomic_load(&p->state) == STATE_HANDED) {
		uint32_t r = take(p);
		if (r || atomic_load(&p->state) != STATE_SAVED) // the ghost may have written the file meanwhile
			return r;
	}
	uint32_t without = again(p);
	if (without)
		return without;
	if (atomic_load(&p->state) != STATE_SAVED)
		return CUDA_ERROR_INVALID_VALUE;
	const char *file;
	uint64_t size;
	uint32_t bad = check(p, &file, &size);
	if (bad)
		return bad;
	CUresult r = CUDA_SUCCESS;
	pthread_mutex_lock(&memory);
	for (struct block *b = memory_next(NULL); b && !r; b = memory_next(b)) {
		r = real.cuCtxSetCurrent(b->context);
		if (!r && !b->mapped)
			r = map(b);
	}
	for (uint64_t i = 0; i < saved_count && !r; i++) {
		struct arena *a;
		r = real.cuCtxSetCurrent(memory_find(saved[i].address, &a)->context);
		if (!r)
			r = real.cuMemcpyHtoD_v2(saved[i].address, file + saved[i].offset, saved[i].size);
	}
	for (struct block *b = r ? memory_next(NULL) : NULL; b; b = memory_next(b))
		if (b->mapped)
			unmap(b);
	pthread_mutex_unlock(&memory);
	munmap((void *)file, size);
	if (r)
		return (uint32_t)r;
	unlink(data_path);
	atomic_store(&p->state, STATE_RUNNING);
	atomic_store(&p->gate, GATE_CLOSED);
	return 0;
}

static uint64_t now_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int expired(struct page *p) {
	uint64_t lease = atomic_load(&p->lease);
	return lease && now_ms() >= lease;
}

// nap sleeps until the word changes, at most 200 ms.
static void nap(_Atomic uint32_t *word, uint32_t value) {
	struct timespec limit = {.tv_nsec = 200 * 1000 * 1000};
	futex(word, FUTEX_WAIT, value, &limit);
}

// control runs commands, one after the other. A pause whose lease runs out
// ends by itself: who asked for it is gone.
static void *control(void *shared) {
	struct page *p = shared;
	for (;;) {
		uint32_t command = atomic_load(&p->command);
		if (command == atomic_load(&p->done)) {
			nap(&p->command, command);
			if (atomic_load(&p->state) != STATE_RUNNING && expired(p)) {
				if (restore(p))
					atomic_store(&p->lease, now_ms() + 5000); // another try
				else
					open_gate(p, GATE_CLOSED);
			}
			continue;
		}
		uint32_t op = atomic_load(&p->op);
		uint32_t r = op == OP_SAVE ? save(p, STATE_SAVED) : op == OP_HAND ? save(p, STATE_HANDED) : op == OP_RESTORE ? restore(p) : replay(p, op);
		atomic_store(&p->result, r);
		atomic_store(&p->done, command);
		futex(&p->done, FUTEX_WAKE, INT_MAX, NULL);
	}
	return NULL;
}

// watch opens a gate that was closed and whose lease has run out. It is a
// thread of its own: control may be waiting for work that never ends while
// the gate is closed.
static void *watch(void *shared) {
	struct page *p = shared;
	for (;;) {
		uint32_t gate = atomic_load(&p->gate);
		if (gate == GATE_CLOSED && expired(p))
			open_gate(p, GATE_CLOSED);
		else
			nap(&p->gate, gate);
	}
	return NULL;
}

static void after_fork(void) { atomic_store(&page, &unshared); }

static void remove_files(void) {
	if (atomic_load(&page) == &unshared)
		return;
	unlink(page_path);
	unlink(data_path);
}

// start_time is field 22 of /proc/self/stat: with the process ID it names a process for good.
static uint64_t start_time(void) {
	char text[1024];
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	char *at = strrchr(text, ')'); // the name may have spaces
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

// pid_namespace is the number in the text of /proc/self/ns/pid, pid:[4026531836]: in gVisor the file that the link leads to has another
// inode. It is 0 if it is not known.
static uint64_t pid_namespace(void) {
	char text[64];
	ssize_t n = readlink("/proc/self/ns/pid", text, sizeof text - 1);
	if (n <= 0)
		return 0;
	text[n] = 0;
	char *at = strchr(text, '[');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

static pthread_once_t shared_once = PTHREAD_ONCE_INIT;

// share makes the control page and starts the control thread. Without them the
// process runs as it would without the shim.
static void share(void) {
	const char *dir = getenv("MUSTER_GPU_DIR");
	if (!dir || !*dir)
		return;
	char temporary[PATH_MAX];
	int pid = (int)getpid();
	if (snprintf(page_path, sizeof page_path, "%s/%d.page", dir, pid) >= (int)sizeof page_path - 8)
		return;
	snprintf(data_path, sizeof data_path, "%s/%d.data", dir, pid);
	snprintf(data_temporary, sizeof data_temporary, "%s/%d.data.tmp", dir, pid);
	snprintf(temporary, sizeof temporary, "%s/%d.page.tmp", dir, pid);
	int fd = data_create(temporary, O_RDWR);
	if (fd < 0 || ftruncate(fd, PAGE_SIZE)) {
		fprintf(stderr, "muster: %s: %s: the GPU work of this process cannot be paused\n", temporary, strerror(errno));
		if (fd >= 0)
			close(fd);
		return;
	}
	struct page *p = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return;
	p->magic = PAGE_MAGIC, p->version = PAGE_VERSION, p->pid = (uint32_t)pid;
	atomic_store(&p->started, start_time());
	p->pidns = pid_namespace();
	// The thread takes no signal of the program's.
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_t threads[2];
	int failed = pthread_create(&threads[0], NULL, control, p) || pthread_create(&threads[1], NULL, watch, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed) {
		unlink(temporary);
		return;
	}
	pthread_detach(threads[0]);
	pthread_detach(threads[1]);
	pthread_atfork(NULL, NULL, after_fork);
	atomic_store_explicit(&page, p, memory_order_release);
	rename(temporary, page_path); // now it can be found
	atexit(remove_files);
}

// --- what the program calls

MUSTER_EXPORT CUresult cuInit(unsigned flags) {
	CUresult r = real.cuInit(flags);
	if (!r)
		pthread_once(&shared_once, share);
	return r;
}

// owns says whether the shim allocates: without a page no one can ask for a pause.
static int owns(const struct page *p) { return p != &unshared; }

MUSTER_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size) {
	struct page *p = enter();
	CUresult r = owns(p) ? allocate(p, out, size) : real.cuMemAlloc_v2(out, size);
	leave(p);
	return r;
}

MUSTER_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element) {
	struct page *p = enter();
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	if (!owns(p))
		r = real.cuMemAllocPitch_v2(out, pitch, width, height, element);
	else if (pitch && width && height && width < SIZE_MAX / 2 / height - 512) {
		*pitch = (width + 511) & ~(size_t)511;
		r = allocate(p, out, *pitch * height);
	}
	leave(p);
	return r;
}

static int capturing(CUstream stream) {
	int status = 0;
	return !real.cuStreamIsCapturing(stream, &status) && status;
}

static CUresult alloc_async(CUresult (*forward)(CUdeviceptr *, size_t, CUstream), CUdeviceptr *out, size_t size, CUstream stream) {
	struct page *p = enter();
	CUresult r;
	if (owns(p) && !capturing(stream)) {
		r = allocate(p, out, size);
	} else {
		r = forward(out, size, stream);
		if (!r)
			atomic_fetch_add(&p->untracked, 1);
	}
	leave(p);
	return r;
}

MUSTER_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream) {
	return alloc_async(real.cuMemAllocAsync, out, size, stream);
}

MUSTER_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t size, CUstream stream) {
	return alloc_async(real.cuMemAllocAsync_ptsz, out, size, stream);
}

// cuMemFree waits for whatever still uses the memory.
MUSTER_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
	struct page *p = enter();
	CUresult r;
	if (!ours(address))
		r = real.cuMemFree_v2(address);
	else if (!(r = real.cuCtxSynchronize()))
		r = release(p, address);
	leave(p);
	return r;
}

static CUresult free_async(CUresult (*forward)(CUdeviceptr, CUstream), CUresult (*wait)(CUstream), CUdeviceptr address, CUstream stream) {
	struct page *p = enter();
	CUresult r;
	if (!ours(address))
		r = forward(address, stream);
	else if (!(r = wait(stream))) // what is queued before the call may use the memory
		r = release(p, address);
	leave(p);
	return r;
}

MUSTER_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
	return free_async(real.cuMemFreeAsync, real.cuStreamSynchronize, address, stream);
}

MUSTER_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
	return free_async(real.cuMemFreeAsync_ptsz, real.cuStreamSynchronize_ptsz, address, stream);
}

MUSTER_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
	pthread_mutex_lock(&memory);
	uint64_t start, length;
	int found = memory_range(address, &start, &length);
	pthread_mutex_unlock(&memory);
	if (!found)
		return real.cuMemGetAddressRange_v2(base, size, address);
	if (base)
		*base = start;
	if (size)
		*size = length;
	return CUDA_SUCCESS;
}

// What the shim does not own is counted: a pause leaves it on the GPU.
MUSTER_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t size, const CUmemAllocationProp *prop, uint64_t flags) {
	CUresult r = real.cuMemCreate(h, size, prop, flags);
	if (!r)
		atomic_fetch_add(&atomic_load(&page)->untracked, 1);
	return r;
}

MUSTER_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags) {
	CUresult r = real.cuMemAllocManaged(out, size, flags);
	if (!r)
		atomic_fetch_add(&atomic_load(&page)->untracked, 1);
	return r;
}

static CUresult alloc_pool(CUresult (*forward)(CUdeviceptr *, size_t, CUmemoryPool, CUstream), CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream) {
	CUresult r = forward(out, size, pool, stream);
	if (!r)
		atomic_fetch_add(&atomic_load(&page)->untracked, 1);
	return r;
}

MUSTER_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream) {
	return alloc_pool(real.cuMemAllocFromPoolAsync, out, size, pool, stream);
}

MUSTER_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream) {
	return alloc_pool(real.cuMemAllocFromPoolAsync_ptsz, out, size, pool, stream);
}

// The memory stub: a framework's allocator says which parts of an allocation
// are in use. From the first call about an allocation on, only what it names
// is saved. 0: done; -1: not an allocation of the shim's.
MUSTER_EXPORT int gpustub_alloc(uint64_t address, uint64_t size) {
	struct page *p = enter();
	pthread_mutex_lock(&memory);
	int r = memory_use(address, size);
	pthread_mutex_unlock(&memory);
	leave(p);
	return r;
}

MUSTER_EXPORT int gpustub_free(uint64_t address) {
	struct page *p = enter();
	pthread_mutex_lock(&memory);
	int r = memory_unuse(address);
	pthread_mutex_unlock(&memory);
	leave(p);
	return r;
}

#include "calls.inc"

// hooks pairs each function of the driver's with the shim's.
struct hook { const char *name; void *real, *shim; };
static struct hook hooks[] = {
#define X(name, ...) {#name, NULL, (void *)name},
	CALLS(X) NOTED(X) GATED_WIDE(X) GATED_BATCH(X) GATED_BATCH_V2(X) MADE(X)
#undef X
#define H(name) {#name, NULL, (void *)name}
	H(cuInit), H(cuMemAlloc_v2), H(cuMemAllocPitch_v2), H(cuMemAllocAsync), H(cuMemFree_v2),
	H(cuMemFreeAsync), H(cuMemAllocAsync_ptsz), H(cuMemFreeAsync_ptsz), H(cuMemGetAddressRange_v2), H(cuMemCreate), H(cuMemAllocManaged), H(cuMemAllocFromPoolAsync),
	H(cuMemAllocFromPoolAsync_ptsz),
#undef H
};
enum { hook_count = sizeof hooks / sizeof *hooks };

__attribute__((constructor(65000))) static void find_hooks(void) {
	if (!driver)
		load();
	for (int i = 0; i < hook_count; i++)
		hooks[i].real = driver ? dlsym(driver, hooks[i].name) : NULL;
	int i = 0;
	void *missing = driver ? (void *)not_there : (void *)no_driver;
#define X(name, ...) *(void **)&real_##name = hooks[i].real ? hooks[i].real : missing, i++;
	CALLS(X)
	NOTED(X)
	GATED_WIDE(X)
	GATED_BATCH(X)
	GATED_BATCH_V2(X)
#undef X
}

#define FORWARD(name) extern void name(void);
#define HARMLESS(name) extern void name(void);
#include "forward.inc"
#undef HARMLESS
#undef FORWARD

// forwarded is the shim's jump for a function of the driver's that it does not know, by its name if it has one.
static void *forwarded(void *function, const char *name) {
	static void *const jumps[] = {
#define FORWARD(name) (void *)name,
#define HARMLESS(name) (void *)name,
#include "forward.inc"
#undef HARMLESS
#undef FORWARD
	};
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static int unnamed;
	for (int i = 0; i < named_count; i++)
		if (forwarded_to[i] == function)
			return jumps[i];
	pthread_mutex_lock(&lock);
	int i = named_count;
	while (i < named_count + unnamed && forwarded_to[i] != function)
		i++;
	if (i == forwarded_count) {
		replay_bar("a function of a later driver");
	} else if (i == named_count + unnamed) {
		forwarded_names[i] = strdup(name);
		forwarded_to[i] = function;
		unnamed++;
	}
	pthread_mutex_unlock(&lock);
	return i == forwarded_count ? function : (void *)(muster_unnamed + (i - named_count) * stub_size);
}

// hooked is the shim's function for the driver's. The driver picks the version
// that the caller was built for; the address says which that is.
static void *hooked(void *function, const char *name) {
	for (int i = 0; function && i < hook_count; i++)
		if (hooks[i].real == function)
			return hooks[i].shim;
	return function ? forwarded(function, name) : NULL;
}

MUSTER_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status);

MUSTER_EXPORT CUresult cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags) {
	CUresult r = real.cuGetProcAddress(symbol, out, version, flags);
	if (!r && out)
		*out = !strcmp(symbol, "cuGetProcAddress") ? (void *)cuGetProcAddress : hooked(*out, symbol);
	return r;
}

MUSTER_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status) {
	CUresult r = real.cuGetProcAddress_v2(symbol, out, version, flags, status);
	if (r || !out || !*out)
		return r;
	if (!strcmp(symbol, "cuGetProcAddress"))
		*out = version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
	else
		*out = hooked(*out, symbol);
	return r;
}
