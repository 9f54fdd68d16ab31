import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.control import bitmap, protocol
from acstor.control.protocol import Code, LocalVolumeState, ProtocolError, Request, VolumeRole

VOLUME = "0b8cf0b6-1d6d-4d5a-9b6e-2f6f3a1f0c11"
GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "admin-protocol-v1.jsonl"


def test_request_survives_the_wire() -> None:
    request = Request("pin", {"image": "x", "head_bytes": 1}, id=7)
    assert protocol.decode_request(protocol.encode_request(request)) == request


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", Code.PARSE_ERROR),
        (b"\xff", Code.PARSE_ERROR),
        (b"[" * 30_000, Code.PARSE_ERROR),
        (b"[]", Code.INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","method":"status"}', Code.INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":true,"method":"status"}', Code.INVALID_REQUEST),
        (b'{"jsonrpc":"1.0","id":1,"method":"status"}', Code.INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"method":2}', Code.INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"method":"status","params":[]}', Code.INVALID_PARAMS),
        (b" " * protocol.REQUEST_BYTES_MAX + b"{}", Code.INVALID_REQUEST),
    ],
)
def test_malformed_request_is_refused_with_its_code(line: bytes, code: Code) -> None:
    with pytest.raises(ProtocolError) as caught:
        protocol.decode_request(line)
    assert caught.value.code is code


@given(st.binary(max_size=300) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_line_crashes_the_decoder(line: bytes) -> None:
    try:
        request = protocol.decode_request(line)
    except ProtocolError:
        return
    assert isinstance(request.method, str)


@pytest.mark.parametrize("kind", exception.ErrorKind)
def test_error_keeps_its_kind(kind: exception.ErrorKind) -> None:
    line = protocol.encode_error(Code.FAILED, "no such image", 1, kind)
    with pytest.raises(exception.CLASS_OF_KIND[kind], match="no such image") as caught:
        protocol.decode_response(line, Request("status"))
    assert caught.value.kind is kind


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b'{"jsonrpc":"2.0","id":2,"result":{}}',
        b'{"jsonrpc":"2.0","id":1}',
    ],
)
def test_response_to_something_else_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.decode_response(line, Request("status", id=1))


def test_error_without_a_known_kind_is_internal() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m","data":{"kind":"new"}}}'
    with pytest.raises(exception.InternalError):
        protocol.decode_response(line, Request("status"))


def test_too_long_request_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ProtocolError):
        protocol.encode_request(Request("image.attach", {"path": "x" * protocol.REQUEST_BYTES_MAX}))


def test_messages_are_those_of_the_golden_file_version_requires_update() -> None:
    lines = GOLDEN.read_bytes().splitlines(keepends=True)
    assert protocol.PROTOCOL_VERSION == 1
    assert lines == [
        protocol.encode_request(Request("image.attach", {"path": "/tmp/a.manifest"}, id=1)),
        protocol.encode_result(1, {"id": "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0", "hidden": False}),
        protocol.encode_error(Code.FAILED, "no such image", 2, exception.ErrorKind.NOT_FOUND),
        protocol.encode_error(Code.PARSE_ERROR, "not a line of JSON"),
        protocol.encode_request(
            Request(
                "preload.start",
                {
                    "image": "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0",
                    "what": "working-set",
                    "rate_bytes_per_s": 100_000_000,
                    "pin": False,
                },
                id="a",
            )
        ),
        protocol.encode_result(
            "a", {"bitmap": bitmap.encode(bytes([1, 128])), "boots": 3, "chunk_count": 16}
        ),
        protocol.encode_request(
            Request("volume.open", {"volume": VOLUME, "role": str(VolumeRole.OWNER)}, id=3)
        ),
        protocol.encode_result(
            3,
            {
                "volume": VOLUME,
                "role": str(VolumeRole.OWNER),
                "state": str(LocalVolumeState.SERVING),
                "socket": f"/run/acstor/nbd/{VOLUME}.sock",
                "export": VOLUME,
                "size_bytes": 1 << 30,
                "epoch": 4,
            },
        ),
    ]
