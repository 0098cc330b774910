//! The embedded DynamoDB emulator with the tables of `template.yaml`.

use crate::{Streams, Template};
use dynoxide::{Database, server};
use std::io;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Creates an in-memory database with empty tables.
pub fn database() -> Database {
    static TEMPLATE: LazyLock<Template> = LazyLock::new(Template::of_repository);
    let database = Database::memory().expect("a database");
    TEMPLATE.create_tables(&database, Streamed::Off);
    database
}

/// Whether tables have the streams that the template declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streamed {
    On,
    Off,
}

/// Creates an in-memory database with an index for streams. Without the index, each write reads all stream records.
fn with_indexed_streams() -> Database {
    static DATABASES: AtomicU64 = AtomicU64::new(0);
    // With a unique name in the URI, a second connection can open the same database (SQLite, "In-Memory Databases And
    // Shared Cache").
    let number = DATABASES.fetch_add(1, Ordering::Relaxed);
    let uri = format!("file:streamed-{number}?mode=memory&cache=shared");
    let database = Database::new(&uri).expect("a database");
    let connection = rusqlite::Connection::open(&uri).expect("the same database");
    let index = "CREATE INDEX latest ON _stream_records (table_name, CAST(sequence_number AS INTEGER))";
    connection.execute_batch(index).expect("an index");
    database
}

/// A running database on a separate thread. Dropping the database deletes its data.
pub struct DynamoDb {
    /// The URL of the database.
    pub url: String,
    _stop: oneshot::Sender<()>,
}

impl DynamoDb {
    /// Starts a database on a loopback port; zero selects a free port.
    pub fn start(port: u16) -> io::Result<Self> {
        Self::new(database(), port)
    }

    /// Starts a database whose tables have streams; zero selects a free port.
    pub fn with_streams(port: u16) -> io::Result<(Self, Streams)> {
        let template = Template::of_repository();
        let database = with_indexed_streams();
        template.create_tables(&database, Streamed::On);
        let streams = Streams::new(database.clone(), &template.streamed_tables());
        Ok((Self::new(database, port)?, streams))
    }

    fn new(database: Database, port: u16) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new().name("dynamodb".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a socket");
                tokio::select! {
                    () = server::serve_on(listener, database) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { url, _stop: stop })
    }
}
