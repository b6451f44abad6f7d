// Binding of the chains: the logarithm of the sum over all paths of tags, the best paths, and paths drawn at random.
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/chain_api.h"
#include "bindings/operators.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace lod {
namespace {

struct Given {
  const char* op;
  const Tensor &values, &transition, &offsets;

  void check() const {
    check_segments(op, values, offsets);
    check_floating(op, "values", values);
    TORCH_CHECK_VALUE(values.dim() == 2, op, ": expected values of shape (rows, tags), got ", values.sym_sizes());
    check_transition(values.sym_size(1), values.scalar_type());
  }
  void check_transition(const c10::SymInt& tags, at::ScalarType type) const {
    TORCH_CHECK_VALUE(TORCH_GUARD_OR_TRUE(tags.sym_ge(1)), op, ": expected at least 1 tag, got ", tags);
    TORCH_CHECK_TYPE(transition.scalar_type() == type && transition.device() == values.device(), op,
                     ": expected transition of dtype ", type, " on ", values.device(), ", got ",
                     transition.scalar_type(), " on ", transition.device());
    TORCH_CHECK_VALUE(transition.dim() == 2 && TORCH_GUARD_OR_TRUE(transition.sym_size(0).sym_eq(tags + 2)) &&
                          TORCH_GUARD_OR_TRUE(transition.sym_size(1).sym_eq(tags)),
                      op, ": expected transition of shape (tags + 2, tags) with ", tags, " tags, got ",
                      transition.sym_sizes());
  }
  Tensor like_segments() const {
    return at::empty_symint({offsets.sym_size(0) - 1}, values.options());
  }
  Tensor like_state() const { return at::empty_symint(values.sym_sizes(), values.options().dtype(summed_in(values))); }
};
Given chain_logsumexp_given(const Tensor& values, const Tensor& transition, const Tensor& row_offsets) {
  return {"chain_logsumexp", values, transition, row_offsets};
}

constexpr int64_t kPieces = 256;
constexpr int64_t kCounted = 64;  // pieces that count transitions, each in memory of its own
constexpr int64_t kBlocks = 4096, kCountedBlocks = 256;  // the same on a GPU

// What all kernels read, and holds it.
struct Held {
  HeldView view;
  Tensor transition, scratch;
  Chain chain;

  // `lines`: of scratch for a piece, in rows of `padded` entries.
  Held(const Given& g, int64_t most_pieces, int64_t lines)
      : view(make_view(g.op, g.values, g.offsets)), transition(g.transition.to(summed_in(g.values)).contiguous()) {
    const int64_t tags = g.values.size(1), padded = (tags + 15) / 16 * 16;
    // by shapes alone, so that sums do not depend on the number of threads; on a GPU a piece is a block of them
    const bool on_cpu = view.values.is_cpu();
    const int64_t work = on_cpu ? (view.rows + view.segments) * tags * padded >> 18 : kBlocks;
    const int64_t room = (int64_t(1) << 24) / ((on_cpu ? tags : std::max<int64_t>(lines, 1)) * padded);
    const int64_t pieces = std::max<int64_t>(1, std::min({work, room, most_pieces, view.segments}));
    scratch = at::empty({pieces, lines, padded}, transition.options());
    static_cast<LoDView&>(chain) = view;
    chain.padded = padded, chain.pieces = pieces;
    chain.values = view.values.const_data_ptr();
    chain.transition = transition.const_data_ptr();
    chain.scratch = scratch.mutable_data_ptr();
    chain.pause = view.values.is_cpu() ? kCpu.pause : nullptr;
  }
  int64_t tags() const { return chain.width; }
  // (tags, tags) filled up to (tags, padded).
  Tensor filled(const Tensor& t, double with) const {
    return at::constant_pad_nd(t, {0, chain.padded - tags()}, with).contiguous();
  }
  // The largest entry of every column, 0 where that is infinite.
  Tensor top() const {
    const Tensor most = steps().amax(at::IntArrayRef{0});
    return at::where(most.abs().eq(std::numeric_limits<double>::infinity()), at::zeros({}, most.options()), most);
  }
  Tensor steps() const { return transition.narrow(0, 2, tags()); }
};

using TwoTensors = std::tuple<Tensor, Tensor>;

// -- chain_logsumexp

TwoTensors chain_logsumexp_meta(const Given& g) {
  g.check();
  return {g.like_segments(), g.like_state()};
}
TwoTensors chain_logsumexp(const Given& g) {
  auto [logsum, state] = chain_logsumexp_meta(g);
  const Held held(g, g.values.is_cpu() ? kPieces : kBlocks, kChainRows);
  if (may_leave_rows(held.view.row_offsets, held.view.rows)) state.zero_();
  const Tensor top = held.top(), weights = held.filled(at::exp(held.steps() - top), 1);
  const Tensor padded_top = at::constant_pad_nd(top, {0, held.chain.padded - held.tags()}, 0).contiguous();
  LOD_RUN(state, chain_forward, floating_type(g.op, g.values),
          ChainForward{held.chain, weights.const_data_ptr(), padded_top.const_data_ptr(), logsum.mutable_data_ptr(),
                       state.mutable_data_ptr()});
  return {logsum, state};
}

struct GivenBack : Given {
  const Tensor &grad, &state;
  void check() const {
    Given::check();
    TORCH_CHECK_TYPE(grad.scalar_type() == values.scalar_type() && grad.device() == values.device(), op,
                     ": expected grad of dtype ", values.scalar_type(), " on ", values.device(), ", got ",
                     grad.scalar_type(), " on ", grad.device());
    TORCH_CHECK_VALUE(grad.dim() == 1 && TORCH_GUARD_OR_TRUE(grad.sym_size(0).sym_eq(offsets.sym_size(0) - 1)), op,
                      ": expected grad with an entry for each of ", offsets.sym_size(0) - 1, " sequences, got shape ",
                      grad.sym_sizes());
    check_state(op, state, values, values.sym_sizes());
  }
  static void check_state(const char* op, const Tensor& state, const Tensor& like, c10::SymIntArrayRef shape) {
    TORCH_CHECK_TYPE(state.scalar_type() == summed_in(like) && state.device() == like.device(), op,
                     ": expected state of dtype ", summed_in(like), " on ", like.device(), ", got ",
                     state.scalar_type(), " on ", state.device());
    TORCH_CHECK_VALUE(state.sym_sizes() == shape, op, ": expected state of shape ", shape, ", got ",
                      state.sym_sizes());
  }
};
GivenBack chain_logsumexp_given_back(const Tensor& grad, const Tensor& values, const Tensor& transition,
                                     const Tensor& row_offsets, const Tensor& state) {
  return {{"chain_logsumexp_backward", values, transition, row_offsets}, grad, state};
}
TwoTensors chain_logsumexp_backward_meta(const GivenBack& g) {
  g.check();
  return {at::empty_symint(g.values.sym_sizes(), g.values.options()),
          at::empty_symint(g.transition.sym_sizes(), g.transition.options())};
}
TwoTensors chain_logsumexp_backward(const GivenBack& g) {
  chain_logsumexp_backward_meta(g);
  const Held held(g, g.values.is_cpu() ? kCounted : kCountedBlocks, kChainRows + g.values.size(1));
  const int64_t tags = held.tags();
  const Tensor grad = readable(g.grad), state = readable(g.state),
               values = new_rows(held.view.values, held.view.rows, held.view.row_offsets);
  const Tensor weights = held.filled(at::exp(held.steps() - held.top()), 1);
  const Tensor turned = held.filled(weights.narrow(1, 0, tags).t(), 0);
  const Tensor counts = at::zeros({held.chain.pieces, tags + 2, held.chain.padded}, held.transition.options());
  held.scratch.zero_();
  LOD_RUN(values, chain_backward, floating_type(g.op, g.values),
          ChainBackward{held.chain, weights.const_data_ptr(), turned.const_data_ptr(), grad.const_data_ptr(),
                        state.const_data_ptr(), values.mutable_data_ptr(), counts.mutable_data_ptr()});
  return {values, counts.sum(at::IntArrayRef{0}).narrow(1, 0, tags).to(g.transition.scalar_type()).contiguous()};
}

// -- chain_argmax

void check_count(const char* op, const c10::SymInt& n) {
  TORCH_CHECK_VALUE(n >= 1 && n <= 1 << 16, op, ": expected n in [1, 65536], got ", n);
}
TwoTensors chain_argmax_meta(const Tensor& values, const Tensor& transition, const Tensor& row_offsets, int64_t n) {
  const Given g{"chain_argmax", values, transition, row_offsets};
  g.check();
  check_count(g.op, n);
  return {at::empty_symint({row_offsets.sym_size(0) - 1, n}, values.options()),
          at::empty_symint({values.sym_size(0), n}, values.options().dtype(at::kLong))};
}
TwoTensors chain_argmax(const Tensor& values, const Tensor& transition, const Tensor& row_offsets, int64_t n) {
  auto [scores, path] = chain_argmax_meta(values, transition, row_offsets, n);
  const Given g{"chain_argmax", values, transition, row_offsets};
  TORCH_CHECK_VALUE(values.size(1) * n < int64_t(1) << 31, g.op, ": expected tags times n below 2**31, got ",
                    values.size(1), " tags and n = ", n);
  const int64_t padded = (g.values.size(1) + 15) / 16 * 16, lines = 2 * n + kChainHeap;
  const int64_t most = values.is_cpu() ? kPieces : kBlocks;
  const Held held(g, std::clamp<int64_t>((int64_t(1) << 24) / (lines * padded), 1, most), lines);
  if (may_leave_rows(held.view.row_offsets, held.view.rows)) path.zero_();
  const Tensor steps = held.filled(held.steps(), -std::numeric_limits<double>::infinity());
  const Tensor back = at::empty({held.view.rows, held.tags(), n}, path.options().dtype(at::kInt));
  LOD_RUN(path, chain_argmax, floating_type(g.op, values),
          ChainArgmax{held.chain, steps.const_data_ptr(), n, scores.mutable_data_ptr(), path.mutable_data_ptr(),
                      back.mutable_data_ptr<int32_t>()});
  return {scores, path};
}

// -- chain_sample

Tensor chain_sample_meta(const Tensor& state, const Tensor& transition, const Tensor& row_offsets,
                         const Tensor& uniform) {
  const Given g{"chain_sample", state, transition, row_offsets};
  check_has_rows(g.op, "state", state);
  check_offsets_kind(g.op, row_offsets, state.device());
  TORCH_CHECK_TYPE(state.scalar_type() == at::kDouble || state.scalar_type() == at::kFloat, g.op,
                   ": expected state of dtype float32 or float64, got ", state.scalar_type());
  TORCH_CHECK_VALUE(state.dim() == 2, g.op, ": expected state of shape (rows, tags), got ", state.sym_sizes());
  g.check_transition(state.sym_size(1), state.scalar_type());
  TORCH_CHECK_TYPE(uniform.scalar_type() == state.scalar_type() && uniform.device() == state.device(), g.op,
                   ": expected uniform of dtype ", state.scalar_type(), " on ", state.device(), ", got ",
                   uniform.scalar_type(), " on ", uniform.device());
  TORCH_CHECK_VALUE(uniform.dim() == 2 && TORCH_GUARD_OR_TRUE(uniform.sym_size(0).sym_eq(state.sym_size(0))), g.op,
                    ": expected uniform of shape (rows, n) with ", state.sym_size(0), " rows, got ",
                    uniform.sym_sizes());
  return at::empty_symint(uniform.sym_sizes(), uniform.options().dtype(at::kLong));
}
Tensor chain_sample(const Tensor& state, const Tensor& transition, const Tensor& row_offsets, const Tensor& uniform) {
  const Tensor path = chain_sample_meta(state, transition, row_offsets, uniform), drawn = readable(uniform);
  const Held held({"chain_sample", state, transition, row_offsets}, 1, 0);
  if (may_leave_rows(held.view.row_offsets, held.view.rows)) path.zero_();
  LOD_RUN(path, chain_sample, floating_type("chain_sample", state),
          ChainSample{held.chain, held.chain.values, drawn.const_data_ptr(), uniform.size(1),
                      path.mutable_data_ptr<int64_t>()});
  return path;
}

// -- gradients

using LogsumexpOp = Operator<"chain_logsumexp", chain_logsumexp_meta, chain_logsumexp, chain_logsumexp_given>;
using BackwardOp = Operator<"chain_logsumexp_backward", chain_logsumexp_backward_meta, chain_logsumexp_backward,
                            chain_logsumexp_given_back>;
// The posterior of the tags is the gradient of the sums; its own gradient is that of a composition.
Given chain_marginals_given(const Tensor& values, const Tensor& transition, const Tensor& row_offsets) {
  return {"chain_marginals", values, transition, row_offsets};
}
Tensor chain_marginals_meta(const Given& g) {
  g.check();
  return at::empty_symint(g.values.sym_sizes(), g.values.options());
}
Tensor chain_marginals(const Given& g) {
  const auto [logsum, state] = chain_logsumexp(g);
  return std::get<0>(chain_logsumexp_backward({g, at::ones_like(logsum), state}));
}
using MarginalsOp = Operator<"chain_marginals", chain_marginals_meta, chain_marginals, chain_marginals_given>;
using MarginalsBackwardOp = Call<"chain_marginals_backward", TwoTensors(const Tensor& grad, const Tensor& values,
                                                                        const Tensor& transition,
                                                                        const Tensor& row_offsets)>;

using ArgmaxOp = Operator<"chain_argmax", chain_argmax_meta, chain_argmax>;
using SampleOp = Operator<"chain_sample", chain_sample_meta, chain_sample>;

struct LogsumexpGradient : Gradient<LogsumexpOp> {
  static variable_list gradient(const Grads& grads, const Given& g, const Tensor&, const Tensor& state) {
    auto [values, transition] = BackwardOp::call(grads[0], g.values, g.transition, g.offsets, state);
    return {values, transition};
  }
};
struct MarginalsGradient : Gradient<MarginalsOp> {
  static variable_list gradient(const Grads& grads, const Given& g, const Tensor&) {
    auto [values, transition] = MarginalsBackwardOp::call(grads[0], g.values, g.transition, g.offsets);
    return {values, transition};
  }
};

}  // namespace

LOD_OPERATORS(LogsumexpGradient, OneGradient<BackwardOp>, MarginalsGradient, NoGradient<ArgmaxOp>, NoGradient<SampleOp>)
TORCH_LIBRARY_IMPL(torch_lod, Autograd, m) { m.impl(MarginalsBackwardOp::name, OneGradient<MarginalsOp>::boxed()); }

}  // namespace lod
