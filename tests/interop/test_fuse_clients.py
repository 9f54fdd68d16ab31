"""Independent programs read an image through the FUSE mount."""

import hashlib
import json
import pathlib
import shutil
import subprocess

import pytest

from testbed.fixtures.hosts import MIB, Cloud

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]


def run(*command: str, timeout: float = 120) -> str:
    """Run a program that must succeed and return what it prints."""
    assert shutil.which(command[0]), f"{command[0]} is missing: install what bindep.txt names"
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def served(cloud: Cloud, tmp_path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """An image as ACStor serves it, and the file that was registered."""
    host = cloud.add_host()
    image = cloud.register(32 * MIB)
    cloud.wait_ready(image)
    return host.file(image), cloud.path / "image-1"


def test_qemu_img_compares_equal(served: tuple[pathlib.Path, pathlib.Path]) -> None:
    ours, theirs = map(str, served)
    assert "identical" in run("qemu-img", "compare", "-f", "raw", "-F", "raw", ours, theirs)


def test_qemu_img_info_sees_a_raw_image(served: tuple[pathlib.Path, pathlib.Path]) -> None:
    found = json.loads(run("qemu-img", "info", "--output=json", str(served[0])))
    assert found["format"] == "raw"
    assert found["virtual-size"] == served[1].stat().st_size


def test_qemu_img_map_sees_the_holes(served: tuple[pathlib.Path, pathlib.Path]) -> None:
    extents = json.loads(run("qemu-img", "map", "--output=json", "-f", "raw", str(served[0])))
    zero = sum(extent["length"] for extent in extents if extent["zero"])
    assert zero == served[1].read_bytes().count(bytes(MIB)) * MIB


def test_qcow2_overlay_reads_and_writes(
    served: tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    """An overlay as Nova makes it: reads come from us, writes stay in it."""
    overlay = str(tmp_path / "disk.qcow2")
    run("qemu-img", "create", "-q", "-f", "qcow2", "-b", str(served[0]), "-F", "raw", overlay)
    run("qemu-io", "-c", "write -P 0x5a 1M 64k", "-c", "read -P 0x5a 1M 64k", overlay)
    run("qemu-img", "compare", "-f", "raw", "-F", "raw", str(served[0]), str(served[1]))
    run("qemu-img", "rebase", "-q", "-f", "qcow2", "-b", str(served[1]), "-F", "raw", overlay)


@pytest.mark.parametrize("direct", ["0", "1"])
@pytest.mark.parametrize("engine", ["psync", "libaio"])
def test_fio_reads_without_error(
    served: tuple[pathlib.Path, pathlib.Path], direct: str, engine: str
) -> None:
    output = run(
        "fio", "--name=read", f"--filename={served[0]}", "--readonly", "--rw=randread",
        "--bs=64k", f"--ioengine={engine}", "--iodepth=8", f"--direct={direct}", "--size=32m",
        "--loops=2", "--output-format=json",
    )  # fmt: skip
    job = json.loads(output[output.index("{") :])["jobs"][0]
    assert job["error"] == 0
    assert job["read"]["total_ios"] > 0


def test_cp_and_dd_read_the_same_bytes(
    served: tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    wanted = hashlib.sha256(served[1].read_bytes()).hexdigest()
    run("cp", "--sparse=always", str(served[0]), str(tmp_path / "copy"))
    dd = ("dd", f"if={served[0]}", f"of={tmp_path / 'dd'}", "bs=1M", "iflag=direct", "status=none")
    run(*dd)
    for name in ("copy", "dd"):
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == wanted


def test_writing_is_refused(served: tuple[pathlib.Path, pathlib.Path]) -> None:
    result = subprocess.run(
        ["qemu-io", "-f", "raw", "-c", "write 0 4k", str(served[0])],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode != 0
    assert hashlib.sha256(served[0].read_bytes()).digest() == (
        hashlib.sha256(served[1].read_bytes()).digest()
    )
