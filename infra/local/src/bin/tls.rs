//! A TLS proxy for local AWS services, because functions call AWS over TLS (`infra/sam/bench_cold.py`).
//!
//! `tls CERTIFICATE KEY ADDRESS…` takes PEM files and the servers' addresses as `<host>:<port>`. It prints the loopback
//! address of each server's proxy.

use std::{env, error::Error, io::Write as _, process::ExitCode, sync::Arc};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "tls: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let (Some(certificate), Some(key)) = (arguments.next(), arguments.next()) else {
        return Err("tls CERTIFICATE KEY ADDRESS…".into());
    };
    let certificates = CertificateDer::pem_file_iter(certificate)?.collect::<std::result::Result<_, _>>()?;
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certificates, PrivateKeyDer::from_pem_file(key)?)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let mut fronts = Vec::new();
    for address in arguments {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
        fronts.push(tokio::spawn(front(listener, acceptor.clone(), address)));
    }
    for front in fronts {
        front.await?;
    }
    Ok(())
}

async fn front(listener: TcpListener, acceptor: TlsAcceptor, address: String) {
    while let Ok((plain, _)) = listener.accept().await {
        let (acceptor, address) = (acceptor.clone(), address.clone());
        tokio::spawn(async move {
            let _ = plain.set_nodelay(true);
            let (Ok(mut outside), Ok(mut inside)) = tokio::join!(acceptor.accept(plain), TcpStream::connect(address))
            else {
                return;
            };
            let _ = inside.set_nodelay(true);
            let _ = copy_bidirectional(&mut outside, &mut inside).await;
        });
    }
}
