"""Headings of the documentation: a line that is too short for one is text, and nobody is told."""

import pathlib

import pytest

from testbed.fixtures.documents import SOURCE

LINES = ({"="}, {"-"}, {"~"})
"""Characters that headings are made with here."""


@pytest.mark.parametrize(
    "page", sorted(SOURCE.rglob("*.rst")), ids=lambda page: str(page.relative_to(SOURCE))
)
def test_line_of_a_heading_is_as_long_as_its_text(page: pathlib.Path) -> None:
    lines = page.read_text().splitlines()
    wrong = [
        f"{number}: {above or below}"
        for number, (above, line, below) in enumerate(
            zip(["", *lines], lines, [*lines[1:], ""], strict=False), start=1
        )
        if set(line) in LINES and len(line) < len(above or below)
    ]
    assert wrong == []
