"""What the command does with an experiment: run its sweep, show the plan of it, or debug one trial of it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from orchestrator import cluster, package
from orchestrator.devices import Node
from orchestrator.errors import ExperimentError
from orchestrator.fleet.local import LocalFleet
from orchestrator.loader import LoadedExperiment
from orchestrator.options import Options, Verbosity
from orchestrator.report import summary as summaries
from orchestrator.report.terminal import open_console
from orchestrator.results import Ended, SweepStatus
from orchestrator.sweep.interruption import Interruption
from orchestrator.sweep.preparation import prepare
from orchestrator.sweep.recorder import Recorder
from orchestrator.tracking import create_tracker, probe
from orchestrator.tracking.base import NoTracker
from orchestrator.trial import Refused, Trial


def run(options: Options, loaded: LoadedExperiment, interruption: Interruption) -> int:
    """Run the sweep; returns the exit code.

    Raises:
        UserError: nothing was started.
        KeyboardInterrupt: it was interrupted before anything was started.
    """
    verbose = options.verbosity is Verbosity.VERBOSE
    tracking_uri = probe(options.tracking_uri, Path.cwd())
    with contextlib.ExitStack() as stack:
        address, nodes = _nodes(options, stack)
        prepared = prepare(options, loaded, nodes)
        environment = _environment(loaded.file.parent, nodes)
        interruption.hold()
        prepared.directory.mkdir(parents=True)
        console = stack.enter_context(contextlib.closing(open_console(options)))
        recorder = Recorder(options, prepared, console, create_tracker(tracking_uri, prepared.directory))
        with recorder:
            recorder.open(prepared.planner.trials_expected())
            if not address:
                stack.enter_context(cluster.connected(None, nodes, verbose=verbose))
                interruption.listen_again()
            if not interruption.count:
                from orchestrator.sweep.on_ray import SweepOnRay

                SweepOnRay(options, prepared, recorder, environment).run(interruption)
            return recorder.close(interrupted=bool(interruption.count)).exit_code


def show_plan(options: Options, loaded: LoadedExperiment) -> int:
    """Show every trial with its place, and what does not run and why; starts nothing."""
    with contextlib.ExitStack() as stack:
        _, nodes = _nodes(options, stack)
        prepared = prepare(options, loaded, nodes)
        found = list(prepared.planner.trials())
    trials = [one for one in found if isinstance(one, Trial)]
    refused = [one for one in found if isinstance(one, Refused)]
    open_console(options).plan_only(trials, refused, prepared.rules.swept)
    if options.json:
        summaries.publish(options.json, summaries.plan(prepared.experiment.name, trials, refused))
    if not trials:
        return SweepStatus.NOTHING_PLACED.exit_code
    placeless = any(one.status is not None for one in refused)
    return (SweepStatus.PARTLY_FAILED if placeless else SweepStatus.FINISHED).exit_code


def debug(options: Options, loaded: LoadedExperiment) -> int:
    """Run the first trial in this process, without Ray and without tracking."""
    prepared = prepare(options, loaded, cluster.local_nodes())
    trial = next((found for found in prepared.planner.trials() if isinstance(found, Trial)), None)
    if trial is None:
        raise ExperimentError("--debug: no configuration of the sweep runs here; --plan says why")
    prepared.directory.mkdir(parents=True)
    with contextlib.closing(open_console(options)) as console:
        recorder = Recorder(options, prepared, console, NoTracker())
        recorder.open(1)
        fleet = LocalFleet(prepared.loaded, prepared.rules, prepared.directory)
        recorder.announce(trial)
        fleet.submit(trial)
        ended = False
        while not ended:
            for event in fleet.events(timeout_s=1):
                recorder.event(event)
                ended = ended or isinstance(event, Ended)
        return recorder.close(interrupted=False).exit_code


def _nodes(options: Options, stack: contextlib.ExitStack) -> tuple[str | None, list[Node]]:
    """The address of the given cluster, if any, and its nodes, or those of the private cluster to come."""
    address = cluster.given_address(options.address)
    if address is None:
        return None, cluster.local_nodes()
    cluster.probe(address)
    verbose = options.verbosity is Verbosity.VERBOSE
    return address, stack.enter_context(cluster.connected(address, [], verbose=verbose))


def _environment(folder: Path, nodes: list[Node]) -> dict[str, Any] | None:
    """Ray's runtime environment that brings the experiment's folder to other machines; None on one machine."""
    if len({node.address for node in nodes}) == 1:
        return None
    sent = package.measure(folder)
    return {"working_dir": str(folder), "excludes": list(sent.excludes)}
