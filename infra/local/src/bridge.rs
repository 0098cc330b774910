//! Opens the stack's loopback ports at an address that containers can reach, because a container has its own loopback
//! interface.

use crate::error::StackError;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use url::Url;

/// Returns the URL at which containers reach a loopback service.
pub(crate) fn across(bridge: IpAddr, loopback: &str) -> Result<String, StackError> {
    let moved = |mut url: Url| url.set_ip_host(bridge).is_ok().then_some(url);
    let url = Url::parse(loopback).ok().and_then(moved);
    // A `Url` prints an empty path as a slash.
    url.map(|url| url.as_str().trim_end_matches('/').to_owned())
        .ok_or_else(|| StackError::Bridge {
            address: SocketAddr::from((bridge, 0)),
            source: std::io::Error::other(format!("`{loopback}` is no address")),
        })
}

/// Forwards a port at the bridge's address to loopback. Returns the URL at the bridge.
pub(crate) async fn open(bridge: IpAddr, loopback: &str) -> Result<String, StackError> {
    let url = across(bridge, loopback)?;
    let port = Url::parse(loopback).ok().and_then(|url| url.port()).unwrap_or_default();
    let address = SocketAddr::from((bridge, port));
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| StackError::Bridge { address, source })?;
    tokio::spawn(async move {
        while let Ok((mut caller, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut service = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
                copy_bidirectional(&mut caller, &mut service).await
            });
        }
    });
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn the_container_bridge_forwards_data_in_both_directions() {
        // No service listens at this loopback address, so the test uses it as the bridge's address.
        let bridge = IpAddr::from([127, 0, 0, 2]);
        let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = service.local_addr().unwrap().port();
        let url = open(bridge, &format!("http://127.0.0.1:{port}")).await.unwrap();
        assert_eq!(url, format!("http://127.0.0.2:{port}"));
        let mut caller = TcpStream::connect((bridge, port)).await.unwrap();
        let (mut far_end, _) = service.accept().await.unwrap();
        let mut heard = [0; 4];
        caller.write_all(b"ping").await.unwrap();
        far_end.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"ping");
        far_end.write_all(b"pong").await.unwrap();
        caller.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"pong");
    }

    #[tokio::test]
    async fn an_unavailable_container_bridge_address_is_reported() {
        // A documentation address (RFC 5737 §3), which no machine has.
        let error = open(IpAddr::from([192, 0, 2, 1]), "http://127.0.0.1:9")
            .await
            .unwrap_err();
        assert!(error.to_string().starts_with("192.0.2.1:9: "), "{error}");
    }
}
