// Binding of the shape "attention".
// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "attention.h"
#include "torch_lod/binding.h"
#include "core/composed.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

namespace lod {
#ifdef LOD_CUDA
namespace cuda {
void attention_forward(const CudaExec&, DType, const AttentionForward&);
void attention_backward(const CudaExec&, DType, const AttentionBackward&);
}  // namespace cuda
#endif
namespace {

using TwoTensors = std::tuple<Tensor, Tensor>;
using FiveTensors = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
constexpr int64_t kFarthest = int64_t(1) << 40;  // of a window: places stay within int64

at::ScalarType summed_in(const Tensor& t) { return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// -- checks

void check_kind(const char* op, const char* name, const Tensor& t, at::ScalarType dtype, const Tensor& query) {
  TORCH_CHECK_TYPE(t.scalar_type() == dtype && t.device() == query.device(), op, ": expected ", name, " of dtype ", dtype, " on ",
                   query.device(), ", got ", t.scalar_type(), " on ", t.device());
}

void check_attention(const char* op, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& query_offsets,
                     const Tensor& key_offsets, const OptionalTensor& bias, const OptionalTensor& slopes, const OptionalTensor& seed, int64_t left, int64_t right,
                     double dropout) {
  TORCH_CHECK_VALUE(query.dim() == 3, op, ": expected query of shape (rows, heads, width), got ", query.dim(), " dimensions");
  check_floating(op, "query", query);
  check_kind(op, "key", key, query.scalar_type(), query);
  check_kind(op, "value", value, query.scalar_type(), query);
  const auto heads = query.sym_size(1), width = query.sym_size(2);
  TORCH_CHECK_VALUE(heads.sym_ge(1).guard_bool(__FILE__, __LINE__) && width.sym_ge(1).guard_bool(__FILE__, __LINE__), op,
                    ": expected query with at least one head of at least one number, got ", query.sym_sizes());
  TORCH_CHECK_VALUE(key.dim() == 3 && key.sym_size(2) == width && key.sym_size(1) >= 1 && heads % key.sym_size(1) == 0, op,
                    ": expected key of shape [rows, heads, ", width, "], its heads a divisor of the query's ", heads, ", got ",
                    key.sym_sizes());
  TORCH_CHECK_VALUE(value.dim() == 3 && value.sym_size(0) == key.sym_size(0) && value.sym_size(1) == key.sym_size(1) &&
                        value.sym_size(2) >= 1,
                    op, ": expected value of shape [", key.sym_size(0), ", ", key.sym_size(1), ", width], as key, got ",
                    value.sym_sizes());
  check_offsets_kind(op, query_offsets, query.device(), "query_offsets");
  check_offsets_kind(op, key_offsets, query.device(), "key_offsets");
  TORCH_CHECK_VALUE(query_offsets.sym_size(0) == key_offsets.sym_size(0), op, ": expected as many sequences of keys as of queries, ",
                    query_offsets.sym_size(0) - 1, ", got ", key_offsets.sym_size(0) - 1);
  if (bias) {
    check_kind(op, "bias", *bias, query.scalar_type(), query);
    TORCH_CHECK_VALUE(bias->dim() == 2 && (bias->sym_size(1) == 1 || bias->sym_size(1) == heads), op,
                      ": expected bias of shape [pairs, 1] or [pairs, ", heads, "], got ", bias->sym_sizes());
  }
  if (slopes) {
    check_kind(op, "slopes", *slopes, summed_in(query), query);
    TORCH_CHECK_VALUE(slopes->dim() == 1 && slopes->sym_size(0) == heads, op, ": expected slopes of shape [", heads, "], got ",
                      slopes->sym_sizes());
  }
  TORCH_CHECK_VALUE(left >= -1 && left <= kFarthest, op, ": expected left in [-1, 2**40], got ", left);
  TORCH_CHECK_VALUE(right >= -1 && right <= kFarthest, op, ": expected right in [-1, 2**40], got ", right);
  TORCH_CHECK_VALUE(dropout >= 0 && dropout <= 1, op, ": expected dropout in [0, 1], got ", dropout);
  TORCH_CHECK_VALUE(seed || dropout == 0, op, ": expected a seed with dropout ", dropout, ", got none");
  if (seed) {
    check_kind(op, "seed", *seed, at::kLong, query);
    TORCH_CHECK_VALUE(seed->dim() == 0, op, ": expected seed as a scalar, got ", seed->dim(), " dimensions");
  }
}

// Rows that may lie apart, such as a part of the features of others; the numbers of each are side by side.
Tensor readable_rows(const char* op, const Tensor& t) {
  const bool close = t.stride(2) == 1 && t.stride(1) == t.size(2);
  return close ? check_memory(op, t) : readable(op, t);
}

// The first pair of every sequence, and after the last the number of all.
Tensor pair_offsets(const char* op, const Tensor& query_offsets, const Tensor& key_offsets, int64_t pairs) {
  const int64_t n = query_offsets.numel();
  if (!query_offsets.is_cpu()) {
    const auto lengths = [n](const Tensor& t) { return t.narrow(0, 1, n - 1).sub(t.narrow(0, 0, n - 1)); };
    const Tensor none = at::zeros({1}, query_offsets.options());
    const Tensor first = at::cat(std::vector<Tensor>{none, lengths(query_offsets).mul(lengths(key_offsets)).cumsum(0)});
    at::_assert_async(first[n - 1].eq(pairs), std::string(op) + ": bias has not a row per pair of query and key of a sequence");
    return first;
  }
  Tensor first = at::zeros({n}, query_offsets.options());
  const auto *q = query_offsets.const_data_ptr<int64_t>(), *k = key_offsets.const_data_ptr<int64_t>();
  auto* o = first.mutable_data_ptr<int64_t>();
  for (int64_t s = 0; s + 1 < n; ++s) {
    int64_t here = 0;
    const bool over = __builtin_mul_overflow(q[s + 1] - q[s], k[s + 1] - k[s], &here) || __builtin_add_overflow(o[s], here, &o[s + 1]);
    TORCH_CHECK_VALUE(!over, op, ": expected fewer than 2**63 pairs of query and key");
  }
  TORCH_CHECK_VALUE(o[n - 1] == pairs, op, ": expected bias with a row per pair of query and key of a sequence, ", o[n - 1], ", got ",
                    pairs);
  return first;
}

// Arguments that hold what they point to.
struct Held {
  Tensor query, key, value, query_offsets, key_offsets, bias, slopes, seed, pairs;
  Held(const char* op, const Tensor& query_, const Tensor& key_, const Tensor& value_, const Tensor& query_offsets_,
       const Tensor& key_offsets_, const OptionalTensor& bias_, const OptionalTensor& slopes_, const OptionalTensor& seed_)
      : query(readable_rows(op, query_)), key(readable_rows(op, key_)), value(readable_rows(op, value_)),
        query_offsets(checked_offsets(op, query_offsets_, query_.size(0), "query_offsets", "query")),
        key_offsets(checked_offsets(op, key_offsets_, key_.size(0), "key_offsets", "key")), bias(readable(op, bias_)),
        slopes(readable(op, slopes_)), seed(readable(op, seed_)) {
    if (bias.defined()) pairs = pair_offsets(op, query_offsets, key_offsets, bias.size(0));
  }
  Attention arguments(std::optional<double> scale, int64_t left, int64_t right, double dropout) const {
    const auto read = [](const Tensor& t) { return t.defined() ? t.const_data_ptr() : nullptr; };
    const auto stride = [](const Tensor& t) { return t.numel() ? t.stride(0) : 0; };
    return {read(query), read(key), read(value), stride(query), stride(key), stride(value),
            query_offsets.const_data_ptr<int64_t>(), key_offsets.const_data_ptr<int64_t>(), query_offsets.numel() - 1,
            query.size(0), key.size(0), query.size(1), key.size(1), query.size(2), value.size(2),
            scale.value_or(1 / std::sqrt(double(query.size(2)))), left, right, read(bias),
            pairs.defined() ? pairs.const_data_ptr<int64_t>() : nullptr, bias.defined() ? bias.size(0) : 0,
            bias.defined() ? bias.size(1) : 1, read(slopes),
            dropout > 0 ? seed.const_data_ptr<int64_t>() : nullptr, dropout};
  }
};

// -- operators

TwoTensors attention_meta(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& query_offsets,
                          const Tensor& key_offsets, const OptionalTensor& bias, const OptionalTensor& slopes, const OptionalTensor& seed,
                          std::optional<double>, int64_t left, int64_t right, double dropout) {
  check_attention("attention", query, key, value, query_offsets, key_offsets, bias, slopes, seed, left, right, dropout);
  const auto rows = query.sym_size(0), heads = query.sym_size(1);
  return {at::empty_symint({rows, heads, value.sym_size(2)}, query.options()),
          at::empty_symint({rows, heads}, query.options().dtype(summed_in(query)))};
}

TwoTensors attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& query_offsets,
                     const Tensor& key_offsets, const OptionalTensor& bias, const OptionalTensor& slopes, const OptionalTensor& seed,
                     std::optional<double> scale, int64_t left, int64_t right, double dropout) {
  auto [out, logsumexp] = attention_meta(query, key, value, query_offsets, key_offsets, bias, slopes, seed, scale, left, right, dropout);
  const Held held("attention", query, key, value, query_offsets, key_offsets, bias, slopes, seed);
  if (!out.is_cpu()) out.zero_(), logsumexp.zero_();  // offsets that do not fit leave rows out
  LOD_RUN(query, attention_forward, floating_type("attention", query),
          AttentionForward{held.arguments(scale, left, right, dropout), out.mutable_data_ptr(), logsumexp.mutable_data_ptr()});
  return {out, logsumexp};
}

// Gradients of query, key, value, bias and slopes; without `biases` the last two are empty.
FiveTensors attention_backward_meta(const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& query_offsets, const Tensor& key_offsets, const OptionalTensor& bias,
                                    const OptionalTensor& slopes, const OptionalTensor& seed, std::optional<double>,
                                    int64_t left, int64_t right, double dropout, const Tensor& output, const Tensor& logsumexp, bool biases) {
  const char* op = "attention_backward";
  check_attention(op, query, key, value, query_offsets, key_offsets, bias, slopes, seed, left, right, dropout);
  const auto rows = query.sym_size(0), heads = query.sym_size(1);
  const c10::SymInt none = 0;
  const auto expect = [&](const char* name, const Tensor& t, at::ScalarType dtype, std::vector<c10::SymInt> shape) {
    check_kind(op, name, t, dtype, query);
    TORCH_CHECK_VALUE(t.sym_sizes() == c10::SymIntArrayRef(shape), op, ": expected ", name, " of shape ", c10::SymIntArrayRef(shape),
                      ", got ", t.sym_sizes());
  };
  expect("grad", grad, query.scalar_type(), {rows, heads, value.sym_size(2)});
  expect("output", output, query.scalar_type(), {rows, heads, value.sym_size(2)});
  expect("logsumexp", logsumexp, summed_in(query), {rows, heads});
  return {at::empty_symint(query.sym_sizes(), query.options()), at::empty_symint(key.sym_sizes(), query.options()),
          at::empty_symint(value.sym_sizes(), query.options()),
          bias && biases ? at::empty_symint(bias->sym_sizes(), query.options()) : at::empty_symint({none}, query.options()),
          at::empty_symint({slopes && biases ? heads : none}, query.options().dtype(summed_in(query)))};
}

FiveTensors attention_backward(const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
                               const Tensor& query_offsets, const Tensor& key_offsets, const OptionalTensor& bias,
                               const OptionalTensor& slopes, const OptionalTensor& seed, std::optional<double> scale,
                               int64_t left, int64_t right, double dropout, const Tensor& output, const Tensor& logsumexp, bool biases) {
  const char* op = "attention_backward";
  auto [d_query, d_key, d_value, d_bias, d_slopes] = attention_backward_meta(grad, query, key, value, query_offsets, key_offsets,
                                                                             bias, slopes, seed, scale, left, right, dropout, output, logsumexp, biases);
  const Held held(op, query, key, value, query_offsets, key_offsets, bias, slopes, seed);
  const Tensor d_out = readable(op, grad), all = readable(op, logsumexp);
  const auto sums = query.options().dtype(summed_in(query));
  const Tensor delta = d_out.to(summed_in(query)).mul(output).sum(-1).contiguous();
  Tensor of_bias, of_slopes;
  if (bias && biases) of_bias = at::zeros(bias->sizes(), sums);
  if (slopes && biases) of_slopes = at::zeros({query.size(0), query.size(1)}, sums);
  if (!query.is_cpu()) d_query.zero_(), d_key.zero_(), d_value.zero_();
  const auto write = [](const Tensor& t) { return t.defined() ? t.mutable_data_ptr() : nullptr; };
  LOD_RUN(query, attention_backward, floating_type(op, query),
          AttentionBackward{held.arguments(scale, left, right, dropout), d_out.const_data_ptr(), all.const_data_ptr(), delta.const_data_ptr(),
                            write(d_query), write(d_key), write(d_value), write(of_bias), write(of_slopes)});
  if (of_bias.defined()) d_bias = of_bias.to(query.scalar_type());
  if (of_slopes.defined()) d_slopes = of_slopes.sum(0);
  return {d_query, d_key, d_value, d_bias, d_slopes};
}

// -- gradients

Tensor attention_composed_type(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                               const OptionalTensor&, const OptionalTensor&, std::optional<double>, int64_t, int64_t, double);

struct AttentionGrad : torch::autograd::Function<AttentionGrad> {
  static variable_list forward(AutogradContext* ctx, const Tensor& query, const Tensor& key, const Tensor& value,
                               const Tensor& query_offsets, const Tensor& key_offsets, const OptionalTensor& bias,
                               const OptionalTensor& slopes, const OptionalTensor& seed, std::optional<double> scale, int64_t left,
                               int64_t right, double dropout) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    auto [out, logsumexp] =
        LOD_CALL("attention", attention_meta).call(query, key, value, query_offsets, key_offsets, bias, slopes, seed, scale, left, right, dropout);
    const Tensor none;
    ctx->save_for_backward({query, key, value, bias.value_or(none), slopes.value_or(none), query_offsets, key_offsets, out, logsumexp,
                            seed.value_or(none)});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["left"] = left;
    ctx->saved_data["right"] = right;
    ctx->saved_data["dropout"] = dropout;
    ctx->mark_non_differentiable({logsumexp});
    return {out, logsumexp};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto s = ctx->get_saved_variables();
    const auto scale = ctx->saved_data["scale"].toOptional<double>();
    const int64_t left = ctx->saved_data["left"].toInt(), right = ctx->saved_data["right"].toInt();
    const double dropout = ctx->saved_data["dropout"].toDouble();
    const Tensor none;
    if (at::GradMode::is_enabled()) {
      const auto d = differentiable({s.begin(), s.begin() + 5}, {grads[0]}, [&](const variable_list& a) -> variable_list {
        return {LOD_CALL("attention_composed", attention_composed_type)
                    .call(a[0], a[1], a[2], s[5], s[6], optional(a[3]), optional(a[4]), optional(s[9]), scale, left, right, dropout)};
      });
      return {d[0], d[1], d[2], none, none, d[3], d[4], none, none, none, none, none};
    }
    const bool biases = (s[3].defined() && s[3].requires_grad()) || (s[4].defined() && s[4].requires_grad());
    auto [query, key, value, bias, slopes] = LOD_CALL("attention_backward", attention_backward_meta)
                                                 .call(grads[0], s[0], s[1], s[2], s[5], s[6], optional(s[3]), optional(s[4]), optional(s[9]), scale,
                                                       left, right, dropout, s[7], s[8], biases);
    return {query, key, value, none, none, biases && s[3].defined() ? bias : none, biases && s[4].defined() ? slopes : none,
            none, none, none, none, none};
  }
};

TwoTensors attention_autograd(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& query_offsets,
                              const Tensor& key_offsets, const OptionalTensor& bias, const OptionalTensor& slopes,
                              const OptionalTensor& seed, std::optional<double> scale, int64_t left, int64_t right, double dropout) {
  if (tracked(query) || tracked(key) || tracked(value) || tracked(bias) || tracked(slopes)) {
    const auto out = AttentionGrad::apply(query, key, value, query_offsets, key_offsets, bias, slopes, seed, scale, left, right, dropout);
    return {out[0], out[1]};
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return LOD_CALL("attention", attention_meta).call(query, key, value, query_offsets, key_offsets, bias, slopes, seed, scale, left, right, dropout);
}

}  // namespace

LOD_IMPLEMENTATIONS(m) {
  m.impl("attention", &attention);
  m.impl("attention_backward", &attention_backward);
}
TORCH_LIBRARY_IMPL(torch_lod, Meta, m) {
  m.impl("attention", &attention_meta);
  m.impl("attention_backward", &attention_backward_meta);
}
TORCH_LIBRARY_IMPL(torch_lod, Autograd, m) {
  m.impl("attention", &attention_autograd);
  m.impl("attention_backward", torch::CppFunction::makeFromBoxedFunction<&without_gradient>());
}

}  // namespace lod
