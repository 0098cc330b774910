//! Limits the concurrent calls of one key and to one provider, so that neither occupies all instances.

use purser_api::Clock;
use purser_domain::{AgentId, KeyId};
use purser_mcp::{CallLimit, CallsOf, OpenCall, TooManyCalls};
use purser_store::{CallLease, CallLeases, TakeLeaseResult};
use std::sync::Arc;
use std::time::Duration;

/// The `Retry-After` if the number of running tool calls could not be determined.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Counts the running tool calls of each agent key and to each provider. Clones share the state.
#[derive(Clone)]
pub(crate) struct OpenCalls {
    pub(crate) leases: Arc<CallLeases>,
    pub(crate) per_key: u32,
    pub(crate) per_provider: u32,
    pub(crate) clock: Clock,
}

impl OpenCalls {
    /// Returns the limit on the concurrent calls of this verified key.
    pub(crate) fn call_limit(&self, agent: AgentId, key: KeyId) -> CallLimit {
        let calls = self.clone();
        let caller = format!("key {agent}#{key}");
        CallLimit::new(move |host| {
            let (calls, caller) = (calls.clone(), caller.clone());
            Box::pin(async move { calls.acquire_caller_and_provider_leases(caller, host).await })
        })
    }

    async fn acquire_caller_and_provider_leases(
        self,
        caller: String,
        host: Option<String>,
    ) -> Result<OpenCall, TooManyCalls> {
        let provider = async {
            match host {
                Some(host) => {
                    let lease = self.acquire_call_lease(format!("host {host}"), self.per_provider, CallsOf::Provider);
                    lease.await.map(Some)
                }
                None => Ok(None),
            }
        };
        let caller = self.acquire_call_lease(caller, self.per_key, CallsOf::Caller);
        let (caller, provider) = tokio::join!(caller, provider);
        match (caller, provider) {
            (Ok(caller), Ok(provider)) => Ok(OpenCall::new(Box::pin(async move {
                let end = async |lease| {
                    if let Some(lease) = lease {
                        self.release_lease(lease).await;
                    }
                };
                tokio::join!(end(Some(caller)), end(provider));
            }))),
            (Ok(caller), Err(refused)) => {
                self.release_lease(caller).await;
                Err(refused)
            }
            (Err(refused), provider) => {
                if let Ok(Some(provider)) = provider {
                    self.release_lease(provider).await;
                }
                Err(refused)
            }
        }
    }

    async fn acquire_call_lease(
        &self,
        scope: String,
        max_calls: u32,
        call_kind: CallsOf,
    ) -> Result<CallLease, TooManyCalls> {
        match self.leases.take_lease(scope, max_calls, self.clock.now()).await {
            Ok(TakeLeaseResult::Taken(lease)) => Ok(lease),
            Ok(TakeLeaseResult::Full { retry_after }) => Err(TooManyCalls {
                of: Some(call_kind),
                retry_after: Duration::from_secs(retry_after.secs_rounded_up()),
            }),
            Err(error) => {
                tracing::warn!(cause = %error, "mcp.calls_not_counted");
                Err(TooManyCalls {
                    of: None,
                    retry_after: RETRY_DELAY,
                })
            }
        }
    }

    /// Ends a lease. After a failed write, the lease ends when it expires.
    async fn release_lease(&self, lease: CallLease) {
        if let Err(error) = self.leases.end_lease(lease).await {
            tracing::warn!(cause = %error, "mcp.call_not_ended");
        }
    }
}
