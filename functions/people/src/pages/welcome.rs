//! The page of people who have not signed in.

use super::notice::Notice;
use super::shell::{brand, document, head, note};
use maud::{DOCTYPE, Markup, html};

/// One button. `start` is where it leads: the way to the issuer, which remembers where the person wanted to go.
pub(crate) fn sign_in_page(start: &str, notice: Option<Notice>) -> Markup {
    document(
        "Sign in",
        None,
        &html! {
            main.welcome id="main" {
                div.welcome-card {
                    (brand())
                    @if let Some(notice) = notice { (note(notice)) }
                    h1 { "Your agents spend. You decide." }
                    p { "Set what each agent may pay for, approve what it asks for, and see every payment and every refusal." }
                    a.primary.wide href=(start) { "Sign in" }
                    p.hint { "You sign in where your account is kept; Purser never sees your password." }
                }
            }
        },
    )
}

/// The page that leads on to the issuer, so that its session ends with ours. It needs no script, and no form: those
/// never lead to another site.
pub(crate) fn leaving_page(next: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (head("Signing out"))
                meta http-equiv="refresh" content=(format!("0;url={next}"));
            }
            body {
                main.welcome id="main" {
                    div.welcome-card {
                        (brand())
                        h1 { "Signing out" }
                        p { "Your session here has ended. Your account’s own sign-out follows." }
                        a.primary.wide href=(next) { "Go on" }
                    }
                }
            }
        }
    }
}
