// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// This program makes the calls of the CUDA driver that run kernels on the GPUs
// of one machine, for muster disagg run. It is a program of its own, so that
// muster itself is linked with no library, and so that a driver that hangs or
// crashes takes only this program with it: gpu/driver starts it, and can kill it.
//
//	muster-gpu-worker [LIBCUDA]
//
// It reads commands from its input, one a line, and carries them out in order.
// Numbers count from 0 in the order in which things were made. What runs on a
// stream is submitted and not waited for.
//
//	gpu DEVICE                    -> gpu LEAST GREATEST NAME: the range of priorities
//	split DEVICE COUNT            -> split LEAST GREATEST FIRST SECOND NAME: two GPUs, parts of a device with so many multiprocessors,
//	                                 the first with COUNT or a few more, by green contexts (CUDA 12.4)
//	alloc G BYTES                 -> alloc ADDRESS
//	host BYTES                    -> host: the first bytes of file descriptor 3 are memory that streams read and write
//	stream G PRIORITY
//	event G FLAGS                 0, or 2 for one without a time
//	module G BYTES, then the text -> module
//	function MODULE NAME          -> function
//	routine G NAME                -> routine: a function of cuBLAS, for a GPU
//	launch F S GX GY GZ BX BY BZ SHARED ARGUMENTS      (packed, in hexadecimal digits, or -)
//	call R S WORKSPACE BYTES ARGUMENT...               (those after the handle: a number, or @ and eight bytes in
//	                                                    hexadecimal digits, of which the routine gets the address;
//	                                                    those of cublasLtMatmul as in cublas.inc)
//	peer S TO-G TO FROM-G FROM BYTES
//	put S TO OFFSET BYTES         from the host's memory
//	get S OFFSET FROM BYTES       to the host's memory
//	fill S TO VALUE BYTES
//	record E S
//	wait S E
//	await S OFFSET VALUE          until the 32-bit word there in the host's memory is at least that
//	notify S TOKEN                -> notify TOKEN, when the stream gets there
//	elapsed E E                   -> elapsed MICROSECONDS
//	capture S                     what is submitted to S from now on does not run, but becomes a graph
//	graph S                       ends that, and makes the graph ready to be launched
//	replay GRAPH S                launches it: one submission for all that is in it
//	spent                         -> spent MICROSECONDS: the CPU time of this program's commands
//	sync                          -> sync, when all streams are empty
//
// cuBLAS is MUSTER_CUBLAS, or the newest of libcublas.so.13, .12 and .11 that the
// linker finds. It is opened for the first routine.
//
// A call that fails, also one on a stream, is answered by "error CALL CODE NAME
// TEXT" at once, and the program ends; a library or a routine that is not there by
// "missing TEXT". It ends at the end of its input, too: if a
// command hangs then, without the commands after it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../shim/driver.h"

enum { most_gpus = 16, most_arguments = 32 << 10, line_bytes = 2 * most_arguments + 512, default_shared = 48 << 10, most_words = 29 };

#define FUNCTIONS(F) \
	F(cuInit, (unsigned)) \
	F(cuDeviceGet, (CUdevice *, int)) \
	F(cuDeviceGetName, (char *, int, CUdevice)) \
	F(cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice)) \
	F(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
	F(cuCtxSetCurrent, (CUcontext)) \
	F(cuCtxGetStreamPriorityRange, (int *, int *)) \
	F(cuCtxEnablePeerAccess, (CUcontext, unsigned)) \
	F(cuCtxSynchronize, (void)) \
	F(cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
	F(cuMemHostRegister_v2, (void *, size_t, unsigned)) \
	F(cuMemHostGetDevicePointer_v2, (CUdeviceptr *, void *, unsigned)) \
	F(cuStreamCreateWithPriority, (CUstream *, unsigned, int)) \
	F(cuStreamQuery, (CUstream)) \
	F(cuEventCreate, (CUevent *, unsigned)) \
	F(cuEventRecord, (CUevent, CUstream)) \
	F(cuEventElapsedTime, (float *, CUevent, CUevent)) \
	F(cuStreamWaitEvent, (CUstream, CUevent, unsigned)) \
	F(cuStreamWaitValue32_v2, (CUstream, CUdeviceptr, uint32_t, unsigned)) \
	F(cuLaunchHostFunc, (CUstream, void (*)(void *), void *)) \
	F(cuModuleLoadDataEx, (CUmodule *, const void *, unsigned, int *, void **)) \
	F(cuModuleGetFunction, (CUfunction *, CUmodule, const char *)) \
	F(cuFuncSetAttribute, (CUfunction, int, int)) \
	F(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **)) \
	F(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
	F(cuMemcpyPeerAsync, (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream)) \
	F(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream)) \
	F(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream)) \
	F(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream)) \
	F(cuStreamBeginCapture_v2, (CUstream, int)) \
	F(cuStreamEndCapture, (CUstream, CUgraph *)) \
	F(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long)) \
	F(cuGraphDestroy, (CUgraph)) \
	F(cuGraphLaunch, (CUgraphExec, CUstream)) \
	F(cuGetErrorName, (CUresult, const char **))
#define DECLARE(name, arguments) static CUresult(*name) arguments;
FUNCTIONS(DECLARE)

// These are of CUDA 12.4 and later. A resource is larger than what is known of it here.
#define PARTS(F) \
	F(cuDeviceGetDevResource, (CUdevice, void *, int)) \
	F(cuDevSmResourceSplitByCount, (void *, unsigned *, const void *, void *, unsigned, unsigned)) \
	F(cuDevResourceGenerateDesc, (void **, void *, unsigned)) \
	F(cuGreenCtxCreate, (void **, void *, CUdevice, unsigned)) \
	F(cuCtxFromGreenCtx, (CUcontext *, void *)) \
	F(cuGreenCtxStreamCreate, (CUstream *, void *, unsigned, int))
PARTS(DECLARE)
union resource {
	struct {
		int type;
		unsigned char unknown[92];
		unsigned multiprocessors;
	};
	unsigned char bytes[256];
};

static void say(const char *format, ...) {
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	va_list list;
	va_start(list, format);
	pthread_mutex_lock(&lock);
	vprintf(format, list);
	fflush(stdout);
	pthread_mutex_unlock(&lock);
	va_end(list);
}

// fail ends the program; text is one line.
static void fail(const char *call, CUresult code, const char *text) {
	const char *name = NULL;
	if (cuGetErrorName)
		cuGetErrorName(code, &name);
	say("error %s %d %s %s\n", call, code, name ? name : "-", text);
	_exit(1);
}

#define MUST(name, ...) do { CUresult r_ = name(__VA_ARGS__); if (r_) fail(#name, r_, ""); } while (0)

// --- what was made

struct gpu {
	CUdevice device;
	CUcontext context;
	CUcontext primary; // of its device
	void *part;        // its green context, if it is a part of a device
	CUstream first;    // of the GPU, for questions about errors
	void *cublas;      // the handle; NULL before the first routine
	CUdeviceptr host;
};
struct stream {
	CUstream s;
	int gpu;
};
struct event {
	CUevent e;
	int gpu;
};
struct module {
	CUmodule m;
	int gpu;
};
struct function {
	CUfunction f;
	int gpu;
	unsigned shared; // that it is allowed
};
struct routine {
	void *f;
	const char *name;
	int gpu;
};
struct graph {
	CUgraphExec g;
	int gpu;
};
static struct gpu gpus[most_gpus];
static struct stream *streams;
static struct event *events;
static struct module *modules;
static struct function *functions;
static struct routine *routines;
static struct graph *graphs;
static size_t gpu_count, stream_count, event_count, module_count, function_count, routine_count, graph_count;
static char *host;
static size_t host_bytes;

// GROW makes room for one more element of a list.
#define GROW(list, count) do { if (!((count) & ((count) - 1))) { list = realloc(list, ((count) ? 2 * (count) : 1) * sizeof *list); if (!list) fail("realloc", 2, ""); } } while (0)

static void bad(const char *line) { fail("command", CUDA_ERROR_INVALID_VALUE, line); }

// use makes a GPU's context the current one.
static void use(size_t g, const char *line) {
	static size_t now = SIZE_MAX;
	if (g >= gpu_count)
		bad(line);
	if (now != g)
		MUST(cuCtxSetCurrent, gpus[g].context);
	now = g;
}

static struct stream *stream_of(size_t s, const char *line) {
	if (s >= stream_count)
		bad(line);
	use((size_t)streams[s].gpu, line);
	return &streams[s];
}

static struct event *event_of(size_t e, const char *line) {
	if (e >= event_count)
		bad(line);
	return &events[e];
}

static void *host_at(uint64_t offset, uint64_t bytes, const char *line) {
	if (offset > host_bytes || bytes > host_bytes - offset)
		bad(line);
	return host + offset;
}

static void make_stream(CUstream *s, size_t g, int priority) { // it does not wait for the default stream
	use(g, "stream");
	if (gpus[g].part)
		MUST(cuGreenCtxStreamCreate, s, gpus[g].part, 1, priority);
	else
		MUST(cuStreamCreateWithPriority, s, 1, priority);
}

// --- commands

// part makes a GPU of a part of a device.
static void part(CUdevice device, CUcontext primary, union resource *r) {
	void *description = NULL;
	int least = 0, greatest = 0;
	if (gpu_count == most_gpus)
		bad("too many GPUs");
	struct gpu *g = &gpus[gpu_count];
	g->device = device;
	g->primary = primary;
	MUST(cuDevResourceGenerateDesc, &description, r, 1);
	MUST(cuGreenCtxCreate, &g->part, description, device, 1);
	MUST(cuCtxFromGreenCtx, &g->context, g->part);
	gpu_count++;
	use(gpu_count - 1, "split");
	MUST(cuCtxGetStreamPriorityRange, &least, &greatest);
	make_stream(&g->first, gpu_count - 1, least);
}

static void split(int number, unsigned count) {
	CUdevice device = 0;
	CUcontext primary = NULL;
	char name[256] = "";
	int least = 0, greatest = 0;
	unsigned groups = 1;
	union resource all = {0}, first = {0}, second = {0};
	if (!cuDeviceGetDevResource || !cuDevSmResourceSplitByCount || !cuDevResourceGenerateDesc || !cuGreenCtxCreate || !cuCtxFromGreenCtx || !cuGreenCtxStreamCreate)
		fail("cuGreenCtxCreate", CUDA_ERROR_NOT_FOUND, "this driver has no green contexts: it takes CUDA 12.4");
	MUST(cuDeviceGet, &device, number);
	MUST(cuDevicePrimaryCtxRetain, &primary, device);
	MUST(cuCtxSetCurrent, primary);
	MUST(cuDeviceGetDevResource, device, &all, 1); // multiprocessors
	MUST(cuDevSmResourceSplitByCount, &first, &groups, &all, &second, 0, count);
	if (groups != 1 || !second.multiprocessors)
		fail("cuDevSmResourceSplitByCount", CUDA_ERROR_INVALID_VALUE, "nothing is left for the second part");
	part(device, primary, &first);
	part(device, primary, &second);
	MUST(cuCtxGetStreamPriorityRange, &least, &greatest);
	MUST(cuDeviceGetName, name, sizeof name, device);
	say("split %d %d %u %u %s\n", least, greatest, first.multiprocessors, second.multiprocessors, name);
}

static void make_gpu(int device) {
	char name[256] = "";
	int least = 0, greatest = 0;
	if (gpu_count == most_gpus)
		bad("too many GPUs");
	struct gpu *g = &gpus[gpu_count];
	MUST(cuDeviceGet, &g->device, device);
	MUST(cuDevicePrimaryCtxRetain, &g->context, g->device);
	g->primary = g->context;
	gpu_count++;
	use(gpu_count - 1, "gpu");
	MUST(cuCtxGetStreamPriorityRange, &least, &greatest);
	make_stream(&g->first, gpu_count - 1, least);
	for (size_t i = 0; i + 1 < gpu_count; i++) { // copies work without it, by way of the host
		int can = 0;
		if (gpus[i].device == g->device)
			continue;
		if (!cuDeviceCanAccessPeer(&can, g->device, gpus[i].device) && can) {
			cuCtxEnablePeerAccess(gpus[i].context, 0);
			use(i, "gpu");
			cuCtxEnablePeerAccess(g->context, 0);
			use(gpu_count - 1, "gpu");
		}
	}
	MUST(cuDeviceGetName, name, sizeof name, g->device);
	say("gpu %d %d %s\n", least, greatest, name);
}

static void make_host(size_t bytes) {
	host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, 3, 0);
	if (host == MAP_FAILED)
		fail("mmap", CUDA_ERROR_OUT_OF_MEMORY, "");
	host_bytes = bytes;
	for (size_t g = 0; g < gpu_count; g++) {
		use(g, "host");
		if (!g)
			MUST(cuMemHostRegister_v2, host, bytes, 3); // for all contexts, and mapped
		MUST(cuMemHostGetDevicePointer_v2, &gpus[g].host, host, 0);
	}
	say("host\n");
}

static void make_module(size_t g, size_t bytes, const char *line) {
	char *text = malloc(bytes + 1), log[4096] = "";
	if (!text || fread(text, 1, bytes, stdin) != bytes)
		bad(line);
	text[bytes] = 0;
	use(g, line);
	GROW(modules, module_count);
	int options[] = {5, 6}; // a buffer for what the compiler says about errors, and its size
	void *values[] = {log, (void *)(sizeof log - 1)};
	CUresult r = cuModuleLoadDataEx(&modules[module_count].m, text, 2, options, values);
	for (char *c = log; *c; c++)
		if (*c == '\n' || *c == '\r')
			*c = ' ';
	if (r)
		fail("cuModuleLoadDataEx", r, log);
	modules[module_count++].gpu = (int)g;
	free(text);
	say("module\n");
}

static void make_function(size_t m, const char *name, const char *line) {
	if (m >= module_count)
		bad(line);
	use((size_t)modules[m].gpu, line);
	GROW(functions, function_count);
	struct function *f = &functions[function_count];
	*f = (struct function){NULL, modules[m].gpu, default_shared};
	CUresult r = cuModuleGetFunction(&f->f, modules[m].m, name);
	if (r)
		fail("cuModuleGetFunction", r, name);
	function_count++;
	say("function\n");
}

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

static void launch(char *line) {
	static unsigned char arguments[most_arguments];
	unsigned long f, s;
	unsigned g[3], b[3], shared;
	int at = 0;
	if (sscanf(line, "launch %lu %lu %u %u %u %u %u %u %u %n", &f, &s, &g[0], &g[1], &g[2], &b[0], &b[1], &b[2], &shared, &at) != 9 || !at || f >= function_count)
		bad(line);
	size_t bytes = 0;
	for (char *c = line + at; digit(c[0]) >= 0 && digit(c[1]) >= 0 && bytes < most_arguments; c += 2)
		arguments[bytes++] = (unsigned char)(digit(c[0]) << 4 | digit(c[1]));
	void *extra[] = {(void *)1, arguments, (void *)2, &bytes, NULL};
	struct stream *stream = stream_of(s, line);
	struct function *function = &functions[f];
	if (function->gpu != stream->gpu)
		bad(line);
	if (shared > function->shared) {
		MUST(cuFuncSetAttribute, function->f, 8, (int)shared); // the largest dynamic shared memory
		function->shared = shared;
	}
	MUST(cuLaunchKernel, function->f, g[0], g[1], g[2], b[0], b[1], b[2], shared, stream->s, NULL, extra);
}

#include "cublas.inc"

static void told(void *token) { say("notify %" PRIu64 "\n", (uint64_t)token); }

static void elapsed(size_t from, size_t to, const char *line) {
	float ms = 0;
	MUST(cuEventElapsedTime, &ms, event_of(from, line)->e, event_of(to, line)->e);
	say("elapsed %.3f\n", (double)ms * 1e3);
}

// make_graph ends the capture of a stream. Kernels of the graph run at the priority of the stream that it is launched on.
static void make_graph(size_t s, const char *line) {
	CUgraph captured = NULL;
	struct stream *stream = stream_of(s, line);
	MUST(cuStreamEndCapture, stream->s, &captured);
	GROW(graphs, graph_count);
	MUST(cuGraphInstantiateWithFlags, &graphs[graph_count].g, captured, 0);
	graphs[graph_count++].gpu = stream->gpu;
	MUST(cuGraphDestroy, captured);
}

static void replay(size_t g, size_t s, const char *line) {
	struct stream *stream = stream_of(s, line);
	if (g >= graph_count || graphs[g].gpu != stream->gpu)
		bad(line);
	MUST(cuGraphLaunch, graphs[g].g, stream->s);
}

static void spent(void) {
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	say("spent %.3f\n", (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3);
}

static void synchronize(void) {
	for (size_t g = 0; g < gpu_count; g++) {
		use(g, "sync");
		MUST(cuCtxSynchronize);
	}
	say("sync\n");
}

// make carries out a command that makes something, and reports whether it is one.
static int make(char *line) {
	char name[4096];
	unsigned long a, b;
	int n;
	if (sscanf(line, "gpu %d", &n) == 1)
		make_gpu(n);
	else if (sscanf(line, "split %d %lu", &n, &a) == 2)
		split(n, (unsigned)a);
	else if (sscanf(line, "alloc %lu %lu", &a, &b) == 2) {
		CUdeviceptr p = 0;
		use(a, line);
		CUresult r = cuMemAlloc_v2(&p, b);
		if (r)
			fail("cuMemAlloc_v2", r, line);
		say("alloc %" PRIu64 "\n", p);
	} else if (sscanf(line, "host %lu", &a) == 1)
		make_host(a);
	else if (sscanf(line, "stream %lu %d", &a, &n) == 2) {
		use(a, line);
		GROW(streams, stream_count);
		streams[stream_count].gpu = (int)a;
		make_stream(&streams[stream_count].s, a, n);
		stream_count++;
	} else if (sscanf(line, "event %lu %lu", &a, &b) == 2) {
		use(a, line);
		GROW(events, event_count);
		events[event_count].gpu = (int)a;
		MUST(cuEventCreate, &events[event_count].e, (unsigned)b);
		event_count++;
	} else if (sscanf(line, "module %lu %lu", &a, &b) == 2)
		make_module(a, b, line);
	else if (sscanf(line, "function %lu %4095s", &a, name) == 2)
		make_function(a, name, line);
	else if (sscanf(line, "routine %lu %4095s", &a, name) == 2)
		make_routine(a, name, line);
	else if (sscanf(line, "graph %lu", &a) == 1)
		make_graph(a, line);
	else
		return 0;
	return 1;
}

static void run(char *line) {
	unsigned long s, g, e;
	uint64_t to, from, n;
	if (!strncmp(line, "launch ", 7))
		launch(line);
	else if (!strncmp(line, "call ", 5))
		call(line);
	else if (sscanf(line, "peer %lu %lu %" SCNu64 " %lu %" SCNu64 " %" SCNu64, &s, &g, &to, &e, &from, &n) == 6) {
		if (g >= gpu_count || e >= gpu_count)
			bad(line);
		CUstream stream = stream_of(s, line)->s;
		if (g == e)
			MUST(cuMemcpyDtoDAsync_v2, to, from, n, stream);
		else
			MUST(cuMemcpyPeerAsync, to, gpus[g].context, from, gpus[e].context, n, stream);
	} else if (sscanf(line, "put %lu %" SCNu64 " %" SCNu64 " %" SCNu64, &s, &to, &from, &n) == 4)
		MUST(cuMemcpyHtoDAsync_v2, to, host_at(from, n, line), n, stream_of(s, line)->s);
	else if (sscanf(line, "get %lu %" SCNu64 " %" SCNu64 " %" SCNu64, &s, &to, &from, &n) == 4)
		MUST(cuMemcpyDtoHAsync_v2, host_at(to, n, line), from, n, stream_of(s, line)->s);
	else if (sscanf(line, "fill %lu %" SCNu64 " %" SCNu64 " %" SCNu64, &s, &to, &from, &n) == 4)
		MUST(cuMemsetD8Async, to, (unsigned char)from, n, stream_of(s, line)->s);
	else if (sscanf(line, "record %lu %lu", &e, &s) == 2)
		MUST(cuEventRecord, event_of(e, line)->e, stream_of(s, line)->s);
	else if (sscanf(line, "wait %lu %lu", &s, &e) == 2)
		MUST(cuStreamWaitEvent, stream_of(s, line)->s, event_of(e, line)->e, 0);
	else if (sscanf(line, "await %lu %" SCNu64 " %" SCNu64, &s, &to, &n) == 3) {
		struct stream *stream = stream_of(s, line);
		host_at(to, 4, line);
		MUST(cuStreamWaitValue32_v2, stream->s, gpus[stream->gpu].host + to, (uint32_t)n, 0);
	} else if (sscanf(line, "notify %lu %" SCNu64, &s, &n) == 2)
		MUST(cuLaunchHostFunc, stream_of(s, line)->s, told, (void *)n);
	else if (sscanf(line, "elapsed %lu %lu", &s, &e) == 2)
		elapsed(s, e, line);
	else if (sscanf(line, "capture %lu", &s) == 1)
		MUST(cuStreamBeginCapture_v2, stream_of(s, line)->s, 2); // relaxed: other streams go on meanwhile
	else if (sscanf(line, "replay %lu %lu", &g, &s) == 2)
		replay(g, s, line);
	else if (!strcmp(line, "spent"))
		spent();
	else if (!strncmp(line, "sync", 4))
		synchronize();
	else
		bad(line);
}

static unsigned long commands; // that were read

// abandoned reports whether whoever writes commands has ended, and the command at work since the last look does not.
static int abandoned(void) {
	static unsigned long last;
	unsigned long now = __atomic_load_n(&commands, __ATOMIC_RELAXED);
	struct pollfd in = {0, 0, 0};
	int same = now == last;
	last = now;
	return same && poll(&in, 1, 0) == 1 && in.revents & POLLHUP;
}

// look finds out whether a kernel has failed: then no stream gets to its notify. A green context may be current to one thread
// only, so this one has the primary context; a stream may be asked from any.
static void *look(void *none) {
	(void)none;
	for (;;) {
		usleep(100 * 1000);
		if (abandoned())
			_exit(1);
		for (size_t g = 0; g < __atomic_load_n(&gpu_count, __ATOMIC_ACQUIRE); g++) {
			CUstream s = gpus[g].first;
			if (!s || cuCtxSetCurrent(gpus[g].primary))
				continue;
			CUresult r = cuStreamQuery(s);
			if (r && r != CUDA_ERROR_NOT_READY)
				fail("cuStreamQuery", r, "a kernel or a copy on a stream failed");
		}
	}
	return NULL;
}

int main(int argc, char **argv) {
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdin, NULL, _IOFBF, 1 << 20);
	void *h = dlopen(argc > 1 ? argv[1] : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!h)
		fail("dlopen", CUDA_ERROR_NOT_FOUND, dlerror());
#define FIND(name, arguments) if (!(*(void **)&name = dlsym(h, #name))) fail("dlsym", CUDA_ERROR_NOT_FOUND, #name " is not in this driver");
	FUNCTIONS(FIND)
#define TRY(name, arguments) *(void **)&name = dlsym(h, #name);
	PARTS(TRY)
	MUST(cuInit, 0);
	pthread_t thread;
	if (pthread_create(&thread, NULL, look, NULL))
		fail("pthread_create", CUDA_ERROR_OUT_OF_MEMORY, "");
	say("ready\n");
	char *line = malloc(line_bytes);
	while (line && fgets(line, line_bytes, stdin)) {
		__atomic_fetch_add(&commands, 1, __ATOMIC_RELAXED);
		line[strcspn(line, "\n")] = 0;
		if (*line && !make(line))
			run(line);
	}
	_exit(0);
}
