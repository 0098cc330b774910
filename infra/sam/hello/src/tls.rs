//! Makes one call over TLS, to `TLS_URL`, and answers: the floor under a function's first call of anything.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};

#[expect(clippy::disallowed_methods, reason = "it has no settings but this one")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let hello = async |_: LambdaEvent<Value>| {
        let url = std::env::var("TLS_URL")?;
        let status = reqwest::get(url).await?.status().as_u16();
        Ok::<_, Error>(json!({"statusCode": 200, "body": format!("hello, {status}")}))
    };
    lambda_runtime::run(service_fn(hello)).await
}
