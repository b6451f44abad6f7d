# SPDX-License-Identifier: Apache-2.0
"""LoDTensors between ranks, with gradient.

Every call is two messages: what the ranks have (`Processes.agree`), then the rows, each straight from the rank that has them
to the one that gets them. The adjoint of moving rows is moving them back, so one autograd function is enough: where a rank
gives its rows to several, they are copies of them, whose gradients autograd adds.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..dynamo import outside_of_graphs
from ..errors import LoDRuntimeError, LoDTypeError, LoDValueError, boundary, named, shown
from ..structure.lod import LoD
from ..structure.validate import sums, with_memory
from ..tensor.derived import DerivedTensor
from ..tensor.lod_tensor import LoDTensor, MaybeLoD, a_lod_tensor, values_of
from .processes import Processes

__all__ = ["all_gather", "all_to_all", "broadcast", "gather", "scatter"]


@outside_of_graphs
@boundary(rejects=False)
def all_gather(x: Tensor, *, group: Any = None) -> MaybeLoD:
    """The batches of all ranks as one, on every rank: sequences in the order of the ranks.

    Args:
        x: a LoDTensor; or a plain tensor with rows, of which any rank may have as many as it likes. Ranks may have no
            sequences. Levels, dtype and shape of rows are those of every rank; level names are those of the first that has any.
        group: of torch.distributed; None: all processes.

    Returns:
        a LoDTensor with as many levels as x, on the device of x; plain for plain tensors. The gradient of x is the sum of those
        of its copies on all ranks, a reduce-scatter: `loss.backward()` must run on every rank, and calls in the same order.

    Raises:
        ValueError, TypeError: the same on every rank, where any of them gives something else than the others, or nothing that
            can be sent.
        RuntimeError: without a process group; where a rank is lost, or calls another function.
    """
    return _joined(*_moved("all_gather", group, lambda p: [_rows("x", x)] * p.size))


@outside_of_graphs
@boundary(rejects=False)
def gather(x: Tensor, dst: int = 0, *, group: Any = None) -> MaybeLoD:
    """The batches of all ranks as one, on rank `dst`.

    Args:
        x: as for `all_gather`.
        dst: a rank of the whole program, as in torch.distributed.

    Returns:
        on dst what `all_gather` gives; on other ranks a batch without sequences. With gradient: `loss.backward()` must run on
        every rank, on the others of, say, the sum of what they got.

    Raises: as `all_gather`.
    """

    def give(p: Processes) -> list:
        at = p.place("dst", dst)
        return [_rows("x", x) if i == at else None for i in range(p.size)]

    return _joined(*_moved("gather", group, give, dst=dst))


@outside_of_graphs
@boundary(rejects=False)
def scatter(parts: list | None = None, src: int = 0, *, group: Any = None) -> MaybeLoD:
    """A batch for every rank from rank `src`.

    Args:
        parts: on src a list of LoDTensors or of tensors with rows, one per rank, alike but for their numbers of sequences and
            rows: `[x.seq[r::world_size] for r in range(world_size)]`. None on other ranks.
        src: a rank of the whole program, as in torch.distributed.

    Returns:
        the part of this rank, on its own device of the kind that the parts are on. The gradients come together on src:
        `loss.backward()` must run on every rank (torch.autograd.grad would leave out what leads to no input there).

    Raises: as `all_gather`.
    """

    def give(p: Processes) -> list:
        if not _has("parts", parts, p, src):
            return [None] * p.size
        return _list("parts", parts, p)

    return _joined(*_moved("scatter", group, give, src=src))


@outside_of_graphs
@boundary(rejects=False)
def broadcast(x: Tensor | None = None, src: int = 0, *, group: Any = None) -> MaybeLoD:
    """The batch of rank `src`, on every rank.

    Args:
        x: on src a LoDTensor or a tensor with rows; None on other ranks.
        src: a rank of the whole program, as in torch.distributed.

    Returns:
        a copy, on the rank's own device of the kind that x is on. The gradient of x is the sum of those of the copies:
        `loss.backward()` must run on every rank (torch.autograd.grad would leave out what leads to no input there).

    Raises: as `all_gather`.
    """

    def give(p: Processes) -> list:
        return [_rows("x", x) if _has("x", x, p, src) else None] * p.size

    return _joined(*_moved("broadcast", group, give, src=src))


@outside_of_graphs
@boundary(rejects=False)
def all_to_all(parts: list, *, group: Any = None) -> list:
    """A batch from every rank to every rank: part r goes to the r-th rank of the group.

    Its own inverse, and its own gradient: `all_to_all(all_to_all(parts))` are the parts. For sequences that another rank
    shall compute, and whose results come back.

    Args:
        parts: a list of LoDTensors or of tensors with rows, one per rank, alike on all ranks but for their numbers of
            sequences and rows.

    Returns:
        a list of what every rank had for this one, in the order of the ranks.

    Raises: as `all_gather`.
    """
    values, lods, counts = _moved("all_to_all", group, lambda p: _list("parts", parts, p))
    return [_with(rows, lod) for rows, lod in zip(values.split(counts), lods, strict=True)]


# -- what a rank gives


def _rows(what: str, x: Any) -> Tensor:
    if isinstance(x, DerivedTensor):
        a_lod_tensor(what, x)
    if not isinstance(x, LoDTensor) and type(x) not in (Tensor, torch.nn.Parameter):
        raise LoDTypeError(f"expected {what} as a LoDTensor or a plain tensor with rows, got {type(x).__name__}")
    if x.layout != torch.strided or x.is_quantized or x.is_meta:
        raise LoDTypeError(f"expected {what} as a dense tensor with data, got {shown(x)}, {x.layout} on {x.device}")
    if x.dim() == 0:
        raise LoDValueError(f"expected {what} with rows, at least 1 dimension, got a scalar; see {what}[None]")
    with_memory(x)
    return x


def _has(what: str, given: Any, p: Processes, src: int) -> bool:
    """Whether this rank is the one that gives."""
    if p.place("src", src) == p.index:
        return True
    if given is not None:
        raise LoDTypeError(f"expected {what} None on ranks other than src {src}, got {type(given).__name__}")
    return False


def _list(what: str, parts: Any, p: Processes) -> list[Tensor]:
    if not isinstance(parts, (list, tuple)):
        raise LoDTypeError(f"expected {what} as a list of {p.size} LoDTensors or tensors, got {type(parts).__name__}")
    if len(parts) != p.size:
        raise LoDValueError(f"expected {p.size} {what}, one per rank, got {len(parts)}")
    found = [_rows(f"{what}[{i}]", x) for i, x in enumerate(parts)]
    first = _kind(found[0])
    for i, x in enumerate(found):
        for key, value in _kind(x).items():
            if value != first[key]:
                raise LoDValueError(
                    f"expected {what} of one {key}, got {first[key]} at index 0 and {value} at index {i}"
                )
    return found


def _kind(x: Tensor) -> dict:
    """What the rows of all ranks have in common; the keys are the words of messages."""
    return {
        "number of levels": x.lod.depth if isinstance(x, LoDTensor) else 0,
        "dtype": str(x.dtype).removeprefix("torch."),
        "shape of rows": list(x.shape[1:]),
        "device": x.device.type,
    }


def _numbers(x: Tensor | None) -> Tensor:
    """The structure of what one rank gives another: how many lengths every level has, and rows there are; the lengths."""
    if x is None:
        return torch.empty(0, dtype=torch.int64, device="cpu")
    levels = [offsets.diff() for offsets in x.lod.levels] if isinstance(x, LoDTensor) else []
    counts = torch.tensor([*(level.numel() for level in levels), x.shape[0]], dtype=torch.int64, device="cpu")
    return torch.cat([counts, *levels])


# -- what it gets


def _moved(call: str, group: Any, give: Callable[[Processes], list], **options) -> tuple[Tensor, list, list[int]]:
    """The rows that this rank gets, and of each rank that gives it some the structure and the number of rows."""
    p = Processes(group)
    try:
        given = give(p)
        about: dict[str, Any] = {"options": options or "", "grad": torch.is_grad_enabled(), **_about(given)}
        once = {id(x): _numbers(x) for x in given}
        numbers = [once[id(x)] for x in given]
    except Exception as error:
        p.failed(call, error)
    found, theirs = p.agree(call, about, numbers)
    kind = {key: _same(p, key, found) for key in ("number of levels", "dtype", "shape of rows", "device")}
    device, dtype = p.device(kind["device"]), getattr(torch, kind["dtype"])
    device = next((x.device for x in given if x is not None), device)
    depth, element = kind["number of levels"], kind["shape of rows"]
    lods = _structures(theirs, depth, found, device)
    receive = [int(n[depth]) if n.numel() else 0 for n in theirs]
    plain = [values_of(x) for x in given if x is not None]
    nothing = torch.empty(0, *element, dtype=dtype, device=device)
    rows = plain[0] if len(plain) == 1 else torch.cat(plain or [nothing])
    send = [0 if x is None else x.shape[0] for x in given]
    needs = any(other.get("needs", False) for other in found)
    return _sent(p, call, rows, send, receive, device, _needed(p, found, needs)), lods, receive


def _about(given: list) -> dict[str, Any]:
    """What the other ranks must know of what this rank gives, beside sizes."""
    some = next((x for x in given if x is not None), None)
    if some is None:
        return {}
    about = {"kind": _kind(some), "needs": any(x is not None and x.requires_grad for x in given)}
    if isinstance(some, LoDTensor):
        about |= {"names": some.level_names, "all count": _all_count(given)}
    return about


def _structures(theirs: list[Tensor], depth: int, found: list[dict], device: torch.device) -> list[LoD | None]:
    """The LoD of each rank that gives rows."""
    theirs = [n for n in theirs if n.numel()]
    if not depth:
        return [None] * len(theirs)
    names = next((other["names"] for other in found if other.get("names")), None)
    lods: list[LoD | None] = []
    for n in theirs:
        *sizes, rows = n[: depth + 1].tolist()
        levels = [sums(lengths) for lengths in n[depth + 1 :].split(sizes)]
        lod = LoD.checked("lengths", levels, names, rows, by_length=True)
        lods.append(lod if all(other.get("all count", True) for other in found) else _ignored(lod, device))
    return lods or [LoD([[0]] * depth, level_names=names)]


def _same(p: Processes, key: str, found: list[dict]):
    of_types = key in ("dtype", "device")
    values = [other["kind"][key] if "kind" in other else None for other in found]
    return p.same(f"rows of the same {key}", values, LoDTypeError if of_types else LoDValueError)


def _needed(p: Processes, found: list[dict], needs: bool) -> bool:
    """Whether ranks have to move gradients back: then all of them, also those whose own rows need none."""
    if needs:
        p.same(
            "gradients to be recorded, or not,",
            [other["grad"] for other in found],
            LoDRuntimeError,
            "; see torch.no_grad",
        )
    return needs and found[0]["grad"]


def _all_count(given: list) -> bool:
    """Whether no loss of the rows was ignored."""
    return all(bool(mask.all()) for x in given if x is not None for mask in x.lod.counted)


def _ignored(lod: LoD, device) -> LoD:
    """That losses were ignored stays known, but not which: as where operators move rows."""
    every = torch.zeros(lod.rows, dtype=torch.bool, device=device)
    return lod.counting(torch.stack([every, ~every], 1))


def _joined(values: Tensor, lods: list, counts: list[int]) -> Any:
    if lods[:1] in ([], [None]):
        return values
    if len(lods) == 1:
        return _with(values, lods[0])
    levels = [sums(torch.cat([lod.levels[k].diff() for lod in lods])) for k in range(lods[0].depth)]
    lod = LoD.checked("lengths", levels, lods[0].level_names, values.shape[0], by_length=True)
    return _with(values, _ignored(lod, values.device) if lods[0].counted else lod)


def _with(values: Tensor, lod: LoD | None) -> Any:
    return values if lod is None else LoDTensor(values, lod)


# -- the gradient


def _sent(p: Processes, call: str, rows: Tensor, send: list[int], receive: list[int], device, needs: bool) -> Tensor:
    anchor = torch.empty(0, requires_grad=True) if needs else None
    return _Exchange.apply(rows, anchor, p, call, send, receive, device)


class _Exchange(torch.autograd.Function):
    """Rows to the ranks that get them. The anchor makes a result with a gradient also where the rows of this rank have none:
    others wait for it in the backward."""

    @staticmethod
    def forward(ctx, rows, anchor, p, call, send, receive, device):
        ctx.of = p, call, send, receive, rows.device
        return p.exchange(rows, send, receive, device)

    @staticmethod
    def backward(ctx, grad):
        p, call, send, receive, device = ctx.of
        call = f"backward of {call}"
        try:
            found, _ = p.agree(call, {"grad": torch.is_grad_enabled(), "needs": grad.requires_grad})
            needs = _needed(p, found, any(other["needs"] for other in found))
            back = _sent(p, call, grad, receive, send, device, needs)
        except (LoDRuntimeError, LoDTypeError, LoDValueError) as error:
            raise named(error, call) from error.__cause__
        return back, None, None, None, None, None, None
