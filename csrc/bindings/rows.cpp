// Binding of the shape "rows": gather_rows and scatter_rows are each other's gradient.
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/rows_api.h"
#include "bindings/maps.h"
#include "bindings/operators.h"
#include "bindings/windows.h"
#include "kernels/padded_api.h"
#include "kernels/structure_api.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

namespace lod {
namespace {

// -- run_map

void check_run_map(const Tensor& starts, const Tensor& offsets, const c10::SymInt& rows) {
  check_row_count("run_map", rows);
  check_index("run_map", "starts", starts, starts.defined() ? starts.device() : c10::Device(c10::kCPU));
  check_index("run_map", "row_offsets", offsets, starts.device());
  check_offsets_kind("run_map", offsets, offsets.device());
  TORCH_CHECK_VALUE(starts.sym_size(0) == offsets.sym_size(0) - 1, "run_map: expected one of starts per segment, ",
                    offsets.sym_size(0) - 1, ", got ", starts.sym_size(0));
}

Tensor run_map_meta(const Tensor& starts, const Tensor& offsets, c10::SymInt rows, int64_t) {
  check_run_map(starts, offsets, rows);
  return at::empty_symint({std::move(rows)}, starts.options());
}

Tensor run_map(const Tensor& starts, const Tensor& given, int64_t rows, int64_t step) {
  check_run_map(starts, given, rows);
  const Tensor offsets = checked_offsets("run_map", given, rows), first = owned(starts);
  Tensor map = new_rows(first, rows, offsets);
  LOD_RUN(map, run_map,
          RunMap{first.const_data_ptr<int64_t>(), offsets.const_data_ptr<int64_t>(), map.mutable_data_ptr<int64_t>(),
                 first.size(0), rows, step});
  return map;
}

// -- gather_rows

void check_gather(const Tensor& values, const Tensor& map) {
  check_has_rows("gather_rows", "values", values);
  check_index("gather_rows", "map", map, values.device());
}

Tensor gather_rows_meta(const Tensor& values, const Tensor& map, const at::Scalar&) {
  check_gather(values, map);
  return at::empty_symint(sym_shape(values, map.sym_size(0)), values.options());
}

Tensor gathered(Tensor x, const Tensor& map, const at::Scalar& fill) {
  Tensor out = new_rows(x, map.size(0));
  const auto [width, item] = row_words(x);
  GatherRows a{x.const_data_ptr(), map.const_data_ptr<int64_t>(), out.mutable_data_ptr(), x.size(0), map.size(0), width,
               item, {}};
  put_fill(a.fill, fill, x);
  LOD_RUN(out, gather_rows, a);
  return out;
}
Tensor gather_rows(const Tensor& values, const Tensor& given, const at::Scalar& fill) {
  check_gather(values, given);
  const Tensor x = readable(values);
  return gathered(x, checked_map("gather_rows", "map", given, x.size(0)), fill);
}

// -- scatter_rows: the inverse of a map is, for every row, the list of positions that it goes to

void check_scatter(const Tensor& values, const Tensor& map, const c10::SymInt& rows) {
  check_row_count("scatter_rows", rows);
  check_has_rows("scatter_rows", "values", values);
  number_type("scatter_rows", values);
  check_index("scatter_rows", "map", map, values.device());
  TORCH_CHECK_VALUE(map.sym_size(0) == values.sym_size(0), "scatter_rows: expected a map entry per row of values, ",
                    values.sym_size(0), ", got ", map.sym_size(0));
}

Tensor scatter_rows_meta(const Tensor& values, const Tensor& map, c10::SymInt rows) {
  check_scatter(values, map, rows);
  return at::empty_symint(sym_shape(values, std::move(rows)), values.options());
}

// On a GPU a list is a segment of what is gathered, whatever its length.
Tensor sum_lists(const char* op, const Tensor& x, const Tensor& lists, const Tensor& order, const at::Scalar& fill) {
  if (!x.is_cpu()) {
    const Tensor out = sum_of_segments(gathered(x, order, 0), mark(lists, x.size(0), /*cuts=*/true));
    if (!fill.isIntegral(false) || !fill.equal(0))
      out.view({out.size(0), width_of(x)}).masked_fill_(lists.diff().eq(0).unsqueeze(1), fill);
    return out;
  }
  Tensor out = new_rows(x, lists.size(0) - 1);
  SumLists a{x.const_data_ptr(), lists.const_data_ptr<int64_t>(), order.const_data_ptr<int64_t>(),
             out.mutable_data_ptr(), out.size(0), width_of(x), {}};
  put_fill(a.fill, fill, x);
  LOD_PICK(sum_lists)(kCpu, number_type(op, x), a);
  return out;
}
Tensor scatter_runs(const Tensor& values, const Tensor& starts, const Tensor& offsets, int64_t rows, int64_t step,
                    const at::Scalar& fill);
Tensor put(Tensor x, const Tensor& map, int64_t rows) {
  const Tensor out = new_rows(x, rows).zero_();
  const auto [width, item] = row_words(x);
  LOD_RUN(out, put_rows,
          PutRows{x.const_data_ptr(), map.const_data_ptr<int64_t>(), out.mutable_data_ptr(), x.size(0), rows, width,
                  item});
  return out;
}
Tensor scatter_rows(const Tensor& values, const Tensor& given, int64_t rows) {
  check_scatter(values, given, rows);
  const Tensor x = readable(values), map = checked_map("scatter_rows", "map", given, rows);
  if (rows == 0 || x.numel() == 0) return new_rows(x, rows).zero_();
  if (const int64_t named = map.is_cpu() ? rising(map) : -1; named >= 0) {
    const Tensor each = at::arange(named + 1, map.options());
    if (named == map.numel()) return scatter_runs(x, map, each, rows, 1, 0);
    const Tensor taken = map.ge(0).nonzero().squeeze(1);
    return scatter_runs(x.index_select(0, taken), map.index_select(0, taken), each, rows, 1, 0);
  }
  if (const Known* mark = known(map); !map.is_cpu() && mark && mark->apart && mark->longest == 0)
    return put(x, map, rows);
  if (map.is_cpu() && width_of(x) <= 16) {
    if (x.scalar_type() == at::kFloat) return added<float>(x, map, rows);
    if (x.scalar_type() == at::kDouble) return added<double>(x, map, rows);
  }
  const auto [lists, order] = invert(map, rows);
  return sum_lists("scatter_rows", x, lists, order, 0);
}

// -- gather_runs and scatter_runs: segment s goes with the rows starts[s], starts[s] + step, ... of the other side

void check_runs(const char* op, const Tensor& values, const Tensor& starts, const Tensor& offsets,
                const c10::SymInt& rows, int64_t step) {
  check_row_count(op, rows);
  check_has_rows(op, "values", values);
  check_index(op, "starts", starts, values.device());
  check_offsets_kind(op, offsets, values.device());
  TORCH_CHECK_VALUE(starts.sym_size(0) == offsets.sym_size(0) - 1, op, ": expected one of starts per segment, ",
                    offsets.sym_size(0) - 1, ", got ", starts.sym_size(0));
  TORCH_CHECK_VALUE(step == 1 || step == -1, op, ": expected step 1 or -1, got ", step);
}

// Where the runs lie among the rows on the other side, as far as the host can tell.
struct RunsOfRows {
  Tensor starts, offsets;
  bool same = true;            // on the CPU: every run has the rows of its own segment, in reverse order for step -1
  bool in_order = true;        // on the CPU: runs follow each other or, if gaps are asked for, no two of them meet
  int64_t end = 0;             // on the CPU: of the last run
  bool apart = false;          // on a GPU: known not to meet
  int64_t cell = -1;           // on a GPU, if above 0: run s is known to be among the rows [s * cell, (s + 1) * cell)
  bool every = true;           // on a GPU: known to be in range, and to be runs of all rows of their side
  bool whole = false;          // on the CPU, if gaps are asked for: known to be runs of all rows, in any order
  std::vector<int64_t> taken;  // of runs in another order than their segments, the end of the run that lies before each

  RunsOfRows(const char* op, const Tensor& given, const Tensor& row_offsets, int64_t rows, int64_t there, int64_t step,
             bool gaps)
      : starts(owned(given)),
        offsets(row_offsets.is_cpu() ? checked_offsets(op, row_offsets, rows) : row_offsets.contiguous()),
        from_(starts.const_data_ptr<int64_t>()),
        cuts_(offsets.const_data_ptr<int64_t>()) {
    if (!offsets.is_cpu()) {
      same = in_order = false;
      const bool cuts = known_to_cut(offsets, rows);
      const Known* mark = known(starts);
      every = cuts && mark && !mark->cuts && mark->rows <= there + 1;  // an empty run may begin behind the last row
      apart = every && mark->apart;
      if (apart) cell = mark->longest;
      if (!every) watch("runs", starts, offsets, there, cuts ? -1 : rows, step, op, "row_offsets");
      return;
    }
    const int64_t n = starts.numel();
    const auto look = [&] { return kernels::layout_of_runs(from_, cuts_, n, step, there); };
    const Known *first = known(starts), *cuts = known(offsets);
    const RunLayout lie = first && cuts ? first->lie(*cuts, there, step, look) : look();
    for (int64_t s = 0; !lie.fits && s < n; ++s)
      TORCH_CHECK_INDEX(length(s) == 0 || (low(s, step) >= 0 && low(s, step) <= there - length(s)), op,
                        ": expected runs within [0, ", there, "), got ", length(s), " rows from ", from_[s],
                        step > 0 ? " up" : " down", " at index ", s);
    same = lie.same, in_order = lie.rise;
    int64_t last = n - 1;
    while (last >= 0 && length(last) == 0) --last;
    if (last >= 0) end = low(last, step) + length(last);
    if (!gaps || in_order) return;
    whole = cuts_[n] == there && there / 64 <= n && is_chain(step, n, there);
    if (whole) end = there;
    in_order = whole || follow(step, n) || (cuts_[n] <= there && sort_out(step, n, there));
  }

 private:
  int64_t length(int64_t s) const { return cuts_[s + 1] - cuts_[s]; }
  int64_t low(int64_t s, int64_t step) const {  // the first row; sums of what is far out of range wrap
    return step > 0 ? from_[s] : int64_t(uint64_t(from_[s]) - uint64_t(length(s)) + 1);
  }
  bool follow(int64_t step, int64_t n) const {
    int64_t behind = 0;
    for (int64_t s = 0; s < n; ++s) {
      if (length(s) == 0) continue;
      if (low(s, step) < behind) return false;
      behind = low(s, step) + length(s);
    }
    return true;
  }
  // Whether runs of as many rows as there are take every row: one begins at row 0, and one wherever another ends. Then
  // some of them, from 0 to the last row, have as many rows as all of them. Of 64 rows a run and more it is not asked:
  // the bits would take more memory than the runs, which are few to sort.
  bool is_chain(int64_t step, int64_t n, int64_t there) const {
    std::vector<uint64_t> begins(size_t(there / 64 + 1));  // a bit for each row, and for where the last one ends
    const auto bit = [](int64_t row) { return uint64_t(1) << (row % 64); };
    begins[size_t(there / 64)] |= bit(there);
    for (int64_t s = 0; s < n; ++s)
      if (length(s)) begins[size_t(low(s, step) / 64)] |= bit(low(s, step));
    bool found = begins[0] & 1;
    for (int64_t s = 0; s < n; ++s) {
      const int64_t behind = low(s, step) + length(s);
      if (length(s)) found = found && begins[size_t(behind / 64)] & bit(behind);
    }
    return found;
  }
  // Runs that do not meet are in order when they are sorted: by way of as many buckets of rows as there are runs, none
  // of which holds more runs than rows.
  bool sort_out(int64_t step, int64_t n, int64_t there) {
    int64_t bits = 0;
    while (there >> bits > n) ++bits;
    std::vector<int64_t> next((there >> bits) + 2), sorted(n, -1);
    for (int64_t s = 0; s < n; ++s)
      if (length(s)) ++next[(low(s, step) >> bits) + 1];
    for (size_t b = 1; b < next.size(); ++b) {
      if (next[b] > int64_t(1) << bits) return false;
      next[b] += next[b - 1];
    }
    for (int64_t s = 0; s < n; ++s) {
      if (length(s) == 0) continue;
      const int64_t begin = low(s, step);
      int64_t at = next[begin >> bits]++;
      for (; at > 0 && sorted[at - 1] >= 0 && low(sorted[at - 1], step) > begin; --at) sorted[at] = sorted[at - 1];
      sorted[at] = s;
    }
    taken.resize(n);
    end = 0;
    for (int64_t i = 0; i < n && sorted[i] >= 0; ++i) {
      taken[sorted[i]] = end;
      if (low(sorted[i], step) < end) return false;
      end = low(sorted[i], step) + length(sorted[i]);
    }
    return true;
  }

  const int64_t *from_, *cuts_;
};

void copy_runs(const RunsOfRows& runs, Tensor x, const Tensor& out, int64_t step, bool gather,
               const at::Scalar* fill = nullptr) {
  const auto [width, item] = row_words(x);
  const Tensor &own = gather ? out : x, &other = gather ? x : out;
  const int64_t all[] = {0, own.size(0)};
  CopyRuns a{{runs.starts.const_data_ptr<int64_t>(), runs.offsets.const_data_ptr<int64_t>(), runs.starts.numel(),
              own.size(0), step},
             x.const_data_ptr(), out.mutable_data_ptr(), other.size(0), width, item, gather};
  if (runs.same && step > 0) a.starts = a.offsets = all, a.segments = 1;
  if (runs.same && step < 0) a.gather = true, a.there = x.size(0);  // its own inverse
  if (fill && !a.gather) {
    a.fills = true, a.taken = runs.taken.empty() ? nullptr : runs.taken.data();
    put_fill(a.fill, *fill, x);
  }
  LOD_RUN(out, copy_runs, a);
}

Tensor gather_runs_meta(const Tensor& values, const Tensor& starts, const Tensor& offsets, c10::SymInt rows,
                        int64_t step) {
  check_runs("gather_runs", values, starts, offsets, rows, step);
  return at::empty_symint(sym_shape(values, std::move(rows)), values.options());
}
Tensor gather_runs(const Tensor& values, const Tensor& starts, const Tensor& offsets, int64_t rows, int64_t step) {
  check_runs("gather_runs", values, starts, offsets, rows, step);
  const Tensor x = readable(values);
  const RunsOfRows runs("gather_runs", starts, offsets, rows, x.size(0), step, false);
  Tensor out = new_rows(x, rows);
  if (!runs.every) out.zero_();
  if (out.numel()) copy_runs(runs, x, out, step, true);
  return out;
}

Tensor scatter_runs_meta(const Tensor& values, const Tensor& starts, const Tensor& offsets, c10::SymInt rows,
                         int64_t step, const at::Scalar&) {
  check_runs("scatter_runs", values, starts, offsets, rows, step);
  return at::empty_symint(sym_shape(values, std::move(rows)), values.options());
}
// Rows that meet are added up, and must be numbers; otherwise all are copied. On a GPU the host cannot know: numbers
// are added up, and others must not meet.
Tensor scatter_in_any_order(const Tensor& x, const RunsOfRows& runs, int64_t rows, int64_t step,
                            const at::Scalar& fill) {
  Tensor map = new_rows(runs.starts, x.size(0), runs.offsets);
  LOD_RUN(map, run_map,
          RunMap{runs.starts.const_data_ptr<int64_t>(), runs.offsets.const_data_ptr<int64_t>(),
                 map.mutable_data_ptr<int64_t>(), runs.starts.numel(), x.size(0), step});
  const auto [lists, order] = invert(map, rows);
  const Tensor count = lists.diff(), meet = count.gt(1).any();
  const bool sum = x.is_cpu() ? meet.item<bool>() : number_of(x.scalar_type()).has_value();
  if (sum) return sum_lists("scatter_runs", x, lists, order, fill);
  if (!x.is_cpu())
    watch("truths", meet.reshape({1}).to(at::kLong), std::nullopt, 0, -1, 0, "scatter_runs",
          "rows that do not meet, since they cannot be added up");
  const Tensor first = order.index_select(0, lists.narrow(0, 0, rows).clamp_max(order.numel() - 1));
  return gathered(x, at::where(count.gt(0), first, -1), fill);
}
void pad(Tensor x, const RunsOfRows& runs, const Tensor& out, const at::Scalar& fill) {
  const auto [width, item] = row_words(x);
  PadRows a{x.const_data_ptr(), runs.starts.const_data_ptr<int64_t>(), runs.offsets.const_data_ptr<int64_t>(),
            out.mutable_data_ptr(), runs.starts.numel(), x.size(0), runs.cell, width, item, {}};
  put_fill(a.fill, fill, x);
  LOD_RUN(out, pad_rows, a);
}
Tensor scatter_runs(const Tensor& values, const Tensor& starts, const Tensor& offsets, int64_t rows, int64_t step,
                    const at::Scalar& fill) {
  check_runs("scatter_runs", values, starts, offsets, rows, step);
  const Tensor x = readable(values);
  const RunsOfRows runs("scatter_runs", starts, offsets, x.size(0), rows, step, true);
  if (x.numel() == 0) return new_rows(x, rows).fill_(fill);
  if (!runs.in_order && !runs.apart) return scatter_in_any_order(x, runs, rows, step, fill);
  Tensor out = new_rows(x, rows);
  if (out.numel() == 0) return out;
  const int64_t count = runs.starts.numel();
  if (runs.cell > 0 && step == 1 && count > 0 && rows % count == 0 && rows / count == runs.cell) {
    pad(x, runs, out, fill);
    return out;
  }
  // On a GPU every row is filled first: runs apart that are as many as the rows take every one of them.
  if (!x.is_cpu() && rows > x.size(0)) out.fill_(fill);
  copy_runs(runs, x, out, step, false, x.is_cpu() && !runs.whole ? &fill : nullptr);
  if (x.is_cpu() && runs.end < rows) out.narrow(0, runs.end, rows - runs.end).fill_(fill);
  return out;
}

// Whether runs are all rows of x in their order, as in a padding of sequences of one length: the host can tell.
bool nothing_moves(const Tensor& x, const Tensor& starts, const Tensor& offsets) {
  if (c10::impl::TorchDispatchModeTLS::any_modes_set() || !is_in_memory(x) || !is_in_memory(starts) ||
      !is_in_memory(offsets) || !starts.is_cpu() || !offsets.is_cpu() || !starts.is_contiguous() ||
      !known_to_cut(offsets, x.size(0)))
    return false;
  // a user's hook may have given others back
  if (starts.scalar_type() != at::kLong || starts.numel() + 1 != offsets.numel()) return false;
  const auto *from = starts.const_data_ptr<int64_t>(), *cuts = offsets.const_data_ptr<int64_t>();
  const int64_t n = starts.numel(), there = x.size(0);
  const Known* first = known(starts);
  if (!first) return std::memcmp(from, cuts, size_t(n) * sizeof(int64_t)) == 0;
  return first->lie(*known(offsets), there, 1, [&] { return kernels::layout_of_runs(from, cuts, n, 1, there); }).same;
}

// -- segment_concat: every segment, and behind its rows those of the other segment

void check_cuts(const Tensor& offsets, const Tensor& other_offsets) {
  const auto device = offsets.device();
  check_offsets_kind("segment_concat", offsets, device);
  check_offsets_kind("segment_concat", other_offsets, device, "other_offsets");
  TORCH_CHECK_VALUE(offsets.sym_size(0) == other_offsets.sym_size(0), "segment_concat: expected as many sequences of ",
                    "others as of values, ", offsets.sym_size(0) - 1, ", got ", other_offsets.sym_size(0) - 1);
}
void check_concat(const Tensor& values, const Tensor& offsets, const Tensor& others, const Tensor& other_offsets) {
  check_segments("segment_concat", values, offsets);
  check_has_rows("segment_concat", "others", others);
  check_rows_like("segment_concat", "others", others, values, others.sym_size(0));
  check_cuts(offsets, other_offsets);
}
Tensor segment_concat_meta(const Tensor& values, const Tensor& offsets, const Tensor& others,
                           const Tensor& other_offsets) {
  check_concat(values, offsets, others, other_offsets);
  return at::empty_symint(sym_shape(values, values.sym_size(0) + others.sym_size(0)), values.options());
}
// own[i] + other[from + i], as many as asked for: torch multiplies integers by a factor of 1 before it adds them.
Tensor sums_of(const Tensor& own, const Tensor& other, int64_t from, const c10::SymInt& count) {
  const bool here = own.is_cpu() && other.is_cpu() && is_in_memory(own) && is_in_memory(other) && own.is_contiguous() &&
                    other.is_contiguous() && !c10::impl::TorchDispatchModeTLS::any_modes_set();
  if (!here) return own.narrow_symint(0, 0, count).add(other.narrow_symint(0, from, count));
  const Tensor sums = new_longs(count.expect_int());
  const auto *one = own.const_data_ptr<int64_t>(), *two = other.const_data_ptr<int64_t>() + from;
  auto* to = sums.mutable_data_ptr<int64_t>();
  for (int64_t i = 0, n = sums.numel(); i < n; ++i) to[i] = int64_t(uint64_t(one[i]) + uint64_t(two[i]));
  return sums;
}
// The first rows in the result of the segments of one side, which begins where the other has begun or ended.
Tensor concat_starts(const Tensor& own, const Tensor& other, bool behind) {
  check_cuts(own, other);  // a user's hook may have given others back
  const Tensor starts = sums_of(own, other, behind, own.sym_size(0) - 1);
  if (!is_in_memory(starts)) return starts;
  const Known *one = known(own), *two = known(other);
  if (one && two && one->cuts && two->cuts) {
    mark(starts, one->rows + two->rows, /*cuts=*/false, /*apart=*/true);
    if (const Known* runs = own.is_cpu() ? known(starts) : nullptr)  // one behind the other
      runs->lie(*one, one->rows + two->rows, 1, [&] { return RunLayout{true, two->rows == 0, true}; });
  }
  return starts;
}
Tensor segment_concat(const Tensor& values, const Tensor& given, const Tensor& others, const Tensor& other_given) {
  check_concat(values, given, others, other_given);
  Tensor x = readable(values), y = readable(others);
  const int64_t rows = x.size(0) + y.size(0);
  const Tensor offsets = checked_offsets("segment_concat", given, x.size(0));
  const Tensor other_offsets = checked_offsets("segment_concat", other_given, y.size(0), "other_offsets", "others");
  Tensor out = new_rows(x, rows);
  if (out.numel() == 0) return out;
  if (may_leave_rows(offsets, x.size(0)) || may_leave_rows(other_offsets, y.size(0))) out.zero_();
  const Tensor both = sums_of(offsets, other_offsets, 0, offsets.size(0));
  const auto mine = row_words(x), theirs = row_words(y), words = mine.item < theirs.item ? mine : theirs;
  LOD_RUN(out, join_runs,
          JoinRuns{both.const_data_ptr<int64_t>(), offsets.const_data_ptr<int64_t>(),
                   other_offsets.const_data_ptr<int64_t>(), both.numel() - 1, rows, x.const_data_ptr(),
                   y.const_data_ptr(), out.mutable_data_ptr(), x.size(0), y.size(0), words.width, words.item});
  return out;
}

// -- segment_unfold and segment_fold: every row beside its neighbours within the segment

void check_windows(const char* op, const Tensor& values, const Tensor& offsets, int64_t start, int64_t dilation) {
  check_has_rows(op, "values", values);
  check_offsets_kind(op, offsets, values.device());
  check_reach(op, start, dilation);
}
Tensor segment_unfold_meta(const Tensor& values, const Tensor& offsets, c10::SymInt size, int64_t start,
                           int64_t dilation, const at::Scalar&) {
  check_windows("segment_unfold", values, offsets, start, dilation);
  check_window("segment_unfold", size);
  auto shape = values.sym_sizes().vec();
  shape.insert(shape.begin() + 1, std::move(size));
  return at::empty_symint(shape, values.options());
}
Tensor segment_unfold(const Tensor& values, const Tensor& given, int64_t size, int64_t start, int64_t dilation,
                      const at::Scalar& fill) {
  Tensor out = segment_unfold_meta(values, given, size, start, dilation, fill);
  Tensor x = readable(values);
  const Tensor offsets = checked_offsets("segment_unfold", given, x.size(0));
  if (may_leave_rows(offsets, x.size(0))) out.zero_();
  if (out.numel() == 0) return out;
  const auto [width, item] = row_words(x);
  UnfoldRows a{{offsets.const_data_ptr<int64_t>(), offsets.numel() - 1, x.size(0), width, size, start, dilation},
               x.const_data_ptr(), out.mutable_data_ptr(), item, {}};
  put_fill(a.fill, fill, x);
  LOD_RUN(out, unfold_rows, a);
  return out;
}
Tensor segment_fold_meta(const Tensor& values, const Tensor& offsets, int64_t start, int64_t dilation) {
  check_windows("segment_fold", values, offsets, start, dilation);
  number_type("segment_fold", values);
  TORCH_CHECK_VALUE(values.dim() >= 2, "segment_fold: expected values of shape (rows, size, ...), got ", values.dim(),
                    " dimensions");
  check_window("segment_fold", values.sym_size(1));
  auto shape = values.sym_sizes().vec();
  shape.erase(shape.begin() + 1);
  return at::empty_symint(shape, values.options());
}
Tensor segment_fold(const Tensor& values, const Tensor& given, int64_t start, int64_t dilation) {
  Tensor out = segment_fold_meta(values, given, start, dilation);
  const Tensor x = readable(values), offsets = checked_offsets("segment_fold", given, x.size(0));
  if (x.size(1) == 1) return segment_unfold(x.squeeze(1), offsets, 1, -start, dilation, 0).squeeze(1);  // a shift
  if (may_leave_rows(offsets, x.size(0))) out.zero_();
  if (out.numel() == 0) return out;
  LOD_RUN(out, fold_rows, number_type("segment_fold", x),
          FoldRows{{offsets.const_data_ptr<int64_t>(), offsets.numel() - 1, x.size(0), width_of(out), x.size(1), start,
                    dilation},
                   x.const_data_ptr(),
                   out.mutable_data_ptr()});
  return out;
}

// -- gradients

using RunMapOp = Operator<"run_map", run_map_meta, run_map>;
using GatherOp = Operator<"gather_rows", gather_rows_meta, gather_rows>;
using ScatterOp = Operator<"scatter_rows", scatter_rows_meta, scatter_rows>;
using GatherRunsOp = Operator<"gather_runs", gather_runs_meta, gather_runs>;
using ScatterRunsOp = Operator<"scatter_runs", scatter_runs_meta, scatter_runs>;
using ConcatOp = Operator<"segment_concat", segment_concat_meta, segment_concat>;
using UnfoldOp = Operator<"segment_unfold", segment_unfold_meta, segment_unfold>;
using FoldOp = Operator<"segment_fold", segment_fold_meta, segment_fold>;

struct GatherGradient : Gradient<GatherOp> {
  static auto save(const Tensor& values, const Tensor& map, const at::Scalar&) {
    return std::tuple(map, values.sym_size(0));
  }
  static variable_list gradient(const Grads& grad, const Tensor& map, const c10::SymInt& rows) {
    return {on_parts(grad[0], [&](const Tensor& g) { return ScatterOp::call(g, map, rows); })};
  }
};
struct ScatterGradient : Gradient<ScatterOp> {
  static auto save(const Tensor&, const Tensor& map, const c10::SymInt&) { return std::tuple(map); }
  static variable_list gradient(const Grads& grad, const Tensor& map) { return {GatherOp::call(grad[0], map, 0)}; }
};
struct GatherRunsGradient : Gradient<GatherRunsOp> {
  static auto save(const Tensor& values, const Tensor& starts, const Tensor& offsets, const c10::SymInt&,
                   int64_t step) {
    return std::tuple(starts, offsets, values.sym_size(0), step);
  }
  static variable_list gradient(const Grads& grad, const Tensor& starts, const Tensor& offsets, const c10::SymInt& rows,
                                int64_t step) {
    return {on_parts(grad[0], [&](const Tensor& g) { return ScatterRunsOp::call(g, starts, offsets, rows, step, 0); })};
  }
};
struct ScatterRunsGradient : Gradient<ScatterRunsOp> {
  static auto save(const Tensor& values, const Tensor& starts, const Tensor& offsets, const c10::SymInt&, int64_t step,
                   const at::Scalar&) {
    return std::tuple(starts, offsets, values.sym_size(0), step);
  }
  static variable_list gradient(const Grads& grad, const Tensor& starts, const Tensor& offsets, const c10::SymInt& rows,
                                int64_t step) {
    if (step == 1 && nothing_moves(grad[0], starts, offsets)) return {grad[0]};
    return {GatherRunsOp::call(grad[0], starts, offsets, rows, step)};
  }
};
struct ConcatGradient : Gradient<ConcatOp> {
  static auto save(const Tensor& values, const Tensor& offsets, const Tensor& others, const Tensor& other_offsets) {
    return std::tuple(offsets, other_offsets, values.sym_size(0), others.sym_size(0));
  }
  static variable_list gradient(const Grads& grad, const Tensor& offsets, const Tensor& other_offsets,
                                const c10::SymInt& rows, const c10::SymInt& other_rows) {
    const auto part = [&](const Tensor& own, const Tensor& other, bool behind, const c10::SymInt& count) {
      return GatherRunsOp::call(grad[0], concat_starts(own, other, behind), own, count, 1);
    };
    variable_list found(3);
    if (grad.needs(0)) found[0] = part(offsets, other_offsets, false, rows);
    if (grad.needs(2)) found[2] = part(other_offsets, offsets, true, other_rows);
    return found;
  }
};
struct UnfoldGradient : Gradient<UnfoldOp> {
  static auto save(const Tensor&, const Tensor& offsets, const c10::SymInt&, int64_t start, int64_t dilation,
                   const at::Scalar&) {
    return std::tuple(offsets, start, dilation);
  }
  static variable_list gradient(const Grads& grad, const Tensor& offsets, int64_t start, int64_t dilation) {
    return {on_parts(grad[0], [&](const Tensor& g) { return FoldOp::call(g, offsets, start, dilation); })};
  }
};
struct FoldGradient : Gradient<FoldOp> {
  static auto save(const Tensor& values, const Tensor& offsets, int64_t start, int64_t dilation) {
    return std::tuple(offsets, values.sym_size(1), start, dilation);
  }
  static variable_list gradient(const Grads& grad, const Tensor& offsets, const c10::SymInt& size, int64_t start,
                                int64_t dilation) {
    return {UnfoldOp::call(grad[0], offsets, size, start, dilation, 0)};
  }
};

}  // namespace

LOD_OPERATORS(NoGradient<RunMapOp>, GatherGradient, ScatterGradient, GatherRunsGradient, ScatterRunsGradient,
              ConcatGradient, UnfoldGradient, FoldGradient)

}  // namespace lod
