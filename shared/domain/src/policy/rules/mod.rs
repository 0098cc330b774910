//! The kinds of rules. A kind is a file with the kind's parameters and behaviour, a `mod` line, and a row of
//! `rule_kinds!`.

mod approval_exception;
mod approval_required;
mod automatic_freeze;
mod budget_limit;
mod category_block;
mod count_limit;
mod duplicate_guard;
mod minimum_interval;
mod new_payee;
mod price_above_usual;
mod rule_window;
mod schedule;
mod vendor_allowlist;

pub use rule_window::*;

use super::{boundaries::Boundaries, check::AskingKind};
use crate::{
    Amount, Catalog, Duration, EvaluationInputs, Rule, RuleScope, ValidationError, WindowMeasure, WindowPeriod,
    catalog::service::named, evidence::document,
};
use std::any::Any;

/// The parameters of a kind of rule, and what the kind does with them. Most kinds need only some of the methods.
pub(super) trait RuleParameters: Any {
    /// Returns whether the rule is at least as strict as `before`. An exception is as strict if it excepts no additional
    /// payment.
    fn is_as_strict_as(&self, before: &Self) -> bool
    where
        Self: Sized;

    /// Returns whether the rule applies to all services to which `before` applies.
    fn covers_services(&self, before: &Self) -> bool
    where
        Self: Sized,
    {
        is_selection_subset(before.scope().services, self.scope().services)
    }

    /// Returns the window of a budget or a count limit.
    fn window(&self) -> Option<&RuleWindow> {
        None
    }

    /// Returns the conditions that select the payments to which the rule applies.
    fn scope(&self) -> RuleScope<'_> {
        self.window().map_or_else(RuleScope::default, RuleWindow::scope)
    }

    /// Returns the unit, the limit and the period of the rule's window; `None` if the rule does not count payments.
    fn counted_limit(&self) -> Option<(WindowMeasure, Amount, WindowPeriod)> {
        None
    }

    /// Returns whether the rule needs an agent's recent payments to a service.
    fn needs_recent_payments(&self) -> bool {
        false
    }

    /// Returns the validation errors of the parameters that are not in the scope, each with a JSON Pointer.
    fn parameter_errors(&self, _catalog: &Catalog) -> Vec<ValidationError> {
        Vec::new()
    }

    /// Returns the kind of the limit and the amount above which the rule requires an approval. Returns `None` if the rule
    /// requires no approval for the payment. `rule` is the rule with these parameters.
    fn exceeded_threshold(&self, _rule: &Rule, _inputs: &EvaluationInputs<'_>) -> Option<(AskingKind, Amount)> {
        None
    }

    /// Adds the values at which an update of the rule may change a decision.
    fn add_boundaries(&self, _boundaries: &mut Boundaries) {}
}

/// Declares a kind of rule: its name in the API and in storage, and its parameters, each with its source in the JSON as
/// in [`document::fields`].
macro_rules! rule_kind {
    (
        $(#[$attribute:meta])*
        $kind:ident = $name:literal {
            $($(#[$doc:meta])* $field:ident: $type:ty = $source:tt $(($detail:expr))? $($presence:ident)?,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $kind {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $kind {
            /// The kind's name in the API and in storage.
            pub const NAME: &str = $name;
        }

        $crate::evidence::document::fields! { $kind { $($field: $source $(($detail))? $($presence)?),* } }
    };
}
use rule_kind;

/// Declares [`RuleKind`]. A row is the path of the kind's parameters and the label of the kind's form.
macro_rules! rule_kinds {
    ($($(#[$doc:meta])* $module:ident::$kind:ident => $label:literal,)*) => {
        $(pub use $module::*;)*

        /// The kind of a rule, with the kind's parameters. An update can't change the kind.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum RuleKind {
            $($(#[$doc])* $kind($kind),)*
        }

        named! {
            /// The name of a kind of rule.
            RuleKindName {
                $($(#[$doc])* $kind = $kind::NAME => $label,)*
            }
        }

        impl RuleKind {
            /// Returns the name of the kind.
            pub const fn kind_name(&self) -> RuleKindName {
                match self { $(Self::$kind(_) => RuleKindName::$kind,)* }
            }

            pub(super) fn parameters(&self) -> &dyn RuleParameters {
                match self { $(Self::$kind(parameters) => parameters,)* }
            }

            /// Returns whether the rule is of the same kind, and at least as strict as `before`. An exception is as
            /// strict if it excepts no additional payment.
            pub fn is_as_strict_as(&self, before: &Self) -> bool {
                match (self, before) {
                    $((Self::$kind(now), Self::$kind(before)) => now.is_as_strict_as(before),)*
                    _ => false,
                }
            }
        }

        impl document::Fields for RuleKind {
            fn write_to(&self, object: &mut document::Object) {
                object.insert("kind".to_owned(), self.name().into());
                match self { $(Self::$kind(parameters) => parameters.write_to(object),)* }
            }

            fn read_from(object: &document::Object) -> Option<Self> {
                Some(match RuleKindName::from_name(object.get("kind")?.as_str()?)? {
                    $(RuleKindName::$kind => Self::$kind(document::Fields::read_from(object)?),)*
                })
            }
        }

        document::fields! { @element RuleKind }
    };
}

rule_kinds! {
    /// The agent may pay at most an amount within a window.
    budget_limit::BudgetLimit => "Budget",
    /// A payment that meets every set condition needs an approval.
    approval_required::ApprovalRequired => "Ask a person",
    /// Payments in some categories are blocked.
    category_block::CategoryBlock => "Block categories",
    /// Only payments to some vendors are allowed.
    vendor_allowlist::VendorAllowlist => "Allow only some vendors",
    /// The agent may make at most a number of payments within a window.
    count_limit::CountLimit => "Number of payments",
    /// The agent may not pay within an interval after the previous payment.
    minimum_interval::MinimumInterval => "Time between payments",
    /// A call with the same [`crate::CallDigest`] as a recent call is denied or needs an approval.
    duplicate_guard::DuplicateGuard => "Same call again",
    /// A payment to a payee whom the agent has not paid before needs an approval.
    new_payee::NewPayee => "New payee",
    /// A price above the operation's usual price is denied or needs an approval.
    price_above_usual::PriceAboveUsual => "Unusual price",
    /// Payments are allowed only at some times.
    schedule::Schedule => "Days and hours",
    /// The agent is frozen after an unusually busy hour.
    automatic_freeze::AutomaticFreeze => "Anomaly brake",
    /// A payment that meets every condition needs no approval for the waived limits.
    approval_exception::ApprovalException => "Always allowed",
}

impl RuleKind {
    /// Returns the kind's name in the API and in storage.
    pub const fn name(&self) -> &'static str {
        self.kind_name().name()
    }

    /// Returns the parameters if the rule is of the kind `T`.
    pub(super) fn as_kind<T: RuleParameters>(&self) -> Option<&T> {
        let parameters: &dyn Any = self.parameters();
        parameters.downcast_ref()
    }

    pub(super) fn is_kind<T: RuleParameters>(&self) -> bool {
        self.as_kind::<T>().is_some()
    }
}

/// Returns whether `now` still contains everything in `before`. `None` contains everything.
pub(super) fn is_selection_subset<T: PartialEq>(before: Option<&[T]>, now: Option<&[T]>) -> bool {
    match (before, now) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(before), Some(now)) => before.iter().all(|item| now.contains(item)),
    }
}

fn range_error(path: &str, number: u32, min: u32, max: u32) -> Option<ValidationError> {
    let is_wrong = !(min..=max).contains(&number);
    is_wrong.then(|| ValidationError::at_path(path, format!("must be a whole number from {min} to {max}")))
}

fn zero_error(path: &str, amount: Amount) -> Option<ValidationError> {
    amount
        .is_zero()
        .then(|| ValidationError::at_path(path, "must not be zero"))
}

/// Returns an error unless the duration is from `min_duration` to [`MAX_BUDGET_WINDOW`].
fn duration_error(path: &str, duration: Duration, min_duration: Duration) -> Option<ValidationError> {
    let is_wrong = !(min_duration..=MAX_BUDGET_WINDOW).contains(&duration);
    is_wrong.then(|| {
        let (min, max) = (min_duration.secs(), MAX_BUDGET_WINDOW.secs());
        ValidationError::at_path(path, format!("must be a whole number of seconds from {min} to {max}"))
    })
}
