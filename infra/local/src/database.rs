//! The embedded DynamoDB. It runs on a thread of its own, since it does its work on the threads that serve it.

use dynoxide::{Database, server};
use std::io;
use std::net::SocketAddr;
use std::thread;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A running database; it stops when this is dropped, and everything in it is gone.
pub(crate) struct EmbeddedDynamo {
    pub(crate) url: String,
    _stop: oneshot::Sender<()>,
}

impl EmbeddedDynamo {
    /// Starts an empty database in memory, on a loopback port; zero picks a free one.
    pub(crate) fn start(port: u16) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let database = Database::memory().map_err(io::Error::other)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new().name("dynamodb".to_owned()).spawn(move || {
            runtime.block_on(async move {
                if let Ok(listener) = TcpListener::from_std(listener) {
                    tokio::select! {
                        () = server::serve_on(listener, database) => {}
                        _ = stopped => {}
                    }
                }
            });
        })?;
        Ok(Self { url, _stop: stop })
    }
}
