// Binding of the shape "recurrence": one product for all inputs, then per step one product for the active sequences and
// one fused cell; backwards the same, and every weight gradient is one product over all rows.
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/recurrence_api.h"
#include "bindings/factor.h"
#include "bindings/upload.h"
#include "torch_lod/operator.h"
#include "torch_lod/rank.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

namespace lod {
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

// -- the plan: sequences longest first in each share, and how many of it live at each step

// Sequences that walk through the steps together: those from `begin` on in the order of the plan.
struct Share {
  int64_t begin;
  const int64_t* start;  // the first row that each visits
  int64_t step;
  std::vector<int64_t> alive;

  int64_t steps() const { return int64_t(alive.size()); }
  Step at(int64_t t, int64_t width) const { return {start, alive[t], width, t, step}; }
  // Its part of what is packed in the order of the plan.
  Tensor of(const Tensor& packed) const {
    const bool all = !packed.defined() || alive.empty() || alive[0] == packed.size(0);
    return all ? packed : packed.narrow(0, begin, alive[0]);
  }
};

// Threads have shares of their own where they may: a step waits for no other thread then. But each share reads the
// whole weight at each step, so that this must stay in the cache of a core or meet several sequences; and a single step
// waits only once. Rows have the same bits either way.
int64_t shares_of(const Layer& l, int64_t sequences, int64_t rows) {
  constexpr int64_t kCache = 524288, kSeveral = 4, kWorth = 1 << 20;  // bytes; sequences; products worth a thread
  if (l.weight_hr || !has_products_for(l.values) || rows < 2 * sequences) return 1;
  const int64_t weight = l.weight_hh.numel(), bytes = weight * int64_t(l.weight_hh.element_size());
  return std::max<int64_t>(
      1, std::min({kCpu.threads(), rows * weight / kWorth, bytes <= kCache ? sequences : sequences / kSeveral}));
}

struct Plan {
  Tensor order, start, offsets;  // on the device of values; start: the first row visited
  int64_t step, nonempty = 0;    // empty sequences are the last of the order, and in no share
  std::vector<Share> shares;

  Plan(const Tensor& host, const Layer& l) : step(l.reverse ? -1 : 1) {
    const auto* o = host.const_data_ptr<int64_t>();
    const int64_t n = host.numel() - 1;
    std::vector<int64_t> ranked(n);
    rank_by_length(o, n, ranked.data());
    const auto length = [&](int64_t s) { return o[s + 1] - o[s]; };
    while (nonempty < n && length(ranked[nonempty])) ++nonempty;
    order = at::empty({n}, host.options());
    start = at::empty({n}, host.options());
    offsets = host;
    auto *by = order.mutable_data_ptr<int64_t>(), *from = start.mutable_data_ptr<int64_t>();
    const int64_t count = shares_of(l, nonempty, o[n]);
    for (int64_t g = 0, at = 0; g < count; ++g) {  // distributed round-robin: of equal sizes, and each longest first
      Share& share = shares.emplace_back(Share{at, nullptr, step, {}});
      for (int64_t i = g; i < nonempty; i += count) by[at++] = ranked[i];
      for (int64_t i = at - 1; i >= share.begin; --i) share.alive.resize(length(by[i]), i - share.begin + 1);
    }
    std::copy(ranked.begin() + nonempty, ranked.end(), by + nonempty);
    for (int64_t i = 0; i < n; ++i) from[i] = l.reverse ? o[by[i] + 1] - 1 : o[by[i]];
    if (!l.values.is_cpu()) {
      const Tensor there = uploaded(host, l.values.device(), 0, 4 * n + 1, [&](int64_t* to) {  // for both directions
        std::copy_n(by, n, to);
        for (int64_t i = 0; i < n; ++i) to[n + i] = o[by[i]], to[2 * n + i] = o[by[i] + 1] - 1;
        std::copy_n(o, n + 1, to + 3 * n);
      });
      order = there.narrow(0, 0, n);
      start = there.narrow(0, l.reverse ? 2 * n : n, n);
      offsets = there.narrow(0, 3 * n, n + 1);
    }
    for (Share& share : shares) share.start = start.const_data_ptr<int64_t>() + share.begin;
  }
  int64_t steps() const { return shares[0].steps(); }
  // The rows visited at step t, of a plan of one share.
  Tensor rows(int64_t t) const { return start.narrow(0, 0, shares[0].alive[t]).add(t * step); }
  // walk(share) for each, by as many threads.
  template <class F>
  void each_share(const F& walk) const {
    const auto given = std::tie(*this, walk);
    kCpu.parallel(int64_t(shares.size()), 1, &given, [](const void* given, int64_t begin, int64_t end) {
      const auto& [plan, walk] = *static_cast<const std::tuple<const Plan&, const F&>*>(given);
      for (int64_t g = begin; g < end; ++g) walk(plan.shares[g]);
    });
  }
  // What is packed, of the sequences in shares, longest first however many shares there are.
  Tensor by_rank(const Tensor& packed) const {
    if (shares.size() == 1) return packed.narrow(0, 0, nonempty);
    const Tensor places = at::empty({nonempty}, order.options());
    auto* to = places.mutable_data_ptr<int64_t>();
    const auto count = int64_t(shares.size());
    for (int64_t i = 0; i < nonempty; ++i) to[i] = shares[i % count].begin + i / count;
    return packed.index_select(0, places);
  }
  Tensor packed(const OptionalTensor& state) const { return state ? state->index_select(0, order) : Tensor(); }
  // The gradient of an initial state from its packed form; empty where none was given.
  Tensor unpacked(const OptionalTensor& given, const Tensor& state) const {
    return given ? at::empty_like(state).index_copy_(0, order, state) : at::empty({0, state.size(1)}, state.options());
  }
};

const void* read(const Tensor& t) { return t.defined() ? t.const_data_ptr() : nullptr; }
void* write(const Tensor& t) { return t.mutable_data_ptr(); }

Tensor project(const Tensor& values, const Tensor& weight, const OptionalTensor& bias) {
  Tensor out = at::empty({values.size(0), weight.size(0)}, values.options());
  Factor(weight.t(), values.size(0), 1).multiply(values, out, values.size(0), readable(bias));
  return out;
}
Tensor times(const Tensor& left, const Tensor& right) {
  Tensor out = at::empty({left.size(0), right.size(1)}, left.options());
  Factor(right, left.size(0), 1).multiply(left, out, left.size(0));
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
  if (h_0.defined()) total.add_(transposed_product(grad.index_select(0, plan.by_rank(plan.start)), plan.by_rank(h_0)));
  return total;
}

// What states are multiplied by: at every step, but at the first only where they are given.
Factor states_weight(const Layer& l, const Plan& plan) {
  return Factor(readable(l.weight_hh).t(), plan.nonempty, l.h_0 ? plan.steps() : plan.steps() - 1);
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
  const Plan plan(offsets, l);
  const Tensor gates = project(readable(values), readable(l.weight_ih), joined_bias(l));
  const Factor weights = states_weight(l, plan);
  const std::optional<Factor> projection =
      l.weight_hr ? std::make_optional<Factor>(readable(l.weight_hr).t(), n, plan.steps()) : std::nullopt;
  const Tensor hidden = at::empty({n, 4 * width}, values.options());
  const Tensor c = l.c_0 ? plan.packed(l.c_0) : at::zeros({n, width}, values.options());
  const Tensor h = l.h_0 ? plan.packed(l.h_0) : at::empty({n, state}, values.options());
  const Tensor unprojected = projection ? at::empty({n, width}, values.options()) : h;
  plan.each_share([&](const Share& share) {
    const Tensor states = share.of(h), products = share.of(hidden), carry = share.of(c), before = share.of(unprojected);
    for (int64_t t = 0; t < share.steps(); ++t) {
      kCpu.pause();
      const int64_t alive = share.alive[t];
      const bool has_state = t > 0 || l.h_0;
      if (has_state) weights.multiply(states, products, alive);
      LOD_RUN(values, lstm_forward, floating_type("lstm", values),
              LstmForward{share.at(t, width), write(gates), has_state ? read(products) : nullptr,
                          projection ? nullptr : write(out), write(cells), write(before), write(carry)});
      if (projection) {
        projection->multiply(before, states, alive);
        out.index_copy_(0, plan.rows(t), first(states, alive));
      }
    }
  });
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
  const Plan plan(offsets, l);
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
  plan.each_share([&](const Share& share) {
    const Tensor side = share.of(packed), states = share.of(dh), before = share.of(d_unprojected);
    const Tensor c_0 = share.of(c), carry = share.of(dc);
    for (int64_t t = share.steps() - 1; t >= 0; --t) {
      kCpu.pause();
      const int64_t alive = share.alive[t];
      if (projection) {
        const Tensor at_rows = plan.rows(t), d = first(states, alive);
        if (d_out.defined()) d.add_(d_out.index_select(0, at_rows));
        d_states.index_copy_(0, at_rows, d);
        projection->multiply(states, before, alive);
      }
      LOD_RUN(values, lstm_backward, floating_type(op, values),
              LstmBackward{share.at(t, width), read(gates), read(cells), read(c_0), projection ? nullptr : read(d_out),
                           read(d_cells), write(grad), write(side), write(before), write(carry)});
      if (t > 0 || l.h_0) weights.multiply(side, states, alive);
    }
  });
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
  const Plan plan(offsets, l);
  const Tensor gates = project(readable(values), readable(l.weight_ih), l.bias_ih);
  const Factor weights = states_weight(l, plan);
  const Tensor hidden = at::empty({n, 3 * width}, values.options()), bias = readable(l.bias_hh);
  const Tensor h = l.h_0 ? plan.packed(l.h_0) : at::zeros({n, width}, values.options());
  plan.each_share([&](const Share& share) {
    const Tensor states = share.of(h), products = share.of(hidden);
    for (int64_t t = 0; t < share.steps(); ++t) {
      kCpu.pause();
      const bool has_state = t > 0 || l.h_0;
      if (has_state) weights.multiply(states, products, share.alive[t], values.is_cpu() ? bias : Tensor());
      LOD_RUN(values, gru_forward, floating_type("gru", values),
              GruForward{share.at(t, width), read(gates), read(has_state ? products : bias), has_state ? 3 * width : 0,
                         has_state && !values.is_cpu() ? read(bias) : nullptr, write(saved), write(out),
                         write(states)});
    }
  });
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
  const Plan plan(offsets, l);
  const Tensor output = readable(l.output), saved = readable(l.saved), d_out = readable(l.grad_output),
               x = readable(values);
  const Factor weights(readable(l.weight_hh));
  const Tensor h = plan.packed(l.h_0);
  const Tensor d_values = at::empty({rows, 3 * width}, values.options()), d_hidden = at::empty_like(d_values);
  const Tensor packed = at::empty({n, 3 * width}, values.options()), dh = at::zeros({n, width}, values.options());
  plan.each_share([&](const Share& share) {
    const Tensor side = share.of(packed), states = share.of(dh), h_0 = share.of(h);
    for (int64_t t = share.steps() - 1; t >= 0; --t) {
      kCpu.pause();
      LOD_RUN(values, gru_backward, floating_type(op, values),
              GruBackward{share.at(t, width), read(saved), read(output), read(h_0), read(d_out), write(d_values),
                          write(d_hidden), write(side), write(states)});
      if (t > 0 || l.h_0) weights.add(side, states, share.alive[t]);
    }
  });
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
  const Plan plan(offsets, l);
  const Tensor out = project(readable(values), readable(l.weight_ih), joined_bias(l));
  const Factor weights = states_weight(l, plan);
  const Tensor hidden = at::empty({n, width}, values.options());
  const Tensor h = l.h_0 ? plan.packed(l.h_0) : at::empty({n, width}, values.options());
  plan.each_share([&](const Share& share) {
    const Tensor states = share.of(h), products = share.of(hidden);
    for (int64_t t = 0; t < share.steps(); ++t) {
      kCpu.pause();
      const bool has_state = t > 0 || l.h_0;
      if (has_state) weights.multiply(states, products, share.alive[t]);
      LOD_RUN(values, rnn_forward, floating_type("rnn", values),
              RnnForward{share.at(t, width), has_state ? read(products) : nullptr, write(out), write(states), l.relu});
    }
  });
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
  const Plan plan(offsets, l);
  const Tensor output = readable(l.output), d_out = readable(l.grad_output), x = readable(values);
  const Factor weights(readable(l.weight_hh));
  const Tensor h = plan.packed(l.h_0), grad = at::empty({rows, width}, values.options());
  const Tensor packed = at::empty({n, width}, values.options()), dh = at::zeros({n, width}, values.options());
  plan.each_share([&](const Share& share) {
    const Tensor side = share.of(packed), states = share.of(dh);
    for (int64_t t = share.steps() - 1; t >= 0; --t) {
      kCpu.pause();
      LOD_RUN(values, rnn_backward, floating_type(op, values),
              RnnBackward{share.at(t, width), read(output), read(d_out), write(grad), write(side), write(states),
                          l.relu});
      if (t > 0 || l.h_0) weights.multiply(side, states, share.alive[t]);
    }
  });
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
