// Defines every operator by its schema, and implements what a LoD asks about structure.
// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "rows.h"
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

// [0, longest of level 0, longest of level 1, ...], or [rule, level, index, expected, found] for the first rule broken:
// 1 a level without offsets, 2 start, 3 order, 4 end: the sequences of the next level, or the rows (if >= 0). Offsets
// that are `kept` are the LoD's own, which nobody writes to: what was found is marked on them.
std::vector<int64_t> check_lod(at::TensorList offsets, int64_t rows, bool kept) {
  const auto depth = int64_t(offsets.size());
  std::vector<int64_t> report{0}, ends;
  for (int64_t level = 0; level < depth; ++level) {
    const Tensor& t = offsets[level];
    TORCH_CHECK_TYPE(t.is_cpu() && t.scalar_type() == at::kLong && t.dim() == 1 && t.is_contiguous(),
                     "check_lod: expected contiguous 1-D int64 offsets in host memory");
    if (t.numel() == 0) return {1, level, 0, 1, 0};
  }
  for (int64_t level = 0; level < depth; ++level) {
    const auto* o = offsets[level].const_data_ptr<int64_t>();
    const int64_t count = offsets[level].numel(), end = level + 1 < depth ? offsets[level + 1].numel() - 1 : rows;
    const Fault fault = find_fault(o, count, end, LOD_PICK(rise_of)(o, count));
    if (fault.rule) return {1 + fault.rule, level, fault.index, fault.before, fault.here};
    report.push_back(fault.longest);
    ends.push_back(o[count - 1]);
  }
  for (int64_t level = 0; kept && level < depth; ++level) mark(offsets[level], ends[level], true);
  return report;
}

Tensor rank(const Tensor& given) {
  check_offsets_kind("rank_by_length", given, c10::Device(c10::kCPU), "offsets");
  const Tensor offsets = checked_offsets("rank_by_length", given, -1, "offsets");
  Tensor order = at::empty({offsets.numel() - 1}, offsets.options());
  rank_by_length(offsets.const_data_ptr<int64_t>(), order.numel(), order.mutable_data_ptr<int64_t>());
  return order;
}

// Marks structure that nobody writes to from now on, as one LoD's is; in host memory it is checked first. A copy of it
// on a GPU is the caller's word, and so is that runs do not meet: kernels clamp there.
void keep_structure(const Tensor& structure, int64_t rows, bool cuts, bool apart) {
  const char* op = "keep_structure";
  check_index(op, "structure", structure, structure.is_meta() ? c10::Device(c10::kCPU) : structure.device());
  if (structure.is_cpu() && cuts) {
    check_offsets_kind(op, structure, structure.device(), "structure");
    checked_offsets(op, structure, rows, "structure");
  } else if (structure.is_cpu()) {
    checked_map(op, "structure", structure, rows);
  }
  if (structure.is_contiguous()) mark(structure, rows, cuts, apart);
}

using CheckLod = Call<"check_lod", std::vector<int64_t>(at::TensorList offsets, int64_t rows, bool kept)>;
using RankByLength = Call<"rank_by_length", Tensor(const Tensor& offsets)>;
using KeepStructure = Call<"keep_structure", void(const Tensor& structure, int64_t rows, bool cuts, bool apart)>;

}  // namespace

TORCH_LIBRARY_IMPL(torch_lod, CompositeExplicitAutograd, m) {
  m.impl(CheckLod::name, &Gated<CheckLod, check_lod>::run);
  m.impl(RankByLength::name, &Gated<RankByLength, rank>::run);
  m.impl(KeepStructure::name, &Gated<KeepStructure, keep_structure>::run);
}

}  // namespace lod
