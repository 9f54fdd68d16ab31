"""Pools of an origin: the kind and the tag that each of them needs."""

import dataclasses
import json
import logging
from collections.abc import Mapping

from acstor import exception, untrusted_json

LOG = logging.getLogger(__name__)

APPLICATION = "acstor"
"""Application that a pool is tagged with."""
LIST_COMMAND = json.dumps({"prefix": "osd pool ls", "detail": "detail", "format": "json"})
"""Command to a monitor; all that :func:`parse` reads is in its answer."""
_ERASURE_CODED = 3
"""Type of a pool, as the map of OSDs has it."""
_WHAT = "the list of pools"


@dataclasses.dataclass(frozen=True, slots=True)
class Pool:
    """Properties of one pool."""

    is_erasure_coded: bool
    is_tagged: bool
    """True if some application is enabled on it."""


def parse(answer: bytes) -> dict[str, Pool]:
    """Return the pools of a monitor's answer, by name.

    :raises UnavailableError: when it is malformed.
    """
    try:
        return {
            one["pool_name"]: Pool(
                one["type"] == _ERASURE_CODED, bool(one.get("application_metadata"))
            )
            for one in untrusted_json.load(answer, _WHAT)
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise exception.UnavailableError(f"{_WHAT} that a monitor told is malformed") from error


@dataclasses.dataclass(frozen=True, slots=True)
class UsedPools:
    """Pools that one origin uses.

    :param refs: pool of the refs.
    :param objects: pools of heads and stripes.
    """

    refs: str
    objects: frozenset[str]

    def check(self, present: Mapping[str, Pool]) -> None:
        """Refuse pools of the wrong kind, and tell of those without a tag.

        A pool that is absent is told of where it is opened.

        :raises InvalidError: when the pool of refs is erasure-coded.
        """
        refs = present.get(self.refs)
        if refs is not None and refs.is_erasure_coded:
            raise exception.InvalidError(
                f"pool {self.refs} is erasure-coded, refs need a replicated one",
                hint="make a replicated pool, and name it in the URL of the origin: ref_pool=POOL",
            )
        for name in sorted(self.objects | {self.refs}):
            pool = present.get(name)
            if pool is not None and not pool.is_tagged:
                LOG.warning(
                    "pool %s has no application, of which Ceph's health warns: "
                    "'ceph osd pool application enable %s %s'",
                    name, name, APPLICATION,
                )  # fmt: skip
