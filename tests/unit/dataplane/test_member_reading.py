"""A data plane whose origin is made of two directories, read without a guest."""

import pathlib
import re
import shutil

import pytest
from oslo_config import cfg

from acstor import native
from acstor.dataplane import settings
from acstor.dataplane.member_readers import MemberReader, open_members
from acstor.dataplane.origin_source import OriginSource
from acstor.origin.posix import PosixOrigin
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.membership import Membership
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, open_repository, register

NAMES = ("a", "b")
CHUNKS = 12
SIZE = CHUNKS * CHUNK_SIZE


class Machine:
    """A data plane over the members ``a`` and ``b``, both of which have an image.

    :param conf: of the host.
    :param path: an empty directory.
    """

    def __init__(self, conf: cfg.ConfigOpts, path: pathlib.Path) -> None:
        self.roots = {name: path / name for name in NAMES}
        self.roots["a"].mkdir()
        repository = open_repository(PosixOrigin(str(self.roots["a"])))
        register(repository, 0, disk(*range(1, CHUNKS + 1)))
        digest = repository.get_image(image_id(0)).record.manifest
        shutil.copytree(self.roots["a"], self.roots["b"])
        shutil.copy(self.roots["a"] / "manifests" / digest[:2] / digest, path / "manifest")
        source = self._members()
        self.readers = {one.name: one for one in source.members if isinstance(one, MemberReader)}
        given = settings.from_conf(
            conf, version="1", chunk_size=CHUNK_SIZE, origin_posix_root=source.posix_root
        )
        pathlib.Path(given["state_path"]).mkdir(parents=True)
        self.runtime = native.DataPlane(given, source.given)
        self.runtime.attach_image(str(path / "manifest"))

    def _members(self) -> OriginSource:
        stores = {name: PosixOrigin(str(root)) for name, root in self.roots.items()}
        record = Membership("a", stores).create()
        addresses = [MemberAddress(name, f"posix://{root}") for name, root in self.roots.items()]
        by_url = {one.url: stores[one.name] for one in addresses}
        return open_members(addresses, record, {"a"}, 5.0, by_url.__getitem__)

    def packs(self, member: str) -> list[pathlib.Path]:
        return [path for path in (self.roots[member] / "packs").rglob("*") if path.is_file()]

    def pin(self, timeout: float) -> int:
        """Have the whole image read; return the bytes that did not come."""
        pinned = self.runtime.pin_image(image_id(0), SIZE, 0, timeout)
        return int(str(pinned["missing_bytes"]))

    def count(self, metric: str, member: str, outcome: str | None = None) -> int:
        labels = f'member="{member}"' + (f',outcome="{outcome}"' if outcome else "")
        found = re.search(
            rf"^acstor_origin_member_{metric}{{{labels}}} (\d+)$",
            self.runtime.metrics_text(),
            re.MULTILINE,
        )
        assert found is not None, self.runtime.metrics_text()
        return int(found[1])


@pytest.fixture
def machine(conf: cfg.ConfigOpts, path: pathlib.Path) -> Machine:
    return Machine(conf, path)


def test_member_that_is_assigned_is_read_alone(machine: Machine) -> None:
    assert machine.pin(60) == 0
    assert machine.count("calls_total", "a", "ok") > 0
    assert machine.count("calls_total", "b", "ok") == 0 or machine.count("hedges_total", "a") > 0
    assert machine.count("up", "a") == 1


def test_packs_that_a_member_lacks_come_from_the_other(machine: Machine) -> None:
    for pack in machine.packs("a"):
        pack.unlink()
    assert machine.pin(60) == 0
    assert machine.count("calls_total", "a", "not_found") > 0
    assert machine.count("calls_total", "b", "ok") > 0


def test_chunks_that_a_member_has_damaged_come_from_the_other(machine: Machine) -> None:
    for pack in machine.packs("a"):
        pack.write_bytes(bytes(byte ^ 1 for byte in pack.read_bytes()))
    assert machine.pin(60) == 0
    assert machine.count("corrupt_total", "a") > 0
    assert machine.count("corrupt_total", "b") == 0


def test_member_of_another_generation_is_read_once_that_is_told(machine: Machine) -> None:
    for pack in machine.packs("a"):
        pack.unlink()
    machine.runtime.set_member_generation("b", 99)
    assert machine.pin(0.5) == SIZE
    assert machine.count("calls_total", "b", "fenced") > 0
    machine.runtime.set_member_generation("b", 1)
    assert machine.pin(60) == 0
    with pytest.raises(native.DataPlaneError, match="no member c"):
        machine.runtime.set_member_generation("c", 1)


def test_member_that_sleeps_is_not_read_and_is_again_once_it_is_back(machine: Machine) -> None:
    asleep = machine.readers["b"].asleep
    asleep.set()
    machine.runtime.set_member_generation("b", 1)
    packs = {pack: pack.read_bytes() for pack in machine.packs("a")}
    for pack in packs:
        pack.unlink()
    assert machine.pin(0.5) == SIZE, "what it alone has is not known"
    assert machine.count("calls_total", "b", "ok") == 0
    asleep.clear()
    assert machine.pin(60) == 0
    assert machine.count("calls_total", "b", "ok") > 0


def test_member_that_sleeps_keeps_nobody_from_reading_the_other(machine: Machine) -> None:
    machine.readers["b"].asleep.set()
    assert machine.pin(60) == 0
    assert machine.count("calls_total", "b", "ok") == 0


def test_members_that_make_no_sense_are_refused(
    conf: cfg.ConfigOpts, machine: Machine, tmp_path: pathlib.Path
) -> None:
    given = settings.from_conf(conf, version="1", chunk_size=CHUNK_SIZE, origin_posix_root=None)
    given["state_path"] = given["store_path"] = str(tmp_path / "other")
    one = machine._members().members[:1]
    with pytest.raises(native.DataPlaneError, match="their number is 1, allowed is 2 to 4"):
        native.DataPlane(given, list(one))
