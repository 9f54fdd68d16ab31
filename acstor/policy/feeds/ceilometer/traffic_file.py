"""The file that tells the operator who on a host causes its traffic.

Written by a policy service beside its journal, read by ``acstor policy explain``. The page is
``doc/source/reference/formats/instance-traffic.rst``.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from acstor import exception, untrusted_json
from acstor.files import write_atomically
from acstor.policy.feeds.ceilometer.instances import InstanceRate
from acstor.policy.feeds.ceilometer.samples import is_amount

VERSION = 1
FILE_NAME = "instance-traffic.json"
INSTANCES_MAX = 10
"""Instances of one host in the file."""
SIZE_MAX = 64 << 20


def encode(rates: Mapping[str, Sequence[InstanceRate]], written_at_ms: int) -> bytes:
    """Return the content of a file.

    :param rates: by host, those of most first.
    """
    hosts = {
        host: [
            {
                "instance": each.instance,
                "name": each.name,
                "project": each.project,
                "received": round(each.received),
                "sent": round(each.sent),
            }
            for each in found[:INSTANCES_MAX]
        ]
        for host, found in sorted(rates.items())
    }
    content = {"version": VERSION, "written_at_ms": written_at_ms, "hosts": hosts}
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def parse(content: bytes) -> dict[str, list[InstanceRate]]:
    """Return the rates by host.

    :raises UnsupportedError: for another version.
    :raises CorruptError: for anything that no policy service writes.
    """
    try:
        found = untrusted_json.load(content, FILE_NAME)
        if found["version"] != VERSION:
            raise exception.UnsupportedError(f"instance traffic of version {found['version']!r:.9}")
        return {
            str(host): [_rate(entry) for entry in entries]
            for host, entries in found["hosts"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise exception.CorruptError(f"{FILE_NAME}: {error}") from error


def write(path: str, rates: Mapping[str, Sequence[InstanceRate]], written_at_ms: int) -> None:
    """Replace the file.

    :raises OSError: when it cannot be written.
    """
    write_atomically(path, encode(rates, written_at_ms))


def read_beside(journal_path: str) -> dict[str, list[InstanceRate]]:
    """Return the rates in the file beside a journal; none where there is no such file.

    :raises CorruptError: as in :func:`parse`.
    :raises OSError: when it cannot be read.
    """
    path = os.path.join(os.path.dirname(journal_path), FILE_NAME)
    try:
        with open(path, "rb") as opened:
            return parse(opened.read(SIZE_MAX))
    except FileNotFoundError:
        return {}


def _rate(entry: Any) -> InstanceRate:
    texts = [entry[name] for name in ("instance", "name", "project")]
    numbers = [entry[name] for name in ("received", "sent")]
    if not all(isinstance(text, str) for text in texts) or not all(map(is_amount, numbers)):
        raise ValueError(f"entry {entry!r:.100}")
    return InstanceRate(*texts, *map(float, numbers))
