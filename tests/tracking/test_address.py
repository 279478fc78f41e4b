import base64
import http.server
import json
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import TrackingError
from orchestrator.tracking.address import probe, resolve


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("URI", "USERNAME", "PASSWORD", "TOKEN", "AUTH", "AWS_SIGV4"):
        monkeypatch.delenv(f"MLFLOW_TRACKING_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


class _Server(http.server.BaseHTTPRequestHandler):
    """Answers as an MLflow server behind a password does."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        expected = "Basic " + base64.b64encode(b"ann:p@ss").decode()
        if not self.path.endswith("/api/2.0/mlflow/experiments/search"):
            self.send_error(404)
        elif self.headers.get("Authorization") != expected:
            self.send_error(401)
        else:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"experiments": []}).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a server with a password."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running.server_port
        running.shutdown()
        thread.join(10)


def test_the_default_is_a_sqlite_file_in_the_folder_of_the_start(tmp_path: Path) -> None:
    assert probe(None, tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"
    assert not (tmp_path / "mlflow.db").exists()


def test_the_environment_is_asked_before_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///sub/runs.db")
    assert resolve(None, tmp_path) == f"sqlite:///{tmp_path}/sub/runs.db"
    assert resolve("sqlite:////abs/runs.db", tmp_path) == "sqlite:////abs/runs.db"


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("mlruns", "is a folder"),
        ("./mlruns", "is a folder"),
        ("file:///tmp/mlruns", "is a folder"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("ftp://ann:pw@host/x", "not of a kind"),
    ],
)
def test_addresses_that_cannot_work_are_refused_with_a_remedy(tmp_path: Path, uri: str, says: str) -> None:
    with pytest.raises(TrackingError, match=says) as caught:
        probe(uri, tmp_path)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["http", "postgresql+psycopg2", "mysql"])
def test_a_place_where_nobody_listens_is_reported_at_once_without_the_password(
    tmp_path: Path, scheme: str
) -> None:
    with socket.socket() as taken:  # bound but not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        began = time.monotonic()
        with pytest.raises(TrackingError, match="failed") as caught:
            probe(f"{scheme}://ann:canary@127.0.0.1:{taken.getsockname()[1]}/db", tmp_path)
    assert time.monotonic() - began < 5
    assert "canary" not in str(caught.value)
    assert "***@127.0.0.1" in str(caught.value)


def test_a_server_that_never_answers_is_given_up_in_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(TrackingError, match="cannot be used"):
            probe(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path, timeout_s=0.5)
        assert time.monotonic() - began < 3


def test_a_password_in_the_address_or_the_environment_is_used(
    tmp_path: Path, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"http://ann:p%40ss@127.0.0.1:{server}/prefix/"
    assert probe(uri, tmp_path) == uri
    with pytest.raises(TrackingError, match="HTTP 401"):
        probe(f"http://127.0.0.1:{server}", tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "p@ss")
    assert probe(f"http://127.0.0.1:{server}", tmp_path)


def test_a_server_of_another_kind_is_not_taken_for_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Server, "do_POST", lambda self: self.send_error(404))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        with pytest.raises(TrackingError, match="HTTP 404"):
            probe(f"http://127.0.0.1:{running.server_port}", tmp_path)
        running.shutdown()
        thread.join(10)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("not a database, but long enough to have a header" * 100)
    with pytest.raises(TrackingError, match="not a database"):
        probe(None, tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrackingError, match="cannot be written"):
        probe("sqlite:///file/mlflow.db", tmp_path)


def test_a_database_that_another_process_locks_is_reported(tmp_path: Path) -> None:
    holder = sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)
    holder.execute("CREATE TABLE t (a)")
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(TrackingError, match="locked"):
        probe(None, tmp_path, timeout_s=1.0)
    holder.close()
    assert probe(None, tmp_path)


def test_probing_does_not_import_mlflow(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from orchestrator.tracking import create_tracker, probe\n"
        "create_tracker(probe('sqlite:///m.db', Path(sys.argv[1])), Path(sys.argv[1]))\n"
        "print('mlflow' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60, capture_output=True, text=True
    )
    assert answer.stdout.strip() == "False"
