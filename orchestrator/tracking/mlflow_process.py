"""A process of its own for MLflow's client.

Its database code takes some 20 ms of processor time a trial and its import 2 s, all of which would hold the
driver's interpreter lock; its client may hang or retry for minutes, and a process can be ended; and settings
that it reads from the environment stay out of the user's.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from orchestrator.masking import mask
from orchestrator.tracking.exchange import Answer, Destination, ProcessLost, Request

_END_TIMEOUT_S = 10.0
_SHOWN_BYTES = 2000  # of the output of a process that died

_PACKAGE_ROOT = Path(__file__).parents[2]
_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # we retry, and merge meanwhile
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


class StoreProcess:
    """Started at once, so that MLflow is imported while the sweep is prepared; again after `ProcessLost`."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._start()

    def _start(self) -> None:
        ours, theirs = Pipe()
        paths = [str(_PACKAGE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._connection = ours
        self._output, output_name = tempfile.mkstemp()
        os.unlink(output_name)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            env={"MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
            | dict(os.environ)
            | _SETTINGS
            | {"PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C is for the driver, which then ends this process in order
        )
        theirs.close()
        self._connection.send(self._destination)  # not an argument: others can read those

    def ask(self, request: Request, timeout_s: float) -> Answer:
        """Have the request carried out.

        Raises:
            ProcessLost: there is no answer; what was written is unknown.
        """
        if self._process.poll() is not None:
            self._release()
            self._start()
        try:
            self._connection.send(request)
            if not self._connection.poll(timeout_s):
                self.kill()
                raise ProcessLost(f"the tracking store did not answer within {timeout_s:g} s")
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self.kill()
            raise ProcessLost(f"the process that writes to MLflow ended: {self._last_words()}") from error
        assert isinstance(answer, Answer)
        return answer

    def close(self) -> None:
        """End the process; it has nothing left to do."""
        try:
            self._connection.send(None)
            self._process.wait(_END_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()
        self._release()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait(_END_TIMEOUT_S)

    def _last_words(self) -> str:
        start = max(0, os.fstat(self._output).st_size - _SHOWN_BYTES)
        return mask(os.pread(self._output, _SHOWN_BYTES, start).decode("utf-8", "replace").strip()) or "no output"

    def _release(self) -> None:
        self._connection.close()
        os.close(self._output)


def serve(connection: Connection) -> None:
    """Answer requests until the driver says goodbye, or is gone."""
    destination = connection.recv()
    from orchestrator.tracking.mlflow_store import MlflowStore

    store = MlflowStore(destination)
    try:
        while (request := connection.recv()) is not None:
            connection.send(store.answer(request))
    except (EOFError, OSError):
        store.abandon()


if __name__ == "__main__":
    logging.raiseExceptions = False
    serve(Connection(int(sys.argv[1])))
