"""Panels that are shown to who may see something in them."""

from collections.abc import Mapping
from typing import Any, ClassVar

import horizon

from acstor_dashboard import authorization


class PermittedPanel(horizon.Panel):
    """A panel of a region that has ACStor.

    :cvar rules: rules of the API that the user has to pass.
    """

    permissions = ("openstack.services.acstor",)
    rules: ClassVar[tuple[str, ...]] = ()

    def allowed(self, context: Mapping[str, Any]) -> bool:
        """Return whether the user sees it."""
        return authorization.may(context["request"], *self.rules) and super().allowed(context)
