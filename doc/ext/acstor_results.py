"""Draws results of record into the documentation, before Sphinx reads it.

For every file of ``bench/results`` that has a plot there is an SVG file of the same place and name
below ``doc/source/contributor``, and of those in ``simulator`` one page of tables. Git ignores all
of them. A page shows a table of a record with ``.. results-table:: FILE TABLE``: the file without
its ending, below ``bench/results``.
"""

import pathlib
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from sim import page
from testbed.results import drawing, record
from testbed.results.record import DIRECTORY, RecordError
from testbed.results.tables import rst_of

PAGES = pathlib.PurePath("contributor")
"""Below the documentation's sources."""
_CODE = (drawing, record, page)


def drawings() -> Iterator[tuple[pathlib.Path, pathlib.PurePath]]:
    """Yield each record that has a plot, and its drawing below the documentation's sources.

    :raises RecordError: when a file is no record.
    """
    for path in sorted(DIRECTORY.rglob("*.json")):
        if record.read(path).plot is not None:
            yield path, PAGES / path.relative_to(DIRECTORY).with_suffix(".svg")


def make_all(source: pathlib.Path) -> int:
    """Draw what is missing or older than its record or our code; return how many were drawn.

    :param source: of the documentation.
    """
    code = max(pathlib.Path(str(module.__file__)).stat().st_mtime for module in _CODE)
    count = 0
    for path, name in drawings():
        drawn = source / name
        if not drawn.exists() or drawn.stat().st_mtime <= max(code, path.stat().st_mtime):
            drawing.draw(record.read(path), drawn)
            count += 1
    results = source / PAGES / "simulator" / "results.rst"
    text = page.render(DIRECTORY / "simulator")
    if not results.exists() or results.read_text() != text:
        results.parent.mkdir(parents=True, exist_ok=True)
        results.write_text(text)
    return count


class ResultsTable(SphinxDirective):
    """A table of a result of record."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Return the table; what is missing is an error, which fails a build."""
        file, name = self.arguments
        path = DIRECTORY / f"{file}.json"
        self.env.note_dependency(str(path))
        try:
            tables = record.read(path).tables
            if name not in tables:
                raise RecordError(f"{path} has no table {name}", hint=f"it has {', '.join(tables)}")
        except RecordError as error:
            raise self.error(f"{error.message}; {error.hint}") from error
        container = nodes.Element()
        lines = StringList(rst_of(tables[name]).splitlines(), source=str(path))
        self.state.nested_parse(lines, self.content_offset, container)
        return list(container.children)


def setup(app: Sphinx) -> dict[str, Any]:
    """Draw everything when a builder begins."""
    app.connect("builder-inited", lambda started: make_all(pathlib.Path(started.srcdir)))
    app.add_directive("results-table", ResultsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
