//! Recomputes days of the decision history and the totals, after stream records were lost or unreadable:
//!
//! ```text
//! rebuild --stack <name> --from <day> --to <day> days in UTC, for example 2026-11-21, both inclusive
//! rebuild --stack <name> --from <day> --to <day> --names also replaces former names and labels of agents
//! rebuild --stack <name> --from <day> --to <day> --statements only makes decisions without a statement pending again
//! ```
//!
//! The program can run while payments are made, and can be repeated. Changes of the last 24 hours are not recomputed,
//! because the streams will deliver them.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal"
)]

use purser_admin::{Failed, aws, environment, log_bucket, output, parameter};
use purser_api::{Boot, Clock};
use purser_domain::{Agent, AgentId, Day, Duration, UserId};
use purser_log::{MissingStatements, ObjectStore};
use purser_store::{Ledger, RebuildResult, UsageTable, WalletPart};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (arguments, flag) = match arguments.split_last() {
        Some((last, rest)) if last == "--names" || last == "--statements" => (rest, last.as_str()),
        _ => (arguments.as_slice(), ""),
    };
    let Some((stack, days)) = parse(arguments) else {
        eprintln!("rebuild: usage: rebuild --stack <name> --from <day> --to <day> [--names | --statements]");
        return ExitCode::from(2);
    };
    let result = match flag {
        "--statements" => state(stack, days).await,
        _ => run(stack, days, flag == "--names").await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rebuild: {error}");
            eprintln!("rebuild: run it again");
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

async fn run(stack: &str, (first, last): (Day, Day), names: bool) -> Result<(), Failed> {
    let outputs = aws(&["cloudformation", "describe-stacks", "--stack-name", stack], None)?;
    let [ledger, decisions, usage] =
        ["LedgerTableName", "DecisionsTableName", "UsageTableName"].map(|name| output(&outputs, name));
    let db = purser_store::dynamodb_client(&Boot::new(environment(&outputs)?, Clock::system()).aws);
    let ledger = Ledger::new(db.clone(), ledger?, decisions?);
    let days = parameter(&outputs, "JournalDays").and_then(|days| days.parse::<u32>().ok());
    let kept = days.filter(|days| *days > 0);
    let kept = kept.map(|days| Duration::from_secs_u32(days.saturating_mul(86_400)));
    let usage = UsageTable::new(db, usage?).with_history_retention(kept);
    let (mut sum, mut renamed) = (RebuildResult::default(), 0_u64);
    for (owner, agents) in owners(&ledger).await? {
        let mut day = first;
        while day <= last {
            let rebuilt = usage
                .rebuild_day(&ledger, &owner, &agents, day, Clock::system().now())
                .await?;
            sum = RebuildResult {
                entries: sum.entries.saturating_add(rebuilt.entries),
                young: sum.young.saturating_add(rebuilt.young),
                unreadable: sum.unreadable.saturating_add(rebuilt.unreadable),
            };
            if names {
                let of_day = usage
                    .rename_agents_in_day(&owner, &agents, day, Clock::system().now())
                    .await?;
                renamed = renamed.saturating_add(of_day);
            }
            day = day.days_later(1);
        }
    }
    println!(
        "rebuild: {first} to {last}: {} entries were missing and are written",
        sum.entries
    );
    if names {
        println!("rebuild: {renamed} entries had former names or labels");
    }
    if sum.young > 0 {
        println!("rebuild: {} changes of the last day are left to the streams", sum.young);
    }
    if sum.unreadable > 0 {
        println!("rebuild: {} rows can't be read and are in no list", sum.unreadable);
    }
    Ok(())
}

/// Makes each decision of the days from `first` to `last` pending if the log has no statement about it.
async fn state(stack: &str, (first, last): (Day, Day)) -> Result<(), Failed> {
    let outputs = aws(&["cloudformation", "describe-stacks", "--stack-name", stack], None)?;
    let [ledger, decisions] = ["LedgerTableName", "DecisionsTableName"].map(|name| output(&outputs, name));
    let aws = Boot::new(environment(&outputs)?, Clock::system()).aws;
    let ledger = Ledger::new(purser_store::dynamodb_client(&aws), ledger?, decisions?);
    let objects = ObjectStore::open(&aws, &log_bucket(stack)?);
    let (mut missing, mut unreadable) = (MissingStatements::default(), 0_u64);
    for agent in agents(&ledger).await? {
        let mut day = first;
        while day <= last {
            let (decisions, of_day) = ledger.read_decisions_of_day(agent, day).await?;
            let decisions = decisions.into_iter().map(|(decision, row)| (decision, row.to_string()));
            let decisions: Vec<_> = decisions.collect();
            missing
                .requeue_changes_without_statements(&objects, &decisions, Clock::system().now())
                .await?;
            unreadable = unreadable.saturating_add(of_day);
            day = day.days_later(1);
        }
    }
    println!(
        "rebuild: {first} to {last}: {} statements are pending again",
        missing.pending
    );
    for (reason, count) in &missing.reasons {
        println!("rebuild: {count} have no statement: {reason}");
    }
    if unreadable > 0 {
        println!("rebuild: {unreadable} rows can't be read");
    }
    Ok(())
}

async fn agents(ledger: &Ledger) -> purser_domain::Result<BTreeSet<AgentId>> {
    let wallets = ledger.read_wallets(WalletPart { index: 0, of: 1 }).await?.into_iter();
    let wallets: Vec<_> = wallets.collect::<purser_domain::Result<_>>()?;
    Ok(wallets.into_iter().map(|(_, agent)| agent).collect())
}

async fn owners(ledger: &Ledger) -> purser_domain::Result<BTreeMap<UserId, Vec<Agent>>> {
    let ids = agents(ledger).await?;
    let mut owners: BTreeMap<UserId, Vec<Agent>> = BTreeMap::new();
    for agent in ledger.read_agents(ids).await? {
        let former = agent.former_owners.iter().map(|former| &former.owner);
        let all: BTreeSet<UserId> = former
            .chain([&agent.owner])
            .filter_map(|owner| UserId::parse(owner))
            .collect();
        for owner in all {
            owners.entry(owner).or_default().push(agent.clone());
        }
    }
    Ok(owners)
}
