# SPDX-License-Identifier: Apache-2.0
"""Multi-head attention and the Transformer's encoder layer: torch.nn's parameters and results, without padding."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import LoDTypeError, LoDValueError, public, shown
from ..sequence.attend import Options, Projections, multi_head_attention
from ..sequence.operator import sequence_operator
from ..structure.validate import a_bool, probability
from ..tensor.lod_tensor import LoDTensor, a_lod_tensor
from .module import Constants, at_least_one, unusual

__all__ = ["MultiheadAttention", "RelativePositionBias", "TransformerEncoderLayer"]


def _no_mask(**masks) -> None:
    for name, mask in masks.items():
        if mask is not None:
            way_out = (
                "nothing is padded" if "padding" in name else "use causal, window, alibi, or bias for a bias per pair"
            )
            raise LoDTypeError(f"expected no {name} with LoDTensors, got {type(mask).__name__}: {way_out}")


class _Option:
    """An attribute of a module that is among its options: checked when it is set, and not again by a call."""

    def __set_name__(self, owner, name: str) -> None:
        self.name = name

    def __get__(self, module, owner=None):
        return getattr(module.options, self.name)

    def __set__(self, module, value) -> None:
        module.options = Options.of(**{**module.options._asdict(), self.name: value})


class MultiheadAttention(Constants):
    """torch.nn.MultiheadAttention for LoDTensors: same parameters, state_dict, initialisation and results; each
    sequence separately, without padding.

    Args:
        embed_dim, num_heads, dropout, bias, kdim, vdim, device, dtype: as torch.nn.MultiheadAttention. `batch_first` is
            accepted and has no meaning: there is neither a batch dim nor a time dim. `add_bias_kv` and `add_zero_attn` must
            be False.
        level: attention runs within the sequences of this level, over all their rows.
        causal, window, alibi, softcap, block_size, block_level: as tl.sequence_attention.
        sink: a learned logit per head, `module.sink`, 0 at first, joins the sum of every softmax, as in GPT-OSS.
    """

    in_proj_weight: Tensor  # either this is None, or the three separate weights are
    in_proj_bias: Tensor | None
    q_proj_weight: Tensor
    k_proj_weight: Tensor
    v_proj_weight: Tensor
    causal, window, softcap, block_size, block_level = (_Option() for _ in range(5))

    @public
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device=None,
        dtype=None,
        *,
        level: int | str = -1,
        causal: bool = False,
        window: int | tuple[int, int] | None = None,
        alibi: Tensor | bool | None = None,
        softcap: float | None = None,
        sink: bool = False,
        block_size: int | None = None,
        block_level: int | str | None = None,
    ):
        super().__init__()
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        at_least_one(embed_dim=embed_dim, num_heads=num_heads, kdim=self.kdim, vdim=self.vdim)
        if embed_dim % num_heads:
            raise LoDValueError(f"expected num_heads that divide embed_dim {embed_dim}, got {num_heads}")
        if add_bias_kv or add_zero_attn:
            raise LoDValueError(
                "expected neither add_bias_kv nor add_zero_attn, got one: keys that belong to no row are not built"
            )
        probability("dropout", dropout)
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.batch_first = float(dropout), batch_first
        self.level = level
        self.options = Options.of(
            causal, window=window, softcap=softcap, block_size=block_size, block_level=block_level
        )
        a_bool("sink", sink)
        self.alibi: Tensor | bool | None
        if not isinstance(alibi, Tensor):
            self.alibi = alibi
        make = {"device": device, "dtype": dtype}
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        sizes = {"q_proj_weight": embed_dim, "k_proj_weight": self.kdim, "v_proj_weight": self.vdim}
        for name, size in sizes.items():
            own = None if self._qkv_same_embed_dim else torch.nn.Parameter(torch.empty(embed_dim, size, **make))
            self.register_parameter(name, own)
        joint = torch.nn.Parameter(torch.empty(3 * embed_dim, embed_dim, **make)) if self._qkv_same_embed_dim else None
        self.register_parameter("in_proj_weight", joint)
        self.register_parameter(
            "in_proj_bias", torch.nn.Parameter(torch.empty(3 * embed_dim, **make)) if bias else None
        )
        self.out_proj = torch.nn.Linear(embed_dim, embed_dim, bias=bias, **make)
        self.register_parameter("sink", torch.nn.Parameter(torch.empty(num_heads, **make)) if sink else None)
        self.bias_k = self.bias_v = None
        self.add_zero_attn = False
        if isinstance(alibi, Tensor):
            self.constant("alibi", alibi, self.out_proj.weight.device)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith("proj_weight"):
                torch.nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias") or name == "sink":
                torch.nn.init.zeros_(parameter)
        self.restore()

    @sequence_operator
    def forward(
        self,
        query: LoDTensor,
        key: LoDTensor | None = None,
        value: LoDTensor | None = None,
        key_padding_mask: None = None,
        need_weights: bool = False,
        attn_mask: None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        bias: Tensor | None = None,
        distance_bias: Tensor | None = None,
        prefix: Tensor | int | None = None,
    ) -> tuple[LoDTensor, LoDTensor | None]:
        """
        Args:
            query: (rows, embed_dim).
            key: (key rows, kdim), with as many sequences as query; query if left out.
            value: (key rows, vdim), with the LoD of key; key if left out.
            key_padding_mask, attn_mask: TypeError unless None.
            need_weights: also return the weights, which take memory for every pair of rows. Unlike torch's, the default
                is False.
            average_attn_weights: return the mean of the weights over the heads.
            is_causal: as the argument `causal` of the module.
            bias: added to the score of every pair of a query and a key, as tl.sequence_attention's.
            distance_bias, prefix: as tl.sequence_attention.

        Returns:
            (rows, embed_dim) with the LoD of query; and None, or the weights: a LoDTensor with one more level, whose
            sequences are the keys of a query.
        """
        _no_mask(key_padding_mask=key_padding_mask, attn_mask=attn_mask)
        key = query if key is None else key
        separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        in_proj = self.in_proj_weight if self._qkv_same_embed_dim else separate
        added = {"bias": bias, "alibi": self.alibi, "sink": self.sink, "distance_bias": distance_bias, "prefix": prefix}
        return multi_head_attention(
            query,
            key,
            key if value is None else value,
            Projections(self.num_heads, in_proj, self.in_proj_bias, self.out_proj.weight, self.out_proj.bias),
            self.level,
            self.options.beside(self.options.causal or is_causal, **added),
            average_attn_weights,
            self.dropout if self.training else 0.0,
            need_weights,
        )

    if TYPE_CHECKING:

        def __call__(
            self,
            query: LoDTensor,
            key: LoDTensor | None = None,
            value: LoDTensor | None = None,
            key_padding_mask: None = None,
            need_weights: bool = False,
            attn_mask: None = None,
            average_attn_weights: bool = True,
            is_causal: bool = False,
            *,
            bias: Tensor | None = None,
            distance_bias: Tensor | None = None,
            prefix: Tensor | int | None = None,
        ) -> tuple[LoDTensor, LoDTensor | None]: ...

    def extra_repr(self) -> str:
        usual = {"dropout": 0.0, "level": -1, "causal": False, "window": None}
        usual |= {"softcap": None, "block_size": None, "block_level": None}
        sink = "" if self.sink is None else ", sink=True"
        return f"{self.embed_dim}, {self.num_heads}{unusual(self, usual)}{sink}"


class RelativePositionBias(Constants):
    """T5's relative attention bias: one learned number per head and bucket of distances, as the table that
    tl.sequence_attention takes as `distance_bias`. Layers may share one.

        >>> import torch, torch_lod as tl
        >>> x = tl.lod_tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], depth=1)
        >>> position_bias = tl.nn.RelativePositionBias(1, num_buckets=4, max_distance=8)
        >>> tuple(position_bias().shape)
        (1, 17)
        >>> out = tl.sequence_attention(x, x, x, scale=1.0, distance_bias=position_bias())

    Half of the buckets are those of keys after the query if `bidirectional`; else such keys are in the bucket of distance
    0, as a causal decoder needs it. Of the buckets of a direction the first half is for distances 0, 1, 2, ... and the
    others grow by a factor up to `max_distance`; what is further away is in the last.

    Args:
        num_heads: of the queries.
        num_buckets, max_distance, bidirectional: T5's relative_attention_num_buckets, relative_attention_max_distance, and
            whether it is an encoder.

    Shape of `weight`: (num_buckets, num_heads), as the weight of T5's `relative_attention_bias`, an nn.Embedding; drawn
    from a normal distribution.

    Raises:
        ValueError: for sizes that leave no bucket to a direction, or no distance to the buckets that grow.

    Source: Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", 2020.
    """

    @public
    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        at_least_one(num_heads=num_heads, num_buckets=num_buckets, max_distance=max_distance)
        a_bool("bidirectional", bidirectional)
        one_way = num_buckets // 2 if bidirectional else num_buckets
        if one_way < 2 or max_distance <= one_way // 2:
            raise LoDValueError(
                f"expected num_buckets of at least {4 if bidirectional else 2} and max_distance above {one_way // 2}, half "
                f"the buckets of a direction, got {num_buckets} and {max_distance}"
            )
        self.num_heads, self.num_buckets, self.max_distance = num_heads, num_buckets, max_distance
        self.bidirectional = bidirectional
        self.weight = torch.nn.Parameter(torch.empty(num_buckets, num_heads, device=device, dtype=dtype))
        self.constant("_bucket", self._buckets(one_way), self.weight.device)
        self.reset_parameters()

    @public
    def reset_parameters(self) -> None:
        torch.nn.init.normal_(self.weight)
        self.restore()

    def _buckets(self, one_way: int) -> Tensor:
        """The bucket of every distance from -max_distance to max_distance."""
        ahead = torch.arange(-self.max_distance, self.max_distance + 1, device="cpu")
        distance = ahead.abs() if self.bidirectional else (-ahead).clamp(min=0)
        near = one_way // 2
        # in float32, as T5 is trained: where a bucket begins depends on how the logarithm is rounded
        grown = torch.log(distance.float() / near) / math.log(self.max_distance / near) * (one_way - near)
        bucket = torch.where(distance < near, distance, (near + grown.clamp(min=0).long()).clamp(max=one_way - 1))
        return bucket + one_way * (ahead > 0) if self.bidirectional else bucket

    @public
    def forward(self) -> Tensor:
        """
        Returns:
            (num_heads, 2 * max_distance + 1): column max_distance + d is of keys d positions after the query.
        """
        return torch.nn.functional.embedding(self._bucket, self.weight).t()

    if TYPE_CHECKING:
        _bucket: Tensor

        def __call__(self) -> Tensor: ...

    def extra_repr(self) -> str:
        sizes = f"{self.num_heads}, num_buckets={self.num_buckets}, max_distance={self.max_distance}"
        return sizes + unusual(self, {"bidirectional": True})


class TransformerEncoderLayer(torch.nn.Module):
    """torch.nn.TransformerEncoderLayer for LoDTensors: same arguments, state_dict and results.
    torch.nn.TransformerEncoder stacks such layers.

    Args:
        d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, norm_first, bias, device, dtype: as
            torch.nn.TransformerEncoderLayer. `batch_first` is accepted and has no meaning.
        level, causal, window, alibi, softcap, sink, block_size, block_level: as `MultiheadAttention`.
    """

    @public
    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device=None,
        dtype=None,
        *,
        level: int | str = -1,
        causal: bool = False,
        window: int | tuple[int, int] | None = None,
        alibi: Tensor | bool | None = None,
        softcap: float | None = None,
        sink: bool = False,
        block_size: int | None = None,
        block_level: int | str | None = None,
    ):
        super().__init__()
        make = {"device": device, "dtype": dtype}
        named: dict = {"relu": torch.nn.functional.relu, "gelu": torch.nn.functional.gelu}
        function = named.get(activation) if isinstance(activation, str) else activation
        if not callable(function):
            raise LoDValueError(f"expected activation 'relu', 'gelu' or a function, got {shown(activation)}")
        self.self_attn = MultiheadAttention(
            d_model,
            nhead,
            dropout,
            bias,
            batch_first=batch_first,
            level=level,
            causal=causal,
            window=window,
            alibi=alibi,
            softcap=softcap,
            sink=sink,
            block_size=block_size,
            block_level=block_level,
            **make,
        )
        self.linear1 = torch.nn.Linear(d_model, dim_feedforward, bias=bias, **make)
        self.dropout = torch.nn.Dropout(dropout)
        self.linear2 = torch.nn.Linear(dim_feedforward, d_model, bias=bias, **make)
        self.norm_first = norm_first
        self.norm1 = torch.nn.LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **make)
        self.norm2 = torch.nn.LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **make)
        self.dropout1, self.dropout2 = torch.nn.Dropout(dropout), torch.nn.Dropout(dropout)
        self.activation = function

    @public
    def forward(
        self,
        src: LoDTensor,
        src_mask: None = None,
        src_key_padding_mask: None = None,
        is_causal: bool = False,
        *,
        distance_bias: Tensor | None = None,
        prefix: Tensor | int | None = None,
    ) -> LoDTensor:
        """
        Args:
            src: (rows, d_model).
            src_mask, src_key_padding_mask: TypeError unless None.
            is_causal: as the argument `causal` of the module.
            distance_bias, prefix: as tl.sequence_attention.

        Returns:
            (rows, d_model), with the LoD of src.
        """
        _no_mask(src_mask=src_mask, src_key_padding_mask=src_key_padding_mask)
        a_lod_tensor("src", src)
        options = {"is_causal": is_causal, "distance_bias": distance_bias, "prefix": prefix}
        if self.norm_first:
            x = src + self._attended(self.norm1(src), options)
            return x + self._fed(self.norm2(x))
        x = self.norm1(src + self._attended(src, options))
        return self.norm2(x + self._fed(x))

    if TYPE_CHECKING:

        def __call__(
            self,
            src: LoDTensor,
            src_mask: None = None,
            src_key_padding_mask: None = None,
            is_causal: bool = False,
            *,
            distance_bias: Tensor | None = None,
            prefix: Tensor | int | None = None,
        ) -> LoDTensor: ...

    def _attended(self, x: LoDTensor, options: dict) -> Tensor:
        return self.dropout1(self.self_attn(x, **options)[0])

    def _fed(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))
