//! The shared functions of the operators' programs. The `aws` command determines the account and the region.

use purser_api::Env;
use serde_json::Value;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// An error with a message for a user at a terminal.
pub type Failed = Box<dyn std::error::Error>;

/// Sets the value of a secret. The value is passed on standard input, never as an argument.
pub fn put_secret(arn: &str, value: &str) -> Result<(), Failed> {
    let arguments = [
        "secretsmanager",
        "put-secret-value",
        "--secret-id",
        arn,
        "--secret-string",
    ];
    aws(&[arguments.as_slice(), &["file:///dev/stdin"]].concat(), Some(value))?;
    Ok(())
}

/// Runs `aws` and returns the JSON output. `input` is passed on standard input, which other processes can't read.
pub fn aws(arguments: &[&str], input: Option<&str>) -> Result<Value, Failed> {
    let mut child = Command::new("aws")
        .args(arguments)
        .args(["--output", "json"])
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("the `aws` command does not start: {error}"))?;
    if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
        pipe.write_all(input.as_bytes())?;
    }
    let ended = child.wait_with_output()?;
    if !ended.status.success() {
        // The `aws` command has already printed the error.
        return Err(format!(
            "`aws {}` failed",
            arguments.iter().take(2).copied().collect::<Vec<_>>().join(" ")
        )
        .into());
    }
    Ok(serde_json::from_slice(&ended.stdout).unwrap_or_default())
}

/// Returns a parameter of the described stack, or `None` if the stack has no parameter with this name.
pub fn parameter<'a>(stack: &'a Value, name: &str) -> Option<&'a str> {
    let parameters = stack.pointer("/Stacks/0/Parameters")?.as_array()?;
    let is_named = |parameter: &&Value| parameter.get("ParameterKey").and_then(Value::as_str) == Some(name);
    parameters.iter().find(is_named)?.get("ParameterValue")?.as_str()
}

/// Returns the name of the stack's `LogBucket`.
pub fn log_bucket(stack: &str) -> Result<String, Failed> {
    let arguments = ["cloudformation", "describe-stack-resource", "--stack-name", stack];
    let described = aws(
        &[&arguments[..], &["--logical-resource-id", "LogBucket"]].concat(),
        None,
    )?;
    let name = described
        .pointer("/StackResourceDetail/PhysicalResourceId")
        .and_then(Value::as_str);
    Ok(name.ok_or("the stack has no `LogBucket`")?.to_owned())
}

/// Returns an output of the described stack.
pub fn output(stack: &Value, name: &str) -> Result<String, Failed> {
    let outputs = stack.pointer("/Stacks/0/Outputs").and_then(Value::as_array);
    let is_named = |output: &&Value| output.get("OutputKey").and_then(Value::as_str) == Some(name);
    let found = outputs.into_iter().flatten().find(is_named);
    let value = found
        .and_then(|output| output.get("OutputValue"))
        .and_then(Value::as_str);
    Ok(value
        .ok_or_else(|| format!("the stack has no output `{name}`"))?
        .to_owned())
}

/// Returns the region of the described stack and the credentials of the `aws` command, as environment variables.
pub fn environment(stack: &Value) -> Result<Env, Failed> {
    let credentials = aws(&["configure", "export-credentials", "--format", "process"], None)?;
    // The format of the stack's id is `arn:aws:cloudformation:<region>:<account>:stack/<name>/<id>`.
    let region = stack.pointer("/Stacks/0/StackId").and_then(Value::as_str);
    let region = region.and_then(|arn| arn.split(':').nth(3)).unwrap_or_default();
    let field = |name: &str| {
        credentials
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let variables = [
        ("AWS_REGION", region.to_owned()),
        ("AWS_ACCESS_KEY_ID", field("AccessKeyId")),
        ("AWS_SECRET_ACCESS_KEY", field("SecretAccessKey")),
        ("AWS_SESSION_TOKEN", field("SessionToken")),
    ];
    Ok(variables.into_iter().collect())
}
