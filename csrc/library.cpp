// Every operator's schema, on one page, and the check that every LoD passes once.
//
// values: rows first. map: output row -> input row, -1 for none. row_offsets: int64, (segments + 1), from 0 to rows; on the device of values,
// but in host memory for the recurrences, whose steps the host plans. The *_composed forms are made of torch operators (by
// torch_lod/ops/composed.py) and serve gradients of gradients.
// SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "rows.h"
#include "torch_lod/binding.h"
#include "torch_lod/rank.h"

TORCH_LIBRARY(torch_lod, m) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  m.def("check_lod(Tensor[] offsets, int rows) -> int[]", tags);
  m.def("rank_by_length(Tensor offsets) -> Tensor", tags);

  m.def("run_map(Tensor starts, Tensor row_offsets, SymInt rows, int step=1) -> Tensor", tags);
  m.def("gather_rows(Tensor values, Tensor map, Scalar fill=0) -> Tensor", tags);
  m.def("scatter_rows(Tensor values, Tensor map, SymInt rows) -> Tensor", tags);

  m.def("gather_runs(Tensor values, Tensor starts, Tensor row_offsets, SymInt rows, int step=1) -> Tensor", tags);
  m.def("scatter_runs(Tensor values, Tensor starts, Tensor row_offsets, SymInt rows, int step=1, Scalar fill=0) -> Tensor", tags);
  m.def("segment_unfold(Tensor values, Tensor row_offsets, SymInt size, int start, int dilation=1, Scalar fill=0) -> Tensor", tags);
  m.def("segment_fold(Tensor values, Tensor row_offsets, int start, int dilation=1) -> Tensor", tags);

  m.def("segment_reduce(Tensor values, Tensor row_offsets, str reduce, float pad_value=0.0) -> Tensor", tags);
  m.def("segment_extreme(Tensor values, Tensor row_offsets, str reduce, float pad_value=0.0) -> (Tensor, Tensor)", tags);
  m.def("segment_broadcast(Tensor values, Tensor row_offsets, SymInt rows, str reduce='sum') -> Tensor", tags);
  m.def("segment_pick(Tensor values, Tensor index, Tensor row_offsets) -> Tensor", tags);
  m.def("segment_place(Tensor values, Tensor index, Tensor row_offsets, SymInt rows) -> Tensor", tags);
  m.def("segment_softmax(Tensor values, Tensor row_offsets) -> Tensor", tags);
  m.def("segment_softmax_backward(Tensor grad, Tensor output, Tensor row_offsets) -> Tensor", tags);
  m.def(
      "segment_conv(Tensor values, Tensor weight, Tensor? bias, Tensor row_offsets, SymInt start, int dilation=1) -> Tensor", tags);
  m.def(
      "segment_conv_weight(Tensor values, Tensor grad, Tensor row_offsets, SymInt size, SymInt start, int dilation=1) -> Tensor", tags);
  m.def("segment_scan(Tensor values, Tensor? factors, Tensor row_offsets, bool adjoint=False) -> Tensor", tags);
  m.def("segment_cumulative(Tensor values, Tensor row_offsets, str reduce) -> (Tensor, Tensor)", tags);

  m.def(
      "lstm(Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, Tensor? h_0, Tensor? c_0, "
      "Tensor row_offsets, bool reverse=False, Tensor? weight_hr=None) -> (Tensor, Tensor, Tensor)", tags);
  m.def(
      "lstm_backward(Tensor? grad_output, Tensor? grad_cells, Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? h_0, "
      "Tensor? c_0, Tensor row_offsets, bool reverse, Tensor output, Tensor cells, Tensor gates, Tensor? weight_hr=None) "
      "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)", tags);
  m.def(
      "lstm_composed(Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, Tensor? h_0, "
      "Tensor? c_0, Tensor row_offsets, bool reverse=False, Tensor? weight_hr=None) -> (Tensor, Tensor)", tags);
  m.def(
      "gru(Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, Tensor? h_0, "
      "Tensor row_offsets, bool reverse=False) -> (Tensor, Tensor)", tags);
  m.def(
      "gru_backward(Tensor grad_output, Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? h_0, Tensor row_offsets, "
      "bool reverse, Tensor output, Tensor saved) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)", tags);
  m.def(
      "gru_composed(Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, Tensor? h_0, "
      "Tensor row_offsets, bool reverse=False) -> Tensor", tags);
  m.def(
      "rnn(Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, Tensor? h_0, "
      "Tensor row_offsets, bool reverse=False, bool relu=False) -> Tensor", tags);
  m.def(
      "rnn_backward(Tensor grad_output, Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? h_0, Tensor row_offsets, "
      "bool reverse, bool relu, Tensor output) -> (Tensor, Tensor, Tensor, Tensor, Tensor)", tags);
  m.def(
      "rnn_composed(Tensor values, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, Tensor? h_0, "
      "Tensor row_offsets, bool reverse=False, bool relu=False) -> Tensor", tags);

  m.def(
      "attention(Tensor query, Tensor key, Tensor value, Tensor query_offsets, Tensor key_offsets, Tensor? bias=None, "
      "Tensor? slopes=None, Tensor? seed=None, float? scale=None, int left=-1, int right=-1, float dropout=0.0) -> (Tensor, Tensor)", tags);
  m.def(
      "attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor query_offsets, Tensor key_offsets, "
      "Tensor? bias, Tensor? slopes, Tensor? seed, float? scale, int left, int right, float dropout, Tensor output, "
      "Tensor logsumexp, bool biases) -> (Tensor, Tensor, Tensor, Tensor, Tensor)", tags);
  m.def(
      "attention_composed(Tensor query, Tensor key, Tensor value, Tensor query_offsets, Tensor key_offsets, Tensor? bias=None, "
      "Tensor? slopes=None, Tensor? seed=None, float? scale=None, int left=-1, int right=-1, float dropout=0.0) -> Tensor", tags);
}

namespace lod {
namespace {

// [0, longest of level 0, longest of level 1, ...], or [rule, level, index, expected, found] for the first rule broken:
// 1 a level without offsets, 2 start, 3 order, 4 end: the sequences of the next level, or the rows (rows < 0: unchecked).
std::vector<int64_t> check_lod(at::TensorList offsets, int64_t rows) {
  const auto depth = int64_t(offsets.size());
  std::vector<int64_t> report{0};
  for (int64_t level = 0; level < depth; ++level) {
    const Tensor& t = offsets[level];
    TORCH_CHECK_TYPE(t.is_cpu() && t.scalar_type() == at::kLong && t.dim() == 1 && t.is_contiguous(),
                     "check_lod: expected contiguous 1-D int64 offsets in host memory");
    if (t.numel() == 0) return {1, level, 0, 1, 0};
  }
  for (int64_t level = 0; level < depth; ++level) {
    const auto* o = offsets[level].const_data_ptr<int64_t>();
    const int64_t count = offsets[level].numel();
    const Fault fault = find_fault(o, count, level + 1 < depth ? offsets[level + 1].numel() - 1 : rows);
    if (fault.rule) return {1 + fault.rule, level, fault.index, fault.before, fault.here};
    report.push_back(fault.longest);
  }
  return report;
}

Tensor rank(const Tensor& given) {
  check_offsets_kind("rank_by_length", given, c10::Device(c10::kCPU));
  const Tensor offsets = checked_offsets("rank_by_length", given, -1);
  Tensor order = at::empty({offsets.numel() - 1}, offsets.options());
  rank_by_length(offsets.const_data_ptr<int64_t>(), order.numel(), order.mutable_data_ptr<int64_t>());
  return order;
}

}  // namespace

TORCH_LIBRARY_IMPL(torch_lod, CompositeExplicitAutograd, m) {
  m.impl("check_lod", &check_lod);
  m.impl("rank_by_length", &rank);
}

}  // namespace lod
