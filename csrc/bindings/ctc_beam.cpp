// Binding of the search for the most probable labelings.
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/ctc_beam_api.h"
#include "bindings/scratch.h"

#include <cmath>

namespace lod {
namespace {

using Labelings = std::tuple<Tensor, Tensor, Tensor>;

Labelings ctc_beam_meta(const Tensor& values, const Tensor& row_offsets, int64_t blank, int64_t beam, int64_t n,
                        double threshold) {
  const char* op = "ctc_beam";
  check_segments(op, values, row_offsets);
  check_floating(op, "values", values);
  TORCH_CHECK_VALUE(values.dim() == 2, op, ": expected values of shape (rows, classes), got ", values.dim(),
                    " dimensions");
  TORCH_CHECK_VALUE(blank >= 0 && TORCH_GUARD_OR_TRUE(values.sym_size(1).sym_gt(blank)), op,
                    ": expected blank as one of ", values.sym_size(1), " classes, got ", blank);
  TORCH_CHECK_VALUE(TORCH_GUARD_OR_TRUE(values.sym_size(1).sym_lt(int64_t(1) << 31)), op,
                    ": expected fewer than 2**31 classes, got ", values.sym_size(1));
  TORCH_CHECK_VALUE(1 <= beam && beam <= int64_t(1) << 20, op, ": expected beam in [1, 2**20], got ", beam);
  TORCH_CHECK_VALUE(1 <= n && n <= beam, op, ": expected n in [1, ", beam, "], as the beam, got ", n);
  TORCH_CHECK_VALUE(0 <= threshold && threshold <= 1, op, ": expected threshold in [0, 1], got ", threshold);
  const auto whole = values.options().dtype(at::kLong);
  const auto segments = row_offsets.sym_size(0) - 1;
  return {at::empty_symint({values.sym_size(0), n}, whole), at::empty_symint({segments, n}, whole),
          at::empty_symint({segments, n}, values.options())};
}

// Of the longest sequence.
void check_nodes(int64_t rows, int64_t classes, int64_t longest, int64_t beam) {
  const int64_t width = kernels::ctc_beam_width(beam, rows, classes);
  TORCH_CHECK_VALUE(rows < (int64_t(1) << 31) / width, "ctc_beam: expected a beam times the rows of a sequence below "
                    "2**31, got a beam of ", width, " and ", rows, " rows in sequence ", longest);
}
[[noreturn]] void no_memory(const HeldView& x, int64_t longest, int64_t beam) {
  const int64_t rows = x.offsets[longest + 1] - x.offsets[longest];
  const int64_t width = kernels::ctc_beam_width(beam, rows, x.width);
  TORCH_CHECK_WITH(OutOfMemoryError, false, "ctc_beam: expected to allocate memory for a beam of ", width, " over ",
                   rows, " rows (", gibibytes(double(kernels::ctc_beam_bytes(rows, width, x.width))), ") in sequence ",
                   longest, ", got none; make the beam smaller");
}

Labelings ctc_beam(const Tensor& values, const Tensor& row_offsets, int64_t blank, int64_t beam, int64_t n,
                   double threshold) {
  auto [labels, lengths, scores] = ctc_beam_meta(values, row_offsets, blank, beam, n, threshold);
  HeldView x = make_view("ctc_beam", values, row_offsets);
  std::vector<int64_t> order;
  Scratch scratch;
  if (values.is_cpu()) {
    order = most_costly_first(x.segments, [&](int64_t s) { return x.offsets[s + 1] - x.offsets[s]; });
    if (x.segments) check_nodes(x.offsets[order[0] + 1] - x.offsets[order[0]], x.width, order[0], beam);
  } else {
    labels.fill_(-1);
    x.row_offsets = clamped_offsets(x.row_offsets, x.rows);
    x.offsets = x.row_offsets.const_data_ptr<int64_t>();
    const Tensor rows = clamped_lengths(x.row_offsets);
    if (x.segments && x.rows >= (int64_t(1) << 31) / beam) {  // the host waits only where it could be too much
      const auto longest = rows.argmax().item<int64_t>();
      check_nodes(rows[longest].item<int64_t>(), x.width, longest, beam);
    }
    scratch = Scratch(rows.mul(beam * 24).add(beam * 320 + x.width * 48 + 64));
  }
  const CtcBeamArguments of{x, x.values.const_data_ptr(), order.empty() ? nullptr : order.data(), blank, beam, n,
                            std::log(threshold), labels.mutable_data_ptr<int64_t>(),
                            lengths.mutable_data_ptr<int64_t>(), scores.mutable_data_ptr(), scratch.data(),
                            scratch.begins()};
  try {
    LOD_RUN(scores, ctc_beam, floating_type("ctc_beam", values), of);
  } catch (const std::bad_alloc&) {
    if (order.empty()) throw;
    no_memory(x, order[0], beam);
  }
  return {labels, lengths, scores};
}

using BeamOp = Operator<"ctc_beam", ctc_beam_meta, ctc_beam>;

}  // namespace

LOD_OPERATORS(NoGradient<BeamOp>)

}  // namespace lod
