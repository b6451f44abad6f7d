# SPDX-License-Identifier: Apache-2.0
"""The leak law over the table of torch's functions: no rule keeps a LoD over rows that another sequence's rows went into."""

import functools
import warnings

import pytest
import torch
import torch.nn.functional as F
from rule_samples import CHANGES, KINDS, MALFORMED, MORE, OTHERS, RULES, SHAPES, STRUCTURE, Operands, forms, names

from torch_lod import LoDError, LoDTensor
from torch_lod.functions.row import shown_functions
from torch_lod.tensor.derived import DerivedTensor
from torch_lod.tensor.table import ROWS, Row

#: Forms by which only torch's running statistics are at stake: training mode is documented to use the whole batch.
TRAINING = {"torch.batch_norm", "torch.nn.functional.batch_norm", "torch.native_batch_norm"}
#: How much of the random numbers a draw takes depends on the rows before it: those are compared.
DRAWS = {"torch.poisson", "torch.binomial", "torch.multinomial", "torch.Tensor.multinomial"}
#: torch refuses to detach a view in place, and a LoDTensor is a view of its values; torch does not ask
#: __torch_function__ about Tensor.set_, so that LoDTensor.set_ refuses by itself (test_rules_cases.py).
VIEWS = {"torch.detach_", "torch.Tensor.detach_", "torch.Tensor.set_"}
#: Contents of uninitialised memory, devices that are not there, what LoDTensor answers itself.
APART = {"torch.empty_like", "torch.Tensor.__deepcopy__", "torch.Tensor.cuda", "torch.Tensor.pin_memory"}


def structured(result, found=None) -> list:
    found = [] if found is None else found
    if isinstance(result, LoDTensor) or (isinstance(result, DerivedTensor) and result.rows_dim is not None):
        found.append(result)
    elif isinstance(result, (tuple, list)):
        for part in result:
            structured(part, found)
    return found


def run(code, func, operands):
    torch.default_generator.manual_seed(0)  # torch.manual_seed keeps a stack trace for the GPUs
    return eval(code, {"f": func}, operands)


def unchanged(others, x):
    """The rows of the sequences that did not change: of a result with lengths of its own, of all but the middle one."""
    kept = torch.zeros(4, dtype=torch.bool)
    kept[others] = True
    kept = kept if x.lod == STRUCTURE else x.lod.segment_ids(0) % 3 != 1
    if isinstance(x, LoDTensor):
        return x.values()[kept]
    begin, end = x._provenance.part or (0, x.lod.rows)
    return x.values().movedim(x.rows_dim, 0)[kept[begin:end]]


def knowing_nothing(result, found=None) -> list:
    """The tensors that claim to know nothing of rows: other than single numbers."""
    found = [] if found is None else found
    if isinstance(result, (tuple, list)):
        for part in result:
            knowing_nothing(part, found)
    elif type(result) is torch.Tensor and result.dim() and result.layout == torch.strided and not result.is_quantized:
        found.append(result)
    return found


def same(a, b) -> bool:
    if a.dtype.is_complex:
        a, b = (torch.view_as_real(t.to(torch.complex64).resolve_conj()) for t in (a, b))
    return torch.equal(a, b) or torch.allclose(a.double(), b.double(), rtol=1e-5, atol=1e-6, equal_nan=True)


def _runs_plainly(func, code, shape, dtype, change) -> bool | None:
    """Whether torch takes a form with plain tensors; None where there is no such form."""
    try:
        return None if run(code, func, Operands(shape, dtype, change, True)) is NotImplemented else True
    except TypeError as error:  # of the form, or of the dtype
        return False if "complex" in str(error) else None
    except Exception:
        return False


def verdict(func, code, shape, dtype) -> str:
    """'torch refuses' (it does so with plain tensors as well), 'refused', 'plain', 'lost', 'kept', or a complaint."""
    runs = _runs_plainly(func, code, shape, dtype, "")
    if not runs:
        return "no such form" if runs is None else "torch refuses"
    first: list = []
    plain: list = []
    made: list = []
    kept = lost = False
    changes = CHANGES
    if any(word in names()[func] for word in ("polynomial", "binomial")):
        changes = ("other",)  # of a huge degree or count, or of NaN, they take years
    for change in ("", *changes):
        if change not in ("", "other") and not kept and all(t._version == 0 for t in made):
            break  # torch does not survive NaN everywhere
        operands = Operands(shape, dtype, change, False)
        try:
            result = run(code, func, operands)
        except (LoDError, TypeError):
            return "refused"
        except Exception as error:
            if change and not _runs_plainly(func, code, shape, dtype, change):
                continue
            return f"raised {type(error).__name__}: {error}"
        found = structured(result)
        wrong = _compared(func, first, found + operands.made) if change else ""
        if (
            change
            and not wrong
            and any(not same(a, b) for a, b in zip(plain, knowing_nothing(result)))
            and not _excepted(func, code.co_filename)
        ):
            wrong = "a plain tensor knows of the rows"
        if wrong:
            return f"{wrong} ({change})"
        if not change:
            first, kept, plain, made = found + operands.made, bool(found), knowing_nothing(result), operands.made
            lost = any(isinstance(t, DerivedTensor) for t in (result if isinstance(result, tuple) else (result,)))
    return "kept" if kept else "lost" if lost else "plain"


def _excepted(func, text: str) -> bool:
    """What the law of marks excepts: predicates and gradients, statistics of a batch norm, the last states of torch's
    recurrences, which are a row per sequence; forms that call .values() themselves, or take a product of vectors."""
    if KINDS[func] in ("plain", "sequence-wise") or "batch_norm" in names()[func]:
        return True
    return "rows(" in text or "x @ x.t()" in text


def _compared(func, first, second) -> str:
    if len(first) != len(second):
        return "the kind of the result depends on the rows"
    others = OTHERS[:1] if names()[func] in DRAWS else OTHERS
    for a, b in zip(first, second, strict=True):
        if (isinstance(a, LoDTensor) and a.shape[:1] != (a.lod.rows,)) or a.shape != b.shape:
            return f"its LoD has {a.lod.rows} rows for a shape {tuple(a.shape)}"
        if a.lod != b.lod or not same(unchanged(others, a), unchanged(others, b)):
            return "rows of other sequences changed"
    return ""


@functools.cache
def verdicts(func) -> dict[str, list[str]]:
    """Every form of calling a function, under what came of it."""
    found: dict[str, list[str]] = {}
    unknown = set()
    for shape, dtype in (*SHAPES, *MORE):
        if (shape, dtype) in MORE and ("kept" in found or (func not in RULES and found.keys() & {"plain", "lost"})):
            if not names()[func].endswith("__getitem__"):
                break
        for text, code in forms(func):
            if text in unknown or (names()[func] in TRAINING and "True" in text):
                continue
            outcome = verdict(func, code, shape, dtype)
            if outcome == "no such form":
                unknown.add(text)
            else:
                found.setdefault(outcome, []).append(f"f({text}) of {list(shape)} {str(dtype)[6:]}")
    return found


RUNS = {"refused", "plain", "lost", "kept"}
#: Without what getattr also finds in a module: its own __eq__ and the like.
TABLE = [func for func in KINDS if func in names() and names()[func] not in APART | VIEWS]


pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("func", TABLE, ids=lambda func: names()[func])
def test_no_rule_leaks(func):
    wrong = {what: forms[:6] for what, forms in verdicts(func).items() if what not in RUNS | {"torch refuses"}}
    assert not wrong, f"{names()[func]} ({KINDS[func]}): {wrong}"


#: Functions that take no rows of sequences on this machine, and why.
NOT_RUN = {
    "gone from torch 2.15": "cholesky qr",
    "a LoDTensor is dense": """ccol_indices ccol_indices_copy coalesce col_indices col_indices_copy crow_indices crow_indices_copy
        hsmm indices indices_copy is_coalesced mkldnn_adaptive_avg_pool2d mkldnn_linear_backward_weights mkldnn_max_pool2d
        mkldnn_max_pool3d native_norm resize_as_sparse_ row_indices row_indices_copy saddmm smm sparse_mask sparse_resize_
        sparse_resize_and_clear_ sspaddmm to_padded_tensor values values_copy _coalesced_ _indices _values
        _sparse_mask_projection _to_dense _dimI _dimV _nnz _nested_tensor_size _nested_tensor_storage_offsets
        _nested_tensor_strides""",
    "and not quantised": """choose_qparams_optimized fbgemm_pack_quantized_matrix int_repr q_per_channel_axis q_per_channel_scales
        q_per_channel_zero_points q_scale q_zero_point qscheme quantize_per_channel quantize_per_tensor
        quantize_per_tensor_dynamic quantized_batch_norm quantized_gru quantized_gru_cell quantized_lstm quantized_lstm_cell
        quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d quantized_rnn_relu_cell quantized_rnn_tanh_cell""",
    "takes one number, or a size": """is_nonzero item sym_float sym_int sym_ite sym_max sym_min sym_not _sym_sqrt __bool__
        __complex__ __float__ __format__ __index__ __int__ __long__ __nonzero__ linspace logspace ones rand randn zeros
        new_empty_strided""",
    "needs another device": """ipu mtia xpu record_stream batch_norm_elemt batch_norm_backward_elemt batch_norm_backward_reduce
        batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats
        cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu
        cudnn_convolution_transpose cudnn_grid_sampler miopen_batch_norm miopen_convolution miopen_convolution_add_relu
        miopen_convolution_relu miopen_convolution_transpose miopen_ctc_loss miopen_depthwise_convolution miopen_rnn
        mkldnn_rnn_layer __cuda_array_interface__""",
    "LoDTensor answers itself": "__deepcopy__ __setstate__",
    "no call from Python": "index autocast _autocast_to_full_precision _autocast_to_reduced_precision",
}
#: Neither kept nor refused by any form: the result is a bool or an attribute or a row per sequence, or torch refuses
#: plain tensors before.
ALWAYS_PLAIN = {
    "dim",
    "dist",
    "dot",
    "vdot",
    "trace",
    "equal",
    "allclose",
    "module_load",
    "__setitem__",
    "grad =",
    "ldl_solve",
    "ctc_loss",
    "embedding_renorm_",
}

#: Their rule only refuses: rows of one operand are lost.
NEVER_KEPT = {"cartesian_prod", "combinations", "corrcoef", "cov", "kron", "meshgrid", "pdist"}

#: They write rows by their number.
ALWAYS_REFUSED = {"index_put_", "masked_scatter_", "put_"}


#: Calls that torch refuses for a plain tensor: windows longer than every sequence, which give no rows.
TAKEN = {"avg_pool1d(x, 7)", "max_pool1d(x, 7)", "max_pool1d_with_indices(x, 7)"}
#: And those that LoDTensors take in more forms.
TAKEN |= {"local_response_norm(x, 7)", "instance_norm(x)", "instance_norm(x, None, None, None)"}


def short(func) -> str:
    return names()[func].split(".")[-1]


def test_the_law_reaches_the_table():
    excused = {name for listed in NOT_RUN.values() for name in listed.split()}
    not_run = {short(func) for func in TABLE if not RUNS & verdicts(func).keys()}
    assert not_run <= excused, sorted(not_run - excused)


def test_malformed_calls_are_refused_as_torch_refuses_them():
    """By torch, or by a LoDError: not by a rule that stumbles."""
    wrong = []
    for func in TABLE:
        if "cell" in names()[func] or "quantized" in names()[func]:
            continue  # torch itself does not survive these
        for text, code in MALFORMED:
            try:
                run(code, func, Operands((4, 4), torch.float32, "", True))
                continue
            except Exception as error:
                torch_raises = type(error)
            try:
                run(code, func, Operands((4, 4), torch.float32, "", False))
                if f"{short(func)}({text})" not in TAKEN:
                    wrong.append(f"{names()[func]}({text}) is taken")
            except LoDError:
                pass
            except Exception as error:
                if type(error) is not torch_raises and not isinstance(error, (TypeError, RuntimeError, ValueError)):
                    wrong.append(f"{names()[func]}({text}): {error!r}")
    assert not wrong


def _careless(func, args, kwargs):
    """The LoD of any operand: what a rule must not do."""
    found = [t.lod for value in (*args, *kwargs.values()) for t in structured(value)]
    return found[0] if found else None


@pytest.mark.parametrize(
    "func",
    [
        *(
            torch.flip,
            torch.roll,
            torch.sort,
            torch.cumsum,
            torch.softmax,
            torch.gather,
            torch.index_select,
            torch.stack,
        ),
        *(
            torch.fft.fft,
            torch.linalg.inv,
            torch.linalg.solve,
            torch.einsum,
            torch.matmul,
            torch.addmm,
            torch.cdist,
            torch.cov,
        ),
        *(
            torch.add,
            torch.mul,
            torch.where,
            torch.searchsorted,
            torch.scatter,
            torch.Tensor.index_add_,
            torch.Tensor.__getitem__,
        ),
        *(
            torch.sum,
            torch.transpose,
            torch.permute,
            torch.diagonal,
            torch.renorm,
            torch.isin,
            F.embedding,
            F.layer_norm,
        ),
        *(
            F.cross_entropy,
            F.linear,
            F.conv1d,
            torch.lstm,
            F.scaled_dot_product_attention,
            torch.stft,
            torch.Tensor.index_put_,
        ),
    ],
    ids=lambda func: names()[func],
)
def test_the_law_sees_a_careless_rule(func, monkeypatch):
    monkeypatch.setitem(ROWS, func, Row(ROWS[func].name, ROWS[func].kind, _careless))
    assert set(verdicts.__wrapped__(func)) - RUNS - {"torch refuses"}


def test_rules_do_what_their_kind_says():
    idle = set()
    for func in TABLE:
        wanted = "plain" if KINDS[func] == "plain" else "kept" if func in RULES else "lost"
        wanted = "refused" if KINDS[func] == "refuse" or short(func) in ALWAYS_REFUSED else wanted
        found = verdicts(func).keys()
        if RUNS & found and wanted not in found and short(func) not in ALWAYS_PLAIN | NEVER_KEPT:
            idle.add(f"{names()[func]}, {KINDS[func]}: {sorted(found)}")
    assert not idle


def test_every_function_is_classified():
    """On the torch that the table was made for; what a newer one adds gives plain tensors and is only told."""
    missing = sorted(name for func, name in shown_functions().items() if func not in KINDS)
    if torch.__version__.startswith("2.13"):
        assert not missing, "enter in a file of torch_lod/functions: " + ", ".join(missing)
    elif missing:
        warnings.warn(
            f"torch {torch.__version__} has functions that are not classified: {', '.join(missing)}", stacklevel=1
        )


def test_functions_without_a_kind_lose_the_rows():
    def unheard_of(x):
        if torch.overrides.has_torch_function_unary(x):
            return torch.overrides.handle_torch_function(unheard_of, (x,), x)
        return x.clone()

    x = LoDTensor(torch.rand(4, 4), STRUCTURE)
    assert unheard_of(x).rows_dim is None


def test_the_count_of_the_law(record_property):
    """What the end of a run of the suite says (conftest.py)."""
    reached = [func for func in TABLE if RUNS & verdicts(func).keys()]
    record_property("leak law", f"{len(reached)} functions of {len(TABLE)}")
    assert len(reached) > 0.9 * len(TABLE)
