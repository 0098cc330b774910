//! Withdrawals, for `people`: an agent's owner sets an address and withdraws the agent's money to it.
//!
//! Invariants: a new address becomes usable only after a delay, measured by this function's clock. A withdrawal goes to
//! the stored address, and a request contains no address. An agent has at most one open withdrawal. An idempotency key
//! reserves one withdrawal. A repeated request submits the same transfer with the same nonce, unless the address was
//! changed.
//!
//! The facilitator's response does not end a withdrawal: reconciliation confirms a transfer that it finds on the chain,
//! and releases a withdrawal that can no longer be used.
//!
//! A completed action and its audit row are written in the same transaction. `people` writes the row of a rejected
//! action and notifies the user.
//!
//! Other modules check the owner and the time of the owner's sign-in (`functions/people`), and contain the rules
//! (`shared/domain/src/settlement/payout.rs`) and the transaction (`shared/store/src/payments/payout.rs`).

use crate::Payments;
use crate::attest::custody_error;
use purser_api::{AskedPayout, NamedPayoutAddress, PayoutAnswer, PayoutOwner, ReservedPayout};
use purser_chain::Facilitator;
use purser_domain::{
    Act, Acting, Address, Agent, AgentId, AuditChanges, AuditKind, AuditOutcome, Duration, Error, ErrorKind,
    Fingerprint, NoncePrefix, PaymentTerms, Payout, PayoutAmount, PayoutFacts, PayoutGrant, PayoutRefusal, PersonId,
    Problem, Purpose, Result, Settlement, SettlementId, SettlementState, Submission, Terms, Timestamp, TransactionId,
    TransferAuthorization, check_payout_address, decide_payout, parse_address, payout_address_of, settle_request,
};
use purser_store::{AuditEntry, Backoff, EditResult, PayoutInputs, PayoutReserved};

/// The validity of a withdrawal: long enough for the facilitator and one repetition, but not longer than a user waits.
const USABLE: Duration = Duration::from_secs_u32(300);

/// The user who requests a withdrawal, and the agent.
struct Asker {
    agent: AgentId,
    owner: PersonId,
    acting: Acting,
}

impl Asker {
    fn from_owner(owner: &PayoutOwner) -> Result<Self> {
        let (agent, owner, acting) = owner.read()?;
        Ok(Self { agent, owner, acting })
    }
}

/// A withdrawal request.
struct PayOut {
    by: Asker,
    amount: PayoutAmount,
    /// The hash of the request's idempotency key.
    key: Fingerprint,
}

impl Payments {
    /// Handles a request to set the withdrawal address.
    pub(crate) async fn handle_set_payout_address(&self, asked: &NamedPayoutAddress) -> Result<PayoutAnswer> {
        let named = async {
            let by = Asker::from_owner(&asked.of)?;
            let address = parse_address(&asked.address).map_err(|error| wrong_address(&error))?;
            self.name_payout_address(&by, address).await
        };
        rejection_as_answer(named.await.map(|()| PayoutAnswer::Done {}))
    }

    /// Handles a request to remove the withdrawal address.
    pub(crate) async fn handle_remove_payout_address(&self, asked: &PayoutOwner) -> Result<PayoutAnswer> {
        let removed = async { self.remove_payout_address(&Asker::from_owner(asked)?).await };
        rejection_as_answer(removed.await.map(|()| PayoutAnswer::Done {}))
    }

    /// Handles a withdrawal request.
    pub(crate) async fn handle_payout(&self, asked: &AskedPayout) -> Result<PayoutAnswer> {
        let paid = async {
            let ask = PayOut {
                by: Asker::from_owner(&asked.of)?,
                amount: asked.amount()?,
                key: Fingerprint::for_text(&asked.idempotency_key),
            };
            self.pay_out(&ask).await
        };
        rejection_as_answer(paid.await.map(PayoutAnswer::from))
    }

    /// Sets the withdrawal address, which becomes usable after a delay. Setting the current address again does not
    /// restart the delay.
    async fn name_payout_address(&self, by: &Asker, address: Address) -> Result<()> {
        self.facilitator()?;
        let owner = &by.owner;
        let agent = check_owner(self.ledger.agent(by.agent).await?, owner)?;
        let act = Act::new(AuditKind::PayoutAddressNamed).on(agent.id);
        check_payout_address(address, agent.wallet.address, self.network).map_err(|error| wrong_address(&error))?;
        let mut backoff = Backoff::new();
        loop {
            let record = self.ledger.payout_record(agent.id).await?;
            let now = self.clock.now();
            let Some(next) = record.with_address(address, owner, now, self.payout_delay) else {
                return Ok(());
            };
            let [before, after] = [&record, &next].map(|record| Some(record.audit_members()));
            let entry = self.entry(by, &act, AuditChanges::between(before, after))?;
            if self.ledger.put_payout_record(agent.id, &next, &entry).await? == EditResult::Stored {
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
            backoff.wait().await?;
        }
    }

    /// Removes the address immediately. An earlier signature remains usable until its `valid_before`.
    async fn remove_payout_address(&self, by: &Asker) -> Result<()> {
        let agent = check_owner(self.ledger.agent(by.agent).await?, &by.owner)?;
        let act = Act::new(AuditKind::PayoutAddressRemoved).on(agent.id);
        let mut backoff = Backoff::new();
        loop {
            let record = self.ledger.payout_record(agent.id).await?;
            let Some(next) = record.without_address() else {
                return Ok(());
            };
            let [before, after] = [&record, &next].map(|record| Some(record.audit_members()));
            let entry = self.entry(by, &act, AuditChanges::between(before, after))?;
            if self.ledger.put_payout_record(agent.id, &next, &entry).await? == EditResult::Stored {
                tracing::info!(agent.id = %agent.id, person = %by.owner, "payout.address_removed");
                return Ok(());
            }
            backoff.wait().await?;
        }
    }

    /// Reserves, signs and submits a withdrawal, or submits the withdrawal that this key already reserved.
    async fn pay_out(&self, ask: &PayOut) -> Result<ReservedPayout> {
        let facilitator = self.facilitator()?;
        let fingerprint = fingerprint_of(ask.amount);
        let mut backoff = Backoff::new();
        loop {
            let inputs = self.ledger.payout_inputs(ask.by.agent, &ask.key).await?;
            let agent = check_owner(inputs.agent.clone(), &ask.by.owner)?;
            if let Some(used) = inputs.key {
                let settlement = used.settlement;
                if used.fingerprint != fingerprint {
                    let settlement = Some(settlement);
                    return Err(ErrorKind::IdempotencyKeyReused { settlement }.into());
                }
                return self
                    .again(facilitator, &agent, &ask.by.owner, &inputs, settlement)
                    .await;
            }
            let grant = self.decide_payout(&agent, &inputs, ask).await?;
            let terms = self.payout_terms(&agent, &grant, ask)?;
            let act = Act::new(AuditKind::PaidOut).on(agent.id).with(&terms.id);
            let entry = self.entry(&ask.by, &act, AuditChanges::between(None, Some(grant.audit_members())))?;
            match self
                .ledger
                .reserve_payout(&grant, &terms, &fingerprint, &entry, &mut backoff)
                .await?
            {
                PayoutReserved::Done => {
                    return Ok(ReservedPayout {
                        settlement: terms.id,
                        submission: Some(self.submit(facilitator, &agent, &terms).await?),
                        replayed: false,
                    });
                }
                // Another request won the race. The next attempt reads its result.
                PayoutReserved::Raced => {}
            }
        }
    }

    /// Returns the withdrawal that this key reserved, and submits the withdrawal again if it can still be used. The
    /// withdrawal is not submitted if its address was changed or removed, or if operators froze the agent.
    async fn again(
        &self,
        facilitator: &Facilitator,
        agent: &Agent,
        owner: &PersonId,
        inputs: &PayoutInputs,
        settlement: SettlementId,
    ) -> Result<ReservedPayout> {
        let payout = self.ledger.settlement(agent.id, settlement).await?;
        let payout = payout.ok_or_else(|| Error::internal("repeating a payout", "it is gone"))?;
        let is_usable = open(&payout).is_some_and(|(_, until)| self.clock.now() < until);
        let (frozen, now) = (inputs.freezes.for_agent(agent), self.clock.now());
        let stands = payout_address_of(&inputs.record, owner, frozen, None, now) == Ok(payout.terms.pay_to);
        let submission = if is_usable && stands {
            Some(self.submit(facilitator, agent, &payout.terms).await?)
        } else {
            None
        };
        Ok(ReservedPayout {
            settlement,
            submission,
            replayed: true,
        })
    }

    /// Evaluates a withdrawal. Reads the wallet's balance only if everything else allows the withdrawal. Without a
    /// balance there is no withdrawal.
    async fn decide_payout(&self, agent: &Agent, inputs: &PayoutInputs, ask: &PayOut) -> Result<PayoutGrant> {
        let latest = match inputs.record.latest {
            Some(id) => self.ledger.settlement(agent.id, id).await?,
            None => None,
        };
        let (open, now) = (latest.as_ref().and_then(open), self.clock.now());
        let frozen_by_operators = inputs.freezes.for_agent(agent);
        payout_address_of(&inputs.record, &ask.by.owner, frozen_by_operators, open, now)?;
        let balance = self.chain.balance(agent.wallet.address).await;
        let balance = balance.map_err(|error| Error::temporarily_unavailable("reading a balance", error))?;
        let facts = PayoutFacts {
            agent: agent.id,
            owner: &ask.by.owner,
            record: &inputs.record,
            frozen_by_operators,
            open,
            balance,
            asked: ask.amount,
            now,
        };
        Ok(decide_payout(&facts)?)
    }

    fn payout_terms(&self, agent: &Agent, grant: &PayoutGrant, ask: &PayOut) -> Result<Terms> {
        // Check the signer first, so that a wallet that cannot sign leaves no reservation.
        self.signer(agent)?;
        let random: [u8; 16] = self.entropy.bytes()?;
        let [settlement, transaction] =
            [random.first_chunk::<8>(), random.last_chunk::<8>()].map(|half| half.copied().unwrap_or_default());
        let id = SettlementId::at(grant.at(), settlement);
        let begins = Timestamp::from_secs(grant.at().secs()).unwrap_or(grant.at());
        Ok(Terms {
            id,
            transaction: TransactionId::at(grant.at(), transaction),
            agent: agent.id,
            wallet: agent.wallet.address,
            network: self.network,
            amount: grant.amount(),
            pay_to: grant.to(),
            authorized_at: grant.at(),
            valid_before: begins.after(USABLE.min(self.max_authorization)),
            idempotency_key: ask.key,
            nonce_prefix: NoncePrefix::from_nonce(self.nonce_key.nonce(id)),
            transfers: agent.transfers(),
            purpose: Purpose::Payout(Payout {
                by: ask.by.owner.clone(),
            }),
        })
    }

    /// Signs and submits a transfer. A repetition has the same nonce, so the chain accepts the transfer only once.
    async fn submit(&self, facilitator: &Facilitator, agent: &Agent, terms: &Terms) -> Result<Submission> {
        const SIGNING: &str = "signing a payout";
        let signer = self.signer(agent)?;
        let nonce = self.nonce_key.nonce_again(terms.id, terms.nonce_prefix);
        let nonce = nonce.map_err(|error| Error::internal(SIGNING, error))?;
        let terms = PaymentTerms::from_settlement_terms(terms);
        let authorization = TransferAuthorization::new(&terms, nonce);
        let signature = signer.sign(terms.network, &authorization).await;
        let signature = signature.map_err(|error| custody_error(SIGNING, error))?;
        let request = settle_request(&terms, terms.network, &authorization, signature);
        let (submission, reason) = facilitator.settle(&request).await;
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

    /// Builds the audit row for one attempt. Each further attempt needs a new row.
    fn entry(&self, by: &Asker, act: &Act, changes: AuditChanges) -> Result<AuditEntry> {
        let outcome = AuditOutcome::Done(changes);
        let record = by.acting.record(self.clock.now(), self.entropy.bytes()?, act, outcome);
        Ok(self.audit.entry(&record))
    }

    fn facilitator(&self) -> Result<&Facilitator> {
        let facilitator = self.facilitator.as_ref();
        Ok(facilitator.ok_or(PayoutRefusal::NotSetUp)?)
    }
}

/// Converts a rejection into a response. Other errors stay errors.
fn rejection_as_answer(result: Result<PayoutAnswer>) -> Result<PayoutAnswer> {
    result.or_else(PayoutAnswer::from_refusal)
}

fn wrong_address(error: &dyn std::error::Error) -> Error {
    Error::invalid(vec![Problem::at("/address", error.to_string())])
}

/// Returns the agent if it belongs to this user. Otherwise, the error is `not_found`.
fn check_owner(agent: Option<Agent>, owner: &PersonId) -> Result<Agent> {
    let agent = agent.filter(|agent| agent.owner == owner.as_str());
    agent.ok_or_else(|| ErrorKind::NotFound.into())
}

/// Returns the id and the end of validity of a withdrawal that is neither confirmed nor expired.
fn open(payout: &Settlement) -> Option<(SettlementId, Timestamp)> {
    let is_open = payout.state == SettlementState::Authorized;
    is_open.then(|| (payout.id(), payout.terms.valid_before))
}

/// Computes the fingerprint that identifies requests for the same amount.
fn fingerprint_of(amount: PayoutAmount) -> Fingerprint {
    match amount {
        PayoutAmount::Balance => Fingerprint::for_text("payout\nbalance"),
        PayoutAmount::Units(amount) => Fingerprint::for_text(&format!("payout\n{amount}")),
    }
}
