// Binding of the shape "recurrence": one product for all inputs, then per step one product for the living sequences and
// one fused cell; backwards the same, and every weight gradient is one product over all rows.
// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "recurrence.h"
#include "core/factor.h"
#include "core/upload.h"
#include "torch_lod/operator.h"
#include "torch_lod/rank.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

namespace lod {
LOD_ON_CUDA(previous_rows)
LOD_ON_CUDA(lstm_forward)
LOD_ON_CUDA(lstm_backward)
LOD_ON_CUDA(gru_forward)
LOD_ON_CUDA(gru_backward)
LOD_ON_CUDA(rnn_forward)
LOD_ON_CUDA(rnn_backward)
namespace {

// -- arguments

struct Layer {  // one direction of one layer: what the operators take
  const char* op;
  int64_t gates;  // blocks of hidden units in the weights
  Tensor values, weight_ih, weight_hh;
  OptionalTensor bias_ih, bias_hh, h_0, c_0, weight_hr;
  Tensor offsets;
  bool reverse = false, relu = false;

  c10::SymInt hidden() const { return weight_hr ? weight_hr->sym_size(1) : weight_hh.sym_size(1); }
  // The columns of h: fewer than hidden units where it is projected.
  c10::SymInt state() const { return weight_hh.sym_size(1); }
  c10::SymInt sequences() const { return offsets.sym_size(0) - 1; }
  Tensor empty(const c10::SymInt& columns) const {
    return at::empty_symint({values.sym_size(0), columns}, values.options());
  }

  void expect(const char* name, const OptionalTensor& t, std::initializer_list<c10::SymInt> shape) const {
    if (!t) return;
    TORCH_CHECK_TYPE(t->scalar_type() == values.scalar_type() && t->device() == values.device(), op, ": expected ",
                     name, " of dtype ", values.scalar_type(), " on ", values.device(), ", as values, got ",
                     t->scalar_type(), " on ", t->device());
    TORCH_CHECK_VALUE(t->sym_sizes() == c10::SymIntArrayRef(shape), op, ": expected ", name, " of shape ",
                      c10::SymIntArrayRef(shape), ", got ", t->sym_sizes());
  }
  void check() const {
    TORCH_CHECK_VALUE(values.dim() == 2, op, ": expected values of shape (rows, features), got ", values.dim(),
                      " dimensions");
    check_floating(op, "values", values);
    check_offsets_kind(op, offsets, values.is_meta() && offsets.is_meta() ? offsets.device() : c10::Device(c10::kCPU));
    TORCH_CHECK_VALUE(weight_hh.dim() == 2, op, ": expected weight_hh with 2 dimensions, got ", weight_hh.dim());
    TORCH_CHECK_VALUE(!weight_hr || weight_hr->dim() == 2, op, ": expected weight_hr with 2 dimensions, got ",
                      weight_hr->dim());
    expect("weight_ih", weight_ih, {gates * hidden(), values.sym_size(1)});
    expect("weight_hh", weight_hh, {gates * hidden(), state()});
    expect("weight_hr", weight_hr, {state(), hidden()});
    expect("bias_ih", bias_ih, {gates * hidden()});
    expect("bias_hh", bias_hh, {gates * hidden()});
    expect("h_0", h_0, {sequences(), state()});
    expect("c_0", c_0, {sequences(), hidden()});
    TORCH_CHECK_VALUE(gates < 4 || h_0.has_value() == c_0.has_value(), op,
                      ": expected h_0 and c_0 together, got one of them");
  }
  void check_saved(const char* name, const OptionalTensor& t, const c10::SymInt& columns) const {
    expect(name, t, {values.sym_size(0), columns});
  }

  // Empty gradients of inputs, weights and initial states (none: no rows).
  Tensor like(const Tensor& t) const { return at::empty_symint(t.sym_sizes(), values.options()); }
  Tensor like_state(const OptionalTensor& t, const c10::SymInt& columns) const {
    return at::empty_symint({t ? sequences() : c10::SymInt(0), columns}, values.options());
  }
  Tensor like_bias() const { return at::empty_symint({gates * hidden()}, values.options()); }
};
// What the gradients take; `saved` is the activated gates of an LSTM, and not used by an RNN.
struct LayerBackward : Layer {
  OptionalTensor grad_output, grad_cells;
  Tensor output, cells, saved;
};

Layer lstm_layer(const Tensor& values, const Tensor& weight_ih, const Tensor& weight_hh, const OptionalTensor& bias_ih,
                 const OptionalTensor& bias_hh, const OptionalTensor& h_0, const OptionalTensor& c_0,
                 const Tensor& offsets, bool reverse, const OptionalTensor& weight_hr) {
  return {"lstm", 4, values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, weight_hr, offsets, reverse};
}
LayerBackward lstm_layer_backward(const OptionalTensor& grad_output, const OptionalTensor& grad_cells,
                                  const Tensor& values, const Tensor& weight_ih, const Tensor& weight_hh,
                                  const OptionalTensor& h_0, const OptionalTensor& c_0, const Tensor& offsets,
                                  bool reverse, const Tensor& output, const Tensor& cells, const Tensor& gates,
                                  const OptionalTensor& weight_hr) {
  return {{"lstm_backward", 4, values, weight_ih, weight_hh, {}, {}, h_0, c_0, weight_hr, offsets, reverse},
          grad_output,
          grad_cells,
          output,
          cells,
          gates};
}
Layer gru_layer(const Tensor& values, const Tensor& weight_ih, const Tensor& weight_hh, const OptionalTensor& bias_ih,
                const OptionalTensor& bias_hh, const OptionalTensor& h_0, const Tensor& offsets, bool reverse) {
  return {"gru", 3, values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, {}, {}, offsets, reverse};
}
LayerBackward gru_layer_backward(const Tensor& grad_output, const Tensor& values, const Tensor& weight_ih,
                                 const Tensor& weight_hh, const OptionalTensor& h_0, const Tensor& offsets,
                                 bool reverse, const Tensor& output, const Tensor& saved) {
  return {{"gru_backward", 3, values, weight_ih, weight_hh, {}, {}, h_0, {}, {}, offsets, reverse},
          grad_output,
          {},
          output,
          {},
          saved};
}
Layer rnn_layer(const Tensor& values, const Tensor& weight_ih, const Tensor& weight_hh, const OptionalTensor& bias_ih,
                const OptionalTensor& bias_hh, const OptionalTensor& h_0, const Tensor& offsets, bool reverse,
                bool relu) {
  return {"rnn", 1, values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, {}, {}, offsets, reverse, relu};
}
LayerBackward rnn_layer_backward(const Tensor& grad_output, const Tensor& values, const Tensor& weight_ih,
                                 const Tensor& weight_hh, const OptionalTensor& h_0, const Tensor& offsets,
                                 bool reverse, bool relu, const Tensor& output) {
  return {{"rnn_backward", 1, values, weight_ih, weight_hh, {}, {}, h_0, {}, {}, offsets, reverse, relu},
          grad_output,
          {},
          output};
}

// -- the plan: sequences longest first, and how many live at each step

struct Plan {
  std::vector<int64_t> alive;
  Tensor order, start, offsets;  // on the device of values; start: the first row visited
  int64_t step;

  Plan(const Tensor& host, const Tensor& values, bool reverse) : step(reverse ? -1 : 1) {
    const auto* o = host.const_data_ptr<int64_t>();
    const int64_t n = host.numel() - 1;
    order = at::empty({n}, host.options());
    start = at::empty({n}, host.options());
    offsets = host;
    auto *by = order.mutable_data_ptr<int64_t>(), *from = start.mutable_data_ptr<int64_t>();
    rank_by_length(o, n, by);
    for (int64_t i = 0; i < n; ++i) from[i] = reverse ? o[by[i] + 1] - 1 : o[by[i]];
    alive.resize(n ? o[by[0] + 1] - o[by[0]] : 0);
    for (int64_t i = n - 1, t = 0; i >= 0; --i)
      for (const int64_t length = o[by[i] + 1] - o[by[i]]; t < length; ++t) alive[t] = i + 1;
    if (!values.is_cpu()) {
      const Tensor there = uploaded(host, values.device(), reverse, 3 * n + 1, [&](int64_t* to) {
        std::copy_n(by, n, to);
        std::copy_n(from, n, to + n);
        std::copy_n(o, n + 1, to + 2 * n);
      });
      order = there.narrow(0, 0, n);
      start = there.narrow(0, n, n);
      offsets = there.narrow(0, 2 * n, n + 1);
    }
  }
  int64_t steps() const { return int64_t(alive.size()); }
  int64_t nonempty() const { return alive.empty() ? 0 : alive[0]; }
  // The rows visited at step t.
  Tensor rows(int64_t t) const { return start.narrow(0, 0, alive[t]).add(t * step); }
  Step at(int64_t t, int64_t width) const { return {start.const_data_ptr<int64_t>(), alive[t], width, t, step}; }
  Tensor packed(const OptionalTensor& state) const { return state ? state->index_select(0, order) : Tensor(); }
  // The gradient of an initial state from its packed form; empty where none was given.
  Tensor unpacked(const OptionalTensor& given, const Tensor& state) const {
    return given ? at::empty_like(state).index_copy_(0, order, state) : at::empty({0, state.size(1)}, state.options());
  }
};

const void* read(const Tensor& t) { return t.defined() ? t.const_data_ptr() : nullptr; }
void* write(const Tensor& t) { return t.mutable_data_ptr(); }

Tensor first(const Tensor& t, int64_t rows) { return t.size(0) == rows ? t : t.narrow(0, 0, rows); }

Tensor project(const Tensor& values, const Tensor& weight, const OptionalTensor& bias) {
  Tensor out = at::empty({values.size(0), weight.size(0)}, values.options());
  Factor(weight.t(), values.size(0), 1).multiply(values, out, readable(bias));
  return out;
}
Tensor times(const Tensor& left, const Tensor& right) {
  Tensor out = at::empty({left.size(0), right.size(1)}, left.options());
  Factor(right, left.size(0), 1).multiply(left, out);
  return out;
}

// The states' share of a weight gradient: every row of `grad` times the output one step before it.
Tensor weight_gradient(const Tensor& grad, const Tensor& output, const Tensor& h_0, const Plan& plan) {
  const int64_t rows = output.size(0);
  const Tensor map = at::empty({rows}, plan.offsets.options());
  LOD_RUN(output, previous_rows,
          PreviousRows{plan.offsets.const_data_ptr<int64_t>(), map.mutable_data_ptr<int64_t>(),
                       plan.offsets.numel() - 1, rows, plan.step});
  Tensor total = transposed_product(grad, output, map);
  if (h_0.defined()) {
    const int64_t n = plan.nonempty();
    total.add_(transposed_product(grad.index_select(0, plan.start.narrow(0, 0, n)), h_0.narrow(0, 0, n)));
  }
  return total;
}

// What states are multiplied by: at every step, but at the first only where they are given.
Factor states_weight(const Layer& l, const Plan& plan) {
  return Factor(readable(l.weight_hh).t(), plan.nonempty(), l.h_0 ? plan.steps() : plan.steps() - 1);
}

// The bias of all gates as one.
OptionalTensor joined_bias(const Layer& l) {
  return l.bias_ih && l.bias_hh ? l.bias_ih->add(*l.bias_hh) : l.bias_ih ? l.bias_ih : l.bias_hh;
}

// -- LSTM

using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

ThreeTensors lstm_meta(const Layer& l) {
  l.check();
  return {l.empty(l.state()), l.empty(l.hidden()), l.empty(4 * l.hidden())};
}

ThreeTensors lstm(const Layer& l) {
  l.check();
  const Tensor& values = l.values;
  const Tensor offsets = checked_offsets("lstm", l.offsets, values.size(0));
  const int64_t n = offsets.size(0) - 1, rows = values.size(0), state = l.weight_hh.size(1);
  const int64_t width = l.hidden().expect_int();
  const Tensor out = at::empty({rows, state}, values.options()), cells = at::empty({rows, width}, values.options());
  if (cells.numel() == 0) return {out.zero_(), cells, at::empty({rows, 4 * width}, values.options())};
  const Plan plan(offsets, values, l.reverse);
  const Tensor gates = project(readable(values), readable(l.weight_ih), joined_bias(l));
  const Factor weights = states_weight(l, plan);
  const std::optional<Factor> projection =
      l.weight_hr ? std::make_optional<Factor>(readable(l.weight_hr).t(), n, plan.steps()) : std::nullopt;
  const Tensor hidden = at::empty({n, 4 * width}, values.options());
  const Tensor c = l.c_0 ? plan.packed(l.c_0) : at::zeros({n, width}, values.options());
  const Tensor h = l.h_0 ? plan.packed(l.h_0) : at::empty({n, state}, values.options());
  const Tensor unprojected = projection ? at::empty({n, width}, values.options()) : h;
  Watch watch;
  for (int64_t t = 0; t < plan.steps(); ++t) {
    watch.look();
    const int64_t alive = plan.alive[t];
    const bool carried = t > 0 || l.h_0;
    if (carried) weights.multiply(first(h, alive), first(hidden, alive));
    LOD_RUN(values, lstm_forward, floating_type("lstm", values),
            LstmForward{plan.at(t, width), write(gates), carried ? read(hidden) : nullptr,
                        projection ? nullptr : write(out), write(cells), write(unprojected), write(c)});
    if (projection) {
      projection->multiply(first(unprojected, alive), first(h, alive));
      out.index_copy_(0, plan.rows(t), first(h, alive));
    }
  }
  return {out, cells, gates};
}

using SixTensors = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;
using SevenTensors = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// Gradients of values, weight_ih, weight_hh, both biases, h_0, c_0 and weight_hr; of those not given empty ones.
SevenTensors lstm_backward_meta(const LayerBackward& l) {
  l.check();
  l.check_saved("grad_output", l.grad_output, l.state());
  l.check_saved("grad_cells", l.grad_cells, l.hidden());
  l.check_saved("output", l.output, l.state());
  l.check_saved("cells", l.cells, l.hidden());
  l.check_saved("gates", l.saved, 4 * l.hidden());
  return {l.like(l.values),
          l.like(l.weight_ih),
          l.like(l.weight_hh),
          l.like_bias(),
          l.like_state(l.h_0, l.state()),
          l.like_state(l.c_0, l.hidden()),
          l.weight_hr ? l.like(*l.weight_hr) : at::empty_symint({0, l.hidden()}, l.values.options())};
}

SevenTensors lstm_backward(const LayerBackward& l) {
  lstm_backward_meta(l);
  const char* op = l.op;
  const Tensor& values = l.values;
  const Tensor offsets = checked_offsets(op, l.offsets, values.size(0));
  const int64_t n = offsets.size(0) - 1, rows = values.size(0), state = l.weight_hh.size(1), width = l.cells.size(1);
  const Plan plan(offsets, values, l.reverse);
  const Tensor output = readable(l.output), cells = readable(l.cells), gates = readable(l.saved),
               x = readable(values);
  const Tensor d_out = readable(l.grad_output), d_cells = readable(l.grad_cells);
  const Factor weights(readable(l.weight_hh));
  const std::optional<Factor> projection =
      l.weight_hr ? std::make_optional<Factor>(readable(l.weight_hr)) : std::nullopt;
  const Tensor h = plan.packed(l.h_0), c = plan.packed(l.c_0);
  const Tensor grad = at::empty({rows, 4 * width}, values.options()),
               packed = at::empty({n, 4 * width}, values.options());
  const Tensor dh = at::zeros({n, state}, values.options()), dc = at::zeros({n, width}, values.options());
  const Tensor d_unprojected = projection ? at::empty({n, width}, values.options()) : dh;
  const Tensor d_states = projection ? at::empty({rows, state}, values.options()) : Tensor();
  Watch watch;
  for (int64_t t = plan.steps() - 1; t >= 0; --t) {
    watch.look();
    const int64_t alive = plan.alive[t];
    if (projection) {
      const Tensor at_rows = plan.rows(t), d = first(dh, alive);
      if (d_out.defined()) d.add_(d_out.index_select(0, at_rows));
      d_states.index_copy_(0, at_rows, d);
      projection->multiply(d, first(d_unprojected, alive));
    }
    LOD_RUN(values, lstm_backward, floating_type(op, values),
            LstmBackward{plan.at(t, width), read(gates), read(cells), read(c), projection ? nullptr : read(d_out),
                         read(d_cells), write(grad), write(packed), write(d_unprojected), write(dc)});
    if (t > 0 || l.h_0) weights.multiply(first(packed, alive), first(dh, alive));
  }
  Tensor d_projection = at::empty({0, width}, values.options());
  if (projection) d_projection = transposed_product(d_states, cells.tanh().mul_(gates.narrow(1, 3 * width, width)));
  return {times(grad, readable(l.weight_ih)),
          transposed_product(grad, x),
          weight_gradient(grad, output, h, plan),
          grad.sum(at::IntArrayRef{0}),
          plan.unpacked(l.h_0, dh),
          plan.unpacked(l.c_0, dc),
          d_projection};
}

// -- GRU

using TwoTensors = std::tuple<Tensor, Tensor>;

TwoTensors gru_meta(const Layer& l) {
  l.check();
  return {l.empty(l.hidden()), l.empty(4 * l.hidden())};
}

TwoTensors gru(const Layer& l) {
  auto [out, saved] = gru_meta(l);
  const Tensor& values = l.values;
  const Tensor offsets = checked_offsets("gru", l.offsets, values.size(0));
  const int64_t width = l.weight_hh.size(1), n = offsets.size(0) - 1;
  if (out.numel() == 0) return {out, saved};
  const Plan plan(offsets, values, l.reverse);
  const Tensor gates = project(readable(values), readable(l.weight_ih), l.bias_ih);
  const Factor weights = states_weight(l, plan);
  const Tensor hidden = at::empty({n, 3 * width}, values.options()), bias = readable(l.bias_hh);
  const Tensor h = l.h_0 ? plan.packed(l.h_0) : at::zeros({n, width}, values.options());
  Watch watch;
  for (int64_t t = 0; t < plan.steps(); ++t) {
    watch.look();
    const bool carried = t > 0 || l.h_0;
    if (carried) weights.multiply(first(h, plan.alive[t]), first(hidden, plan.alive[t]), bias);
    LOD_RUN(values, gru_forward, floating_type("gru", values),
            GruForward{plan.at(t, width), read(gates), read(carried ? hidden : bias), carried ? 3 * width : 0,
                       write(saved), write(out), write(h)});
  }
  return {out, saved};
}

// Gradients of values, weight_ih, weight_hh, bias_ih, bias_hh and h_0.
SixTensors gru_backward_meta(const LayerBackward& l) {
  l.check();
  l.check_saved("grad_output", l.grad_output, l.hidden());
  l.check_saved("output", l.output, l.hidden());
  l.check_saved("saved", l.saved, 4 * l.hidden());
  return {l.like(l.values), l.like(l.weight_ih), l.like(l.weight_hh),
          l.like_bias(),    l.like_bias(),       l.like_state(l.h_0, l.hidden())};
}

SixTensors gru_backward(const LayerBackward& l) {
  gru_backward_meta(l);
  const char* op = l.op;
  const Tensor& values = l.values;
  const Tensor offsets = checked_offsets(op, l.offsets, values.size(0));
  const int64_t width = l.weight_hh.size(1), n = offsets.size(0) - 1, rows = values.size(0);
  const Plan plan(offsets, values, l.reverse);
  const Tensor output = readable(l.output), saved = readable(l.saved), d_out = readable(l.grad_output),
               x = readable(values);
  const Factor weights(readable(l.weight_hh));
  const Tensor h = plan.packed(l.h_0);
  const Tensor d_values = at::empty({rows, 3 * width}, values.options()), d_hidden = at::empty_like(d_values);
  const Tensor packed = at::empty({n, 3 * width}, values.options()), dh = at::zeros({n, width}, values.options());
  Watch watch;
  for (int64_t t = plan.steps() - 1; t >= 0; --t) {
    watch.look();
    LOD_RUN(values, gru_backward, floating_type(op, values),
            GruBackward{plan.at(t, width), read(saved), read(output), read(h), read(d_out), write(d_values),
                        write(d_hidden), write(packed), write(dh)});
    if (t > 0 || l.h_0) weights.add(first(packed, plan.alive[t]), first(dh, plan.alive[t]));
  }
  return {times(d_values, readable(l.weight_ih)),
          transposed_product(d_values, x),
          weight_gradient(d_hidden, output, h, plan),
          d_values.sum(at::IntArrayRef{0}),
          d_hidden.sum(at::IntArrayRef{0}),
          plan.unpacked(l.h_0, dh)};
}

// -- RNN

Tensor rnn_meta(const Layer& l) {
  l.check();
  return l.empty(l.hidden());
}

Tensor rnn(const Layer& l) {
  l.check();
  const Tensor& values = l.values;
  const Tensor offsets = checked_offsets("rnn", l.offsets, values.size(0));
  const int64_t width = l.weight_hh.size(1), n = offsets.size(0) - 1;
  if (values.size(0) == 0 || width == 0) return l.empty(width);
  const Plan plan(offsets, values, l.reverse);
  const Tensor out = project(readable(values), readable(l.weight_ih), joined_bias(l));
  const Factor weights = states_weight(l, plan);
  const Tensor hidden = at::empty({n, width}, values.options());
  const Tensor h = l.h_0 ? plan.packed(l.h_0) : at::empty({n, width}, values.options());
  Watch watch;
  for (int64_t t = 0; t < plan.steps(); ++t) {
    watch.look();
    const bool carried = t > 0 || l.h_0;
    if (carried) weights.multiply(first(h, plan.alive[t]), first(hidden, plan.alive[t]));
    LOD_RUN(values, rnn_forward, floating_type("rnn", values),
            RnnForward{plan.at(t, width), carried ? read(hidden) : nullptr, write(out), write(h), l.relu});
  }
  return out;
}

using FiveTensors = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

// Gradients of values, weight_ih, weight_hh, both biases and h_0.
FiveTensors rnn_backward_meta(const LayerBackward& l) {
  l.check();
  l.check_saved("grad_output", l.grad_output, l.hidden());
  l.check_saved("output", l.output, l.hidden());
  return {l.like(l.values), l.like(l.weight_ih), l.like(l.weight_hh), l.like_bias(), l.like_state(l.h_0, l.hidden())};
}

FiveTensors rnn_backward(const LayerBackward& l) {
  rnn_backward_meta(l);
  const char* op = l.op;
  const Tensor& values = l.values;
  const Tensor offsets = checked_offsets(op, l.offsets, values.size(0));
  const int64_t width = l.weight_hh.size(1), n = offsets.size(0) - 1, rows = values.size(0);
  const Plan plan(offsets, values, l.reverse);
  const Tensor output = readable(l.output), d_out = readable(l.grad_output), x = readable(values);
  const Factor weights(readable(l.weight_hh));
  const Tensor h = plan.packed(l.h_0), grad = at::empty({rows, width}, values.options());
  const Tensor packed = at::empty({n, width}, values.options()), dh = at::zeros({n, width}, values.options());
  Watch watch;
  for (int64_t t = plan.steps() - 1; t >= 0; --t) {
    watch.look();
    LOD_RUN(values, rnn_backward, floating_type(op, values),
            RnnBackward{plan.at(t, width), read(output), read(d_out), write(grad), write(packed), write(dh), l.relu});
    if (t > 0 || l.h_0) weights.multiply(first(packed, plan.alive[t]), first(dh, plan.alive[t]));
  }
  return {times(grad, readable(l.weight_ih)), transposed_product(grad, x),
          weight_gradient(grad, output, h, plan), grad.sum(at::IntArrayRef{0}), plan.unpacked(l.h_0, dh)};
}

// -- gradients

using LstmOp = Operator<"lstm", lstm_meta, lstm, lstm_layer>;
using LstmBackwardOp = Operator<"lstm_backward", lstm_backward_meta, lstm_backward, lstm_layer_backward>;
using GruOp = Operator<"gru", gru_meta, gru, gru_layer>;
using GruBackwardOp = Operator<"gru_backward", gru_backward_meta, gru_backward, gru_layer_backward>;
using RnnOp = Operator<"rnn", rnn_meta, rnn, rnn_layer>;
using RnnBackwardOp = Operator<"rnn_backward", rnn_backward_meta, rnn_backward, rnn_layer_backward>;

struct LstmGradient : Gradient<LstmOp> {
  static variable_list gradient(const Grads& grads, const Layer& l, const Tensor& output, const Tensor& cells,
                                const Tensor& gates) {
    auto [values, weight_ih, weight_hh, bias, h_0, c_0, weight_hr] =
        LstmBackwardOp::call(optional(grads[0]), optional(grads[1]), l.values, l.weight_ih, l.weight_hh, l.h_0, l.c_0,
                             l.offsets, l.reverse, output, cells, gates, l.weight_hr);
    return {values, weight_ih, weight_hh, bias, bias, h_0, c_0, Tensor(), Tensor(), weight_hr};
  }
};
struct GruGradient : Gradient<GruOp> {
  static variable_list gradient(const Grads& grads, const Layer& l, const Tensor& output, const Tensor& saved) {
    auto [values, weight_ih, weight_hh, bias_ih, bias_hh, h_0] =
        GruBackwardOp::call(grads[0], l.values, l.weight_ih, l.weight_hh, l.h_0, l.offsets, l.reverse, output, saved);
    return {values, weight_ih, weight_hh, bias_ih, bias_hh, h_0};
  }
};
struct RnnGradient : Gradient<RnnOp> {
  static variable_list gradient(const Grads& grads, const Layer& l, const Tensor& output) {
    auto [values, weight_ih, weight_hh, bias, h_0] =
        RnnBackwardOp::call(grads[0], l.values, l.weight_ih, l.weight_hh, l.h_0, l.offsets, l.reverse, l.relu, output);
    return {values, weight_ih, weight_hh, bias, bias, h_0};
  }
};

}  // namespace

LOD_OPERATORS(LstmGradient, GruGradient, RnnGradient, OneGradient<LstmBackwardOp>, OneGradient<GruBackwardOp>,
              OneGradient<RnnBackwardOp>)

}  // namespace lod
