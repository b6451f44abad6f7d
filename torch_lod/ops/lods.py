# SPDX-License-Identifier: Apache-2.0
"""Questions about structure in host memory: the check of a LoD, and what selects, cuts and joins its levels."""

import torch

from . import check
from .library import composition


@composition
def check_lod(offsets, rows, kept=False):
    report = [0, 0]
    for level, t in enumerate(offsets):
        if t.layout != torch.strided or t.device.type != "cpu" or t.dtype != torch.int64 or t.dim() != 1:
            raise TypeError("check_lod: expected contiguous 1-D int64 offsets in host memory")
        if t.numel() == 0:
            return [1, level, 0, 1, 0]
    for level, t in enumerate(offsets):
        end = offsets[level + 1].numel() - 1 if level + 1 < len(offsets) else rows
        rule, *where = check.find_fault(t, end)
        if rule:
            return [1 + rule, level, *where]
        report.append(int(t.diff().max()) if t.numel() > 1 else 0)
        report[1] = int(t[-1])
    return report


@composition
def keep_structure(structure, rows, cuts, apart=False, longest=-1, host=None):
    """Compositions copy structure on every call: there is nothing to mark."""
    op, name, device = "keep_structure", "structure", torch.device("cpu") if structure.is_meta else structure.device
    check.offsets_kind(op, structure, device, name) if cuts else check.index(op, name, structure, device)
    check.offsets(op, structure, rows, name) if cuts else check.row_map(op, name, structure, rows)
    if host is not None:
        check.offsets_kind(op, host, torch.device("cpu"), "host")
        if host.shape != structure.shape:
            raise ValueError(
                f"{op}: expected host with the {structure.shape[0]} offsets of structure, got {host.shape[0]}"
            )


@composition
def watch_structure(structure, offsets, rule, rows, own, option, op, name="row_offsets", of="values"):
    """Validates immediately: the host waits for a GPU."""
    here = "watch_structure"
    if rule not in ("cuts", "maps", "runs", "labels", "counts", "truths"):
        raise ValueError(f"{here}: expected rule 'cuts', 'maps', 'runs', 'labels', 'counts' or 'truths', got '{rule}'")
    check.index(here, "structure", structure, structure.device)
    if (rule == "runs") != (offsets is not None):
        raise ValueError(f"{here}: expected offsets with the rule 'runs' and no other")
    if offsets is not None:
        check.offsets_kind(here, offsets, structure.device, "offsets")
        if offsets.shape[0] != structure.shape[0] + 1:
            raise ValueError(
                f"{here}: expected one of structure per segment, {offsets.shape[0] - 1}, got {structure.shape[0]}"
            )
    if not check.readable(structure):
        return
    if rule == "cuts" and len(structure):
        check.offsets(op, structure, rows, name, of)
    elif rule == "maps":
        check.row_map(op, name, structure, rows)
    elif rule == "runs":
        check.offsets(op, offsets, own, name, of)
        check.runs(op, structure, offsets, option, rows)
    elif rule == "labels":
        for i, label in enumerate(structure.tolist()):
            if not 0 <= label < rows or label == option:
                raise IndexError(
                    f"{op}: expected {name} in [0, {rows - 1}] other than the blank {option}, got {label} at index {i}"
                )
    elif rule == "counts" and len(structure) and int(structure[-1]) != rows:
        raise ValueError(f"{op}: expected {name}, {int(structure[-1])}, got {rows}")
    elif rule == "truths" and bool(structure.any()):
        raise ValueError(f"{op}: expected what is asked, got a fault at index {int(structure.nonzero()[0])}: {name}")


@composition
def check_errors(wait=True):
    """Compositions leave nothing to be found."""


def levels_of_runs(levels, starts, lengths, count) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """What take_runs makes, without checks: the offsets of the runs and of every level below, the first row of every run,
    and the offsets of the runs in rows. `count(k, taken)` is the last of the offsets of the runs in sequences of
    levels[k]."""

    def sums(lengths):
        return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))

    taken, begin, end = sums(lengths), starts, starts + lengths
    new_levels = [taken]
    for k, level in enumerate(levels):
        total = count(k, taken)
        element = torch.repeat_interleave(begin - taken[:-1], taken.diff(), output_size=total)
        element = element + torch.arange(total, device="cpu")
        new_levels.append(
            sums(level[element + 1] - level[element])
        )  # not of all of them: a batch of a large LoD is small
        begin, end = level[begin], level[end]
        taken = sums(end - begin)
    return new_levels, begin, taken


@composition
def take_runs(levels, starts, lengths, elements, kept=False, within=None, most=-1, last=False):
    op, host, limit = "take_runs", torch.device("cpu"), 2**62
    _check_asked(op, starts, lengths, elements, within, most)
    if lengths is None:
        check.offsets_kind(op, within, host, "within")
        check.offsets(op, within, elements, "within", "the elements")
        lengths = within.diff().clamp(max=most)
        starts = within.diff() - lengths if last else None
    check.index(op, "lengths", lengths, host)
    starts = torch.zeros_like(lengths) if starts is None else starts
    check.index(op, "starts", starts, host)
    if starts.shape != lengths.shape:
        raise ValueError(f"{op}: expected one of starts per run, {len(lengths)}, got {len(starts)}")
    _check_nesting(op, levels, elements, limit)
    room = torch.full_like(lengths, elements)
    if within is not None:
        check.offsets_kind(op, within, host, "within")
        if len(within) != len(starts) + 1:
            raise ValueError(f"{op}: expected within with {len(starts) + 1} offsets, got {len(within)}")
        check.offsets(op, within, elements, "within", "the elements")
        room = within.diff()
    wrong = (lengths < 0) | (lengths > room) | (starts < 0) | (starts > room - lengths)
    for i in wrong.nonzero().flatten()[:1].tolist():
        raise IndexError(
            f"{op}: expected runs within [0, {int(room[i])}), got {int(lengths[i])} elements from {int(starts[i])} "
            f"at index {i}"
        )
    if within is not None:
        starts = starts + within[:-1]
    if sum(lengths.tolist()) >= limit:
        raise ValueError(f"{op}: expected lengths that add up to less than 2**62, got more")
    with torch.inference_mode(False):
        levels, starts, lengths = [t.clone() for t in levels], starts.clone(), lengths.clone()
        new_levels, begin, taken = levels_of_runs(levels, starts, lengths, lambda _, taken: int(taken[-1]))
    if sum(taken.diff().tolist()) >= limit:
        raise ValueError(f"{op}: expected fewer than 2**62 rows, got more")
    longest = [int(level.diff().max()) if len(level) > 1 else 0 for level in new_levels]
    return [*new_levels, *([taken] if levels else [])], begin, [int(taken[-1]), *longest]


def _check_asked(op, starts, lengths, elements, within, most) -> None:
    if not 0 <= elements < 2**62:
        raise ValueError(f"{op}: expected elements in [0, 2**62), got {elements}")
    if starts is None and within is None:
        raise TypeError(f"{op}: expected starts where there is no within, got None")
    if lengths is None and (within is None or starts is not None):
        raise TypeError(f"{op}: expected lengths where there are starts, got None")
    if lengths is None and most < 0:
        raise ValueError(f"{op}: expected most >= 0 where there are no lengths, got {most}")


def _check_nesting(op, levels, rows, limit) -> None:
    for k, level in enumerate(levels):
        name = f"levels[{k}]"
        check.offsets_kind(op, level, torch.device("cpu"), name)
        if len(level) - 1 != rows:
            raise ValueError(f"{op}: expected {name} with {rows + 1} offsets, got {len(level)}")
        check.offsets(op, level, -1, name)
        rows = int(level[-1])
        if rows >= limit:
            raise ValueError(f"{op}: expected {name} to end below 2**62, got {rows}")


def _check_levels(op, levels, depth) -> None:
    for i, level in enumerate(levels):
        check.offsets_kind(op, level, torch.device("cpu"), f"levels[{i}]")
        end = levels[i + 1].numel() - 1 if (i + 1) % depth else -1
        check.offsets(op, level, end, f"levels[{i}]", "the next level")


@composition
def locate(index, index_offsets, row_offsets, each=1, absolute=False):
    op, host = "locate", torch.device("cpu")
    check.index(op, "index", index, host)
    check.offsets_kind(op, index_offsets, host, "index_offsets")
    check.offsets_kind(op, row_offsets, host, "row_offsets")
    if each <= 0 or len(index) % each:
        raise ValueError(f"{op}: expected each to divide the {len(index)} entries of index, got {each}")
    if len(index_offsets) != len(row_offsets):
        raise ValueError(
            f"{op}: expected index_offsets with the {len(row_offsets)} offsets of row_offsets, got {len(index_offsets)}"
        )
    check.offsets(op, index_offsets, len(index) // each, "index_offsets", "index")
    check.offsets(op, row_offsets, -1)
    counts = index_offsets.diff() * each
    begin, end = (torch.repeat_interleave(t, counts) for t in (row_offsets[:-1], row_offsets[1:]))
    rows = index if absolute else index + begin
    fits = (index == -1) | ((rows >= begin) & (rows < end))
    return torch.where(index < 0, -1, rows), bool(fits.all())


@composition
def cut_lod(levels, begin, end, kept=False):
    op = "cut_lod"
    if not levels:
        raise ValueError(f"{op}: expected at least 1 level, got none")
    _check_levels(op, levels, len(levels))
    if not 0 <= begin <= end < len(levels[0]):
        raise IndexError(f"{op}: expected 0 <= begin <= end <= {len(levels[0]) - 1}, got {begin} and {end}")
    cut, longest = [], []
    for level in levels:
        part = level[begin : end + 1]
        begin, end = int(part[0]), int(part[-1])
        with torch.inference_mode(False):
            cut.append(part.clone() - begin)
        longest.append(int(part.diff().max()) if len(part) > 1 else 0)
    return cut, [begin, end - begin, *longest]


def _by_sequence(parts, bounds) -> torch.Tensor:
    """The parts of sequence 0 of every LoD, then those of sequence 1."""
    groups = [part.tensor_split(b[1:-1]) if len(b) > 1 else [] for part, b in zip(parts, bounds)]
    return torch.cat([part for group in zip(*groups) for part in group] or parts[:1])


@composition
def join_lods(levels, depth, kept=False, within=False):
    op = "join_lods"
    if depth < 1 or not levels or len(levels) % depth:
        raise ValueError(f"{op}: expected depth offsets of every LoD, got {len(levels)} and a depth of {depth}")
    _check_levels(op, levels, depth)
    counts = [len(level) - 1 for level in levels[::depth]]
    for i, count in enumerate(counts):
        if within and count != counts[0]:
            raise ValueError(f"{op}: expected equally many sequences, got {counts[0]} and {count} at index {i}")
    joined, report = [], []
    for k in range(depth):
        parts = [level[1:] - level[:-1] for level in levels[k::depth]]
        if sum(int(level[-1]) for level in levels[k::depth]) >= 2**63:
            raise ValueError(f"{op}: expected offsets that add up to less than 2**63, got more")
        if within and k == 0:
            lengths, bounds = torch.stack(parts).sum(0), levels[0::depth]
        elif within:
            lengths = _by_sequence(parts, bounds)
            bounds = [level[b] for level, b in zip(levels[k::depth], bounds)]
        else:
            lengths = torch.cat(parts)
        with torch.inference_mode(False):
            joined.append(torch.nn.functional.pad(lengths.clone().cumsum(0), (1, 0)))
        report.append(int(lengths.max()) if len(lengths) else 0)
    return joined, [int(joined[-1][-1]), *report]
