"""Sentences of the plug-in that are translated, as its sources have them."""

import ast
import pathlib
import re
from collections.abc import Iterator

from babel.messages import extract
from django.utils.translation import template

from testbed.fixtures.documents import ROOT

PLUGIN = ROOT / "dashboard" / "acstor_dashboard"
KEYWORDS = {"_": None, "gettext": None, "gettext_lazy": None, "ngettext": (1, 2)}
"""Functions whose texts are translated."""
STRING = r"u?('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
SINGULAR = re.compile(rf"(?<!n)gettext\({STRING}\)")
PLURAL = re.compile(rf"ngettext\({STRING}, {STRING},")

Sentence = str | tuple[str, str]
"""A text, or singular and plural."""


def of_python(path: pathlib.Path) -> Iterator[Sentence]:
    """Yield the sentences of a module."""
    with path.open("rb") as file:
        for found in extract.extract("python", file, KEYWORDS):
            text = found[1]
            yield (str(text[0]), str(text[1])) if isinstance(text, tuple) else str(text)


def of_template(path: pathlib.Path) -> Iterator[Sentence]:
    """Yield the sentences of a template."""
    code = template.templatize(path.read_text())
    for match in SINGULAR.finditer(code):
        yield str(ast.literal_eval(match[1]))
    for match in PLURAL.finditer(code):
        yield str(ast.literal_eval(match[1])), str(ast.literal_eval(match[2]))


def all_sentences() -> list[Sentence]:
    """Return every sentence once, in the order of the files."""
    found: dict[Sentence, None] = {}
    for path in sorted(PLUGIN.rglob("*.py")):
        found.update(dict.fromkeys(of_python(path)))
    for path in sorted(PLUGIN.rglob("*.html")):
        found.update(dict.fromkeys(of_template(path)))
    return list(found)
