// Binding of the edit distance and its alignment.
// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "edit.h"
#include "core/clamped.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

namespace lod {
LOD_ON_CUDA(edit_distance)
LOD_ON_CUDA(edit_alignment)
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
  Tensor a, b, a_offsets, b_offsets, scratch, scratch_at;
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
            scratch.defined() ? static_cast<char*>(scratch.mutable_data_ptr()) : nullptr,
            scratch_at.defined() ? scratch_at.const_data_ptr<int64_t>() : nullptr};
  }

 private:
  void rank() {  // what takes longest begins first; a few pairs that take equally long stay as they are
    const int64_t n = a_offsets.size(0) - 1;
    const auto *p = a_offsets.const_data_ptr<int64_t>(), *t = b_offsets.const_data_ptr<int64_t>();
    const auto cost = [&](int64_t s) { return double(p[s + 1] - p[s]) * double(t[s + 1] - t[s]); };
    double most = 0, all = 0;
    for (int64_t s = 0; s < n; ++s) all += cost(s), most = std::max(most, cost(s));
    if (most * double(n) <= 2 * all) return;
    order.resize(n);
    std::iota(order.begin(), order.end(), int64_t(0));
    std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) { return cost(x) > cost(y); });
  }
  // Kernels on a GPU have no memory of their own: what every pair needs at most, one after another. One sync.
  void reserve(bool aligns) {
    const int64_t n = a_offsets.size(0) - 1;
    a_offsets = clamped_offsets(a_offsets, a.size(0));
    b_offsets = clamped_offsets(b_offsets, b.size(0));
    const Tensor p = clamped_lengths(a_offsets).add(1), t = clamped_lengths(b_offsets).add(1);
    Tensor bytes = p.add(t).mul(8).add(64);
    if (aligns) bytes = bytes.add(p.mul(t)).add(7).div(8, "floor").mul(8);
    const Tensor ends = at::cat(std::vector<Tensor>{at::zeros({1}, bytes.options()), bytes.cumsum(0)});
    scratch_at = ends.narrow(0, 0, n).contiguous();
    const auto needed = ends[n].item<int64_t>();
    raise_faults();  // what was found is known now, and may be why so much is needed
    scratch = at::empty({needed}, a.options().dtype(at::kByte));
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
  EditArguments of = held.arguments();
  of.out = out.mutable_data_ptr<int64_t>();
  of.of_a = of_a.mutable_data_ptr<int64_t>();
  of.of_b = of_b.mutable_data_ptr<int64_t>();
  LOD_RUN(out, edit_alignment, of);
  return {out, of_a, of_b};
}

using DistanceOp = Operator<"edit_distance", edit_distance_meta, edit_distance>;
using AlignmentOp = Operator<"edit_alignment", edit_alignment_meta, edit_alignment>;

}  // namespace

LOD_OPERATORS(NoGradient<DistanceOp>, NoGradient<AlignmentOp>)

}  // namespace lod
