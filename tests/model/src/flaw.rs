//! Planted bugs. `every_planted_model_bug_breaks_the_expected_invariant` checks that a model finds each bug.

macro_rules! flaws {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// A bug planted in a transition or a process of the models.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Flaw { $($(#[$doc])+ $name,)+ }

        impl Flaw {
            /// Every planted bug.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }
    };
}

flaws! {
    /// A reservation doesn't check the policy version stored on the window.
    ReserveIgnoresPolicyStamp,
    /// A reservation doesn't check the agent version stored on the window.
    ReserveIgnoresAgentStamp,
    /// A reservation doesn't check whether another write evicted later payments from the window.
    ReserveIgnoresHorizon,
    /// A reservation doesn't check whether the window's total has changed since it was read.
    ReserveIgnoresRoom,
    /// A reservation subtracts amounts that another write has already evicted from the window.
    EvictsWhatIsGone,
    /// An idempotency key that already has a payment gets a second payment.
    KeyIsOverwritten,
    /// An executed approval is executed again.
    ApprovalIsUsedTwice,
    /// An approval is executed after it expired.
    ApprovalHasNoEnd,
    /// An owner withdraws an approval that a payment has already used.
    RulingIgnoresState,
    /// A user who isn't the agent's owner decides an approval.
    AnybodyRules,
    /// The default policy is written although the agent has changed since the read.
    DefaultIgnoresAgent,
    /// An eviction lowers the window's eviction watermark to the time of the newest payment that it evicts.
    EvictionLowersHorizon,
    /// An update of a policy doesn't store the policy's new version on the window.
    EditStampsNothing,
    /// An update of an agent returns before it stores the agent's new version on the window.
    EditSkipsFence,
    /// A repeated update of an agent returns before the agent's new version is stored on the window.
    RepeatedEditSkipsFence,
    /// A payment is signed before its reservation is stored.
    SignsBeforeReserve,
    /// A repeated request is evaluated again, instead of returning the stored payment.
    RepetitionDecidesAnew,
    /// A decision doesn't read the operators' freeze.
    FreezeIsNotRead,
    /// A release doesn't check whether its settlement is still authorized.
    ReleaseIgnoresState,
    /// A release doesn't check whether the time from which the settlement counts has changed since the read.
    ReleaseIgnoresCountedAt,
    /// A release doesn't subtract the amount from the window's total.
    ReleaseKeepsTotal,
    /// A release relies on the local clock instead of the time of a final block.
    ReleaseByClock,
    /// A release relies on a single RPC endpoint.
    ReleaseAsksOneEndpoint,
    /// A confirmation of a held payment doesn't check whether it was released.
    ConfirmIgnoresState,
    /// A payment is confirmed before the payment's transaction is claimed.
    ConfirmsWithoutClaim,
    /// A confirmation accepts a transaction in a block that isn't final.
    ConfirmsAtTheHead,
    /// A confirmation compares only block numbers, so a removed block with the same number counts as final.
    FinalByNumber,
    /// A transfer is matched with a payment by payee and amount, without the nonce.
    MatchesWithoutNonce,
    /// A claim replaces the claim of another settlement.
    ClaimIsOverwritten,
    /// A claim is removed while a confirmation depends on it.
    RemovalIgnoresConfirmation,
    /// The removal of a claim isn't recorded in the settlement's row.
    RemovalLeavesNoMark,
    /// A released payment is confirmed and counts again, at a time up to which the window was already cleared.
    LateEntryIgnoresHorizon,
    /// A revert of a confirmation leaves the payment out of the window.
    RevertReleases,
    /// A reverted settlement isn't added to the index of holds.
    RevertLeavesIndex,
    /// A withdrawal doesn't check the version of the agent's withdrawal record.
    PayoutIgnoresVersion,
    /// A withdrawal goes to a new address before the delay for new addresses has passed.
    PayoutIgnoresWait,
    /// A withdrawal doesn't check whether the latest withdrawal is still open.
    PayoutIgnoresLatest,
    /// A withdrawal goes to an address that an earlier owner has set.
    PayoutIgnoresPerson,
    /// A withdrawal for the previous owner is reserved after an ownership transfer.
    PayoutIgnoresHandover,
    /// An ownership transfer doesn't check whether the agent has changed since the read.
    HandoverIgnoresAgent,
    /// An ownership transfer doesn't check whether its offer was withdrawn or replaced.
    HandoverIgnoresOffer,
    /// An offer is accepted after it expired.
    OfferHasNoEnd,
    /// An approval is moved to the owner that was read, without a check that the agent still has this owner.
    MoveIgnoresAgent,
    /// The acceptance of an ownership transfer returns before the approvals are moved.
    AcceptSkipsApprovals,
    /// An earlier stream record replaces an entry of the decision history.
    EntryIgnoresSequence,
    /// The sums of the decision history are updated without a check of the sequence number.
    SumsIgnoreSequence,
    /// A run of `reconcile` begins with the settlements that earlier runs could not decide.
    UndecidedStaysFirst,
    /// A run of `reconcile` spends all its calls to the node on one tenant.
    NoTurns,
    /// A browser session changes a freeze that was set with a token.
    FreezeIgnoresAuthority,
    /// A freeze is changed or ended although the stored freeze differs from the freeze that was read.
    FreezeIgnoresWhatWasRead,
    /// A new freeze keeps the request to end the previous freeze.
    RequestOutlivesFreeze,
}
