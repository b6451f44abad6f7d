# SPDX-License-Identifier: Apache-2.0
"""Every Python block of a page runs by itself and prints the text block that follows it; those of the tutorial one after
another. The notebook has the tutorial's cells, and the site has every page and no dead link. Pages say for whom they are."""

import ast
import contextlib
import copy
import io
import json
import re
import sys
import traceback

import hypothesis
import pytest
import torch
from settings import ROOT

sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "docs/site"), str(ROOT / "docs/images")]
import draw  # noqa: E402
import notebook  # noqa: E402
import pages  # noqa: E402

PAGES = ["README.md"]
PAGES += [
    f"docs/{name}.md" for name in ("concepts", "numerics", "drop_in", "porting", "data", "distributed", "generation")
]
PAGES += [f"docs/{name}.md" for name in ("differences_from_paddle", "compile_and_export", "testing", "recurrence")]
PAGES += [
    f"docs/{name}.md" for name in ("metrics", "inner_levels", "mixed_precision", "lightning", "attention_options")
]
PAGES += [
    f"docs/{name}.md"
    for name in ("structured", "map_sequences", "events", "graphs", "minus_one", "gpu", "hybrid_models")
]
TUTORIAL = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs/tutorial").glob("*.md"))
# A page that is read on a busy machine is as right as on another.
hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.chdir(ROOT)
    if "torch._dynamo" in sys.modules:  # a page counts its graphs, and not those of tests before it
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
    before = hypothesis.settings.get_current_profile_name()
    hypothesis.settings.load_profile("patient")
    yield
    hypothesis.settings.load_profile(before)


def output(code: str, name: str, names: dict | None = None) -> str:
    """What a block prints, in a namespace of its own if none is passed."""
    torch.manual_seed(0)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), {"__name__": "__main__"} if names is None else names)
    return printed.getvalue()


@pytest.mark.parametrize("page", PAGES + TUTORIAL)
def test_a_page_prints_what_it_says(page):
    names = {"__name__": "__main__"} if page in TUTORIAL else None
    blocks = re.findall(r"```(python|text)\n(.*?)```", (ROOT / page).read_text(), re.S)
    compared = 0
    for i, ((kind, code), (following, expected)) in enumerate(zip(blocks, [*blocks[1:], ("", "")])):
        if kind == "python":
            printed = output(code, f"{page}, block {i}", names)
            if following == "text":
                assert printed == expected, f"{page}: printed\n{printed}"
                compared += 1
    assert compared


#: What asks for something that lies beside rows, and what makes a structure.
BESIDE_ROWS = re.compile(
    r"\w\.(?:lengths|position_ids|segment_ids|is_first|is_last|row_offsets|cu_seqlens|mask|filter|filter_rows|append|group|"
    r"from_\w+|spans|nth|expand|seq)[(\[]|ctc_loss|pack_padded_sequence"
)
#: What is said where a result depends on numbers, which a tensor on "meta" has not: on a GPU the host waits for them.
NEEDS_DATA = re.compile(r"with data|meta tensor|on meta$|data-independent|FlexAttention is only supported", re.I)


def of_meta_alone(error: Exception) -> bool:
    """Whether a kernel that torch has for "meta" only, in Python, called functions with the LoDTensor that it was given."""
    frames = traceback.extract_tb(error.__traceback__)
    return any("torch/_decomp/" in frame.filename for frame in frames)


def elsewhere(value):
    """What a name stands for, its tensors on another device."""
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).to("meta")
    if isinstance(value, torch.Tensor):
        return value.detach().to("meta")
    if type(value) in (list, tuple):
        return type(value)(map(elsewhere, value))
    if type(value) is dict:
        return {key: elsewhere(part) for key, part in value.items()}
    return value


def on_another_device(code: str, name: str, host: dict, other: dict) -> int:
    """Runs a block twice, statement by statement: as it is, and with all tensors on "meta". What needs their numbers there is
    taken from here. How many statements ran there is returned."""
    ran = 0
    for statement in ast.parse(code).body:
        here = compile(ast.Module([statement], []), name, "exec")
        before = dict(host)
        exec(here, host)
        try:
            with torch.device("meta"):
                exec(here, other)
            ran += 1
        except Exception as error:
            no_file = isinstance(error, OSError)  # of rows that were not saved
            known = no_file or NEEDS_DATA.search(str(error)) or of_meta_alone(error)
            assert known, f"{name}: {ast.unparse(statement)}: {error}"
            held = {key: value for key, value in host.items() if isinstance(value, (list, dict)) and key[0] != "_"}
            made = {key: value for key, value in host.items() if before.get(key) is not value}
            other |= {key: elsewhere(value) for key, value in (held | made).items()}
    return ran


@pytest.mark.parametrize(
    "page", [page for page in (*PAGES, *TUTORIAL) if page != "docs/distributed.md"]
)  # gloo: host memory
def test_a_page_runs_with_rows_on_another_device(page):
    """The blocks that make a structure, or lay something beside rows: all of it has to be where they are."""
    host: dict = {"__name__": "__main__"}
    other: dict = dict(host)
    for i, code in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)):
        if page not in TUTORIAL:
            host, other = {"__name__": "__main__"}, {"__name__": "__main__"}
        if BESIDE_ROWS.search(code) or page in TUTORIAL:
            torch.manual_seed(0)
            with contextlib.redirect_stdout(io.StringIO()):
                assert on_another_device(code, f"{page}, block {i}", host, other)


def test_the_tutorial_has_six_steps():
    assert [re.match(r"docs/tutorial/(\d)_\w+\.md$", page)[1] for page in TUTORIAL] == list("123456")


def test_the_notebook_is_current():
    assert (ROOT / "docs/tutorial.ipynb").read_text(encoding="utf-8") == notebook.notebook(), "make docs"


def test_the_notebook_runs(monkeypatch, tmp_path):
    """All cells in one namespace, anywhere: a notebook needs no file of the checkout."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    compared = 0
    for cell in json.loads((ROOT / "docs/tutorial.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            printed = output(cell["source"], f"cell {cell['id']}", names)
            assert printed == "".join(out["text"] for out in cell["outputs"]), cell["id"]
            compared += bool(printed)
    assert compared > 25


# -- the site: what Sphinx also refuses, without Sphinx


def test_no_link_of_a_page_is_dead():
    assert pages.dead_links() == []


def test_the_site_has_every_page_once():
    listed = [page for part in pages.navigation().values() for section in part.values() for page in section]
    assert sorted([*listed, "README"]) == sorted(pages.pages())


#: The page of transformers is not among them: it is written elsewhere.
READERS = pages.readers()


@pytest.mark.parametrize("page", READERS)
def test_a_page_says_for_whom_it_is(page):
    part, line = READERS[page]
    other = next(begins for name, begins in pages.READERS.items() if name != part)
    assert line.startswith(pages.READERS[part]) and other not in line, f"{page}.md, below its title: {line}"


def test_pictures_are_current():
    assert sorted(draw.PICTURES) == sorted(file.name for file in (ROOT / "docs/images").glob("*.svg"))
    for name, picture in draw.PICTURES.items():
        assert (ROOT / "docs/images" / name).read_text(encoding="utf-8") == picture(), (
            f"{name}: python docs/images/draw.py"
        )


def test_dead_links_are_seen(tmp_path, monkeypatch):
    (tmp_path / "there.md").write_text("# A heading, of `two` words\n\n## Twice\n\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](there.md#a-heading-of-two-words) [c](there.md#twice-1) [`d`](none.md) [e](there.md#none)\n"
        "[f](#none) [g](https://elsewhere.org)\n\n```text\n[h](none.md)\n```\n\n![i](none.svg)\n"
    )
    monkeypatch.setattr(pages, "pages", lambda: {"page": page})
    dead = ["none.md", "there.md#none", "#none", "none.svg"]
    assert pages.dead_links() == [f"page.md: {target}" for target in dead]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("tl.LoD", "structure/lod"),
        ("tl.nn.LSTM", "nn/rnn"),
        ("tl.sequence_pool", "sequence/pool"),
        ("tl.ops.none", None),
    ],
)
def test_source_of_a_name(name, file):
    found = pages.Definitions().find(name)
    assert (found and found[0]) == (file and f"torch_lod/{file}.py")
