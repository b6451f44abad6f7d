// Convolution along segments: every row with its neighbours, side by side, times a weight. The gradient of the values
// is the convolution of the results' gradient with the weight flipped and transposed.
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/structure_api.h"
#include "bindings/factor.h"
#include "bindings/operators.h"
#include "bindings/windows.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

namespace lod {
namespace {

void check_windows(const char* op, const Tensor& values, const Tensor& offsets, const c10::SymInt& start,
                   int64_t dilation) {
  TORCH_CHECK_VALUE(values.dim() == 2, op, ": expected values of shape (rows, features), got ", values.dim(),
                    " dimensions");
  check_floating(op, "values", values);
  check_offsets_kind(op, offsets, values.device());
  check_reach(op, start, dilation);
}
void check_like(const char* op, const char* name, const Tensor& t, const Tensor& values) {
  TORCH_CHECK_TYPE(t.scalar_type() == values.scalar_type() && t.device() == values.device(), op, ": expected ", name,
                   " of dtype ", values.scalar_type(), " on ", values.device(), ", as values, got ", t.scalar_type(),
                   " on ", t.device());
}

// The rows of a window, of a weight (size, features, out) or (size * features, out).
c10::SymInt size_of(const Tensor& weight, const c10::SymInt& features) {
  return weight.dim() == 3 ? weight.sym_size(0) : weight.sym_size(0) / features;
}
Tensor by_position(const Tensor& weight, const c10::SymInt& features) {
  if (weight.dim() == 3) return weight;
  return weight.view_symint({size_of(weight, features), features, weight.sym_size(1)});
}

Tensor segment_conv_meta(const Tensor& values, const Tensor& weight, const OptionalTensor& bias, const Tensor& offsets,
                         c10::SymInt start, int64_t dilation) {
  const char* op = "segment_conv";
  check_windows(op, values, offsets, start, dilation);
  check_like(op, "weight", weight, values);
  const c10::SymInt features = values.sym_size(1);
  const bool fits = weight.dim() == 3   ? weight.sym_size(1) == features
                    : weight.dim() == 2 ? features >= 1 && weight.sym_size(0) % features == 0
                                        : false;
  TORCH_CHECK_VALUE(fits && weight.sym_size(0) >= 1, op, ": expected weight of shape [size, ", features,
                    ", out] or [size * ", features, ", out], got ", weight.sym_sizes());
  const c10::SymInt size = size_of(weight, features), channels = weight.sym_size(-1);
  TORCH_CHECK_VALUE(TORCH_GUARD_OR_TRUE(size.sym_le(kMaxWindow)), op, ": expected a size of at most 2**20, got ", size);
  check_far_end(op, start, size, dilation);
  if (bias) {
    check_like(op, "bias", *bias, values);
    TORCH_CHECK_VALUE(bias->dim() == 1 && bias->sym_size(0) == channels, op, ": expected bias of shape [", channels,
                      "], got ", bias->sym_sizes());
  }
  return at::empty_symint({values.sym_size(0), channels}, values.options());
}
// Every row's window side by side, for products of torch's; of offsets that are checked.
Tensor seen_by(const Tensor& x, const Tensor& offsets, int64_t size, int64_t start, int64_t dilation) {
  if (offsets.is_cpu()) mark(offsets, x.size(0), true);
  return SegmentUnfoldOp::call(x, offsets, size, start, dilation, 0).flatten(1);
}
// f(first, count, the windows' rows at so many positions) for all positions: on a GPU for as many at a time as take up
// to so many bytes, since rows of windows side by side are `size` times the values.
constexpr int64_t kMostSeen = int64_t(128) << 20;
template <class F>
void each_positions(const Tensor& x, const Tensor& offsets, int64_t size, int64_t start, int64_t dilation, const F& f) {
  const int64_t fit = std::max<int64_t>(kMostSeen / int64_t(x.nbytes() + 1), 1), some = x.is_cpu() ? size : fit;
  for (int64_t j = 0; j < size; j += some) {
    const int64_t count = std::min(some, size - j);
    f(j, count, seen_by(x, offsets, count, start + j * dilation, dilation));
  }
}
Tensor segment_conv(const Tensor& values, const Tensor& weight, const OptionalTensor& bias, const Tensor& given,
                    int64_t start, int64_t dilation) {
  const char* op = "segment_conv";
  Tensor out = segment_conv_meta(values, weight, bias, given, start, dilation);
  const Tensor x = readable(values), given_weight = readable(weight), b = readable(bias);
  const Tensor w = weight.dim() == 3 ? given_weight.flatten(0, 1) : given_weight;
  const Tensor offsets = checked_offsets(op, given, x.size(0));
  if (out.numel() == 0) return out;
  const int64_t size = size_of(weight, x.size(1)).expect_int();
  if (!has_products_for(x)) {
    Tensor sum;
    each_positions(x, offsets, size, start, dilation, [&](int64_t first, int64_t count, const Tensor& seen) {
      const Tensor left = whole_columns(seen), right = whole_rows(w.narrow(0, first * x.size(1), count * x.size(1)));
      if (sum.defined()) sum = sum.to(c10::promoteTypes(out.scalar_type(), at::kFloat)).add_(at::mm(left, right));
      else sum = b.defined() ? at::addmm(b, left, right) : at::mm(left, right);
    });
    return sum.to(out.scalar_type());
  }
  const WindowsOfRows windows{offsets.const_data_ptr<int64_t>(), offsets.numel() - 1, size, start, dilation};
  Factor(w).multiply(x, windows, out, b);
  return out;
}

// The gradient of the weight: for every position in the windows the rows seen there, transposed, times the gradient.
Tensor segment_conv_weight_meta(const Tensor& values, const Tensor& grad, const Tensor& offsets, c10::SymInt size,
                                c10::SymInt start, int64_t dilation) {
  const char* op = "segment_conv_weight";
  check_windows(op, values, offsets, start, dilation);
  check_like(op, "grad", grad, values);
  check_window(op, size);
  check_far_end(op, start, size, dilation);
  TORCH_CHECK_VALUE(grad.dim() == 2 && grad.sym_size(0) == values.sym_size(0), op, ": expected grad of shape [",
                    values.sym_size(0), ", out], got ", grad.sym_sizes());
  return at::empty_symint({std::move(size), values.sym_size(1), grad.sym_size(1)}, values.options());
}
Tensor segment_conv_weight(const Tensor& values, const Tensor& grad, const Tensor& given, int64_t size, int64_t start,
                           int64_t dilation) {
  const char* op = "segment_conv_weight";
  const Tensor shaped = segment_conv_weight_meta(values, grad, given, size, start, dilation);
  const Tensor x = readable(values), g = readable(grad), offsets = checked_offsets(op, given, x.size(0));
  if (shaped.numel() == 0) return shaped;
  if (!has_products_for(x)) {
    std::vector<Tensor> parts;
    each_positions(x, offsets, size, start, dilation, [&](int64_t, int64_t, const Tensor& seen) {
      parts.push_back(at::mm(seen.t(), g));
    });
    return (parts.size() == 1 ? parts[0] : at::cat(parts)).view(shaped.sizes());
  }
  const auto* o = offsets.const_data_ptr<int64_t>();
  std::vector<Tensor> of_positions;
  std::vector<int64_t> rows, windows;  // the rows seen at position j, and by which windows
  Watch watch;
  for (int64_t j = 0; j < size; ++j) {
    watch.look();
    const int64_t shift = start + j * dilation;
    rows.clear();
    windows.clear();
    for (int64_t s = 0; s + 1 < offsets.numel(); ++s)
      for (int64_t r = std::max(o[s], o[s] + shift), end = std::min(o[s + 1], o[s + 1] + shift); r < end; ++r) {
        rows.push_back(r);
        windows.push_back(r - shift);
      }
    of_positions.push_back(transposed_product(x, rows, g, windows));
  }
  return at::stack(of_positions);
}

// -- gradients

using ConvOp = Operator<"segment_conv", segment_conv_meta, segment_conv>;
using ConvWeightOp = Operator<"segment_conv_weight", segment_conv_weight_meta, segment_conv_weight>;

// The gradient of the values: that of the results with the weight flipped and transposed.
Tensor transposed_conv(const Tensor& grad, const Tensor& weight, const Tensor& offsets, const c10::SymInt& start,
                       int64_t dilation) {
  const c10::SymInt reach = (weight.sym_size(0) - 1) * dilation;
  return ConvOp::call(grad, weight.flip(0).transpose(1, 2), std::nullopt, offsets, -start - reach, dilation);
}

struct ConvGradient : Gradient<ConvOp> {
  static auto save(const Tensor& values, const Tensor& weight, const OptionalTensor&, const Tensor& offsets,
                   const c10::SymInt& start, int64_t dilation) {
    return std::tuple(values, weight, offsets, start, dilation);
  }
  static variable_list gradient(const Grads& grad, const Tensor& values, const Tensor& weight, const Tensor& offsets,
                                const c10::SymInt& start, int64_t dilation) {
    const Tensor& g = grad[0];
    variable_list found(3);
    const c10::SymInt features = values.sym_size(1);
    if (grad.needs(0)) found[0] = transposed_conv(g, by_position(weight, features), offsets, start, dilation);
    if (grad.needs(1)) {
      found[1] = ConvWeightOp::call(values, g, offsets, size_of(weight, features), start, dilation);
      if (weight.dim() == 2) found[1] = found[1].view_symint(weight.sym_sizes());  // flatten takes no batch
    }
    if (grad.needs(2)) found[2] = g.sum(at::IntArrayRef{0});
    return found;
  }
};
struct ConvWeightGradient : Gradient<ConvWeightOp> {
  static auto save(const Tensor& values, const Tensor& grad, const Tensor& offsets, const c10::SymInt&,
                   const c10::SymInt& start, int64_t dilation) {
    return std::tuple(values, grad, offsets, start, dilation);
  }
  static variable_list gradient(const Grads& upstream, const Tensor& values, const Tensor& grad, const Tensor& offsets,
                                const c10::SymInt& start, int64_t dilation) {
    const Tensor& weight = upstream[0];
    return {transposed_conv(grad, weight, offsets, start, dilation),
            ConvOp::call(values, weight, std::nullopt, offsets, start, dilation)};
  }
};

}  // namespace

LOD_OPERATORS(ConvGradient, ConvWeightGradient)

}  // namespace lod
