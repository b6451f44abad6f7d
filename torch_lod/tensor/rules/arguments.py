# SPDX-License-Identifier: Apache-2.0
"""What the rules share: the LoD of an operand, whether dims include dim 0, the errors."""

from collections.abc import Callable

from ...dynamo import compiling, holds
from ...errors import LoDError, LoDsDiffer, LoDTypeError, LoDValueError, named
from ...structure.lod import LoD
from ...structure.partition import DECLARED
from ..provenance import At, Provenance

#: The kinds of functions.
MEANING = {
    "keep": "row i of the result is made of row i of the first argument: the LoD stays",
    "join": "several operands: their LoDs must be equal, or one the outer part of another, whose rows are then broadcast over those "
    "of their sequences, as are those of tl.per_sequence (ValueError otherwise); the LoD stays; rows beside all rows are refused",
    "reduce": "the LoD stays where the dim of the rows is not among the dims; otherwise the rows are lost",
    "shape": "the LoD goes with the rows to the dim where they are; where they are merged with other dims or cut they are lost",
    "matmul": "rows times a plain matrix keep their LoD, and so does one product per row; a product that sums over rows loses "
    "them, one of all rows with all rows is refused",
    "move": "what is taken, written or put together along other dims keeps the LoD; rows that are taken by index are lost, and "
    "are not written; `cat` of whole batches at dim 0 chains their sequences, and of all parts of a batch is the batch",
    "sequence-wise": "runs along every innermost sequence for itself ([drop_in.md](drop_in.md)); the LoD stays, with the lengths "
    "that result",
    "refuse": "raises where rows of different sequences would mix, with the call that is meant; otherwise the LoD stays",
    "plain": "the result has no rows: sizes, predicates, statistics of all rows, other layouts",
}


#: Called with a function and its arguments: returns the provenance of the result, None where its rows are lost, or raises.
Rule = Callable[[Callable, tuple, dict], Provenance | None]


class Route:
    """A rule whose function is replaced: `ours`, which has the signature of torch's, runs instead and returns what
    torch's would. If it returns NotImplemented, torch's function runs, under `rule`. The package drop_in registers the
    routes."""

    def __init__(self, ours: Callable, rule: Rule | None):
        self.ours, self.rule = ours, rule
        #: Runs `ours` on rows at another dim; None: they are refused.
        self.elsewhere: Callable | None = None
        #: Whether it takes what lost its rows.
        self.lost = False

    def __call__(self, func, args, kwargs):
        return None if self.rule is None else self.rule(func, args, kwargs)


ALONG = "along dim 0 it mixes the rows of different sequences"
STACKS = "tl.map_sequences runs code for padded batches"
OUT = f"{STACKS}; x.values() mixes rows on purpose"
#: Of what is (batch, features) in code for padded batches.
STACKED = "if it is a field of one size for each sample, tl.data.collate(items, stack=[...]) stacks it"
NO_SEQUENCES = f"{OUT}; x.sequences() goes sequence by sequence"


#: The names of the functions of the table: Dynamo does not know the names of torch's functions.
NAMES: dict[Callable, str] = {}


def name_of(func: Callable) -> str:
    """The name of a function in errors."""
    name = NAMES.get(func)
    if name is not None:
        return name
    if compiling():
        return "function"
    return getattr(func, "__name__", str(func)).partition(".")[0].strip("_")  # aten's names are like cumsum_.default


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


def touches_rows(dims, rank: int, rows: int = 0) -> bool:
    """Whether the dim of the rows is among `dims`, a number or several; None and () stand for all of them."""
    both = (rows, rows - rank)
    if isinstance(dims, (tuple, list)):
        return not dims or any(d in both for d in dims)
    return dims is None or dims in both


def without(dims, rank: int, rows: int) -> At:
    """The answer of a function that may remove dims, none of them that of the rows."""
    several = dims if isinstance(dims, (tuple, list)) else (dims,)
    return At(rows, sum(d % rank < rows for d in several), rank)


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
#: What to write instead of a function that lost the rows.
_INSTEAD = {
    "to pool sequences: tl.sequence_pool, and tl.sequence_expand_as lays the result over the rows": (
        "sum nansum mean nanmean prod std var std_mean var_mean amax amin max min median norm logsumexp vector_norm index_add "
        "index_reduce scatter_add scatter_reduce"
    ),
    "the last rows of the sequences are x.nth(-1), rows at an index for each sequence tl.sequence_gather(x, index)": (
        "gather take_along_dim"
    ),
    "sequences are taken with x.seq[...], their rows with x.head, x.tail and x.nth": (
        "getitem index_select select narrow take masked_select unbind split chunk"
    ),
    "to attend within sequences: tl.sequence_attention or scaled_dot_product_attention": "matmul mm bmm einsum cdist",
    "to put rows before or after those of every sequence: tl.cat(xs, along='within')": "cat concat concatenate",
    "a view per sequence: x.to_padded()": "view reshape flatten unflatten ravel as_strided",
}
INSTEAD = {name: advice for advice, names in _INSTEAD.items() for name in names.split()}


#: Where masks of padding meet masks of a model's own.
_OF_MASKS = frozenset("and iand or ior bitwise_and bitwise_or logical_and logical_or".split())


def way_out(p: Provenance) -> str:
    """What to write where rows that lost their structure, are some of the whole batch, or are at another dim, cannot go on."""
    if p.dim is None:
        instead = INSTEAD.get(p.call)
        return f"{instead}; {STACKS}" if instead else STACKS
    return f"{CUT}; {STACKS}" if p.part else f"rows at dim 0 are a LoDTensor; {STACKS}"


def lost_meets(func: Callable, lost: Provenance, what: str) -> LoDError:
    """The error where what lost its structure is used as if its rows corresponded to others."""
    mask = "no row is padding, so a mask of padding is left out; " if name_of(func) in _OF_MASKS else ""
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


def declared_name(level: int | str) -> str:
    return f"{DECLARED}{level!r})"


def declared_level(lod: LoD) -> int | str | None:
    names = lod.level_names
    if names is None or len(names) != 1 or names[0] is None or not names[0].startswith(DECLARED):
        return None
    level = names[0][len(DECLARED) : -1]
    return level[1:-1] if level[0] in "'\"" else int(level)


def level_in(lod: LoD, fine: LoD) -> int | None:
    """The level of `fine` that has a sequence for every row of `lod`: by declaration, or because `lod` is the outer levels
    of `fine`. None if nothing says so: an equal number does not. ValueError if a declaration is wrong."""
    level = declared_level(lod)
    if level is None:
        k = lod.depth
        outer = fine.outer_at(k) if declared_level(fine) is None and k < fine.depth else None
        return None if outer is None or lod.differs(outer) else k
    if declared_level(fine) is not None:
        return None
    k = fine.level(level)
    if not holds(lod.rows == fine.num_sequences(k)):
        fits = [j for j in range(fine.depth) if fine.num_sequences(j) == lod.rows]
        hint = f"; level {fits[0]} has as many sequences: tl.per_sequence(c, {fits[0]})" if fits else ""
        raise LoDValueError(
            f"expected a row for each of the {fine.num_sequences(k)} sequences of level {level!r}, got {lod.rows} rows of "
            f"tl.per_sequence{hint}"
        )
    return k
