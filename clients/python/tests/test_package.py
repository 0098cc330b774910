"""The package as it is published."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

FOLDER = Path(__file__).parents[1]


def test_the_wheel_has_the_package_its_types_and_nothing_else(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=FOLDER, check=True, capture_output=True, timeout=60)
    wheel = zipfile.ZipFile(next(tmp_path.glob("purser_client-*-py3-none-any.whl")))
    sources = {f"purser_client/{path.name}" for path in (FOLDER / "src/purser_client").iterdir() if path.is_file()}
    assert "purser_client/py.typed" in sources
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == sources
    metadata = wheel.read(next(name for name in wheel.namelist() if name.endswith("/METADATA"))).decode()
    assert "Requires-Dist: x402==2.25.0; extra == 'x402'" in metadata


def test_httpx_is_all_that_the_package_itself_needs() -> None:
    said = "import sys, purser_client; print(*{'x402', 'requests', 'pydantic'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", said], check=True, capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == ""
