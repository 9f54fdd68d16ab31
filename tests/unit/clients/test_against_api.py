"""The client and the contract against the API itself, in one process.

Collected where the tree has ``acstor.api``: ``conftest.py``. Its parts are loaded by name, as the
two may be merged in any order.
"""

import importlib
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from testbed.doubles.contract_api import Example, load_examples
from testbed.doubles.user_cloud import IMAGE_ID, SERVER_ID, UserCloud
from tests.unit.clients.conftest import OpenStackClient, Result, connected

ROLES = {
    "member": "member,reader",
    "manager": "manager,member,reader",
    "admin": "admin,manager,member,reader",
}
"""Roles as Keystone puts them into tokens."""
UNSERVED: dict[tuple[str, str], str] = {}
"""Examples whose path the API has, but not them, each with the reason."""
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class LoggedIn:
    """The API behind a middleware that believes everybody.

    :param setting: ``Setting`` of the API's own tests.
    """

    def __init__(self, setting: Any) -> None:
        application = importlib.import_module("acstor.api.application")
        self.setting = setting
        self.role = "member"
        self._open = application.open_application(setting.routes)

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answer a request with a token, and the version documents to all."""
        if environ["PATH_INFO"].rstrip("/") in ("", "/v1"):
            return self._ask(self._open, environ, start_response)
        caller = {
            "HTTP_X_PROJECT_ID": self.setting.project,
            "HTTP_X_USER_ID": "alice",
            "HTTP_X_ROLES": ROLES[self.role],
        }
        return self._ask(self.setting.app, {**environ, **caller}, start_response)

    @staticmethod
    def _ask(
        app: Callable[..., Iterable[bytes]], environ: dict[str, Any], start: Callable[..., Any]
    ) -> Iterable[bytes]:
        return app(environ, start)


class Session:
    """A user at the OpenStack client, and the API."""

    def __init__(self) -> None:
        self.setting = importlib.import_module("tests.unit.api.setting").Setting()
        self.api = LoggedIn(self.setting)
        self.client = OpenStackClient(connected(UserCloud(self.api)))

    def add_version(self, **fields: Any) -> str:
        """Make a version of the user's server, and return its id."""
        record = importlib.import_module("acstor.repository.versions.record")
        disk = record.DiskName(record.DiskKind.INSTANCE, SERVER_ID, "vda")
        return str(self.setting.add_version(disk=disk, **fields))

    def run(self, line: str) -> Result:
        """Run a command."""
        return self.client.run(f"acstor {line}")

    def json(self, line: str) -> Any:
        """Return what a command prints for programs."""
        result = self.run(f"{line} -f json")
        assert result.status == 0, result.errors
        return json.loads(result.output)


@pytest.fixture
def session() -> Session:
    """A user with one version."""
    found = Session()
    found.add_version(name="before-upgrade")
    return found


def test_versions_are_found_and_described(session: Session) -> None:
    other = session.add_version(name="nightly")
    assert {each["ID"] for each in session.json("version list --limit 1")} >= {other}
    assert len(session.json("version list --server web-1 --sort name:asc")) == 2
    assert session.json("version list --name nightly --unlocked --state committed")
    assert session.json("version list --created-after 2999-01-01T00:00Z") == []
    for change in ("--name good --property a=b", "--property c=d --expires 2999-12-24T18:00"):
        name = "good" if "good" not in change else "before-upgrade"
        assert session.run(f"version set {name} {change}").status == 0
    shown = session.json("version show good")
    assert shown["metadata"] == {"a": "b", "c": "d"}
    assert shown["expires_at"].startswith("2999-12-24")


def test_locks_keep_versions(session: Session) -> None:
    assert session.run("version lock before-upgrade --reason ransomware").status == 0
    assert session.json("version list --locked")
    refused = session.run("version delete before-upgrade")
    assert refused.status == 1
    assert "acstor.version.locked" in refused.errors
    assert "acstor.forbidden" in session.run("version unlock before-upgrade").errors
    session.api.role = "manager"
    assert session.run("version unlock before-upgrade").status == 0
    assert session.run("version delete before-upgrade").status == 0
    assert session.json("version list") == []


def test_disk_is_saved_as_a_file(session: Session, tmp_path: pathlib.Path) -> None:
    images = importlib.import_module("tests.unit.repository.images")
    content = images.disk(1, 0, 2)
    report = images.register(session.setting.versions.repository, 0, content)
    session.add_version(name="full", manifest=report.manifest, size_bytes=len(content))
    saved = tmp_path / "disk.raw"
    shown = session.json(f"version export full --disk-format raw --file {saved}")
    assert saved.read_bytes() == content
    assert shown["size_bytes"] == len(content)
    saved = tmp_path / "disk.qcow2"
    assert session.run(f"version export full --file {saved}").status == 0
    assert saved.read_bytes()[:4] == b"QFI\xfb"


def test_images_of_versions_are_tasks(session: Session) -> None:
    begun = session.json("version export before-upgrade --image golden")
    assert (begun["kind"], begun["state"]) == ("export", "queued")
    booted = session.run("version boot before-upgrade web-2 --flavor m1.small --wait 0.1")
    assert "is still queued" in booted.errors or "goes on" in booted.errors, booted.errors
    kinds = {each["Kind"] for each in session.json("task list")}
    assert {"export", "image"} <= kinds


def test_long_work_is_a_task(session: Session) -> None:
    begun = session.json("version create x --volume data --property a=b --consistency crash")
    task = begun["task_id"]
    assert begun["state"] == "queued"
    assert UUID.fullmatch(begun["result"]["group_id"])
    assert [each["ID"] for each in session.json("task list --state queued")] == [task]
    assert session.run(f"task cancel {task}").status == 0
    assert session.json(f"task show {task}")["state"] == "cancelled"
    assert "was cancelled" in session.run(f"task show {task} --wait 1").errors
    assert session.json("version restore before-upgrade --method rebuild")["kind"] == "restore"


def test_restore_in_place_keeps_the_present_disk(session: Session) -> None:
    refused = session.run("version restore before-upgrade --method in-place --discard-current")
    assert refused.status == 1
    assert "acstor.unsupported" in refused.errors
    assert session.json("task list") == []


def test_server_is_restored_in_place(session: Session, tmp_path: pathlib.Path) -> None:
    flows = importlib.import_module("tests.unit.versions.flows.cloud")
    cloud, setting = flows.Cloud(tmp_path), session.setting
    cloud.use(setting.stores, setting.versions)
    cloud.compute.add(SERVER_ID, setting.project, image=IMAGE_ID)
    begun = session.json("version restore before-upgrade --method in-place")
    cloud.work()
    done = session.json(f"task show {begun['task_id']} --wait")
    assert done["state"] == "done", done
    assert (done["result"]["method"], done["result"]["status"]) == ("in_place", "ACTIVE")
    assert cloud.restores.disks == {SERVER_ID: done["result"]["version_id"]}
    assert cloud.compute.disks == {}


def test_server_is_restored(session: Session, tmp_path: pathlib.Path) -> None:
    shown = session.json("version restore before-upgrade --preview")
    assert (shown["method"], shown["losses"]) == ("rebuild", [])
    assert [shown[name]["is_possible"] for name in ("rebuild", "in_place")] == [True, True]
    flows = importlib.import_module("tests.unit.versions.flows.cloud")
    cloud, setting = flows.Cloud(tmp_path), session.setting
    cloud.use(setting.stores, setting.versions)
    cloud.compute.add(SERVER_ID, setting.project, image=IMAGE_ID)
    begun = session.json("version restore before-upgrade --method auto")
    cloud.work()
    done = session.json(f"task show {begun['task_id']} --wait")
    assert done["state"] == "done", done
    image = cloud.compute.known[SERVER_ID].image
    assert cloud.compute.disks == {SERVER_ID: [image]}
    kept = session.json("version show 'before restore'")
    assert (kept["trigger"], kept["state"]) == ("restore", "committed")
    assert done["result"]["kept_version_id"] == kept["id"]
    assert not cloud.compute.known[SERVER_ID].is_locked


def test_schedules_are_kept(session: Session) -> None:
    weekly = "schedule create weekly --every week --on 1 --at 02:30 --keep-last 3 --keep-within 3d"
    assert session.json(weekly)["keep"] == {"last": 3, "within": "3d"}
    assert session.run(weekly).status == 1, "its name is taken"
    assert session.run("schedule create none --every week").status == 1, "on no day"
    assert session.run("schedule target add weekly --server web-1").status == 0
    assert {each["Fate"] for each in session.json("schedule preview weekly")} >= {"to be taken"}
    assert session.run("schedule set weekly --disable --name rare").status == 0
    assert session.json("schedule show rare")["is_enabled"] is False
    assert [each["Targets"] for each in session.json("schedule list")] == [1]
    assert session.run("schedule target remove rare --server web-1").status == 0
    assert session.run("schedule delete rare").status == 0


def test_a_project_has_defaults_and_usage(session: Session) -> None:
    session.api.role = "manager"
    line = "defaults set --on-delete --version-on shutdown --version-on quota --keep-daily 3"
    assert session.run(line).status == 0
    assert session.run("defaults set --version-on none").status == 0
    assert session.json("defaults show") == {
        "version_on": [],
        "version_keep": {"daily": 3},
        "on_delete": True,
    }
    assert session.json("usage show")["versions"] == 1


def routes() -> Iterator[tuple[str, re.Pattern[str], Any]]:
    """Yield the operations of the API: method, paths, description."""
    for route in Session().setting.routes:
        pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", route.path) + r"\Z")
        for method, operation in route.operations():
            yield method, pattern, operation


@pytest.fixture(scope="module")
def operations() -> list[tuple[str, re.Pattern[str], Any]]:
    """Operations of the API."""
    return list(routes())


@pytest.mark.parametrize(
    "example", load_examples(), ids=lambda each: f"{each.resource}: {each.name}"
)
def test_the_contract_fits_the_schemas(
    example: Example, operations: list[tuple[str, re.Pattern[str], Any]]
) -> None:
    validation = importlib.import_module("acstor.api.validation")
    method, path = example.request["method"], example.request["path"]
    if (example.resource, example.name) in UNSERVED:
        return
    for known, pattern, operation in operations:
        if known != method or not pattern.match(path):
            continue
        if "body" in example.request:
            validation.check(example.request["body"], operation.body, "body")
        query = {
            name: value[0] if len(value) == 1 else value for name, value in example.query.items()
        }
        validation.query_of(query, operation.query)
        status, body = example.response["status"], example.response.get("body")
        if status < 400:
            schema = operation.answers[status]
            is_json = schema is not None and schema is not validation.BYTES
            assert is_json == (body is not None)
            if is_json:
                validation.check(body, schema, "answer")


def test_exceptions_are_examples_with_a_reason() -> None:
    names = {(each.resource, each.name) for each in load_examples()}
    assert set(UNSERVED) <= names
    assert all(UNSERVED.values())
