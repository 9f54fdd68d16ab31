"""The page of the image links names tests that exist."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[4]
PAGE = ROOT / "doc" / "source" / "admin" / "image-links.rst"


def test_every_test_that_the_page_names_exists() -> None:
    text = PAGE.read_text()
    named = set(re.findall(r"``(test_\w+)``", text))
    assert len(named) > 25
    sources = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "crates").glob("*/tests/*.rs")]
    defined = {
        name
        for path in sources
        for name in re.findall(r"^\s*(?:def|fn) (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert named - defined == set()
    for path in re.findall(r"``(tests/[\w/]+\.py)``", text):
        assert (ROOT / path).exists(), path


def test_every_hazard_has_a_row() -> None:
    rows = re.findall(r"^   \* - (\d+)$", PAGE.read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == list(range(1, 13))
