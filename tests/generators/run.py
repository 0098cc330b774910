"""Generates clients from docs/openapi.json, and calls a local stack with each of them. The calls add a rule, check its
type in the list of rules, and read the agent with its own key. No generator may warn, leave out an operation or a
schema, or add a number to a class name.
"""

import ast
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DOCUMENT = Path(os.environ.get("DOCUMENT", ROOT / "docs/openapi.json"))
API = json.loads(DOCUMENT.read_text())
SCHEMAS = set(API["components"]["schemas"])
OPERATIONS = {operation["operationId"] for methods in API["paths"].values() for operation in methods.values()}
BIN = Path(sys.executable).parent
# Names of fields that end with a digit.
WITH_DIGITS = set()


def run(*command, folder):
    """Returns the output of a command, which must succeed."""
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout + done.stderr


def check_names(names):
    numbered = sorted(name for name in names if re.search(r"\d_?$", name) and name not in WITH_DIGITS)
    assert not numbered, f"numbered names: {numbered}"


def check_all(what, expected, found):
    assert not expected - found, f"{what} left out: {sorted(expected - found)}"


def classes(*files):
    return {node.name for file in files for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)}


def new_agent(base):
    """Creates an agent of the demo owner. Returns the agent, the owner's token, and the agent's key."""
    def post(path, token=None):
        headers = {"Authorization": f"Bearer {token}", "If-Match": "*"} if token else {}
        body = json.dumps({"name": "generated"} if path == "/agents" else {}).encode()
        request = urllib.request.Request(base + path, body, headers, method="POST")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as response:
            return json.load(response)

    token = post("/_local/token")["token"]
    agent = post("/agents", token)["agent_id"]
    return agent, token, post(f"/agents/{agent}/keys", token)["key"]


def openapi_python_client(folder, base):
    output = run(BIN / "openapi-python-client", "generate", "--path", DOCUMENT, "--meta", "none", "--output-path",
                 "generated_client", folder=folder)
    # Without warnings, the generator prints only this line.
    assert output.strip() == "Generating generated_client", output[-4000:]
    package = importlib.import_module("generated_client")
    modules = {module.name: importlib.import_module(module.name)
               for module in pkgutil.walk_packages(package.__path__, "generated_client.")}
    check_all("operations", OPERATIONS, {name.rpartition(".")[2].rstrip("_") for name in modules if ".api." in name})
    files = list((folder / "generated_client/models").glob("*.py"))
    check_names(classes(*files) | {file.stem for file in files})

    models = modules["generated_client.models"]
    dashboard = "generated_client.api.dashboard"
    agent, token, key = new_agent(base)
    owner = package.AuthenticatedClient(base_url=base, token=token, raise_on_unexpected_status=True)
    body = models.CountLimitRuleBody(count=7, window_seconds=3600, kind="count_limit")
    modules[f"{dashboard}.add_rule"].sync(agent, client=owner, body=body, if_match="*")
    rules = modules[f"{dashboard}.list_rules"].sync(agent, client=owner).rules
    assert isinstance(rules[0], models.CountLimitAgentRule) and rules[0].count == 7, rules
    me = modules["generated_client.api.agents.me"].sync(client=package.AuthenticatedClient(base_url=base, token=key))
    assert me.agent_id == agent, me


def datamodel_code_generator(folder, base):
    import httpx

    run(BIN / "datamodel-codegen", "--input", DOCUMENT, "--input-file-type", "openapi", "--output-model-type",
        "pydantic_v2.BaseModel", "--use-annotated", "--output", "generated_models.py", folder=folder)
    file = folder / "generated_models.py"
    check_names(classes(file))
    models = importlib.import_module("generated_models")
    check_all("schemas", SCHEMAS, set(vars(models)))
    run(BIN / "mypy", "--no-error-summary", "generated_models.py", folder=folder)

    agent, token, key = new_agent(base)
    with httpx.Client(base_url=base, trust_env=False, timeout=60, headers={"Authorization": f"Bearer {token}", "If-Match": "*"}) as http:
        body = models.RuleBody(models.CountLimitRuleBody(count=7, window_seconds=3600, kind="count_limit"))
        response = http.post(f"/agents/{agent}/rules", content=body.model_dump_json(exclude_unset=True))
        assert response.is_success, response.text
        rules = models.AgentRuleList.model_validate_json(http.get(f"/agents/{agent}/rules").content).rules
        assert isinstance(rules[0].root, models.CountLimitAgentRule) and rules[0].root.count == 7, rules
        me = http.get("/mcp/agents/me", headers={"Authorization": f"Bearer {key}"})
        assert models.Agent.model_validate_json(me.content).agent_id == agent, me.text


def openapi_typescript(folder, base):
    programs = HERE / "node_modules/.bin"
    output = run(programs / "openapi-typescript", DOCUMENT, "-o", "api.ts", folder=folder)
    assert "warn" not in output.lower(), output
    generated = (folder / "api.ts").read_text()
    operations = generated.split("export interface operations {", 1)[1]
    check_all("operations", OPERATIONS, set(re.findall(r"^    (\w+): \{$", operations, re.MULTILINE)))
    schemas = generated.split("\n    schemas: {\n", 1)[1].split("\n    };\n", 1)[0]
    names = set(re.findall(r"^        (\w+): ", schemas, re.MULTILINE))
    check_all("schemas", SCHEMAS, names)
    check_names(names)

    # Node searches for modules in the parent folders of the file.
    (folder / "node_modules").symlink_to(HERE / "node_modules")
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "client.ts").write_text((HERE / "client.ts").read_text())
    run(programs / "tsc", "--strict", "--target", "es2022", "--module", "nodenext", "client.ts", folder=folder)
    run("node", "--preserve-symlinks-main", "client.js", base, *new_agent(base), folder=folder)


def main():
    base = json.loads((Path(os.environ["STACK_FOLDER"]) / "stack.json").read_text())["base_url"]
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        for check in (openapi_typescript, openapi_python_client, datamodel_code_generator):
            try:
                check(Path(folder), base)
                print(f"generators: {check.__name__}: ok")
            except Exception as error:  # The next generator is tried nevertheless.
                failed = True
                print(f"generators: {check.__name__}: failed: {error!r}"[:6000].replace("\\n", "\n"))
    sys.exit(failed)


main()
