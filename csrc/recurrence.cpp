// Binding of the shape "recurrence": one product for all inputs, then per step one product for the living sequences and one
// fused cell; backwards the same, and every weight gradient is one product over all rows.
// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "recurrence.h"
#include "torch_lod/binding.h"
#include "core/factor.h"
#include "torch_lod/rank.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

namespace lod {
#ifdef LOD_CUDA
namespace cuda {
void previous_rows(const CudaExec&, const PreviousRows&);
void lstm_forward(const CudaExec&, DType, const LstmForward&);
void lstm_backward(const CudaExec&, DType, const LstmBackward&);
void gru_forward(const CudaExec&, DType, const GruForward&);
void gru_backward(const CudaExec&, DType, const GruBackward&);
}  // namespace cuda
#endif
namespace {

// -- checks

struct Layer {  // the tensors of one direction of one layer
  const char* op;
  int64_t gates;  // blocks of hidden units in the weights: 4 for LSTM, 3 for GRU
  const Tensor &values, &weight_ih, &weight_hh, &offsets;
  OptionalTensor bias_ih, bias_hh, h_0;

  c10::SymInt hidden() const { return weight_hh.sym_size(1); }
  c10::SymInt sequences() const { return offsets.sym_size(0) - 1; }

  void expect(const char* name, const OptionalTensor& t, std::initializer_list<c10::SymInt> shape) const {
    if (!t) return;
    TORCH_CHECK_TYPE(t->scalar_type() == values.scalar_type() && t->device() == values.device(), op, ": expected ", name,
                     " of dtype ", values.scalar_type(), " on ", values.device(), ", as values, got ", t->scalar_type(), " on ",
                     t->device());
    TORCH_CHECK_VALUE(t->sym_sizes() == c10::SymIntArrayRef(shape), op, ": expected ", name, " of shape ",
                      c10::SymIntArrayRef(shape), ", got ", t->sym_sizes());
  }
  void check() const {
    TORCH_CHECK_VALUE(values.dim() == 2, op, ": expected values of shape (rows, features), got ", values.dim(), " dimensions");
    check_floating(op, "values", values);
    check_offsets_kind(op, offsets, values.is_meta() && offsets.is_meta() ? offsets.device() : c10::Device(c10::kCPU));
    TORCH_CHECK_VALUE(weight_hh.dim() == 2, op, ": expected weight_hh with 2 dimensions, got ", weight_hh.dim());
    expect("weight_ih", weight_ih, {gates * hidden(), values.sym_size(1)});
    expect("weight_hh", weight_hh, {gates * hidden(), hidden()});
    expect("bias_ih", bias_ih, {gates * hidden()});
    expect("bias_hh", bias_hh, {gates * hidden()});
    expect("h_0", h_0, {sequences(), hidden()});
  }
};

// -- the plan: sequences longest first, and how many live at each step

struct Plan {
  std::vector<int64_t> alive;
  Tensor order, start;  // on the device of values; start: the first row visited
  int64_t step;

  Plan(const Tensor& host, const Tensor& values, bool reverse) : step(reverse ? -1 : 1) {
    const auto* o = host.const_data_ptr<int64_t>();
    const int64_t n = host.numel() - 1;
    order = at::empty({n}, host.options());
    start = at::empty({n}, host.options());
    auto *by = order.mutable_data_ptr<int64_t>(), *from = start.mutable_data_ptr<int64_t>();
    rank_by_length(o, n, by);
    for (int64_t i = 0; i < n; ++i) from[i] = reverse ? o[by[i] + 1] - 1 : o[by[i]];
    alive.resize(n ? o[by[0] + 1] - o[by[0]] : 0);
    for (int64_t i = n - 1, t = 0; i >= 0; --i)
      for (const int64_t length = o[by[i] + 1] - o[by[i]]; t < length; ++t) alive[t] = i + 1;
    if (!values.is_cpu()) {
      order = order.pin_memory().to(values.device(), /*non_blocking=*/true);
      start = start.pin_memory().to(values.device(), /*non_blocking=*/true);
    }
  }
  int64_t steps() const { return int64_t(alive.size()); }
  int64_t nonempty() const { return alive.empty() ? 0 : alive[0]; }
  Step at(int64_t t, int64_t width) const { return {start.const_data_ptr<int64_t>(), alive[t], width, t, step}; }
  Tensor packed(const OptionalTensor& state) const { return state ? state->index_select(0, order) : Tensor(); }
  Tensor unpacked(const Tensor& state) const { return at::empty_like(state).index_copy_(0, order, state); }
};

const void* read(const Tensor& t) { return t.defined() ? t.const_data_ptr() : nullptr; }
void* write(const Tensor& t) { return t.mutable_data_ptr(); }

Tensor first(const Tensor& t, int64_t rows) { return t.narrow(0, 0, rows); }

Tensor project(const Tensor& values, const Tensor& weight, const OptionalTensor& bias) {
  Tensor out = at::empty({values.size(0), weight.size(0)}, values.options());
  Factor(weight.t()).multiply(values, out, readable("recurrence", bias));
  return out;
}
Tensor times(const Tensor& left, const Tensor& right) {
  Tensor out = at::empty({left.size(0), right.size(1)}, left.options());
  Factor(right).multiply(left, out);
  return out;
}

// The states' share of a weight gradient: every row of `grad` times the output one step before it.
Tensor weight_gradient(const Tensor& grad, const Tensor& output, const Tensor& h_0, const Plan& plan, const Tensor& offsets) {
  const int64_t rows = output.size(0);
  const Tensor there = offsets.to(output.device()), map = at::empty({rows}, there.options());
  LOD_RUN(output, previous_rows, PreviousRows{there.const_data_ptr<int64_t>(), map.mutable_data_ptr<int64_t>(),
                                              there.numel() - 1, rows, plan.step});
  Tensor total = transposed_product(grad, output, map);
  if (h_0.defined()) {
    const int64_t n = plan.nonempty();
    total.addmm_(grad.index_select(0, plan.start.narrow(0, 0, n)).t(), h_0.narrow(0, 0, n));
  }
  return total;
}

OptionalTensor optional(const Tensor& t) { return t.defined() ? OptionalTensor(t) : std::nullopt; }

// -- LSTM

std::tuple<Tensor, Tensor, Tensor> lstm_meta(const Tensor& values, const Tensor& weight_ih, const Tensor& weight_hh,
                                             const OptionalTensor& bias_ih, const OptionalTensor& bias_hh,
                                             const OptionalTensor& h_0, const OptionalTensor& c_0, const Tensor& offsets, bool) {
  const Layer layer{"lstm", 4, values, weight_ih, weight_hh, offsets, bias_ih, bias_hh, h_0};
  layer.check();
  TORCH_CHECK_VALUE(h_0.has_value() == c_0.has_value(), "lstm: expected h_0 and c_0 together, got one of them");
  layer.expect("c_0", c_0, {layer.sequences(), layer.hidden()});
  const auto rows = values.sym_size(0);
  return {at::empty_symint({rows, layer.hidden()}, values.options()), at::empty_symint({rows, layer.hidden()}, values.options()),
          at::empty_symint({rows, 4 * layer.hidden()}, values.options())};
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& values, const Tensor& weight_ih, const Tensor& weight_hh,
                                        const OptionalTensor& bias_ih, const OptionalTensor& bias_hh, const OptionalTensor& h_0,
                                        const OptionalTensor& c_0, const Tensor& given, bool reverse) {
  auto [out, cells, unused] = lstm_meta(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, given, reverse);
  const Tensor offsets = checked_offsets("lstm", given, values.size(0));
  const int64_t width = weight_hh.size(1), n = offsets.size(0) - 1;
  if (out.numel() == 0) return {out, cells, unused};
  const Plan plan(offsets, values, reverse);
  OptionalTensor bias = bias_ih && bias_hh ? OptionalTensor(bias_ih->add(*bias_hh)) : bias_ih ? bias_ih : bias_hh;
  const Tensor gates = project(readable("lstm", values), readable("lstm", weight_ih), bias);
  const Factor weights(readable("lstm", weight_hh).t());
  const Tensor hidden = at::empty({n, 4 * width}, values.options());
  const Tensor h = h_0 ? plan.packed(h_0) : at::empty({n, width}, values.options());
  const Tensor c = c_0 ? plan.packed(c_0) : at::zeros({n, width}, values.options());
  for (int64_t t = 0; t < plan.steps(); ++t) {
    const bool carried = t > 0 || h_0;
    if (carried) weights.multiply(first(h, plan.alive[t]), first(hidden, plan.alive[t]));
    LOD_RUN(values, lstm_forward, floating_type("lstm", values),
            LstmForward{plan.at(t, width), write(gates), carried ? read(hidden) : nullptr, write(out), write(cells), write(h), write(c)});
  }
  return {out, cells, gates};
}

using SixTensors = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// Gradients of values, weight_ih, weight_hh, both biases, h_0 and c_0; the states' are empty where there are none.
SixTensors lstm_backward_meta(const OptionalTensor& grad_output, const OptionalTensor& grad_cells, const Tensor& values,
                              const Tensor& weight_ih, const Tensor& weight_hh, const OptionalTensor& h_0,
                              const OptionalTensor& c_0, const Tensor& offsets, bool, const Tensor& output,
                              const Tensor& cells, const Tensor& gates) {
  const Layer layer{"lstm_backward", 4, values, weight_ih, weight_hh, offsets, std::nullopt, std::nullopt, h_0};
  layer.check();
  layer.expect("c_0", c_0, {layer.sequences(), layer.hidden()});
  const c10::SymInt rows = values.sym_size(0), width = layer.hidden(), none = 0;
  layer.expect("grad_output", grad_output, {rows, width});
  layer.expect("grad_cells", grad_cells, {rows, width});
  layer.expect("output", output, {rows, width});
  layer.expect("cells", cells, {rows, width});
  layer.expect("gates", gates, {rows, 4 * width});
  const auto state = [&](const OptionalTensor& t) {
    return at::empty_symint({t ? layer.sequences() : none, width}, values.options());
  };
  return {at::empty_symint(values.sym_sizes(), values.options()), at::empty_symint(weight_ih.sym_sizes(), values.options()),
          at::empty_symint(weight_hh.sym_sizes(), values.options()), at::empty_symint({4 * width}, values.options()), state(h_0),
          state(c_0)};
}

SixTensors lstm_backward(const OptionalTensor& grad_output, const OptionalTensor& grad_cells, const Tensor& values,
                         const Tensor& weight_ih, const Tensor& weight_hh, const OptionalTensor& h_0, const OptionalTensor& c_0,
                         const Tensor& given, bool reverse, const Tensor& output_, const Tensor& cells_, const Tensor& gates_) {
  lstm_backward_meta(grad_output, grad_cells, values, weight_ih, weight_hh, h_0, c_0, given, reverse, output_, cells_, gates_);
  const Tensor offsets = checked_offsets("lstm_backward", given, values.size(0));
  const int64_t width = weight_hh.size(1), n = offsets.size(0) - 1, rows = values.size(0);
  const Plan plan(offsets, values, reverse);
  const Tensor output = readable("lstm_backward", output_), cells = readable("lstm_backward", cells_),
               gates = readable("lstm_backward", gates_);
  const Tensor x = readable("lstm_backward", values);
  const Factor weights(readable("lstm_backward", weight_hh));
  const Tensor d_out = readable("lstm_backward", grad_output), d_cells = readable("lstm_backward", grad_cells);
  const Tensor h = plan.packed(h_0), c = plan.packed(c_0);
  const Tensor grad = at::empty({rows, 4 * width}, values.options()), packed = at::empty({n, 4 * width}, values.options());
  const Tensor dh = at::zeros({n, width}, values.options()), dc = at::zeros({n, width}, values.options());
  for (int64_t t = plan.steps() - 1; t >= 0; --t) {
    LOD_RUN(values, lstm_backward, floating_type("lstm_backward", values),
            LstmBackward{plan.at(t, width), read(gates), read(cells), read(c), read(d_out), read(d_cells), write(grad),
                         write(packed), write(dh), write(dc)});
    if (t > 0 || h_0) weights.multiply(first(packed, plan.alive[t]), first(dh, plan.alive[t]));
  }
  const auto state = [&](const OptionalTensor& given_, const Tensor& d) {
    return given_ ? plan.unpacked(d) : at::empty({0, width}, values.options());
  };
  return {times(grad, readable("lstm_backward", weight_ih)), transposed_product(grad, x), weight_gradient(grad, output, h, plan, offsets),
          grad.sum(at::IntArrayRef{0}), state(h_0, dh), state(c_0, dc)};
}

// -- GRU

std::tuple<Tensor, Tensor> gru_meta(const Tensor& values, const Tensor& weight_ih, const Tensor& weight_hh,
                                    const OptionalTensor& bias_ih, const OptionalTensor& bias_hh, const OptionalTensor& h_0,
                                    const Tensor& offsets, bool) {
  const Layer layer{"gru", 3, values, weight_ih, weight_hh, offsets, bias_ih, bias_hh, h_0};
  layer.check();
  return {at::empty_symint({values.sym_size(0), layer.hidden()}, values.options()),
          at::empty_symint({values.sym_size(0), 4 * layer.hidden()}, values.options())};
}

std::tuple<Tensor, Tensor> gru(const Tensor& values, const Tensor& weight_ih, const Tensor& weight_hh,
                               const OptionalTensor& bias_ih, const OptionalTensor& bias_hh, const OptionalTensor& h_0,
                               const Tensor& given, bool reverse) {
  auto [out, saved] = gru_meta(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, given, reverse);
  const Tensor offsets = checked_offsets("gru", given, values.size(0));
  const int64_t width = weight_hh.size(1), n = offsets.size(0) - 1;
  if (out.numel() == 0) return {out, saved};
  const Plan plan(offsets, values, reverse);
  OptionalTensor bias = bias_ih, bias_n;
  if (bias_hh) {  // the part of n stays apart, since the reset gate multiplies it
    bias_n = bias_hh->narrow(0, 2 * width, width).contiguous();
    bias = bias_ih ? bias_ih->clone() : at::zeros({3 * width}, values.options());
    bias->narrow(0, 0, 2 * width).add_(bias_hh->narrow(0, 0, 2 * width));
  }
  const Tensor gates = project(readable("gru", values), readable("gru", weight_ih), bias);
  const Factor weights(readable("gru", weight_hh).t());
  const Tensor hidden = at::empty({n, 3 * width}, values.options());
  const Tensor h = h_0 ? plan.packed(h_0) : at::zeros({n, width}, values.options());
  for (int64_t t = 0; t < plan.steps(); ++t) {
    const bool carried = t > 0 || h_0;
    if (carried) weights.multiply(first(h, plan.alive[t]), first(hidden, plan.alive[t]));
    LOD_RUN(values, gru_forward, floating_type("gru", values),
            GruForward{plan.at(t, width), read(gates), carried ? read(hidden) : nullptr, read(bias_n.value_or(Tensor())), write(saved), write(out), write(h)});
  }
  return {out, saved};
}

// Gradients of values, weight_ih, weight_hh, bias_ih, bias_hh and h_0.
SixTensors gru_backward_meta(const Tensor& grad_output, const Tensor& values, const Tensor& weight_ih, const Tensor& weight_hh,
                             const OptionalTensor& h_0, const Tensor& offsets, bool, const Tensor& output,
                             const Tensor& saved) {
  const Layer layer{"gru_backward", 3, values, weight_ih, weight_hh, offsets, std::nullopt, std::nullopt, h_0};
  layer.check();
  const c10::SymInt rows = values.sym_size(0), width = layer.hidden(), none = 0;
  layer.expect("grad_output", grad_output, {rows, width});
  layer.expect("output", output, {rows, width});
  layer.expect("saved", saved, {rows, 4 * width});
  return {at::empty_symint(values.sym_sizes(), values.options()), at::empty_symint(weight_ih.sym_sizes(), values.options()),
          at::empty_symint(weight_hh.sym_sizes(), values.options()), at::empty_symint({3 * width}, values.options()),
          at::empty_symint({3 * width}, values.options()),
          at::empty_symint({h_0 ? layer.sequences() : none, width}, values.options())};
}

SixTensors gru_backward(const Tensor& grad_output, const Tensor& values, const Tensor& weight_ih, const Tensor& weight_hh,
                        const OptionalTensor& h_0, const Tensor& given, bool reverse, const Tensor& output_,
                        const Tensor& saved_) {
  gru_backward_meta(grad_output, values, weight_ih, weight_hh, h_0, given, reverse, output_, saved_);
  const Tensor offsets = checked_offsets("gru_backward", given, values.size(0));
  const int64_t width = weight_hh.size(1), n = offsets.size(0) - 1, rows = values.size(0);
  const Plan plan(offsets, values, reverse);
  const Tensor output = readable("gru_backward", output_), saved = readable("gru_backward", saved_),
               d_out = readable("gru_backward", grad_output), x = readable("gru_backward", values);
  const Factor weights(readable("gru_backward", weight_hh));
  const Tensor h = plan.packed(h_0);
  const Tensor d_values = at::empty({rows, 3 * width}, values.options()), d_hidden = at::empty_like(d_values);
  const Tensor packed = at::empty({n, 3 * width}, values.options()), dh = at::zeros({n, width}, values.options());
  for (int64_t t = plan.steps() - 1; t >= 0; --t) {
    LOD_RUN(values, gru_backward, floating_type("gru_backward", values),
            GruBackward{plan.at(t, width), read(saved), read(output), read(h), read(d_out), write(d_values), write(d_hidden),
                        write(packed), write(dh)});
    if (t > 0 || h_0) weights.add(first(packed, plan.alive[t]), first(dh, plan.alive[t]));
  }
  return {times(d_values, readable("gru_backward", weight_ih)), transposed_product(d_values, x),
          weight_gradient(d_hidden, output, h, plan, offsets),
          d_values.sum(at::IntArrayRef{0}), d_hidden.sum(at::IntArrayRef{0}),
          h_0 ? plan.unpacked(dh) : at::empty({0, width}, values.options())};
}

// -- gradients

// Gradients that can themselves be differentiated: run the composed form on aliases of the inputs (so that inputs made from
// one another stay apart) and let autograd record its own backward.
template <class Compose>
variable_list differentiable(const variable_list& inputs, const variable_list& grads, const Compose& compose) {
  variable_list aliases, wanted, results(inputs.size());
  for (const Tensor& t : inputs) {
    aliases.push_back(t.defined() ? t.view_symint(t.sym_sizes()) : t);
    if (t.defined() && t.requires_grad()) wanted.push_back(aliases.back());
  }
  variable_list outputs, given;
  const variable_list all = compose(aliases);
  for (size_t i = 0; i < all.size(); ++i)
    if (grads[i].defined() && all[i].requires_grad()) outputs.push_back(all[i]), given.push_back(grads[i]);
  if (outputs.empty()) return results;  // no rows: nothing depends on anything
  const auto found = torch::autograd::grad(outputs, wanted, given, /*retain_graph=*/true, /*create_graph=*/true, /*allow_unused=*/true);
  for (size_t i = 0, k = 0; i < inputs.size(); ++i)
    if (inputs[i].defined() && inputs[i].requires_grad()) results[i] = found[k++];
  return results;
}

std::tuple<Tensor, Tensor> lstm_composed_type(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                                              const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const Tensor&,
                                              bool);
Tensor gru_composed_type(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&, const OptionalTensor&,
                         const OptionalTensor&, const Tensor&, bool);

struct LstmGrad : torch::autograd::Function<LstmGrad> {
  static variable_list forward(AutogradContext* ctx, const Tensor& values, const Tensor& weight_ih, const Tensor& weight_hh,
                               const OptionalTensor& bias_ih, const OptionalTensor& bias_hh, const OptionalTensor& h_0,
                               const OptionalTensor& c_0, const Tensor& offsets, bool reverse) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    auto [out, cells, gates] =
        LOD_CALL("lstm", lstm_meta).call(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, offsets, reverse);
    const Tensor none;
    ctx->save_for_backward({values, weight_ih, weight_hh, bias_ih.value_or(none), bias_hh.value_or(none), h_0.value_or(none),
                            c_0.value_or(none), offsets, out, cells, gates});
    ctx->saved_data["reverse"] = reverse;
    ctx->mark_non_differentiable({gates});
    ctx->set_materialize_grads(false);
    return {out, cells, gates};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto s = ctx->get_saved_variables();
    const bool reverse = ctx->saved_data["reverse"].toBool();
    const Tensor none;
    if (at::GradMode::is_enabled()) {
      auto d = differentiable({s.begin(), s.begin() + 7}, {grads[0], grads[1]}, [&](const variable_list& a) -> variable_list {
        auto [out, cells] = LOD_CALL("lstm_composed", lstm_composed_type)
                                .call(a[0], a[1], a[2], optional(a[3]), optional(a[4]), optional(a[5]), optional(a[6]), s[7], reverse);
        return {out, cells};
      });
      d.resize(9);
      return d;
    }
    auto [values, weight_ih, weight_hh, bias, h_0, c_0] =
        LOD_CALL("lstm_backward", lstm_backward_meta)
            .call(optional(grads[0]), optional(grads[1]), s[0], s[1], s[2], optional(s[5]), optional(s[6]), s[7], reverse, s[8],
                  s[9], s[10]);
    return {values, weight_ih, weight_hh, s[3].defined() ? bias : none, s[4].defined() ? bias : none,
            s[5].defined() ? h_0 : none, s[6].defined() ? c_0 : none, none, none};
  }
};

std::tuple<Tensor, Tensor, Tensor> lstm_autograd(const Tensor& values, const Tensor& weight_ih, const Tensor& weight_hh,
                                                 const OptionalTensor& bias_ih, const OptionalTensor& bias_hh,
                                                 const OptionalTensor& h_0, const OptionalTensor& c_0, const Tensor& offsets,
                                                 bool reverse) {
  if (tracked(values) || tracked(weight_ih) || tracked(weight_hh) || tracked(bias_ih) || tracked(bias_hh) || tracked(h_0) ||
      tracked(c_0)) {
    const auto out = LstmGrad::apply(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, offsets, reverse);
    return {out[0], out[1], out[2]};
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return LOD_CALL("lstm", lstm_meta).call(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, offsets, reverse);
}

// The backwards keep no graph: gradients of gradients go through the composed forms.
template <class... A>
void refuse_tracked(const char* op, const A&... tensors) {
  TORCH_CHECK_NOT_IMPLEMENTED(!(tracked(tensors) || ...), op,
                              ": has no gradient of its own; differentiate the forward operator twice instead");
}
SixTensors lstm_backward_autograd(const OptionalTensor& grad_output, const OptionalTensor& grad_cells, const Tensor& values,
                                  const Tensor& weight_ih, const Tensor& weight_hh, const OptionalTensor& h_0,
                                  const OptionalTensor& c_0, const Tensor& offsets, bool reverse, const Tensor& output,
                                  const Tensor& cells, const Tensor& gates) {
  refuse_tracked("lstm_backward", grad_output, grad_cells, values, weight_ih, weight_hh, h_0, c_0, output, cells, gates);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return LOD_CALL("lstm_backward", lstm_backward_meta)
      .call(grad_output, grad_cells, values, weight_ih, weight_hh, h_0, c_0, offsets, reverse, output, cells, gates);
}
SixTensors gru_backward_autograd(const Tensor& grad_output, const Tensor& values, const Tensor& weight_ih,
                                 const Tensor& weight_hh, const OptionalTensor& h_0, const Tensor& offsets, bool reverse,
                                 const Tensor& output, const Tensor& saved) {
  refuse_tracked("gru_backward", grad_output, values, weight_ih, weight_hh, h_0, output, saved);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return LOD_CALL("gru_backward", gru_backward_meta)
      .call(grad_output, values, weight_ih, weight_hh, h_0, offsets, reverse, output, saved);
}

struct GruGrad : torch::autograd::Function<GruGrad> {
  static variable_list forward(AutogradContext* ctx, const Tensor& values, const Tensor& weight_ih, const Tensor& weight_hh,
                               const OptionalTensor& bias_ih, const OptionalTensor& bias_hh, const OptionalTensor& h_0,
                               const Tensor& offsets, bool reverse) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    auto [out, saved] = LOD_CALL("gru", gru_meta).call(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, offsets, reverse);
    const Tensor none;
    ctx->save_for_backward({values, weight_ih, weight_hh, bias_ih.value_or(none), bias_hh.value_or(none), h_0.value_or(none),
                            offsets, out, saved});
    ctx->saved_data["reverse"] = reverse;
    ctx->mark_non_differentiable({saved});
    return {out, saved};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto s = ctx->get_saved_variables();
    const bool reverse = ctx->saved_data["reverse"].toBool();
    const Tensor none;
    if (at::GradMode::is_enabled()) {
      auto d = differentiable({s.begin(), s.begin() + 6}, {grads[0]}, [&](const variable_list& a) -> variable_list {
        return {LOD_CALL("gru_composed", gru_composed_type)
                    .call(a[0], a[1], a[2], optional(a[3]), optional(a[4]), optional(a[5]), s[6], reverse)};
      });
      d.resize(8);
      return d;
    }
    auto [values, weight_ih, weight_hh, bias_ih, bias_hh, h_0] =
        LOD_CALL("gru_backward", gru_backward_meta).call(grads[0], s[0], s[1], s[2], optional(s[5]), s[6], reverse, s[7], s[8]);
    return {values, weight_ih, weight_hh, s[3].defined() ? bias_ih : none, s[4].defined() ? bias_hh : none,
            s[5].defined() ? h_0 : none, none, none};
  }
};

std::tuple<Tensor, Tensor> gru_autograd(const Tensor& values, const Tensor& weight_ih, const Tensor& weight_hh,
                                        const OptionalTensor& bias_ih, const OptionalTensor& bias_hh, const OptionalTensor& h_0,
                                        const Tensor& offsets, bool reverse) {
  if (tracked(values) || tracked(weight_ih) || tracked(weight_hh) || tracked(bias_ih) || tracked(bias_hh) || tracked(h_0)) {
    const auto out = GruGrad::apply(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, offsets, reverse);
    return {out[0], out[1]};
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return LOD_CALL("gru", gru_meta).call(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, offsets, reverse);
}

}  // namespace

LOD_IMPLEMENTATIONS(m) {
  m.impl("lstm", &lstm);
  m.impl("lstm_backward", &lstm_backward);
  m.impl("gru", &gru);
  m.impl("gru_backward", &gru_backward);
}
TORCH_LIBRARY_IMPL(torch_lod, Meta, m) {
  m.impl("lstm", &lstm_meta);
  m.impl("lstm_backward", &lstm_backward_meta);
  m.impl("gru", &gru_meta);
  m.impl("gru_backward", &gru_backward_meta);
}
TORCH_LIBRARY_IMPL(torch_lod, Autograd, m) {
  m.impl("lstm", &lstm_autograd);
  m.impl("lstm_backward", &lstm_backward_autograd);
  m.impl("gru_backward", &gru_backward_autograd);
  m.impl("gru", &gru_autograd);
}

}  // namespace lod
