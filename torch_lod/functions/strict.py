# SPDX-License-Identifier: Apache-2.0
"""`strict` and `explain`: where in a model that was written for plain tensors rows leave their structure.

Both are a mode of torch.overrides, which sees every torch function that the user's code calls; outside of it nothing is
slower. What operators of ours do inside is no concern of the user's, and neither is what torch does inside its functions.
"""

import contextlib
import linecache
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils.weak import WeakTensorKeyDictionary

from .. import frames
from ..dynamo import compiling
from ..errors import LoDError, LoDRuntimeError, LoDTypeError, LoDValueError, named, shown
from ..tensor import attributes
from ..tensor.derived import DerivedTensor
from ..tensor.provenance import Provenance, provenance_of, provenances_of
from ..tensor.table import NAMED, ROWS, UNKNOWN, UNSEEN, name_of
from .broadcasting import repeated, undeclared
from .placement import is_parameter, passed
from .refusals import STACKS

#: What only passes a user's call on: methods of torch's that are functions here, and modules of torch.nn.
_PASSING = (
    attributes.__file__,
    frames.HOUSE + "patches.py",
    *(f"{frames.HOUSE}functions{os.sep}{name}.py" for name in ("modules", "norms", "packed", "recurrences")),
)
_SHAPE: Callable = Tensor.shape.__get__  # type: ignore[attr-defined]
#: Files of the frames between a method and its caller.
_METHODS = (torch._tensor.__file__, torch.overrides.__file__)
_ADVICE = "sequence by sequence: x.sequences(), padded: x.to_padded()"
_COUNTS = (
    "x.lengths() has the length of every sequence, x.position_ids() the positions in them, and x.lod.rows the number of "
    "all rows"
)
_DECLARE = "x.with_values(t) declares that it has a row for each row of x; for positions x.with_values(table[x.position_ids()])"
#: Torch asks no subclass what these make of their data; and what to call instead.
_INSTEAD_OF = {"tensor": "x.detach().clone()", "new_tensor": "x.detach().clone(), x.to(dtype)", "new": "x.to(dtype)"}
_COPIES = {name: f"{instead} keeps them; if it is meant, pass x.values()" for name, instead in _INSTEAD_OF.items()}
#: The same in every row, whatever the rows.
_FILLS = frozenset("zeros ones full new_zeros new_ones new_full zeros_like ones_like full_like".split())
_NUMBERS = (
    "a number for every sequence: tl.sequence_pool, and tl.sequence_expand_as broadcasts it over the rows; one of the whole "
    "batch: x.values()"
)


class Departure(NamedTuple):
    """A place where rows left their structure."""

    file: str
    line: int
    #: The function that was called, or the class of the exception that ended the run.
    call: str
    what: str
    #: What to write instead.
    advice: str

    @property
    def source(self) -> str:
        """The line of the file."""
        return linecache.getline(self.file, self.line).strip()


class Report:
    """What `explain` found: departures in the order in which they happened; false if there is none. `result` is what
    the function returned, `error` the exception that ended it."""

    def __init__(self) -> None:
        self._times: dict[Departure, int] = {}
        self.result: Any = None
        self.error: Exception | None = None

    def note(self, found: Departure) -> None:
        self._times[found] = self._times.get(found, 0) + 1

    def __iter__(self) -> Iterator[Departure]:
        return iter(self._times)

    def __len__(self) -> int:
        return len(self._times)

    def __getitem__(self, index: int) -> Departure:
        return list(self._times)[index]

    def __str__(self) -> str:
        if not self._times:
            return "nothing left the structure"
        lines = []
        for found, times in self._times.items():
            file = os.path.relpath(found.file) if os.path.isfile(found.file) else found.file
            lines.append(f"{file}:{found.line}: {found.source}")
            lines.append(f"    {found.call}: {found.what}{f' ({times} times)' if times > 1 else ''}")
            lines += [f"    write: {found.advice}"] if found.advice else []
        return "\n".join(lines)

    __repr__ = __str__


class _Count(int):
    """The number of all rows, which is not the length of a sequence, and what is computed from it."""


class _Ratio(float):
    """A number computed from the number of all rows."""


def _kept(base: type, name: str) -> Callable:
    def kept(number, *other):
        result = getattr(base, name)(number, *other)
        if result is NotImplemented and other and isinstance(other[0], float):  # of an int
            result = getattr(float, name)(float(number), *other)
        return _Count(result) if type(result) is int else _Ratio(result) if type(result) is float else result

    return kept


for _class, _base in ((_Count, int), (_Ratio, float)):
    for _name in "add sub mul truediv floordiv mod pow radd rsub rmul rtruediv rfloordiv rmod rpow neg".split():
        setattr(_class, f"__{_name}__", _kept(_base, f"__{_name}__"))


class _Switch(threading.local):
    on: "_Following | None" = None


_switch = _Switch()


def _flat(values) -> Iterator:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from value
        else:
            yield value


def _plainly(value):
    """Without the memory of where a number came from, for functions that ask for an int."""
    if isinstance(value, (tuple, list)) and any(isinstance(v, (_Count, _Ratio)) for v in value):
        return tuple(map(_plainly, value))
    return int(value) if type(value) is _Count else float(value) if type(value) is _Ratio else value


class _Seen(NamedTuple):
    """A call, as `strict` and `explain` look at it."""

    frame: FrameType
    call: str
    kind: str | None
    given: list
    origins: list[Provenance]
    #: those of rows whose structure was not lost
    rows: list[Provenance]
    written: list
    #: the function that made an argument of all rows
    origin: str | None


class _Following(TorchFunctionMode):
    """Raises at every departure, or tells a report of it. Those around it see that ours called: they do not look."""

    def __init__(self, on: bool = True, report: Report | None = None):
        super().__init__()
        self.on, self.report = on, report
        #: Tensors made of all rows that are no rows, and the function that made them.
        self.numbers = WeakTensorKeyDictionary()
        #: Plain tensors that are the same in every row, or that code of ours made, as position ids, and what was made of them.
        self.declared = WeakTensorKeyDictionary()
        #: The instruction of the user's that called last: list(x) iterates and asks for len(x).
        self.last: tuple = ()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if compiling():
            # Dynamo knows neither frames nor weak references
            said = (
                "expected eager code, got a function under torch.compile; see torch.compiler.set_stance('force_eager')"
            )
            raise named(LoDRuntimeError(said), "strict")
        if not self.on:
            return func(*args, **kwargs)
        frame = frames.asking(frames.caller(), _PASSING)
        if _within_us(frame):
            result = func(*args, **kwargs)
            if type(result) is Tensor:
                self.declared[result] = True
            return result
        seen = self._seen(frame, func, args, kwargs)
        if any(type(v) in (_Count, _Ratio) for v in seen.given):
            args, kwargs = tuple(map(_plainly, args)), {name: _plainly(v) for name, v in kwargs.items()}
        plain = [t for t in _flat(seen.written) if type(t) is Tensor]
        passed.shape = None
        result = func(*args, **kwargs)
        if self.report is None:
            _warn_of_chance(seen, plain)
        if seen.call in _FILLS and type(result) is Tensor:
            self.declared[result] = True
        if seen.call in _COPIES and seen.origins and type(result) is Tensor:
            self._tell(seen, "expected a function that keeps rows, got one whose result is plain", _COPIES[seen.call])
        if seen.kind == "plain" and func is not torch.linspace:
            return self._asked(seen, func, args, kwargs, result)
        self.last = _instruction(frames.user(frame))
        results = [*_flat((result,))]
        self._tell_of(seen, func, args, kwargs, results)
        self._remember(seen, func, args, results)
        return result

    def _seen(self, frame, func, args, kwargs) -> "_Seen":
        row = ROWS.get(func) or UNSEEN.get(func, UNKNOWN)
        given, call, kind = [*_flat((*args, *kwargs.values()))], name_of(func), row.kind
        origins = provenances_of(args, kwargs)
        written = [kwargs["out"]] if kwargs.get("out") is not None else [args[0]] if row.writes else []
        origin = self._origin(call, kind, given[1:] if row.overwrites else given, bool(origins))
        return _Seen(frame, call, kind, given, origins, [p for p in origins if not _gone(p)], written, origin)

    def _asked(self, seen: "_Seen", func, args, kwargs, result):
        """The result of a function that asks for a size or a property."""
        frame = frames.behind(seen.frame, _METHODS)
        if not seen.rows or seen.rows[0].dim is None or frame is None or frames.is_torchs(frame):
            return result
        if func is Tensor.__len__ and self.last == _instruction(frame):
            return result
        return self._sizes(seen, func, args, kwargs, result)

    def _tell_of(self, seen: "_Seen", func, args, kwargs, results: list) -> None:
        """Tells of a call in which rows leave their structure, or meet what is not known to belong to them."""
        if not seen.rows:
            return
        has_rows = any(provenance_of(t) is not None for t in results if isinstance(t, Tensor))
        if seen.origin and has_rows:
            what = (
                f"expected what belongs to a sequence beside rows, got what {seen.origin} made of all rows of the batch"
            )
            self._tell(seen, what, _COUNTS if seen.origin in ("shape", "arange", "linspace") else _NUMBERS)
        elif (t := self._undeclared(seen.call, seen.kind, seen.given)) is not None:
            what = (
                f"expected rows, or what is the same for all of them, beside rows, got a plain tensor of shape {tuple(t.shape)} with "
                f"an entry for each of {seen.rows[0].lod.rows} rows, which may count on from one sequence to the next"
            )
            self._tell(seen, what, _DECLARE)
        if has_rows:
            for t, dim, _, levels in repeated(func, args, kwargs):
                weights = is_parameter(t)
                if self.report is not None if weights else t.dim() > 1:
                    self._tell(seen, *_entries(t, dim, levels, weights))
        if any(map(_lost, results)):
            self._tell(seen, *_loss(seen.call, seen.given, results))

    def _remember(self, seen: "_Seen", func, args, results: list) -> None:
        """Which results were made of all rows, and which are the same in every row."""
        if not seen.origins and not seen.origin:
            if seen.call in _FILLS or any(type(v) is Tensor and v in self.declared for v in seen.given):
                self.declared.update({t: True for t in results if type(t) is Tensor})
            if ROWS.get(func, UNKNOWN).overwrites:
                self.numbers.pop(args[0], None)
            return
        written = [*_flat(seen.written)]
        for t in (*written, *results):
            if type(t) is Tensor and (seen.origin or t.dim() == 0):
                if any(t is w for w in written) or not any(t is value for value in seen.given):
                    self.numbers[t] = seen.origin or seen.call

    def _origin(self, call: str, kind, given: list, of_rows: bool) -> str | None:
        """Which function made an argument of all rows; a count only where it is interpreted as a number or cuts a plain tensor, not
        for a part of a shape."""
        for value in given:
            if type(value) is Tensor and value in self.numbers:
                return self.numbers[value]
            if type(value) is slice and not of_rows and type(value.stop) is _Count:
                return "shape"
        if not any(type(value) in (_Count, _Ratio) for value in given):
            return None
        if call == "narrow" and not of_rows:
            return "shape"
        return call if call in ("arange", "linspace") else "shape" if kind == "join" else None

    def _undeclared(self, call: str, kind, given: list) -> Tensor | None:
        """A plain tensor with an entry for each of the rows that it meets. Targets of losses are that by their meaning."""
        beside = kind == "join" or NAMED.get(call, UNKNOWN).beside
        if not beside or "loss" in call or "cross_entropy" in call or call == "kl_div":
            return None
        beside = [t for t in given if isinstance(t, Tensor)]
        for x in beside:
            origin = provenance_of(x)
            if origin is None or origin.dim is None or x.shape[origin.dim] < 2:
                continue
            for t in beside:
                at = origin.dim - x.dim()
                if provenance_of(t) is None and t.dim() >= -at and t.shape[at] == x.shape[origin.dim]:
                    if t not in self.declared and not (t.stride(at) == 0 and t.layout == torch.strided):
                        return t
        return None

    def _sizes(self, seen: "_Seen", func, args, kwargs, result):
        dim = seen.rows[0].dim
        if func is Tensor.__len__ and dim == 0:
            what = f"expected x.lod.rows, got len(x), {result} rows of all sequences, where models mean a length or a batch"
            self._tell(
                seen._replace(call="len"), what, f"{_COUNTS}; x.shape[0] is taken as a part of a shape", LoDTypeError
            )
        if func == _SHAPE or (func is Tensor.size and type(result) is torch.Size):
            return torch.Size([_Count(n) if d == dim else n for d, n in enumerate(result)])
        if func is Tensor.size:
            asked = args[1] if len(args) > 1 else kwargs.get("dim")
            return _Count(result) if asked in (dim, dim - args[0].dim()) else result
        return result

    def _tell(self, seen: "_Seen", what: str, advice: str, error: type[LoDError] = LoDValueError) -> None:
        frame = frames.user(seen.frame)
        found = Departure(frame.f_code.co_filename, frame.f_lineno, seen.call, what, advice)
        if self.report is None:
            raise named(error(f"{what}; {advice}"), seen.call)
        self.report.note(found)


def _warn_of_chance(seen: "_Seen", plain: list[Tensor]) -> None:
    """Warns of what is right by what is only seen on a CPU, in eager code and without gradient. `plain`: what was a plain tensor
    before the call wrote into it."""
    if not seen.rows:
        return
    if any(provenance_of(t) is not None for t in plain):
        said = (
            "a plain tensor that is written into becomes rows, since no other tensor shares its memory; write the function "
            "that returns a new one, without the underscore"
        )
    elif passed.shape is not None:
        said = (
            f"a plain tensor of shape {passed.shape} lies along the rows, and passes since its elements are the same at each of "
            "them: on a GPU, in a graph, with a gradient or with other elements it is refused; make it of rows "
            "(torch.ones_like, zeros_like, full_like of x), or by expand"
        )
    else:
        return
    frame = frames.user(seen.frame)
    warnings.warn_explicit(f"{seen.call}: {said}", UserWarning, frame.f_code.co_filename, frame.f_lineno)


def _gone(origin) -> bool:
    """Whether the structure was lost; a single row may still be put beside others."""
    return origin.dim is None and (origin.part is None or origin.part[1] - origin.part[0] != 1)


def _lost(value) -> bool:
    return isinstance(value, DerivedTensor) and _gone(value._provenance)


def _loss(call: str, given: list, found: list) -> tuple[str, str]:
    before = next(tuple(t.shape) for t in given if isinstance(t, Tensor) and hasattr(t, "lod"))
    after = next(tuple(t.shape) for t in found if _lost(t))
    what = f"expected a result that keeps the structure of rows {before}, got one of shape {after} that lost it"
    instead = NAMED.get(call, UNKNOWN).instead or _ADVICE
    return what, f"{instead}; {STACKS}; if all rows together are meant, x.values()"


def _entries(t: Tensor, dim: int, levels: list[int], weights: bool) -> tuple[str, str]:
    what, advice = undeclared(t, dim, levels)
    if weights:
        advice = f"nothing if it is a weight, as of heads; else {advice.partition('; ')[0]}"
    return what.replace("a plain tensor", "a parameter") if weights else what, advice


def _within_us(frame: FrameType) -> bool:
    """Whether code of ours called the function, itself or through torch's."""
    behind = frames.behind(frame, (frames.TORCH, *_PASSING))
    return behind is not None and frames.is_ours(behind) and behind.f_code is not explain.__code__


def _instruction(frame: Any) -> tuple:
    return id(frame), frame.f_lasti


class strict(contextlib.ContextDecorator):
    """A context, or a decorator, in which what leaves the structure of the rows raises where it leaves it.

    It is a mode to port a model in. Four things raise a LoDError, which says what to write:

    - a torch function that makes of rows what is neither a LoDTensor nor rows at another dim nor a part of the rows (slices
      that torch.cat puts together again);
    - a number or tensor that was made of all rows, or that such a one was written into (total += x.sum()), where rows are
      made of it: x - x.mean(), x / x.shape[0], x + table[torch.arange(x.shape[0])] and x[None] + table[:, :x[None].shape[1]];
    - a plain tensor with an entry for each row that meets them, x[:, None] + table[:x.size(0)], whether it counts on from one
      sequence to the next or not: x.with_values(t) declares that it belongs to the rows; targets of losses do, and so does what
      is made of x.position_ids();
    - a plain tensor of which every entry of a dim meets all rows, where a level has as many sequences (x[:, None] * c): a row for
      each sequence is `tl.per_sequence(c)`. Of parameters only `explain` tells;
    - len(x), which Python does not let remember what it counts.

    What is asked for by name stays: x.values(), x.numpy(), x.tolist(), x.to_padded(), operators and modules of torch_lod,
    predicates, and losses, which are numbers and meet no rows.

    It warns of what is right by chance: a plain tensor along the rows of another dim than 0 that passes since its elements are
    the same, x[None] * torch.ones(1, n, 1), and a plain tensor that becomes rows since no other shares its memory, t.mul_(x).

    Not seen: numbers that Python took out of a tensor or a shape (x.mean().item(), 1.0 / x.shape[0], math.sqrt, x.numel()), and
    tensors made outside of the context. It is for eager code: with torch.compiler.set_stance("force_eager") compiled functions
    run eagerly inside; without it they raise, or Dynamo gives up on them, also for later calls.

    Holds for the current thread. The switch without a context is `strict.switch(True)`, then `strict.switch(False)`.

    Args:
        mode: False lifts a surrounding `strict`, or the switch.
    """

    def __init__(self, mode: bool = True):
        self.mode = _a_bool(mode)
        self._entered: list[_Following] = []

    def __enter__(self) -> "strict":
        self._entered.append(_Following(self.mode))
        self._entered[-1].__enter__()
        return self

    def __exit__(self, *error) -> None:
        self._entered.pop().__exit__(*error)

    @staticmethod
    def switch(mode: bool) -> None:
        """Switches it on or off for the current thread; contexts inside go first."""
        before = _switch.on
        if _a_bool(mode) == (before is not None):
            return
        above = [_pop_mode() for _ in _get_current_function_mode_stack()]
        if mode:
            _switch.on = _Following()
            device = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)  # which wants to be lowest
            above.insert(len(above) - (device is not None and above[-1:] == [device]), _switch.on)
        else:
            above = [other for other in above if other is not before]
            _switch.on = None
        for other in reversed(above):
            _push_mode(other)


def _a_bool(mode) -> bool:
    if not isinstance(mode, bool):
        raise named(LoDTypeError(f"expected mode as a bool, got {shown(mode)}"), "strict")
    return mode


_MISFITS = re.compile("unpack|[Dd]imension|dims|dim ")


def explain(function: Callable, *args, **kwargs) -> Report:
    """Calls a function or module, and reports where rows left their structure, line by line, and what to write.

    It looks as `strict` does, but nothing stops: the call goes on, and an exception that ends it is the last entry. A line of
    the user's file is the innermost one that is neither torch's nor torch_lod's.

        print(tl.explain(model, x))

    Args:
        function: is called with the other arguments; TypeError if it cannot be called.

    Returns:
        a report: iterate over its entries, which have `file`, `line`, `call`, `what` and `advice`; print it; `result` and
        `error` are how the call ended. It is false where nothing left the structure.

    For eager code, as `strict`.
    """
    if not callable(function):
        raise named(LoDTypeError(f"expected function as a callable, got {shown(function)}"), "explain")
    report = Report()
    with _Following(report=report):
        try:
            report.result = function(*args, **kwargs)
        except Exception as error:
            report.error = error
            report.note(_ending(error))
    return report


def _ending(error: Exception) -> Departure:
    """The entry of an exception."""
    place = None
    for trace in frames.users(error.__traceback__):
        place = trace.tb_frame.f_code.co_filename, trace.tb_lineno
    if place is None:  # the module is torch's own: the line that asked for the report
        frame = frames.user(frames.caller())
        place = frame.f_code.co_filename, frame.f_lineno
    if isinstance(error, LoDError):
        said = str(error).removeprefix(f"{error.call}: ")
        what, _, advice = said.partition("; ")
        return Departure(*place, error.call or type(error).__name__, what, advice)
    meaning = getattr(error, "_explained", "")
    what, advice = str(error).removesuffix(f"\n{meaning}"), meaning.rpartition("Probably meant: ")[2]
    if not meaning and _MISFITS.search(str(error)) and "LoDTensor" not in str(error):
        advice = (
            f"a LoDTensor has the shape (rows, *element), without a dim for the batch: rows, width = x.shape; {_ADVICE}"
        )
    return Departure(*place, type(error).__name__, what, advice)
