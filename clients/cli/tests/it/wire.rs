//! Tests of the command's requests: the `User-Agent` header, the proxy and the certificate authorities.

use crate::home::{Home, TOKEN};
use purser_tests::Recorder;

/// No server listens at these addresses, so every received request came through the proxy.
#[tokio::test(flavor = "multi_thread")]
async fn commands_send_a_user_agent_and_use_the_configured_proxy() {
    const PURSER: &str = "http://127.0.0.1:9";
    let proxy = Recorder::start(|_| None).await;
    let home = || {
        let home = Home::at(PURSER).with("HTTP_PROXY", &proxy.url);
        home.with("PURSER_KEY", "gak_pub_1:gak_sec_2")
    };
    let rows: [(&[&str], &str, &str); 4] = [
        (&["services"], "http://127.0.0.1:9/services", "purser-client-rust/"),
        (
            &["pay", "http://provider.example/x", "--max", "0.01"],
            "http://provider.example/x",
            "purser-client-rust/",
        ),
        (&["catalog", "export", "all"], "http://127.0.0.1:9/", "purser-cli/"),
        (
            &["catalog", "import", "http://127.0.0.1:9/bazaar"],
            "http://127.0.0.1:9/bazaar/discovery/resources",
            "purser-cli/",
        ),
    ];
    for (arguments, target, name) in rows {
        let said = home().with(TOKEN, "operator-token").run(arguments).await;
        let requests = proxy.take();
        let found = requests.iter().find(|request| request.target.starts_with(target));
        let found = found.unwrap_or_else(|| panic!("{arguments:?}: {said:?} {requests:?}"));
        let expected = format!("{name}{}", env!("CARGO_PKG_VERSION"));
        assert_eq!(found.header("user-agent"), expected, "{arguments:?}");
        for encoding in ["gzip", "deflate", "br"] {
            assert!(found.header("accept-encoding").contains(encoding), "{arguments:?}");
        }
        let direct = home()
            .with("NO_PROXY", "127.0.0.1,provider.example")
            .run(arguments)
            .await;
        assert!(proxy.take().is_empty() && direct.code != 0, "{arguments:?}: {direct:?}");
    }
}

/// The provider's certificate is verified with the certificate authorities from the environment.
#[tokio::test(flavor = "multi_thread")]
async fn commands_trust_the_certificate_authorities_of_the_environment() {
    let home = Home::at("http://127.0.0.1:9").with("PURSER_KEY", "gak_pub_1:gak_sec_2");
    let certificate = home.folder().join("certificate.pem");
    let provider = Recorder::start_tls(&certificate).await;
    let url = format!("{}/gzip", provider.url);
    let arguments = ["pay", &url, "--max", "0.01"];
    let rejected = home.run(&arguments).await;
    assert!(rejected.code != 0 && provider.take().is_empty(), "{rejected:?}");
    let home = home.with("SSL_CERT_FILE", certificate.display().to_string());
    let trusted = home.run(&arguments).await;
    assert_eq!(provider.take().len(), 1, "{trusted:?}");
}
