//! All that a decision rests on, in one round trip: a `BatchGetItem` of single rows beside a Query of the window.
//!
//! Reads of several items are not of one instant, so any of them may be torn. That is harmless: every fact is asked again
//! by a condition of the write it leads to, and the one pair that must agree to be judged by at all, a policy and the
//! totals that bear its stamp, is read again until it does.

use crate::{
    agent::budget_length,
    fault::Fault,
    item::{Item, Row},
    key::Key,
    ledger::Ledger,
    patience::Patience,
    window::{self, Head},
};
use purser_domain::{
    Agent, AgentId, Approval, ApprovalId, BoundPayment, Duration, EnabledService, Error, Fingerprint, Result, RuleId,
    ServiceId, Timestamp, TransactionId, Window, WindowScope,
};

/// What to read.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Who asks.
    pub agent: AgentId,
    /// For which service; without it no window is read.
    pub service: Option<ServiceId>,
    /// The hash of the idempotency key.
    pub key: Option<Fingerprint>,
    /// The approval that the request carries.
    pub approval: Option<ApprovalId>,
}

/// What was read. Nothing in it is older than the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The agent, if there is one of that id.
    pub agent: Option<Agent>,
    /// What the idempotency key is bound to.
    pub prior: Option<Prior>,
    /// The approval, whoever it belongs to.
    pub approval: Option<Approval>,
    /// Policy and windows; `None` when no service was asked for.
    pub standing: Option<Standing>,
}

/// What an idempotency key is bound to, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prior {
    /// An authorization.
    Allowed {
        /// The request.
        fingerprint: Fingerprint,
        /// What it authorized.
        payment: BoundPayment,
    },
    /// An escalation. The retry that carries the approval binds the key anew.
    Escalated {
        /// The request.
        fingerprint: Fingerprint,
        /// The approval it waits for.
        approval: ApprovalId,
        /// The decision.
        transaction: TransactionId,
    },
}

/// An agent's standing with a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The service's record on the agent; `None` when it was never enabled.
    pub enabled: Option<EnabledService>,
    /// The day's window; empty when nothing was ever authorized.
    pub day: Window,
    /// The window of each of the agent's budgets.
    pub budgets: Vec<(RuleId, Window)>,
}

impl Standing {
    /// Every window, the day's first.
    pub fn windows(&self) -> impl Iterator<Item = &Window> {
        std::iter::once(&self.day).chain(self.budgets.iter().map(|(_, window)| window))
    }
}

impl Prior {
    /// The request that the key was first used for.
    pub const fn fingerprint(&self) -> &Fingerprint {
        match self {
            Self::Allowed { fingerprint, .. } | Self::Escalated { fingerprint, .. } => fingerprint,
        }
    }

    /// What an idempotency row says.
    pub(crate) fn read(row: Row<'_>) -> Result<Self> {
        let fingerprint = row.get("rh")?;
        match row.get::<String>("kind")?.as_str() {
            ALLOW => Ok(Self::Allowed {
                fingerprint,
                payment: BoundPayment {
                    settlement: row.get("sid")?,
                    transaction: row.get("txid")?,
                    authorized_at: row.get("t")?,
                    valid_before: row.get("vb")?,
                    offer_index: row.get("oi")?,
                },
            }),
            ESCALATE => Ok(Self::Escalated {
                fingerprint,
                approval: row.get("apid")?,
                transaction: row.get("txid")?,
            }),
            _ => Err(row.corrupt("kind")),
        }
    }
}

/// The `kind` of a key that authorized.
pub(crate) const ALLOW: &str = "allow";
/// The `kind` of a key that escalated.
pub(crate) const ESCALATE: &str = "esc";

impl Ledger {
    /// Reads all of it: 3 read units, 4 with an approval, and one more for each budget, which take a second round trip.
    pub async fn snapshot(&self, ask: &Ask) -> Result<Snapshot> {
        self.snapshot_for(ask, |_| true).await
    }

    /// The same for a caller who is not known yet: unless `knows` them by the agent's record, no budget is read, so that
    /// the work for a wrong secret is the work for an agent that does not exist.
    pub async fn snapshot_for(&self, ask: &Ask, knows: impl Fn(&Agent) -> bool) -> Result<Snapshot> {
        let mut patience = Patience::new();
        loop {
            if let Some(snapshot) = self.read_once(ask, &knows).await? {
                return Ok(snapshot);
            }
            patience.pause().await.map_err(|_| {
                Error::internal(
                    "reading a policy",
                    Fault::new("a policy or budget and its window do not agree"),
                )
            })?;
        }
    }

    /// Reads on in each window of a standing that hides expired entries, until [`Window::live`] at `at` is what counts; 503
    /// `temporarily_unavailable` where more has rolled out than a call should read that writes nothing: authorize clears it.
    pub async fn read_live(&self, standing: &mut Standing, at: Timestamp) -> Result<()> {
        /// 50,000 entries, some 2,000 read units.
        const MOST_PAGES: u32 = 50;
        let mut pages = 0_u32;
        let budgets = standing.budgets.iter_mut().map(|(_, window)| window);
        for window in std::iter::once(&mut standing.day).chain(budgets) {
            while window.hides_expired(at) {
                if pages >= MOST_PAGES {
                    let words = Fault::new("too much has rolled out of it");
                    return Err(Error::temporarily_unavailable("reading a window", words));
                }
                pages = pages.saturating_add(1);
                self.read_further(window).await?;
            }
        }
        Ok(())
    }

    /// Whether nothing was written to the window since it was read, and the idempotency key has authorized nothing. If so,
    /// its parts were of one instant, and what was found in them was true between the two reads.
    ///
    /// The key is looked at again since it may have been read before the window: what takes the room then may be this very
    /// purchase, authorized by the same call's twin.
    pub async fn held_still(&self, window: &Window, key: &Fingerprint) -> Result<bool> {
        let (WindowScope::Day { agent, .. } | WindowScope::Budget { agent, .. }) = window.scope;
        let (totals, key) = (Key::window(window.scope), Key::idempotency(agent, key));
        let (totals, prior) = tokio::try_join!(self.get(&totals), self.get(&key))?;
        let version = match &totals {
            None => window::empty(window.scope, window.length, true).version,
            Some(item) => self.row(item).get("ver")?,
        };
        let prior = prior.map(|item| Prior::read(self.row(&item))).transpose()?;
        Ok(version == window.version && !matches!(prior, Some(Prior::Allowed { .. })))
    }

    /// One reading; `None` when a policy or budget and its window are of two instants.
    async fn read_once(&self, ask: &Ask, knows: impl Fn(&Agent) -> bool) -> Result<Option<Snapshot>> {
        // Boxed, since joining copies a future that is over, and those of the SDK take kilobytes.
        let (rows, head) = tokio::try_join!(Box::pin(self.single_rows(ask)), Box::pin(self.day(ask)))?;
        let SingleRows { agent, prior, approval } = rows;
        let Some(Head {
            policy: enabled,
            window: day,
        }) = head
        else {
            return Ok(Some(Snapshot {
                agent,
                prior,
                approval,
                standing: None,
            }));
        };
        if enabled.as_ref().is_some_and(|enabled| enabled.version != day.stamp) {
            return Ok(None);
        }
        let Some(budgets) = self.budgets(agent.as_ref().filter(|agent| knows(agent))).await? else {
            return Ok(None);
        };
        Ok(Some(Snapshot {
            agent,
            prior,
            approval,
            standing: Some(Standing { enabled, day, budgets }),
        }))
    }

    async fn single_rows(&self, ask: &Ask) -> Result<SingleRows> {
        let agent = Key::agent(ask.agent);
        let prior = ask.key.map(|key| Key::idempotency(ask.agent, &key));
        let approval = ask.approval.map(Key::approval);
        let keys: Vec<Key> = [Some(agent.clone()), prior.clone(), approval.clone()]
            .into_iter()
            .flatten()
            .collect();
        let items = self.get_all(&keys).await?;
        let item_of =
            |key: Option<&Key>| -> Option<&Item> { items.iter().find(|item| key.is_some_and(|key| key.is_of(item))) };
        Ok(SingleRows {
            agent: item_of(Some(&agent))
                .map(|item| self.read_agent(ask.agent, item))
                .transpose()?,
            prior: item_of(prior.as_ref())
                .map(|item| Prior::read(self.row(item)))
                .transpose()?,
            approval: item_of(approval.as_ref())
                .zip(ask.approval)
                .map(|(item, id)| self.read_approval(id, item))
                .transpose()?,
        })
    }

    async fn day(&self, ask: &Ask) -> Result<Option<Head>> {
        let Some(service) = ask.service else { return Ok(None) };
        self.head(
            WindowScope::Day {
                agent: ask.agent,
                service,
            },
            Duration::DAY,
        )
        .await
        .map(Some)
    }

    /// The windows of the agent's budgets, read side by side; `None` when one does not bear its rule's stamp.
    async fn budgets(&self, agent: Option<&Agent>) -> Result<Option<Vec<(RuleId, Window)>>> {
        let mut reads = tokio::task::JoinSet::new();
        let Some(agent) = agent else {
            return Ok(Some(Vec::new()));
        };
        for rule in &agent.rules {
            let Some(length) = budget_length(rule) else { continue };
            let (ledger, id, version) = (self.clone(), rule.id, rule.version);
            let scope = WindowScope::Budget {
                agent: agent.id,
                rule: id,
            };
            reads.spawn(async move { ledger.head(scope, length).await.map(|head| (id, version, head.window)) });
        }
        let mut budgets = Vec::with_capacity(reads.len());
        while let Some(read) = reads.join_next().await {
            let (id, version, window) = read.map_err(|error| Error::internal("reading a budget", error))??;
            if window.stamp != version {
                return Ok(None);
            }
            budgets.push((id, window));
        }
        budgets.sort_by_key(|(id, _)| *id);
        Ok(Some(budgets))
    }
}

struct SingleRows {
    agent: Option<Agent>,
    prior: Option<Prior>,
    approval: Option<Approval>,
}
