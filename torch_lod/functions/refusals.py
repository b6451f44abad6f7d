# SPDX-License-Identifier: Apache-2.0
"""The errors where rows of different sequences would mix, and what to write instead."""

from collections.abc import Callable

from ..errors import LoDError, LoDsDiffer, LoDTypeError, LoDValueError, named
from ..structure.declared import declared_level, level_in
from ..structure.lod import LoD
from ..tensor.provenance import Provenance
from ..tensor.table import NAMED, UNKNOWN, name_of

ALONG = "along dim 0 it mixes the rows of different sequences"

STACKS = "tl.map_sequences runs code for padded batches"

OUT = f"{STACKS}; x.values() mixes rows on purpose"

#: Of what is (batch, features) in code for padded batches.
STACKED = "if it is a field of one size for each sample, tl.data.collate(items, stack=[...]) stacks it"

NO_SEQUENCES = f"{OUT}; x.sequences() goes sequence by sequence"


def refusal(func: Callable, advice: str) -> LoDError:
    """The error where a function would mix the rows of different sequences."""
    return named(LoDTypeError(f"expected a plain tensor, got a LoDTensor: {advice}"), name_of(func))


def mixture(func: Callable, advice: str) -> LoDError:
    """`refusal` for functions that are operators of Python, which would hide a TypeError behind one of their own."""
    return named(LoDValueError(f"expected a plain tensor, got rows of a LoDTensor: {advice}"), name_of(func))


#: What to write instead of a table of all rows by all rows.
_PAIRS = (
    "within sequences: tl.sequence_pairwise for products and distances, tl.sequence_pairs for any function of two rows, "
    f"tl.sequence_attention or F.scaled_dot_product_attention; {OUT}, as negatives of the whole batch do"
)


def all_pairs(func: Callable, meant: str = "") -> LoDError:
    """The error where the rows of two operands are at two dims of the result; what is meant instead ends in "; "."""
    error = LoDValueError(  # after a TypeError Python's operators would raise an error of their own
        f"expected rows at one dim of the result, got some at two: the rows of all sequences with one another; {meant}{_PAIRS}"
    )
    return named(error, name_of(func))


def same_lod(call: str | Callable, a: LoD, b: LoD) -> LoD:
    """The LoD that two operands share; ValueError, which names the call, if they differ."""
    try:
        if declared_level(a) != declared_level(b):
            raise LoDsDiffer(
                "expected rows of the same sequences, got some with tl.per_sequence and others without; tl.sequence_expand_as(c, x) "
                "lays a row for each sequence over the rows of x"
            )
        return a.agreed(b)
    except LoDValueError as error:
        raise named(error, call if isinstance(call, str) else name_of(call)) from None


def sequences_meet(func: Callable, a: LoD, b: LoD) -> None:
    """LoDsDiffer if the rows of one are the sequences of the other: broadcasting may put a row beside all of its sequence."""
    if a is b:
        return
    try:
        related = level_in(a, b) is not None or level_in(b, a) is not None
    except LoDError as error:
        raise named(error, name_of(func)) from None
    if related:
        same_lod(func, a, b)


def another_class(func: Callable, cls: type, expected: str) -> LoDError:
    """The error where a tensor of a class with a __torch_function__ of its own meets rows, and the class cannot answer."""
    error = LoDValueError(  # after a TypeError Python's operators would ask the class with the rows
        f"{expected}, got a {cls.__name__}, whose class has a __torch_function__ of its own, t; with x the LoDTensor, "
        "x.with_values(f(x.values(), t)) asks it row by row, and tl.map_sequences sequence by sequence; "
        "t.as_subclass(torch.Tensor) are its numbers, if the class says nothing of them"
    )
    return named(error, name_of(func))


def misaligned(func: Callable) -> LoDError:
    """The error where an in-place function would combine rows that do not correspond."""
    error = LoDValueError(  # after a TypeError Python would try x = x + y for x += y
        "expected operands whose rows correspond, got some that would be lined up with other rows or with elements of "
        f"rows; {OUT}"
    )
    return named(error, name_of(func))


#: What to write instead of a slice along the rows.
CUT = (
    "a slice counts the rows of the whole batch; the first k sequences are x.seq[:k]; to cut the last k rows of every sequence, "
    "F.pad with (0, -k) there; see x.head, x.tail, tl.sequence_slice"
)

#: What to write instead of a write to rows by their number.
WRITE = (
    "numbers, slices and indices count the rows of the whole batch, so that other sequences would stay as they are; in every "
    "sequence, with x the LoDTensor: x[x.with_values(x.position_ids() < k)] = v for its first k rows, torch.where(mask, v, x) "
    "for new rows, tl.sequence_shift for rows moved by k; its first or last k rows are x.head(k), x.tail(k); rows of a new tensor "
    f"are torch.stack of a list; {STACKS}; if the numbers are meant, write into x.values()"
)

#: What to write instead of functions in which the rows were lost.
POOL = "to pool sequences: tl.sequence_pool, and tl.sequence_expand_as lays the result over the rows"
TAKE = "sequences are taken with x.seq[...], their rows with x.head, x.tail and x.nth"
AT_AN_INDEX = (
    "the last rows of the sequences are x.nth(-1), rows at an index for each sequence tl.sequence_gather(x, index)"
)
ATTEND = "to attend within sequences: tl.sequence_attention or scaled_dot_product_attention"
JOIN = "to put rows before or after those of every sequence: tl.cat(xs, along='within')"
PADDED = "a view per sequence: x.to_padded()"


def way_out(p: Provenance) -> str:
    """What to write where rows that lost their structure, are some of the whole batch, or are at another dim, cannot go on."""
    if p.dim is None:
        instead = NAMED.get(p.call, UNKNOWN).instead
        return f"{instead}; {STACKS}" if instead else STACKS
    return f"{CUT}; {STACKS}" if p.part else f"rows at dim 0 are a LoDTensor; {STACKS}"


def lost_meets(func: Callable, lost: Provenance, what: str) -> LoDError:
    """The error where what lost its structure is used as if its rows corresponded to others."""
    of_masks = NAMED.get(name_of(func), UNKNOWN).of_masks
    mask = "no row is padding, so a mask of padding is left out; " if of_masks else ""
    error = LoDValueError(  # after a TypeError Python's operators would raise an error of their own
        f"{what}, got what a LoDTensor became in {lost.call}, which lost the structure of its rows; {mask}{way_out(lost)}; if "
        "all rows together are meant, pass its .values()"
    )
    return named(error, name_of(func))


def refused(func: Callable, p: Provenance) -> LoDError:
    """The error where a function takes LoDTensors, and gets rows elsewhere."""
    if p.dim is None:
        return lost_meets(func, p, "expected rows of sequences")
    part = "" if p.part is None else f" {p.part[0]} to {p.part[1]}"
    said = f"expected a LoDTensor, got its rows{part} at dim {p.dim}, through {p.call}: "
    return named(LoDValueError(f"{said}it would run along the rows of all sequences; {way_out(p)}"), name_of(func))


def along_rows(func: Callable, origin: Provenance, why: str) -> LoDError:
    """The error where a function would run along rows that are at another dim."""
    through = f", through {origin.call}" if origin.call else ""  # none where broadcasting moved them
    said = f"expected a plain tensor, got rows of a LoDTensor at dim {origin.dim}{through}: {why}; {OUT}"
    return named(LoDValueError(said), name_of(func))
