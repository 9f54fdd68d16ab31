"""The device that forgets: what was flushed it keeps, the rest as far as it is told to."""

import mmap
import os
import pathlib
import random
from collections.abc import Iterator

import pytest

from testbed.fixtures import lossy_device
from testbed.fixtures.lossy_device import BLOCK, LossyDevice

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.timeout(120)]

BLOCKS = 64
SIZE = BLOCKS * BLOCK


@pytest.fixture
def device(tmp_path: pathlib.Path) -> Iterator[LossyDevice]:
    device = LossyDevice(tmp_path, SIZE)
    device.switch_on()
    yield device
    if device.is_on:
        device.fail()
        device.detach()


def write(device: LossyDevice, letter: bytes, *, is_flushed: bool) -> None:
    """Write a letter all over the device, past the page cache."""
    descriptor = os.open(device.path, os.O_RDWR | os.O_DIRECT)
    try:
        with mmap.mmap(-1, SIZE) as content:  # aligned, as direct writes want it
            content[:] = letter * SIZE
            assert os.pwrite(descriptor, content, 0) == SIZE
        if is_flushed:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def blocks(content: bytes) -> list[bytes]:
    """Return the letter of each block, which is of one letter."""
    found = [content[start : start + BLOCK] for start in range(0, SIZE, BLOCK)]
    assert all(block == block[:1] * BLOCK for block in found)
    return [block[:1] for block in found]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_what_was_flushed_is_there_and_of_the_rest_a_share(
    device: LossyDevice, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    monkeypatch.setattr(lossy_device, "KEPT_SHARES", (share,))
    write(device, b"a", is_flushed=True)
    write(device, b"b", is_flushed=False)
    device.stop()
    device.fail()
    device.detach()
    loss = device.settle(random.Random(1))
    assert loss.synced == BLOCKS
    assert loss.kept + loss.lost == BLOCKS
    found = blocks(device.durable.read_bytes())
    assert (found.count(b"a"), found.count(b"b")) == (loss.lost, loss.kept)
    assert {0.0: loss.kept == 0, 1.0: loss.lost == 0}.get(share, loss.kept and loss.lost)
