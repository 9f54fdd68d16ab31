"""Signed images on real hosts: agents and data planes under an origin that somebody writes to."""

import base64
import json
import os
import pathlib

import pytest

from acstor.agent.reconcilers import seen_index
from acstor.origin.base import Origin
from acstor.origin.opening import open_origin
from acstor.registrar.index_statements import IndexStatements
from acstor.registrar.index_upkeep import IndexUpkeep
from acstor.repository import layout
from acstor.repository.images import index_statement
from acstor.repository.images.image_index import INDEX_REF, ImageIndex
from acstor.repository.images.index_statement import IndexStatement
from acstor.repository.images.record_writer import SignedRecords
from acstor.repository.repository import Repository
from testbed.fixtures.checked_reader import CheckedReader
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Cloud, Host, Image
from tests.unit.repository.signing.keys import install, private, public, trusted

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

SECOND_ID = "00000000-0000-4000-8000-000000000009"


class SigningCloud:
    """A cloud whose hosts take signed images only."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.keys = cloud.path / "keys"
        install(self.keys, 0)
        self.host = self.add_host()
        self.origin: Origin = open_origin(f"posix://{cloud.origin}", 5)

    def add_host(self) -> Host:
        options = {"public_keys": self.keys, "require_signatures": "true"}
        return self.cloud.add_host(repository={**options, "signing_key": self.key_file(0)})

    def key_file(self, number: int) -> pathlib.Path:
        """Return the path of the file of a private key."""
        path = self.cloud.path / f"{number}.pem"
        path.touch(0o600)  # others may not read it
        path.write_bytes(pem(number))
        return path

    def register(self, size: int = 4 * MIB) -> Image:
        return self.cloud.register(size, SignedRecords(private(0), trusted()))

    def record(self, image_id: str) -> bytes:
        ref = self.origin.get_ref(layout.image_ref(image_id))
        assert ref is not None
        return ref.content

    def put(self, image_id: str, content: bytes) -> None:
        """Write a record as somebody does who can write to the origin, and has hosts read it."""
        with Repository.open(self.origin).image_index.changing(image_id):
            assert self.origin.swap_ref(layout.image_ref(image_id), None, content)

    def state(self) -> IndexStatement:
        """State what is registered, as the registrar that leads does; return the statement."""
        repository = Repository.open(self.origin)
        records = SignedRecords(private(0), trusted())
        IndexUpkeep(repository.image_index, statements=IndexStatements(repository, records)).keep()
        text = ImageIndex.parse(self.index()).statement
        assert text is not None
        return index_statement.verify(text.encode(), repository.format.id, trusted(0)).statement

    def index(self) -> bytes:
        ref = self.origin.get_ref(INDEX_REF)
        assert ref is not None
        return ref.content

    def put_index(self, content: bytes) -> None:
        """Write the index as somebody does who can write to the origin."""
        ref = self.origin.get_ref(INDEX_REF)
        assert ref is not None
        self.origin.swap_ref(INDEX_REF, ref.token, content)

    def has_seen(self, statement: IndexStatement) -> bool:
        """Return whether the host has believed a statement, and will know it after a restart."""
        path = pathlib.Path(seen_index.path_in(str(self.host.path)))
        seen = seen_index.SeenIndex(str(path), Repository.open(self.origin).format.id)
        found = seen.find(public(0).id)
        return found is not None and found.generation == statement.generation

    def said(self, text: str, host: Host | None = None) -> bool:
        return text in (host or self.host).log_path.read_text(errors="replace")

    def signature(self, image_id: str) -> str:
        result = self.host.command("image", "list", "-f", "json")
        assert result.returncode == 0, result.stderr
        found = {row["id"]: row["signature"] for row in json.loads(result.stdout)}
        return str(found[image_id])


def pem(number: int) -> bytes:
    """Return a private key as its file has it, PKCS 8."""
    document = bytes.fromhex("302e020100300506032b657004220420") + bytes(range(number, number + 32))
    text = base64.b64encode(document)
    return b"-----BEGIN PRIVATE KEY-----\n" + text + b"\n-----END PRIVATE KEY-----\n"


@pytest.fixture
def signing(cloud: Cloud) -> SigningCloud:
    return SigningCloud(cloud)


def test_image_that_somebody_has_put_there_is_not_attached(
    cloud: Cloud, signing: SigningCloud
) -> None:
    image = signing.register()
    cloud.wait_ready(image)
    assert signing.host.file(image).read_bytes() == image.content
    forged = cloud.register(2 * MIB)  # by a program without the key
    refusal = f"the record of image {forged.id} is not signed"
    wait_for("the unsigned one is refused", lambda: signing.said(refusal))
    assert signing.signature(forged.id) == "unverified: unsigned"
    repository = Repository.open(signing.origin)
    other = repository.get_image(forged.id).record.manifest
    mine = repository.get_image(image.id).record.manifest
    changed = signing.record(image.id).replace(mine.encode(), other.encode())
    signing.put(SECOND_ID, changed)
    refusal = f"the signature of the record of image {SECOND_ID} is wrong"
    wait_for("the changed one is refused", lambda: signing.said(refusal))
    assert os.listdir(signing.host.mount) == [f"{image.id}.raw"]


def test_guest_reads_on_while_the_key_of_its_image_is_revoked(
    cloud: Cloud, signing: SigningCloud
) -> None:
    image = signing.register(16 * MIB)
    cloud.wait_ready(image)
    with CheckedReader(signing.host.file(image.id), image.content, seed=3) as reader:
        reader.wait_reads(20)
        install(signing.keys, 5)
        wait_for("the key is not trusted", lambda: signing.said("which is not trusted here"))
        new = signing.add_host()
        wait_for("nothing is new", lambda: signing.said("which is not trusted here", new))
        assert not new.file(image.id).exists()
        reader.wait_reads(20)
        assert signing.host.file(image.id).exists()
        install(signing.keys, 0)
        wait_for("the new host has it", lambda: new.file(image.id).exists())
    assert reader.errors == []


def test_key_is_rotated_by_the_commands(cloud: Cloud, signing: SigningCloud) -> None:
    image = signing.register()
    cloud.wait_ready(image)
    install(signing.keys, 0, 1)
    config = signing.host.config
    former, later = str(signing.key_file(0)), str(signing.key_file(1))
    config.write_text(config.read_text().replace(former, later))
    result = signing.host.command("repository", "sign", "-f", "json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["key"], report["signed"]) == (public(1).id, 1)
    install(signing.keys, 1)
    assert signing.signature(image.id) == "verified"
    new = signing.add_host()
    wait_for("the new host has it", lambda: new.file(image.id).exists())


def test_index_that_somebody_rewrites_is_told_of_and_images_stay(
    cloud: Cloud, signing: SigningCloud
) -> None:
    image = signing.register()
    cloud.wait_ready(image)
    signing.state()
    old = signing.index()
    second = signing.register()
    later = signing.state()
    cloud.wait_ready(second)
    wait_for("the host has seen the statement", lambda: signing.has_seen(later))
    assert not signing.said("is not believed")
    signing.put_index(old)
    refusal = "somebody has put an old index of images back"
    wait_for("the old one is told of", lambda: signing.said(refusal))
    third = signing.register()
    cloud.wait_ready(third)  # by the index that nobody has stated yet
    assert {name.name for name in signing.host.mount.iterdir()} == {
        f"{each.id}.raw" for each in (image, second, third)
    }
    assert signing.host.file(second).read_bytes() == second.content
