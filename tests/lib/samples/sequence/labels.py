# SPDX-License-Identifier: Apache-2.0
"""Labels of sequences."""

import torch

import torch_lod as tl
from samples.words import CARRIED, WHOLE, SequenceInfo, X, dtype_errors, over

Y = tl.from_lengths(torch.tensor([1, 2, 1]), [[2, 1], [1, 0, 2]], level_names=("a", "b"))


def labels_for(x, k, classes, blank=0):
    """One or two labels for sequences with rows, sometimes more than fit; none for others, sometimes one."""
    counts = x.lod.row_lengths(k)
    some = torch.where(counts > 0, 1 + torch.arange(len(counts)) % 2, (torch.arange(len(counts)) % 3 == 2).long())
    flat = 1 + torch.arange(int(some.sum())) * 5 % (classes - 1)
    lengths = [*x.lod.to_lengths()[:k], some.tolist()]
    return tl.from_lengths(
        torch.where(flat <= blank, flat - 1, flat).to(x.device),
        lengths,
        level_names=x.level_names and x.level_names[: k + 1],
    )


def losses(x, k):
    for blank in (0, 2):
        yield f" blank {blank}", (x, labels_for(x, k, 3, blank), blank), {}
    yield " by times, fixed", (x, labels_for(x, k, 3)), {"norm_by_times": True}


def alignments(x, k):
    for blank in (0, 2):
        yield f" blank {blank}", (x, labels_for(x, k, 3, blank)), {"blank": blank}


def decodes(x, k):
    for blank in (0, 2):
        yield f" blank {blank}", (x,), {"blank": blank}


def beams(x, k):
    yield "", (x,), {}
    yield " n best", (x,), {"blank": 2, "beam": 4, "n_best": 3}
    yield " threshold", (x,), {"blank": 1, "beam": 3, "n_best": 2, "threshold": 0.3}


def greedy(x, k):
    yield "", (x, 1), {}


def aligns(x, k):
    for merge in (True, False):
        yield f" {merge}", (x,), {"blank": 1, "merge_repeated": merge}


def labelled_errors(name, what="labels", rows="x"):
    def errors():
        op = getattr(tl, name)
        yield "no rows", lambda: op(None, Y), TypeError, f"{rows} as a LoDTensor, got NoneType"
        yield "whole", lambda: op(X.long(), Y), TypeError, "x of a floating dtype, got torch.int64"
        yield "one column", lambda: op(X[:, 0], Y), ValueError, "x of shape (rows, classes), at least 1 class, got (6,)"
        yield "plain labels", lambda: op(X, Y.values()), TypeError, "labels as a LoDTensor"
        yield "floating labels", lambda: op(X, Y.float()), TypeError, "labels of an integer dtype, got torch.float32"
        yield "wide labels", lambda: op(X, tl.LoDTensor(torch.ones(3, 2).long(), Y.lod)), ValueError, "of shape (rows,)"
        yield "blank", lambda: op(X, Y, blank=3), ValueError, "blank in [0, 2], got 3"
        yield (
            "out of range",
            lambda: op(X, Y + 2),
            IndexError,
            "other than the blank 0, got 3 at position 0 of sequence 0",
        )
        yield (
            "the blank",
            lambda: op(X, Y, blank=1),
            IndexError,
            "other than the blank 1, got 1 at position 0 of sequence 0",
        )
        yield "levels", lambda: op(X, Y.drop_level(0)), ValueError, "labels with at least 2 levels"
        yield "sequences", lambda: op(X, Y.drop_level(0), level=0), ValueError, "labels for 2 sequences, as in x, got 3"
        other = tl.from_lengths(Y.values(), [[1, 2], [1, 0, 2]])
        yield "other levels", lambda: op(X, other), ValueError, "expected operands with equal LoDs"
        yield "level", lambda: op(X, Y, level="c"), IndexError, "level"

    return errors


def greedy_errors():
    yield "blank", lambda: tl.ctc_greedy_decoder(X, 3), ValueError, "blank in [0, 2], got 3"
    yield "whole", lambda: tl.ctc_greedy_decoder(X.long(), 0), TypeError, "x of a floating dtype"


def decode_errors():
    yield from dtype_errors("ctc_decode", torch.int64)()
    yield "blank", lambda: tl.ctc_decode(X, blank=-1), ValueError, "blank in [0, 2], got -1"


def beam_errors():
    op = tl.ctc_beam_decode
    yield from dtype_errors("ctc_beam_decode", torch.int64)()
    yield "one column", lambda: op(X[:, 0]), ValueError, "x of shape (rows, classes), at least 1 class, got (6,)"
    yield "blank", lambda: op(X, blank=3), ValueError, "blank in [0, 2], got 3"
    yield "beam", lambda: op(X, beam=0), ValueError, "beam in [1, 2**20], got 0"
    yield "n_best", lambda: op(X, n_best=11), ValueError, "n_best in [1, 10], got 11"
    yield "threshold", lambda: op(X, threshold=-0.5), ValueError, "threshold in [0, 1], got -0.5"
    yield "model", lambda: op(X, language_model=1), TypeError, "language_model as a module or function, got int"
    for label, of, cls, said in (
        ("none", lambda p: None, TypeError, "language_model to return a tensor of a floating dtype, got None"),
        (
            "whole",
            lambda p: torch.ones(1, 3).long(),
            TypeError,
            "return a tensor of a floating dtype, got a torch.int64",
        ),
        ("narrow", lambda p: torch.ones(1, 2), ValueError, "return scores of shape (1, 3) on cpu, got (1, 2) on cpu"),
        ("nan", lambda p: X.values()[:1] * torch.nan, ValueError, "got nan for class 0 after the prefix []"),
        ("infinite", lambda p: X.values()[:1] + torch.inf, ValueError, "got inf for class 0 after the prefix []"),
    ):
        yield f"model {label}", lambda of=of: op(X, language_model=of), cls, said


def align_errors():
    ids = X[:, 0].long()
    yield "floating", lambda: tl.ctc_align(X[:, 0]), TypeError, "x of an integer dtype, got torch.float32"
    yield "wide", lambda: tl.ctc_align(X.long()), ValueError, "x of shape (rows,) or (rows, 1), got (6, 3)"
    for wrong in (None, 0.5, float("nan"), True):
        yield (
            f"blank {wrong}",
            lambda w=wrong: tl.ctc_align(ids, blank=w),
            TypeError,
            f"blank to be an integer, got {wrong}",
        )
    for wrong in (256, -1):
        yield (
            f"blank {wrong}",
            lambda w=wrong: tl.ctc_align(ids.to(torch.uint8), blank=w),
            ValueError,
            f"a whole blank within torch.uint8, got {wrong}",
        )
    yield "huge blank", lambda: tl.ctc_align(ids, blank=2**70), ValueError, "blank within int64"
    yield "merge", lambda: tl.ctc_align(ids, merge_repeated=1), TypeError, "merge_repeated as a bool, got 1"


def distances(x, k):
    counts = x.lod.row_lengths(k)
    lengths = torch.where(counts > 0, counts + torch.arange(len(counts)) % 3 - 1, torch.arange(len(counts)) % 2)
    other = tl.from_lengths(
        torch.arange(int(lengths.sum())).remainder(5).to(x.device, x.dtype),
        [*x.lod.to_lengths()[:k], lengths.tolist()],
        level_names=x.level_names and x.level_names[: k + 1],
    )
    for normalized in (False, True):
        for aligned in (False, True):
            yield f" {normalized} {aligned}", (x, other), {"normalized": normalized, "return_alignment": aligned}


def distance_errors():
    op, ids, y = tl.edit_distance, X[:, 0].long(), Y
    yield "plain", lambda: op(ids.values(), y), TypeError, "hypotheses as a LoDTensor"
    yield "plain references", lambda: op(ids, y.values()), TypeError, "references as a LoDTensor"
    yield "floating", lambda: op(X[:, 0], y), TypeError, "hypotheses of an integer dtype, got torch.float32"
    yield "floating references", lambda: op(ids, y.float()), TypeError, "references of an integer dtype"
    yield "wide", lambda: op(X.long(), y), ValueError, "hypotheses of shape (rows,) or (rows, 1), got (6, 3)"
    yield "levels", lambda: op(ids, y.drop_level(0)), ValueError, "references with at least 2 levels"
    yield "sequences", lambda: op(ids, y.drop_level(0), level=0), ValueError, "references for 2 sequences"
    yield "normalized", lambda: op(ids, y, normalized=1), TypeError, "normalized as a bool, got 1"
    yield "alignment", lambda: op(ids, y, return_alignment=None), TypeError, "return_alignment as a bool, got None"


THREE = ((3,),)
ENTRIES = [
    SequenceInfo("warpctc", over(losses, THREE), labelled_errors("warpctc", rows="logits"), tolerance=CARRIED),
    SequenceInfo(
        "ctc_alignment", over(alignments, THREE), labelled_errors("ctc_alignment"), keeps=True, tolerance=CARRIED
    ),
    SequenceInfo("ctc_decode", over(decodes, THREE), decode_errors, differentiable=False),
    SequenceInfo("ctc_beam_decode", over(beams, THREE), beam_errors, differentiable=False),
    SequenceInfo("ctc_greedy_decoder", over(greedy, THREE), greedy_errors, differentiable=False),
    SequenceInfo("ctc_align", over(aligns, ((), (1,))), align_errors, WHOLE, differentiable=False),
    SequenceInfo("edit_distance", over(distances, ((), (1,))), distance_errors, WHOLE, differentiable=False),
]
