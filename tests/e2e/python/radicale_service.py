"""Radicale, a server of calendars, behind a proxy that authenticates its users: it takes the user
from the header `X-Remote-User`, and gives each user a collection. Its files are in the directory of
the argument. It prints its address, and the test stops it.
"""

import json
import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from radicale import Application, config, log

log.setup()
configuration = config.load()
configuration.update(
    {
        # Without the delay of refused requests.
        "auth": {"type": "http_x_remote_user", "delay": "0"},
        "rights": {"type": "owner_only"},
        "storage": {"filesystem_folder": sys.argv[1]},
        # Its page looks for a user that the proxy has signed in, with the cookies of the proxy.
        "web": {"prefer_browser_login": "True"},
    }
)


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Handler(WSGIRequestHandler):
    def log_message(self, *_):
        pass


with make_server("127.0.0.1", 0, Application(configuration), Server, Handler) as server:
    print(json.dumps({"address": f"127.0.0.1:{server.server_port}"}), flush=True)
    server.serve_forever()
