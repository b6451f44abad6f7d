# SPDX-License-Identifier: Apache-2.0
"""What every process of tests/distributed/distributed_run.py checks. Each knows what the others have, by their seeds, and computes on
one process what the results should be."""

import contextlib
import os
import signal
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from distributed_examples import programs_want_torchrun, the_demo, the_example_goes_on_in_the_middle_of_an_epoch
from distributed_models import accumulation, ddp_hooks, exact_mean_of_ddp, exact_mean_of_fsdp, samplers_know_their_rank
from torch import Tensor

import torch_lod as tl

D = tl.distributed
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


def me() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


def same(found, expected) -> None:
    assert type(found) is type(expected), (type(found), type(expected))
    if isinstance(expected, tl.LoDTensor):
        assert found.lod == expected.lod and found.level_names == expected.level_names, (found.lod, expected.lod)
        found, expected = found.values(), expected.values()
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def batch(
    seed: int, depth: int = 2, element=(3,), dtype=torch.float64, sequences: int | None = None, names: bool = True
):
    """A batch of random lengths, 0 among them; without levels a plain tensor."""
    rng = torch.Generator().manual_seed(seed)
    count = int(torch.randint(0, 4, (), generator=rng)) if sequences is None else sequences
    lengths = []
    for _ in range(depth):
        lengths.append(torch.randint(0, 4, (count,), generator=rng))
        count = int(lengths[-1].sum())
    values = torch.randn(count, *element, generator=rng, dtype=torch.float64).mul(100).to(dtype)
    level_names = [f"level {k}" for k in range(depth)] if names else None
    return tl.from_lengths(values, lengths, level_names=level_names) if depth else values


def joined(xs):
    return tl.cat(xs) if isinstance(xs[0], tl.LoDTensor) else torch.cat(xs)


# -- rows


def rows_and_structure() -> None:
    rank, world = me()
    for depth, dtype in [(d, t) for d in range(4) for t in DTYPES]:
        for element in ((), (3,), (2, 0)) if dtype == torch.float32 else ((2,),):
            made = [batch(100 * depth + r, depth, element, dtype) for r in range(world)]
            own = made[rank]
            same(D.all_gather(own), joined(made))
            gathered = D.gather(own, dst=world - 1)
            same(gathered, joined(made) if rank == world - 1 else joined(made)[:0] if not depth else made[0].seq[:0])
            same(D.broadcast(own if rank == 1 else None, src=1), made[1])
            parts = [
                [batch(1000 * depth + 10 * r + q, depth, element, dtype) for q in range(world)] for r in range(world)
            ]
            same(D.scatter(parts[0] if rank == 0 else None), parts[0][rank])
            received = D.all_to_all(parts[rank])
            for r in range(world):
                same(received[r], parts[r][rank])
            for found, expected in zip(D.all_to_all(received), parts[rank], strict=True):
                same(found, expected)


def empty_ranks_and_many_sequences() -> None:
    rank, world = me()
    for counts in ([0] * world, [0] * (world - 1) + [5], [2000] + [0] * (world - 1), [700] * world):
        made = [batch(r, sequences=n) for r, n in enumerate(counts)]
        same(D.all_gather(made[rank]), tl.cat(made))
    no_rows = [tl.from_lengths(torch.empty(0, 2), [[0] * r]) for r in range(world)]
    same(D.all_gather(no_rows[rank]), tl.cat(no_rows))


def strides_names_and_conjugates() -> None:
    rank, world = me()
    wide = tl.from_lengths(torch.arange(24.0).view(4, 6).t()[::2] + rank, [[1, 2]])
    found = D.all_gather(wide)
    same(found, tl.cat([wide - rank + r for r in range(world)]))
    turned = torch.randn(3, dtype=torch.complex64).conj()
    torch.testing.assert_close(D.all_gather(turned)[3 * rank : 3 * rank + 3], turned.resolve_conj())
    if rank == 0:
        torch.testing.assert_close(D.gather(turned)[:3], turned.resolve_conj())
    else:
        D.gather(turned)
    mixed = batch(rank, names=rank == world - 1)
    assert D.all_gather(mixed).level_names == ("level 0", "level 1")
    weight = torch.nn.Parameter(torch.ones(2, 2))
    assert D.all_gather(weight).shape == (2 * world, 2)


def groups() -> None:
    rank, world = me()
    members = [world - 1, *range(1, world - 1)] if world > 2 else [1]
    group = dist.new_group(sorted(members))
    made = {r: batch(r) for r in range(world)}
    if rank in members:
        same(D.all_gather(made[rank], group=group), tl.cat([made[r] for r in sorted(members)]))
        last = max(members)  # a rank of the program, not of the group
        same(D.broadcast(made[rank] if rank == last else None, src=last, group=group), made[last])
        assert float(D.global_token_mean(torch.full((rank,), 2.0), group=group)) == 2.0
        said = failing(lambda: D.broadcast(made[rank], src=0, group=group))
        assert said.startswith(
            f"LoDValueError: broadcast: expected src among the ranks {sorted(members)} of the group, got 0"
        )
    else:
        said = failing(lambda: D.all_gather(made[rank], group=group))
        assert "expected a group that this process is in" in said
    said = failing(lambda: D.all_gather(made[rank], group=rank))
    assert said == f"LoDTypeError: all_gather: expected group as a torch.distributed.ProcessGroup, got {rank}"
    dist.barrier()


def losses_that_were_ignored() -> None:
    rank, world = me()
    made = [batch(r, 1, (4,), sequences=4) for r in range(world)]

    def loss(scores, ignored=0):
        target = torch.zeros(len(scores), dtype=torch.int64)
        target[:ignored] = -100
        return torch.nn.functional.cross_entropy(scores, target, reduction="none")

    whole = D.all_gather(loss(made[rank]))
    torch.testing.assert_close(tl.sequence_loss(whole), torch.cat([loss(x).values() for x in made]).mean())
    whole = D.all_gather(loss(made[rank], ignored=int(rank == 0)))
    assert "or moved by an operator" in failing(lambda: tl.sequence_loss(whole))


# -- gradients


def one_process(call: str, given: list, world: int) -> list:
    """What a call gives on every rank, of what every rank gives it."""
    if call == "all_gather":
        return [joined(given)] * world
    if call == "gather":
        return [joined(given)] + [given[r].seq[:0] for r in range(1, world)]
    if call == "broadcast":
        return [given[1]] * world
    if call == "scatter":
        return given[0]
    return [[given[q][r] for q in range(world)] for r in range(world)]


def on_ranks(call: str, given, rank: int):
    if call == "broadcast":
        return D.broadcast(given if rank == 1 else None, src=1)
    if call == "scatter":
        return D.scatter(given if rank == 0 else None)
    return getattr(D, call)(given)


def loss_of(result, rank: int) -> Tensor:
    """Another function on every rank, whose gradient depends on the rows."""
    parts = result if isinstance(result, list) else [result]
    return sum((x.values() * (rank + i + 1)).sin().mul(rank + 2).sum() for i, x in enumerate(parts))


def leaves(call: str, rank: int, world: int) -> list:
    count = world if call in ("scatter", "all_to_all") else 1
    return [batch(50 * rank + i, 2).mul_(0.01).requires_grad_() for i in range(count)]


def gradients_once_and_twice() -> None:
    rank, world = me()
    for call in ("all_gather", "gather", "broadcast", "scatter", "all_to_all"):
        several, again = call in ("scatter", "all_to_all"), call not in ("broadcast", "scatter")
        every = [leaves(call, r, world) for r in range(world)]
        results = one_process(call, [xs if several else xs[0] for xs in every], world)
        loss = sum(loss_of(result, r) for r, result in enumerate(results))
        expected = twice(loss, [x for xs in every for x in xs], again)
        own = leaves(call, rank, world)
        found = twice(loss_of(on_ranks(call, own if several else own[0], rank), rank), own, again)
        at = sum(len(xs) for xs in every[:rank])
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs[at : at + len(own)])


def twice(loss: Tensor, leaves: list, again: bool) -> list[list[Tensor]]:
    """The gradients of a loss and, if again, those of the sum of their squares."""
    found, create = [], again
    for _ in range(1 + again):
        loss.backward(create_graph=create)
        grads = [torch.zeros_like(plain(x)) if x.grad is None else plain(x.grad) for x in leaves]
        found.append([g.detach().clone() for g in grads])
        loss, create = sum(g.square().sum() for g in grads), False
        for x in leaves:
            x.grad = None
    return found


def plain(t: Tensor) -> Tensor:
    return t.values() if isinstance(t, tl.LoDTensor) else t


def gradients_that_only_some_need() -> None:
    rank, world = me()
    own = batch(rank, sequences=3).requires_grad_(rank == world - 1)
    result = D.all_gather(own)
    assert result.requires_grad
    (result.values() * (rank + 1)).sum().backward()
    assert (own.grad is None) == (rank < world - 1)
    if own.grad is not None:
        torch.testing.assert_close(plain(own.grad), torch.full_like(plain(own.grad), world * (world + 1) / 2))
    with torch.no_grad():
        assert not D.all_gather(own).requires_grad


# -- errors


def failing(call) -> str:
    try:
        found = call()
    except Exception as error:
        assert isinstance(error, tl.LoDError), error
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"no error: {found}")


def errors_are_the_same_everywhere() -> None:
    rank, world = me()
    x, last = batch(rank, sequences=3), rank == world - 1
    deep, plain_rows, freed = batch(rank, 3, sequences=3), x.values(), batch(rank, sequences=3)
    freed.values().untyped_storage().resize_(0)
    lost = x.mean(0)
    rows = torch.ones(2)
    end = f"on rank {world - 1}"
    cases = [
        (
            lambda: D.all_gather(x.float() if last else x),
            f"rows of the same dtype on every rank, got float64 on rank 0 and float32 {end}",
        ),
        (
            lambda: D.all_gather(deep if last else x),
            f"rows of the same number of levels on every rank, got 2 on rank 0 and 3 {end}",
        ),
        (
            lambda: D.all_gather(plain_rows if last else x),
            f"the same number of levels on every rank, got 2 on rank 0 and 0 {end}",
        ),
        (
            lambda: D.all_gather(x[..., None] if last else x),
            f"the same shape of rows on every rank, got [3] on rank 0 and [3, 1] {end}",
        ),
        (
            lambda: D.all_gather(None if last else x),
            f"expected x as a LoDTensor or a plain tensor with rows, got NoneType, {end}",
        ),
        (lambda: D.all_gather(freed if last else x), "expected tensors with memory behind them"),
        (
            lambda: D.all_gather(lost if last else x),
            "got rows that lost their structure in mean; to pool sequences: tl.sequence_pool, and tl.sequence_expand_as lays "
            f"the result over the rows; tl.map_sequences runs code for padded batches, {end}",
        ),
        (
            lambda: D.all_gather(torch.tensor(3.0)),
            "expected x with rows, at least 1 dimension, got a scalar; see x[None], on rank 0",
        ),
        (lambda: D.all_gather(plain_rows.to_sparse()), "expected x as a dense tensor with data"),
        (lambda: D.all_gather(plain_rows.to("meta")), "expected x as a dense tensor with data"),
        (
            lambda: D.gather(x, dst=rank),
            "expected the same call on every rank, got gather{'dst': 0} on rank 0 and gather{'dst': 1} on rank 1",
        ),
        (
            lambda: D.gather(x, dst=world),
            f"expected dst among the ranks {list(range(world))} of the group, got {world}, on rank 0",
        ),
        (lambda: D.gather(x, dst=True), "expected dst as a rank, got True, on rank 0"),
        (lambda: D.broadcast(x), "expected x None on ranks other than src 0, got LoDTensor, on rank 1"),
        (lambda: D.broadcast(), "expected x as a LoDTensor or a plain tensor with rows, got NoneType, on rank 0"),
        (lambda: D.scatter([x] if rank == 0 else None), f"expected {world} parts, one per rank, got 1, on rank 0"),
        (
            lambda: D.scatter([x, deep, x, x][:world] if rank == 0 else None),
            "parts of one number of levels, got 2 at index 0 and 3 at index 1",
        ),
        (lambda: D.scatter([x] * world), "expected parts None on ranks other than src 0, got list, on rank 1"),
        (
            lambda: D.all_to_all(x),
            f"expected parts as a list of {world} LoDTensors or tensors, got LoDTensor, on rank 0",
        ),
        (lambda: D.all_to_all([x] * (world - last)), f"expected {world} parts, one per rank, got {world - 1}, {end}"),
        (lambda: D.all_to_all([x, None, x, x][:world]), "expected parts[1] as a LoDTensor or a plain tensor"),
        (
            lambda: no_grad_on(last, lambda: D.all_gather(batch(3).requires_grad_())),
            f"recorded, or not, on every rank, got True on rank 0 and False {end}",
        ),
        (
            lambda: D.global_token_mean(rows, total=rank + 1),
            "expected the same total, or none, on every rank, got 1.0 on rank 0 and 2.0 on rank 1",
        ),
        (lambda: D.global_token_mean(rows, total=0), "expected total as a number above 0, got 0, on rank 0"),
        (
            lambda: D.global_token_mean(rows.long()),
            "expected loss_rows of a floating dtype, got torch.int64; see loss_rows.float(), on rank 0",
        ),
        (lambda: D.global_token_mean(rows[None]), "expected loss_rows with one element per row, (rows,), got (1, 2)"),
        (
            lambda: D.global_token_mean(3.0 if last else rows),
            f"expected loss_rows as a LoDTensor or a plain tensor, got float, {end}",
        ),
        (lambda: D.global_token_mean(rows, mask=rows), "expected mask as a tensor of bool, got a torch.float32 Tensor"),
        (lambda: D.global_token_mean(rows, weight=rows[:1]), "expected weight as a plain tensor of shape (2,)"),
        (lambda: D.global_token_mean(rows, weight=rows.clone().requires_grad_()), "expected weight without gradient"),
        (lambda: D.global_token_count(-1 if last else 2), f"expected tokens in [0, 2**63), got -1, {end}"),
        (lambda: D.global_token_count(["a"]), "expected tokens as a number, a LoDTensor, or a list of them, got 'a'"),
    ]
    said = []
    for call, expected in cases:
        said.append(failing(call))
        assert expected in said[-1], (said[-1], expected)
    others: list = [None] * world
    dist.all_gather_object(others, said)
    for mine, *theirs in zip(said, *others, strict=True):
        assert set(theirs) == {mine}, (mine, theirs)


def no_grad_on(this: bool, call):
    with torch.no_grad() if this else contextlib.nullcontext():
        return call()


def other_calls_and_other_orders() -> None:
    rank, world = me()
    x = batch(rank, sequences=2)
    said = failing((lambda: D.gather(x)) if rank == 1 else (lambda: D.all_gather(x)))
    assert "expected the same call on every rank, got all_gather on rank 0 and gather{'dst': 0} on rank 1" in said
    said = failing((lambda: D.global_token_count(1)) if rank == 1 else (lambda: D.all_gather(x)))
    assert "got all_gather on rank 0 and global_token_count on rank 1" in said
    a, b = (f(x.detach().requires_grad_()) for f in (D.all_gather, lambda x: D.broadcast(x if rank == 0 else None)))
    said = failing(lambda: (b if rank == 1 else a).sum().backward())
    assert said.startswith("LoDRuntimeError: backward of ") and (
        "expected the same call on every rank, got backward of all_gather on rank 0 and backward of broadcast on rank 1"
        in said
    )
    same(D.all_gather(x), tl.cat([batch(r, sequences=2) for r in range(world)]))  # all are still in step


# -- lost ranks


def ends(how: signal.Signals) -> None:
    """This process: some of its threads go on for a moment."""
    os.kill(os.getpid(), how)
    time.sleep(600)


def a_rank_is_killed() -> None:
    rank, _ = me()
    x = batch(rank, sequences=2)
    D.all_gather(x)
    if rank == 1:
        ends(signal.SIGKILL)
    said = failing(lambda: D.all_gather(x))
    assert said.startswith(
        "LoDRuntimeError: all_gather: expected an answer of every rank, got none of rank 1, whose connection is closed: "
        "ended or killed (torch says: "
    ), said


def a_rank_is_killed_in_training() -> None:
    rank, _ = me()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 300))
    x = batch(rank, sequences=4).float()
    for step in range(3):
        if rank == 1 and step == 1:
            ends(signal.SIGKILL)
        try:
            with D.watch():
                model(x).sum().backward()
        except tl.LoDError as error:
            assert step == 1 and "watch: expected an answer of every rank, got none of rank 1, whose" in str(error), (
                error
            )
            return
    raise AssertionError("no error")


def a_rank_is_silent() -> None:
    rank, _ = me()
    if rank == 1:
        ends(signal.SIGSTOP)
    said = failing(lambda: D.global_token_count(1))
    assert "got none of rank 1, which also gave no answer in 5 s after that (torch says: " in said, said


def other_errors_pass_a_watch() -> None:
    for kind in (ValueError, RuntimeError, tl.LoDError):
        try:
            with D.watch():
                raise kind("3 and 4 do not fit")
        except kind as error:
            assert str(error) == "3 and 4 do not fit"


# -- what is run


def plan():
    """Numbers of processes, what they check, and how."""
    checks = [rows_and_structure, empty_ranks_and_many_sequences, strides_names_and_conjugates, groups]
    checks += [losses_that_were_ignored, gradients_once_and_twice, gradients_that_only_some_need]
    checks += [errors_are_the_same_everywhere, other_calls_and_other_orders, other_errors_pass_a_watch]
    checks += [samplers_know_their_rank, exact_mean_of_ddp, exact_mean_of_fsdp, accumulation, ddp_hooks]
    yield 2, [*checks, a_rank_is_killed], {"lost": [1]}
    yield 4, [*checks, a_rank_is_killed], {"lost": [1]}
    yield 4, [a_rank_is_killed_in_training], {"lost": [1]}
    yield 2, [a_rank_is_silent], {"lost": [1], "timeout": timedelta(seconds=5)}
    yield 2, [programs_want_torchrun, the_example_goes_on_in_the_middle_of_an_epoch, the_demo], {"programs": True}
