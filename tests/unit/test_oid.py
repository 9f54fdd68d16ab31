"""OIDs against the golden vectors that Rust reads too."""

import json
import pathlib
import uuid

import pytest

from acstor.oid import INDEX_MAX, host_number, oid, rendezvous

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "oid.json"
VECTORS = json.loads(GOLDEN.read_text())["vectors"]
RENDEZVOUS = json.loads((GOLDEN.parent / "rendezvous.json").read_text())
DISK = uuid.UUID("6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0")


def test_golden_vectors_exist() -> None:
    assert len(VECTORS) >= 10


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["oid"])
def test_oid_of_golden_vector_is_the_golden_one(vector: dict[str, str | int]) -> None:
    assert f"{oid(uuid.UUID(str(vector['disk'])), int(vector['index'])):016x}" == vector["oid"]


@pytest.mark.parametrize("index", [-1, INDEX_MAX + 1])
def test_oid_of_index_out_of_range_is_refused(index: int) -> None:
    with pytest.raises(ValueError, match="chunk index"):
        oid(DISK, index)


def test_rendezvous_of_golden_vectors_is_the_golden_one() -> None:
    for vector in RENDEZVOUS["disks"]:
        assert f"{rendezvous(uuid.UUID(vector['disk'])):016x}" == vector["oid"]


def test_host_number_of_golden_vectors_is_the_golden_one() -> None:
    for vector in RENDEZVOUS["hosts"]:
        assert f"{host_number(vector['host']):016x}" == vector["number"]
