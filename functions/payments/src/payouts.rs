//! Payouts, for `people`: an agent's owner sets an address, to which the agent's money can be paid out.
//!
//! Invariants: a new address can be used only after a delay, which is measured by this function's clock. A payout goes
//! to the stored address; a request contains none. An agent has at most one open payout. The same key reserves one
//! payout, and a repetition submits the same transfer with the same nonce while its address is unchanged.
//!
//! The facilitator's answer ends no payout: reconcile confirms a transfer that it finds on the chain, and releases a
//! payout that can no longer be used.
//!
//! A completed act has its audit row in the same transaction. `people` writes the row of a refused act and informs the
//! person.
//!
//! Elsewhere: the owner and the time of their sign-in (`functions/people`), the rules
//! (`shared/domain/src/settlement/payout.rs`), the transaction (`shared/store/src/payments/payout.rs`).

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

/// The validity of a payout: enough for the facilitator and one repetition, and no longer than a person waits.
const USABLE: Duration = Duration::from_secs_u32(300);

/// The requesting person and the agent.
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

/// A request of an agent's owner.
struct PayOut {
    by: Asker,
    amount: PayoutAmount,
    /// The hash of the request's idempotency key.
    key: Fingerprint,
}

impl Payments {
    /// Answers a request to set the payout address.
    pub(crate) async fn handle_set_payout_address(&self, asked: &NamedPayoutAddress) -> Result<PayoutAnswer> {
        let named = async {
            let by = Asker::from_owner(&asked.of)?;
            let address = parse_address(&asked.address).map_err(|error| wrong_address(&error))?;
            self.name_payout_address(&by, address).await
        };
        rejection_as_answer(named.await.map(|()| PayoutAnswer::Done {}))
    }

    /// Answers a request to remove the payout address.
    pub(crate) async fn handle_remove_payout_address(&self, asked: &PayoutOwner) -> Result<PayoutAnswer> {
        let removed = async { self.remove_payout_address(&Asker::from_owner(asked)?).await };
        rejection_as_answer(removed.await.map(|()| PayoutAnswer::Done {}))
    }

    /// Answers a request for a payout.
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

    /// Sets the address for payouts, which can be used after a delay. Setting the current address again does not
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

    /// Removes the address at once. An earlier signature can be used until its `valid_before`.
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

    /// Reserves, signs and submits a payout, or submits again the payout that this key has reserved.
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
                // The next attempt reads the result of the request that won the race.
                PayoutReserved::Raced => {}
            }
        }
    }

    /// The payout that this key has reserved, submitted again if it can still be used. It is not submitted if its
    /// address was changed or removed since, or if operators have frozen the agent.
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

    /// Decides on the inputs. The wallet's balance is read if everything else allows the payout; without a balance
    /// there is no payout.
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
        // The signer is checked first, so that a wallet that can't sign leaves no reservation.
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

    /// Signs and submits the same transfer each time: its nonce is the settlement's, so the chain accepts it once.
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

    /// The audit row of the act, for one attempt. The next attempt creates another row.
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

/// Turns a refusal into an answer; a failure stays an error.
fn rejection_as_answer(result: Result<PayoutAnswer>) -> Result<PayoutAnswer> {
    result.or_else(PayoutAnswer::from_refusal)
}

fn wrong_address(error: &dyn std::error::Error) -> Error {
    Error::invalid(vec![Problem::at("/address", error.to_string())])
}

/// The agent, if it belongs to this person.
fn check_owner(agent: Option<Agent>, owner: &PersonId) -> Result<Agent> {
    let agent = agent.filter(|agent| agent.owner == owner.as_str());
    agent.ok_or_else(|| ErrorKind::NotFound.into())
}

/// A payout that is not final on the chain, and the end of its validity.
fn open(payout: &Settlement) -> Option<(SettlementId, Timestamp)> {
    let is_open = payout.state == SettlementState::Authorized;
    is_open.then(|| (payout.id(), payout.terms.valid_before))
}

/// The fingerprint by which two requests are the same.
fn fingerprint_of(amount: PayoutAmount) -> Fingerprint {
    match amount {
        PayoutAmount::Balance => Fingerprint::for_text("payout\nbalance"),
        PayoutAmount::Units(amount) => Fingerprint::for_text(&format!("payout\n{amount}")),
    }
}
