# SPDX-License-Identifier: Apache-2.0
"""Modules of LoDTensors for callers that pass plain tensors: torch.export, AOTInductor, servers."""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..dynamo import compiling
from ..errors import LoDTypeError, LoDValueError, boundary, public, shown
from ..ops.exported import in_torch
from ..structure.lod import LoD
from ..structure.validate import traverse
from ..tensor.derived import DerivedTensor
from ..tensor.lod_tensor import LoDTensor

__all__ = ["Plain"]


class Plain(torch.nn.Module):
    """A module on plain tensors: a LoDTensor goes in as its values and the offsets of its levels, outermost first, and
    comes out as a tuple of the same.

        plain = tl.nn.Plain(model, 2)                  # model(x), with x of two levels
        program = plain.export(x)                      # torch.export.ExportedProgram; all sizes may change
        program.module()(*plain.tensors(x))            # or values, offsets, offsets from elsewhere

    Args:
        module: called with LoDTensors and plain tensors, by position.
        levels: for each argument the number of its levels, or their names; 0 for a plain tensor.
    """

    @public
    def __init__(self, module: torch.nn.Module, *levels):
        super().__init__()
        self.module = module
        for given in levels:
            if not (type(given) is int and given >= 0) and not isinstance(given, (list, tuple)):
                raise LoDTypeError(f"expected levels as a number or as names, got {shown(given)}")
        self.levels = [given if type(given) is int else tuple(given) for given in levels]

    @boundary("Plain")
    def tensors(self, *args: Tensor) -> tuple[Tensor, ...]:
        """Arguments of the wrapped module as arguments of this one. ValueError if one has another number of levels."""
        if len(args) != len(self.levels):
            raise LoDValueError(f"expected {len(self.levels)} arguments, got {len(args)}")
        for i, (x, levels) in enumerate(zip(args, self.levels, strict=True)):
            depth = x.lod_level if isinstance(x, LoDTensor) else 0
            if depth != _depth(levels):
                raise LoDValueError(f"expected argument {i} with {_depth(levels)} levels, got {depth}")
        return tuple(t for x in args for t in _tensors(x))

    def forward(self, *tensors: Tensor):
        """
        Args:
            tensors: for each argument of the module its values and the offsets of its levels, outermost first, as
                `plain.tensors(x)` gives them.

        Returns:
            what the module returns, each LoDTensor in it as a tuple of values and offsets.
        """
        result = self.module(*self._arguments(tensors))  # outside `public`: its errors stay as they are
        plain = functools.partial(pytree.tree_map, lambda t: _tensors(t) if isinstance(t, LoDTensor) else t)
        return traverse("the result", plain, result)

    @boundary("Plain")
    def _arguments(self, tensors: tuple[Tensor, ...]) -> list[Tensor]:
        wanted = sum(1 + _depth(levels) for levels in self.levels)
        if len(tensors) != wanted:
            raise LoDValueError(f"expected {wanted} tensors, values and offsets, got {len(tensors)}")
        args, at = [], 0
        for levels in self.levels:
            values, offsets = tensors[at], tensors[at + 1 : at + 1 + _depth(levels)]
            at += 1 + len(offsets)
            names = None if type(levels) is int else levels
            if not offsets:
                args.append(values)
            elif compiling():  # the offsets are inputs of the graph already: no copy
                args.append(LoDTensor(values, LoD.checked("offsets", offsets, names, values.shape[0])))
            else:
                args.append(LoDTensor(values, LoD(offsets, level_names=names)))
        return args

    @boundary("Plain")
    def export(self, *args: Tensor, **options) -> Any:
        """torch.export.export of this module; options as there. All sizes of LoDTensors are dynamic; of plain tensors,
        those that the module does not fix.

        A constant of the module may be a plain tensor, of which `forward` makes a LoDTensor by lengths or offsets. A LoD
        that the module holds can be exported, but torch.export.load does not load the program.

        Args:
            args: example arguments of the module, with at least 2 rows and 2 sequences, since torch.export treats sizes
                0 and 1 as constants.

        Raises:
            ValueError: for a module that computes with a LoDTensor that it holds, since torch.export makes constants plain.
        """
        tensors = self.tensors(*args)
        dynamic: list = []
        for x, levels in zip(args, self.levels, strict=True):
            if _depth(levels):
                dynamic += [{0: torch.export.Dim.DYNAMIC}] * (1 + _depth(levels))
            else:
                dynamic.append(dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO))
        # strict: torch.export knows a LoDTensor through Dynamo only
        shapes = {"tensors": tuple(dynamic)}
        program = torch.export.export(self, tensors, dynamic_shapes=shapes, strict=True, **options)
        held = {**program.state_dict, **program.constants}
        for name in (spec.target for spec in program.graph_signature.input_specs):
            if isinstance(held.get(name), (LoDTensor, DerivedTensor)):
                raise LoDValueError(
                    f"expected constants that are plain tensors, got a {type(held[name]).__name__} as {name}: torch.export "
                    "drops its structure; hold its values() and make it in forward, as tl.from_lengths(values, [[2, 3]])"
                )
        return program

    @boundary("Plain")
    def to_onnx(self, file: Any, *args: Tensor, **options) -> Any:
        """torch.onnx.export of the exported program, in operators of ONNX alone; options as there. It needs onnx and
        onnxscript. Pools, softmax, convolutions and what moves rows can be said in ONNX; recurrences and attention cannot.

        The inputs are those of `plain.tensors(x)`, in their order, with any lengths. Their offsets are not checked there.

        Args:
            file: where to write the model; None only returns it.
            args: example arguments, as for `export`.

        Returns:
            the torch.onnx.ONNXProgram.

        Raises:
            TypeError: for a module with an operator that ONNX cannot say.
        """
        return torch.onnx.export(in_torch(self.export(*args)), (), file, dynamo=True, **options)


def _depth(levels) -> int:
    return levels if type(levels) is int else len(levels)


def _tensors(x) -> tuple[Tensor, ...]:
    return (x.values(), *x.lod.levels) if isinstance(x, LoDTensor) else (x,)
