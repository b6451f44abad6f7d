// The two drivers that traverse the rows of segments: reduce_segments and scan_segments. Kernel source, see device.h.
// SPDX-License-Identifier: Apache-2.0
//
// A reduction K says, of channel k of a State<W> of W channels (arrays of W, so that loops over k become vector code),
//
//   kPasses                            how many passes it makes over the rows
//   load(i)                            what element i of the inputs is; on a GPU several are loaded ahead
//   identity<pass>(s, k)               the state of no rows, beside that of the passes before
//   accumulate<pass>(s, k, x, row)     adds x = load(i), which is of that row
//   combine<pass>(s, k, t, j)          adds what channel j of t has of other rows
//   finalize<pass>(s, k, n)              after a pass over all n rows of a segment
//   kByRow                             whether there is a result for every row instead of one for every segment:
//   finish(s, k, rows, to)             writes result `to`, of a segment with these rows or, empty, with none
//   map(s, k, x, i)                    writes result i, of x = load(i)
//   copy(s, k, t, j, on = true)        s as channel j of t, if on: a select, which becomes vector code; for kByRow,
//                                      several passes and short segments side by side
//   kKeepsTerms, term(s, k, x)         whether the last pass and map take term(s, k, x) instead of x: it costs more
//                                      than to keep it at the place of the result, as a CPU does
//
//   Rows<T, arrays>                    its base: the arrays in[] that it reads and `out`, which the driver sets
//
//   reduce_segments<T>(exec, view, {in...}, out, k)     reduces all segments of arrays of T; k is of computed_t<T>
//
// Results depend on the rows of their own segment alone. It is reduced in blocks of kBlock rows, counted from its
// start, which are combined in order: by one thread, and those of long segments by several. Channels are vectors;
// narrow rows of long segments are taken several at a time as one wide row, whose parts are combined in the end, and
// short segments of narrow rows are laid side by side (segment_short.h).
//
// A scan K says, of channel k of a State<W> of W channels (arrays of W, so that loops over k become vector code),
//
//   reverse()                       whether the last row comes first
//   identity(s, k)                  the state before the first row; static
//   load(i, at)                     what element i of the inputs is; on a GPU several are loaded ahead
//   step<kEmit>(s, k, x, i, at)     adds x = load(i, at), and writes result i if kEmit
//   combine(s, k, t, j)             adds all that channel j of t has seen by step<false>; static
//   kShares, finalize(s, k)         whether the CPU's threads may share the blocks of a long segment, and what is done
//                                   behind each: the bits must be the same as of one thread
//
//   Rows<T, arrays>                 its base: the arrays in[] that it reads and `out`, which the driver sets
//
//   scan_segments<T>(exec, view, {in...}, out, k)          scans all segments of arrays of T; k is of computed_t<T>
//   scan_segments<T>(exec, view, {in...}, out, k1, k2)     the same for two scans of the same in[0]: the second also
//                                                          reads what the first writes to an `out` of its own
//
// On the CPU one thread scans a segment, and the channels are vectors. A GPU scans blocks of rows, combines their
// states and scans them again (gpu_tiles.h): only there, and with kShares, is anything combined.

#include "torch_lod/tile_view.h"

namespace lod::LOD_LEVEL {

// What a reduction or scan reads and writes.
template <class T, int kArrays = 1, class Out = T>
struct Rows {
  using Element = T;
  static constexpr int kRowsIn = kArrays;
  // Whether a CPU lays short segments side by side: it becomes vector code, and no sum of what is not taken overflows.
  static constexpr bool kSideBySide = std::is_floating_point_v<T>;
  static constexpr bool kKeepsTerms = false;
  static constexpr bool kSerial = false;  // whether a lane of a GPU takes many rows: a result of few may overflow
  static constexpr bool kTiles = true;  // whether a GPU may have narrow rows in shared memory: load(i) and what is
                                        // written at i read and write element i of in[] and out, no other
  const T* in[kArrays] = {};
  Out* out = nullptr;
};
template <int n>
struct Pointers {
  const void* at[n];
};
// What x is in a pass.
template <int pass, class K>
LOD_FN auto term_of(const K& k, const auto& s, int64_t l, const auto& x) {
  if constexpr (K::kKeepsTerms && pass + 1 == K::kPasses) return k.term(s, l, x);
  else return x;
}

// What a scan carries: a sum of thousands of float32 in float64, as torch does.
template <class T>
using accumulator_t = std::conditional_t<std::is_same_v<T, float>, double, acc_t<T>>;

// The row that is scanned: its number among all rows, its segment, whether it comes first there.
struct ScanRow {
  int64_t row, segment;
  bool first;
};

}  // namespace lod::LOD_LEVEL

#ifdef LOD_LANES
#include "torch_lod/cpu_driver.h"
#include "torch_lod/segment_reduce.h"
#include "torch_lod/segment_scan.h"
#else
#include "torch_lod/gpu_tiles.h"
#endif
