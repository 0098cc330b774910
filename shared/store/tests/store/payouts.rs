//! Tests withdrawals: a withdrawal is reserved only on the record on which it was decided.

use crate::assert_sound;
use purser_domain::{
    Address, Agent, B256, Duration, Fingerprint, Network, NoncePrefix, Payout, PayoutAmount, PayoutFacts, PayoutGrant,
    PayoutRecord, PersonId, Purpose, SettlementId, Terms, TransactionId, decide_payout,
};
use purser_store::{Backoff, EditResult, Ledger, PayoutReserved};
use purser_testkit::{Emulator, sample};
use uuid::Uuid;

fn owner() -> PersonId {
    PersonId::derive("https://issuer.example", "someone")
}

/// Stores this version of the agent, with this owner.
async fn put_agent(ledger: &Ledger, version: u64, owner: &PersonId) {
    let agent = Agent {
        owner: owner.to_string(),
        version,
        ..sample::agent(1, Vec::new())
    };
    if version == 1 {
        ledger.create_agent(&agent, &sample::audit()).await.unwrap();
    } else {
        let stored = ledger.put_agent(&agent, &sample::audit()).await;
        assert_eq!(stored.unwrap(), EditResult::Stored);
    }
}

/// A grant of a withdrawal of one unit, decided on this record.
fn decided(record: &PayoutRecord) -> PayoutGrant {
    let facts = PayoutFacts {
        agent: sample::agent_id(1),
        owner: &owner(),
        record,
        frozen_by_operators: None,
        open: None,
        balance: sample::units(9),
        asked: PayoutAmount::units(sample::units(1)).unwrap(),
        now: sample::start().after(Duration::DAY),
    };
    decide_payout(&facts).unwrap()
}

/// Reserves the withdrawal under its own idempotency key.
async fn reserve(ledger: &Ledger, grant: &PayoutGrant, number: u128) -> PayoutReserved {
    let terms = Terms {
        id: SettlementId::from_uuid(Uuid::from_u128(number)),
        transaction: TransactionId::from_uuid(Uuid::from_u128(number)),
        agent: grant.agent(),
        wallet: sample::wallet(1),
        network: Network::BaseSepolia,
        amount: grant.amount(),
        pay_to: grant.to(),
        authorized_at: grant.at(),
        valid_before: grant.at().after(Duration::from_secs_u32(300)),
        idempotency_key: Fingerprint::for_text(&number.to_string()),
        nonce_prefix: NoncePrefix::from_nonce(B256::repeat_byte(1)),
        transfers: 0,
        purpose: Purpose::Payout(Payout { by: owner() }),
    };
    let (fingerprint, audit, mut backoff) = (Fingerprint::for_text("request"), sample::audit(), Backoff::new());
    let reserved = ledger.reserve_payout(grant, &terms, &fingerprint, &audit, &mut backoff);
    reserved.await.unwrap()
}

/// A withdrawal that was decided before an ownership transfer is not reserved afterwards, although the address is the
/// same.
#[tokio::test]
async fn no_payout_is_reserved_for_an_earlier_owner() {
    let emulator = Emulator::start().await;
    let (ledger, agent) = (emulator.ledger(), sample::agent_id(1));
    put_agent(&ledger, 1, &owner()).await;
    let named = PayoutRecord::default();
    let named = named.with_address(Address::repeat_byte(9), &owner(), sample::start(), Duration::DAY);
    let stored = ledger.put_payout_record(agent, &named.unwrap(), &sample::audit()).await;
    assert_eq!(stored.unwrap(), EditResult::Stored);
    let grant = decided(&ledger.payout_record(agent).await.unwrap());
    put_agent(&ledger, 2, &PersonId::derive("https://issuer.example", "another")).await;
    assert_eq!(reserve(&ledger, &grant, 1).await, PayoutReserved::Raced);
    put_agent(&ledger, 3, &owner()).await;
    assert_eq!(reserve(&ledger, &grant, 1).await, PayoutReserved::Done);
    assert_sound(&emulator).await;
}

/// No withdrawal is reserved after the withdrawal address was removed.
#[tokio::test]
async fn only_one_pending_payout_can_be_reserved() {
    let emulator = Emulator::start().await;
    let (ledger, agent) = (emulator.ledger(), sample::agent_id(1));
    put_agent(&ledger, 1, &owner()).await;
    let to = Address::repeat_byte(9);
    let named = PayoutRecord::default();
    let named = named
        .with_address(to, &owner(), sample::start(), Duration::DAY)
        .unwrap();
    let stored = ledger.put_payout_record(agent, &named, &sample::audit()).await;
    assert_eq!(stored.unwrap(), EditResult::Stored);

    let grant = decided(&ledger.payout_record(agent).await.unwrap());
    assert_eq!(reserve(&ledger, &grant, 1).await, PayoutReserved::Done);
    // The same withdrawal again, as after a lost response, and then another withdrawal.
    assert_eq!(reserve(&ledger, &grant, 1).await, PayoutReserved::Done);
    assert_eq!(reserve(&ledger, &grant, 2).await, PayoutReserved::Raced);
    // Decided on the newest record, but on the false assumption that the first withdrawal has ended.
    let record = ledger.payout_record(agent).await.unwrap();
    assert_eq!(reserve(&ledger, &decided(&record), 3).await, PayoutReserved::Raced);

    let removed = record.without_address().unwrap();
    let stored = ledger.put_payout_record(agent, &removed, &sample::audit()).await;
    assert_eq!(stored.unwrap(), EditResult::Stored);
    assert_eq!(reserve(&ledger, &decided(&record), 4).await, PayoutReserved::Raced);
    assert_sound(&emulator).await;
}
