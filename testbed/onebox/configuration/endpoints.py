"""Endpoints of the controller's services, and credentials with which they log in to each other."""

from testbed.onebox.network import CONTROLLER_ADDRESS

REGION = "RegionOne"
#: Of everything: the network behind which it is used ends at the one-box.
PASSWORD = "onebox"  # noqa: S105
DATABASE_USER = "openstack"
MESSAGE_USER = "openstack"

MARIADB_PORT = 3306
RABBITMQ_PORT = 5672
MEMCACHED_PORT = 11211
KEYSTONE_PORT = 5000
GLANCE_PORT = 9292
PLACEMENT_PORT = 8778
NOVA_PORT = 8774
CINDER_PORT = 8776
NEUTRON_PORT = 9696
ACSTOR_PORT = 9480

KEYSTONE_URL = f"http://{CONTROLLER_ADDRESS}:{KEYSTONE_PORT}/v3"
MEMCACHED = f"{CONTROLLER_ADDRESS}:{MEMCACHED_PORT}"
TRANSPORT_URL = f"rabbit://{MESSAGE_USER}:{PASSWORD}@{CONTROLLER_ADDRESS}:{RABBITMQ_PORT}/"

#: Service type to name and URL.
CATALOGUE: dict[str, tuple[str, str]] = {
    "image": ("glance", f"http://{CONTROLLER_ADDRESS}:{GLANCE_PORT}"),
    "placement": ("placement", f"http://{CONTROLLER_ADDRESS}:{PLACEMENT_PORT}"),
    "compute": ("nova", f"http://{CONTROLLER_ADDRESS}:{NOVA_PORT}/v2.1"),
    "block-storage": ("cinder", f"http://{CONTROLLER_ADDRESS}:{CINDER_PORT}/v3/%(project_id)s"),
    "acstor": ("acstor", f"http://{CONTROLLER_ADDRESS}:{ACSTOR_PORT}"),
    "network": ("neutron", f"http://{CONTROLLER_ADDRESS}:{NEUTRON_PORT}"),
}
SERVICE_USERS = ("glance", "placement", "nova", "cinder", "neutron", "acstor")
DATABASES = (
    "keystone", "glance", "placement", "nova_api", "nova", "nova_cell0", "cinder", "neutron",
    "acstor", "acstor_flows",
)  # fmt: skip


def database_url(name: str) -> str:
    """Return the URL of a database for SQLAlchemy."""
    return (
        f"mysql+pymysql://{DATABASE_USER}:{PASSWORD}@{CONTROLLER_ADDRESS}:{MARIADB_PORT}/{name}"
        "?charset=utf8mb3"
    )


def login(user: str) -> dict[str, str]:
    """Return the options with which a service logs in to Keystone and finds the others."""
    return {**credentials(user), "region_name": REGION}


def credentials(user: str) -> dict[str, str]:
    """Return the options with which a service logs in to Keystone."""
    return {
        "auth_type": "password",
        "auth_url": KEYSTONE_URL,
        "username": user,
        "password": PASSWORD,
        "user_domain_name": "Default",
        "project_name": "service",
        "project_domain_name": "Default",
    }


def token_validation(user: str) -> dict[str, str]:
    """Return the options with which an API validates its callers' tokens."""
    return {
        **login(user),
        "www_authenticate_uri": KEYSTONE_URL,
        "memcached_servers": MEMCACHED,
        "service_token_roles": "service",
        "service_token_roles_required": "true",
    }


def person() -> dict[str, str]:
    """Return the environment of the administrator's clients."""
    return {
        "OS_AUTH_URL": KEYSTONE_URL,
        "OS_IDENTITY_API_VERSION": "3",
        "OS_PASSWORD": PASSWORD,
        "OS_PROJECT_DOMAIN_NAME": "Default",
        "OS_USER_DOMAIN_NAME": "Default",
        "OS_REGION_NAME": REGION,
    }
