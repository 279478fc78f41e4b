"""Who gets which trial, how ranks keep step, and what becomes of a trial when its group is gone."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from orchestrator import journal
from orchestrator.decide.retry import Cause
from orchestrator.devices import DeviceShape
from orchestrator.fleet.messages import Leave, Limits, OutOfDate
from orchestrator.fleet.queue import TrialQueue
from orchestrator.results import Ended, Event, Reported, Restarted, Started, TrialStatus
from orchestrator.trial import Lease, Placement, Rules, Trial

CPU = DeviceShape(device="cpu", model=None, devices=1, workers=1, cpus_per_worker=1, framework="torch")
TWO = replace(CPU, workers=2)
RULES = Rules(objective="loss", mode="min", sync_timeout_s=0.3)
LIMITS = Limits(proxies_start_s=0.3, stop_grace_s=0.3, failed_rank_s=0.2)


def trial(id: str = "t1", shape: DeviceShape = CPU) -> Trial:
    return Trial(id=id, config={"epochs": 5}, placements=(Placement(shape=shape, precision="fp32"),))


def end(
    id: str = "t1", status: TrialStatus = TrialStatus.FINISHED, error: str | None = None, attempt: int = 1
) -> Ended:
    return Ended(trial_id=id, attempt=attempt, time=time.time(), status=status, error=error)


@pytest.fixture
def play(tmp_path) -> Callable[..., None]:
    """Runs a scene (an async function of the queue) within a limit."""

    def run(scene: Callable[[TrialQueue], Awaitable[None]], rules: Rules = RULES) -> None:
        async def stage() -> None:
            await asyncio.wait_for(scene(TrialQueue(rules, str(tmp_path), LIMITS)), timeout=20)

        asyncio.run(stage())

    return run


async def ready(queue: TrialQueue, group: str = "g1", shape: DeviceShape = CPU) -> None:
    await queue.open_group(group, shape)
    for rank in range(shape.workers):
        await queue.join(group, rank, "node", {})


async def leased(queue: TrialQueue, group: str = "g1", turn: int = 0, rank: int = 0) -> Lease:
    lease = await queue.lease(group, turn, rank)
    assert lease is not None
    return lease


async def happened(queue: TrialQueue) -> list[Event]:
    _, events = await queue.events(0, 0)
    return events


def test_a_trial_goes_from_submission_to_its_end_and_every_event_is_on_disk(play, tmp_path):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue)
        await queue.submit(trial(), "proxy")
        lease = await leased(queue)
        await queue.report(lease.trial.id, lease.attempt, 1, 1, {"loss": 0.5}, None)
        await queue.finish("g1", lease.attempt, 0, end())
        progress = await queue.next("t1", go_on=False)
        assert (
            progress is not None and progress.ended is TrialStatus.FINISHED and progress.metrics == {"loss": 0.5}
        )
        assert [type(event) for event in await happened(queue)] == [Started, Reported, Ended]

    play(scene)
    kinds = [record["kind"] for record in journal.read(tmp_path / "journal.jsonl")]
    assert kinds == ["started", "reported", "ended"]


def test_a_trial_only_goes_to_a_group_of_its_shape(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue, "one", CPU)
        await ready(queue, "two", TWO)
        await queue.submit(trial("t1", TWO))
        waiting = asyncio.ensure_future(queue.lease("one", 0, 0))
        assert (await leased(queue, "two")).trial.id == "t1"
        assert not waiting.done()
        waiting.cancel()

    play(scene)


def test_every_rank_of_a_group_gets_the_trial_that_rank_0_leased(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue, shape=TWO)
        other = asyncio.ensure_future(queue.lease("g1", 0, 1))
        await queue.submit(trial("t1", TWO))
        await queue.submit(trial("t2", TWO))
        assert (await leased(queue)).trial.id == "t1"
        assert (await other).trial.id == "t1"

    play(scene)


def test_no_proxy_hears_of_an_end_before_all_proxies_have_submitted(play):
    async def scene(queue: TrialQueue) -> None:
        await queue.expect(2)
        await ready(queue)
        await queue.submit(trial("t1"), "first")
        await leased(queue)
        await queue.finish("g1", 1, 0, end("t1"))
        heard = asyncio.ensure_future(queue.next("t1", go_on=False))
        await asyncio.sleep(0.05)
        assert not heard.done()
        await queue.submit(trial("t2"), "second")
        assert (await heard).ended is TrialStatus.FINISHED

    play(scene)


def test_a_proxy_that_never_comes_is_waited_for_within_a_limit(play):
    async def scene(queue: TrialQueue) -> None:
        await queue.expect(2)
        await ready(queue)
        await queue.submit(trial("t1"), "only")
        await leased(queue)
        await queue.finish("g1", 1, 0, end("t1"))
        assert (await queue.next("t1", go_on=False)).ended is TrialStatus.FINISHED

    play(scene)


def test_a_waiting_trial_that_is_stopped_never_starts(play):
    async def scene(queue: TrialQueue) -> None:
        await queue.submit(trial())
        await queue.stop("t1", TrialStatus.CANCELLED, "interrupted")
        (ended,) = await happened(queue)
        assert isinstance(ended, Ended) and (ended.status, ended.error) == (TrialStatus.CANCELLED, "interrupted")

    play(scene)


def test_a_running_trial_learns_of_its_stop_at_the_next_report_and_ends_with_that_status(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue)
        await queue.submit(trial())
        lease = await leased(queue)
        assert not (await queue.report("t1", lease.attempt, 1, 1, {}, None)).stop
        await queue.stop("t1", TrialStatus.CANCELLED, "interrupted")
        assert (await queue.report("t1", lease.attempt, 2, 2, {}, None)).stop
        await queue.finish("g1", lease.attempt, 0, end(status=TrialStatus.PRUNED))
        ended = (await happened(queue))[-1]
        assert isinstance(ended, Ended) and ended.status is TrialStatus.CANCELLED

    play(scene)


def test_a_trial_that_ignores_its_stop_ends_with_its_group(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue)
        await queue.submit(trial())
        await leased(queue)
        await queue.stop("t1", TrialStatus.CANCELLED, "interrupted")
        await asyncio.sleep(0.5)
        ended = (await happened(queue))[-1]
        assert isinstance(ended, Ended) and ended.status is TrialStatus.CANCELLED
        assert "went on" in (await queue.view()).broken["g1"]

    play(scene)


def test_a_diverged_trial_is_stopped_at_that_report_where_the_experiment_says_so(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue)
        await queue.submit(trial())
        await leased(queue)
        assert not (await queue.report("t1", 1, 1, 1, {"loss": 1.0}, None)).stop
        assert (await queue.report("t1", 1, 2, 2, {"loss": float("nan")}, None)).stop
        await queue.finish("g1", 1, 0, end(status=TrialStatus.PRUNED))
        assert (await happened(queue))[-1].status is TrialStatus.PRUNED

    play(scene, replace(RULES, on_divergence="stop"))


def test_in_lockstep_a_report_waits_for_the_trial_scheduler(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue)
        first = asyncio.ensure_future(queue.submit_and_wait(trial(), "proxy", None))
        lease = await leased(queue)
        report = asyncio.ensure_future(queue.report("t1", lease.attempt, 1, 1, {"loss": 1.0}, None))
        progress = await first
        assert progress is not None and progress.ended is None and progress.epoch == 1
        await asyncio.sleep(0.05)
        assert not report.done()
        following = asyncio.ensure_future(queue.next("t1", go_on=True))
        assert not (await report).stop
        await queue.stop("t1", TrialStatus.PRUNED, "stopped by the trial scheduler")
        assert (await queue.report("t1", lease.attempt, 2, 2, {"loss": 1.0}, None)).stop
        await queue.finish("g1", lease.attempt, 0, end(status=TrialStatus.PRUNED))
        assert (await following).epoch == 2

    play(scene, replace(RULES, lockstep=True))


def test_a_stop_that_comes_with_the_last_epoch_has_cut_nothing(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue)
        await queue.submit(trial())
        lease = await leased(queue)
        await queue.stop("t1", TrialStatus.PRUNED, "stopped by the trial scheduler")
        await queue.report("t1", lease.attempt, 1, 5, {}, None)
        await queue.finish("g1", lease.attempt, 0, end(status=TrialStatus.PRUNED))
        assert (await happened(queue))[-1].status is TrialStatus.FINISHED

    play(scene)


def test_a_dead_worker_sends_its_trial_back_once_and_then_the_trial_fails_with_the_cause(play):
    async def scene(queue: TrialQueue) -> None:
        await queue.submit(trial())
        for group in ("g1", "g2"):
            await ready(queue, group)
            await leased(queue, group)
            await queue.group_gone(group, Cause.WORKER_DIED, "exit code 1")
        events = await happened(queue)
        assert [type(event) for event in events] == [Started, Restarted, Started, Ended]
        assert events[-1].status is TrialStatus.FAILED and events[-1].error == "worker died: exit code 1"
        assert events[-1].attempt == 2

    play(scene)


def test_a_retried_trial_goes_on_from_its_last_checkpoint(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue)
        await queue.submit(trial())
        lease = await leased(queue)
        await queue.report("t1", lease.attempt, 1, 1, {}, "/checkpoints/epoch-1")
        await queue.group_gone("g1", Cause.WORKER_DIED, "exit code 1")
        await ready(queue, "g2")
        again = await leased(queue, "g2")
        assert (again.attempt, again.checkpoint) == (2, "/checkpoints/epoch-1")

    play(scene)


def test_a_report_of_an_attempt_that_is_over_is_refused(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue)
        await queue.submit(trial())
        await leased(queue)
        await queue.group_gone("g1", Cause.WORKER_DIED, "exit code 1")
        with pytest.raises(OutOfDate):
            await queue.report("t1", 1, 1, 1, {}, None)

    play(scene)


def test_three_groups_in_a_row_that_end_no_trial_show_in_the_view(play):
    async def scene(queue: TrialQueue) -> None:
        await queue.submit(trial())
        for number in range(3):
            await queue.open_group(f"g{number}", CPU)
            await queue.group_gone(f"g{number}", Cause.GROUP_FAILED, "no torch")
        (demand,) = (await queue.view()).demands
        assert demand.fruitless == 3
        await queue.fail_waiting(CPU, "no torch")
        ended = (await happened(queue))[-1]
        assert (ended.status, ended.error) == (TrialStatus.FAILED, "no torch")

    play(scene)


def test_a_rank_that_reports_more_often_than_rank_0_fails_and_the_message_names_both(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue, shape=TWO)
        await queue.submit(trial("t1", TWO))
        await leased(queue)
        with pytest.raises(RuntimeError, match="rank 1 made report 1, but rank 0 made no such report"):
            await queue.follow("t1", 1, 1, 1)

    play(scene)


def test_reports_of_rank_0_alone_do_not_wait_for_the_others(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue, shape=TWO)
        await queue.submit(trial("t1", TWO))
        await leased(queue)
        for number in (1, 2):
            assert not (await queue.report("t1", 1, number, number, {}, None)).stop
        await queue.stop("t1", TrialStatus.PRUNED, "enough")
        decision = await queue.report("t1", 1, 3, 3, {}, None)
        assert decision.stop and not decision.everywhere
        other = asyncio.ensure_future(queue.boundary("t1", 1, 3, 1, False))
        assert await queue.boundary("t1", 1, 3, 0, True)
        assert await other

    play(scene)


def test_ranks_that_all_report_are_stopped_at_the_same_report(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue, shape=TWO)
        await queue.submit(trial("t1", TWO))
        await leased(queue)
        other = asyncio.ensure_future(queue.follow("t1", 1, 1, 1))
        assert not (await queue.report("t1", 1, 1, 1, {}, None)).stop
        assert not (await other).stop
        await queue.stop("t1", TrialStatus.PRUNED, "enough")
        other = asyncio.ensure_future(queue.follow("t1", 1, 2, 1))
        mine, theirs = await queue.report("t1", 1, 2, 2, {}, None), await other
        assert mine.stop and mine.everywhere and mine == theirs

    play(scene)


def test_a_rank_that_never_ends_fails_the_trial_and_breaks_the_group(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue, shape=TWO)
        await queue.submit(trial("t1", TWO))
        await leased(queue)
        await queue.finish("g1", 1, 0, end())
        await asyncio.sleep(0.5)
        ended = (await happened(queue))[-1]
        assert ended.status is TrialStatus.FAILED and "ranks [1]" in ended.error
        assert "g1" in (await queue.view()).broken

    play(scene)


def test_an_error_on_one_rank_of_several_is_the_trials_error_and_breaks_the_group(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue, shape=TWO)
        await queue.submit(trial("t1", TWO))
        await leased(queue)
        await queue.finish("g1", 1, 1, end(status=TrialStatus.FAILED, error="boom"))
        await queue.finish("g1", 1, 0, end())
        ended = (await happened(queue))[-1]
        assert (ended.status, ended.error) == (TrialStatus.FAILED, "rank 1: boom")
        assert "g1" in (await queue.view()).broken

    play(scene)


def test_an_error_leaves_a_group_of_one_worker_warm(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue)
        await queue.submit(trial())
        await leased(queue)
        await queue.finish("g1", 1, 0, end(status=TrialStatus.FAILED, error="boom"))
        view = await queue.view()
        assert not view.broken and view.groups[0].state == "idle"

    play(scene)


def test_a_group_that_is_to_end_finishes_its_trial_first(play):
    async def scene(queue: TrialQueue) -> None:
        await ready(queue)
        await queue.submit(trial("t1"))
        await queue.submit(trial("t2"))
        await leased(queue)
        await queue.end_group("g1")
        await queue.finish("g1", 1, 0, end())
        with pytest.raises(Leave):
            await queue.lease("g1", 1, 0)

    play(scene)


def test_trials_on_the_same_node_are_counted_as_neighbours(play):
    async def scene(queue: TrialQueue) -> None:
        for number in (1, 2):
            await ready(queue, f"g{number}")
            await queue.submit(trial(f"t{number}"))
            await leased(queue, f"g{number}")
        await queue.finish("g1", 1, 0, end("t1"))
        assert (await happened(queue))[-1].facts["node.neighbours"] == "1"

    play(scene)


def test_events_are_kept_until_the_driver_has_acknowledged_them(play):
    async def scene(queue: TrialQueue) -> None:
        for id in ("t1", "t2"):
            await queue.submit(trial(id))
            await queue.stop(id, TrialStatus.CANCELLED, "interrupted")
        last, events = await queue.events(0, 0)
        assert len(events) == 2
        assert (await queue.events(0, 0))[1] == events
        assert (await queue.events(last, 0))[1] == []

    play(scene)
