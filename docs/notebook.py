# SPDX-License-Identifier: Apache-2.0
"""Writes docs/tutorial.ipynb from the pages of docs/tutorial: `make docs`. What a page prints is the output of the cell."""

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
_BLOCK = re.compile(r"```(python|text)\n(.*?)```\n", re.S)


def _linked(text: str) -> str:
    """Links of a page in docs/tutorial, as a file in docs writes them; that to the notebook itself is text."""
    text = re.sub(r"\[([^\]]*)\]\(\.\./tutorial\.ipynb\)", r"\1", text)
    text = re.sub(r"\]\((?!\.\./|https?:)", "](tutorial/", text)
    return text.replace("](../", "](")


def _cells(page: Path) -> list[dict]:
    cells: list[dict] = []
    text, end = page.read_text(encoding="utf-8"), 0
    for block in [*_BLOCK.finditer(text), None]:
        prose = text[end : block.start() if block else len(text)].strip()
        if prose:
            cells.append({"cell_type": "markdown", "metadata": {}, "source": _linked(prose)})
        if block and block[1] == "python":
            code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
            cells.append({**code, "source": block[2].rstrip("\n")})
        elif block:
            cells[-1]["outputs"] = [{"name": "stdout", "output_type": "stream", "text": block[2]}]
        end = block.end() if block else end
    return [{"id": f"{page.stem[0]}-{n}", **cell} for n, cell in enumerate(cells)]


def notebook() -> str:
    cells = [cell for page in sorted(HERE.glob("tutorial/*.md")) for cell in _cells(page)]
    language = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": language}
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    (HERE / "tutorial.ipynb").write_text(notebook(), encoding="utf-8")
