// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

#define _GNU_SOURCE
#include "ghost.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../shim/data.h"
#include "../shim/hand.h"

extern char **environ;

// REAL lists what a ghost calls.
#define REAL(X) \
	X(cuDeviceGetCount, (int *)) \
	X(cuDeviceGetUuid, (unsigned char *, CUdevice)) \
	X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
	X(cuCtxSetCurrent, (CUcontext)) \
	X(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle *, void *, int)) \
	X(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, uint64_t)) \
	X(cuMemAddressFree, (CUdeviceptr, size_t)) \
	X(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, uint64_t)) \
	X(cuMemUnmap, (CUdeviceptr, size_t)) \
	X(cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)) \
	X(cuMemRelease, (CUmemGenericAllocationHandle)) \
	X(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t)) \
	X(cuMemHostRegister_v2, (void *, size_t, unsigned))

static struct {
#define X(name, args) CUresult (*name) args;
	REAL(X)
#undef X
} real;
static int complete; // the driver has all of them

enum { milliseconds = 30000 }; // for which the other side may stay silent
enum { most_gpus = 64 };

// Memory that was handed over.
struct held {
	struct hand_block block;
	CUmemGenericAllocationHandle handle;
	CUdevice device;
	CUdeviceptr at; // while it is copied
};

struct ghost {
	int pid, process, listener, keeper; // process: a descriptor of it; keeper: a socket
	ino_t socket;                       // of the file of the listener
	struct page *page;
	uid_t user;
	gid_t group;
	char page_path[PATH_MAX], data_path[PATH_MAX], temporary[PATH_MAX], socket_path[PATH_MAX];
	pthread_mutex_t lock; // guards what follows
	pthread_cond_t changed;
	struct held *held;
	uint64_t count, size; // size: of PID.data
	struct data_entry *ranges;
	uint64_t range_count;
	int copying, giving, stop; // stop: the process takes the memory back, and the copy ends
	int served, gone;          // served: the process handed over; gone: it has ended
	struct ghost *next;
};
static struct ghost *ghosts;
static _Atomic int ending; // no copy is made any more
static pthread_mutex_t all = PTHREAD_MUTEX_INITIALIZER; // guards ghosts

void ghost_open(void *h) {
	complete = 1;
#define X(name, args) complete &= (*(void **)&real.name = dlsym(h, #name)) != NULL;
	REAL(X)
#undef X
	struct rlimit files;
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

// open_page maps the control page of the process; 0: there is none of it.
static int open_page(struct ghost *g, const char *folder, int pid) {
	struct stat st;
	g->pid = pid;
	snprintf(g->page_path, PATH_MAX, "%s/%d.page", folder, pid);
	snprintf(g->data_path, PATH_MAX, "%s/%d.data", folder, pid);
	snprintf(g->temporary, PATH_MAX, "%s/%d.data.tmp", folder, pid);
	snprintf(g->socket_path, PATH_MAX, "%s/%d.ghost", folder, pid);
	int fd = open(g->page_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	void *m = MAP_FAILED;
	if (fd >= 0 && !fstat(fd, &st) && st.st_size >= PAGE_SIZE)
		m = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	g->process = (int)syscall(SYS_pidfd_open, pid, 0);
	if (m == MAP_FAILED || g->process < 0)
		return 0;
	g->page = m, g->user = st.st_uid, g->group = st.st_gid;
	return g->page->magic == PAGE_MAGIC && g->page->pid == (uint32_t)pid;
}

static void forget(struct ghost *g) {
	for (uint64_t i = 0; i < g->count; i++) {
		if (g->held[i].handle)
			real.cuMemRelease(g->held[i].handle);
		close(g->held[i].block.fd);
	}
	free(g->held);
	free(g->ranges);
	g->held = NULL, g->ranges = NULL, g->count = 0, g->range_count = 0;
}

// drop lets go of the memory, here and at the keeper.
static void drop(struct ghost *g) {
	forget(g);
	if (g->keeper >= 0)
		hand_tell(g->keeper, HAND_DROP, 0);
	pthread_cond_broadcast(&g->changed);
}

// grow makes room for more elements in an array; 0: there is too little memory.
static int grow(void **array, uint64_t count, uint64_t more, size_t element) {
	void *grown = realloc(*array, (count + more) * element);
	if (grown)
		*array = grown;
	return grown != NULL;
}

// add keeps the blocks of a message; 0: there is too little memory, and they are closed.
static int add(struct ghost *g, const struct hand_message *m) {
	int room = grow((void **)&g->held, g->count, m->count, sizeof *g->held);
	for (uint32_t i = 0; i < m->count; i++)
		if (room)
			g->held[g->count++] = (struct held){.block = m->block[i]};
		else
			close(m->block[i].fd);
	return room;
}

// device_of finds the GPU. A process that was restored on another one may not know its ID: where there is one GPU, it is that.
static CUresult device_of(const unsigned char *gpu, CUdevice *out) {
	unsigned char id[16];
	int n = 0;
	CUresult r = real.cuDeviceGetCount(&n);
	for (*out = 0; !r && *out < n; ++*out)
		if (!(r = real.cuDeviceGetUuid(id, *out)) && !memcmp(id, gpu, sizeof id))
			return CUDA_SUCCESS;
	*out = 0;
	return r ? r : n == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// import makes what was handed over this process's, too. A descriptor that is none of memory fails here.
static uint32_t import(struct ghost *g, uint64_t from) {
	CUresult r = CUDA_SUCCESS;
	for (uint64_t i = from; i < g->count && !r; i++) {
		struct held *h = &g->held[i];
		r = device_of(h->block.gpu, &h->device);
		if (!r && (r = real.cuMemImportFromShareableHandle(&h->handle, (void *)(intptr_t)h->block.fd, MEM_HANDLE_FD)))
			h->handle = 0;
	}
	return (uint32_t)r;
}

// take_over takes the blocks of a message over, and tells the keeper.
static uint32_t take_over(struct ghost *g, const struct hand_message *m) {
	uint64_t before = g->count;
	return !add(g, m) ? CUDA_ERROR_OUT_OF_MEMORY : !hand_send(g->keeper, m) ? RESULT_GHOST : import(g, before);
}

static uint32_t add_ranges(struct ghost *g, const struct hand_message *m) {
	if (!grow((void **)&g->ranges, g->range_count, m->count, sizeof *g->ranges))
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(g->ranges + g->range_count, m->range, m->count * sizeof *g->ranges);
	g->range_count += m->count;
	return 0;
}

// receive receives what the process hands over, all of it also after an error. At 0 the keeper has it, too.
static uint32_t receive(struct ghost *g, int from) {
	struct hand_message m;
	uint32_t r = 0;
	while (hand_receive(from, &m, milliseconds)) {
		if (m.kind == HAND_END) {
			int kept = m.value == g->count && hand_send(g->keeper, &m) && hand_receive(g->keeper, &m, milliseconds) && m.kind == HAND_HAVE;
			return r ? r : kept ? 0 : RESULT_GHOST;
		}
		if (!r)
			r = m.kind == HAND_BLOCKS ? take_over(g, &m) : m.kind == HAND_RANGES ? add_ranges(g, &m) : RESULT_GHOST;
		else
			for (uint32_t i = 0; m.kind == HAND_BLOCKS && i < m.count; i++)
				close(m.block[i].fd);
	}
	return RESULT_GHOST;
}

// give_back sends all blocks to the process; 0: it does not say that it has them.
static int give_back(const struct ghost *g, int to) {
	struct hand_message m;
	for (uint64_t sent = 0; sent < g->count; sent += m.count) {
		m.kind = HAND_BLOCKS;
		for (m.count = 0; m.count < hand_most && sent + m.count < g->count; m.count++)
			m.block[m.count] = g->held[sent + m.count].block;
		if (!hand_send(to, &m))
			return 0;
	}
	// It may take long: the driver lets the process wait while it is locked.
	return hand_tell(to, HAND_END, g->count) && hand_receive(to, &m, -1) && m.kind == HAND_HAVE;
}

// answer serves one connection of the process.
static void answer(struct ghost *g, int to) {
	struct hand_message m;
	if (!hand_receive(to, &m, milliseconds))
		return;
	pthread_mutex_lock(&g->lock);
	g->stop = m.kind == HAND_TAKE;
	while (g->copying)
		pthread_cond_wait(&g->changed, &g->lock);
	if (m.kind == HAND_GIVE && complete) {
		drop(g);
		g->size = m.value;
		uint32_t r = receive(g, to);
		g->served |= !r;
		if (r)
			drop(g);
		hand_tell(to, r ? HAND_NO : HAND_HAVE, r);
	} else if (m.kind == HAND_TAKE && g->count) {
		g->giving = 1;
		pthread_mutex_unlock(&g->lock);
		int taken = give_back(g, to);
		pthread_mutex_lock(&g->lock);
		g->giving = 0;
		if (taken)
			drop(g);
	} else {
		hand_tell(to, HAND_NO, m.kind == HAND_TAKE ? RESULT_LOST : CUDA_ERROR_NOT_SUPPORTED);
	}
	g->stop = 0;
	pthread_mutex_unlock(&g->lock);
}

// next accepts a connection of the process; -1: none came in time, or it has ended.
static int next(struct ghost *g, int limit) {
	struct pollfd on[] = {{.fd = g->process, .events = POLLIN}, {.fd = g->listener, .events = POLLIN}};
	poll(on, 2, limit);
	g->gone = on[0].revents != 0;
	int c = on[1].revents && !g->gone ? accept4(g->listener, NULL, NULL, SOCK_CLOEXEC) : -1;
	struct ucred who;
	socklen_t size = sizeof who;
	if (c >= 0 && (getsockopt(c, SOL_SOCKET, SO_PEERCRED, &who, &size) || who.pid != g->pid)) {
		close(c);
		c = -1;
	}
	return c;
}

static void *serve(void *shared) {
	struct ghost *g = shared;
	while (!g->gone) {
		int c = next(g, -1);
		if (c >= 0) {
			answer(g, c);
			close(c);
		}
	}
	pthread_mutex_lock(&g->lock);
	g->stop = 1;
	while (g->copying)
		pthread_cond_wait(&g->changed, &g->lock);
	drop(g);
	pthread_mutex_unlock(&g->lock);
	return NULL;
}

// spawn_keeper starts the keeper, which has the listener, too; 0: errno says why not.
static int spawn_keeper(struct ghost *g, const char *folder) {
	int pair[2], to = -1;
	char number[16];
	pid_t pid;
	posix_spawn_file_actions_t files;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return 0;
	snprintf(number, sizeof number, "%d", g->pid);
	int theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, 10), listener = fcntl(g->listener, F_DUPFD_CLOEXEC, 10);
	posix_spawn_file_actions_init(&files);
	for (int i = 0; i < 3; i++) // who waits for the end of this process's output does not wait for the keeper's
		posix_spawn_file_actions_addopen(&files, i, "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_adddup2(&files, theirs, 3);
	posix_spawn_file_actions_adddup2(&files, listener, 4);
	char *arguments[] = {"muster-gpu-call", "--keep", (char *)folder, number, NULL};
	int r = posix_spawn(&pid, "/proc/self/exe", &files, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&files);
	close(theirs), close(listener), close(pair[1]);
	if (r)
		close(pair[0]), errno = r;
	else
		to = pair[0];
	g->keeper = to;
	return !r;
}

static struct ghost *find(int pid) {
	pthread_mutex_lock(&all);
	struct ghost *g = ghosts;
	while (g && (g->pid != pid || g->gone))
		g = g->next;
	pthread_mutex_unlock(&all);
	return g;
}

// keep_again replaces a keeper that has ended, unless that is needed as it is.
static uint32_t keep_again(struct ghost *g, const char *folder, int *errnum) {
	struct pollfd end = {.fd = g->keeper};
	uint32_t r = 0;
	pthread_mutex_lock(&g->lock);
	if (!g->count && poll(&end, 1, 0) > 0) {
		close(g->keeper);
		g->keeper = -1;
		if (!spawn_keeper(g, folder))
			r = RESULT_FILE, *errnum = errno;
	}
	pthread_mutex_unlock(&g->lock);
	return r;
}

uint32_t ghost_wait(const char *folder, int pid, int *errnum) {
	struct stat st;
	pthread_t thread;
	if (!complete)
		return CUDA_ERROR_NOT_SUPPORTED;
	struct ghost *g = find(pid);
	if (g)
		return keep_again(g, folder, errnum);
	g = calloc(1, sizeof *g);
	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->changed, NULL);
	g->listener = g->keeper = -1;
	int made = open_page(g, folder, pid);
	made = made && (g->listener = hand_listen(g->socket_path)) >= 0 && !lstat(g->socket_path, &st) && spawn_keeper(g, folder) && !pthread_create(&thread, NULL, serve, g);
	if (!made) {
		*errnum = errno;
		close(g->keeper), close(g->listener), close(g->process);
		free(g);
		return RESULT_FILE;
	}
	pthread_detach(thread);
	g->socket = st.st_ino;
	pthread_mutex_lock(&all);
	g->next = ghosts, ghosts = g;
	pthread_mutex_unlock(&all);
	return 0;
}

// --- the copy

static CUresult use(CUdevice device) {
	static CUcontext contexts[most_gpus];
	CUresult r = device >= most_gpus ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
	pthread_mutex_lock(&all);
	if (!r && !contexts[device])
		r = real.cuDevicePrimaryCtxRetain(&contexts[device], device);
	pthread_mutex_unlock(&all);
	return r ? r : real.cuCtxSetCurrent(contexts[device]);
}

// show maps a block, anywhere; hide ends that.
static CUresult show(struct held *h) {
	CUmemAccessDesc access = {.location = {1, h->device}, .flags = 3};
	CUresult r = use(h->device);
	if (!r)
		r = real.cuMemAddressReserve(&h->at, h->block.size, 0, 0, 0);
	if (r)
		return h->at = 0, r;
	if (!(r = real.cuMemMap(h->at, h->block.size, 0, h->handle, 0))) {
		if (!(r = real.cuMemSetAccess(h->at, h->block.size, &access, 1)))
			return r;
		real.cuMemUnmap(h->at, h->block.size);
	}
	real.cuMemAddressFree(h->at, h->block.size);
	return h->at = 0, r;
}

static void hide(struct held *h) {
	if (h->at && !real.cuMemUnmap(h->at, h->block.size))
		real.cuMemAddressFree(h->at, h->block.size);
	h->at = 0;
}

// read_range copies from the GPU for data_write.
static CUresult read_range(void *context, const struct data_entry *e, uint64_t from, void *to, uint64_t size) {
	struct ghost *g = context;
	pthread_mutex_lock(&g->lock);
	int stop = g->stop;
	pthread_mutex_unlock(&g->lock);
	if (stop || ending)
		return RESULT_CANCELLED;
	for (uint64_t i = 0; i < g->count; i++) {
		struct held *h = &g->held[i];
		if (e->address < h->block.address || e->address - h->block.address >= h->block.size)
			continue;
		if (e->size > h->block.address + h->block.size - e->address)
			break;
		CUresult r = from ? CUDA_SUCCESS : use(h->device);
		return r ? r : real.cuMemcpyDtoH_v2(to, h->at + (e->address - h->block.address) + from, size);
	}
	return RESULT_CORRUPT;
}

static uint32_t write_file(struct ghost *g, int *errnum) {
	char *staging[2] = {NULL, NULL};
	CUresult r = g->count ? use(g->held[0].device) : CUDA_SUCCESS;
	if (!r && !data_staging(staging, real.cuMemHostRegister_v2))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	for (uint64_t i = 0; i < g->count && !r; i++)
		r = show(&g->held[i]);
	int fd = r ? -1 : data_create(g->temporary, O_WRONLY);
	if (!r) {
		r = fd < 0 || (g->user != geteuid() && fchown(fd, g->user, g->group)) ? RESULT_FILE : (CUresult)data_write(fd, g->ranges, g->range_count, g->size, staging, read_range, g);
		*errnum = errno;
	}
	if (fd >= 0 && close(fd) && !r)
		r = RESULT_FILE, *errnum = errno;
	for (uint64_t i = 0; i < g->count; i++)
		hide(&g->held[i]);
	for (int i = 0; i < 2; i++)
		if (staging[i])
			munmap(staging[i], staging_size);
	return (uint32_t)r;
}

uint32_t ghost_copy(int pid, int *errnum) {
	struct ghost *g = find(pid);
	if (!g)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&g->lock);
	int has = g->count && !g->giving && !g->copying && !g->stop && atomic_load(&g->page->state) == STATE_HANDED;
	g->copying |= has;
	pthread_mutex_unlock(&g->lock);
	if (!has)
		return RESULT_CANCELLED;
	uint32_t r = write_file(g, errnum);
	pthread_mutex_lock(&g->lock);
	g->copying = 0;
	if (!r && g->stop)
		r = RESULT_CANCELLED;
	if (!r && rename(g->temporary, g->data_path))
		r = RESULT_FILE, *errnum = errno;
	if (!r) {
		// From here on the file is the memory. Who sees the state finds the number and the sums.
		uint32_t handed = STATE_HANDED;
		atomic_store(&g->page->table, data_sum(sum_start, g->ranges, g->range_count * sizeof *g->ranges));
		atomic_fetch_add(&g->page->saves, 1);
		if (atomic_compare_exchange_strong(&g->page->state, &handed, STATE_SAVED)) {
			drop(g);
		} else {
			unlink(g->data_path);
			r = RESULT_CANCELLED;
		}
	}
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
	if (r)
		unlink(g->temporary);
	return r;
}

// --- the ends

// let_go_on ends the pause of a process, whose own lease runs out now.
static void let_go_on(struct ghost *g) {
	if (g->served && atomic_load(&g->page->state) != STATE_RUNNING) {
		atomic_store(&g->page->lease, 1);
		syscall(SYS_futex, &g->page->command, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	}
}

void ghost_stop(void) { ending = 1; }

void ghost_end(void) {
	for (struct ghost *g = ghosts; g; g = g->next) {
		pthread_mutex_lock(&g->lock);
		let_go_on(g);
		while (g->count)
			pthread_cond_wait(&g->changed, &g->lock);
		pthread_mutex_unlock(&g->lock);
		struct stat st;
		if (!lstat(g->socket_path, &st) && st.st_ino == g->socket)
			unlink(g->socket_path);
	}
}

// ghost_keep: at first it only adds and drops, as the ghost says. When that has
// ended and the process has nothing but this, it gives the memory back.
int ghost_keep(const char *folder, int pid) {
	struct ghost g = {.keeper = -1, .listener = 4};
	struct hand_message m;
	if (close_range(5, ~0u, 0) || !open_page(&g, folder, pid))
		return 1;
	pthread_mutex_init(&g.lock, NULL);
	pthread_cond_init(&g.changed, NULL);
	while (hand_receive(3, &m, -1)) {
		if (m.kind == HAND_DROP)
			forget(&g);
		else if (m.kind == HAND_BLOCKS && !add(&g, &m))
			break;
		else if (m.kind == HAND_END)
			hand_tell(3, m.value == g.count ? HAND_HAVE : HAND_NO, 0);
	}
	while (g.count && !g.gone) {
		uint32_t state = atomic_load(&g.page->state);
		// A sealed gate: it is about to say that it handed over.
		if (state == STATE_SAVED || (state == STATE_RUNNING && atomic_load(&g.page->gate) != GATE_SEALED))
			break;
		int c = next(&g, 100);
		if (c >= 0) {
			answer(&g, c);
			close(c);
		}
	}
	return 0;
}
