//! The error envelope (`docs/spec.md` §7). It is built from the [`ErrorKind`] alone, so the cause of an error can't
//! reach a caller.

use crate::view::decision::{DecisionView, OrNull, format_retry_time};
use purser_domain::{
    ApprovalStatus, Block, DomainPattern, ErrorKind, FailedProofs, Freeze, KeyLack, NoTransaction, OperationSlug,
    Reason, Refusal, Target, TransactionId, UnlistedCall, Unpayable, ValidationError, WithdrawalRejection,
};
use purser_macros::view;

/// The body of every error response. Use `error` to distinguish errors. The other fields depend on `error`.
#[view(Error)]
#[omit_none]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorBody {
    /// The error's slug.
    #[schema(example = "invalid_request")]
    pub error: String,
    /// A message for humans that states what to do next.
    pub message: String,
    /// `SERVICE_NOT_ENABLED` if `error` is `service_not_enabled`; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    pub code: Option<&'static str>,
    /// All validation errors of the request. Absent if the only validation error is a missing field that `error`
    /// already names (`<field>_required`).
    pub details: Option<Vec<ProblemView>>,
    /// The ID of the blocked or escalated decision in the audit log.
    pub transaction_id: Option<TransactionId>,
    /// The `decision_hash` of the signed statement about this blocked or escalated decision: a SHA-256 over the
    /// decision. Absent if an earlier call made the decision.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub decision_hash: Option<String>,
    /// The approval to wait for, or the approval that was already used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Uuid)]
    pub approval_id: Option<OrNull<String>>,
    /// The settlement that an earlier request authorized; null if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Uuid)]
    pub settlement_id: Option<OrNull<String>>,
    /// The status of the approval that can no longer be decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, example = "approved")]
    pub status: Option<&'static str>,
    /// The service that already has the slug (`slug_taken`), or that the agent may not pay (`service_not_enabled`).
    pub service_id: Option<String>,
    /// The current version of the resource.
    pub version: Option<u64>,
    /// The operation that the request named; null if the request named none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub operation_id: Option<OrNull<String>>,
    /// The operations that the agent may use; null for all operations of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub enabled_operations: Option<OrNull<Vec<String>>>,
    /// The target's host, which is missing from `allowed_domains`.
    pub hostname: Option<String>,
    /// The hosts that scrape and crawl operations of this agent may fetch.
    pub allowed_domains: Option<Vec<String>>,
    /// The price of the call, in micro-units.
    pub amount_units: Option<u64>,
    /// The request's `max_payment_units`.
    pub max_payment_units: Option<u64>,
    /// The cap per call, in micro-units.
    pub max_per_call_units: Option<u64>,
    /// The amount authorized in the last 24 hours, in micro-units.
    pub spend_today: Option<u64>,
    /// The cap per rolling 24 hours, in micro-units.
    pub max_per_day_units: Option<u64>,
    /// The earliest time at which the same call fits into the limits; null if the call can never fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub retry_at: Option<OrNull<String>>,
    /// The policy's threshold, in micro-units. Calls above it need approval.
    pub require_approval_above_units: Option<u64>,
    /// The rule that requires approval; absent if the policy's threshold requires approval.
    pub rule_id: Option<String>,
    /// The rule's threshold, in micro-units. Calls above it need approval.
    pub rule_above_units: Option<u64>,
    /// The wallet's balance, in USDC.
    #[schema(example = "0.25")]
    pub balance_usdc: Option<String>,
    /// The price of the call, in USDC.
    #[schema(example = "1.5")]
    pub required_usdc: Option<String>,
    /// The address of the agent's wallet.
    pub wallet_address: Option<String>,
    /// The reason, in snake case: why the chain does not confirm the payment, or why the withdrawal is rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, example = "usdc_transfer_mismatch")]
    pub reason: Option<&'static str>,
    /// The permission that the key lacks: `read`, `pay`, `service`, `network` or `run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, example = "pay")]
    pub missing: Option<&'static str>,
    /// Whether the same request may succeed later.
    pub retryable: Option<bool>,
    /// Seconds to wait before the next attempt, as in `Retry-After`.
    pub retry_after: Option<u64>,
    /// The name of the required ID token claim that is missing or has the wrong value. The claim grants access to the
    /// service.
    pub claim: Option<String>,
    /// The maximum age of the sign-in, in seconds. Sign in again to continue.
    pub max_age_seconds: Option<u64>,
    /// The maximum length of a request body, in bytes.
    pub limit_bytes: Option<usize>,
    /// The blocked or escalated decision, with the result of every check.
    pub decision: Option<DecisionView>,
    /// The `X-Request-Id` of this response.
    pub request_id: Option<String>,
}

purser_macros::views! {
    /// A validation error: one element of `details`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ProblemView {
        fn from(error: &ValidationError);

        /// JSON Pointer into the request body, or `/<name>` for a query parameter.
        #[schema(example = "/max_payment_units")]
        pub path: String = error.path.clone(),
        /// The requirement that the value does not meet.
        #[schema(example = "must be an integer")]
        pub message: String = error.message.clone(),
    }
}

impl From<&ErrorKind> for ErrorBody {
    fn from(kind: &ErrorKind) -> Self {
        Self {
            error: kind.slug(),
            ..error_body(kind)
        }
    }
}

/// Returns the envelope without the slug and the request id.
fn error_body(kind: &ErrorKind) -> ErrorBody {
    match kind {
        ErrorKind::InvalidRequest(errors) => ErrorBody {
            details: Some(errors.iter().map(ProblemView::from).collect()),
            ..body_with_message("the request is not valid; `details` names every problem")
        },
        ErrorKind::FieldRequired {
            field,
            problems: errors,
        } => ErrorBody {
            details: validation_error_details(field, errors),
            ..body_with_message(format!("`{field}` is required"))
        },
        ErrorKind::InvalidAgentKey => {
            body_with_message("the agent key is missing, malformed, unknown, revoked or expired")
        }
        ErrorKind::KeyNotAllowed { missing } => ErrorBody {
            missing: Some(missing.name()),
            ..body_with_message(key_not_allowed_message(*missing))
        },
        ErrorKind::InvalidAuthorizationHeader => {
            body_with_message("the `Authorization` header must be of the form `Bearer <public>:<secret>`")
        }
        ErrorKind::InvalidSession => {
            body_with_message("the session is missing, malformed, expired or from another issuer; sign in")
        }
        ErrorKind::InvalidInternalToken => body_with_message("the `X-Internal-Token` header is missing or wrong"),
        ErrorKind::NotEntitled { claim } => ErrorBody {
            claim: Some(claim.clone()),
            ..body_with_message(format!(
                "your account has no `{claim}` that entitles it to use Purser; ask the administrator of the accounts"
            ))
        },
        ErrorKind::RecentSignInRequired { max_age_seconds } => ErrorBody {
            max_age_seconds: Some(*max_age_seconds),
            ..body_with_message(format!(
                "this request requires a sign-in within the last {max_age_seconds} s; sign in again, then send the same request with the new session"
            ))
        },
        ErrorKind::SecondOperatorRequired => body_with_message(
            "you requested this change yourself; it takes effect at its `from`, or when another operator accepts it",
        ),
        ErrorKind::CrossSiteRequest => {
            body_with_message("the request does not come from our own pages; reload the page and try again")
        }
        ErrorKind::Refused(rejection) => rejection_body(rejection),
        ErrorKind::UnpaidRefused(rejection) => ErrorBody {
            decision: Some(DecisionView::new(
                &rejection.reason,
                &rejection.checks,
                rejection.latency_ms,
            )),
            ..reason_body(&rejection.reason)
        },
        ErrorKind::ServiceNotFound => body_with_message("no service in the catalog matches this request"),
        ErrorKind::NotFound => body_with_message("not found, or not visible to this caller"),
        ErrorKind::IdempotencyKeyReused { settlement } => ErrorBody {
            settlement_id: Some(OrNull(settlement.map(|id| id.to_string()))),
            ..body_with_message(
                "this key belongs to a different request; send that request unchanged, or use a new key",
            )
        },
        ErrorKind::IdempotentReplay { approval, settlement } => ErrorBody {
            approval_id: Some(OrNull(Some(approval.to_string()))),
            settlement_id: Some(OrNull(Some(settlement.to_string()))),
            ..body_with_message("this approval has already been used; fetch the settlement that it authorized")
        },
        ErrorKind::SettlementTransactionAlreadyUsed => body_with_message(
            "this transaction has already confirmed another settlement; if it made this payment too, as several payments in one transaction do, the receipt is confirmed without a further call: read it after `expires_at`, and do not pay again",
        ),
        ErrorKind::ApprovalNotPending { approval, status } => ErrorBody {
            approval_id: Some(OrNull(Some(approval.to_string()))),
            status: Some(status.name()),
            ..body_with_message(no_longer_pending_message(*status))
        },
        ErrorKind::SlugTaken { service } => ErrorBody {
            service_id: Some(service.to_string()),
            ..body_with_message(format!("this slug is taken by service `{service}`; choose another one"))
        },
        ErrorKind::PayoutRefused(rejection) => withdrawal_rejection_body(rejection),
        ErrorKind::TooManyFreezes { limit } => body_with_message(format!(
            "{limit} freezes are in force, the maximum; end one that is no longer needed, or freeze the owner or the deployment"
        )),
        ErrorKind::VersionConflict { version } => ErrorBody {
            version: Some(*version),
            ..body_with_message(if *version == 0 {
                "nothing is stored here yet; to create it, send `If-Match: \"0\"`".to_owned()
            } else {
                format!(
                    "the current version is {version}; read the resource again, then send the change with that version"
                )
            })
        },
        ErrorKind::VersionRequired => {
            body_with_message("`If-Match` is required: the `ETag` that you read, or `*` for any version")
        }
        ErrorKind::RequestTooLarge { limit } => ErrorBody {
            limit_bytes: Some(*limit),
            ..body_with_message(format!("the request body is over {limit} bytes"))
        },
        ErrorKind::ProviderProofRequired => body_with_message(
            "`payment_response_header` is required: the provider's payment response, as it was received",
        ),
        ErrorKind::SettlementTransactionHashRequired(cause) => body_with_message(match cause {
            NoTransaction::Undecodable => {
                "`payment_response_header` can't be decoded as a JSON object or its base64; send it as it was received, or the transaction's hash as `tx_hash`"
            }
            NoTransaction::Unnamed => {
                "the provider's payment response names no transaction; send its hash as `tx_hash`"
            }
        }),
        ErrorKind::SettlementNotVerified { reason } => ErrorBody {
            reason: Some(reason),
            retryable: Some(false),
            ..body_with_message(if *reason == FailedProofs::TOO_MANY {
                "too many transactions were sent that did not make this payment, so no more are checked; if it was paid, its receipt is finalized without them"
            } else {
                "this transaction did not make the authorized payment; a retry won't change that"
            })
        },
        ErrorKind::SettlementNotYetVerified { reason, retry_after } => ErrorBody {
            reason: Some(reason),
            retryable: Some(true),
            retry_after: Some(*retry_after),
            ..body_with_message(
                "the chain does not show the payment yet; send the same request again, and do not pay twice",
            )
        },
        ErrorKind::ChainUnavailable { retry_after } => ErrorBody {
            reason: Some("chain_unavailable"),
            retryable: Some(true),
            retry_after: Some(*retry_after),
            ..body_with_message("the chain can't be reached now; send the same request again, and do not pay twice")
        },
        ErrorKind::TooManyRequests { retry_after } => ErrorBody {
            retry_after: Some(*retry_after),
            ..body_with_message(format!("too many requests; wait {retry_after} s"))
        },
        ErrorKind::TemporarilyUnavailable { retry_after } => ErrorBody {
            retry_after: Some(*retry_after),
            ..body_with_message(format!(
                "the request can't be served right now; send the same request again in {retry_after} s"
            ))
        },
        ErrorKind::Internal => body_with_message("an unexpected error on our side; the same request can be sent again"),
    }
}

fn withdrawal_rejection_body(rejection: &WithdrawalRejection) -> ErrorBody {
    let body = match rejection {
        WithdrawalRejection::NotSetUp => body_with_message("this deployment makes no payouts: it has no facilitator"),
        WithdrawalRejection::Frozen(freeze) => body_with_message(frozen_message(*freeze)),
        WithdrawalRejection::NoAddress => {
            body_with_message("no payout address is set; set one, and wait until it can be used")
        }
        WithdrawalRejection::AddressWaits { good_from } => ErrorBody {
            retry_at: Some(OrNull(Some(good_from.to_string()))),
            ..body_with_message(format!("the payout address can't be used before {good_from}"))
        },
        WithdrawalRejection::PayoutOpen { settlement, until } => ErrorBody {
            settlement_id: Some(OrNull(Some(settlement.to_string()))),
            retry_at: Some(OrNull(Some(until.to_string()))),
            ..body_with_message(format!(
                "another payout is in progress; it settles or expires soon after {until}; then try again"
            ))
        },
        WithdrawalRejection::InsufficientBalance { balance } => ErrorBody {
            balance_usdc: Some(balance.to_usdc()),
            ..body_with_message(format!("the wallet holds {} USDC", balance.to_usdc()))
        },
    };
    ErrorBody {
        reason: Some(rejection.reason_name()),
        ..body
    }
}

/// Returns the validation errors for `details`. Returns `None` if the only error is the missing field that the slug
/// `<field>_required` names.
fn validation_error_details(field: &str, errors: &[ValidationError]) -> Option<Vec<ProblemView>> {
    match errors {
        [] => None,
        [only] if only.path.strip_prefix('/') == Some(field) => None,
        _ => Some(errors.iter().map(ProblemView::from).collect()),
    }
}

fn rejection_body(rejection: &Refusal) -> ErrorBody {
    ErrorBody {
        transaction_id: Some(rejection.transaction),
        decision_hash: rejection.hash.map(|hash| hash.to_string()),
        retry_at: rejection.reason.retry_at().map(|at| OrNull(format_retry_time(at))),
        decision: Some(DecisionView::from(rejection)),
        ..reason_body(&rejection.reason)
    }
}

fn reason_body(reason: &Reason) -> ErrorBody {
    match reason {
        Reason::ServiceNotEnabled { service } => ErrorBody {
            code: Some("SERVICE_NOT_ENABLED"),
            service_id: Some(service.to_string()),
            ..body_with_message(format!(
                "`{service}` is not enabled for this agent; its owner can enable it in the dashboard"
            ))
        },
        Reason::OperationNotEnabled {
            operation,
            enabled,
            unlisted,
        } => ErrorBody {
            operation_id: Some(OrNull(operation.as_ref().map(ToString::to_string))),
            enabled_operations: Some(OrNull(enabled.as_deref().map(to_strings))),
            ..body_with_message(match unlisted {
                Some(call) => no_operation_message(call),
                None => operation_not_enabled_message(operation.as_ref()),
            })
        },
        Reason::DomainNotAllowed { hostname, allowed } => ErrorBody {
            hostname: Some(hostname.clone()),
            allowed_domains: Some(to_strings::<DomainPattern>(allowed)),
            ..body_with_message(outside_allowed_domains_message(hostname, allowed))
        },
        Reason::AmountExceedsMax { amount, max_payment } => ErrorBody {
            amount_units: Some(amount.units()),
            max_payment_units: Some(max_payment.units()),
            ..body_with_message(format!(
                "the price of {amount} units is above the request's `max_payment_units` of {max_payment}"
            ))
        },
        Reason::PerCallLimit { amount, max_per_call } => ErrorBody {
            amount_units: Some(amount.units()),
            max_per_call_units: Some(max_per_call.units()),
            ..body_with_message(format!(
                "the price of {amount} units is above the limit of {max_per_call} per call"
            ))
        },
        Reason::PolicyBlocked(block) => body_with_message(block_message(block)),
        Reason::DailyLimit {
            spend_today,
            amount,
            max_per_day,
            retry_at: _,
        } => ErrorBody {
            spend_today: Some(spend_today.units()),
            amount_units: Some(amount.units()),
            max_per_day_units: Some(max_per_day.units()),
            ..body_with_message(format!(
                "{spend_today} units count in the last 24 hours; {amount} more would exceed the limit of {max_per_day}"
            ))
        },
        Reason::ApprovalRequired {
            approval,
            amount,
            threshold,
            asking: asking_limits,
        } => {
            let first = asking_limits.first().and_then(|limit| Some((limit.rule?, limit.above)));
            ErrorBody {
                approval_id: Some(OrNull(approval.map(|id| id.to_string()))),
                amount_units: Some(amount.units()),
                require_approval_above_units: Some(threshold.units()),
                rule_id: first.map(|(rule, _)| rule.to_string()),
                rule_above_units: first.map(|(_, above)| above.units()),
                ..body_with_message(
                    "a person has to approve this payment; poll the approval, then repeat the request with `approval_id`",
                )
            }
        }
        Reason::InsufficientBalance {
            balance,
            required,
            wallet,
        } => {
            let (balance, required, wallet) = (balance.to_usdc(), required.to_usdc(), wallet.to_checksum(None));
            ErrorBody {
                message: format!("the wallet holds {balance} USDC and the call costs {required}; fund {wallet}"),
                balance_usdc: Some(balance),
                required_usdc: Some(required),
                wallet_address: Some(wallet),
                ..ErrorBody::default()
            }
        }
    }
}

fn outside_allowed_domains_message(hostname: &str, allowed: &[DomainPattern]) -> String {
    let target = Target::parse(&format!("http://{hostname}/"));
    if target.is_ok_and(|target| allowed.iter().any(|pattern| pattern.matches(&target))) {
        format!("`{hostname}`, which the call names, is not the host of `metadata.target_url`")
    } else {
        format!("`{hostname}` matches no entry of the allowed domains")
    }
}

fn operation_not_enabled_message(operation: Option<&OperationSlug>) -> String {
    match operation {
        Some(operation) => format!("`{operation}` is not among the operations that are enabled for this agent"),
        None => "the request names no operation that is enabled for this agent; name one as `operation_id`".to_owned(),
    }
}

fn no_operation_message(call: &UnlistedCall) -> String {
    let UnlistedCall {
        service,
        called,
        listed,
    } = call;
    if listed.is_empty() {
        return format!("no operation of `{service}` is `{called}`; it lists none");
    }
    let listed = listed.join("`, `");
    format!("no operation of `{service}` is `{called}`; it lists `{listed}`")
}

fn block_message(block: &Block) -> String {
    match block {
        Block::AgentFrozen(freeze) => frozen_message(*freeze).to_owned(),
        Block::Category(category) => format!("a rule blocks the category `{}`", category.name()),
        Block::Vendor(service) => format!("`{service}` is not among the vendors that a rule allows"),
        Block::Unpayable(unpayable) => unpayable_message(*unpayable).to_owned(),
        Block::PayeeNotInCatalog => "the offer pays another wallet than the operation's in the catalog".to_owned(),
        Block::PayeeTooYoung { retry_at } => {
            format!("the operation's payee or price has changed, and is not paid before {retry_at}")
        }
        Block::PayeeIsPayer => "the offer pays the agent's own wallet".to_owned(),
        Block::PriceAboveCatalog { max } => {
            format!("the offer's price is above the catalog's maximum of {max} units")
        }
        Block::Budget { limit, used, .. } => {
            format!("{used} units of a budget of {limit} are used; this call would exceed it")
        }
        Block::Schedule { .. } => "a rule allows payments only at other times".to_owned(),
        Block::Count { count, used, .. } => {
            format!("{used} of {count} payments that a rule allows within a time were authorized")
        }
        Block::Interval { interval, .. } => {
            format!(
                "a rule allows no payment within {} seconds after another",
                interval.secs()
            )
        }
        Block::Duplicate { within, .. } => format!(
            "the same call, or {} different calls, were paid in the last {} seconds; to get the same call's stored payment, repeat \
             its `idempotency_key`",
            purser_domain::MAX_RECENT_CALLS,
            within.secs()
        ),
        Block::PriceAboveUsual { most, .. } => {
            format!("the price is above the usual one; a rule allows at most {most} units")
        }
        Block::ApprovalRejected => "the approval was rejected".to_owned(),
        Block::ApprovalExpired => {
            "the approval has expired; ask again with a new `idempotency_key` and without `approval_id`".to_owned()
        }
        Block::ApprovalMismatch => "the approval is for another request; repeat the approved one unchanged".to_owned(),
        Block::TooManyApprovals { limit } => {
            format!("{limit} approvals of this agent are pending, the maximum; wait until some are decided")
        }
    }
}

const fn frozen_message(freeze: Freeze) -> &'static str {
    match freeze {
        Freeze::Own => "this agent is frozen; its owner can unfreeze it in the dashboard",
        Freeze::Agent => "an operator has frozen this agent; only operators can unfreeze it",
        Freeze::Owner => "an operator has frozen all agents of this agent's owner; only operators can unfreeze them",
        Freeze::Deployment => {
            "an operator has frozen all payments of this deployment; only operators can unfreeze them"
        }
    }
}

const fn unpayable_message(unpayable: Unpayable) -> &'static str {
    match unpayable {
        Unpayable::NoPayment => "the catalog lists no payment for this operation, so no call of it is paid",
        Unpayable::OtherNetwork => "the catalog lists a payment on another network for this operation",
        Unpayable::NoMaximum => "this operation has no fixed price, and the catalog no maximum for it",
        Unpayable::PlainHttp => "the catalog lists a plain http address for this operation, and payments need https",
    }
}

const fn key_not_allowed_message(missing: KeyLack) -> &'static str {
    match missing {
        KeyLack::Read => "this key may only pay; use one that may read, or ask the agent's owner for one",
        KeyLack::Pay => "this key may only read; use one that may pay, or ask the agent's owner for one",
        KeyLack::Service => "this key does not cover this service; use one that does, or ask the agent's owner for one",
        KeyLack::Network => {
            "this key may not be used from this address; call from an allowed network, or use another key"
        }
        KeyLack::Run => {
            "this key can't open a run: it is a grant, a run's key, or a key with its own budget or count limit, which would \
             not count the run's payments"
        }
    }
}

fn no_longer_pending_message(status: ApprovalStatus) -> String {
    match status {
        ApprovalStatus::Expired => "this approval has expired; the agent has to ask again".to_owned(),
        ApprovalStatus::Pending => "this request waits for a decision; reject it instead".to_owned(),
        ApprovalStatus::Approved | ApprovalStatus::Rejected | ApprovalStatus::Executed => {
            format!("this approval is {} already", status.name())
        }
    }
}

fn body_with_message(message: impl Into<String>) -> ErrorBody {
    ErrorBody {
        message: message.into(),
        ..ErrorBody::default()
    }
}

fn to_strings<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}
