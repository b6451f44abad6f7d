# SPDX-License-Identifier: Apache-2.0
"""Steps of a beam search, and the way back."""

import torch

import torch_lod as tl
from samples.words import Sample, SequenceInfo, lod_tensor, over

END = 0


def distinct(rows, width, dtype, device, seed, least=0.0):
    """Negative numbers that differ, and that every dtype holds; below `least`."""
    g = torch.Generator().manual_seed(seed + 7 * rows)
    numbers = torch.randperm(rows * torch.Size(width).numel(), generator=g)
    return (least - numbers / 8).view(rows, *width).to(dtype).to(device)


def integers(x, width, seed, most=4):
    g = torch.Generator().manual_seed(seed + len(x))
    return torch.randint(0, most, (len(x), *width), generator=g).to(x.device)


def steps(x, k):
    n = len(x)
    for seed, (width, beam) in enumerate([((5,), 2), ((1,), 1), ((3,), 7), ((0,), 3)]):
        pre_ids = x.with_values(integers(x, () if seed % 2 else (1,), seed))
        before = distinct(n, () if seed % 2 else (1,), x.dtype, x.device, seed, -1 / 16)
        ids = integers(x, width, seed + 1, 9)
        scores = distinct(n, width, x.dtype, x.device, seed)
        yield f" {width}", (pre_ids, before, ids, x.with_values(scores), beam, END), {}
        yield (
            f" {width} columns",
            (pre_ids, x.with_values(before), None, scores, beam, END),
            {"return_parent_idx": True},
        )
        if x.dtype in (torch.float32, torch.float64):
            chances = (-scores + 1) / (8 + 5 * n)
            yield f" {width} chances", (pre_ids, before, ids, chances, beam, END), {"is_accumulated": False}
    over_ = x.with_values(torch.zeros(n, dtype=torch.int32, device=x.device))
    scores = distinct(n, (2,), x.dtype, x.device, 5)
    yield " all ended", (over_, scores[:, 0] - 1 / 16, None, scores, 2, END), {}
    none = torch.full((n, 2), float("-inf"), dtype=x.dtype, device=x.device)
    equal = torch.full((n, 2), 3, device=x.device)  # of equal scores either may be selected
    yield " impossible, fixed", (over_ + 1, distinct(n, (), x.dtype, x.device, 6), equal, none, 4, END), {}


T = lod_tensor([[2, 1], [1, 1, 1]], (), torch.int64, "cpu")
B, S = torch.zeros(3), torch.tensor([[-1.0, -2], [-3, -4], [-5, -6]])


def step_errors():
    op, ids = tl.beam_search, torch.ones(3, 2, dtype=torch.int64)
    bad = S.clone()
    bad[1, 1] = float("nan")
    yield "nan", lambda: op(T, B, ids, bad, 2, 9), ValueError, "numbers, got nan at position 1 of sequence 0"
    yield (
        "negative",
        lambda: op(T, B, ids, S, 2, 9, is_accumulated=False),
        ValueError,
        "got nan at position 0 of sequence 0; with is_accumulated=False they are probabilities",
    )
    ended = T.with_values(torch.tensor([1, 1, 9]))
    yield (
        "nan before",
        lambda: op(ended, bad[:, 0] + bad[1, 1], ids, S, 2, 9),
        ValueError,
        "got nan at position 0 of sequence 1",
    )
    yield "rows", lambda: op(T, B, None, S[:2], 2, 9), ValueError, "scores of shape (3, candidates), got (2, 2)"
    yield "rank", lambda: op(T, B, None, S[0], 2, 9), ValueError, "scores of shape (3, candidates), got (2,)"
    yield "ids", lambda: op(T, B, ids[:, :1], S, 2, 9), ValueError, "ids of the shape of scores, (3, 2), got (3, 1)"
    yield "floating ids", lambda: op(T, B, S, S, 2, 9), TypeError, "ids of an integer dtype, got torch.float32"
    yield "before", lambda: op(T, B[:2], ids, S, 2, 9), ValueError, "pre_scores of shape (3,) or (3, 1), got (2,)"
    yield "wide before", lambda: op(T, S, ids, S, 2, 9), ValueError, "pre_scores of shape (3,) or (3, 1), got (3, 2)"
    yield (
        "whole before",
        lambda: op(T, B.long(), ids, S, 2, 9),
        TypeError,
        "pre_scores of a floating dtype, got torch.i",
    )
    yield "no scores", lambda: op(T, B, ids, None, 2, 9), TypeError, "scores as a tensor, got NoneType"
    yield "whole scores", lambda: op(T, B, ids, ids, 2, 9), TypeError, "scores of a floating dtype, got torch.int64"
    for wrong in (0, -1, 2.0, True, None):
        yield f"beam {wrong}", lambda w=wrong: op(T, B, ids, S, w, 9), ValueError, "beam_size in [1, 2**31]"
    yield "end", lambda: op(T, B, ids, S, 2, "</s>"), TypeError, "end_id to be an integer, got '</s>'"
    yield (
        "far end",
        lambda: op(T, B, ids.to(torch.int8), S, 2, 300),
        ValueError,
        "a whole end_id within torch.int8, got 300",
    )
    yield "huge end", lambda: op(T, B, ids, S, 2, 2**70), ValueError, "end_id within int64"
    other = T.with_lod(tl.LoD([[0, 1, 3], [0, 1, 2, 3]])).with_values(S)
    lost = T.with_values(S)[[1, 0, 2]]
    for what, args in {
        "scores": (B, ids, lost),
        "pre_scores": (lost[:, 0], ids, S),
        "ids": (B, lost.long(), S),
    }.items():
        yield (
            f"lost {what}",
            lambda args=args: op(T, *args, 2, 9),
            TypeError,
            f"{what} as a LoDTensor or a plain tensor, got rows that lost their structure in getitem; sequences are",
        )
    for what in ("is_accumulated", "return_parent_idx"):
        yield what, lambda w=what: op(T, B, ids, S, 2, 9, **{w: 1}), TypeError, f"{what} as a bool, got 1"
    yield "LoD", lambda: op(T, B, ids, other, 2, 9), ValueError, "scores with the LoD of pre_ids, got LoDs that differ"
    yield "words", lambda: op(T.float(), B, ids, S, 2, 9), TypeError, "pre_ids of an integer dtype, got torch.float32"


def beams(sources, above, count, dtype, device, seed, column=False):
    """What `count` steps selected: some hypotheses die, some end, some sources are finished."""
    g = torch.Generator().manual_seed(seed)
    ids, scores, rows = [], [], [1] * sources
    for step in range(count):
        children = []
        for n in rows:
            dead = step and torch.rand((), generator=g) < 0.2
            mine = [0 if dead else int(torch.randint(0, 3, (), generator=g)) for _ in range(n)]
            children.append([1] * n if step == 0 else mine)
        levels = [*above, rows, [c for mine in children for c in mine]]
        total = sum(levels[-1])
        words = torch.randint(0, 5, (total, 1) if column else (total,), generator=g)
        ids.append(tl.from_lengths(words.to(device), levels))
        numbers = distinct(total, (1,) if column else (), dtype, device, seed + step)
        scores.append(tl.from_lengths(numbers, levels))
        rows = [sum(mine) for mine in children]
    return ids, scores


def searches(dtype, device):
    for seed, (sources, above, count) in enumerate(
        [(2, [], 4), (1, [], 1), (3, [[2, 0, 1]], 5), (0, [], 2), (4, [], 6), (2, [[1, 1], [2, 0]], 3), (3, [], 3)]
    ):
        for beam in (1, 3):
            given = beams(sources, above, count, dtype, device, seed, column=seed % 2 == 1)
            yield Sample(f"typical {sources} {above} {count} of {beam}", (*given, beam, END))


def search_errors():
    op = tl.beam_search_decode
    ids, scores = beams(2, [], 3, torch.float32, "cpu", 0)
    few = tl.from_lengths(torch.ones(5).long(), [[2, 3], [1, 1, 1, 1, 1]])
    first = tl.from_lengths(torch.ones(4).long(), [[1, 1], [2, 2]])
    yield "steps", lambda: op(ids, scores[:2], 2, 0), ValueError, "scores of the 3 steps of ids, got 2"
    yield "none", lambda: op([], [], 2, 0), ValueError, "ids of at least 1 step, got none"
    yield "no list", lambda: op(first, scores, 2, 0), TypeError, "ids as a list of LoDTensors, got LoDTensor"
    yield "plain", lambda: op([V], [V], 2, 0), TypeError, "ids[0] as a LoDTensor, got Tensor"
    yield (
        "parents",
        lambda: op([first, few], [first.float(), few.float()], 2, 0),
        ValueError,
        "rows at the step before, 2, got 3 for source 1 at step 1",
    )
    less = few.slice(0, 0, 1)
    yield (
        "sources",
        lambda: op([first, less], [first.float(), less.float()], 2, 0),
        ValueError,
        "expected 2 sources, got 1 at step 1",
    )
    flat = first.drop_level(1)
    yield "depth", lambda: op([flat], [flat.float()], 2, 0), ValueError, "levels of sources and hypotheses, as many at"
    yield "LoD", lambda: op([first], [scores[0]], 2, 0), ValueError, "LoDs that differ at step 0"
    nan = first.float() * float("nan")
    yield "nan", lambda: op([first], [nan], 2, 0), ValueError, "numbers, got nan at row 0 of step 0"
    yield "whole", lambda: op([first], [first], 2, 0), TypeError, "scores of a floating dtype, got torch.int64"
    yield "words", lambda: op([first.float()], [first.float()], 2, 0), TypeError, "ids[0] of an integer dtype"
    wide = first.float().unsqueeze(1).expand(-1, 2)
    yield "wide", lambda: op([first], [wide], 2, 0), ValueError, "scores of shape (rows,) or (rows, 1), got (4, 2)"
    mixed = [ids[0], ids[1].int(), ids[2]]
    yield "dtypes", lambda: op(mixed, scores, 2, 0), TypeError, "ids of one dtype, got torch.int32 at step 1"
    yield "beam", lambda: op([first], [first.float()], 0, 0), ValueError, "beam_size in [1, 2**31], got 0"
    yield "huge end", lambda: op([first], [first.float()], 2, 2**70), ValueError, "end_id within int64"
    yield "end", lambda: op([first], [first.float()], 2, None), TypeError, "end_id to be an integer, got None"


V = torch.zeros(3)
ENTRIES = [
    SequenceInfo("beam_search", over(steps, ((),)), step_errors, default=0),
    SequenceInfo("beam_search_decode", searches, search_errors, levels=None),
]
