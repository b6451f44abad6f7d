# SPDX-License-Identifier: Apache-2.0
"""The LoD of `tl.per_sequence`, which declares that a row belongs to a sequence of a level."""

from ..dynamo import holds
from ..errors import LoDValueError
from .lod import LoD
from .partition import DECLARED


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


def refuse_other_level(what: str, passed: str, given: LoD, lod: LoD, level: int) -> None:
    """ValueError unless `given` has a row for each sequence of that level of `lod`."""
    if (k := level_in(given, lod)) != level:
        meant = "of other sequences" if k is None else f"of level {k}"
        raise LoDValueError(
            f"expected {what} for each sequence of level {level}, got rows {meant}; see tl.per_sequence({passed}, {level})"
        )
