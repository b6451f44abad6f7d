// Defines every operator by its schema, and implements what a LoD asks about structure.
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/structure_api.h"
#include "torch_lod/operator.h"
#include "torch_lod/rank.h"

#include <map>
#include <sstream>

TORCH_LIBRARY(torch_lod, m) {
  std::istringstream page(
#include "torch_lod/schemas.h"
  );
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  std::map<std::string, std::string> lists;  // of arguments, by name
  for (std::string line; std::getline(page, line);) {
    if (line.empty() || line[0] == '#') continue;
    for (size_t at; (at = line.find('{')) != line.npos;) {
      const size_t end = line.find('}', at);
      line.replace(at, end + 1 - at, lists.at(line.substr(at + 1, end - at - 1)));
    }
    const size_t name = line.find_first_of(" (");
    if (line[name] == '(') m.def(line.c_str(), tags);
    else lists[line.substr(0, name)] = line.substr(name + 3);
  }
}

namespace lod {
namespace {

// [0, rows, longest of level 0, longest of level 1, ...], or [rule, level, index, expected, found] for the first rule
// broken: 1 a level without offsets, 2 start, 3 order, 4 end: the sequences of the next level, or the rows (if >= 0).
// Offsets that are `kept` are the LoD's own, which is never written to: what was found is marked on them.
std::vector<int64_t> check_lod(at::TensorList offsets, int64_t rows, bool kept) {
  const auto depth = int64_t(offsets.size());
  std::vector<int64_t> report{0, 0}, ends;
  for (int64_t level = 0; level < depth; ++level) {
    const Tensor& t = offsets[level];
    TORCH_CHECK_TYPE(t.is_cpu() && t.scalar_type() == at::kLong && t.dim() == 1 && t.is_contiguous(),
                     "check_lod: expected contiguous 1-D int64 offsets in host memory");
    if (t.numel() == 0) return {1, level, 0, 1, 0};
  }
  for (int64_t level = 0; level < depth; ++level) {
    const auto* o = offsets[level].const_data_ptr<int64_t>();
    const int64_t count = offsets[level].numel(), end = level + 1 < depth ? offsets[level + 1].numel() - 1 : rows;
    const Fault fault = find_fault(o, count, end, kernels::order_of_offsets(o, count));
    if (fault.rule) return {1 + fault.rule, level, fault.index, fault.before, fault.here};
    report.push_back(fault.longest);
    ends.push_back(report[1] = o[count - 1]);
  }
  for (int64_t level = 0; kept && level < depth; ++level) mark(offsets[level], ends[level], true);
  return report;
}

// Runs of elements of a level that has `elements`: starts[s] is the first of run s, and lengths[s] how many they are.
// If there are offsets `within`, run s is one of segment s, and starts[s] counts from its first element, where it is
// without starts; without lengths, it is the first (or the last) `most` elements of segment s, or all of a shorter one.
// With the levels below, and their result:
//   the offsets of the runs, those of every level below and, where there is any, the offsets of the runs in rows;
//   the first row of every run;
//   [rows, longest run, longest sequence of the first level below, ...].
using RunsTaken = std::tuple<std::vector<Tensor>, Tensor, std::vector<int64_t>>;
constexpr int64_t kMostTaken = int64_t(1) << 62;

// The offsets of the levels below, checked; `rows`, the elements that the first of them belongs to, becomes the rows
// that the last one cuts.
std::vector<Tensor> levels_below(const char* op, at::TensorList levels, int64_t& rows) {
  std::vector<Tensor> below;
  for (size_t k = 0; k < levels.size(); ++k) {
    const std::string name = c10::str("levels[", k, "]");
    check_offsets_kind(op, levels[k], c10::kCPU, name.c_str());
    TORCH_CHECK_VALUE(levels[k].size(0) - 1 == rows, op, ": expected ", name, " with ", rows + 1, " offsets, got ",
                      levels[k].size(0));
    below.push_back(checked_offsets(op, levels[k], -1, name.c_str()));
    rows = below[k].const_data_ptr<int64_t>()[rows];
    TORCH_CHECK_VALUE(rows < kMostTaken, op, ": expected ", name, " to end below 2**62, got ", rows);
  }
  return below;
}

// n runs of elements, as take_runs is told them: `starts` and `lengths` contiguous, undefined where there are none.
struct RunsToTake {
  const char* op;
  int64_t n, elements;
  Tensor starts, lengths, within;
  int64_t most;
  bool last;

  const int64_t* segments(int64_t low) const {
    return within.defined() ? within.const_data_ptr<int64_t>() + low : nullptr;
  }

  // Copies runs low to low + m, which others may write to, and checks the copy; the longest.
  int64_t copy(int64_t low, int64_t m, int64_t* from, int64_t* count) const {
    const int64_t* in = segments(low);
    if (!lengths.defined()) return kernels::parts_of(in, from, count, m, most, last);
    if (starts.defined()) std::memcpy(from, starts.const_data_ptr<int64_t>() + low, m * sizeof(int64_t));
    else std::fill_n(from, m, 0);
    std::memcpy(count, lengths.const_data_ptr<int64_t>() + low, m * sizeof(int64_t));
    const IndexBounds reach = kernels::bounds_of_runs(from, count, in, m, elements);
    for (int64_t i = 0; !reach.fits && i < m; ++i) {
      const int64_t room = in ? in[i + 1] - in[i] : elements;
      TORCH_CHECK_INDEX(count[i] >= 0 && count[i] <= room && from[i] >= 0 && from[i] <= room - count[i], op,
                        ": expected runs within [0, ", room, "), got ", count[i], " elements from ", from[i],
                        " at index ", low + i);
    }
    return reach.longest;
  }

  // Writes the first element of every run and the offsets of the runs; the longest, and how they lie.
  std::pair<int64_t, RunLayout> lay(int64_t* first, int64_t* cut) const {
    constexpr int64_t part = 512;  // what the cache holds at a time
    int64_t count[part], from[part], longest = 0;
    RunLayout lie{true, true, true};
    cut[0] = 0;
    for (int64_t low = 0; low < n; low += part) {
      const int64_t m = std::min(part, n - low), most_here = copy(low, m, from, count);
      const bool few = most_here < kMostTaken / part;  // then a part's sum is below 2**62, as that of two such sums
      for (int64_t i = 0, sum = cut[low]; !few && i < m; ++i) check_sum(sum += count[i]);
      kernels::lay_runs(from, count, segments(low), m, cut[low], first + low, cut + low + 1);
      check_sum(cut[low + m]);
      longest = std::max(longest, most_here);
      if (within.defined()) continue;
      const RunLayout here = kernels::layout_of_runs(first + low, cut + low, m, 1, elements);
      const bool behind = low == 0 || first[low] >= first[low - 1] + cut[low] - cut[low - 1];
      lie = {true, lie.same && here.same, lie.rise && here.rise && behind};
    }
    if (within.defined()) {  // runs of segments rise, each as far behind its place as the one before it, or farther
      int64_t s = n - 1;
      while (s >= 0 && cut[s] == cut[s + 1]) --s;
      lie.same = s < 0 || first[s] == cut[s];
    }
    return {longest, lie};
  }
  void check_sum(int64_t sum) const {
    TORCH_CHECK_VALUE(sum < kMostTaken, op, ": expected lengths that add up to less than 2**62, got more");
  }
};

// The offsets of a level below runs of its elements, and their longest step. `first` and `cuts`, the runs, become those
// of what the level cuts.
std::pair<Tensor, int64_t> descend(const char* op, const Tensor& level, int64_t* first, Tensor& cuts) {
  const int64_t n = cuts.numel() - 1;
  const auto *in = level.const_data_ptr<int64_t>(), *cut = cuts.const_data_ptr<int64_t>();
  const Tensor out = new_longs(cut[n] + 1), next = new_longs(n + 1);
  auto *o = out.mutable_data_ptr<int64_t>(), *end = next.mutable_data_ptr<int64_t>();
  int64_t longest = 0;
  o[0] = end[0] = 0;
  for (int64_t s = 0; s < n; ++s) {
    const int64_t *from = in + first[s], length = cut[s + 1] - cut[s], shift = end[s] - from[0];
    int64_t* to = o + cut[s];
    for (int64_t j = 1; j <= length; ++j) {
      const int64_t step = from[j] - from[j - 1];
      longest = step > longest ? step : longest;
      to[j] = from[j] + shift;
    }
    end[s + 1] = from[length] + shift;
    TORCH_CHECK_VALUE(end[s + 1] < kMostTaken, op, ": expected fewer than 2**62 rows, got more");
    first[s] = from[0];
  }
  cuts = next;
  return {out, longest};
}

RunsTaken take_runs(at::TensorList levels, const OptionalTensor& starts, const OptionalTensor& lengths,
                    int64_t elements, bool kept, const OptionalTensor& given, int64_t most, bool last) {
  const char* op = "take_runs";
  const c10::InferenceMode no(false);  // a LoD outlives the mode that it was made in
  TORCH_CHECK_VALUE(0 <= elements && elements < kMostTaken, op, ": expected elements in [0, 2**62), got ", elements);
  TORCH_CHECK_TYPE(starts || given, op, ": expected starts where there is no within, got None");
  TORCH_CHECK_TYPE(lengths || (given && !starts), op, ": expected lengths where there are starts, got None");
  TORCH_CHECK_VALUE(lengths || most >= 0, op, ": expected most >= 0 where there are no lengths, got ", most);
  if (lengths) check_index(op, "lengths", *lengths, c10::kCPU);
  else check_offsets_kind(op, *given, c10::kCPU, "within");
  const int64_t n = lengths ? lengths->size(0) : given->size(0) - 1;
  if (starts) {
    check_index(op, "starts", *starts, c10::kCPU);
    TORCH_CHECK_VALUE(starts->size(0) == n, op, ": expected one of starts per run, ", n, ", got ", starts->size(0));
  }
  int64_t rows = elements;
  const std::vector<Tensor> below = levels_below(op, levels, rows);
  Tensor within;
  if (given) {
    check_offsets_kind(op, *given, c10::kCPU, "within");
    TORCH_CHECK_VALUE(given->size(0) == n + 1, op, ": expected within with ", n + 1, " offsets, got ", given->size(0));
    within = checked_offsets(op, *given, elements, "within", "the elements");
  }
  const Tensor begin = new_longs(n);
  auto* first = begin.mutable_data_ptr<int64_t>();
  std::vector<Tensor> taken{new_longs(n + 1)};
  Tensor cuts = taken[0];
  const RunsToTake runs{op, n, elements, readable(starts), readable(lengths), within, most, last};
  const auto [longest, lie] = runs.lay(first, cuts.mutable_data_ptr<int64_t>());
  std::vector<int64_t> report{0, longest};
  for (const Tensor& level : below) {
    const auto [offsets, most_below] = descend(op, level, first, cuts);
    taken.push_back(offsets);
    report.push_back(most_below);
  }
  report[0] = cuts.const_data_ptr<int64_t>()[n];
  if (!below.empty()) taken.push_back(cuts);
  if (!kept) return {taken, begin, report};
  for (const Tensor& t : taken) mark(t, t.const_data_ptr<int64_t>()[t.numel() - 1], /*cuts=*/true);
  mark(begin, rows + 1, /*cuts=*/false);  // an empty run may begin behind the last row
  if (below.empty()) known(begin)->lie(*known(cuts), elements, 1, [lie = lie] { return lie; });
  return {taken, begin, report};
}

// The offsets of LoDs of `depth` levels, one LoD's behind the other's, checked.
std::vector<Tensor> checked_levels(const char* op, at::TensorList levels, int64_t depth) {
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < int64_t(levels.size()); ++i) {
    const Tensor& t = levels[i];
    const int64_t end = (i + 1) % depth ? levels[i + 1].numel() - 1 : -1;
    if (t.is_cpu() && t.dim() == 1 && known_to_cut(t, end)) {
      parts.push_back(t);
    } else {
      const std::string name = c10::str("levels[", i, "]");
      check_offsets_kind(op, t, c10::kCPU, name.c_str());
      parts.push_back(checked_offsets(op, t, end, name.c_str(), "the next level"));
    }
  }
  return parts;
}

// Sequences `begin` to `end` of the outermost level, with the levels below: their offsets, and [the first row, rows,
// longest of level 0, longest of level 1, ...].
using LodCut = std::tuple<std::vector<Tensor>, std::vector<int64_t>>;

LodCut cut_lod(at::TensorList levels, int64_t begin, int64_t end, bool kept) {
  const char* op = "cut_lod";
  const c10::InferenceMode no(false);  // a LoD outlives the mode that it was made in
  TORCH_CHECK_VALUE(!levels.empty(), op, ": expected at least 1 level, got none");
  std::vector<Tensor> parts = checked_levels(op, levels, int64_t(levels.size()));
  TORCH_CHECK_INDEX(0 <= begin && begin <= end && end < parts[0].numel(), op, ": expected 0 <= begin <= end <= ",
                    parts[0].numel() - 1, ", got ", begin, " and ", end);
  std::vector<int64_t> report{0, 0};
  for (Tensor& part : parts) {
    const auto* from = part.const_data_ptr<int64_t>() + begin;
    const int64_t n = end - begin;
    const Tensor cut = new_longs(n + 1);
    auto* o = cut.mutable_data_ptr<int64_t>();
    o[0] = 0;
    report.push_back(kernels::append_offsets(from, o, n, -from[0]));
    begin = from[0], end = from[n];
    if (kept) mark(cut, end - begin, /*cuts=*/true);
    part = cut;
  }
  report[0] = begin, report[1] = end - begin;
  return {parts, report};
}

// One behind another: the offsets of a level of several LoDs, `depth` of each in `parts`, group by group. bounds[j] are
// where the groups begin and end among the sequences of LoD j, and become those among what the sequences consist of.
int64_t join_level(const std::vector<Tensor>& parts, int64_t k, int64_t depth,
                   std::vector<std::vector<int64_t>>& bounds, const Tensor& joined) {
  auto* o = joined.mutable_data_ptr<int64_t>();
  int64_t at = 0, longest = 0;
  o[0] = 0;
  for (size_t g = 0; g + 1 < bounds[0].size(); ++g)
    for (size_t j = 0; j < bounds.size(); ++j) {
      const int64_t begin = bounds[j][g], n = bounds[j][g + 1] - begin;
      const auto* from = parts[j * depth + k].const_data_ptr<int64_t>() + begin;
      longest = std::max(longest, kernels::append_offsets(from, o + at, n, o[at] - from[0]));
      at += n;
    }
  for (size_t j = 0; j < bounds.size(); ++j)
    for (int64_t& bound : bounds[j]) bound = parts[j * depth + k].const_data_ptr<int64_t>()[bound];
  return longest;
}

// The sums of the outermost offsets of several LoDs, which become the bounds of the groups below; the longest step.
int64_t add_level(const std::vector<Tensor>& parts, int64_t depth, std::vector<std::vector<int64_t>>& bounds,
                  const Tensor& sums) {
  auto* o = sums.mutable_data_ptr<int64_t>();
  const int64_t count = sums.numel();
  std::fill_n(o, count, 0);
  for (size_t j = 0; j < bounds.size(); ++j) {
    const auto* from = parts[j * depth].const_data_ptr<int64_t>();
    for (int64_t i = 0; i < count; ++i) o[i] += from[i];
    if (depth > 1) bounds[j].assign(from, from + count);
  }
  return kernels::order_of_offsets(o, count).longest;
}

// The offsets of several LoDs, `depth` of each, one LoD's behind the other's: those of all their sequences, one after
// another, or with `within` of sequences that are sequence i of every LoD, one after another; and [rows, longest of
// level 0, longest of level 1, ...].
using LodsJoined = std::tuple<std::vector<Tensor>, std::vector<int64_t>>;

LodsJoined join_lods(at::TensorList levels, int64_t depth, bool kept, bool within) {
  const char* op = "join_lods";
  const c10::InferenceMode no(false);  // a LoD outlives the mode that it was made in
  const auto all = int64_t(levels.size());
  TORCH_CHECK_VALUE(depth > 0 && all > 0 && all % depth == 0, op, ": expected depth offsets of every LoD, got ", all,
                    " and a depth of ", depth);
  const std::vector<Tensor> parts = checked_levels(op, levels, depth);
  for (int64_t i = depth; within && i < all; i += depth)
    TORCH_CHECK_VALUE(parts[i].numel() == parts[0].numel(), op, ": expected equally many sequences, got ",
                      parts[0].numel() - 1, " and ", parts[i].numel() - 1, " at index ", i / depth);
  std::vector<std::vector<int64_t>> bounds(all / depth);
  for (int64_t j = 0; !within && j < all; j += depth) bounds[j / depth] = {0, parts[j].numel() - 1};  // of one group
  std::vector<Tensor> joined;
  std::vector<int64_t> report{0};
  for (int64_t k = 0; k < depth; ++k) {
    const bool adds = within && k == 0;
    int64_t count = adds ? parts[0].numel() : 1, end = 0;
    for (int64_t i = k; i < all; i += depth) {
      const int64_t n = parts[i].numel() - 1;
      if (!adds) count += n;
      TORCH_CHECK_VALUE(!__builtin_add_overflow(end, parts[i].const_data_ptr<int64_t>()[n], &end), op,
                        ": expected offsets that add up to less than 2**63, got more");
    }
    joined.push_back(new_longs(count));
    report.push_back(adds ? add_level(parts, depth, bounds, joined[k])
                          : join_level(parts, k, depth, bounds, joined[k]));
    if (kept) mark(joined[k], end, /*cuts=*/true);
    report[0] = end;
  }
  return {joined, report};
}

// Where positions in segments are among all rows, -1 for none, and whether every one is in its segment: what else it
// says then is of no use. `index` has `each` positions for every row that index_offsets cut.
using Located = std::tuple<Tensor, bool>;

Located locate(const Tensor& index, const Tensor& index_offsets, const Tensor& row_offsets, int64_t each,
               bool absolute) {
  const char* op = "locate";
  check_index(op, "index", index, c10::kCPU);
  check_offsets_kind(op, index_offsets, c10::kCPU, "index_offsets");
  check_offsets_kind(op, row_offsets, c10::kCPU, "row_offsets");
  TORCH_CHECK_VALUE(each > 0 && index.numel() % each == 0, op, ": expected each to divide the ", index.numel(),
                    " entries of index, got ", each);
  TORCH_CHECK_VALUE(index_offsets.numel() == row_offsets.numel(), op, ": expected index_offsets with the ",
                    row_offsets.numel(), " offsets of row_offsets, got ", index_offsets.numel());
  const Tensor cuts = checked_offsets(op, index_offsets, index.numel() / each, "index_offsets", "index");
  const Tensor within = checked_offsets(op, row_offsets, -1), from = readable(index), map = new_longs(index.numel());
  const int64_t n = within.numel() - 1;
  const auto* rows = within.const_data_ptr<int64_t>();
  const bool fits = kernels::locate(from.const_data_ptr<int64_t>(), cuts.const_data_ptr<int64_t>(), rows, n, each,
                                    absolute, map.mutable_data_ptr<int64_t>());
  if (fits) mark(map, rows[n], /*cuts=*/false);
  return {map, fits};
}

Tensor rank(const Tensor& given) {
  check_offsets_kind("rank_by_length", given, c10::Device(c10::kCPU), "offsets");
  const Tensor offsets = checked_offsets("rank_by_length", given, -1, "offsets");
  Tensor order = at::empty({offsets.numel() - 1}, offsets.options());
  rank_by_length(offsets.const_data_ptr<int64_t>(), order.numel(), order.mutable_data_ptr<int64_t>());
  return order;
}

// Marks structure that is not written to from now on, as one LoD's is; in host memory it is checked first. A copy of it
// on a GPU is the caller's word, and so are that runs do not meet, the longest segment and `host`, the offsets that
// were copied there: kernels clamp there.
void keep_structure(const Tensor& structure, int64_t rows, bool cuts, bool apart, int64_t longest,
                    const OptionalTensor& host) {
  const char* op = "keep_structure";
  check_index(op, "structure", structure, structure.is_meta() ? c10::Device(c10::kCPU) : structure.device());
  if (structure.is_cpu() && cuts) {
    check_offsets_kind(op, structure, structure.device(), "structure");
    checked_offsets(op, structure, rows, "structure");
  } else if (structure.is_cpu()) {
    checked_map(op, "structure", structure, rows);
  }
  if (host) {
    check_offsets_kind(op, *host, at::kCPU, "host");
    TORCH_CHECK_VALUE(host->numel() == structure.numel(), op, ": expected host with the ", structure.numel(),
                      " offsets of structure, got ", host->numel());
  }
  if (structure.is_contiguous()) mark(structure, rows, cuts, apart, longest, host.value_or(Tensor()));
}

using CheckLod = Call<"check_lod", std::vector<int64_t>(at::TensorList offsets, int64_t rows, bool kept)>;
using TakeRuns =
    Call<"take_runs", RunsTaken(at::TensorList levels, const OptionalTensor& starts, const OptionalTensor& lengths,
                                int64_t elements, bool kept, const OptionalTensor& within, int64_t most, bool last)>;
using CutLod = Call<"cut_lod", LodCut(at::TensorList levels, int64_t begin, int64_t end, bool kept)>;
using JoinLods = Call<"join_lods", LodsJoined(at::TensorList levels, int64_t depth, bool kept, bool within)>;
using Locate = Call<"locate", Located(const Tensor& index, const Tensor& index_offsets, const Tensor& row_offsets,
                                      int64_t each, bool absolute)>;
using RankByLength = Call<"rank_by_length", Tensor(const Tensor& offsets)>;
using KeepStructure = Call<"keep_structure", void(const Tensor& structure, int64_t rows, bool cuts, bool apart,
                                                  int64_t longest, const OptionalTensor& host)>;

}  // namespace

TORCH_LIBRARY_IMPL(torch_lod, CompositeExplicitAutograd, m) {
  m.impl(CheckLod::name, &Gated<CheckLod, check_lod>::run);
  m.impl(TakeRuns::name, &Gated<TakeRuns, take_runs>::run);
  m.impl(CutLod::name, &Gated<CutLod, cut_lod>::run);
  m.impl(JoinLods::name, &Gated<JoinLods, join_lods>::run);
  m.impl(Locate::name, &Gated<Locate, locate>::run);
  m.impl(RankByLength::name, &Gated<RankByLength, rank>::run);
  m.impl(KeepStructure::name, &Gated<KeepStructure, keep_structure>::run);
}

}  // namespace lod
