"""Running a comparison: shared by several processes, the estimate of its time, its progress."""

from __future__ import annotations

import io
import threading
import time
import types

import pytest
from small_study import TINY, final, small

from adaxlab import compare, driver, estimate, progress, store, workers
from adaxlab.errors import Interrupted, LabError
from adaxlab.settings import Settings
from adaxlab.signals import Stop


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return root, compare.compare(small(), root)


class TestSharing:
    def test_a_run_that_another_process_holds_is_waited_for(self, tmp_path):
        given = small(tune=0, seeds=1)
        held = store.RunFolder(tmp_path, final(given.complete(), "sgdm", 0))
        ready, other, order = threading.Event(), threading.Event(), []

        class Watch(driver.Silent):
            def finished(self, record):
                order.append(record.spec["optimizer"])
                other.set()

        def hold():
            with held.lock():
                ready.set()
                other.wait(300)  # a stop where something hangs

        holder = threading.Thread(target=hold)
        holder.start()
        ready.wait()
        compare.compare(given, tmp_path, watcher=Watch())
        holder.join()
        assert order == ["adaxw", "sgdm"]  # the free one first, the held one when it was free

    def test_a_signal_ends_the_waiting(self, tmp_path, monkeypatch):
        given = small(tune=0, seeds=1, optimizers=("sgdm",))
        stop = Stop()
        waits = []

        def signalled(seconds):
            waits.append(seconds)
            stop.signum = 15

        monkeypatch.setattr(driver, "time", types.SimpleNamespace(sleep=signalled))
        with (
            store.RunFolder(tmp_path, final(given.complete(), "sgdm", 0)).lock(),
            pytest.raises(Interrupted, match="stopped between two runs"),
        ):
            compare.compare(given, tmp_path, stop=stop)
        assert len(waits) == 1

    def test_two_processes_end_with_the_same_bits(self, done, tmp_path):
        given = small().complete()
        with workers.helpers(given, tmp_path, Settings(), 2):
            result = compare.compare(given, tmp_path)
        alone = {r.name: r.done["model_sha256"] for r in done[1].records}
        assert {r.name: r.done["model_sha256"] for r in result.records} == alone
        assert {r.done["sessions"] for r in result.records} == {1}

    def test_helpers_take_part(self, tmp_path):
        given = small().complete()
        with workers.helpers(given, tmp_path, Settings(), 2):
            finish = time.monotonic() + 600  # a stop where something hangs
            while time.monotonic() < finish and len(list(tmp_path.rglob("done.json"))) < 12:
                time.sleep(0.1)
        assert len(list(tmp_path.rglob("done.json"))) == 12  # all of it, while this process did nothing

    def test_jobs_refuse_nonsense(self, tmp_path):
        with (
            pytest.raises(LabError, match="jobs=0: must be >= 1"),
            workers.helpers(small(), tmp_path, Settings(), 0),
        ):
            pass


class TestEstimate:
    def test_the_runs_and_their_time_are_known_before_anything_is_written(self, done, tmp_path):
        given = small().complete()
        seen = estimate.measure(given, tmp_path, Settings())
        assert (seen.runs, seen.made) == (12, 0)
        assert 0 < seen.seconds < 60
        assert not list(tmp_path.iterdir())
        assert seen.sentence().startswith("12 runs, about ")
        assert estimate.measure(given, done[0], Settings()).sentence() == "12 runs, 12 already made"

    def test_a_task_that_fails_has_no_time(self, tmp_path):
        for name in ("Raises", "NoMetric"):
            given = small(task=f"{TINY}:{name}")
            assert estimate.measure(given, tmp_path, Settings()).seconds is None

    def test_the_time_left_is_said_again_after_the_first_run(self, tmp_path, monkeypatch, capsys):
        given = small(tune=0, seeds=2, optimizers=("sgdm",)).complete()
        [first, _] = compare.compare(given, tmp_path).records
        clock = iter([0.0, 0.0, *[90.0] * 9])
        monkeypatch.setattr(
            progress, "time", types.SimpleNamespace(monotonic=lambda: next(clock), time=lambda: 0.0)
        )
        lines = progress.Lines()
        lines.start(given, 12)
        lines.finished(first)
        assert "[1/12] the first run took 1 min 30 s: about 16 min 30 s left" in capsys.readouterr().err


class TestProgress:
    def test_lines_are_few_and_tell_the_end(self, done, capsys):
        root, _ = done
        with progress.watcher() as watcher:
            compare.compare(small(), root, watcher=watcher)
        lines = capsys.readouterr().err.splitlines()
        assert lines[0] == "small: 2 optimizers x 3 seeds, 3 learning rates each, 12 runs"
        assert [line.split(",")[0] for line in lines[1:]] == [
            "[3/12] sgdm tuned", "[7/12] adaxw tuned", "[11/12] sgdm done", "[12/12] adaxw done",
        ]  # fmt: skip

    def test_quiet_is_quiet(self, done, capsys):
        with progress.watcher(quiet=True) as watcher:
            compare.compare(small(), done[0], watcher=watcher)
        assert capsys.readouterr() == ("", "")

    def test_bars_show_runs_and_the_time_left(self, tmp_path):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        stream = Terminal()
        with progress.watcher(stream=stream) as watcher:
            assert isinstance(watcher, progress.Bars)
            watcher.bars.console._force_terminal = True
            compare.compare(small(tune=0), tmp_path, Settings(checkpoint_seconds=0), watcher=watcher)
            left = [task.fields["note"] for task in watcher.bars.tasks]
            assert watcher.bars.tasks[0].completed == 6
            assert "left" in left[0]
        assert "small" in stream.getvalue()


def test_run_labels():
    given = small().complete()
    assert progress.label(given.trials(given.row("adaxw"), 0.005, 0)[0]) == "tuning adaxw, lr 0.005"
    assert progress.label(final(given, "adaxw", 2)) == "adaxw, seed 2"
