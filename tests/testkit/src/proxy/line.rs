//! Connections that a test can break in the middle of a response, or leave open while they drop all data.

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Breaks the connection of a request.
#[derive(Clone, Default)]
pub(crate) struct Line(Arc<AtomicU8>);

const WHOLE: u8 = 0;
/// Half of the next write is sent, and then the connection breaks.
const CUT: u8 = 1;
/// Every further write fails.
const GONE: u8 = 2;

impl Line {
    /// Sends half of the next write, then breaks the connection.
    pub(crate) fn cut_off(&self) {
        self.0.store(CUT, SeqCst);
    }

    /// Breaks the connection before the next write.
    pub(crate) fn hang_up(&self) {
        self.0.store(GONE, SeqCst);
    }
}

/// A listener whose connections are [`Line`]s.
pub(crate) struct Lines {
    pub(crate) listener: TcpListener,
    pub(crate) opened: Arc<Opened>,
}

/// Counts the connections of a listener, and makes them drop data.
#[derive(Default)]
pub(crate) struct Opened {
    count: AtomicUsize,
    /// The number of connections that drop all data. These are the oldest connections.
    dead: AtomicUsize,
}

impl Opened {
    /// Returns the number of connections opened so far.
    pub(crate) fn count(&self) -> usize {
        self.count.load(SeqCst)
    }

    /// Drops all further data on the connections opened so far.
    pub(crate) fn forget(&self) {
        self.dead.store(self.count(), SeqCst);
    }
}

impl Listener for Lines {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let connection = Connection {
            stream,
            line: Line::default(),
            number: self.opened.count.fetch_add(1, SeqCst),
            opened: Arc::clone(&self.opened),
        };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Connected<IncomingStream<'_, Lines>> for Line {
    fn connect_info(stream: IncomingStream<'_, Lines>) -> Self {
        stream.io().line.clone()
    }
}

pub(crate) struct Connection {
    stream: TcpStream,
    line: Line,
    number: usize,
    opened: Arc<Opened>,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.number < self.opened.dead.load(SeqCst) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.line.0.load(SeqCst) {
            WHOLE => Pin::new(&mut self.stream).poll_write(context, bytes),
            CUT => {
                self.line.hang_up();
                let half = bytes.get(..bytes.len() / 2).unwrap_or_default();
                Pin::new(&mut self.stream).poll_write(context, half)
            }
            _ => Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
