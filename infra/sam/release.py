#!/usr/bin/env python3
"""Writes and checks the files of a release, which a deployment needs instead of a Rust toolchain.

    infra/sam/release.py programs                                    prints the names of the functions' programs
    infra/sam/release.py write <folder> <architecture> <programs>    adds the files of one architecture to a folder
    infra/sam/release.py check <folder> <environment>                prints the template that the environment deploys

`<programs>` has the file `<program>/bootstrap` for each program, and `<program>.cdx.json`, its bill of materials. A
release has for each architecture `<program>-<architecture>.zip`, the bill beside it, and
`template-<architecture>.json`; the nested template; and `SHA256SUMS`. Programs that are built again from the same bytes
give the same files.

Exit status: 0; 1, the files are not what they should be; 2, wrong use.
"""

import hashlib
import json
import re
import sys
import zipfile
from pathlib import Path

from samcli.yamlhelper import yaml_parse
from values import ROOT, Environment, Wrong

FUNCTION = "AWS::Serverless::Function"
NESTED = "AWS::CloudFormation::Stack"
SUMS = "SHA256SUMS"
# `e_machine` in the ELF header (ELF-64 object file format).
MACHINES = {"arm64": 183, "x86_64": 62}
# The version of the C library on Amazon Linux 2023.
GLIBC = (2, 34)


class Rejected(Exception):
    """The error for files of a release, or a program, that can't be deployed."""


def template(architecture, root=ROOT):
    """Returns the root template of a release, the nested templates by name, and the names of all programs."""
    parsed = yaml_parse((root / "template.yaml").read_text())
    nested, programs = {}, set()
    for resource in parsed["Resources"].values():
        properties = resource.get("Properties", {})
        if resource["Type"] == FUNCTION:
            program = resource.pop("Metadata")["BuildProperties"]["Binary"]
            properties["CodeUri"] = f"{program}-{architecture}.zip"
            programs.add(program)
        elif resource["Type"] == NESTED:
            path = root / properties["TemplateURL"]
            nested[path.name] = path.read_text()
            properties["TemplateURL"] = path.name
    del parsed["Globals"]["Function"]["CodeUri"]
    # Programs of one architecture can't run on the other.
    parsed["Parameters"]["Architecture"] |= {"Default": architecture, "AllowedValues": [architecture]}
    return json.dumps(parsed, indent=1) + "\n", nested, sorted(programs)


def write(folder, architecture, built):
    """Adds the files of one architecture, and writes the checksums of all files in the folder."""
    text, nested, programs = template(architecture)
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs:
        code = (built / program / "bootstrap").read_bytes()
        check_program(program, code, architecture)
        with zipfile.ZipFile(folder / f"{program}-{architecture}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
            member = zipfile.ZipInfo("bootstrap", (1980, 1, 1, 0, 0, 0))
            member.external_attr = 0o100755 << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(member, code)
        (folder / f"{program}-{architecture}.cdx.json").write_bytes((built / f"{program}.cdx.json").read_bytes())
    (folder / f"template-{architecture}.json").write_text(text)
    for name, content in nested.items():
        (folder / name).write_text(content)
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    (folder / SUMS).write_text("".join(f"{sha256(path)}  {path.name}\n" for path in files))


def check_program(program, code, architecture):
    """Rejects a program that Lambda could not start."""
    machine = int.from_bytes(code[18:20], "little") if code[:4] == b"\x7fELF" else None
    if machine != MACHINES[architecture]:
        raise Rejected(f"{program}: the program is not built for {architecture}")
    for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", code):
        if (int(major), int(minor)) > GLIBC:
            raise Rejected(f"{program}: the program needs GLIBC_{int(major)}.{int(minor)}, and Lambda has GLIBC_{GLIBC[0]}.{GLIBC[1]}")


def check(folder, environment):
    """Returns the path of the environment's template, after checking the checksums of all files that it deploys."""
    if not (folder / SUMS).is_file():
        raise Rejected(f"{folder} has no {SUMS}: it is not the folder of a release")
    sums = {}
    for line in (folder / SUMS).read_text().splitlines():
        if not (match := re.fullmatch(r"([0-9a-f]{64})  ([A-Za-z0-9_][A-Za-z0-9_.-]*)", line)):
            raise Rejected(f"{SUMS}: `{line}` is not a checksum and a name")
        sums[match[2]] = match[1]
    architecture = environment.parameters["Architecture"]
    text, nested, programs = template(architecture)
    root = f"template-{architecture}.json"
    for name in [root, *nested, *(f"{program}-{architecture}.zip" for program in programs)]:
        if name not in sums or not (folder / name).is_file():
            raise Rejected(f"the release has no {name}: Architecture={architecture} needs it")
        if sha256(folder / name) != sums[name]:
            raise Rejected(f"{name} is not the file that {SUMS} names: get the files again")
    # The values and the account are checked against the templates of this checkout.
    for name, content in [(root, text), *nested.items()]:
        if (folder / name).read_text() != content:
            raise Rejected(f"{name} is of another version than this checkout: check out the release's tag (git switch --detach <tag>)")
    return folder / root


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(arguments):
    try:
        match arguments:
            case ["programs"]:
                print(*template("arm64")[2], sep="\n")
            case ["write", folder, ("arm64" | "x86_64") as architecture, built]:
                write(Path(folder), architecture, Path(built))
            case ["check", folder, environment]:
                print(check(Path(folder), Environment(environment)))
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except (Rejected, Wrong, OSError) as rejected:
        print(f"release: {rejected}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
