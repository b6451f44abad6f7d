# SPDX-License-Identifier: Apache-2.0
"""Lines of code by room, and the budgets of docs/design.md: `make size`."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Every room with the pattern of its files and its budget of lines, from the table in docs/design.md.
ROOMS = {
    room: (pattern, int(budget.replace(",", "")))
    for room, pattern, budget in re.findall(
        r"^\| (.+?) \| `(.+?)` \| ([\d,]+) \|$", (ROOT / "docs/design.md").read_text(encoding="utf-8"), re.M
    )
}
SUFFIXES = (".py", ".h", ".cpp", ".cu", ".md")


def lines(path: Path) -> tuple[int, int]:
    """All lines, and those with something on them beside a comment."""
    text = path.read_text(encoding="utf-8").splitlines()
    return len(text), sum(bool(line.strip()) and not line.strip().startswith(("#", "//")) for line in text)


def files_of(room: str) -> list[Path]:
    return [path for path in sorted(ROOT.glob(ROOMS[room][0])) if path.suffix in SUFFIXES]


def main() -> None:
    total = [0, 0, 0]
    print(f"{'room':<26}{'files':>7}{'lines':>9}{'budget':>9}{'code':>9}   longest")
    for room, (_, budget) in ROOMS.items():
        files = {path: lines(path) for path in files_of(room)}
        counts = [len(files), sum(a for a, _ in files.values()), sum(b for _, b in files.values())]
        total = [a + b for a, b in zip(total, counts)]
        longest = max(files, key=lambda path: files[path][0], default=None)
        tail = f"{longest.relative_to(ROOT)} {files[longest][0]}" if longest else ""
        print(f"{room:<26}{counts[0]:>7}{counts[1]:>9}{budget:>9}{counts[2]:>9}   {tail}")
    print(f"{'all':<26}{total[0]:>7}{total[1]:>9}{'':>9}{total[2]:>9}")


if __name__ == "__main__":
    main()
