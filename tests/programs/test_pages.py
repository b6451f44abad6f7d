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

import torch_lod as tl
import torch_lod.testing

sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "docs/site"), str(ROOT / "docs/images")]
import draw  # noqa: E402
import front  # noqa: E402
import functions  # noqa: E402
import notebook  # noqa: E402
import pages  # noqa: E402

#: Pages whose blocks are run elsewhere: make formats, tests/drop_in/test_coming_from.py, test_cheat_sheet.py, make docs, doctest.
ELSEWHERE = ("transformers", "coming_from", "cheat_sheet", "messages", "reference")
PAGES = ["README.md"]
PAGES += [
    f"docs/{page.name}"
    for page in sorted((ROOT / "docs").glob("*.md"))
    if page.stem not in ELSEWHERE and "```python\n" in page.read_text()
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
    """Whether the gradient of layer_norm, which torch has in Python for "meta" only, called functions with a LoDTensor."""
    frames = traceback.extract_tb(error.__traceback__)
    return any("torch/_decomp/" in frame.filename and frame.name == "native_layer_norm_backward" for frame in frames)


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
    other = next(begins for begins in pages.READERS.values() if begins != pages.READERS[part])
    assert line.startswith(pages.READERS[part]) and other not in line, f"{page}.md, below its title: {line}"


@pytest.mark.parametrize("page", [page for page, (part, _) in READERS.items() if part != "Builders"])
def test_titles_can_be_scanned(page):
    """They begin with what they are about, and fit into the list of pages at the side."""
    titles = re.findall(r"^#+ (.*)$", pages.prose(ROOT / f"{page}.md"), re.M)
    assert not [title for title in titles if title.endswith("?") or re.match(r"How (do|does|is|are) ", title)]
    assert len(titles[0]) <= 60, titles[0]


def test_pictures_are_current():
    assert sorted(draw.PICTURES) == sorted(file.name for file in (ROOT / "docs/images").glob("*.svg"))
    for name, picture in draw.PICTURES.items():
        assert (ROOT / "docs/images" / name).read_text(encoding="utf-8") == picture(), (
            f"{name}: python docs/images/draw.py"
        )


def test_every_public_name_has_a_page_of_the_site():
    """What objects.inv has, and other projects' pages link to: the names of the package, from its generated pages alone."""
    made = functions.Functions()
    modules = {"tl": tl, "tl.nn": tl.nn, "tl.data": tl.data, "tl.ops": tl.ops, "tl.paddle": tl.paddle}
    modules |= {"tl.distributed": tl.distributed, "torch_lod.testing": torch_lod.testing}
    modules |= {"tl.integrations.transformers": tl.integrations.transformers}
    public = {f"{prefix}.{name}" for prefix, m in modules.items() for name in m.__all__ if callable(getattr(m, name))}
    assert set(made.entries) == public
    for name, entry in made.entries.items():
        page = made.page(entry, lambda path, page, line: path)
        assert f"{{py:{'class' if name.rpartition('.')[2][0].isupper() else 'function'}}} {name}" in page
        assert entry.summary or entry.signature, name
    listed = {entry.home for entry in made.entries.values()}
    assert listed == {page for pages_ in functions.sections(made).values() for page in pages_ if page in made.homes}
    assert "../docs/recurrence.md" in made.page(made.entries["tl.sequence_scan"], lambda *at, **line: "")


def test_the_gallery_has_every_program_with_its_picture_and_its_time():
    gallery, programs = front.gallery(), sorted((ROOT / "examples/programs").glob("*.py"))
    assert front.dead() == [] and len(programs) >= 5
    for program in programs:
        assert f"(examples/programs/{program.name})" in gallery
    assert gallery.count("times as fast as its twin") == len(front.times()) > 4
    assert all(
        (ROOT / f"docs/images/program_{name}.svg").exists()
        for name in [*front.APPLICATIONS, *front.LARGER.values(), *(program.stem for program in programs)]
    )
    assert front.first_page().count("button-ref") == 3 and front.first_page().count("grid-item-card") == 4


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
