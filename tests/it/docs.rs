//! Compares the documentation with the code: errors, checks, citations, and the OpenAPI document.

use purser_api::Failure;
use purser_chain::Pending;
use purser_domain::{
    Address, AgentId, Amount, ApprovalId, ApprovalStatus, Block, Category, CheckName, Duration, ErrorKind, Fingerprint,
    Freeze, KeyLack, Mismatch, NoTransaction, Reason, Refusal, RetryAt, RuleId, ServiceId, ServiceSlug, SettlementId,
    Timestamp, TransactionId, Unpayable, WithdrawalRejection,
};
use purser_testkit::Template;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use uuid::Uuid;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text_of(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the section of `docs/errors.md` for an error. Add each new kind of error here and to [`every_error`].
fn section_of(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidRequest(_) => "invalid_request",
        ErrorKind::FieldRequired { .. } => "<field>_required",
        ErrorKind::InvalidAgentKey => "invalid_agent_key",
        ErrorKind::KeyNotAllowed { .. } => "key_not_allowed",
        ErrorKind::InvalidAuthorizationHeader => "invalid_authorization_header",
        ErrorKind::InvalidSession => "invalid_session",
        ErrorKind::InvalidInternalToken => "invalid_internal_token",
        ErrorKind::NotEntitled { .. } => "not_entitled",
        ErrorKind::RecentSignInRequired { .. } => "recent_sign_in_required",
        ErrorKind::SecondOperatorRequired => "second_operator_required",
        ErrorKind::CrossSiteRequest => "cross_site_request",
        ErrorKind::Refused(refusal) => section_of_reason(&refusal.reason),
        // The section of the denial's reason also documents this error.
        ErrorKind::UnpaidRefused(refusal) => section_of_reason(&refusal.reason),
        ErrorKind::PayoutRefused(_) => "payout_refused",
        ErrorKind::ServiceNotFound => "service_not_found",
        ErrorKind::NotFound => "not_found",
        ErrorKind::IdempotencyKeyReused { .. } => "idempotency_key_reused_for_different_request",
        ErrorKind::IdempotentReplay { .. } => "idempotent_replay",
        ErrorKind::SettlementTransactionAlreadyUsed => "settlement_transaction_already_used",
        ErrorKind::ApprovalNotPending { .. } => "approval_not_pending",
        ErrorKind::SlugTaken { .. } => "slug_taken",
        ErrorKind::TooManyFreezes { .. } => "too_many_freezes",
        ErrorKind::VersionConflict { .. } => "version_conflict",
        ErrorKind::VersionRequired => "version_required",
        ErrorKind::RequestTooLarge { .. } => "request_too_large",
        ErrorKind::ProviderProofRequired => "provider_proof_required",
        ErrorKind::SettlementTransactionHashRequired(_) => "settlement_transaction_hash_required",
        ErrorKind::SettlementNotVerified { .. }
        | ErrorKind::SettlementNotYetVerified { .. }
        | ErrorKind::ChainUnavailable { .. } => "onchain_settlement_not_verified",
        ErrorKind::TooManyRequests { .. } => "too_many_requests",
        ErrorKind::TemporarilyUnavailable { .. } => "temporarily_unavailable",
        ErrorKind::Internal => "internal_error",
    }
}

fn section_of_reason(reason: &Reason) -> &'static str {
    match reason {
        Reason::ServiceNotEnabled { .. } => "service_not_enabled",
        Reason::OperationNotEnabled { .. } => "operation_not_enabled_for_agent",
        Reason::DomainNotAllowed { .. } => "domain_not_allowed",
        Reason::AmountExceedsMax { .. } => "amount_exceeds_max",
        Reason::PerCallLimit { .. } => "amount_exceeds_per_call_limit",
        Reason::PolicyBlocked(_) => "policy_blocked",
        Reason::DailyLimit { .. } => "daily_spend_limit_exceeded",
        Reason::ApprovalRequired { .. } => "approval_required",
        Reason::InsufficientBalance { .. } => "insufficient_usdc_balance",
    }
}

/// Returns one error of every kind.
fn every_error() -> Vec<ErrorKind> {
    let (nil, amount) = (Uuid::nil(), Amount::ZERO);
    let settlement = SettlementId::from_uuid(nil);
    let approval = ApprovalId::derive(AgentId::from_uuid(nil), &Fingerprint::for_text("x"), 0);
    let refused = |reason| {
        ErrorKind::Refused(Box::new(Refusal {
            transaction: TransactionId::from_uuid(nil),
            reason,
            checks: Vec::new(),
            hash: None,
            latency_ms: 0,
        }))
    };
    let reasons = [
        Reason::ServiceNotEnabled {
            service: ServiceSlug::parse("x").unwrap(),
        },
        Reason::OperationNotEnabled {
            operation: None,
            enabled: None,
            unlisted: None,
        },
        Reason::DomainNotAllowed {
            hostname: "x".to_owned(),
            allowed: Vec::new(),
        },
        Reason::AmountExceedsMax {
            amount,
            max_payment: amount,
        },
        Reason::PerCallLimit {
            amount,
            max_per_call: amount,
        },
        Reason::PolicyBlocked(Block::AgentFrozen(Freeze::Own)),
        Reason::DailyLimit {
            spend_today: amount,
            amount,
            max_per_day: amount,
            retry_at: RetryAt::Never,
        },
        Reason::ApprovalRequired {
            approval: None,
            amount,
            threshold: amount,
            asking: Vec::new(),
        },
        Reason::InsufficientBalance {
            balance: amount,
            required: amount,
            wallet: Address::ZERO,
        },
    ];
    // `docs/errors.md` names one field as an example.
    let field = ErrorKind::FieldRequired {
        field: "max_payment_units",
        problems: Vec::new(),
    };
    let others = [
        ErrorKind::InvalidRequest(Vec::new()),
        ErrorKind::InvalidAgentKey,
        ErrorKind::InvalidAuthorizationHeader,
        KeyLack::Pay.into(),
        ErrorKind::InvalidSession,
        ErrorKind::InvalidInternalToken,
        ErrorKind::NotEntitled { claim: "x".to_owned() },
        ErrorKind::RecentSignInRequired { max_age_seconds: 1 },
        ErrorKind::SecondOperatorRequired,
        ErrorKind::CrossSiteRequest,
        ErrorKind::ServiceNotFound,
        ErrorKind::NotFound,
        ErrorKind::IdempotencyKeyReused { settlement: None },
        ErrorKind::IdempotentReplay { approval, settlement },
        ErrorKind::SettlementTransactionAlreadyUsed,
        ErrorKind::ApprovalNotPending {
            approval,
            status: ApprovalStatus::Approved,
        },
        ErrorKind::PayoutRefused(WithdrawalRejection::NoAddress),
        ErrorKind::SlugTaken {
            service: ServiceId::from_uuid(nil),
        },
        ErrorKind::TooManyFreezes { limit: 1 },
        ErrorKind::VersionConflict { version: 1 },
        ErrorKind::VersionRequired,
        ErrorKind::RequestTooLarge { limit: 1 },
        ErrorKind::ProviderProofRequired,
        ErrorKind::SettlementTransactionHashRequired(NoTransaction::Unnamed),
        ErrorKind::SettlementNotVerified { reason: "x" },
        ErrorKind::SettlementNotYetVerified {
            reason: "x",
            retry_after: 2,
        },
        ErrorKind::ChainUnavailable { retry_after: 2 },
        ErrorKind::TooManyRequests { retry_after: 1 },
        ErrorKind::TemporarilyUnavailable { retry_after: 1 },
        ErrorKind::Internal,
    ];
    reasons.into_iter().map(refused).chain([field]).chain(others).collect()
}

/// Returns the text of each section of `docs/errors.md` whose title is a slug.
fn catalogue() -> BTreeMap<String, String> {
    let text = text_of("docs/errors.md");
    let mut sections = BTreeMap::new();
    for part in text.split("\n### `").skip(1) {
        let (slug, rest) = part.split_once('`').expect("a closing backtick");
        let rest = rest.split("\n## ").next().unwrap_or_default();
        assert!(
            sections.insert(slug.to_owned(), rest.to_owned()).is_none(),
            "{slug} has two sections"
        );
    }
    sections
}

#[test]
fn the_error_documentation_matches_the_code() {
    let catalogue = catalogue();
    let mut told = BTreeSet::new();
    for kind in every_error() {
        let (slug, section) = (kind.slug(), section_of(&kind));
        if section == "<field>_required" {
            let text = &catalogue[section];
            assert!(
                text.contains(&format!("`{slug}`")),
                "docs/errors.md, {section}: {slug} is missing"
            );
        } else {
            assert_eq!(slug, section);
        }
        let text = catalogue
            .get(section)
            .unwrap_or_else(|| panic!("docs/errors.md has no section `{section}`"));
        let status = Failure::from(kind).status().as_u16().to_string();
        assert!(
            text.contains(&status),
            "docs/errors.md, {section}: the status is {status}"
        );
        told.insert(section.to_owned());
    }
    let written: BTreeSet<String> = catalogue.into_keys().collect();
    assert_eq!(written, told);
}

/// `World::send` checks the other direction: an operation returns only errors in its description.
#[test]
fn every_promised_error_is_provoked_by_a_test() {
    let tests = ["tests/it", "functions/dashboard/tests"].map(|folder| root().join(folder));
    let sources = written_files().into_iter();
    let sources = sources.filter(|path| tests.iter().any(|folder| path.starts_with(folder)));
    let sources: Vec<String> = sources.map(|path| fs::read_to_string(path).unwrap()).collect();
    let promised = purser_testkit::promised_errors();
    assert!(promised.values().all(|errors| errors.len() > 1), "{promised:?}");
    let slugs: BTreeSet<&String> = promised.values().flatten().map(|(_, slug)| slug).collect();
    for slug in slugs {
        // A table in `bodies.rs` provokes each `<field>_required`.
        let text = if slug == "<field>_required" {
            "_required\"".to_owned()
        } else {
            format!("\"{slug}\"")
        };
        assert!(
            sources.iter().any(|source| source.contains(&text)),
            "no test provokes `{slug}`"
        );
    }
}

/// The OpenAPI document and `docs/errors.md` have the same text for each error.
#[test]
fn the_error_catalogue_contains_the_texts_of_the_openapi_document() {
    let sections = catalogue();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for error in purser_api::errors::ALL {
        let section = words(&sections[error.slug]);
        assert!(
            section.contains(&words(error.text)),
            "docs/errors.md, {}: {}",
            error.slug,
            error.text
        );
        assert!(
            section.contains(&error.status.to_string()),
            "docs/errors.md, {}",
            error.slug
        );
    }
    let described: BTreeSet<&str> = purser_api::errors::ALL.iter().map(|error| error.slug).collect();
    let documented: BTreeSet<&str> = sections.keys().map(String::as_str).collect();
    assert_eq!(described, documented);
}

#[test]
fn the_policy_checks_are_documented_in_order() {
    let text = text_of("docs/errors.md");
    let (_, section) = text.split_once("\n## 4. ").expect("§4");
    let documented: Vec<&str> = section
        .lines()
        .filter_map(|line| {
            let (number, check) = line.split_once(". `")?;
            number.parse::<usize>().ok()?;
            check.split('`').next()
        })
        .collect();
    let names: Vec<&str> = CheckName::ALL.iter().map(|check| check.name()).collect();
    assert_eq!(documented, names);
}

/// Returns the `decision.reason` of a block as in `docs/errors.md`. Add each new kind of block here and to
/// [`every_block`].
fn row_of(block: &Block) -> String {
    match block {
        Block::Category(_) => "category_block:<category>".to_owned(),
        Block::Vendor(_) => "vendor_allowlist:<service>".to_owned(),
        Block::Budget { .. }
        | Block::Schedule { .. }
        | Block::Count { .. }
        | Block::Interval { .. }
        | Block::Duplicate { .. }
        | Block::PriceAboveUsual { .. } => format!("{}:<rule id>", block.triggered_rule()),
        Block::AgentFrozen(_)
        | Block::Unpayable(_)
        | Block::PayeeNotInCatalog
        | Block::PayeeTooYoung { .. }
        | Block::PayeeIsPayer
        | Block::PriceAboveCatalog { .. }
        | Block::ApprovalRejected
        | Block::ApprovalExpired
        | Block::ApprovalMismatch
        | Block::TooManyApprovals { .. } => block.reason_text(),
    }
}

/// Returns one block of every kind.
fn every_block() -> Vec<Block> {
    let (amount, now) = (Amount::ZERO, Timestamp::from_secs(0).unwrap());
    let freezes = [Freeze::Own, Freeze::Agent, Freeze::Owner, Freeze::Deployment].map(Block::AgentFrozen);
    let unpayable = Unpayable::ALL.iter().copied().map(Block::Unpayable);
    let others = [
        Block::Category(Category::Finance),
        Block::Vendor(ServiceSlug::parse("x").unwrap()),
        Block::PayeeNotInCatalog,
        Block::PayeeTooYoung { retry_at: now },
        Block::PayeeIsPayer,
        Block::PriceAboveCatalog { max: amount },
        Block::Budget {
            rule: RuleId::from_uuid(Uuid::nil()),
            limit: amount,
            used: amount,
            retry_at: RetryAt::Never,
        },
        Block::Schedule {
            rule: RuleId::from_uuid(Uuid::nil()),
            retry_at: RetryAt::Never,
        },
        Block::Count {
            rule: RuleId::from_uuid(Uuid::nil()),
            count: amount,
            used: amount,
            retry_at: RetryAt::Never,
        },
        Block::Interval {
            rule: RuleId::from_uuid(Uuid::nil()),
            interval: Duration::DAY,
            retry_at: RetryAt::Never,
        },
        Block::Duplicate {
            rule: RuleId::from_uuid(Uuid::nil()),
            within: Duration::DAY,
            retry_at: now,
        },
        Block::PriceAboveUsual {
            rule: RuleId::from_uuid(Uuid::nil()),
            most: amount,
        },
        Block::ApprovalRejected,
        Block::ApprovalExpired,
        Block::ApprovalMismatch,
        Block::TooManyApprovals { limit: 1 },
    ];
    freezes.into_iter().chain(unpayable).chain(others).collect()
}

/// Returns the reasons with which a proof of a settlement can fail.
fn reasons_of_proofs() -> BTreeSet<String> {
    let pending = [Pending::NotMined, Pending::NotFinal { missing: 1 }].map(Pending::reason);
    let others = ["transaction_unknown", "too_many_failed_proofs", "chain_unavailable"];
    let reasons = Mismatch::ALL
        .iter()
        .map(|mismatch| mismatch.name())
        .chain(pending)
        .chain(others);
    reasons.map(str::to_owned).collect()
}

/// Returns the reasons of a rejected withdrawal.
fn reasons_of_payouts() -> BTreeSet<String> {
    let (settlement, at) = (SettlementId::from_uuid(Uuid::nil()), Timestamp::from_secs(0).unwrap());
    let frozen = [Freeze::Agent, Freeze::Owner, Freeze::Deployment].map(WithdrawalRejection::Frozen);
    let others = [
        WithdrawalRejection::NotSetUp,
        WithdrawalRejection::NoAddress,
        WithdrawalRejection::AddressWaits { good_from: at },
        WithdrawalRejection::PayoutOpen { settlement, until: at },
        WithdrawalRejection::InsufficientBalance { balance: Amount::ZERO },
    ];
    let refusals = frozen.into_iter().chain(others);
    refusals.map(|refusal| refusal.reason_name().to_owned()).collect()
}

/// Returns the words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the words in backticks in the first column of a section's table.
fn first_cells(section: &str) -> BTreeSet<String> {
    let (_, rows) = section.split_once("\n|---").unwrap_or_default();
    let cells = rows
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(quoted).map(str::to_owned).collect()
}

#[test]
fn the_error_documentation_lists_exactly_the_reasons() {
    let catalogue = catalogue();
    let blocks = every_block().iter().map(row_of).collect();
    for (section, reasons) in [
        ("policy_blocked", blocks),
        ("onchain_settlement_not_verified", reasons_of_proofs()),
        ("payout_refused", reasons_of_payouts()),
    ] {
        assert_eq!(first_cells(&catalogue[section]), reasons, "{section}");
    }
}

/// Collects the names of fields and the enumerated values in the API's description.
fn described_words(document: &Value, words: &mut BTreeSet<String>) {
    match document {
        Value::Object(members) => {
            for (name, member) in members {
                words.insert(name.clone());
                described_words(member, words);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| described_words(item, words)),
        Value::String(text) => _ = words.insert(text.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the slugs in the section of `docs/errors.md` about `/mcp`.
fn slugs_of_mcp() -> BTreeSet<String> {
    let page = text_of("docs/errors.md");
    let (_, section) = page.split_once("\n## 5. ").expect("§5");
    first_cells(section)
}

#[test]
fn documented_mcp_slugs_occur_in_the_source() {
    let source = text_of("functions/mcp/src/protocol.rs");
    for slug in slugs_of_mcp() {
        assert!(source.contains(&format!("\"{slug}\"")), "{slug}");
    }
}

#[test]
fn every_documented_error_value_can_be_produced() {
    // A parameter of OpenID Connect.
    let mut known = BTreeSet::from(["max_age".to_owned()]);
    described_words(
        &serde_json::from_str(&text_of("docs/openapi.json")).unwrap(),
        &mut known,
    );
    known.extend(every_error().iter().map(ErrorKind::slug));
    known.extend(
        every_block()
            .iter()
            .flat_map(|block| [row_of(block), block.triggered_rule().to_owned()]),
    );
    known.extend(CheckName::ALL.iter().map(|check| check.name().to_owned()));
    known.extend(
        [reasons_of_proofs(), reasons_of_payouts(), slugs_of_mcp()]
            .into_iter()
            .flatten(),
    );
    let page = text_of("docs/errors.md");
    // `bodies.rs` compares the slugs of missing fields.
    let is_name = |word: &&str| word.contains('_') && !word.contains(' ') && !word.ends_with("_required");
    let is_lower = |word: &&str| word.chars().all(|letter| !letter.is_ascii_uppercase() && letter != '…');
    let unknown: BTreeSet<&str> = quoted(&page)
        .filter_map(|word| word.rsplit('.').next())
        .filter(is_name)
        .filter(is_lower)
        .filter(|word| !known.contains(*word))
        .collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// Returns the pages of the documentation except for the specification.
fn pages() -> Vec<(PathBuf, String)> {
    let files = written_files().into_iter();
    let pages =
        files.filter(|file| file.extension().is_some_and(|kind| kind == "md") && !file.ends_with("docs/spec.md"));
    pages
        .map(|file| (file.clone(), fs::read_to_string(file).unwrap()))
        .collect()
}

/// A slug follows its status, as in ``404 `not_found` ``.
#[test]
fn documented_slugs_exist_in_the_error_documentation() {
    let mut known: BTreeSet<String> = catalogue().into_keys().chain(slugs_of_mcp()).collect();
    let fields = catalogue().remove("<field>_required").unwrap_or_default();
    known.extend(quoted(&fields).map(str::to_owned));
    for (file, text) in pages() {
        for (at, _) in text.match_indices(" `") {
            let status = text[..at].rsplit(|letter: char| !letter.is_ascii_digit()).next();
            if status.is_none_or(|status| status.len() != 3 || !status.starts_with(['4', '5'])) {
                continue;
            }
            let mut rest = &text[at + 1..];
            while let Some((word, after)) = rest.strip_prefix('`').and_then(|rest| rest.split_once('`')) {
                assert!(known.contains(word), "{}: {word}", file.display());
                rest = after.strip_prefix(", ").unwrap_or_default();
            }
        }
    }
}

/// A merge can leave two versions of a row.
#[test]
fn documentation_tables_have_one_row_per_name() {
    for (file, text) in pages() {
        let mut names = BTreeSet::new();
        for line in text.lines().map(str::trim) {
            let Some(row) = line.strip_prefix('|') else {
                names.clear();
                continue;
            };
            let name = row.split(" | ").next().unwrap_or_default().trim();
            assert!(
                name.is_empty() || names.insert(name),
                "{}: {name} twice",
                file.display()
            );
        }
    }
}

/// A merge can leave two items with the same number.
#[test]
fn numbered_lists_in_documents_count_from_one() {
    for (file, text) in pages() {
        let mut last = 0;
        let mut fenced = false;
        for line in text.lines().map(str::trim) {
            fenced ^= line.starts_with("```");
            if line.starts_with('#') {
                last = 0;
            }
            let number = line.split_once(". ").and_then(|(number, _)| number.parse::<u32>().ok());
            if let Some(number) = number.filter(|_| !fenced) {
                assert_eq!(number, last + 1, "{}: {line}", file.display());
                last = number;
            }
        }
    }
}

/// Returns the hand-written text files except for this file, whose examples are no citations.
fn written_files() -> Vec<PathBuf> {
    const FOLDERS: [&str; 9] = [
        ".cargo",
        ".config",
        "clients",
        "docs",
        "functions",
        "fuzz",
        "infra",
        "shared",
        "tests",
    ];
    const SINGLE: [&str; 9] = [
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "Cargo.toml",
        "Makefile",
        "README.md",
        "SECURITY.md",
        "events/README.md",
        "template.yaml",
    ];
    const KINDS: [&str; 8] = ["rs", "md", "toml", "mjs", "py", "sh", "sol", "yaml"];
    let mut files: Vec<PathBuf> = SINGLE.map(|file| root().join(file)).into();
    let mut folders: Vec<PathBuf> = FOLDERS.map(|folder| root().join(folder)).into();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                // These folders contain installed packages and builds.
                if !["node_modules", "__pycache__", "dist"].contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if KINDS.iter().any(|kind| name.ends_with(&format!(".{kind}"))) && !path.ends_with("it/docs.rs") {
                files.push(path);
            }
        }
    }
    files
}

/// Returns the anchors that GitHub gives to the headings of a page.
fn anchors_of_sections(page: &str) -> BTreeSet<String> {
    page.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
                .map(|letter| if letter == ' ' { '-' } else { letter })
                .collect()
        })
        .collect()
}

/// Returns the numbers of a document's sections, such as `7` of `## 7. Errors`.
fn numbers_of_sections(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let numbers = headings.filter_map(|line| {
        let number = line.trim_start_matches('#').split_whitespace().next()?;
        Some(number.trim_end_matches('.').to_owned())
    });
    numbers
        .filter(|number| number.starts_with(|first: char| first.is_ascii_digit()))
        .collect()
}

/// Returns whether the character can be part of a file name.
fn is_of_a_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.')
}

/// Returns the section numbers after a citation, as in `` §3.3, §7`` or ``) §2.1 to §2.3``.
fn sections_after(rest: &str) -> Vec<String> {
    let mut sections = Vec::new();
    let mut rest = rest.trim_start_matches(['`', ')', ',']);
    loop {
        rest = ["", " to", " and"]
            .into_iter()
            .find_map(|word| rest.strip_prefix(word)?.strip_prefix(" §"))
            .unwrap_or_default();
        let end = rest
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .unwrap_or(rest.len());
        let (section, after) = rest.split_at(end);
        if section.is_empty() {
            return sections;
        }
        sections.push(section.trim_end_matches('.').to_owned());
        rest = after.strip_prefix(',').unwrap_or(after);
    }
}

#[test]
fn every_documentation_reference_resolves() {
    let mut wrong = Vec::new();
    let mut cited = 0;
    for file in written_files() {
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let is_page = file.extension().is_some_and(|kind| kind == "md");
        // A citation in a comment may span two lines.
        let text: String = text
            .lines()
            .map(|line| line.trim_start().trim_start_matches(['/', '!', '#', '*']).trim())
            .collect::<Vec<_>>()
            .join(" ");
        let here = file.strip_prefix(root()).unwrap_or(&file).display().to_string();

        for (at, _) in text.match_indices("docs/") {
            let (before, rest) = (&text[..at], &text[at + "docs/".len()..]);
            if before.ends_with(|letter| is_of_a_name(letter) || letter == '/') && !before.ends_with("../") {
                continue;
            }
            let end = rest.find(|letter| !is_of_a_name(letter)).unwrap_or(rest.len());
            let (name, rest) = rest.split_at(end);
            let name = name.trim_end_matches('.');
            if !name.contains('.') || name.ends_with(".new") {
                continue;
            }
            cited += 1;
            let Ok(page) = fs::read(root().join("docs").join(name)) else {
                wrong.push(format!("{here}: there is no docs/{name}"));
                continue;
            };
            // Only Markdown pages have sections.
            let page = String::from_utf8_lossy(&page);
            let numbers = numbers_of_sections(&page);
            for section in sections_after(rest) {
                if !numbers.contains(&section) {
                    wrong.push(format!("{here}: docs/{name} has no §{section}"));
                }
            }
        }

        // Links are relative to the page that contains them.
        for (at, _) in text.match_indices("](").filter(|_| is_page) {
            let rest = &text[at + 2..];
            let Some((target, rest)) = rest.split_once(')') else {
                continue;
            };
            if target.contains("://") {
                continue;
            }
            cited += 1;
            let (target, anchor) = target.split_once('#').unwrap_or((target, ""));
            let page = match target {
                "" => file.clone(),
                target => file.parent().unwrap_or(Path::new(".")).join(target),
            };
            let Ok(page) = fs::read(page) else {
                wrong.push(format!("{here}: {target} is not there"));
                continue;
            };
            // Only Markdown pages have sections.
            let page = String::from_utf8_lossy(&page);
            if !anchor.is_empty() && !anchors_of_sections(&page).contains(anchor) {
                wrong.push(format!("{here}: {target} has no heading #{anchor}"));
            }
            let numbers = numbers_of_sections(&page);
            for section in sections_after(rest) {
                if !numbers.contains(&section) {
                    wrong.push(format!("{here}: {target} has no §{section}"));
                }
            }
        }

        // A comment must cite a page with its folder.
        for page in ["spec.md", "decisions.md", "errors.md", "data-model.md", "x402.md"] {
            for (at, _) in text.match_indices(page).filter(|_| !is_page) {
                let before = &text[..at];
                if !before.ends_with("docs/") && !before.ends_with(is_of_a_name) {
                    wrong.push(format!("{here}: cites {page} without docs/"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        cited > 50,
        "only {cited} citations were found: is this test still looking?"
    );
}

/// Compares the routes in `template.yaml` with those in the OpenAPI document. One function has all routes with operator
/// tokens, and no others.
#[test]
fn the_sam_template_and_openapi_have_equal_routes() {
    let template = Template::of_repository();
    let routed: BTreeSet<(String, String, bool)> = template
        .routes()
        .into_iter()
        .filter(|route| route.path != "$default")
        // A `HEAD` route belongs to a `GET` route that is described.
        .filter(|route| route.method != "HEAD")
        .filter(|route| route.path != "/dashboard" && !route.path.starts_with("/dashboard/"))
        // A path parameter of OpenAPI can't have several segments, as the path of a tile has.
        .filter(|route| route.path != "/log/tile/{proxy+}")
        .map(|route| {
            let is_internal = route.function == "InternalFunction";
            // These routes respond to further methods, which are not described: 405 for MCP, and preflight requests.
            if route.method == "ANY" {
                let method = if route.path.starts_with("/.well-known/") {
                    "get"
                } else {
                    "post"
                };
                return (method.to_owned(), route.path, is_internal);
            }
            (route.method.to_ascii_lowercase(), route.path, is_internal)
        })
        .collect();
    let document: Value = serde_json::from_str(&text_of("docs/openapi.json")).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let described: BTreeSet<(String, String, bool)> = paths
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap();
            methods.iter().map(|(method, operation)| {
                let is_internal = operation["security"][0].get("internalToken").is_some();
                (method.clone(), path.clone(), is_internal)
            })
        })
        .collect();
    assert_eq!(routed, described);
}

#[test]
fn agent_guides_match_the_openapi_document() {
    let document: Value = serde_json::from_str(&text_of("docs/openapi.json")).unwrap();
    let [overview, skill] = ["llms.txt", "SKILL.md"].map(|name| text_of(&format!("functions/catalog/guide/{name}")));
    for link in overview.split("](").skip(1) {
        let path = link.split(')').next().unwrap();
        assert!(document["paths"][path]["get"]["security"].is_null(), "{path}");
        assert!(document["paths"][path]["get"].is_object(), "{path}");
    }
    let quoted: Vec<String> = skill
        .split('`')
        .skip(1)
        .step_by(2)
        .map(|text| text.replace('\n', " "))
        .collect();
    let mut routes = 0;
    for text in &quoted {
        if let Some((method, path)) = text.split_once(" /") {
            let method = method.to_ascii_lowercase();
            assert!(document["paths"][format!("/{path}")][method].is_object(), "{text}");
            routes += 1;
        }
    }
    assert_eq!(routes, 12);

    let (_, refused) = skill.split_once("## When a payment is denied").unwrap();
    let errors = text_of("docs/errors.md");
    let refusals = refused.lines().filter_map(|line| line.strip_prefix("- "));
    for list in refusals.map(|line| line.split(": ").next().unwrap()) {
        for slug in list.split('`').skip(1).step_by(2) {
            assert!(errors.contains(&format!("### `{slug}`")), "{slug}");
        }
    }
    let members = serde_json::to_string(&document["components"]["schemas"]).unwrap() + &errors;
    let is_member = |text: &&String| {
        text.find('_').is_some_and(|at| at > 0) && text.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    };
    for member in quoted.iter().filter(is_member) {
        assert!(
            members.contains(&format!("\"{member}\"")) || errors.contains(&format!("`{member}`")),
            "{member}"
        );
    }
}

#[test]
fn the_openapi_document_matches_the_code() {
    let written = purser_local::openapi().unwrap();
    assert!(
        text_of("docs/openapi.json") == written,
        "docs/openapi.json is not what the code says: run `make openapi`"
    );
}

/// Clients can request only the kinds in the description.
#[test]
fn both_audit_logs_document_every_kind() {
    let document: Value = serde_json::from_str(&text_of("docs/openapi.json")).unwrap();
    let kinds: Vec<&str> = purser_domain::AuditKind::ALL.iter().map(|kind| kind.name()).collect();
    for path in ["/audit-log", "/internal/audit-log"] {
        let parameters = document["paths"][path]["get"]["parameters"].as_array().unwrap();
        let kind = parameters.iter().find(|parameter| parameter["name"] == "kind").unwrap();
        assert_eq!(kind["schema"]["pattern"], format!("^({})$", kinds.join("|")), "{path}");
    }
}

#[test]
fn openapi_operation_ids_are_unique_and_links_resolve() {
    let document: Value = serde_json::from_str(&text_of("docs/openapi.json")).unwrap();
    let paths = document["paths"].as_object().unwrap().values();
    let operations: Vec<&Value> = paths
        .flat_map(|methods| methods.as_object().unwrap().values())
        .collect();
    let names: BTreeSet<&str> = operations
        .iter()
        .map(|operation| operation["operationId"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), operations.len(), "{names:?}");
    let responses = operations
        .iter()
        .flat_map(|operation| operation["responses"].as_object().unwrap().values());
    let links: Vec<&Value> = responses
        .filter_map(|response| response["links"].as_object())
        .flat_map(|links| links.values())
        .collect();
    assert!(!links.is_empty());
    for link in links {
        assert!(names.contains(link["operationId"].as_str().unwrap()), "{link}");
    }
}

/// The schemas of one value must not require different types.
#[test]
fn openapi_schemas_are_consistent() {
    fn walk(value: &Value) {
        if let Some(all) = value["allOf"].as_array() {
            let types: BTreeSet<String> = all
                .iter()
                .map(|schema| &schema["type"])
                .filter(|kind| !kind.is_null())
                .map(Value::to_string)
                .collect();
            assert!(types.len() <= 1, "{value}");
        }
        match value {
            Value::Object(members) => members.values().for_each(walk),
            Value::Array(items) => items.iter().for_each(walk),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    walk(&serde_json::from_str(&text_of("docs/openapi.json")).unwrap());
}

/// The schema of a string that may be rejected for its content must restrict the string.
#[test]
fn body_string_schemas_declare_their_allowed_values() {
    fn walk<'a>(document: &'a Value, schema: &'a Value, at: &str, loose: &mut BTreeSet<String>) {
        match schema {
            Value::Object(members) => {
                if let Some(pointer) = members.get("$ref").and_then(Value::as_str) {
                    let name = pointer.trim_start_matches('#');
                    walk(document, document.pointer(name).unwrap(), name, loose);
                }
                let kind = &schema["type"];
                let is_text = kind == "string" || kind.as_array().is_some_and(|kinds| kinds.contains(&"string".into()));
                if is_text
                    && !["pattern", "format", "enum", "const"]
                        .iter()
                        .any(|word| members.contains_key(*word))
                {
                    loose.insert(at.to_owned());
                }
                for (name, member) in members {
                    walk(document, member, &format!("{at}/{name}"), loose);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(document, item, at, loose)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document: Value = serde_json::from_str(&text_of("docs/openapi.json")).unwrap();
    let mut loose = BTreeSet::new();
    for methods in document["paths"].as_object().unwrap().values() {
        for operation in methods.as_object().unwrap().values() {
            walk(&document, &operation["requestBody"], "", &mut loose);
        }
    }
    // These strings have no restrictions: metadata, and a provider's data.
    let metadata = "/components/schemas/Metadata/additionalProperties";
    let proof = "/components/schemas/ProviderProof/oneOf";
    let expected = [metadata.to_owned(), proof.to_owned(), format!("{proof}/propertyNames")];
    assert_eq!(Vec::from_iter(loose), expected);
}

#[test]
fn the_architecture_page_lists_every_crate() {
    let map = text_of("ARCHITECTURE.md");
    let named: BTreeSet<&str> = map
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|text| text.contains('/') && !text.contains(' ') && !text.starts_with(['/', '<']))
        .collect();
    assert!(named.len() > 20, "{named:?}");
    for path in &named {
        assert!(root().join(path).exists(), "{path}");
    }
    let shared = fs::read_dir(root().join("shared")).unwrap();
    let functions = fs::read_dir(root().join("functions")).unwrap();
    for crate_folder in shared.chain(functions).map(|entry| entry.unwrap().path()) {
        let name = crate_folder.strip_prefix(root()).unwrap().to_str().unwrap();
        assert!(named.contains(name), "{name} is not on the map");
    }
}
