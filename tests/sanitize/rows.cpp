// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/rows.h"
#include "threads.h"

using namespace lod;

int main() {
  Checks check;
  for (const int64_t width : {1, 3, 70}) {
    const int64_t rows = 70000 / width;
    const auto offsets = offsets_of(rows);
    const auto segments = int64_t(offsets.size()) - 1;
    const auto x = numbers(rows * width * 3);
    const LoDView view{offsets.data(), segments, rows, width};
    const std::vector<int64_t> starts(offsets.begin(), offsets.end() - 1);
    std::vector<int64_t> map(rows), lists(rows + 1), order(rows);
    for (int64_t r = 0; r < rows; ++r) map[r] = r % 5 ? (r * 31) % rows : -1, lists[r + 1] = r + 1, order[r] = rows - 1 - r;
    check.operator()<int64_t>("run_map", rows, [&](const CpuExec& exec, int64_t* out) {
      base::run_map(exec, {starts.data(), offsets.data(), out, segments, rows, 1});
    });
    check.operator()<float>("gather_rows", rows * width, [&](const CpuExec& exec, float* out) {
      base::gather_rows(exec, {x.data(), map.data(), out, rows, rows, width, 4, {}});
    });
    for (const bool gather : {false, true})
      check.operator()<float>("copy_runs", rows * width, [&](const CpuExec& exec, float* out) {
        base::copy_runs(exec, {{starts.data(), offsets.data(), segments, rows, 1}, x.data(), out, rows, width, 4, gather});
      });
    std::vector<int64_t> spread(starts), taken(starts), both(offsets);
    for (int64_t s = 0; s < segments; ++s) spread[s] += s + 1, taken[s] += s, both[s + 1] *= 2;
    for (const int64_t* ends : {(const int64_t*)nullptr, (const int64_t*)taken.data()})
      check.operator()<float>("copy_runs, filled", (rows + segments) * width, [&](const CpuExec& exec, float* out) {
        CopyRuns runs{{spread.data(), offsets.data(), segments, rows, 1}, x.data(), out, rows + segments, width, 4, false};
        runs.fills = true, runs.taken = ends;
        base::copy_runs(exec, runs);
      });
    check.operator()<float>("join_runs", 2 * rows * width, [&](const CpuExec& exec, float* out) {
      base::join_runs(exec, {both.data(), offsets.data(), offsets.data(), segments, 2 * rows, x.data(), x.data(), out,
                             rows, rows, width, 4});
    });
    check.operator()<float>("unfold_rows", rows * 3 * width, [&](const CpuExec& exec, float* out) {
      base::unfold_rows(exec, {{view, 3, -1, 2}, x.data(), out, 4, {}});
    });
    check.operator()<float>("fold_rows", rows * width, [&](const CpuExec& exec, float* out) {
      base::fold_rows(exec, DType::f32, {{view, 3, -1, 2}, x.data(), out});
    });
    check.operator()<float>("sum_lists", rows * width, [&](const CpuExec& exec, float* out) {
      base::sum_lists(exec, DType::f32, {x.data(), lists.data(), order.data(), out, rows, width, {}});
    });
  }
  return check.said();
}
