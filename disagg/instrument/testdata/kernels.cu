// Kernels that the tests compile with clang, if it is installed, without NVIDIA's headers.
#define KERNEL extern "C" __attribute__((global)) void
#define DEVICE __attribute__((device))

DEVICE int thread() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE int block() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE int size() { return __nvvm_read_ptx_sreg_ntid_x(); }

DEVICE float polynomial(const float *c, int n, float x) {
  float s = 0;
  for (int i = n - 1; i >= 0; i--)
    s = s * x + c[i];
  return s;
}

KERNEL horner(float *y, const float *x, const float *c, int n, int m) {
  int i = block() * size() + thread();
  if (i < m)
    y[i] = polynomial(c, n, x[i]);
}

KERNEL reduce(int *out, const int *x, int n) {
  __attribute__((shared)) static int s[64];
  int t = thread(), v = 0;
  for (int i = block() * size() + t; i < n; i += 128)
    v += x[i];
  s[t] = v;
  __syncthreads();
  for (int k = 32; k > 0; k >>= 1) {
    if (t < k)
      s[t] += s[t + k];
    __syncthreads();
  }
  if (t == 0)
    __nvvm_atom_add_gen_i(out, s[0]);
}

KERNEL sort(unsigned *x) {
  unsigned a[4], *p = x + 4 * thread();
  for (int i = 0; i < 4; i++)
    a[i] = p[i];
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 3; j++)
      if (a[j] > a[j + 1]) {
        unsigned t = a[j];
        a[j] = a[j + 1];
        a[j + 1] = t;
      }
  for (int i = 0; i < 4; i++)
    p[i] = a[i];
}

DEVICE unsigned collatz(unsigned n) { return n == 1 ? 0 : 1 + collatz(n & 1 ? 3 * n + 1 : n / 2); }

KERNEL steps(unsigned *x) { x[thread()] = collatz(x[thread()]); }

KERNEL branches(int *x) {
  int i = thread();
  switch (x[i] & 7) {
  case 0: x[i] = 1; break;
  case 1: x[i] *= 3; break;
  case 2: x[i] = -x[i]; break;
  case 3: x[i] /= 5; break;
  case 4: x[i] %= 7; break;
  case 5: x[i] ^= 0x55; break;
  default: x[i] = (int)((double)x[i] * 0.25);
  }
}
