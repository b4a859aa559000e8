// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// The part of cuBLAS that muster disagg run calls, for the fake driver of
// fake.c: it computes on the CPU, when the stream gets there. As with the real
// one, a stream that is set forgets the workspace. It refuses what the real one
// would do without an error: a call without a workspace, and one with memory of
// another GPU.
//
// Sums are in double precision, in the workspace. Two calls that use one at the
// same time end the program.
//
// With MUSTER_FAKE_GPU_LOG each call appends a line to that file as it starts.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../shim/driver.h"

enum { success = 0, not_initialized = 1, alloc_failed = 3, invalid_value = 7, not_supported = 15 }; // cublasStatus_t
enum { f32 = 0, f64 = 1, f16 = 2, s8 = 3, s32 = 10, bf16 = 14 };                                   // cudaDataType
enum { none = 0, transposed = 1, conjugate = 2 };                                                  // cublasOperation_t

static CUresult (*cuCtxGetDevice)(CUdevice *);
static CUresult (*cuPointerGetAttribute)(void *, int, CUdeviceptr);
static CUresult (*cuLaunchHostFunc)(CUstream, void (*)(void *), void *);
static CUresult (*cuStreamIsCapturing)(CUstream, int *);

struct handle {
	CUdevice device;
	CUstream stream;
	double *workspace;
	size_t bytes;
};

MUSTER_EXPORT int cublasCreate_v2(struct handle **out) {
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (!driver)
		return not_initialized;
#define FIND(name) if (!(*(void **)&name = dlsym(driver, #name))) return not_initialized;
	FIND(cuCtxGetDevice)
	FIND(cuPointerGetAttribute)
	FIND(cuLaunchHostFunc)
	FIND(cuStreamIsCapturing)
	CUdevice device;
	if (cuCtxGetDevice(&device))
		return not_initialized;
	*out = calloc(1, sizeof **out);
	(*out)->device = device;
	return success;
}

MUSTER_EXPORT int cublasSetStream_v2(struct handle *h, CUstream s) {
	h->stream = s;
	h->workspace = NULL;
	return success;
}

MUSTER_EXPORT int cublasSetWorkspace_v2(struct handle *h, void *workspace, size_t bytes) {
	h->workspace = workspace;
	h->bytes = bytes;
	return (uint64_t)workspace % 256 ? invalid_value : success;
}

MUSTER_EXPORT const char *cublasGetStatusName(int status) {
	return status == invalid_value ? "CUBLAS_STATUS_INVALID_VALUE" : status == not_supported ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_UNKNOWN";
}

// --- elements

static size_t size_of(int type) { return type == f64 ? 8 : type == f32 || type == s32 ? 4 : type == s8 ? 1 : 2; }

static double half(uint16_t x) {
	int e = x >> 10 & 31, m = x & 1023;
	double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
	return x >> 15 ? -v : v;
}

static uint16_t to_half(double v) { // to the nearest, ties to even
	uint16_t sign = signbit(v) ? 0x8000 : 0;
	int e;
	if (isnan(v))
		return 0x7fff;
	v = fabs(v);
	if (v >= 65520)
		return sign | 0x7c00;
	if (v < ldexp(1, -14))
		return sign | (uint16_t)nearbyint(ldexp(v, 24));
	frexp(v, &e); // a fraction of 2048 carries into the exponent
	return (uint16_t)(sign | (uint16_t)(((e + 13) << 10) + (int)nearbyint(ldexp(v, 11 - e))));
}

static double load(const void *base, int type, size_t i) {
	uint32_t bits;
	float f;
	switch (type) {
	case f64:
		return ((const double *)base)[i];
	case f32:
		return (double)((const float *)base)[i];
	case s32:
		return ((const int32_t *)base)[i];
	case s8:
		return ((const int8_t *)base)[i];
	case f16:
		return half(((const uint16_t *)base)[i]);
	}
	bits = (uint32_t)((const uint16_t *)base)[i] << 16;
	memcpy(&f, &bits, 4);
	return (double)f;
}

static void store(void *base, int type, size_t i, double v) {
	uint32_t bits;
	float f = (float)v;
	switch (type) {
	case f64:
		((double *)base)[i] = v;
		return;
	case f32:
		((float *)base)[i] = f;
		return;
	case s32:
		((int32_t *)base)[i] = (int32_t)v;
		return;
	case f16:
		((uint16_t *)base)[i] = to_half(v);
		return;
	}
	memcpy(&bits, &f, 4); // bf16, to the nearest, ties to even; NaN stays one
	((uint16_t *)base)[i] = (uint16_t)(isnan(f) ? bits >> 16 | 64 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// --- D = epilogue(alpha op(A) op(B) + beta C + bias), for each of a batch; D is C but for cublasLtMatmul

struct matrix {
	void *at;
	int type;
	int64_t lead, stride;
};
struct product {
	const char *name;
	CUdevice device;
	double *workspace;
	int transa, transb, m, n, k, count, captured;
	double alpha, beta;
	struct matrix a, b, c, d;
	const void *bias; // a number a row, or NULL
	int bias_type, epilogue;
};
enum { relu = 2, with_bias = 4, gelu = 32 }; // cublasLtEpilogue_t

static void started(const struct product *p) {
	const char *path = getenv("MUSTER_FAKE_GPU_LOG");
	int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
	if (fd < 0)
		return;
	dprintf(fd, "routine %d %s\n", p->device, p->name);
	close(fd);
}

// occupied are the workspaces that are in use.
static double *occupied[256];
static pthread_mutex_t occupied_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t occupy(double *workspace) {
	size_t free_at = 256;
	pthread_mutex_lock(&occupied_lock);
	for (size_t i = 0; i < 256; i++) {
		if (occupied[i] == workspace) {
			fprintf(stderr, "fake cuBLAS: two calls use a workspace at the same time\n");
			_exit(1);
		}
		if (!occupied[i])
			free_at = i;
	}
	if (free_at == 256)
		abort();
	occupied[free_at] = workspace;
	pthread_mutex_unlock(&occupied_lock);
	return free_at;
}

static void vacate(size_t at) {
	pthread_mutex_lock(&occupied_lock);
	occupied[at] = NULL;
	pthread_mutex_unlock(&occupied_lock);
}

static void multiply(void *argument) {
	struct product *p = argument;
	started(p);
	size_t place = occupy(p->workspace);
	double *sums = p->workspace;
	for (int64_t z = 0; z < p->count; z++)
		for (int64_t j = 0; j < p->n; j++) {
			for (int64_t i = 0; i < p->m; i++) {
				sums[i] = 0;
				for (int64_t l = 0; l < p->k; l++)
					sums[i] += load(p->a.at, p->a.type, (size_t)(z * p->a.stride + (p->transa ? l + i * p->a.lead : i + l * p->a.lead))) *
						load(p->b.at, p->b.type, (size_t)(z * p->b.stride + (p->transb ? j + l * p->b.lead : l + j * p->b.lead)));
			}
			for (int64_t i = 0; i < p->m; i++) {
				double v = p->alpha * sums[i] + (p->beta != 0 ? p->beta * load(p->c.at, p->c.type, (size_t)(z * p->c.stride + i + j * p->c.lead)) : 0);
				if (p->bias)
					v += load(p->bias, p->bias_type, (size_t)i);
				if (p->epilogue & relu)
					v = v > 0 ? v : 0;
				if (p->epilogue & gelu)
					v *= 0.5 * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
				store(p->d.at, p->d.type, (size_t)(z * p->d.stride + i + j * p->d.lead), v);
			}
		}
	vacate(place);
	if (!p->captured) // a graph runs it again
		free(p);
}

// on reports whether a matrix is memory of the device.
static int on(CUdevice device, const struct matrix *m, int64_t rows, int64_t columns, int64_t count) {
	int first = -1, last = -1;
	size_t end = (size_t)((count - 1) * m->stride + (columns - 1) * m->lead + rows) * size_of(m->type);
	return m->lead >= rows && !cuPointerGetAttribute(&first, 9, (uint64_t)m->at) && !cuPointerGetAttribute(&last, 9, (uint64_t)m->at + end - 1) && first == device && last == device;
}

static int submit(struct handle *h, const char *name, struct product p) {
	int device = -1;
	if (!p.d.at)
		p.d = p.c;
	if (!h->stream || !h->workspace || cuPointerGetAttribute(&device, 9, (uint64_t)h->workspace) || device != h->device || h->bytes < (size_t)p.m * sizeof(double))
		return not_supported;
	if (p.transa < none || p.transa > conjugate || p.transb < none || p.transb > conjugate || p.m < 1 || p.n < 1 || p.k < 1 || p.count < 1 ||
		!on(device, &p.a, p.transa ? p.k : p.m, p.transa ? p.m : p.k, p.count) || !on(device, &p.b, p.transb ? p.n : p.k, p.transb ? p.k : p.n, p.count) || !on(device, &p.c, p.m, p.n, p.count) || !on(device, &p.d, p.m, p.n, p.count))
		return invalid_value;
	struct product *kept = malloc(sizeof *kept);
	*kept = p;
	kept->name = name;
	kept->device = device;
	kept->workspace = h->workspace;
	cuStreamIsCapturing(h->stream, &kept->captured);
	return cuLaunchHostFunc(h->stream, multiply, kept) ? alloc_failed : success;
}

#define GEMM(name, type, tag) \
	MUSTER_EXPORT int name(struct handle *h, int ta, int tb, int m, int n, int k, const type *alpha, void *a, int lda, void *b, int ldb, const type *beta, void *c, int ldc) { \
		return submit(h, #name, (struct product){.transa = ta, .transb = tb, .m = m, .n = n, .k = k, .count = 1, .alpha = load(alpha, tag, 0), .beta = load(beta, tag, 0), \
			.a = {a, tag, lda, 0}, .b = {b, tag, ldb, 0}, .c = {c, tag, ldc, 0}}); \
	}
#define BATCHED(name, type, tag) \
	MUSTER_EXPORT int name(struct handle *h, int ta, int tb, int m, int n, int k, const type *alpha, void *a, int lda, long long sa, void *b, int ldb, long long sb, const type *beta, void *c, int ldc, long long sc, int count) { \
		return submit(h, #name, (struct product){.transa = ta, .transb = tb, .m = m, .n = n, .k = k, .count = count, .alpha = load(alpha, tag, 0), .beta = load(beta, tag, 0), \
			.a = {a, tag, lda, sa}, .b = {b, tag, ldb, sb}, .c = {c, tag, ldc, sc}}); \
	}
// A vector with a step is a matrix of one row, that far from column to column.
#define GEMV(name, type, tag) \
	MUSTER_EXPORT int name(struct handle *h, int trans, int m, int n, const type *alpha, void *a, int lda, void *x, int incx, const type *beta, void *y, int incy) { \
		return submit(h, #name, (struct product){.transa = none, .transb = !trans, .m = 1, .n = trans ? n : m, .k = trans ? m : n, .count = 1, .alpha = load(alpha, tag, 0), .beta = load(beta, tag, 0), \
			.a = {x, tag, incx, 0}, .b = {a, tag, lda, 0}, .c = {y, tag, incy, 0}}); \
	}
GEMM(cublasSgemm_v2, float, f32)
GEMM(cublasDgemm_v2, double, f64)
GEMM(cublasHgemm, uint16_t, f16)
BATCHED(cublasSgemmStridedBatched, float, f32)
BATCHED(cublasDgemmStridedBatched, double, f64)
BATCHED(cublasHgemmStridedBatched, uint16_t, f16)
GEMV(cublasSgemv_v2, float, f32)
GEMV(cublasDgemv_v2, double, f64)

// scalar_type is that of alpha and beta; -1 of a cublasComputeType_t that is not known.
static int scalar_type(int compute) {
	return compute == 64 || compute == 65 ? f16 : compute == 70 || compute == 71 ? f64 : compute == 72 || compute == 73 ? s32 : compute >= 68 && compute <= 77 ? f32 : -1;
}

static int mixed(struct handle *h, const char *name, int ta, int tb, int m, int n, int k, const void *alpha, void *a, int at, int lda, long long sa,
	void *b, int bt, int ldb, long long sb, const void *beta, void *c, int ct, int ldc, long long sc, int count, int compute, int algo) {
	int tag = scalar_type(compute);
	if (tag < 0 || (algo != -1 && algo != 99))
		return not_supported;
	return submit(h, name, (struct product){.transa = ta, .transb = tb, .m = m, .n = n, .k = k, .count = count, .alpha = load(alpha, tag, 0), .beta = load(beta, tag, 0),
		.a = {a, at, lda, sa}, .b = {b, bt, ldb, sb}, .c = {c, ct, ldc, sc}});
}

MUSTER_EXPORT int cublasGemmStridedBatchedEx(struct handle *h, int ta, int tb, int m, int n, int k, const void *alpha, void *a, int at, int lda, long long sa,
	void *b, int bt, int ldb, long long sb, const void *beta, void *c, int ct, int ldc, long long sc, int count, int compute, int algo) {
	return mixed(h, "cublasGemmStridedBatchedEx", ta, tb, m, n, k, alpha, a, at, lda, sa, b, bt, ldb, sb, beta, c, ct, ldc, sc, count, compute, algo);
}

MUSTER_EXPORT int cublasGemmEx(struct handle *h, int ta, int tb, int m, int n, int k, const void *alpha, void *a, int at, int lda,
	void *b, int bt, int ldb, const void *beta, void *c, int ct, int ldc, int compute, int algo) {
	return mixed(h, "cublasGemmEx", ta, tb, m, n, k, alpha, a, at, lda, 0, b, bt, ldb, 0, beta, c, ct, ldc, 0, 1, compute, algo);
}

// --- cublasLt: the real one is another library, in which a search in libcublas looks, too

struct operation {
	int compute, scale, transa, transb, epilogue, bias_type;
	const void *bias;
};
struct layout {
	int type, count;
	uint64_t rows, columns;
	int64_t lead, stride;
};
struct preference {
	uint64_t bytes;
	uint32_t aligned[4]; // of A, B, C and D
};
struct chosen {
	struct preference algorithm; // 64 bytes in the real one, which are its own
	uint64_t rest[5];
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
};
_Static_assert(sizeof(struct chosen) == 96, "as cublasLtMatmulHeuristicResult_t");

// SETS is an attribute, by its number, of a type that its size tells.
#define SETS(number, to) if (attribute == number) return bytes == sizeof(to) ? memcpy(&(to), value, bytes), success : invalid_value;

MUSTER_EXPORT int cublasLtMatmulDescCreate(struct operation **out, int compute, int scale) {
	*out = calloc(1, sizeof **out);
	**out = (struct operation){.compute = compute, .scale = scale, .epilogue = 1};
	return scalar_type(compute) == scale ? success : not_supported;
}
MUSTER_EXPORT int cublasLtMatmulDescSetAttribute(struct operation *o, int attribute, const void *value, size_t bytes) {
	SETS(3, o->transa)
	SETS(4, o->transb)
	SETS(7, o->epilogue)
	SETS(8, o->bias)
	SETS(26, o->bias_type)
	return invalid_value;
}
MUSTER_EXPORT int cublasLtMatmulDescDestroy(struct operation *o) { return free(o), success; }

MUSTER_EXPORT int cublasLtMatrixLayoutCreate(struct layout **out, int type, uint64_t rows, uint64_t columns, int64_t lead) {
	*out = calloc(1, sizeof **out);
	**out = (struct layout){type, 1, rows, columns, lead, 0};
	return success;
}
MUSTER_EXPORT int cublasLtMatrixLayoutSetAttribute(struct layout *l, int attribute, const void *value, size_t bytes) {
	SETS(5, l->count)
	SETS(6, l->stride)
	return invalid_value;
}
MUSTER_EXPORT int cublasLtMatrixLayoutDestroy(struct layout *l) { return free(l), success; }

MUSTER_EXPORT int cublasLtMatmulPreferenceCreate(struct preference **out) {
	*out = calloc(1, sizeof **out);
	**out = (struct preference){0, {256, 256, 256, 256}};
	return success;
}
MUSTER_EXPORT int cublasLtMatmulPreferenceSetAttribute(struct preference *p, int attribute, const void *value, size_t bytes) {
	SETS(1, p->bytes)
	SETS(5, p->aligned[0])
	SETS(6, p->aligned[1])
	SETS(7, p->aligned[2])
	SETS(8, p->aligned[3])
	return invalid_value;
}
MUSTER_EXPORT int cublasLtMatmulPreferenceDestroy(struct preference *p) { return free(p), success; }

// fits reports whether matrices have the sizes of a product.
static int fits(const struct operation *o, const struct layout *a, const struct layout *b, const struct layout *c, const struct layout *d) {
	uint64_t m = o->transa ? a->columns : a->rows, k = o->transa ? a->rows : a->columns, n = o->transb ? b->rows : b->columns;
	return (o->transb ? b->columns : b->rows) == k && c->rows == m && d->rows == m && c->columns == n && d->columns == n && a->count == d->count && b->count == d->count && c->count == d->count;
}

MUSTER_EXPORT int cublasLtMatmulAlgoGetHeuristic(void *h, struct operation *o, struct layout *a, struct layout *b, struct layout *c, struct layout *d, struct preference *p, int wanted, struct chosen *out, int *found) {
	if (!h || wanted != 1 || !fits(o, a, b, c, d))
		return invalid_value;
	*out = (struct chosen){.algorithm = *p, .workspace = p->bytes};
	*found = 1;
	return success;
}

// The algorithm is one for the alignments and the workspace that were preferred.
MUSTER_EXPORT int cublasLtMatmul(struct handle *h, struct operation *o, const void *alpha, void *at, struct layout *a, void *bt, struct layout *b, const void *beta, void *ct, struct layout *c,
	void *dt, struct layout *d, const struct preference *algorithm, void *workspace, size_t bytes, CUstream s) {
	void *all[] = {at, bt, ct, dt};
	for (int i = 0; i < 4; i++)
		if ((uint64_t)all[i] % algorithm->aligned[i])
			return invalid_value;
	int of_bias = h->device;
	if (o->bias && cuPointerGetAttribute(&of_bias, 9, (uint64_t)o->bias))
		return invalid_value;
	if (!fits(o, a, b, c, d) || of_bias != h->device || bytes < algorithm->bytes || (o->epilogue & with_bias) != (o->bias ? with_bias : 0))
		return invalid_value;
	struct handle here = {h->device, s, workspace, bytes};
	return submit(&here, "cublasLtMatmul", (struct product){.transa = o->transa, .transb = o->transb, .m = (int)d->rows, .n = (int)d->columns, .k = (int)(o->transa ? a->rows : a->columns), .count = d->count,
		.alpha = load(alpha, o->scale, 0), .beta = load(beta, o->scale, 0), .a = {at, a->type, a->lead, a->stride}, .b = {bt, b->type, b->lead, b->stride}, .c = {ct, c->type, c->lead, c->stride},
		.d = {dt, d->type, d->lead, d->stride}, .bias = o->bias, .bias_type = o->bias_type, .epilogue = o->epilogue});
}
