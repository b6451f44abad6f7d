# SPDX-License-Identifier: Apache-2.0
"""The rules of the house (docs/design.md), as tests."""

import ast
import importlib.util
import inspect
import io
import re
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest
import size
import torch
from samples import OPS, SEQUENCES, WITHOUT

import torch_lod as tl
from torch_lod import testing
from torch_lod.ops import compositions, schemas
from torch_lod.paddle.methods import PaddleMethods

ROOT = Path(__file__).parents[2]
#: Lower floors first, as the map in docs/design.md has them: a module imports from modules before it.
FLOORS = [
    name
    for line in reversed(re.search(r"```\n(.*?)```", (ROOT / "docs/design.md").read_text(), re.S)[1].splitlines())
    if (floor := re.match(r"\d  ((?:\w+, )*\w+)", line))
    for name in floor[1].split(", ")
]
#: Sequence operators with tests of their own, in test_recurrent.py and test_map_sequences.py.
RECURRENCES = {
    "map_sequences",
    "scan",
    "attention_lstm",
    "dynamic_gru",
    "dynamic_lstm",
    "dynamic_lstmp",
    "fused_embedding_fc_lstm",
}
RECURRENCES |= {"fusion_gru", "fusion_lstm", "gru_unit", "lstm_unit"}
SCHEMAS = {s.name.split("::")[1]: s for s in torch._C._jit_get_all_schemas() if s.name.startswith("torch_lod::")}


@pytest.fixture(scope="module")
def docs():
    """docs/build.py."""
    spec = importlib.util.spec_from_file_location("build_docs", ROOT / "docs/build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sources(*patterns):
    return [path for pattern in patterns for path in sorted(ROOT.glob(pattern)) if "build" not in path.parts]


def imported(path: Path):
    """The floors that a module of the package imports from, with the line."""
    package = path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level]
            for alias in node.names:
                full = [*base, *(node.module.split(".") if node.module else []), alias.name]
                if len(full) > 1:
                    yield full[1], node.lineno
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch_lod"):
            yield (node.module + ".").split(".")[1] or node.names[0].name, node.lineno


def test_the_map_of_the_design_has_every_module():
    modules = {
        path.relative_to(ROOT / "torch_lod").parts[0].removesuffix(".py") for path in sources("torch_lod/**/*.py")
    }
    assert len(FLOORS) == len(set(FLOORS)) and set(FLOORS) == modules - {"__init__"}


@pytest.mark.parametrize(
    "path",
    [p for p in sources("torch_lod/**/*.py") if p.name != "__init__.py" or p.parent.name != "torch_lod"],
    ids=str,
)
def test_imports_go_downwards(path):
    own = path.relative_to(ROOT / "torch_lod").parts[0].removesuffix(".py")
    for floor, line in imported(path):
        if floor in FLOORS and floor != own:
            assert FLOORS.index(floor) < FLOORS.index(own), f"{path}:{line}: {own} imports {floor}"


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path, modules: set[str]) -> set[str]:
    """The modules of the package that a module names in its imports, those in functions as well, which can hide a circle."""
    package, found = path.relative_to(ROOT).parent.parts, set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            name = ".".join([*base, *filter(None, [node.module])])
            found |= {full if (full := f"{name}.{alias.name}") in modules else name for alias in node.names}
    return found & modules - {module_of(path)}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one circle, each imported by the one before; none if there is none."""
    done: set[str] = set()

    def search(at: str, way: list[str]) -> list[str]:
        if at in way:
            return [*way[way.index(at) :], at]
        for other in sorted(graph[at] - done):
            if found := search(other, [*way, at]):
                return found
        done.add(at)
        return []

    return next((found for module in sorted(graph) if (found := search(module, []))), [])


def test_imports_have_no_circle():
    paths = {module_of(path): path for path in sources("torch_lod/**/*.py")}
    graph = {module: imports_of(path, set(paths)) for module, path in paths.items()}
    assert "torch_lod.tensor.picking" in graph["torch_lod.tensor.lod_tensor"] and len(graph) > 100
    assert not circle(graph), " imports ".join(circle(graph))
    assert circle(graph | {"torch_lod.errors": {"torch_lod.tensor.lod_tensor"}})


def test_nothing_depends_on_paddle():
    """The package imports `torch_lod.paddle`, which adds methods to LoDTensor; its operators are imported when one is asked for."""
    modules = {module_of(path): path for path in sources("torch_lod/**/*.py")}
    rest = {name: path for name, path in modules.items() if not name.startswith("torch_lod.paddle")}
    using = {name for name, path in rest.items() if any(".paddle" in at for at in imports_of(path, set(modules)))}
    assert using == {"torch_lod"}
    assert {name for name in vars(PaddleMethods) if name[:2] != "__"} <= vars(tl.LoDTensor).keys()
    assert not any(base.__module__.startswith("torch_lod.paddle") for base in tl.LoDTensor.__mro__)
    code = """import sys, torch, torch_lod as tl
def imported(): return sorted(name for name in sys.modules if name.startswith("torch_lod.paddle."))
x = tl.from_lengths(torch.ones(2), [[2]])
print(x.recursive_sequence_lengths(), tl.nn.SequenceConv, tl.nn.CTCLoss and imported())
print(torch.compile(lambda x: tl.sequence_first_step(x), backend="eager", fullgraph=True)(x).tolist(), len(imported()) > 9)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=ROOT)
    wanted = "[[2]] <class 'torch_lod.nn.sequence.SequenceConv'> ['torch_lod.paddle.methods']\n[1.0] True\n"
    assert done.stdout == wanted, done.stdout + done.stderr


def test_only_the_landing_knows_the_device():
    allowed = {"device.h", "half.h", "launch.h", "each_level.h"}
    for path in sources("csrc/**/*.h", "csrc/**/*.cpp"):
        text = path.read_text()
        if path.name not in allowed:
            assert "__CUDACC__" not in text and "<<<" not in text, path
        assert "march=native" not in text and "ffast-math" not in text, path


def included(path: Path) -> set[Path]:
    """Our headers that a source of csrc sees, itself among them."""
    found, left = set(), [path]
    while left:
        path = left.pop()
        if path in found:
            continue
        found.add(path)
        text = path.read_text()
        names = re.findall(r'#include "(.*)"', text) + re.findall(r'#define LOD_(?:KERNELS|ENTRIES) "(.*)"', text)
        left += [ROOT / "csrc" / name for name in names]
    return found


#: Kernels, each a source of its own with the header of what it exports.
KERNELS = {path.stem for path in sources("csrc/kernels/*.cpp")}
CPU_ONLY = {"matrix_scan", "order", "product", "structure"}


def test_kernels_are_free_of_torch():
    for source in sources("csrc/kernels/*.cpp", "csrc/cuda/*.cu", "csrc/core/*.h"):
        for path in included(source):
            foreign = re.findall(r"#include <((?:ATen|c10|torch|Python)\b[^>]*)>", path.read_text())
            assert not foreign and path.parent.name != "bindings", (source, path, foreign)


def test_bindings_see_no_kernel():
    for source in sources("csrc/bindings/*.cpp"):
        seen = {path.name for path in included(source)}
        assert not seen & {f"{name}.h" for name in KERNELS}, source
        if source.stem != "version":
            assert 'define LOD_ENTRIES "kernels/' in source.read_text() and "launch.h" in seen, source


def test_every_kernel_is_exported_and_compiled_for_the_gpu():
    assert KERNELS == {path.stem.removesuffix("_api") for path in sources("csrc/kernels/*_api.h")}
    assert KERNELS - CPU_ONLY == {path.stem for path in sources("csrc/cuda/*.cu")}
    for name in KERNELS - CPU_ONLY:
        kernel, api, source = ((ROOT / f"csrc/kernels/{name}{end}").read_text() for end in (".h", "_api.h", ".cpp"))
        entries = set(re.findall(r"LOD_ENTRY void (\w+)\(", kernel))  # a GPU has segment_reduce for sum_lists
        assert entries and entries - {"sum_lists"} == set(re.findall(r"LOD_KERNEL\((\w+),", api)), name
        assert entries == set(re.findall(r"^void (\w+)\(const CpuExec& exec", source, re.M)), name


def test_every_operator_is_registered_everywhere():
    for name in SCHEMAS:
        dump = torch._C._dispatch_dump(f"torch_lod::{name}")
        if name in WITHOUT or not tl.ops.COMPILED:
            assert "Composite" in dump or name in compositions.OPAQUE, name
            continue
        if name not in compositions.ONLY_COMPOSED:
            assert re.search(r"^CPU: ", dump, re.M), f"{name} has no CPU kernel"
        assert re.search(r"^Meta: ", dump, re.M), f"{name} has no fake"
        assert re.search(r"^CompositeExplicitAutograd", dump, re.M), f"{name} has no composition"
        if next(info for info in OPS if info.name == name).differentiable:
            assert re.search(r"^Autograd\[alias\]: ", dump, re.M), f"{name} has no gradient"


def test_every_operator_has_an_entry_and_a_composition():
    assert set(SCHEMAS) - {info.name for info in OPS} == set(WITHOUT), "add an entry to tests/lib/samples/ops"
    assert set(SCHEMAS) == set(compositions.COMPOSITIONS), "add a composition in torch_lod/ops"


def test_every_sequence_operator_has_an_entry(docs):
    names = [info.name for info in SEQUENCES]
    assert len(names) == len(set(names))
    assert operators(docs) - RECURRENCES == set(names), "add an entry to tests/lib/samples/sequence"


def test_every_name_is_listed_once():
    """In `__all__` of the file that defines it: `tl` and `tl.paddle` are made of those lists."""
    assert tl.paddle.__all__
    families = [
        *vars(tl.construct).values(),
        *vars(tl.sequence).values(),
        *vars(tl.paddle).values(),
    ]
    lists = [m.__all__ for m in dict.fromkeys(filter(inspect.ismodule, families)) if hasattr(m, "__all__")]
    listed = [name for names in lists for name in names]
    own = {"DerivedTensor", "LoD", "LoDError", "LoDTensor", "describe", "include_paths", "nn", "ops", "paddle"}
    own |= {"batch", "check_errors", "data", "distributed", "explain", "integrations", "strict"}
    assert len(listed) == len(set(listed)) and sorted(listed) == sorted(set(tl.__all__ + tl.paddle.__all__) - own)
    assert not set(tl.__all__) & set(tl.paddle.__all__) and len(tl.__all__) <= 90
    assert {name for name in dir(tl) if name[:2] != "__"} == set(tl.__all__)
    for name in tl.paddle.__all__:
        assert getattr(tl, name) is getattr(tl.paddle, name), f"tl.{name} has always been there"


def test_operators_have_the_schemas_of_the_one_text():
    text = schemas.read()
    assert list(text) == list(dict.fromkeys(text)) and set(text) == set(compositions.COMPOSITIONS), (
        "a composition per schema"
    )
    parsed = {name: str(torch._C.parse_schema(f"torch_lod::{schema}")) for name, schema in text.items()}
    assert parsed == {name: str(schema) for name, schema in SCHEMAS.items()}, "build the library again"


def test_python_repeats_the_parameters_of_the_schemas():
    public = {name: getattr(tl.ops, name) for name in tl.ops.__all__ if name != "COMPILED"}
    for functions in (public, compositions.COMPOSITIONS):
        for name, function in functions.items():
            parameters = inspect.signature(function).parameters.values()
            found = [(p.name, p.default) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
            nothing = inspect.Parameter.empty
            expected = [
                (a.name, a.default_value if a.has_default_value() else nothing) for a in SCHEMAS[name].arguments
            ]
            if any(p.kind is p.VAR_POSITIONAL for p in parameters):  # hands the rest on
                expected = expected[: len(found)]
            assert found == expected, name
    for name, function in public.items():
        assert function.__module__.startswith("torch_lod.ops") and function.__doc__, name


def test_public_names_are_documented():
    page = (ROOT / "docs/reference.md").read_text()
    modules = {"tl": tl, "tl.ops": tl.ops, "tl.nn": tl.nn, "tl.paddle": tl.paddle, "tl.data": tl.data}
    modules |= {"tl.distributed": tl.distributed, "tl.integrations.transformers": tl.integrations.transformers}
    modules["torch_lod.testing"] = testing
    for prefix, module in modules.items():
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing):
                assert thing.__doc__, f"{prefix}.{name} has no docstring"
                assert f"`{prefix}.{name}" in page, f"{prefix}.{name} is not in docs/reference.md: make docs"


def test_methods_are_documented(docs):
    page = (ROOT / "docs/reference.md").read_text()
    for name in ("nn.LinearChainCRF.decode", "nn.Plain.export", "nn.Plain.to_onnx", "nn.LSTM.forward"):
        assert f"#### `tl.{name}(" in page, f"{name} is not in docs/reference.md: make docs"
    assert "load_state_dict" not in docs.methods(tl.nn.LSTM) and docs.methods(tl.nn.LSTM)[0] == "forward"


def test_modules_say_what_a_call_takes():
    """torch's own docstring of forward tells a user of a module nothing."""
    modules = [thing for name in tl.nn.__all__ if isinstance(thing := getattr(tl.nn, name), type)]
    assert not [
        module.__name__ for module in modules if module.forward.__doc__ in (None, torch.nn.Module.forward.__doc__)
    ]


def test_families_say_what_they_do(docs):
    """Before the colon of their docstring: it is the title of their page, and their name in the list beside all pages."""
    titles = {name: docs.operator_pages.title(module) for name, module in docs.operator_pages.families().items()}
    assert len(set(titles.values())) == len(titles)
    assert not {name: title for name, title in titles.items() if len(title) > 48 or "`" in title}


def test_facts_of_an_operator_are_its_own(docs):
    """Where another call of its example refuses the batch of a fact, there is no fact."""
    for name in docs.operator_pages.EXAMPLES:
        for lengths in ([[1], [0]], [[], []]):
            fact = docs.operator_pages.with_batch(name, lengths) or ""
            assert not re.match(r"\w*Error: ", fact) or fact.partition(": `")[2].startswith(f"{name}:"), fact


def operators(docs) -> set[str]:
    """Every public sequence operator, those of tl.paddle as well."""
    families = docs.operator_pages.families().values()
    return {name for module in families for name in docs.operator_pages.operators(module)}


def test_generated_documentation_is_current(docs):
    pages = docs.pages()
    for name, text in pages.items():
        if name == "torch_functions.md" and not torch.__version__.startswith(docs.PINNED):
            continue  # lists the functions of the torch it was made with
        assert (ROOT / "docs" / name).read_text() == text, f"docs/{name} is out of date: make docs"
    for path in sources("docs/operators/*"):
        assert f"operators/{path.name}" in pages, f"{path} is of no family"


def test_every_sequence_operator_has_a_section_with_an_example(docs):
    assert set(docs.operator_pages.EXAMPLES) == operators(docs), "docs/operator_examples.py has an example per operator"
    for name in operators(docs):
        assert re.search(r"^ *Source: ", getattr(tl, name).__doc__, re.M), f"tl.{name}: whence?"


def test_equivalents_in_docstrings_hold(docs):
    one_level = tl.from_lengths(torch.tensor([3.0, 1.0, 2.0, 5.0, 4.0, 6.0]), [[2, 4]], level_names=["sentence"])
    checked = 0
    for name in docs.operator_pages.EXAMPLES:
        for code in docs.operator_pages.equivalents(getattr(tl, name).__doc__):
            example = docs.operator_pages.Example(name, one_level)
            names = {**vars(tl), "torch": torch, "F": torch.nn.functional, **example.bound()}
            found, *_ = docs.operator_pages.leaves(example.result())
            expected = eval(code, names)
            torch.testing.assert_close(plain(found), plain(expected), msg=lambda text, name=name: f"{name}: {text}")
            checked += 1
    assert checked > 25


def plain(t):
    return t.values() if isinstance(t, tl.LoDTensor) else t


def test_every_operator_is_in_the_changelog():
    page = (ROOT / "CHANGELOG.md").read_text()
    names = {*operators_of(tl.sequence), *tl.paddle.__all__, *tl.ops.__all__} - {"COMPILED"}
    assert not [name for name in sorted(names) if f"`{name}`" not in page]


def operators_of(package):
    return [name for name in package.__all__ if not isinstance(getattr(package, name), type)]


def test_docstrings_print_what_they_say():
    import doctest

    failed = attempted = 0
    for name in (
        "structure.lod",
        "tensor.lod_tensor",
        "construct.lists",
        "construct.ids",
        "construct.declared",
        "data.batch",
    ):
        result = doctest.testmod(sys.modules[f"torch_lod.{name}"])
        failed, attempted = failed + result.failed, attempted + result.attempted
    assert attempted > 8 and failed == 0


def test_files_have_room_for_their_reader():
    for path in sources(
        "csrc/**/*.*", "torch_lod/**/*.py", "tests/**/*.py", "examples/**/*.*", "benchmarks/**/*.py", "docs/**/*.py"
    ):
        if path.suffix in (".py", ".h", ".cpp", ".cu"):
            text = path.read_text().splitlines()
            listed = path.name == "message_examples.py"  # a call in every line, in the order of the alphabet
            assert len(text) <= (700 if listed else 580), f"{path}: {len(text)} lines"
            assert "SPDX-License-Identifier: Apache-2.0" in "\n".join(text[:20]), path
            assert not re.search(r"\b(TO[D]O|FIX[M]E|XX[X])\b", "\n".join(text)), path
            assert max(map(len, text)) <= 120 or path.suffix == ".py", f"{path}: a line of more than 120 columns"


def test_nothing_hangs_on_frames():
    """Function modes put frames between: what frames tell is where, and one file looks."""
    reads = re.compile(r"_getframe|currentframe|f_back|f_locals|tb_next|extract_stack|inspect\.stack")
    assert [path.stem for path in sources("torch_lod/**/*.py") if reads.search(path.read_text())] == ["frames"]


def test_arguments_are_checked_in_one_place():
    """structure/validate.py says what an integer, a number, a bool, a word or a dtype must be."""
    copies = re.compile(r'raise LoD\w+\(f"expected [^"]*(?:as a bool|as a number|of an integer dtype), got \{')
    found = [path.name for path in sources("torch_lod/**/*.py") if copies.search(path.read_text())]
    assert found == ["validate.py"], "use structure/validate.py"


def test_results_have_no_lines_of_the_machine_that_made_them():
    """Its folders, and what a peer warns of in the middle of a table."""
    lines = [(page.name, line) for page in sources("benchmarks/results/*.md") for line in page.read_text().splitlines()]
    assert lines
    assert not [line for line in lines if re.search(r"site-packages|Warning:|(?<!\w)/(home|root|tmp|work)/", line[1])]


def test_operators_can_be_called_before_anything_else():
    code = "import torch, torch_lod; print(torch.ops.torch_lod.segment_reduce(torch.ones(3), torch.tensor([0, 1, 3]), 'sum').tolist())"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "[1.0, 2.0]\n", done.stderr


CAUSES = {
    "switched off": ("TORCH_LOD_COMPOSED=1 switches them off", "unset it"),
    "never built": ("they were never built in {0}/torch_lod", "pip install --no-build-isolation -e {0}"),
    "another torch": (
        f"built for torch 2.1.0, and torch is {torch.__version__}",
        "pip install --no-build-isolation -e {0}",
    ),
    "broken": ("{0}/torch_lod/_C.so does not load (file too short)", "pip install --no-build-isolation -e {0}"),
    "half of them": ("they need {0}/torch_lod/_kernels.so, which ", "pip install --no-build-isolation -e {0}"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_missing_extension_is_said_once_with_the_way_out(cause, tmp_path):
    shutil.copytree(ROOT / "torch_lod", tmp_path / "torch_lod", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copytree(ROOT / "csrc/torch_lod", tmp_path / "csrc/torch_lod")
    (tmp_path / "csrc/bindings").mkdir()
    shutil.copy(ROOT / "csrc/bindings/library.cpp", tmp_path / "csrc/bindings")
    if cause in ("another torch", "broken"):
        (tmp_path / "torch_lod/_C.so").write_text("torch_lod was built for torch 2.1.0\0" * (cause == "another torch"))
    if cause == "half of them":
        if not (ROOT / "torch_lod/_kernels.so").is_file():
            pytest.skip("no compiled operators")
        shutil.copy(ROOT / "torch_lod/_C.so", tmp_path / "torch_lod")
    code = """import os, sys, warnings
sys.path[1:] = [p for p in sys.path[1:] if not os.path.isdir(os.path.join(p, "torch_lod"))]  # of an editable installation
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import torch_lod.nn
said = [w for w in seen if "torch_lod" in str(w.message)]
print(len(said), said[0].lineno, said[0].filename.endswith("user.py"), said[0].message)
"""
    (tmp_path / "user.py").write_text(code)
    env = {"PATH": "", "TORCH_LOD_COMPOSED": str(int(cause == "switched off")), "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, str(tmp_path / "user.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.stdout.startswith("1 5 True torch_lod runs without its compiled operators: "), done.stdout + done.stderr
    assert "slower" in done.stdout
    assert all(words.format(tmp_path) in done.stdout for words in CAUSES[cause]), done.stdout


def test_schemas_that_are_missing_are_said(tmp_path):
    shutil.copytree(ROOT / "torch_lod", tmp_path / "torch_lod", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copytree(ROOT / "csrc/torch_lod", tmp_path / "csrc/torch_lod", ignore=lambda *_: ["schemas.h"])
    env = {"TORCH_LOD_COMPOSED": "1"}  # otherwise a folder without operators steps aside
    done = subprocess.run(
        [sys.executable, "-c", "import torch_lod"], capture_output=True, text=True, cwd=tmp_path, env=env
    )
    assert "expected the operators' schemas in" in done.stderr and "install torch_lod again" in done.stderr


def test_the_size_of_the_house_can_be_told():
    done = subprocess.run([sys.executable, "tests/lib/size.py"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "kernels and bindings" in done.stdout, done.stderr
    counted = {path for room in size.ROOMS for path in size.files_of(room)}
    assert not [p for p in sources("torch_lod/**/*.py", "csrc/**/*.*") if p not in counted], (
        "a room for it in the table of docs/design.md"
    )


def test_every_room_keeps_its_budget():
    grown = [
        f"{room} has {lines} lines, its budget in docs/design.md is {budget}"
        for room, (_, budget) in size.ROOMS.items()
        if (lines := sum(size.lines(path)[0] for path in size.files_of(room))) > budget
    ]
    assert len(size.ROOMS) > 15 and not grown, "\n".join(grown)


#: Functions above 20, the complexity that a new one may have at most. They only become simpler and fewer.
COMPLEX = {
    "from_encoding": 41,
    "_read": 36,
    "join_tensors": 35,
    "_letters_by_matrices": 27,
    "signature.decorate.rule": 25,
    "_over_letters": 23,
    "place": 22,
}


def complexity(function: ast.AST) -> int:
    """As lizard counts: branches, loops and handlers, `and` and `or`, and what comprehensions have of them."""
    count, left = 1, list(ast.iter_child_nodes(function))
    while left:
        node = left.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue  # counted by themselves
        count += isinstance(node, (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.match_case))
        count += isinstance(node, ast.Try) and bool(node.finalbody)
        count += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        count += 1 + len(node.ifs) if isinstance(node, ast.comprehension) else 0
        left += ast.iter_child_nodes(node)
    return count


def functions_of(node: ast.AST, names: tuple[str, ...] = ()):
    for child in ast.iter_child_nodes(node):
        inner = names
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner = (*names, child.name)
            if not isinstance(child, ast.ClassDef):
                yield ".".join(inner), child
        yield from functions_of(child, inner)


def test_functions_are_simple():
    found: dict[str, int] = {}
    for path in sources("torch_lod/**/*.py"):
        for name, function in functions_of(ast.parse(path.read_text())):
            found[name] = max(found.get(name, 0), complexity(function))
    above = {name: count for name, count in found.items() if count > 20}
    assert above == COMPLEX, "no function is more complex than it was; take what became simpler off the list"
    assert complexity(ast.parse("def f():\n  if a and b or c:\n    return [x for x in y if x]").body[0]) == 6


def said(path: Path):
    """Comments of a source, and the docstrings of a module."""
    text = path.read_text()
    if path.suffix != ".py":
        return re.findall(r"//.*", text)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, nodes)]
    return [token.string for token in tokens if token.type == tokenize.COMMENT] + docstrings


def test_paths_in_comments_exist():
    """From the root, or by their last parts; links of a docstring are those of its page in docs/operators."""
    named = re.compile(
        r"(?<![\w/.<>*-])(?:[\w.-]+/)*[\w-]+\.(?:py|h|cpp|cu|md|txt|ipynb|toml|sh|yml)\b"
        r"|(?<![\w/.])(?:torch_lod|csrc|tests|docs|benchmarks|examples)(?:/[\w-]+)+(?![\w.*/<])"
    )
    files = sources("*", "*/**/*.*")
    known = "\n".join(f"/{path.relative_to(ROOT).as_posix()}" for path in files if ".venv" not in path.parts) + "\n"
    seen = [
        (path.relative_to(ROOT).as_posix(), name.removeprefix("../"))
        for path in sources("torch_lod/**/*.py", "csrc/**/*.*")
        if path.suffix in size.SUFFIXES
        for comment in said(path)
        for name in named.findall(comment)
    ]
    lost = [at for at in seen if not re.search(f"/{re.escape(at[1])}[/\n]".replace("NAME", r"\w+"), known)]
    assert len(seen) > 100 and not lost, lost
