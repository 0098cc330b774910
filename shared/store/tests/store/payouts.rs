//! Tests withdrawals: a withdrawal is reserved only if the record has not changed since the decision.

use crate::assert_sound;
use purser_domain::{
    Address, Agent, B256, Duration, Fingerprint, Network, NoncePrefix, Purpose, SettlementId, SettlementTerms,
    TransactionId, UserId, WithdrawalAmount, WithdrawalGrant, WithdrawalInputs, WithdrawalPurpose, WithdrawalRecord,
    decide_withdrawal,
};
use purser_store::{Backoff, Ledger, ReserveWithdrawalResult, UpdateResult};
use purser_testkit::{Emulator, sample};
use uuid::Uuid;

fn owner() -> UserId {
    UserId::derive("https://issuer.example", "someone")
}

async fn put_agent(ledger: &Ledger, version: u64, owner: &UserId) {
    let agent = Agent {
        owner: owner.to_string(),
        version,
        ..sample::agent(1, Vec::new())
    };
    if version == 1 {
        ledger.create_agent(&agent, &sample::audit()).await.unwrap();
    } else {
        let stored = ledger.put_agent(&agent, &sample::audit()).await;
        assert_eq!(stored.unwrap(), UpdateResult::Stored);
    }
}

/// Returns a grant of a withdrawal of one unit, based on this record.
fn decided(record: &WithdrawalRecord) -> WithdrawalGrant {
    let facts = WithdrawalInputs {
        agent: sample::agent_id(1),
        owner: &owner(),
        record,
        frozen_by_operators: None,
        open: None,
        balance: sample::units(9),
        asked: WithdrawalAmount::from_amount(sample::units(1)).unwrap(),
        now: sample::start().after(Duration::DAY),
    };
    decide_withdrawal(&facts).unwrap()
}

async fn reserve(ledger: &Ledger, grant: &WithdrawalGrant, number: u128) -> ReserveWithdrawalResult {
    let terms = SettlementTerms {
        id: SettlementId::from_uuid(Uuid::from_u128(number)),
        transaction: TransactionId::from_uuid(Uuid::from_u128(number)),
        agent: grant.agent_id(),
        wallet: sample::wallet(1),
        network: Network::BaseSepolia,
        amount: grant.amount(),
        pay_to: grant.recipient(),
        authorized_at: grant.decided_at(),
        valid_before: grant.decided_at().after(Duration::from_secs_u32(300)),
        idempotency_key: Fingerprint::for_text(&number.to_string()),
        nonce_prefix: NoncePrefix::from_nonce(B256::repeat_byte(1)),
        transfers: 0,
        purpose: Purpose::Payout(WithdrawalPurpose { by: owner() }),
    };
    let (fingerprint, audit, mut backoff) = (Fingerprint::for_text("request"), sample::audit(), Backoff::new());
    let reserved = ledger.reserve_withdrawal(grant, &terms, &fingerprint, &audit, &mut backoff);
    reserved.await.unwrap()
}

/// The withdrawal address is the same before and after the ownership transfer.
#[tokio::test]
async fn no_withdrawal_is_reserved_for_an_earlier_owner() {
    let emulator = Emulator::start().await;
    let (ledger, agent) = (emulator.ledger(), sample::agent_id(1));
    put_agent(&ledger, 1, &owner()).await;
    let named = WithdrawalRecord::default();
    let named = named.with_address(Address::repeat_byte(9), &owner(), sample::start(), Duration::DAY);
    let stored = ledger
        .put_withdrawal_record(agent, &named.unwrap(), &sample::audit())
        .await;
    assert_eq!(stored.unwrap(), UpdateResult::Stored);
    let grant = decided(&ledger.read_withdrawal_record(agent).await.unwrap());
    put_agent(&ledger, 2, &UserId::derive("https://issuer.example", "another")).await;
    assert_eq!(reserve(&ledger, &grant, 1).await, ReserveWithdrawalResult::Raced);
    put_agent(&ledger, 3, &owner()).await;
    assert_eq!(reserve(&ledger, &grant, 1).await, ReserveWithdrawalResult::Done);
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn only_one_pending_withdrawal_can_be_reserved() {
    let emulator = Emulator::start().await;
    let (ledger, agent) = (emulator.ledger(), sample::agent_id(1));
    put_agent(&ledger, 1, &owner()).await;
    let to = Address::repeat_byte(9);
    let named = WithdrawalRecord::default();
    let named = named
        .with_address(to, &owner(), sample::start(), Duration::DAY)
        .unwrap();
    let stored = ledger.put_withdrawal_record(agent, &named, &sample::audit()).await;
    assert_eq!(stored.unwrap(), UpdateResult::Stored);

    let grant = decided(&ledger.read_withdrawal_record(agent).await.unwrap());
    assert_eq!(reserve(&ledger, &grant, 1).await, ReserveWithdrawalResult::Done);
    // The same withdrawal is sent again, as after a lost response. Then another withdrawal is sent.
    assert_eq!(reserve(&ledger, &grant, 1).await, ReserveWithdrawalResult::Done);
    assert_eq!(reserve(&ledger, &grant, 2).await, ReserveWithdrawalResult::Raced);
    // The decision is based on the newest record, but on the wrong assumption that the first withdrawal has ended.
    let record = ledger.read_withdrawal_record(agent).await.unwrap();
    assert_eq!(
        reserve(&ledger, &decided(&record), 3).await,
        ReserveWithdrawalResult::Raced
    );

    let removed = record.without_address().unwrap();
    let stored = ledger.put_withdrawal_record(agent, &removed, &sample::audit()).await;
    assert_eq!(stored.unwrap(), UpdateResult::Stored);
    assert_eq!(
        reserve(&ledger, &decided(&record), 4).await,
        ReserveWithdrawalResult::Raced
    );
    assert_sound(&emulator).await;
}
