//! Tests the rows of grants: each code is used once, and a refresh token rotates once.

use purser_domain::{
    ClientName, DeviceCode, DeviceRequest, DeviceState, Fingerprint, GrantCode, GrantRecord, KeyId, NewGrantCode,
    PkceChallenge, RedirectUri, Timestamp,
};
use purser_testkit::{Emulator, sample};
use tokio::task::JoinSet;

fn at(seconds: u32) -> Timestamp {
    sample::start().after(sample::secs(seconds))
}

fn grant(rotated_at: Timestamp) -> GrantRecord {
    GrantRecord {
        agent: sample::agent_id(1),
        grant: KeyId(7),
        client: Fingerprint::for_text("client"),
        generation: 1,
        rotated_at,
        expires_at: at(86_400),
        ended_at: None,
    }
}

#[tokio::test]
async fn of_concurrent_uses_of_an_authorization_code_one_succeeds() {
    let ledger = Emulator::start().await.ledger();
    let code = GrantCode {
        digest: NewGrantCode::from_random([7; 32]).digest,
        agent: sample::agent_id(1),
        grant: KeyId(7),
        client: Fingerprint::for_text("client"),
        redirect_uri: RedirectUri::parse("https://a.example/cb").unwrap(),
        challenge: PkceChallenge::from_bytes([1; 32]),
        expires_at: at(60),
        used_at: None,
    };
    assert_eq!(ledger.read_grant_code(&code.digest).await.unwrap(), None);
    ledger.add_grant_code(&code).await.unwrap();
    assert_eq!(ledger.read_grant_code(&code.digest).await.unwrap(), Some(code.clone()));
    let mut uses = JoinSet::new();
    for n in 1..=4 {
        let (ledger, code) = (ledger.clone(), code.clone());
        uses.spawn(async move { ledger.redeem_grant_code(&code, &grant(at(n)), at(n)).await.unwrap() });
    }
    assert_eq!(uses.join_all().await.into_iter().filter(|used| *used).count(), 1);
    assert!(
        ledger
            .read_grant_code(&code.digest)
            .await
            .unwrap()
            .unwrap()
            .used_at
            .is_some()
    );
    assert!(
        ledger
            .read_grant(sample::agent_id(1), KeyId(7))
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn a_refresh_token_rotates_once_and_not_after_its_end() {
    let ledger = Emulator::start().await.ledger();
    let code = DeviceCode::from_random([1; 8], [2; 32]).0;
    let (agent, id) = (sample::agent_id(1), KeyId(7));
    let request = DeviceRequest {
        user_code: code.user_code.clone(),
        digest: code.digest,
        client: Fingerprint::for_text("client"),
        client_name: ClientName::parse("client").unwrap(),
        expires_at: at(600),
        polled_at: None,
        state: DeviceState::Pending,
    };
    assert!(ledger.add_device_request(&request).await.unwrap());
    assert!(
        !ledger.add_device_request(&request).await.unwrap(),
        "the user code is taken"
    );
    assert!(
        !ledger
            .redeem_device_request(&code.user_code, &grant(at(0)))
            .await
            .unwrap()
    );
    let approved = DeviceState::Approved { agent, grant: id };
    assert!(
        !ledger
            .decide_device_request(&code.user_code, approved, at(600))
            .await
            .unwrap(),
        "too late"
    );
    assert!(
        ledger
            .decide_device_request(&code.user_code, approved, at(599))
            .await
            .unwrap()
    );
    assert!(
        !ledger
            .decide_device_request(&code.user_code, DeviceState::Denied, at(599))
            .await
            .unwrap()
    );
    ledger.record_device_poll(&code.user_code, at(599)).await.unwrap();
    let stored = ledger.read_device_request(&code.user_code).await.unwrap().unwrap();
    assert_eq!(
        stored,
        DeviceRequest {
            polled_at: Some(at(599)),
            state: approved,
            ..request
        }
    );

    assert!(
        ledger
            .redeem_device_request(&code.user_code, &grant(at(599)))
            .await
            .unwrap()
    );
    // A repetition of the same attempt, whose response was lost.
    assert!(
        ledger
            .redeem_device_request(&code.user_code, &grant(at(599)))
            .await
            .unwrap()
    );
    assert!(
        !ledger
            .redeem_device_request(&code.user_code, &grant(at(600)))
            .await
            .unwrap()
    );
    let first = ledger.read_grant(agent, id).await.unwrap().unwrap();
    assert!(ledger.rotate_grant(&first, at(700)).await.unwrap());
    assert!(!ledger.rotate_grant(&first, at(700)).await.unwrap());
    let second = ledger.read_grant(agent, id).await.unwrap().unwrap();
    assert_eq!((second.generation, second.rotated_at), (2, at(700)));
    ledger.end_grant(agent, id, at(800)).await.unwrap();
    ledger.end_grant(agent, id, at(900)).await.unwrap();
    assert!(!ledger.rotate_grant(&second, at(900)).await.unwrap());
    assert_eq!(
        ledger.read_grant(agent, id).await.unwrap().unwrap().ended_at,
        Some(at(800))
    );
    ledger.end_grant(agent, KeyId(8), at(900)).await.unwrap();
    assert_eq!(ledger.read_grant(agent, KeyId(8)).await.unwrap(), None);
}
