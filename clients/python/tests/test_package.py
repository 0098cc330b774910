"""Tests of the package as it is published."""

from __future__ import annotations

import os
import re
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
