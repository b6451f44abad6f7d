# SPDX-License-Identifier: Apache-2.0
"""What torch.compile needs: our class registered, sizes marked dynamic, and checks as assertions of the graph.

Nothing here imports torch._dynamo, which takes longer than torch itself: it is imported where a program compiles.
"""

import functools
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C._dynamo import eval_frame
from torch.fx.experimental.sym_node import DynamicInt

from .errors import own_code

F = TypeVar("F", bound=Callable)

#: Whether Dynamo traces the caller. (torch.func transforms and fake tensors run the Python code, as eager code does.)
compiling = torch.compiler.is_dynamo_compiling

#: Of torch.
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
#: Under this name Dynamo looks for dynamic dimensions. The newer name adds no guard.
_DYNAMIC_DIMS = "_dynamo_propagated_dynamic_indices" if VERSION >= (2, 13) else "_dynamo_weak_dynamic_indices"
_FIRST = frozenset({0})


def outside_of_graphs(function: F, what: str = "", instead: str = "") -> F:
    """Compiled code ends its graph before a call, and calls the function as it is. `what` is how the error of fullgraph=True
    names the call, `instead` what it advises."""
    disabled = torch._disable_dynamo(function)  # imports Dynamo when it is called
    said = f"torch_lod: {what or function.__name__} runs as eager code, outside of graphs{instead and '; ' + instead}"

    def outside(*args, **kwargs):
        if not compiling():
            return function(*args, **kwargs)
        torch._dynamo.graph_break(msg=said)
        return disabled(*args, **kwargs)

    return functools.wraps(function)(own_code(outside, function.__name__))  # type: ignore[return-value]


def constant(function: F) -> F:
    """torch.compiler.assume_constant_result, which would import Dynamo: it calls the function when it traces a call, and
    takes the result for a constant."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def a_node(function: F) -> F:
    """Dynamo does not look into the function: a call is a node of its graph. What comes below it does, where a tensor
    knows its storage offset."""

    @constant
    def admitted() -> None:  # while Dynamo traces, before it sees the function
        torch._dynamo.allow_in_graph(function)

    def call(*args):
        if compiling():
            admitted()
        return function(*args)

    return functools.wraps(function)(own_code(call, function.__name__))  # type: ignore[return-value]


#: What is called before the first LoDTensor is made: torch_lod.patches.
waiting: list[Callable[[], None]] = []


@constant
def before_the_first() -> None:
    """Called by whatever makes LoDTensors of plain tensors. Two threads may both find the calls waiting, so they may be
    called twice."""
    if waiting:
        for call in tuple(waiting):
            call()
        waiting.clear()


def admit(cls: Any, dims: Any = _FIRST) -> None:
    """Makes dim 0 of every tensor of the class dynamic, or the dims that a descriptor gives.

    Dynamo traces __torch_function__ within a graph. Where torch calls it outside of graphs, Dynamo would compile it by
    itself, without a guard on the function that it is given: there it runs as it is.
    """
    setattr(cls, _DYNAMIC_DIMS, dims)
    as_it_is(cls.__torch_function__.__func__.__code__)


def as_it_is(code: CodeType) -> None:
    """Outside of graphs the code, and what it calls, runs without being compiled."""
    strategy = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)
    eval_frame.set_code_exec_strategy(code, strategy)


def symbols(sizes, tensors) -> tuple[int, ...]:
    """The sizes as dynamic integers; marks dim 0 of `tensors` dynamic.

    torch.compile treats an ordinary int as a constant: a guard on its value, and another graph when it changes.
    """
    for t in tensors:
        setattr(t, _DYNAMIC_DIMS, _FIRST)
    return tuple([int.__new__(DynamicInt, n) for n in sizes])


def whole_number(t: Tensor) -> int:
    """The entry of a tensor in host memory, at least 0: in compiled code a symbol."""
    if not compiling():
        return int(t)
    n: Any = t.item()
    torch._check(n >= 0)
    return n


def worded(size: int) -> int:
    """A size in a graph, of which messages can be made: of an attribute itself Dynamo makes no words. An export takes it as it is."""
    return size if torch.compiler.is_exporting() else size + 0


def rows_between(rows: Any, begin: int, end: int) -> Any:
    """`rows[begin:end]` of valid indices. A graph does not know the size of a slice, and gives one of no rows none."""
    return rows[:0] if known(rows.shape[0] == 0) else rows.narrow(0, begin, end - begin)


def failing(wrong: Tensor, said: str) -> list[int]:
    """The index where a check first fails, as a list of one number; an empty list if none fails.

    Compiled code cannot raise an error that depends on data: there the check is an assertion. On a GPU the host would
    have to wait for the answer: a later call raises, also of compiled code, since an assertion would end the process's
    use of the GPU.
    """
    if not wrong.is_cpu:
        call, _, what = said.partition(": ")
        looked_at = wrong.reshape(-1).to(torch.int64)
        torch.ops.torch_lod.watch_structure(looked_at, None, "truths", 0, -1, 0, call, what.removeprefix("expected "))
        return []
    if compiling():
        torch._assert_async(~wrong.any(), said)
        return []
    return wrong.nonzero().flatten()[:1].tolist() if wrong.any() else []


def known(condition) -> bool:
    """Whether a condition on sizes is known to hold; not where a size depends on data."""
    if not compiling():
        return condition
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return guard_or_false(condition)


def holds(condition) -> bool:
    """Whether a condition on sizes holds. Compiled code asserts it where a size depends on data."""
    if not compiling():
        return condition
    from torch.fx.experimental.symbolic_shapes import guard_or_false, guard_or_true

    if guard_or_false(condition):
        return True
    if not guard_or_true(condition):
        return False
    torch._check(condition)
    return True
