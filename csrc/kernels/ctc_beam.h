// Shape "chain", over labels: the most probable labelings of a sequence of rows, by a beam search over prefixes
// (Graves, "Sequence transduction with recurrent neural networks", 2012; Hannun et al., "First-pass large vocabulary
// continuous speech recognition using bi-directional recurrent DNNs", 2014). Kernel source, see torch_lod/device.h.
//
// A prefix has two probabilities: of the paths to it that end in a blank, and in its last label. Prefixes are nodes of
// a tree, so that a prefix that is reached twice, or again after it was dropped, is the same node; a node goes when
// neither the beam nor another node needs it. Probabilities are numbers m 2^e with an exponent of their own, in double
// precision whatever the scores are, and compared without logarithms. A class is looked at only if it can bring a
// prefix into the beam.
// SPDX-License-Identifier: Apache-2.0

#include <memory>

#include "kernels/ctc_beam_api.h"

#include "core/heap.h"
#include "core/wide_numbers.h"

namespace lod::LOD_LEVEL {

using CtcOne = CtcWide<double, int64_t>;
constexpr double kLn2 = 0.693147180559945309417;

LOD_FN CtcOne ctc_zero() { return {0, CtcNumber<double>::kNone}; }
LOD_FN CtcOne ctc_times(const CtcOne& a, const CtcOne& b) { return ctc_normal<double>(a.m * b.m, a.e + b.e); }
LOD_FN CtcOne ctc_plus(const CtcOne& a, const CtcOne& b) {
  const CtcOne sum = ctc_add<double>(a, b);
  return ctc_normal<double>(sum.m, sum.e);
}
LOD_FN bool ctc_more(const CtcOne& a, const CtcOne& b) { return a.e > b.e || (a.e == b.e && a.m > b.m); }
LOD_FN double ctc_log(const CtcOne& a) { return ::log(a.m) + double(a.e) * kLn2; }

// What the search in one sequence needs, in one piece of memory.
struct CtcBeam {
  struct Node {
    int32_t parent, child, next, label;  // child: the first; next: the parent's next one
    int32_t needed;                      // by how many children, and by the beam
    int32_t slot;                        // in the beam, or -1
  };
  struct Prefix {
    CtcOne blank, label, total;
    int32_t node, last;
  };
  struct Found {
    CtcOne total;
    int64_t order;  // of equally probable ones; a slot, or behind all slots an extension
  };
  struct Class {
    double score;
    CtcOne probability;
    int32_t number;
  };
  Prefix *now, *next, *stays;
  Found* found;
  Class* classes;
  int64_t* taken;  // of every class the last prefix that has it for a child in the beam
  Node* nodes;
  int32_t used = 1, free = -1;

  // How many prefixes there are of so many rows, if fewer than the beam holds.
  LOD_FN static int64_t width(int64_t beam, int64_t rows, int64_t classes) {
    int64_t count = 1;
    for (int64_t t = 0; t < rows && count < beam; ++t) count = 1 + count * (classes - 1);
    return count < beam ? count : beam;
  }
  LOD_FN static int64_t bytes(int64_t rows, int64_t beam, int64_t classes) {
    return (3 * int64_t(sizeof(Prefix)) + int64_t(sizeof(Found))) * beam + int64_t(sizeof(Class) + 8) * classes +
           int64_t(sizeof(Node)) * (rows * beam + 1);
  }
  LOD_FN CtcBeam(char* memory, int64_t beam, int64_t width) {
    const auto take = [&]<class X>(X*& to, int64_t count) {
      to = reinterpret_cast<X*>(memory);
      memory += count * int64_t(sizeof(X));
    };
    take(now, beam), take(next, beam), take(stays, beam), take(found, beam), take(classes, width), take(taken, width);
    take(nodes, 1);
    for (int64_t c = 0; c < width; ++c) taken[c] = -1;
    nodes[0] = {-1, -1, -1, -1, 2, 0};
    now[0] = {{1, 0}, ctc_zero(), {1, 0}, 0, -1};
  }

  LOD_FN int32_t child(int32_t parent, int32_t label) {
    for (int32_t i = nodes[parent].child; i >= 0; i = nodes[i].next)
      if (nodes[i].label == label) return i;
    const int32_t made = free >= 0 ? free : used++;
    if (free >= 0) free = nodes[free].next;
    nodes[made] = {parent, -1, nodes[parent].child, label, 0, -1};
    nodes[parent].child = made;
    ++nodes[parent].needed;
    return made;
  }
  LOD_FN void drop(int32_t node) {
    while (--nodes[node].needed == 0) {
      const int32_t parent = nodes[node].parent;
      int32_t* link = &nodes[parent].child;
      while (*link != node) link = &nodes[*link].next;
      *link = nodes[node].next;
      nodes[node].next = free;
      free = node;
      node = parent;
    }
  }
};

template <class T>
struct CtcBeamKernel {
  using Prefix = CtcBeam::Prefix;
  using Found = CtcBeam::Found;
  using Class = CtcBeam::Class;
  CtcBeamArguments a;
  const Exec* exec;

  LOD_FN static bool first(const Found& x, const Found& y) {
    return ctc_more(x.total, y.total) || (!ctc_more(y.total, x.total) && x.order < y.order);
  }

  // One row: the prefixes `now`, and how many, become those after it, the best first. false where its softmax is none.
  LOD_FN bool advance(CtcBeam& g, const T* x, int64_t t, int64_t beam, int64_t& count) const {
    double top, sum;
    if (!ctc_softmax(x, a.width, top, sum, static_cast<double*>(nullptr))) return false;
    const double log_sum = ::log(sum);
    const auto probability = [&](double score) LOD_INLINE {
      const auto p = ctc_exp<double, int64_t>((score - top) - log_sum);
      return ctc_normal<double>(p.m, p.e);
    };
    const auto extends = [&](double score) LOD_INLINE { return score == top || (score - top) - log_sum >= a.least; };
    const auto before = [](const Found& x, const Found& y) LOD_INLINE { return first(x, y); };
    const CtcOne blank = probability(double(x[a.blank]));
    int64_t found = 0;
    for (int64_t j = 0; j < count; ++j) {
      const Prefix& own = g.now[j];
      Prefix& stay = g.stays[j];
      stay.blank = ctc_times(own.total, blank), stay.label = ctc_zero();
      if (own.last >= 0) {
        const double score = double(x[own.last]);
        const CtcOne p = probability(score);
        stay.label = ctc_times(own.label, p);
        const int32_t i = g.nodes[g.nodes[own.node].parent].slot;
        if (i >= 0 && extends(score))
          stay.label = ctc_plus(stay.label, ctc_times(g.now[i].last == own.last ? g.now[i].blank : g.now[i].total, p));
      }
      stay.total = ctc_plus(stay.blank, stay.label);
      if (stay.total.m > 0) g.found[found++] = {stay.total, j};
    }
    heap_make(g.found, found, before);
    extend(g, x, t * beam, beam, count, found, top, log_sum, probability, extends, before);
    heap_sort(g.found, found, before);
    for (int64_t r = 0; r < found; ++r) {
      const CtcOne total = g.found[r].total;
      const int64_t order = g.found[r].order, i = order < beam ? order : (order - beam) / a.width;
      const Prefix& from = g.now[i];
      if (order < beam) {
        g.next[r] = {g.stays[i].blank, g.stays[i].label, total, from.node, from.last};
      } else {
        const auto label = int32_t((order - beam) % a.width);
        g.next[r] = {ctc_zero(), total, total, g.child(from.node, label), label};
      }
      ++g.nodes[g.next[r].node].needed;
    }
    for (int64_t j = 0; j < count; ++j) {
      g.nodes[g.now[j].node].slot = -1;
      g.drop(g.now[j].node);
    }
    for (int64_t r = 0; r < found; ++r) g.nodes[g.next[r].node].slot = int32_t(r);
    Prefix* const last = g.now;
    g.now = g.next, g.next = last;
    count = found;
    return true;
  }

  // The classes that may extend a prefix, the most probable first.
  template <class E>
  LOD_FN int64_t likely_classes(CtcBeam& g, const T* x, int64_t count, bool full, double top, double log_sum,
                                const E& extends) const {
    if (count == 0) return 0;
    // a class that cannot bring the best prefix into a full beam brings none; rounded down
    double lowest = -INFINITY;
    if (full) lowest = ctc_log(g.found[0].total) - ctc_log(g.now[0].total) + log_sum;
    lowest += 1e-9 * (lowest - 1);
    int64_t classes = 0;
    for (int64_t c = 0; c < a.width; ++c) {
      const double score = double(x[c]);
      if (score - top >= lowest && c != a.blank && score > -INFINITY && extends(score))
        g.classes[classes++] = {score, {}, int32_t(c)};
    }
    const auto likelier = [](const Class& x, const Class& y) LOD_INLINE {
      return x.score > y.score || (x.score == y.score && x.number < y.number);
    };
    heap_make(g.classes, classes, likelier);
    heap_sort(g.classes, classes, likelier);
    return classes;
  }
  // Puts `one` among the beam's best: g.found is a heap, the worst first.
  template <class F>
  LOD_FN static void offer(CtcBeam& g, const Found& one, int64_t beam, int64_t& found, const F& before) {
    if (found < beam) {
      g.found[found] = one;
      heap_rise(g.found, found++, before);
    } else if (before(one, g.found[0])) {
      g.found[0] = one;
      heap_sink(g.found, found, 0, before);
    }
  }

  // The best of what stays and of all prefixes with one more label.
  template <class P, class E, class F>
  LOD_FN void extend(CtcBeam& g, const T* x, int64_t stamp, int64_t beam, int64_t count, int64_t& found, double top,
                     double log_sum, const P& probability, const E& extends, const F& before) const {
    const int64_t classes = likely_classes(g, x, count, found == beam, top, log_sum, extends);
    for (int64_t k = 0; k < classes; ++k) g.classes[k].probability = probability(g.classes[k].score);
    for (int64_t i = 0; i < count; ++i) {
      const Prefix& own = g.now[i];
      for (int64_t k = 0; k < classes; ++k) {
        const CtcOne p = g.classes[k].probability, most = ctc_times(own.total, p);
        if (found == beam && ctc_more(g.found[0].total, most)) {
          if (k == 0) return;  // nor do the prefixes behind it
          break;
        }
        if (k == 0)
          for (int32_t j = g.nodes[own.node].child; j >= 0; j = g.nodes[j].next)
            if (g.nodes[j].slot >= 0) g.taken[g.nodes[j].label] = stamp + i;
        const int32_t c = g.classes[k].number;
        if (g.taken[c] == stamp + i) continue;
        const Found one{c == own.last ? ctc_times(own.blank, p) : most, beam + i * a.width + c};
        if (one.total.m > 0) offer(g, one, beam, found, before);
      }
    }
  }

  LOD_FN void run(int64_t s, const Sequence& rows, int64_t beam, char* memory) const {
    CtcBeam g(memory, beam, a.width);
    const T* x = static_cast<const T*>(a.values) + rows.begin * a.width;
    int64_t count = 1;
    [[maybe_unused]] int64_t cells = 0;
    bool whole = true;
    for (int64_t t = 0; t < rows.length() && whole; ++t) {
      whole = advance(g, x + t * a.width, t, beam, count);
#ifdef LOD_LANES
      if ((cells += a.width + 16 * beam) < (1 << 18)) continue;
      cells = 0;
      exec->pause();
#endif
    }
    T* scores = static_cast<T*>(a.scores) + s * a.n;
    for (int64_t j = 0; j < a.n; ++j) {
      int64_t length = j < (whole ? count : 1) ? 0 : -1;
      if (whole && length == 0)
        for (int32_t i = g.now[j].node; i > 0; i = g.nodes[i].parent) ++length;
      scores[j] = T(acc_t<T>(!whole && j == 0 ? NAN : length < 0 ? -INFINITY : ctc_log(g.now[j].total)));
      a.lengths[s * a.n + j] = length;
      int64_t* to = a.labels + rows.begin * a.n + j;
      for (int64_t r = length < 0 ? 0 : length; r < rows.length(); ++r) to[r * a.n] = -1;
      if (whole && length > 0)
        for (int32_t i = g.now[j].node; i > 0; i = g.nodes[i].parent) to[--length * a.n] = g.nodes[i].label;
    }
  }

  LOD_FN void operator()(int64_t item) const {
    const int64_t s = a.order ? a.order[item] : item;
    const Sequence rows = a[s];
    const int64_t beam = CtcBeam::width(a.beam, rows.length(), a.width);
#ifdef LOD_LANES
    const std::unique_ptr<char[]> memory(new char[CtcBeam::bytes(rows.length(), beam, a.width)]);
    run(s, rows, beam, memory.get());
#else
    run(s, rows, beam, a.scratch + a.scratch_at[s]);
#endif
  }
};

LOD_ENTRY void ctc_beam(const Exec& exec, DType dtype, const CtcBeamArguments& a) {
  visit_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t mean = a.segments ? a.rows / a.segments * (a.width + 32 * a.beam) : 0;
    each(exec, a.segments, mean, CtcBeamKernel<T>{a, &exec});
  });
}

}  // namespace lod::LOD_LEVEL
