// Binding of the edit distance and its alignment.
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/edit_api.h"
#include "bindings/scratch.h"

namespace lod {
namespace {

using Alignment = std::tuple<Tensor, Tensor, Tensor>;

void check_pairs(const char* op, const Tensor& a, const Tensor& a_offsets, const Tensor& b, const Tensor& b_offsets) {
  check_index(op, "values", a, a.device());
  check_offsets_kind(op, a_offsets, a.device());
  check_index(op, "others", b, a.device());
  check_offsets_kind(op, b_offsets, a.device(), "other_offsets");
  TORCH_CHECK_VALUE(a_offsets.sym_size(0) == b_offsets.sym_size(0), op,
                    ": expected as many sequences of others as of values, ", a_offsets.sym_size(0) - 1, ", got ",
                    b_offsets.sym_size(0) - 1);
}

// Arguments of the kernels that hold what they point to.
struct Held {
  Tensor a, b, a_offsets, b_offsets;
  Scratch scratch;
  std::vector<int64_t> order;

  Held(const char* op, const Tensor& a_, const Tensor& a_cut, const Tensor& b_, const Tensor& b_cut, bool aligns)
      : a(owned(a_)),
        b(owned(b_)),
        a_offsets(checked_offsets(op, a_cut, a.size(0))),
        b_offsets(checked_offsets(op, b_cut, b.size(0), "other_offsets", "others")) {
    if (a.is_cpu()) rank();
    else reserve(aligns);
  }
  EditArguments arguments() const {
    return {a.const_data_ptr<int64_t>(),
            a_offsets.const_data_ptr<int64_t>(),
            b.const_data_ptr<int64_t>(),
            b_offsets.const_data_ptr<int64_t>(),
            order.empty() ? nullptr : order.data(),
            a.size(0),
            b.size(0),
            a_offsets.size(0) - 1,
            nullptr,
            nullptr,
            nullptr,
            scratch.data(),
            scratch.begins()};
  }
  // The alignment of the most expensive pair did not fit into memory.
  [[noreturn]] void no_memory(const char* op) const {
    const auto *p = a_offsets.const_data_ptr<int64_t>(), *t = b_offsets.const_data_ptr<int64_t>();
    const auto cells = [&](int64_t s) { return double(p[s + 1] - p[s] + 1) * double(t[s + 1] - t[s] + 1); };
    int64_t most = 0;
    for (int64_t s = 1; s < a_offsets.size(0) - 1; ++s) most = cells(s) > cells(most) ? s : most;
    TORCH_CHECK_WITH(OutOfMemoryError, false, op, ": expected to allocate memory for an alignment, a byte for each of ",
                     p[most + 1] - p[most] + 1, " x ", t[most + 1] - t[most] + 1, " cells (", gibibytes(cells(most)),
                     ") in sequence ", most, ", got none; the distance alone needs no such matrix");
  }

 private:
  void rank() {  // a few pairs that take equally long stay as they are
    const int64_t n = a_offsets.size(0) - 1;
    const auto *p = a_offsets.const_data_ptr<int64_t>(), *t = b_offsets.const_data_ptr<int64_t>();
    const auto cost = [&](int64_t s) { return double(p[s + 1] - p[s]) * double(t[s + 1] - t[s]); };
    double most = 0, all = 0;
    for (int64_t s = 0; s < n; ++s) all += cost(s), most = std::max(most, cost(s));
    if (most * double(n) > 2 * all) order = most_costly_first(n, cost);
  }
  void reserve(bool aligns) {
    a_offsets = clamped_offsets(a_offsets, a.size(0));
    b_offsets = clamped_offsets(b_offsets, b.size(0));
    const Tensor p = clamped_lengths(a_offsets).add(1), t = clamped_lengths(b_offsets).add(1);
    Tensor bytes = p.add(t).mul(8).add(64);
    if (aligns) bytes = bytes.add(p.mul(t)).add(7).div(8, "floor").mul(8);
    scratch = Scratch(bytes);
  }
};

Tensor edit_distance_meta(const Tensor& a, const Tensor& a_offsets, const Tensor& b, const Tensor& b_offsets) {
  check_pairs("edit_distance", a, a_offsets, b, b_offsets);
  return at::empty_symint({a_offsets.sym_size(0) - 1}, a.options());
}
Tensor edit_distance(const Tensor& a, const Tensor& a_offsets, const Tensor& b, const Tensor& b_offsets) {
  Tensor out = edit_distance_meta(a, a_offsets, b, b_offsets);
  const Held held("edit_distance", a, a_offsets, b, b_offsets, false);
  EditArguments of = held.arguments();
  of.out = out.mutable_data_ptr<int64_t>();
  LOD_RUN(out, edit_distance, of);
  return out;
}

Alignment edit_alignment_meta(const Tensor& a, const Tensor& a_offsets, const Tensor& b, const Tensor& b_offsets) {
  check_pairs("edit_alignment", a, a_offsets, b, b_offsets);
  const auto like = [&](const Tensor& t) { return at::empty_symint({t.sym_size(0)}, a.options()); };
  return {at::empty_symint({a_offsets.sym_size(0) - 1}, a.options()), like(a), like(b)};
}
Alignment edit_alignment(const Tensor& a, const Tensor& a_offsets, const Tensor& b, const Tensor& b_offsets) {
  auto [out, of_a, of_b] = edit_alignment_meta(a, a_offsets, b, b_offsets);
  const Held held("edit_alignment", a, a_offsets, b, b_offsets, true);
  if (may_leave_rows(a_offsets, a.size(0))) of_a.fill_(-1);
  if (may_leave_rows(b_offsets, b.size(0))) of_b.fill_(-1);
  EditArguments of = held.arguments();
  of.out = out.mutable_data_ptr<int64_t>();
  of.of_a = of_a.mutable_data_ptr<int64_t>();
  of.of_b = of_b.mutable_data_ptr<int64_t>();
  try {
    LOD_RUN(out, edit_alignment, of);
  } catch (const std::bad_alloc&) {
    held.no_memory("edit_alignment");
  }
  return {out, of_a, of_b};
}

using DistanceOp = Operator<"edit_distance", edit_distance_meta, edit_distance>;
using AlignmentOp = Operator<"edit_alignment", edit_alignment_meta, edit_alignment>;

}  // namespace

LOD_OPERATORS(NoGradient<DistanceOp>, NoGradient<AlignmentOp>)

}  // namespace lod
