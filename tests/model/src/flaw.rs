//! Planted bugs. `every_planted_error_breaks_its_invariant` checks that a model finds each bug through the invariant
//! that the test names.

macro_rules! flaws {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// A bug planted in one transition or one process.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Flaw { $($(#[$doc])+ $name,)+ }

        impl Flaw {
            /// Every planted bug.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }
    };
}

flaws! {
    /// A reservation doesn't check the version of the policy on its window.
    ReserveIgnoresPolicyStamp,
    /// A reservation doesn't check the version of the agent on its window.
    ReserveIgnoresAgentStamp,
    /// A reservation doesn't check whether later entries were evicted.
    ReserveIgnoresHorizon,
    /// A reservation doesn't check whether the total still is as it was read.
    ReserveIgnoresRoom,
    /// A reservation subtracts entries that another write has already evicted.
    EvictsWhatIsGone,
    /// An idempotency key that has a payment gets another one.
    KeyIsOverwritten,
    /// An executed approval is executed again.
    ApprovalIsUsedTwice,
    /// An approval is executed after it expired.
    ApprovalHasNoEnd,
    /// An executed approval is withdrawn.
    RulingIgnoresState,
    /// A person who isn't the owner decides an approval.
    AnybodyRules,
    /// The default policy is written although the agent was edited since it was read.
    DefaultIgnoresAgent,
    /// An eviction lowers the horizon to the time of its newest entry.
    EvictionLowersHorizon,
    /// An edit of a policy doesn't update the version on its window.
    EditStampsNothing,
    /// An edit of an agent returns before it updates the version on the window.
    EditSkipsFence,
    /// A repeated edit that was already stored returns before it updates the version on the window.
    RepeatedEditSkipsFence,
    /// A payment is signed before its reservation is stored.
    SignsBeforeReserve,
    /// A repeated request is evaluated again, instead of returning the stored payment.
    RepetitionDecidesAnew,
    /// A decision doesn't read the operators' freeze.
    FreezeIsNotRead,
    /// A release doesn't check the state of its settlement.
    ReleaseIgnoresState,
    /// A release doesn't check whether the settlement still counts from the time that was read.
    ReleaseIgnoresCountedAt,
    /// A release doesn't subtract from the total.
    ReleaseKeepsTotal,
    /// A release relies on the local clock instead of the time of a final block.
    ReleaseByClock,
    /// A release relies on a single RPC endpoint.
    ReleaseAsksOneEndpoint,
    /// A confirmation of a held payment doesn't check whether it was released.
    ConfirmIgnoresState,
    /// A payment is confirmed before its transaction is claimed.
    ConfirmsWithoutClaim,
    /// A confirmation accepts a block that isn't final.
    ConfirmsAtTheHead,
    /// A proof compares only block numbers, and takes a block for final although the endpoint has another block with
    /// this number.
    FinalByNumber,
    /// A payment is matched by payee and amount, without its nonce.
    MatchesWithoutNonce,
    /// A claim replaces the claim of another settlement.
    ClaimIsOverwritten,
    /// A claim is removed while a confirmation depends on it.
    RemovalIgnoresConfirmation,
    /// The removal of a claim isn't recorded on the settlement.
    RemovalLeavesNoMark,
    /// A payment that is confirmed late counts from a time whose entries were evicted.
    LateEntryIgnoresHorizon,
    /// A revert deletes the entry from the window.
    RevertReleases,
    /// A reverted settlement isn't added to the index of holds.
    RevertLeavesIndex,
    /// A withdrawal doesn't check the version of the record.
    PayoutIgnoresVersion,
    /// A withdrawal doesn't wait until its address can be used.
    PayoutIgnoresWait,
    /// A withdrawal doesn't check whether the latest one is still open.
    PayoutIgnoresLatest,
    /// A withdrawal goes to an address that an earlier owner has set.
    PayoutIgnoresPerson,
    /// A withdrawal is reserved for the earlier owner after the agent got a new one.
    PayoutIgnoresHandover,
    /// A transfer of ownership doesn't check whether the agent was edited.
    HandoverIgnoresAgent,
    /// A transfer of ownership doesn't check whether its offer was withdrawn or replaced.
    HandoverIgnoresOffer,
    /// An offer is accepted after it expired.
    OfferHasNoEnd,
    /// An approval is moved to the owner that was read, without a check of the agent.
    MoveIgnoresAgent,
    /// An acceptance returns before the approvals are moved.
    AcceptSkipsApprovals,
    /// An entry of the decision history is replaced by an earlier record.
    EntryIgnoresSequence,
    /// Sums are updated without a check of the sequence number.
    SumsIgnoreSequence,
    /// A run of `reconcile` begins with the holds that earlier runs could not decide.
    UndecidedStaysFirst,
    /// A run of `reconcile` spends all its calls on one tenant.
    NoTurns,
    /// A browser session changes a freeze that was set with a token.
    FreezeIgnoresAuthority,
    /// A freeze is changed or ended although it differs from the one that was read.
    FreezeIgnoresWhatWasRead,
    /// A new freeze keeps the request to end the previous one.
    RequestOutlivesFreeze,
}
