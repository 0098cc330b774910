//! `make demo`: makes one payment against the running stack, and prints each step.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal"
)]
#![expect(clippy::indexing_slicing, reason = "a JSON value answers null for what it has not")]

use purser_local::{StackFile, stack_folder};
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use std::process::ExitCode;

type Failed = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failed> {
    let env = purser_api::Env::from_process();
    let stack = StackFile::read(&stack_folder(&env)).map_err(|error| format!("{error}; is `make run` running?"))?;
    // `BASE_URL` selects another gateway with the same tables and chain, such as `sam local`.
    let base = env.get("BASE_URL").unwrap_or(&stack.base_url);
    let provider = &stack.provider_url;
    let http = Client::new();
    let agent = |request: RequestBuilder| request.bearer_auth(&stack.agent.key);

    step(1, "find something to buy: GET /services?category=data");
    let catalog = answer(http.get(format!("{base}/services?category=data"))).await?;
    for service in catalog["services"].as_array().into_iter().flatten() {
        println!(
            "     {:<18} {:<18} from {} units",
            text(service, "slug"),
            text(service, "trust_status"),
            service["min_price_units"]
        );
    }
    let service = answer(http.get(format!("{base}/services/lab-weather"))).await?;
    let operation = &service["operations"][0];
    println!(
        "     {} costs {} units, paid to {}",
        text(operation, "operation_id"),
        operation["estimated_price_units"],
        operation["payment"]["pay_to"]
    );

    step(2, "call the provider without paying: it asks for a payment (402)");
    let url = format!("{provider}/weather");
    let unpaid = http.get(&url).send().await?;
    let header = unpaid
        .headers()
        .get("payment-required")
        .ok_or("the provider did not ask for a payment")?;
    let requirement: Value = serde_json::from_slice(&decode(header.to_str()?)?)?;
    println!("     {}", requirement["accepts"][0]);

    let request = json!({
        "payment_requirement": requirement,
        "max_payment_units": 20_000,
        "original_request": {"method": "GET", "url": url},
    });
    step(3, "ask what would happen: POST /x402/check");
    let check = answer(agent(
        http.post(format!("{base}/x402/check"))
            .json(&with(&request, "replay_key")?),
    ))
    .await?;
    println!(
        "     would_authorize: {}, reason: {}",
        check["would_authorize"], check["reason"]
    );

    step(4, "ask for the payment: POST /x402/authorize");
    let authorized = answer(agent(
        http.post(format!("{base}/x402/authorize"))
            .json(&with(&request, "idempotency_key")?),
    ))
    .await?;
    let payment = &authorized["payment"];
    println!(
        "     settlement {}, {} units, usable until {}",
        authorized["settlement_id"], authorized["amount_units"], authorized["expires_at"]
    );

    step(5, "call the provider again, with the payment");
    let paid = http
        .get(&url)
        .header(text(payment, "header_name"), text(payment, "header_value"))
        .send()
        .await?;
    let proof = paid
        .headers()
        .get("payment-response")
        .ok_or("the provider sent no payment response")?
        .to_str()?
        .to_owned();
    println!("     {} {}", paid.status(), paid.text().await?);

    step(6, "prove it: POST /x402/settlements/{id}/complete");
    let id = text(&authorized, "settlement_id");
    let complete = http
        .post(format!("{base}/x402/settlements/{id}/complete"))
        .json(&json!({"payment_response_header": proof}));
    let completed = answer(agent(complete)).await?;
    println!(
        "     {} via {}, transaction {}",
        completed["receipt_status"], completed["confirmed_via"], completed["tx_hash"]
    );

    step(7, "the receipt: GET /x402/settlements/{id}");
    let receipt = answer(agent(http.get(format!("{base}/x402/settlements/{id}")))).await?;
    println!("{}", serde_json::to_string_pretty(&receipt)?);
    if receipt["receipt_status"] == "confirmed" {
        Ok(())
    } else {
        Err("the receipt is not confirmed".into())
    }
}

fn step(number: u8, title: &str) {
    println!("\n[{number}/7] {title}");
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Returns the request with a new UUID in the field `name`.
fn with(request: &Value, name: &str) -> Result<Value, Failed> {
    let mut request = request.clone();
    let random: [u8; 16] = purser_api::random_bytes()?;
    request[name] = uuid::Builder::from_random_bytes(random).into_uuid().to_string().into();
    Ok(request)
}

fn decode(header: &str) -> Result<Vec<u8>, Failed> {
    use base64::Engine as _;
    Ok(base64::engine::general_purpose::STANDARD.decode(header)?)
}

/// Returns the JSON of a successful response, or an error for any other response.
async fn answer(request: RequestBuilder) -> Result<Value, Failed> {
    let response = request.send().await?;
    let status = response.status();
    let body: Value = response.json().await?;
    if status.is_success() {
        Ok(body)
    } else {
        Err(format!("{status}: {body}").into())
    }
}
