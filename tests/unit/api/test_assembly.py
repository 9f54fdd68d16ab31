"""The API as a configuration makes it: database, origin, Keystone's middleware."""

import pathlib
import runpy
from collections.abc import Iterator

import pytest
from falcon import testing
from keystonemiddleware import fixture
from oslo_config import cfg

from acstor import exception
from acstor.api import assembly
from acstor.api.quotas import UnifiedLimits, Unlimited
from acstor.conf import loading
from acstor.origin.posix import PosixOrigin
from acstor.repository.repository import Repository
from acstor.repository.versions.store import VersionStore
from acstor.versions.database import index_refresh, schema
from acstor.versions.database.opening import open_database, open_stores
from tests.unit.repository.images import CHUNK_SIZE
from tests.unit.repository.versions.records import committed, version_id

PROJECT = "9b2e4d6f80a14c35b7d9e1f203a5c7e9"
FILE = """
[database]
connection = sqlite:///{folder}/acstor.sqlite
[origin]
url = posix://{folder}/origin
[keystone]
auth_type = password
auth_url = http://keystone.example
username = acstor
password = secret
[keystone_authtoken]
www_authenticate_uri = http://keystone.example
"""


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a configuration file, whose database has its tables."""
    path = tmp_path / "acstor.conf"
    path.write_text(FILE.format(folder=tmp_path))
    schema.upgrade(open_database(loaded(path)))
    return path


@pytest.fixture
def tokens() -> Iterator[fixture.AuthTokenFixture]:
    """Return Keystone's double, which knows a reader."""
    with fixture.AuthTokenFixture() as found:
        found.add_token_data(
            "one", user_id="u", project_id=PROJECT, project_name="p", role_list=["reader"]
        )
        yield found


def loaded(path: pathlib.Path) -> cfg.ConfigOpts:
    """Return the configuration of a file."""
    return loading.load("acstor-api", ["--config-file", str(path)])


@pytest.mark.usefixtures("tokens")
def test_versions_of_the_origin_are_served(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    conf = loaded(file)
    app = assembly.build(conf)
    headers = {"X-Auth-Token": "one"}
    answer = testing.simulate_get(app, "/v1/versions", headers=headers)
    assert answer.json == {"versions": [], "links": []}
    (tmp_path / "origin").mkdir()
    repository = Repository.init(PosixOrigin(str(tmp_path / "origin")), CHUNK_SIZE)
    VersionStore(repository).publish(version_id(1), committed(project=PROJECT))
    index_refresh.rebuild(open_stores(conf).versions, repository.origin)
    answer = testing.simulate_get(app, "/v1/versions", headers=headers)
    assert [each["id"] for each in answer.json["versions"]] == [version_id(1)]


@pytest.mark.usefixtures("tokens")
def test_lists_go_on_without_the_origin(file: pathlib.Path) -> None:
    app = assembly.build(loaded(file))
    headers = {"X-Auth-Token": "one"}
    assert testing.simulate_get(app, "/v1/tasks", headers=headers).status_code == 200


@pytest.mark.parametrize("line", ["connection = sqlite:///{folder}/acstor.sqlite", "auth_type"])
def test_missing_settings_are_told_at_the_start(
    file: pathlib.Path, tmp_path: pathlib.Path, line: str
) -> None:
    text = file.read_text()
    wrong = line.format(folder=tmp_path)
    assert wrong in text
    file.write_text(text.replace(wrong, f"# {wrong}"))
    with pytest.raises(exception.ConfigurationError):
        assembly.build(loaded(file))


def test_tables_of_another_release_are_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "acstor.conf"
    path.write_text(FILE.format(folder=tmp_path))
    with pytest.raises(exception.UnsupportedError):
        assembly.build(loaded(path))


def test_limits_are_as_configured(file: pathlib.Path) -> None:
    conf = loaded(file)
    stores = open_stores(conf)
    assert isinstance(assembly.quotas_of(conf, stores), Unlimited)
    conf.set_override("use_unified_limits", True, "api")
    assert isinstance(assembly.quotas_of(conf, stores), UnifiedLimits)


def test_wsgi_module_has_the_application(
    file: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACSTOR_CONFIG", str(file))
    found = runpy.run_module("acstor.wsgi.api")["application"]
    assert testing.simulate_get(found, "/v1/").json["version"]["id"] == "v1"
    assert testing.simulate_get(found, "/v1/versions").status_code == 401
    document = testing.simulate_get(found, "/v1/openapi.json").json
    assert len(document["paths"]) == len(assembly.TABLE)
