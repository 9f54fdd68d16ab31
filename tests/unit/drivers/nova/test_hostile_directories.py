"""Nova's user rearranges its directories while root plants links: nothing happens elsewhere."""

import os
import pathlib

import pytest

from acstor.drivers.nova.image_links import safe_paths
from acstor.drivers.nova.image_links.base_names import base_name
from acstor.drivers.nova.image_links.file_operations import FileOperations
from acstor.drivers.nova.image_links.link_states import LinkEvent
from testbed.fixtures.nova_host import NOVA_USER, NovaHost
from tests.unit.drivers.nova.conftest import IMAGE, make_planter

pytestmark = pytest.mark.root


@pytest.fixture
def elsewhere(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory of root's that Nova's user would like root to write to."""
    path = tmp_path / "elsewhere"
    path.mkdir()
    return path


def link_of_nova(path: pathlib.Path, target: pathlib.Path) -> None:
    path.symlink_to(target)
    os.chown(path, NOVA_USER, NOVA_USER, follow_symlinks=False)


def lock_of(nova: NovaHost) -> pathlib.Path:
    return nova.instances / "locks" / f"nova-{base_name(IMAGE)}"


def not_used() -> None:
    return None


@pytest.mark.parametrize("is_there", [False, True])
def test_lock_file_is_not_opened_through_a_link(
    nova: NovaHost, mount: pathlib.Path, elsewhere: pathlib.Path, is_there: bool
) -> None:
    planter = make_planter(nova, mount)
    planter.prepare()
    target = elsewhere / "cron"
    if is_there:
        target.write_bytes(b"kept")
    link_of_nova(lock_of(nova), target)
    with pytest.raises(OSError, match="nova-"):
        planter.plant(IMAGE)
    assert os.listdir(elsewhere) == (["cron"] if is_there else [])
    assert not os.path.lexists(nova.link(IMAGE))
    lock_of(nova).unlink()
    assert planter.plant(IMAGE).event is LinkEvent.PLANT
    lock_of(nova).unlink()
    link_of_nova(lock_of(nova), target)
    with pytest.raises(OSError, match="nova-"):
        planter.remove(IMAGE, not_used)
    assert os.listdir(elsewhere) == (["cron"] if is_there else [])
    assert nova.link(IMAGE).is_symlink()


def test_lock_is_a_regular_file(nova: NovaHost, mount: pathlib.Path) -> None:
    """A pipe would hold the agent up for ever, a device does what opening it does."""
    planter = make_planter(nova, mount)
    planter.prepare()
    os.mkfifo(lock_of(nova))
    with pytest.raises(OSError, match="nova-"):
        planter.plant(IMAGE)


@pytest.mark.parametrize("name", ["locks", "_base"])
def test_nothing_is_made_behind_a_directory_that_is_a_link(
    nova: NovaHost, mount: pathlib.Path, elsewhere: pathlib.Path, name: str
) -> None:
    planter = make_planter(nova, mount)
    planter.prepare()
    (nova.instances / name).rmdir()
    link_of_nova(nova.instances / name, elsewhere)
    with pytest.raises(OSError, match="only links of root"):
        planter.plant(IMAGE)
    assert os.listdir(elsewhere) == []


@pytest.mark.parametrize("step", ["symlink", "change_owner", "make_file", "hard_link", "unlink"])
def test_directory_that_becomes_a_link_amidst_of_it(
    nova: NovaHost, mount: pathlib.Path, elsewhere: pathlib.Path, step: str
) -> None:
    """Whatever was looked at before: each change finds its directory itself."""
    swapped: list[pathlib.Path] = []

    class Swapping(FileOperations):
        def __getattribute__(self, name: str) -> object:
            found = super().__getattribute__(name)
            if name != step:
                return found

            def changed(*arguments: object) -> object:
                path = pathlib.Path(str(arguments[-1 if name in {"symlink", "hard_link"} else 0]))
                if not swapped and path.parent != nova.instances:
                    swapped.append(path)
                    path.parent.rename(nova.instances / "moved")
                    link_of_nova(path.parent, elsewhere)
                    (elsewhere / path.name).write_bytes(b"root's")
                return found(*arguments)

            return changed

    planter = make_planter(nova, mount, Swapping())
    planter.prepare()
    with pytest.raises(OSError, match="only links of root"):
        planter.plant(IMAGE)
    (path,) = swapped
    assert os.listdir(elsewhere) == [path.name]
    found = (elsewhere / path.name).lstat()
    assert (found.st_uid, found.st_size) == (0, len(b"root's"))


def test_file_of_root_with_another_name_is_not_given_away(
    nova: NovaHost, mount: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    """Nova's user may give it a name in its directory where fs.protected_hardlinks is off."""
    secret = elsewhere / "shadow"
    secret.write_bytes(b"secret")

    class Swapping(FileOperations):
        def make_file(self, path: str) -> None:
            super().make_file(path)
            os.unlink(path)
            os.link(secret, path)

    planter = make_planter(nova, mount, Swapping())
    planter.prepare()
    with pytest.raises(OSError, match="several names"):
        planter.plant(IMAGE)
    assert secret.stat().st_uid == 0


def test_links_of_the_operator_are_followed(
    tmp_path: pathlib.Path, nova: NovaHost, mount: pathlib.Path
) -> None:
    """Instances on another disk: absolute, relative, and a directory below."""
    moved = tmp_path / "disk" / "instances"
    moved.parent.mkdir()
    nova.instances.rename(moved)
    (tmp_path / "disk" / "base").mkdir()
    os.chown(tmp_path / "disk" / "base", NOVA_USER, NOVA_USER)
    nova.instances.symlink_to(moved)
    (moved / "_base").symlink_to("../base")
    planter = make_planter(nova, mount)
    planter.prepare()
    assert planter.plant(IMAGE).event is LinkEvent.PLANT
    assert (tmp_path / "disk" / "base" / base_name(IMAGE)).is_symlink()
    assert planter.remove(IMAGE, not_used).event is LinkEvent.REMOVE


def test_circle_of_links_ends(tmp_path: pathlib.Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(OSError, match="symbolic links"):
        safe_paths.open_directory(str(tmp_path / "one" / "more"))
