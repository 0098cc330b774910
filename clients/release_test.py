#!/usr/bin/env python3
"""Tests release.py on a copy of the files that release.py reads. The test needs neither a test runner nor a client's
package.
"""

import shutil
import tempfile
import unittest
from pathlib import Path

import release

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = "https://git.test/a/purser"


class Release(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        each = [f"{client}/{name}" for client in release.CLIENTS for name in ("README.md", "CHANGELOG.md")]
        crates = [f"{crate}/Cargo.toml" for crate in release.CRATES]
        for name in (*release.MANIFESTS, *each, *crates):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        self.assertIn(old, text)
        (self.root / name).write_text(text.replace(old, new, 1))

    def test_the_packages_are_as_they_have_to_be(self) -> None:
        self.assertEqual(release.faults(self.root), [])

    def test_each_fault_is_found(self) -> None:
        for name, old, new, fault in (
            ("clients/cli/README.md", "](https://", "](../../README.md) [](https://", "relative link"),
            ("clients/mcp/README.md", "](https://code.example/purser)", "](https://other.example)", "no link to"),
            ("clients/rust/Cargo.toml", "repository.workspace = true", "", "`repository`"),
            ("clients/mcp/Cargo.toml", "keywords = ", "# ", "`keywords`"),
            ("Cargo.toml", 'clients/rust", version = "0.1.0"', 'clients/rust", version = "0.0.9"', "purser-client"),
            ("clients/python/pyproject.toml", 'version = "0.1.0"', 'version = "0.2.0"', "pyproject.toml: the version"),
            ("clients/typescript/package.json", "git+https://", "git+http://", "package.json: `repository`"),
            ("clients/python/CHANGELOG.md", "## Unreleased", "## 0.0.1", "no heading"),
        ):
            with self.subTest(fault):
                kept = (self.root / name).read_text()
                self.edit(name, old, new)
                found = release.faults(self.root)
                self.assertTrue(found and all(fault in line for line in found), found)
                (self.root / name).write_text(kept)

    def test_a_release_needs_its_tag_and_its_changelogs(self) -> None:
        for client in release.CLIENTS[1:]:
            self.edit(f"{client}/CHANGELOG.md", "## Unreleased", "## 0.1.0 (2027-01-01)")
        hindrances = release.prepare(self.root, ADDRESS, "v0.1.1")
        self.assertEqual(len(hindrances), 2, hindrances)
        self.assertNotIn(ADDRESS, (self.root / "Cargo.toml").read_text())

    def test_a_release_writes_its_address_everywhere(self) -> None:
        for client in release.CLIENTS:
            self.edit(f"{client}/CHANGELOG.md", "## Unreleased", "## 0.1.0 (2027-01-01)")
        self.assertEqual(release.prepare(self.root, ADDRESS, "v0.1.0"), [])
        self.assertEqual(release.faults(self.root), [])
        left = [path for path in self.root.rglob("*") if path.is_file() and "code.example" in path.read_text()]
        self.assertEqual(left, [])


if __name__ == "__main__":
    unittest.main()
