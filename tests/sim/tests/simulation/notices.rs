//! The notifications of small runs.

use crate::webhooks::{check, plan};
use purser_sim::run;

/// The mail service fails for one user, and users change their settings.
#[test]
fn simulated_notifications_follow_the_users_settings() {
    let coverage = check([1, 4, 7]);
    for what in [
        "Collect crashed",
        "Flush crashed",
        "Flush in part",
        "Test done",
        "dropped for a refused address",
        "left out: answered",
        "mail refused",
        "mailed as a digest",
        "told by mail",
    ] {
        assert!(coverage.occurrences(what) > 0, "{what} did not happen:\n{coverage}");
    }
}

/// The second delivery of a message comes after the first was deleted. The next mail must not wait for it.
#[test]
fn a_deleted_wake_up_message_does_not_block_notifications() {
    check([103]);
}

#[test]
fn simulated_mails_are_deterministic() {
    let [first, second] = [(); 2].map(|()| run(&plan(4)).trace);
    assert!(first.iter().any(|call| call.contains("SendEmail")));
    assert_eq!(first, second);
}
