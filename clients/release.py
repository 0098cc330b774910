#!/usr/bin/env python3
"""Checks the metadata of the clients' packages, and prepares a release.

    clients/release.py check                     the metadata, the READMEs and the changelogs agree
    clients/release.py prepare <address> <tag>   writes the repository's address, after checking that the tag can be released

The repository's address is `repository` in Cargo.toml. The Python and npm packages and all READMEs repeat the address,
because they are read outside the repository.
"""

import json
import re
import sys
import tomllib
from pathlib import Path

# The folders of the published crates, and of all published packages.
CRATES = ("clients/rust", "clients/mcp", "clients/cli", "clients/evidence", "shared/domain", "shared/evidence")
CLIENTS = (*CRATES, "clients/python", "clients/typescript")
MANIFESTS = ("Cargo.toml", "clients/python/pyproject.toml", "clients/typescript/package.json")
# A Markdown link: the text and the target.
LINK = re.compile(r"\]\(([^)\s]+)\)")


def faults(root: Path) -> list[str]:
    """Returns a line for each inconsistency in the packages."""
    found: list[str] = []

    def expect(holds: bool, fault: str) -> None:
        if not holds:
            found.append(fault)

    workspace = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]
    address, version = workspace["package"]["repository"], workspace["package"]["version"]
    python = tomllib.loads((root / "clients/python/pyproject.toml").read_text())["project"]
    npm = json.loads((root / "clients/typescript/package.json").read_text())
    for name in ("purser-client", "purser-domain", "purser-evidence", "purser-mcp", "purser-verify"):
        wanted = workspace["dependencies"][name]["version"]
        expect(wanted == version, f"Cargo.toml: {name} is asked for in version {wanted} instead of {version}")
    for what, said in (("pyproject.toml", python["version"]), ("package.json", npm["version"])):
        expect(said == version, f"{what}: the version is {said} instead of {version}")
    for crate in CRATES:
        package = tomllib.loads((root / f"{crate}/Cargo.toml").read_text())["package"]
        for key in ("version", "license", "repository", "rust-version"):
            expect(package.get(key) == {"workspace": True}, f"{crate}: `{key}` is not the workspace's")
        expect("publish" not in package, f"{crate}: `publish` is set")
        for key in ("description", "readme", "keywords", "categories"):
            expect(bool(package.get(key)), f"{crate}: there is no `{key}`")

    expect(npm["repository"]["url"] == f"git+{address}.git", "package.json: `repository` has another address")
    addresses = [*python["urls"].values(), npm["homepage"], npm["bugs"]["url"]]
    for client in CLIENTS:
        readme = (root / f"{client}/README.md").read_text()
        targets = LINK.findall(readme)
        for target in targets:
            expect(target.startswith("https://"), f"{client}/README.md: {target} is a relative link")
        expect(address in targets, f"{client}/README.md: there is no link to {address}")
        changelog = (root / f"{client}/CHANGELOG.md").read_text()
        expect(heading(changelog) in ("Unreleased", version), f"{client}/CHANGELOG.md: no heading for {version}")
    for said in addresses:
        expect(said.startswith(address), f"{said} is not an address of {address}")
    return found


def heading(changelog: str) -> str | None:
    """Returns the newest version in a changelog, without the date."""
    first = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    return first[1] if first else None


def prepare(root: Path, address: str, tag: str) -> list[str]:
    """Writes the repository's address into all packages. Returns what prevents the release, and then writes nothing."""
    package = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]
    hindrances = faults(root)
    if not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", address):
        hindrances.append(f"{address} is not the address of a repository")
    if tag != f"v{package['version']}":
        hindrances.append(f"the tag {tag} is not of version {package['version']}")
    for client in CLIENTS:
        newest = heading((root / f"{client}/CHANGELOG.md").read_text())
        if newest != package["version"]:
            hindrances.append(f"{client}/CHANGELOG.md: {package['version']} is not the newest heading")
    if not hindrances:
        for name in (*MANIFESTS, *(f"{client}/README.md" for client in CLIENTS)):
            file = root / name
            file.write_text(file.read_text().replace(package["repository"], address))
    return hindrances


def main(arguments: list[str]) -> int:
    root = Path(__file__).resolve().parents[1]
    match arguments:
        case ["check"]:
            found = faults(root)
        case ["prepare", address, tag]:
            found = prepare(root, address, tag)
        case _:
            print(__doc__)
            return 2
    for fault in found:
        print(f"release: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
