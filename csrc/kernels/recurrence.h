// Shape "recurrence": step t of all sequences. Kernel source, see torch_lod/device.h.
//
// Sequences are ordered longest first, so the active ones at a step are a prefix; start[j] is the row where the j-th
// begins (its last row when it runs backwards) and its row at step t is start[j] + t * step. Rows stay where they are:
// the cells read and write them in place, and only the states that feed the next matrix product are packed.
// SPDX-License-Identifier: Apache-2.0

#include "kernels/recurrence_api.h"

namespace lod::LOD_LEVEL {

struct PreviousRowsKernel : PreviousRows {
  using Element = int64_t;
  int64_t* out = map;
  LOD_FN int64_t value(int64_t s, int64_t r, int64_t) const {
    const Range range = rows_of(offsets, s, rows);
    return r == (step > 0 ? range.begin : range.end - 1) ? -1 : r - step;
  }
  template <int>
  LOD_FN void strip(int64_t s, int64_t) const {
    const Range range = rows_of(offsets, s, rows);
    for (int64_t r = range.begin; r < range.end; ++r) map[r] = r - step;
    if (range.length()) map[step > 0 ? range.begin : range.end - 1] = -1;
  }
};

// W numbers from i on, zeros if there are none. Asked number by number, compilers load under a mask from no address,
// for which some processors take hundreds of cycles.
template <class T, int W>
LOD_FN void numbers(const void* base, int64_t i, acc_t<T>* to) {
  if (base)
    for (int k = 0; k < W; ++k) to[k] = acc_t<T>(static_cast<const T*>(base)[i + k]);
  else
    for (int k = 0; k < W; ++k) to[k] = acc_t<T>(0);
}

// W numbers to one place: alternate stores to two are not vector code, since these may overlap.
template <class T, int W>
LOD_FN void put(const acc_t<T>* from, T* to) {
  for (int k = 0; k < W; ++k) to[k] = T(from[k]);
}

// i, f, o = sigmoid(z), g = tanh(z_g); c = f c' + i g; h = o tanh(c)
// (Hochreiter and Schmidhuber 1997; Gers et al. 2000)
template <class T>
struct LstmForwardKernel : LstmForward {
  template <int W>
  LOD_FN void strip(int64_t j, int64_t u) const {
    using A = acc_t<T>;
    const int64_t r = row(j), at = r * width + u, from = j * width + u;
    T* z = static_cast<T*>(gates) + r * 4 * width + u;
    const T* y = hidden ? static_cast<const T*>(hidden) + j * 4 * width + u : nullptr;
    T *out_ = out ? static_cast<T*>(out) + at : nullptr, *cells_ = static_cast<T*>(cells) + at;
    T *h_ = static_cast<T*>(h) + from, *c_ = static_cast<T*>(c) + from;
    A x[4][W];
    for (int q = 0; q < 4; ++q)
      for (int k = 0; k < W; ++k) x[q][k] = A(z[q * width + k]);
    if (y)
      for (int q = 0; q < 4; ++q)
        for (int k = 0; k < W; ++k) x[q][k] += A(y[q * width + k]);
    A cell[W], state[W];
    for (int k = 0; k < W; ++k) {
      const A i = sigmoid_of(x[0][k]), f = sigmoid_of(x[1][k]), g = tanh_of(x[2][k]), o = sigmoid_of(x[3][k]);
      cell[k] = f * A(c_[k]) + i * g;
      state[k] = o * tanh_of(cell[k]);
      x[0][k] = i, x[1][k] = f, x[2][k] = g, x[3][k] = o;
    }
    for (int q = 0; q < 4; ++q) put<T, W>(x[q], z + q * width);
    put<T, W>(cell, c_);
    put<T, W>(cell, cells_);
    put<T, W>(state, h_);
    if (out_) put<T, W>(state, out_);
  }
};

template <class T>
struct LstmBackwardKernel : LstmBackward {
  template <int W>
  LOD_FN void strip(int64_t j, int64_t u) const {
    using A = acc_t<T>;
    const int64_t r = row(j), at = r * width + u, from = j * width + u;
    const T* z = static_cast<const T*>(gates) + r * 4 * width + u;
    T *dz = static_cast<T*>(grad_gates) + r * 4 * width + u, *side = static_cast<T*>(packed) + j * 4 * width + u;
    T *dh_ = static_cast<T*>(dh) + from, *dc_ = static_cast<T*>(dc) + from;
    A before[W], now[W], from_out[W], from_cells[W], d[4][W], carry[W];
    numbers<T, W>(t ? cells : c_0, t ? at - step * width : from, before);
    numbers<T, W>(cells, at, now);
    numbers<T, W>(grad_out, at, from_out);
    numbers<T, W>(grad_cells, at, from_cells);
    for (int k = 0; k < W; ++k) {
      const A i = A(z[k]), f = A(z[width + k]), g = A(z[2 * width + k]), o = A(z[3 * width + k]);
      const A squashed = tanh_of(now[k]);
      const A dstate = from_out[k] + A(dh_[k]);
      const A dcell = from_cells[k] + A(dc_[k]) + dstate * o * (A(1) - squashed * squashed);
      d[0][k] = dcell * g * i * (A(1) - i);
      d[1][k] = dcell * before[k] * f * (A(1) - f);
      d[2][k] = dcell * i * (A(1) - g * g);
      d[3][k] = dstate * squashed * o * (A(1) - o);
      carry[k] = dcell * f;
    }
    for (int q = 0; q < 4; ++q) {
      put<T, W>(d[q], dz + q * width);
      put<T, W>(d[q], side + q * width);
    }
    put<T, W>(carry, dc_);
  }
};

// r, z = sigmoid(...), n = tanh(x_n + r (W h' + b)); h = (1 - z) n + z h'
// (Cho et al. 2014, in torch.nn.GRU's form)
template <class T>
struct GruForwardKernel : GruForward {
  template <int W>
  LOD_FN void strip(int64_t j, int64_t u) const {
    using A = acc_t<T>;
    const int64_t row_ = row(j), from = j * width + u;
    const T* x = static_cast<const T*>(gates) + row_ * 3 * width + u;
    const int64_t y = j * apart + u;
    T *keep = static_cast<T*>(saved) + row_ * 4 * width + u, *out_ = static_cast<T*>(out) + row_ * width + u;
    T* h_ = static_cast<T*>(h) + from;
    A s[4][W], state[W], share[3][W];
    for (int q = 0; q < 3; ++q) numbers<T, W>(hidden, y + q * width, share[q]);
    if (bias)
      for (int q = 0; q < 3; ++q)
        for (int k = 0; k < W; ++k) share[q][k] += A(static_cast<const T*>(bias)[q * width + u + k]);
    for (int k = 0; k < W; ++k) {
      const A r = sigmoid_of(A(x[k]) + share[0][k]), z = sigmoid_of(A(x[width + k]) + share[1][k]), m = share[2][k];
      const A n = tanh_of(A(x[2 * width + k]) + r * m);
      state[k] = n + z * (A(h_[k]) - n);
      s[0][k] = r, s[1][k] = z, s[2][k] = n, s[3][k] = m;
    }
    for (int q = 0; q < 4; ++q) put<T, W>(s[q], keep + q * width);
    put<T, W>(state, h_);
    put<T, W>(state, out_);
  }
};

template <class T>
struct GruBackwardKernel : GruBackward {
  template <int W>
  LOD_FN void strip(int64_t j, int64_t u) const {
    using A = acc_t<T>;
    const int64_t row_ = row(j), at = row_ * width + u, from = j * width + u;
    const T* s = static_cast<const T*>(saved) + row_ * 4 * width + u;
    T *dx = static_cast<T*>(grad_gates) + row_ * 3 * width + u,
      *dy = static_cast<T*>(grad_hidden) + row_ * 3 * width + u;
    T *side = static_cast<T*>(packed) + j * 3 * width + u, *dh_ = static_cast<T*>(dh) + from;
    A before[W], from_out[W], d[4][W], carry[W];
    numbers<T, W>(t ? out : h_0, t ? at - step * width : from, before);
    numbers<T, W>(grad_out, at, from_out);
    for (int k = 0; k < W; ++k) {
      const A r = A(s[k]), z = A(s[width + k]), n = A(s[2 * width + k]), m = A(s[3 * width + k]);
      const A dstate = from_out[k] + A(dh_[k]);
      const A dn = dstate * (A(1) - z) * (A(1) - n * n);
      d[0][k] = dn * m * r * (A(1) - r);
      d[1][k] = dstate * (before[k] - n) * z * (A(1) - z);
      d[2][k] = dn;
      d[3][k] = dn * r;
      carry[k] = dstate * z;
    }
    for (int q = 0; q < 3; ++q) {
      put<T, W>(d[q], dx + q * width);
      put<T, W>(d[q == 2 ? 3 : q], dy + q * width);
      put<T, W>(d[q == 2 ? 3 : q], side + q * width);
    }
    put<T, W>(carry, dh_);
  }
};

// h = tanh(x + W h') or max(0, x + W h')      (Elman 1990, in torch.nn.RNN's form)
template <class T>
struct RnnForwardKernel : RnnForward {
  template <int W>
  LOD_FN void strip(int64_t j, int64_t u) const {
    using A = acc_t<T>;
    const int64_t from = j * width + u;
    T *out_ = static_cast<T*>(out) + row(j) * width + u, *h_ = static_cast<T*>(h) + from;
    A x[W];
    numbers<T, W>(hidden, from, x);
    for (int k = 0; k < W; ++k) x[k] += A(out_[k]);
    if (relu)
      for (int k = 0; k < W; ++k) x[k] = x[k] < A(0) ? A(0) : x[k];
    else
      for (int k = 0; k < W; ++k) x[k] = tanh_of(x[k]);
    put<T, W>(x, h_);
    put<T, W>(x, out_);
  }
};

template <class T>
struct RnnBackwardKernel : RnnBackward {
  template <int W>
  LOD_FN void strip(int64_t j, int64_t u) const {
    using A = acc_t<T>;
    const int64_t at = row(j) * width + u, from = j * width + u;
    T *dz = static_cast<T*>(grad_gates) + at, *side = static_cast<T*>(packed) + from;
    const T* dh_ = static_cast<const T*>(dh) + from;
    A now[W], d[W];
    numbers<T, W>(out, at, now);
    numbers<T, W>(grad_out, at, d);
    for (int k = 0; k < W; ++k) {
      const A h = now[k], slope = relu ? (h <= A(0) ? A(0) : A(1)) : A(1) - h * h;
      d[k] = (d[k] + A(dh_[k])) * slope;
    }
    put<T, W>(d, dz);
    put<T, W>(d, side);
  }
};

LOD_ENTRY void previous_rows(const Exec& exec, const PreviousRows& a) {
  const LoDView rows{a.offsets, a.segments, a.rows, 1};
  if constexpr (kOnGpu) each_row(exec, rows, PreviousRowsKernel{a});
  else each_segment(exec, rows, PreviousRowsKernel{a});
}

constexpr int64_t kGates = 8;  // a cell costs as much as copying so many numbers, or more

template <template <class> class Kernel, class Arguments>
void step_as(const Exec& exec, DType dtype, const Arguments& a) {
  visit_floating(dtype, [&](auto type) {
    each_strip(exec, a.alive, a.width, Kernel<typename decltype(type)::type>{a}, kGates);
  });
}

LOD_ENTRY void lstm_forward(const Exec& exec, DType dtype, const LstmForward& a) {
  step_as<LstmForwardKernel>(exec, dtype, a);
}
LOD_ENTRY void lstm_backward(const Exec& exec, DType dtype, const LstmBackward& a) {
  step_as<LstmBackwardKernel>(exec, dtype, a);
}
LOD_ENTRY void gru_forward(const Exec& exec, DType dtype, const GruForward& a) {
  step_as<GruForwardKernel>(exec, dtype, a);
}
LOD_ENTRY void gru_backward(const Exec& exec, DType dtype, const GruBackward& a) {
  step_as<GruBackwardKernel>(exec, dtype, a);
}
LOD_ENTRY void rnn_forward(const Exec& exec, DType dtype, const RnnForward& a) {
  step_as<RnnForwardKernel>(exec, dtype, a);
}
LOD_ENTRY void rnn_backward(const Exec& exec, DType dtype, const RnnBackward& a) {
  step_as<RnnBackwardKernel>(exec, dtype, a);
}

}  // namespace lod::LOD_LEVEL
