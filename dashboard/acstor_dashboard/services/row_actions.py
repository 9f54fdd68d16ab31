"""Row actions in Horizon's own tables of servers and volumes.

Horizon has no hook for them: two attributes of each table's class are changed when its processes
start. Tests hold the releases of Horizon to that.
"""

import importlib
import logging
from collections.abc import Sequence
from typing import Any

from django import urls
from django.utils.translation import gettext_lazy as _

from acstor_dashboard.tables import ItemLink
from acstor_dashboard.versions.tables import PANEL

LOG = logging.getLogger(__name__)

DASHBOARDS = "openstack_dashboard.dashboards"


class RowLink(ItemLink):
    """A link of a row of another panel; nothing is asked for it, as rows are polled."""

    key = "owner"
    permissions = ("openstack.services.acstor",)

    def allowed(self, request: Any, datum: Any = None) -> bool:
        """Return whether it is shown: in regions with ACStor, to who may follow it."""
        return bool(request.user.has_perms(self.permissions)) and super().allowed(request)


class ServerVersions(RowLink):
    """Versions of a server."""

    name = "acstor_versions"
    verbose_name = _("Versions and Restore")
    url = f"{PANEL}:server"
    rules = ("versions:list",)


class TakeOfServer(RowLink):
    """Take a version of a server."""

    name = "acstor_take"
    verbose_name = _("Take Version")
    url = f"{PANEL}:take"
    classes = ("ajax-modal",)
    rules = ("versions:create",)
    field = "server_id"

    def get_link_url(self, datum: Any = None) -> str:
        """Return the URL of the form, filled in."""
        return f"{urls.reverse(self.url)}?{self.field}={datum.id}"


class VolumeVersions(ServerVersions):
    """Versions of a volume."""

    url = f"{PANEL}:volume"


class TakeOfVolume(TakeOfServer):
    """Take a version of a volume."""

    field = "volume_id"


class VolumeDurability(ServerVersions):
    """Durability and recovery point of a volume."""

    name = "acstor_durability"
    verbose_name = _("Durability")
    url = f"{PANEL}:durability"
    classes = ("ajax-modal",)
    rules = ("volumes:update",)


TABLES: Sequence[tuple[str, str, Sequence[type[RowLink]]]] = (
    ("project.instances.tables", "InstancesTable", (ServerVersions, TakeOfServer)),
    ("admin.instances.tables", "AdminInstancesTable", (ServerVersions,)),
    (
        "project.volumes.tables",
        "VolumesTable",
        (VolumeVersions, TakeOfVolume, VolumeDurability),
    ),
    ("admin.volumes.tables", "VolumesTable", (VolumeVersions,)),
)
"""Module and class of each table, and what its rows are given."""


def extend_tables() -> None:
    """Give Horizon's tables our actions; one that a release has no more is a line of the log."""
    for module, name, actions in TABLES:
        try:
            table = getattr(importlib.import_module(f"{DASHBOARDS}.{module}"), name)
            extend(table, actions)
        except (ImportError, AttributeError) as error:
            LOG.warning("Rows of %s.%s get no actions of ACStor: %s", module, name, error)


def extend(table: Any, actions: Sequence[type[RowLink]]) -> None:
    """Give a table's rows actions; those that it has already are left."""
    for action in actions:
        if action.name not in table.base_actions:
            table.base_actions[action.name] = action()
            table._meta.row_actions = (*table._meta.row_actions, action)
