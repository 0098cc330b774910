"""Prints template.yaml as the plain CloudFormation that SAM makes of it, in JSON, without a cloud account.

    .venv/bin/python infra/sam/translate.py [template.yaml]

The routes and permissions exist only after this step; lint and tests that are about them read its output.
"""

import json
import sys
from pathlib import Path

from samcli.lib.translate.sam_template_validator import SamTemplateValidator
from samcli.yamlhelper import yaml_parse

TEMPLATE = Path(__file__).resolve().parents[2] / "template.yaml"


class NoManagedPolicies:
    """Stands where SAM asks an account for policy ARNs by name; we name none, and its own it knows."""

    def load(self):
        return {}


def translated(path=TEMPLATE):
    validator = SamTemplateValidator(yaml_parse(path.read_text()), NoManagedPolicies(), region="us-east-1")
    return yaml_parse(validator.get_translated_template_if_valid())


if __name__ == "__main__":
    json.dump(translated(Path(sys.argv[1]) if len(sys.argv) > 1 else TEMPLATE), sys.stdout, indent=2)
    print()
