// Binding of the recurrences with a matrix as state.
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/matrix_scan_api.h"
#include "torch_lod/operator.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace lod {
namespace {

using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;
using EightTensors = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

c10::SymInt whole(const c10::SymInt& n) { return (n + (kMatrixLanes - 1)) / kMatrixLanes * kMatrixLanes; }

struct Inputs {  // the arguments of matrix_scan
  Tensor query, key, value, decay;
  OptionalTensor beta, a, b, initial;
  Tensor row_offsets;
  bool delta;
  double scale;
  bool save;

  c10::SymInt rows() const { return value.sym_size(0); }
  c10::SymInt heads() const { return value.sym_size(1); }
  c10::SymInt keys() const { return key.sym_size(2); }
  c10::SymInt values() const { return value.sym_size(2); }
  std::vector<c10::SymInt> state() const { return {row_offsets.sym_size(0) - 1, heads(), keys(), values()}; }
  void check(const char* op) const;
  void check_kind(const char* op, const char* name, const Tensor& t, at::ScalarType dtype) const;
  void expect(const char* op, const char* name, const Tensor& t, at::ScalarType dtype,
              const std::vector<c10::SymInt>& shape) const;
  Tensor empty(const std::vector<c10::SymInt>& shape, at::ScalarType dtype) const {
    return at::empty_symint(shape, value.options().dtype(dtype));
  }
  // What the backward is given: b^T S of every row, where rows read S; then states.
  c10::SymInt reads() const { return delta || a ? rows() * heads() * whole(values()) : c10::SymInt(0); }
  c10::SymInt saved() const {
    const int64_t all = whole(keys()).guard_int(__FILE__, __LINE__);
    return reads() + rows() / matrix_block(all) * heads() * all * whole(values());
  }
};
struct BackwardInputs : Inputs {
  OptionalTensor grad_output, grad_last;
  Tensor kept;
};
Inputs pack(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& decay,
            const OptionalTensor& beta, const OptionalTensor& a, const OptionalTensor& b, const OptionalTensor& initial,
            const Tensor& row_offsets, bool delta, double scale, bool save) {
  return {query, key, value, decay, beta, a, b, initial, row_offsets, delta, scale, save};
}
BackwardInputs pack_backward(const OptionalTensor& grad_output, const OptionalTensor& grad_last, const Tensor& query,
                             const Tensor& key, const Tensor& value, const Tensor& decay, const OptionalTensor& beta,
                             const OptionalTensor& a, const OptionalTensor& b, const OptionalTensor& initial,
                             const Tensor& row_offsets, bool delta, double scale, const Tensor& saved) {
  return {{query, key, value, decay, beta, a, b, initial, row_offsets, delta, scale, true},
          grad_output, grad_last, saved};
}

// -- checks

void Inputs::check_kind(const char* op, const char* name, const Tensor& t, at::ScalarType dtype) const {
  TORCH_CHECK_TYPE(t.scalar_type() == dtype && t.device() == value.device(), op, ": expected ", name, " of dtype ",
                   dtype, " on ", value.device(), ", got ", t.scalar_type(), " on ", t.device());
}
void Inputs::expect(const char* op, const char* name, const Tensor& t, at::ScalarType dtype,
                    const std::vector<c10::SymInt>& shape) const {
  check_kind(op, name, t, dtype);
  TORCH_CHECK_VALUE(t.sym_sizes() == c10::SymIntArrayRef(shape), op, ": expected ", name, " of shape ",
                    c10::SymIntArrayRef(shape), ", got ", t.sym_sizes());
}

void Inputs::check(const char* op) const {
  const auto positive = [](const c10::SymInt& n) { return TORCH_GUARD_OR_TRUE(n.sym_ge(1)); };
  check_floating(op, "value", value);
  TORCH_CHECK_VALUE(value.dim() == 3 && positive(value.sym_size(1)) && positive(value.sym_size(2)), op,
                    ": expected value of shape (rows, heads, width), at least one head of at least one number, got ",
                    value.sym_sizes());
  check_kind(op, "key", key, value.scalar_type());
  TORCH_CHECK_VALUE(key.dim() == 3 && key.sym_size(0) == rows() && key.sym_size(1) >= 1 && positive(key.sym_size(2)) &&
                        heads() % key.sym_size(1) == 0,
                    op, ": expected key of shape [", rows(), ", heads, width], its heads a divisor of the value's ",
                    heads(), ", got ", key.sym_sizes());
  const auto keyed = key.sym_sizes().vec();
  expect(op, "query", query, value.scalar_type(), keyed);
  const at::ScalarType sums = summed_in(value);
  check_kind(op, "decay", decay, sums);
  const std::vector<c10::SymInt> gates{rows(), heads()}, by_key{rows(), heads(), keys()};
  TORCH_CHECK_VALUE(decay.sym_sizes() == c10::SymIntArrayRef(gates) || decay.sym_sizes() == c10::SymIntArrayRef(by_key),
                    op, ": expected decay of shape ", c10::SymIntArrayRef(gates), " or ", c10::SymIntArrayRef(by_key),
                    ", got ", decay.sym_sizes());
  if (beta) expect(op, "beta", *beta, sums, gates);
  TORCH_CHECK_VALUE(a.has_value() == b.has_value(), op, ": expected a and b together, got one of them");
  if (a) expect(op, "a", *a, value.scalar_type(), keyed);
  if (b) expect(op, "b", *b, value.scalar_type(), keyed);
  TORCH_CHECK_VALUE(!a || !delta, op, ": expected delta without a and b, which it stands for");
  check_offsets_kind(op, row_offsets, value.device());
  if (initial) expect(op, "initial", *initial, sums, state());
}

// -- what kernels read: in what is summed in, and filled up with zeros to whole vectors

Tensor filled(const Tensor& t, int dims) {
  std::vector<int64_t> pads;
  bool any = false;
  for (int d = 1; d <= dims; ++d) {
    const int64_t more = whole(t.size(-d)).expect_int() - t.size(-d);
    pads.push_back(0), pads.push_back(more), any |= more > 0;
  }
  const Tensor x = t.to(summed_in(t));
  return any ? at::constant_pad_nd(x, pads) : x.contiguous();
}
Tensor filled(const OptionalTensor& t, int dims) { return t ? filled(*t, dims) : Tensor(); }
// The rest of what was filled up.
Tensor narrowed(const Tensor& t, const Tensor& like) {
  Tensor x = t;
  for (int64_t d = 0; d < like.dim(); ++d) x = x.narrow(d, 0, like.size(d));
  return x.to(like.scalar_type()).contiguous();
}
const void* read(const Tensor& t) { return t.defined() ? t.const_data_ptr() : nullptr; }
void* write(const Tensor& t) { return t.defined() ? t.mutable_data_ptr() : nullptr; }

// The arguments of the kernels, which hold what they point to.
struct Held {
  Tensor query, key, value, decay, beta, a, b, initial, offsets;

  Held(const char* op, const Inputs& in)
      : query(filled(in.query, 1)),
        key(filled(in.key, 1)),
        value(filled(in.value, 1)),
        decay(in.decay.dim() == 3 ? filled(in.decay, 1) : readable(in.decay)),
        beta(readable(in.beta)),
        a(filled(in.a, 1)),
        b(filled(in.b, 1)),
        initial(filled(in.initial, 2)),
        offsets(checked_offsets(op, in.row_offsets, value.size(0), "row_offsets", "value")) {}
  MatrixScan arguments(const Inputs& in) const {
    return {offsets.const_data_ptr<int64_t>(),
            offsets.numel() - 1,
            value.size(0),
            value.size(1),
            key.size(1),
            key.size(2),
            value.size(2),
            read(query),
            read(key),
            read(value),
            read(decay),
            read(beta),
            read(a),
            read(b),
            read(initial),
            decay.dim() == 3,
            in.delta,
            in.scale};
  }
  DType type() const { return value.scalar_type() == at::kDouble ? DType::f64 : DType::f32; }
  Tensor new_state() const {
    return at::empty({offsets.numel() - 1, value.size(1), key.size(2), value.size(2)}, value.options());
  }
};

// -- operators

ThreeTensors matrix_scan_meta(const Inputs& in) {
  in.check("matrix_scan");
  return {at::empty_symint(in.value.sym_sizes(), in.value.options()), in.empty(in.state(), summed_in(in.value)),
          in.empty({in.save ? in.saved() : c10::SymInt(0)}, summed_in(in.value))};
}
ThreeTensors matrix_scan(const Inputs& in) {
  const char* op = "matrix_scan";
  auto [out, last, saved] = matrix_scan_meta(in);
  const Held held(op, in);
  const Tensor rows = at::empty_like(held.value), state = held.new_state();
  const int64_t reads = in.reads().expect_int(), step = saved.element_size();
  char* to = in.save ? static_cast<char*>(saved.mutable_data_ptr()) : nullptr;
  LOD_PICK(matrix_scan_forward)(
      kCpu, held.type(),
      MatrixScanForward{held.arguments(in), write(rows), write(state), reads ? to : nullptr,
                        to ? to + reads * step : nullptr});
  return {narrowed(rows, out), narrowed(state, last), saved};
}

EightTensors matrix_scan_backward_meta(const BackwardInputs& in) {
  const char* op = "matrix_scan_backward";
  in.check(op);
  const at::ScalarType sums = summed_in(in.value);
  if (in.grad_output) in.expect(op, "grad_output", *in.grad_output, in.value.scalar_type(), in.value.sym_sizes().vec());
  if (in.grad_last) in.expect(op, "grad_last", *in.grad_last, sums, in.state());
  in.expect(op, "saved", in.kept, sums, {in.saved()});
  const auto like = [&](const OptionalTensor& t) {
    return t ? at::empty_symint(t->sym_sizes(), t->options()) : in.empty({c10::SymInt(0)}, sums);
  };
  return {like(in.query), like(in.key), like(in.value), like(in.decay), like(in.beta), like(in.a), like(in.b),
          like(in.initial)};
}
EightTensors matrix_scan_backward(const BackwardInputs& in) {
  const char* op = "matrix_scan_backward";
  auto found = matrix_scan_backward_meta(in);
  const Held held(op, in);
  const Tensor grad_out = filled(in.grad_output, 1), grad_last = filled(in.grad_last, 2), kept = readable(in.kept);
  const auto zeros = [](const Tensor& t) { return t.defined() ? at::zeros(t.sizes(), t.options()) : Tensor(); };
  const Tensor query = zeros(held.query), key = zeros(held.key), value = at::empty_like(held.value),
               decay = zeros(held.decay), beta = zeros(held.beta), a = zeros(held.a), b = zeros(held.b),
               initial = held.initial.defined() ? held.new_state() : Tensor();
  const auto* from = static_cast<const char*>(kept.const_data_ptr());
  LOD_PICK(matrix_scan_backward)(
      kCpu, held.type(),
      MatrixScanBackward{held.arguments(in), from, from + in.reads().expect_int() * kept.element_size(),
                         read(grad_out), read(grad_last), write(query), write(key), write(value), write(decay),
                         write(beta), write(a), write(b), write(initial)});
  const auto result = [](const Tensor& t, const Tensor& like) { return t.defined() ? narrowed(t, like) : like; };
  return [&]<size_t... i>(const std::array<Tensor, 8>& made, std::index_sequence<i...>) {
    return EightTensors{result(made[i], std::get<i>(found))...};
  }({query, key, value, decay, beta, a, b, initial}, std::make_index_sequence<8>{});
}

// -- gradients

using MatrixScanOp = Operator<"matrix_scan", matrix_scan_meta, matrix_scan, pack>;
using MatrixScanBackwardOp =
    Operator<"matrix_scan_backward", matrix_scan_backward_meta, matrix_scan_backward, pack_backward>;

struct MatrixScanGradient : Gradient<MatrixScanOp> {
  static variable_list gradient(const Grads& grads, const Inputs& in, const Tensor&, const Tensor&,
                                const Tensor& saved) {
    const Tensor kept = in.save ? saved
                                : std::get<2>(MatrixScanOp::call(in.query, in.key, in.value, in.decay, in.beta, in.a,
                                                                 in.b, in.initial, in.row_offsets, in.delta, in.scale,
                                                                 true));
    auto [query, key, value, decay, beta, a, b, initial] = MatrixScanBackwardOp::call(
        optional(grads[0]), optional(grads[1]), in.query, in.key, in.value, in.decay, in.beta, in.a, in.b, in.initial,
        in.row_offsets, in.delta, in.scale, kept);
    return {query, key, value, decay, beta, a, b, initial};
  }
};

}  // namespace

// On a GPU the composition runs.
TORCH_LIBRARY_IMPL(torch_lod, CPU, m) {
  Operators<MatrixScanGradient, OneGradient<MatrixScanBackwardOp>>::kernels(m);
}
TORCH_LIBRARY_IMPL(torch_lod, Meta, m) {
  Operators<MatrixScanGradient, OneGradient<MatrixScanBackwardOp>>::metas(m);
}
TORCH_LIBRARY_IMPL(torch_lod, Autograd, m) {
  Operators<MatrixScanGradient, OneGradient<MatrixScanBackwardOp>>::gradients(m);
}

}  // namespace lod
