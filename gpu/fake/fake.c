// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// A driver without a GPU, for tests: libcuda.so.1 whose devices are the CPU's
// memory. Physical memory is a memfd, a mapping is an mmap at a fixed address,
// a stream is a queue with a thread, and kernels are the few built-in ones at
// the end of this file or, with MUSTER_FAKE_GPU_INTERPRETER, those of modules in
// PTX, which that program runs (kernels.inc). A GPU's memory is limited over all
// processes, as it is on a real one.
//
// Environment: MUSTER_FAKE_GPU is the file through which processes share the
// GPUs (without it each process has its own); MUSTER_FAKE_GPU_COUNT (1) and
// MUSTER_FAKE_GPU_MIB (1024, each) are what there is. MUSTER_FAKE_GPU_CONTEXT_MIB
// (0) is what a context takes. MUSTER_FAKE_GPU_ID is in the IDs of the GPUs.
// With MUSTER_FAKE_GPU_DRIVER=550 the driver cannot checkpoint processes
// (checkpoint.inc); from 580 on it can restore them on another GPU.
// MUSTER_FAKE_GPU_LOG is a file to which each kernel in PTX and each copy between
// GPUs appends a line as it starts.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../shim/driver.h"

enum { max_devices = 8, max_slots = 4096, max_things = 65536, granularity = 2 << 20 };

// --- devices and their memory

// A slot is what one process holds on one device: all that is its own, or one
// memory that others may hold, too. The file is an array of them.
struct slot {
	int32_t pid, device;
	uint64_t bytes, shared; // shared: what names the memory; 0: its own
};
static struct slot own_slots[max_slots], *slots = own_slots;
static int slots_fd = -1;
static int device_count;
static uint64_t device_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards everything but the queues

static uint64_t number(const char *name, uint64_t otherwise) {
	const char *v = getenv(name);
	return v && *v ? strtoull(v, NULL, 10) : otherwise;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void open_devices(void) {
	device_count = (int)number("MUSTER_FAKE_GPU_COUNT", 1);
	if (device_count > max_devices)
		device_count = max_devices;
	device_bytes = number("MUSTER_FAKE_GPU_MIB", 1024) << 20;
	const char *path = getenv("MUSTER_FAKE_GPU");
	if (!path)
		return;
	slots_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *m = MAP_FAILED;
	if (slots_fd >= 0 && !ftruncate(slots_fd, sizeof own_slots))
		m = mmap(NULL, sizeof own_slots, PROT_READ | PROT_WRITE, MAP_SHARED, slots_fd, 0);
	if (m == MAP_FAILED) {
		fprintf(stderr, "fake GPU: %s: %s\n", path, strerror(errno));
		exit(1);
	}
	slots = m;
}

// placed has which GPU of the machine each device of this process is: a restore may have been to another one.
static CUdevice placed[max_devices] = {0, 1, 2, 3, 4, 5, 6, 7};

// used is what all living processes hold on the device; slots of dead ones are freed.
static uint64_t used(CUdevice device) {
	uint64_t sum = 0;
	for (int i = 0; i < max_slots; i++) {
		if (slots[i].pid && kill(slots[i].pid, 0) && errno == ESRCH)
			slots[i] = (struct slot){0};
		int counted = 0;
		for (int k = 0; slots[i].shared && k < i && !counted; k++)
			counted = slots[k].pid && slots[k].shared == slots[i].shared;
		if (slots[i].pid && slots[i].device == device && !counted)
			sum += slots[i].bytes;
	}
	return sum;
}

static struct slot *slot_of(CUdevice device, uint64_t shared, int make) {
	int32_t pid = (int32_t)getpid();
	for (int i = 0; i < max_slots; i++)
		if (slots[i].pid == pid && slots[i].device == device && slots[i].shared == shared)
			return &slots[i];
	for (int i = 0; make && i < max_slots; i++)
		if (!slots[i].pid)
			return slots[i] = (struct slot){pid, device, 0, shared}, &slots[i];
	return NULL;
}

// take adds bytes to what this process holds; 0: the device has no room. A negative number gives back.
static int take(CUdevice device, int64_t bytes) {
	device = placed[device];
	if (slots_fd >= 0)
		flock(slots_fd, LOCK_EX);
	int fits = bytes <= 0 || used(device) + (uint64_t)bytes <= device_bytes;
	struct slot *s = fits ? slot_of(device, 0, 1) : NULL;
	if (s)
		s->bytes += (uint64_t)bytes;
	if (slots_fd >= 0)
		flock(slots_fd, LOCK_UN);
	return s != NULL;
}

// physical is memory made by cuMemCreate; it lives until it is released and no
// mapping is left. mapping is a part of the address space.
struct physical {
	int fd, refs;
	CUdevice device;
	uint64_t size;
	uint64_t shared; // what names it where others may hold it (share.inc)
	int exportable;
	void *host; // its bytes while the process is checkpointed
	struct physical *next;
};
static struct physical *all_memory;
struct mapping {
	uint64_t address, size;
	struct physical *memory; // NULL: only reserved
	int plain;               // by cuMemAlloc
	int protection;
};
static struct mapping mappings[max_things];
static int mapping_count;

static struct mapping *find(uint64_t address, int reserved) {
	for (int i = 0; i < mapping_count; i++)
		if (mappings[i].size && (mappings[i].memory == NULL) == reserved && address >= mappings[i].address && address - mappings[i].address < mappings[i].size)
			return &mappings[i];
	return NULL;
}

static struct mapping *new_mapping(struct mapping m) {
	int i = 0;
	while (i < mapping_count && mappings[i].size)
		i++;
	if (i == max_things)
		return NULL;
	if (i == mapping_count)
		mapping_count++;
	mappings[i] = m;
	return &mappings[i];
}

// changes are the lines by which the interpreters learn of mappings (kernels.inc).
static char **changes;
static size_t change_count;

static void changed(const char *format, ...) {
	if (!getenv("MUSTER_FAKE_GPU_INTERPRETER"))
		return;
	va_list list;
	va_start(list, format);
	changes = realloc(changes, (change_count + 1) * sizeof *changes);
	if (!changes || vasprintf(&changes[change_count++], format, list) < 0)
		abort();
	va_end(list);
}

static void unshare_memory(struct physical *m);

static void drop(struct physical *m) {
	if (--m->refs)
		return;
	close(m->fd);
	for (struct physical **p = &all_memory; *p; p = &(*p)->next)
		if (*p == m) {
			*p = m->next;
			break;
		}
	unshare_memory(m);
	free(m);
}

static int memory_file(CUdevice device) {
	char name[32];
	snprintf(name, sizeof name, "fake-gpu-%d", device); // share.inc reads it
	return memfd_create(name, MFD_CLOEXEC);
}

static CUresult create(struct physical **out, CUdevice device, uint64_t size) {
	if (device < 0 || device >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!take(device, (int64_t)size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct physical *m = calloc(1, sizeof *m);
	*m = (struct physical){.fd = memory_file(device), .refs = 1, .device = device, .size = size, .next = all_memory};
	all_memory = m;
	if (m->fd < 0 || ftruncate(m->fd, (off_t)size)) {
		drop(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = m;
	return CUDA_SUCCESS;
}

// --- calls wait while the process is locked

static pthread_mutex_t calls_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t calls_changed = PTHREAD_COND_INITIALIZER;
static int calls, calls_wait;
static __thread int depth; // a call that makes another one is one call

static int enter_call(void) {
	if (depth++)
		return 0;
	pthread_mutex_lock(&calls_lock);
	while (calls_wait)
		pthread_cond_wait(&calls_changed, &calls_lock);
	calls++;
	pthread_mutex_unlock(&calls_lock);
	return 0;
}

static void leave_call(int *call) {
	(void)call;
	if (--depth)
		return;
	pthread_mutex_lock(&calls_lock);
	calls--;
	pthread_mutex_unlock(&calls_lock);
}

// CALL begins a function that waits while the process is locked.
#define CALL __attribute__((cleanup(leave_call))) int this_call = enter_call(); (void)this_call

// --- contexts: one a device, and each thread has a stack of them

struct CUctx_st {
	CUdevice device;
	int green;    // it is a part of a device
	int dead;     // it was destroyed, and all that was made in it
	void *holder; // of a green one, the thread to which it is current
};
static void serve_checkpoints(void);
static void destroy_all(CUdevice d);
static struct {
	CUcontext context; // NULL unless it is retained
	int retained;
	uint64_t bytes; // that the context takes
} primary[max_devices];
static __thread CUcontext current;
static __thread struct { CUcontext below[16]; int depth; } stack; // of the thread, without the current one

MUSTER_EXPORT CUresult cuInit(unsigned flags) {
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_once(&once, open_devices);
	return device_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
MUSTER_EXPORT CUresult cuDriverGetVersion(int *v) { return *v = number("MUSTER_FAKE_GPU_DRIVER", 570) < 580 ? 12080 : 13000, CUDA_SUCCESS; }
MUSTER_EXPORT CUresult cuDeviceGetCount(int *n) { return *n = device_count, CUDA_SUCCESS; }
MUSTER_EXPORT CUresult cuDeviceGetUuid(unsigned char *uuid, CUdevice d) {
	const char *id = getenv("MUSTER_FAKE_GPU_ID");
	memset(uuid, 0, 16);
	for (int i = 0; id && id[i] && i < 15; i++)
		uuid[i] = (unsigned char)id[i];
	uuid[15] = (unsigned char)d;
	return CUDA_SUCCESS;
}
MUSTER_EXPORT CUresult cuDeviceGet(CUdevice *d, int i) { return i < 0 || i >= device_count ? CUDA_ERROR_INVALID_DEVICE : (*d = i, CUDA_SUCCESS); }
MUSTER_EXPORT CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice d) { return d < 0 || d >= device_count ? CUDA_ERROR_INVALID_DEVICE : (*n = device_bytes, CUDA_SUCCESS); }
MUSTER_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
	if (d < 0 || d >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	uint64_t bytes = number("MUSTER_FAKE_GPU_CONTEXT_MIB", 0) << 20;
	pthread_mutex_lock(&lock);
	CUresult r = primary[d].context || take(d, (int64_t)bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	if (!r && !primary[d].context) {
		primary[d].bytes = bytes;
		primary[d].context = calloc(1, sizeof *primary[d].context); // never freed: who has an old one finds that it is dead
		primary[d].context->device = d;
	}
	primary[d].retained += !r;
	*c = primary[d].context;
	pthread_mutex_unlock(&lock);
	serve_checkpoints();
	return r;
}
// The last release destroys the context, and all that was made in it.
MUSTER_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
	if (d < 0 || d >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	CUresult r = primary[d].retained ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	int last = !r && !--primary[d].retained;
	pthread_mutex_unlock(&lock);
	if (!last)
		return r;
	destroy_all(d);
	pthread_mutex_lock(&lock);
	primary[d].context->dead = 1;
	primary[d].context = NULL;
	take(d, -(int64_t)primary[d].bytes);
	primary[d].bytes = 0;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}
MUSTER_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) {
	return d < 0 || d >= device_count ? CUDA_ERROR_INVALID_DEVICE : (*flags = 0, *active = primary[d].context != NULL, CUDA_SUCCESS);
}
// usable is the error of calls that need a context.
static CUresult usable(void) { return !current ? CUDA_ERROR_INVALID_CONTEXT : current->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS; }

// A green context is current to one thread at a time.
MUSTER_EXPORT CUresult cuCtxSetCurrent(CUcontext c) {
	static pthread_mutex_t holders = PTHREAD_MUTEX_INITIALIZER;
	if (c && c->dead)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	pthread_mutex_lock(&holders);
	int taken = c && c->green && c->holder && c->holder != &current;
	if (!taken && current && current->green)
		current->holder = NULL;
	if (!taken && c && c->green)
		c->holder = &current;
	if (!taken)
		current = c;
	pthread_mutex_unlock(&holders);
	return taken ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
MUSTER_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext c) {
	if (!c || stack.depth == 16)
		return CUDA_ERROR_INVALID_VALUE;
	if (c->dead)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	stack.below[stack.depth++] = current;
	current = c;
	return CUDA_SUCCESS;
}
MUSTER_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *c) {
	if (!current)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (c)
		*c = current;
	current = stack.depth ? stack.below[--stack.depth] : NULL;
	return CUDA_SUCCESS;
}
MUSTER_EXPORT CUresult cuCtxGetCurrent(CUcontext *c) { return *c = current, CUDA_SUCCESS; }
MUSTER_EXPORT CUresult cuCtxGetDevice(CUdevice *d) {
	CUresult r = usable();
	return r ? r : (*d = current->device, CUDA_SUCCESS);
}
MUSTER_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
	if (usable())
		return usable();
	if (slots_fd >= 0)
		flock(slots_fd, LOCK_EX);
	uint64_t n = used(placed[current->device]);
	if (slots_fd >= 0)
		flock(slots_fd, LOCK_UN);
	if (free_bytes)
		*free_bytes = device_bytes - n;
	if (total)
		*total = device_bytes;
	return CUDA_SUCCESS;
}

// --- virtual memory

MUSTER_EXPORT CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop, int option) {
	(void)option;
	return !prop || prop->type != 1 ? CUDA_ERROR_INVALID_VALUE : (*out = granularity, CUDA_SUCCESS);
}

static int nowhere(uint64_t address, uint64_t size, int fixed) {
	return mmap((void *)address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0) == (void *)address;
}

MUSTER_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr hint, uint64_t flags) {
	if (!out || !size || size % granularity || flags || alignment > granularity)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t at = hint;
	// The hint is a wish: where it is taken, any address will do.
	if (!at || !nowhere(at, size, MAP_FIXED_NOREPLACE)) {
		char *p = mmap(NULL, size + granularity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p == MAP_FAILED)
			return CUDA_ERROR_OUT_OF_MEMORY;
		at = ((uint64_t)p + granularity - 1) / granularity * granularity;
	}
	pthread_mutex_lock(&lock);
	int kept = new_mapping((struct mapping){.address = at, .size = size}) != NULL;
	pthread_mutex_unlock(&lock);
	*out = at;
	return kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

MUSTER_EXPORT CUresult cuMemAddressFree(CUdeviceptr at, size_t size) {
	pthread_mutex_lock(&lock);
	struct mapping *m = find(at, 1);
	int good = m && m->address == at && m->size == size && !munmap((void *)at, size);
	if (good)
		*m = (struct mapping){0};
	pthread_mutex_unlock(&lock);
	return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

MUSTER_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t size, const CUmemAllocationProp *prop, uint64_t flags) {
	CALL;
	if (!h || !size || size % granularity || flags || !prop || prop->type != 1 || prop->location.type != 1)
		return CUDA_ERROR_INVALID_VALUE;
	struct physical *m = NULL;
	pthread_mutex_lock(&lock);
	CUresult r = create(&m, prop->location.id, size);
	if (!r)
		m->exportable = prop->requestedHandleTypes & MEM_HANDLE_FD;
	pthread_mutex_unlock(&lock);
	*h = (uint64_t)m;
	return r;
}

MUSTER_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
	CALL;
	if (!h)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	drop((struct physical *)h);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

#include "share.inc"

// map_at places memory at the address; without access until cuMemSetAccess.
static CUresult map_at(uint64_t address, uint64_t size, struct physical *m, int protection, int plain) {
	if (mmap((void *)address, size, protection, MAP_SHARED | MAP_FIXED, m->fd, 0) == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!new_mapping((struct mapping){address, size, m, plain, protection}))
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->refs++;
	changed("map %llu %llu %d\n", (unsigned long long)address, (unsigned long long)size, m->fd);
	return CUDA_SUCCESS;
}

MUSTER_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle h, uint64_t flags) {
	CALL;
	struct physical *m = (struct physical *)h;
	if (!m || offset || flags || size != m->size || address % granularity)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	struct mapping *whole = find(address, 1);
	CUresult r = CUDA_ERROR_INVALID_VALUE; // not reserved, or mapped already
	if (at_fault(fault_map))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	else if (whole && address + size <= whole->address + whole->size && !find(address, 0) && !find(address + size - 1, 0))
		r = map_at(address, size, m, PROT_NONE, 0);
	pthread_mutex_unlock(&lock);
	return r;
}

MUSTER_EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count) {
	CALL;
	pthread_mutex_lock(&lock);
	struct mapping *m = find(address, 0);
	int good = m && m->address == address && m->size == size && count == 1 && access->location.id == m->memory->device;
	if (good) {
		m->protection = access->flags == 3 ? PROT_READ | PROT_WRITE : PROT_NONE;
		mprotect((void *)address, size, m->protection);
	}
	pthread_mutex_unlock(&lock);
	return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult unmap_at(uint64_t address, uint64_t size, int plain) {
	struct mapping *m = find(address, 0);
	if (!m || m->address != address || (size && m->size != size) || m->plain != plain)
		return CUDA_ERROR_INVALID_VALUE;
	if (plain)
		munmap((void *)address, m->size);
	else if (!nowhere(address, m->size, MAP_FIXED))
		return CUDA_ERROR_OUT_OF_MEMORY;
	changed("unmap %llu\n", (unsigned long long)address);
	drop(m->memory);
	*m = (struct mapping){0};
	return CUDA_SUCCESS;
}

MUSTER_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
	CALL;
	pthread_mutex_lock(&lock);
	CUresult r = unmap_at(address, size, 0);
	pthread_mutex_unlock(&lock);
	return r;
}

// --- plain memory

// The interpreter has windows of its own at the top of the address space, where
// the kernel would place memory: it is placed far below.
static void *place(uint64_t size) {
	static uint64_t next = 0x100000000000;
	for (; next < 0x400000000000; next += size)
		if (nowhere(next, size, MAP_FIXED_NOREPLACE))
			return next += size, (void *)(next - size);
	return MAP_FAILED;
}

MUSTER_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size) {
	CALL;
	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (usable())
		return usable();
	size = (size + granularity - 1) / granularity * granularity;
	pthread_mutex_lock(&lock);
	struct physical *m = NULL;
	CUresult r = create(&m, current->device, size);
	if (!r) {
		void *at = place(size);
		r = at == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : map_at((uint64_t)at, size, m, PROT_READ | PROT_WRITE, 1);
		drop(m);
		*out = (uint64_t)at;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

MUSTER_EXPORT CUresult cuCtxSynchronize(void);
MUSTER_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
	CALL;
	CUresult r = cuCtxSynchronize();
	pthread_mutex_lock(&lock);
	if (!r)
		r = unmap_at(address, 0, 1);
	pthread_mutex_unlock(&lock);
	return r;
}

MUSTER_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
	pthread_mutex_lock(&lock);
	struct mapping *m = find(address, 0);
	if (m && base)
		*base = m->address;
	if (m && size)
		*size = m->size;
	pthread_mutex_unlock(&lock);
	return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

MUSTER_EXPORT CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr address) {
	pthread_mutex_lock(&lock);
	struct mapping *m = attribute == 9 ? find(address, 0) : NULL; // the ordinal of the device
	if (m)
		*(int *)out = m->memory->device;
	pthread_mutex_unlock(&lock);
	return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Registered host memory, until its context is destroyed.
static struct { void *at; CUdevice device; } registered[256];

static CUresult set_registered(void *from, void *to) {
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < 256 && to; i++)
		if (registered[i].at == to) // twice
			from = (void *)1;
	for (int i = 0; i < 256 && r; i++)
		if (registered[i].at == from) {
			registered[i].at = to;
			registered[i].device = to ? current->device : 0;
			r = CUDA_SUCCESS;
		}
	pthread_mutex_unlock(&lock);
	return r;
}
MUSTER_EXPORT CUresult cuMemHostRegister_v2(void *at, size_t size, unsigned flags) { return (void)flags, usable() ? usable() : at && size ? set_registered(NULL, at) : CUDA_ERROR_INVALID_VALUE; }
MUSTER_EXPORT CUresult cuMemHostUnregister(void *at) { return at ? set_registered(at, NULL) : CUDA_ERROR_INVALID_VALUE; }
MUSTER_EXPORT CUresult cuMemHostAlloc(void **at, size_t size, unsigned flags) { return (void)flags, usable() ? usable() : (*at = malloc(size)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY; }
MUSTER_EXPORT CUresult cuMemFreeHost(void *at) { return free(at), at ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

// --- streams

enum { max_arguments = 8, max_queue = 1024, highest = -5 };
struct work {
	void (*run)(const uint64_t *a);
	uint64_t arguments[max_arguments];
};
struct CUstream_st {
	struct work queue[max_queue];
	uint64_t put, taken, ended;
	int alive, closing, priority;
	unsigned flags;
	CUdevice device;
	CUgraph captured; // what is submitted goes there (graphs.inc)
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	struct CUstream_st *next;
};
static struct CUstream_st *streams; // all of them
static CUstream default_stream[max_devices];
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;

// broken is the error of a kernel that failed: from then on the device's calls return it, and its streams do nothing.
static _Atomic CUresult broken[max_devices];
static __thread CUstream served; // by this thread

static void *serve(void *shared) {
	CUstream s = served = shared;
	pthread_mutex_lock(&s->lock);
	for (;;) {
		while (s->taken == s->put && !s->closing)
			pthread_cond_wait(&s->changed, &s->lock);
		if (s->taken == s->put)
			break;
		struct work w = s->queue[s->taken++ % max_queue];
		pthread_mutex_unlock(&s->lock);
		if (!broken[s->device])
			w.run(w.arguments);
		pthread_mutex_lock(&s->lock);
		s->ended++;
		pthread_cond_broadcast(&s->changed);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

MUSTER_EXPORT CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
	if (usable())
		return usable();
	pthread_mutex_lock(&streams_lock);
	CUstream s = streams;
	while (s && s->alive)
		s = s->next;
	if (!s) { // the memory of a stream is used again, and never freed
		s = calloc(1, sizeof *s);
		pthread_mutex_init(&s->lock, NULL);
		pthread_cond_init(&s->changed, NULL);
		s->next = streams;
		streams = s;
	}
	s->put = s->taken = s->ended = 0;
	s->closing = 0;
	s->flags = flags;
	s->device = current->device;
	s->priority = priority < highest ? highest : priority > 0 ? 0 : priority;
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	s->alive = !pthread_create(&s->thread, NULL, serve, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_mutex_unlock(&streams_lock);
	*out = s;
	return s->alive ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

MUSTER_EXPORT CUresult cuStreamCreate(CUstream *out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }
MUSTER_EXPORT CUresult cuStreamGetPriority(CUstream s, int *out) { return s && s->alive ? (*out = s->priority, CUDA_SUCCESS) : CUDA_ERROR_INVALID_HANDLE; }
MUSTER_EXPORT CUresult cuStreamGetFlags(CUstream s, unsigned *out) { return s && s->alive ? (*out = s->flags, CUDA_SUCCESS) : CUDA_ERROR_INVALID_HANDLE; }
MUSTER_EXPORT CUresult cuStreamGetCtx(CUstream s, CUcontext *out) { return !s || !s->alive ? CUDA_ERROR_INVALID_HANDLE : (*out = primary[s->device].context, CUDA_SUCCESS); }

static CUresult stream_of(CUstream *s) {
	if (*s)
		return (*s)->alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	if (usable())
		return usable();
	if (!default_stream[current->device]) {
		CUresult r = cuStreamCreate(&default_stream[current->device], 0);
		if (r)
			return r;
	}
	*s = default_stream[current->device];
	return CUDA_SUCCESS;
}

MUSTER_EXPORT CUresult cuStreamSynchronize(CUstream s) {
	CALL;
	CUresult r = stream_of(&s);
	if (r)
		return r;
	if (s->captured)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&s->lock);
	uint64_t until = s->put;
	while (s->ended < until)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
	return broken[s->device];
}

MUSTER_EXPORT CUresult cuStreamQuery(CUstream s) {
	CUresult r = stream_of(&s);
	if (r)
		return r;
	pthread_mutex_lock(&s->lock);
	int ended = s->ended == s->put;
	pthread_mutex_unlock(&s->lock);
	return broken[s->device] ? broken[s->device] : ended ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

MUSTER_EXPORT CUresult cuStreamIsCapturing(CUstream s, int *status) { return *status = s && s->captured, CUDA_SUCCESS; }

MUSTER_EXPORT CUresult cuCtxSynchronize(void) {
	CALL;
	if (usable())
		return usable();
	pthread_mutex_lock(&streams_lock);
	CUstream all = streams; // streams are added at the front and never freed before the process ends
	pthread_mutex_unlock(&streams_lock);
	for (CUstream s = all; s; s = s->next)
		if (s->alive && s->device == current->device)
			cuStreamSynchronize(s);
	return broken[current->device];
}

MUSTER_EXPORT CUresult cuStreamDestroy_v2(CUstream s) {
	if (!s || !s->alive)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&s->lock);
	s->closing = 1;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	pthread_mutex_lock(&streams_lock);
	s->alive = 0;
	pthread_mutex_unlock(&streams_lock);
	return CUDA_SUCCESS;
}

static CUresult capture(CUgraph g, struct work w);

static CUresult submit(CUstream s, struct work w) {
	CALL;
	CUresult r = stream_of(&s);
	if (r || (r = broken[s->device]))
		return r;
	if (s->captured)
		return capture(s->captured, w);
	pthread_mutex_lock(&s->lock);
	while (s->put - s->ended == max_queue)
		pthread_cond_wait(&s->changed, &s->lock);
	s->queue[s->put++ % max_queue] = w;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return CUDA_SUCCESS;
}

static CUresult submit_and_wait(struct work w) {
	CUresult r = submit(NULL, w);
	return r ? r : cuStreamSynchronize(NULL);
}

static void copy(const uint64_t *a) { memmove((void *)a[0], (const void *)a[1], a[2]); }
static void set8(const uint64_t *a) { memset((void *)a[0], (int)a[1], a[2]); }
static void set32(const uint64_t *a) {
	for (uint64_t i = 0; i < a[2]; i++)
		((uint32_t *)a[0])[i] = (uint32_t)a[1];
}
static void call(const uint64_t *a) { ((void (*)(void *))a[0])((void *)a[1]); }

#define COPY(to, from, n) ((struct work){copy, {(uint64_t)(to), (uint64_t)(from), (n)}})
MUSTER_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n) { return submit_and_wait(COPY(to, from, n)); }
MUSTER_EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n) { return submit_and_wait(COPY(to, from, n)); }
MUSTER_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t n) { return submit_and_wait(COPY(to, from, n)); }
MUSTER_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream s) { return submit(s, COPY(to, from, n)); }
MUSTER_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream s) { return submit(s, COPY(to, from, n)); }
MUSTER_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) { return submit(s, COPY(to, from, n)); }
MUSTER_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char v, size_t n) { return submit_and_wait((struct work){set8, {to, v, n}}); }
MUSTER_EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char v, size_t n, CUstream s) { return submit(s, (struct work){set8, {to, v, n}}); }
MUSTER_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned v, size_t n) { return submit_and_wait((struct work){set32, {to, v, n}}); }
MUSTER_EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned v, size_t n, CUstream s) { return submit(s, (struct work){set32, {to, v, n}}); }
struct callback {
	void (*f)(CUstream, CUresult, void *);
	void *data;
	CUstream stream;
};
static void call_back(const uint64_t *a) {
	struct callback *c = (struct callback *)a[0];
	c->f(c->stream, CUDA_SUCCESS, c->data);
	free(c);
}
MUSTER_EXPORT CUresult cuStreamAddCallback(CUstream s, void (*f)(CUstream, CUresult, void *), void *data, unsigned flags) {
	struct callback *c = malloc(sizeof *c);
	*c = (struct callback){f, data, s};
	return flags ? CUDA_ERROR_INVALID_VALUE : submit(s, (struct work){call_back, {(uint64_t)c}});
}
MUSTER_EXPORT CUresult cuLaunchHostFunc(CUstream s, void (*f)(void *), void *data) { return submit(s, (struct work){call, {(uint64_t)f, (uint64_t)data}}); }

// --- kernels

// step(state, words, seed): one step of something that depends on every bit of the state.
static void step(const uint64_t *a) {
	uint64_t *state = (uint64_t *)a[0];
	uint64_t carry = a[2];
	for (uint64_t i = 0; i < a[1]; i++) {
		carry = (carry ^ state[i]) * 0xff51afd7ed558ccdull + i;
		state[i] = carry ^ carry >> 29;
	}
}

// meet(flags, rank, ranks, round): a collective. It ends when the kernel has begun
// its round on every rank; flags is host memory that the ranks share.
static void meet(const uint64_t *a) {
	uint64_t *flags = (uint64_t *)a[0];
	__atomic_store_n(&flags[a[1]], a[3], __ATOMIC_SEQ_CST);
	for (uint64_t i = 0; i < a[2]; i++)
		while (__atomic_load_n(&flags[i], __ATOMIC_SEQ_CST) < a[3])
			usleep(100);
}

// count(state, words, seed): changes the variable "counter" of its module, and the first word by it.
static void count(const uint64_t *a) {
	uint64_t *state = (uint64_t *)a[0], *counter = (uint64_t *)a[3];
	*counter = *counter * 0xff51afd7ed558ccdull + a[2];
	state[0] ^= *counter;
}

static const struct builtin {
	const char *name;
	void (*run)(const uint64_t *);
	int arguments;
	const char *variable; // whose address is one more argument
} kernels[] = {{"step", step, 3, NULL}, {"meet", meet, 4, NULL}, {"count", count, 3, "counter"}};

#include "events.inc"
#include "modules.inc"
#include "kernels.inc"

MUSTER_EXPORT CUresult cuModuleLoadData(CUmodule *m, const void *image) { return load(m, image, NULL, 0); }
MUSTER_EXPORT CUresult cuModuleLoad(CUmodule *m, const char *path) {
	char image[65536] = {0};
	FILE *f = fopen(path, "re");
	if (!f || fread(image, 1, sizeof image - 1, f) == 0)
		return CUDA_ERROR_FILE_NOT_FOUND;
	fclose(f);
	return load(m, image, NULL, 0);
}
MUSTER_EXPORT CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
	if (!m || !m->alive)
		return CUDA_ERROR_INVALID_HANDLE;
	for (CUfunction known = m->functions; known; known = known->next)
		if (!strcmp(known->name, name))
			return *f = known, CUDA_SUCCESS;
	if (getenv("MUSTER_FAKE_GPU_INTERPRETER"))
		return find_kernel(f, m, name);
	for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
		if (!strcmp(kernels[i].name, name))
			return *f = new_function(m, name, &kernels[i]), CUDA_SUCCESS;
	return CUDA_ERROR_NOT_FOUND;
}

MUSTER_EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s, void **arguments, void **extra) {
	if (!f || !gx || !gy || !gz || !bx || !by || !bz)
		return CUDA_ERROR_INVALID_VALUE;
	if (!f->module)
		return CUDA_ERROR_INVALID_HANDLE;
	if (shared > (unsigned)f->shared)
		return CUDA_ERROR_INVALID_VALUE;
	if (!f->builtin)
		return launch(f, (unsigned[]){gx, gy, gz, bx, by, bz, shared}, s, extra);
	if (!arguments || extra)
		return CUDA_ERROR_INVALID_VALUE;
	struct work w = {.run = f->builtin->run};
	for (int i = 0; i < f->builtin->arguments; i++)
		w.arguments[i] = *(uint64_t *)arguments[i];
	if (f->builtin->variable) {
		size_t bytes;
		CUresult r = cuModuleGetGlobal_v2(&w.arguments[f->builtin->arguments], &bytes, f->module, f->builtin->variable);
		if (r)
			return r;
	}
	return submit(s, w);
}

// destroy_all destroys what was made in the context of a device.
static void destroy_all(CUdevice d) {
	default_stream[d] = NULL;
	pthread_mutex_lock(&streams_lock);
	CUstream all = streams;
	pthread_mutex_unlock(&streams_lock);
	for (CUstream s = all; s; s = s->next)
		if (s->alive && s->device == d)
			cuStreamDestroy_v2(s);
	for (CUevent e = events; e; e = e->next)
		if (e->device == d)
			e->alive = 0;
	for (CUmodule m = modules; m; m = m->next)
		if (m->alive && m->device == d)
			cuModuleUnload(m);
	pthread_mutex_lock(&lock);
	for (int i = 0; i < mapping_count; i++)
		if (mappings[i].size && mappings[i].plain && mappings[i].memory && mappings[i].memory->device == d)
			unmap_at(mappings[i].address, 0, 1);
	for (int i = 0; i < 256; i++)
		if (registered[i].device == d)
			registered[i].at = NULL;
	pthread_mutex_unlock(&lock);
}

// Functions of which no library knows what they do.
MUSTER_EXPORT CUresult cuGetExportTable(const void **table, const void *id) { return (void)id, *table = NULL, CUDA_ERROR_NOT_FOUND; }
MUSTER_EXPORT CUresult cuOfALaterDriver(int *out) { return *out = 42, CUDA_SUCCESS; }

#include "graphs.inc"
#include "checkpoint.inc"

// --- names

MUSTER_EXPORT CUresult cuGetErrorName(CUresult r, const char **out) {
	*out = r == CUDA_SUCCESS ? "CUDA_SUCCESS" : r == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : r == CUDA_ERROR_LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : r == CUDA_ERROR_INVALID_PTX ? "CUDA_ERROR_INVALID_PTX" : "CUDA_ERROR_UNKNOWN";
	return CUDA_SUCCESS;
}

MUSTER_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status);

MUSTER_EXPORT CUresult cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags) {
	return cuGetProcAddress_v2(symbol, out, version, flags, NULL);
}

// As the real driver: the plain name gives the version that the caller was built for.
MUSTER_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status) {
	(void)version, (void)flags;
	static void *self;
	Dl_info info;
	if (!self && dladdr((void *)cuGetProcAddress_v2, &info))
		self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	char name[128];
	snprintf(name, sizeof name, "%s_v2", symbol);
	*out = dlsym(self, name);
	if (!*out)
		*out = dlsym(self, symbol);
	if (status)
		*status = *out ? 0 : 1;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
