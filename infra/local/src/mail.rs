//! Who takes what is mailed to people.

use crate::bridge;
use crate::error::StackError;
use crate::iam_recorder::{IamRecorder, recorded};
use crate::processes::{self, ChildError};
use purser_testkit::Ses;
use std::net::IpAddr;
use tokio::process::Child;

/// Who mails, here.
const SENDER: &str = "purser@example.test";

/// Who takes what is mailed to people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MailService {
    /// A stand-in, which keeps it for a test: [`Mail::ses`].
    #[default]
    StandIn,
    /// `aws-ses-v2-local` on this port, zero for any free one, with a page to look at: [`Mail::inbox_url`]. Where it is not
    /// installed, nothing is mailed.
    Inbox(u16),
}

/// The mail service that runs.
pub struct Mail {
    /// The sent mails, in the stand-in.
    pub ses: Ses,
    /// The page of what was mailed, where there is one.
    pub inbox_url: Option<String>,
    /// Where functions reach it.
    url: Option<String>,
    _child: Option<Child>,
}

impl Mail {
    /// Starts it. Functions reach it through the recorder, if there is one.
    pub(crate) async fn start(
        service: MailService,
        recorder: Option<&IamRecorder>,
        say: impl Fn(&str),
    ) -> Result<Self, ChildError> {
        let ses = Ses::default();
        let (inbox, url) = match service {
            MailService::StandIn => (None, Some(ses.serve().await)),
            MailService::Inbox(port) => {
                let inbox = processes::inbox(port).await?;
                let url = inbox.as_ref().map(|(_, url)| url.clone());
                (inbox, url)
            }
        };
        if url.is_none() {
            say("no mail is sent: infra/setup.sh mail installs the mail service");
        }
        let (child, inbox_url) = inbox.unzip();
        Ok(Self {
            ses,
            inbox_url,
            url: match url {
                Some(url) => Some(recorded(recorder, url).await),
                None => None,
            },
            _child: child,
        })
    }

    /// The functions' variables: with a bridge, containers reach it over that.
    pub(crate) async fn variables(&self, bridge: Option<IpAddr>) -> Result<Vec<(String, String)>, StackError> {
        let Some(url) = &self.url else {
            return Ok(Vec::new());
        };
        let url = match bridge {
            Some(bridge) => bridge::open(bridge, url).await?,
            None => url.clone(),
        };
        let variables = [("SES_ENDPOINT", url), ("NOTICES_SENDER", SENDER.to_owned())];
        Ok(variables.map(|(name, value)| (name.to_owned(), value)).into())
    }
}
