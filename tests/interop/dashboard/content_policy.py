"""The content security policy that the panels are tested under.

Horizon sends none. Its own frame has scripts in its pages, and AngularJS, so a policy has to allow
them; here by name, so that nothing of the kind is allowed to the plug-in's part of a page:

* ``script-src``: each script that stands in the frame, by its digest. No ``'unsafe-inline'``: a
  script or a handler in the plug-in's part does not run, and the browser says so.
* ``'unsafe-eval'``: AngularJS compiles its expressions, unless a page has ``ng-csp``, which
  Horizon's has not. The plug-in's part is ``ng-non-bindable``.
* ``style-src 'unsafe-inline'``: AngularJS and Bootstrap's widgets write styles into the page.
* ``img-src data:``: Bootstrap's and the themes' own style has icons as such.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Any

from tests.interop.dashboard.loopback import Application

OWN_PART = re.compile(rb'<div class="acstor".*?(?=<div id="footer")', re.DOTALL)
"""The plug-in's part of a page, up to what Horizon's base template has behind it."""
INLINE_SCRIPT = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL)
DIRECTIVES = (
    "default-src 'self'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "object-src 'none'",
    "base-uri 'self'",
    "form-action 'self'",
    "frame-ancestors 'none'",
)


def policy_of(page: bytes) -> str:
    """Return the policy of a page, with the digests of the scripts in Horizon's frame.

    Source: Content Security Policy Level 3, section 2.3.1 (hash sources).
    """
    frame = OWN_PART.sub(b"", page)
    digests = {hashlib.sha256(script).digest() for script in INLINE_SCRIPT.findall(frame)}
    sources = sorted(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return "; ".join([*DIRECTIVES, " ".join(["script-src 'self' 'unsafe-eval'", *sources])])


def enforced(application: Application) -> Application:
    """Return an application whose pages have the policy."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        said: list[Any] = []

        def remember(status: str, headers: list[tuple[str, str]], error: Any = None) -> None:
            said[:] = [status, headers, error]

        parts = application(environ, remember)
        try:
            body = b"".join(parts)
        finally:
            if hasattr(parts, "close"):
                parts.close()
        status, headers, error = said
        if any(value.startswith("text/html") for name, value in headers if name == "Content-Type"):
            headers = [*headers, ("Content-Security-Policy", policy_of(body))]
        start_response(status, headers, error)
        return [body]

    return answer
