"""The page of results, rendered from the results of record when the documentation is built.

Needs nothing that only the simulator needs.
"""

import pathlib
from collections.abc import Iterator

from testbed.results import record
from testbed.results.record import Record
from testbed.results.tables import rst_of

ORDER = (
    "table-1", "figure-6", "figure-7", "figure-8", "figure-9-web-server", "figure-9-web-proxy",
    "figure-9-video-server", "figure-10", "figure-11", "best-case", "grid", "read-path",
    "left-share", "in-order", "tcp", "policies", "onset", "oscillation", "square-wave", "liars",
    "half-leaves", "hosts-1000", "hosts-10000", "testbed-32",
)  # fmt: skip
"""Scenarios of the page."""
UNRECORDED: tuple[str, ...] = (
    "known-image", "new-image", "never-slower", "never-slower-warm", "rack-partners",
    "wrong-profile",
)  # fmt: skip
"""Scenarios that have no results of record yet."""
_HEAD = """\
==========================
Results from the simulator
==========================

Drawn from the results of record in ``bench/results/simulator``, which ``python -m sim record`` writes.
What is simulated, and what is not, is said in :doc:`/contributor/simulator`; how targets are met
is said there, too. Figures are medians over the seeds, with the lowest and the highest of the first
column of figures.

"""  # noqa: E501 - lines of the page


def render(directory: pathlib.Path) -> str:
    """Return the page in reStructuredText; drawings are expected beside it.

    :param directory: of the records, one for each scenario.
    :raises RecordError: when one is missing or malformed.
    """
    records = (record.read(directory / f"{name}.json") for name in ORDER)
    sections = "".join("\n".join(_section(one)) + "\n" for one in records)
    return _HEAD + sections + _unrecorded()


def _unrecorded() -> str:
    if not UNRECORDED:
        return ""
    title = "Scenarios without results of record"
    names = ", ".join(f"``{name}``" for name in UNRECORDED)
    return f"{title}\n{'=' * len(title)}\n\nNot run in full yet: {names}.\n"


def _section(found: Record) -> Iterator[str]:
    name = found.conditions["scenario"]
    yield f"{found.title}\n{'=' * len(found.title)}\n"
    if found.about:
        yield f"{found.about}\n"
    runs, per_point = found.conditions["runs"], found.conditions["per_point"]
    yield f"Scenario ``{name}``; {runs} runs, {per_point} per point.\n"
    if found.plot is not None:
        yield f".. image:: {name}.svg\n   :alt: {found.title}\n   :width: 100%\n"
    for table in found.tables.values():
        if table.caption:
            yield f"{table.caption}\n"
        yield rst_of(table)
    for note in found.notes:
        yield f"{note}\n"
