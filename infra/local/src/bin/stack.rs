//! `make run`: runs the whole service on this machine until Ctrl-C.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal"
)]

use purser_local::{
    FunctionsFile, MailService, Options, Ports, ProviderPorts, Stack, StackFile, Streaming, console, stack_folder,
};
use std::io::IsTerminal as _;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

/// The port of the gateway for agents.
const GATEWAY: u16 = 3000;
const PORTS: Ports = Ports {
    rpc: 8545,
    dynamodb: 8000,
    issuer: 3001,
    providers: ProviderPorts { v2: 4020, v1: 4021 },
};

/// The port of the page that lists the mail to users.
const INBOX: u16 = 8005;

#[tokio::main]
async fn main() -> ExitCode {
    let mut env = purser_api::Env::from_process();
    // A terminal gets short lines unless `LOG_FORMAT=json` or `LOG_LEVEL` is set. Anything else gets JSON lines.
    let is_for_person = std::io::stdout().is_terminal() && env.get("LOG_LEVEL").is_none();
    if is_for_person && env.get("LOG_FORMAT") != Some("json") {
        let colours = env.get("NO_COLOR").is_none();
        purser_api::start_logging_to(console(std::io::stdout, colours));
    } else {
        purser_api::start_logging(&env);
    }
    let throttle = env.parse_number("THROTTLE_PER_MINUTE", 1_200, 1..=1_000_000);
    let bridge = bridge(&mut env);
    let custody = env.parse_custody();
    let folder = stack_folder(&env);
    // SAM passes these values to functions in containers. The functions validate the values.
    let passed_on = [
        "ACCEPT_PROVIDER_OK",
        "FACILITATOR_URL",
        "PAYOUT_DELAY_SECONDS",
        "RECENT_SIGN_IN_SECONDS",
    ]
    .into_iter();
    let environment = passed_on.filter_map(|name| Some((name.to_owned(), env.get(name)?.to_owned())));
    let environment = environment.collect();
    // Scripts start a stack on free ports, and read the ports from `.local/stack.json`.
    let (gateway_port, ports, inbox) = match env.get("PORTS") {
        Some("free") => (0, Ports::default(), 0),
        _ => (GATEWAY, PORTS, INBOX),
    };
    let throttle_per_minute = match env.finish(throttle) {
        Ok(limit) => limit,
        Err(error) => return fail(&error),
    };
    let options = Options {
        gateway_port,
        ports,
        throttle_per_minute,
        custody,
        environment,
        bridge,
        streams: Streaming::On,
        mail: MailService::Inbox(inbox),
        ..Options::default()
    };
    let stack = match Stack::start(options, |step| println!("run: {step}")).await {
        Ok(stack) => stack,
        Err(error) => return fail(&error),
    };
    let written = FunctionsFile::write(&folder, &stack.environment);
    if let Err(error) = written.and_then(|()| StackFile::new(&stack).write(&folder)) {
        return fail(&error);
    }
    println!("{}", welcome(&stack));
    let (probe, reconcile) = (stack.probe.clone(), stack.reconcile.clone());
    tokio::spawn(every_minute("probe.failed", async move || {
        probe.run_probes(MINUTE).await.map(|_| ())
    }));
    tokio::spawn(every_minute("reconcile.failed", async move || {
        reconcile.reconcile_all(MINUTE).await.map(|_| ())
    }));
    let wallets = stack.reconcile.clone();
    tokio::spawn(every_minute("wallets.failed", async move || {
        wallets.check_wallet_balances(MINUTE).await
    }));
    let stating = stack.events.clone();
    tokio::spawn(every_minute("statements.failed", async move || {
        stating.sign_pending_statements(MINUTE).await
    }));
    let testing = stack.events.clone();
    tokio::spawn(every_minute("backtests.failed", async move || {
        testing.run_backtests(MINUTE).await
    }));
    let events = stack.events.clone();
    tokio::spawn(every_minute("events.failed", async move || {
        events.publish_due_events(MINUTE).await
    }));
    tokio::spawn(stack.publish_continuously());
    // On SIGTERM, the child processes end because their pipe to this process closes.
    let _ = tokio::signal::ctrl_c().await;
    StackFile::remove(&folder);
    FunctionsFile::remove(&folder);
    println!("run: stopped");
    ExitCode::SUCCESS
}

/// Reads `BIND`, the address of this machine for containers. Loopback is unreachable for containers, and the
/// unspecified address would open the stack to the network.
fn bridge(env: &mut purser_api::Env) -> Option<IpAddr> {
    let address = env.get("BIND")?.parse().ok();
    let address = address.filter(|address: &IpAddr| !address.is_loopback() && !address.is_unspecified());
    if address.is_none() {
        env.add_error("BIND", "must be an address of a Docker bridge, such as 172.17.0.1");
    }
    address
}

const MINUTE: Duration = Duration::from_mins(1);

/// Runs a job every minute, as a schedule does in the cloud.
async fn every_minute(failure: &'static str, job: impl AsyncFn() -> purser_domain::Result<()>) {
    loop {
        if let Err(error) = job().await {
            tracing::warn!(cause = %error, "{failure}");
        }
        tokio::time::sleep(MINUTE).await;
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("run: {error}");
    ExitCode::FAILURE
}

/// Returns the URLs, and commands for a first payment.
fn welcome(stack: &Stack) -> String {
    let Stack {
        base_url,
        rpc_url,
        dynamodb_url,
        providers,
        agent,
        ..
    } = stack;
    let provider = &providers.provider_url;
    let key = &agent.key;
    format!(
        r#"
Purser answers at        {base_url}      (the API: {base_url}/openapi.json)
the dashboard            {base_url}/dashboard      (as {name})
paid provider (x402 v2)  {provider}
paid provider (x402 v1)  {provider_v1}
chain, DynamoDB          {rpc_url}  {dynamodb_url}
mail to people           {inbox}
all of this              .local/stack.json

A first payment. Paste it into another terminal (`make demo` shows each step):

KEY='{key}'
OFFER=$(curl -s -D - -o /dev/null {provider}/weather | tr -d '\r' | sed -n 's/^[Pp][Aa][Yy][Mm][Ee][Nn][Tt]-[Rr][Ee][Qq][Uu][Ii][Rr][Ee][Dd]: //p' | base64 -d)
ANSWER=$(curl -s {base_url}/x402/authorize -H "Authorization: Bearer $KEY" -d '{{"payment_requirement":'"$OFFER"',"max_payment_units":20000,"original_request":{{"method":"GET","url":"{provider}/weather"}},"idempotency_key":"first-'$RANDOM$RANDOM'"}}')
PAYMENT=$(echo "$ANSWER" | sed -n 's/.*"header_value":"\([^"]*\)".*/\1/p')
SETTLEMENT=$(echo "$ANSWER" | sed -n 's/.*"settlement_id":"\([^"]*\)".*/\1/p')
PROOF=$(curl -s -D - {provider}/weather -H "PAYMENT-SIGNATURE: $PAYMENT" -o /dev/stderr | tr -d '\r' | sed -n 's/^[Pp][Aa][Yy][Mm][Ee][Nn][Tt]-[Rr][Ee][Ss][Pp][Oo][Nn][Ss][Ee]: //p'); echo
curl -s {base_url}/x402/settlements/$SETTLEMENT/complete -H "Authorization: Bearer $KEY" -d '{{"payment_response_header":"'$PROOF'"}}'; echo

Ctrl-C stops everything.
"#,
        inbox = stack
            .mail
            .inbox_url
            .as_deref()
            .unwrap_or("none: infra/setup.sh mail installs it"),
        provider_v1 = providers.provider_v1_url,
        name = stack.owner.name,
    )
}
