//! The shared parts of the operators' programs: the `aws` command, which finds account and region as usual.
//!
//! The programs write the production seed, add and remove operators, and repair data after an upgrade. They depend only
//! on the shared crates, so a program that handles these keys contains no test code and no function.
//! crates alone: no test code and no function is in what holds these keys.

use purser_api::Env;
use serde_json::Value;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// The error message for a person at a terminal.
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

/// Runs `aws` with this standard input, which no other process can read, and returns its output.
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
        // `aws` has printed its own error.
        return Err(format!(
            "`aws {}` failed",
            arguments.iter().take(2).copied().collect::<Vec<_>>().join(" ")
        )
        .into());
    }
    Ok(serde_json::from_slice(&ended.stdout).unwrap_or_default())
}

/// A parameter of the described stack; `None` if it has none of this name.
pub fn parameter<'a>(described: &'a Value, name: &str) -> Option<&'a str> {
    let parameters = described.pointer("/Stacks/0/Parameters")?.as_array()?;
    let is_named = |parameter: &&Value| parameter.get("ParameterKey").and_then(Value::as_str) == Some(name);
    parameters.iter().find(is_named)?.get("ParameterValue")?.as_str()
}

/// The name of the stack's `LogBucket`.
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

/// An output of the described stack.
pub fn output(described: &Value, name: &str) -> Result<String, Failed> {
    let outputs = described.pointer("/Stacks/0/Outputs").and_then(Value::as_array);
    let is_named = |output: &&Value| output.get("OutputKey").and_then(Value::as_str) == Some(name);
    let found = outputs.into_iter().flatten().find(is_named);
    let value = found
        .and_then(|output| output.get("OutputValue"))
        .and_then(Value::as_str);
    Ok(value
        .ok_or_else(|| format!("the stack has no output `{name}`"))?
        .to_owned())
}

/// The region and credentials of the `aws` command, as variables, for the described stack.
pub fn environment(described: &Value) -> Result<Env, Failed> {
    let credentials = aws(&["configure", "export-credentials", "--format", "process"], None)?;
    // arn:aws:cloudformation:<region>:<account>:stack/<name>/<id>
    let region = described.pointer("/Stacks/0/StackId").and_then(Value::as_str);
    let region = region.and_then(|arn| arn.split(':').nth(3)).unwrap_or_default();
    let member = |name: &str| {
        credentials
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let variables = [
        ("AWS_REGION", region.to_owned()),
        ("AWS_ACCESS_KEY_ID", member("AccessKeyId")),
        ("AWS_SECRET_ACCESS_KEY", member("SecretAccessKey")),
        ("AWS_SESSION_TOKEN", member("SessionToken")),
    ];
    Ok(variables.into_iter().collect())
}
