//! Startup work that runs in the background.

use crate::BootError;
use tokio::{runtime::Handle, task::spawn_blocking};

/// Where background work runs.
///
/// Two threads start a function faster, because AWS clients, TLS handshakes and keys take CPU time.
#[derive(Clone, Copy, Debug)]
pub enum Background {
    /// A separate thread. Timers and connections belong to the caller's Tokio runtime, so that pooled connections stay
    /// open.
    Thread,
    /// The caller's thread, while the caller awaits the result. The simulation has only one thread.
    Inline,
}

impl Background {
    /// Returns a future with the result. [`Self::Thread`] starts the work now, and returns a panic as error.
    /// [`Self::Inline`] starts the work when the future is awaited, and does not catch a panic.
    pub fn spawn<T: Send + 'static>(
        self,
        work: impl Future<Output = Result<T, BootError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, BootError>> {
        let begun = match self {
            Self::Thread => Ok(spawn_blocking(|| Handle::current().block_on(work))),
            Self::Inline => Err(work),
        };
        async {
            match begun {
                Ok(thread) => thread.await?,
                Err(work) => work.await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{thread, time::Duration};
    use tokio::runtime::Builder;
    use tokio::time::{sleep, timeout};

    async fn whereabouts() -> Result<thread::ThreadId, BootError> {
        // Timers must work on the thread that does the work.
        sleep(Duration::from_millis(1)).await;
        Ok(thread::current().id())
    }

    #[tokio::test]
    async fn background_work_runs_on_another_or_current_thread() {
        let this = thread::current().id();
        assert_ne!(Background::Thread.spawn(whereabouts()).await.unwrap(), this);
        assert_eq!(Background::Inline.spawn(whereabouts()).await.unwrap(), this);
    }

    #[tokio::test]
    async fn background_work_starts_without_being_awaited() {
        let (done, told) = tokio::sync::oneshot::channel();
        let begun = Background::Thread.spawn(async { Ok(done.send(())) });
        timeout(Duration::from_mins(1), told).await.unwrap().unwrap();
        begun.await.unwrap().unwrap();
    }

    #[test]
    fn background_work_does_not_delay_shutdown() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (begun, told) = std::sync::mpsc::channel();
        runtime.block_on(async {
            let _left = Background::Thread.spawn(async move {
                begun.send(()).unwrap();
                sleep(Duration::from_hours(1)).await;
                Ok(())
            });
            told.recv().unwrap();
        });
        let (ended, end) = std::sync::mpsc::channel();
        thread::spawn(move || {
            drop(runtime);
            ended.send(()).unwrap();
        });
        end.recv_timeout(Duration::from_mins(1)).unwrap();
    }

    #[tokio::test]
    async fn a_failed_background_task_fails_its_caller() {
        for background in [Background::Thread, Background::Inline] {
            let failed = background.spawn(async { Err::<(), BootError>("no seed".into()) }).await;
            assert_eq!(failed.unwrap_err().to_string(), "no seed");
        }
        let panicked = Background::Thread.spawn::<()>(async { panic!("a bug") }).await;
        assert!(panicked.unwrap_err().to_string().contains("panicked"));
    }
}
