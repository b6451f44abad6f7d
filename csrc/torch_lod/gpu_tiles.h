// The drivers of segment_drivers.h on a GPU. Kernel source. SPDX-License-Identifier: Apache-2.0
//
// A piece is a segment of at most tile_rows rows, or tile_rows rows of a longer one, counted from its own start. Rows
// and segments are counted together: piece p of segment s has the number begin[s] + s + p tile_rows, and tile t owns
// the pieces whose numbers are from t tile_rows to (t + 1) tile_rows - 1. However skewed the lengths are, and however
// many segments are empty, a tile has at most tile_rows pieces and twice as many rows, one behind the other. At most
// its first and its last piece belong to longer segments; piece p of a segment that begins in tile t is in tile t + p.
//
// A block of threads does a tile; of rows of more than 32 channels, 32 channels of it. Its own length alone decides who
// takes a segment: one lane for each channel, several lanes of a warp, or all warps. A second launch leaves the states
// of pieces of longer segments in memory; a third combines them, and where there are results by row a fourth
// writes them. A result depends neither on other segments nor on the GPU.
//
// Rows narrower than 128 bytes are copied to shared memory and back, side by side, where a kernel says kTiles.

namespace lod::LOD_LEVEL {

// write(i, read(i)) for the n elements from i on, `step` apart. Several are read before the first is written: for all
// that a compiler knows it may be to the same memory, and to save registers it would rather wait for every one. Of a
// step that it knows to stay the same it would keep the multiples, in 16 registers.
template <class Read, class Write>
LOD_DEVICE void in_order(int64_t i, int64_t step, int n, const Read& read, const Write& write) {
  using Value = decltype(read(i));
  constexpr int kPrefetch = sizeof(Value) <= 4 ? 8 : sizeof(Value) <= 8 ? 4 : 2;
#pragma unroll 1
  for (; n > 0; n -= kPrefetch, i += kPrefetch * step) {
    Value held[kPrefetch];
    asm volatile("" : "+l"(step));
#pragma unroll
    for (int u = 0; u < kPrefetch; ++u)
      if (u < n) held[u] = read(i + u * step);
    asm volatile("" ::: "memory");
#pragma unroll
    for (int u = 0; u < kPrefetch; ++u)
      if (u < n) write(i + u * step, held[u]);
  }
}

// -- who takes a segment

constexpr int kWarps = kRowThreads / 32;

#ifndef LOD_SHUFFLE  // of a struct; tests/emulated_gpu has one of its own
template <class S>
LOD_DEVICE S shuffle(const S& s, int lane) {
  unsigned words[(sizeof(S) + 3) / 4] = {};
  std::memcpy(words, &s, sizeof(S));
  for (auto& word : words) word = __shfl_sync(~0u, word, lane);
  S other;
  std::memcpy(&other, words, sizeof(S));
  return other;
}
#define LOD_SHUFFLE(value, lane) shuffle(value, lane)
#endif

// Lanes of a warp, `rows` for each of `channels` channels; or such lanes of all warps. All lanes call what needs
// others; those that are not active have nothing to add.
template <class S>
struct Team {
  S* shared;  // [warp, channel], for all warps
  int channels, rows, first, row, channel, warps, warp;
  bool active;

  LOD_DEVICE Team(S* states, int width, int lanes, bool all_warps, int strip) : shared(states), channels(width) {
    for (rows = 1; channels < kStrip && 2 * rows * channels <= lanes;) rows *= 2;
    first = lane() / size() * size(), row = (lane() - first) / channels, channel = lane() % channels;
    warps = all_warps ? kWarps : 1, warp = all_warps ? int(threadIdx.x) / 32 : 0;
    active = first + size() <= 32 && channel < strip && (!all_warps || first == 0);
  }
  LOD_DEVICE static int lane() { return int(threadIdx.x) % 32; }
  LOD_DEVICE int size() const { return rows * channels; }
  LOD_DEVICE int index() const { return warp * rows + row; }  // among the lanes of a channel
  LOD_DEVICE int count() const { return warps * rows; }  // a power of two
  LOD_DEVICE bool leads() const { return active && index() == 0; }
  // The state of another lane of this channel; all lanes of a warp call it.
  LOD_DEVICE S of_row(const S& s, int r) const { return LOD_SHUFFLE(s, first + r * channels + channel); }
  // n items, one for each lane of a channel and so on: how many are mine.
  LOD_DEVICE int mine(int64_t n) const {
    return active && index() < n ? int((n - 1 - index()) >> (31 - __clz(count()))) + 1 : 0;
  }

  // The states of all lanes of a channel combined, for each of them.
  template <class Combine>
  LOD_DEVICE S joined(S own, const Combine& combine) const {
    for (int by = rows / 2; by > 0; by /= 2) {
      const S other = of_row(own, row + by);
      if (row < by) combine(own, other);
    }
    own = of_row(own, 0);
    return warps == 1 ? own : joined_warps(own, combine);
  }
  template <class Combine>
  LOD_DEVICE S joined_warps(const S& own, const Combine& combine) const {
    share(own);
    S all = shared[channel];
    for (int w = 1; w < kWarps; ++w) combine(all, shared[w * kStrip + channel]);
    __syncthreads();
    return all;
  }
  // `start` and then the states of the warps before this one.
  template <class Combine>
  LOD_DEVICE S before(const S& own, S start, const Combine& combine) const {
    share(own);
    for (int w = 0; w < warp; ++w) combine(start, shared[w * kStrip + channel]);
    __syncthreads();
    return start;
  }

 private:
  LOD_DEVICE void share(const S& own) const {
    if (active && row == 0) shared[warp * kStrip + channel] = own;
    __syncthreads();
  }
};

// -- what is done with a segment: a reduction

template <class K>
struct TiledReduce : K {
  using State = typename K::template State<1>;
  static constexpr int kPasses = K::kPasses;
  static constexpr bool kByRow = K::kByRow;
  static constexpr int kLanes = K::kSerial ? 1 : 32;  // of a warp, where channels leave some
  static constexpr int kBlocks = 3;  // of narrow rows on a multiprocessor, at least: 80 registers of a thread

  // A segment.
  LOD_DEVICE void whole(const LoDView& g, const Team<State>& team, const Sequence& s, int64_t c) const {
    State state;
    passes<0>(g, team, s, c, state);
    if constexpr (kByRow) emit(g, team, s, s, c, state);
    else finish(g, team, s, c, state);
  }
  // Some rows of a segment, of which `state` has the passes before this one.
  template <int pass>
  LOD_DEVICE void part(const LoDView& g, const Team<State>& team, const Sequence&, const Range& rows, int64_t c,
                       State& state) const {
    const K& k = *this;
    k.template identity<pass>(state, 0);
    int64_t row = rows.begin + team.index();
    in_order(row * g.width + c, team.count() * g.width, team.mine(rows.length()), [&](int64_t i) { return k.load(i); },
             [&](int64_t, const auto& x) {
               k.template accumulate<pass>(state, 0, term_of<pass>(k, state, 0, x), row);
               row += team.count();
             });
    state = team.joined(state, Combine<pass>{k});
  }
  // All parts of a segment. part_at(p): that of its piece p.
  template <int pass, class PartAt>
  LOD_DEVICE void combine_parts(const LoDView& g, const Team<State>& team, const Sequence& s, int64_t c, int64_t pieces,
                                const PartAt& part_at, State& total) const {
    const K& k = *this;
    State state = total;
    k.template identity<pass>(state, 0);
    in_order(team.index(), team.count(), team.mine(pieces), [&](int64_t p) { return part_at(p); },
             [&](int64_t, const State& one) { k.template combine<pass>(state, 0, one, 0); });
    state = team.joined(state, Combine<pass>{k});
    k.template finalize<pass>(state, 0, s.length());
    if (team.leads()) total = state;
    if constexpr (pass + 1 == kPasses && !kByRow) finish(g, team, s, c, state);
  }
  // The results of some rows.
  LOD_DEVICE void emit(const LoDView& g, const Team<State>& team, const Sequence&, const Range& rows, int64_t c,
                       const State& state) const {
    const K& k = *this;
    in_order((rows.begin + team.index()) * g.width + c, team.count() * g.width, team.mine(rows.length()),
             [&](int64_t i) { return k.load(i); }, [&](int64_t i, const auto& x) {
               k.map(state, 0, term_of<kPasses - 1>(k, state, 0, x), i);
             });
  }
  LOD_DEVICE static const State& state_of(const State&, const State& total) { return total; }

 private:
  template <int pass>
  struct Combine {
    const K& k;
    LOD_DEVICE void operator()(State& s, const State& other) const { k.template combine<pass>(s, 0, other, 0); }
  };
  template <int pass>
  LOD_DEVICE void passes(const LoDView& g, const Team<State>& team, const Sequence& s, int64_t c, State& state) const {
    if constexpr (pass < kPasses) {
      part<pass>(g, team, s, s, c, state);
      K::template finalize<pass>(state, 0, s.length());
      passes<pass + 1>(g, team, s, c, state);
    }
  }
  LOD_DEVICE void finish(const LoDView& g, const Team<State>& team, const Sequence& s, int64_t c,
                         const State& state) const {
    if (team.leads()) K::finish(state, 0, s, s.index * g.width + c);
  }
};

// -- a scan

template <class K>
struct TiledScan : K {
  using State = typename K::template State<1>;
  static constexpr int kPasses = 1;
  static constexpr bool kByRow = true;
  static constexpr int kLanes = K::kSerial ? 1 : 32;
  static constexpr int kBlocks = sizeof(State) > 16 || sizeof(std::declval<K>().load(0, ScanRow())) > 8 ? 2 : 3;

  LOD_DEVICE void whole(const LoDView& g, const Team<State>& team, const Sequence& s, int64_t c) const {
    emit(g, team, s, s, c, nothing());
  }
  template <int>
  LOD_DEVICE void part(const LoDView& g, const Team<State>& team, const Sequence& s, const Range& rows, int64_t c,
                       State& state) const {
    state = nothing();
    scan<false>(g, team, s, of_warp(team, rows), c, state);
    state = team.joined_warps(state, Combine{});
  }
  // Each part becomes what comes before its piece.
  template <int, class PartAt>
  LOD_DEVICE void combine_parts(const LoDView&, const Team<State>& team, const Sequence&, int64_t, int64_t pieces,
                                const PartAt& part_at, State&) const {
    const int64_t each = (pieces + team.count() - 1) / team.count(), from = each * team.index(), left = pieces - from;
    const int64_t mine = !team.active || left < 0 ? 0 : left < each ? left : each;
    const auto place = [&](int64_t p) -> State& { return part_at(K::reverse() ? pieces - 1 - p : p); };
    const auto read = [&](int64_t p) { return place(p); };
    State own = nothing(), earlier = nothing();
    in_order(from, 1, int(mine), read, [&](int64_t, const State& one) { Combine{}(own, one); });
    for (int r = 0; r < team.rows; ++r) {
      const State one = team.of_row(own, r);
      if (r < team.row) Combine{}(earlier, one);
    }
    State all = earlier;
    Combine{}(all, own);
    State before = team.before(team.of_row(all, team.rows - 1), nothing(), Combine{});
    Combine{}(before, earlier);
    in_order(from, 1, int(mine), read, [&](int64_t p, const State& one) {
      place(p) = before;
      Combine{}(before, one);
    });
  }
  // Each warp has rows that follow one another: first their state, and then the results.
  LOD_DEVICE void emit(const LoDView& g, const Team<State>& team, const Sequence& s, const Range& rows, int64_t c,
                       State state) const {
    const Range mine = of_warp(team, rows);
    if (team.warps > 1) {
      State own = nothing();
      scan<false>(g, team, s, mine, c, own);
      state = team.before(own, state, Combine{});
    }
    scan<true>(g, team, s, mine, c, state);
  }
  LOD_DEVICE static const State& state_of(const State& part, const State&) { return part; }

 private:
  static constexpr int64_t kFewest = K::kSerial ? 128 : 1;  // rows of a warp
  struct Combine {
    LOD_DEVICE void operator()(State& s, const State& next) const { K::combine(s, 0, next, 0); }
  };
  LOD_DEVICE static State nothing() {
    State state;
    K::identity(state, 0);
    return state;
  }
  LOD_DEVICE Range of_warp(const Team<State>& team, const Range& rows) const {
    const int64_t n = rows.length(), even = (n + team.warps - 1) / team.warps;
    const int64_t each = even < kFewest ? kFewest : even, from = each * team.warp;
    const int64_t first = from < n ? from : n, last = first + each < n ? first + each : n;
    return K::reverse() ? Range{rows.end - last, rows.end - first} : Range{rows.begin + first, rows.begin + last};
  }
  // Rows in the order of the scan, behind those of `state`; they are added to it. A lane takes every team.rows-th.
  template <bool kEmit>
  LOD_DEVICE void scan(const LoDView& g, const Team<State>& team, const Sequence& s, const Range& rows, int64_t c,
                       State& state) const {
    const K& k = *this;
    const bool back = k.reverse();
    const int n = team.active ? int(rows.length()) : 0;
    const int64_t top = back ? rows.end - 1 : rows.begin, first = top * g.width + c, step = back ? -g.width : g.width;
    const bool begins = top == (back ? s.end - 1 : s.begin);
    const auto at = [&](int p) { return ScanRow{back ? top - p : top + p, s.index, begins && p == 0}; };
    const auto index = [&](int p) { return first + step * p; };
    const auto read = [&](int p) { return k.load(index(p), at(p)); };
    if (kLanes == 1 || team.rows == 1) {
      in_order(0, 1, n, read, [&](int p, const auto& x) { k.template step<kEmit>(state, 0, x, index(p), at(p)); });
    } else {
      auto next = decltype(read(0)){};
      if (team.row < n) next = read(team.row);
#pragma unroll 1
      for (int p = team.row; __any_sync(~0u, p - team.row < n); p += team.rows) {
        const auto x = next;
        if (p + team.rows < n) next = read(p + team.rows);
        side_by_side<kEmit>(team, p < n, x, index(p), at(p), state);
      }
    }
  }
  // A row for each lane of a channel.
  template <bool kEmit>
  LOD_DEVICE void side_by_side(const Team<State>& team, bool there, const auto& x, int64_t i, const ScanRow& row,
                               State& state) const {
    const K& k = *this;
    State own = nothing();
    if (there) k.template step<false>(own, 0, x, i, row);
    for (int by = 1; by < team.rows; by *= 2) {
      State earlier = team.of_row(own, team.row - by);
      if (team.row >= by) Combine{}(earlier, own), own = earlier;
    }
    if constexpr (kEmit) {
      State before = state;
      const State earlier = team.of_row(own, team.row - 1);
      if (team.row > 0) Combine{}(before, earlier);
      if (there) k.template step<true>(before, 0, x, i, row);
    }
    Combine{}(state, team.of_row(own, team.rows - 1));
  }
};

// -- tiles

template <class F>
struct Tiles {
  using State = typename F::State;
  F f;
  LoDView g;
  int64_t tile_rows;
  const int64_t* firsts;
  State* parts;  // [tile, 3, width]: of a tile's first and last piece, and of all of the segment of the last; or null

  LOD_FN int64_t number(const Sequence& s) const { return s.begin + s.index; }
  LOD_FN bool is_longer(const Sequence& s) const { return parts && s.length() > tile_rows; }
  LOD_FN int64_t pieces(const Sequence& s) const { return (s.length() + tile_rows - 1) / tile_rows; }
  LOD_FN Range rows(const Sequence& s, int64_t p) const {
    const int64_t begin = s.begin + p * tile_rows, end = begin + tile_rows;
    return {begin, end < s.end ? end : s.end};
  }
  LOD_FN State& part(const Sequence& s, int64_t p, int64_t c) const {
    return parts[((number(s) / tile_rows + p) * 3 + (p == 0)) * g.width + c];
  }
  LOD_FN State& total(const Sequence& s, int64_t c) const {
    return parts[(number(s) / tile_rows * 3 + 2) * g.width + c];
  }
  // The segments that begin in a tile; all threads of a block ask.
  LOD_DEVICE Range begin_in(int64_t tile) const {
    const int64_t low = tile * tile_rows, high = low + tile_rows;
    const auto before = [&](int64_t s) { return number(g[s]) < low; };
    const int64_t first = firsts ? firsts[tile] : count_before(g.segments, before);
    const int64_t left = g.segments - first, most = left < tile_rows ? left : tile_rows;
    const int64_t count = firsts ? firsts[tile + 1] - first
                                 : count_before(most, [&](int64_t i) { return number(g[first + i]) < high; });
    return {first, first + (count < most ? count : most)};
  }
};

// A tile and channels of it; wide: where all are known to have a strip, which leaves out most of the code for lanes.
struct Place {
  int64_t tile, c;
  int channels, strip;  // of a tile, and how many there are here
  LOD_DEVICE explicit Place(const LoDView& g, bool wide = false) {
    const int64_t strips = (g.width + kStrip - 1) / kStrip, left = g.width - int64_t(blockIdx.x) % strips * kStrip;
    tile = int64_t(blockIdx.x) / strips, c = g.width - left;
    channels = int(!wide && g.width < kStrip ? g.width : kStrip), strip = int(left < kStrip ? left : kStrip);
  }
};

// f(s, p) for the pieces of longer segments in this tile: of the last that begins before it, and of the last in it.
template <class F, class Do>
LOD_DEVICE void each_piece(const Tiles<F>& a, int64_t tile, const Do& f) {
  const Range here = a.begin_in(tile);
  for (int last = 0; last < 2; ++last) {
    const int64_t of = (last ? here.end : here.begin) - 1;
    if (of < (last ? here.begin : 0)) continue;
    const Sequence s = a.g[of];
    const int64_t p = tile - a.number(s) / a.tile_rows;
    if (a.is_longer(s) && p >= 0 && p < a.pieces(s)) f(s, p);
  }
}

// The segments of a tile that are whole, listed by who takes them: a lane for each channel, 8 lanes, a warp, the block.
constexpr int kListed = 512;
struct Listed {
  int counts[4];
  unsigned short segments[4][kListed];

  LOD_DEVICE static int lanes(int list) { return list == 0 ? 1 : list == 1 ? 8 : 32; }
  LOD_DEVICE static int list_of(int64_t length, int channels, bool serial) {
    if (serial || channels > 8) return length <= (serial ? 1024 : 64) ? 0 : 3;
    for (int list = 0; list < 3; ++list) {
      const int rows = lanes(list) > channels ? lanes(list) / channels : 1;
      if (length <= (list < 2 ? 8 : 16) * rows) return list;
    }
    return 3;
  }
  template <class F>
  LOD_DEVICE void fill(const LoDView& g, int64_t first, int n, int channels) {
    __syncthreads();
    if (threadIdx.x < 4) counts[threadIdx.x] = 0;
    __syncthreads();
    for (int i = int(threadIdx.x); i < n; i += kRowThreads) {
      const int64_t length = g[first + i].length();
      if (F::kByRow && length == 0) continue;
      const int list = list_of(length, channels, F::kLanes == 1);
      segments[list][atomicAdd(&counts[list], 1)] = static_cast<unsigned short>(i);
    }
    __syncthreads();
  }
};
// Wrong offsets may name rows outside of `rows`, those from the first segment to the last: of these there are none.
LOD_DEVICE Sequence within(const Range& rows, const Sequence& s) {
  const auto clamped = [&](int64_t row) { return row > rows.end ? rows.end : row < rows.begin ? rows.begin : row; };
  return {{clamped(s.begin), clamped(s.end)}, s.index};
}
template <class F>
LOD_DEVICE void each_whole(const F& f, const LoDView& g, const Range& segments, const Range& rows, const Place& place,
                           Listed& listed, typename F::State* states) {
  for (int64_t first = segments.begin; first < segments.end; first += kListed) {
    const int64_t left = segments.end - first;
    listed.template fill<F>(g, first, int(left < kListed ? left : kListed), place.channels);
#pragma unroll 1
    for (int list = 0; list < 4; ++list) {
      const int lanes = list == 3 ? F::kLanes : Listed::lanes(list);
      const Team<typename F::State> team(states, place.channels, lanes, list == 3, place.strip);
      const int teams = list == 3 ? 1 : 32 / team.size(), n = listed.counts[list];
#pragma unroll 1
      for (int i = list == 3 ? 0 : int(threadIdx.x) / 32 * teams; i < n; i += list == 3 ? 1 : kWarps * teams) {
        auto own = team;
        const int mine = i + team.first / team.size();
        own.active = team.active && mine < n;
        const Sequence s = within(rows, g[first + listed.segments[list][own.active ? mine : i]]);
        f.whole(g, own, s, place.c + own.channel);
      }
    }
  }
}

// Rows of whole segments in shared memory, where a kernel finds them by the indices that they have elsewhere. What is
// written by row takes the place of the last input, element by element.
template <class F, bool>
struct Staged {
  using T = typename F::Element;
  static constexpr int kRoom = 2 * LOD_TILE_BYTES / int(sizeof(T)) / F::kRowsIn;
  T memory[F::kRowsIn][kRoom];
  LOD_DEVICE bool read(F& f, int64_t from, int64_t n, int64_t width) {
    if (n < 0 || n > kRoom || width * int64_t(sizeof(T)) >= 128) return false;
    for (int k = 0; k < F::kRowsIn; ++k) {
      copy(n, f.in[k] + from, memory[k]);
      f.in[k] = moved(memory[k], from);
    }
    if constexpr (F::kByRow) f.out = moved(memory[F::kRowsIn - 1], from);
    return true;
  }
  LOD_DEVICE void write(T* out, int64_t from, int64_t n) const {
    __syncthreads();
    if constexpr (F::kByRow) copy(n, memory[F::kRowsIn - 1], out + from);
  }

 private:
  LOD_DEVICE static void copy(int64_t n, const T* from, T* to) {
    const int64_t first = int(threadIdx.x), mine = first < n ? (n - 1 - first) / kRowThreads + 1 : 0;
    in_order(first, kRowThreads, mine, [&](int64_t i) { return from[i]; }, [&](int64_t i, T x) { to[i] = x; });
  }
  LOD_DEVICE static T* moved(T* here, int64_t from) {
    return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(here) - uintptr_t(from) * sizeof(T));
  }
};
template <class F>
struct Staged<F, false> {
  LOD_DEVICE bool read(F&, int64_t, int64_t, int64_t) { return false; }
  LOD_DEVICE void write(const void*, int64_t, int64_t) const {}
};

// Whole segments, of rows that have a strip of channels or of narrower ones.
template <class F, bool kWide>
__global__ void __launch_bounds__(kRowThreads, kWide ? 3 : F::kBlocks) run_tiles(Tiles<F> a) {
  using State = typename F::State;
  LOD_SHARED(states, State[kWarps * kStrip]);
  LOD_SHARED(listed, Listed);
  LOD_SHARED(staged, Staged<F, F::kTiles && !kWide>);
  const Place place(a.g, kWide);
  Range here = a.begin_in(place.tile);
  if (here.length() > 0) here.end -= a.is_longer(a.g[here.end - 1]);
  if (here.length() <= 0) return;
  F f = a.f;
  const Range rows{a.g[here.begin].begin, a.g[here.end - 1].end};
  const int64_t from = rows.begin * a.g.width, n = rows.length() * a.g.width;
  const bool is_staged = staged.read(f, from, n, a.g.width);
  each_whole(f, a.g, here, rows, place, listed, states);
  if (is_staged) staged.write(a.f.out, from, n);
}
// A pass over pieces of longer segments, or over the parts that it left; or, pass = kPasses, the results by row.
template <class F, int pass, bool kParts = false>
__global__ void __launch_bounds__(kRowThreads) run_pieces(Tiles<F> a) {
  using State = typename F::State;
  LOD_SHARED(states, State[kWarps * kStrip]);
  const Place place(a.g);
  const Team<State> team(states, place.channels, F::kLanes, true, place.strip);
  const int64_t c = place.c + (team.active ? team.channel : 0);
  each_piece(a, place.tile, [&](const Sequence& s, int64_t p) {
    State state = F::state_of(a.part(s, p, c), a.total(s, c));
    if constexpr (kParts) {
      const auto part_at = [&](int64_t i) -> State& { return a.part(s, i, c); };
      if (p == 0) a.f.template combine_parts<pass>(a.g, team, s, c, a.pieces(s), part_at, a.total(s, c));
    } else if constexpr (pass == F::kPasses) {
      a.f.emit(a.g, team, s, a.rows(s, p), c, state);
    } else {
      a.f.template part<pass>(a.g, team, s, a.rows(s, p), c, state);
      if (team.leads()) a.part(s, p, c) = state;
    }
  });
}

template <class F, int pass = 0>
void go_on(const Exec& exec, const Tiles<F>& a, unsigned blocks) {
  if constexpr (pass < F::kPasses || F::kByRow)
    LOD_LAUNCH((run_pieces<F, pass>), blocks, kRowThreads, exec.stream, a);
  if constexpr (pass < F::kPasses) {
    LOD_LAUNCH((run_pieces<F, pass, true>), blocks, kRowThreads, exec.stream, a);
    go_on<F, pass + 1>(exec, a, blocks);
  }
}
template <class F>
void each_tile(const Exec& exec, const TileView& g, const F& f) {
  using State = typename F::State;
  static_assert(sizeof(State) <= kPartBytes);
  if (!g.width || !g.segments) return;
  constexpr int64_t bytes = int64_t(sizeof(typename F::Element)) * F::kRowsIn;
  const int64_t rows = g.tile_rows ? g.tile_rows : tile_rows_of(g.width, bytes);
  const Tiles<F> a{f, g, rows, g.firsts, static_cast<State*>(g.parts)};
  const auto blocks = unsigned(tiles_of(g, rows) * ((g.width + kStrip - 1) / kStrip));
  if (g.width < kStrip) LOD_LAUNCH((run_tiles<F, false>), blocks, kRowThreads, exec.stream, a);
  else LOD_LAUNCH((run_tiles<F, true>), blocks, kRowThreads, exec.stream, a);
  if (a.parts) go_on(exec, a, blocks);
}

template <class T, class K>
void reduce_segments(const Exec& exec, const TileView& g, Pointers<K::kRowsIn> in, void* out, K k) {
  for (int a = 0; a < K::kRowsIn; ++a) k.in[a] = static_cast<const T*>(in.at[a]);
  k.out = static_cast<T*>(out);
  each_tile(exec, g, TiledReduce<K>{k});
}
template <class T, class K>
void scan_segments(const Exec& exec, const TileView& g, Pointers<K::kRowsIn> in, void* out, K k) {
  for (int a = 0; a < K::kRowsIn; ++a) k.in[a] = static_cast<const T*>(in.at[a]);
  k.out = static_cast<T*>(out);
  each_tile(exec, g, TiledScan<K>{k});
}
template <class T, class K1, class K2>
void scan_segments(const Exec& exec, const TileView& g, Pointers<K2::kRowsIn> in, void* out, K1 k1, const K2& k2) {
  k1.in[0] = static_cast<const T*>(in.at[0]);
  each_tile(exec, g, TiledScan<K1>{k1});
  scan_segments<T>(exec, g, in, out, k2);
}

}  // namespace lod::LOD_LEVEL
