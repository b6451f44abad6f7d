// Binding of the shape "segment". The reductions and segment_broadcast are each other's gradients, and so are
// segment_pick and segment_place: gradients are made of operators that have one; that of a product is in scan.cpp.
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/segment_api.h"
#include "bindings/operators.h"
#include "bindings/scratch.h"
#include "bindings/upload.h"

namespace lod {
namespace {

using TwoTensors = std::tuple<Tensor, Tensor>;

const int64_t* longs(const Tensor& t) { return t.const_data_ptr<int64_t>(); }

Segments segments_of(const Tensor& offsets, int64_t rows, int64_t width) {
  return {longs(offsets), offsets.size(0) - 1, rows, width};
}

// -- reductions

Reduce reduction(const char* op, std::string_view name) {
  if (name == "sum") return Reduce::sum;
  if (name == "mean") return Reduce::mean;
  if (name == "sqrt") return Reduce::sqrt;
  if (name == "prod") return Reduce::prod;
  if (name == "max") return Reduce::max;
  if (name == "min") return Reduce::min;
  if (name == "first") return Reduce::first;
  if (name == "last") return Reduce::last;
  TORCH_CHECK_VALUE(false, op, ": expected reduce 'sum', 'mean', 'sqrt', 'prod', 'max', 'min', 'first' or 'last', ",
                    "got '", name, "'");
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
  TORCH_CHECK_TYPE(!whole || (reduce != Reduce::mean && reduce != Reduce::sqrt), op,
                   ": expected values of a floating dtype for '", name, "', got ", values.scalar_type());
  TORCH_CHECK_VALUE(!whole || holds(values.scalar_type(), pad), op, ": expected a whole pad_value for values of dtype ",
                    values.scalar_type(), ", got ", pad);
  return reduce;
}

Tensor segment_reduce_meta(const Tensor& values, const Tensor& offsets, std::string_view name, double pad) {
  check_reduce("segment_reduce", values, offsets, name, pad);
  return at::empty_symint(sym_shape(values, offsets.sym_size(0) - 1), values.options());
}
Reduce check_extreme(const Tensor& values, const Tensor& offsets, std::string_view name, double pad) {
  const Reduce reduce = check_reduce("segment_extreme", values, offsets, name, pad);
  TORCH_CHECK_VALUE(is_extreme(reduce), "segment_extreme: expected reduce 'max' or 'min', got '", name, "'");
  return reduce;
}
TwoTensors segment_extreme_meta(const Tensor& values, const Tensor& offsets, std::string_view name, double pad) {
  check_extreme(values, offsets, name, pad);
  const auto shape = sym_shape(values, offsets.sym_size(0) - 1);
  return {at::empty_symint(shape, values.options()), at::empty_symint(shape, offsets.options())};
}

// And of an extreme the rows.
TwoTensors reduced(Reduce reduce, const Tensor& x, const Tensor& offsets, double pad, bool extreme = false) {
  Tensor out = new_segments(x, offsets), index;
  if (extreme) index = at::empty(out.sizes(), offsets.options());
  if (extreme && may_leave_rows(offsets, x.size(0))) index.fill_(-1);
  const TiledView view(segments_of(offsets, x.size(0), width_of(x)), offsets, x.element_size());
  const ReduceArguments a{view, x.const_data_ptr(), out.mutable_data_ptr(),
                          extreme ? index.mutable_data_ptr<int64_t>() : nullptr, pad};
  LOD_RUN(x, segment_reduce, number_type("segment_reduce", x), reduce, a);
  return {out, index};
}

// The first (last) row of every segment is a copy of a row: -1 in the map of an empty segment leaves it to pad_value.
Tensor end_rows(const Tensor& values, const Tensor& given, bool last, double pad) {
  Tensor x = readable(values);
  const Tensor offsets = checked_offsets("segment_reduce", given, x.size(0));
  Tensor out = new_rows(x, offsets.size(0) - 1);
  const bool whole = at::isIntegralType(values.scalar_type(), /*includeBool=*/false);
  const at::Scalar fill = values.scalar_type() == at::kBool ? at::Scalar(pad != 0)
                          : whole                           ? at::Scalar(int64_t(pad))
                                                            : at::Scalar(pad);
  const auto [width, item] = row_words(x);
  EndArguments a{segments_of(offsets, x.size(0), width), x.const_data_ptr(), out.mutable_data_ptr(), item, last, {}};
  put_fill(a.fill, fill, x);
  LOD_RUN(x, segment_end, a);
  return out;
}

Tensor segment_reduce(const Tensor& values, const Tensor& offsets, std::string_view name, double pad) {
  const Reduce reduce = check_reduce("segment_reduce", values, offsets, name, pad);
  if (is_end(reduce)) return end_rows(values, offsets, reduce == Reduce::last, pad);
  const Tensor x = readable(values);
  return std::get<0>(reduced(reduce, x, checked_offsets("segment_reduce", offsets, x.size(0)), pad));
}
TwoTensors segment_extreme(const Tensor& values, const Tensor& offsets, std::string_view name, double pad) {
  const Reduce reduce = check_extreme(values, offsets, name, pad);
  const Tensor x = readable(values);
  return reduced(reduce, x, checked_offsets("segment_extreme", offsets, x.size(0)), pad, /*extreme=*/true);
}

// -- segment_broadcast: row s of values on every row of segment s, divided as the reduction divides, or on its first or
// last row, with zeros on the others

Reduce check_broadcast(const Tensor& values, const Tensor& offsets, const c10::SymInt& rows, std::string_view name) {
  check_row_count("segment_broadcast", rows);
  const Reduce reduce = check_reduce("segment_broadcast", values, offsets, name, 0);
  TORCH_CHECK_VALUE(!is_extreme(reduce) && reduce != Reduce::prod,
                    "segment_broadcast: expected reduce 'sum', 'mean', 'sqrt', 'first' or 'last', got '", name, "'");
  number_type("segment_broadcast", values);
  TORCH_CHECK_VALUE(values.sym_size(0) == offsets.sym_size(0) - 1,
                    "segment_broadcast: expected a row of values per segment, ", offsets.sym_size(0) - 1, ", got ",
                    values.sym_size(0));
  return reduce;
}
Tensor segment_broadcast_meta(const Tensor& values, const Tensor& offsets, c10::SymInt rows, std::string_view name) {
  check_broadcast(values, offsets, rows, name);
  return at::empty_symint(sym_shape(values, std::move(rows)), values.options());
}
Tensor segment_broadcast(const Tensor& values, const Tensor& given, int64_t rows, std::string_view name) {
  const Reduce reduce = check_broadcast(values, given, rows, name);
  const Tensor x = readable(values), offsets = checked_offsets("segment_broadcast", given, rows);
  Tensor out = new_rows(x, rows, offsets);
  if (is_end(reduce)) {
    if (out.numel())
      LOD_RUN(x, segment_place, number_type("segment_broadcast", x),
              PickArguments{segments_of(offsets, rows, width_of(x)), x.const_data_ptr(),
                            nullptr, out.mutable_data_ptr(), reduce == Reduce::last});
    return out;
  }
  LOD_RUN(x, segment_broadcast, number_type("segment_broadcast", x), reduce,
          BroadcastArguments{segments_of(offsets, rows, width_of(x)), x.const_data_ptr(),
                             out.mutable_data_ptr()});
  return out;
}

// -- segment_pick and segment_place: along the index of a maximum

void check_pick(const char* op, const Tensor& values, const Tensor& index, const Tensor& offsets) {
  check_segments(op, values, offsets);
  number_type(op, values);
  TORCH_CHECK_TYPE(index.scalar_type() == at::kLong && index.device() == values.device(), op,
                   ": expected an int64 index on ", values.device(), ", got ", index.scalar_type(), " on ",
                   index.device());
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
  const Tensor x = readable(values), at_ = readable(index);
  const Tensor offsets = checked_offsets("segment_pick", given, x.size(0));
  Tensor out = new_rows(x, at_.size(0));
  LOD_RUN(x, segment_pick, number_type("segment_pick", x),
          PickArguments{segments_of(offsets, x.size(0), width_of(x)), x.const_data_ptr(), longs(at_),
                        out.mutable_data_ptr()});
  return out;
}
void check_place(const Tensor& values, const Tensor& index, const Tensor& offsets, const c10::SymInt& rows) {
  check_row_count("segment_place", rows);
  check_pick("segment_place", values, index, offsets);
  TORCH_CHECK_VALUE(values.sym_size(0) == offsets.sym_size(0) - 1,
                    "segment_place: expected a row of values per segment, ", offsets.sym_size(0) - 1, ", got ",
                    values.sym_size(0));
}
Tensor segment_place_meta(const Tensor& values, const Tensor& index, const Tensor& offsets, c10::SymInt rows) {
  check_place(values, index, offsets, rows);
  return at::empty_symint(sym_shape(values, std::move(rows)), values.options());
}
Tensor segment_place(const Tensor& values, const Tensor& index, const Tensor& given, int64_t rows) {
  check_place(values, index, given, rows);
  const Tensor x = readable(values), at_ = readable(index);
  const Tensor offsets = checked_offsets("segment_place", given, rows);
  Tensor out = new_rows(x, rows, offsets);
  if (out.numel() == 0) return out;
  LOD_RUN(
      x, segment_place, number_type("segment_place", x),
      PickArguments{segments_of(offsets, rows, width_of(x)), x.const_data_ptr(),
                    longs(at_), out.mutable_data_ptr()});
  return out;
}

// -- gradients

using ReduceOp = Operator<"segment_reduce", segment_reduce_meta, segment_reduce>;
using ExtremeOp = Operator<"segment_extreme", segment_extreme_meta, segment_extreme>;
using BroadcastOp = Operator<"segment_broadcast", segment_broadcast_meta, segment_broadcast>;
using PickOp = Operator<"segment_pick", segment_pick_meta, segment_pick>;
using PlaceOp = Operator<"segment_place", segment_place_meta, segment_place>;

struct ExtremeGradient : Gradient<ExtremeOp> {
  static auto save(const Tensor& values, const Tensor& offsets, std::string_view, double, const Tensor&,
                   const Tensor& index) {
    return std::tuple(index, offsets, values.sym_size(0));
  }
  static variable_list gradient(const Grads& grad, const Tensor& index, const Tensor& offsets,
                                const c10::SymInt& rows) {
    return {PlaceOp::call(grad[0], index, offsets, rows)};
  }
};
struct ReduceGradient : Gradient<ReduceOp> {
  // A maximum with a gradient is that of segment_extreme, which says where it is.
  static Tensor entry(const Tensor& values, const Tensor& offsets, std::string_view name, double pad) {
    if (!tracked(values) || (name != "max" && name != "min"))
      return Autograd<ReduceGradient>::entry(values, offsets, name, pad);
    check_reduce("segment_reduce", values, offsets, name, pad);  // so that the message has the name that was called
    return std::get<0>(Autograd<ExtremeGradient>::entry(values, offsets, name, pad));
  }
  static auto save(const Tensor& values, const Tensor& offsets, std::string_view name, double) {
    return std::tuple(name == "prod" ? values : Tensor(), offsets, values.sym_size(0), std::string(name));
  }
  static variable_list gradient(const Grads& grad, const Tensor& values, const Tensor& offsets, const c10::SymInt& rows,
                                const std::string& name) {
    if (name == "prod") return {prod_gradient(grad[0], values, offsets)};
    return {on_parts(grad[0], [&](const Tensor& g) { return BroadcastOp::call(g, offsets, rows, name); })};
  }
};
struct BroadcastGradient : Gradient<BroadcastOp> {
  static auto save(const Tensor&, const Tensor& offsets, const c10::SymInt&, std::string_view name) {
    return std::tuple(offsets, std::string(name));
  }
  static variable_list gradient(const Grads& grad, const Tensor& offsets, const std::string& name) {
    return {ReduceOp::call(grad[0], offsets, name, 0.0)};
  }
};
struct PickGradient : Gradient<PickOp> {
  static auto save(const Tensor& values, const Tensor& index, const Tensor& offsets) {
    return std::tuple(index, offsets, values.sym_size(0));
  }
  static variable_list gradient(const Grads& grad, const Tensor& index, const Tensor& offsets,
                                const c10::SymInt& rows) {
    return {PlaceOp::call(grad[0], index, offsets, rows)};
  }
};
struct PlaceGradient : Gradient<PlaceOp> {
  static auto save(const Tensor&, const Tensor& index, const Tensor& offsets, const c10::SymInt&) {
    return std::tuple(index, offsets);
  }
  static variable_list gradient(const Grads& grad, const Tensor& index, const Tensor& offsets) {
    return {PickOp::call(grad[0], index, offsets)};
  }
};

}  // namespace

Tensor first_segments(const TileView& view, const Tensor& offsets) {
  const Tensor& structure = known_to_cut(offsets, view.rows) ? offsets : Tensor();
  return kept(structure, offsets.device(), -view.tile_rows, [&] {
    Tensor firsts = at::empty({tiles_of(view, view.tile_rows) + 1}, offsets.options());
    LOD_RUN(offsets, first_segments, view, firsts.mutable_data_ptr<int64_t>());
    return firsts;
  });
}
Tensor sum_of_segments(const Tensor& x, const Tensor& offsets) {
  return std::get<0>(reduced(Reduce::sum, x, offsets, 0));
}

LOD_OPERATORS(ReduceGradient, ExtremeGradient, BroadcastGradient, PickGradient, PlaceGradient)

}  // namespace lod
