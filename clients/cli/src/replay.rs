//! Replays a decision from an evidence file. The replay runs Purser's evaluation without a Purser server.

use crate::args::Replay;
use crate::exit::{Exit, Failure};
use crate::files::{read_text, read_trust};
use crate::output::{Output, table};
use purser_domain::{ENGINE_VERSION, NoReplay, ReplayDifference, replay_stated_decision};
use purser_evidence::parse_json;
use purser_verify::verify_evidence;
use serde_json::{Value, json};

/// Evaluates the decision in an evidence file again and prints the differences.
pub(crate) fn replay(arguments: &Replay, output: &Output) -> Result<Exit, Failure> {
    let path = arguments.file.display();
    let unreadable = |reason: String| Failure::Unreadable(format!("{path} can't be replayed: {reason}"));
    let trust = read_trust(&arguments.trust)?;
    let text = read_text(&arguments.file)?;
    let report = verify_evidence(&text, &trust).map_err(|error| unreadable(error.to_string()))?;
    let Some(decision) = report.decision_statement() else {
        let document = json!({"outcome": "not_verified"});
        let line = "The statement of the decision is not verified: `purser verify` says why.";
        output.print_result(&document, || vec![line.to_owned()]);
        return Ok(Exit::NotVerified);
    };
    let file = parse_json(text.as_bytes()).map_err(|error| unreadable(error.to_string()))?;
    let payload = parse_json(decision.payload()).map_err(|error| unreadable(error.to_string()))?;
    let replay = replay_stated_decision(&payload, file.get("inputs").unwrap_or(&Value::Null));
    output.print_result(&as_json(&replay), || lines(&replay));
    Ok(match replay {
        Ok(differences) if differences.is_empty() => Exit::Done,
        Ok(_) => Exit::Different,
        Err(_) => Exit::Unreadable,
    })
}

fn as_json(replay: &Result<Vec<ReplayDifference>, NoReplay>) -> Value {
    let (outcome, detail, differences) = match replay {
        Err(reason) => ("impossible", Some(reason.to_string()), &[][..]),
        Ok(differences) if differences.is_empty() => ("same", None, &[][..]),
        Ok(differences) => ("different", None, &differences[..]),
    };
    let differences = differences.iter().map(
        |difference| json!({"what": difference.what, "recorded": difference.recorded, "replayed": difference.replayed}),
    );
    json!({
        "outcome": outcome, "detail": detail, "engine_version": ENGINE_VERSION,
        "differences": differences.collect::<Vec<_>>(),
    })
}

fn lines(replay: &Result<Vec<ReplayDifference>, NoReplay>) -> Vec<String> {
    match replay {
        Err(reason) => vec![format!("The decision can't be evaluated again: {reason}.")],
        Ok(differences) if differences.is_empty() => vec!["The evaluation decides the same.".to_owned()],
        Ok(differences) => {
            let row =
                |item: &ReplayDifference| vec![item.what.to_owned(), item.recorded.clone(), item.replayed.clone()];
            let rows: Vec<_> = differences.iter().map(row).collect();
            let mut lines = table(&["WHAT", "RECORDED", "REPLAYED"], &rows);
            lines.push("The evaluation decides otherwise.".to_owned());
            lines
        }
    }
}
