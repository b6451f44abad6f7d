# SPDX-License-Identifier: Apache-2.0
"""What the processes of a group tell one another before rows move, and which of them gave no answer."""

import json
import re
import time
import weakref
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from .. import errors
from ..errors import LoDError, LoDRuntimeError, LoDTypeError, LoDValueError, named, public, shown
from ..structure.validate import an_int

#: Integers of the message that every rank sends first; what does not fit follows in a second one.
_WORDS = 256
#: How long those that live have time to say so, after a call failed.
_PATIENCE = 5.0
#: How long gloo takes at most to notice that other connections are closed as well.
_NOTICED = 0.2
_TAG = 0x10D
#: How gloo and NCCL speak of a rank that is lost, and not of wrong arguments.
_LOST = re.compile(
    r"gloo/transport|Connection (reset|closed|refused)|Broken pipe|[Tt]imed? ?out|NCCL|Connection was likely closed"
)


class Processes:
    """A process group, seen from one of its ranks."""

    def __init__(self, group: Any = None):
        if not (dist.is_available() and dist.is_initialized()):
            raise LoDRuntimeError(
                "expected a process group, got none; call torch.distributed.init_process_group, or start the program with "
                "torchrun and call it there"
            )
        if group is None:
            group = dist.group.WORLD
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            raise LoDValueError(f"expected a group that this process is in, got one without rank {dist.get_rank()}")
        if not isinstance(group, dist.ProcessGroup):
            raise LoDTypeError(f"expected group as a torch.distributed.ProcessGroup, got {shown(group)}")
        try:
            #: Of the whole program, as torch names them; the group counts them from 0.
            self.ranks: list[int] = dist.get_process_group_ranks(group)
            config = dist.get_backend_config(group)
        except (ValueError, RuntimeError, KeyError):
            raise LoDValueError("expected a group that is in use, got one that was destroyed") from None
        # Gradients that wait for their backward must not keep the group: its threads would outlive destroy_process_group, and
        # one that drops a tensor while the interpreter ends is stopped there, and with it the process.
        self._group = weakref.ref(group)
        self.index, self.size = dist.get_rank(group), len(self.ranks)
        self.rank = self.ranks[self.index]
        self._backends = dict(part.rpartition(":")[::2] for part in str(config).split(","))
        self._asked: list = []
        self._host = torch.device("cpu" if "cpu" in self._backends else _current(next(iter(self._backends), "cpu")))

    @property
    def group(self) -> Any:
        group = self._group()
        if group is None:
            raise LoDRuntimeError(
                "expected a process group that is in use, got one that was destroyed since the forward"
            )
        return group

    def place(self, what: str, rank: Any) -> int:
        """The place in the group of a rank of the program."""
        an_int(f"{what} as a rank", rank, error=LoDTypeError)
        if rank not in self.ranks:
            raise LoDValueError(
                f"expected {what} among the ranks {_listed(self.ranks)} of the group, got {shown(rank)}"
            )
        return self.ranks.index(rank)

    def device(self, kind: str) -> torch.device:
        """The device of a kind that this process uses. ValueError if the group has no backend for it."""
        if kind not in self._backends:
            raise LoDValueError(
                f"expected rows on a device that the group has a backend for ({', '.join(self._backends)}), got {kind}"
            )
        return torch.device(_current(kind))

    # -- before rows move

    def agree(self, call: str, about: dict, numbers: list[Tensor] | None = None) -> tuple[list[dict], list[Tensor]]:
        """What every rank says, and the numbers that it has for this one.

        All calls of this package begin with it. Its first message has one size, so ranks that call different functions
        learn of it: then, and where a rank brings an "error", every rank raises the same LoDError.

        Args:
            about: for all ranks, of what JSON has.
            numbers: int64 in host memory, one tensor per rank.
        """
        text = json.dumps({"call": call, **about}).encode()
        text += b" " * (-len(text) % 8)
        said = torch.frombuffer(bytearray(text), dtype=torch.uint8).view(torch.int64)
        none = torch.empty(0, dtype=torch.int64, device="cpu")
        mine = numbers or [none] * self.size
        most = max(3 + said.numel() + n.numel() for n in mine)
        whole = [torch.cat([torch.tensor([most, said.numel(), n.numel()], device="cpu"), said, n]) for n in mine]
        first = torch.zeros(self.size, _WORDS, dtype=torch.int64, device="cpu")
        for line, words in zip(first, whole, strict=True):
            line[: min(words.numel(), _WORDS)] = words[:_WORDS]
        heads = self.exchange(first.view(-1), [_WORDS] * self.size, [_WORDS] * self.size, self._host).view(-1, _WORDS)
        sizes = [3 + sum(head) for head in heads[:, 1:3].tolist()]
        lines = [head[:size] for head, size in zip(heads, sizes, strict=True)]
        if int(heads[:, 0].max()) > _WORDS:
            send, receive = ([max(0, n - _WORDS) for n in ns] for ns in ([w.numel() for w in whole], sizes))
            rest = self.exchange(torch.cat([words[_WORDS:] for words in whole]), send, receive, self._host)
            lines = [torch.cat(both) for both in zip(lines, rest.split(receive), strict=True)]
        found, theirs = [], []
        for line in lines:
            ends = 3 + int(line[1])
            found.append(json.loads(line[3:ends].contiguous().view(torch.uint8).numpy().tobytes()))
            theirs.append(line[ends:])
        self._refuse(found)
        return found, theirs

    def _refuse(self, found: list[dict]) -> None:
        for rank, other in zip(self.ranks, found, strict=True):
            if "error" in other:
                kind, message = other["error"]
                raise getattr(errors, kind)(f"{message}, on rank {rank}")
        self.same("the same call", [f"{other['call']}{other.get('options', '')}" for other in found], LoDRuntimeError)

    def same(self, what: str, values: list, error: type[LoDError] = LoDValueError, said: str = "") -> Any:
        """The value of all ranks, without those that have None; an error if two differ."""
        having = [(rank, value) for rank, value in zip(self.ranks, values, strict=True) if value is not None]
        for rank, value in having:
            if value != having[0][1]:
                raise error(
                    f"expected {what} on every rank, got {having[0][1]} on rank {having[0][0]} and {value} on rank {rank}{said}"
                )
        return having[0][1] if having else None

    def failed(self, call: str, error: Exception) -> NoReturn:
        """Raises an error of this rank on all ranks, which would wait for it."""
        kind = type(error).__name__ if isinstance(error, LoDError) else "LoDRuntimeError"
        message = (
            str(error) if isinstance(error, LoDError) else f"expected no error, got {type(error).__name__}: {error}"
        )
        try:
            self.agree(call, {"error": [kind, message[:2000]]})
        except LoDError as shared:
            shared.__suppress_context__ = True
            raise
        raise error

    # -- rows

    def exchange(self, rows: Tensor, send: list[int], receive: list[int], device: torch.device) -> Tensor:
        """The first rows go to the first rank, and so on; what the ranks have for this one, in their order. As bytes, so of
        any dtype; without gradient."""
        wire = device if self._backends.get(device.type) != "gloo" else torch.device("cpu")
        element = rows.shape[1:]
        width = rows.element_size() * element.numel()
        out = torch.empty((sum(receive), *element), dtype=rows.dtype, device=wire)
        given = rows.detach().resolve_conj().resolve_neg().to(wire).contiguous()
        with Watch(self):
            dist.all_to_all_single(
                _bytes(out), _bytes(given), [n * width for n in receive], [n * width for n in send], group=self.group
            )
        return out.to(device)

    # -- after a call failed

    def lost(self, timed_out: bool) -> str:
        """In words, which ranks are lost: those whose connection is closed, or else those that give no answer.

        A rank that fails says so in the store of the group before it raises; its process may have ended since then. After a
        timeout gloo has closed connections itself.
        """
        names = {i: f"torch_lod.failed.{i}" for i in range(self.size)}
        missing = [i for i in names if i != self.index]
        try:
            store = self.group.get_group_store() if hasattr(self.group, "get_group_store") else _store(self.group)
            store.set(names[self.index], "1")
            time.sleep(_NOTICED)
            gone = [i for i in missing if not timed_out and self._closed(i) and not store.check([names[i]])]
            end = time.monotonic() + _PATIENCE
            while not gone and missing and time.monotonic() < end:
                time.sleep(0.05)
                missing = [i for i in missing if not store.check([names[i]])]
        except Exception as error:
            return f"unknown ranks: the store of the group, which is often on rank 0, does not answer ({error!s:.80})"
        if gone:
            return f"{self._named(gone)}, whose connection is closed: ended or killed"
        if missing:
            return f"{self._named(missing)}, which also gave no answer in {_PATIENCE:.0f} s after that"
        return "no rank in particular: all of them failed alike"

    def _named(self, places: list[int]) -> str:
        ranks = [self.ranks[i] for i in places]
        return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_listed(ranks)}"

    def _closed(self, place: int) -> bool:
        """Whether gloo has lost the connection: then nothing can be asked of it. Nobody waits for what is asked here, since gloo
        closes all connections after a timeout."""
        if self._backends.get("cpu") != "gloo":
            return False
        try:
            nothing = torch.zeros(1, device="cpu")
            self._asked.append((nothing, self.group.recv([nothing], place, _TAG)))
        except RuntimeError:
            return True
        return False


class Watch:
    """The context of `watch`."""

    def __init__(self, processes: Processes):
        self._processes = processes

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind, error, trace) -> None:
        if isinstance(error, RuntimeError) and not isinstance(error, LoDError) and _LOST.search(str(error)):
            said = str(error).strip().partition("\n")[0]
            lost = self._processes.lost("imed out" in said)
            raise named(
                LoDRuntimeError(f"expected an answer of every rank, got none of {lost} (torch says: {said:.160})"),
                "watch",
            ) from error


@public
def watch(group: Any = None) -> Watch:
    """A context in which the error of a rank that was killed, or does not answer, names that rank.

    torch's own names an address, or says that something timed out. For training steps: the collectives of
    DistributedDataParallel and FSDP run in `backward`. The calls of tl.distributed do the same by themselves.

        >>> with tl.distributed.watch():
        ...     loss.backward()

    Args:
        group: whose collectives run; None: all processes.

    Raises:
        RuntimeError: where a collective failed; the group cannot be used any more. Ranks that exchange data with one that was
            killed see it immediately, others when those end, or at the group's timeout. A rank that is alive and silent is named 5
            seconds after the timeout. With NCCL torch may end the process itself.
    """
    return Watch(Processes(group))


def _bytes(rows: Tensor) -> Tensor:
    return rows.reshape(-1).view(torch.uint8)


def _current(kind: str) -> str:
    if kind == "cpu":
        return kind
    return f"{kind}:{torch.accelerator.current_device_index()}"


def _store(group):
    return dist.distributed_c10d._world.pg_map[group][1]


def _listed(ranks: list[int]) -> str:
    return f"{ranks[:16]}".replace("]", ", ...]") if len(ranks) > 16 else f"{ranks}"
