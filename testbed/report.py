"""The HTML report: one file, nothing loaded from elsewhere."""

import json
import pathlib
from collections.abc import Sequence

import jinja2
import markupsafe

from testbed import live_view, plots
from testbed.measurement import DemoResult

TEMPLATE = pathlib.Path(__file__).parent / "report.html.j2"


def template_of(path: pathlib.Path) -> jinja2.Template:
    """Return a template of the report, or of a section of it."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["megabytes"] = live_view.megabytes
    environment.filters["seconds"] = live_view.seconds
    return environment.from_string(path.read_text(encoding="utf-8"))


def render(result: DemoResult | None, sections: Sequence[str] = ()) -> str:
    """Return the report as HTML.

    :param result: None: no guests booted.
    :param sections: HTML that goes before it, made of values that were escaped.
    """
    template = template_of(TEMPLATE)
    figures = [
        (caption, markupsafe.Markup(svg))  # noqa: S704 - drawn by matplotlib from numbers and our titles
        for caption, svg in (plots.all_plots(result) if result else ())
    ]
    texts = [markupsafe.Markup(section) for section in sections]  # noqa: S704 - see above
    return template.render(result=result, figures=figures, sections=texts)


def write(
    result: DemoResult, json_path: pathlib.Path | None, html_path: pathlib.Path | None
) -> None:
    """Write the measurements as JSON and as HTML."""
    if json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(result.as_json(), indent=1) + "\n")
    if html_path is not None:
        html_path.parent.mkdir(parents=True, exist_ok=True)
        html_path.write_text(render(result), encoding="utf-8")
