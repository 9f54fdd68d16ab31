"""The page of guarantees names tests; they are there."""

import re

from testbed.fixtures.documents import ROOT, SOURCE

PAGE = SOURCE / "user" / "durability.rst"


def test_tests_that_the_page_names_are_there() -> None:
    named = re.findall(r"``(tests/[\w/]+\.py)::(\w+)``", PAGE.read_text())
    assert len(named) > 10
    for path, name in named:
        assert re.search(rf"(?m)^def {name}\(", (ROOT / path).read_text()), f"{path}::{name}"
