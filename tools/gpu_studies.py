"""Run studies side by side in the background, on a GPU machine that takes only short commands and small uploads.

    python tools/gpu_studies.py start 1500 "gpt-memory-best gpt-memory-wide --jobs 4" "cifar10/memory-best"
    python tools/gpu_studies.py wait 560 OUT

`start` copies the checkout to ~/gpu-studies (or $GPU_STUDIES) and starts a process for each argument. It runs the
studies of the argument one after the other, with its options of `adax reproduce`, for at most so many seconds. The
processes survive the command, and later uploads over the checkout. They share the GPU; `start` also starts CUDA's MPS
if the machine has it. The same command resumes what was interrupted. `tools/carry.py` carries the data.

`wait` returns when all processes have ended, or after so many seconds. It prints the end of their logs and writes
OUT/records.tar.gz: the records that are new since the copy was made, ended runs of incomplete studies among them.
Unpack it over the checkout and commit.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
COPIED = ("src", "records", "benchmarks")
EXPORT = """
from pathlib import Path
from adaxlab import environment, store
for folder in sorted(Path("runs").glob("*")):
    ended = [r for r in store.load_runs(folder) if r.done and environment.is_clean(r.env.get("commit"))]
    if ended and not Path("records", ended[0].spec["study"] + ".jsonl").is_file():
        store.export(ended, Path("records/unfinished", folder.name + ".jsonl"))
"""
"""Write the ended runs of studies without a record; a process does the same when it ends."""


class Work:
    """The copy of the checkout, its processes and their logs."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
        self.checkout = self.folder / "checkout"
        self.begin = self.folder / "begin"
        """Written when the copy was made: the commit, and, as the time of the file, what records are new."""

    def copy(self, source: Path) -> None:
        """Copy the checkout, once: the copy holds the runs."""
        if self.begin.exists():
            return
        (self.checkout / "runs").mkdir(parents=True, exist_ok=True)
        for name in COPIED:
            shutil.copytree(source / name, self.checkout / name, dirs_exist_ok=True)
        self.begin.write_text(os.environ.get("ADAXOPT_COMMIT") or commit(source))

    def run(self, *words: str) -> None:
        """Run Python in the copy."""
        subprocess.run([sys.executable, *words], cwd=self.checkout, env=self._environment(), check=True)

    def start(self, log: Path, *words: str) -> int:
        """Start Python in the copy, in a session of its own, and return the process's number."""
        script = '"$@" </dev/null >>"$0" 2>&1 & echo $!'
        shell = subprocess.run(
            ["/bin/sh", "-c", script, str(log), sys.executable, "-u", *words],
            cwd=self.checkout,
            env=self._environment(),
            start_new_session=True,
            stdout=subprocess.PIPE,
            check=True,
        )
        log.with_suffix(".pid").write_bytes(shell.stdout)
        return int(shell.stdout)

    def _environment(self) -> dict[str, str]:
        code = self.checkout / "src"
        return {**os.environ, "PYTHONPATH": str(code), "ADAXOPT_COMMIT": self.begin.read_text()}

    def running(self) -> list[int]:
        """The processes that have not ended."""
        started = [int(path.read_text()) for path in self.folder.glob("*.pid")]
        return [pid for pid in started if alive(pid)]


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended, but that nobody has waited for, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def commit(source: Path) -> str:
    """The commit of a checkout without changes."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", source, *words], capture_output=True, text=True).stdout.strip()

    found = git("rev-parse", "--short=12", "HEAD")
    if not found or git("status", "--porcelain", "--untracked-files=no"):
        raise SystemExit(
            f"{source}: is no checkout without changes; commit, or set ADAXOPT_COMMIT to the commit"
        )
    return found


def start(seconds: str, *given: str) -> None:
    """Start a process for each argument."""
    work = Work(os.environ.get("GPU_STUDIES", "~/gpu-studies"))
    if pids := work.running():
        raise SystemExit(
            f"{work.folder}: {len(pids)} processes are still running; wait for them, or end them"
        )
    work.copy(HERE)
    if server := shutil.which("nvidia-cuda-mps-control"):
        subprocess.run([server, "-d"])  # an error if it runs already, which is right as well
    for path in (*work.folder.glob("*.pid"), *work.folder.glob("*.log")):
        path.unlink()
    for number, words in enumerate(given, 1):
        more = ("--records", "records", "--seconds", seconds)
        log = work.folder / f"{number}.log"
        work.start(log, "-m", "adaxlab.reproduce", *shlex.split(words), *more)
        print(f"{log.name}: {words}")


def wait(seconds: str, out: str) -> None:
    """Wait for the processes, and collect the new records."""
    work, end = Work(os.environ.get("GPU_STUDIES", "~/gpu-studies")), time.monotonic() + float(seconds)
    while work.running() and time.monotonic() < end:
        time.sleep(min(2.0, max(0.0, end - time.monotonic())))
    if work.running():
        work.run("-c", EXPORT)
    since = work.begin.stat().st_mtime
    new = sorted(
        p for p in (work.checkout / "records").rglob("*") if p.is_file() and p.stat().st_mtime > since
    )
    Path(out).mkdir(parents=True, exist_ok=True)
    with tarfile.open(Path(out) / "records.tar.gz", "w:gz") as archive:
        for path in new:
            archive.add(path, path.relative_to(work.checkout))
    for log in sorted(work.folder.glob("*.log")):
        state = "running" if alive(int(log.with_suffix(".pid").read_text())) else "ended"
        print(f"== {log.name} ({state})", *log.read_text().splitlines()[-12:], sep="\n")
    names = [str(path.relative_to(work.checkout)) for path in new]
    print(f"{len(new)} new records:", *names)
    before = [path.relative_to(HERE) for path in (HERE / "records").rglob("*.jsonl")]
    if gone := [str(path) for path in before if not (work.checkout / path).exists()]:
        print("remove after unpacking, these studies are complete:", *gone)


def main(arguments: list[str]) -> None:
    """`start SECONDS STUDIES ...` or `wait SECONDS OUT`."""
    match arguments:
        case ["start", seconds, *given] if given:
            start(seconds, *given)
        case ["wait", seconds, out]:
            wait(seconds, out)
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
