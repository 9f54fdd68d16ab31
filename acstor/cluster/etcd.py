"""etcd as coordination back-end: membership and locks on one lease, which one request renews.

tooz's driver keeps a lease for the membership and one for each lock, takes a new one at each try
for a lock, and goes on with a lock whose lease has ended. Here a lock is taken with the lease of
the membership: both end together, and the holder sees at its next heartbeat that they have.
"""

import base64
import functools
import json as json_module
import urllib.parse
import uuid
from collections.abc import Mapping
from typing import Any

import requests
import tooz
from etcd3gw.exceptions import Etcd3Exception
from oslo_utils import netutils
from requests.utils import get_netrc_auth
from tooz import locking
from tooz.drivers import etcd3gw

from acstor import exception

_PREPARED_MAX = 16
"""Requests that are kept prepared; of these two are sent at most heartbeats."""


def open_driver(url: str, member_id: bytes) -> "OneLeaseDriver":
    """Return a driver that is not started yet.

    :param url: as of ``[coordination] backend_url``, one of them.
    """
    # The calls end with the timeout of the socket. A thread of the driver's own for them costs as
    # much processor time as half a call, and polls every second.
    options = {
        "executor": ["synchronous"],
        **urllib.parse.parse_qs(urllib.parse.urlsplit(url).query),
    }
    driver = OneLeaseDriver(member_id, netutils.urlsplit(url), options)
    driver.client.session = PreparedSession(driver.client.session, driver.client.base_url)
    return driver


class PreparedSession(requests.Session):
    """A session with one server, which is sent the same few requests over and over.

    What the environment says of it (proxies, certificates, passwords) is looked up once, and
    requests are prepared once; both together are half of the cost of a request.

    :param session: with its settings.
    :param url: of the server.
    """

    def __init__(self, session: requests.Session, url: str) -> None:
        super().__init__()
        found = session.merge_environment_settings(url, {}, None, None, None)
        self.proxies, self.verify = found["proxies"], found["verify"]
        self.cert = session.cert
        self.auth = session.auth or get_netrc_auth(url)
        self.trust_env = False
        self._prepared = functools.lru_cache(_PREPARED_MAX)(self._prepare)

    def post(
        self, url: str | bytes, data: Any = None, json: Any = None, **options: Any
    ) -> requests.Response:
        """Send JSON, as it is in ``data`` or made of ``json``."""
        body = json_module.dumps(json) if data is None else data
        return self.send(self._prepared(url, body), **options)

    def _prepare(self, url: str | bytes, body: str) -> requests.PreparedRequest:
        headers = {"Content-Type": "application/json"}
        return self.prepare_request(requests.Request("POST", url, headers, data=body))


class OneLeaseDriver(etcd3gw.Etcd3Driver):
    """A tooz coordinator whose locks last as long as its membership.

    Where the URL has another ``lock_timeout`` than ``membership_timeout``, they are tooz's own.
    """

    @property
    def lease_id(self) -> int:
        """Number of the lease; another one after a heartbeat that found it ended."""
        lease = self._membership_lease
        if lease is None:
            raise tooz.ToozError("the coordinator was not started")
        return lease.id

    def get_lock(self, name: bytes) -> Any:
        """Return a lock of that name, the same as any tooz driver of etcd knows by it."""
        if self.lock_timeout != self.membership_timeout:
            return super().get_lock(name)
        return LeasedLock(self, name)


class LeasedLock(locking.Lock):
    """A lock that is held as long as the lease of its coordinator goes on.

    A request that failed may have been carried out. :meth:`acquire` knows its own key again, else
    that would keep the lock from everybody for as long as the lease is renewed; who cannot
    :meth:`release` it gives the coordinator up.

    :param driver: the coordinator; started before the lock is taken.
    """

    def __init__(self, driver: OneLeaseDriver, name: bytes) -> None:
        super().__init__(name)
        self._driver = driver
        self._key = _encoded(etcd3gw.Etcd3Lock.LOCK_PREFIX + name)
        self._token = _encoded(uuid.uuid4().bytes)
        self._taken_with: int | None = None

    @property
    def acquired(self) -> bool:
        """True if it was taken, and the lease has gone on since by the last heartbeat."""
        return self._taken_with is not None and self._taken_with == self._driver.lease_id

    def acquire(self, blocking: bool = True, shared: bool = False, timeout: Any = None) -> bool:
        """Take it if it is free; return whether it is held. It does not wait, and is not shared.

        :raises tooz.ToozError: when the backend fails, or the lease has ended.
        """
        if blocking or shared:
            raise tooz.NotImplemented("this lock is tried for, and by one holder")
        lease = self._driver.lease_id
        put = {"key": self._key, "value": self._token, "lease": lease}
        answer = self._transact(
            {"target": "CREATE", "create_revision": 0},
            {"request_put": put},
            otherwise={"request_range": {"key": self._key}},
        )
        if not answer.get("succeeded", False) and not self._is_own(answer, lease):
            return False
        self._taken_with = lease
        return True

    def release(self) -> bool:
        """Give it back; return whether it was still this one's.

        :raises tooz.ToozError: when the backend fails.
        """
        answer = self._transact(
            {"target": "VALUE", "value": self._token},
            {"request_delete_range": {"key": self._key}},
        )
        self._taken_with = None
        return bool(answer.get("succeeded", False))

    def _transact(
        self,
        comparison: Mapping[str, object],
        operation: Mapping[str, object],
        otherwise: Mapping[str, object] | None = None,
    ) -> Mapping[str, Any]:
        transaction = {
            "compare": [{"key": self._key, "result": "EQUAL", **comparison}],
            "success": [operation],
            "failure": [] if otherwise is None else [otherwise],
        }
        try:
            answer: Mapping[str, Any] = self._driver.client.transaction(transaction)
        except Etcd3Exception as error:
            raise tooz.ToozError(exception.one_line(error)) from error
        return answer

    def _is_own(self, answer: Mapping[str, Any], lease: int) -> bool:
        """Return whether the key that a transaction has found is of this lock and lease.

        An answer that does not show the key, or not with all of it, shows another's.
        """
        found = [
            (each.get("value"), int(each.get("lease", 0)))
            for response in answer.get("responses", [])
            for each in response.get("response_range", {}).get("kvs", [])
        ]
        return found == [(self._token, lease)]


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
