"""An etcd in memory, as etcd3gw's client shows it, that counts the requests."""

import base64
import collections
import itertools
from collections.abc import Callable
from typing import Any

from etcd3gw import exceptions


class MemoryEtcd:
    """Keys, leases and transactions of one server; takes the place of ``etcd3gw.client``.

    :param clock: seconds, by which leases end.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self._ends: dict[int, tuple[float, int]] = {}
        self._keys: dict[bytes, tuple[bytes, int]] = {}
        self.requests: collections.Counter[str] = collections.Counter()
        """Requests by the method of the client that sent them."""

    def client(self, **_options: Any) -> "MemoryClient":
        """Return a client."""
        return MemoryClient(self)

    def count(self, kind: str) -> None:
        """Note a request, and end the leases whose time is over."""
        self.requests[kind] += 1
        for number in [n for n, (end, _) in self._ends.items() if end <= self._clock()]:
            self.revoke(number)

    def grant(self, ttl: int) -> int:
        """Return a new lease."""
        number = next(self._numbers)
        self._ends[number] = self._clock() + ttl, ttl
        return number

    def renew(self, number: int) -> int:
        """Return how long a lease lasts from now on; -1: it has ended."""
        if number not in self._ends:
            return -1
        ttl = self._ends[number][1]
        self._ends[number] = self._clock() + ttl, ttl
        return ttl

    def revoke(self, number: int) -> None:
        """End a lease, and what was stored with it."""
        self._ends.pop(number, None)
        self._keys = {key: kept for key, kept in self._keys.items() if kept[1] != number}

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        return self._keys[key][0] if key in self._keys else None

    def entry(self, key: bytes) -> tuple[bytes, int] | None:
        """Return the value of a key and the lease it is stored with, 0: none."""
        return self._keys.get(key)

    def below(self, prefix: bytes) -> list[tuple[bytes, dict[str, Any]]]:
        """Return values with what is known of them."""
        found = sorted(item for item in self._keys.items() if item[0].startswith(prefix))
        return [(value, {"key": key, "version": "1"}) for key, (value, _) in found]

    def put(self, key: bytes, value: bytes, lease: int) -> None:
        """Store a key, with a lease where that is not 0."""
        if lease and lease not in self._ends:
            raise exceptions.Etcd3Exception("requested lease not found")
        self._keys[key] = value, lease

    def remove(self, key: bytes) -> bool:
        """Remove a key; return whether it was there."""
        return self._keys.pop(key, None) is not None


class MemoryLease:
    """A lease of a client."""

    def __init__(self, etcd: MemoryEtcd, ttl: int) -> None:
        self._etcd = etcd
        self.id = etcd.grant(ttl)

    def refresh(self) -> int:
        """Renew it."""
        self._etcd.count("refresh")
        return self._etcd.renew(self.id)


class MemorySession:
    """An HTTP session with the attributes that its settings have."""

    auth: Any = None
    cert: Any = None

    def merge_environment_settings(self, *_: Any) -> dict[str, Any]:
        """Return that there is nothing in the environment."""
        return {"proxies": {}, "verify": True}


class MemoryClient:
    """A client; each of its methods sends one request."""

    base_url = "http://127.0.0.1:2379"

    def __init__(self, etcd: MemoryEtcd) -> None:
        self._etcd = etcd
        self.session = MemorySession()

    def lease(self, ttl: int) -> MemoryLease:
        """Grant a lease."""
        self._etcd.count("lease")
        return MemoryLease(self._etcd, ttl)

    def put(self, key: str, value: bytes, lease: MemoryLease) -> bool:
        """Store a key."""
        self._etcd.count("put")
        self._etcd.put(key.encode(), value, lease.id)
        return True

    def get(self, key: str) -> list[bytes]:
        """Return the value of a key, or nothing."""
        self._etcd.count("get")
        value = self._etcd.get(key.encode())
        return [] if value is None else [value]

    def get_prefix(self, prefix: str) -> list[tuple[bytes, dict[str, Any]]]:
        """Return what is below a prefix."""
        self._etcd.count("get_prefix")
        return self._etcd.below(prefix.encode())

    def delete(self, key: str) -> bool:
        """Remove a key."""
        self._etcd.count("delete")
        return self._etcd.remove(key.encode())

    def transaction(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Do what is wanted where the comparison holds, else what is wanted then."""
        self._etcd.count("transaction")
        (comparison,) = wanted["compare"]
        is_met = self._holds(comparison)
        done = [
            self._done(kind, fields)
            for operation in wanted["success" if is_met else "failure"]
            for kind, fields in operation.items()
        ]
        answer = {"responses": done} if done else {}
        return {"succeeded": True, **answer} if is_met else answer  # false is left out in JSON

    def _done(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        key = base64.b64decode(fields["key"])
        match kind:
            case "request_put":
                self._etcd.put(key, base64.b64decode(fields["value"]), fields.get("lease", 0))
                return {"response_put": {}}
            case "request_delete_range":
                self._etcd.remove(key)
                return {"response_delete_range": {}}
            case "request_range":
                return {"response_range": self._found(key)}
        raise NotImplementedError(kind)

    def _found(self, key: bytes) -> dict[str, Any]:
        found = self._etcd.entry(key)
        if found is None:
            return {}
        value, lease = found
        # Numbers of 64 bits are strings in JSON, and 0 is left out.
        shown = {"value": base64.b64encode(value).decode(), "lease": str(lease)}
        return {"kvs": [shown if lease else {"value": shown["value"]}], "count": "1"}

    def _holds(self, comparison: dict[str, Any]) -> bool:
        value = self._etcd.get(base64.b64decode(comparison["key"]))
        match comparison["target"]:
            case "VALUE":
                return value == base64.b64decode(comparison["value"])
            case "VERSION":
                return (value is not None) == (int(comparison["version"]) > 0)
            case _:
                return value is None  # CREATE with the revision 0
