"""Signatures of calls to agents: who does not know the secret of the deployment is refused.

Everybody who may send in a virtual host of the broker reaches the agents. The page
``doc/source/reference/protocols/agent-rpc.rst`` describes what is signed and how.
"""

import hashlib
import hmac
import json
import secrets as randomness
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oslo_config import cfg

from acstor import exception
from acstor.rpc.agent_server import as_response

SIGNATURE_VERSION = 1
"""Raised when what is signed changes; a signature of another version is refused."""
CONTEXT_KEY = "acstor_signature"
WINDOW_SECONDS = 60.0
"""Largest difference of the clocks of caller and agent, seconds, the time on the way included."""
NONCES_MAX = 1 << 16
"""Calls within a window that are remembered; more are refused (some 10 MB, 500 calls a second)."""
SECRET_LENGTH_MIN = 16
_NONCE_BYTES = 16
_HINT = "write the same [rpc] secrets (acstor_rpc_secret in cinder.conf) here and on that host"


def secrets_of(conf: cfg.ConfigOpts) -> tuple[str, ...]:
    """Return ``[rpc] secrets``.

    :raises ConfigurationError: when one is too short to be one.
    """
    return checked_secrets(conf.rpc.secrets or ())


def checked_secrets(values: Sequence[str]) -> tuple[str, ...]:
    """Return secrets that are long enough.

    :raises ConfigurationError: when one is not; the message does not tell it.
    """
    if any(len(value) < SECRET_LENGTH_MIN for value in values):
        raise exception.ConfigurationError(
            f"a secret of [rpc] secrets has fewer than {SECRET_LENGTH_MIN} characters",
            hint="make one with 'openssl rand -hex 32'",
        )
    return tuple(values)


class Signer:
    """Signs what one process calls.

    :param secret: None: calls are not signed.
    :param clock: seconds since the epoch.
    """

    def __init__(self, secret: str | None, clock: Callable[[], float] = time.time) -> None:
        self._secret = secret
        self._clock = clock

    def context(self, host: str, method: str, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Return the context of one call, for one attempt only."""
        if self._secret is None:
            return {}
        signed_at, nonce = int(self._clock() * 1000), randomness.token_hex(_NONCE_BYTES)
        return {
            CONTEXT_KEY: {
                "version": SIGNATURE_VERSION,
                "signed_at": signed_at,
                "nonce": nonce,
                "mac": _mac(self._secret, host, method, arguments, signed_at, nonce),
            }
        }


class Verifier:
    """Decides whether an agent takes a call.

    :param secrets: any of them may have signed it; none: every call is taken.
    :param clock: seconds since the epoch; may be set anew at any time.
    :param running: monotonic seconds.
    """

    def __init__(
        self,
        host: str,
        secrets: Sequence[str],
        clock: Callable[[], float] = time.time,
        running: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._secrets = tuple(secrets)
        self._clock = clock
        # What a process before took could else be taken once more, until the window is over.
        self._started_at = int(clock() * 1000)
        self._running = running
        self._young_until = running() + WINDOW_SECONDS
        self._lock = threading.Lock()
        self._seen: dict[str, float] = {}

    def check(
        self, context: Mapping[str, Any], method: str, arguments: Mapping[str, object]
    ) -> None:
        """Refuse a call that nobody who knows a secret has signed for this host, just now and once.

        :raises InvalidError: when it is refused.
        :raises OverloadedError: when more calls came than are remembered.
        """
        if not self._secrets:
            return
        signed_at, nonce, mac = _signature(context)
        wanted = [
            _mac(secret, self._host, method, arguments, signed_at, nonce)
            for secret in self._secrets
        ]
        # Each is compared: the time tells nothing of which one it was.
        if not sum(hmac.compare_digest(each, mac) for each in wanted):
            raise exception.InvalidError("the call is signed with another secret", hint=_HINT)
        self._check_once(signed_at / 1000, nonce)

    def _check_once(self, signed_at: float, nonce: str) -> None:
        now = self._clock()
        is_young = self._running() <= self._young_until
        is_before = is_young and signed_at * 1000 < self._started_at
        if is_before or abs(now - signed_at) > WINDOW_SECONDS:
            raise exception.InvalidError(
                f"the call was signed {now - signed_at:.0f} s ago, or before the agent was started",
                hint="set the clocks of both hosts (NTP), then try again",
            )
        with self._lock:
            if nonce in self._seen:
                raise exception.InvalidError("the call was made before", hint=_HINT)
            if len(self._seen) >= NONCES_MAX:
                self._forget(now)
            self._seen[nonce] = signed_at + WINDOW_SECONDS

    def _forget(self, now: float) -> None:
        self._seen = {nonce: until for nonce, until in self._seen.items() if until >= now}
        if len(self._seen) >= NONCES_MAX:
            raise exception.OverloadedError(
                f"more than {NONCES_MAX} calls in {WINDOW_SECONDS:g} s", hint="try again later"
            )


class SignedEndpoint:
    """An endpoint whose methods are called only when the call is signed.

    :param endpoint: with ``target``; its public methods take a context and named arguments.
    """

    def __init__(self, endpoint: Any, host: str, verifier: Verifier) -> None:
        self.target = endpoint.target
        self._endpoint = endpoint
        self._host = host
        self._verifier = verifier

    def __getattr__(self, name: str) -> Any:
        """Return a method of the endpoint, guarded."""
        if name.startswith("_"):
            raise AttributeError(name)
        method = getattr(self._endpoint, name)

        def guarded(context: dict[str, Any], **arguments: object) -> object:
            try:
                self._verifier.check(context, name, arguments)
            except exception.AcstorError as error:
                return as_response(self._host, _raising(error))
            return method(context, **arguments)

        return guarded


def _raising(error: exception.AcstorError) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


def _signature(context: Mapping[str, Any]) -> tuple[int, str, str]:
    found = context.get(CONTEXT_KEY)
    if not isinstance(found, Mapping):
        raise exception.InvalidError("the call is not signed, as this host wants it", hint=_HINT)
    version, signed_at = found.get("version"), found.get("signed_at")
    nonce, mac = found.get("nonce"), found.get("mac")
    if (
        type(version) is not int
        or version != SIGNATURE_VERSION
        or type(signed_at) is not int
        or not 0 <= signed_at < 1 << 53
        or not _is_hex(nonce, 2 * _NONCE_BYTES)
        or not _is_hex(mac, 2 * hashlib.sha256().digest_size)
    ):
        raise exception.InvalidError(
            "the call has a signature of another version, or a malformed one",
            hint="upgrade ACStor on both hosts",
        )
    return signed_at, str(nonce), str(mac)


def _is_hex(value: object, length: int) -> bool:
    return isinstance(value, str) and len(value) == length and set(value) <= set("0123456789abcdef")


def _mac(
    secret: str,
    host: str,
    method: str,
    arguments: Mapping[str, object],
    signed_at: int,
    nonce: str,
) -> str:
    """Return the HMAC-SHA256 of a call, hexadecimal: the same before and after it has travelled.

    Keys of objects are texts, as in JSON.

    :raises InvalidError: when the arguments are none that JSON can carry.
    """
    try:
        signed = [SIGNATURE_VERSION, host, method, arguments, signed_at, nonce]
        text = json.dumps(signed, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise exception.InvalidError(f"arguments of {method} cannot be signed") from error
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
