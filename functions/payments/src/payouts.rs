//! Withdrawals: an agent's owner sets an address and withdraws the agent's money to it.
//!
//! Invariants: a new address becomes usable only after a delay. A withdrawal goes to the stored address, never to an
//! address in the request. An agent has at most one open withdrawal. A repeated request submits the same transfer with
//! the same nonce, unless the stored address was changed or removed.
//!
//! The facilitator's response does not end a withdrawal. Reconciliation confirms the transfer from the chain, or
//! releases the withdrawal.

use crate::attest::custody_error;
use crate::{AppState, Payments};
use axum::Json;
use purser_api::{Body, DirectUser, Id, Price, Reply, ReservedWithdrawal, Text};
use purser_chain::Facilitator;
use purser_domain::{
    Act, Acting, Address, Agent, AgentId, AuditChanges, AuditKind, AuditOutcome, Duration, Error, ErrorKind,
    Fingerprint, NoncePrefix, PaymentTerms, Purpose, Result, Settlement, SettlementId, SettlementState,
    SettlementTerms, Submission, Timestamp, TransactionId, TransferAuthorization, UserId, ValidationError,
    WithdrawalAmount, WithdrawalGrant, WithdrawalInputs, WithdrawalPurpose, WithdrawalRejection,
    check_withdrawal_address, decide_withdrawal, settle_request_body, usable_withdrawal_address,
};
use purser_store::{AuditEntry, Backoff, ReserveWithdrawalResult, StoredWithdrawalInputs, UpdateResult};

/// How long the signed authorization of a withdrawal is valid. The facilitator can submit it and retry once.
const VALIDITY: Duration = Duration::from_secs_u32(300);

purser_api::body! {
    /// The address that replaces the agent's withdrawal address.
    pub(crate) struct NewPayoutAddress {
        address: Address,
    }
}

purser_api::body! {
    /// The amount to withdraw to the agent's withdrawal address.
    pub(crate) struct NewPayout {
        /// The amount in micro-USDC. If absent, the wallet's whole balance.
        amount_units: Option<Price>,
        /// The owner's idempotency key.
        idempotency_key: Text<255>,
    }
}

/// The user who sent a request to the dashboard. Each operation checks that the user owns the agent.
struct Requester {
    agent: AgentId,
    owner: UserId,
    acting: Acting,
}

impl Requester {
    fn new(agent: AgentId, user: DirectUser) -> Self {
        let acting = user.acting();
        let owner = user.id;
        Self { agent, owner, acting }
    }
}

struct WithdrawalOrder {
    by: Requester,
    amount: WithdrawalAmount,
    /// The hash of the request's idempotency key.
    key: Fingerprint,
}

/// Handles a direct request to set the withdrawal address.
pub(crate) async fn set_withdrawal_address(
    payments: AppState,
    Id(agent): Id<AgentId>,
    user: DirectUser,
    body: Body<NewPayoutAddress>,
) -> Reply<Json<()>> {
    let NewPayoutAddress { address } = body.parse()?;
    payments
        .set_withdrawal_address(&Requester::new(agent, user), address)
        .await?;
    Ok(Json(()))
}

/// Handles a direct request to remove the withdrawal address.
pub(crate) async fn remove_withdrawal_address(
    payments: AppState,
    Id(agent): Id<AgentId>,
    user: DirectUser,
) -> Reply<Json<()>> {
    payments.remove_withdrawal_address(&Requester::new(agent, user)).await?;
    Ok(Json(()))
}

/// Handles a direct request to withdraw money to the withdrawal address.
pub(crate) async fn withdraw_to_owner(
    payments: AppState,
    Id(agent): Id<AgentId>,
    user: DirectUser,
    body: Body<NewPayout>,
) -> Reply<Json<ReservedWithdrawal>> {
    let NewPayout {
        amount_units,
        idempotency_key,
    } = body.parse()?;
    let order = WithdrawalOrder {
        by: Requester::new(agent, user),
        amount: amount_units.map_or(WithdrawalAmount::Balance, |Price(amount)| {
            WithdrawalAmount::Units(amount)
        }),
        key: Fingerprint::for_text(&idempotency_key.0),
    };
    Ok(Json(payments.withdraw_to_owner(&order).await?))
}

impl Payments {
    /// Sets the withdrawal address, which becomes usable after a delay. The same address does not restart the delay.
    async fn set_withdrawal_address(&self, requester: &Requester, address: Address) -> Result<()> {
        self.require_facilitator()?;
        let owner = &requester.owner;
        let agent = require_owner(self.ledger.read_agent_by_id(requester.agent).await?, owner)?;
        let action = Act::new(AuditKind::PayoutAddressNamed).on_agent(agent.id);
        check_withdrawal_address(address, agent.wallet.address, self.network)
            .map_err(|error| Error::invalid(vec![ValidationError::at_path("/address", error.to_string())]))?;
        let mut backoff = Backoff::new();
        loop {
            let record = self.ledger.read_withdrawal_record(agent.id).await?;
            let now = self.clock.now();
            let Some(next) = record.with_address(address, owner, now, self.payout_delay) else {
                return Ok(());
            };
            let [before, after] = [&record, &next].map(|record| Some(record.audit_log_fields()));
            let entry = self.audit_entry(requester, &action, AuditChanges::between(before, after))?;
            if self.ledger.put_withdrawal_record(agent.id, &next, &entry).await? == UpdateResult::Stored {
                let good_from = next.address.map(|named| named.good_from);
                tracing::warn!(
                    agent.id = %agent.id,
                    person = %owner,
                    address = %address,
                    before = record.address.map(|before| tracing::field::display(before.address)),
                    good_from = good_from.map(tracing::field::display),
                    "payout.address_named"
                );
                return Ok(());
            }
            backoff.wait_for_retry().await?;
        }
    }

    /// Removes the withdrawal address immediately. A signed withdrawal stays valid until `valid_before`.
    async fn remove_withdrawal_address(&self, requester: &Requester) -> Result<()> {
        let agent = require_owner(self.ledger.read_agent_by_id(requester.agent).await?, &requester.owner)?;
        let action = Act::new(AuditKind::PayoutAddressRemoved).on_agent(agent.id);
        let mut backoff = Backoff::new();
        loop {
            let record = self.ledger.read_withdrawal_record(agent.id).await?;
            let Some(next) = record.without_address() else {
                return Ok(());
            };
            let [before, after] = [&record, &next].map(|record| Some(record.audit_log_fields()));
            let entry = self.audit_entry(requester, &action, AuditChanges::between(before, after))?;
            if self.ledger.put_withdrawal_record(agent.id, &next, &entry).await? == UpdateResult::Stored {
                tracing::info!(agent.id = %agent.id, person = %requester.owner, "payout.address_removed");
                return Ok(());
            }
            backoff.wait_for_retry().await?;
        }
    }

    /// Reserves, signs and submits a withdrawal, or submits the withdrawal that this key already reserved.
    async fn withdraw_to_owner(&self, order: &WithdrawalOrder) -> Result<ReservedWithdrawal> {
        let facilitator = self.require_facilitator()?;
        let fingerprint = withdrawal_fingerprint(order.amount);
        let mut backoff = Backoff::new();
        loop {
            let inputs = self.ledger.read_withdrawal_inputs(order.by.agent, &order.key).await?;
            let agent = require_owner(inputs.agent.clone(), &order.by.owner)?;
            if let Some(used) = inputs.key {
                let settlement = used.settlement;
                if used.fingerprint != fingerprint {
                    let settlement = Some(settlement);
                    return Err(ErrorKind::IdempotencyKeyReused { settlement }.into());
                }
                return self
                    .resubmit_withdrawal(facilitator, &agent, &order.by.owner, &inputs, settlement)
                    .await;
            }
            let grant = self.decide_withdrawal(&agent, &inputs, order).await?;
            let terms = self.withdrawal_terms(&agent, &grant, order)?;
            let action = Act::new(AuditKind::PaidOut).on_agent(agent.id).with_object(&terms.id);
            let entry = self.audit_entry(
                &order.by,
                &action,
                AuditChanges::between(None, Some(grant.audit_log_fields())),
            )?;
            match self
                .ledger
                .reserve_withdrawal(&grant, &terms, &fingerprint, &entry, &mut backoff)
                .await?
            {
                ReserveWithdrawalResult::Done => {
                    return Ok(ReservedWithdrawal {
                        settlement: terms.id,
                        submission: Some(self.sign_and_submit(facilitator, &agent, &terms).await?),
                        replayed: false,
                    });
                }
                // Another request changed the same records first. The next attempt reads that request's result.
                ReserveWithdrawalResult::Raced => {}
            }
        }
    }

    /// Returns the withdrawal that this key reserved, and submits it again if it can still be used. It is not submitted
    /// if the address was changed or removed, or if operators froze the agent.
    async fn resubmit_withdrawal(
        &self,
        facilitator: &Facilitator,
        agent: &Agent,
        owner: &UserId,
        inputs: &StoredWithdrawalInputs,
        settlement: SettlementId,
    ) -> Result<ReservedWithdrawal> {
        let withdrawal = self.ledger.read_settlement_by_id(agent.id, settlement).await?;
        let withdrawal =
            withdrawal.ok_or_else(|| Error::internal("replaying a withdrawal", "the settlement no longer exists"))?;
        let is_usable =
            authorized_withdrawal_id_and_expiry(&withdrawal).is_some_and(|(_, until)| self.clock.now() < until);
        let (frozen, now) = (inputs.freezes.widest_for_agent(agent), self.clock.now());
        let stands = usable_withdrawal_address(&inputs.record, owner, frozen, None, now) == Ok(withdrawal.terms.pay_to);
        let submission = if is_usable && stands {
            Some(self.sign_and_submit(facilitator, agent, &withdrawal.terms).await?)
        } else {
            None
        };
        Ok(ReservedWithdrawal {
            settlement,
            submission,
            replayed: true,
        })
    }

    /// Evaluates a withdrawal. Rejects the withdrawal if the wallet's balance is unknown.
    async fn decide_withdrawal(
        &self,
        agent: &Agent,
        inputs: &StoredWithdrawalInputs,
        order: &WithdrawalOrder,
    ) -> Result<WithdrawalGrant> {
        let latest = match inputs.record.latest {
            Some(id) => self.ledger.read_settlement_by_id(agent.id, id).await?,
            None => None,
        };
        let (open, now) = (
            latest.as_ref().and_then(authorized_withdrawal_id_and_expiry),
            self.clock.now(),
        );
        let frozen_by_operators = inputs.freezes.widest_for_agent(agent);
        usable_withdrawal_address(&inputs.record, &order.by.owner, frozen_by_operators, open, now)?;
        let balance = self.chain.read_balance(agent.wallet.address).await;
        let balance = balance.map_err(|error| Error::temporarily_unavailable("reading a wallet's balance", error))?;
        let evaluation_inputs = WithdrawalInputs {
            agent: agent.id,
            owner: &order.by.owner,
            record: &inputs.record,
            frozen_by_operators,
            open,
            balance,
            asked: order.amount,
            now,
        };
        Ok(decide_withdrawal(&evaluation_inputs)?)
    }

    fn withdrawal_terms(
        &self,
        agent: &Agent,
        grant: &WithdrawalGrant,
        order: &WithdrawalOrder,
    ) -> Result<SettlementTerms> {
        // The signer is checked before the reservation, so that a wallet that cannot sign leaves no reservation.
        self.wallet_signer(agent)?;
        let random: [u8; 16] = self.entropy.random_bytes()?;
        let [settlement, transaction] =
            [random.first_chunk::<8>(), random.last_chunk::<8>()].map(|half| half.copied().unwrap_or_default());
        let id = SettlementId::new_at(grant.decided_at(), settlement);
        let begins = Timestamp::from_secs(grant.decided_at().secs()).unwrap_or(grant.decided_at());
        Ok(SettlementTerms {
            id,
            transaction: TransactionId::new_at(grant.decided_at(), transaction),
            agent: agent.id,
            wallet: agent.wallet.address,
            network: self.network,
            amount: grant.amount(),
            pay_to: grant.recipient(),
            authorized_at: grant.decided_at(),
            valid_before: begins.after(VALIDITY.min(self.max_authorization)),
            idempotency_key: order.key,
            nonce_prefix: NoncePrefix::from_nonce(self.nonce_key.derive_nonce(id)),
            transfers: agent.transfer_count(),
            purpose: Purpose::Payout(WithdrawalPurpose {
                by: order.by.owner.clone(),
            }),
        })
    }

    /// Signs and submits a transfer. A repeated transfer has the same nonce, so the chain accepts it only once.
    async fn sign_and_submit(
        &self,
        facilitator: &Facilitator,
        agent: &Agent,
        terms: &SettlementTerms,
    ) -> Result<Submission> {
        const SIGNING: &str = "signing a withdrawal";
        let signer = self.wallet_signer(agent)?;
        let nonce = self.nonce_key.derive_existing_nonce(terms.id, terms.nonce_prefix);
        let nonce = nonce.map_err(|error| Error::internal(SIGNING, error))?;
        let terms = PaymentTerms::from_settlement_terms(terms);
        let authorization = TransferAuthorization::new(&terms, nonce);
        let signature = signer.sign(terms.network, &authorization).await;
        let signature = signature.map_err(|error| custody_error(SIGNING, error))?;
        let request = settle_request_body(&terms, terms.network, &authorization, signature);
        let (submission, reason) = facilitator.submit_transfer(&request).await;
        tracing::info!(
            outcome = submission.name(),
            reason,
            settlement.id = %terms.settlement,
            agent.id = %agent.id,
            amount = %terms.amount,
            pay_to = %terms.pay_to,
            "payout.submitted"
        );
        Ok(submission)
    }

    /// Builds the audit row for one attempt. Every attempt needs a new row.
    fn audit_entry(&self, requester: &Requester, action: &Act, changes: AuditChanges) -> Result<AuditEntry> {
        let outcome = AuditOutcome::Done(changes);
        let record = requester
            .acting
            .audit_record(self.clock.now(), self.entropy.random_bytes()?, action, outcome);
        Ok(self.audit.new_entry(&record))
    }

    fn require_facilitator(&self) -> Result<&Facilitator> {
        let facilitator = self.facilitator.as_ref();
        Ok(facilitator.ok_or(WithdrawalRejection::NotSetUp)?)
    }
}

/// Returns the agent if it belongs to this user. Otherwise, returns `not_found`.
fn require_owner(agent: Option<Agent>, owner: &UserId) -> Result<Agent> {
    let agent = agent.filter(|agent| agent.owner == owner.as_str());
    agent.ok_or_else(|| ErrorKind::NotFound.into())
}

/// Returns the id and the end of validity of a withdrawal that is neither confirmed nor expired.
fn authorized_withdrawal_id_and_expiry(withdrawal: &Settlement) -> Option<(SettlementId, Timestamp)> {
    let is_open = withdrawal.state == SettlementState::Authorized;
    is_open.then(|| (withdrawal.id(), withdrawal.terms.valid_before))
}

fn withdrawal_fingerprint(amount: WithdrawalAmount) -> Fingerprint {
    match amount {
        WithdrawalAmount::Balance => Fingerprint::for_text("payout\nbalance"),
        WithdrawalAmount::Units(amount) => Fingerprint::for_text(&format!("payout\n{amount}")),
    }
}
