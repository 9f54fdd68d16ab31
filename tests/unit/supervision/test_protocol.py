import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor.supervision import protocol


def test_assignments_survive_the_wire() -> None:
    assignments = {"FDSTORE": "1", "FDNAME": "fuse", "STATUS": "a=b"}
    assert protocol.decode_message(protocol.encode_message(assignments)) == assignments


@pytest.mark.parametrize("message", [b"READY", b"=1", b"\xff=1", b"A=" + b"x" * 4096])
def test_malformed_datagram_is_refused(message: bytes) -> None:
    with pytest.raises(protocol.MalformedMessageError):
        protocol.decode_message(message)


@given(st.binary(max_size=200))
def test_no_datagram_crashes_the_decoder(message: bytes) -> None:
    try:
        decoded = protocol.decode_message(message)
    except protocol.MalformedMessageError:
        return
    assert all(decoded)


def test_too_long_notification_is_refused() -> None:
    with pytest.raises(ValueError, match="4096"):
        protocol.encode_message({"STATUS": "x" * 5000})


@pytest.mark.parametrize(
    ("name", "expected"),
    [("fuse", True), ("", False), ("a:b", False), ("ü", False), ("x" * 256, False)],
)
def test_descriptor_names(name: str, expected: bool) -> None:
    assert protocol.is_valid_name(name) is expected
