//! The errors of starting a stack.

use crate::chain::DevChainError;
use crate::gateway::UnroutedError;
use crate::processes::ChildError;
use crate::seed::SeedError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The reason why a stack did not start.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// A port can't be opened, usually because another program uses it.
    #[error("port {port} of 127.0.0.1: {source}")]
    Port {
        /// The port; zero for any port.
        port: u16,
        /// The system's error.
        source: io::Error,
    },
    /// A port at the bridge's address can't be opened.
    #[error("{address}: {source}")]
    Bridge {
        /// The address and the port.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Anvil or the providers did not start.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// A call to the local chain failed.
    #[error(transparent)]
    Chain(#[from] DevChainError),
    /// The template has a route whose function the stack does not start.
    #[error(transparent)]
    Unrouted(#[from] UnroutedError),
    /// The file for recorded AWS calls can't be opened.
    #[error("{path} can't be written: {source}", path = .path.display())]
    Record {
        /// The file's path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The demo data could not be created.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// A function did not start.
    #[error("the function {function} did not start: {source}")]
    Function {
        /// The function's logical id in `template.yaml`.
        function: &'static str,
        /// The function's error.
        source: purser_api::BootError,
    },
}
