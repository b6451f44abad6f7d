// Shape "recurrence", with a matrix as state: for every sequence and head, S of (keys, values), from row to row
//
//   S_t = Diag(w_t) S_{t-1} + a_t (b_t^T S_{t-1}) + k_t u_t^T,  o_t = scale S_t^T q_t
//   u_t = beta_t v_t; or, kDelta, beta_t (v_t - t_t) with t_t = (w_t k_t)^T S_{t-1}, and without a and b
//
// kPlain: no a and b (linear attention, Mamba-2); kDelta: the gated delta rule; kPair: a and b are given (RWKV-7).
// w_t is a number or, kByKey, one for each key. Value head h reads the query, the key, a and b of head
// h / (heads / key_heads). A state before and after every sequence; a sequence without rows hands its state on.
//
// A thread takes a sequence and a head, and goes through it once for each slab of columns of S, which its cache holds:
// what a sequence gives depends on its own rows alone. Forwards a row is one pass over the slab: the update, o_t, and
// what the next row reads of S. Backwards the slab is transposed, so that all sums over values are vectors of keys; a
// saved state every matrix_block rows and t of every row are enough to work out the others again. All heads that share
// keys are one item there, since they add to the same gradients.
//
// A state that decays would end in denormals, which are nine times slower: they count as 0 in these kernels.
// CPU only; on a GPU the composition runs. SPDX-License-Identifier: Apache-2.0

#include <memory>

#include "kernels/matrix_scan_api.h"

namespace lod::LOD_LEVEL {

enum MatrixMode { kPlain, kDelta, kPair };
constexpr int kKeysAtOnce = 4, kValuesAtOnce = 4;  // of a pass: the other dim is the vector
constexpr int64_t kKept = 8;                       // rows whose states the backward has at a time
constexpr int64_t kApart = 80;  // between states, so that loads do not meet earlier stores at a distance of 4096 bytes

// Numbers below the smallest normal one count as 0 while this lives, but not where a handler of signals runs.
class FlushToZero {
 public:
  explicit FlushToZero(const Exec& exec) : exec_(exec) { set(); }
  ~FlushToZero() { reset(); }
  void pause() {
    reset();
    exec_.pause();
    set();
  }

 private:
  const Exec& exec_;
#if LOD_LEVELS == 2
  unsigned before_;
  void set() { before_ = _mm_getcsr(), _mm_setcsr(before_ | 0x8040); }
  void reset() { _mm_setcsr(before_); }
#else
  void set() {}
  void reset() {}
#endif
};

template <class T>
class MatrixMemory {  // of a thread, at the beginning of a cache line
 public:
  explicit MatrixMemory(int64_t count) : memory_(new T[count + 64 / sizeof(T)]) {}
  T* begin() const {
    return memory_.get() + (64 - reinterpret_cast<uintptr_t>(memory_.get()) % 64) % 64 / sizeof(T);
  }

 private:
  std::unique_ptr<T[]> memory_;
};

// One sequence and head.
template <class T>
struct MatrixRows {
  const MatrixScan& g;
  int64_t s, h, begin, length, key_head;

  MatrixRows(const MatrixScan& g, int64_t s, int64_t h) : g(g), s(s), h(h), key_head(h / (g.heads / g.key_heads)) {
    const Range rows = rows_of(g.offsets, s, g.rows);
    begin = rows.begin, length = rows.length();
  }
  int64_t at(int64_t i) const { return (begin + i) * g.heads + h; }
  int64_t at_key(int64_t i) const { return ((begin + i) * g.key_heads + key_head) * g.keys; }
  int64_t state() const { return (s * g.heads + h) * g.keys * g.values; }
  // Of those in front of rows i, multiples of the block.
  int64_t saved(int64_t i) const {
    return (((begin + i) / matrix_block(g.keys) - 1) * g.heads + h) * g.keys * g.values;
  }
  static const T* of(const void* p, int64_t at) { return static_cast<const T*>(p) + at; }
  const T* query(int64_t i) const { return of(g.query, at_key(i)); }
  const T* key(int64_t i) const { return of(g.key, at_key(i)); }
  const T* a(int64_t i) const { return of(g.a, at_key(i)); }
  const T* b(int64_t i) const { return of(g.b, at_key(i)); }
  const T* value(int64_t i) const { return of(g.value, at(i) * g.values); }
  const T* decays(int64_t i) const { return of(g.decay, at(i) * g.keys); }
  T decay(int64_t i) const { return *of(g.decay, at(i)); }
  T beta(int64_t i) const { return g.beta ? *of(g.beta, at(i)) : T(1); }
};

// S = w S + k u + a t, out += q S, next += b S of the slab: kKeysAtOnce keys at a time, so that sums stay in registers.
template <int W, MatrixMode mode, bool kByKey, class T>
LOD_FN void matrix_pass(T* __restrict s, int64_t keys, const T* __restrict w, T all, const T* __restrict k,
                        const T* __restrict q, const T* __restrict a, const T* __restrict b, const T* __restrict u,
                        const T* __restrict t, T* __restrict out, T* __restrict next) {
  for (int64_t c = 0; c < keys; c += kKeysAtOnce) {
    T kk[kKeysAtOnce], qq[kKeysAtOnce], ww[kKeysAtOnce], aa[kKeysAtOnce], bb[kKeysAtOnce];
    for (int i = 0; i < kKeysAtOnce; ++i) {
      kk[i] = k[c + i], qq[i] = q[c + i], ww[i] = kByKey ? w[c + i] : all;
      if (mode != kPlain) bb[i] = b[c + i];
      if (mode == kPair) aa[i] = a[c + i];
    }
    T* __restrict rows = s + c * W;
#pragma omp simd
    for (int j = 0; j < W; ++j) {
      T sum = out[j], read = mode != kPlain ? next[j] : T(0), uj = u[j], tj = mode == kPair ? t[j] : T(0);
#pragma GCC unroll 8
      for (int i = 0; i < kKeysAtOnce; ++i) {
        T x = kk[i] * uj + ww[i] * rows[i * W + j];
        if (mode == kPair) x += aa[i] * tj;
        rows[i * W + j] = x;
        sum += qq[i] * x;
        if (mode != kPlain) read += bb[i] * x;
      }
      out[j] = sum;
      if (mode != kPlain) next[j] = read;
    }
  }
}

// Columns [v, v + W) of the states of one sequence and head.
template <class T, int W, MatrixMode mode, bool kByKey>
LOD_NOINLINE void matrix_forward(const MatrixScanForward& g, const MatrixRows<T>& r, int64_t v, T* memory,
                                 FlushToZero& flush) {
  const int64_t keys = g.keys, values = g.values, block = matrix_block(keys);
  T *const s = memory, *const reads = s + keys * W, *const none = reads + keys;
  std::memset(none, 0, keys * sizeof(T));
  alignas(64) T out[W], next[W] = {}, u[W], t[W] = {};
  const auto put = [&](void* to, int64_t at) {
    T* rows = static_cast<T*>(to) + at + v;
    for (int64_t k = 0; k < keys; ++k) std::memcpy(rows + k * values, s + k * W, W * sizeof(T));
  };
  const auto read_by = [&](int64_t i) -> const T* {  // b of row i
    if (i >= r.length) return none;
    if (mode == kPair) return r.b(i);
    if (!kByKey) return r.key(i);  // t is multiplied by the decay instead
    const T *w = r.decays(i), *k = r.key(i);
    for (int64_t c = 0; c < keys; ++c) reads[c] = w[c] * k[c];
    return reads;
  };
  for (int64_t k = 0; k < keys; ++k) {
    if (g.initial) std::memcpy(s + k * W, r.of(g.initial, r.state() + k * values + v), W * sizeof(T));
    else std::memset(s + k * W, 0, W * sizeof(T));
  }
  if (mode != kPlain && g.initial && r.length) {
    const T* b = read_by(0);
    for (int64_t k = 0; k < keys; ++k)
      for (int j = 0; j < W; ++j) next[j] += b[k] * s[k * W + j];
  }
  const T scale = T(g.scale);
  for (int64_t i = 0; i < r.length; ++i) {
    if (i % block == 0 && i) {
      flush.pause();
      if (g.states) put(g.states, r.saved(i));
    }
    const T all = kByKey ? T(1) : r.decay(i), beta = r.beta(i), by = mode == kDelta ? all : T(1);
    const T* given = r.value(i) + v;
    for (int j = 0; j < W; ++j) {
      t[j] = by * next[j], next[j] = 0, out[j] = 0;
      u[j] = mode == kDelta ? beta * (given[j] - t[j]) : beta * given[j];
    }
    if (mode != kPlain && g.reads) std::memcpy(static_cast<T*>(g.reads) + r.at(i) * values + v, t, sizeof t);
    matrix_pass<W, mode, kByKey>(s, keys, kByKey ? r.decays(i) : none, all, r.key(i), r.query(i),
                                 mode == kPair ? r.a(i) : none, mode != kPlain ? read_by(i + 1) : none, u, t, out,
                                 next);
    T* to = static_cast<T*>(g.out) + r.at(i) * values + v;
    for (int j = 0; j < W; ++j) to[j] = scale * out[j];
  }
  put(g.last, r.state());
}

// Sums of `lanes` partial sums each.
template <int lanes, int W, class T>
LOD_FN void fold(T* __restrict to, T* __restrict x) {
  if constexpr (lanes > 1) {
    T half[W * (lanes / 2)];
    for (int v = 0; v < W; ++v)
      for (int l = 0; l < lanes / 2; ++l) half[v * (lanes / 2) + l] = x[v * lanes + l] + x[v * lanes + lanes / 2 + l];
    fold<lanes / 2, W>(to, half);
  } else {
    for (int v = 0; v < W; ++v) to[v] = x[v];
  }
}

// What one row adds to gradients, of which the backward needs two rows at a time: S here is the state between them.
// The later row has w, b and d, the gradient of its t, and adds to db and dw; the earlier one has the others.
template <class T>
struct MatrixStep {
  const T *w, *b, *d;
  T all;
  const T *out, *q, *k, *a, *u, *t;
  T *db, *dw, *dq, *dk, *da;
};
// g, transposed as s: the gradient of the state behind the later row, then of that between them. x = k^T g, y = a^T g.
template <int W, MatrixMode mode, bool kByKey, class T>
LOD_FN void matrix_pass_back(T* __restrict g, const T* __restrict s, int64_t keys, const MatrixStep<T>& step,
                             T* __restrict x, T* __restrict y) {
  constexpr int lanes = 64 / sizeof(T);
  const T *__restrict w = step.w, *__restrict b = step.b, *__restrict q = step.q, *__restrict k = step.k,
                     *__restrict a = step.a;
  T *__restrict db = step.db, *__restrict dw = step.dw, *__restrict dq = step.dq, *__restrict dk = step.dk,
               *__restrict da = step.da;
  const T all = step.all;
  alignas(64) T xs[W * lanes], ys[W * lanes];
  for (int c = 0; c < W; c += kValuesAtOnce) {
    T dd[kValuesAtOnce], oo[kValuesAtOnce], uu[kValuesAtOnce], tt[kValuesAtOnce];
    for (int i = 0; i < kValuesAtOnce; ++i)
      dd[i] = step.d[c + i], oo[i] = step.out[c + i], uu[i] = step.u[c + i], tt[i] = step.t[c + i];
    T* __restrict gc = g + c * keys;
    const T* __restrict sc = s + c * keys;
    T *__restrict xc = xs + c * lanes, *__restrict yc = ys + c * lanes;
    for (int l = 0; l < kValuesAtOnce * lanes; ++l) {
      xc[l] = 0;
      if (mode == kPair) yc[l] = 0;
    }
    for (int64_t first = 0; first < keys; first += lanes)
#pragma omp simd
      for (int l = 0; l < lanes; ++l) {
        const int64_t j = first + l;
        const T wj = kByKey ? w[j] : all, qj = q[j], kj = k[j];
        const T bj = mode != kPlain ? b[j] : T(0), aj = mode == kPair ? a[j] : T(0);
        T dqj = dq[j], dkj = dk[j], dwj = dw[j];
        T dbj = mode != kPlain ? db[j] : T(0), daj = mode == kPair ? da[j] : T(0);
#pragma GCC unroll 8
        for (int i = 0; i < kValuesAtOnce; ++i) {
          const T behind = gc[i * keys + j], between = sc[i * keys + j];
          T here = wj * behind + oo[i] * qj;
          if (mode != kPlain) dbj += dd[i] * between, here += dd[i] * bj;
          dwj += behind * between;
          gc[i * keys + j] = here;
          dqj += oo[i] * between, dkj += uu[i] * here, xc[i * lanes + l] += here * kj;
          if (mode == kPair) daj += tt[i] * here, yc[i * lanes + l] += here * aj;
        }
        dq[j] = dqj, dk[j] = dkj, dw[j] = dwj;
        if (mode != kPlain) db[j] = dbj;
        if (mode == kPair) da[j] = daj;
      }
  }
  fold<lanes, W>(x, xs);
  if (mode == kPair) fold<lanes, W>(y, ys);
}

// Columns [v, v + W) of the states of one sequence and head.
template <class T, int W, MatrixMode mode, bool kByKey>
struct MatrixBackward {
  const MatrixScanBackward& g;
  const MatrixRows<T>& r;
  int64_t v;
  T* memory;
  int64_t keys = g.keys, values = g.values, block = matrix_block(keys), size = keys * W + kApart;
  T *grad = memory, *kept = grad + size, *heads = kept + (kKept + 1) * size, *db = heads + block / kKept * size;
  T *dw = db + keys, *none = dw + keys, *nowhere = none + keys, *ones = nowhere + 4 * keys, *b = ones + keys;
  T *product = b + keys, *k_decayed = product + keys, *a_decayed = k_decayed + kKept * keys;
  alignas(64) T d[W] = {}, u[W], t[W] = {}, x[W], y[W], out[W];
  int64_t later = -1;  // the row behind the one that is being worked on

  static int64_t scratch(int64_t keys) {
    return (kKept + 2 + matrix_block(keys) / kKept) * (keys * W + kApart) + (10 + 2 * kKept) * keys;
  }
  void turn(const void* from, int64_t at, T* to) const {
    const T* rows = r.of(from, at + v);
    for (int64_t k = 0; k < keys; ++k)
      for (int j = 0; j < W; ++j) to[j * keys + k] = rows[k * values + j];
  }
  void load(int64_t i) {  // u and t of a row
    const T beta = r.beta(i);
    const T *given = r.value(i) + v, *read = mode == kPlain ? none : r.of(g.reads, r.at(i) * values + v);
    for (int j = 0; j < W; ++j) {
      if (mode != kPlain) t[j] = read[j];
      u[j] = mode == kDelta ? beta * (given[j] - t[j]) : beta * given[j];
    }
  }
  T* grad_row(void* to, int64_t i) const { return static_cast<T*>(to) + r.at_key(i); }

  // To the gradients of the later row, what was summed for it.
  void finish() {
    if (later < 0) return;
    T* gw = static_cast<T*>(g.grad_decay) + r.at(later) * (kByKey ? keys : 1);
    if (!kByKey) {
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < keys; ++j) sum += dw[j], dw[j] = 0;
      *gw += sum;
    }
    if (mode == kPair) {
      T* gb = grad_row(g.grad_b, later);
      for (int64_t j = 0; j < keys; ++j) gb[j] += db[j];
    } else if (mode == kDelta) {
      T *__restrict gk = grad_row(g.grad_key, later), sum = 0;
      const T* k = r.key(later);
      if (kByKey) {
        const T* w = r.decays(later);
        for (int64_t j = 0; j < keys; ++j) gk[j] += w[j] * db[j], gw[j] += k[j] * db[j];
      } else {
        const T all = r.decay(later);
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < keys; ++j) gk[j] += all * db[j], sum += k[j] * db[j];
        *gw += sum;
      }
    }
  }
  MatrixStep<T> step() {  // with nothing of the earlier row
    MatrixStep<T> of{ones, none, d, T(1), out, none, none, none, u, t, db, nowhere, nowhere + keys, nowhere + 2 * keys,
                     nowhere + 3 * keys};
    if (later < 0) return of;
    of.dw = kByKey ? static_cast<T*>(g.grad_decay) + r.at(later) * keys : dw;
    if (kByKey) of.w = r.decays(later);
    else of.all = r.decay(later);
    of.b = mode == kPair ? r.b(later) : b;
    return of;
  }
  // Row i, with the state behind it.
  void row(int64_t i, const T* behind) {
    load(i);
    const T* given = g.grad_out ? r.of(g.grad_out, r.at(i) * values + v) : nullptr;
    for (int j = 0; j < W; ++j) out[j] = given ? T(g.scale) * given[j] : T(0);
    if (mode != kPlain) std::memset(db, 0, keys * sizeof(T));
    MatrixStep<T> of = step();
    of.q = r.query(i), of.k = r.key(i), of.dq = grad_row(g.grad_query, i), of.dk = grad_row(g.grad_key, i);
    if (mode == kPair) of.a = r.a(i), of.da = grad_row(g.grad_a, i);
    matrix_pass_back<W, mode, kByKey>(grad, behind, keys, of, x, y);
    finish();
    const T beta = r.beta(i), *value = r.value(i) + v;
    T* gv = static_cast<T*>(g.grad_value) + r.at(i) * values + v;
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < W; ++j) {
      sum += x[j] * (mode == kDelta ? value[j] - t[j] : value[j]);
      gv[j] = beta * x[j];
      d[j] = mode == kDelta ? -beta * x[j] : mode == kPair ? y[j] : T(0);
    }
    if (g.grad_beta) static_cast<T*>(g.grad_beta)[r.at(i)] += sum;
    later = i;
    if (mode == kDelta) {
      const T *k = r.key(i), *w = kByKey ? r.decays(i) : none, all = kByKey ? T(0) : r.decay(i);
      for (int64_t j = 0; j < keys; ++j) b[j] = (kByKey ? w[j] : all) * k[j];
    }
  }
  // heads[next]: the state kKept rows behind heads[next - 1], in front of row i, in one go.
  void ahead(int64_t i, int64_t next) {
    alignas(64) T us[kKept * W], ts[kKept * W];
    for (int64_t j = 0; j < keys; ++j) product[j] = 1;
    for (int64_t n = kKept - 1; n >= 0; --n) {
      load(i + n);
      std::memcpy(us + n * W, u, sizeof u);
      if (mode == kPair) std::memcpy(ts + n * W, t, sizeof t);
      const T *k = r.key(i + n), *w = kByKey ? r.decays(i + n) : none, *a = mode == kPair ? r.a(i + n) : none;
      const T all = kByKey ? T(1) : r.decay(i + n);
      for (int64_t j = 0; j < keys; ++j) {
        k_decayed[n * keys + j] = k[j] * product[j];
        if (mode == kPair) a_decayed[n * keys + j] = a[j] * product[j];
        product[j] *= kByKey ? w[j] : all;
      }
    }
    const T *__restrict from = heads + (next - 1) * size, *__restrict kd = k_decayed, *__restrict ad = a_decayed,
                       *__restrict p = product;
    T* __restrict to = heads + next * size;
    for (int c = 0; c < W; ++c)
#pragma omp simd
      for (int64_t j = 0; j < keys; ++j) {
        T sum = p[j] * from[c * keys + j];
#pragma GCC unroll 8
        for (int n = 0; n < kKept; ++n) {
          sum += kd[n * keys + j] * us[n * W + c];
          if (mode == kPair) sum += ad[n * keys + j] * ts[n * W + c];
        }
        to[c * keys + j] = sum;
      }
  }
  // kept[n + 1] behind row i of kept[n] in front of it.
  void one_row(int64_t i, int64_t n) {
    load(i);
    const T *__restrict k = r.key(i), *__restrict w = kByKey ? r.decays(i) : none,
                       *__restrict a = mode == kPair ? r.a(i) : none;
    const T all = kByKey ? T(1) : r.decay(i);
    for (int c = 0; c < W; ++c) {
      const T *__restrict from = kept + n * size + c * keys, uc = u[c], tc = t[c];
      T* __restrict to = kept + (n + 1) * size + c * keys;
#pragma omp simd
      for (int64_t j = 0; j < keys; ++j) {
        T x_ = (kByKey ? w[j] : all) * from[j] + k[j] * uc;
        if (mode == kPair) x_ += a[j] * tc;
        to[j] = x_;
      }
    }
  }
  LOD_NOINLINE void run(FlushToZero& flush) {
    std::memset(dw, 0, 6 * keys * sizeof(T));  // none and nowhere as well
    std::fill(ones, ones + keys, T(1));
    if (g.grad_last) turn(g.grad_last, r.state(), grad);
    else std::memset(grad, 0, size * sizeof(T));
    const int64_t blocks = (r.length + block - 1) / block;
    for (int64_t c = blocks - 1; c >= 0; --c) {
      const int64_t first = c * block, rows = std::min(block, r.length - first), parts = (rows + kKept - 1) / kKept;
      if (c) turn(g.states, r.saved(first), heads);
      else if (g.initial) turn(g.initial, r.state(), heads);
      else std::memset(heads, 0, size * sizeof(T));
      for (int64_t p = 1; p < parts; ++p) ahead(first + (p - 1) * kKept, p);
      for (int64_t p = parts - 1; p >= 0; --p) {
        const int64_t start = p * kKept, some = std::min(kKept, rows - start);
        std::memcpy(kept, heads + p * size, size * sizeof(T));
        for (int64_t n = 0; n < some; ++n) one_row(first + start + n, n);
        for (int64_t n = some - 1; n >= 0; --n) row(first + start + n, kept + (n + 1) * size);
      }
      flush.pause();
    }
    if (r.length) {  // the decay and b of row 0, and the state in front of it
      for (int j = 0; j < W; ++j) out[j] = u[j] = t[j] = 0;
      if (mode != kPlain) std::memset(db, 0, keys * sizeof(T));
      matrix_pass_back<W, mode, kByKey>(grad, kept, keys, step(), x, y);
      finish();
    }
    if (!g.grad_initial) return;
    T* to = static_cast<T*>(g.grad_initial) + r.state() + v;
    for (int64_t k = 0; k < keys; ++k)
      for (int j = 0; j < W; ++j) to[k * values + j] = grad[j * keys + k];
  }
};

// f with the mode and whether there is a decay for each key.
template <class F>
void visit_matrix(const MatrixScan& g, const F& f) {
  const auto of = [&](auto mode) {
    if (g.by_key) f(mode, std::true_type{});
    else f(mode, std::false_type{});
  };
  if (g.a) of(std::integral_constant<MatrixMode, kPair>{});
  else if (g.delta) of(std::integral_constant<MatrixMode, kDelta>{});
  else of(std::integral_constant<MatrixMode, kPlain>{});
}
// f<W>(v) for slabs of W columns from v on.
template <class T, int most, class F>
void matrix_slabs(int64_t values, const F& f) {
  constexpr int wide = sizeof(T) == 4 ? most : 16;
  int64_t v = 0;
  if constexpr (wide >= 64)
    for (; v + 64 <= values; v += 64) f(std::integral_constant<int, 64>{}, v);
  if constexpr (wide >= 32)
    for (; v + 32 <= values; v += 32) f(std::integral_constant<int, 32>{}, v);
  for (; v < values; v += 16) f(std::integral_constant<int, 16>{}, v);
}
// Elements that an item touches, for sequences of average length.
inline int64_t matrix_cost(const MatrixScan& g, int64_t items) {
  return (g.rows * g.heads + g.segments) / std::max<int64_t>(1, items) * g.keys * g.values / 4 + 1;
}

LOD_ENTRY void matrix_scan_forward(const Exec& exec, DType dtype, const MatrixScanForward& g) {
  const auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    visit_matrix(g, [&](auto mode, auto by_key) {
      const int64_t items = g.segments * g.heads;
      each_part(exec, items, matrix_cost(g, items), [&](int64_t item, int64_t end) {
        const MatrixMemory<T> memory(g.keys * (64 + 2));
        FlushToZero flush(exec);
        for (; item < end; ++item) {
          const MatrixRows<T> rows(g, item / g.heads, item % g.heads);
          matrix_slabs<T, 64>(g.values, [&](auto width, int64_t v) {
            matrix_forward<T, width(), mode(), by_key()>(g, rows, v, memory.begin(), flush);
          });
        }
      });
    });
  };
  if (dtype == DType::f64) run(Type<double>{});
  else run(Type<float>{});
}
LOD_ENTRY void matrix_scan_backward(const Exec& exec, DType dtype, const MatrixScanBackward& g) {
  const auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    visit_matrix(g, [&](auto mode, auto by_key) {
      const int64_t items = g.segments * g.key_heads, group = g.heads / g.key_heads;
      each_part(exec, items, 4 * matrix_cost(g, items), [&](int64_t item, int64_t end) {
        const MatrixMemory<T> memory(MatrixBackward<T, 32, mode(), by_key()>::scratch(g.keys));
        FlushToZero flush(exec);
        for (; item < end; ++item)
          for (int64_t h = item % g.key_heads * group, last = h + group; h < last; ++h) {
            const MatrixRows<T> rows(g, item / g.key_heads, h);
            matrix_slabs<T, 32>(g.values, [&](auto width, int64_t v) {
              MatrixBackward<T, width(), mode(), by_key()>{g, rows, v, memory.begin()}.run(flush);
            });
          }
      });
    });
  };
  if (dtype == DType::f64) run(Type<double>{});
  else run(Type<float>{});
}

}  // namespace lod::LOD_LEVEL
