# SPDX-License-Identifier: Apache-2.0
"""The table of malformed structure: what is wrong, where it is given, what must be raised. Run as a program: all of it."""

import faulthandler
import functools
import math
import sys
import warnings
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
import torch_lod as tl
from torch_lod import LoD
from torch_lod.tensor.lod_tensor import _load_lod_tensor

warnings.filterwarnings("ignore", "torch.quantize_per|Sparse CSR|The PyTorch API of nested")
V, T, IX = ValueError, TypeError, IndexError
ROWS = 6
HUGE = 2**63 - 1


def ints(*entries):
    return torch.tensor(entries, dtype=torch.int64)


def values():
    return torch.arange(12.0).view(ROWS, 2)


def tensor():
    return tl.from_lengths(values(), [[2, 4]])


def itself():
    data: list = []
    data.append(data)
    return data


def freed(t):
    t.untyped_storage().resize_(0)
    return t


#: What no argument that takes a list of integers accepts: (what, expected class, what the message says).
KIND = {
    "A10-scalar": (torch.tensor(6), V, "dimension"),
    "A10-matrix": (torch.tensor([[0, 6]]), V, "dimension"),
    "A10-ragged": ([0, [2], 6], T, r"\[2\]"),
    "A10-string": ("abc", T, "str"),
    "A10-strings": (["a", "b"], T, "'a'"),
    "A10-none": (None, T, "NoneType"),
    "A10-bools": ([False, True], T, "False"),
    "A10-bool-tensor": (torch.tensor([False, True]), T, "bool"),
    "A10-int": (6, T, "int|flat list"),
    "A10-dict": ({0: 1}, T, "dict"),
    "A10-numpy-object": (np.array([0, None], dtype=object), T, "object"),
    "A10-numpy-scalar": (np.array(3), V, "dimension"),
    "A10-numpy-string": (np.array(["a"]), T, "U1"),
    "A10-numpy-date": (np.array([0, 1], dtype="M8[s]"), T, "datetime64"),
    "A11-floats": ([0.0, 2.0, 6.0], T, "0.0"),
    "A11-tensor": (torch.tensor([0.0, 2.0, 6.0]), T, "float32"),
    "A11-nan": ([0, math.nan], T, "nan"),
    "A11-1e20": ([0, 1e20], T, r"1e\+20"),
    "A11-numpy": (np.array([0.0, 6.0]), T, "float64"),
    "A11-complex": (torch.tensor([0j, 6]), T, "complex64"),
    "A12-uint64": (torch.tensor([0, 2**63 + 5], dtype=torch.uint64), V, str(2**63 + 5)),
    "A12-numpy-uint64": (np.array([0, 2**63 + 5], dtype=np.uint64), V, str(2**63 + 5)),
    "A12-int": ([0, 2**63], V, str(2**63)),
    "A12-negative-int": ([0, -(2**70)], V, str(2**70)),
    "A15-meta": (torch.zeros(3, dtype=torch.int64, device="meta"), T, "meta"),
    "A15-sparse": (ints(0, 2, 6).to_sparse(), T, "sparse"),
    "A15-quantised": (torch.quantize_per_tensor(torch.tensor([0.0, 6.0]), 1.0, 0, torch.qint32), T, "quantized"),
    "A15-nested": (torch.nested.nested_tensor([ints(0, 6)], layout=torch.jagged), T, "jagged|dense"),
    "D2-freed": (freed(ints(0, 6)), V, "memory behind them, got one of 2 elements over a storage of 0 bytes"),
    "A15-grad": (torch.tensor([0.0, 6.0], requires_grad=True), T, "float32"),
}
#: Offsets of one level that do not cut 6 rows.
OFFSETS = {
    "A1-falls": ([0, 5, 2, 6], V, "5 then 2 at index 2"),
    "A2-negative": ([0, -3, 6], V, "-3 at index 1"),
    "A2-all-negative": ([-1, -2, -3], V, "-1"),
    "A3-start": ([2, 4, 6], V, "start at 0, got 2"),
    "A4-beyond": ([0, 2, 1000], V, "1000"),
    "A4-huge": ([0, 2, HUGE], V, str(HUGE)),
    "A4-wraps": ([0, HUGE, -(2**63), -1, 6], V, f"{HUGE} then {-(2**63)} at index 2"),
    "A5-short": ([0, 2, 5], V, "5"),
    "A6-empty": ([], V, "at least 1"),
    "A7-single": ([0], V, "0"),
    **KIND,
}
LENGTHS = {
    "A14-negative": ([3, -1, 4], V, "-1 at index 1"),
    "A14-sum": ([2, 3], V, "5|6"),
    "A14-wraps": ([2**62, 2**62, 2**62], V, r"2\*\*63|index 1|lengths"),
    "A14-big": ([2**40], V, str(2**40)),
    "A13-int32": (torch.tensor([2**31 - 1] * 2, dtype=torch.int32), V, str(2**32 - 2)),
    **KIND,
}
IDS = {
    "A21-unsorted": ([0, 2, 1, 3, 4, 5], V, "2 then 1 at index 2"),
    "A21-negative": ([-1, 0, 0, 1, 1, 2], V, "-1"),
    "A21-huge-last": ([0, 0, 0, 0, 0, 2**40], V, str(2**40)),
    "A21-wraps": ([HUGE, -(2**63), 0, 0, 0, 0], V, f"{HUGE} then {-(2**63)} at index 1"),
    "A21-largest": ([0, 0, 0, 0, 0, HUGE], V, str(HUGE)),
    "A4-short": ([0, 0], V, "2|6"),
    **KIND,
}
ORDER = {
    "A20-twice": ([0, 0], V, "permutation"),
    "A20-beyond": ([0, 2], V, "permutation"),
    "A20-negative": ([-1, 0], V, "permutation"),
    **KIND,
}
INDEX = {
    "A20-list": ([0, 2], IX, "2 at position 1"),
    "A20-below": ([-3], IX, "-3"),
    "A20-int": (2, IX, "2"),
    "A20-mask": ([True], IX, "mask"),
    "A20-float": (1.5, (IX, T), ""),
    "A20-string": ("a", (IX, T), ""),
    "A20-none": (None, (IX, T), ""),
    "A20-too-many": ((0, 0, 0), IX, "1 to 2"),
}
#: Everything that takes structure: which table, the call, how its messages begin, what it leaves alone.
TARGETS = {
    "LoD": (OFFSETS, lambda o: tl.LoDTensor(values(), LoD([o])), ("LoD", "LoDTensor")),
    "LoD-outer": (OFFSETS, lambda o: LoD([o, list(range(ROWS + 1))]), ("LoD",)),
    "LoD-inner": (OFFSETS, lambda o: tl.LoDTensor(values(), LoD([[0, 2], o])), ("LoD", "LoDTensor")),
    "from_row_offsets": (OFFSETS, lambda o: tl.LoDTensor(values(), LoD.from_row_offsets([o])), ("LoD",)),
    "from_row_offsets-outer": (OFFSETS, lambda o: LoD.from_row_offsets([o, [0, 2, ROWS]]), ("LoD.from_row_offsets",)),
    "tl.from_offsets": (OFFSETS, lambda o: tl.from_offsets(values(), [o]), ("from_offsets",)),
    "tl.from_cu_seqlens": (OFFSETS, lambda o: tl.from_cu_seqlens(values(), o), ("from_cu_seqlens: expected",)),
    "set_lod": (OFFSETS, lambda o, x: x.set_lod([o]), ()),
    "_load_lod": (OFFSETS, lambda o: tl.LoDTensor(values(), tl.structure.lod._load_lod([o], None)), ()),
    "LoD.from_lengths": (LENGTHS, lambda o: tl.LoDTensor(values(), LoD.from_lengths([o])), ("LoD",)),
    "tl.from_lengths": (LENGTHS, lambda o: tl.from_lengths(values(), [o]), ("from_lengths",)),
    "create_lod_tensor": (LENGTHS, lambda o: tl.create_lod_tensor(values(), [o]), ("create_lod_tensor",)),
    "create_lod_tensor-list": (LENGTHS, lambda o: tl.create_lod_tensor([[1, 2], [3]], [o]), ("create_lod_tensor",)),
    "set_recursive_sequence_lengths": (LENGTHS, lambda o, x: x.set_recursive_sequence_lengths([o]), ()),
    "lod_reset": (LENGTHS, lambda o, x: x.lod_reset([o]), ()),
    "lod_append": (LENGTHS, lambda o, x: x.lod_append(o), ("append", "lod_append", "LoDTensor")),
    "group": (LENGTHS, lambda o, x: x.group(o), ("group",)),
    "LoD.append": (LENGTHS, lambda o: LoD([[0, 2, ROWS]]).append(o).group([ROWS * 9]), ("append", "group")),
    "from_padded": (LENGTHS, lambda o: tl.from_padded(torch.zeros(2, 2), o), ("from_padded",)),
    "LoD.from_segment_ids": (IDS, lambda o: tl.LoDTensor(values(), LoD.from_segment_ids(o)), ("LoD",)),
    "tl.from_segment_ids": (IDS, lambda o: tl.from_segment_ids(values(), o), ("from_segment_ids",)),
    "permute_sequences": (ORDER, lambda o, x: x.permute_sequences(o), ("permute_sequences",)),
    "seq": (INDEX, lambda o, x: x.seq[o], ("seq",)),
}
#: The message shows them in other words.
LOOSE = {
    "create_lod_tensor-list",
    "LoD-inner",
    "lod_append",
    "LoD.append",
    "from_padded",
    "permute_sequences",
    "group",
    "LoD-outer",
    "from_row_offsets-outer",
}


def deep_list(n: int):
    return functools.reduce(lambda inner, _: [inner], range(n), [1.0])


#: Single calls: (call with a tensor of 6 rows in 2 sequences, expected class, what the message says).
CALLS = {
    "A8-levels": (lambda x: LoD([[0, 3], [0, 2, 6]]), V, r"2 sequences of level 1, got 3"),
    "A8-lengths": (lambda x: LoD.from_lengths([[3], [2, 4]]), V, r"2 sequences of level 1, got 3"),
    "A14-append": (lambda x: x.lod_append([1, 1, -1, 1, 1, 1]), V, "-1 at index 2"),
    "A14-group": (lambda x: x.group([3, -1]), V, "-1 at index 1"),
    "A1-inner": (lambda x: LoD([[0, 3], [0, 5, 2, 6]]), V, r"offsets\[1\].*5 then 2 at index 2"),
    "A9-none": (lambda x: LoD([]), V, "at least 1 level"),
    "A9-flat": (lambda x: LoD([0, 6]), T, "per level"),
    "A9-tensor": (lambda x: LoD(ints(0, 6)), T, "per level"),
    "A9-nested": (lambda x: x.group([2]).to_nested(), V, "1 level, got 2"),
    "A9-row-offsets-ambiguous": (lambda x: LoD.from_row_offsets([[0, 2, 6], [0, 2, 2, 6]]), V, "unique"),
    "A18-operands": (lambda x: x + tl.from_lengths(values(), [[3, 3]]), V, "level 0, sequence 0: lengths 2 and 3"),
    "A20-level": (lambda x: x.lengths(2), IX, "got 2"),
    "A20-level-below": (lambda x: x.lengths(-2), IX, "got -2"),
    "A20-level-bool": (lambda x: x.lengths(True), T, "True"),
    "A20-level-float": (lambda x: x.lengths(1.0), T, r"1\.0"),
    "A20-level-none": (lambda x: x.lengths(None), T, "None"),
    "A20-level-name": (lambda x: x.lengths("a"), IX, "'a'"),
    "A20-level-huge": (lambda x: x.lengths(2**70), IX, str(2**70)),
    "A20-slice": (lambda x: x.slice(0, 2), IX, "got 2"),
    "A20-slice-below": (lambda x: x.slice(0, -3), IX, "got -3"),
    "A20-slice-float": (lambda x: x.slice(0, 1.0), T, r"1\.0"),
    "A20-slice-bool": (lambda x: x.slice(0, True), T, "True"),
    "A20-slice-end": (lambda x: x.slice(0, 1, 3), IX, "1 and 3"),
    "A20-slice-order": (lambda x: x.slice(0, 2, 1), IX, "2 and 1"),
    "A20-slice-huge": (lambda x: x.slice(0, 2**70), IX, str(2**70)),
    "A20-branch": (lambda x: x.branch(), IX, "got 0"),
    "A20-branch-deep": (lambda x: x.branch(0, 0), IX, "got 2"),
    "A20-head": (lambda x: x.head(-1), V, "-1"),
    "A20-head-huge": (lambda x: x.head(2**70), V, str(2**70)),
    "A20-nth-huge": (lambda x: x.nth(2**70), V, str(2**70)),
    "A20-nth-float": (lambda x: x.nth(1.0), T, "float"),
    "A20-max-length": (lambda x: x.to_padded(max_length=1), V, "got 1"),
    "A21-num-negative": (lambda x: LoD.from_segment_ids([0, 0], -1), V, "-1"),
    "A21-num-small": (lambda x: LoD.from_segment_ids([0, 3], 3), V, "3"),
    "A21-num-2**40": (lambda x: LoD.from_segment_ids([0, 0], 2**40), V, str(2**40)),
    "A21-num-2**70": (lambda x: tl.from_segment_ids(values(), [0] * 6, 2**70), V, str(2**70)),
    "A21-num-float": (lambda x: LoD.from_segment_ids([0], 1.5), T, r"1\.5"),
    "A21-num-bool": (lambda x: LoD.from_segment_ids([0], True), T, "True"),
    "C1-filler-large": (
        lambda x: x.nth(0, padding_value=2**63),
        V,
        r"padding_value within int64 or as a float, got 9223",
    ),
    "C1-filler": (lambda x: x.with_values(values().long()).nth(0, padding_value=0.5), V, r"whole padding_value.*0\.5"),
    "C1-filler-range": (lambda x: x.with_values(values().int()).nth(0, padding_value=2**31), V, str(2**31)),
    "C1-filler-bool": (lambda x: x.nth(0, padding_value=True), T, "True"),
    "A13-cu_seqlens": (lambda x: LoD([[0, 2**31]]).cu_seqlens(), V, r"fewer than 2\*\*31 rows.*2147483648"),
    "A20-flatten": (lambda x: x.group([2]).flatten_levels(1, 0), V, "first not to be inside last, got levels 1 and 0"),
    "D2-take": (lambda x: x.lod.take(0, freed(ints(0))), V, "memory"),
    "D2-runs": (lambda x: x.lod.runs(0, freed(ints(0)), ints(1)), V, "memory"),
    "A14-append-count": (lambda x: x.lod.append([1, 1]), V, "6 lengths, one per row, got 2"),
    "A8-row-offsets": (
        lambda x: LoD.from_row_offsets([[0, 3, 6], [0, 2, 6]]),
        V,
        r"offsets\[0\] to be among offsets\[1\], got 3 at index 1",
    ),
    "D2-slice": (lambda x: x.slice(0, freed(torch.tensor(0))), V, "memory"),
    "D2-level": (lambda x: x.lengths(freed(torch.tensor(0))), T, "a torch.int64 Tensor of shape"),
    "D2-name": (lambda x: x.group([2], freed(torch.ones(2))), T, "a torch.float32 Tensor of shape"),
    "D2-mask": (lambda x: x.filter_rows(freed(torch.ones(6, dtype=torch.bool))), V, "memory"),
    "D2-cat": (lambda x: tl.cat([x, x.with_values(freed(values()))]), V, "memory"),
    "A22-itself": (lambda x: tl.lod_tensor(itself()), V, "itself|nested"),
    "A22-offsets-itself": (lambda x: LoD(itself()), T, ""),
    "names-string": (lambda x: LoD([[0, 1]], level_names="a"), T, "'a'"),
    "names-many": (lambda x: LoD([[0, 1]], level_names=["a", "b"]), V, "'b'"),
    "names-same": (lambda x: LoD([[0, 1], [0, 1]], level_names=["a", "a"]), V, "'a'"),
    "names-number": (lambda x: LoD([[0, 1]], level_names=[1]), T, "1"),
    "B1-scalar": (lambda x: tl.LoDTensor(torch.tensor(1.0), x.lod), V, "scalar"),
    "B1-rows": (lambda x: x.with_values(torch.zeros(5)), V, "5 rows.* 6"),
    "B8-sparse": (lambda x: tl.LoDTensor(values().to_sparse(), x.lod), T, "sparse"),
    "B8-list": (lambda x: tl.LoDTensor([1], x.lod), T, "list"),
    "lod-none": (lambda x: x.with_lod(None), T, "NoneType"),
    "lod_tensor-flat": (lambda x: tl.lod_tensor([1, 2]), V, "flat"),
    "lod_tensor-none": (lambda x: tl.lod_tensor(None), T, "NoneType"),
    "lod_tensor-mixed": (lambda x: tl.lod_tensor([[1], 2]), V, "2"),
    "lod_tensor-string": (lambda x: tl.lod_tensor([["a"]]), V, "numbers"),
    "lod_tensor-depth": (lambda x: tl.lod_tensor([[1]], depth=9), V, "9"),
    "lod_tensor-ragged": (lambda x: tl.lod_tensor([[[1], [1, 2]]], depth=1), V, "one shape"),
    "lod_tensor-shapes": (lambda x: tl.lod_tensor([[torch.zeros(2), torch.zeros(3)]]), V, "2"),
    "from_padded-neither": (lambda x: tl.from_padded(torch.zeros(2, 3)), V, "neither"),
    "from_padded-both": (lambda x: tl.from_padded(torch.zeros(2, 3), [1, 2], torch.ones(2, 3).bool()), V, "both"),
    "from_padded-mask": (lambda x: tl.from_padded(torch.zeros(2, 3), mask=torch.ones(2, 2).bool()), V, "2, 2"),
    "from_padded-vector": (lambda x: tl.from_padded(torch.zeros(2), [1]), V, "2"),
    "create-int": (lambda x: tl.create_lod_tensor(3, [[1]]), T, "int"),
    "create-none": (lambda x: tl.create_lod_tensor([[1]], None), T, "None"),
    "from_packed_sequence": (lambda x: tl.from_packed_sequence(torch.randn(3)), T, "Tensor"),
    "from_nested": (lambda x: tl.from_nested(values()), T, "jagged"),
    "from_tensors": (lambda x: tl.from_tensors([torch.tensor(1.0)]), T, "rows"),
    "full": (lambda x: tl.full([[1]], fill_value=0), T, "list"),
    "zeros": (lambda x: tl.zeros([[1]]), T, "list"),
    "cat-int": (lambda x: tl.cat(3), T, "int"),
    "cat-plain": (lambda x: tl.cat([x, values()]), T, "Tensor"),
    "cat-depths": (lambda x: tl.cat([x, x.group([2])]), V, r"\[1, 2\]"),
    "describe": (lambda x: tl.describe(3), T, "int"),
    "share_lod_from": (lambda x: x.share_lod_from(3), T, "int"),
    "copy_lod_from": (lambda x: x.copy_lod_from(values()), T, "Tensor"),
    "set_lod-rows": (lambda x: x.set_lod(LoD([[0, 5]])), V, "5 rows"),
    "set_lod-none": (lambda x: x.set_lod(None), T, "NoneType"),
    "load-rows": (lambda x: _load_lod_tensor(values()[:3], x.lod, False), V, "3 rows"),
    "load-lod": (lambda x: _load_lod_tensor(values(), [[0, 6]], False), T, "list"),
    "load-values": (lambda x: _load_lod_tensor([1], x.lod, False), T, "list"),
    "load-grad": (lambda x: _load_lod_tensor(values().long(), x.lod, True), Exception, ""),
}


def cases():
    """(id, call that must raise, expected class, message, beginnings of the message, its tensor or None)."""
    for target, (table, call, begins) in TARGETS.items():
        for name, (what, error, message) in table.items():
            if (target, name) == ("from_padded", "A10-none"):  # there the default
                continue
            x = tensor() if call.__code__.co_argcount == 2 else None
            run = functools.partial(call, what) if x is None else functools.partial(call, what, x)
            yield f"{target}-{name}", run, error, "" if target in LOOSE else message, begins, x
    for name, (call, error, message) in CALLS.items():
        x = tensor()
        yield name, functools.partial(call, x), error, message, (), x


if __name__ == "__main__":
    faulthandler.enable()
    from malformed_ops import raw_cases

    ran = 0
    for name, run, *_ in [*cases(), *raw_cases()]:
        try:
            run()
        except Exception:
            ran += 1
        else:
            print(f"accepted: {name}")
    print(f"{ran} refused")
