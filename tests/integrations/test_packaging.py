"""The wheel and the source archive: built, installed into a clean environment, and light to import."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import adaxopt
from adaxopt.extras import need

ROOT = Path(__file__).parents[2]
feature = pytest.mark.feature
pytestmark = pytest.mark.needs("build")


def apart(*words, **environment):
    """Run a command that sees nothing of this checkout.

    With PYTHONPATH=src, as these tests are run, pip would take an egg-info in src/ (that `make setup` leaves there) for
    an installed package and install nothing.
    """
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        list(map(str, words)),
        env={**clean, **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=900,  # a stop where something hangs; a loaded machine has time
    )


def python(executable, code, **environment):
    return apart(executable, "-W", "ignore", "-c", code, **environment)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The two archives, from a copy of what git would give (nothing of this checkout is written to)."""
    folder = tmp_path_factory.mktemp("build")
    copy = folder / "source"
    copy.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    done = apart(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, copy)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, archive


@pytest.fixture(scope="module")
def clean(built, tmp_path_factory):
    """An environment with the wheel and what it asks for, which is nothing."""
    return installed(tmp_path_factory.mktemp("clean"), str(built[0]))


@pytest.fixture(scope="module")
def with_torch(built, tmp_path_factory):
    """An environment with the wheel and its extra `torch`."""
    folder = tmp_path_factory.mktemp("torch")
    yield installed(folder, f"{built[0]}[torch]")
    shutil.rmtree(folder)  # a gigabyte


def installed(folder, what):
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    done = apart(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", what)
    assert done.returncode == 0, done.stderr[-3000:]
    return python


@feature("Packaging", "wheel and sdist build")
def test_the_archives_hold_the_package_and_no_tests(built):
    names = zipfile.ZipFile(built[0]).namelist()
    for wanted in (
        "__init__.py",
        "py.typed",
        "jax/__init__.py",
        "keras.py",
        "integrations/__init__.py",
        "torch/engine.py",
    ):
        assert f"adaxopt/{wanted}" in names, wanted
    assert not [n for n in names if re.search(r"(^|/)(tests?/|test_|conftest)", n)]
    with tarfile.open(built[1]) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert "src/adaxopt/rule.py" in names
    assert not [name for name in names if name.startswith("tests")]


@feature("Packaging", "installs into a clean environment, pip check")
def test_the_extra_torch_trains_and_is_consistent(with_torch):
    code = """
import torch, adaxopt
p = torch.nn.Parameter(torch.ones(4)); o = adaxopt.AdaXW([p], lr=0.1)
p.grad = torch.ones(4); o.step()
assert (p < 1).all()
"""
    done = python(with_torch, code)
    assert done.returncode == 0, done.stderr
    check = apart(with_torch, "-m", "pip", "check")
    assert check.returncode == 0, check.stdout


@feature("Packaging", "pip install adaxopt installs nothing else")
def test_the_package_alone_installs_nothing_else(clean):
    """So it cannot change the torch, jax or keras that is there."""
    listed = apart(clean, "-m", "pip", "list", "--format", "freeze")
    assert {line.split("==")[0] for line in listed.stdout.splitlines()} - {"pip", "setuptools"} == {"adaxopt"}


def extras():
    """What each extra asks for, as pyproject.toml has it."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return {
        extra: dict(re.fullmatch(r"([\w-]+)>=([\d.]+)", one).groups() for one in asked)
        for extra, asked in options.items()
        if extra in ("torch", "jax", "keras")
    }


@feature("Packaging", "a missing framework says in one line what to install")
def test_without_torch_every_name_says_what_to_install(clean):
    floor = extras()["torch"]["torch"]
    assert python(clean, f"from adaxopt import {', '.join(adaxopt.MEMORIES)}").returncode == 0
    others = sorted(set(adaxopt.__all__) - set(adaxopt.MEMORIES))
    for code in (*(f"from adaxopt import {name}" for name in others), "import adaxopt.torch"):
        assert python(clean, code).stderr.splitlines()[-1] == (
            f"ImportError: adaxopt.torch needs torch>={floor}, which is not installed: "
            'pip install "adaxopt[torch]" (from a checkout: pip install -e ".[torch]")'
        ), code


@feature("Packaging", "a framework that is too old says in one line what to install")
@pytest.mark.parametrize("extra", ["torch", "jax", "keras"])
def test_a_framework_that_is_too_old_says_what_to_install(clean, tmp_path, extra):
    """Python finds it by its name and its version by its metadata; nothing of it is imported."""
    [(name, floor), *others] = extras()[extra].items()
    for package, version in ((name, "0.0.1"), *others):
        (tmp_path / f"{package}.py").write_text("raise AssertionError('imported')\n")
        folder = tmp_path / f"{package}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    done = python(clean, f"import adaxopt.{extra}", PYTHONPATH=str(tmp_path))
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: adaxopt.{extra} needs {name}>={floor}, found 0.0.1: "
        f'pip install --upgrade "adaxopt[{extra}]" (from a checkout: pip install --upgrade -e ".[{extra}]")'
    )


@feature("Packaging", "a missing framework says in one line what to install")
@pytest.mark.parametrize(
    ("code", "line"),
    [
        (
            "import adaxopt.jax",
            'adaxopt.jax needs jax>=0.6, which is not installed: pip install "adaxopt[jax]" '
            '(from a checkout: pip install -e ".[jax]")',
        ),
        (
            "import adaxopt.keras",
            'adaxopt.keras needs keras>=3.12, which is not installed: pip install "adaxopt[keras]" '
            '(from a checkout: pip install -e ".[keras]")',
        ),
        (
            "from adaxopt.integrations import register_timm; register_timm()",
            "adaxopt.integrations.register_timm needs timm>=1.0.12, which is not installed: pip install timm",
        ),
    ],
)
def test_a_missing_framework_says_what_to_install(clean, code, line):
    done = python(clean, code)
    assert done.returncode == 1
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .removeprefix("ModuleNotFoundError: ")
        .removeprefix("ImportError: ")
        == line
    )


def test_a_version_that_is_too_old_says_what_to_install():
    with pytest.raises(ImportError) as e:
        need("adaxopt.jax", "adaxopt[jax]", pytest="999.1")
    assert str(e.value) == (
        f'adaxopt.jax needs pytest>=999.1, found {pytest.__version__}: pip install --upgrade "adaxopt[jax]" '
        '(from a checkout: pip install --upgrade -e ".[jax]")'
    )
    need("adaxopt.jax", "adaxopt[jax]", pytest="1.0")


@feature("Packaging", "imports its own modules above torch's, and no kernel before it is needed")
def test_importing_loads_only_our_own_modules_above_torch(with_torch):
    """Triton, NumPy and everything of torch's that `import torch` leaves out wait until something needs them."""
    code = """
import sys, torch
before = set(sys.modules)
import adaxopt; adaxopt.AdaXW
print(*sorted(set(sys.modules) - before))
"""
    done = python(with_torch, code)
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    assert "adaxopt.torch.optimizers" in loaded
    foreign = {name for name in loaded if name.split(".")[0] not in ("adaxopt", *sys.stdlib_module_names)}
    assert not foreign
    assert not {name for name in loaded if "kernel" in name or "cuda" in name}


@pytest.mark.needs("jax", "optax")
@feature("Packaging", "adaxopt.jax without torch")
def test_the_jax_part_does_not_import_torch_nor_the_package_a_framework():
    path = os.pathsep.join(p for p in sys.path if p)
    for code in (
        "import sys, adaxopt; assert not {'torch', 'jax', 'keras', 'numpy'} & set(sys.modules)",
        "import sys, adaxopt.integrations; assert not {'torch', 'timm', 'transformers'} & set(sys.modules)",
        "import sys, adaxopt.jax as a; a.adaxw(1e-3); assert 'torch' not in sys.modules",
    ):
        done = python(sys.executable, code, PYTHONPATH=path)
        assert done.returncode == 0, done.stderr
