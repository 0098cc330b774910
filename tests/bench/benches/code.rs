//! Measures the steps of one call, each against a minimal reference such as bare `serde_json`, SHA-256 or `k256`.

use alloy::primitives::hex;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use k256::ecdsa::SigningKey;
use purser_api::{AuthorizeRequest, CompleteRequest, ProviderProof};
use purser_bench::{Case, NETWORK, Table, World, authorize_body, offer_v1, offer_v2};
use purser_chain::{NonceKey, WalletSeed};
use purser_domain::{
    ALLOWED_REASON, AUTHORIZATION_USED, Amount, B256, Backtest, BacktestDecision, BlockId, Catalog, Decision,
    DecisionResult, Duration, EvaluationInputs, ExpectedTransfer, Fingerprint, Log, Offer, PaymentHeader,
    ProposedLimits, RecordedDecision, ReplayInputs, SettlementId, TRANSFER, Timestamp, TransactionId, TransactionLogs,
    TransferAuthorization, TxHash, evaluate, find_authorized_transfer, parse_json, replay_decision,
};
use serde_json::{Value, json, value::to_raw_value};
use sha2::{Digest as _, Sha256};
use std::hint::black_box;
use uuid::Uuid;

fn main() -> std::io::Result<()> {
    let mut table = Table::new("code")?;
    reading(&mut table);
    finding(&mut table);
    deciding(&mut table);
    backtesting(&mut table);
    hashing(&mut table);
    signing(&mut table);
    proof(&mut table);
    table.write()
}

fn bare_parse(bytes: &[u8]) {
    black_box(serde_json::from_slice::<Value>(black_box(bytes)).unwrap());
}

fn reading(table: &mut Table) {
    let world = World::with_services(1);
    let v2 = authorize_body(&world);
    let payee = world.agent.wallet.address;
    let mut v1 = v2.clone();
    *v1.get_mut("payment_requirement").unwrap() = offer_v1(100_000, payee);
    for (name, body) in [("v1", v1), ("v2", v2)] {
        let bytes = body.to_string().into_bytes();
        table.compare(
            "read a body of authorize",
            name,
            || AuthorizeRequest::parse(&parse_json(black_box(&bytes)).unwrap(), NETWORK).unwrap(),
            ("serde_json to a value", &mut || bare_parse(&bytes)),
        );
        table.compare(
            "read JSON strictly",
            name,
            || parse_json(black_box(&bytes)).unwrap(),
            ("serde_json to a value", &mut || bare_parse(&bytes)),
        );
    }
    for (name, offer) in [("v1", offer_v1(100_000, payee)), ("v2", offer_v2(100_000, payee))] {
        let bytes = offer.to_string().into_bytes();
        table.compare(
            "choose from three ways to pay",
            name,
            || Offer::choose_cheapest(black_box(&offer), NETWORK).unwrap(),
            ("serde_json to a value", &mut || bare_parse(&bytes)),
        );
    }
}

/// The maximum ratio of two times that should be equal. The margin allows for other load on the machine.
const SAME: f64 = 1.25;

/// The maximum ratio of a backtest to a replay. A backtest evaluates each decision three times.
const BACKTESTED: f64 = 4.0;

fn deciding(table: &mut Table) {
    let alone = Case::allow(1);
    let facts = alone.facts();
    for services in [100, 10_000] {
        let case = Case::allow(services);
        let many = case.facts();
        table.hold(
            SAME,
            "decide",
            &format!("{services} services"),
            || evaluate(black_box(&many)),
            ("of an agent with one", &mut || {
                drop(black_box(evaluate(black_box(&facts))))
            }),
        );
    }
}

/// Compares a backtest of 10,000 decisions with a separate evaluation of each decision.
fn backtesting(table: &mut Table) {
    let mut case = Case::allow(1);
    case.world.day.oldest.clear();
    let (facts, service) = (case.facts(), case.purchase().service);
    let recorded: Vec<RecordedDecision> = (0..10_000_u32)
        .map(|index| {
            let at = facts.at.after(Duration::from_secs_u32(index * 26));
            let Decision::Allow(grant) = evaluate(&EvaluationInputs { at, ..facts }) else {
                panic!("the payment is allowed")
            };
            RecordedDecision {
                result: DecisionResult::Allow,
                reason: ALLOWED_REASON.to_owned(),
                checks: grant.checks().to_vec(),
                operation: Some(grant.operation_slug().clone()),
                amount: grant.amount(),
                pay_to: case.intent.offer.pay_to(),
                key: purser_domain::KeyId(1),
                network: NETWORK,
                call: grant.call_description(),
                at,
                policy_version: Some(grant.policy_version()),
                inputs: Some(grant.input_versions()),
            }
        })
        .collect();
    let mut policy = case.world.enabled.clone().unwrap();
    // The recorded decisions have a daily usage of 1,000,000 micro-units.
    policy.policy.max_per_day = Amount::from_units(1_050_000).unwrap();
    let candidate = ProposedLimits {
        rules: Some(case.world.agent.rules.clone()),
        policies: [(service.id, policy)].into(),
        ..ProposedLimits::default()
    };
    let inputs = ReplayInputs {
        agent: &case.world.agent,
        service,
        enabled: case.world.enabled.as_ref(),
    };
    let run = || {
        let mut backtest = Backtest::new(candidate.clone());
        for decision in &recorded {
            backtest.test_decision(&BacktestDecision {
                decision,
                inputs,
                transaction: TransactionId::from_uuid(Uuid::nil()),
                approval: None,
                released_at: None,
                paid_at: None,
                has_call: true,
            });
        }
        backtest.result_so_far()
    };
    let flipped = run().if_declined.count_changed();
    assert!((1..10_000).contains(&flipped), "{flipped}");
    table.hold(
        BACKTESTED,
        "backtest",
        "10,000 decisions",
        run,
        ("replaying them alone", &mut || {
            for decision in &recorded {
                drop(black_box(replay_decision(black_box(decision), &inputs)));
            }
        }),
    );
}

fn finding(table: &mut Table) {
    let alone = Case::allow(1);
    let find = |case: &Case| {
        black_box(black_box(case).purchase());
    };
    for services in [100, 10_000] {
        let case = Case::allow(services);
        table.compare(
            "find in a catalog",
            &format!("{services} services"),
            || find(&case),
            ("in a catalog of one", &mut || find(&alone)),
        );
        let entries = case.world.catalog.services();
        table.compare(
            "prepare a catalog",
            &format!("{services} services"),
            || Catalog::new(black_box(entries).to_vec()),
            ("cloning it", &mut || drop(black_box(entries).to_vec())),
        );
    }
}

fn hashing(table: &mut Table) {
    let body = authorize_body(&World::with_services(1));
    let bytes = body.to_string().into_bytes();
    table.compare(
        "fingerprint",
        "a body of authorize",
        || Fingerprint::for_request(black_box(&body), &["idempotency_key", "approval_id"]),
        ("sha-256 of the same bytes", &mut || {
            black_box(Sha256::digest(black_box(&bytes)));
        }),
    );
}

fn signing(table: &mut Table) {
    let seed = WalletSeed::from_hex(&"5e".repeat(64)).unwrap();
    let nonces = NonceKey::from_text(&"n0nce-key".repeat(5)).unwrap();
    let wallet = seed.derive_wallet(7).unwrap();
    let requirement = offer_v2(100_000, "0x1111111111111111111111111111111111111111".parse().unwrap());
    let offer = Offer::choose_cheapest(&requirement, NETWORK).unwrap();
    let requirement = &*to_raw_value(&requirement).unwrap();
    let settlement = SettlementId::from_uuid(Uuid::from_u128(0x018f_2f6e_0c00_7000_8000_0000_0000_0001));
    let authorization = TransferAuthorization {
        from: wallet.address(),
        to: offer.pay_to(),
        value: offer.amount(),
        valid_before: Timestamp::from_secs(1_795_223_400).unwrap(),
        nonce: nonces.derive_nonce(settlement),
    };
    let key = SigningKey::from_slice(&hex::decode("5e".repeat(32)).unwrap()).unwrap();
    let scalar = key.to_bytes();
    let digest = B256::repeat_byte(7);
    let mut bare = || {
        black_box(key.sign_prehash_recoverable(black_box(digest.as_slice())).unwrap());
    };
    let mut index = 7;
    table.compare(
        "derive",
        "a wallet",
        || {
            index = (index + 1) % (1 << 31);
            seed.derive_wallet(black_box(index)).unwrap()
        },
        ("bare k256, one public key", &mut || {
            drop(black_box(SigningKey::from_bytes(black_box(&scalar)).unwrap()))
        }),
    );
    table.compare(
        "derive",
        "a nonce",
        || nonces.derive_nonce(black_box(settlement)),
        ("sha-256 of a block", &mut || {
            black_box(Sha256::digest(black_box([7; 55])));
        }),
    );
    table.compare(
        "sign",
        "a transfer",
        || wallet.sign(NETWORK, black_box(&authorization)).unwrap(),
        ("bare k256, of a digest", &mut bare),
    );
    let signature = wallet.sign(NETWORK, &authorization).unwrap();
    let payload = PaymentHeader::new(&offer, requirement, NETWORK, &authorization, signature).payload;
    let payload: Value = serde_json::from_str(payload.get()).unwrap();
    table.compare(
        "sign",
        "the header around a signature",
        || PaymentHeader::new(black_box(&offer), requirement, NETWORK, &authorization, signature),
        ("writing the same JSON in base64", &mut || {
            black_box(in_base64(black_box(&payload)));
        }),
    );
    let payment = || {
        let wallet = seed.derive_wallet(black_box(7)).unwrap();
        let authorization = TransferAuthorization {
            nonce: nonces.derive_nonce(settlement),
            ..authorization
        };
        let signature = wallet.sign(NETWORK, &authorization).unwrap();
        PaymentHeader::new(&offer, requirement, NETWORK, &authorization, signature)
    };
    table.compare(
        "sign",
        "a payment, from seed to header",
        payment,
        ("bare k256, one signature", &mut bare),
    );
}

fn proof(table: &mut Table) {
    let hash = format!("0x{}", "7014".repeat(16));
    let response = json!({"success": true, "transaction": hash, "network": NETWORK.name(), "payer": "0x7099"});
    let bodies = [
        (
            "as an object",
            json!({"payment_response_header": {"payment-response": response}}),
        ),
        ("in base64", json!({"payment_response_header": in_base64(&response)})),
    ];
    for (name, body) in bodies {
        let bytes = body.to_string().into_bytes();
        table.compare(
            "read a payment response",
            name,
            || CompleteRequest::parse(&parse_json(black_box(&bytes)).unwrap(), ProviderProof::Required).unwrap(),
            ("serde_json to a value", &mut || bare_parse(&bytes)),
        );
    }

    let address = |byte: u8| purser_domain::Address::repeat_byte(byte);
    let expected = ExpectedTransfer {
        token: NETWORK.token().address,
        from: address(2),
        to: address(3),
        amount: Amount::from_units(100_000).unwrap(),
        nonce: B256::repeat_byte(4),
    };
    let log = |index: u64, topics: [B256; 3], units: Option<u64>| Log {
        address: expected.token,
        topics: topics.to_vec(),
        data: units.map_or_else(Vec::new, |units| B256::left_padding_from(&units.to_be_bytes()).to_vec()),
        index,
        removed: false,
    };
    let (from, to, other) = (
        expected.from.into_word(),
        expected.to.into_word(),
        address(9).into_word(),
    );
    let mut logs: Vec<Log> = (0..6).map(|index| log(index, [TRANSFER, other, to], Some(5))).collect();
    logs.push(log(6, [AUTHORIZATION_USED, from, expected.nonce], None));
    logs.push(log(7, [TRANSFER, from, to], Some(100_000)));
    let transaction = TransactionLogs {
        tx_hash: TxHash::parse(&hash).unwrap(),
        block: BlockId {
            number: 9,
            hash: B256::repeat_byte(5),
        },
        logs,
    };
    table.compare(
        "match a transaction",
        "of eight logs",
        || find_authorized_transfer(black_box(&expected), black_box(&transaction)).unwrap(),
        ("cloning it", &mut || drop(black_box(&transaction).clone())),
    );
}

fn in_base64(value: &Value) -> String {
    STANDARD.encode(value.to_string())
}
