//! Planted errors. `every_planted_error_breaks_its_invariant` shows that a model finds each of them, by the law that names it.

macro_rules! flaws {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// An error planted in one transition or one process.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Flaw { $($(#[$doc])+ $name,)+ }

        impl Flaw {
            /// Every planted error.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }
    };
}

flaws! {
    /// A reservation ignores the version of the policy on its window.
    ReserveIgnoresPolicyStamp,
    /// A reservation ignores the fence of its window.
    ReserveIgnoresAgentStamp,
    /// A reservation ignores that later entries were evicted.
    ReserveIgnoresHorizon,
    /// A reservation relies on the total that it has read.
    ReserveIgnoresRoom,
    /// A reservation subtracts entries that another write has evicted.
    EvictsWhatIsGone,
    /// A key that has paid is bound anew.
    KeyIsOverwritten,
    /// A used approval pays again.
    ApprovalIsUsedTwice,
    /// An approval pays after its end.
    ApprovalHasNoEnd,
    /// A withdrawal changes an approval that was used.
    RulingIgnoresState,
    /// Anybody decides an approval.
    AnybodyRules,
    /// The default policy is written for an agent that was edited since.
    DefaultIgnoresAgent,
    /// An eviction makes the time of its newest entry the horizon, even if the horizon is later.
    EvictionLowersHorizon,
    /// An edit of a policy does not stamp its window.
    EditStampsNothing,
    /// An edit of an agent is answered without the fence.
    EditSkipsFence,
    /// A repeated edit that finds itself stored is answered without the fence.
    RepeatedEditSkipsFence,
    /// A payment is signed before its reservation is known.
    SignsBeforeReserve,
    /// A repetition of a key is decided anew.
    RepetitionDecidesAnew,
    /// The operators' freeze is not read.
    FreezeIsNotRead,
    /// A release ignores the state of its settlement.
    ReleaseIgnoresState,
    /// A release ignores that the settlement counts from another time since it was read.
    ReleaseIgnoresCountedAt,
    /// A release leaves the total.
    ReleaseKeepsTotal,
    /// A release goes by a clock, and not by the time of a final block.
    ReleaseByClock,
    /// A release asks one endpoint.
    ReleaseAsksOneEndpoint,
    /// A confirmation of a held payment ignores that it was released.
    ConfirmIgnoresState,
    /// A payment is confirmed before its transaction is claimed.
    ConfirmsWithoutClaim,
    /// A confirmation accepts a block that is not final.
    ConfirmsAtTheHead,
    /// A proof takes a block for final by its number, from an endpoint with another block of that number.
    FinalByNumber,
    /// A payment is matched by payee and amount, without its nonce.
    MatchesWithoutNonce,
    /// A claim replaces another settlement's.
    ClaimIsOverwritten,
    /// A claim is removed while a confirmation rests on it.
    RemovalIgnoresConfirmation,
    /// The removal of a claim leaves no mark on its settlement.
    RemovalLeavesNoMark,
    /// A payment that is confirmed late counts from a time whose entries were evicted.
    LateEntryIgnoresHorizon,
    /// A revert deletes the window's entry.
    RevertReleases,
    /// A reverted settlement is not in the index of holds.
    RevertLeavesIndex,
    /// A payout ignores that its record has changed.
    PayoutIgnoresVersion,
    /// A payout does not wait for its address.
    PayoutIgnoresWait,
    /// A payout ignores that the latest one is open.
    PayoutIgnoresLatest,
    /// A payout goes to an address that another owner has named.
    PayoutIgnoresPerson,
    /// A payout is reserved for the earlier owner after the handover that it did not see.
    PayoutIgnoresHandover,
    /// A handover ignores that the agent was edited.
    HandoverIgnoresAgent,
    /// A handover ignores that its offer was withdrawn or replaced.
    HandoverIgnoresOffer,
    /// An offer is accepted after its end.
    OfferHasNoEnd,
    /// An approval moves to whom its mover has read as owner.
    MoveIgnoresAgent,
    /// The acceptance is answered before the approvals have moved.
    AcceptSkipsApprovals,
    /// A journal entry is replaced by an earlier record.
    EntryIgnoresSequence,
    /// Sums are added without their sequence number.
    SumsIgnoreSequence,
    /// A run of reconcile begins with what it could not decide.
    UndecidedStaysFirst,
    /// A run of reconcile spends all its calls on one tenant.
    NoTurns,
    /// A browser changes a freeze that was set with a token.
    FreezeIgnoresAuthority,
    /// A freeze changes or ends although it is another than was read.
    FreezeIgnoresWhatWasRead,
    /// A freeze that begins again keeps the request to end the earlier one.
    RequestOutlivesFreeze,
}
