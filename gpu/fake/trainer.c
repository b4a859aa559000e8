// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// A program that uses a GPU, for tests. It reads commands from standard input
// and answers each with one line:
//
//	alloc BYTES             -> alloc N ADDRESS, or error N
//	free N                  -> free
//	use N OFFSET BYTES      -> use: the memory stub, if there is one
//	train N BYTES STEPS     -> step K after every tenth step, then sum X
//	sum N BYTES             -> sum X, over the bytes
//	meet FILE RANKS TIMES   -> met, after so many collectives
//	stress THREADS ROUNDS   -> stressed, after each thread has so many times allocated, filled, checked, freed
//	calls TIMES             -> ns X, what a launch call takes
//	launches TIMES          -> ns X, of a launch and its part of the work
//	copies N BYTES          -> copied X, GB/s to pinned host memory
//	driver                  -> driver VERSION N, of the 6 functions for checkpoints
//	left                    -> left BYTES, of the GPU
//	objects N BYTES STEPS   -> as train, with many objects of the driver's (objects.inc), and ms X before the sum
//	blas N LIBRARY STEPS    -> as train, with products of cuBLAS in 2 MiB
//	again TIMES             -> again N, of the times, that a variable is where it was in the context before; the program then has nothing
//	module FILE             -> module N, the error; the module is the one that has unloaded unloads
//	has WHAT                -> has N, the error: something that a replay does not know, or no longer
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../shim/driver.h"

// The driver's functions are found as the CUDA runtime finds them.
static CUresult (*get)(const char *, void **, int, uint64_t, int *);
static void *must(const char *name) {
	void *p = NULL;
	if (get(name, &p, 12080, 0, NULL) || !p) {
		printf("no %s\n", name);
		exit(1);
	}
	return p;
}
static void check(CUresult r, const char *what) {
	if (r) {
		printf("%s: error %d\n", what, r);
		exit(1);
	}
}

static CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
static CUresult (*wait_for)(CUstream);
static CUresult (*copy_out)(void *, CUdeviceptr, size_t);
static CUfunction step, meet;
static CUstream stream;
static CUdeviceptr memory[64];
static int count;

static uint64_t sum(CUdeviceptr at, size_t n) {
	uint64_t *host = malloc(n), h = 0;
	check(copy_out(host, at, n), "cuMemcpyDtoH");
	for (size_t i = 0; i < n / 8; i++)
		h = (h ^ host[i]) * 0x9e3779b97f4a7c15ull, h ^= h >> 31;
	free(host);
	return h;
}

// kernels is step for a real GPU, which changes each word by the seed and its
// index, and meet, of which one thread does what that of the fake driver does.
static const char kernels[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry step(.param .u64 state, .param .u64 words, .param .u64 seed)\n{\n"
	".reg .pred %p<2>;\n.reg .b32 %r<4>;\n.reg .b64 %d<12>;\n"
	"ld.param.u64 %d1, [state];\nld.param.u64 %d2, [words];\nld.param.u64 %d3, [seed];\n"
	"mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\n"
	"cvt.u64.u32 %d4, %r3;\nmad.wide.u32 %d5, %r1, %r2, %d4;\n"
	"setp.ge.u64 %p1, %d5, %d2;\n@%p1 bra DONE;\n"
	"cvta.to.global.u64 %d6, %d1;\nshl.b64 %d7, %d5, 3;\nadd.s64 %d8, %d6, %d7;\n"
	"ld.global.u64 %d9, [%d8];\nxor.b64 %d9, %d9, %d3;\nadd.s64 %d9, %d9, %d5;\n"
	"mov.u64 %d10, 0xff51afd7ed558ccd;\nmul.lo.u64 %d9, %d9, %d10;\nshr.u64 %d11, %d9, 29;\nxor.b64 %d9, %d9, %d11;\n"
	"st.global.u64 [%d8], %d9;\nDONE:\nret;\n}\n"
	".visible .entry meet(.param .u64 flags, .param .u64 rank, .param .u64 ranks, .param .u64 round)\n{\n"
	".reg .pred %p<3>;\n.reg .b32 %r<2>;\n.reg .b64 %d<9>;\n"
	"mov.u32 %r1, %tid.x;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra DONE;\n"
	"ld.param.u64 %d1, [flags];\nld.param.u64 %d2, [rank];\nld.param.u64 %d3, [ranks];\nld.param.u64 %d4, [round];\n"
	"cvta.to.global.u64 %d1, %d1;\nshl.b64 %d5, %d2, 3;\nadd.s64 %d5, %d1, %d5;\nst.volatile.global.u64 [%d5], %d4;\nmembar.sys;\n"
	"shl.b64 %d6, %d3, 3;\nadd.s64 %d6, %d1, %d6;\nmov.u64 %d7, %d1;\n"
	"NEXT:\nsetp.ge.u64 %p2, %d7, %d6;\n@%p2 bra DONE;\n"
	"WAIT:\nld.volatile.global.u64 %d8, [%d7];\nsetp.lt.u64 %p2, %d8, %d4;\n@%p2 bra WAIT;\n"
	"add.s64 %d7, %d7, 8;\nbra NEXT;\nDONE:\nret;\n}\n";

static void run(CUfunction f, uint64_t words, void **arguments) {
	check(launch(f, (unsigned)(words / 256 + 1), 1, 1, 256, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
}

static void train(CUdeviceptr at, uint64_t bytes, uint64_t steps) {
	uint64_t words = bytes / 8;
	for (uint64_t k = 1; k <= steps; k++) {
		void *arguments[] = {&at, &words, &k};
		run(step, words, arguments);
		if (k % 10 == 0) {
			check(wait_for(stream), "cuStreamSynchronize");
			printf("step %" PRIu64 "\n", k);
		}
	}
	check(wait_for(stream), "cuStreamSynchronize");
	printf("sum %016" PRIx64 "\n", sum(at, bytes));
}

static void meet_others(const char *path, uint64_t ranks, uint64_t times) {
	int fd = open(path, O_RDWR);
	uint64_t shared = (uint64_t)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if ((void *)shared == MAP_FAILED) {
		printf("%s: cannot be mapped\n", path);
		exit(1);
	}
	// The ranks take numbers in turn, and go on from the rounds of the commands before.
	uint64_t *flags = (uint64_t *)shared;
	uint64_t rank = __atomic_fetch_add(&flags[511], 1, __ATOMIC_SEQ_CST) % ranks, round = flags[rank];
	CUresult (*map_host)(void *, size_t, unsigned) = must("cuMemHostRegister");
	map_host(flags, 4096, 2); // as mapped memory; a second time it is already
	for (uint64_t i = 0; i < times; i++) {
		round++;
		void *arguments[] = {&shared, &rank, &ranks, &round};
		run(meet, 0, arguments);
		check(wait_for(stream), "cuStreamSynchronize");
	}
	printf("met\n");
}

static CUresult (*alloc)(CUdeviceptr *, size_t), (*release)(CUdeviceptr), (*fill)(CUdeviceptr, unsigned char, size_t);
static CUresult (*make_stream)(CUstream *, unsigned), (*set_context)(CUcontext), (*end_stream)(CUstream);
static CUcontext context;

struct stress { uint64_t number, rounds; };

// stress holds eight allocations of random sizes, each filled with a byte of its
// own by memset and changed by a kernel, and replaces one of them each round.
static void *stress(void *shared) {
	struct stress *s = shared;
	uint64_t random = s->number * 0x9e3779b97f4a7c15ull + 1;
	struct { CUdeviceptr at; uint64_t words, sum; } held[8] = {{0}};
	CUstream own;
	check(set_context(context), "cuCtxSetCurrent");
	check(make_stream(&own, 1), "cuStreamCreate");
	for (uint64_t i = 0; i < s->rounds; i++) {
		random ^= random << 13, random ^= random >> 7, random ^= random << 17;
		int k = (int)(random % 8);
		if (held[k].at) {
			if (sum(held[k].at, held[k].words * 8) != held[k].sum) {
				printf("thread %" PRIu64 ", round %" PRIu64 ": the memory at %" PRIx64 " changed\n", s->number, i, held[k].at);
				exit(1);
			}
			check(release(held[k].at), "cuMemFree");
		}
		held[k].words = 1 + (random >> 8) % (random % 5 ? 1000 : 400000);
		check(alloc(&held[k].at, held[k].words * 8), "cuMemAlloc");
		check(fill(held[k].at, (unsigned char)i, held[k].words * 8), "cuMemsetD8");
		void *arguments[] = {&held[k].at, &held[k].words, &i};
		check(launch(step, (unsigned)(held[k].words / 256 + 1), 1, 1, 256, 1, 1, 0, own, arguments, NULL), "cuLaunchKernel");
		check(wait_for(own), "cuStreamSynchronize");
		held[k].sum = sum(held[k].at, held[k].words * 8);
	}
	for (int k = 0; k < 8; k++)
		if (held[k].at)
			check(release(held[k].at), "cuMemFree");
	check(end_stream(own), "cuStreamDestroy");
	return NULL;
}

static void stress_all(uint64_t threads, uint64_t rounds) {
	pthread_t running[16];
	struct stress s[16];
	for (uint64_t i = 0; i < threads && i < 16; i++) {
		s[i] = (struct stress){i, rounds};
		pthread_create(&running[i], NULL, stress, &s[i]);
	}
	for (uint64_t i = 0; i < threads && i < 16; i++)
		pthread_join(running[i], NULL);
	printf("stressed\n");
}

static struct timespec began;
static void start(void) { clock_gettime(CLOCK_MONOTONIC, &began); }
static double seconds(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - began.tv_sec) + (double)(now.tv_nsec - began.tv_nsec) / 1e9;
}

static void launches(uint64_t times) {
	uint64_t none = 0, words = 0, seed = 0;
	void *arguments[] = {&none, &words, &seed};
	start();
	for (uint64_t i = 0; i < times; i++)
		run(step, words, arguments);
	check(wait_for(stream), "cuStreamSynchronize");
	printf("ns %.1f\n", seconds() * 1e9 / (double)times);
}

static void copies(CUdeviceptr at, uint64_t bytes) {
	CUresult (*pin)(void **, size_t, unsigned) = NULL;
	void *host = NULL;
	size_t piece = bytes < 256 << 20 ? bytes : 256 << 20;
	if (get("cuMemHostAlloc", (void **)&pin, 12080, 0, NULL) || !pin || pin(&host, piece, 0))
		host = malloc(piece);
	memset(host, 1, piece);
	start();
	for (uint64_t done = 0; done + piece <= bytes; done += piece)
		check(copy_out(host, at + done, piece), "cuMemcpyDtoH");
	printf("copied %.3f\n", (double)(bytes / piece * piece) / 1e9 / seconds());
}

static void tell_driver(void *driver) {
	static const char *names[] = {"cuCheckpointProcessGetState", "cuCheckpointProcessGetRestoreThreadId", "cuCheckpointProcessLock",
		"cuCheckpointProcessCheckpoint", "cuCheckpointProcessRestore", "cuCheckpointProcessUnlock"};
	int version = 0, found = 0;
	check(((CUresult(*)(int *))must("cuDriverGetVersion"))(&version), "cuDriverGetVersion");
	for (int i = 0; i < 6; i++)
		found += dlsym(driver, names[i]) != NULL;
	printf("driver %d %d\n", version, found);
}

static void calls(uint64_t times) {
	uint64_t none = 0, nothing = 0, seed = 0;
	void *arguments[] = {&none, &nothing, &seed};
	start();
	for (uint64_t i = 0; i < times; i++)
		launch(NULL, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL); // refused at once: only the way there counts
	printf("ns %.1f\n", seconds() * 1e9 / (double)times);
}

#include "objects.inc"

int main(void) {
	setvbuf(stdout, NULL, _IOLBF, 0);
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver) {
		printf("%s\n", dlerror());
		return 1;
	}
	*(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
	check(((CUresult(*)(unsigned))must("cuInit"))(0), "cuInit");
	check(((CUresult(*)(CUcontext *, CUdevice))must("cuDevicePrimaryCtxRetain"))(&context, 0), "cuDevicePrimaryCtxRetain");
	check(((CUresult(*)(CUcontext))must("cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
	check(((CUresult(*)(CUstream *, unsigned))must("cuStreamCreate"))(&stream, 1), "cuStreamCreate");
	CUmodule module;
	check(((CUresult(*)(CUmodule *, const void *))must("cuModuleLoadData"))(&module, kernels), "cuModuleLoadData");
	CUresult (*function)(CUfunction *, CUmodule, const char *) = must("cuModuleGetFunction");
	check(function(&step, module, "step"), "step");
	check(function(&meet, module, "meet"), "meet");
	launch = must("cuLaunchKernel"), wait_for = must("cuStreamSynchronize"), copy_out = must("cuMemcpyDtoH");
	alloc = must("cuMemAlloc"), fill = must("cuMemsetD8"), release = must("cuMemFree");
	make_stream = must("cuStreamCreate"), set_context = must("cuCtxSetCurrent"), end_stream = must("cuStreamDestroy");
	CUresult (*info)(size_t *, size_t *) = must("cuMemGetInfo");
	int (*use)(uint64_t, uint64_t) = (int (*)(uint64_t, uint64_t))dlsym(driver, "gpustub_alloc");
	printf("ready %d\n", getpid());

	char line[4096], path[4000];
	uint64_t a, b, c;
	while (fgets(line, sizeof line, stdin)) {
		CUresult r;
		if (sscanf(line, "alloc %" SCNu64, &a) == 1 && count < 64) {
			if (!(r = alloc(&memory[count], a)))
				r = fill(memory[count], (unsigned char)(count + 1), a);
			if (r)
				printf("error %d\n", r);
			else
				printf("alloc %d %" PRIx64 "\n", count, memory[count]), count++;
		} else if (sscanf(line, "free %" SCNu64, &a) == 1 && a < 64) {
			check(release(memory[a]), "cuMemFree");
			printf("free\n");
		} else if (sscanf(line, "use %" SCNu64 " %" SCNu64 " %" SCNu64, &a, &b, &c) == 3 && a < 64 && use) {
			check(use(memory[a] + b, c), "gpustub_alloc");
			printf("use\n");
		} else if (sscanf(line, "train %" SCNu64 " %" SCNu64 " %" SCNu64, &a, &b, &c) == 3 && a < 64) {
			train(memory[a], b, c);
		} else if (sscanf(line, "sum %" SCNu64 " %" SCNu64, &a, &b) == 2 && a < 64) {
			printf("sum %016" PRIx64 "\n", sum(memory[a], b));
		} else if (sscanf(line, "meet %3999s %" SCNu64 " %" SCNu64, path, &a, &b) == 3) {
			meet_others(path, a, b);
		} else if (sscanf(line, "stress %" SCNu64 " %" SCNu64, &a, &b) == 2) {
			stress_all(a, b);
		} else if (sscanf(line, "calls %" SCNu64, &a) == 1) {
			calls(a);
		} else if (sscanf(line, "launches %" SCNu64, &a) == 1) {
			launches(a);
		} else if (sscanf(line, "copies %" SCNu64 " %" SCNu64, &a, &b) == 2 && a < 64) {
			copies(memory[a], b);
		} else if (sscanf(line, "objects %" SCNu64 " %" SCNu64 " %" SCNu64, &a, &b, &c) == 3 && a < 64) {
			objects(memory[a], b, c);
		} else if (sscanf(line, "blas %" SCNu64 " %3999s %" SCNu64, &a, path, &b) == 3 && a < 64) {
			blas(memory[a], path, b);
		} else if (sscanf(line, "again %" SCNu64, &a) == 1) {
			again(a);
		} else if (sscanf(line, "module %3999s", path) == 1) {
			find_driver();
			printf("module %d\n", of.cuModuleLoad(&loaded, path));
		} else if (sscanf(line, "has %3999s", path) == 1) {
			printf("has %d\n", has(path));
		} else if (!strncmp(line, "driver", 6)) {
			tell_driver(driver);
		} else if (!strncmp(line, "left", 4)) {
			size_t free_bytes = 0;
			check(info(&free_bytes, NULL), "cuMemGetInfo");
			printf("left %zu\n", free_bytes);
		} else {
			printf("not understood: %s", line);
		}
	}
	return 0;
}
