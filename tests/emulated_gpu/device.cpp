// A device "emu" of the dispatch key PrivateUse1: its memory is the host's, filled with 0xFF, its operators are those of
// the CPU, its streams are lists of copies that are executed when something waits for them. It counts what a GPU
// would be asked to do: launches, torch's own operators, uploads, and every time the host waits.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

#include <deque>
#include <map>
#include <mutex>
#include <string>

namespace emulated {

constexpr auto kKey = c10::DispatchKey::PrivateUse1;
constexpr auto kType = c10::DeviceType::PrivateUse1;

// -- counts

std::mutex counting;
std::map<std::string, int64_t> counts;
thread_local int quiet = 0;  // inside of an operator of the CPU
struct Quiet {
  Quiet() { ++quiet; }
  ~Quiet() { --quiet; }
};
void counted(const std::string& what) {
  if (quiet) return;
  const std::lock_guard guard(counting);
  ++counts[what];
}

void record_work(bool on);  // threads.cpp
int64_t leave_out(int64_t barrier);
std::vector<std::string> take_work();

// -- streams

struct Stream {
  std::deque<std::function<void()>> work;
  uint64_t given = 0, done = 0;
};
std::recursive_mutex streaming;
std::map<int64_t, Stream> streams;
std::atomic<int64_t> last_stream = 0;
thread_local int64_t current_stream = 0;

void carry_out(int64_t id, uint64_t to) {
  const std::lock_guard guard(streaming);
  Stream& s = streams[id];
  while (s.done < to && !s.work.empty()) {
    const auto one = std::move(s.work.front());
    s.work.pop_front();
    ++s.done;
    one();
  }
}
void enqueue(int64_t id, std::function<void()> one) {
  const std::lock_guard guard(streaming);
  streams[id].work.push_back(std::move(one));
  ++streams[id].given;
}
void flush() { carry_out(current_stream, UINT64_MAX); }
void flush_all() {
  const std::lock_guard guard(streaming);
  for (auto& [id, s] : streams) carry_out(id, UINT64_MAX);
}
void before_launch() { flush(); }

struct Event {
  int64_t stream;
  uint64_t after;
};

// What is captured runs immediately as well: enough to see who keeps what a graph is about to fill.
std::atomic<bool> captures = false;
bool is_capturing() { return captures; }

// What kernels write for the host to find. Where that is late, it is there when the host has next waited.
std::atomic<bool> late = false;
std::mutex telling;
std::vector<uint64_t*> untold;
void tell(uint64_t* written) {
  const std::lock_guard guard(telling);
  if (late) untold.push_back(written);
  else *written = 1;
}
void host_waits() {
  if (quiet) return;
  const std::lock_guard guard(telling);
  for (uint64_t* written : untold) *written = 1;
  untold.clear();
}

// -- memory

std::atomic<int64_t> largest = 0;  // bytes of one allocation, since the last question
struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    void* p = n && n <= size_t(1) << 28 ? std::malloc(n) : nullptr;  // all of it is written to
    TORCH_CHECK(p || !n, "emulated GPU: out of memory, ", n, " bytes");
    largest = std::max<int64_t>(largest, int64_t(n));
    if (p) std::memset(p, 0xFF, n);  // NaN, and -1
    return {p, p, &std::free, c10::Device(kType, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }
};
Memory memory;
REGISTER_ALLOCATOR(kType, &memory);

std::mutex pinning;
std::map<const char*, size_t> pinned;
struct Pinned final : c10::Allocator {
  static void drop(void* p) {
    if (!p) return;
    {
      const std::lock_guard guard(pinning);
      pinned.erase(static_cast<char*>(p));
    }
    std::free(p);
  }
  c10::DataPtr allocate(size_t n) override {
    auto* p = static_cast<char*>(std::malloc(n ? n : 1));
    const std::lock_guard guard(pinning);
    pinned[p] = n ? n : 1;
    return {p, p, &drop, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &drop; }
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }
};
Pinned pinned_memory;
bool is_pinned(const void* p) {
  const std::lock_guard guard(pinning);
  auto it = pinned.upper_bound(static_cast<const char*>(p));
  return it != pinned.begin() && (--it, static_cast<const char*>(p) < it->first + it->second);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static c10::Device here() { return {kType, 0}; }
  static c10::Stream of(int64_t id) { return c10::Stream(c10::Stream::UNSAFE, here(), id); }
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return here(); }
  c10::Device getDevice() const override { return here(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return of(current_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return of(0); }
  c10::Stream getNewStream(c10::Device, int) const override { return of(++last_stream); }
  c10::Stream exchangeStream(c10::Stream s) const override { return of(std::exchange(current_stream, s.id())); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream& s, const c10::DeviceIndex, const c10::EventFlag) const override {
    const std::lock_guard guard(streaming);
    if (!*event) *event = new Event;
    *static_cast<Event*>(*event) = {s.id(), streams[s.id()].given};
  }
  void block(void* event, const c10::Stream& s) const override {
    if (!event) return;
    const Event e = *static_cast<Event*>(event);
    enqueue(s.id(), [e] { carry_out(e.stream, e.after); });
  }
  bool queryEvent(void* event) const override {
    const std::lock_guard guard(streaming);
    return !event || streams[static_cast<Event*>(event)->stream].done >= static_cast<Event*>(event)->after;
  }
  void synchronizeEvent(void* event) const override {
    host_waits();
    if (event) carry_out(static_cast<Event*>(event)->stream, static_cast<Event*>(event)->after);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  bool queryStream(const c10::Stream& s) const override {
    const std::lock_guard guard(streaming);
    return streams[s.id()].work.empty();
  }
  void synchronizeStream(const c10::Stream& s) const override { carry_out(s.id(), UINT64_MAX), host_waits(); }
  void synchronizeDevice(const c10::DeviceIndex) const override { flush_all(), host_waits(); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  bool isPinnedPtr(const void* p) const override { return is_pinned(p); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator g = at::detail::createCPUGenerator(1);
    return g;
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(1); }
  void resizePrivateUse1Bytes(const c10::Storage& s, size_t n) const override {
    flush();
    auto fresh = memory.allocate(n);
    if (n && s.nbytes()) std::memcpy(fresh.get(), s.data(), std::min(n, s.nbytes()));
    s.unsafeGetStorageImpl()->set_data_ptr(std::move(fresh));
    s.unsafeGetStorageImpl()->set_nbytes(n);
  }
};

// -- operators

// The same memory as a tensor of the CPU.
at::Tensor host(const at::Tensor& t) {
  if (t.is_cpu()) return t;
  auto a = at::from_blob(const_cast<char*>(static_cast<const char*>(t.storage().data())) +
                             t.storage_offset() * t.element_size(),
                         t.sizes(), t.strides(), [](void*) {}, at::TensorOptions(t.scalar_type()));
  if (t.is_conj()) a._set_conj(true);
  if (t.is_neg()) a._set_neg(true);
  return a;
}
at::Tensor on_device(const at::Tensor& t) {
  const Quiet quiet;
  return t.to(c10::Device(kType, 0));
}

at::ScalarType type_or_default(std::optional<at::ScalarType> type) {
  return type.value_or(at::typeMetaToScalarType(at::get_default_dtype()));
}
at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(kKey), type_or_default(dtype), format);
}
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(kKey), type_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool non_blocking) {
  if (self.numel() == 0) return to;
  if (self.is_cpu() && non_blocking && is_pinned(self.const_data_ptr())) {
    counted("upload");
    enqueue(current_stream, [self, to] { host(to).copy_(self); });
    return to;
  }
  if (to.is_cpu() && non_blocking && is_pinned(to.const_data_ptr())) {
    enqueue(current_stream, [self, to] { to.copy_(host(self)); });
    return to;
  }
  counted(self.is_cpu() ? "sync upload of pageable memory" : to.is_cpu() ? "sync download" : "op copy");
  flush();
  if (self.is_cpu() || to.is_cpu()) host_waits();
  host(to).copy_(host(self));
  return to;
}
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  to.resize_(self.sizes());
  return copy_from(self, to, false);
}
at::Scalar item(const at::Tensor& t) {
  counted("sync item");
  flush();
  host_waits();
  return host(t).item();
}
at::Tensor& set_storage(at::Tensor& r, at::Storage s, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::set_storage_cpu_(r, s, offset, size, stride);
}
at::Tensor& fill(at::Tensor& t, const at::Scalar& value) {
  counted("op aten::fill_");
  flush();
  host(t).fill_(value);
  return t;
}
at::Tensor& zero(at::Tensor& t) {
  counted("op aten::zero_");
  flush();
  host(t).zero_();
  return t;
}
void record_stream(at::Tensor&, c10::Stream) {}
// What would end the context of a GPU.
void device_assert(const at::Tensor& t, std::string_view said) {
  counted("device assert");
  flush();
  TORCH_CHECK(host(t).item().toBool(), "emulated GPU: a device assert failed: ", said);
}
void device_assert_plain(const at::Tensor& t) { device_assert(t, ""); }

// Everything else: as the CPU does it. Some of it makes the host wait, for the shape of its result.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string& name = op.schema().name();
  static const char* const waiting[] = {"nonzero", "masked_select", "_unique",  "unique_dim", "unique_consecutive",
                                        "equal",   "is_nonzero",    "bincount", "histc"};
  bool waits = false;
  for (const char* one : waiting) waits |= name == std::string("aten::") + one || name == std::string("aten::") + one + "2";
  if (name == "aten::index" || name.find("index_put") != name.npos)
    for (const auto& value : torch::jit::last(*stack, op.schema().arguments().size()))
      if (value.isOptionalTensorList())
        for (const std::optional<at::Tensor> t : value.toOptionalTensorList())
          waits |= t && t->defined() && (t->scalar_type() == at::kBool || t->scalar_type() == at::kByte);
  if (name == "aten::repeat_interleave" && op.schema().overload_name() == "Tensor")
    waits |= torch::jit::last(*stack, 1)[0].isNone();
  counted((waits ? "sync " : "op ") + name);
  flush();
  if (waits) host_waits();
  const Quiet quiet;
  at::native::cpu_fallback(op, stack);
  flush();
}

at::Tensor convolution(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  counted("op aten::convolution");
  flush();
  return on_device(at::convolution(host(x), host(w), b && b->defined() ? std::optional(host(*b)) : std::nullopt, stride,
                                   padding, dilation, transposed, output_padding, groups));
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& x, const at::Tensor& w, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> mask) {
  counted("op aten::convolution_backward");
  flush();
  const auto [dx, dw, db] =
      at::convolution_backward(host(grad), host(x), host(w), at::OptionalIntArrayRef(w.size(transposed ? 1 : 0) * (transposed ? groups : 1)),
                               stride, padding, dilation, transposed, output_padding, groups, mask);
  const auto there = [](const at::Tensor& t) { return t.defined() ? on_device(t) : t; };
  return {there(dx), there(dw), there(db)};
}

// What torch's cells call on a GPU, in terms of other operators, so that autograd differentiates them.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& a, const at::Tensor& b, const at::Tensor& cx,
                                                         const std::optional<at::Tensor>& bias_a,
                                                         const std::optional<at::Tensor>& bias_b) {
  at::Tensor z = a + b;
  for (const auto& bias : {bias_a, bias_b})
    if (bias && bias->defined()) z = z + *bias;
  const auto parts = z.chunk(4, 1);
  const auto c = parts[1].sigmoid() * cx + parts[0].sigmoid() * parts[2].tanh();
  return {parts[3].sigmoid() * c.tanh(), c, at::empty({0}, a.options())};
}
std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& a, const at::Tensor& b, const at::Tensor& hx,
                                            const std::optional<at::Tensor>& bias_a,
                                            const std::optional<at::Tensor>& bias_b) {
  const auto x = (bias_a && bias_a->defined() ? a + *bias_a : a).chunk(3, 1);
  const auto h = (bias_b && bias_b->defined() ? b + *bias_b : b).chunk(3, 1);
  const auto r = (x[0] + h[0]).sigmoid(), z = (x[1] + h[1]).sigmoid(), n = (x[2] + r * h[2]).tanh();
  return {n + z * (hx - n), at::empty({0}, a.options())};
}

// -- cuBLAS: matrices of columns, in loops; or a library whose results are others

std::atomic<bool> wrong_products = false;

template <class T, class Sum>
int gemm(int transpose_a, int transpose_b, int m, int n, int k, Sum alpha, const T* a, int lda, const T* b, int ldb,
         Sum beta, T* c, int ldc) {
  const bool fit = lda >= std::max(1, transpose_a ? k : m) && ldb >= std::max(1, transpose_b ? n : k) && ldc >= m;
  if (!fit) return 7;
  counted("product");
  flush();
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < m; ++i) {
      Sum sum = 0;
      for (int p = 0; p < k; ++p)
        sum += Sum(a[transpose_a ? p + int64_t(i) * lda : i + int64_t(p) * lda]) *
               Sum(b[transpose_b ? j + int64_t(p) * ldb : p + int64_t(j) * ldb]);
      T& to = c[i + int64_t(j) * ldc];
      if (wrong_products) sum += 1;
      to = T(beta == 0 ? alpha * sum : alpha * sum + beta * Sum(to));  // what is not asked for is not read
    }
  return 0;
}
template <class T>
int gemm_of(int transpose_a, int transpose_b, int m, int n, int k, const void* alpha, const void* a, int lda,
            const void* b, int ldb, const void* beta, void* c, int ldc) {
  return gemm<T, float>(transpose_a, transpose_b, m, n, k, *static_cast<const float*>(alpha), static_cast<const T*>(a),
                        lda, static_cast<const T*>(b), ldb, *static_cast<const float*>(beta), static_cast<T*>(c), ldc);
}
thread_local int math_mode = 0;

// -- torch's memory-efficient attention of CUDA: what it documents and no more. It takes only what its checks let
// through, and leaves out what its kernels do: results of queries without keys, and gradients of keys without queries,
// are never written, sums behind the rows of a sequence are infinite up to a multiple of 32 and then left.

struct Attended {
  at::Tensor q, k, v, queries, keys;  // (1, rows, heads, width), offsets
  int64_t most_queries, most_keys, mask, window;
  double scale;

  int64_t sequences() const { return queries.numel() - 1; }
  int64_t padded(int64_t n) const { return (n + 31) / 32 * 32; }
  struct Rows {
    int64_t first, count;
    at::Tensor of(const at::Tensor& t) const { return t.select(0, 0).narrow(0, first, count).transpose(0, 1); }
  };
  static Rows rows(const at::Tensor& cuts, int64_t s) {
    const auto* o = cuts.const_data_ptr<int32_t>();
    return {o[s], o[s + 1] - o[s]};
  }
  // (heads, queries, keys) of a sequence; -inf where a query does not see a key.
  at::Tensor scores(const Rows& i, const Rows& j) const {
    const auto x = i.of(q).matmul(j.of(k).transpose(1, 2)).mul(scale);
    if (mask == 0) return x;
    const auto at = at::arange(i.count).add(mask == 2 ? j.count - i.count : 0).unsqueeze(1), key = at::arange(j.count);
    auto hidden = key.gt(at);
    if (window) hidden = hidden.logical_or(key.le(at.sub(window)));
    return x.masked_fill(hidden, -INFINITY);
  }
  void check() const {
    for (const auto& t : {q, k, v}) {
      TORCH_CHECK(t.dim() == 4 && t.size(0) == 1 && t.size(2) == q.size(2), "attention: (1, rows, heads, width)");
      TORCH_CHECK(t.scalar_type() == at::kFloat && t.stride(3) == 1 && t.size(3) <= 256, "attention: rows");
      TORCH_CHECK(t.size(3) % 4 == 0 && t.stride(2) % 4 == 0 && t.stride(1) % 4 == 0, "attention: alignment");
      TORCH_CHECK(reinterpret_cast<uintptr_t>(t.const_data_ptr()) % 16 == 0, "attention: alignment");
    }
    for (const auto& t : {queries, keys})
      TORCH_CHECK(t.scalar_type() == at::kInt && t.is_contiguous() && t.numel() == queries.numel(), "attention: cuts");
    TORCH_CHECK(0 < most_queries && most_queries <= q.size(1), "attention: the longest queries");
    TORCH_CHECK(0 < most_keys && most_keys <= k.size(1), "attention: the longest keys");
    TORCH_CHECK(window == 0 || (window > 0 && mask != 0), "attention: windows only of causal masks");
    for (int64_t s = 0; s < sequences(); ++s)
      TORCH_CHECK(rows(queries, s).count <= most_queries && rows(keys, s).count <= most_keys, "attention: longer");
  }
};
Attended attended(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& bias,
                  const std::optional<at::Tensor>& queries, const std::optional<at::Tensor>& keys, int64_t most_queries,
                  int64_t most_keys, double dropout, int64_t mask, std::optional<double> scale,
                  std::optional<int64_t> window) {
  TORCH_CHECK(!(bias && bias->defined()) && dropout == 0, "attention: neither bias nor dropout on this device");
  const Attended a{host(q), host(k), host(v), host(*queries), host(*keys), most_queries, most_keys, mask,
                   window.value_or(0), scale.value_or(1 / std::sqrt(double(q.size(3))))};
  a.check();
  return a;
}
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt> efficient_attention(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& queries, const std::optional<at::Tensor>& keys,
    std::optional<c10::SymInt> most_queries, std::optional<c10::SymInt> most_keys, double dropout, int64_t mask,
    bool sums, std::optional<double> scale, const std::optional<at::Tensor>&, std::optional<int64_t> window) {
  counted("op aten::_efficient_attention_forward mask " + std::to_string(mask) + (window ? " window" : ""));
  flush();
  const Quiet quiet;
  const int64_t most = most_queries->expect_int();
  const auto a = attended(q, k, v, bias, queries, keys, most, most_keys->expect_int(), dropout, mask, scale, window);
  TORCH_CHECK(sums, "attention: expected to return the sums");
  const int64_t heads = q.size(2);
  const auto out = at::full({1, q.size(1), heads, v.size(3)}, NAN);
  const auto logsumexp = at::full({a.sequences(), heads, a.padded(most)}, NAN);
  for (int64_t s = 0; s < a.sequences(); ++s) {
    const auto i = a.rows(a.queries, s), j = a.rows(a.keys, s);
    logsumexp[s].narrow(1, 0, a.padded(i.count)).fill_(INFINITY);
    const auto x = a.scores(i, j), total = x.logsumexp({2}, true);
    logsumexp[s].narrow(1, 0, i.count).copy_(total.squeeze(2));
    i.of(out).copy_(x.sub(total).exp().matmul(j.of(a.v)).masked_fill(total.eq(-INFINITY), NAN));
  }
  const auto none = on_device(at::zeros({}, at::kLong));
  return {on_device(out), on_device(logsumexp), none, none, most, *most_keys};
}
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_attention_backward(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const std::optional<at::Tensor>& bias, const at::Tensor& out, const std::optional<at::Tensor>& queries,
    const std::optional<at::Tensor>& keys, c10::SymInt most_queries, c10::SymInt most_keys, const at::Tensor& sums,
    double dropout, const at::Tensor&, const at::Tensor&, int64_t mask, bool, std::optional<double> scale,
    std::optional<int64_t>, std::optional<int64_t> window, bool) {
  counted("op aten::_efficient_attention_backward mask " + std::to_string(mask) + (window ? " window" : ""));
  flush();
  const Quiet quiet;
  const auto a = attended(q, k, v, bias, queries, keys, most_queries.expect_int(), most_keys.expect_int(), dropout,
                          mask, scale, window);
  TORCH_CHECK(sums.stride(0) % 8 == 0 && sums.stride(1) % 8 == 0, "attention: alignment of the sums");
  TORCH_CHECK(sums.size(0) == a.sequences() && sums.size(1) == q.size(2), "attention: sums per sequence and head");
  const auto d_out = host(grad), output = host(out), all = host(sums);
  const auto dq = at::full_like(a.q, NAN), dk = at::full_like(a.k, NAN), dv = at::full_like(a.v, NAN);
  for (int64_t s = 0; s < a.sequences(); ++s) {
    const auto i = a.rows(a.queries, s), j = a.rows(a.keys, s);
    if (i.count == 0 || j.count == 0) continue;
    TORCH_CHECK(all[s].narrow(1, i.count, a.padded(i.count) - i.count).isinf().all().item().toBool(), "attention: pad");
    const auto p = a.scores(i, j).sub(all[s].narrow(1, 0, i.count).unsqueeze(2)).exp();
    const auto delta = i.of(d_out).mul(i.of(output)).sum(2, true);
    const auto dx = i.of(d_out).matmul(j.of(a.v).transpose(1, 2)).sub(delta).mul(p).mul(a.scale);
    i.of(dq).copy_(dx.matmul(j.of(a.k)).masked_fill(p.sum(2, true).eq(0), NAN));
    j.of(dk).copy_(dx.transpose(1, 2).matmul(i.of(a.q)));
    j.of(dv).copy_(p.transpose(1, 2).matmul(i.of(d_out)));
  }
  return {on_device(dq), on_device(dk), on_device(dv), at::Tensor()};
}

std::vector<std::string> take_counts() {
  const std::lock_guard guard(counting);
  std::vector<std::string> taken;
  for (const auto& [what, n] : counts) taken.push_back(what + "=" + std::to_string(n));
  counts.clear();
  return taken;
}

struct Start {
  Start() {
    c10::register_privateuse1_backend("emu");
    at::RegisterPrivateUse1HooksInterface(new Hooks);
  }
} start;

}  // namespace emulated

struct cublasContext;
namespace at::cuda {
cublasContext* getCurrentCUDABlasHandle(bool) { return nullptr; }
}  // namespace at::cuda
#pragma GCC visibility push(default)
extern "C" {
int cublasSgemm_v2(cublasContext*, int ta, int tb, int m, int n, int k, const float* alpha, const float* a, int lda,
                   const float* b, int ldb, const float* beta, float* c, int ldc) {
  return emulated::gemm(ta, tb, m, n, k, *alpha, a, lda, b, ldb, *beta, c, ldc);
}
int cublasDgemm_v2(cublasContext*, int ta, int tb, int m, int n, int k, const double* alpha, const double* a, int lda,
                   const double* b, int ldb, const double* beta, double* c, int ldc) {
  return emulated::gemm(ta, tb, m, n, k, *alpha, a, lda, b, ldb, *beta, c, ldc);
}
int cublasGemmEx(cublasContext*, int ta, int tb, int m, int n, int k, const void* alpha, const void* a, int type,
                 int lda, const void* b, int type_b, int ldb, const void* beta, void* c, int type_c, int ldc,
                 int computed, int) {
  if (type != type_b || type != type_c || computed != 68 || emulated::math_mode != 16) return 15;
  const auto run = type == 2 ? &emulated::gemm_of<at::Half> : &emulated::gemm_of<at::BFloat16>;
  return run(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
int cublasGetMathMode(cublasContext*, int* mode) { return *mode = emulated::math_mode, 0; }
int cublasSetMathMode(cublasContext*, int mode) { return emulated::math_mode = mode, 0; }
}
#pragma GCC visibility pop

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&emulated::fallback>()); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &emulated::empty);
  m.impl("empty_strided", &emulated::empty_strided);
  m.impl("_copy_from", &emulated::copy_from);
  m.impl("_copy_from_and_resize", &emulated::copy_from_and_resize);
  m.impl("_local_scalar_dense", &emulated::item);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("resize_", &at::native::resize_);
  m.impl("set_.source_Storage_storage_offset", &emulated::set_storage);
  m.impl("_assert_async.msg", &emulated::device_assert);
  m.impl("_assert_async", &emulated::device_assert_plain);
  m.impl("fill_.Scalar", &emulated::fill);
  m.impl("zero_", &emulated::zero);
  m.impl("record_stream", &emulated::record_stream);
  m.impl("convolution_overrideable", &emulated::convolution);
  m.impl("convolution_backward_overrideable", &emulated::convolution_backward);
  m.impl("_efficient_attention_forward", &emulated::efficient_attention);
  m.impl("_efficient_attention_backward", &emulated::efficient_attention_backward);
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &emulated::lstm_cell);
  m.impl("_thnn_fused_gru_cell", &emulated::gru_cell);
}
TORCH_LIBRARY(emulated_gpu, m) {
  m.def("capture(bool on) -> ()");
  m.impl("capture", c10::DispatchKey::CompositeExplicitAutograd, +[](bool on) { emulated::captures = on; });
  m.def("late(bool on) -> ()");
  m.impl("late", c10::DispatchKey::CompositeExplicitAutograd, +[](bool on) { emulated::late = on; });
  m.def("is_capturing() -> bool");
  m.impl("is_capturing", c10::DispatchKey::CompositeExplicitAutograd, &emulated::is_capturing);
  m.def("largest_allocation() -> int");
  m.impl("largest_allocation", c10::DispatchKey::CompositeExplicitAutograd,
         +[] { return emulated::largest.exchange(0); });
  m.def("wrong_products(bool on) -> ()");
  m.impl("wrong_products", c10::DispatchKey::CompositeExplicitAutograd,
         +[](bool on) { emulated::wrong_products = on; });
  m.def("record_work(bool on) -> ()");
  m.impl("record_work", c10::DispatchKey::CompositeExplicitAutograd, &emulated::record_work);
  m.def("leave_out(int barrier) -> int");
  m.impl("leave_out", c10::DispatchKey::CompositeExplicitAutograd, &emulated::leave_out);
  m.def("take_work() -> str[]");
  m.impl("take_work", c10::DispatchKey::CompositeExplicitAutograd, &emulated::take_work);
  m.def("take_counts() -> str[]");
  m.impl("take_counts", c10::DispatchKey::CompositeExplicitAutograd, &emulated::take_counts);
}
