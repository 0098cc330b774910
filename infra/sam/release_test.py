#!/usr/bin/env python3
"""Deploys release files to an emulator of AWS on loopback, without a Rust toolchain.

    .venv/bin/python infra/sam/release_test.py

The programs are stubs. Everything that the deployer runs is what it runs for AWS (infra/sam/emulator.py).
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from types import SimpleNamespace

import boto3
import changeset
import release
from deployer_test import policies
from emulator import MINISTACK, Emulator
from values import ROOT, Environment

DEV = Environment("dev")
# The actions for S3 operations whose names differ (S3 user guide, "Required permissions for Amazon S3 API operations").
S3_ACTIONS = {
    "HeadBucket": "ListBucket", "HeadObject": "GetObject", "ListObjectsV2": "ListBucket", "PutBucketEncryption": "PutEncryptionConfiguration",
    "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
}  # fmt: skip


def stub(architecture, more=b""):
    """Returns a program that infra/sam/release.py accepts."""
    return b"\x7fELF" + bytes(14) + release.MACHINES[architecture].to_bytes(2, "little") + more


def written(folder, architectures=("arm64", "x86_64"), more=b""):
    """Writes the files of a release, with stubs, into a folder."""
    for architecture in architectures:
        with tempfile.TemporaryDirectory() as built:
            for program in release.template(architecture)[2]:
                (Path(built) / program).mkdir()
                (Path(built) / program / "bootstrap").write_bytes(stub(architecture, more))
                (Path(built) / f"{program}.cdx.json").write_text("{}")
            release.write(folder, architecture, Path(built))
    return folder


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def test_the_same_programs_give_the_same_files(self):
        one, other = written(self.folder / "one"), written(self.folder / "other")
        self.assertEqual((one / release.SUMS).read_text(), (other / release.SUMS).read_text())
        subprocess.run(["sha256sum", "--check", "--quiet", release.SUMS], cwd=one, check=True)

    def test_functions_with_one_program_share_its_file(self):
        template = json.loads((written(self.folder) / "template-arm64.json").read_text())
        functions = [each for each in template["Resources"].values() if each["Type"] == release.FUNCTION]
        files = {each["Properties"]["CodeUri"] for each in functions}
        self.assertEqual(files, {path.name for path in self.folder.glob("*-arm64.zip")})

    def test_a_program_that_lambda_cannot_start_is_rejected(self):
        for code, words in [(stub("x86_64"), "not built for arm64"), (b"#!/bin/sh", "not built for"), (stub("arm64", b"\0GLIBC_2.35\0"), "GLIBC_2.35")]:
            with self.assertRaisesRegex(release.Rejected, words):
                release.check_program("payments", code, "arm64")
        release.check_program("payments", stub("arm64", b"\0GLIBC_2.34\0GLIBC_2.4\0"), "arm64")

    def test_files_that_are_not_those_of_the_release_are_rejected(self):
        def change(name, text):
            return lambda folder: (folder / name).write_text(text)

        def reseal(name, text):
            def apply(folder):
                before = release.sha256(folder / name)
                (folder / name).write_text(text)
                sums = folder / release.SUMS
                sums.write_text(sums.read_text().replace(before, release.sha256(folder / name)))
            return apply

        for spoil, words in [
            (lambda folder: (folder / release.SUMS).unlink(), "has no SHA256SUMS"),
            (change("payments-arm64.zip", "x"), "payments-arm64.zip is not the file"),
            (lambda folder: (folder / "events-arm64.zip").unlink(), "has no events-arm64.zip"),
            (change(release.SUMS, f"{'0' * 64}  ../x\n"), "is not a checksum and a name"),
            (reseal("template-arm64.json", "{}"), "another version than this checkout"),
            (reseal("monitoring.generated.yaml", "{}"), "another version than this checkout"),
        ]:
            with self.subTest(words):
                shutil.rmtree(self.folder)
                spoil(written(self.folder))
                with self.assertRaisesRegex(release.Rejected, words):
                    release.check(self.folder, DEV)

    def test_a_job_of_the_workflow_gets_credentials_and_masks_them(self):
        stubs = {"curl": """echo '{"value": "the token"}'""", "aws": """[[ $(cat) == "the token" && $* == *arn:role* ]] && printf 'ID\\tSECRET\\tSESSION\\n'"""}
        for name, script in stubs.items():
            (self.folder / name).write_text(f"#!/bin/bash\n{script}\n")
            (self.folder / name).chmod(0o755)
        job = {"PATH": f"{self.folder}:{os.environ['PATH']}", "GITHUB_ENV": str(self.folder / "env"), "GITHUB_RUN_ID": "1",
               "ACTIONS_ID_TOKEN_REQUEST_URL": "https://x", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "t"}  # fmt: skip
        command = [ROOT / "infra/sam/assume-role.sh", "arn:role", "eu-west-1"]
        done = subprocess.run(command, env=job, capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "".join(f"::add-mask::{text}\n" for text in ("ID", "SECRET", "SESSION")))
        expected = "AWS_ACCESS_KEY_ID=ID\nAWS_SECRET_ACCESS_KEY=SECRET\nAWS_SESSION_TOKEN=SESSION\nAWS_REGION=eu-west-1\n"
        self.assertEqual((self.folder / "env").read_text(), expected)
        # Without a token, no credentials are issued.
        (self.folder / "curl").write_text("#!/bin/bash\necho '{}'\n")
        self.assertNotEqual(subprocess.run(command, env=job, capture_output=True, check=False).returncode, 0)

    def test_an_architecture_that_was_not_built_is_named(self):
        environment = SimpleNamespace(parameters={"Architecture": "x86_64"})
        with self.assertRaisesRegex(release.Rejected, "has no template-x86_64.json: Architecture=x86_64"):
            release.check(written(self.folder, ["arm64"]), environment)
        self.assertEqual(release.check(written(self.folder), environment).name, "template-x86_64.json")


class Deployment(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.emulator = Emulator()
        cls.addClassCleanup(cls.emulator.stop)
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        # Links all programs of this machine except compilers.
        programs = cls.folder / "programs"
        programs.mkdir()
        for path in os.environ["PATH"].split(os.pathsep):
            for program in Path(path).glob("*") if Path(path).is_dir() else ():
                if not program.name.startswith(("cargo", "rust", "cc", "gcc", "c++", "g++", "clang", "zig")) and not (programs / program.name).exists():
                    (programs / program.name).symlink_to(program)
        cls.environment = cls.emulator.environment | {"PATH": str(programs)}

    def run_command(self, *command):
        """Runs a command of the deployer, and prints its duration (docs/deploy.md, section 2)."""
        started = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=900, check=False)
        print(f"release_test: {time.monotonic() - started:.0f} s: {' '.join(map(str, command))[-100:]}", file=sys.stderr)
        return done

    def client(self, service):
        return boto3.client(service, endpoint_url=self.emulator.direct, aws_access_key_id="local", aws_secret_access_key="local", region_name="us-east-1")

    def deploy(self, files):
        return self.run_command("make", "--no-print-directory", "deploy", "ENV=dev", f"RELEASE={files}")

    def gh(self, verifies):
        """Installs a stand-in for the GitHub CLI, which records its arguments."""
        script = f"""#!/bin/bash
            echo "$*" >> {self.folder}/gh.log
            case "$1 $2" in
              "release download") cp -r {self.folder}/release "$5" ;;
              "repo view") echo owner/purser ;;
              "attestation verify") echo verified; exit {0 if verifies else 1} ;;
            esac"""
        file = self.folder / "programs" / "gh"
        file.unlink(missing_ok=True)
        file.write_text(script)
        file.chmod(0o755)

    def may(self, role, calls):
        """Checks that infra/deployer.yaml lets a role make the calls of a deployment's programs."""
        allowed = {action for each in policies()[role] for statement in each["policy"]["Statement"] for action in statement["Action"]}
        called = set()
        for call in calls:
            service, _, operation = call.partition(" ")
            service = {"monitoring": "cloudwatch", "tagging": "tag"}.get(service, service)
            called.add(f"{service}:{S3_ACTIONS.get(operation, operation) if service == 's3' else operation}")
        self.assertEqual(called - allowed, set())

    def test_a_deployer_without_rust_deploys_with_one_command_and_upgrades_with_the_same(self):
        for program in ("cargo", "rustc", "cc"):
            self.assertIsNone(shutil.which(program, path=self.environment["PATH"]))
        files = written(self.folder / "release")
        deployed = self.deploy(files)
        self.assertEqual(deployed.returncode, 0, deployed.stdout[-2_000:] + deployed.stderr[-2_000:])
        self.assertIn("| Add | PaymentsFunction |", deployed.stderr)
        functions = self.client("lambda").get_paginator("list_functions").paginate().build_full_result()["Functions"]
        template = json.loads((files / "template-arm64.json").read_text())
        self.assertEqual(len(functions), sum(each["Type"] == release.FUNCTION for each in template["Resources"].values()))

        self.assertIn("is up to date", self.deploy(files).stderr)

        # The files of a tag are downloaded, and are deployed only if GitHub has attested their checksums for the tag.
        shutil.rmtree(files)
        written(files, more=b"next")
        self.gh(verifies=False)
        self.assertNotEqual(self.deploy("v9.9.9").returncode, 0)
        self.gh(verifies=True)
        # The workflow also creates a change set that is executed later.
        known = len(self.emulator.calls)
        planned = self.run_command("infra/sam/deploy.sh", "--plan", "dev", "v9.9.9")
        self.assertEqual(planned.returncode, 0, planned.stdout[-2_000:] + planned.stderr[-2_000:])
        self.assertIn("| Modify | PaymentsFunction |", changeset.SUMMARY.read_text())
        self.assertNotIn("LedgerTable |", planned.stderr)
        self.may("Planner", self.emulator.calls[known:])
        executed = self.run_command(ROOT / ".venv/bin/python", "infra/sam/changeset.py", "execute", "dev", planned.stdout.strip())
        self.assertEqual(executed.returncode, 0, executed.stderr)
        self.assertIn("is up to date", self.deploy(files).stderr)
        self.may("Deployer", self.emulator.calls)
        asked = (self.folder / "gh.log").read_text()
        self.assertIn("attestation verify .aws-sam/release-v9.9.9/SHA256SUMS --repo owner/purser --signer-workflow owner/purser/.github/workflows/"
                      "release.yml --source-ref refs/tags/v9.9.9", asked)

        # Files that differ from the release are not deployed.
        (files / "payments-arm64.zip").write_bytes(b"other")
        rejected = self.deploy(files)
        self.assertNotEqual(rejected.returncode, 0)
        self.assertIn("payments-arm64.zip is not the file", rejected.stderr)


class Changes(unittest.TestCase):
    TABLE = {"Type": "AWS::DynamoDB::Table", "DeletionPolicy": "Retain"}

    def pages(self):
        """Returns the change set `root` in two pages, and the change set of its nested stack."""
        def change(name, kind, action="Modify", **more):
            return {"ResourceChange": {"LogicalResourceId": name, "ResourceType": kind, "Action": action, **more}}

        return {
            ("root", None): {"Changes": [change("LedgerTable", "AWS::DynamoDB::Table", Replacement="True")], "NextToken": "2"},
            ("root", "2"): {"Changes": [change("Monitoring", release.NESTED, ChangeSetId="nested")]},
            ("nested", None): {"Changes": [change("PaymentsErrors", "AWS::CloudWatch::Alarm", "Add")]},
        }

    def test_the_changes_of_nested_stacks_are_shown(self):
        pages = self.pages()
        client = SimpleNamespace(describe_change_set=lambda ChangeSetName, NextToken=None: pages[ChangeSetName, NextToken])
        changes = changeset.changes_of(client, "root")
        self.assertEqual(changeset.markdown("purser", changes).splitlines()[4:], [
            "| Add | Monitoring/PaymentsErrors | AWS::CloudWatch::Alarm |  |",
            "| Modify | LedgerTable | AWS::DynamoDB::Table | True |",
            "| Modify | Monitoring | AWS::CloudFormation::Stack |  |",
        ])  # fmt: skip

    def test_a_resource_with_data_is_neither_replaced_nor_removed(self):
        resources = {"LedgerTable": self.TABLE}
        for change, loses in [
            ({"Action": "Modify", "Replacement": "True"}, True),
            ({"Action": "Remove"}, True),
            ({"Action": "Modify", "Replacement": "False"}, False),
            ({"Action": "Add"}, False),
        ]:
            table = {"LogicalResourceId": "LedgerTable", "ResourceType": "AWS::DynamoDB::Table", **change}
            self.assertEqual(changeset.loses_data(table, resources), loses, change)
            # A resource that only the former template has is classified by its type.
            self.assertEqual(changeset.loses_data(table | {"LogicalResourceId": "FormerTable"}, resources), loses, change)
            role = {"LogicalResourceId": "PaymentsRole", "ResourceType": "AWS::IAM::Role", **change}
            self.assertFalse(changeset.loses_data(role, resources), change)


if __name__ == "__main__":
    if not MINISTACK.exists():
        print(f"release_test: no {MINISTACK.relative_to(ROOT)}; run infra/setup.sh ministack", file=sys.stderr)
        sys.exit(2)
    unittest.main()
