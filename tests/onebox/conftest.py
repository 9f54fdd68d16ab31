"""One one-box, its images and its order of tests, for every module of this folder."""

import dataclasses
import os
import pathlib
import secrets
from collections.abc import Iterator

import pytest

from acstorclient import service
from testbed import exception
from testbed.fixtures.cloud_api import Template
from testbed.fixtures.instances import FLAVOR, LARGER_FLAVOR, Instances, instances_of
from testbed.fixtures.one_box import RunningBox, attached
from testbed.fixtures.tiny_guest import MEMORY_MIB, build_tiny_guest
from testbed.fixtures.version_user import VersionUser
from testbed.fixtures.volumes import Volumes, volumes_of
from testbed.run_directory import DEFAULT_ROOT

HERE = pathlib.Path(__file__).parent
GUESTS = DEFAULT_ROOT / "guests"
TEST_TIMEOUT_S = 1200
LAST_MODULES = ("test_volume_faults", "test_without_acstor", "test_bad_luck")
"""Modules that take services down: they come after those that need the services."""
SIDE_BY_SIDE = (
    "test_image_life",
    "test_moves",
    "test_networks",
    "test_servers",
    "test_snapshots",
    "test_version_restores",
    "test_versions",
    "test_volume_moves",
    "test_volume_types",
    "test_volumes",
)
"""Modules of what users do to their own servers and volumes, at the same time if need be."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the disruptive tests last; give each the time that emulated guests need.

    Mark those that need not have the one-box for themselves.
    """
    for item in items:
        if HERE not in item.path.parents:
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))
        if item.path.stem in SIDE_BY_SIDE and not {"disruptive", "alone"} & set(item.keywords):
            item.add_marker("side_by_side")
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    if HERE not in item.path.parents:
        return 0
    if item.path.stem in LAST_MODULES:
        return 3 + LAST_MODULES.index(item.path.stem)
    return 2 if "disruptive" in item.keywords else 1


@pytest.fixture(scope="package")
def whole_box() -> Iterator[RunningBox]:
    """The one-box that runs on this machine."""
    try:
        with attached() as found:
            found.wait_settled()
            yield found
    except exception.TestbedError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.fixture
def box(whole_box: RunningBox, request: pytest.FixtureRequest) -> Iterator[RunningBox]:
    """The one-box; the test must leave every service of it running."""
    whole_box.begin(request.node.name.removeprefix("test_"))
    try:
        yield whole_box
    finally:
        whole_box.end()
    whole_box.wait_settled()


@pytest.fixture(scope="package")
def flavors(whole_box: RunningBox) -> None:
    """The sizes of the tiny guests."""
    whole_box.api.flavor(FLAVOR, MEMORY_MIB, 1)
    whole_box.api.flavor(LARGER_FLAVOR, MEMORY_MIB + 32, 2)


def _uploaded(box: RunningBox, work: pathlib.Path, name: str, seed: int) -> Iterator[Template]:
    guest = build_tiny_guest(GUESTS, work, seed)
    template = box.api.upload_guest(guest, name)
    try:
        box.wait_planted(template.id)
        yield template
    finally:
        for image_id in (template.id, template.kernel_id, template.ramdisk_id):
            box.api.delete_image(image_id)


@pytest.fixture(scope="package")
def tiny(
    whole_box: RunningBox, flavors: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Template]:
    """A tiny guest's image, planted on every host."""
    yield from _uploaded(whole_box, tmp_path_factory.mktemp("tiny"), "tiny", seed=1)


@pytest.fixture(scope="package")
def other_tiny(
    whole_box: RunningBox, flavors: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Template]:
    """Another guest's image with other files, planted on every host."""
    yield from _uploaded(whole_box, tmp_path_factory.mktemp("other"), "other-tiny", seed=2)


@pytest.fixture
def instances(box: RunningBox) -> Iterator[Instances]:
    """Servers of the test, deleted when it ends."""
    with instances_of(box) as made:
        yield made


@pytest.fixture
def volumes(box: RunningBox) -> Iterator[Volumes]:
    """Volumes of the test, deleted when it ends."""
    with volumes_of(box) as made:
        yield made


@pytest.fixture
def user(box: RunningBox) -> Iterator[VersionUser]:
    """A user of the administrator's project who is no administrator."""
    name = f"vera-{secrets.token_hex(4)}"
    with box.ordinary_user(name) as api:
        found = VersionUser(box, name, service.attach(api.connection))
        yield found
        found.delete_all()


@pytest.fixture
def unseen(box: RunningBox, tiny: Template, tmp_path: pathlib.Path) -> Template:
    """An image none of whose files any host has chunks of: not from an image before it either."""
    guest = build_tiny_guest(GUESTS, tmp_path, seed=secrets.randbelow(1 << 31))
    return box.fresh(dataclasses.replace(tiny, guest=guest))
