"""Servers and volumes that a user names."""

import re
from typing import Any

from django import forms, http
from django.utils.translation import gettext as _
from openstack_dashboard import api

from acstorclient.v1.base import is_uuid

HITS_SHOWN = 5
"""Ids in the words of an error; more make it unreadable."""


def find(request: http.HttpRequest, kind: str, text: str) -> str:
    """Return the id of a server or volume.

    An id is taken as it is: the API asks whether the user sees that.

    :param kind: ``server`` or ``volume``.
    :raises ValidationError: none has the name, several have it, or nobody can say.
    """
    text = text.strip()
    if is_uuid(text):
        return text.lower()
    try:
        found = _servers(request, text) if kind == "server" else _volumes(request, text)
    except Exception as error:  # whatever the clients of Nova and Cinder raise
        raise forms.ValidationError(
            _("Names cannot be looked up now; give the ID."), code="away"
        ) from error
    hits = [each.id for each in found if each.name == text]
    if not hits:
        raise forms.ValidationError(_("There is none of this name."), code="absent")
    if len(hits) > 1:
        shown = ", ".join(hits[:HITS_SHOWN])
        raise forms.ValidationError(
            _("Several have this name; give the ID: %s") % shown, code="several"
        )
    return str(hits[0])


def _servers(request: http.HttpRequest, name: str) -> list[Any]:
    wanted = {"name": f"^{re.escape(name)}$"}  # Nova's filter is a regular expression
    servers, _has_more = api.nova.server_list(request, search_opts=wanted, detailed=False)
    return list(servers)


def _volumes(request: http.HttpRequest, name: str) -> list[Any]:
    return list(api.cinder.volume_list(request, search_opts={"name": name}))
