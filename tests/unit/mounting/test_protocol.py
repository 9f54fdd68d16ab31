import pytest

from acstor import exception
from acstor.mounting import protocol
from acstor.mounting.protocol import Operation


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("path", ["/var/lib/acstor/images", "/srv/a b", "/srv/\udcff"])
def test_requests_come_back(operation: Operation, path: str) -> None:
    assert protocol.decode_request(protocol.encode_request(operation, path)) == (operation, path)


def test_request_version_requires_update() -> None:
    """Raise PROTOCOL_VERSION when this changes: the bytes sent are part of the protocol."""
    assert protocol.encode_request(Operation.SET_READ_AHEAD, "/m") == b"1 read-ahead /m"
    assert protocol.encode_response(None) == b"1 ok"
    refused = exception.FencedError("held")
    assert protocol.encode_response(refused) == b"1 fenced held"


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"1",
        b"1 mount",
        b"1 mount ",
        b"1 mount relative",
        b"1 mount /a\0b",
        b"1 format /a",
        b"1 \xff /a",
        b"2 mount /a",
        b"mount /a",
        b'{"operation": "mount"}',
    ],
)
def test_malformed_request_is_refused(packet: bytes) -> None:
    with pytest.raises(protocol.MalformedMessageError):
        protocol.decode_request(packet)


def test_error_keeps_its_kind() -> None:
    packet = protocol.encode_response(exception.FencedError("the mount is held"))
    error = protocol.decode_response(packet)
    assert isinstance(error, exception.FencedError)
    assert "the mount is held" in str(error)


def test_long_error_fits() -> None:
    packet = protocol.encode_response(exception.UnavailableError("x" * 10_000))
    assert len(packet) == protocol.RESPONSE_BYTES_MAX
    assert isinstance(protocol.decode_response(packet), exception.UnavailableError)


@pytest.mark.parametrize("packet", [b"", b"1 ", b"1 ok then", b"1 strange x", b"2 ok", b"\xff"])
def test_malformed_response_is_refused(packet: bytes) -> None:
    with pytest.raises(protocol.MalformedMessageError):
        protocol.decode_response(packet)


def test_every_operation_has_traits() -> None:
    assert set(protocol.OPERATIONS) == set(Operation)
    returning = {name for name, traits in protocol.OPERATIONS.items() if traits.returns_descriptor}
    assert returning == {Operation.MOUNT}
