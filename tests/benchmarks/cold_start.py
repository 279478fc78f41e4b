"""From the command to the first report of the first trial, torch on CPU.

A: `orchestrator.run experiments/mlp.py` (the report is on the driver's disk). B: the documented pattern, a Ray
Train run in a Tune trial, with the same model and data (the driver has heard of the report).

Usage: python tests/benchmarks/cold_start.py [RUNS]. About 3 minutes on 2 cores.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
MLP = HERE.parent.parent / "experiments" / "mlp.py"


def ours() -> float:
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        command = [sys.executable, "-m", "orchestrator.run", str(MLP), "--name", "cold", "-q"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=300)
        lines = (Path(folder) / "results" / "cold" / "journal.jsonl").read_text().splitlines()
    reports = [record["time"] for record in map(json.loads, lines) if record["kind"] == "reported"]
    return min(reports) - began


def documented() -> float:
    began = time.time()
    command = [sys.executable, str(HERE / "documented_pattern.py"), "1", "1", "mlp"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(answer.stdout.splitlines()[-1])["first_report_at"] - began


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    a, b = [], []
    for _ in range(runs):
        a.append(ours())
        b.append(documented())
    first, second = statistics.median(a), statistics.median(b)
    print(f"A  orchestrator        {first:6.1f} s  (runs: {', '.join(f'{one:.1f}' for one in a)})")
    print(f"B  documented pattern  {second:6.1f} s  (runs: {', '.join(f'{one:.1f}' for one in b)})")
    print(f"A/B = {first / second:.2f}")


if __name__ == "__main__":
    main()
