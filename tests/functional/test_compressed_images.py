"""Images of repositories of version 6 on hosts: paged manifests, compressed packs."""

import os
import pathlib
import random

import pytest

from acstor.origin.opening import open_origin
from acstor.repository import disk_manifest, upgrade
from acstor.repository.repository import COMPRESSED_VERSION
from testbed.fixtures.hosts import MIB, Cloud

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]


def write_disk(path: pathlib.Path) -> bytes:
    """Write a disk with text, holes, and what does not compress; return its content."""
    random_content = random.Random(3).randbytes(2 * MIB)
    text = b"".join(b"a line of text, number %d\n" % number for number in range(200_000))[: 4 * MIB]
    content = text + bytes(8 * MIB) + random_content + bytes(3 * MIB) + text[: MIB // 2]
    content = content.ljust(24 * MIB, b"\0")
    path.write_bytes(content)
    return content


def test_hosts_read_compressed_images(cloud: Cloud, tmp_path: pathlib.Path) -> None:
    origin = open_origin(f"posix://{cloud.origin}", 5)
    upgraded = upgrade.upgrade(origin, COMPRESSED_VERSION)
    hosts = [cloud.add_host(), cloud.add_host()]
    content = write_disk(tmp_path / "disk")
    image = cloud.register_file(tmp_path / "disk")
    cloud.wait_ready(image)
    record = upgraded.get_image(image).record
    manifest = upgraded.load_manifest(record.manifest)
    assert isinstance(manifest, disk_manifest.PagedManifest)
    assert sum(used for *_, used in manifest.usage()) < 5 * MIB
    for host in hosts:
        assert host.file(image).read_bytes() == content
    plain = cloud.register(MIB)
    cloud.wait_ready(plain)
    assert hosts[1].file(plain).read_bytes() == plain.content
    with open(hosts[0].file(image), "rb") as file:
        assert os.lseek(file.fileno(), 4 * MIB, os.SEEK_DATA) == 12 * MIB
    verified = hosts[0].command("repository", "verify", timeout=120)
    assert verified.returncode == 0, verified.stderr
    assert hosts[0].command("image", "remove", image).returncode == 0
