//! The plan of a run, which is generated from a seed, shrunk, printed, and saved as a test.
//!
//! Agents, services and idempotency keys are numbers. A step whose object does not exist does nothing, so that any step
//! can be left out.

use purser_testkit::Rng;
use std::fmt;

/// The number of concurrent processes, each with its own clock.
pub const WORKERS: usize = 3;
/// The number of agents in a run without a crowd.
pub const AGENTS: u8 = 2;
/// The number of agents in a run with a crowd ([`Setting::crowd`]).
pub const CROWD: u8 = 10;
/// The number of owners in a run with a crowd.
pub const OWNERS: u8 = 4;
/// The owner of each agent.
const OWNED_BY: [u8; CROWD as usize] = [0, 0, 1, 1, 1, 2, 2, 2, 3, 3];
/// The number of services that each agent may use.
pub const SERVICES: u8 = 2;
/// The number of idempotency keys per agent.
pub const KEYS: u8 = 7;
/// The number of an agent's idempotency keys for withdrawals.
pub const PAYOUTS: u8 = 4;
/// The number of sets of caps, which `people.rs` lists.
pub const CAPS: u8 = 4;
/// The number of rules in the first random streams, which `people.rs` lists.
pub const RULES: u8 = 5;
/// The number of rules in the later random streams.
pub const LATER_RULES: u8 = 8;

/// Selects the random stream of additions to plans.
const VARIATIONS: u64 = 0x5eed << 32;
/// Selects the random stream of a crowd's actions.
const CROWDS: u64 = 0xc40d << 32;
/// Selects the random stream of withdrawals, ownership transfers, key scopes and busy partitions.
const MANAGEMENT: u64 = 0x04e4 << 32;
/// Selects the random stream of custody by KMS.
const CUSTODY: u64 = 0x4b35 << 32;
/// Selects the random stream of temporary limit increases.
const RAISES: u64 = 0x7a15 << 32;
/// Selects the random stream that decides whether there are webhooks.
const WEBHOOKS: u64 = 0x4e0c << 32;
/// The number of API key scopes, which `people.rs` lists.
pub const SCOPES: u8 = 6;
/// One seed out of this number has a crowd.
const ONE_CROWD_IN: u64 = 4;

/// A call number that means every call to KMS.
pub const KMS: u8 = 253;

/// A call number that means every call to the node's first endpoint.
pub const FIRST_ENDPOINT: u8 = 254;
/// A call number that means every call to the node's second endpoint.
pub const SECOND_ENDPOINT: u8 = 255;

/// The start times of runs, in seconds since 1970, each 90 seconds before the time in its comment.
const STARTS: [i64; 9] = [
    // The beginning and the end of a leap day.
    1_835_395_110,
    1_835_481_510,
    // The end of a month, and of a year.
    1_796_083_110,
    1_798_761_510,
    // The end and the beginning of daylight saving time in Europe, and in America.
    1_792_889_910,
    1_806_195_510,
    1_793_512_710,
    1_805_007_510,
    // The last second that fits in 32 bits.
    2_147_483_557,
];

/// The settings that stay the same during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The start time, in seconds since 1970.
    pub start: i64,
    /// Whether the node has two endpoints.
    pub two_endpoints: bool,
    /// An endpoint may serve removed blocks until they are this many blocks below the newest block.
    pub side_blocks: u64,
    /// Whether there are ten agents of four owners, with low limits. Otherwise there are two agents of one owner.
    pub crowd: bool,
    /// Whether there is a facilitator, without which no withdrawal is possible.
    pub payouts: bool,
    /// Whether KMS holds the wallet keys.
    pub kms: bool,
    /// Whether users have webhooks and notifications, which are sent at the end.
    pub webhooks: bool,
}

impl Setting {
    /// The settings of most plans.
    pub const USUAL: Self = Self {
        // 2026-11-21T00:00:00Z.
        start: 1_795_219_200,
        two_endpoints: false,
        side_blocks: 0,
        crowd: false,
        payouts: false,
        kms: false,
        webhooks: false,
    };

    pub(crate) const fn agents(self) -> u8 {
        if self.crowd { CROWD } else { AGENTS }
    }
}

pub(crate) fn owner_of(agent: u8) -> u8 {
    OWNED_BY[usize::from(agent)]
}

pub(crate) fn agents_of(owner: u8) -> Vec<u8> {
    (0..CROWD).filter(|agent| owner_of(*agent) == owner).collect()
}

/// The plan of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed for the run's random values.
    pub seed: u64,
    /// How far each environment's clock is ahead, in seconds.
    pub skews: [i32; WORKERS],
    /// The settings that stay the same during the run.
    pub setting: Setting,
    /// The steps of each round. The steps of a round run concurrently, and the rounds one after another.
    pub rounds: Vec<Vec<Step>>,
}

/// One operation and its faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of the process that runs the step.
    pub worker: u8,
    /// The seed for the delays of the step's calls; zero for no delays.
    pub pace: u16,
    /// The operation to run.
    pub op: Op,
    /// The faults, each with the number of the storage or chain call that fails, from 0 on.
    pub faults: Vec<(u8, Fault)>,
}

/// A purchase by an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buy {
    /// The agent's number.
    pub agent: u8,
    /// The number of the idempotency key.
    pub key: u8,
    /// The service's number.
    pub service: u8,
    /// The price in micro-USDC.
    pub units: u16,
    /// The requested validity of the payment (`maxTimeoutSeconds`), in seconds.
    pub secs: u16,
    /// How the request differs from the first request with the same key.
    pub twist: Twist,
}

/// A variation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twist {
    /// No variation.
    Plain,
    /// Another body than the first request with the same key.
    OtherBody,
    /// A price above the maximum that the request allows.
    OverCeiling,
    /// Payment requirements with a payee that is not the service's.
    Stranger,
}

/// An operation in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Authorizes a purchase.
    Authorize {
        /// The purchase that is authorized or checked.
        buy: Buy,
        /// The idempotency key whose approval the request contains; `None` for no approval.
        carry: Option<u8>,
        /// Whether the agent uses its first API key instead of its newest.
        first_key: bool,
    },
    /// Authorizes many small payments, each with its own key.
    Burst {
        /// The agent's number.
        agent: u8,
        /// The service's number.
        service: u8,
        /// The price of each payment, in micro-USDC.
        units: u16,
        /// The number of payments.
        count: u8,
    },
    /// Makes a preflight check.
    Check {
        /// The purchase that is authorized or checked.
        buy: Buy,
        /// The number of the replay key.
        replay: u8,
    },
    /// Polls an approval.
    Poll {
        /// The agent's number.
        agent: u8,
        /// The number of the idempotency key that waits for the approval.
        key: u8,
    },
    /// Completes the settlement of a key.
    Complete {
        /// The agent's number.
        agent: u8,
        /// The number of the idempotency key that authorized the settlement.
        key: u8,
        /// The proof that the agent sends.
        proof: Proof,
    },
    /// Completes a settlement with many transaction hashes that don't exist.
    Invent {
        /// The agent's number.
        agent: u8,
        /// The number of the idempotency key that authorized the settlement.
        key: u8,
        /// The number of hashes.
        count: u8,
    },
    /// Lists the receipts.
    Receipts {
        /// The agent's number.
        agent: u8,
    },
    /// Submits the signed payment of a key to the chain.
    Pay {
        /// The agent's number.
        agent: u8,
        /// The number of the idempotency key that authorized the payment.
        key: u8,
        /// How the payment is submitted.
        how: Pay,
    },
    /// Cancels the authorization of a key on the chain.
    Cancel {
        /// The agent's number.
        agent: u8,
        /// The number of the idempotency key that authorized the payment.
        key: u8,
    },
    /// A user decides the approval of a key.
    Resolve {
        /// The agent's number.
        agent: u8,
        /// The number of the idempotency key that waits for the approval.
        key: u8,
        /// Whether the user approves the request.
        yes: bool,
    },
    /// A user sets the caps of a service, and enables or disables the service.
    Policy {
        /// The agent's number.
        agent: u8,
        /// The service's number.
        service: u8,
        /// The index of the new caps in the table in `people.rs`.
        caps: u8,
        /// Whether the service is enabled.
        on: bool,
    },
    /// A user freezes or unfreezes an agent.
    Freeze {
        /// The agent's number.
        agent: u8,
        /// Whether the agent is frozen (`true`) or unfrozen.
        frozen: bool,
    },
    /// An operator freezes an agent, or ends that freeze.
    Operators {
        /// The agent's number.
        agent: u8,
        /// The operator: 0 has a token, and the others use browsers.
        by: u8,
        /// Whether the agent is frozen (`true`) or unfrozen.
        frozen: bool,
    },
    /// A user adds, changes or removes a rule of an agent.
    Rule {
        /// The agent's number.
        agent: u8,
        /// The rule's number (see `people.rs`).
        rule: u8,
        /// Whether the rule is set (`true`) or removed.
        on: bool,
    },
    /// A user rotates an agent's API key. The previous key works for `secs` more seconds.
    Rotate {
        /// The agent's number.
        agent: u8,
        /// The time for which the previous key still works, in seconds.
        secs: u16,
    },
    /// A user revokes every API key except the newest.
    Revoke {
        /// The agent's number.
        agent: u8,
    },
    /// An operator requests the reconciliation of a settlement.
    Mark {
        /// The agent's number.
        agent: u8,
        /// The number of the idempotency key that authorized the settlement.
        key: u8,
    },
    /// Runs reconcile.
    Reconcile {
        /// The time that is left before the function's deadline, in seconds.
        secs: u8,
    },
    /// Runs reconcile for one of two shards.
    ReconcilePart {
        /// The shard, 0 or 1.
        part: u8,
    },
    /// Runs reconcile with another nonce key than the payments'.
    ReconcileWithWrongKey,
    /// Advances the time.
    Pass {
        /// The duration in seconds.
        secs: u32,
    },
    /// Advances the time to the microsecond at which a payment leaves the daily window, on the fastest clock.
    PassToRollOff {
        /// The agent's number.
        agent: u8,
        /// The service's number.
        service: u8,
        /// Whether to stop one microsecond earlier.
        early: bool,
    },
    /// Advances the time to the second in which a payment expires.
    PassToDeadline {
        /// The agent's number.
        agent: u8,
        /// The number of the idempotency key that authorized the payment.
        key: u8,
        /// Whether to stop one second earlier.
        early: bool,
    },
    /// A reorg removes the chain's newest blocks.
    Reorganize {
        /// The number of blocks.
        depth: u8,
    },
    /// The wallet loses its whole balance.
    Drain {
        /// The agent's number.
        agent: u8,
    },
    /// The wallet receives a deposit.
    Fund {
        /// The agent's number.
        agent: u8,
    },
    /// A user sets a withdrawal address.
    NamePayout {
        /// The agent's number.
        agent: u8,
        /// The index of the withdrawal address.
        place: u8,
    },
    /// A user removes the withdrawal address.
    RemovePayout {
        /// The agent's number.
        agent: u8,
    },
    /// A user requests a withdrawal.
    PayOut {
        /// The agent's number.
        agent: u8,
        /// The amount in micro-USDC; 0 for the whole balance.
        units: u16,
        /// The number of the idempotency key.
        key: u8,
    },
    /// An operator offers the ownership of an agent to another user.
    Offer {
        /// The agent's number.
        agent: u8,
        /// The number of the owner who may accept the offer.
        to: u8,
    },
    /// The user to whom an agent is offered accepts the offer.
    Accept {
        /// The agent's number.
        agent: u8,
    },
    /// A user adds an API key with a scope, which the agent uses from now on.
    Scope {
        /// The agent's number.
        agent: u8,
        /// The scope's number, less than [`SCOPES`].
        scope: u8,
    },
    /// The agent requests an increase of the daily cap that denied its latest payment.
    AskForRaise {
        /// The agent's number.
        agent: u8,
    },
    /// A user grants the limit increase that the agent has requested.
    GrantRaise {
        /// The agent's number.
        agent: u8,
    },
    /// A partition accepts only one call a second for some time.
    Busy {
        /// The agent's number.
        agent: u8,
        /// The kind of the partition.
        row: Row,
        /// The duration in seconds.
        secs: u8,
    },
    /// A hostile agent makes calls that must not affect other agents.
    Attack {
        /// The agent's number.
        agent: u8,
        /// The number of an agent of another owner.
        victim: u8,
        /// The kind of hostile calls.
        how: Hostility,
    },
}

/// A partition of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// The agent's record.
    Agent,
    /// The agent's windows.
    Window,
    /// The agent's settlements.
    Settlements,
    /// The agent's idempotency keys.
    Keys,
}

/// The calls of a hostile agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hostility {
    /// The agent lists its receipts this many times.
    Flood(u8),
    /// The agent makes this many calls with the victim's key id and a wrong secret.
    Guess(u8),
    /// The agent requests this many approvals.
    Questions(u8),
    /// The agent sends an authorize body that is invalid in the way with this number.
    BadBody(u8),
    /// The agent reads and completes the victim's settlement.
    TheirSettlement,
    /// The agent authorizes with the victim's approval.
    TheirApproval,
    /// The agent lists the victim's receipts.
    TheirReceipts,
    /// The agent completes its settlement with the victim's transaction.
    TheirTransaction,
    /// The agent requests a limit increase after a denial of the agent or of the victim.
    Raise {
        /// Whether the denial is the victim's.
        theirs: bool,
    },
}

/// The proof in a call of complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The transaction of the payment.
    True,
    /// A transaction hash that doesn't exist.
    False,
    /// One of many transaction hashes that don't exist.
    Invented(u8),
    /// A transfer of the same amount between the same accounts that another account sent.
    Foreign,
    /// The transaction of another key's payment.
    Of(u8),
}

/// How a payment is submitted to the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pay {
    /// The payment is submitted soon.
    Soon,
    /// The payment is submitted in the last second in which it is valid.
    LastSecond,
    /// The payment is submitted in the first second in which it is no longer valid.
    TooLate,
    /// Two accounts submit the payment independently.
    Twice,
    /// The payment is submitted together with all other open payments of the agent, in one transaction.
    Batched,
}

/// A fault of a storage or chain call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process is killed before the call.
    CrashBefore,
    /// The process is killed after the call has taken effect.
    CrashAfter,
    /// The call never arrives.
    LostRequest(Silence),
    /// The call takes effect, and its response is lost.
    LostAnswer(Silence),
    /// The call takes effect this many milliseconds later, after the caller gave up.
    Late(u16),
    /// The call conflicts with another transaction.
    Conflict,
    /// The call is throttled.
    Throttled,
    /// The call takes this many milliseconds longer.
    Slow(u16),
    /// The node is this many blocks behind. No effect on a storage call.
    OldHead(u8),
    /// The node serves another chain. No effect on a storage call.
    OtherChain,
    /// The node serves removed blocks, if it may still do so. No effect on a storage call.
    SideBlocks,
    /// The node leaves out all logs. No effect on a storage call.
    NoLogs,
    /// The node rejects log queries because there are too many logs. No effect on a storage call.
    TooManyLogs,
}

impl Fault {
    /// Returns whether the fault applies only to chain calls.
    pub(crate) const fn is_of_chain(self) -> bool {
        matches!(
            self,
            Self::OldHead(_) | Self::OtherChain | Self::SideBlocks | Self::NoLogs | Self::TooManyLogs
        )
    }
}

/// What the caller of a failed call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The connection breaks.
    Broken,
    /// A status 500.
    Error,
    /// No response, until the caller gives up.
    Nothing,
}

impl Step {
    /// Creates a step without faults.
    pub const fn on(worker: u8, pace: u16, op: Op) -> Self {
        Self {
            worker,
            pace,
            op,
            faults: Vec::new(),
        }
    }

    /// Adds a fault to the call with this number.
    #[must_use]
    pub fn but(mut self, call: u8, fault: Fault) -> Self {
        self.faults.push((call, fault));
        self
    }
}

/// Formats the plan as Rust code, for a test.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Plan {{")?;
        writeln!(f, "    seed: {},", self.seed)?;
        writeln!(f, "    skews: {:?},", self.skews)?;
        if self.setting == Setting::USUAL {
            writeln!(f, "    setting: Setting::USUAL,")?;
        } else {
            writeln!(f, "    setting: {:?},", self.setting)?;
        }
        writeln!(f, "    rounds: vec![")?;
        for round in &self.rounds {
            writeln!(f, "        vec![")?;
            for step in round {
                write!(f, "            Step::on({}, {}, {:?})", step.worker, step.pace, step.op)?;
                for (call, fault) in &step.faults {
                    write!(f, ".but({call}, {fault:?})")?;
                }
                writeln!(f, ",")?;
            }
            writeln!(f, "        ],")?;
        }
        writeln!(f, "    ],")?;
        write!(f, "}}")
    }
}

impl Plan {
    /// Generates the plan of a seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let most: i32 = rng.weighted(&[(3, 0), (3, 3), (3, 40), (2, 1_800)]);
        let mut skew = || i32::try_from(rng.below(2 * u64::from(most.unsigned_abs()) + 1)).expect("small") - most;
        let skews = [skew(), skew(), skew()];
        let mut drawing = Drawing {
            one_fault_in: rng.weighted(&[(3, 2), (4, 4), (2, 12), (1, 1_000_000)]),
            most_together: rng.weighted(&[(2, 1), (3, 3), (3, 5)]),
            usual: [[None; KEYS as usize]; AGENTS as usize],
            agenda: Vec::new(),
            rush: None,
            in_parts: false,
            rng,
        };
        let rounds = 16 + drawing.rng.below(14);
        let mut plan = Self {
            seed,
            skews,
            setting: Setting::USUAL,
            rounds: (0..rounds).map(|_| drawing.round()).collect(),
        };
        plan.vary(&mut Rng::from_seed(seed ^ VARIATIONS));
        plan.gather(&mut Rng::from_seed(seed ^ CROWDS));
        plan.manage(&mut Rng::from_seed(seed ^ MANAGEMENT));
        plan.keep_keys_in_kms(&mut Rng::from_seed(seed ^ CUSTODY));
        plan.raise(&mut Rng::from_seed(seed ^ RAISES));
        plan.setting.webhooks = Rng::from_seed(seed ^ WEBHOOKS).one_in(3);
        plan
    }

    /// Adds withdrawals, ownership transfers, API key scopes and busy partitions.
    fn manage(&mut self, rng: &mut Rng) {
        let agent = rng.small(AGENTS);
        if rng.one_in(3) {
            self.setting.payouts = true;
            self.add(3, rng, |rng| {
                let (units, key) = (*rng.pick(&[0, 1, 500]), rng.small(PAYOUTS));
                rng.weighted(&[
                    (3, Op::NamePayout { agent, place: 0 }),
                    (1, Op::NamePayout { agent, place: 1 }),
                    (1, Op::RemovePayout { agent }),
                    (6, Op::PayOut { agent, units, key }),
                    (3, Op::Pass { secs: 700 }),
                    (1, Op::Reconcile { secs: 60 }),
                ])
            });
        }
        if rng.one_in(4) {
            self.add(4, rng, |rng| {
                let to = rng.small(OWNERS);
                rng.weighted(&[(2, Op::Offer { agent, to }), (3, Op::Accept { agent })])
            });
        }
        if rng.one_in(5) {
            self.add(5, rng, |rng| Op::Scope {
                agent,
                scope: rng.small(SCOPES),
            });
        }
        if rng.one_in(5) {
            self.add(4, rng, |rng| Op::Busy {
                agent: rng.small(AGENTS),
                row: *rng.pick(&[Row::Agent, Row::Window, Row::Settlements, Row::Keys]),
                secs: *rng.pick(&[1, 3, 10]),
            });
        }
    }

    /// Moves the wallet keys to KMS in one of four seeds, and adds faults of KMS calls.
    fn keep_keys_in_kms(&mut self, rng: &mut Rng) {
        if !rng.one_in(4) {
            return;
        }
        self.setting.kms = true;
        let one_in = rng.weighted(&[(2, 3), (2, 8)]);
        for step in self.rounds.iter_mut().flatten() {
            let signs = matches!(step.op, Op::Authorize { .. } | Op::Burst { .. } | Op::PayOut { .. });
            if signs && rng.one_in(one_in) {
                let silence = *rng.pick(&[Silence::Broken, Silence::Error, Silence::Nothing]);
                let late = 2_000 + u16::try_from(rng.below(8_000)).expect("small");
                let slow = u16::try_from(1 + rng.below(1_500)).expect("small");
                let fault = rng.weighted(&[
                    (2, Fault::CrashBefore),
                    (2, Fault::CrashAfter),
                    (2, Fault::LostRequest(silence)),
                    (4, Fault::LostAnswer(silence)),
                    (1, Fault::Late(late)),
                    (1, Fault::Conflict),
                    (2, Fault::Throttled),
                    (2, Fault::Slow(slow)),
                ]);
                step.faults.push((KMS, fault));
            }
        }
    }

    /// Adds payments up to the daily cap, requests for limit increases, and grants.
    fn raise(&mut self, rng: &mut Rng) {
        if rng.one_in(4) {
            let (agent, service) = (rng.small(AGENTS), rng.small(SERVICES));
            self.add(2, rng, |rng| {
                let (units, count) = (*rng.pick(&[200, 240]), 4 + rng.small(4));
                rng.weighted(&[
                    (
                        2,
                        Op::Burst {
                            agent,
                            service,
                            units,
                            count,
                        },
                    ),
                    (2, Op::AskForRaise { agent }),
                    (3, Op::GrantRaise { agent }),
                    (1, Op::Pass { secs: 900 }),
                ])
            });
        }
    }

    /// Adds a step to one of `one_in` rounds.
    fn add(&mut self, one_in: u64, rng: &mut Rng, op: impl Fn(&mut Rng) -> Op) {
        for round in &mut self.rounds {
            if rng.one_in(one_in) {
                let mut step = step_of(op(rng), rng);
                if !step.op.is_of_the_world() && rng.one_in(6) {
                    add_fault(&mut step, rng);
                }
                round.insert(rng.index(round.len() + 1), step);
            }
        }
    }

    /// Adds agents of other owners in one of [`ONE_CROWD_IN`] seeds. One agent at a time is hostile.
    fn gather(&mut self, rng: &mut Rng) {
        if !rng.one_in(ONE_CROWD_IN) {
            return;
        }
        self.setting.crowd = true;
        let (first, turn) = (rng.small(OWNERS), 2 + rng.index(5));
        let mut stories: [Vec<Op>; CROWD as usize] = Default::default();
        let mut keys = [0; CROWD as usize];
        for (number, round) in self.rounds.iter_mut().enumerate() {
            let turns = u8::try_from(number / turn).expect("few");
            let hostile = (first + turns) % OWNERS;
            let others: Vec<u8> = (AGENTS..CROWD).filter(|agent| owner_of(*agent) != hostile).collect();
            let mut steps = Vec::new();
            for _ in 0..1 + rng.index(2) {
                let agent = *rng.pick(&others);
                let story = &mut stories[usize::from(agent)];
                if story.is_empty() {
                    let key = &mut keys[usize::from(agent)];
                    story.extend(purchase(agent, *key, rng));
                    *key = (*key + 1) % KEYS;
                }
                let mut step = step_of(story.remove(0), rng);
                if rng.one_in(6) {
                    add_fault(&mut step, rng);
                }
                steps.push(step);
            }
            if !rng.one_in(4) {
                let agent = *rng.pick(&agents_of(hostile));
                // The agents of the first streams have the most rows, so they are preferred as victims.
                let victims: Vec<u8> = (0..CROWD).filter(|agent| owner_of(*agent) != hostile).collect();
                let victim = if rng.one_in(2) { victims[0] } else { *rng.pick(&victims) };
                steps.push(step_of(hostility(agent, victim, rng), rng));
            }
            for step in steps {
                round.insert(rng.index(round.len() + 1), step);
            }
        }
    }

    /// Adds start times, rules and views of the chain from a separate random stream, so that earlier steps stay the
    /// same.
    fn vary(&mut self, rng: &mut Rng) {
        if rng.one_in(2) {
            self.setting.start = *rng.pick(&STARTS);
        }
        if rng.one_in(2) {
            self.rule(rng);
        }
        if rng.one_in(2) {
            self.view(rng);
        }
        if rng.one_in(3) {
            self.operate(rng);
        }
    }

    /// Adds freezes by operators, with a token and concurrently in browsers.
    fn operate(&mut self, rng: &mut Rng) {
        let mut until = [None; AGENTS as usize];
        for (number, round) in self.rounds.iter_mut().enumerate() {
            for (agent, until) in (0..).zip(&mut until) {
                let ends = until.is_some_and(|until| number >= until);
                if ends || until.is_none() && rng.one_in(8) {
                    *until = if ends { None } else { Some(number + 1 + rng.index(4)) };
                    let pace = u16::try_from(rng.below(60_000)).expect("below 65,536");
                    let worker = rng.small(u8::try_from(WORKERS).expect("few"));
                    let frozen = !ends;
                    let mut step = Step::on(worker, pace, Op::Operators { agent, by: 0, frozen });
                    if rng.one_in(6) {
                        step.faults.push((rng.small(3), Fault::LostAnswer(Silence::Error)));
                    }
                    round.push(step);
                }
            }
            for _ in 0..rng.index(3) {
                let pace = u16::try_from(rng.below(60_000)).expect("below 65,536");
                let op = Op::Operators {
                    agent: rng.small(AGENTS),
                    by: 1 + rng.small(2),
                    frozen: rng.one_in(3),
                };
                round.push(Step::on(rng.small(u8::try_from(WORKERS).expect("few")), pace, op));
            }
        }
    }

    fn rule(&mut self, rng: &mut Rng) {
        let often = rng.weighted(&[(1, 2), (2, 5)]);
        for round in &mut self.rounds {
            if rng.one_in(often) {
                let op = Op::Rule {
                    agent: rng.small(AGENTS),
                    rule: RULES + rng.small(LATER_RULES),
                    on: !rng.one_in(3),
                };
                let pace = u16::try_from(rng.below(60_000)).expect("below 65,536");
                let worker = rng.small(u8::try_from(WORKERS).expect("few"));
                round.push(Step::on(worker, pace, op));
            }
        }
    }

    fn view(&mut self, rng: &mut Rng) {
        self.setting.two_endpoints = !rng.one_in(3);
        self.setting.side_blocks = 14;
        let one_in = rng.weighted(&[(2, 2), (2, 5)]);
        for round in &mut self.rounds {
            for step in &mut *round {
                if step.op.is_of_the_world() || !rng.one_in(one_in) {
                    continue;
                }
                let behind = 1 + rng.small(6);
                let view = rng.weighted(&[
                    (6, Fault::SideBlocks),
                    (2, Fault::NoLogs),
                    (2, Fault::TooManyLogs),
                    (2, Fault::OldHead(behind)),
                ]);
                match rng.below(4) {
                    0 => step.faults.push((FIRST_ENDPOINT, view)),
                    1 => step.faults.push((SECOND_ENDPOINT, view)),
                    2 => step.faults.extend([(FIRST_ENDPOINT, view), (SECOND_ENDPOINT, view)]),
                    _ => {
                        let first = rng.small(12);
                        let calls = first..first + 1 + rng.small(6);
                        step.faults.extend(calls.map(|call| (call, view)));
                    }
                }
            }
            if rng.one_in(6) {
                let depth = 1 + rng.small(6);
                let pace = u16::try_from(rng.below(60_000)).expect("below 65,536");
                round.push(Step::on(0, pace, Op::Reorganize { depth }));
            }
        }
    }

    /// Returns the number of steps.
    pub fn len(&self) -> usize {
        self.rounds.iter().map(Vec::len).sum()
    }

    /// Returns whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Adds a fault to one or more consecutive calls.
fn add_fault(step: &mut Step, rng: &mut Rng) {
    let silence = *rng.pick(&[Silence::Broken, Silence::Error, Silence::Nothing]);
    let late = 2_000 + u16::try_from(rng.below(8_000)).expect("small");
    let slow = u16::try_from(1 + rng.below(1_500)).expect("small");
    let behind = 1 + rng.small(6);
    let fault = rng.weighted(&[
        (3, Fault::CrashBefore),
        (4, Fault::CrashAfter),
        (4, Fault::LostRequest(silence)),
        (6, Fault::LostAnswer(silence)),
        (3, Fault::Late(late)),
        (4, Fault::Conflict),
        (2, Fault::Throttled),
        (3, Fault::Slow(slow)),
        (2, Fault::OldHead(behind)),
        (1, Fault::OtherChain),
    ]);
    let first = rng.small(9);
    // The SDK makes three attempts, so only longer failures reach the caller.
    let length = if rng.one_in(2) { 1 } else { 1 + rng.small(8) };
    let again = !matches!(fault, Fault::CrashBefore | Fault::CrashAfter);
    let calls = first..first + if again { length } else { 1 };
    step.faults.extend(calls.map(|call| (call, fault)));
}

fn step_of(op: Op, rng: &mut Rng) -> Step {
    let worker = rng.small(u8::try_from(WORKERS).expect("few"));
    let pace = u16::try_from(rng.below(60_000)).expect("below 65,536");
    Step::on(worker, pace, op)
}

/// Returns the operations of a crowd's agent for one idempotency key.
fn purchase(agent: u8, key: u8, rng: &mut Rng) -> Vec<Op> {
    let buy = Buy {
        agent,
        key,
        service: rng.small(SERVICES),
        units: *rng.pick(&[1, 60, 150, 300]),
        secs: *rng.pick(&[30, 60, 300]),
        twist: Twist::Plain,
    };
    let authorize = |carry| Op::Authorize {
        buy,
        carry,
        first_key: false,
    };
    let mut story = Vec::new();
    if rng.one_in(3) {
        let replay = rng.small(4);
        story.push(Op::Check { buy, replay });
    }
    story.push(authorize(None));
    if buy.units >= 150 {
        let yes = !rng.one_in(4);
        story.extend([
            Op::Poll { agent, key },
            Op::Resolve { agent, key, yes },
            authorize(Some(key)),
        ]);
    }
    if !rng.one_in(4) {
        let (how, proof) = (Pay::Soon, Proof::True);
        story.extend([
            Op::Pay { agent, key, how },
            Op::Pass { secs: 10 },
            Op::Complete { agent, key, proof },
        ]);
    }
    match rng.below(4) {
        0 => story.push(Op::Receipts { agent }),
        1 => story.push(authorize(None)),
        2 => story.push(Op::Policy {
            agent,
            service: rng.small(SERVICES),
            caps: rng.small(CAPS),
            on: true,
        }),
        _ => {}
    }
    story
}

fn hostility(agent: u8, victim: u8, rng: &mut Rng) -> Op {
    let (many, few, which) = (20 + rng.small(60), 4 + rng.small(8), rng.small(8));
    let how = rng.weighted(&[
        (3, Hostility::Flood(many)),
        (2, Hostility::Guess(many)),
        (4, Hostility::Questions(few)),
        (3, Hostility::BadBody(which)),
        (3, Hostility::TheirSettlement),
        (3, Hostility::TheirApproval),
        (2, Hostility::TheirReceipts),
        (5, Hostility::TheirTransaction),
        (2, Hostility::Raise { theirs: false }),
        (2, Hostility::Raise { theirs: true }),
    ]);
    // A later attack can use these holds and purchases.
    match rng.below(6) {
        0 => Op::Burst {
            agent,
            service: rng.small(SERVICES),
            units: 1,
            count: 12 + rng.small(20),
        },
        1 => Op::Authorize {
            buy: Buy {
                agent,
                key: rng.small(KEYS),
                service: rng.small(SERVICES),
                units: 100,
                secs: 900,
                twist: Twist::Plain,
            },
            carry: None,
            first_key: false,
        },
        _ => Op::Attack { agent, victim, how },
    }
}

struct Drawing {
    rng: Rng,
    one_fault_in: u64,
    most_together: u64,
    /// The first request with each key, by agent.
    usual: [[Option<Buy>; KEYS as usize]; AGENTS as usize],
    /// The follow-up operations of each earlier payment.
    agenda: Vec<Vec<Op>>,
    /// The agent and the service whose window just got room on some of the clocks.
    rush: Option<(u8, u8)>,
    /// Whether the shards are reconciled concurrently in the next round.
    in_parts: bool,
}

impl Drawing {
    fn round(&mut self) -> Vec<Step> {
        if let Some((agent, service)) = self.rush.take() {
            return self.rush(agent, service);
        }
        if std::mem::take(&mut self.in_parts) {
            return self.parts();
        }
        let together = 1 + self.rng.below(self.most_together);
        // The steps of a round use one agent, so that they conflict.
        let agent = self.rng.small(AGENTS);
        let key = self.rng.small(KEYS);
        (0..together).map(|_| self.step(agent, key)).collect()
    }

    /// Returns steps in which all processes authorize concurrently for the room in one window.
    fn rush(&mut self, agent: u8, service: u8) -> Vec<Step> {
        let workers = 0..u8::try_from(WORKERS).expect("few");
        let step = |worker| {
            let units = *self.rng.pick(&[60, 240, 450]);
            let pace = u16::try_from(self.rng.below(60_000)).expect("below 65,536");
            Step::on(
                worker,
                pace,
                Op::Burst {
                    agent,
                    service,
                    units,
                    count: 3,
                },
            )
        };
        workers.map(step).collect()
    }

    /// Returns steps in which two processes reconcile a shard each. Sometimes a third process reconciles everything.
    fn parts(&mut self) -> Vec<Step> {
        let whole = self.rng.one_in(3).then_some(Op::Reconcile { secs: 60 });
        let ops = [0, 1].map(|part| Op::ReconcilePart { part });
        let mut steps = Vec::new();
        for (worker, op) in (0..).zip(ops.into_iter().chain(whole)) {
            let pace = u16::try_from(self.rng.below(60_000)).expect("below 65,536");
            let mut step = Step::on(worker, pace, op);
            if self.rng.one_in(2 * self.one_fault_in) {
                self.fault(&mut step);
            }
            steps.push(step);
        }
        steps
    }

    /// Returns the next operation of an earlier payment, or an unrelated operation.
    fn next(&mut self, agent: u8, key: u8) -> Op {
        if self.agenda.is_empty() || self.rng.one_in(3) {
            return self.op(agent, key);
        }
        // The first list is preferred, so that long lists are completed.
        let story = if self.rng.one_in(2) {
            0
        } else {
            self.rng.index(self.agenda.len())
        };
        let op = self.agenda[story].remove(0);
        if self.agenda[story].is_empty() {
            self.agenda.remove(story);
        }
        op
    }

    /// Schedules the usual follow-up operations of a payment.
    fn tell(&mut self, buy: Buy) {
        let Buy { agent, key, .. } = buy;
        let retry = |carry| Op::Authorize {
            buy,
            carry,
            first_key: false,
        };
        let mut story = Vec::new();
        if self.rng.one_in(4) {
            story.push(retry(None));
        }
        if self.rng.one_in(2) {
            let yes = !self.rng.one_in(5);
            story.extend([Op::Resolve { agent, key, yes }, retry(Some(key))]);
            if self.rng.one_in(3) {
                story.push(retry(Some(key)));
            }
        }
        if self.rng.one_in(12) {
            let count = 18 + self.rng.small(8);
            story.push(Op::Invent { agent, key, count });
        }
        if self.rng.one_in(5) {
            story.extend(self.two_pasts(agent, key));
        } else if self.rng.one_in(5) {
            story.extend(self.undone(agent, key));
        } else if !self.rng.one_in(4) {
            let how = self.pay();
            story.push(Op::Pay { agent, key, how });
            if self.rng.one_in(6) {
                story.push(Op::Reorganize {
                    depth: 1 + self.rng.small(6),
                });
            }
            if !self.rng.one_in(3) {
                let pause = if how == Pay::Soon {
                    Op::Pass { secs: 10 }
                } else {
                    Op::PassToDeadline {
                        agent,
                        key,
                        early: false,
                    }
                };
                story.extend([
                    pause,
                    Op::Complete {
                        agent,
                        key,
                        proof: Proof::True,
                    },
                ]);
                if self.rng.one_in(4) {
                    story.push(Op::Complete {
                        agent,
                        key: self.rng.small(KEYS),
                        proof: Proof::Of(key),
                    });
                }
            }
        }
        match self.rng.below(4) {
            0 => story.push(Op::PassToDeadline {
                agent,
                key,
                early: true,
            }),
            1 => story.push(Op::PassToDeadline {
                agent,
                key,
                early: false,
            }),
            _ => {}
        }
        story.push(Op::Reconcile { secs: 60 });
        self.agenda.push(story);
    }

    /// Returns operations in which a reorg removes a confirmed payment, and the payment's block becomes deep.
    fn undone(&mut self, agent: u8, key: u8) -> [Op; 8] {
        let how = *self.rng.pick(&[Pay::Soon, Pay::Twice, Pay::Batched]);
        let deep = Op::Pass { secs: 60 };
        [
            Op::Pay { agent, key, how },
            Op::Pass { secs: 10 },
            Op::Complete {
                agent,
                key,
                proof: Proof::True,
            },
            Op::Reorganize {
                depth: 5 + self.rng.small(4),
            },
            deep,
            deep,
            deep,
            Op::Reconcile { secs: 60 },
        ]
    }

    /// Returns operations in which a reorg removes a payment until it is released, and another reorg includes it again.
    fn two_pasts(&mut self, agent: u8, key: u8) -> [Op; 8] {
        let (short, long) = (1 + self.rng.small(3), 5 + self.rng.small(4));
        [
            Op::PassToDeadline {
                agent,
                key,
                early: true,
            },
            Op::Pay {
                agent,
                key,
                how: Pay::LastSecond,
            },
            Op::Reorganize { depth: short },
            Op::Pass { secs: 10 },
            Op::Reconcile { secs: 60 },
            Op::Reorganize { depth: long },
            Op::Pass { secs: 10 },
            Op::Complete {
                agent,
                key,
                proof: Proof::True,
            },
        ]
    }

    fn pay(&mut self) -> Pay {
        self.rng.weighted(&[
            (8, Pay::Soon),
            (3, Pay::LastSecond),
            (2, Pay::TooLate),
            (2, Pay::Twice),
            (2, Pay::Batched),
        ])
    }

    fn step(&mut self, agent: u8, key: u8) -> Step {
        let agent = if self.rng.one_in(6) {
            self.rng.small(AGENTS)
        } else {
            agent
        };
        let key = if self.rng.one_in(2) { self.rng.small(KEYS) } else { key };
        let op = self.next(agent, key);
        let worker = self.rng.small(u8::try_from(WORKERS).expect("few"));
        let pace = u16::try_from(self.rng.below(60_000)).expect("below 65,536");
        let mut step = Step::on(worker, pace, op);
        while self.rng.one_in(self.one_fault_in) && step.faults.len() < 6 {
            self.fault(&mut step);
        }
        step
    }

    fn fault(&mut self, step: &mut Step) {
        add_fault(step, &mut self.rng);
    }

    fn buy(&mut self, agent: u8, key: u8) -> Buy {
        let (row, column) = (usize::from(agent), usize::from(key));
        let twist = self.rng.weighted(&[
            (40, Twist::Plain),
            (2, Twist::OtherBody),
            (1, Twist::OverCeiling),
            (1, Twist::Stranger),
        ]);
        let usual = self.usual[row][column].unwrap_or_else(|| Buy {
            agent,
            key,
            service: self.rng.small(SERVICES),
            units: *self.rng.pick(&[1, 100, 150, 250, 300, 450]),
            secs: *self.rng.pick(&[30, 60, 300, 900]),
            twist: Twist::Plain,
        });
        if self.usual[row][column].is_none() {
            self.usual[row][column] = Some(usual);
            self.tell(usual);
        }
        Buy { twist, ..usual }
    }

    fn op(&mut self, agent: u8, key: u8) -> Op {
        #[derive(Clone, Copy)]
        enum Kind {
            Authorize,
            Retry,
            Burst,
            Check,
            Poll,
            Complete,
            Receipts,
            Pay,
            Cancel,
            Resolve,
            Policy,
            Freeze,
            Rule,
            Rotate,
            Revoke,
            Mark,
            Invent,
            Reconcile,
            Parts,
            WrongKey,
            Pass,
            RollOff,
            Deadline,
            Reorganize,
            Drain,
            Fund,
        }
        let kind = self.rng.weighted(&[
            (40, Kind::Authorize),
            (4, Kind::Retry),
            (2, Kind::Burst),
            (4, Kind::Check),
            (2, Kind::Poll),
            (6, Kind::Complete),
            (2, Kind::Receipts),
            (4, Kind::Pay),
            (2, Kind::Cancel),
            (2, Kind::Resolve),
            (3, Kind::Policy),
            (2, Kind::Freeze),
            (3, Kind::Rule),
            (1, Kind::Rotate),
            (1, Kind::Revoke),
            (1, Kind::Mark),
            (1, Kind::Invent),
            (9, Kind::Reconcile),
            (2, Kind::Parts),
            (1, Kind::WrongKey),
            (5, Kind::Pass),
            (4, Kind::RollOff),
            (3, Kind::Deadline),
            (2, Kind::Reorganize),
            (1, Kind::Drain),
            (1, Kind::Fund),
        ]);
        let early = self.rng.one_in(3);
        match kind {
            Kind::Authorize => Op::Authorize {
                buy: self.buy(agent, key),
                carry: None,
                first_key: self.rng.one_in(12),
            },
            Kind::Retry => Op::Authorize {
                buy: self.buy(agent, key),
                carry: Some(if self.rng.one_in(6) { self.rng.small(KEYS) } else { key }),
                first_key: false,
            },
            Kind::Burst => {
                let service = self.rng.small(SERVICES);
                let units = *self.rng.pick(&[1, 60, 90]);
                let burst = Op::Burst {
                    agent,
                    service,
                    units,
                    count: 9 + self.rng.small(3),
                };
                // Then more payments have left the window than one page of the window has.
                let secs = *self.rng.pick(&[40_000, 86_400, 90_000]);
                let again = Op::Burst {
                    agent,
                    service,
                    units: 240,
                    count: 4,
                };
                self.agenda.push(vec![Op::Pass { secs }, again]);
                burst
            }
            Kind::Check => Op::Check {
                buy: self.buy(agent, key),
                replay: self.rng.small(4),
            },
            Kind::Poll => Op::Poll { agent, key },
            Kind::Complete => Op::Complete {
                agent,
                key,
                proof: match self.rng.below(8) {
                    0 => Proof::False,
                    1 => Proof::Foreign,
                    2 => Proof::Of(self.rng.small(KEYS)),
                    _ => Proof::True,
                },
            },
            Kind::Receipts => Op::Receipts { agent },
            Kind::Pay => Op::Pay {
                agent,
                key,
                how: self.pay(),
            },
            Kind::Cancel => Op::Cancel { agent, key },
            Kind::Resolve => Op::Resolve {
                agent,
                key,
                yes: !self.rng.one_in(4),
            },
            Kind::Policy => Op::Policy {
                agent,
                service: self.rng.small(SERVICES),
                caps: self.rng.small(CAPS),
                on: !self.rng.one_in(6),
            },
            Kind::Freeze => Op::Freeze {
                agent,
                frozen: self.rng.one_in(2),
            },
            Kind::Rule => Op::Rule {
                agent,
                rule: self.rng.small(RULES),
                on: !self.rng.one_in(3),
            },
            Kind::Rotate => Op::Rotate {
                agent,
                secs: *self.rng.pick(&[0, 1, 60]),
            },
            Kind::Revoke => Op::Revoke { agent },
            Kind::Mark => Op::Mark { agent, key },
            Kind::Reconcile => Op::Reconcile {
                secs: *self.rng.pick(&[15, 16, 60]),
            },
            Kind::Invent => Op::Invent {
                agent,
                key,
                count: 12 + self.rng.small(12),
            },
            Kind::Parts => {
                self.in_parts = true;
                Op::Reconcile { secs: 60 }
            }
            Kind::WrongKey => Op::ReconcileWithWrongKey,
            Kind::Pass => Op::Pass {
                secs: *self.rng.pick(&[1, 3, 10, 60, 400, 3_600, 20_000, 50_000]),
            },
            Kind::RollOff => {
                let service = self.rng.small(SERVICES);
                self.rush = Some((agent, service));
                Op::PassToRollOff { agent, service, early }
            }
            Kind::Deadline => Op::PassToDeadline { agent, key, early },
            Kind::Reorganize => Op::Reorganize {
                depth: 1 + self.rng.small(6),
            },
            Kind::Drain => Op::Drain { agent },
            Kind::Fund => Op::Fund { agent },
        }
    }
}
