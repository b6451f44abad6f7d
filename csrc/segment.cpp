// Binding of the shape "segment". The reductions and segment_broadcast are each other's gradients, and so are segment_pick
// and segment_place: every gradient here is made of operators of this page and can be differentiated again.
// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "segment.h"
#include "torch_lod/binding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>

namespace lod {
#ifdef LOD_CUDA
namespace cuda {
void segment_reduce(const CudaExec&, DType, Reduce, const ReduceArguments&);
void segment_broadcast(const CudaExec&, DType, Reduce, const BroadcastArguments&);
void segment_pick(const CudaExec&, DType, const PickArguments&);
void segment_place(const CudaExec&, DType, const PickArguments&);
void segment_softmax(const CudaExec&, DType, const SoftmaxArguments&);
}  // namespace cuda
#endif
namespace {

const int64_t* longs(const Tensor& t) { return t.const_data_ptr<int64_t>(); }

Segments segments_of(const Tensor& offsets, int64_t rows, int64_t width) {
  return {longs(offsets), offsets.size(0) - 1, rows, width};
}

// -- reductions

Reduce reduction(const char* op, std::string_view name) {
  if (name == "sum") return Reduce::sum;
  if (name == "mean") return Reduce::mean;
  if (name == "sqrt") return Reduce::sqrt;
  if (name == "max") return Reduce::max;
  if (name == "min") return Reduce::min;
  if (name == "first") return Reduce::first;
  if (name == "last") return Reduce::last;
  TORCH_CHECK_VALUE(false, op, ": expected reduce 'sum', 'mean', 'sqrt', 'max', 'min', 'first' or 'last', got '", name, "'");
}
bool is_extreme(Reduce reduce) { return reduce == Reduce::max || reduce == Reduce::min; }
bool is_end(Reduce reduce) { return reduce == Reduce::first || reduce == Reduce::last; }

// Whether a whole dtype holds a number.
bool holds(at::ScalarType type, double number) {
  if (number != std::floor(number)) return false;
  switch (type) {
    case at::kByte: return number >= 0 && number <= 255;
    case at::kChar: return std::abs(number) <= 127;
    case at::kShort: return std::abs(number) <= 32767;
    case at::kInt: return std::abs(number) <= 2147483647.0;
    default: return std::abs(number) <= 9e15;
  }
}

Reduce check_reduce(const char* op, const Tensor& values, const Tensor& offsets, std::string_view name, double pad) {
  check_segments(op, values, offsets);
  const Reduce reduce = reduction(op, name);
  if (!is_end(reduce)) number_type(op, values);
  const bool whole = at::isIntegralType(values.scalar_type(), false);
  TORCH_CHECK_TYPE(!whole || (reduce != Reduce::mean && reduce != Reduce::sqrt), op, ": expected values of a floating dtype for '",
                   name, "', got ", values.scalar_type());
  TORCH_CHECK_VALUE(!whole || holds(values.scalar_type(), pad), op,
                    ": expected a whole pad_value for values of dtype ", values.scalar_type(), ", got ", pad);
  return reduce;
}

Tensor segment_reduce_meta(const Tensor& values, const Tensor& offsets, std::string_view name, double pad) {
  check_reduce("segment_reduce", values, offsets, name, pad);
  return at::empty_symint(sym_shape(values, offsets.sym_size(0) - 1), values.options());
}
std::tuple<Tensor, Tensor> segment_extreme_meta(const Tensor& values, const Tensor& offsets, std::string_view name, double pad) {
  const Reduce reduce = check_reduce("segment_extreme", values, offsets, name, pad);
  TORCH_CHECK_VALUE(is_extreme(reduce), "segment_extreme: expected reduce 'max' or 'min', got '", name, "'");
  const auto shape = sym_shape(values, offsets.sym_size(0) - 1);
  return {at::empty_symint(shape, values.options()), at::empty_symint(shape, offsets.options())};
}

void reduce_into(const char* op, Reduce reduce, const Tensor& values, const Tensor& given, double pad, Tensor& out, Tensor& index) {
  const Tensor x = readable(op, values), offsets = checked_offsets(op, given, x.size(0));
  out = new_rows(x, offsets.size(0) - 1);
  if (index.defined()) index = at::empty(out.sizes(), offsets.options());
  const ReduceArguments a{segments_of(offsets, x.size(0), width_of(x)), x.const_data_ptr(), out.mutable_data_ptr(),
                          index.defined() ? index.mutable_data_ptr<int64_t>() : nullptr, pad};
  LOD_RUN(x, segment_reduce, number_type(op, x), reduce, a);
}

// The first (last) row of every segment is a copy of a row: -1 in the map of an empty segment leaves it to pad_value.
Tensor end_map(const Tensor& offsets, bool last) {
  const auto count = offsets.sym_size(0) - 1;
  const Tensor begin = offsets.narrow_symint(0, 0, count), end = offsets.narrow_symint(0, 1, count);
  return at::where(end.gt(begin), last ? end.sub(1) : begin, -1);
}
Tensor end_rows(const Tensor& values, const Tensor& offsets, bool last, double pad) {
  static const auto gather = c10::Dispatcher::singleton().findSchemaOrThrow("torch_lod::gather_rows", "")
                                 .typed<Tensor(const Tensor&, const Tensor&, const at::Scalar&)>();
  const bool whole = at::isIntegralType(values.scalar_type(), /*includeBool=*/false);
  const at::Scalar fill = values.scalar_type() == at::kBool ? at::Scalar(pad != 0) : whole ? at::Scalar(int64_t(pad)) : at::Scalar(pad);
  return gather.call(values, end_map(offsets, last), fill);
}

Tensor segment_reduce(const Tensor& values, const Tensor& offsets, std::string_view name, double pad) {
  const Reduce reduce = check_reduce("segment_reduce", values, offsets, name, pad);
  if (is_end(reduce))
    return end_rows(values, checked_offsets("segment_reduce", offsets, values.size(0)), reduce == Reduce::last, pad);
  Tensor out, index;
  reduce_into("segment_reduce", reduce, values, offsets, pad, out, index);
  return out;
}
std::tuple<Tensor, Tensor> segment_extreme(const Tensor& values, const Tensor& offsets, std::string_view name, double pad) {
  segment_extreme_meta(values, offsets, name, pad);
  Tensor out, index = offsets;
  reduce_into("segment_extreme", reduction("segment_extreme", name), values, offsets, pad, out, index);
  return {out, index};
}

// -- segment_broadcast: row s of values on every row of segment s, divided as the reduction divides

Reduce check_broadcast(const Tensor& values, const Tensor& offsets, const c10::SymInt& rows, std::string_view name) {
  check_row_count("segment_broadcast", rows);
  const Reduce reduce = check_reduce("segment_broadcast", values, offsets, name, 0);
  TORCH_CHECK_VALUE(!is_extreme(reduce) && !is_end(reduce), "segment_broadcast: expected reduce 'sum', 'mean' or 'sqrt', got '", name, "'");
  TORCH_CHECK_VALUE(values.sym_size(0) == offsets.sym_size(0) - 1, "segment_broadcast: expected a row of values per segment, ",
                    offsets.sym_size(0) - 1, ", got ", values.sym_size(0));
  return reduce;
}
Tensor segment_broadcast_meta(const Tensor& values, const Tensor& offsets, c10::SymInt rows, std::string_view name) {
  check_broadcast(values, offsets, rows, name);
  return at::empty_symint(sym_shape(values, std::move(rows)), values.options());
}
Tensor segment_broadcast(const Tensor& values, const Tensor& given, int64_t rows, std::string_view name) {
  const Reduce reduce = check_broadcast(values, given, rows, name);
  const Tensor x = readable("segment_broadcast", values), offsets = checked_offsets("segment_broadcast", given, rows);
  Tensor out = new_rows(x, rows);
  LOD_RUN(x, segment_broadcast, number_type("segment_broadcast", x), reduce,
          BroadcastArguments{segments_of(offsets, rows, width_of(x)), x.const_data_ptr(), out.mutable_data_ptr()});
  return out;
}

// -- segment_pick and segment_place: along the index of a maximum

void check_pick(const char* op, const Tensor& values, const Tensor& index, const Tensor& offsets) {
  check_segments(op, values, offsets);
  number_type(op, values);
  TORCH_CHECK_TYPE(index.scalar_type() == at::kLong && index.device() == values.device(), op,
                   ": expected an int64 index on ", values.device(), ", got ", index.scalar_type(), " on ", index.device());
  bool fits = index.dim() == values.dim() && index.sym_size(0) == offsets.sym_size(0) - 1;
  for (int64_t d = 1; fits && d < values.dim(); ++d) fits = index.sym_size(d) == values.sym_size(d);
  TORCH_CHECK_VALUE(fits, op, ": expected an index with a row per segment, ", offsets.sym_size(0) - 1,
                    ", of the shape of a row of values, ", values.sym_sizes(), ", got ", index.sym_sizes());
}
Tensor segment_pick_meta(const Tensor& values, const Tensor& index, const Tensor& offsets) {
  check_pick("segment_pick", values, index, offsets);
  return at::empty_symint(index.sym_sizes(), values.options());
}
Tensor segment_pick(const Tensor& values, const Tensor& index, const Tensor& given) {
  check_pick("segment_pick", values, index, given);
  const Tensor x = readable("segment_pick", values), at_ = readable("segment_pick", index);
  const Tensor offsets = checked_offsets("segment_pick", given, x.size(0));
  Tensor out = new_rows(x, at_.size(0));
  LOD_RUN(x, segment_pick, number_type("segment_pick", x),
          PickArguments{segments_of(offsets, x.size(0), width_of(x)), x.const_data_ptr(), longs(at_), out.mutable_data_ptr()});
  return out;
}
void check_place(const Tensor& values, const Tensor& index, const Tensor& offsets, const c10::SymInt& rows) {
  check_row_count("segment_place", rows);
  check_pick("segment_place", values, index, offsets);
  TORCH_CHECK_VALUE(values.sym_size(0) == offsets.sym_size(0) - 1, "segment_place: expected a row of values per segment, ",
                    offsets.sym_size(0) - 1, ", got ", values.sym_size(0));
}
Tensor segment_place_meta(const Tensor& values, const Tensor& index, const Tensor& offsets, c10::SymInt rows) {
  check_place(values, index, offsets, rows);
  return at::empty_symint(sym_shape(values, std::move(rows)), values.options());
}
Tensor segment_place(const Tensor& values, const Tensor& index, const Tensor& given, int64_t rows) {
  check_place(values, index, given, rows);
  const Tensor x = readable("segment_place", values), at_ = readable("segment_place", index);
  const Tensor offsets = checked_offsets("segment_place", given, rows);
  Tensor out = new_rows(x, rows);
  LOD_RUN(x, segment_place, number_type("segment_place", x),
          PickArguments{segments_of(offsets, rows, width_of(x)), x.const_data_ptr(), longs(at_), out.mutable_data_ptr()});
  return out;
}

// -- softmax

Tensor segment_softmax_meta(const Tensor& values, const Tensor& offsets) {
  check_segments("segment_softmax", values, offsets);
  check_floating("segment_softmax", "values", values);
  return at::empty_symint(values.sym_sizes(), values.options());
}
Tensor segment_softmax_backward_meta(const Tensor& grad, const Tensor& output, const Tensor& offsets) {
  check_segments("segment_softmax_backward", output, offsets);
  check_floating("segment_softmax_backward", "output", output);
  check_rows_like("segment_softmax_backward", "grad", grad, output, output.sym_size(0));
  return at::empty_symint(output.sym_sizes(), output.options());
}
Tensor softmax(const char* op, const Tensor& values, const Tensor& grad, const Tensor& given) {
  const Tensor x = readable(op, values), g = grad.defined() ? readable(op, grad) : grad;
  const Tensor offsets = checked_offsets(op, given, x.size(0));
  Tensor out = new_rows(x, x.size(0));
  LOD_RUN(x, segment_softmax, floating_type(op, x),
          SoftmaxArguments{segments_of(offsets, x.size(0), width_of(x)), x.const_data_ptr(),
                           g.defined() ? g.const_data_ptr() : nullptr, out.mutable_data_ptr()});
  return out;
}
Tensor segment_softmax(const Tensor& values, const Tensor& offsets) {
  segment_softmax_meta(values, offsets);
  return softmax("segment_softmax", values, Tensor(), offsets);
}
Tensor segment_softmax_backward(const Tensor& grad, const Tensor& output, const Tensor& offsets) {
  segment_softmax_backward_meta(grad, output, offsets);
  // a tensor without elements may have no storage, and a null gradient means forward
  checked_offsets("segment_softmax_backward", offsets, output.size(0));
  if (output.numel() == 0) return at::empty_like(output);
  return softmax("segment_softmax_backward", output, grad, offsets);
}

// -- calls through the dispatcher

Tensor call_reduce(const Tensor& values, const Tensor& offsets, std::string_view name, double pad) {
  return LOD_CALL("segment_reduce", segment_reduce_meta).call(values, offsets, name, pad);
}
std::tuple<Tensor, Tensor> call_extreme(const Tensor& values, const Tensor& offsets, std::string_view name, double pad) {
  return LOD_CALL("segment_extreme", segment_extreme_meta).call(values, offsets, name, pad);
}
Tensor call_broadcast(const Tensor& values, const Tensor& offsets, c10::SymInt rows, std::string_view name) {
  return LOD_CALL("segment_broadcast", segment_broadcast_meta).call(values, offsets, std::move(rows), name);
}
Tensor call_pick(const Tensor& values, const Tensor& index, const Tensor& offsets) {
  return LOD_CALL("segment_pick", segment_pick_meta).call(values, index, offsets);
}
Tensor call_place(const Tensor& values, const Tensor& index, const Tensor& offsets, c10::SymInt rows) {
  return LOD_CALL("segment_place", segment_place_meta).call(values, index, offsets, std::move(rows));
}
Tensor call_softmax(const Tensor& values, const Tensor& offsets) {
  return LOD_CALL("segment_softmax", segment_softmax_meta).call(values, offsets);
}
Tensor call_softmax_backward(const Tensor& grad, const Tensor& output, const Tensor& offsets) {
  return LOD_CALL("segment_softmax_backward", segment_softmax_backward_meta).call(grad, output, offsets);
}

// -- gradients

struct SegmentReduceGrad : torch::autograd::Function<SegmentReduceGrad> {
  static Tensor forward(AutogradContext* ctx, const Tensor& values, const Tensor& offsets, std::string name, double pad) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({offsets});
    ctx->saved_data["rows"] = values.sym_size(0);
    ctx->saved_data["name"] = name;
    return call_reduce(values, offsets, name, pad);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    return {call_broadcast(grad[0], ctx->get_saved_variables()[0], ctx->saved_data["rows"].toSymInt(),
                           ctx->saved_data["name"].toStringRef()),
            Tensor(), Tensor(), Tensor()};
  }
};
struct SegmentEndGrad : torch::autograd::Function<SegmentEndGrad> {
  static Tensor forward(AutogradContext* ctx, const Tensor& values, const Tensor& offsets, std::string name, double pad) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({offsets});
    ctx->saved_data["rows"] = values.sym_size(0);
    ctx->saved_data["last"] = name == "last";
    return call_reduce(values, offsets, name, pad);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    static const auto scatter = c10::Dispatcher::singleton().findSchemaOrThrow("torch_lod::scatter_rows", "")
                                    .typed<Tensor(const Tensor&, const Tensor&, c10::SymInt)>();
    const Tensor map = end_map(ctx->get_saved_variables()[0], ctx->saved_data["last"].toBool());
    const auto rows = ctx->saved_data["rows"].toSymInt();
    if (!grad[0].is_complex()) return {scatter.call(grad[0], map, rows), Tensor(), Tensor(), Tensor()};
    const Tensor parts = at::view_as_real(grad[0].resolve_conj());
    return {at::view_as_complex(scatter.call(parts, map, rows)), Tensor(), Tensor(), Tensor()};
  }
};
struct SegmentBroadcastGrad : torch::autograd::Function<SegmentBroadcastGrad> {
  static Tensor forward(AutogradContext* ctx, const Tensor& values, const Tensor& offsets, c10::SymInt rows, std::string name) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({offsets});
    ctx->saved_data["name"] = name;
    return call_broadcast(values, offsets, std::move(rows), name);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    return {call_reduce(grad[0], ctx->get_saved_variables()[0], ctx->saved_data["name"].toStringRef(), 0.0), Tensor(), Tensor(),
            Tensor()};
  }
};
struct SegmentExtremeGrad : torch::autograd::Function<SegmentExtremeGrad> {
  static variable_list forward(AutogradContext* ctx, const Tensor& values, const Tensor& offsets, std::string name, double pad) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    auto [out, index] = call_extreme(values, offsets, name, pad);
    ctx->saved_data["rows"] = values.sym_size(0);
    ctx->save_for_backward({index, offsets});
    ctx->mark_non_differentiable({index});
    return {out, index};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const auto saved = ctx->get_saved_variables();
    return {call_place(grad[0], saved[0], saved[1], ctx->saved_data["rows"].toSymInt()), Tensor(), Tensor(), Tensor()};
  }
};
struct SegmentPickGrad : torch::autograd::Function<SegmentPickGrad> {
  static Tensor forward(AutogradContext* ctx, const Tensor& values, const Tensor& index, const Tensor& offsets) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({index, offsets});
    ctx->saved_data["rows"] = values.sym_size(0);
    return call_pick(values, index, offsets);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const auto saved = ctx->get_saved_variables();
    return {call_place(grad[0], saved[0], saved[1], ctx->saved_data["rows"].toSymInt()), Tensor(), Tensor()};
  }
};
struct SegmentPlaceGrad : torch::autograd::Function<SegmentPlaceGrad> {
  static Tensor forward(AutogradContext* ctx, const Tensor& values, const Tensor& index, const Tensor& offsets, c10::SymInt rows) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({index, offsets});
    return call_place(values, index, offsets, std::move(rows));
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const auto saved = ctx->get_saved_variables();
    return {call_pick(grad[0], saved[0], saved[1]), Tensor(), Tensor(), Tensor()};
  }
};
struct SegmentSoftmaxGrad : torch::autograd::Function<SegmentSoftmaxGrad> {
  static Tensor forward(AutogradContext* ctx, const Tensor& values, const Tensor& offsets) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const Tensor out = call_softmax(values, offsets);
    ctx->save_for_backward({out, offsets});
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const auto saved = ctx->get_saved_variables();
    return {call_softmax_backward(grad[0], saved[0], saved[1]), Tensor()};
  }
};
// With S the sum over a segment, laid back on its rows: b(g, y) = y (g - S(g y)), linear and self-adjoint in g; the derivative
// in y along v is v (g - S(g y)) - g S(v y).
struct SegmentSoftmaxBackwardGrad : torch::autograd::Function<SegmentSoftmaxBackwardGrad> {
  static Tensor forward(AutogradContext* ctx, const Tensor& grad, const Tensor& output, const Tensor& offsets) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({grad, output, offsets});
    return call_softmax_backward(grad, output, offsets);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& v) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &g = saved[0], &y = saved[1], &offsets = saved[2];
    const auto on_rows = [&](const Tensor& t) {
      return call_broadcast(call_reduce(t, offsets, "sum", 0.0), offsets, y.sym_size(0), "sum");
    };
    return {call_softmax_backward(v[0], y, offsets), v[0] * (g - on_rows(g * y)) - g * on_rows(v[0] * y), Tensor()};
  }
};

Tensor segment_reduce_autograd(const Tensor& values, const Tensor& offsets, std::string_view name, double pad) {
  if (tracked(values)) {
    const Reduce reduce = check_reduce("segment_reduce", values, offsets, name, pad);
    if (is_end(reduce)) return SegmentEndGrad::apply(values, offsets, std::string(name), pad);
    if (is_extreme(reduce)) return SegmentExtremeGrad::apply(values, offsets, std::string(name), pad)[0];
    return SegmentReduceGrad::apply(values, offsets, std::string(name), pad);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call_reduce(values, offsets, name, pad);
}
std::tuple<Tensor, Tensor> segment_extreme_autograd(const Tensor& values, const Tensor& offsets, std::string_view name, double pad) {
  if (tracked(values)) {
    const auto out = SegmentExtremeGrad::apply(values, offsets, std::string(name), pad);
    return {out[0], out[1]};
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call_extreme(values, offsets, name, pad);
}
Tensor segment_broadcast_autograd(const Tensor& values, const Tensor& offsets, c10::SymInt rows, std::string_view name) {
  if (tracked(values)) return SegmentBroadcastGrad::apply(values, offsets, std::move(rows), std::string(name));
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call_broadcast(values, offsets, std::move(rows), name);
}
Tensor segment_pick_autograd(const Tensor& values, const Tensor& index, const Tensor& offsets) {
  if (tracked(values)) return SegmentPickGrad::apply(values, index, offsets);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call_pick(values, index, offsets);
}
Tensor segment_place_autograd(const Tensor& values, const Tensor& index, const Tensor& offsets, c10::SymInt rows) {
  if (tracked(values)) return SegmentPlaceGrad::apply(values, index, offsets, std::move(rows));
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call_place(values, index, offsets, std::move(rows));
}
Tensor segment_softmax_autograd(const Tensor& values, const Tensor& offsets) {
  if (tracked(values)) return SegmentSoftmaxGrad::apply(values, offsets);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call_softmax(values, offsets);
}
Tensor segment_softmax_backward_autograd(const Tensor& grad, const Tensor& output, const Tensor& offsets) {
  if (tracked(grad) || tracked(output)) return SegmentSoftmaxBackwardGrad::apply(grad, output, offsets);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call_softmax_backward(grad, output, offsets);
}

}  // namespace

LOD_IMPLEMENTATIONS(m) {
  m.impl("segment_reduce", &segment_reduce);
  m.impl("segment_extreme", &segment_extreme);
  m.impl("segment_broadcast", &segment_broadcast);
  m.impl("segment_pick", &segment_pick);
  m.impl("segment_place", &segment_place);
  m.impl("segment_softmax", &segment_softmax);
  m.impl("segment_softmax_backward", &segment_softmax_backward);
}
TORCH_LIBRARY_IMPL(torch_lod, Meta, m) {
  m.impl("segment_reduce", &segment_reduce_meta);
  m.impl("segment_extreme", &segment_extreme_meta);
  m.impl("segment_broadcast", &segment_broadcast_meta);
  m.impl("segment_pick", &segment_pick_meta);
  m.impl("segment_place", &segment_place_meta);
  m.impl("segment_softmax", &segment_softmax_meta);
  m.impl("segment_softmax_backward", &segment_softmax_backward_meta);
}
TORCH_LIBRARY_IMPL(torch_lod, Autograd, m) {
  m.impl("segment_reduce", &segment_reduce_autograd);
  m.impl("segment_extreme", &segment_extreme_autograd);
  m.impl("segment_broadcast", &segment_broadcast_autograd);
  m.impl("segment_pick", &segment_pick_autograd);
  m.impl("segment_place", &segment_place_autograd);
  m.impl("segment_softmax", &segment_softmax_autograd);
  m.impl("segment_softmax_backward", &segment_softmax_backward_autograd);
}

}  // namespace lod
