// Binding of the shape "attention".
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/attention_api.h"
#include "bindings/upload.h"

#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

namespace lod {
namespace {

using TwoTensors = std::tuple<Tensor, Tensor>;
using SevenTensors = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;
constexpr int64_t kFarthest = int64_t(1) << 40;  // of a window: positions stay within int64

struct Inputs {  // the arguments of attention
  Tensor query, key, value, query_offsets, key_offsets;
  OptionalTensor bias, slopes, seed;
  std::optional<double> scale;
  int64_t left, right;
  double dropout;
  std::optional<double> softcap;
  OptionalTensor sink, distance_bias, key_ends;

  void check(const char* op) const;
  void check_scores(const char* op) const;
  Tensor empty(std::initializer_list<c10::SymInt> shape) const { return at::empty_symint(shape, query.options()); }
  Tensor empty_sums(std::initializer_list<c10::SymInt> shape) const {
    return at::empty_symint(shape, query.options().dtype(summed_in(query)));
  }
};
struct BackwardInputs : Inputs {
  Tensor grad, output, logsumexp;
  bool biases;
};
Inputs pack(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& query_offsets,
            const Tensor& key_offsets, const OptionalTensor& bias, const OptionalTensor& slopes,
            const OptionalTensor& seed, std::optional<double> scale, int64_t left, int64_t right, double dropout,
            std::optional<double> softcap, const OptionalTensor& sink, const OptionalTensor& distance_bias,
            const OptionalTensor& key_ends) {
  return {query, key,   value,   query_offsets, key_offsets, bias,          slopes,  seed, scale, left,
          right, dropout, softcap, sink,          distance_bias, key_ends};
}
BackwardInputs pack_backward(const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
                             const Tensor& query_offsets, const Tensor& key_offsets, const OptionalTensor& bias,
                             const OptionalTensor& slopes, const OptionalTensor& seed, std::optional<double> scale,
                             int64_t left, int64_t right, double dropout, std::optional<double> softcap,
                             const OptionalTensor& sink, const OptionalTensor& distance_bias,
                             const OptionalTensor& key_ends, const Tensor& output, const Tensor& logsumexp,
                             bool biases) {
  return {pack(query, key, value, query_offsets, key_offsets, bias, slopes, seed, scale, left, right, dropout, softcap,
               sink, distance_bias, key_ends),
          grad, output, logsumexp, biases};
}

// -- checks

void check_kind(const char* op, const char* name, const Tensor& t, at::ScalarType dtype, const Tensor& query) {
  TORCH_CHECK_TYPE(t.scalar_type() == dtype && t.device() == query.device(), op, ": expected ", name, " of dtype ",
                   dtype, " on ", query.device(), ", got ", t.scalar_type(), " on ", t.device());
}

void Inputs::check(const char* op) const {
  TORCH_CHECK_VALUE(query.dim() == 3, op, ": expected query of shape (rows, heads, width), got ", query.dim(),
                    " dimensions");
  check_floating(op, "query", query);
  check_kind(op, "key", key, query.scalar_type(), query);
  check_kind(op, "value", value, query.scalar_type(), query);
  const auto heads = query.sym_size(1), width = query.sym_size(2);
  TORCH_CHECK_VALUE(heads.sym_ge(1).guard_bool(__FILE__, __LINE__) && width.sym_ge(1).guard_bool(__FILE__, __LINE__),
                    op, ": expected query with at least one head of at least one number, got ", query.sym_sizes());
  TORCH_CHECK_VALUE(key.dim() == 3 && key.sym_size(2) == width && key.sym_size(1) >= 1 && heads % key.sym_size(1) == 0,
                    op, ": expected key of shape [rows, heads, ", width, "], its heads a divisor of the query's ",
                    heads, ", got ", key.sym_sizes());
  TORCH_CHECK_VALUE(value.dim() == 3 && value.sym_size(0) == key.sym_size(0) && value.sym_size(1) == key.sym_size(1) &&
                        value.sym_size(2) >= 1,
                    op, ": expected value of shape [", key.sym_size(0), ", ", key.sym_size(1), ", width], as key, got ",
                    value.sym_sizes());
  check_offsets_kind(op, query_offsets, query.device(), "query_offsets");
  check_offsets_kind(op, key_offsets, query.device(), "key_offsets");
  TORCH_CHECK_VALUE(query_offsets.sym_size(0) == key_offsets.sym_size(0), op,
                    ": expected as many sequences of keys as of queries, ", query_offsets.sym_size(0) - 1, ", got ",
                    key_offsets.sym_size(0) - 1);
  check_scores(op);
  TORCH_CHECK_VALUE(left >= -1 && left <= kFarthest, op, ": expected left in [-1, 2**40], got ", left);
  TORCH_CHECK_VALUE(right >= -1 && right <= kFarthest, op, ": expected right in [-1, 2**40], got ", right);
  TORCH_CHECK_VALUE(dropout >= 0 && dropout <= 1, op, ": expected dropout in [0, 1], got ", dropout);
  TORCH_CHECK_VALUE(seed || dropout == 0, op, ": expected a seed with dropout ", dropout, ", got none");
  if (seed) {
    check_kind(op, "seed", *seed, at::kLong, query);
    TORCH_CHECK_VALUE(seed->dim() == 0, op, ": expected seed as a scalar, got ", seed->dim(), " dimensions");
  }
  if (key_ends) {
    check_kind(op, "key_ends", *key_ends, at::kLong, query);
    TORCH_CHECK_VALUE(key_ends->dim() == 1 && key_ends->sym_size(0) == query.sym_size(0), op,
                      ": expected key_ends of shape [", query.sym_size(0), "], got ", key_ends->sym_sizes());
  }
}

void Inputs::check_scores(const char* op) const {
  const auto heads = query.sym_size(1);
  if (bias) {
    check_kind(op, "bias", *bias, query.scalar_type(), query);
    TORCH_CHECK_VALUE(bias->dim() == 2 && (bias->sym_size(1) == 1 || bias->sym_size(1) == heads), op,
                      ": expected bias of shape [pairs, 1] or [pairs, ", heads, "], got ", bias->sym_sizes());
  }
  if (slopes) {
    check_kind(op, "slopes", *slopes, summed_in(query), query);
    TORCH_CHECK_VALUE(slopes->dim() == 1 && slopes->sym_size(0) == heads, op, ": expected slopes of shape [", heads,
                      "], got ", slopes->sym_sizes());
  }
  TORCH_CHECK_VALUE(!softcap || (*softcap > 0 && std::isfinite(*softcap)), op,
                    ": expected softcap above 0 and finite, got ", *softcap);
  if (sink) {
    check_kind(op, "sink", *sink, summed_in(query), query);
    TORCH_CHECK_VALUE(sink->dim() == 1 && sink->sym_size(0) == heads, op, ": expected sink of shape [", heads,
                      "], got ", sink->sym_sizes());
  }
  if (distance_bias) {
    check_kind(op, "distance_bias", *distance_bias, summed_in(query), query);
    TORCH_CHECK_VALUE(distance_bias->dim() == 2 && distance_bias->sym_size(0) == heads &&
                          distance_bias->sym_size(1) % 2 == 1,
                      op, ": expected distance_bias of shape [", heads, ", 2 * distance + 1], got ",
                      distance_bias->sym_sizes());
  }
}

// Rows that may lie apart, such as a part of the features of others; the numbers of each are side by side.
Tensor readable_rows(const char* op, const Tensor& t) {
  const bool close = t.stride(2) == 1 && t.stride(1) == t.size(2);
  return close ? t : readable(t);
}

// The first pair of every sequence, and after the last the number of all.
Tensor pair_offsets(const char* op, const Tensor& query_offsets, const Tensor& key_offsets, int64_t pairs) {
  const int64_t n = query_offsets.numel();
  if (!query_offsets.is_cpu()) {
    const auto lengths = [n](const Tensor& t) { return t.narrow(0, 1, n - 1).sub(t.narrow(0, 0, n - 1)); };
    const Tensor none = at::zeros({1}, query_offsets.options());
    const Tensor first = at::cat(std::vector<Tensor>{none, lengths(query_offsets).mul(lengths(key_offsets)).cumsum(0)});
    watch("counts", first, std::nullopt, pairs, -1, 0, op, "bias with a row per pair of query and key of a sequence");
    return first;
  }
  Tensor first = at::zeros({n}, query_offsets.options());
  const auto *q = query_offsets.const_data_ptr<int64_t>(), *k = key_offsets.const_data_ptr<int64_t>();
  auto* o = first.mutable_data_ptr<int64_t>();
  for (int64_t s = 0; s + 1 < n; ++s) {
    int64_t here = 0;
    const bool over = __builtin_mul_overflow(q[s + 1] - q[s], k[s + 1] - k[s], &here) ||
                      __builtin_add_overflow(o[s], here, &o[s + 1]);
    TORCH_CHECK_VALUE(!over, op, ": expected fewer than 2**63 pairs of query and key");
  }
  TORCH_CHECK_VALUE(o[n - 1] == pairs, op, ": expected bias with a row per pair of query and key of a sequence, ",
                    o[n - 1], ", got ", pairs);
  return first;
}

// Kernels look for a key's first query by halves.
void check_key_ends(const char* op, const Tensor& key_ends, const Tensor& query_offsets) {
  if (!key_ends.is_cpu()) {
    const int64_t n = key_ends.numel();
    const Tensor first = at::zeros({n + 1}, key_ends.options()).index_fill_(0, query_offsets.clamp(0, n), 1);
    const int64_t pairs = std::max<int64_t>(n, 1) - 1;  // neighbours, of which the second may begin a sequence
    const Tensor falls = key_ends.narrow(0, n - pairs, pairs).lt(key_ends.narrow(0, 0, pairs));
    watch("truths", falls.logical_and(first.narrow(0, n - pairs, pairs).eq(0)).any().reshape({1}).to(at::kLong),
          std::nullopt, 0, -1, 0, op, "key_ends that do not decrease within a sequence");
    return;
  }
  const auto *ends = key_ends.const_data_ptr<int64_t>(), *cuts = query_offsets.const_data_ptr<int64_t>();
  for (int64_t s = 0; s + 1 < query_offsets.numel(); ++s)
    for (int64_t i = cuts[s] + 1; i < cuts[s + 1]; ++i)
      TORCH_CHECK_VALUE(ends[i] >= ends[i - 1], op,
                        ": expected key_ends that do not decrease within a sequence, got ", ends[i], " after ",
                        ends[i - 1], " at index ", i);
}

// Arguments of the kernels that hold what they point to.
struct Held {
  Tensor query, key, value, query_offsets, key_offsets, bias, slopes, seed, sink, distances, key_ends, pairs;
  Held(const char* op, const Inputs& in)
      : query(readable_rows(op, in.query)),
        key(readable_rows(op, in.key)),
        value(readable_rows(op, in.value)),
        query_offsets(checked_offsets(op, in.query_offsets, query.size(0), "query_offsets", "query")),
        key_offsets(checked_offsets(op, in.key_offsets, key.size(0), "key_offsets", "key")),
        bias(readable(in.bias)),
        slopes(readable(in.slopes)),
        seed(readable(in.seed)),
        sink(readable(in.sink)),
        distances(readable(in.distance_bias)),
        key_ends(readable(in.key_ends)) {
    if (key_ends.defined()) check_key_ends(op, key_ends, query_offsets);
    if (bias.defined()) pairs = pair_offsets(op, query_offsets, key_offsets, bias.size(0));
  }
  int64_t most() const { return distances.defined() ? distances.size(1) / 2 : 0; }
  // How far the table of distances is read: as far as the longest sequence, or all rows, if the host knows no more.
  int64_t reach() const {
    int64_t longest = 0;
    for (const auto& [t, rows] : {std::pair(&query_offsets, query.size(0)), std::pair(&key_offsets, key.size(0))}) {
      if (!t->is_cpu()) {
        const Known* mark = known(*t);
        longest = std::max(longest, mark && mark->cuts && mark->longest >= 0 ? mark->longest : rows);
        continue;
      }
      const auto* cuts = t->const_data_ptr<int64_t>();
      for (int64_t s = 0; s + 1 < t->numel(); ++s) longest = std::max(longest, cuts[s + 1] - cuts[s]);
    }
    return std::min(most(), longest);
  }
  Attention arguments(const Inputs& in) const {
    const auto read = [](const Tensor& t) { return t.defined() ? t.const_data_ptr() : nullptr; };
    const auto stride = [](const Tensor& t) { return t.numel() ? t.stride(0) : 0; };
    return {read(query),
            read(key),
            read(value),
            stride(query),
            stride(key),
            stride(value),
            query_offsets.const_data_ptr<int64_t>(),
            key_offsets.const_data_ptr<int64_t>(),
            query_offsets.numel() - 1,
            query.size(0),
            key.size(0),
            query.size(1),
            key.size(1),
            query.size(2),
            value.size(2),
            in.scale.value_or(1 / std::sqrt(double(query.size(2)))),
            in.left,
            in.right,
            read(bias),
            pairs.defined() ? pairs.const_data_ptr<int64_t>() : nullptr,
            bias.defined() ? bias.size(0) : 0,
            bias.defined() ? bias.size(1) : 1,
            read(slopes),
            in.dropout > 0 ? seed.const_data_ptr<int64_t>() : nullptr,
            in.dropout,
            in.softcap.value_or(0),
            read(sink),
            read(distances),
            most(),
            key_ends.defined() ? key_ends.const_data_ptr<int64_t>() : nullptr};
  }
};

// -- torch's own kernels: float32 on CUDA. Half types take others, above these operators
// (torch_lod/sequence/attend.py).

using GatherRunsOp = Call<"gather_runs", Tensor(const Tensor& values, const Tensor& starts, const Tensor& row_offsets,
                                                c10::SymInt rows, int64_t step)>;
using ScatterRunsOp = Call<"scatter_runs", Tensor(const Tensor& values, const Tensor& starts, const Tensor& row_offsets,
                                                  c10::SymInt rows, int64_t step, const at::Scalar& fill)>;

// What the host knows about the lengths of sequences on a GPU, without waiting for it.
struct Lengths {
  int64_t queries, keys;  // of the longest
  bool equal = true;      // of every sequence: as many queries as keys
  bool fewer = true;      // no more queries than keys
  bool paired = true;     // queries where there are keys, and keys where there are queries
};

std::optional<Lengths> known_lengths(const Tensor& query_offsets, const Tensor& key_offsets) {
  const Known *query = known(query_offsets), *key = known(key_offsets);
  if (!query || !key || !query->cuts || !key->cuts) return std::nullopt;
  Lengths found{query->longest, key->longest};
  if (query == key) return found;
  const Tensor &q = query->host, &k = key->host;
  if (!q.defined() || !k.defined() || !known_to_cut(q, query->rows) || !known_to_cut(k, key->rows)) return std::nullopt;
  const auto *queries = q.const_data_ptr<int64_t>(), *keys = k.const_data_ptr<int64_t>();
  for (int64_t s = 0; s + 1 < std::min(q.numel(), k.numel()); ++s) {
    const int64_t m = queries[s + 1] - queries[s], n = keys[s + 1] - keys[s];
    found.equal &= m == n;
    found.fewer &= m <= n;
    found.paired &= (m > 0) == (n > 0);
  }
  return found;
}

struct Library {
  const Held& held;
  const Inputs& in;
  std::optional<Lengths> lengths;

  Library(const Held& held, const Inputs& in) : held(held), in(in) {
    if (LOD_IS_GPU(held.query)) lengths = known_lengths(held.query_offsets, held.key_offsets);
  }
  bool takes() const {
    return lengths && held.query.scalar_type() == at::kFloat && held.key.size(1) == held.query.size(1) &&
           plain_scores() && mask_fits() && rows_fit(held.query, lengths->queries) &&
           rows_fit(held.key, lengths->keys) && rows_fit(held.value, lengths->keys) && output_fits() && worth_it();
  }
  // torch's dropout is not the one that a seed promises: the same weights on every device, and in need_weights.
  bool plain_scores() const {
    return !in.bias && !in.slopes && in.dropout == 0 && !in.softcap && !in.sink && !in.distance_bias && !in.key_ends;
  }
  // Every query sees a key and every key belongs to queries: torch's kernel writes no result for others. It has windows
  // for causal masks; those aligned to the end are left out, whose backward xFormers, its source, lists as wrong.
  bool mask_fits() const {
    if (!lengths->paired || in.right > 0) return false;
    return in.right < 0 ? !window() : lengths->equal || (lengths->fewer && !window());
  }
  // Its words of 16 bytes, and its offsets of elements in 32 bits.
  static bool rows_fit(const Tensor& t, int64_t longest) {
    return longest > 0 && longest <= t.size(0) && t.size(0) * t.stride(0) < kMost && t.size(2) % 4 == 0 &&
           t.size(2) <= 256 && aligned(t) && t.stride(0) % 4 == 0;
  }
  bool output_fits() const { return held.query.size(0) * held.query.size(1) * held.value.size(2) < kMost; }
  // Work enough for the calls around it, and sums of exponentials that take no more memory than queries.
  bool worth_it() const {
    const int64_t rows = held.query.size(0), width = held.query.size(2);
    return starts_apart() * sequences() <= rows * width &&
           rows * held.query.size(1) * width >= (int64_t(1) << 26) / lengths->keys;
  }
  static constexpr int64_t kMost = int64_t(1) << 31;
  static bool aligned(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.const_data_ptr()) % 16 == 0; }
  static Tensor moved(const Tensor& t) { return aligned(t) ? t : t.clone(); }
  int64_t sequences() const { return held.query_offsets.numel() - 1; }
  int64_t starts_apart() const { return (lengths->queries + 31) / 32 * 32; }  // of the sums of two sequences
  // Rising, within the rows, and no sequence longer than there is room for, whatever a caller has marked.
  static Tensor cuts(const Tensor& offsets, int64_t rows, int64_t longest) {
    const int64_t n = offsets.numel();
    if (const Tensor& host = known(offsets)->host; host.defined() && host.numel() == n && known_to_cut(host, rows)) {
      const Tensor words = uploaded(offsets, offsets.device(), 2, (n + 1) / 2, [&](int64_t* to) {
        const auto* from = host.const_data_ptr<int64_t>();
        auto* cut = reinterpret_cast<int32_t*>(to);
        for (int64_t s = 0, last = 0; s < n; ++s)
          cut[s] = int32_t(last = s ? std::clamp(from[s], last, std::min(rows, last + longest)) : 0);
      });
      return words.view(at::kInt).narrow(0, 0, n);
    }
    const Tensor steps = at::arange(offsets.numel(), offsets.options()).mul(longest);
    const Tensor rising = std::get<0>(offsets.clamp(0, rows).cummax(0));
    return std::get<0>(rising.sub(steps).cummin(0)).add(steps).to(at::kInt);
  }
  Tensor query_cuts() const { return cuts(held.query_offsets, held.query.size(0), lengths->queries); }
  Tensor key_cuts(const Tensor& query_cuts) const {
    if (held.query_offsets.is_same(held.key_offsets)) return query_cuts;
    return cuts(held.key_offsets, held.key.size(0), lengths->keys);
  }
  Tensor starts() const {
    const Tensor rows = at::arange(sequences(), held.query_offsets.options()).mul(starts_apart());
    return mark(rows, sequences() * starts_apart(), /*cuts=*/false, /*apart=*/true, starts_apart());
  }
  // None, causal, or causal aligned to the end.
  int64_t mask() const { return in.right != 0 ? 0 : lengths->equal ? 1 : 2; }
  // How many keys a query sees, itself included; none where the mask says all.
  std::optional<int64_t> window() const {
    if (in.left < 0 || in.left >= lengths->keys - 1) return std::nullopt;
    return in.left + 1;
  }

  TwoTensors forward() const {
    const Tensor queries = query_cuts(), keys = key_cuts(queries), &q = held.query;
    const auto all = at::_efficient_attention_forward(
        q.unsqueeze(0), held.key.unsqueeze(0), held.value.unsqueeze(0), {}, queries, keys, lengths->queries,
        lengths->keys, 0.0, mask(), /*compute_log_sumexp=*/true, in.scale, /*seqlen_k=*/{}, window());
    // sums: (sequences, heads, rows of the longest and more)
    const Tensor sums = std::get<1>(all).narrow(2, 0, lengths->queries).transpose(1, 2);
    Tensor apart = at::empty({sequences(), starts_apart(), q.size(1)}, sums.options());
    apart.narrow(1, 0, lengths->queries).copy_(sums);
    return {std::get<0>(all).squeeze(0),
            GatherRunsOp::call(apart.flatten(0, 1), starts(), held.query_offsets, q.size(0), 1)};
  }
  std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad, const Tensor& output, const Tensor& logsumexp) const {
    const Tensor queries = query_cuts(), keys = key_cuts(queries);
    const Tensor none = at::zeros({}, queries.options().dtype(at::kLong));
    const Tensor sums =  // infinite behind the rows of a sequence, as the kernel leaves them itself
        ScatterRunsOp::call(logsumexp, starts(), held.query_offsets, sequences() * starts_apart(), 1, INFINITY)
            .view({sequences(), starts_apart(), -1})
            .transpose(1, 2)
            .contiguous();
    const auto all = at::_efficient_attention_backward(
        moved(grad).unsqueeze(0), held.query.unsqueeze(0), held.key.unsqueeze(0), held.value.unsqueeze(0), {},
        moved(output).unsqueeze(0), queries, keys, lengths->queries, lengths->keys, sums, 0.0, none, none, mask(),
        /*bias_requires_grad=*/false, in.scale, /*num_splits_key=*/std::nullopt, window());
    return {std::get<0>(all).squeeze(0), std::get<1>(all).squeeze(0), std::get<2>(all).squeeze(0)};
  }
};

// -- operators

TwoTensors attention_meta(const Inputs& in) {
  in.check("attention");
  const auto rows = in.query.sym_size(0), heads = in.query.sym_size(1);
  return {in.empty({rows, heads, in.value.sym_size(2)}), in.empty_sums({rows, heads})};
}

TwoTensors attention(const Inputs& in) {
  auto [out, logsumexp] = attention_meta(in);
  const Held held("attention", in);
  if (const Library library(held, in); library.takes()) return library.forward();
  if (may_leave_rows(held.query_offsets, out.size(0))) out.zero_(), logsumexp.zero_();
  LOD_RUN(out, attention_forward, floating_type("attention", out),
          AttentionForward{held.arguments(in), out.mutable_data_ptr(), logsumexp.mutable_data_ptr()});
  return {out, logsumexp};
}

// Gradients of query, key, value, bias, slopes, sink and distance_bias; without `biases` the last four are empty.
SevenTensors attention_backward_meta(const BackwardInputs& in) {
  const char* op = "attention_backward";
  in.check(op);
  const auto &query = in.query, &value = in.value;
  const auto rows = query.sym_size(0), heads = query.sym_size(1);
  const c10::SymInt none = 0;
  const auto expect = [&](const char* name, const Tensor& t, at::ScalarType dtype, std::vector<c10::SymInt> shape) {
    check_kind(op, name, t, dtype, query);
    TORCH_CHECK_VALUE(t.sym_sizes() == c10::SymIntArrayRef(shape), op, ": expected ", name, " of shape ",
                      c10::SymIntArrayRef(shape), ", got ", t.sym_sizes());
  };
  expect("grad", in.grad, query.scalar_type(), {rows, heads, value.sym_size(2)});
  expect("output", in.output, query.scalar_type(), {rows, heads, value.sym_size(2)});
  expect("logsumexp", in.logsumexp, summed_in(query), {rows, heads});
  const auto like = [&](const Tensor& t) { return at::empty_symint(t.sym_sizes(), query.options()); };
  return {like(query), like(in.key), like(value), in.bias && in.biases ? like(*in.bias) : in.empty({none}),
          in.empty_sums({in.slopes && in.biases ? heads : none}), in.empty_sums({in.sink && in.biases ? heads : none}),
          in.distance_bias && in.biases ? at::empty_symint(in.distance_bias->sym_sizes(), in.distance_bias->options())
                                        : in.empty_sums({none})};
}

SevenTensors attention_backward(const BackwardInputs& in) {
  const char* op = "attention_backward";
  auto [d_query, d_key, d_value, d_bias, d_slopes, d_sink, d_distances] = attention_backward_meta(in);
  const Held held(op, in);
  const Tensor d_out = readable(in.grad), all = readable(in.logsumexp);
  if (const Library library(held, in); library.takes()) {
    const auto [query, key, value] = library.backward(d_out, readable(in.output), all);
    return {query, key, value, d_bias, d_slopes, d_sink, d_distances};
  }
  const auto sums = d_query.options().dtype(summed_in(d_query));
  const Tensor delta = d_out.to(summed_in(d_query)).mul(in.output).sum(-1).contiguous();
  const int64_t reach = held.reach();
  Tensor of_bias, of_slopes, of_distances, of_ends;
  if (in.bias && in.biases) of_bias = at::zeros(in.bias->sizes(), sums);
  if (in.slopes && in.biases) of_slopes = at::zeros({d_query.size(0), d_query.size(1)}, sums);
  if (in.distance_bias && in.biases) {
    of_distances = at::zeros({held.query_offsets.numel() - 1, d_query.size(1), 2 * reach + 1}, sums);
    if (!d_query.is_cpu()) of_ends = at::zeros({d_query.size(0), d_query.size(1), 2}, sums);
  }
  if (may_leave_rows(held.query_offsets, d_query.size(0)) || may_leave_rows(held.key_offsets, d_key.size(0)))
    d_query.zero_(), d_key.zero_(), d_value.zero_();
  const auto write = [](const Tensor& t) { return t.defined() ? t.mutable_data_ptr() : nullptr; };
  LOD_RUN(d_query, attention_backward, floating_type(op, d_query),
          AttentionBackward{held.arguments(in), d_out.const_data_ptr(), all.const_data_ptr(), delta.const_data_ptr(),
                            write(d_query), write(d_key), write(d_value), write(of_bias), write(of_slopes),
                            write(of_distances), reach, write(of_ends)});
  if (of_bias.defined()) d_bias = of_bias.to(d_query.scalar_type());
  if (of_slopes.defined()) d_slopes = of_slopes.sum(0);
  if (in.sink && in.biases)  // its weight times -delta: it has no value
    d_sink = held.sink.sub(all).exp_().mul_(delta).masked_fill_(all.eq(-INFINITY), 0).sum(0).neg();
  if (of_distances.defined()) {
    const Tensor seen = d_distances.zero_().narrow(1, held.most() - reach, 2 * reach + 1);
    seen.copy_(of_distances.sum(0));
    if (of_ends.defined())
      for (int64_t end : {0, 1}) seen.select(1, 2 * reach * end).add_(of_ends.select(2, end).sum(0));
  }
  return {d_query, d_key, d_value, d_bias, d_slopes, d_sink, d_distances};
}

// -- gradients

using AttentionOp = Operator<"attention", attention_meta, attention, pack>;
using AttentionBackwardOp = Operator<"attention_backward", attention_backward_meta, attention_backward, pack_backward>;

struct AttentionGradient : Gradient<AttentionOp> {
  static variable_list gradient(const Grads& grad, const Inputs& in, const Tensor& output, const Tensor& logsumexp) {
    const bool biases = grad.needs(5) || grad.needs(6) || grad.needs(13) || grad.needs(14);
    auto [query, key, value, bias, slopes, sink, distances] = AttentionBackwardOp::call(
        grad[0], in.query, in.key, in.value, in.query_offsets, in.key_offsets, in.bias, in.slopes, in.seed, in.scale,
        in.left, in.right, in.dropout, in.softcap, in.sink, in.distance_bias, in.key_ends, output, logsumexp, biases);
    const Tensor none;
    const auto of = [&](size_t argument, const Tensor& t) { return grad.needs(argument) ? t : none; };
    return {query, key,  value, none, none, of(5, bias), of(6, slopes), none,
            none,  none, none,  none, none, of(13, sink), of(14, distances)};
  }
};

}  // namespace

LOD_OPERATORS(AttentionGradient, OneGradient<AttentionBackwardOp>)

}  // namespace lod
