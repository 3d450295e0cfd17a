"""`adax`: parse, run, and turn every error of a command into one line and an exit code.

0 done; 1 a run failed or a file could not be written; 2 wrong input; 130 Ctrl-C, 143 SIGTERM (what was done is kept,
and the same command resumes).
"""

from __future__ import annotations

import io
import os
import shlex
import sys

from adaxlab.errors import Interrupted, LabError
from adaxlab.messages import passing
from adaxopt import __version__
from adaxopt.extras import LAB


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):  # escape what cannot be printed, as standard error does
        sys.stdout.reconfigure(errors="backslashreplace")
    if given == ["--version"]:
        print(f"adax {__version__}")
        return 0
    try:
        with passing("starting"):
            from adaxlab import commands
    except ModuleNotFoundError as error:
        return _say(f"the command line needs {error.name}; {LAB}", 2)
    except KeyboardInterrupt:
        return _interrupted(given)
    try:
        commands.parse(given).run()
    except Interrupted as error:
        return _say(f"{error}; resume with: adax {shlex.join(given)}", error.exit_code)
    except KeyboardInterrupt:
        return _interrupted(given)
    except LabError as error:
        if os.environ.get("ADAX_DEBUG"):
            raise
        return _say(str(error), error.exit_code)
    except BrokenPipeError:  # the reader of our output went away, as `adax runs list | head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get("ADAX_DEBUG"):
            raise
        from adaxlab.failures import describe

        return _say(f"unexpected {describe(error)}; ADAX_DEBUG=1 shows the traceback", 1)
    return 0


def _interrupted(given: list[str]) -> int:
    return _say(f"interrupted; resume with: adax {shlex.join(given)}", 130)


def _say(text: str, code: int) -> int:
    print(f"adax: {' '.join(text.splitlines())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
