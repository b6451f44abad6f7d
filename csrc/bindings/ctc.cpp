// Binding of connectionist temporal classification: loss, gradient, best path.
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/ctc_api.h"
#include "bindings/scratch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

namespace lod {
namespace {

struct Inputs {  // the arguments of ctc_loss
  Tensor values, row_offsets, labels, label_offsets;
  int64_t blank;
  bool zero_infinity = false;

  void check(const char* op) const {
    check_segments(op, values, row_offsets);
    check_floating(op, "values", values);
    TORCH_CHECK_VALUE(values.dim() == 2, op, ": expected values of shape (rows, classes), got ", values.dim(),
                      " dimensions");
    check_index(op, "labels", labels, values.device());
    check_offsets_kind(op, label_offsets, values.device(), "label_offsets");
    TORCH_CHECK_VALUE(label_offsets.sym_size(0) == row_offsets.sym_size(0), op,
                      ": expected as many sequences of labels as of values, ", row_offsets.sym_size(0) - 1, ", got ",
                      label_offsets.sym_size(0) - 1);
    TORCH_CHECK_VALUE(blank >= 0 && TORCH_GUARD_OR_TRUE(values.sym_size(1).sym_gt(blank)), op,
                      ": expected blank as one of ", values.sym_size(1), " classes, got ", blank);
  }
  Tensor per_segment() const { return at::empty_symint({row_offsets.sym_size(0) - 1}, values.options()); }
};
Inputs pack(const Tensor& values, const Tensor& row_offsets, const Tensor& labels, const Tensor& label_offsets,
            int64_t blank, bool zero_infinity) {
  return {values, row_offsets, labels, label_offsets, blank, zero_infinity};
}

// Labels that are classes and not the blank, where no other thread can write to them.
Tensor checked_labels(const char* op, const Inputs& in, const Tensor& offsets) {
  const int64_t classes = in.values.size(1), blank = in.blank;
  if (!in.labels.is_cpu()) {
    watch("labels", in.labels, std::nullopt, classes, -1, blank, op, "labels");
    return in.labels.clamp(0, classes - 1).contiguous();
  }
  Tensor own = copied(in.labels, [](const int64_t* from, int64_t* to, int64_t count) {
    if (from != to && count) std::memcpy(to, from, count * sizeof(int64_t));
  });
  const auto* label = own.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < own.numel(); ++i) {
    if (label[i] >= 0 && label[i] < classes && label[i] != blank) [[likely]] continue;
    const auto* cut = offsets.const_data_ptr<int64_t>();
    const int64_t s = segment_of(cut, offsets.numel() - 1, i);
    TORCH_CHECK_INDEX(false, op, ": expected labels in [0, ", classes - 1, "] other than the blank ", blank, ", got ",
                      label[i], " at position ", i - cut[s], " of sequence ", s);
  }
  return own;
}

// Arguments of the kernels that hold what they point to.
struct Held {
  HeldView view;
  Tensor label_offsets, labels;
  Scratch scratch;
  std::vector<int64_t> order;

  Held(const char* op, const Inputs& in, CtcKeeps keeps)
      : view(make_view(op, in.values, in.row_offsets)),
        label_offsets(checked_offsets(op, in.label_offsets, in.labels.size(0), "label_offsets", "labels")),
        labels(checked_labels(op, in, label_offsets)) {
    if (in.values.is_cpu()) rank();
    else reserve(keeps);
  }
  CtcArguments arguments(const Inputs& in) const {
    return {view,
            view.values.const_data_ptr(),
            labels.const_data_ptr<int64_t>(),
            label_offsets.const_data_ptr<int64_t>(),
            order.empty() ? nullptr : order.data(),
            labels.numel(),
            in.blank,
            nullptr,
            nullptr,
            nullptr,
            scratch.data(),
            scratch.begins(),
            in.zero_infinity};
  }
  // Runs a kernel of the CPU; where the lattice of a sequence does not fit into memory, the error says how large it is.
  template <class F>
  void run(const char* op, const F& kernel) const {
    try {
      kernel();
    } catch (const std::bad_alloc&) {
      if (order.empty()) throw;
      const auto* cut = label_offsets.const_data_ptr<int64_t>();
      const auto cells = [&](int64_t s) {
        return double(view.offsets[s + 1] - view.offsets[s]) * double(cut[s + 1] - cut[s] + 1);
      };
      const int64_t most = *std::max_element(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return cells(a) < cells(b);
      });
      TORCH_CHECK_WITH(OutOfMemoryError, false, op, ": expected to allocate memory for a lattice of ",
                       view.offsets[most + 1] - view.offsets[most], " rows x ", cut[most + 1] - cut[most],
                       " labels (up to ", gibibytes(32 * cells(most)), ") in sequence ", most,
                       ", got none; cut it into shorter sequences");
    }
  }

 private:
  void rank() {
    const auto *rows = view.offsets, *cut = label_offsets.const_data_ptr<int64_t>();
    const auto cost = [&](int64_t s) {
      return double(rows[s + 1] - rows[s]) * double(view.width + 4 * (cut[s + 1] - cut[s] + 1));
    };
    order = most_costly_first(view.segments, cost);
  }
  void reserve(CtcKeeps keeps) {
    view.row_offsets = clamped_offsets(view.row_offsets, view.rows);
    view.offsets = view.row_offsets.const_data_ptr<int64_t>();
    label_offsets = clamped_offsets(label_offsets, labels.numel());
    const Tensor rows = clamped_lengths(view.row_offsets), columns = clamped_lengths(label_offsets).add(1);
    const Tensor bytes = ctc_bytes(rows, columns, view.width, view.values.scalar_type() == at::kDouble ? 8 : 4, keeps);
    scratch = Scratch(keeps == CtcKeeps::choices ? bytes.add(7).bitwise_and(-8) : bytes);  // of whole words
  }
};

Tensor ctc_loss_meta(const Inputs& in) {
  in.check("ctc_loss");
  return in.per_segment();
}
Tensor ctc_loss(const Inputs& in) {
  Tensor out = ctc_loss_meta(in);
  const Held held("ctc_loss", in, CtcKeeps::nothing);
  CtcArguments a = held.arguments(in);
  a.out = out.mutable_data_ptr();
  held.run("ctc_loss", [&] { LOD_RUN(out, ctc_loss, floating_type("ctc_loss", out), a); });
  return out;
}

void check_back(const Tensor& grad, const Inputs& in) {
  const char* op = "ctc_loss_backward";
  in.check(op);
  check_rows_like(op, "grad", grad, in.per_segment(), in.row_offsets.sym_size(0) - 1);
}
Tensor ctc_loss_backward_meta(const Tensor& grad, const Tensor& values, const Tensor& row_offsets,
                              const Tensor& labels, const Tensor& label_offsets, int64_t blank) {
  check_back(grad, {values, row_offsets, labels, label_offsets, blank});
  return at::empty_symint(values.sym_sizes(), values.options());
}
Tensor ctc_loss_backward(const Tensor& grad, const Tensor& values, const Tensor& row_offsets, const Tensor& labels,
                         const Tensor& label_offsets, int64_t blank) {
  const char* op = "ctc_loss_backward";
  const Inputs in{values, row_offsets, labels, label_offsets, blank};
  check_back(grad, in);
  const Held held(op, in, CtcKeeps::forward);
  const Tensor g = readable(grad);
  Tensor out = new_rows(held.view.values, held.view.rows, row_offsets);
  CtcArguments a = held.arguments(in);
  a.grad = g.const_data_ptr();
  a.out = out.mutable_data_ptr();
  held.run(op, [&] { LOD_RUN(out, ctc_loss_backward, floating_type(op, out), a); });
  return out;
}

using Path = std::tuple<Tensor, Tensor>;
Path ctc_best_path_meta(const Tensor& values, const Tensor& row_offsets, const Tensor& labels,
                        const Tensor& label_offsets, int64_t blank) {
  const Inputs in{values, row_offsets, labels, label_offsets, blank};
  in.check("ctc_best_path");
  return {at::empty_symint({values.sym_size(0)}, values.options().dtype(at::kLong)), in.per_segment()};
}
Path ctc_best_path(const Tensor& values, const Tensor& row_offsets, const Tensor& labels, const Tensor& label_offsets,
                   int64_t blank) {
  auto [path, scores] = ctc_best_path_meta(values, row_offsets, labels, label_offsets, blank);
  const Inputs in{values, row_offsets, labels, label_offsets, blank};
  const Held held("ctc_best_path", in, CtcKeeps::choices);
  CtcArguments a = held.arguments(in);
  if (may_leave_rows(row_offsets, held.view.rows)) path.fill_(-1);
  a.path = path.mutable_data_ptr<int64_t>();
  a.out = scores.mutable_data_ptr();
  held.run("ctc_best_path",
           [&] { LOD_RUN(scores, ctc_best_path, floating_type("ctc_best_path", scores), a); });
  return {path, scores};
}

using LossOp = Operator<"ctc_loss", ctc_loss_meta, ctc_loss, pack>;
using LossBackwardOp = Operator<"ctc_loss_backward", ctc_loss_backward_meta, ctc_loss_backward>;
using BestPathOp = Operator<"ctc_best_path", ctc_best_path_meta, ctc_best_path>;

struct LossGradient : Gradient<LossOp> {
  static variable_list gradient(const Grads& grad, const Inputs& in, const Tensor&) {
    return {LossBackwardOp::call(grad[0], in.values, in.row_offsets, in.labels, in.label_offsets, in.blank)};
  }
};

}  // namespace

LOD_OPERATORS(LossGradient, OneGradient<LossBackwardOp>, NoGradient<BestPathOp>)

}  // namespace lod
