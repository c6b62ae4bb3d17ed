"""A Django application that a proxy authenticates, as Django's documentation describes it: the
RemoteUserMiddleware with a header, and an account for each new user. It also verifies the assertion
with PyJWT and the keys at the address in the first argument. It prints its address, and the test
stops it.
"""

import json
import sys
from urllib.parse import unquote
from wsgiref.simple_server import WSGIRequestHandler, make_server

import django
import jwt
from django.conf import settings

ISSUER, KEYS = sys.argv[1:]

settings.configure(
    SECRET_KEY="of the test",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF="__main__",
    USE_X_FORWARDED_HOST=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes"],
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "__main__.HeaderMiddleware",
    ],
    AUTHENTICATION_BACKENDS=["django.contrib.auth.backends.RemoteUserBackend"],
)
django.setup()

from django.contrib.auth.middleware import RemoteUserMiddleware  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402
from django.core.handlers.wsgi import WSGIHandler  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.http import JsonResponse  # noqa: E402
from django.urls import re_path  # noqa: E402


class HeaderMiddleware(RemoteUserMiddleware):
    header = "HTTP_REMOTE_USER"


def claims(request):
    """The verified claims of the assertion."""
    assertion = request.META.get("HTTP_SVC_ASSERTION")
    if assertion is None:
        return None
    key = jwt.PyJWKClient(KEYS).get_signing_key_from_jwt(assertion)
    audience = f"https://{request.get_host().split(':')[0]}"
    return jwt.decode(assertion, key, ["ES256"], audience=audience, issuer=ISSUER)


def show(request):
    return JsonResponse(
        {
            "user": request.user.get_username(),
            "is_authenticated": request.user.is_authenticated,
            "accounts": sorted(User.objects.values_list("username", flat=True)),
            "name": unquote(request.META.get("HTTP_SVC_USER_NAME", "")),
            "groups": request.META.get("HTTP_SVC_USER_GROUPS"),
            "claims": claims(request),
        }
    )


urlpatterns = [re_path("", show)]


class Handler(WSGIRequestHandler):
    def log_message(self, *_):
        pass


call_command("migrate", verbosity=0)
with make_server("127.0.0.1", 0, WSGIHandler(), handler_class=Handler) as server:
    print(json.dumps({"address": f"127.0.0.1:{server.server_port}"}), flush=True)
    server.serve_forever()
