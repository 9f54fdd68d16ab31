"""The reconciler: what the agent's looks ask of the links, and are told."""

import os
import pathlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oslo_config import cfg
from oslo_log import log

from acstor.agent.reconciler import HostSnapshot, ImageUser
from acstor.agent.reconcilers import image_links
from acstor.agent.reconcilers.image_links import OVERDUE_SECONDS, ImageLinksReconciler
from acstor.agent.reconcilers.usage_publication import LocalUse
from acstor.cluster.membership import View
from acstor.conf import loading
from acstor.control.client import AdminClient
from acstor.drivers.nova.image_links import known_links, overlay_scan
from acstor.drivers.nova.image_links.file_operations import FileOperations
from acstor.drivers.nova.image_links.known_links import KnownLinks
from acstor.drivers.nova.image_links.local_directory import local_path
from acstor.drivers.nova.image_links.only_linker import OnlyLinker
from acstor.origin.faulty import FaultyOrigin
from acstor.origin.memory import MemoryOrigin
from acstor.repository.images.usage import base_name
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.nova_host import NovaHost
from tests.unit.agent.conftest import Clock
from tests.unit.drivers.nova.conftest import IMAGE, OTHER

pytestmark = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing")

MakeConf = Callable[..., cfg.ConfigOpts]


@pytest.fixture
def make_conf(tmp_path: pathlib.Path, nova: NovaHost, mount: pathlib.Path) -> MakeConf:
    def make(*, enabled: bool = True, agent: str = "") -> cfg.ConfigOpts:
        path = tmp_path / "acstor.conf"
        path.write_text(
            f"""
[DEFAULT]
host = h1
state_path = {tmp_path}/state
[dataplane]
mount_point = {mount}
[peer]
tls_enabled = false
[image_links]
enabled = {enabled}
nova_config_file = {nova.config}
[agent]
{agent}
"""
        )
        return loading.load("test", ["--config-file", str(path)], log.register_options)

    return make


class Deployed:
    """A reconciler, an origin, and sights of them."""

    def __init__(self, conf: cfg.ConfigOpts, **options: Any) -> None:
        self.origin = FaultyOrigin(MemoryOrigin())
        self.clock = Clock()
        self.counts: dict[str, int] = {}
        self.reconciler = ImageLinksReconciler(
            conf,
            options.pop("known", KnownLinks()),
            count_links=self.counts.update,
            clock=self.clock,
            **options,
        )

    def snapshot(self, registered: set[str] | None, **changes: Any) -> HostSnapshot:
        ids = registered or set()
        fields: dict[str, Any] = {
            "host": "h1",
            "data_plane": AdminClient("/absent"),
            "status": {"fuse": {"connected": True}},
            "origin": self.origin,
            "generation": 1,
            "is_draining": False,
            "view": View(),
            "registered": None if registered is None else frozenset(registered),
            "offered": dict.fromkeys(ids, "manifest"),
            "pinned": frozenset(ids),
        }
        return HostSnapshot(**{**fields, **changes})

    def reconcile(self, registered: set[str] | None, **changes: Any) -> dict[str, str]:
        """Look, wait for the look at the links, and return the problems that it led to."""
        snapshot = self.snapshot(registered, **changes)
        done = self.reconciler._done
        self.reconciler.reconcile(snapshot)
        wait_for("a look at the links", lambda: self.reconciler._done is not done)
        return dict(self.reconciler.reconcile(snapshot))


@pytest.fixture
def deployed(make_conf: MakeConf) -> Iterator[Deployed]:
    deployed = Deployed(make_conf())
    deployed.reconciler.start()
    yield deployed
    deployed.reconciler.stop(10)


def test_reconciler_is_one_that_needs_images(deployed: Deployed) -> None:
    assert isinstance(deployed.reconciler, ImageUser)


def test_look_plants_counts_and_remembers(
    deployed: Deployed, nova: NovaHost, tmp_path: pathlib.Path
) -> None:
    assert deployed.reconcile({IMAGE, OTHER}, pinned=frozenset({IMAGE})) == {}
    assert nova.link(IMAGE).is_symlink()
    assert not nova.link(OTHER).is_symlink()
    assert (deployed.counts["planted"], deployed.counts["waiting"]) == (1, 1)
    known = known_links.load(known_links.path_in(f"{tmp_path}/state"))
    assert known is not None
    assert set(known.links) == {IMAGE, OTHER}


def test_no_image_may_be_detached_before_the_overlays_were_seen(
    deployed: Deployed, nova: NovaHost
) -> None:
    assert deployed.reconciler.images_needed() is None
    nova.add_overlay(IMAGE)
    deployed.reconcile({IMAGE})
    assert deployed.reconciler.images_needed() == frozenset({IMAGE})


def test_images_needed_are_not_known_while_overlays_cannot_be_read(
    deployed: Deployed, nova: NovaHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed.reconcile({IMAGE})
    assert deployed.reconciler.images_needed() == frozenset({IMAGE})

    def fail(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    nova.add_overlay(IMAGE)
    monkeypatch.setattr(overlay_scan, "read_backing_names", fail)
    deployed.clock.now += 3600
    assert "overlays" in deployed.reconcile({IMAGE})
    assert deployed.reconciler.images_needed() is None


def test_use_names_the_instances(deployed: Deployed, nova: NovaHost) -> None:
    assert deployed.reconciler.local_use() is None
    deployed.reconcile({IMAGE})
    assert deployed.reconciler.local_use() == LocalUse()
    nova.add_overlay(IMAGE, "instance-1")
    nova.add_overlay(IMAGE, "instance-2_resize")
    deployed.clock.now += 3600
    deployed.reconcile({IMAGE})
    assert deployed.reconciler.local_use() == LocalUse({IMAGE: ("instance-1", "instance-2_resize")})


def test_base_of_an_image_that_nobody_knows_is_named(deployed: Deployed, nova: NovaHost) -> None:
    nova.add_overlay(OTHER)
    deployed.reconcile({IMAGE})
    assert deployed.reconciler.local_use() == LocalUse(bases=frozenset({base_name(OTHER)}))


def test_use_never_shrinks_by_what_could_not_be_read(deployed: Deployed, nova: NovaHost) -> None:
    nova.add_overlay(IMAGE, "instance-1")
    nova.add_overlay(OTHER, "instance-2")
    deployed.reconcile({IMAGE})
    nova.instances.rename(nova.path / "away")
    deployed.clock.now += 3600
    deployed.reconcile({IMAGE})
    use = deployed.reconciler.local_use()
    assert use is not None
    assert set(use.images) == {IMAGE}
    assert use.bases == {base_name(OTHER)}


def test_image_that_is_not_verified_any_more_is_for_those_alone_that_use_it(
    deployed: Deployed, nova: NovaHost
) -> None:
    """Its key was taken out: no new instance starts of it, and those that are there go on."""
    nova.add_overlay(IMAGE, "instance-1")
    deployed.reconcile({IMAGE, OTHER})
    assert nova.link(OTHER).is_symlink()
    both = frozenset({IMAGE, OTHER})
    deployed.clock.now += 3600
    deployed.reconcile({IMAGE, OTHER}, offered={}, kept=both, unverified=both)
    assert nova.link(IMAGE).is_symlink()
    assert not nova.link(OTHER).is_symlink()
    deployed.reconcile({IMAGE, OTHER})
    assert nova.link(OTHER).is_symlink()


def test_data_plane_that_is_away_gets_no_new_links(deployed: Deployed, nova: NovaHost) -> None:
    deployed.reconcile({IMAGE})
    for status in (None, {"fuse": {"connected": False}}):
        deployed.reconcile({IMAGE, OTHER}, status=status)
        assert nova.link(IMAGE).is_symlink()
        assert not nova.link(OTHER).is_symlink()


def test_origin_that_is_away_changes_nothing(deployed: Deployed, nova: NovaHost) -> None:
    deployed.reconcile({IMAGE})
    deployed.reconcile(None, origin=None, offered={})
    assert nova.link(IMAGE).is_symlink()
    assert deployed.reconciler.images_needed() == frozenset({IMAGE})


def test_refusal_of_novas_settings_is_a_problem(deployed: Deployed, nova: NovaHost) -> None:
    assert deployed.reconcile({IMAGE}) == {}
    nova.configure(libvirt={"images_type": "raw"})
    assert "images_type" in deployed.reconcile({IMAGE})["image links"]
    assert not nova.link(IMAGE).is_symlink()


def test_unreadable_nova_configuration_is_a_problem(deployed: Deployed, nova: NovaHost) -> None:
    deployed.reconcile({IMAGE})
    link = nova.link(IMAGE)
    nova.config.unlink()
    assert "cannot be read" in deployed.reconcile({IMAGE})["image links"]
    assert link.is_symlink()
    assert deployed.reconciler.images_needed() == frozenset({IMAGE}), "what was known goes on"
    nova.configure()
    assert deployed.reconcile({IMAGE}) == {}


def test_small_pins_are_refused(make_conf: MakeConf, nova: NovaHost) -> None:
    """Nova reads 256 KiB of the base before each boot, in nova-compute."""
    for option in ("pin_head = 255KiB", "pin_tail = 32KiB"):
        deployed = Deployed(make_conf(agent=option))
        assert option.split()[0] in str(deployed.reconciler.refusal())
        deployed.reconciler.start()
        deployed.reconcile({IMAGE})
        assert not nova.link(IMAGE).is_symlink()
        deployed.reconciler.stop(10)
    assert Deployed(make_conf(agent="pin_head = 256KiB")).reconciler.refusal() is None


def test_links_are_removed_when_they_are_turned_off(make_conf: MakeConf, nova: NovaHost) -> None:
    assert image_links.build(make_conf(enabled=False), lambda _: None) is None
    first = Deployed(make_conf())
    first.reconciler.start()
    first.reconcile({IMAGE, OTHER})
    first.reconciler.stop(10)
    nova.add_overlay(OTHER)
    reconciler = image_links.build(make_conf(enabled=False), lambda _: None)
    assert reconciler is not None
    second = Deployed(make_conf(enabled=False), known=KnownLinks())
    second.reconciler.start()
    assert second.reconcile({IMAGE, OTHER}) == {}, "what was asked for is no problem"
    assert not nova.link(IMAGE).is_symlink()
    assert nova.link(OTHER).is_symlink()
    assert second.reconciler.images_needed() == frozenset({OTHER})
    second.reconciler.stop(10)


def add_local_file(nova: NovaHost) -> None:
    path = pathlib.Path(local_path(str(nova.base), IMAGE))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"whole")


def test_links_to_local_files_are_told(deployed: Deployed, nova: NovaHost) -> None:
    wanted: set[str] = set()
    deployed.reconciler.follow_local_files(lambda: frozenset(wanted))
    assert deployed.reconciler.local_links() is None
    assert deployed.reconciler.base_directory() is None
    deployed.reconcile({IMAGE})
    assert deployed.reconciler.base_directory() == str(nova.base)
    assert deployed.reconciler.local_links() == frozenset()
    add_local_file(nova)
    wanted.add(IMAGE)
    deployed.reconcile({IMAGE})
    assert deployed.reconciler.local_links() == frozenset({IMAGE})
    assert os.readlink(nova.link(IMAGE)) == local_path(str(nova.base), IMAGE)
    wanted.clear()
    deployed.reconcile({IMAGE})
    deployed.reconcile({IMAGE})
    assert deployed.reconciler.local_links() == frozenset()


def test_link_that_a_failed_pass_may_have_moved_counts(
    deployed: Deployed, nova: NovaHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the file would be removed under it."""
    wanted = {IMAGE}
    deployed.reconcile({IMAGE})
    add_local_file(nova)
    deployed.reconciler.follow_local_files(lambda: frozenset(wanted))

    def fail(path: str, known: KnownLinks) -> None:
        raise OSError(28, "No space left on device", path)

    with monkeypatch.context() as patched:
        patched.setattr(known_links, "save", fail)
        deployed.reconcile({IMAGE})
        wanted.clear()
        assert deployed.reconciler.local_links() == frozenset({IMAGE})
    deployed.reconcile({IMAGE})
    deployed.reconcile({IMAGE})
    assert deployed.reconciler.local_links() == frozenset()


def test_damaged_memory_is_made_anew(make_conf: MakeConf, tmp_path: pathlib.Path) -> None:
    conf = make_conf()
    path = pathlib.Path(known_links.path_in(f"{tmp_path}/state"))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{")
    assert image_links.build(conf, lambda _: None) is not None


def test_second_process_of_a_host_changes_nothing(
    deployed: Deployed, nova: NovaHost, tmp_path: pathlib.Path
) -> None:
    other = OnlyLinker(f"{tmp_path}/state")
    deployed.reconcile({IMAGE})
    # POSIX locks are a process's, so the second process is one.
    script = (
        "import sys\n"
        "from acstor.drivers.nova.image_links.only_linker import OnlyLinker\n"
        "from acstor import exception\n"
        "try:\n    OnlyLinker(sys.argv[1]).take()\n"
        "except exception.FencedError as error:\n    print(error.hint)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, f"{tmp_path}/state"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "stop acstor-agent" in found.stdout
    other.give_up()


def test_file_system_that_hangs_holds_up_no_look(make_conf: MakeConf, nova: NovaHost) -> None:
    released = threading.Event()

    class Hanging(FileOperations):
        def symlink(self, target: str, path: str) -> None:
            released.wait(60)
            super().symlink(target, path)

    deployed = Deployed(make_conf(), files=Hanging())
    deployed.reconciler.start()
    snapshot = deployed.snapshot({IMAGE})
    deployed.reconciler.reconcile(snapshot)
    wait_for("it hangs", lambda: deployed.reconciler._busy_with is not None)
    assert deployed.reconciler.images_needed() is None
    deployed.clock.now += OVERDUE_SECONDS + 1
    assert "have not answered" in deployed.reconciler.reconcile(snapshot)["image links"]
    released.set()
    wait_for("it goes on", lambda: nova.link(IMAGE).is_symlink())
    deployed.reconciler.stop(10)


def test_image_that_gets_its_link_just_now_is_not_detached(
    make_conf: MakeConf, nova: NovaHost
) -> None:
    released = threading.Event()

    class Slow(FileOperations):
        def symlink(self, target: str, path: str) -> None:
            released.wait(60)
            super().symlink(target, path)

    deployed = Deployed(make_conf(), files=Slow())
    deployed.reconciler.start()
    deployed.reconcile(set())
    deployed.reconciler.reconcile(deployed.snapshot({IMAGE}))
    wait_for("planting", lambda: deployed.reconciler._busy_with is not None)
    wait_for("planting", lambda: IMAGE in (deployed.reconciler.images_needed() or ()))
    released.set()
    deployed.reconciler.stop(10)
