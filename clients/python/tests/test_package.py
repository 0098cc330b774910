"""Tests the package as it is published."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

from world import Agent, World

FOLDER = Path(__file__).parents[1]


PAY = """
import sys
import httpx
from purser_client import Purser, PurserTransport, payment_of

purser = Purser(run="installed", max_amount="0.05")
with httpx.Client(transport=PurserTransport(purser)) as http:
    payment = payment_of(http.get(sys.argv[1]))
print(payment and payment.receipt.status)
"""


def built(source: Path, target: str, folder: Path) -> Path:
    """Builds an sdist or a wheel, and returns its file."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(build, cwd=source, check=True, capture_output=True, timeout=60)
    return next(folder.glob("*.whl" if target == "wheel" else "*.tar.gz"))


def test_the_wheel_has_package_types_licence_and_changelog_only(tmp_path: Path) -> None:
    wheel = zipfile.ZipFile(built(FOLDER, "wheel", tmp_path))
    sources = {f"purser_client/{path.name}" for path in (FOLDER / "src/purser_client").iterdir() if path.is_file()}
    assert "purser_client/py.typed" in sources
    sources.add("purser_client/CHANGELOG.md")
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == sources
    (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    assert wheel.read(f"{info}/licenses/LICENSE") == (FOLDER / "../../LICENSE").read_bytes()
    metadata = wheel.read(f"{info}/METADATA").decode()
    assert "Requires-Dist: x402==2.25.0; extra == 'x402'" in metadata


def test_what_is_published_is_installed_and_pays(tmp_path: Path, world: World, agent: Agent) -> None:
    """Builds the wheel from the sdist, which proves that the sdist is complete. pip downloads the dependencies from the
    registry.
    """
    with tarfile.open(built(FOLDER, "sdist", tmp_path)) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (source,) = (path.parent for path in tmp_path.glob("*/PKG-INFO"))
    assert {"LICENSE", "CHANGELOG.md", "README.md"} <= {path.name for path in source.iterdir()}
    wheel = built(source, "wheel", tmp_path)

    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    # The environment without this test's settings for Python.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def ran(*command: str) -> str:
        environment = {**clean, "PURSER_URL": world.base, "PURSER_KEY": agent.key}
        run = subprocess.run(
            [python, *command], cwd=tmp_path, env=environment, check=False, capture_output=True, text=True, timeout=120
        )
        assert run.returncode == 0, run.stderr
        return run.stdout.strip()

    ran("-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    assert ran("-c", PAY, f"{world.v2}/weather") == "confirmed"
    assert agent.transfers() == 1


def test_httpx_is_all_that_the_package_itself_needs() -> None:
    said = "import sys, purser_client; print(*{'x402', 'requests', 'pydantic'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", said], check=True, capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == ""


def test_the_snippets_of_the_readme_are_typed_strictly(tmp_path: Path) -> None:
    snippets = re.findall(r"^```python\n(.*?)^```", (FOLDER / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(snippets) >= 4

    def checked(text: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "readme.py"
        file.write_text(text)
        mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}"]
        environment = {**os.environ, "MYPYPATH": str(FOLDER / "src")}
        return subprocess.run(
            [*mypy, str(file)], cwd=FOLDER, env=environment, check=False, capture_output=True, text=True, timeout=300
        )

    text = "\n".join(snippets)
    told = checked(text)
    assert told.returncode == 0, told.stdout
    assert "union-attr" in checked(text + "\npayment_of(response).receipt\n").stdout
