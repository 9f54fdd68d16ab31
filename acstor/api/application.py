"""WSGI application: what is around the resources, from the outside in.

::

    proxy headers - request id - CORS - +-- /, /v1/, /v1/openapi.json, /healthcheck: for everybody
                                        '-- auth_token - falcon: microversion, rule, schemas

There is no paste file: what is here is what runs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import falcon
from keystonemiddleware import auth_token
from oslo_config import cfg
from oslo_middleware import cors, healthcheck, http_proxy_to_wsgi, request_id

from acstor.api import discovery, errors, microversions, openapi, routes
from acstor.api.routes import Route

Environment = dict[str, Any]
StartResponse = Callable[..., Any]
WsgiApplication = Callable[[Environment, StartResponse], Iterable[bytes]]

HEALTHCHECK = "/healthcheck"
"""Path of the health check, for load balancers."""
CORS_HEADERS = {
    "allow_headers": [
        "Content-Type",
        "X-Auth-Token",
        microversions.HEADER,
        "Idempotency-Key",
        "Range",
        "If-Range",
    ],
    "expose_headers": [
        "X-Openstack-Request-Id",
        microversions.HEADER,
        "ETag",
        "Location",
        "Accept-Ranges",
        "Content-Length",
        "Content-Range",
    ],
    "allow_methods": list(routes.METHODS),
}
"""Headers and methods that pages of other sites may use, where ``[cors]`` names such sites."""


def resources_application(table: Sequence[Route]) -> WsgiApplication:
    """Return what is behind auth_token: whoever calls it is believed to be who the headers say."""
    app = _falcon([microversions.Microversions()])
    routes.add(app, table)
    guarded: WsgiApplication = app
    return guarded


def open_application(table: Sequence[Route]) -> WsgiApplication:
    """Return what needs no token: the versions, the OpenAPI document."""
    app = _falcon([])
    app.add_route("/", discovery.Versions())
    app.add_route(routes.PREFIX, discovery.VersionOne())
    app.add_route(routes.PREFIX + openapi.PATH, openapi.Document(table))
    opened: WsgiApplication = app
    return opened


def build(
    conf: cfg.ConfigOpts,
    table: Sequence[Route],
    more_open: Mapping[str, WsgiApplication] | None = None,
) -> WsgiApplication:
    """Return the whole application.

    :param conf: in which the options of Keystone's middleware and the like are registered, too.
    :param more_open: further applications that ask for no token of Keystone, by path.
    """
    cors.set_defaults(**CORS_HEADERS)
    open_app = open_application(table)
    without_token: dict[str, WsgiApplication] = {
        "": open_app,
        routes.PREFIX: open_app,
        routes.PREFIX + openapi.PATH: open_app,
        HEALTHCHECK: healthcheck.Healthcheck(None, conf),
        **(more_open or {}),
    }
    guarded: WsgiApplication = auth_token.AuthProtocol(
        resources_application(table),
        {"oslo_config_config": conf, "service_type": microversions.SERVICE_TYPE},
    )

    def dispatch(environ: Environment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "").rstrip("/")
        return without_token.get(path, guarded)(environ, start_response)

    wrapped: WsgiApplication = cors.CORS(dispatch, conf)
    wrapped = request_id.RequestId(wrapped)
    wrapped = http_proxy_to_wsgi.HTTPProxyToWSGI(wrapped, conf)
    # A plain function: servers and tests look at the signature of what they call.
    return lambda environ, start_response: wrapped(environ, start_response)


def _falcon(middleware: list[Any]) -> Any:
    app: Any = falcon.App(middleware=middleware)
    app.req_options.strip_url_path_trailing_slash = True
    app.req_options.auto_parse_form_urlencoded = False
    errors.install(app)
    return app
