"""The storm's section of the report, and the report's JSON."""

import io
import json
import pathlib
from collections.abc import Mapping, Sequence

import jinja2
import markupsafe
import matplotlib as mpl
from matplotlib.figure import Figure

from bench.quickstart.many_hosts import StormReport
from testbed import live_view
from testbed import report as demo_report
from testbed.approaches.names import APPROACHES
from testbed.measurement import DemoResult

mpl.use("svg")

TEMPLATE = pathlib.Path(__file__).parent / "storm.html.j2"
FORMAT = "acstor-quickstart-report"
FORMAT_VERSION = 1
_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0")
_SIZE_INCHES = (7.5, 3.4)


def section_of(report: StormReport) -> str:
    """Return the storm as HTML, to be put into the report."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["megabytes"] = live_view.megabytes
    environment.filters["seconds"] = live_view.seconds
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    figure = markupsafe.Markup(_drawing(report))
    return template.render(report=report, titles=titles(report.storms), figure=figure)


def titles(names: Mapping[str, object] | Sequence[str]) -> dict[str, str]:
    """Return the titles of approaches by their names."""
    return {name: APPROACHES[name].title for name in names}


def _drawing(report: StormReport) -> str:
    """Draw a bar for each host and approach."""
    hosts, names = report.hosts(), list(report.storms)
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / max(1, len(names))
    for index, name in enumerate(names):
        places = [number - 0.4 + width * (index + 0.5) for number in range(len(hosts))]
        heights = [host.boot_s[name] or 0.0 for host in hosts]
        axes.bar(places, heights, width * 0.9, color=_COLOURS[index % len(_COLOURS)],
                 label=APPROACHES[name].title)  # fmt: skip
    labels = [f"{host.name}\nbusy" if host.is_busy else host.name for host in hosts]
    axes.set_xticks(range(len(hosts)), labels)
    axes.set_ylabel("s")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    output = io.StringIO()
    figure.savefig(output, format="svg")
    text = output.getvalue()
    return text[text.index("<svg") :]  # the XML prologue has no place inside of HTML


def write(
    guests: DemoResult | None,
    storm: StormReport,
    json_path: pathlib.Path | None,
    html_path: pathlib.Path | None,
) -> None:
    """Write the measurements as JSON and as HTML."""
    document = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "guests": None if guests is None else guests.as_json(),
        "storm": storm.as_json(),
    }
    pages = (
        (json_path, json.dumps(document, indent=1) + "\n"),
        (html_path, demo_report.render(guests, [section_of(storm)])),
    )
    for path, text in pages:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
