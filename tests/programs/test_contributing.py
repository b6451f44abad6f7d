# SPDX-License-Identifier: Apache-2.0
"""CONTRIBUTING.md as it stands: its recipes give an operator that every law holds for, and no step can be left out."""

import pytest
from recipe import ROOT, copy, counted, edits, hold, run

COMPOSED = "An operator composed of others"
STEPS = edits(COMPOSED)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the checkout, in which a test undoes what it does."""
    folder = tmp_path_factory.mktemp("tree")
    copy(folder)
    return folder


@pytest.fixture
def done(tree, request):
    """The steps but one, if the test says which."""
    without = getattr(request, "param", None)
    files = {step.file: (tree / step.file).read_text() for step in STEPS}
    files |= {f"docs/{page}": (tree / "docs" / page).read_text() for page in ("reference.md", "matrix.md")}
    for i, step in enumerate(STEPS):
        if i != without:
            step.apply(tree)
    yield tree
    for file, text in files.items():
        (tree / file).write_text(text)


def test_a_composed_operator_by_the_recipe(done):
    made = run(done, "docs/build.py")
    assert made.returncode == 0, made.stderr
    held = hold(done, "sequence_difference")
    assert held.returncode == 0, held.stdout[-4000:] + held.stderr[-1000:]
    print(f"\n{COMPOSED}: {counted(STEPS)}")


@pytest.mark.parametrize("done", range(len(STEPS)), indirect=True, ids=[f"{i} {s.file}" for i, s in enumerate(STEPS)])
def test_no_step_can_be_left_out(done):
    run(done, "docs/build.py")
    assert hold(done, "sequence_difference").returncode != 0


def test_documentation_has_to_be_made(done):
    assert hold(done, "sequence_difference").returncode != 0


def test_the_recipes_name_every_room():
    files = {step.file for title in (COMPOSED, "An operator with a kernel") for step in edits(title)}
    assert len(files) >= 12 and all((ROOT / file).is_file() for file in files)
