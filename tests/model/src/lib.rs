//! A model of the protocol, checked exhaustively within bounds by `stateright`.

pub mod flaw;
pub mod law;
pub mod ledger;
pub mod payout;
pub mod reserve;
pub mod settle;
pub mod world;

/// A property for each law: no reachable state breaks it. Every state has the laws that it, or a step to it, breaks.
macro_rules! laws {
    ($($law:ident),+ $(,)?) => {
        /// The laws that this model checks.
        pub const LAWS: &[$crate::law::Law] = &[$($crate::law::Law::$law),+];

        fn laws<M: stateright::Model<State = State>>() -> Vec<stateright::Property<M>> {
            vec![$(stateright::Property::always($crate::law::Law::$law.words(), |_, state: &State| {
                !state.world.broken.has($crate::law::Law::$law)
            })),+]
        }
    };
}
pub(crate) use laws;
