"""The storm's section of the report, and the report's JSON."""

import json
import pathlib

import markupsafe
from matplotlib.axes import Axes

from bench.quickstart.many_hosts import StormReport
from testbed import plots
from testbed import report as demo_report
from testbed.approaches.names import APPROACHES
from testbed.measurement import DemoResult

TEMPLATE = pathlib.Path(__file__).parent / "storm.html.j2"
FORMAT = "acstor-quickstart-report"
FORMAT_VERSION = 1


def section_of(report: StormReport) -> str:
    """Return the storm as HTML, to be put into the report."""
    template = demo_report.template_of(TEMPLATE)
    figure = markupsafe.Markup(plots.svg(_boot_times, report))
    titles = {name: APPROACHES[name].title for name in report.storms}
    return template.render(report=report, titles=titles, figure=figure)


def _boot_times(axes: Axes, report: StormReport) -> None:
    """Draw a bar for each host and approach."""
    hosts, names = report.hosts(), list(report.storms)
    width = 0.8 / max(1, len(names))
    for index, name in enumerate(names):
        places = [number - 0.4 + width * (index + 0.5) for number in range(len(hosts))]
        heights = [host.boot_s[name] or 0.0 for host in hosts]
        label = APPROACHES[name].title
        axes.bar(places, heights, width * 0.9, color=plots.colour(index), label=label)
    labels = [f"{host.name}\nbusy" if host.is_busy else host.name for host in hosts]
    axes.set_xticks(range(len(hosts)), labels)
    axes.set_ylabel("s")
    axes.legend(frameon=False)


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
