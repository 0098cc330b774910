//! Recounts usage from the ledger and the decisions, after records of the streams were lost or could not be read:
//! ```text
//! recount --stack <name> --from <day> --to <day>     days of UTC, such as 2026-11-21, both included
//! ```
//!
//! It runs with the permissions of its caller: the `aws` command finds account, region and credentials as usual. Until
//! it ends, nothing else is counted; the waiting records are counted afterwards. After a run that was killed, the next
//! run continues with the same days, from the owner that was reached.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal"
)]

use purser_admin::{Failed, aws, environment, output};
use purser_api::{Boot, Clock};
use purser_domain::{Day, Error};
use purser_store::{Change, Ledger, Recount, Shard, Uncounted, UsageTable};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;

/// The time within which a committed change appears in its stream, generously estimated: changes follow "in near-real
/// time" (developer guide, "Change data capture for `DynamoDB` Streams").
const APPEARS_WITHIN: Duration = Duration::from_secs(30);
/// The number of consecutive empty answers after which a shard counts as read to its end; a single one proves nothing.
const EMPTY_AT_END: u32 = 10;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((stack, days)) = parse(&arguments) else {
        eprintln!("recount: usage: recount --stack <name> --from <day> --to <day>");
        return ExitCode::from(2);
    };
    match run(stack, days).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("recount: {error}");
            eprintln!("recount: nothing is counted until it has ended; run it again");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Option<(&str, (Day, Day))> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--stack", stack, "--from", first, "--to", last] => {
            let (first, last) = (Day::parse(first)?, Day::parse(last)?);
            (first <= last).then_some((*stack, (first, last)))
        }
        _ => None,
    }
}

async fn run(stack: &str, days: (Day, Day)) -> Result<(), Failed> {
    let outputs = aws(&["cloudformation", "describe-stacks", "--stack-name", stack], None)?;
    let [ledger_table, decisions_table, usage_table] =
        ["LedgerTableName", "DecisionsTableName", "UsageTableName"].map(|name| output(&outputs, name));
    let (ledger_table, decisions_table, usage_table) = (ledger_table?, decisions_table?, usage_table?);
    let streams = [stream_of(&ledger_table)?, stream_of(&decisions_table)?];
    let db = purser_store::client(&Boot::new(environment(&outputs)?, Clock::system()).aws);
    let ledger = Ledger::new(db.clone(), ledger_table, decisions_table);
    let usage = UsageTable::new(db, usage_table);

    let now = Clock::system().now();
    let id = purser_api::random::<8>()?.map(|byte| format!("{byte:02x}")).concat();
    let recount = Recount::begin(usage.clone(), ledger.clone(), days, id, now).await?;
    let (first, last) = recount.days;
    println!("recount: {first} to {last}; nothing else is counted meanwhile");
    let done = recount.run(async |uncounted: &mut Uncounted| {
        tokio::time::sleep(APPEARS_WITHIN).await;
        for stream in &streams {
            read_stream(stream, &usage, &ledger, uncounted).await?;
        }
        Ok(())
    });
    let done = done.await?;
    println!("recount: the sums of {} owners are written", done.owners);
    if done.unreadable > 0 {
        println!(
            "recount: {} rows can't be read and are counted nowhere",
            done.unreadable
        );
    }
    Ok(())
}

/// The stream of a table.
fn stream_of(table: &str) -> Result<String, Failed> {
    let described = aws(&["dynamodb", "describe-table", "--table-name", table], None)?;
    let arn = described.pointer("/Table/LatestStreamArn").and_then(Value::as_str);
    Ok(arn.ok_or_else(|| format!("`{table}` has no stream"))?.to_owned())
}

/// Adds the records of all shards of a stream after their checkpoints.
async fn read_stream(
    stream: &str,
    usage: &UsageTable,
    ledger: &Ledger,
    uncounted: &mut Uncounted,
) -> purser_domain::Result<()> {
    let table = stream.split('/').nth(1).unwrap_or_default();
    for id in shards(stream).map_err(|error| unread(&error))? {
        let shard = Shard {
            table: table.to_owned(),
            id,
        };
        let checkpoint = usage.checkpoint(&shard).await?;
        let after = checkpoint.all_until().map(ToString::to_string);
        let mut next = Some(iterator(stream, &shard.id, after.as_deref()).map_err(|error| unread(&error))?);
        let mut empty = 0;
        while let Some(at) = next.filter(|_| empty < EMPTY_AT_END) {
            let answer = aws(&["dynamodbstreams", "get-records", "--shard-iterator", &at], None)
                .map_err(|error| unread(&error))?;
            let records = answer
                .get("Records")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            empty = if records.is_empty() { empty.saturating_add(1) } else { 0 };
            for mut record in records {
                if let Some(members) = record.as_object_mut() {
                    members.insert("eventSourceARN".to_owned(), json!(stream));
                }
                // The command prints this time as text, and a recount does not use it.
                if let Some(time) = record.pointer_mut("/dynamodb/ApproximateCreationDateTime") {
                    *time = json!(0);
                }
                if let Ok(change) = Change::parse(&record) {
                    uncounted.add(ledger, &checkpoint, &change);
                }
            }
            next = answer
                .get("NextShardIterator")
                .and_then(Value::as_str)
                .map(str::to_owned);
        }
    }
    Ok(())
}

/// All shards of a stream.
fn shards(stream: &str) -> Result<Vec<String>, Failed> {
    let mut shards: Vec<String> = Vec::new();
    loop {
        let mut arguments = vec!["dynamodbstreams", "describe-stream", "--stream-arn", stream];
        let last = shards.last().cloned();
        if let Some(last) = &last {
            arguments.extend(["--exclusive-start-shard-id", last]);
        }
        let described = aws(&arguments, None)?;
        let page = described.pointer("/StreamDescription/Shards").and_then(Value::as_array);
        let page = page
            .into_iter()
            .flatten()
            .filter_map(|shard| shard.get("ShardId")?.as_str());
        shards.extend(page.map(str::to_owned));
        if described.pointer("/StreamDescription/LastEvaluatedShardId").is_none() {
            return Ok(shards);
        }
    }
}

/// An iterator that begins after a record, or at the oldest record if that one is gone.
fn iterator(stream: &str, shard: &str, after: Option<&str>) -> Result<String, Failed> {
    let common = [
        "dynamodbstreams",
        "get-shard-iterator",
        "--stream-arn",
        stream,
        "--shard-id",
        shard,
    ];
    let from = |kind: &[&str]| {
        let answer = aws(&[common.as_slice(), &["--shard-iterator-type"], kind].concat(), None)?;
        let found = answer.get("ShardIterator").and_then(Value::as_str);
        Ok(found.ok_or("a shard has no iterator")?.to_owned())
    };
    match after {
        Some(after) => {
            from(&["AFTER_SEQUENCE_NUMBER", "--sequence-number", after]).or_else(|_: Failed| from(&["TRIM_HORIZON"]))
        }
        None => from(&["TRIM_HORIZON"]),
    }
}

fn unread(failed: &Failed) -> Error {
    Error::temporarily_unavailable("reading a stream", failed.to_string())
}
