"""Projects of what a repository holds: pages of Cinder, names of volumes, answers that are none."""

import json
from typing import Any
from urllib import parse

import pytest
from keystoneauth1 import exceptions

from acstor import exception
from acstor.cli import projects
from acstor.repository.subjects import Kind, Subject


class Answer:
    def __init__(self, body: object) -> None:
        self.content = json.dumps(body).encode()


class PagedAdapter:
    """A Cinder that lists at most two things at once, whatever it is asked for."""

    def __init__(self, kind: str, count: int) -> None:
        self._kind = kind
        self._all: list[dict[str, Any]] = [{"id": f"id-{number}"} for number in range(count)]
        self.asked: list[str] = []

    def get(self, url: str, **_: object) -> Answer:
        self.asked.append(url)
        query = dict(parse.parse_qsl(parse.urlsplit(url).query))
        assert query["all_tenants"] == "1"
        names = [each["id"] for each in self._all]
        start = names.index(query["marker"]) + 1 if "marker" in query else 0
        return Answer({self._kind: self._all[start : start + 2]})


class BrokenAdapter:
    def __init__(self, answer: object) -> None:
        self._answer = answer

    def get(self, url: str, **_: object) -> Answer:
        if isinstance(self._answer, Exception):
            raise self._answer
        return Answer(self._answer)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_every_page_is_read(count: int) -> None:
    adapter = PagedAdapter("snapshots", count)
    found = list(projects.BlockStorage(adapter).list("snapshots"))  # type: ignore[arg-type]
    assert [each["id"] for each in found] == [f"id-{number}" for number in range(count)]
    assert adapter.asked[0].startswith("/snapshots/detail?")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (exceptions.Forbidden(), exception.InvalidError),
        (exceptions.ConnectFailure(), exception.UnavailableError),
        (None, exception.UnavailableError),
        ({"volumes": {}}, exception.UnavailableError),
        ({"volumes": [{"name": "nameless"}]}, exception.UnavailableError),
    ],
)
def test_answer_that_is_none_is_told(answer: object, error: type[exception.AcstorError]) -> None:
    with pytest.raises(error, match="Cinder"):
        list(projects.BlockStorage(BrokenAdapter(answer)).list("volumes"))  # type: ignore[arg-type]


def test_volume_is_known_by_the_name_that_it_has_in_the_repository() -> None:
    of = {"id": "v", "os-vol-tenant-attr:tenant_id": "p"}
    assert projects.volume_of(of) == (Subject(Kind.VOLUME, "v"), "p")
    moved = of | {"os-vol-mig-status-attr:name_id": "w"}
    assert projects.volume_of(moved) == (Subject(Kind.VOLUME, "w"), "p")
    snapshot = {"id": "s", "os-extended-snapshot-attributes:project_id": "p"}
    assert projects.snapshot_of(snapshot) == (Subject(Kind.SNAPSHOT, "s"), "p")
