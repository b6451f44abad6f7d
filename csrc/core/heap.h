// Binary heaps whose first item comes last in the order of `before`. Kernel source, included for each level.
// SPDX-License-Identifier: Apache-2.0

namespace lod::LOD_LEVEL {

template <class X, class F>
LOD_FN void heap_sink(X* items, int64_t count, int64_t at, const F& before) {
  const X item = items[at];
  for (int64_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && before(items[child], items[child + 1])) ++child;
    if (!before(item, items[child])) break;
    items[at] = items[child];
  }
  items[at] = item;
}
template <class X, class F>
LOD_FN void heap_make(X* items, int64_t count, const F& before) {
  for (int64_t i = count / 2; i-- > 0;) heap_sink(items, count, i, before);
}
template <class X, class F>
LOD_FN void heap_rise(X* items, int64_t at, const F& before) {
  const X item = items[at];
  for (int64_t parent; at > 0 && before(items[parent = (at - 1) / 2], item); at = parent) items[at] = items[parent];
  items[at] = item;
}
template <class X, class F>
LOD_FN void heap_sort(X* items, int64_t count, const F& before) {
  while (--count > 0) {
    const X last = items[0];
    items[0] = items[count], items[count] = last;
    heap_sink(items, count, 0, before);
  }
}

}  // namespace lod::LOD_LEVEL
