"""Run studies side by side in the background, on a GPU machine that takes only short commands and small uploads.

    python tools/gpu_studies.py start 1500 "gpt-memory-best gpt-memory-wide --jobs 4" "cifar10/memory-best"
    python tools/gpu_studies.py wait 560 OUT
    python tools/gpu_studies.py unpack OUT/records.tar.gz

`start` copies the code and the records of the checkout to ~/gpu-studies (or $GPU_STUDIES) and starts a process for each
argument. It runs the studies of the argument one after the other, with its options of `adax reproduce`, for at most so
many seconds. The processes survive the command, and later uploads over the checkout. They share the GPU; `start` also
starts CUDA's MPS if the machine has it. The same command resumes what was interrupted.

`wait` returns when all processes have ended, or after so many seconds. It prints the end of their logs and writes
OUT/records.tar.gz: the records that are not those of the copy, ended runs of incomplete studies among them.

`unpack` writes them to the checkout in which it is called, and removes records/unfinished of studies that are complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE / "src"))

from adaxlab import environment, records  # noqa: E402
from adaxlab.errors import LabError, check_known  # noqa: E402
from adaxlab.paper import catalogue  # noqa: E402

COPIED = ("src", "records")
IN_BACKGROUND = '"$@" </dev/null >>"$0" 2>&1 &'


class Work:
    """The copy of the checkout, its processes, and their logs and locks. A process holds the lock of its log."""

    def __init__(self) -> None:
        self.folder = Path(os.environ.get("GPU_STUDIES", "~/gpu-studies")).expanduser().resolve()
        self.checkout = self.folder / "checkout"
        self.begin = self.folder / "begin.json"
        """The commit, and the digests of the copied records; written when the copy is complete."""

    def copy(self, source: Path) -> None:
        """Copy the checkout, once: the copy holds the runs."""
        environment.check_clean()
        commit = environment.commit()
        if self.begin.is_file():
            if (other := self.state()["commit"]) != commit:
                raise LabError(
                    f"{self.folder}: holds a copy of commit {other}, and the checkout is {commit}; collect its records "
                    "(wait) and remove the folder, or name another one in GPU_STUDIES"
                )
            return
        shutil.rmtree(self.checkout, ignore_errors=True)
        for name in COPIED:
            shutil.copytree(source / name, self.checkout / name)
        state = {"commit": commit, "records": digests(self.checkout)}
        self.begin.write_text(json.dumps(state))

    def state(self) -> dict:
        if not self.begin.is_file():
            raise LabError(f"{self.folder}: no studies were started there")
        return json.loads(self.begin.read_text())

    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))

    def start(self, log: Path, *words: str) -> None:
        """Start Python in the copy, in a session of its own."""
        env = {
            **os.environ,
            "PYTHONPATH": str(self.checkout / "src"),
            "ADAXOPT_COMMIT": self.state()["commit"],
        }
        log.touch()
        with open(log.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the process inherits it, and it ends with the process
            subprocess.run(
                ["/bin/sh", "-c", IN_BACKGROUND, str(log), sys.executable, "-u", *words],
                cwd=self.checkout,
                env=env,
                start_new_session=True,
                pass_fds=(lock.fileno(),),
                check=True,
            )

    def running(self) -> list[str]:
        """The logs of the processes that have not ended."""
        return [log.name for log in self.logs() if locked(log.with_suffix(".lock"))]

    def keep(self) -> None:
        """Write the ended runs of studies without a record, as their processes do when they end."""
        for folder in sorted(path for path in (self.checkout / "runs").glob("*") if path.is_dir()):
            path = self.checkout / "records" / records.UNFINISHED / f"{folder.name}.jsonl"
            records.keep(folder, path)
        for path in records.superseded(self.checkout / "records"):
            path.unlink()


def locked(path: Path) -> bool:
    """Whether a process holds the lock."""
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def digests(checkout: Path) -> dict[str, str]:
    """SHA-256 of every record, by its path in the checkout."""
    found = (path for kind in ("*.json", "*.jsonl") for path in (checkout / "records").rglob(kind))
    return {
        str(path.relative_to(checkout)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(found)
    }


def start(seconds: float, *given: str) -> None:
    """Start a process for each argument."""
    work, asked = Work(), [shlex.split(words) for words in given]
    for words in asked:
        names = words[: next((i for i, word in enumerate(words) if word.startswith("-")), len(words))]
        check_known("study", sorted(catalogue.studies()), *names)
    if names := work.running():
        raise LabError(f"{work.folder}: the processes of {', '.join(names)} are still running; wait for them")
    work.copy(HERE)
    if server := shutil.which("nvidia-cuda-mps-control"):
        subprocess.run([server, "-d"])  # fails if it runs already
    for path in work.logs():
        path.unlink()
    for number, words in enumerate(asked, 1):
        log = work.folder / f"{number}.log"
        work.start(
            log, "-m", "adaxlab.reproduce", *words, "--records", "records", "--seconds", f"{seconds:g}"
        )
        print(f"{log.name}: {shlex.join(words)}")


def wait(seconds: float, out: str) -> None:
    """Wait for the processes, and collect the new records."""
    work, end = Work(), time.monotonic() + seconds
    before = work.state()["records"]
    while work.running() and time.monotonic() < end:
        time.sleep(1)
    running = work.running()
    for log in work.logs():
        state = "running" if log.name in running else "ended"
        print(f"== {log.name} ({state})", *log.read_text().splitlines()[-12:], sep="\n")
    work.keep()
    new = [name for name, digest in digests(work.checkout).items() if before.get(name) != digest]
    Path(out).mkdir(parents=True, exist_ok=True)
    with tarfile.open(Path(out) / "records.tar.gz", "w:gz") as archive:
        for name in new:
            archive.add(work.checkout / name, name)
    print(f"{len(new)} new records:", *new)


def unpack(archive: str) -> None:
    """Write collected records to the checkout."""
    with tarfile.open(archive) as file:
        names = file.getnames()
        file.extractall(HERE, filter="data")
    gone = records.superseded(HERE / "records")
    for path in gone:
        path.unlink()
    print("written:", *names)
    if gone:
        print("removed, their studies are complete:", *(str(path.relative_to(HERE)) for path in gone))


def number(text: str) -> float:
    """The seconds of an argument."""
    try:
        if (value := float(text)) >= 0:
            return value
    except ValueError:
        pass
    raise LabError(f"seconds={text}: must be a number >= 0")


def main(arguments: list[str]) -> None:
    """`start SECONDS STUDIES ...`, `wait SECONDS OUT` or `unpack FILE`."""
    try:
        match arguments:
            case ["start", seconds, *given] if given:
                start(number(seconds), *given)
            case ["wait", seconds, out]:
                wait(number(seconds), out)
            case ["unpack", archive]:
                unpack(archive)
            case _:
                raise SystemExit(__doc__)
    except LabError as error:
        raise SystemExit(f"gpu_studies: {error}") from error


if __name__ == "__main__":
    main(sys.argv[1:])
