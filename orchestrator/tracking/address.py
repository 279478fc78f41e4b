"""Where a sweep is recorded: the absolute address of the tracking store, and whether it can be used.

MLflow itself is not imported here: that takes seconds, and its own client retries for minutes.
"""

from __future__ import annotations

import base64
import configparser
import json
import os
import socket
import sqlite3
import ssl
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from orchestrator.errors import TrackingError
from orchestrator.masking import mask, mask_uri

_DATABASE_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
_ALLOWED = "http(s)://HOST:PORT, sqlite:///FILE, postgresql://, mysql://, mssql:// or databricks"


def probe(tracking_uri: str | None, default_folder: Path, timeout_s: float = 5.0) -> str:
    """The absolute address to use, after it was seen to answer and, as far as that shows, to take writes.

    `tracking_uri` None means MLFLOW_TRACKING_URI, and without that a SQLite file in `default_folder`.

    Raises:
        TrackingError: names the address without credentials, what was tried, and a remedy.
    """
    uri = resolve(tracking_uri, default_folder)
    scheme = _scheme(uri)
    if scheme == "databricks":  # addressed by a profile that only its own client can read
        return uri
    check = {"sqlite": _check_sqlite, "http": _check_server, "https": _check_server}.get(scheme, _check_port)
    fault = _within(timeout_s, lambda: check(uri, timeout_s))
    if fault:
        raise TrackingError(f"tracking address {mask_uri(uri)} cannot be used: {mask(fault)}")
    return uri


def resolve(tracking_uri: str | None, default_folder: Path) -> str:
    """The address made absolute; relative ones count from `default_folder`. Asks nobody.

    Raises:
        TrackingError: no kind of address that can be used.
    """
    folder = default_folder.absolute()
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
    scheme = _scheme(uri)
    if scheme in ("", "file"):
        raise TrackingError(
            f"tracking address {mask_uri(uri)} is a folder, which MLflow no longer supports as a store: "
            f"use sqlite:///{folder / 'mlflow.db'} or the address of a server (http://HOST:PORT)"
        )
    if scheme not in ("sqlite", "http", "https", "databricks", *_DATABASE_PORTS):
        raise TrackingError(
            f"tracking address {mask_uri(uri)} is not of a kind that MLflow knows; allowed: {_ALLOWED}"
        )
    if scheme != "sqlite":
        return uri
    head, _, rest = uri.partition(":///")
    file, mark, query = rest.partition("?")
    if file in ("", ":memory:"):
        raise TrackingError(
            f"tracking address {uri} is a database in memory, lost at the end: "
            f"use sqlite:///{folder / 'mlflow.db'}"
        )
    return f"{head}:///{folder / file}{mark}{query}"


def sqlite_file(uri: str) -> Path | None:
    """The file behind an absolute SQLite address; None for other addresses."""
    return Path(uri.partition(":///")[2].partition("?")[0]) if _scheme(uri) == "sqlite" else None


def _scheme(uri: str) -> str:
    """Without a driver ("postgresql+psycopg2"); empty for a path."""
    if uri == "databricks":
        return uri
    head, colon, _ = uri.partition(":")
    if not colon or len(head) == 1:  # a path, perhaps with a drive letter
        return ""
    return head.partition("+")[0].lower().removesuffix("-uc")


def _within(timeout_s: float, check: Callable[[], str | None]) -> str | None:
    """The answer of `check`, or that there was none in time (name look-up and dead disks know no limit)."""
    answer: list[str | None] = []
    thread = threading.Thread(target=lambda: answer.append(check()), name="tracking-probe", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return answer[0] if answer else f"no answer within {timeout_s:g} s; is it the right address, and running?"


def _check_sqlite(uri: str, timeout_s: float) -> str | None:
    file = sqlite_file(uri)
    assert file is not None
    existing = next(folder for folder in file.parents if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return f"{existing} cannot be written ({error.strerror or error}); choose another folder"
    if not file.exists():
        return None
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(file))}?mode=rw", uri=True, timeout=timeout_s / 2, isolation_level=None
        )
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        finally:
            connection.close()
    except sqlite3.Error as error:
        return f"opening the file for writing failed ({error}); end what holds it, or choose another file"
    return None


def _check_server(uri: str, timeout_s: float) -> str | None:
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    url = urlunsplit((parts.scheme, host, parts.path.rstrip("/") + "/api/2.0/mlflow/experiments/search", "", ""))
    headers = {"Content-Type": "application/json", **_authorization(parts.username, parts.password)}
    request = urllib.request.Request(url, b'{"max_results": 1}', headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s, context=_tls_context()) as response:
            json.load(response)
    except urllib.error.HTTPError as error:
        own_login = os.environ.get("MLFLOW_TRACKING_AUTH") or os.environ.get("MLFLOW_TRACKING_AWS_SIGV4")
        if error.code in (401, 403):
            if own_login:  # only MLflow's client can sign in: that the server answers is all we can see
                return None
            return (
                f"POST {url} was refused (HTTP {error.code}); set MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
            )
        return f"POST {url} was answered with HTTP {error.code}; is it an MLflow server, and healthy?"
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        return f"POST {url} failed ({why}); start the server (mlflow server) or correct the address"
    return None


def _authorization(username: str | None, password: str | None) -> dict[str, str]:
    """The header for what the address, the environment or ~/.mlflow/credentials says, as MLflow takes them."""
    stored = configparser.ConfigParser(interpolation=None)
    stored.read(Path.home() / ".mlflow" / "credentials", encoding="utf-8")

    def known(name: str) -> str | None:
        return os.environ.get(name) or stored.get("mlflow", name.lower(), fallback=None)

    user = unquote(username) if username else known("MLFLOW_TRACKING_USERNAME")
    secret = unquote(password) if password else known("MLFLOW_TRACKING_PASSWORD")
    if user and secret:
        return {"Authorization": f"Basic {base64.b64encode(f'{user}:{secret}'.encode()).decode()}"}
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH"))
    if os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in ("true", "1"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if client := os.environ.get("MLFLOW_TRACKING_CLIENT_CERT_PATH"):
        context.load_cert_chain(client)
    return context


def _check_port(uri: str, timeout_s: float) -> str | None:
    parts = urlsplit(uri)
    try:
        place = parts.hostname or "localhost", parts.port or _DATABASE_PORTS[_scheme(uri)]
        with socket.create_connection(place, timeout=timeout_s):
            return None
    except (OSError, ValueError) as error:
        return f"connecting to its host failed ({error}); start the database or correct the address"
