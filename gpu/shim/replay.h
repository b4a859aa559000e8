// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// Record and replay: once the memory of the process is saved, replay_release
// destroys what else it has on the GPU, contexts included, and replay_again makes
// it again from the live objects (objects.h). docs/adr/0066 says why and what not.
#ifndef MUSTER_REPLAY_H
#define MUSTER_REPLAY_H

#include "objects.h"
#include "page.h"

// REPLAY lists what it calls of the driver, and what the calls of the program become that make objects.
#define REPLAY(X) \
	X(cuCtxSetCurrent, (CUcontext)) \
	X(cuCtxGetDevice, (CUdevice *)) \
	X(cuCtxSynchronize, (void)) \
	X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
	X(cuDevicePrimaryCtxRelease_v2, (CUdevice)) \
	X(cuDevicePrimaryCtxSetFlags_v2, (CUdevice, unsigned)) \
	X(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *)) \
	X(cuStreamCreateWithPriority, (CUstream *, unsigned, int)) \
	X(cuStreamDestroy_v2, (CUstream)) \
	X(cuEventCreate, (CUevent *, unsigned)) \
	X(cuEventDestroy_v2, (CUevent)) \
	X(cuEventRecord, (CUevent, CUstream)) \
	X(cuEventElapsedTime, (float *, CUevent, CUevent)) \
	X(cuModuleLoadDataEx, (CUmodule *, const void *, unsigned, int *, void **)) \
	X(cuModuleUnload, (CUmodule)) \
	X(cuModuleGetFunction, (CUfunction *, CUmodule, const char *)) \
	X(cuModuleGetGlobal_v2, (CUdeviceptr *, size_t *, CUmodule, const char *)) \
	X(cuFuncSetAttribute, (CUfunction, int, int)) \
	X(cuFuncSetCacheConfig, (CUfunction, int)) \
	X(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t)) \
	X(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t)) \
	X(cuMemHostRegister_v2, (void *, size_t, unsigned)) \
	X(cuMemHostUnregister, (void *)) \
	X(cuCtxPushCurrent_v2, (CUcontext)) \
	X(cuCtxPopCurrent_v2, (CUcontext *)) \
	X(cuStreamGetCtx, (CUstream, CUcontext *)) \
	X(cuStreamGetCtx_ptsz, (CUstream, CUcontext *)) \
	X(cuStreamAddCallback, (CUstream, void (*)(CUstream, CUresult, void *), void *, unsigned)) \
	X(cuStreamAddCallback_ptsz, (CUstream, void (*)(CUstream, CUresult, void *), void *, unsigned)) \
	X(cuEventElapsedTime_v2, (float *, CUevent, CUevent)) \
	X(cuFuncGetModule, (CUmodule *, CUfunction)) \
	X(cuFuncGetName, (const char **, CUfunction)) \
	X(cuLaunchKernelEx, (const void *, CUfunction, void **, void **)) \
	X(cuLaunchKernelEx_ptsz, (const void *, CUfunction, void **, void **)) \
	X(cuPointerGetAttribute, (void *, int, CUdeviceptr)) \
	X(cuPointerGetAttributes, (unsigned, int *, void **, CUdeviceptr)) \
	X(cuMemHostAlloc, (void **, size_t, unsigned)) \
	X(cuMemAllocHost_v2, (void **, size_t)) \
	X(cuMemFreeHost, (void *))

struct replay_driver {
#define X(name, args) CUresult (*name) args;
	REPLAY(X)
#undef X
};
extern struct replay_driver replay_driver;

// replays is how often the process's objects were made again. Until the first time
// each handle that the program has is the driver's own.
extern _Atomic uint32_t replays;

static inline uint64_t replay_now(enum object_kind kind, uint64_t app) {
	return __builtin_expect(atomic_load_explicit(&replays, memory_order_relaxed) == 0, 1) ? app : object_now(kind, app);
}

// replay_bar says that the process has called a function that a replay does not know; the name stays the caller's.
void replay_bar(const char *name);
int replay_barred(void);

// replay_pinned counts host memory that ends with its context.
extern _Atomic uint32_t replay_pinned;

// Primary contexts, by device. retained and released are called after the driver's function.
void replay_retained(CUdevice device, CUcontext real);
void replay_released(CUdevice device);
CUcontext replay_context(CUdevice device);   // the driver's, or NULL
CUcontext replay_context_now(CUcontext app);
CUcontext replay_context_then(CUcontext real);

// replay_registered and replay_unregistered keep which host memory is registered, and
// where.
void replay_registered(void *at, size_t size, unsigned flags, CUdevice device);
void replay_unregistered(void *at);

// replay_elapsed is cuEventElapsedTime of events of which a replay may have made one again: the time in
// which the process was not on the GPU does not count.
CUresult replay_elapsed(CUresult (*elapsed)(float *, CUevent, CUevent), float *ms, CUevent from, CUevent to);

// replay_refusal writes why the process cannot be replayed; 0: nothing is known against it.
int replay_refusal(char *why, size_t size, uint32_t untracked);

// replay_release destroys everything. Its memory is saved, no call is in flight, and what was submitted has
// ended. Unless it returns 0, nothing was destroyed; RESULT_REFUSED comes with why.
uint32_t replay_release(char *why, size_t size, uint32_t untracked);

// replay_again makes everything again. Unless it returns 0, nothing is there.
CUresult replay_again(void);

#endif
