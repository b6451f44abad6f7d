// Shape "chain", over labels: connectionist temporal classification (Graves et al., ICML 2006): the sum over all
// alignments of labels with rows, its gradient, and the best alignment. Kernel source, see torch_lod/device.h.
//
// The lattice of a sequence of L labels has 2 L + 1 states: blank 0, label 0, blank 1, ..., label L - 1, blank L.
// Column i holds blank i and label i, and the states lie apart by kind, so that all blanks of a row have one
// probability and kCtcColumns columns are one vector, whose operators are those of a number (on a GPU it is one).
// Probabilities of paths are numbers m 2^e with an exponent of their own: neither scores of 1e4 nor 20,000 rows
// overflow or underflow, the relative error is that of a product, and no cell needs a logarithm or an exponential.
// SPDX-License-Identifier: Apache-2.0

#include <memory>
#include <new>

#include "kernels/ctc_api.h"

#include "core/scaled_floats.h"

namespace lod::LOD_LEVEL {

// The states of one row, by column; with a column of zeros before the first, and some behind the last.
template <class A>
struct CtcStates {
  A *blank, *label;
  ctc_exponent<A>*blank_e, *label_e;
  LOD_FN void clear(int64_t from, int64_t to) const {
    for (int64_t i = from; i < to; ++i) {
      blank[i] = label[i] = 0;
      blank_e[i] = label_e[i] = CtcNumber<A>::kNone;
    }
  }
};

// What the recursion of one sequence needs, in one piece of memory.
template <class A>
struct CtcLattice {
  using E = ctc_exponent<A>;
  using V = CtcVector<A>;
  using I = CtcVector<E>;
  using Many = CtcWide<V, I>;
  static constexpr int W = kCtcColumns;
  using Keeps = CtcKeeps;
  static constexpr Keeps nothing = Keeps::nothing, forward = Keeps::forward, choices = Keeps::choices;

  int64_t rows, labels, columns;  // columns: whole blocks
  Keeps keeps;
  int64_t* shift;       // rows + 1: what the exponents of a kept row are relative to
  CtcStates<A> now;     // the states of the row that is being worked on
  A *emitted, *skips, *weights, *tops, *sums, *exponentials;
  E* emitted_e;
  CtcStates<A> kept;    // all rows of `forward`
  uint8_t* chosen;      // all rows of `choices`

  LOD_FN static int64_t columns_of(int64_t labels) { return (labels + W) / W * W; }
  // A bound from above, or -1 where it cannot be counted.
  LOD_FN static int64_t bytes(int64_t rows, int64_t labels, int64_t classes, Keeps keeps) {
    static_assert(sizeof(A) == sizeof(E));
    const int64_t columns = columns_of(labels);
    if (keeps != nothing && columns > (int64_t(1) << 56) / (rows + 1)) return -1;
    return ctc_bytes(rows, columns, classes, int64_t(sizeof(A)), keeps, W);
  }
  LOD_FN CtcLattice(char* memory, int64_t rows_, int64_t labels_, int64_t classes, Keeps keeps_)
      : rows(rows_), labels(labels_), columns(columns_of(labels_)), keeps(keeps_) {
    const auto take = [&]<class X>(X*& to, int64_t count) {
      to = reinterpret_cast<X*>(memory);
      memory += count * int64_t(sizeof(X));
    };
    const int64_t wide = columns + 2 * W;
    take(shift, rows + 1);
    take(now.blank_e, wide), take(now.label_e, wide), take(emitted_e, wide);
    if (keeps == forward) take(kept.blank_e, rows * columns), take(kept.label_e, rows * columns);
    take(now.blank, wide), take(now.label, wide), take(emitted, wide), take(skips, wide);
    take(weights, wide);
    take(tops, rows), take(sums, rows), take(exponentials, classes);
    if (keeps == forward) take(kept.blank, rows * columns), take(kept.label, rows * columns);
    if (keeps == choices) take(chosen, 2 * rows * columns);
    now = {now.blank + W, now.label + W, now.blank_e + W, now.label_e + W};
  }

  // The blocks of columns in which a row has states that lie on a path from the first row to the last.
  LOD_FN Range blocks(int64_t t) const {
    const int64_t low = labels - (rows - t), high = t + 1 < labels ? t + 1 : labels;
    return {(low < 0 ? 0 : low) / W, high / W + 1};
  }

  LOD_FN void begin(const int64_t* label) {
    now.clear(-W, columns + W);
    for (int64_t i = 0; i < columns + W; ++i) {
      emitted[i] = 0, emitted_e[i] = 0;
      skips[i] = i > 0 && i < labels && label[i] != label[i - 1] ? A(1) : A(0);
    }
  }

  // The probabilities of a row: of the blank returned, of the labels in emitted.
  template <class T>
  LOD_FN void emit(const T* x, const int64_t* label, int64_t blank, A top, A sum, Range part, A& m, E& e) const {
    const A log_sum = log_above(sum);
    const auto one = ctc_exp<A, E>((A(x[blank]) - top) - log_sum);
    m = one.m, e = one.e;
    const int64_t end = part.end * W < labels ? part.end * W : labels;
    for (int64_t i = part.begin * W; i < end; ++i) emitted[i] = A(x[label[i]]);
    for (int64_t i = part.begin * W; i < end; i += W) {
      auto of = ctc_exp<A, I>((ctc_load(emitted + i) - top) - log_sum);
      if (i + W > end)  // what is beyond the labels is emitted with probability 0
        for (int k = int(end - i); k < W; ++k) ctc_lane(of.m, k) = 0;
      ctc_store(emitted + i, of.m), ctc_store(emitted_e + i, of.e);
    }
  }

  LOD_FN CtcWide<A, E> blank_at(int64_t i) const { return {now.blank[i], now.blank_e[i]}; }
  LOD_FN CtcWide<A, E> label_at(int64_t i) const { return {now.label[i], now.label_e[i]}; }
  LOD_FN static Many load(const A* m, const E* e) { return {ctc_load(m), ctc_load(e)}; }
  // Stores the states of a block, times the probabilities of their row. Returns the largest exponents.
  LOD_FN I store(int64_t at, const Many& blank, const Many& label, A blank_m, E blank_by, E by) const {
    const Many b = ctc_normal<A>(blank.m * blank_m, blank.e + blank_by);
    const Many y = ctc_normal<A>(label.m * ctc_load(emitted + at), label.e + ctc_load(emitted_e + at) + by);
    ctc_store(now.blank + at, b.m), ctc_store(now.blank_e + at, b.e);
    ctc_store(now.label + at, y.m), ctc_store(now.label_e + at, y.e);
    return b.e > y.e ? b.e : y.e;
  }
  // What a label leads to, or comes from, over the blank between: where the two labels differ.
  LOD_FN static Many over(Many label, const V& skips) {
    label.m *= skips;
    label.e = label.m == V{} ? I{} + CtcNumber<A>::kNone : label.e;
    return label;
  }
  template <class N>
  LOD_FN static auto more(const N& a, const N& than) {
    return (a.e > than.e) | ((a.e == than.e) & (a.m > than.m));
  }
  template <class N>
  LOD_FN static N either(const N& a, const N& than) {
    const auto from = more(a, than);
    return {from ? a.m : than.m, from ? a.e : than.e};
  }

  // One block of a row from the row before, in place: from the last block to the first. Returns the largest exponents.
  template <bool kBest>
  LOD_FN I advance(int64_t at, A blank_m, E blank_by, E by, uint8_t* choice) const {
    const Many b = load(now.blank + at, now.blank_e + at), y = load(now.label + at, now.label_e + at);
    const Many before = load(now.label + at - 1, now.label_e + at - 1), z = over(before, ctc_load(skips + at));
    if constexpr (!kBest) {
      const Many label = ctc_add<A>(ctc_add<A>(y, b), z);
      return store(at, ctc_add<A>(b, before), label, blank_m, blank_by, by);
    } else {
      const Many label = either(b, y);
      const auto from = more(before, b), on = more(b, y), far = more(z, label);
      for (int k = 0; k < W; ++k) {
        choice[k] = ctc_lane(from, k) ? 1 : 0;
        choice[k + W] = ctc_lane(far, k) ? 2 : ctc_lane(on, k) ? 1 : 0;
      }
      return store(at, either(before, b), either(z, label), blank_m, blank_by, by);
    }
  }

  // One block of the row before from this one, backwards and in place: from the first block to the last. `now` holds
  // what follows a state, times the row's probability. Gives the weights of the labels in all paths, and adds them up.
  LOD_FN I retreat(int64_t at, int64_t row, A blank_m, E blank_by, E by, E shift_by, V& of_blank, V& of_label) const {
    const Many b = load(now.blank + at, now.blank_e + at), y = load(now.label + at, now.label_e + at);
    const Many next = load(now.blank + at + 1, now.blank_e + at + 1);
    const Many z = over(load(now.label + at + 1, now.label_e + at + 1), ctc_load(skips + at + 1));
    const Many blank = ctc_add<A>(b, y), label = ctc_add<A>(ctc_add<A>(y, next), z);
    const int64_t cell = row * columns + at;
    const auto share = [&](const Many& follows, const A* m, const E* e) LOD_INLINE {
      return follows.m * ctc_load(m + cell) * ctc_power<A>((ctc_load(e + cell) + shift_by) + follows.e);
    };
    const V weight = share(label, kept.label, kept.label_e);
    of_blank += share(blank, kept.blank, kept.blank_e);
    of_label += weight;
    ctc_store(weights + at, weight);
    return store(at, blank, label, blank_m, blank_by, by);
  }
};

// One sequence. kKind: 0 its loss, 1 its gradient, 2 its best path.
template <class T, int kKind>
struct CtcKernel {
  using A = acc_t<T>;
  using Lattice = CtcLattice<A>;
  using E = typename Lattice::E;
  using V = typename Lattice::V;
  using I = typename Lattice::I;
  using One = CtcWide<A, E>;
  static constexpr int W = kCtcColumns;
  CtcArguments a;
  const Exec* exec;

  // The path, or the sum over paths, as m 2^(e + offset); m is NaN where a softmax is.
  struct Found {
    A m;
    E e;
    int64_t offset;
  };

  static constexpr typename Lattice::Keeps kKeeps =
      kKind == 0 ? Lattice::nothing : kKind == 1 ? Lattice::forward : Lattice::choices;

  LOD_FN void rest(int64_t& cells, int64_t more) const {
#ifdef LOD_LANES
    if ((cells += more) < (1 << 18)) return;
    cells = 0;
    exec->pause();
#endif
  }

  LOD_FN Found forward(Lattice& g, const T* x, const int64_t* label, T* out, int64_t& cells) const {
    constexpr bool best = kKind == 2, terms = kKind == 1 && std::is_same_v<T, A>;
    g.begin(label);
    g.now.blank[0] = 1, g.now.blank_e[0] = 0;
    int64_t offset = 0;
    E top = 0;
    Range before{0, 0};
    bool dead = false;
    for (int64_t t = 0; t < g.rows; ++t) {
      const T* row = x + t * a.width;
      A* kept = nullptr;
      if constexpr (terms) kept = out + t * a.width;
      if (!ctc_softmax(row, a.width, g.tops[t], g.sums[t], kept)) return {A(NAN), 0, 0};
      rest(cells, a.width + g.columns);
      if (dead) continue;  // only a NaN may still come
      const Range part = g.blocks(t);
      A m;
      E e;
      g.emit(row, label, a.blank, g.tops[t], g.sums[t], part, m, e);
      offset += top;
      const E by = -top;
      I most = I{} + CtcNumber<A>::kNone;
      for (int64_t block = part.end - 1; block >= part.begin; --block) {
        uint8_t* choice = nullptr;
        if constexpr (best) choice = g.chosen + 2 * (t * g.columns + block * W);
        const I here = g.template advance<best>(block * W, m, e + by, by, choice);
        most = here > most ? here : most;
      }
      top = ctc_largest<E>(most);
      for (int64_t block = before.begin; block < part.begin; ++block) g.now.clear(block * W, block * W + W);
      if constexpr (kKind == 1) {
        g.shift[t] = offset;
        const int64_t i = part.begin * W, cell = t * g.columns + i;
        const auto copy = [&](auto* to, const auto* from) {
          memcpy(to + cell, from + i, size_t(part.length() * W) * sizeof(*to));
        };
        copy(g.kept.blank, g.now.blank), copy(g.kept.blank_e, g.now.blank_e);
        copy(g.kept.label, g.now.label), copy(g.kept.label_e, g.now.label_e);
      }
      dead = top <= CtcNumber<A>::kNone;
      before = part;
    }
    if (dead) return {A(0), 0, 0};
    const One b = g.blank_at(g.labels), y = g.label_at(g.labels - 1);
    const One end = best ? Lattice::either(y, b) : ctc_add<A>(b, y);
    return {end.m, end.e, offset};
  }

  LOD_FN void run(int64_t s, const Sequence& rows, const Range& own, char* memory) const {
    const auto* x = static_cast<const T*>(a.values) + rows.begin * a.width;
    const int64_t* label = a.labels + own.begin;
    T* out = static_cast<T*>(a.out);
    if constexpr (kKind == 1) out += rows.begin * a.width;
    const int64_t n = rows.length();
    // without a path only a NaN is looked for, and nothing is kept
    const bool fits = own.length() <= n;
    int64_t cells = 0;
    if (!fits) {
      const bool bad = !finite_rows(x, n, cells);
      if constexpr (kKind == 1) fill(out, n * a.width, bad ? A(NAN) : A(0));
      else finish(s, rows, Found{bad ? A(NAN) : A(0), 0, 0});
      return;
    }
    Lattice g(memory, n, own.length(), a.width, kKeeps);
    const Found found = forward(g, x, label, out, cells);
    if constexpr (kKind == 1) {
      if (!(found.m > A(0))) return fill(out, n * a.width, found.m == A(0) ? A(0) : A(NAN));
      backward(g, x, label, out, found, A(static_cast<const T*>(a.grad)[s]), cells);
    } else {
      finish(s, rows, found);
      if constexpr (kKind == 2)
        if (found.m > A(0)) trace(g, a.path + rows.begin);
    }
  }
  LOD_FN bool finite_rows(const T* x, int64_t n, int64_t& cells) const {
    A top, sum;
    for (int64_t t = 0; t < n; ++t, rest(cells, a.width))
      if (!ctc_softmax(x + t * a.width, a.width, top, sum, static_cast<A*>(nullptr))) return false;
    return true;
  }
  LOD_FN static void fill(T* out, int64_t count, A value) {
    for (int64_t i = 0; i < count; ++i) out[i] = T(value);
  }
  LOD_FN void finish(int64_t s, const Sequence& rows, const Found& f) const {
    T* to = static_cast<T*>(a.out) + s;
    if (kKind == 2)
      for (int64_t r = rows.begin; r < rows.end; ++r) a.path[r] = -1;
    const double log = ::log(double(f.m)) + (double(f.e) + double(f.offset)) * 0.693147180559945309417;
    const A loss = f.m == A(0) && a.zero_infinity ? A(0) : A(kKind == 2 ? log : -log);
    *to = T(loss == A(0) ? A(0) : loss);
  }

  // Of every row softmax less the share of the paths that emit a class there, times the gradient of the loss.
  LOD_FN void backward(Lattice& g, const T* x, const int64_t* label, T* out, const Found& f, A grad,
                       int64_t& cells) const {
    using N = CtcNumber<A>;
    constexpr bool terms = std::is_same_v<T, A>;
    g.now.clear(-W, g.columns + W);
    g.now.blank[g.labels] = 1, g.now.blank_e[g.labels] = 0;
    const int64_t end = int64_t(f.e) + f.offset;
    int64_t offset = 0;
    E top = 0;
    Range after{0, 0};
    for (int64_t t = g.rows - 1; t >= 0; --t) {
      const T* row = x + t * a.width;
      const Range part = g.blocks(t);
      A m;
      E e;
      g.emit(row, label, a.blank, g.tops[t], g.sums[t], part, m, e);
      const int64_t distance = g.shift[t] + offset - end;  // at least -log2 of the number of states
      const E far = -N::kNone, shift = distance > far ? far : distance < -far ? -far : E(distance);
      const E by = -top;
      offset += top;
      I most = I{} + N::kNone;
      V of_blank = V{}, of_label = V{};
      for (int64_t block = part.begin; block < part.end; ++block) {
        const I here = g.retreat(block * W, t, m, e + by, by, shift, of_blank, of_label);
        most = here > most ? here : most;
      }
      top = ctc_largest<E>(most);
      for (int64_t block = part.end; block < after.end; ++block) g.now.clear(block * W, block * W + W);
      A* to = g.exponentials;
      if constexpr (terms) to = out + t * a.width;
      else
        for (int64_t c = 0; c < a.width; ++c) to[c] = exp_below(A(row[c]) - g.tops[t]);
      const A blanks = ctc_sum<A>(of_blank), total = blanks + ctc_sum<A>(of_label);
      const A inverse = grad / g.sums[t], share = total > A(0) ? grad / total : A(0);
      for (int64_t c = 0; c < a.width; ++c) to[c] *= inverse;
      const int64_t last = part.end * W < g.labels ? part.end * W : g.labels;
      to[a.blank] -= blanks * share;
      for (int64_t i = part.begin * W; i < last; ++i) to[label[i]] -= g.weights[i] * share;
      if constexpr (!terms)
        for (int64_t c = 0; c < a.width; ++c) out[t * a.width + c] = T(to[c]);
      after = part;
      rest(cells, a.width + g.columns);
    }
  }

  LOD_FN void trace(const Lattice& g, int64_t* path) const {
    const int64_t n = g.labels;
    bool on = Lattice::more(g.label_at(n - 1), g.blank_at(n));
    for (int64_t t = g.rows - 1, i = on ? n - 1 : n; t >= 0; --t) {
      path[t] = on ? i : -1;
      const uint8_t* choice = g.chosen + 2 * (t * g.columns + i / W * W) + i % W;
      if (on) {
        const uint8_t from = choice[W];
        i -= from == 2;
        on = from != 1;
      } else if (*choice) {
        --i, on = true;
      }
    }
  }

  LOD_FN void operator()(int64_t item) const {
    const int64_t s = a.order ? a.order[item] : item;
    const Sequence rows = a[s];
    const Range own = rows_of(a.label_offsets, s, a.label_count);
#ifdef LOD_LANES
    const int64_t bytes =
        own.length() > rows.length() ? 0 : Lattice::bytes(rows.length(), own.length(), a.width, kKeeps);
    if (bytes < 0) throw std::bad_alloc();
    const std::unique_ptr<char[]> memory(new char[bytes]);
    run(s, rows, own, memory.get());
#else
    run(s, rows, own, a.scratch + a.scratch_at[s]);
#endif
  }
};

template <int kKind>
void ctc_as(const Exec& exec, DType dtype, const CtcArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t mean = a.segments ? a.rows / a.segments * (a.width + 4 * (a.label_count / a.segments)) : 0;
    each(exec, a.segments, mean, CtcKernel<T, kKind>{a, &exec});
  });
}
LOD_ENTRY void ctc_loss(const Exec& exec, DType dtype, const CtcArguments& a) { ctc_as<0>(exec, dtype, a); }
LOD_ENTRY void ctc_loss_backward(const Exec& exec, DType dtype, const CtcArguments& a) { ctc_as<1>(exec, dtype, a); }
LOD_ENTRY void ctc_best_path(const Exec& exec, DType dtype, const CtcArguments& a) { ctc_as<2>(exec, dtype, a); }

}  // namespace lod::LOD_LEVEL
