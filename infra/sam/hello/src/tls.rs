//! A function that makes one TLS call to `TLS_URL`. `infra/sam/bench_cold.py` compares the functions with it.

use aws_smithy_http_client::{
    Connector,
    tls::{Provider, rustls_provider::CryptoMode},
};
use aws_smithy_runtime_api::client::{http::HttpConnector as _, orchestrator::HttpRequest};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};

#[expect(clippy::disallowed_methods, reason = "it has no settings but this one")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let hello = async |_: LambdaEvent<Value>| {
        let mut get = HttpRequest::empty();
        get.set_uri(std::env::var("TLS_URL")?)?;
        let http = Connector::builder()
            .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
            .build();
        let status = http.call(get).await?.status().as_u16();
        Ok::<_, Error>(json!({"statusCode": 200, "body": format!("hello, {status}")}))
    };
    lambda_runtime::run(service_fn(hello)).await
}
