//! Tests escalations: a request has one open approval, which one payment can use.

use crate::{assert_sound, at_once, count, ledger_with, request};
use purser_domain::{
    Approval, ApprovalId, ApprovalResolution, ApprovalStatus, AskingKind, AskingLimit, CallDescription, DecisionRecord,
    Duration, Fingerprint, IncreasedCaps, LimitIncreaseRequest, Network, Reason, Resolution, Timestamp, TransactionId,
};
use purser_store::{
    ApprovalDecision, Backoff, DecisionKeys, EscalateResult, Ledger, LimitIncreaseRequestResult, ReserveResult,
    ResolveResult,
};
use purser_testkit::{
    DECISIONS, Emulator, LEDGER, ProxyConfig,
    authorize::{Answer, MAX_WAITING, Request, authorize, grant},
    invariants::scan,
    sample,
};
use std::collections::BTreeSet;

async fn ask(ledger: &Ledger, key: &str, now: Timestamp) -> ApprovalId {
    match authorize(ledger, &request(50, key), now).await.unwrap() {
        Answer::Waits(id) => id,
        other => panic!("{other:?}"),
    }
}

async fn approve(ledger: &Ledger, id: ApprovalId, now: Timestamp) {
    assert!(matches!(
        ledger
            .resolve_approval(id, ApprovalDecision::Approve, &sample::ruling(now), &sample::audit())
            .await
            .unwrap(),
        ResolveResult::Done(_)
    ));
}

fn retry(key: &str, id: ApprovalId) -> Request {
    Request {
        approval: Some(id),
        ..request(50, key)
    }
}

/// The requests have the same idempotency key or different keys.
#[tokio::test]
async fn concurrent_requests_create_one_approval() {
    for keys in [1, 16] {
        let (emulator, ledger) = ledger_with(1_000, 10).await;
        let requests = (0..16).map(|n| request(50, &(n % keys).to_string())).collect();
        let answers = at_once(&ledger, requests, sample::start()).await;
        let approvals: BTreeSet<String> = answers.iter().map(|answer| format!("{answer:?}")).collect();
        assert_eq!(approvals.len(), 1, "{approvals:?}");
        let items = scan(&emulator.client, LEDGER, None).await;
        assert_eq!(
            items
                .iter()
                .filter(|item| item["pk"].as_s().unwrap().starts_with("AP#"))
                .count(),
            1
        );
        assert_eq!(
            scan(&emulator.client, DECISIONS, None).await.len(),
            keys,
            "one decision for each key"
        );
        assert_sound(&emulator).await;
    }
}

#[tokio::test]
async fn stored_approvals_are_found_by_id() {
    let (_emulator, ledger) = ledger_with(1_000, 10).await;
    let start = sample::start();
    let id = ask(&ledger, "k", start).await;
    let approval = ledger.read_approval_by_id(id).await.unwrap().unwrap();
    let asked = request(50, "k");
    assert_eq!(
        (approval.id, approval.agent, approval.service),
        (id, asked.agent, asked.service)
    );
    assert_eq!(
        (approval.fingerprint, approval.amount),
        (asked.fingerprint(), sample::units(50))
    );
    assert_eq!((approval.threshold, approval.created_at), (sample::units(10), start));
    assert_eq!(
        (approval.expires_at, approval.status(start)),
        (start.after(Duration::DAY), ApprovalStatus::Pending)
    );
    let ask = DecisionKeys {
        approval: Some(id),
        ..DecisionKeys::default()
    };
    let (_, seen) = ledger.read_decision_inputs(asked.agent, &ask).await.unwrap();
    assert_eq!(seen.approval, Some(approval));
    let unknown = ApprovalId::derive(sample::agent_id(9), &asked.fingerprint(), 0);
    assert_eq!(ledger.read_approval_by_id(unknown).await.unwrap(), None);
    assert_eq!(
        ledger
            .resolve_approval(
                unknown,
                ApprovalDecision::Approve,
                &sample::ruling(start),
                &sample::audit()
            )
            .await
            .unwrap(),
        ResolveResult::NotFound
    );
}

#[tokio::test]
async fn a_request_after_a_closed_approval_creates_a_new_approval() {
    let (emulator, ledger) = ledger_with(1_000, 10).await;
    let start = sample::start();
    let first = ask(&ledger, "a", start).await;
    let rejected = ledger
        .resolve_approval(
            first,
            ApprovalDecision::Reject,
            &sample::ruling(start),
            &sample::audit(),
        )
        .await
        .unwrap();
    assert!(matches!(rejected, ResolveResult::Done(approval) if approval.status(start) == ApprovalStatus::Rejected));
    let second = ask(&ledger, "b", start).await;
    assert_eq!(
        (second.request_prefix(), second.sequence()),
        (first.request_prefix(), 1)
    );
    assert_eq!(
        ask(&ledger, "c", start).await,
        second,
        "an open one is joined, beyond the first too"
    );
    approve(&ledger, second, start).await;
    assert_eq!(ask(&ledger, "d", start).await, second, "an approved one is still open");
    let expired = start.after(Duration::DAY);
    assert_eq!(ask(&ledger, "e", expired).await.sequence(), 2);
    assert_eq!(ask(&ledger, "a", expired).await, first, "a key stays with its approval");
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn an_approval_is_decided_once_before_it_expires() {
    let (_emulator, ledger) = ledger_with(1_000, 10).await;
    let start = sample::start();
    let id = ask(&ledger, "k", start).await;
    let late = ledger
        .resolve_approval(
            id,
            ApprovalDecision::Approve,
            &sample::ruling(start.after(Duration::DAY)),
            &sample::audit(),
        )
        .await
        .unwrap();
    assert!(matches!(late, ResolveResult::Already(approval) if approval.resolved_at().is_none()));
    approve(&ledger, id, start).await;
    let second = ledger
        .resolve_approval(id, ApprovalDecision::Reject, &sample::ruling(start), &sample::audit())
        .await
        .unwrap();
    assert!(matches!(second, ResolveResult::Already(approval) if approval.status(start) == ApprovalStatus::Approved));
}

#[tokio::test]
async fn an_approval_is_withdrawn_only_while_it_is_unused() {
    let (emulator, ledger) = ledger_with(1_000, 10).await;
    let start = sample::start();
    let withdraw = async |id, at, by: &str| {
        let ruling = ApprovalResolution {
            by: by.to_owned(),
            ..sample::ruling(at)
        };
        ledger.withdraw_approval(id, &ruling, &sample::audit()).await.unwrap()
    };
    let owner = sample::ruling(start).by;
    let id = ask(&ledger, "k", start).await;
    let is =
        |resolved, expected| matches!(resolved, ResolveResult::Already(approval) if approval.status(start) == expected);
    assert!(is(withdraw(id, start, &owner).await, ApprovalStatus::Pending));
    let noted = ApprovalResolution {
        note: Some("fine".to_owned()),
        ..sample::ruling(start)
    };
    let audit = sample::audit();
    let approved = ledger.resolve_approval(id, ApprovalDecision::Approve, &noted, &audit);
    assert!(matches!(approved.await.unwrap(), ResolveResult::Done(_)));
    assert_eq!(withdraw(id, start, "somebody").await, ResolveResult::NotFound);
    assert!(is(
        withdraw(id, start.after(Duration::DAY), &owner).await,
        ApprovalStatus::Approved
    ));
    for _ in 0..2 {
        let ResolveResult::Done(approval) = withdraw(id, start, &owner).await else {
            panic!("not withdrawn")
        };
        assert_eq!(approval.status(start), ApprovalStatus::Rejected);
        assert_eq!(
            approval.users_decision().unwrap().note,
            None,
            "the note of the approval is gone"
        );
    }
    let retried = authorize(&ledger, &retry("k", id), start).await.unwrap();
    assert!(!matches!(retried, Answer::Allowed(_)), "{retried:?}");

    // An approval that a payment has used can't be withdrawn.
    let used = ask(&ledger, "l", start).await;
    approve(&ledger, used, start).await;
    let paid = authorize(&ledger, &retry("l", used), start).await.unwrap();
    assert!(matches!(paid, Answer::Allowed(_)), "{paid:?}");
    assert!(is(withdraw(used, start, &owner).await, ApprovalStatus::Executed));
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn a_payment_and_its_withdrawal_race_for_one_approval() {
    for n in 0..8 {
        let (emulator, ledger) = ledger_with(1_000, 10).await;
        let start = sample::start();
        let id = ask(&ledger, "k", start).await;
        approve(&ledger, id, start).await;
        let (request, ruling, audit) = (retry("k", id), sample::ruling(start), sample::audit());
        let (paid, withdrawn) = if n % 2 == 0 {
            tokio::join!(
                authorize(&ledger, &request, start),
                ledger.withdraw_approval(id, &ruling, &audit)
            )
        } else {
            let withdraw = ledger.withdraw_approval(id, &ruling, &audit);
            let (withdrawn, paid) = tokio::join!(withdraw, authorize(&ledger, &request, start));
            (paid, withdrawn)
        };
        let is_paid = matches!(paid.unwrap(), Answer::Allowed(_));
        assert_eq!(is_paid, matches!(withdrawn.unwrap(), ResolveResult::Already(_)));
        assert_sound(&emulator).await;
    }
}

#[tokio::test]
async fn an_approval_is_used_once_despite_concurrent_retries() {
    for keys in [1, 64] {
        let (emulator, ledger) = ledger_with(10_000, 10).await;
        let id = ask(&ledger, "0", sample::start()).await;
        approve(&ledger, id, sample::start()).await;
        let retries = (0..64).map(|n| retry(&(n % keys).to_string(), id)).collect();
        let answers = at_once(&ledger, retries, sample::start()).await;
        assert_eq!(count(&answers, |answer| matches!(answer, Answer::Allowed(_))), 1);
        assert_eq!(
            count(&answers, |answer| matches!(answer, Answer::ApprovalUsed(_))),
            63,
            "{answers:?}"
        );
        let used = ledger.read_approval_by_id(id).await.unwrap().unwrap();
        assert_eq!(used.status(sample::start()), ApprovalStatus::Executed);
        let [paid] = &ledger.read_settlements(sample::agent_id(1), None, 5).await.unwrap()[..] else {
            panic!()
        };
        assert_eq!(
            (used.settlement_id(), paid.terms.purchase().unwrap().approval),
            (Some(paid.id()), Some(id))
        );
        assert_sound(&emulator).await;
    }
}

#[tokio::test]
async fn approvals_cover_only_their_request_until_expiry() {
    let (emulator, ledger) = ledger_with(10_000, 10).await;
    let start = sample::start();
    let id = ask(&ledger, "k", start).await;
    approve(&ledger, id, start).await;
    // The condition compares the request, so the store does not rely on the caller to do so.
    let other = Request {
        body: "another".to_owned(),
        ..retry("other", id)
    };
    let (granted, terms) = grant(&ledger, &other, start).await;
    let reserved = ledger
        .reserve_payment(&granted, &terms, &other.fingerprint(), &mut Backoff::new())
        .await
        .unwrap();
    assert_eq!(reserved, ReserveResult::Raced);
    let late = retry("k", id);
    let (granted, terms) = grant(&ledger, &late, start.after(Duration::DAY)).await;
    let reserved = ledger
        .reserve_payment(&granted, &terms, &late.fingerprint(), &mut Backoff::new())
        .await
        .unwrap();
    assert_eq!(reserved, ReserveResult::Raced);
    assert!(matches!(
        authorize(&ledger, &late, start).await.unwrap(),
        Answer::Allowed(_)
    ));
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn the_idempotency_key_of_an_escalated_request_rejects_other_requests() {
    let (emulator, ledger) = ledger_with(10_000, 10).await;
    let start = sample::start();
    let waiting = ask(&ledger, "waits", start).await;
    let other = Request {
        body: "another".to_owned(),
        ..request(50, "other")
    };
    let Answer::Waits(id) = authorize(&ledger, &other, start).await.unwrap() else {
        panic!()
    };
    approve(&ledger, id, start).await;
    // The approval is valid for this request, and the idempotency key belongs to the other request.
    let stolen = Request {
        key: "waits".to_owned(),
        approval: Some(id),
        ..other
    };
    let (granted, terms) = grant(&ledger, &stolen, start).await;
    let reserved = ledger
        .reserve_payment(&granted, &terms, &stolen.fingerprint(), &mut Backoff::new())
        .await
        .unwrap();
    assert!(
        matches!(reserved, ReserveResult::IdempotencyRecord(purser_store::IdempotencyRecord::Escalated { approval, .. }) if approval == waiting)
    );
    assert_sound(&emulator).await;
}

/// Returns the `n`th of a series of distinct requests that escalate.
fn question(n: u32, key: &str) -> Request {
    Request {
        body: n.to_string(),
        ..request(50, key)
    }
}

/// Creates pending approvals up to the maximum.
async fn fill(ledger: &Ledger, now: Timestamp) -> Vec<ApprovalId> {
    let mut ids = Vec::new();
    for n in 0..MAX_WAITING {
        match authorize(ledger, &question(n, &n.to_string()), now).await.unwrap() {
            Answer::Waits(id) => ids.push(id),
            other => panic!("{other:?}"),
        }
    }
    ids
}

/// Returns the number of ids in the agent's stored set of pending approvals.
async fn kept(emulator: &Emulator) -> usize {
    let items = scan(&emulator.client, LEDGER, None).await;
    let set = items.iter().find(|item| item["pk"].as_s().unwrap().starts_with("O#"));
    let set = set.unwrap();
    set.get("ids").map_or(0, |ids| ids.as_ss().unwrap().len())
}

async fn would_be_refused(ledger: &Ledger, n: u32, now: Timestamp) -> bool {
    let fingerprint = question(n, "k").fingerprint();
    let refused = ledger.would_exceed_approval_limit(sample::agent_id(1), &fingerprint, &[], MAX_WAITING, now);
    refused.await.unwrap()
}

#[tokio::test]
async fn pending_approvals_per_agent_are_limited() {
    let (emulator, ledger) = ledger_with(1_000, 10).await;
    let start = sample::start();
    assert!(!would_be_refused(&ledger, 0, start).await);
    let ids = fill(&ledger, start).await;
    let more = question(MAX_WAITING, "more");
    assert_eq!(authorize(&ledger, &more, start).await.unwrap(), Answer::Blocked);
    assert!(would_be_refused(&ledger, MAX_WAITING, start).await);
    assert_eq!(ledger.read_approvals(ids.clone()).await.unwrap().len(), ids.len());
    // The limit does not apply to a request that equals a pending request, because both use the same approval.
    assert!(!would_be_refused(&ledger, 3, start).await);
    let joined = authorize(&ledger, &question(3, "joins"), start).await.unwrap();
    assert_eq!(joined, Answer::Waits(ids[3]));

    // An approved approval is open but no longer pending, so it does not count towards the limit.
    approve(&ledger, ids[0], start).await;
    assert!(!would_be_refused(&ledger, MAX_WAITING, start).await);
    assert!(matches!(
        authorize(&ledger, &more, start).await.unwrap(),
        Answer::Waits(_)
    ));
    let joined = authorize(&ledger, &question(0, "joins, too"), start).await.unwrap();
    assert_eq!(joined, Answer::Waits(ids[0]));
    let another = question(MAX_WAITING + 1, "another");
    assert_eq!(authorize(&ledger, &another, start).await.unwrap(), Answer::Blocked);
    assert!(!would_be_refused(&ledger, 0, start).await);
    assert_eq!(kept(&emulator).await, 20);

    let late = start.after(Duration::DAY);
    assert!(matches!(
        authorize(&ledger, &another, late).await.unwrap(),
        Answer::Waits(_)
    ));
    assert_eq!(kept(&emulator).await, 1);
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn concurrent_approval_requests_respect_the_limit() {
    for decided in [0, 7, 20] {
        let (emulator, ledger) = ledger_with(10_000, 10).await;
        let start = sample::start();
        let ids = fill(&ledger, start).await;
        for id in ids.into_iter().take(decided) {
            let ruling = sample::ruling(start);
            ledger
                .resolve_approval(id, ApprovalDecision::Reject, &ruling, &sample::audit())
                .await
                .unwrap();
        }
        let requests = (100..130).map(|n| question(n, &n.to_string())).collect();
        let answers = at_once(&ledger, requests, start).await;
        assert_eq!(count(&answers, |answer| matches!(answer, Answer::Waits(_))), decided);
        assert_eq!(count(&answers, |answer| *answer == Answer::Blocked), 30 - decided);
        assert_eq!(kept(&emulator).await, 20);
        assert_sound(&emulator).await;
    }
}

#[tokio::test]
async fn lost_responses_do_not_duplicate_pending_approvals() {
    for (lost_answers, lost_requests) in [(1, 0), (3, 0), (0, 1), (0, 3), (2, 1)] {
        let (emulator, ledger) = ledger_with(1_000, 10).await;
        let start = sample::start();
        let ids = fill(&ledger, start).await;
        for id in ids.into_iter().take(5) {
            let ruling = sample::ruling(start);
            ledger
                .resolve_approval(id, ApprovalDecision::Reject, &ruling, &sample::audit())
                .await
                .unwrap();
        }
        let config = ProxyConfig {
            lost_answers,
            lost_requests,
            ..ProxyConfig::default()
        };
        let (behind, _proxy) = emulator.ledger_behind(config).await;
        let more = question(MAX_WAITING, "more");
        let asked = authorize(&behind, &more, start).await.unwrap();
        assert!(matches!(asked, Answer::Waits(_)), "{config:?}: {asked:?}");
        assert_eq!(kept(&emulator).await, 16, "{config:?}");
        assert_sound(&emulator).await;
    }
}

/// A retry after a lost response finds its own record. Another decision finds a used key.
#[tokio::test]
async fn an_idempotency_key_is_bound_to_one_decision() {
    let (emulator, ledger) = ledger_with(1_000, 10).await;
    let start = sample::start();
    let key = Fingerprint::for_text("k");
    let mut answers = Vec::new();
    for number in [1, 1, 2] {
        let expires_at = start.after(Duration::DAY);
        let decision = escalation(number, start, &[limit(None, AskingKind::Threshold)]);
        let answer = ledger
            .store_escalation(&key, &decision, None, expires_at, MAX_WAITING)
            .await;
        answers.push(match answer.unwrap() {
            EscalateResult::Staged(_) => "staged",
            EscalateResult::Joined(_) => "joined",
            EscalateResult::IdempotencyRecord(_) => "used",
            EscalateResult::TooMany => "too many",
        });
    }
    assert_eq!(answers, ["staged", "staged", "used"]);
    assert_eq!(kept(&emulator).await, 1);
    assert_sound(&emulator).await;
}

fn limit(rule: Option<u8>, kind: AskingKind) -> AskingLimit {
    AskingLimit {
        rule: rule.map(|number| sample::rule_id(number.into())),
        above: sample::units(10),
        kind,
    }
}

/// Returns a decision about one request that requires an approval of these limits.
fn escalation(number: u8, at: Timestamp, asking: &[AskingLimit]) -> DecisionRecord {
    let intent = sample::intent(50, "k");
    DecisionRecord {
        transaction: TransactionId::new_at(at, [number; 8]),
        agent: sample::agent_id(1),
        key: sample::KEY,
        owner: sample::OWNER.to_owned(),
        transfers: 0,
        service: sample::service_id(1),
        operation: Some(sample::operation().slug),
        amount: intent.offer.amount(),
        pay_to: intent.offer.pay_to(),
        fingerprint: intent.fingerprint,
        call: CallDescription::new(&intent, Some(&sample::operation()), Network::BaseSepolia, at),
        at,
        reason: Reason::ApprovalRequired {
            approval: None,
            amount: intent.offer.amount(),
            threshold: sample::units(10),
            asking: asking.to_vec(),
        },
        policy_version: Some(1),
        inputs: None,
        approval: None,
        checks: vec![],
        latency_ms: 1,
    }
}

/// A request that exceeds only limits of the open approval uses the open approval.
#[tokio::test]
async fn a_request_that_exceeds_further_limits_replaces_the_open_approval() {
    let (emulator, ledger) = ledger_with(1_000, 10).await;
    let threshold = limit(None, AskingKind::Threshold);
    let payee = limit(Some(1), AskingKind::NewPayee);
    let duplicate = limit(Some(2), AskingKind::DuplicateGuard);
    let at = |secs| sample::start().after(Duration::from_secs_u32(secs));
    let escalate = async |number: u8, key: &str, carried, asking: &[AskingLimit]| {
        let now = at(number.into());
        let (key, decision) = (Fingerprint::for_text(key), escalation(number, now, asking));
        let answer = ledger
            .store_escalation(&key, &decision, carried, at(100), MAX_WAITING)
            .await;
        match answer.unwrap() {
            EscalateResult::Staged(approval) => ("staged", approval),
            EscalateResult::Joined(approval) => ("joined", approval),
            other => panic!("{other:?}"),
        }
    };
    let status = async |of: &Approval, now| ledger.read_approval_by_id(of.id).await.unwrap().unwrap().status(now);

    let (_, first) = escalate(1, "a", None, &[threshold, payee]).await;
    assert_eq!(first.asking, [threshold, payee]);
    let (result, joined) = escalate(2, "b", None, &[payee]).await;
    assert_eq!((result, joined.id), ("joined", first.id));
    let (result, second) = escalate(3, "c", None, &[threshold, duplicate]).await;
    assert_eq!((result, second.id.sequence()), ("staged", 1));
    assert_eq!(status(&first, at(2)).await, ApprovalStatus::Pending);
    assert_eq!(status(&first, at(3)).await, ApprovalStatus::Expired);

    approve(&ledger, second.id, at(4)).await;
    // The key "c" is first bound to the approval in the call, and then to the next approval.
    let all = [threshold, duplicate, payee];
    let (result, third) = escalate(5, "c", Some(second.id), &all).await;
    assert_eq!((result, third.id.sequence()), ("staged", 2));
    assert_eq!(third.asking, all);
    assert_eq!(status(&second, at(4)).await, ApprovalStatus::Approved);
    assert_eq!(status(&second, at(5)).await, ApprovalStatus::Expired);
    let stale = escalation(6, at(6), &all);
    let key = Fingerprint::for_text("c");
    let stale = ledger
        .store_escalation(&key, &stale, Some(second.id), at(100), MAX_WAITING)
        .await;
    assert!(matches!(stale.unwrap(), EscalateResult::IdempotencyRecord(_)));
    assert_eq!(kept(&emulator).await, 3);
    assert_sound(&emulator).await;
}

/// Such a request does not reduce the number of approvals of payments.
#[tokio::test]
async fn a_service_has_one_pending_request_for_an_increase() {
    let (emulator, ledger) = ledger_with(1_000, 10).await;
    let start = sample::start();
    let payments = fill(&ledger, start).await;
    let first = ledger.read_approval_by_id(payments[0]).await.unwrap().unwrap();
    let raise = LimitIncreaseRequest {
        caps: IncreasedCaps::default(),
        until: start.after(Duration::from_secs_u32(6 * 86_400)),
        reason: "more".to_owned(),
        asked_of: sample::OWNER.to_owned(),
    };
    let ask = async |service: u128, at: Timestamp, of: &str, most| {
        let service = sample::service_id(service);
        let raise = LimitIncreaseRequest {
            asked_of: of.to_owned(),
            ..raise.clone()
        };
        let asked = Approval {
            fingerprint: Approval::limit_increase_fingerprint(service),
            owner: of.to_owned(),
            service,
            created_at: at,
            expires_at: raise.until,
            resolution: Resolution::Pending,
            ..first.clone()
        };
        match ledger.store_limit_increase_request(&asked, &raise, most).await.unwrap() {
            LimitIncreaseRequestResult::New(approval) => ("new", Some(approval)),
            LimitIncreaseRequestResult::Already(approval) => ("already", Some(approval)),
            LimitIncreaseRequestResult::TooMany => ("too many", None),
        }
    };
    let secs = |secs| start.after(Duration::from_secs_u32(secs));
    let (result, asked) = ask(1, start, sample::OWNER, 2).await;
    let asked = asked.unwrap();
    assert_eq!((result, asked.id.sequence()), ("new", 0));
    assert_eq!(
        ask(1, secs(1), sample::OWNER, 2).await,
        ("already", Some(asked.clone()))
    );
    assert_eq!(ask(2, start, sample::OWNER, 2).await.0, "new");
    assert_eq!(ask(3, start, sample::OWNER, 2).await, ("too many", None));
    assert_eq!(kept(&emulator).await, 20, "the payments");

    let (decide, ruling) = (ApprovalDecision::Reject, sample::ruling(secs(10)));
    ledger
        .resolve_approval(asked.id, decide, &ruling, &sample::audit())
        .await
        .unwrap();
    let day = Duration::DAY.secs();
    let day = u32::try_from(day).unwrap();
    let (result, rejected) = ask(1, secs(10 + day - 1), sample::OWNER, 2).await;
    assert_eq!((result, rejected.unwrap().id), ("already", asked.id));
    assert_eq!(ask(1, secs(11), "another owner", 2).await.0, "new");
    let (result, second) = ask(2, secs(10 + day), sample::OWNER, 2).await;
    assert_eq!((result, second.unwrap().id.sequence()), ("already", 0));
    let (result, again) = ask(1, secs(10 + day), sample::OWNER, 3).await;
    let again = again.unwrap();
    assert_eq!((result, again.id.sequence()), ("new", 2));
    approve(&ledger, again.id, secs(11 + day)).await;
    assert_eq!(ask(1, secs(12 + day), sample::OWNER, 3).await.0, "new");
    assert_sound(&emulator).await;
}
