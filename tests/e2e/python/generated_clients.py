"""Imports every module of the clients that openapi-python-client wrote, and makes calls with them.

`packages` is the directory of both packages.
"""

import importlib
import json
import os
import pkgutil
import socket
import ssl
import sys

WORLD = json.loads(os.environ["SVC_TEST_WORLD"])
GIVEN = WORLD["given"]
sys.path.insert(0, GIVEN["packages"])


def find_localhost():
    """Names under `localhost` are this machine (RFC 6761), which not every resolver knows."""
    ask = socket.getaddrinfo

    def getaddrinfo(host, *rest, **options):
        name = host.decode() if isinstance(host, bytes) else host
        return ask("127.0.0.1" if name.endswith(".localhost") else host, *rest, **options)

    socket.getaddrinfo = getaddrinfo


def load(package):
    """Imports the package with all its modules. Returns the names of its operations."""
    top = importlib.import_module(package)
    names = [module.name for module in pkgutil.walk_packages(top.__path__, package + ".")]
    for name in names:
        importlib.import_module(name)
    endpoints = package + ".api.default."
    return sorted(name.removeprefix(endpoints) for name in names if name.startswith(endpoints))


def call(package, url, operation, **arguments):
    """The parsed response of an operation."""
    trusted = ssl.create_default_context(cafile=GIVEN["ca_file"])
    client = importlib.import_module(package).AuthenticatedClient(
        base_url=url,
        token=GIVEN["token"],
        verify_ssl=trusted,
        httpx_args={"trust_env": False},
        raise_on_unexpected_status=True,
    )
    module = importlib.import_module(f"{package}.api.default.{operation}")
    return module.sync(client=client, **arguments)


find_localhost()
operations = {package: load(package) for package in ("control_plane", "engine")}
whoami = call("control_plane", WORLD["url"], "get_whoami")
projects = call("control_plane", WORLD["url"], "list_tunnels_projects", page_size=1)
tunnels = call("engine", GIVEN["engine"], "list_engine_tunnels")
json.dump(
    {
        "operations": operations,
        "whoami": whoami.to_dict(),
        "projects": projects.to_dict(),
        "tunnels": [tunnel.to_dict() for tunnel in tunnels],
    },
    sys.stdout,
)
