"""Entry of the plug-in: name, version and client of the service.

The OpenStack client imports this module with each of its commands: it imports nothing itself.
Source: ``openstackclient/compute/client.py``.
"""

import argparse
import os
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acstorclient.v1.proxy import Proxy

API_NAME = "acstor"
"""Attribute of the client manager, and the middle of the group of commands."""
API_VERSION_OPTION = "os_acstor_api_version"
DEFAULT_API_VERSION = "1"
"""Major version; of its microversions the newest that client and cloud know is asked for."""
API_VERSIONS = ("1",)

_VERSION = re.compile(r"1(\.(0|[1-9][0-9]{0,3}))?\Z")


def make_client(instance: Any) -> "Proxy":
    """Return the proxy of a client manager's connection."""
    from acstorclient import service

    return service.attach(instance.sdk_connection)


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the option of the service."""
    parser.add_argument(
        "--os-acstor-api-version",
        metavar="<acstor-api-version>",
        default=os.environ.get("OS_ACSTOR_API_VERSION", ""),
        help=f"ACStor API version, 1 or a microversion such as 1.0, default={DEFAULT_API_VERSION} "
        "(Env: OS_ACSTOR_API_VERSION)",
    )
    return parser


def check_api_version(version: str) -> bool:
    """Return whether the version needs no check against ``API_VERSIONS``: microversions do not."""
    return _VERSION.match(version) is not None
