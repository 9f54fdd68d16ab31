"""Arguments that all lists have: pages, order, projects."""

import argparse
from typing import Any

from osc_lib.cli import parseractions

LIMIT_MAX = 1000
"""Most entries of a page, of the API."""


def add_pages(parser: argparse.ArgumentParser) -> None:
    """Add ``--limit``, ``--marker`` and ``--max-items``."""
    parser.add_argument(
        "--limit",
        metavar="<limit>",
        type=int,
        action=parseractions.NonNegativeAction,
        help=f"Entries of a page, {LIMIT_MAX} at most; all pages are listed",
    )
    parser.add_argument(
        "--marker", metavar="<marker>", help="ID of the entry after which the list begins"
    )
    parser.add_argument(
        "--max-items",
        metavar="<max-items>",
        type=int,
        action=parseractions.NonNegativeAction,
        help="Entries that are listed in all (default: all)",
    )


def add_listing(parser: argparse.ArgumentParser) -> None:
    """Add those, ``--sort``, ``--all-projects`` and ``--project``."""
    add_pages(parser)
    parser.add_argument(
        "--sort",
        metavar="<key>[:<direction>]",
        type=_order,
        help="Key and direction (asc or desc) of the order, such as created_at:desc",
    )
    parser.add_argument(
        "--all-projects", action="store_true", default=None, help="Of all projects (admin only)"
    )
    parser.add_argument("--project", metavar="<project-id>", help="Of this project (admin only)")


def pages_query(parsed_args: argparse.Namespace) -> dict[str, Any]:
    """Return the query of the arguments of pages."""
    limit = parsed_args.limit or None
    most = parsed_args.max_items
    if limit is None and most is not None:
        limit = min(max(most, 1), LIMIT_MAX)
    return {"limit": limit, "marker": parsed_args.marker}


def listing_query(parsed_args: argparse.Namespace) -> dict[str, Any]:
    """Return the query of all arguments of a list."""
    key, direction = parsed_args.sort or (None, None)
    return {
        **pages_query(parsed_args),
        "sort_key": key,
        "sort_dir": direction,
        "all_projects": parsed_args.all_projects,
        "project_id": parsed_args.project,
    }


def _order(text: str) -> tuple[str, str]:
    key, _, direction = text.partition(":")
    if not key or (direction or "asc") not in ("asc", "desc"):
        raise argparse.ArgumentTypeError(f"{text!r} is not <key>, <key>:asc or <key>:desc")
    return key, direction or "asc"
