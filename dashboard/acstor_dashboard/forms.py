"""Forms whose failure keeps what the user has typed."""

import hashlib
import json
import uuid
from typing import Any

from django import http
from django.utils.translation import gettext_lazy as _
from horizon import forms

from acstor_dashboard import connection, failures
from acstor_dashboard.connection import PageProxy

DATE_HELP = _("For example 2026-12-24 18:00, in the time zone of your settings.")
CONSISTENCY_CHOICES = (
    ("best", _("File systems frozen if the guest agent answers, else as after a power cut")),
    ("fs", _("File systems frozen, or no version")),
    ("crash", _("As after a power cut")),
)


class ApiForm(forms.SelfHandlingForm):
    """A form that asks something of the API, once, however often it is sent."""

    nonce = forms.CharField(widget=forms.HiddenInput, required=False, max_length=36)

    def __init__(self, request: http.HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        self.fields["nonce"].initial = str(uuid.uuid4())

    def handle(self, request: http.HttpRequest, data: dict[str, Any]) -> Any:
        """Do what is asked; False: it failed, and the form says how."""
        wanted = dict(data)
        nonce = wanted.pop("nonce", "")
        try:
            api = connection.connect(request)
            api.idempotency_key = key_of(nonce, request.path, wanted) if nonce else None
            return self.act(api, wanted)
        except failures.API_ERRORS as error:
            self.api_error(failures.explain(error).text())
            return False

    def act(self, api: PageProxy, data: dict[str, Any]) -> Any:
        """Do it.

        :returns: where to go, or True.
        """
        raise NotImplementedError


def key_of(nonce: str, path: str, data: dict[str, Any]) -> str:
    """Return the key of what a form asks for: the same one for a second click on it.

    Who corrects something and sends the form again asks for something else.

    :param nonce: of the form as it was shown.
    """
    content = json.dumps([nonce, path, data], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()


def given(data: dict[str, Any]) -> dict[str, Any]:
    """Return what the user has filled in, times as the API takes them."""
    filled = {name: value for name, value in data.items() if value not in (None, "")}
    return {
        name: value.isoformat() if hasattr(value, "isoformat") else value
        for name, value in filled.items()
    }
