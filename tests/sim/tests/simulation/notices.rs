//! The notifications of a small run: the seed determines who is notified of which event, and which calls fail.

use crate::webhooks::{check, plan};
use purser_sim::run;

/// The mail service fails or rejects one user, and users update their settings meanwhile.
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

/// A message is delivered twice, and the second time after the first delivery has sent its mail and was deleted. The
/// mail of the next event must not wait for that message.
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
