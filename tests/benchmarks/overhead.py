"""What a trial costs beyond its own work: no-op trials of five reports, tracked in MLflow as always.

A: `orchestrator.run`. B: the documented pattern, a Ray Train run in each Tune trial. C: Ray Tune alone with
`reuse_actors`, which trains nothing and records nothing. A and C are the steady state (the last 90% of the trial
ends), since their start is paid once; B pays its start with every trial, so its mean counts.

Usage: python tests/benchmarks/overhead.py [--quick]. About 6 minutes on 2 cores; --quick leaves out 1,000 trials.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

HERE = Path(__file__).parent
REPORTS = 5


def steady_ms(ends: list[float]) -> float:
    """Milliseconds between two ends, over the last 90%."""
    late = sorted(ends)[len(ends) // 10 :]
    return 1000 * (late[-1] - late[0]) / (len(late) - 1)


def ours(trials: int) -> tuple[list[float], dict[int, float]]:
    """Times of the trials' ends, and the driver's memory in MiB when so many trials had ended."""
    with tempfile.TemporaryDirectory() as folder:
        values = ",".join(str(number) for number in range(trials))
        command = [sys.executable, "-m", "orchestrator.run", str(HERE / "noop.py"), "--sweep", f"x={values}", "-q"]
        driver = subprocess.Popen([*command, "--name", "noop"], cwd=folder, stdout=subprocess.DEVNULL)
        journal, memory = Path(folder) / "results" / "noop" / "journal.jsonl", {}
        while driver.poll() is None:
            time.sleep(0.5)
            done = journal.read_text().count('"ended"') if journal.exists() else 0
            if driver.poll() is None and done:
                memory[done] = psutil.Process(driver.pid).memory_info().rss / 2**20
        assert driver.returncode == 0, f"the sweep ended with {driver.returncode}"
        records = [json.loads(line) for line in journal.read_text().splitlines()]
    return [record["time"] for record in records if record["kind"] == "ended"], memory


def other(script: str, trials: int) -> dict:
    command = [sys.executable, str(HERE / script), str(trials), str(REPORTS)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    return json.loads(answer.stdout.splitlines()[-1])


def main() -> None:
    a, c = [], []
    for _ in range(3):
        a.append(steady_ms(ours(100)[0]))
        c.append(steady_ms(other("tune_alone.py", 100)["ends"]))
    b = other("documented_pattern.py", 4)
    assert b["errors"] == 0, "the documented pattern failed"
    ours_ms, tune_ms, pattern_ms = statistics.median(a), statistics.median(c), 1000 * b["fit_s"] / b["trials"]
    runs = ", ".join(f"{one:.1f}" for one in a)
    print(f"A  orchestrator, 100 trials      {ours_ms:9.1f} ms a trial  (runs: {runs})")
    print(f"B  documented pattern, 4 trials  {pattern_ms:9.1f} ms a trial  B/A = {pattern_ms / ours_ms:.0f}")
    print(f"C  Ray Tune alone, 100 trials    {tune_ms:9.1f} ms a trial  C/A = {tune_ms / ours_ms:.2f}")
    if "--quick" in sys.argv:
        return
    ends, memory = ours(1000)
    early = min(memory, key=lambda done: abs(done - 100))
    late = max(memory)
    many_ms = steady_ms(ends)
    print(f"A  orchestrator, 1,000 trials    {many_ms:9.1f} ms a trial  {many_ms / ours_ms:.2f} x that of 100")
    print(f"   driver memory: {memory[early]:.0f} MiB after {early} trials, {memory[late]:.0f} MiB after {late}")


if __name__ == "__main__":
    main()
