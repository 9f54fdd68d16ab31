"""The content security policy allows the scripts of Horizon's frame, and none of the panels'."""

import base64
import hashlib

from tests.interop.dashboard.content_policy import policy_of

PAGE = """
<script>frame()</script><script src="/static/x.js"></script>
<div id="main_content"><div class="acstor" ng-non-bindable><script>ours()</script></div></div>
<div id="footer"></div><script type="text/javascript">last()</script>
"""


def source(script: str) -> str:
    """Return a script as a policy names it."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def test_scripts_are_allowed_one_by_one() -> None:
    policy = policy_of(PAGE.encode())
    (scripts,) = [part for part in policy.split("; ") if part.startswith("script-src")]
    allowed = {"'self'", "'unsafe-eval'", source("frame()"), source("last()")}
    assert set(scripts.split()[1:]) == allowed
    assert "'unsafe-inline'" not in scripts
