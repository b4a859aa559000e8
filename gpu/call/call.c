// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// This program makes the calls of the CUDA driver by which one process locks
// and checkpoints another one. gpu/call.go starts it once: cuInit takes
// seconds. It is a program of its own, so that muster itself is linked with no
// library, and so that a driver that hangs or crashes takes only this program
// with it.
//
//	muster-gpu-call DIR [LIBCUDA]
//
// It answers "ready CUDA-VERSION FUNCTIONS UUID...", with the GPUs that it sees,
// or "no" and why, and then each line of its input, "ID OP PID [MILLISECONDS
// [OLD NEW]...]", by a line "ID RESULT VALUE", in the order in which the calls
// end. RESULT is a CUresult, BUSY, or a RESULT_... of page.h; of RESULT_FILE the
// VALUE is errno. Calls for one process follow one another; those for several
// run at the same time.
//
// A call for a process takes the lock DIR/PID.lock, which has the process's start time, until this program ends.
//
// At the end of the input, who asked has ended, perhaps by kill -9. Calls
// under way then end first: one that is cut off leaves the process in a state
// that the driver itself does not know. Then each process goes on that was
// locked and not kept, and is not to stay, or has handed its memory over to this program (ghost.h).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../shim/driver.h"
#include "../shim/page.h"
#include "ghost.h"

enum { BUSY = 10100, max_processes = 4096, max_gpus = 64 };
enum { LOCKED = 1, CHECKPOINTED = 2 };

static struct {
	CUresult (*state)(int, int *), (*thread)(int, int *);
	CUresult (*lock)(int, void *), (*checkpoint)(int, void *), (*restore)(int, void *), (*unlock)(int, void *);
} driver;

// On the way back, what the process had on a GPU goes to another one: CUcheckpointGpuPair.
struct pair {
	unsigned char from[16], to[16];
};

// A process for which a call was made.
struct process {
	int pid, lock_fd; // lock_fd: -1 until the lock is held
	int changed;      // it is locked, and goes on when this program ends
	int stays;        // but not then
	pthread_mutex_t calls;
};
static struct process processes[max_processes];
static int process_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards processes, and the output
static pthread_cond_t fewer = PTHREAD_COND_INITIALIZER;
static int under_way;
static const char *folder;

struct request {
	unsigned long id;
	char op[16];
	int pid;
	unsigned milliseconds;
	struct pair pairs[max_gpus];
	int pair_count;
};

// process_of finds what is known of a process; if it is not known, and is not to be made, NULL.
static struct process *process_of(int pid, int make) {
	pthread_mutex_lock(&lock);
	int i = 0;
	while (i < process_count && processes[i].pid != pid)
		i++;
	struct process *p = i < process_count || (make && i < max_processes) ? &processes[i] : NULL;
	if (p && i == process_count) {
		*p = (struct process){.pid = pid, .lock_fd = -1};
		pthread_mutex_init(&p->calls, NULL);
		process_count++;
	}
	pthread_mutex_unlock(&lock);
	return p;
}

// start_time is field 22 of /proc/PID/stat: with the process ID it names a process for good. 0: it has ended.
static unsigned long long start_time(int pid) {
	char path[64], text[1024], *name;
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
	unsigned long long started = 0;
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	if ((name = strrchr(text, ')'))) // which may have spaces and brackets
		sscanf(name + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &started);
	return started;
}

// name_process writes into a lock which process it is of, if it does not say so: another one may get the ID.
static int name_process(int fd, int pid) {
	char text[32] = "", is[32];
	struct stat st;
	snprintf(is, sizeof is, "%llu\n", start_time(pid));
	if (fstat(fd, &st) || pread(fd, text, sizeof text - 1, 0) < 0)
		return 0;
	if (!strcmp(text, is))
		return 1;
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
		return errno = EINVAL, 0; // the folder of a pod is the pod's to write
	ssize_t size = (ssize_t)strlen(is);
	return !ftruncate(fd, 0) && pwrite(fd, is, (size_t)size, 0) == size;
}

// locked opens a file and locks it; -1: another program has it. One that was removed before it was locked, as its process had ended, is no lock.
static int locked(const char *path) {
	struct stat st;
	for (;;) {
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
		int held = fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB);
		if (held && (fstat(fd, &st) || st.st_nlink))
			return fd;
		if (fd >= 0)
			close(fd);
		if (!held)
			return -1;
	}
}

// hold takes the lock of a process; BUSY, or RESULT_FILE with errno as the value: not.
static CUresult hold(struct process *p, int *value) {
	char path[4096];
	if (p->lock_fd >= 0)
		return CUDA_SUCCESS;
	snprintf(path, sizeof path, "%s/%d.lock", folder, p->pid);
	int fd = locked(path);
	if (fd < 0)
		return BUSY;
	errno = 0;
	if (!name_process(fd, p->pid)) {
		*value = errno ? errno : ENOSPC;
		close(fd);
		return RESULT_FILE;
	}
	p->lock_fd = fd;
	return CUDA_SUCCESS;
}

// change makes a call that changes the process. The arguments are 64 bytes,
// which are 0 but for the time limit of a lock, where 0 would be none, and the
// pairs of GPUs of a restore, which drivers from r580 on have.
static CUresult change(struct process *p, struct request *q, int *value) {
	uint32_t arguments[16] = {0};
	struct {
		struct pair *pairs;
		unsigned count;
		char none[52];
	} restore = {q->pair_count ? q->pairs : NULL, (unsigned)q->pair_count, {0}};
	CUresult held = hold(p, value);
	if (held)
		return held;
	if (!strcmp(q->op, "ghost"))
		return (CUresult)ghost_wait(folder, p->pid, value);
	if (!strcmp(q->op, "copy"))
		return (CUresult)ghost_copy(p->pid, value);
	if (!strcmp(q->op, "lock")) {
		arguments[0] = q->milliseconds ? q->milliseconds : 1;
		CUresult r = driver.lock(p->pid, arguments);
		p->changed |= !r;
		return r;
	}
	if (!strcmp(q->op, "checkpoint") || !strcmp(q->op, "restore")) {
		p->changed = 1;
		return q->op[0] == 'c' ? driver.checkpoint(p->pid, arguments) : driver.restore(p->pid, &restore);
	}
	if (!strcmp(q->op, "unlock")) {
		CUresult r = driver.unlock(p->pid, arguments);
		if (!r)
			p->changed = 0;
		return r;
	}
	if (!strcmp(q->op, "stay") || !strcmp(q->op, "leave")) {
		int state = 0;
		p->stays = q->op[0] == 's';
		if (!driver.state(p->pid, &state) && state == LOCKED)
			p->changed = 1; // by a program before
		return CUDA_SUCCESS;
	}
	if (!strcmp(q->op, "keep"))
		return p->changed = 0, CUDA_SUCCESS;
	return CUDA_ERROR_INVALID_VALUE;
}

static void *serve(void *shared) {
	struct request *q = shared;
	int state = !strcmp(q->op, "state"), look = state || !strcmp(q->op, "thread"), value = 0;
	struct process *p = process_of(q->pid, !look); // who only looks asks for all that ever come
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
	if (p)
		pthread_mutex_lock(&p->calls);
	if (p && !strcmp(q->op, "copy")) // while it is written, the process can be restored
		pthread_mutex_unlock(&p->calls);
	if (look)
		r = state ? driver.state(q->pid, &value) : driver.thread(q->pid, &value);
	else if (p)
		r = change(p, q, &value);
	if (p && strcmp(q->op, "copy"))
		pthread_mutex_unlock(&p->calls);
	pthread_mutex_lock(&lock);
	printf("%lu %d %d\n", q->id, r, value);
	fflush(stdout);
	under_way--;
	pthread_cond_broadcast(&fewer);
	pthread_mutex_unlock(&lock);
	free(q);
	return NULL;
}

static void go_on(struct process *p) {
	uint32_t none[16] = {0};
	int state = 0;
	if (!p->changed || p->stays || driver.state(p->pid, &state))
		return;
	if (state == CHECKPOINTED && driver.restore(p->pid, none))
		return;
	if (state == CHECKPOINTED || state == LOCKED)
		driver.unlock(p->pid, none);
}

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

// uuid reads 32 hexadecimal digits after spaces, and returns what follows them; NULL: there are none.
static const char *uuid(const char *text, unsigned char *to) {
	while (*text == ' ')
		text++;
	for (int i = 0; i < 16; i++, text += 2) {
		int high = digit(text[0]), low = high < 0 ? -1 : digit(text[1]);
		if (low < 0)
			return NULL;
		to[i] = (unsigned char)(high << 4 | low);
	}
	return text;
}

// print_gpus prints the GPUs that can be seen, in the driver's order.
static void print_gpus(void *h) {
	CUresult (*count)(int *) = (CUresult(*)(int *))dlsym(h, "cuDeviceGetCount");
	CUresult (*id)(unsigned char *, int) = (CUresult(*)(unsigned char *, int))dlsym(h, "cuDeviceGetUuid");
	int n = 0;
	if (!count || !id || count(&n))
		return;
	for (int d = 0; d < n && d < max_gpus; d++) {
		unsigned char bytes[16];
		if (id(bytes, d))
			return;
		putchar(' ');
		for (int i = 0; i < 16; i++)
			printf("%02x", bytes[i]);
	}
}

static int refuse(const char *why) {
	printf("no %s\n", why);
	return 1;
}

static int open_driver(const char *path) {
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!h)
		return refuse(dlerror());
	CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(h, "cuInit");
	CUresult (*version)(int *) = (CUresult(*)(int *))dlsym(h, "cuDriverGetVersion");
	int number = 0, found = 0;
	CUresult r = init && version ? init(0) : CUDA_ERROR_NOT_FOUND;
	if (!r)
		r = version(&number);
	if (r) {
		printf("no cuInit: error %d\n", r);
		return 1;
	}
#define F(field, name) found += (*(void **)&driver.field = dlsym(h, "cuCheckpointProcess" name)) != NULL
	F(state, "GetState"), F(thread, "GetRestoreThreadId"), F(lock, "Lock");
	F(checkpoint, "Checkpoint"), F(restore, "Restore"), F(unlock, "Unlock");
	ghost_open(h);
	printf("ready %d %d", number, found);
	print_gpus(h);
	putchar('\n');
	return found < 6;
}

int main(int argc, char **argv) {
	if (argc == 4 && !strcmp(argv[1], "--keep"))
		return ghost_keep(argv[2], atoi(argv[3]));
	if (argc < 2)
		return 2;
	// A signal to who asked is not one to this program: it has to end what it began.
	signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN), signal(SIGHUP, SIG_IGN), signal(SIGPIPE, SIG_IGN);
	folder = argv[1];
	int bad = open_driver(argc > 2 ? argv[2] : "libcuda.so.1");
	fflush(stdout);
	if (bad)
		return 1;
	char line[256 + max_gpus * 66];
	while (fgets(line, sizeof line, stdin)) {
		struct request *q = calloc(1, sizeof *q);
		pthread_t thread;
		int end = 0;
		if (!q || sscanf(line, "%lu %15s %d %u%n", &q->id, q->op, &q->pid, &q->milliseconds, &end) < 3)
			return 2;
		for (const char *at = line + end; end && at && q->pair_count < max_gpus;) {
			struct pair *next = &q->pairs[q->pair_count];
			at = uuid(at, next->from);
			if (at && (at = uuid(at, next->to)))
				q->pair_count++;
		}
		pthread_mutex_lock(&lock);
		under_way++;
		pthread_mutex_unlock(&lock);
		if (pthread_create(&thread, NULL, serve, q))
			serve(q);
		else
			pthread_detach(thread);
	}
	ghost_stop();
	pthread_mutex_lock(&lock);
	while (under_way)
		pthread_cond_wait(&fewer, &lock);
	for (int i = 0; i < process_count; i++)
		go_on(&processes[i]);
	for (int i = 0; i < process_count; i++) // other commands may change them now
		if (processes[i].lock_fd >= 0)
			close(processes[i].lock_fd);
	ghost_end();
	return 0;
}
