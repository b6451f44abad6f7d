// SPDX-License-Identifier: Apache-2.0
// An operator in C++ is a name, the shape of its result (meta), its implementation (kernel), and a gradient. Calls
// through the dispatcher, the autograd node and the registration for CPU, CUDA, Meta and Autograd come from here.
//
//   using PickOp = Operator<"segment_pick", segment_pick_meta, segment_pick>;
//   struct PickGradient : Gradient<PickOp> {
//     static auto save(<arguments>) { return std::tuple(<tensors, SymInts, numbers, strings>); }
//     static variable_list gradient(const Grads& grads, <what was saved>) { return {<one per argument>}; }
//   };
//   LOD_OPERATORS(PickGradient)
//
// PickOp::call(...) goes through the dispatcher. save may have the results as further parameters. gradient calls
// operators that have gradients, so that it can be differentiated again; what it has no gradient for is an undefined
// Tensor, or left out at the end of the list. Of several results the last is not differentiable: it is what the
// gradient needs to know.
//
// Where the gradient is a kernel too, the arguments are many: Operator<name, meta, kernel, pack> calls meta and kernel
// with the one struct that `pack` makes of them. Without save all arguments and results are kept, and it is
// gradient(grads, <the struct>, <results>). A second gradient is that of the operator <name>_composed, which has the
// same arguments and the differentiable results.
//
// Kernels see tensors that are defined, dense and have memory behind them: the gate (gate.h) is in the registration.
//
// LOD_OPERATORS takes Gradients, NoGradient<Op> for what has nothing to differentiate, and OneGradient<Op> for the
// kernel of a gradient, which refuses a second one. A Gradient with `entry` is called by it on the Autograd key.
#pragma once

#include "torch_lod/binding.h"
#include "torch_lod/call.h"

#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <bit>
#include <cctype>
#include <tuple>

namespace lod {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// -- operators

// f, as a function of the arguments of `pack` if there is one.
template <auto f, auto pack>
struct Unpacked {
  static constexpr auto function = f;
};
template <auto f, class P, class... A, P (*pack)(A...)>
struct Unpacked<f, pack> {
  static auto run(A... a) { return f(pack(std::forward<A>(a)...)); }
  static constexpr auto function = &run;
};

template <Name name, auto meta_, auto kernel_, auto pack_ = nullptr>
struct Operator : Call<name, std::remove_pointer_t<std::remove_cv_t<decltype(Unpacked<meta_, pack_>::function)>>> {
  static constexpr auto meta = Unpacked<meta_, pack_>::function;
  static constexpr auto kernel = Unpacked<kernel_, pack_>::function;
  static constexpr auto pack = pack_;
};

// -- gradients

// The tensor of an argument, if it has one.
inline const Tensor* tensor_of(const Tensor& t) { return t.defined() ? &t : nullptr; }
inline const Tensor* tensor_of(const OptionalTensor& t) { return t ? tensor_of(*t) : nullptr; }
template <class T>
const Tensor* tensor_of(const T&) {
  return nullptr;
}

// Whether an autograd node is needed. A forward-mode tangent is tracked too: it is refused, not dropped.
inline bool has_tangent(const auto& x) {
  const Tensor* t = tensor_of(x);
  return t && t->_fw_grad(0).defined();
}
inline bool tracked(const auto& x) {
  const Tensor* t = tensor_of(x);
  return t && ((at::GradMode::is_enabled() && t->requires_grad()) || has_tangent(x));
}

// Nodes are counted by pointers of c10 or, in older torch, of the standard library.
template <class Node, class Base>
auto new_node(const c10::intrusive_ptr<Base>&) {
  return c10::make_intrusive<Node>();
}
template <class Node, class Base>
auto new_node(const std::shared_ptr<Base>&) {
  return std::shared_ptr<Node>(new Node(), [](Node* node) { deleteNode(static_cast<Base*>(node)); });
}

inline OptionalTensor optional(const Tensor& t) { return t.defined() ? OptionalTensor(t) : std::nullopt; }

// Adding up is for numbers: f of a complex gradient is f of its pairs.
template <class F>
Tensor on_parts(const Tensor& grad, const F& f) {
  return grad.is_complex() ? at::view_as_complex(f(at::view_as_real(grad.resolve_conj()))) : f(grad);
}

// The gradients of the results, at least one of them defined.
struct Grads {
  const variable_list& of_results;
  const AutogradContext* context;
  uint64_t given;  // bit i: argument i is a tensor
  const Tensor& operator[](size_t result) const { return of_results[result]; }
  bool needs(size_t argument) const {  // autograd counts tensors, not arguments
    const uint64_t bit = uint64_t(1) << argument;
    return (given & bit) && context->needs_input_grad(std::popcount(given & (bit - 1)));
  }
};

// Zeros that depend on t, so that gradients can be taken of them.
inline Tensor zeros_of(const Tensor& t) { return at::zeros_like(t).add(t.flatten().narrow(0, 0, 0).sum()); }

// The gradient of a composed operator, on aliases of the arguments, so that those made from one another stay apart.
inline variable_list composed_gradient(const c10::OperatorHandle& composed, torch::jit::Stack arguments,
                                       const variable_list& grads) {
  variable_list aliases, results, given, found(arguments.size());
  std::vector<size_t> wanted;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].isTensor() || !arguments[i].toTensor().requires_grad()) continue;
    const Tensor& t = arguments[i].toTensor();
    aliases.push_back(t.view_symint(t.sym_sizes()));
    arguments[i] = aliases.back();
    wanted.push_back(i);
  }
  composed.callBoxed(arguments);
  for (size_t i = 0; i < arguments.size(); ++i)
    if (grads[i].defined() && arguments[i].toTensor().requires_grad())
      results.push_back(arguments[i].toTensor()), given.push_back(grads[i]);
  variable_list gradients(wanted.size());
  if (!results.empty())  // without rows nothing depends on anything
    gradients = torch::autograd::grad(results, aliases, given, /*retain_graph=*/true, /*create_graph=*/true,
                                      /*allow_unused=*/true);
  for (size_t k = 0; k < wanted.size(); ++k)
    found[wanted[k]] = gradients[k].defined() ? gradients[k] : zeros_of(aliases[k]);
  return found;
}

// What is saved for a gradient: tensors, which autograd looks after, and numbers and strings, which stay in the node.
// f(value, its number) of all tensors, or of all others.
template <bool tensors, class... T, class F>
void each_saved(std::tuple<T...>& saved, const F& f) {
  size_t i = 0;
  const auto one = [&]<class S>(S& value) {
    if constexpr (tensors == (std::is_same_v<S, Tensor> || std::is_same_v<S, OptionalTensor>)) f(value, i);
    ++i;
  };
  std::apply([&](T&... value) { (one(value), ...); }, saved);
}
template <class Saved>
variable_list without_tensors(Saved& saved) {
  variable_list tensors;
  tensors.reserve(std::tuple_size_v<Saved>);
  each_saved<true>(saved, [&]<class S>(S& value, size_t) {
    if constexpr (std::is_same_v<S, Tensor>) tensors.push_back(std::move(value));
    else tensors.push_back(value ? std::move(*value) : Tensor());
  });
  return tensors;
}
template <class Saved>
Saved with_tensors(const char* op, Saved saved, const AutogradContext& ctx) {
  variable_list tensors = ctx.get_saved_variables();
  for (const Tensor& t : tensors)
    if (t.defined() && is_in_memory(t) && !passes(t)) refuse(op, "what was saved for its gradient", t);
  size_t next = 0;
  each_saved<true>(saved, [&]<class S>(S& value, size_t) {
    if constexpr (std::is_same_v<S, Tensor>) value = std::move(tensors[next++]);
    else value = optional(tensors[next++]);
  });
  return saved;
}

inline std::tuple<Tensor> as_tuple(Tensor result) { return {std::move(result)}; }
template <class... T>
std::tuple<T...> as_tuple(std::tuple<T...> results) {
  return results;
}

// fresh * by, in the memory of `fresh`, which no other tensor has, unless a graph is made or `by` may be a batch, which
// does not fit there.
inline Tensor multiplied(const Tensor& fresh, const Tensor& by) {
  return at::GradMode::is_enabled() || !is_in_memory(by) ? fresh.mul(by) : fresh.mul_(by);
}

// What the graph's node of an operator is called where it is printed or profiled: torch_lod::SegmentReduceBackward.
inline std::string node_name(const std::string& library, std::string_view op) {
  std::string name = library + "::";
  bool starts = true;
  for (const char c : op) {
    if (c != '_') name += char(starts ? std::toupper(c) : c);
    starts = c == '_';
  }
  return name + "Backward";
}

template <class Op>
struct Gradient {
  using Of = Op;
};

// What G saves of arguments and results: all of them, if it does not say what.
template <class G, class = typename G::Of::Type>
struct Saves;
template <class G, class R, class... A>
struct Saves<G, R(A...)> {
  static constexpr bool kAll = !requires { &G::save; };
  static_assert(!kAll || !(std::is_same_v<A, std::string_view> || ...), "it would be gone");
  static auto of(const A&... a, const auto&... r) {
    if constexpr (kAll) return std::tuple<std::decay_t<A>..., std::decay_t<decltype(r)>...>(a..., r...);
    else if constexpr (requires { G::save(a..., r...); }) return G::save(a..., r...);
    else return G::save(a...);
  }
  template <class... T>
  static auto type(const std::tuple<T...>&) -> decltype(of(std::declval<A>()..., std::declval<T>()...));
};

template <class G, class = typename G::Of::Type>
struct Autograd;
template <class G, class R, class... A>
struct Autograd<G, R(A...)> : torch::autograd::Function<Autograd<G, R(A...)>> {
  using Op = typename G::Of;

  static R entry(A... a) {
    if (!(tracked(a) || ...)) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      return Op::call(std::forward<A>(a)...);
    }
    TORCH_CHECK_NOT_IMPLEMENTED(!(has_tangent(a) || ...), Op::name, ": jvp is not implemented for C++ operators");
    if (const auto& transforms = at::functorch::functorchTLSAccessor()) transforms->checkSupportsCppAutogradFunction();
    R results = [&] {
      const Unrecorded guard;
      return Op::call(a...);
    }();
    std::apply([&](const auto&... r) { record(a..., r...); }, as_tuple(results));
    return results;
  }

  // For compiled autograd, which looks at saved_data: Recorded::apply is for all others.
  static variable_list backward(AutogradContext* ctx, const variable_list& of_results) {
    typename Recorded::Saved saved;
    each_saved<false>(saved, [&]<class S>(S& value, size_t i) {
      value = ctx->saved_data[std::to_string(i)].template to<S>();
    });
    const Grads grads{of_results, ctx, uint64_t(ctx->saved_data["given"].toInt())};
    return gradient(grads, std::move(saved));
  }

 private:
  struct Unrecorded {
    at::AutoDispatchBelowADInplaceOrView below;
    at::AutoGradMode no_grad{false};
  };
  struct Recorded final : torch::autograd::CppNode<Autograd> {
    using Saved = decltype(Saves<G>::type(as_tuple(std::declval<R>())));
    Saved saved;         // but for the tensors
    uint64_t given = 0;  // as in Grads

    // CppNode would ask a demangler for the name of its class whenever it runs.
    std::string name() const override {
      static const std::string name = node_name(Op::library, Op::name);
      return name;
    }
    variable_list apply(variable_list&& of_results) override {
      const std::lock_guard one_at_a_time(this->mutex_);
      const variable_list found = gradient({of_results, &this->ctx_, given}, saved);
      variable_list of_tensors;
      of_tensors.reserve(found.size());
      for (size_t i = 0; i < found.size(); ++i)
        if (given >> i & 1) of_tensors.push_back(found[i]);
      return of_tensors;
    }
    void compiled_args(torch::autograd::CompiledNodeArgs& args) const override {
      auto& data = const_cast<AutogradContext&>(this->ctx_).saved_data;
      auto numbers = saved;
      each_saved<false>(numbers, [&](auto& value, size_t i) { data[std::to_string(i)] = std::move(value); });
      data["given"] = int64_t(given);
      torch::autograd::CppNode<Autograd>::compiled_args(args);
    }
  };

  // What Function::apply does around a forward whose results are new, and no more of it than they need.
  static void record(const A&... a, const auto&... r) {
    const auto node = new_node<Recorded>(torch::autograd::Edge().function);
    torch::autograd::edge_list edges;
    edges.reserve(sizeof...(A));
    node->is_variable_input_.reserve(sizeof...(A));
    uint64_t bit = 1;
    const auto from = [&](const auto& x) {
      const Tensor* t = tensor_of(x);
      node->is_variable_input_.push_back(t);
      if (t) edges.push_back(torch::autograd::impl::gradient_edge(*t)), node->given |= bit;
      bit <<= 1;
    };
    (from(a), ...);
    node->set_next_edges(std::move(edges));
    node->set_ctx_grad_fn(node);
    size_t left = sizeof...(r);
    const auto to = [&](const Tensor& t) {
      const auto place = node->add_input_metadata(t);
      const bool differentiable = --left || sizeof...(r) == 1;
      if (differentiable && torch::autograd::isDifferentiableType(t.scalar_type()))
        torch::autograd::impl::set_gradient_edge(t, {node, place});
    };
    (to(r), ...);
    node->ctx_.set_materialize_grads(false);
    {
      const Unrecorded guard;
      node->saved = Saves<G>::of(a..., r...);
    }
    node->ctx_.save_for_backward(without_tensors(node->saved));
    node->save_variables_to_ctx();  // where a user's hooks run
  }

  // Of every argument.
  static variable_list gradient(const Grads& grads, auto numbers) {
    variable_list found;
    const auto& results = grads.of_results;
    if (std::any_of(results.begin(), results.end(), [](const Tensor& t) { return t.defined(); }))
      found = of_saved(grads, with_tensors(Op::name, std::move(numbers), *grads.context));
    found.resize(sizeof...(A));
    for (size_t i = 0; i < found.size(); ++i)
      if (!(grads.given >> i & 1)) found[i] = Tensor();
    return found;
  }
  template <class Saved>
  static variable_list of_saved(const Grads& grads, const Saved& saved) {
    if constexpr (!Saves<G>::kAll) {
      return std::apply([&](const auto&... s) { return G::gradient(grads, s...); }, saved);
    } else {
      return [&]<size_t... a, size_t... r>(std::index_sequence<a...>, std::index_sequence<r...>) {
        if (at::GradMode::is_enabled()) {
          static const auto composed = Op::find("_composed");
          return composed_gradient(composed, {std::get<a>(saved)...}, grads.of_results);
        }
        return G::gradient(grads, Op::pack(std::get<a>(saved)...), std::get<sizeof...(A) + r>(saved)...);
      }(std::index_sequence_for<A...>{}, std::make_index_sequence<std::tuple_size_v<Saved> - sizeof...(A)>{});
    }
  }
};

// -- registration

// Arguments that hold no tensors.
template <class T>
constexpr bool kPlain =
    std::is_arithmetic_v<T> || std::is_same_v<T, c10::SymInt> || std::is_same_v<T, at::Scalar> ||
    std::is_same_v<T, std::string_view> || std::is_same_v<T, at::IntArrayRef> ||
    std::is_same_v<T, c10::SymIntArrayRef> || std::is_same_v<T, at::ScalarType> || std::is_same_v<T, c10::Device>;
template <class T>
constexpr bool kPlain<std::optional<T>> = kPlain<T>;

// A kernel behind the gate: all its tensors pass, and are called in errors what the schema calls them.
template <class Op, auto kernel = Op::kernel, class = std::remove_pointer_t<std::remove_cv_t<decltype(kernel)>>>
struct Gated;
template <class Op, auto kernel, class R, class... A>
struct Gated<Op, kernel, R(A...)> {
  static R run(A... a) {
    size_t i = 0;
    (check(i++, a), ...);
    const c10::impl::ExcludeDispatchKeyGuard as_given(c10::autocast_dispatch_keyset);  // for torch's products
    return kernel(std::forward<A>(a)...);
  }

 private:
  static std::string name(size_t i) { return Op::find().schema().arguments()[i].name(); }
  static void check(size_t i, const Tensor& t) {
    if (!passes(t)) [[unlikely]] refuse(Op::name, name(i), t);
  }
  static void check(size_t i, const OptionalTensor& t) {
    if (t) check(i, *t);
  }
  static void check(size_t i, at::TensorList list) {
    for (size_t k = 0; k < list.size(); ++k)
      if (!passes(list[k])) refuse(Op::name, c10::str(name(i), "[", k, "]"), list[k]);
  }
  template <class T>
  static void check(size_t, const T&) {
    static_assert(kPlain<T>, "an argument that may hold tensors needs a check of its own here");
  }
};

inline void refuse_gradient(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  for (const c10::IValue& value : torch::jit::last(*stack, op.schema().arguments().size()))
    TORCH_CHECK_NOT_IMPLEMENTED(!value.isTensor() || !tracked(value.toTensor()), op.schema().name(),
                                ": has no gradient of its own; differentiate the forward operator twice instead");
  const at::AutoDispatchBelowADInplaceOrView guard;
  op.callBoxed(*stack);
}

template <class Op>
struct NoGradient : Gradient<Op> {
  static torch::CppFunction boxed() { return torch::CppFunction::makeFallthrough(); }
};
template <class Op>
struct OneGradient : Gradient<Op> {
  static torch::CppFunction boxed() { return torch::CppFunction::makeFromBoxedFunction<&refuse_gradient>(); }
};

template <class... G>
struct Operators {
  static void kernels(torch::Library& m) { (m.impl(G::Of::name, &Gated<typename G::Of>::run), ...); }
  static void metas(torch::Library& m) { (m.impl(G::Of::name, G::Of::meta), ...); }
  static void gradients(torch::Library& m) { (gradient<G>(m), ...); }

 private:
  template <class One>
  static void gradient(torch::Library& m) {
    if constexpr (requires { One::boxed(); }) m.impl(One::Of::name, One::boxed());
    else if constexpr (requires { &One::entry; }) m.impl(One::Of::name, &One::entry);
    else m.impl(One::Of::name, &Autograd<One>::entry);
  }
};

}  // namespace lod

#ifdef LOD_CUDA
#define LOD_CUDA_KERNELS(...)                                                                  \
  TORCH_LIBRARY_IMPL(LOD_LIBRARY, LOD_GPU_KEY, m) { lod::Operators<__VA_ARGS__>::kernels(m); }
#else
#define LOD_CUDA_KERNELS(...)
#endif
#define LOD_OPERATORS(...)                                                                    \
  TORCH_LIBRARY_IMPL(LOD_LIBRARY, CPU, m) { lod::Operators<__VA_ARGS__>::kernels(m); }        \
  TORCH_LIBRARY_IMPL(LOD_LIBRARY, Meta, m) { lod::Operators<__VA_ARGS__>::metas(m); }         \
  TORCH_LIBRARY_IMPL(LOD_LIBRARY, Autograd, m) { lod::Operators<__VA_ARGS__>::gradients(m); } \
  LOD_CUDA_KERNELS(__VA_ARGS__)
