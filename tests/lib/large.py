# SPDX-License-Identifier: Apache-2.0
"""A program for TORCH_LOD_LARGE=1: more than 2**31 rows, and 10**8 sequences. It prints times and the most memory taken.

python tests/lib/large.py rows [2200000000]            8 GB
python tests/lib/large.py sequences [100000000]        12 GB
"""

import resource
import sys
import time

import torch

import torch_lod as tl


def measured(said: str, call, *args, **kwargs):
    began = time.perf_counter()
    result = call(*args, **kwargs)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{said:<44}{seconds:8.2f} s   peak {peak:6.2f} GiB", flush=True)
    return result


def number_at(row):
    """The number in a row: differs between rows that are 2**31 or 2**32 apart."""
    return (row % 251 + row // 2**31 * 3).to(torch.uint8)


def rows(n: int) -> None:
    """Rows of a byte, in sequences that end on both sides of 2**31 rows, two of them empty."""
    ends = sorted({min(end, n) for end in (5, 2**31 - 3, 2**31, 2**31 + 4, n)})
    offsets = torch.tensor([0, 0, *ends, n])
    values = torch.empty(n, dtype=torch.uint8)
    for begin in range(0, n, 2**24):
        values[begin : begin + 2**24] = number_at(torch.arange(begin, min(n, begin + 2**24)))
    x = measured("from_offsets", tl.from_offsets, values, [offsets])
    spans = list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    probes = torch.tensor(
        sorted({r for end in offsets.tolist() for r in range(end - 3, end + 3) if 0 <= r < n} | {n // 2})
    )
    own = torch.bucketize(probes, offsets, right=True) - 1

    y = measured("sequence_reverse", tl.sequence_reverse, x)
    assert torch.equal(y.values()[probes], number_at(offsets[own] + offsets[own + 1] - 1 - probes))
    y = measured("sequence_shift", tl.sequence_shift, x, 1)
    expected = torch.where(probes > offsets[own], number_at(probes - 1), 0)
    assert torch.equal(y.values()[probes], expected.to(torch.uint8))
    for reduce in ("first", "last"):
        y = measured(f"sequence_pool {reduce!r}", tl.sequence_pool, x, reduce)
        assert y.tolist() == [int(values[a if reduce == "first" else b - 1]) if b > a else 0 for a, b in spans]
    y = measured("sequence_pool 'max'", tl.sequence_pool, x, "max")
    assert y.tolist() == [int(values[a:b].max()) if b > a else 0 for a, b in spans]
    y = measured("tail(2)", x.tail, 2)
    assert y.to_list() == [values[max(a, b - 2) : b].tolist() for a, b in spans]
    y = measured("seq[-2]", lambda: x.seq[len(spans) - 2])
    assert len(y) == spans[-2][1] - spans[-2][0] and int(y[0]) == int(values[spans[-2][0]])
    begin, length = [max(0, b - a - 2) for a, b in spans], [min(2, b - a) for a, b in spans]
    y = measured("sequence_slice", tl.sequence_slice, x, begin, length)
    assert y.to_list() == [values[max(a, b - 2) : b].tolist() for a, b in spans]
    del y
    whole = tl.from_offsets(values, [[0, n]])
    dense, lengths = measured("to_padded", whole.to_padded)
    assert dense.shape == (1, n) and lengths.tolist() == [n] and torch.equal(dense[0, probes], values[probes])
    back = measured("from_padded", tl.from_padded, dense, lengths)
    assert torch.equal(back.values()[probes], values[probes])
    del back, dense
    ones = torch.ones(1, dtype=torch.uint8)
    y = measured("sequence_expand", tl.sequence_expand, ones, whole)
    assert y.shape == (n,) and bool(y[probes].all())


def sequences(n: int) -> None:
    """Sequences of no, one and two rows, alternating."""
    lengths = torch.arange(n) % 3
    count = int(lengths.sum())
    values = torch.arange(count, dtype=torch.float32)
    x = measured("from_lengths", tl.from_lengths, values, [lengths])
    del lengths
    lod = x.lod
    assert lod.num_sequences() == n and lod.max_length() == 2
    probes = torch.tensor([1, 2, n // 2 // 3 * 3 + 1, (n - 3) // 3 * 3 + 2])
    last = lod.row_offsets()[probes + 1] - 1
    y = measured("sequence_pool 'sum'", tl.sequence_pool, x, "sum")
    assert torch.equal(y[probes], torch.where(probes % 3 == 2, values[last] + values[last - 1], values[last]))
    y = measured("sequence_pool 'last'", tl.sequence_pool, x, "last")
    assert torch.equal(y[probes], values[last])
    y = measured("sequence_softmax", tl.sequence_softmax, x)
    assert bool((y.values()[last[probes % 3 == 1]] == 1).all())
    y = measured("sequence_reverse", tl.sequence_reverse, x)
    assert torch.equal(y.values()[last], torch.where(probes % 3 == 2, values[last - 1], values[last]))
    y = measured("head(1)", x.head, 1)
    assert y.shape[0] == n - (n + 2) // 3
    y = measured("seq[::2]", lambda: x.seq[::2])
    assert y.num_sequences() == (n + 1) // 2
    del y
    measured("lod == lod", lambda: lod == tl.LoD([lod.offsets()]))
    outer = measured("group", lod.group, torch.full((n // 2,), 2) if n % 2 == 0 else [n])
    measured("row_offsets of the outer level", outer.row_offsets, 0)
    measured("repr", repr, x)


if __name__ == "__main__":
    what, default = sys.argv[1], {"rows": 2_200_000_000, "sequences": 10**8}[sys.argv[1]]
    torch.set_num_threads(2)
    globals()[what](int(sys.argv[2]) if len(sys.argv) > 2 else default)
