//! The mail service of a stack: a test double, or an inbox with a page.

use crate::bridge;
use crate::error::StackError;
use crate::iam_recorder::{IamRecorder, recorder_url};
use crate::processes::{self, ChildError};
use purser_testkit::Ses;
use std::net::IpAddr;
use tokio::process::Child;

const SENDER: &str = "purser@example.test";

/// The mail service of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MailService {
    /// A test double, which keeps the mail: [`Mail::ses`].
    #[default]
    StandIn,
    /// `aws-ses-v2-local` on this port, if it is installed; zero selects a free port.
    Inbox(u16),
}

/// The running mail service.
pub struct Mail {
    /// The test double, which keeps the mail.
    pub ses: Ses,
    /// The URL of the page that lists the mail; `None` without a page.
    pub inbox_url: Option<String>,
    /// The URL for functions; `None` without a mail service.
    url: Option<String>,
    _child: Option<Child>,
}

impl Mail {
    /// Starts the mail service. A recorder records the functions' calls to it.
    pub(crate) async fn start(
        service: MailService,
        recorder: Option<&IamRecorder>,
        report_progress: impl Fn(&str),
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
            report_progress("no mail is sent: infra/setup.sh mail installs the mail service");
        }
        let (child, inbox_url) = inbox.unzip();
        Ok(Self {
            ses,
            inbox_url,
            url: match url {
                Some(url) => Some(recorder_url(recorder, url).await),
                None => None,
            },
            _child: child,
        })
    }

    /// Returns the functions' environment variables, with the bridge's address if there is a bridge.
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
