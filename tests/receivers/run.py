"""Runs the receivers of docs/webhooks.md, and calls each as `functions/webhooks` does. The calls use both content
types, an event with non-Latin text, and invalid requests (another body, another secret, an old time, no signature).
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path

from standardwebhooks import Webhook

HERE = Path(__file__).resolve().parent
PAGE = (HERE.parent.parent / "docs/webhooks.md").read_text()
SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDazfKYIKXsUE="
OTHER_SECRET = "whsec_AAAAsBQIhrscChlQIMV+b5sSYspob7oDazfKYIKXsUE="
CONTENT_TYPES = ["application/cloudevents+json", "application/json"]
STARTS_IN = 60
# The Django project, which the documentation leaves out.
DJANGO = """
import sys
from django.conf import settings
settings.configure(DEBUG=False, SECRET_KEY="x", ALLOWED_HOSTS=["127.0.0.1"], ROOT_URLCONF=__name__,
                   INSTALLED_APPS=["rest_framework"], REST_FRAMEWORK={"UNAUTHENTICATED_USER": None})
import django
django.setup()
from django.core.wsgi import get_wsgi_application
from django.urls import path
import receiver
urlpatterns = [path("purser", receiver.purser)]
from wsgiref.simple_server import make_server
make_server("127.0.0.1", int(sys.argv[1]), get_wsgi_application()).serve_forever()
"""


def example(heading):
    """The code of the page's section."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.search(r"```(?:js|python)\n(.*?)```", section, re.DOTALL).group(1)


def commands(folder, port):
    """Returns the command that runs the example of each framework."""
    (folder / "fastapi").mkdir()
    (folder / "fastapi/receiver.py").write_text(example("FastAPI"))
    (folder / "django").mkdir()
    (folder / "django/receiver.py").write_text(example("Django REST framework"))
    (folder / "django/serve.py").write_text(DJANGO)
    (folder / "express").mkdir()
    (folder / "express/receiver.mjs").write_text(example("Express"))
    # Node searches for modules in the parent folders of the file.
    (folder / "express/node_modules").symlink_to(HERE / "node_modules")
    uvicorn = [sys.executable, "-m", "uvicorn", "--app-dir", folder / "fastapi", "--port", str(port), "receiver:app"]
    return {
        "Express": ["node", "--preserve-symlinks-main", folder / "express/receiver.mjs"],
        "FastAPI": uvicorn,
        "Django REST framework": [sys.executable, folder / "django/serve.py", str(port)],
    }


def call(port, body, secret=SECRET, content_type=CONTENT_TYPES[0], at=None, sent=None, signed=True):
    """Returns the status of a call with this body, which is signed as if the body were `sent`. By default both are the
    same.
    """
    at = at or datetime.now(timezone.utc)
    headers = {"content-type": content_type, "webhook-id": "0f0e", "webhook-timestamp": str(int(at.timestamp()))}
    if signed:
        headers["webhook-signature"] = Webhook(secret).sign("0f0e", at, sent or body)
    request = urllib.request.Request(f"http://127.0.0.1:{port}/purser", body.encode(), headers, method="POST")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def await_start(port, process):
    until = time.monotonic() + STARTS_IN
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert process.poll() is None, "the receiver ended"
            assert time.monotonic() < until, "the receiver does not listen"
            time.sleep(0.1)


def check(port):
    """Returns the calls whose status is not the expected one."""
    events = [json.dumps({"type": "purser.webhook.test.v1", "id": "1", "data": {"name": name}}, ensure_ascii=False)
              for name in ("plain", "Zoë 王 👩‍🚀", "x" * 200_000)]
    event = events[0]
    old = datetime.now(timezone.utc) - timedelta(hours=1)
    rows = [(f"{kind}, {len(body)} characters", 204, call(port, body, content_type=kind))
            for kind in CONTENT_TYPES for body in events]
    for kind in CONTENT_TYPES:
        rows += [
            (f"{kind}, another body", 401, call(port, event.replace("plain", "other"), content_type=kind, sent=event)),
            (f"{kind}, another secret", 401, call(port, event, OTHER_SECRET, kind)),
            (f"{kind}, an old call", 401, call(port, event, content_type=kind, at=old)),
            (f"{kind}, no signature", 401, call(port, event, content_type=kind, signed=False)),
            (f"{kind}, no body", 401, call(port, "", content_type=kind, sent=event)),
        ]
    return [f"{name}: {status} instead of {expected}" for name, expected, status in rows if status != expected]


def main():
    wrong = []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        for framework, command in commands(Path(folder), port).items():
            environment = {**os.environ, "WEBHOOK_SECRET": SECRET, "PORT": str(port)}
            with open(Path(folder) / "output", "w+") as output:
                process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
                try:
                    await_start(port, process)
                    problems = check(port)
                except (AssertionError, OSError) as error:
                    problems = [repr(error)]
                finally:
                    process.terminate()
                    process.wait()
                if problems:
                    output.seek(0)
                    print(output.read()[-2000:])
            wrong += [f"{framework}: {problem}" for problem in problems]
            print(f"receivers: {framework}: {'failed' if problems else 'ok'}")
    print("\n".join(wrong))
    sys.exit(bool(wrong))


main()
